"""`memattn score`: BLEU by sentence and by document, chrF, COMET, and measures of documents.

One system gets sacreBLEU's scores, with bootstrap intervals if asked for; several are also compared
with the first one, the baseline, by sacreBLEU's paired bootstrap.
"""

import argparse
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fairseq_memattn.cli.scoring import options as document_options
from fairseq_memattn.cli.scoring.tables import (
    breakdown_text,
    cohesion_text,
    consistency_text,
    documents_text,
    results_text,
)
from fairseq_memattn.cli.shared.inputs import (
    check_given,
    check_separator,
    fill_empty,
    named_file,
    require_file,
    same_lines,
    warn_of_segmentation,
)
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, columns_text, say
from fairseq_memattn.errors import LARGEST, check_least, flag
from fairseq_memattn.evaluation.available_memory import check_memory
from fairseq_memattn.evaluation.comet_score import import_comet
from fairseq_memattn.evaluation.document_lines import Document, docid_of_each_line, read_documents
from fairseq_memattn.evaluation.fairseq_output import (
    HYPOTHESIS,
    detokenise,
    read_hypotheses,
    read_targets,
    read_translations,
    same_letters,
    sentences,
)
from fairseq_memattn.evaluation.metricx_score import TOKENIZER, require_metricx
from fairseq_memattn.evaluation.segale import read_aligned
from fairseq_memattn.evaluation.text_columns import file_of, format_of, read_column
from fairseq_memattn.evaluation.tokenizers import tokenizer_warning
from fairseq_memattn.files import printable, replacing, write_json, write_text

if TYPE_CHECKING:
    from fairseq_memattn.evaluation.breakdown import Breakdown
    from fairseq_memattn.evaluation.document_lines import ScoredTexts
    from fairseq_memattn.evaluation.scores import Measure

RESAMPLES = 1000
LARGEST_SEED = 2**32 - 1  # numpy's
# Options whose files are no tables of columns.
PLAIN_FILES = {"--generated", "--alignments", "--reference-alignments"}
WORD_TABLES = {"consistency": consistency_text, "cohesion": cohesion_text}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    systems = Options(parser.add_mutually_exclusive_group(required=True))
    systems.file(
        "--generated",
        "output of fairseq-generate for all sentences of --reference; SentencePiece's pieces "
        "are joined, words are left as they are",
    )
    systems(
        "--system",
        "a system's translations: what fairseq-generate printed, plain text, a line each, or "
        "a column of a table, FILE.jsonl:KEY or FILE.tsv:COLUMN. May be repeated: the first system "
        "is the baseline that the others are compared with",
        action="append",
        metavar="[NAME=]FILE",
    )
    add = Options(parser)
    add.file(
        "--reference",
        "the reference translations as plain text, a line each, in the order of the test set, "
        "or a column of a table, as --docids and --source can be. May be repeated: BLEU and chrF "
        "use all references; the other measures and --lengths reference take one",
        action="append",
        required=True,
    )
    add(
        "--separator",
        "for windows of sentences: score only the last sentence of each line, after the "
        "last separator, in hypotheses and references",
        metavar="TOKEN",
    )
    add.file(
        "--docids",
        "document id of each line of the reference; BLEU is then named s-BLEU, and d-BLEU "
        "is that of whole documents, their sentences joined by a space",
    )
    add.switch(
        "--last-of-documents",
        "with --docids: score only the last sentence of each document, as a training with "
        "--loss-on last",
    )
    add.switch(
        "--per-document", "with --docids: also a table of sentences, s-BLEU and chrF by document"
    )
    add(
        "--tokenize",
        "sacreBLEU's tokenizer for BLEU. The default, %(default)s, does not split text "
        "without spaces: give zh for Chinese, ja-mecab for Japanese, ko-mecab for Korean, and "
        "flores200 or char for Thai, Khmer, Lao and Burmese",
        default="13a",
        metavar="NAME",
    )
    add.switch("--lowercase", "ignore case in BLEU and chrF")
    add.number(
        "--resamples",
        "bootstrap resamples for 95 %% intervals and p-values, of sentences for BLEU, s-BLEU "
        f"and chrF and of documents for d-BLEU; 0 leaves both out (default: {RESAMPLES} for "
        "several systems, 0 for one)",
    )
    add.number("--seed", "seed of the bootstrap (default: %(default)s, sacreBLEU's)", default=12345)
    add(
        "--test",
        "the paired test of several systems: bootstrap resampling (default), or approximate "
        "randomisation, which finds fewer differences of equally good systems significant",
        choices=["bootstrap", "randomisation"],
    )
    add(
        "--comet",
        "also COMET, with the package unbabel-comet: a checkpoint file or a name that it "
        "downloads, such as Unbabel/wmt22-comet-da; needs --source",
        metavar="MODEL",
    )
    add(
        "--metricx",
        "also MetricX-24, an error from 0 to 25, with the program metricx24: a folder or a name "
        "such as google/metricx-24-hybrid-large-v2p6; needs --source",
        metavar="MODEL",
    )
    add("--metricx-tokenizer", f"for --metricx (default: {TOKENIZER})", metavar="MODEL")
    add.file(
        "--source",
        "for --comet, --metricx, --consistency and --lengths source: the source text, a line each",
    )
    document_options.add_arguments(parser)
    add.file(
        "--output",
        "also write the scored hypotheses of a single system as text, one per line, or, with "
        "the suffix .jsonl or .tsv, as a table with the ids and references",
    )
    add.file("--json", "also write the results as JSON")


