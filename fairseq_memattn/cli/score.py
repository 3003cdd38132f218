"""`memattn score`: sacreBLEU and chrF of what fairseq-generate printed, on detokenised text."""

import argparse
import sys
from pathlib import Path

from fairseq_memattn.evaluation.generated import detokenise_pieces, read_hypotheses


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--generated", type=Path, required=True, help="the output of fairseq-generate, in pieces"
    )
    parser.add_argument(
        "--reference", type=Path, required=True, help="the reference translations, as plain text"
    )
    parser.add_argument(
        "--separator",
        default=None,
        help="score only the last sentence of each window, behind the last separator; the "
        "references are then sentences too (or windows, treated the same)",
    )
    parser.add_argument(
        "--output", type=Path, default=None, help="also write the scored hypotheses, as text"
    )


def run(args: argparse.Namespace) -> None:
    import sacrebleu

    references = args.reference.read_text(encoding="utf-8").splitlines()
    hypotheses = [
        detokenise_pieces(line) for line in read_hypotheses(args.generated, len(references))
    ]
    if args.separator:
        short = sum(args.separator not in line.split() for line in hypotheses)
        hypotheses, references = (
            [last_sentence(line, args.separator) for line in lines]
            for lines in (hypotheses, references)
        )
        print(f"{short} of {len(hypotheses)} hypotheses have no separator", file=sys.stderr)
    if args.output:
        args.output.write_text("".join(f"{line}\n" for line in hypotheses), encoding="utf-8")
    for metric in (sacrebleu.BLEU(), sacrebleu.CHRF()):
        score = metric.corpus_score(hypotheses, [references])
        print(score.format(width=2, signature=str(metric.get_signature())))


def last_sentence(line: str, separator: str) -> str:
    """What follows the last separator; the whole line where there is none."""
    return f" {line}".rpartition(f" {separator} ")[2].strip()
