"""Systems over several seeds: a table in Markdown, and a picture.

    python recipes/seeds.py FOLDER --systems softmax abc-16-16 --values BLEU chrF --output OUT

Reads FOLDER/SYSTEM-SEED.score; a SYSTEM may begin with a folder. Writes OUT.md, with the mean and
the standard deviation of each value over the seeds. The difference from the first system is in the
first value, and over the seeds that both have; with --relative it is the quotient, and with
--several-tasks it is left out. --paper adds a column with the figures of a paper. Where there are
several seeds, a second table has the first value of each. Writes OUT.png, with the means of the
first value.
"""

import argparse
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bars import Bar, draw

from fairseq_memattn.cli.shared.outputs import check_outputs
from fairseq_memattn.evaluation.plots import check_format
from fairseq_memattn.files import write_text

# How a value is written in a file .score: by `memattn score`, fairseq-validate and the recipes
NUMBER = r"([0-9.]+(?:e[+-]?[0-9]+)?)"
VALUES = {
    "BLEU": rf"^BLEU\|\S+ = {NUMBER}",
    "chrF": rf"^chrF\S+ = {NUMBER}",
    "s-BLEU": rf"^s-BLEU\S* = {NUMBER}",
    "d-BLEU": rf"^d-BLEU\S* = {NUMBER}",
    "perplexity": rf"^ppl {NUMBER}",
    "test error": rf"^test: error {NUMBER} %",
    "validation perplexity": rf"^valid(?:: error [0-9.]+ %,|, context 0:) perplexity {NUMBER}",
    "test perplexity": rf"^test(?:: error [0-9.]+ %,|, context 0:) perplexity {NUMBER}",
    "test perplexity, context 480": rf"^test, context 480: perplexity {NUMBER}",
    "segments of 512": rf"^segments of 512: {NUMBER}",
    "segments of 2048": rf"^segments of 2048: {NUMBER}",
    "the whole text": rf"^the whole text: {NUMBER}",
    "exact match": rf"^all +[0-9]+ +{NUMBER}",
    "one fact": rf"^1 +[0-9]+ +{NUMBER}",
    "two facts": rf"^2 +[0-9]+ +{NUMBER}",
    "three facts": rf"^3 +[0-9]+ +{NUMBER}",
    "exact match, %": rf"exact match {NUMBER} %",
}
PERCENTAGES = ("test error", "exact match")
Scores = Mapping[int, float]  # by seed


def read_scores(
    folder: Path, system: str, value: str, seeds: Sequence[int] = ()
) -> dict[int, float]:
    """A value of each of the seeds, or of every seed that has a file.

    Raises ValueError where there is none, and for a file without it.
    """
    stem = folder / system
    name = re.compile(rf"{re.escape(stem.name)}-([0-9]+)\.score")
    found = {}
    for path in sorted(stem.parent.glob("*.score")):
        run = name.fullmatch(path.name)
        if run and (not seeds or int(run[1]) in seeds):
            score = re.search(VALUES[value], path.read_text(encoding="utf-8"), re.MULTILINE)
            if score is None:
                raise ValueError(f"{path}: has no {value}")
            found[int(run[1])] = float(score[1])
    if not found:
        raise ValueError(f"{folder}: there is no file {system}-SEED.score")
    return found


def shown(numbers: Sequence[float], decimals: int = 2) -> str:
    """The mean, and the standard deviation of more than one number."""
    mean = f"{statistics.fmean(numbers):.{decimals}f}"
    return mean + (f" ± {statistics.stdev(numbers):.{decimals}f}" if len(numbers) > 1 else "")


def difference(scores: Scores, first: Scores) -> str:
    """From the first system, with the same seeds; empty where they have none in common."""
    pairs = [score - first[seed] for seed, score in scores.items() if seed in first]
    text = shown(pairs) if pairs else ""
    return text if text.startswith("-") or not text else f"+{text}"


def quotient(scores: Scores, first: Scores) -> str:
    """Relative to the first system, likewise."""
    pairs = [score / first[seed] for seed, score in scores.items() if seed in first]
    return shown(pairs, 3) if pairs else ""


