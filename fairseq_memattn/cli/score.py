"""`memattn score`: sacreBLEU and chrF of what fairseq-generate printed, on detokenised text."""

import argparse
import sys
from pathlib import Path

from fairseq_memattn.evaluation.generated import detokenise, read_hypotheses, read_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--generated",
        type=Path,
        required=True,
        help="what fairseq-generate printed, run with --required-batch-size-multiple 1; "
        "SentencePiece's pieces are joined, words are left as they are",
    )
    parser.add_argument(
        "--reference",
        type=Path,
        required=True,
        help="the reference translations as plain text, a line each, in the order of the test set",
    )
    parser.add_argument(
        "--separator",
        help="for windows of sentences: score only the last sentence of each line, behind the "
        "last separator, in hypotheses and references",
    )
    parser.add_argument(
        "--output", type=Path, help="also write the scored hypotheses, as text, a line each"
    )


def run(args: argparse.Namespace) -> None:
    import sacrebleu

    references = read_lines(args.reference)
    if not any(line.strip() for line in references):
        raise ValueError(f"--reference {args.reference} has no text")
    hypotheses = detokenise(read_hypotheses(args.generated, len(references)), args.separator)
    if args.separator:
        hypotheses, references = last_sentences(hypotheses, references, args.separator)
    if args.output:
        args.output.write_text("".join(f"{line}\n" for line in hypotheses), encoding="utf-8")
    for metric in (sacrebleu.BLEU(), sacrebleu.CHRF()):
        score = metric.corpus_score(hypotheses, [references])
        print(score.format(width=2, signature=str(metric.get_signature())))


def last_sentences(
    hypotheses: list[str], references: list[str], separator: str
) -> tuple[list[str], list[str]]:
    """The last sentence of every window, saying how many windows came out uneven."""
    counts = [[line.split().count(separator) for line in x] for x in (hypotheses, references)]
    if not any(map(sum, counts)):
        raise ValueError(f"--separator {separator} occurs neither in hypotheses nor in references")
    if sum(counts[1]):
        uneven = sum(one != other for one, other in zip(*counts, strict=True))
        print(
            f"{uneven} of {len(hypotheses)} hypotheses have another number of {separator} than "
            "their reference; what follows the last one is scored",
            file=sys.stderr,
        )
    return (
        [last_sentence(line, separator) for line in hypotheses],
        [last_sentence(line, separator) for line in references],
    )


def last_sentence(line: str, separator: str) -> str:
    """What follows the last separator; the whole line where there is none."""
    return f" {line}".rpartition(f" {separator} ")[2].strip()
