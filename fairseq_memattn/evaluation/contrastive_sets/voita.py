"""Voita et al. (2019): consistency of deixis, ellipsis and lexical cohesion, English to Russian.

https://github.com/lena-voita/good-translation-wrong-in-context
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_memattn.evaluation.contrastive import Group, check_same, read_entries
from fairseq_memattn.evaluation.directions import Direction
from fairseq_memattn.evaluation.fairseq_output import read_lines

SEPARATOR = "_eos"
CYRILLIC = re.compile("[\u0410-\u044f]")


def is_voita(path: Path) -> bool:
    """Whether a path is a file."""
    return not path.is_dir()


def voita_direction(path: Path, groups: Sequence[Group]) -> Direction:
    """English to Russian if most candidates have Cyrillic letters and most sources have none."""
    sources, targets = (
        sum(any(map(CYRILLIC.search, text)) for text in texts)
        for texts in ([group.source for group in groups], [group.true for group in groups])
    )
    of_voita = 2 * sources < len(groups) < 2 * targets
    return ("en", "ru") if of_voita else (None, None)


def read_voita(path: Path, separator: str = SEPARATOR) -> list[Group]:
    """The groups of a JSON list with `src`, `dst`, `true_ind` and optionally `ctx_dist`.

    `dst` has the candidates and `ctx_dist` the distance. The sentences of a text are joined by the
    separator token. The phenomenon is the name of the file without its suffix.

    Raises ValueError, which names the file and the group, counted from 1.
    """
    return [
        _group(entry, entry["src"], entry["dst"], path, separator, f"{path}, group {number}")
        for number, entry in enumerate(read_entries(path, _problem), start=1)
    ]


def read_voita_flat(
    source: Path, target: Path, groups: Path, separator: str = SEPARATOR
) -> list[Group]:
    """The groups of two line-aligned files with one candidate a line, and of their JSON file.

    The files are those of Voita's `scoring_data`, or the same lines in another tokenisation. The
    JSON has the number of candidates of each group, `true_ind` and the distances. The lines do not
    show where a group begins, because consecutive groups often have the same source.

    Raises ValueError for another number of lines, and for a group whose lines have different
    sources.
    """
    entries = read_entries(groups, _problem)
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
        check_same(source, sources, start, stop)
        where = f"{source} and {target}, lines {start + 1}-{stop} (group {number})"
        found.append(_group(entry, sources[start], targets[start:stop], groups, separator, where))
        start = stop
    return found


def _problem(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return "must be an object with src, dst and true_ind"
    if "errors" in entry and "src" not in entry:
        return (
            "has the layout of ContraPro, whose JSON lacks the context; extract the text with the "
            "script of the set, and give the folder of the text and the JSON"
        )
    if "expected" in entry and "src" not in entry:
        return (
            "has the layout of ctxpro, whose sources are translated with --generate, or whose "
            "translations are judged with --translations"
        )
    if not isinstance(entry.get("src"), str):
        return f"src must be a string, but is {entry.get('src')!r}"
    candidates = entry.get("dst")
    if not isinstance(candidates, list) or not all(isinstance(text, str) for text in candidates):
        return "dst must be a list of strings"
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
