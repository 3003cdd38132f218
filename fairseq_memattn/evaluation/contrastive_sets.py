"""Readers of contrastive sets, each into the `Group`s of `evaluation.contrastive`.

Voita et al. (2019), https://github.com/lena-voita/good-translation-wrong-in-context
Müller et al. (2018), ContraPro, https://github.com/ZurichNLP/ContraPro
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_memattn.evaluation.contrastive import Group
from fairseq_memattn.evaluation.fairseq_output import read_lines
from fairseq_memattn.evaluation.pronouns import german_pronoun

SEPARATOR = "_eos"


def read_set(path: Path) -> list[Group]:
    """Voita's format from a file, ContraPro from a folder; see `read_voita`, `read_contrapro`."""
    if not path.is_dir():
        return read_voita(path)
    if not any(path.glob("contrapro.text.*")):
        raise ValueError(
            f"{path} is a folder, but not ContraPro's: it has no contrapro.text.*; "
            "of other sets name the JSON files"
        )
    return read_contrapro(path)


def read_voita(path: Path, separator: str = SEPARATOR) -> list[Group]:
    """A JSON list of groups: `src`, `dst` (the candidates), `true_ind` and, if known, `ctx_dist`.

    The sentences of a text are joined by the separator token. `ctx_dist` is the distance; the
    file's name without its ending is the phenomenon.
    Raises ValueError that names the file and the group, from 1.
    """
    return [
        _group(entry, entry["src"], entry["dst"], path, separator, f"{path}, group {number}")
        for number, entry in enumerate(_entries(path), start=1)
    ]


def read_voita_flat(
    source: Path, target: Path, groups: Path, separator: str = SEPARATOR
) -> list[Group]:
    """The texts of two line-aligned files, one candidate a line, grouped as a JSON file says.

    The files are those of Voita's `scoring_data`, or the same lines in another tokenisation. The
    JSON gives the sizes, `true_ind` and the distances, which the lines do not tell: neighbouring
    groups often have the same source.
    Raises ValueError for another number of lines, and where a group's lines differ in the source.
    """
    entries = _entries(groups)
    sources, targets = read_lines(source), read_lines(target)
    expected = sum(len(entry["dst"]) for entry in entries)
    for path, lines in ((source, sources), (target, targets)):
        if len(lines) != expected:
            raise ValueError(
                f"{path} has {len(lines)} lines, but {groups} has {expected} candidates"
            )
    found = []
    start = 0
    for number, entry in enumerate(entries, start=1):
        stop = start + len(entry["dst"])
        _check_same(source, sources, start, stop)
        where = f"{source} and {target}, lines {start + 1}-{stop} (group {number})"
        found.append(_group(entry, sources[start], targets[start:stop], groups, separator, where))
        start = stop
    return found


def _entries(path: Path) -> list[dict[str, Any]]:
    """The groups as the JSON has them, once their types are right."""
    try:
        entries = json.loads("\n".join(read_lines(path)))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: no JSON: {error.msg}") from None
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path} must hold a list of groups")
    for number, entry in enumerate(entries, start=1):
        fault = _fault(entry)
        if fault:
            raise ValueError(f"{path}, group {number}: {fault}")
    return entries


def _fault(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return "must be an object with src, dst and true_ind"
    if not isinstance(entry.get("src"), str):
        return "src must be a text"
    candidates = entry.get("dst")
    if not isinstance(candidates, list) or not all(isinstance(text, str) for text in candidates):
        return "dst must be a list of texts"
    if type(entry.get("true_ind")) is not int:
        return f"true_ind must be an integer, but is {entry.get('true_ind')!r}"
    if type(entry.get("ctx_dist")) not in (int, type(None)):
        return f"ctx_dist must be an integer, but is {entry['ctx_dist']!r}"
    return None


def _group(
    entry: dict[str, Any],
    source: str,
    candidates: Sequence[str],
    path: Path,
    separator: str,
    where: str,
) -> Group:
    try:
        return Group(
            _sentences(source, separator),
            tuple(_sentences(text, separator) for text in candidates),
            entry["true_ind"],
            path.stem,
            entry.get("ctx_dist"),
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _sentences(text: str, separator: str) -> tuple[str, ...]:
    token = rf"(?<!\S){re.escape(separator)}(?!\S)"
    return tuple(sentence.strip() for sentence in re.split(token, text))


def _check_same(path: Path, lines: Sequence[object], start: int, stop: int) -> None:
    for index in range(start + 1, stop):
        if lines[index] != lines[start]:
            raise ValueError(
                f"{path}, line {index + 1}: differs from line {start + 1}, the first of its group"
            )


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
        _check_same(folder / f"contrapro.text.{source_lang}", sources, start, stop)
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
