"""ContraPro (Müller et al., 2018), pronouns from English to German, and sets in its layout.

https://github.com/ZurichNLP/ContraPro. Lopes et al. (2020) have the layout for English to French:
https://github.com/rbawden/Large-contrastive-pronoun-testset-EN-FR
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_memattn.evaluation.contrastive import Group, check_same, read_entries
from fairseq_memattn.evaluation.contrastive_sets.pronouns import replaced_pronoun
from fairseq_memattn.evaluation.fairseq_output import read_lines

LINE_STARTS = "sentence_groups.txt"
# The sentences under test, as the scripts of ContraPro and of Lopes et al. name them.
TEXTS = ("text", "current")


class Files(NamedTuple):
    """The text of a set in both languages.

    name: of the set; kind: one of `TEXTS`; texts: the file of each language
    """

    name: str
    kind: str
    texts: dict[str, Path]


class Tested(NamedTuple):
    """What is known of a group beside its text.

    stop: the line after its last one
    """

    start: int
    stop: int
    pronoun: str | None = None
    distance: int | None = None


def is_contrapro(path: Path) -> bool:
    """Whether a path is a folder with the text of a set in this layout."""
    return path.is_dir() and any(any(path.glob(f"*.{kind}.*")) for kind in TEXTS)


def read_contrapro(
    folder: Path, source_lang: str | None = None, target_lang: str | None = None
) -> list[Group]:
    """The groups of a folder that the script of a set has written, with its JSON or line numbers.

    `NAME.text.LANG` or `NAME.current.LANG` has one candidate a line, the correct one first in each
    group. `NAME.context.LANG` has N lines for each candidate, oldest first; an empty line is not a
    sentence. The set's JSON has the incorrect candidates, the pronoun and the distance of each
    group. Without it, `sentence_groups.txt` has the first line of each group, from 0, and may end
    with the number of lines; the distance is not known then, and `replaced_pronoun` determines the
    pronoun. By default the source is the language that repeats its lines.

    Raises ValueError, which names file and line, for files that do not fit together.
    """
    files = _find(folder)
    lines = {lang: read_lines(path) for lang, path in files.texts.items()}
    by_repeats = sorted(lines, key=lambda lang: sum(a == b for a, b in pairwise(lines[lang])))
    target_lang = target_lang or next(lang for lang in by_repeats if lang != source_lang)
    source_lang = source_lang or next(lang for lang in lines if lang != target_lang)
    for lang in (source_lang, target_lang):
        if lang not in lines:
            raise ValueError(f"{folder} has no {files.name}.{files.kind}.{lang}")
    if len(lines[source_lang]) != len(lines[target_lang]):
        raise ValueError(
            f"{folder}: {files.texts[source_lang].name} has {len(lines[source_lang])} lines, but "
            f"{files.texts[target_lang].name} has {len(lines[target_lang])}"
        )
    sources, targets = (_windows(files, lang, lines[lang]) for lang in (source_lang, target_lang))
    groups = []
    for tested in _tested(folder, lines[target_lang]):
        check_same(files.texts[source_lang], sources, tested.start, tested.stop)
        candidates = tuple(targets[tested.start : tested.stop])
        pronoun = tested.pronoun
        if pronoun is None and candidates:
            reference, *variants = (candidate[-1] for candidate in candidates)
            pronoun = replaced_pronoun(target_lang, reference, variants)
        source, distance = sources[tested.start], tested.distance
        try:
            groups.append(Group(source, candidates, 0, files.name, distance, pronoun))
        except ValueError as error:
            raise ValueError(f"{folder}, lines {tested.start + 1}-{tested.stop}: {error}") from None
    return groups


def _find(folder: Path) -> Files:
    found = sorted(path for kind in TEXTS for path in folder.glob(f"*.{kind}.*"))
    parts = [path.name.rsplit(".", 2) for path in found]
    if len(found) != 2 or parts[0][:2] != parts[1][:2]:
        raise ValueError(
            f"{folder} must have the text of one set in two languages, such as contrapro.text.en "
            f"and contrapro.text.de, but has {', '.join(path.name for path in found)}"
        )
    name, kind, _ = parts[0]
    return Files(name, kind, {part[2]: path for part, path in zip(parts, found, strict=True)})


def _windows(files: Files, lang: str, lines: Sequence[str]) -> list[tuple[str, ...]]:
    """The context sentences of each line, followed by the line."""
    text = files.texts[lang]
    context = _context(text.parent, files.name, lang)
    contexts = read_lines(context)
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


def _context(folder: Path, name: str, lang: str) -> Path:
    """NAME.context.LANG, or the only NAME.*.context.LANG, such as NAME.c3.context.LANG."""
    path = folder / f"{name}.context.{lang}"
    others = sorted(folder.glob(f"{name}.*.context.{lang}"))
    if path.exists() or not others:
        return path
    if len(others) > 1:
        raise ValueError(
            f"{folder} must have the context in one file, {path.name} or another, but has "
            f"{', '.join(other.name for other in others)}"
        )
    return others[0]


def _tested(folder: Path, targets: Sequence[str]) -> list[Tested]:
    """The groups in the order of the lines, from the set's JSON or from line numbers."""
    found = sorted(folder.glob("*.json"))
    if len(found) > 1:
        raise ValueError(f"{folder} must have one JSON file, but has {len(found)}")
    if found:
        return _from_json(found[0], targets)
    starts = _starts(folder / LINE_STARTS, len(targets))
    return [Tested(*span) for span in pairwise([*starts, len(targets)])]


