"""The results of recipes/recall/table.sh as tables in Markdown and a picture.

    python recipes/recall/table.py FOLDER --output OUT

Reads FOLDER/FORM/SYSTEM-SEED.tsv, which recipes/recall/run.sh writes. Writes OUT.md and OUT.png:
for each form the mean accuracy over the seeds, its standard deviation, and the bytes of the
decoding state.
"""

import argparse
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_memattn.cli.outputs import check_outputs, write_text
from fairseq_memattn.evaluation.fairseq_output import read_lines
from fairseq_memattn.evaluation.plots import check_format

RUN = re.compile(r"(?P<system>.+)-(?P<seed>[0-9]+)\.tsv")
SOFTMAX = "softmax"  # the system that bytes are compared with


class Test(NamedTuple):
    """The sequences of a test."""

    length: int
    pairs: int


class Cell(NamedTuple):
    """A system in a test.

    accuracies: in percent, of each seed; size: bytes of the state
    """

    accuracies: tuple[float, ...]
    size: int

    @property
    def mean(self) -> float:
        return statistics.fmean(self.accuracies)

    @property
    def spread(self) -> float:
        """The standard deviation over the seeds; 0 for a single one."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + (f" ± {self.spread:.1f}" if len(self.accuracies) > 1 else "")


Form = dict[str, dict[Test, Cell]]  # by system


def read(folder: Path) -> dict[str, Form]:
    """The results by form. Raises ValueError for a folder without any, and for another file."""
    forms = {path.name: read_form(path) for path in sorted(folder.glob("*")) if path.is_dir()}
    forms = {name: form for name, form in forms.items() if form}
    if not forms:
        raise ValueError(f"{folder}/FORM has no file SYSTEM-SEED.tsv")
    return forms


def read_form(folder: Path) -> Form:
    """The systems of a folder, those with the largest state first."""
    found: dict[str, dict[Test, list[tuple[float, int]]]] = {}
    for path in sorted(folder.glob("*.tsv")):
        run = RUN.fullmatch(path.name)
        if run is None:
            raise ValueError(f"{path}: must be named SYSTEM-SEED.tsv")
        tests = found.setdefault(run["system"], {})
        for test, accuracy, size in read_run(path):
            tests.setdefault(test, []).append((accuracy, size))
    form = {
        system: {
            test: Cell(tuple(accuracy for accuracy, _ in rows), rows[0][1])
            for test, rows in tests.items()
        }
        for system, tests in found.items()
    }
    return dict(sorted(form.items(), key=lambda item: (-first(item[1]).size, item[0])))


def read_run(path: Path) -> list[tuple[Test, float, int]]:
    """The tests of a run, with accuracy and bytes."""
    rows = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            length, pairs, accuracy, size = line.split("\t")
            rows.append((Test(int(length), int(pairs)), float(accuracy), int(size)))
        except ValueError:
            raise ValueError(
                f"{path}, line {number}: must be length, pairs, accuracy and bytes, with tabs "
                f"between them, but is {line!r}"
            ) from None
    if not rows:
        raise ValueError(f"{path} is empty")
    return rows


def first(tests: dict[Test, Cell]) -> Cell:
    """At the length of training."""
    return next(iter(tests.values()))


def table(form: Form) -> str:
    """Markdown: a row for each system."""
    tests = list(next(iter(form.values())))
    whole = first(form[SOFTMAX]).size if SOFTMAX in form else None
    heads = [f"{length} symbols, {pairs} pairs" for length, pairs in tests]
    rows = [["system", "seeds", "bytes of state", *heads], ["---"] * (len(tests) + 3)]
    for system, cells in form.items():
        size = first(cells).size
        share = f" ({100 * size / whole:.0f} %)" if whole else ""
        shown = [str(cells[test]) for test in tests]
        seeds = len(first(cells).accuracies)
        rows.append([f"`{system}`", str(seeds), f"{size:,}{share}", *shown])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def draw(forms: dict[str, Form], output: Path) -> None:
    """Accuracy against bytes of state: a row for each form, a panel for each test."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = max(len(next(iter(form.values()))) for form in forms.values())
    figure = Figure(figsize=(4.6 * columns, 4.2 * len(forms)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(forms), columns, squeeze=False)
    colours = {family: f"C{i}" for i, family in enumerate(all_families(forms))}
    for row, (name, form) in zip(panels, forms.items(), strict=True):
        for panel, test in zip(row, next(iter(form.values())), strict=False):
            for family, points in families(form, test).items():
                sizes, means, spreads, labels = zip(*points, strict=True)
                style = {"marker": "o", "ms": 4, "lw": 1, "color": colours[family]}
                panel.errorbar(sizes, means, yerr=spreads, **style)
                for x, y, label in zip(sizes, means, labels, strict=True):
                    place = {"xytext": (4, 3), "textcoords": "offset points", "fontsize": 6}
                    panel.annotate(label, (x, y), **place)
            title = f"{name}: {test.length} symbols, {test.pairs} pairs"
            panel.set_xscale("log", base=2)
            panel.margins(x=0.2)
            panel.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
            panel.set(ylim=(0, 106), title=title, xlabel="state (KiB)")
        row[0].set_ylabel("accuracy (%)")
    figure.savefig(output, dpi=110)


def families(form: Form, test: Test) -> dict[str, list[tuple[float, float, float, str]]]:
    """(KiB, mean, spread, label) of each system by control, so that sizes of one are a line."""
    found: dict[str, list[tuple[float, float, float, str]]] = {}
    for system, cells in form.items():
        cell = cells[test]
        point = (cell.size / 1024, cell.mean, cell.spread, system)
        found.setdefault(family_of(system), []).append(point)
    return found


def all_families(forms: dict[str, Form]) -> list[str]:
    """The controls of all systems, each once."""
    return sorted({family_of(system) for form in forms.values() for system in form})


def family_of(system: str) -> str:
    """A system without its number of slots."""
    return re.sub(r"-[0-9]+", "", system)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the results, with a folder for each form")
    parser.add_argument("--output", type=Path, required=True, help="without a suffix")
    args = parser.parse_args(argv)
    try:
        outputs = {s: args.output.with_name(args.output.name + s) for s in (".md", ".png")}
        check_format("--output", outputs[".png"])
        check_outputs({f"--output {path}": path for path in outputs.values()}, [])
        forms = read(args.folder)
        text = "\n".join(f"{name}\n\n{table(form)}" for name, form in forms.items())
        write_text(outputs[".md"], text)
        draw(forms, outputs[".png"])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