def run(args: argparse.Namespace) -> None:
    args.reference, *args.more_references = args.reference
    check(args)
    paths = system_paths(args)
    if args.test and (len(paths) < 2 or args.resamples == 0):
        raise ValueError("--test needs several systems and --resamples above 0")
    document_options.alignment_files(args, paths)
    check_files(args, list(paths.values()))
    references = read_column(args.reference, "ref")
    if not any(line.strip() for line in references):
        raise ValueError(f"--reference {args.reference} has no text")
    from fairseq_memattn.evaluation.scores import resampling_memory

    resamples = bootstrap_resamples(args, len(paths))
    work = f"--resamples {resamples} of {len(references)} sentences"
    check_memory(
        resampling_memory(len(references), resamples),
        work + " takes {} of memory, but {} are available",
    )
    if separates_documents(references, paths.values()):
        references = [line for line in references if line.strip()]
    count = len(references)
    documents: list[Document] | None = None
    docids: dict[str, list[str]] = {}
    starts = None
    if args.docids:
        documents = read_documents(args.docids, args.reference, count)
        starts = [document.start for document in documents]
    more = {
        path: read_beside("--reference", path, "ref", args, count) for path in args.more_references
    }
    systems = read_systems(args, paths, count, starts)
    for name, path in paths.items():
        warn_of_other_references(args, path, references)
        warn_of_scored_references(args, path, systems[name])
    sources = read_beside("--source", args.source, "src", args, count) if args.source else []
    if documents and args.last_of_documents:
        last = [document.stop - 1 for document in documents]
        systems, more = ({k: [x[i] for i in last] for k, x in y.items()} for y in (systems, more))
        references = [references[i] for i in last]
        sources = sources and [sources[i] for i in last]
        documents = [Document(one.name, i, i + 1) for i, one in enumerate(documents)]
    if documents:
        docids = {"docid": docid_of_each_line(documents)}
    if args.separator is not None:
        for name, lines in systems.items():
            warn_of_uneven_windows(name, lines, references, args.separator)
        systems = {name: last_sentences(lines, args.separator) for name, lines in systems.items()}
        references = last_sentences(references, args.separator)
        more = {path: last_sentences(lines, args.separator) for path, lines in more.items()}
        sources = last_sentences(sources, args.separator)
    given = {args.reference: references, **more}
    all_references = fill_empty(given)
    references, *others = all_references.values()
    named = {f"--reference {path}": lines for path, lines in all_references.items()}
    warn_of_segmentation({**systems, **named})
    warning = tokenizer_warning(references, args.tokenize, "--tokenize")
    if warning:
        say(f"warning: --reference {args.reference}: {warning}")
    columns = {**docids, "ref": references}
    columns |= {f"ref{number}": lines for number, lines in enumerate(others, start=2)}
    columns["hyp"] = next(iter(systems.values()))
    content = columns_text(columns, "hyp", format_of(args.output))
    scored = score(args, systems, references, sources, documents, others, given != all_references)
    # First the files: nobody may read what is printed.
    if args.output:
        write_text(args.output, content)
    if args.json:
        write_json(args.json, scored.report)
    if args.plot:
        draw(args.plot, scored.breakdowns)
    print("\n\n".join(scored.tables))


def check(args: argparse.Namespace) -> None:
    for option in ("per_document", "last_of_documents"):
        if getattr(args, option) and not args.docids:
            raise ValueError(f"{flag(option)} needs --docids")
    check_given(args, ["resamples"], 0, LARGEST)
    # sacreBLEU reads 0 as no seed.
    check_least(args, "seed", 1, LARGEST_SEED)
    check_separator(args.separator)
    for name in ("comet", "metricx"):
        if getattr(args, name) and not args.source:
            raise ValueError(f"{flag(name)} needs --source")
    document_options.check(args)
    if args.comet:
        import_comet()
    if args.metricx:
        require_metricx()
    from fairseq_memattn.evaluation.scores import build_bleu

    build_bleu(args.tokenize)


