"""Strict reading of translations: plain text and the output of `fairseq-generate`."""

import html
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from fairseq_memattn.evaluation.letters import letters
from fairseq_memattn.evaluation.text_columns import is_table, read_column
from fairseq_memattn.files import read_lines
from fairseq_memattn.pieces import WORD_BEGIN, join_pieces

# H-12<tab>-0.53<tab>the hypothesis. With --nbest, the best hypothesis of a sentence is first.
HYPOTHESIS = re.compile(r"^H-(\d{1,18})\t[^\t]+\t(.*)$")
TARGET = re.compile(r"^T-(\d{1,18})\t(.*)$")
GENERATED = re.compile(r"^[STHDP]-\d+\t")
SCORED = "'score_reference': True"  # in the options that fairseq-generate prints first
SUBWORD_NMT = re.compile(r"@@(?: |$)")


def read_hypotheses(path: Path, expected: int) -> list[str]:
    """The best hypothesis of each sentence, in the order of the test set.

    expected: the number of sentences in the test set

    Raises ValueError for output without hypotheses, for a sentence that occurs in two places or is
    not in the test set, and for a missing sentence. fairseq leaves out batches whose size is not a
    multiple of `--required-batch-size-multiple`, and sentences that are too long for the model.
    """
    return read_shards([path], expected)


def read_shards(paths: Sequence[Path], expected: int) -> list[str]:
    """As `read_hypotheses`, for a test set whose shards were generated into separate files."""
    best: dict[int, str] = {}
    for path in paths:
        for number, hypothesis in _best_hypotheses(path).items():
            if number in best:
                raise ValueError(
                    f"{path} has a hypothesis of sentence {number} (from 0), but another of the "
                    "files has one, too"
                )
            best[number] = hypothesis
    name, has = str(paths[0]), "has"
    if len(paths) > 1:
        name, has = f"{paths[0]} and {len(paths) - 1} more", "have"
    if max(best) >= expected:
        raise ValueError(
            f"{name} {has} a hypothesis of sentence {max(best)} (from 0), but there are "
            f"{expected} references: it was generated from other data"
        )
    missing = [index for index in range(expected) if index not in best]
    if missing:
        raise ValueError(
            f"{name} {has} hypotheses of {len(best)} sentences, but must have {expected}; the "
            f"first missing one is number {missing[0]} (from 0); the reference must be that of "
            "--gen-subset, and fairseq-generate needs a sufficient --max-source-positions, and, "
            "without --user-dir, --required-batch-size-multiple 1"
        )
    return [best[index] for index in range(expected)]


def _best_hypotheses(path: Path) -> dict[int, str]:
    best: dict[int, str] = {}
    last = -1
    for line in read_lines(path):
        if not best and SCORED in line:
            raise ValueError(
                f"{path} was made with --score-reference: its hypotheses are the references"
            )
        found = HYPOTHESIS.match(line)
        if found:
            number = int(found[1])
            if number in best and number != last:
                raise ValueError(
                    f"{path} has hypotheses of sentence {number} (from 0) in two places: was "
                    "more than one output put into it?"
                )
            best.setdefault(number, found[2])
            last = number
    if not best:
        raise ValueError(f"{path} has no line that starts with H-, as fairseq-generate prints them")
    return best


def sentences(lines: list[str], expected: int, starts: Collection[int] | None = None) -> list[str]:
    """The lines, without blank ones between documents if the file has those of `memattn translate`.

    expected: the number of sentences; starts: the first sentence of each document, if it is known
    """
    if len(lines) == expected:
        return lines
    found: list[str] = []
    begins = {0}
    for line in lines:
        if line.strip():
            found.append(line)
        else:
            begins.add(len(found))
    fits = starts is None or begins - {expected} == {0, *starts}
    return found if len(found) == expected and fits else lines


def read_translations(
    path: Path, expected: int, separator: str | None, starts: Collection[int] | None = None
) -> list[str]:
    """The text of a file: output of fairseq-generate, with SentencePiece pieces joined, or lines.

    path: as in `read_column`, whose default is the column hyp
    expected: the number of sentences in the test set; separator: as in `detokenise`
    starts: as in `sentences`

    Raises ValueError as `read_hypotheses`, and for another number of lines.
    """
    lines = sentences(read_column(path, "hyp"), expected, starts)
    if not is_table(path) and any(GENERATED.match(line) for line in lines):
        return detokenise(read_hypotheses(path, expected), separator)
    if len(lines) != expected:
        raise ValueError(f"{path} has {len(lines)} lines, but there are {expected} references")
    return lines


def read_targets(path: Path, separator: str | None) -> dict[int, str]:
    """The references in output of fairseq-generate, by the number of the sentence, from 0.

    separator: as in `detokenise`
    """
    lines = [] if is_table(path) else read_lines(path)
    found = [target for line in lines if (target := TARGET.match(line))]
    texts = detokenise([target[2] for target in found], separator)
    return {int(target[1]): text for target, text in zip(found, texts, strict=True)}


def same_letters(one: str, other: str) -> bool:
    """Whether two lines have the same letters and digits.

    Segmentation, tokenisation, case, and characters that NFKC equates make no difference.
    """
    return _letters(one) == _letters(other)


def _letters(line: str) -> str:
    text = unicodedata.normalize("NFKC", html.unescape(line)).casefold()
    return letters(text)


def signs_of_segmentation(lines: list[str]) -> list[str]:
    """The signs that lines are not detokenised text, each a clause with the number of lines."""
    reasons = []
    for what, numbers, tolerated in (
        (
            f"hold SentencePiece's mark {WORD_BEGIN}",
            _numbers(WORD_BEGIN in line for line in lines),
            0,
        ),
        ("hold subword-nmt's mark @@", _numbers(SUBWORD_NMT.search(line) for line in lines), 0),
        # Plain text may have such lines too, but only a few.
        (
            "end in a full stop after a space",
            _numbers(line.endswith(" .") for line in lines),
            len(lines) // 10,
        ),
    ):
        if len(numbers) > tolerated:
            reasons.append(f"{len(numbers)} of {len(lines)} lines {what}, first line {numbers[0]}")
    return reasons


def _numbers(found: Iterable[object]) -> list[int]:
    return [number for number, yes in enumerate(found, start=1) if yes]


def detokenise(lines: list[str], separator: str | None) -> list[str]:
    """Joins SentencePiece pieces. Lines without a word-boundary mark are returned as they are.

    separator: a token that gets a space on either side, with or without a mark before it
    """
    if not any(WORD_BEGIN in line for line in lines):
        return lines
    return [join_window(line, separator) for line in lines]


def join_window(line: str, separator: str | None) -> str:
    """The text of SentencePiece pieces with spaces between them; `separator` as in `detokenise`."""
    sentences: list[list[str]] = [[]]
    for piece in line.split():
        if separator is not None and piece.removeprefix(WORD_BEGIN) == separator:
            sentences.append([])
        else:
            sentences[-1].append(piece)
    texts = (join_pieces(" ".join(pieces)) for pieces in sentences)
    return f" {separator} ".join(texts).strip()
