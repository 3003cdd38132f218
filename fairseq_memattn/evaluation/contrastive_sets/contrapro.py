"""ContraPro (Müller et al., 2018), pronouns from English to German, and sets in its layout.

https://github.com/ZurichNLP/ContraPro. Lopes et al. (2020) have the layout for English to French:
https://github.com/rbawden/Large-contrastive-pronoun-testset-EN-FR
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_memattn.evaluation.contrastive import Group, check_same, read_entries
from fairseq_memattn.evaluation.directions import Direction
from fairseq_memattn.evaluation.fairseq_output import read_lines

# The sentences under test, as the scripts of ContraPro and of Lopes et al. name them.
TEXTS = ("text", "current")
# The languages of Lopes et al., whose files do not name them.
UNNAMED = {"src": "en", "trg": "fr"}
MAX_DISTANCE = 3  # distances beyond it are one row, as in ContraPro's evaluation


class Files(NamedTuple):
    """The text of a set in both languages.

    name: of the set; kind: one of `TEXTS`; texts: the file of each language
    """

    name: str
    kind: str
    texts: dict[str, Path]


def is_contrapro(path: Path) -> bool:
    """Whether a path is a folder with the text of a set in this layout."""
    return path.is_dir() and any(any(path.glob(f"*.{kind}.*")) for kind in TEXTS)


def read_contrapro(
    folder: Path,
    source_lang: str | None = None,
    target_lang: str | None = None,
    language: str | None = None,
) -> list[Group]:
    """The groups of a folder that the script of a set has written, with its JSON or line numbers.

    `NAME.text.LANG` or `NAME.current.LANG` has one candidate a line, the correct one first in each
    group. `NAME.context.LANG` has N lines for each candidate, oldest first; an empty line is not a
    sentence. The set's JSON has the incorrect candidates, the pronoun and the distance of each
    group. Context files of several sizes, `NAME.cN.context.LANG`, are read together: the context of
    a candidate is the longest that it has in any of them. Without a JSON, `sentence_groups.txt` has
    the first line of each group, from 0, and may end with the number of lines; the distance is not
    known then, and `replaced_pronoun` determines the pronoun. By default the source is the language
    that repeats its lines.

    language: that of the target, by which `replaced_pronoun` knows the pronouns; by default what
        the files are called, and French for those of Lopes et al., which are called `trg`

    Raises ValueError, which names file and line, for files that do not fit together.
    """
    files = _find(folder)
    lines = {lang: read_lines(path) for lang, path in files.texts.items()}
    source_lang, target_lang = _sides(lines, source_lang, target_lang)
    for lang in (source_lang, target_lang):
        if lang not in lines:
            raise ValueError(f"{folder} has no {files.name}.{files.kind}.{lang}")
    if len(lines[source_lang]) != len(lines[target_lang]):
        raise ValueError(
            f"{folder}: {files.texts[source_lang].name} has {len(lines[source_lang])} lines, but "
            f"{files.texts[target_lang].name} has {len(lines[target_lang])}"
        )
    sources, targets = (_windows(files, lang, lines[lang]) for lang in (source_lang, target_lang))
    language = language or UNNAMED.get(target_lang, target_lang)
    groups = []
    for tested in tested_groups(folder, lines[target_lang]):
        check_same(files.texts[source_lang], sources, tested.start, tested.stop)
        candidates = tuple(targets[tested.start : tested.stop])
        pronoun = tested.pronoun
        if pronoun is None and candidates:
            reference, *variants = (candidate[-1] for candidate in candidates)
            pronoun = replaced_pronoun(language, reference, variants)
        source, distance = sources[tested.start], tested.distance
        try:
            groups.append(
                Group(
                    *(source, candidates, 0, files.name, distance, pronoun),
                    max_distance=MAX_DISTANCE,
                )
            )
        except ValueError as error:
            raise ValueError(f"{folder}, lines {tested.start + 1}-{tested.stop}: {error}") from None
    return groups


def contrapro_direction(folder: Path, language: str | None = None) -> Direction:
    """The languages of a folder. language: that of the target, if the files do not name it"""
    source, target = _sides({lang: read_lines(path) for lang, path in _find(folder).texts.items()})
    if target in UNNAMED and language:
        return None, language
    return UNNAMED.get(source, source), UNNAMED.get(target, target)


def _sides(
    lines: Mapping[str, Sequence[str]], source: str | None = None, target: str | None = None
) -> tuple[str, str]:
    """Source and target, those that are given or by repeated lines."""
    by_repeats = sorted(lines, key=lambda lang: sum(a == b for a, b in pairwise(lines[lang])))
    target = target or next(lang for lang in by_repeats if lang != source)
    return source or next(lang for lang in lines if lang != target), target


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
    """The context sentences of each line, followed by the line.

    A context file of N sentences has none for the first N sentences of a document, so that a file
    of fewer sentences may have more context.
    """
    text = files.texts[lang]
    found = [
        path
        for pattern in (f"{files.name}.context.{lang}", f"{files.name}.*.context.{lang}")
        for path in text.parent.glob(pattern)
    ]
    if not found:
        raise ValueError(
            f"{text.parent} must have the context, {files.name}.context.{lang}, but has none"
        )
    contexts = {path: _context(path, text, len(lines)) for path in sorted(found)}
    windows = []
    for index, line in enumerate(lines):
        longest = max((context[index] for context in contexts.values()), key=len)
        for path, context in contexts.items():
            size = len(context[index])
            if context[index] != longest[len(longest) - size :]:
                raise ValueError(
                    f"{path}: the context of line {index + 1} of {text.name} is not that of the "
                    "other context files"
                )
        windows.append((*longest, line))
    return windows


def _context(path: Path, text: Path, lines: int) -> list[tuple[str, ...]]:
    """The sentences in a context file for each of the lines of a text."""
    contexts = read_lines(path)
    if not lines or len(contexts) % lines:
        raise ValueError(
            f"{path} must have a multiple of the {lines} lines of {text}, but has {len(contexts)}"
        )
    size = len(contexts) // lines
    return [
        tuple(filter(str.strip, contexts[index * size : (index + 1) * size]))
        for index in range(lines)
    ]


WORD = re.compile(r"\w+")
# The translations of "it" and "they", by language; an accusative counts as its nominative.
PRONOUNS = {
    "de": {"er": "er", "ihn": "er", "sie": "sie", "es": "es"},
    "fr": {"il": "il", "elle": "elle", "ils": "ils", "elles": "elles"},
}


def replaced_pronoun(language: str, reference: str, variants: Sequence[str]) -> str | None:
    """The pronoun of the reference that every variant has replaced; None if it is not known.

    Only words of the reference that all variants replace are considered, without regard to case. A
    variant may also change other words, such as a possessive or another pronoun, but the variants
    do not all change the same ones. The result is None if none of the language's pronouns remains,
    or several, and for a language without an entry in `PRONOUNS`.
    """
    pronouns = PRONOUNS.get(language, {})
    words = WORD.findall(reference.lower())
    replaced = set(range(len(words)))
    for variant in variants:
        replaced &= _replaced(words, WORD.findall(variant.lower()))
    found = {pronouns[words[index]] for index in replaced if words[index] in pronouns}
    return found.pop() if len(found) == 1 else None


def _replaced(words: list[str], others: list[str]) -> set[int]:
    """The indices of `words` that have no match in `others`, in the alignment of difflib."""
    blocks = SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks()
    kept = {block.a + offset for block in blocks for offset in range(block.size)}
    return set(range(len(words))) - kept


LINE_STARTS = "sentence_groups.txt"
# The folder of the text in the repository of Lopes et al. Its JSON is in the folder above.
EXTRACTED = "extracted"


class Tested(NamedTuple):
    """What is known of a group beside its text.

    stop: the line after its last one
    """

    start: int
    stop: int
    pronoun: str | None = None
    distance: int | None = None


def tested_groups(folder: Path, targets: Sequence[str]) -> list[Tested]:
    """The groups in the order of the lines, from the set's JSON or from line numbers.

    folder: of the text; the JSON of a folder `extracted` may be in the folder above
    targets: the lines of the text

    Raises ValueError, which names file and line, for groups that do not fit the lines.
    """
    for place in (folder, folder.parent) if folder.name == EXTRACTED else (folder,):
        found = sorted(place.glob("*.json"))
        if len(found) > 1:
            raise ValueError(f"{place} must have one JSON file, but has {len(found)}")
        if found:
            return _from_json(found[0], targets)
    starts = _starts(folder / LINE_STARTS, len(targets))
    return [Tested(*span) for span in pairwise([*starts, len(targets)])]


def _from_json(path: Path, targets: Sequence[str]) -> list[Tested]:
    """The groups of a JSON list with `errors`, whose `contrastive` is a candidate.

    The lines are in the order of the list, of the documents in the list, or in any other order.
    """
    entries = read_entries(path, _problem)
    expected = sum(1 + len(entry["errors"]) for entry in entries)
    if len(targets) != expected:
        raise ValueError(f"{path} has {expected} candidates, but the text has {len(targets)} lines")
    documents: dict[Any, list[Any]] = {}
    for entry in entries:
        documents.setdefault(str(entry.get("document id")), []).append(entry)
    by_document = [entry for part in documents.values() for entry in part]
    lines = [_words(target) for target in targets]
    for ordered in (entries, by_document):
        groups = _in_order(ordered, lines)
        if groups:
            return groups
    return _in_any_order(path, entries, lines)


def _problem(entry: Any) -> str | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("ref pronoun"), str):
        return "must be an object with `ref pronoun` and `errors`"
    errors = entry.get("errors")
    if not isinstance(errors, list) or not errors:
        return "errors must be a list of objects"
    if not all(isinstance(e, dict) and isinstance(e.get("contrastive"), str) for e in errors):
        return "each of errors must have a string `contrastive`"
    return None


def _words(text: str) -> str:
    return " ".join(text.split())


def _incorrect(entry: dict[str, Any]) -> tuple[str, ...]:
    """The incorrect candidates. The JSON may have the correct one in another tokenisation."""
    return tuple(_words(error["contrastive"]) for error in entry["errors"])


def _pronoun(entry: dict[str, Any]) -> str:
    return entry["ref pronoun"].lower()


def _known_distance(entry: dict[str, Any]) -> int | None:
    """-1 stands for a distance that is not known."""
    distance = entry.get("ante distance")
    return distance if type(distance) is int and distance >= 0 else None


def _in_order(entries: Sequence[Any], lines: Sequence[str]) -> list[Tested]:
    """The groups, if the lines have the entries in order; otherwise none."""
    groups, start = [], 0
    for entry in entries:
        stop = start + 1 + len(entry["errors"])
        if tuple(lines[start + 1 : stop]) != _incorrect(entry):
            return []
        groups.append(Tested(start, stop, _pronoun(entry), _known_distance(entry)))
        start = stop
    return groups


def _in_any_order(path: Path, entries: Sequence[Any], lines: Sequence[str]) -> list[Tested]:
    """The groups, found by their incorrect candidates.

    Entries with the same incorrect candidates have only the pronoun and the distance that is the
    same in all of them.
    """
    same: dict[tuple[str, ...], list[Any]] = {}
    for entry in entries:
        same.setdefault(_incorrect(entry), []).append(entry)
    unused = Counter({incorrect: len(found) for incorrect, found in same.items()})
    sizes = sorted({len(incorrect) for incorrect in same}, reverse=True)
    groups, start = [], 0
    while start < len(lines):
        candidates = (tuple(lines[start + 1 : start + 1 + size]) for size in sizes)
        incorrect = next((texts for texts in candidates if unused[texts]), None)
        if incorrect is None:
            raise ValueError(
                f"{path}: line {start + 2} of the text must be the `contrastive` of a group, but "
                f"is {lines[start + 1]!r}"
            )
        unused[incorrect] -= 1
        stop = start + 1 + len(incorrect)
        pronouns = {_pronoun(entry) for entry in same[incorrect]}
        distances = {_known_distance(entry) for entry in same[incorrect]}
        groups.append(
            Tested(
                start,
                stop,
                pronouns.pop() if len(pronouns) == 1 else None,
                distances.pop() if len(distances) == 1 else None,
            )
        )
        start = stop
    return groups


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