def table(
    scores: Mapping[str, Mapping[str, Scores]],
    paper: Mapping[str, str],
    value: str,
    comparison: str = "difference",
) -> str:
    """Markdown: a row for each system.

    comparison: with the first system, in the first value: "difference", "quotient" or "none"
    """
    systems = list(scores)
    first = scores[systems[0]]
    head = ["system", "seeds", *first]
    if comparison != "none":
        kind = "difference from" if comparison == "difference" else "relative to"
        head.append(f"{value}, {kind} `{systems[0]}`")
    compare = difference if comparison == "difference" else quotient
    rows = [head + (["the paper"] if paper else []), ["---"] * (len(head) + bool(paper))]
    for system in systems:
        columns = scores[system]
        cells = [f"`{system}`", str(len(columns[value]))]
        cells += [shown(list(seeds.values())) for seeds in columns.values()]
        if comparison != "none":
            cells.append("" if system == systems[0] else compare(columns[value], first[value]))
        rows.append(cells + ([paper.get(system, "")] if paper else []))
    return markdown(rows)


def table_of_seeds(scores: Mapping[str, Scores], value: str) -> str:
    """Markdown: a value of each seed."""
    seeds = sorted({seed for row in scores.values() for seed in row})
    rows = [[value, *(f"seed {seed}" for seed in seeds)], ["---"] * (len(seeds) + 1)]
    for system, row in scores.items():
        rows.append([f"`{system}`", *(f"{row[seed]:.2f}" if seed in row else "" for seed in seeds)])
    return markdown(rows)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def read_paper(given: Sequence[str], systems: Sequence[str]) -> dict[str, str]:
    """Raises ValueError for anything but SYSTEM=FIGURE with one of the systems."""
    figures = {}
    for pair in given:
        system, equals, figure = pair.partition("=")
        if not (equals and figure) or system not in systems:
            raise ValueError(f"--paper {pair}: must be SYSTEM=FIGURE, with one of --systems")
        figures[system] = figure
    return figures


def check_output(output: Path) -> tuple[Path, Path]:
    """The table and the picture of --output. Raises ValueError where they cannot be written."""
    table, picture = (output.with_name(output.name + suffix) for suffix in (".md", ".png"))
    check_format("--output", picture)
    check_outputs({f"--output {path}": path for path in (table, picture)}, [])
    return table, picture


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the files SYSTEM-SEED.score")
    parser.add_argument("--systems", nargs="+", required=True, help="the rows, in this order")
    parser.add_argument("--values", nargs="+", required=True, choices=VALUES, help="the columns")
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[], metavar="SEED", help="default: all in FOLDER"
    )
    parser.add_argument("--paper", nargs="+", default=[], metavar="SYSTEM=FIGURE")
    comparison = parser.add_mutually_exclusive_group()
    for flag, value, text in (
        ("--relative", "quotient", "quotients in place of differences, for perplexities"),
        ("--several-tasks", "none", "no differences, for rows of several tasks"),
    ):
        comparison.add_argument(
            flag,
            dest="comparison",
            action="store_const",
            const=value,
            default="difference",
            help=text,
        )
    parser.add_argument("--output", type=Path, required=True, help="without a suffix")
    args = parser.parse_args(argv)
    try:
        tables, picture = check_output(args.output)
        paper = read_paper(args.paper, args.systems)
        scores = {
            system: {
                value: read_scores(args.folder, system, value, args.seeds) for value in args.values
            }
            for system in args.systems
        }
        value = args.values[0]
        text = table(scores, paper, value, args.comparison)
        of_seeds = {system: row[value] for system, row in scores.items()}
        if any(len(row) > 1 for row in of_seeds.values()):
            text += "\n" + table_of_seeds(of_seeds, value)
        write_text(tables, text)
        label = f"{value}, %" if value in PERCENTAGES else value
        draw([bar(name, row[value]) for name, row in scores.items()], label, None, picture)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(text, end="")
    return 0


def bar(name: str, scores: Scores) -> Bar:
    """The mean over the seeds."""
    numbers = list(scores.values())
    return Bar(
        name, statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else 0
    )


if __name__ == "__main__":
    sys.exit(main())