def system_paths(args: argparse.Namespace) -> dict[str, Path]:
    """The file of each system by its name, the baseline first."""
    if args.generated:
        return {printable(str(args.generated)): args.generated}
    paths: dict[str, Path] = {}
    for given in args.system:
        name, path = named_file("--system", given)
        name = printable(given if name is None else name)
        if name in paths:
            raise ValueError(f"--system {name} is given twice")
        paths[name] = path
    return paths


def check_files(args: argparse.Namespace, systems: Sequence[Path]) -> None:
    if args.output and len(systems) > 1:
        raise ValueError(f"--output takes one system, but {len(systems)} are given")
    inputs = {"--generated" if args.generated else "--system": systems}
    inputs["--reference"] = [args.reference, *args.more_references]
    for path in set(inputs["--reference"]):
        if inputs["--reference"].count(path) > 1:
            raise ValueError(f"--reference {path} is given twice")
    for name in ("docids", "source"):
        path = getattr(args, name)
        inputs[f"--{name}"] = [path] if path else []
    inputs |= document_options.inputs(args)
    for option, paths in inputs.items():
        for path in paths:
            require_file(option, path, path if option in PLAIN_FILES else file_of(path))
    read = [path for paths in inputs.values() for path in paths]
    outputs = {"--output": args.output, "--json": args.json, "--plot": args.plot}
    check_outputs(outputs, read)


def read_systems(
    args: argparse.Namespace,
    paths: Mapping[str, Path],
    expected: int,
    starts: Sequence[int] | None = None,
) -> dict[str, list[str]]:
    """The hypotheses of each system, as many as there are references."""
    if args.generated:
        ((name, path),) = paths.items()
        return {name: detokenise(read_hypotheses(path, expected), args.separator)}
    return {
        name: read_translations(path, expected, args.separator, starts)
        for name, path in paths.items()
    }


def separates_documents(references: Sequence[str], systems: Iterable[Path]) -> bool:
    """Whether blank lines of a reference stand between documents.

    Then each system has blank lines at these places, or one sentence for each line of text.
    """
    blank = [not line.strip() for line in references]
    count = blank.count(False)
    if count == len(blank):
        return False
    for path in systems:
        lines = read_column(path, "hyp")
        numbers = {found[1] for line in lines if (found := HYPOTHESIS.match(line))}
        has = len(numbers) or len(lines)
        if has != count and [not line.strip() for line in lines] != blank:
            return False
    return True


def warn_of_other_references(
    args: argparse.Namespace, path: Path, references: Sequence[str]
) -> None:
    """Print a warning if most references in output of fairseq-generate are not --reference."""
    targets = read_targets(path, args.separator)
    differing = []
    for number in targets.keys() & set(range(len(references))):
        pair = [targets[number], references[number]]
        last = pair if args.separator is None else last_sentences(pair, args.separator)
        if not same_letters(*last):
            differing.append(number)
    if 2 * len(differing) > len(targets):
        say(
            f"warning: {path}: {len(differing)} of {len(targets)} references (T-) differ from "
            f"--reference {args.reference}, first line {min(differing) + 1}; it may be the "
            "reference of other data"
        )


def warn_of_scored_references(
    args: argparse.Namespace, path: Path, hypotheses: Sequence[str]
) -> None:
    """Print a warning if all hypotheses in output of fairseq-generate are its own references."""
    targets = read_targets(path, args.separator)
    if targets and all(hypotheses[number] == text for number, text in targets.items()):
        say(
            f"warning: {path}: all {len(targets)} hypotheses are the references (T-), as with "
            "--score-reference"
        )


def read_beside(
    option: str, path: Path, column: str, args: argparse.Namespace, expected: int
) -> list[str]:
    """The sentences of a file that has as many as the reference."""
    lines = sentences(read_column(path, column), expected)
    return same_lines(option, path, lines, f"--reference {args.reference}", expected)


def warn_of_uneven_windows(
    name: str, hypotheses: Sequence[str], references: Sequence[str], separator: str
) -> None:
    """Print how many hypotheses have another number of sentences than their reference."""
    counts = [[line.split().count(separator) for line in x] for x in (hypotheses, references)]
    if not any(map(sum, counts)):
        raise ValueError(f"--separator {separator} occurs neither in hypotheses nor in references")
    if sum(counts[1]):
        uneven = sum(one != other for one, other in zip(*counts, strict=True))
        say(
            f"{name}: {uneven} of {len(hypotheses)} hypotheses have another number of {separator} "
            "than their reference; what follows the last one is scored"
        )


def last_sentences(lines: Sequence[str], separator: str) -> list[str]:
    return [last_sentence(line, separator) for line in lines]


