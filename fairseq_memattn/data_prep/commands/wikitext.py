"""WikiText-103 and WikiText-2, word by word, for fairseq."""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from fairseq_memattn.data_prep.pipeline.archives import is_at, names
from fairseq_memattn.data_prep.pipeline.arguments import COMMON, add_options
from fairseq_memattn.data_prep.pipeline.download import Archive, obtain, official
from fairseq_memattn.data_prep.pipeline.stages import locks_output
from fairseq_memattn.data_prep.pipeline.text_to_binary import SPLITS, Pipeline, check_published
from fairseq_memattn.data_prep.text.lines import read_lines
from fairseq_memattn.errors import MemAttnError

LANGUAGE = "en"
END = "<eos>"  # counted as a word of the vocabulary, and once a line


@dataclass(frozen=True)
class Corpus:
    """An edition of WikiText.

    tokens: of each split, ends of lines included
    vocabulary: distinct words of the training split, the end of a line included
    """

    archive: Archive
    tokens: dict[str, int]
    vocabulary: int


HELD_OUT = {"valid": 217_646, "test": 245_569}
CORPORA = {
    "wikitext-103": Corpus(
        official("wikitext-103-v1.zip"), {"train": 103_227_021, **HELD_OUT}, 267_735
    ),
    "wikitext-2": Corpus(official("wikitext-2-v1.zip"), {"train": 2_088_628, **HELD_OUT}, 33_278),
}
DESCRIPTION = """\
WikiText-103 or WikiText-2 (Merity et al., 2017), word by word, for fairseq's language modelling.
The numbers of tokens and words are checked against the published ones.

  %(prog)s --corpus wikitext-103 --output wikitext-103
  %(prog)s --corpus wikitext-2 --output wikitext-2 --archive my/wikitext-2
      the archive, or a folder, with wiki.{train,valid,test}.tokens or {train,valid,test}.txt

FOLDER/text/      the corpus as released, and the number of each line's article (docid)
FOLDER/bin/       fairseq's data, with document ids
"""


def wanted_files(archive: Path) -> dict[str, str]:
    """The files of the archive, and their names in raw/."""
    found = names(archive)
    for pattern in ("wiki.{}.tokens", "{}.txt"):
        wanted = {pattern.format(split): f"{split}.txt" for split in SPLITS}
        if any(is_at(name, end) for name in found for end in wanted):
            return wanted
    raise MemAttnError(f"{archive}: has neither wiki.train.tokens nor train.txt")


def article_rows(path: Path, counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """Each line, and the number of its article from 1; counts tokens.

    An article begins at a title between lines without words. Text before the first title belongs
    to the first article.
    """
    lines = chain(read_lines(path), [""])
    before, line = "", next(lines)
    titles = 0
    for after in lines:
        words = line.split()
        # `= Title =`, and not `= = Section = =`
        framed = len(words) > 2 and words[0] == words[-1] == "="
        is_title = framed and "=" not in (words[1], words[-2])
        titles += is_title and not before.strip() and not after.strip()
        counts["tokens"] += len(words) + 1
        yield line, str(max(titles, 1))
        before, line = line, after


def check_sizes(corpus: Corpus, name: str, tokens: dict[str, int], vocabulary: int) -> None:
    """Raise MemAttnError if the sizes of the corpus differ from the published ones."""
    for split, expected in corpus.tokens.items():
        unit = "tokens with the ends of lines"
        check_published(split, tokens[split], unit, f"{split} of {name}", [expected])
    check_published("train", vocabulary, "words", f"train of {name}", [corpus.vocabulary])


def count_words(path: Path) -> int:
    """Distinct words of a file, the end of a line included."""
    words = {END}
    for line in read_lines(path):
        words.update(line.split())
    return len(words)


@locks_output
def run(args: argparse.Namespace) -> None:
    corpus = CORPORA[args.corpus]
    pipeline = Pipeline(args.output, [LANGUAGE], workers=args.workers, force=args.force)
    archive = obtain(corpus.archive, args.archive, args.output / "archives", args.unchecked)
    raw = pipeline.unpack(archive, wanted_files(archive))
    files = dict(zip(SPLITS, raw.values(), strict=True))
    tokens = {}
    for split, path in files.items():
        counts = pipeline.write_text(split, [path], partial(article_rows, path), documents=True)
        tokens[split] = counts["tokens"]
    if not args.unchecked:
        check_sizes(corpus, args.corpus, tokens, count_words(files["train"]))
    pipeline.binarise("text")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpus", required=True, choices=[*CORPORA])
    add_options(parser, "--archive", "--unchecked", *COMMON)
