"""Voita et al.'s English-Russian subtitles (2019), sentences and groups of four, for fairseq."""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from fairseq_memattn.data_prep.formats.packed_lines import SENTENCES, SEPARATOR
from fairseq_memattn.data_prep.pipeline import arguments
from fairseq_memattn.data_prep.pipeline.download import obtain, official
from fairseq_memattn.data_prep.pipeline.stages import locks_output
from fairseq_memattn.data_prep.pipeline.text_to_binary import SPLITS, Pipeline
from fairseq_memattn.data_prep.text import subword
from fairseq_memattn.data_prep.text.lines import raw_pairs
from fairseq_memattn.errors import MemAttnError

LANGUAGES = ("en", "ru")
AGNOSTIC, AWARE = "context_agnostic", "context_aware"
LAYOUT = "{set}/{language}_{split}"
RELEASED_SPLITS = {"train": "train", "valid": "dev", "test": "test"}
ARCHIVE = official("acl19_good_translation_wrong_in_context.zip")
DESCRIPTION = """\
English-Russian subtitles as Voita et al. (2019) released them, tokenised: 6 million sentence
pairs to train a model without context (context_agnostic), and 1.5 million groups of four sentences
(context_aware). A group becomes a document of four lines, a pair becomes a document of one line.
BPE is learnt from the sentences of context_agnostic, with 32,000 merges for both languages
together or for each language. Both sets use the same merges and dictionary, so a model trained on
one set can continue on the other.

  %(prog)s --output opensubtitles
  %(prog)s --output opensubtitles --sentencepiece 32128
      SentencePiece instead of BPE, with a model and a dictionary for each language

FOLDER/SET/text/      sentences as released (in lower case with --lowercase, as the authors suggest)
FOLDER/SET/pieces/    segmented
FOLDER/SET/bin/       fairseq's data, with document ids
"""


def sentence_rows(
    files: Sequence[Path], lowercase: bool, counts: Counter[str]
) -> Iterator[tuple[str, ...]]:
    """The pairs of lines, and their line, from 1, as document id.

    In the set without context each pair is a document of its own, so a model sees none there.
    """
    for number, row in enumerate(raw_pairs(files, counts), start=1):
        yield *(line.lower() if lowercase else line for line in row), str(number)


def group_rows(
    files: Sequence[Path], lowercase: bool, counts: Counter[str]
) -> Iterator[tuple[str, str, str]]:
    """The sentence pairs of the groups, and the line of their group, from 1, as document id.

    Groups with an empty sentence are left out and counted.
    Raises MemAttnError for a side that does not have four sentences.
    """
    for *row, number in sentence_rows(files, lowercase, counts):
        sides = [[part.strip() for part in f" {line} ".split(f" {SEPARATOR} ")] for line in row]
        for path, side in zip(files, sides, strict=True):
            if len(side) != SENTENCES:
                raise MemAttnError(
                    f"{path}, line {number}: {len(side)} sentences joined by {SEPARATOR}, "
                    f"but a group has {SENTENCES}"
                )
        if not all(map(all, sides)):
            counts["groups with an empty sentence dropped"] += 1
            continue
        for source, target in zip(*sides, strict=True):
            yield source, target, number


def write_texts(pipeline: Pipeline, archive: Path, name: str, args: argparse.Namespace) -> None:
    members = {
        (split, language): args.layout.format(
            set=name, language=language, split=RELEASED_SPLITS[split]
        )
        for split in SPLITS
        for language in LANGUAGES
    }
    wanted = {end: f"{split}.{language}" for (split, language), end in members.items()}
    raw = pipeline.unpack(archive, wanted, **({} if args.layout == LAYOUT else {"files": wanted}))
    rows = group_rows if name == AWARE else sentence_rows
    for split in SPLITS:
        files = [raw[members[split, language]] for language in LANGUAGES]
        pipeline.write_text(
            split,
            files,
            partial(rows, files, args.lowercase),
            documents=True,
            lowercase=args.lowercase,
        )


