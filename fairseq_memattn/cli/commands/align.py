"""Cut the translations of whole documents into lines, one for each sentence of the reference.

  memattn align --system answers.jsonl --reference test.de --docids test.docid --output aligned.de

The lines minimise the word edit distance to the reference. `memattn score` and `memattn contrast
--translations` read them.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from fairseq_memattn.cli.shared.inputs import (
    check_separator,
    refuse_empty,
    require_file,
    warn_of_segmentation,
)
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, columns_text, say
from fairseq_memattn.errors import check_least
from fairseq_memattn.evaluation.available_memory import check_memory
from fairseq_memattn.evaluation.document_lines import (
    Document,
    docid_of_each_line,
    read_documents,
    read_outputs,
)
from fairseq_memattn.evaluation.realignment import (
    BOUNDARY_COST,
    Alignment,
    align,
    alignment_memory,
    units,
)
from fairseq_memattn.evaluation.text_columns import file_of, format_of, read_column
from fairseq_memattn.files import replacing, write_json

LARGEST_COST = 100
# Translations of other documents have about as many edits as the reference has words.
MANY_EDITS = 0.9
# Of the numbers of lines in a message. The report has all of them.
LISTED = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser, __doc__)
    add.file(
        "--system",
        "the translations of the documents: one document a line, an empty line between two "
        "documents of several lines, JSON lines with docid and text, or what fairseq-generate "
        "printed for documents",
        required=True,
    )
    add.file(
        "--reference",
        "the reference translations as plain text, one sentence a line, or a column of a "
        "table, FILE.jsonl:KEY or FILE.tsv:COLUMN",
        required=True,
    )
    add.file(
        "--docids", "document id of each line of the reference; without it, all is one document"
    )
    add(
        "--separator",
        "a token between two sentences in --system, such as _eos; it is removed, and a line "
        "may end there",
        metavar="TOKEN",
    )
    add(
        "--boundary-cost",
        "cost, in word edits, of a line that ends within a sentence; 0 minimises the word "
        "edit distance alone (default: %(default)s)",
        type=float,
        default=BOUNDARY_COST,
        metavar="N",
    )
    add.file(
        "--output",
        "file to write: a line for each line of the reference, empty if it has no "
        "translation, or, with the suffix .jsonl or .tsv, a table with the ids and references, "
        "the lines without added sentences, and their number, for `memattn score --segale`",
        required=True,
    )
    add.file(
        "--json",
        "also write counts, sentences without translation and translations without sentence",
    )


def run(args: argparse.Namespace) -> None:
    check(args)
    references = read_column(args.reference, "ref")
    if not any(map(str.strip, references)):
        raise ValueError(f"--reference {args.reference} has no text")
    refuse_empty(references, args.reference)
    documents = [Document("", 0, len(references))]
    if args.docids:
        documents = read_documents(args.docids, args.reference, len(references))
    texts = read_outputs(args.system, documents, args.separator)
    sentences = [references[start:stop] for _, start, stop in documents]
    check_memory(
        max(map(alignment_memory, sentences, texts)),
        "the alignment of the largest document takes {} of memory, but {} are available",
    )
    warn_of_segmentation(
        {
            f"--system {args.system}": [line for text in texts for line in text.split("\n")],
            f"--reference {args.reference}": references,
        }
    )
    columns = {"docid": docid_of_each_line(documents)} if args.docids else {}
    columns["ref"] = references
    kind = format_of(args.output)
    columns_text(columns, "ref", kind)  # what the format cannot store is an error before the work
    pairs = list(zip(sentences, texts, strict=True))
    alignments = [
        align(*pair, args.boundary_cost)
        for pair in tqdm(pairs, desc="aligning", unit="document", disable=None)
    ]
    report = report_of(documents, references, alignments)
    columns["hyp"] = [line for alignment in alignments for line in alignment.lines]
    columns["kept"] = [line for alignment in alignments for line in alignment.kept]
    columns["added"] = [str(len(x)) for alignment in alignments for x in alignment.additions]
    content = columns_text(columns, "hyp", kind)
    with replacing(args.output) as unfinished:
        unfinished.write_text(content, encoding="utf-8")
        if args.json:
            settings = {"system": str(args.system), "reference": str(args.reference)}
            write_json(args.json, settings | {"boundary_cost": args.boundary_cost} | report)
    print_report(args, report)


def check(args: argparse.Namespace) -> None:
    check_least(args, "boundary_cost", 0, LARGEST_COST)
    inputs = {"--system": args.system, "--reference": args.reference, "--docids": args.docids}
    for option, path in inputs.items():
        if path:
            require_file(option, path, path if option == "--system" else file_of(path))
    check_separator(args.separator)
    check_outputs({"--output": args.output, "--json": args.json}, inputs.values())


def report_of(
    documents: Sequence[Document], references: Sequence[str], alignments: Sequence[Alignment]
) -> dict[str, Any]:
    """What was aligned, and what could not be, for JSON: counts, and a row for each document."""
    rows = []
    for (name, start, stop), alignment in zip(documents, alignments, strict=True):
        numbers = range(start, stop)
        aligned = list(zip(numbers, alignment.lines, alignment.additions, strict=True))
        row: dict[str, Any] = {
            "document": name,
            "sentences": len(numbers),
            "words": sum(len(units(references[number])) for number in numbers),
            "edits": alignment.edits,
            "omissions": [
                {"line": number + 1, "reference": references[number]}
                for number, line, _ in aligned
                if not line
            ],
            "additions": [
                {"line": number + 1, "text": text} for number, _, added in aligned for text in added
            ],
        }
        rows.append(row)
    totals = {key: sum(row[key] for row in rows) for key in ("sentences", "words", "edits")}
    for key in ("omissions", "additions"):
        totals[key] = sum(len(row[key]) for row in rows)
    return {"documents": len(rows), **totals, "per_document": rows}


def print_report(args: argparse.Namespace, report: dict[str, Any]) -> None:
    """Prints the counts, and warnings for empty documents and for texts without much in common."""
    rows = report["per_document"]
    empty = [row["document"] for row in rows if len(row["omissions"]) == row["sentences"]]
    if empty:
        say(
            f"warning: {args.system}: {len(empty)} of {len(rows)} documents are empty, the first "
            f"one is {empty[0]!r}"
        )
    share = report["edits"] / report["words"]
    say(
        f"{report['sentences']} sentences of {len(rows)} documents; the word edit distance is "
        f"{report['edits']}, {share:.1%} of the reference's {report['words']} words"
    )
    say(f"{report['omissions']} sentences have no translation{_lines(rows, 'omissions')}")
    say(
        f"{report['additions']} sentences of the translation have no reference and stay in their "
        f"lines{_lines(rows, 'additions')}"
    )
    if share >= MANY_EDITS:
        say(
            f"warning: {args.system} has little in common with --reference {args.reference}; are "
            "these translations of the same documents, in the same order and language?"
        )


def _lines(rows: Sequence[dict[str, Any]], key: str) -> str:
    """The first numbers of the lines with omissions or additions, as the end of a message."""
    numbers = list(dict.fromkeys(entry["line"] for row in rows for entry in row[key]))
    if not numbers:
        return ""
    more = f" and {len(numbers) - LISTED} more" if len(numbers) > LISTED else ""
    return f": lines {', '.join(map(str, numbers[:LISTED]))}{more}"
