"""WMT14 English-German, sentence by sentence, for fairseq."""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from fairseq_memattn.data_prep.formats.sgml_segments import read_segment_rows
from fairseq_memattn.data_prep.pipeline.arguments import COMMON, add_numbers, add_options, positive
from fairseq_memattn.data_prep.pipeline.download import obtain_all, official
from fairseq_memattn.data_prep.pipeline.stages import locks_output
from fairseq_memattn.data_prep.pipeline.text_to_binary import SPLITS, Pipeline
from fairseq_memattn.data_prep.text.aligned import aligned_lines
from fairseq_memattn.data_prep.text.lines import progress, raw_pairs, write_row
from fairseq_memattn.files import write_all_or_nothing

LANGUAGES = ("en", "de")
ARCHIVES = {
    "training/europarl-v7.de-en": official("training-parallel-europarl-v7.tgz"),
    "commoncrawl.de-en": official("training-parallel-commoncrawl.tgz"),
    "training/news-commentary-v9.de-en": official("training-parallel-nc-v9.tgz"),
    "newstest2013-src": official("test.tgz"),
    "newstest2014-deen": official("test-full.tgz"),
}
TRAIN = [*ARCHIVES][:3]
TEST_SETS = {
    "valid": ("newstest2013-src.en.sgm", "newstest2013-src.de.sgm"),
    "test": ("newstest2014-deen-src.en.sgm", "newstest2014-deen-ref.de.sgm"),
}
DESCRIPTION = """\
WMT14 English-German. The training set is Europarl v7, Common Crawl and News Commentary v9, about
4.5 million pairs; newstest2013 is the validation set and newstest2014 (the full set) the test set.
The text is normalised and tokenised with Moses' rules, and segmented with one BPE vocabulary of
32,768 symbols for both languages. Training pairs of more than 250 subwords, or with one side more
than 1.5 times as long as the other, are left out and counted.

  %(prog)s --output wmt14
  %(prog)s --output wmt14 --archive training-parallel-europarl-v7.tgz test-full.tgz

FOLDER/text/      sentences as released; test.de is the reference for scores of plain text
FOLDER/pieces/    tokenised and segmented
FOLDER/bin/       fairseq's data
"""


def wanted_files(key: str) -> dict[str, str]:
    """The files to take from the archive under this key, and their names in raw/."""
    if key in TRAIN:
        ends = [f"{key}.{language}" for language in LANGUAGES]
    else:
        ends = [name for pair in TEST_SETS.values() for name in pair if name.startswith(key)]
    return {end: Path(end).name for end in ends}


def train_rows(files: Sequence[Path], counts: Counter[str]) -> Iterator[tuple[str, ...]]:
    """The pairs of several corpora, one after the other."""
    for first in range(0, len(files), 2):
        yield from raw_pairs(files[first : first + 2], counts)


def test_rows(files: Sequence[Path], counts: Counter[str]) -> Iterator[tuple[str, ...]]:
    for row in read_segment_rows(files, counts):
        yield row.texts


def clean(
    sources: Sequence[Path], targets: Sequence[Path], longest: int, ratio: float
) -> Counter[str]:
    """Write the pairs that are neither too long nor too uneven; returns the counts.

    longest: the most subwords of a side
    ratio: the greatest ratio of the longer side to the shorter one
    """
    counts = Counter({"pairs": 0, "too long, dropped": 0, "too uneven, dropped": 0})
    with write_all_or_nothing(targets) as files:
        rows = progress(aligned_lines(sources), str(targets[0]), sources[0])
        for _, row in rows:
            short, long = sorted(len(line.split()) for line in row)
            if long > longest:
                counts["too long, dropped"] += 1
            elif long > ratio * short:
                counts["too uneven, dropped"] += 1
            else:
                counts["pairs"] += 1
                write_row(files, row)
    return counts


@locks_output
def run(args: argparse.Namespace) -> None:
    pipeline = Pipeline(args.output, LANGUAGES, workers=args.workers, force=args.force)
    found = obtain_all(
        list(ARCHIVES.values()), args.archive, args.output / "archives", args.unchecked
    )
    raw: dict[str, Path] = {}
    for key, archive in zip(ARCHIVES, found, strict=True):
        raw |= pipeline.unpack(archive, wanted_files(key))
    train = [raw[f"{key}.{language}"] for key in TRAIN for language in LANGUAGES]
    pipeline.write_text("train", train, partial(train_rows, train))
    for split, names in TEST_SETS.items():
        files = [raw[name] for name in names]
        pipeline.write_text(split, files, partial(test_rows, files))
    pipeline.tokenise(printable_only=True)
    learnt_from = pipeline.paths("tokens", "train")
    codes = dict.fromkeys(
        LANGUAGES, pipeline.learn_bpe(learnt_from, "codes", args.bpe_symbols, total=True)
    )
    pipeline.apply_bpe("tokens", codes, ["train"], to="segmented")
    pipeline.apply_bpe("tokens", codes, ["valid", "test"])
    segmented, pieces = (pipeline.paths(kind, "train") for kind in ("segmented", "pieces"))
    pipeline.stages.run(
        "pieces-train",
        segmented,
        pieces,
        partial(clean, segmented, pieces, args.max_subwords, args.max_ratio),
        max_subwords=args.max_subwords,
        max_ratio=args.max_ratio,
    )
    pipeline.binarise(splits=SPLITS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "--archives", "--unchecked", *COMMON)
    of_sides = "the greatest ratio of the longer side to the shorter one, in subwords"
    numbers = {
        "--bpe-symbols": (positive, 32_768, "size of the vocabulary"),
        "--max-subwords": (positive, 250, "the most subwords in a training sentence"),
        "--max-ratio": (float, 1.5, of_sides),
    }
    add_numbers(parser, numbers)
