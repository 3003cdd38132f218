"""ContraPro (Müller et al., 2018): pronouns, English to German.

https://github.com/ZurichNLP/ContraPro
"""

from pathlib import Path

from fairseq_memattn.evaluation.contrastive import Group, check_same
from fairseq_memattn.evaluation.contrastive_sets.pronouns import german_pronoun
from fairseq_memattn.evaluation.fairseq_output import read_lines


def is_contrapro(path: Path) -> bool:
    """Whether a path is ContraPro's folder."""
    return path.is_dir() and any(path.glob("contrapro.text.*"))


def read_contrapro(folder: Path, source_lang: str = "en", target_lang: str = "de") -> list[Group]:
    """ContraPro as its own script lays it out, with `sentence_groups.txt` beside it.

    `contrapro.text.LANG` has a candidate a line, the right one first in each group;
    `contrapro.context.LANG` has N lines for each of those, oldest first, of which an empty one
    means no sentence. `sentence_groups.txt` has the first line, from 0, of each group, and may end
    with the number of lines. The pronoun is `german_pronoun`'s; the distance is not known.
    Raises ValueError that names file and line for what does not fit together.
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
    """For each line its context sentences and itself."""
    text, context = (folder / f"contrapro.{kind}.{lang}" for kind in ("text", "context"))
    lines, contexts = read_lines(text), read_lines(context)
    if not lines or len(contexts) % len(lines):
        raise ValueError(
            f"{context} has {len(contexts)} lines, which is no multiple of the {len(lines)} of "
            f"{text}"
        )
    size = len(contexts) // len(lines)
    return [
        (*filter(str.strip, contexts[index * size : (index + 1) * size]), line)
        for index, line in enumerate(lines)
    ]


def _starts(path: Path, lines: int) -> list[int]:
    """The first line of each group, ascending from 0 and below the number of lines."""
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
