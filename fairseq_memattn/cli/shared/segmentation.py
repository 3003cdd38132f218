"""Segments raw text into the pieces of a model's dictionary."""

import argparse
from collections.abc import Callable
from pathlib import Path

from fairseq_memattn.cli.shared.inputs import require_file
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.errors import flag
from fairseq_memattn.evaluation.fairseq_output import read_lines
from fairseq_memattn.pieces import with_spaces


def add_arguments(parser: argparse.ArgumentParser) -> None:
    segmentation = Options(parser.add_mutually_exclusive_group())
    segmentation(
        "--sentencepiece-model",
        "segment the sentences with this model; without it and --subword-nmt they must be "
        "segmented already",
        type=Path,
    )
    segmentation.file(
        "--subword-nmt", "segment tokenised sentences with BPE codes", metavar="CODES"
    )


def segmenter(args: argparse.Namespace) -> Callable[[str], str]:
    """A function from a sentence to its pieces, separated by spaces."""
    for name in ("sentencepiece_model", "subword_nmt"):
        path = getattr(args, name)
        if path:
            require_file(flag(name), path)
    if args.sentencepiece_model:
        import sentencepiece

        try:
            processor = sentencepiece.SentencePieceProcessor(str(args.sentencepiece_model))
        except RuntimeError:
            raise ValueError(
                f"--sentencepiece-model {args.sentencepiece_model}: not a SentencePiece model"
            ) from None
        return lambda sentence: " ".join(processor.encode(with_spaces(sentence), out_type=str))
    if args.subword_nmt:
        from subword_nmt.apply_bpe import BPE

        if not any(read_lines(args.subword_nmt)):
            raise ValueError(f"--subword-nmt {args.subword_nmt} is empty")
        with open(args.subword_nmt, encoding="utf-8") as codes:
            return BPE(codes).process_line
    return str


def pieces_of(args: argparse.Namespace) -> str | None:
    """fairseq's name of the pieces, by which its `post_process` joins them; None without pieces."""
    if args.sentencepiece_model:
        return "sentencepiece"
    return "subword_nmt" if args.subword_nmt else None