def learn_codes(pipeline: Pipeline, merges: int, each: bool) -> Mapping[str, Path]:
    """BPE codes of each language from the sentences to train on."""
    files = dict(zip(LANGUAGES, pipeline.paths("text", "train"), strict=True))
    if not each:
        return dict.fromkeys(LANGUAGES, pipeline.learn_bpe([*files.values()], "codes", merges))
    return {
        language: pipeline.learn_bpe([path], f"codes.{language}", merges)
        for language, path in files.items()
    }


def segment_with_sentencepiece(sets: Mapping[str, Pipeline], size: int, normalization: str) -> None:
    """text/ to pieces/ of both sets, with a SentencePiece model for each language."""
    for language in LANGUAGES:
        text = sets[AGNOSTIC].path("text", "train", language)
        model = sets[AGNOSTIC].learn_sentencepiece(
            [text],
            f"spm.{language}",
            subword.Training(size, SEPARATOR, normalization=normalization),
            "--sentencepiece",
        )
        for pipeline in sets.values():
            pipeline.apply_sentencepiece("text", model, languages=[language])


@locks_output
def run(args: argparse.Namespace) -> None:
    if args.normalization != subword.IDENTITY and not args.sentencepiece:
        raise MemAttnError(f"--normalization {args.normalization} needs --sentencepiece")
    if args.sentencepiece and (args.bpe or args.bpe_merges):
        raise MemAttnError("--sentencepiece replaces BPE; leave out --bpe and --bpe-merges")
    sets = {
        name: Pipeline(args.output / name, LANGUAGES, workers=args.workers, force=args.force)
        for name in (AGNOSTIC, AWARE)
    }
    archive = obtain(ARCHIVE, args.archive, args.output / "archives", args.unchecked)
    for name, pipeline in sets.items():
        print(f"== {name}")
        write_texts(pipeline, archive, name, args)
    print("== pieces and fairseq's data of both")
    if args.sentencepiece:
        segment_with_sentencepiece(sets, args.sentencepiece, args.normalization)
    else:
        codes = learn_codes(sets[AGNOSTIC], args.bpe_merges or 32_000, args.bpe == "each")
        for pipeline in sets.values():
            pipeline.apply_bpe("text", codes)
    for pipeline in sets.values():
        pipeline.copy_docids()
    made = sets[AGNOSTIC].folder / "bin"
    dictionaries = {language: made / f"dict.{language}.txt" for language in LANGUAGES}
    joined = not args.sentencepiece
    sets[AGNOSTIC].binarise(joined_dictionary=joined)
    sets[AWARE].binarise(
        dictionary=dictionaries[LANGUAGES[0]] if joined else dictionaries, joined_dictionary=joined
    )


def layout(value: str) -> str:
    """An argparse type: a pattern with {set}, {language} and {split}."""
    names = dict.fromkeys(("set", "language", "split"), "a")
    try:
        path = value.format(**names)
        lacks = any(value.format(**names | {name: "b"}) == path for name in names)
    except (KeyError, IndexError, ValueError):
        raise argparse.ArgumentTypeError(
            "must contain {set}, {language} and {split} and no other braces, but is "
            f"{value!r}"
        ) from None
    if lacks:
        raise argparse.ArgumentTypeError(
            f"must contain {{set}}, {{language}} and {{split}}, but is {value!r}"
        )
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_options(parser, "--archive", "--unchecked", *arguments.COMMON, "--normalization")
    parser.add_argument(
        "--layout",
        type=layout,
        default=LAYOUT,
        metavar="PATTERN",
        help="paths of the files in the archive; {split} is train, dev or test "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--bpe",
        choices=("joint", "each"),
        help="learn merges from both languages together or from each (default: joint)",
    )
    arguments.add_options(
        parser, "--bpe-merges", bpe_merges={"help": "BPE merges (default: 32000)"}
    )
    of_pieces = (
        "use SentencePiece instead of BPE: a model of N symbols and a dictionary for each "
        "language; 4 of the symbols are <unk>, <s>, </s> and the separator; T5Mem has 32128"
    )
    parser.add_argument("--sentencepiece", **arguments.number(of_pieces))
    parser.add_argument("--lowercase", action="store_true", help="convert all text to lower case")
