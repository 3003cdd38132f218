"""Perplexity by the number of tokens before a token: a table in Markdown, and a picture.

    python recipes/by_position.py FOLDER --systems softmax-2048 abc-64-2048 --seeds 1 --output OUT

Reads FOLDER/SYSTEM-SEED/positions.json, which `memattn perplexity --json` wrote with one
--context-window.
Writes OUT.md and OUT.png, with means and standard deviations over the seeds.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.table import markdown, shown

from fairseq_memattn.files import write_text

Range = tuple[int, int]  # from so many tokens to so many, the latter not included
Perplexities = dict[Range, list[float]]  # of the seeds


def read(folder: Path, system: str, seeds: Sequence[int]) -> Perplexities:
    """Raises ValueError where there is no such file."""
    paths = [folder / f"{system}-{seed}" / "positions.json" for seed in seeds]
    found: Perplexities = {}
    for path in paths:
        try:
            (row,) = json.loads(path.read_text("utf-8"))
            parts = [((p["begin"], p["end"]), p["perplexity"]) for p in row["by_position"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} must be a file of `memattn perplexity --json` with one --context-window"
            ) from error
        if any(perplexity is None for _, perplexity in parts):
            raise ValueError(f"{path}: has a perplexity that is not finite")
        for positions, perplexity in parts:
            found.setdefault(positions, []).append(perplexity)
    if any(len(seeds) < len(paths) for seeds in found.values()):
        raise ValueError(f"{folder}: the files of {system} must have blocks of one length")
    return found


def read_all(folder: Path, systems: Sequence[str], seeds: Sequence[int]) -> dict[str, Perplexities]:
    """Raises ValueError as `read` does, and for systems with blocks of different lengths."""
    found = {system: read(folder, system, seeds) for system in systems}
    for system, ranges in found.items():
        if ranges.keys() != found[systems[0]].keys():
            raise ValueError(f"{folder}: {system} and {systems[0]} have blocks of other lengths")
    return found


def table(found: Mapping[str, Perplexities]) -> str:
    """A row for each system, a column for each range."""
    ranges = list(next(iter(found.values())))
    rows = [["tokens before", *(f"{begin} to {end - 1}" for begin, end in ranges)]]
    for system, values in found.items():
        rows.append([f"`{system}`", *(shown(values[positions]) for positions in ranges)])
    return markdown(rows)


def draw(found: Mapping[str, Perplexities], output: Path) -> None:
    """A line for each system."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for system, values in found.items():
        means = [statistics.fmean(seeds) for seeds in values.values()]
        spread = [statistics.stdev(seeds) if len(seeds) > 1 else 0.0 for seeds in values.values()]
        names = [f"{begin} to {end - 1}" for begin, end in values]
        axes.errorbar(names, means, yerr=spread, marker="o", capsize=3, label=system)
    axes.set(xlabel="tokens before the token in its block", ylabel="perplexity")
    axes.legend()
    figure.savefig(output, dpi=110)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the folders SYSTEM-SEED")
    parser.add_argument("--systems", nargs="+", required=True, help="the rows, in this order")
    parser.add_argument("--seeds", nargs="+", type=int, required=True, metavar="SEED")
    parser.add_argument("--output", type=Path, required=True, help="without a suffix")
    args = parser.parse_args(argv)
    try:
        found = read_all(args.folder, args.systems, args.seeds)
        write_text(args.output.with_name(f"{args.output.name}.md"), table(found))
        draw(found, args.output.with_name(f"{args.output.name}.png"))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(found), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