def _from_json(path: Path, targets: Sequence[str]) -> list[Tested]:
    """The groups of a JSON list with `errors`, whose `contrastive` is a candidate.

    The lines are in the order of the list, or of the documents in the list.
    """
    entries = read_entries(path, _problem)
    expected = sum(1 + len(entry["errors"]) for entry in entries)
    if len(targets) != expected:
        raise ValueError(f"{path} has {expected} candidates, but the text has {len(targets)} lines")
    documents: dict[Any, list[Any]] = {}
    for entry in entries:
        documents.setdefault(str(entry.get("document id")), []).append(entry)
    by_document = [entry for part in documents.values() for entry in part]
    wrong = _other_line(entries, targets)
    if wrong and _other_line(by_document, targets):
        raise ValueError(
            f"{path}: line {wrong} of the text must be the `contrastive` of a group, but is "
            f"{targets[wrong - 1]!r}"
        )
    groups, start = [], 0
    for entry in by_document if wrong else entries:
        stop = start + 1 + len(entry["errors"])
        distance = entry.get("ante distance")
        # -1 stands for a distance that is not known.
        known = distance if type(distance) is int and distance >= 0 else None
        groups.append(Tested(start, stop, entry["ref pronoun"].lower(), known))
        start = stop
    return groups


def _problem(entry: Any) -> str | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("ref pronoun"), str):
        return "must be an object with `ref pronoun` and `errors`"
    errors = entry.get("errors")
    if not isinstance(errors, list) or not errors:
        return "errors must be a list of objects"
    if not all(isinstance(e, dict) and isinstance(e.get("contrastive"), str) for e in errors):
        return "each of errors must have a string `contrastive`"
    return None


def _other_line(entries: Sequence[Any], targets: Sequence[str]) -> int:
    """The number, from 1, of the first incorrect candidate that differs; 0 if there is none."""
    number = 0
    for entry in entries:
        number += 1  # the correct candidate, which the JSON may have in another tokenisation
        for error in entry["errors"]:
            number += 1
            if targets[number - 1].split() != error["contrastive"].split():
                return number
    return 0


def _starts(path: Path, lines: int) -> list[int]:
    """The first line of each group. They increase, start with 0, and are below `lines`."""
    if not path.exists():
        raise ValueError(f"{path.parent} must have the JSON of the set or {path.name}")
    starts: list[int] = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip().isdecimal() or len(line) > 18:
            raise ValueError(f"{path}, line {number}: must be a line number, but is {line[:40]!r}")
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
