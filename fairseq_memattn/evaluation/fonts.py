"""Fonts for a picture whose text has characters that matplotlib's default font lacks."""

import functools
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fairseq_memattn.evaluation.swapped_groups import script

# It has a box for every character.
LAST_RESORT = "Last Resort"
CJK = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"}


@contextmanager
def fonts_for(texts: Iterable[str]) -> Iterator[None]:
    """Lets matplotlib draw texts with other installed fonts where its default lacks characters.

    Prints a warning that names a package of fonts if no font has some characters.
    """
    import matplotlib
    from matplotlib.font_manager import FontProperties, findfont

    missing = {char for text in texts for char in text if char.isprintable() and char != " "}
    families = list(matplotlib.rcParams["font.family"])
    missing -= _characters(Path(findfont(FontProperties())))
    while missing:
        name, found = _best_font(missing)
        if not found:
            break
        families.append(name)
        missing -= found
    if missing:
        print(f"warning: {_advice(sorted(missing))}", file=sys.stderr)
    with matplotlib.rc_context({"font.family": families}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from font")
        yield


def _best_font(wanted: set[str]) -> tuple[str, set[str]]:
    """The name of the installed font with most of the wanted characters, and these."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    # matplotlib remembers the fonts that were installed when it was first used.
    known = {entry.fname for entry in fontManager.ttflist}
    for path in findSystemFonts():
        if path not in known:
            with suppress(OSError, RuntimeError, ValueError):  # none that matplotlib can draw
                fontManager.addfont(path)
    best: tuple[str, set[str]] = "", set()
    for entry in sorted(fontManager.ttflist, key=lambda entry: (entry.name, entry.fname)):
        if entry.style == "normal" and not entry.name.startswith(LAST_RESORT):
            found = wanted & _characters(Path(entry.fname))
            if len(found) > len(best[1]):
                best = entry.name, found
    return best


@functools.cache
def _characters(font: Path) -> frozenset[str]:
    """The characters that a font file has."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(str(font)).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()


def _advice(missing: Sequence[str]) -> str:
    letters = {script(char) for char in missing} - {None}
    scripts = sorted(map(str, letters)) or ["symbols"]
    packages = {"fonts-noto-cjk" if name in CJK else "fonts-noto-core" for name in scripts}
    shown = "".join(missing[:5])
    return (
        f"no installed font has {len(missing)} of the characters of the picture, such as {shown} "
        f"({', '.join(scripts)}), which it shows as boxes; install fonts that have them, for "
        f"example Debian's {' and '.join(sorted(packages))}"
    )
