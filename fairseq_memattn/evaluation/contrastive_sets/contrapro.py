"""ContraPro (Müller et al., 2018): pronouns, English to German.

https://github.com/ZurichNLP/ContraPro
"""

from pathlib import Path

from fairseq_memattn.evaluation.contrastive import Group, check_same
from fairseq_memattn.evaluation.contrastive_sets.pronouns import german_pronoun
from fairseq_memattn.evaluation.fairseq_output import read_lines


def is_contrapro(path: Path) -> bool:
    """Whether a path is a folder with ContraPro."""
    return path.is_dir() and any(path.glob("contrapro.text.*"))


def read_contrapro(folder: Path, source_lang: str = "en", target_lang: str = "de") -> list[Group]:
    """The groups of a folder that ContraPro's script has written, with `sentence_groups.txt`.

    `contrapro.text.LANG` has one candidate a line, the correct one first in each group.
    `contrapro.context.LANG` has N lines for each candidate, oldest first; an empty line is not a
    sentence. `sentence_groups.txt` has the first line of each group, from 0, and may end with the
    number of lines. `german_pronoun` determines the pronoun. The distance is not known.

    Raises ValueError, which names file and line, for files that do not fit together.
    """
    sources, targets = (_windows(folder, lang) for lang in (source_lang, target_lang))
    if len(sources) != len(targets):
        raise ValueError(
            f"{folder}: contrapro.text.{source_lang} has {len(sources)} lines, but "
            f"contrapro.text.{target_lang} has {len(targets)}"
        )
    groups = []
    starts = _starts(folder / "sentence_groups.txt", len(sources))
    for start, stop in zip(starts, [*starts[1:], len(sources)], strict=True):
        check_same(folder / f"contrapro.text.{source_lang}", sources, start, stop)
        candidates = targets[start:stop]
        reference, *variants = (candidate[-1] for candidate in candidates)
        try:
            groups.append(
                Group(
                    sources[start],
                    tuple(candidates),
                    0,
                    "contrapro",
                    pronoun=german_pronoun(reference, variants),
                )
            )
        except ValueError as error:
            raise ValueError(f"{folder}, lines {start + 1}-{stop}: {error}") from None
    return groups


def _windows(folder: Path, lang: str) -> list[tuple[str, ...]]:
    """The context sentences of each line, followed by the line."""
    text, context = (folder / f"contrapro.{kind}.{lang}" for kind in ("text", "context"))
    lines, contexts = read_lines(text), read_lines(context)
    if not lines or len(contexts) % len(lines):
        raise ValueError(
            f"{context} must have a multiple of the {len(lines)} lines of {text}, but has "
            f"{len(contexts)}"
        )
    size = len(contexts) // len(lines)
    return [
        (*filter(str.strip, contexts[index * size : (index + 1) * size]), line)
        for index, line in enumerate(lines)
    ]


def _starts(path: Path, lines: int) -> list[int]:
    """The first line of each group. They increase, start with 0, and are below `lines`."""
    starts: list[int] = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip().isdecimal():
            raise ValueError(f"{path}, line {number}: must be a line number, but is {line!r}")
        start = int(line)
        lowest = starts[-1] + 1 if starts else 0
        if start < lowest or start > lines or (not starts and start):
            raise ValueError(
                f"{path}, line {number}: must be from {lowest} to {lines if starts else 0}, but is "
                f"{start}"
            )
        starts.append(start)
    if not starts:
        raise ValueError(f"{path} is empty")
    return starts[:-1] if starts[-1] == lines else starts