def last_sentence(line: str, separator: str) -> str:
    """What follows the last separator; the whole line where there is none."""
    return f" {line} ".rpartition(f" {separator} ")[2].strip()


class Scored(NamedTuple):
    """The scores as tables, those by position and length, and all of them for JSON."""

    tables: list[str]
    breakdowns: "list[Breakdown]"
    report: dict[str, Any]


def score(
    args: argparse.Namespace,
    systems: Mapping[str, list[str]],
    references: list[str],
    sources: list[str],
    documents: list[Document] | None,
    more_references: list[list[str]],
    filled: bool = False,
) -> Scored:
    """The scores of line-aligned texts.

    filled: whether a reference was empty, so that the number of references varies
    """
    from fairseq_memattn.cli.scoring.segment_measures import segment_measures
    from fairseq_memattn.cli.scoring.word_measures import word_measures
    from fairseq_memattn.evaluation import scores
    from fairseq_memattn.evaluation.document_lines import ScoredTexts

    draws, test = bootstrap_resamples(args, len(systems)), args.test or "bootstrap"
    measures = scores.build_measures(
        systems, references, documents, args.tokenize, args.lowercase, more_references
    )
    for measure in measures:
        if filled and measure.name != "d-BLEU":
            measure.metric.num_refs = -1  # sacreBLEU's signature then has nrefs:var
    aligned = read_aligned(system_paths(args), len(references)) if args.segale else {}
    texts = ScoredTexts(systems, references, sources, documents or [], more_references, aligned)
    shown = []
    if len(systems) == 1:
        lines = [scores.standard_line(measure, *systems) for measure in measures]
        shown.append("\n".join(lines))
    # Inputs and models of these measures may be wrong, so they come before the bootstrap.
    words, segments = word_measures(args, texts), segment_measures(args, texts)
    measured = scores.measure_all(measures, draws, args.seed, test) | segments
    if len(systems) > 1 or draws or len(measured) > len(measures):
        shown.append(results_text(measured, draws, args.seed, test))
    # sacreBLEU's numbers are numpy's in part, which JSON does not take.
    numbers = {
        name: {
            system: {key: None if x is None else float(x) for key, x in vars(result).items()}
            for system, result in one.results.items()
        }
        for name, one in measured.items()
    }
    report: dict[str, Any] = {
        "reference": str(args.reference),
        "more_references": [str(path) for path in args.more_references],
        "sentences": len(references),
        "documents": None if documents is None else len(documents),
        "baseline": next(iter(systems)),
        "measures": {
            name: {"signature": one.signature, "systems": numbers[name]}
            for name, one in measured.items()
        },
        **words,
    }
    shown += [WORD_TABLES[name](results) for name, results in words.items()]
    if documents is not None and args.per_document:
        report["per_document"] = scores.by_document(measures, texts.all_references, documents)
        shown.append(documents_text(report["per_document"]))
    found = breakdowns(args, texts, measures)
    for name, each in found.items():
        report[name] = each._asdict()
        shown.append(breakdown_text(each))
    return Scored(shown, list(found.values()), report)


def breakdowns(
    args: argparse.Namespace, texts: "ScoredTexts", measures: "Sequence[Measure]"
) -> "dict[str, Breakdown]":
    """The scores by position and by length, by the name of the option."""
    from fairseq_memattn.evaluation import breakdown
    from fairseq_memattn.evaluation.words import tokenise

    groups: dict[str, tuple[Any, ...]] = {}
    if args.positions:
        numbers = breakdown.positions(texts.documents)
        groups["positions"] = "sentence of the document", numbers, breakdown.POSITIONS
    if args.lengths:
        lines, tokenize = texts.references, args.tokenize
        if args.lengths == "source":
            lines = texts.sources
            tokenize = args.source_tokenize or document_options.SOURCE_TOKENIZE
        numbers = breakdown.lengths(tokenise(lines, tokenize))
        groups["lengths"] = f"words of the {args.lengths}", numbers, breakdown.LENGTHS
    return {
        option: breakdown.breakdown(name, numbers, limits, measures, texts.all_references)
        for option, (name, numbers, limits) in groups.items()
    }


def draw(output: Path, breakdowns: "Sequence[Breakdown]") -> None:
    # matplotlib logs every font that it looks at.
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    from fairseq_memattn.evaluation.breakdown import draw_breakdowns
    from fairseq_memattn.evaluation.fonts import fonts_for

    with fonts_for(breakdowns[0].rows[0]["systems"]), replacing(output) as unfinished:
        draw_breakdowns(breakdowns, unfinished)
    print(f"drew {output}")


def bootstrap_resamples(args: argparse.Namespace, systems: int) -> int:
    """The number of bootstrap resamples for that many systems."""
    if args.resamples is not None:
        return int(args.resamples)
    return RESAMPLES if systems > 1 else 0
