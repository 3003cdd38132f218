"""The options of `memattn score` for measures of documents, and by position and length."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from fairseq_memattn.cli.shared.inputs import check_given, named_file, refuse_unused
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.errors import LARGEST, flag

SOURCE_TOKENIZE = "13a"
ALIGNED_LINES = ("separator", "last_of_documents", "generated")  # not with --segale
NEED_DOCUMENTS = (
    *("comet_context", "slide_window", "consistency", "cohesion", "positions"),
    "segale",
)
ONE_REFERENCE = ("comet", "metricx", "segale", "consistency", "cohesion")
# The options that another one is for.
ONLY_WITH = {
    "comet_context": ("comet",),
    "metricx_tokenizer": ("metricx",),
    "slide_stride": ("slide_window",),
    "alignments": ("consistency",),
    "reference_alignments": ("alignments",),
    "stop_words": ("consistency", "cohesion"),
    "plot": ("positions", "lengths"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser.add_argument_group("measures of documents, which need --docids"))
    add.number(
        "--comet-context",
        "also document COMET: with --comet, each sentence is read after up to N sentences "
        "before it in its document (2 in Vernikos et al., 2022)",
    )
    add.number(
        "--slide-window",
        "also SLIDE: the mean sentence BLEU and chrF, and COMET with --comet, of windows of N "
        "sentences that slide over each document",
    )
    add.number(
        "--slide-stride",
        "sentences between the starts of two windows, at most --slide-window, which is the default",
    )
    add.switch(
        "--segale",
        "also chrF, --comet and --metricx of tables that memattn align has written, with their "
        "worst score for each omitted or added sentence, and the shares of these sentences",
    )
    add.switch(
        "--consistency",
        "also LTCR: how often a word that a document repeats has the same translation; needs "
        "--source",
    )
    add(
        "--alignments",
        "for --consistency: word alignments of a system, lines such as 0-0 1-2, between the "
        "tokens of the source and of the translation; once for each system (default: estimated "
        "from the test set)",
        action="append",
        metavar="[NAME=]FILE",
    )
    add.file(
        "--reference-alignments",
        "with --alignments: those of the reference, whose consistency is then shown too",
    )
    add.switch(
        "--cohesion",
        "also lexical cohesion (LC, RC): how many content words repeat others of the document",
    )
    add.file(
        "--stop-words",
        "for --consistency and --cohesion: words of both languages that are no content words, "
        "one a line (default: those in more than half of the documents)",
    )
    add.switch(
        "--positions",
        "also BLEU, chrF and accuracy by the position of the sentences in their documents",
    )
    add = Options(parser.add_argument_group("scores by length"))
    add(
        "--lengths",
        "also BLEU, chrF and accuracy by the number of words in the source or the reference",
        choices=("source", "reference"),
    )
    add(
        "--source-tokenize",
        "for --consistency and --lengths source: sacreBLEU's tokenizer for the source, such "
        f"as zh (default: {SOURCE_TOKENIZE})",
        metavar="NAME",
    )
    add.file("--plot", "with --positions or --lengths: also draw them, a .png")


def check(args: argparse.Namespace) -> None:
    from fairseq_memattn.evaluation.plots import check_format
    from fairseq_memattn.evaluation.scores import build_bleu

    check_given(args, ("comet_context", "slide_window"), 1, LARGEST)
    if args.slide_window:
        check_given(args, ["slide_stride"], 1, args.slide_window)
    if not args.docids:
        refuse_unused(args, NEED_DOCUMENTS, "needs --docids")
    if args.segale:
        refuse_unused(args, ALIGNED_LINES, "does not go with --segale")
    single = [flag(name) for name in ONE_REFERENCE if getattr(args, name)]
    single += ["--lengths reference"] * (args.lengths == "reference")
    if single and args.more_references:
        raise ValueError(
            f"{single[0]} takes one --reference, but {1 + len(args.more_references)} are given"
        )
    of_source = {"--consistency": args.consistency, "--lengths source": args.lengths == "source"}
    for option, given in of_source.items():
        if given and not args.source:
            raise ValueError(f"{option} needs --source")
    for name, others in ONLY_WITH.items():
        if not any(getattr(args, other) for other in others):
            refuse_unused(args, [name], f"is for {' and '.join(map(flag, others))}")
    if args.source and not (args.comet or args.metricx or any(of_source.values())):
        raise ValueError(
            "--source is for --comet, --metricx, --consistency and --lengths source, of which none "
            "is given"
        )
    if not any(of_source.values()):
        refuse_unused(args, ["source_tokenize"], "is for --consistency and --lengths source")
    if args.source_tokenize is not None:
        build_bleu(args.source_tokenize, option="--source-tokenize")
    if args.plot:
        check_format("--plot", args.plot)


def inputs(args: argparse.Namespace) -> dict[str, list[Path]]:
    return {
        "--alignments": [path for _, path in _named_files(args)],
        "--reference-alignments": [args.reference_alignments] if args.reference_alignments else [],
        "--stop-words": [args.stop_words] if args.stop_words else [],
    }


def alignment_files(args: argparse.Namespace, systems: Iterable[str]) -> dict[str, Path]:
    """The file of --alignments of each system; empty without the option."""
    names = list(systems)
    files: dict[str, Path] = {}
    for given, path in _named_files(args):
        name = names[0] if given is None and len(names) == 1 else given
        if name not in names:
            raise ValueError(
                f"--alignments {path}: NAME= must name a system, one of {', '.join(names)}"
            )
        if name in files:
            raise ValueError(f"--alignments {name} is given twice")
        files[name] = path
    missing = [name for name in names if name not in files]
    if files and missing:
        raise ValueError(f"--alignments is missing for the system {missing[0]}")
    return files


def _named_files(args: argparse.Namespace) -> list[tuple[str | None, Path]]:
    return [named_file("--alignments", given) for given in args.alignments or ()]
