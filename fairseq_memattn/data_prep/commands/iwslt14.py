"""IWSLT14 Spanish-English TED talks, as documents, for fairseq."""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from fairseq_memattn.data_prep.formats.sgml_segments import read_segment_rows
from fairseq_memattn.data_prep.formats.wit3 import read_talks
from fairseq_memattn.data_prep.pipeline.archives import extract, is_at, names, sources
from fairseq_memattn.data_prep.pipeline.arguments import COMMON, add_options
from fairseq_memattn.data_prep.pipeline.download import obtain, official
from fairseq_memattn.data_prep.pipeline.stages import locks_output
from fairseq_memattn.data_prep.pipeline.text_to_binary import Pipeline

LANGUAGES = ("es", "en")
TEST_SETS = {"valid": ("dev2010",), "test": ("tst2010", "tst2011", "tst2012")}
ARCHIVE = official("2014-01.tgz")
INNER = "es/en/es-en.tgz"
TEST_LINES = 4706  # in the copy of Miculicich et al. in HAN_NMT
DESCRIPTION = """\
IWSLT14 Spanish-English (TED talks), as the ABC paper uses it after Miculicich et al. (2018).
dev2010 is the validation set, tst2010 to tst2012 are the test set, and each talk is a document.
The text is normalised, tokenised and truecased with Moses' rules, and segmented with 30,000 BPE
merges that are learnt from both languages together.

  %(prog)s --archive 2014-01.tgz --output iwslt14

Download the archive with a browser: release 2014-01 on https://wit3.fbk.eu. Its es-en.tgz alone,
or a folder with the files of es-en.tgz, is accepted as well.

FOLDER/text/      sentences as released; test.en is the reference for scores of plain text
FOLDER/pieces/    tokenised, truecased and segmented
FOLDER/bin/       fairseq's data, with document ids
"""


def wanted_files() -> dict[str, str]:
    """The files of the archive, and their names in raw/."""
    train = [f"train.tags.es-en.{language}" for language in LANGUAGES]
    tests = [
        f"IWSLT14.TED.{name}.es-en.{language}.xml"
        for members in TEST_SETS.values()
        for name in members
        for language in LANGUAGES
    ]
    return {name: name for name in (*train, *tests)}


def inner_archive(pipeline: Pipeline, archive: Path) -> Path:
    """The archive of this language pair, which the whole release contains."""
    if not any(is_at(name, INNER) for name in names(archive)):
        return archive
    target = pipeline.folder / "raw" / "es-en.tgz"
    wanted = {INNER: target}
    work = partial(extract, archive, wanted)
    pipeline.stages.run("raw-es-en", sources(archive, wanted), [target], work)
    return target


def train_rows(files: Sequence[Path], counts: Counter[str]) -> Iterator[tuple[str, ...]]:
    """Spanish, English and document id of each pair of lines of text."""
    for sentence in read_talks(files, counts):
        yield *sentence.texts, sentence.document


def test_rows(
    raw: Mapping[str, Path], members: Sequence[str], counts: Counter[str]
) -> Iterator[tuple[str, str, str]]:
    """Spanish, English and document id (SET.TALK) of each segment of some test sets."""
    for name in members:
        source, target = (raw[f"IWSLT14.TED.{name}.es-en.{side}.xml"] for side in LANGUAGES)
        for row in read_segment_rows((source, target), counts):
            yield row.texts[0], row.texts[1], f"{name}.{row.document}"


@locks_output
def run(args: argparse.Namespace) -> None:
    pipeline = Pipeline(args.output, LANGUAGES, workers=args.workers, force=args.force)
    archive = obtain(ARCHIVE, args.archive, args.output / "archives", args.unchecked)
    raw = pipeline.unpack(inner_archive(pipeline, archive), wanted_files())
    train = [raw[f"train.tags.es-en.{language}"] for language in LANGUAGES]
    pipeline.write_text("train", train, partial(train_rows, train), documents=True)
    counts = {}
    for split, members in TEST_SETS.items():
        files = [path for name, path in raw.items() if any(f".{one}." in name for one in members)]
        rows = partial(test_rows, raw, members)
        counts[split] = pipeline.write_text(split, files, rows, documents=True)
    if counts["test"]["pairs"] != TEST_LINES:
        print(
            f"note: the test set has {counts['test']['pairs']:,} pairs; the copy of Miculicich "
            f"et al. in HAN_NMT has {TEST_LINES:,}"
        )
    pipeline.tokenise()
    pipeline.truecase()
    learnt_from = pipeline.paths("truecased", "train")
    codes = pipeline.learn_bpe(learnt_from, "codes", args.bpe_merges)
    pipeline.apply_bpe("truecased", dict.fromkeys(LANGUAGES, codes))
    pipeline.copy_docids()
    pipeline.binarise()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "--archive", "--unchecked", *COMMON)
    add_options(parser, "--bpe-merges", bpe_merges={"default": 30_000})
