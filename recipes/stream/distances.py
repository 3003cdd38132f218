"""The accuracy at each distance from cue to use, as a table in Markdown and a picture.

    python recipes/stream/distances.py NAME=FILE.json [NAME=FILE.json ...] --output OUT

FILE is what `memattn contrast --json` wrote. Writes OUT.md and OUT.png.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_memattn.cli.shared.inputs import named_file
from fairseq_memattn.cli.shared.outputs import check_outputs
from fairseq_memattn.evaluation.plots import check_format
from fairseq_memattn.files import write_text

Accuracies = dict[str, dict[str, dict[str, float]]]  # percent, by phenomenon, system and distance


def read(paths: dict[str, Path]) -> Accuracies:
    """Raises ValueError for a file without distances, or with other ones than the first."""
    found: Accuracies = {}
    for system, path in paths.items():
        for phenomenon, part in _phenomena(path).items():
            distances = {d: 100 * x["accuracy"] for d, x in part["distances"].items()}
            systems = found.setdefault(phenomenon, {})
            first = next(iter(systems.values()), distances)
            if distances.keys() != first.keys():
                raise ValueError(
                    f"{path}, {phenomenon}: must have the distances {', '.join(first)}, but has "
                    f"{', '.join(distances)}"
                )
            systems[system] = distances
    for phenomenon, systems in found.items():
        if len(systems) < len(paths):
            lacking = next(name for name in paths if name not in systems)
            raise ValueError(f"{paths[lacking]} has no {phenomenon}")
    return found


def _named(given: str) -> tuple[str, Path]:
    name, path = named_file("a system", given)
    return name or path.stem, path


def _phenomena(path: Path) -> dict[str, Any]:
    try:
        phenomena: dict[str, Any] = json.loads(path.read_text("utf-8"))["results"]["phenomena"]
        lacking = [name for name, part in phenomena.items() if "distances" not in part]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} must be a file of `memattn contrast --json`") from error
    if lacking:
        raise ValueError(f"{path}, {lacking[0]}: has no distances")
    return phenomena


def table(found: Accuracies) -> str:
    """Markdown: a row for each phenomenon and system."""
    distances = list(next(iter(next(iter(found.values())).values())))
    rows = [["", "", *distances], ["---"] * (len(distances) + 2)]
    for phenomenon, systems in found.items():
        for system, values in systems.items():
            rows.append([phenomenon, system, *(f"{values[d]:.0f}" for d in distances)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def draw(found: Accuracies, output: Path) -> None:
    """A panel for each phenomenon, a line for each system."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(found), figsize=(3.2 * len(found), 3.4), layout="constrained", squeeze=False
    )
    for panel, (phenomenon, systems) in zip(axes[0], found.items(), strict=True):
        for system, values in systems.items():
            panel.plot(list(map(int, values)), list(values.values()), marker="o", label=system)
        panel.axhline(50, color="grey", linestyle=":", linewidth=1)
        panel.set(xscale="log", ylim=(40, 102), title=phenomenon, xlabel="distance (sentences)")
        panel.set_xticks(list(map(int, values)), list(values), minor=False)
        panel.tick_params(axis="x", which="minor", bottom=False)
    axes[0][0].set_ylabel("accuracy (%), chance 50")
    axes[0][0].legend()
    figure.savefig(output, dpi=120)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="+", metavar="NAME=FILE", help="in this order")
    parser.add_argument("--output", type=Path, required=True, help="without a suffix")
    args = parser.parse_args(argv)
    try:
        named = [_named(given) for given in args.systems]
        paths = dict(named)
        if len(paths) < len(named):
            name = next(name for name, _ in named if [n for n, _ in named].count(name) > 1)
            raise ValueError(f"two systems have the name {name}; give others, as NAME=FILE")
        outputs = {s: args.output.with_name(args.output.name + s) for s in (".md", ".png")}
        check_format("--output", outputs[".png"])
        check_outputs({f"--output {path}": path for path in outputs.values()}, list(paths.values()))
        found = read(paths)
        write_text(outputs[".md"], table(found))
        draw(found, outputs[".png"])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(found), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
