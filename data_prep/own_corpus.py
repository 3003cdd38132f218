"""Your own text, with or without document ids, to fairseq's data in one command."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

if not __package__:  # run as `python data_prep/own_corpus.py`
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from data_prep import subword
from data_prep.aligned import Sentence, aligned_lines, contiguous, read_with_ids, refuse_empty
from data_prep.argument_types import positive, separator_token
from data_prep.binarise import add_text_arguments
from data_prep.files import DataError, run_command
from data_prep.pipeline import Pipeline, add_common_arguments
from data_prep.splits import find_splits

DESCRIPTION = """\
Convert your own text to fairseq's data. The text is checked, optionally tokenised, segmented with a
SentencePiece model that is trained on the training text of all languages, and binarised with its
document ids.

  %(prog)s --text train=my/train valid=my/dev test=my/test --langs en es --output my/data
      reads my/train.en, my/train.es, ..., with one sentence a line, and, where they exist,
      my/train.docid, my/dev.docid and my/test.docid, with the document id of each line

  %(prog)s --text train=my/train valid=my/dev --langs en --output my/data
      one language: data for language modelling

FOLDER/text/      your sentences; test.es is the reference for scores of plain text
FOLDER/pieces/    segmented with FOLDER/spm.model
FOLDER/bin/       fairseq's data, with document ids
"""


def rows(files: Sequence[Path], documents: bool, counts: Counter[str]) -> Iterator[tuple[str, ...]]:
    """The lines of a split and, with `documents`, the document id last.

    files: one a language and, with `documents`, the file of ids
    Raises DataError for a pair with an empty side; in a single language lines may be empty.
    """
    texts = files[:-1] if documents else files
    sentences = (
        contiguous(read_with_ids(files), files[-1])
        if documents
        else (Sentence(row, "", number) for number, row in aligned_lines(files))
    )
    for sentence in sentences:
        if len(texts) > 1:
            for path, line in zip(texts, sentence.texts, strict=True):
                refuse_empty(path, sentence.line, line)
        yield (*sentence.texts, sentence.document) if documents else sentence.texts


def segment(pipeline: Pipeline, kind: str, splits: Sequence[str], model: Path) -> None:
    """KIND/ to pieces/."""
    for split in splits:
        inputs, outputs = (pipeline.paths(folder, split) for folder in (kind, "pieces"))
        work = partial(subword.encode, model, inputs, outputs[0].parent)
        pipeline.stages.run(f"pieces-{split}", [*inputs, model], outputs, work)


def write_texts(pipeline: Pipeline, text: dict[str, Path]) -> bool:
    """The user's files to text/; returns whether they have document ids."""
    found = find_splits(text, pipeline.languages)
    with pipeline.stages.all_or_none():
        for split in text:
            files = found.texts(split)
            files += [found.docids(split)] if found.documents else []
            read = partial(rows, files, found.documents)
            pipeline.write_text(split, files, read, documents=found.documents)
    return found.documents


def prepare(args: argparse.Namespace) -> None:
    """From the user's files to bin/."""
    text = dict(args.text)
    if len(text) < len(args.text):
        raise DataError("--text names a split twice")
    if "train" not in text:
        raise DataError("--text has no train, from which the segmentation is learnt")
    pipeline = Pipeline(args.output, args.langs, workers=args.workers, force=args.force)
    documents = write_texts(pipeline, text)
    splits = [*text]
    kind = "text"
    if args.tokenise:
        pipeline.tokenise(splits)
        kind = "tokens"
    model = pipeline.learn_sentencepiece(
        pipeline.paths(kind, "train"),
        "spm",
        args.vocab_size,
        args.separator,
        args.seed,
        model_type=args.model_type,
        normalization=args.normalization,
    )
    segment(pipeline, kind, splits, model)
    if documents:
        pipeline.copy_docids(splits)
    else:
        pipeline.drop_docids(splits)
    pipeline.binarise(splits=splits)


def parser(prog: str | None = None) -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog=prog, description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_text_arguments(top)
    top.add_argument(
        "--tokenise",
        action="store_true",
        help="normalise punctuation and tokenise with Moses' rules before segmenting",
    )
    top.add_argument(
        "--vocab-size",
        type=positive,
        default=8000,
        metavar="N",
        help="symbols of the model (default: %(default)s)",
    )
    subword.add_model_type(top)
    subword.add_normalization(top)
    top.add_argument(
        "--separator",
        type=separator_token,
        default="_eos",
        metavar="TOKEN",
        help="a token that is not segmented, for windows of sentences (default: %(default)s)",
    )
    top.add_argument(
        "--seed", type=int, default=1, help="seed of SentencePiece (default: %(default)s)"
    )
    add_common_arguments(top)
    return top


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; returns the exit status. prog: the name that help shows."""
    return run_command(prepare, parser(prog).parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
