"""ctxpro (Wicks and Post, 2023): forms that need context, found in OpenSubtitles by rules.

https://github.com/rewicks/ctxpro
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from fairseq_memattn.evaluation.contrastive import read_entries
from fairseq_memattn.evaluation.contrastive_sets.disceval import is_disceval
from fairseq_memattn.evaluation.fairseq_output import read_lines, same_letters
from fairseq_memattn.evaluation.generative import SEPARATOR, Example
from fairseq_memattn.evaluation.text_columns import read_column

# The phenomena, as the names of the files have them.
CATEGORIES = ("animacy", "auxiliary", "formality", "gender", "inflection")
CONTRASTIVE = (
    "is a contrastive set, whose candidates are scored without --generate and --translations"
)


def read_ctxpro(path: Path) -> list[Example]:
    """The examples of an evaluation set: a JSON list with `expected` and `rule`.

    `ante distance` may be the distance of the antecedent. The category is the one that the name of
    the file has, such as auxiliary.opensubtitles.en-de.test.json, and otherwise the whole name.

    Raises ValueError, which names the file and the entry, counted from 1.
    """
    if is_disceval(path):
        raise ValueError(f"{path} {CONTRASTIVE}")
    name = path.name.removesuffix(".json")
    named = [category for category in CATEGORIES if category in name.lower()]
    category = named[0] if len(named) == 1 else name
    return [
        Example(
            entry["expected"],
            name,
            category,
            rule=entry["rule"],
            distance=entry.get("ante distance"),
        )
        for entry in read_entries(path, _problem)
    ]


def _problem(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return "must be an object with expected and rule"
    if "true_ind" in entry:
        return CONTRASTIVE
    for key in ("expected", "rule"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            return f"{key} must be a string with text, but is {entry.get(key)!r}"
    distance = entry.get("ante distance")
    if distance is not None and (type(distance) is not int or distance < 0):
        return f"ante distance must be an integer from 0, but is {distance!r}"
    return None


Source = tuple[str, ...]


def sources_of_file(path: Path, file: Path) -> list[Source]:
    """The sentences of each line of a file in ctxpro's layout, which joins them by `<eos>`.

    path: the JSON of the set, whose `src segment`, if there is one, must be the last sentence
    file: as in `read_column`, whose default is the column src

    Raises ValueError, which names the file and the line, for another number of lines than examples,
    an empty sentence, another last sentence, and a file without separators.
    """
    entries = read_entries(path, lambda entry: None)
    lines = read_column(file, "src")
    if len(lines) != len(entries):
        raise ValueError(f"{file} has {len(lines)} lines, but {path} has {len(entries)} examples")
    if not any(SEPARATOR in line for line in lines):
        raise ValueError(f"{file} must have {SEPARATOR} between sentences, but no line has one")
    sources = []
    for number, (entry, line) in enumerate(zip(entries, lines, strict=True), start=1):
        source = tuple(sentence.strip() for sentence in line.split(SEPARATOR))
        _check_texts(f"{file}, line {number}", source)
        _check_last(f"{file}, line {number}", path, entry, source[-1])
        sources.append(source)
    return sources


def sources_of_documents(path: Path, folder: Path, language: str, most: int) -> list[Source]:
    """The sentence of each example with the sentences before it in its document.

    This is what `ctxpro extract` extracts. `document id` and `segment id`, from 1, are the file
    `FOLDER/ID.LANGUAGE` and its line.

    path: the JSON of the set, whose `src segment`, if there is one, must be the line
    most: the largest number of sentences of a source, with the one that is tested

    Raises ValueError, which names the file and the place, for an example without document or line,
    a document that does not exist or has fewer lines, another sentence, and an empty one.
    """

    @lru_cache(maxsize=1)
    def lines_of(document: str) -> list[str]:
        file = folder / f"{document}.{language}"
        if not file.is_file():
            raise ValueError(f"{file}: there is no such file, which {path} names")
        return read_lines(file)

    sources = []
    for entry in read_entries(path, _place_problem):
        document, last = entry["document id"], entry["segment id"]
        file, lines = folder / f"{document}.{language}", lines_of(document)
        if last > len(lines):
            raise ValueError(f"{file} has {len(lines)} lines, but {path} names line {last}")
        first = max(0, last - most)
        source = tuple(line.strip() for line in lines[first:last])
        for number, sentence in enumerate(source, start=first + 1):
            _check_texts(f"{file}, line {number}", [sentence])
        _check_last(f"{file}, line {last}", path, entry, source[-1])
        sources.append(source)
    return sources


def _place_problem(entry: Any) -> str | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("document id"), str):
        return "document id must be a string, the name of a document"
    line = entry.get("segment id")
    if type(line) is not int or line < 1:
        return f"segment id must be a line from 1, but is {line!r}"
    return None


def _check_texts(where: str, sentences: Sequence[str]) -> None:
    if not all(sentences):
        raise ValueError(f"{where}: a sentence is empty")


def _check_last(where: str, path: Path, entry: dict[str, Any], sentence: str) -> None:
    segment = entry.get("src segment")
    if isinstance(segment, str) and not same_letters(segment, sentence):
        raise ValueError(
            f"{where}: the last sentence must be that of {path}, {segment!r:.60}, but is "
            f"{sentence!r:.60}"
        )
