"""The results of the experiment `recall` as tables in Markdown and a picture.

    python recipes/recall/table.py FOLDER --output OUT

Reads FOLDER/FORM/SYSTEM-SEED/recall.txt, the output of measure.py. Writes OUT.md and OUT.png: for
each form the mean accuracy over the seeds, its standard deviation, and the bytes of the decoding
state. The picture leaves out systems of several layers, such as mlp-8+window-16, if there
are others.
"""

import argparse
import math
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_memattn.cli.shared.outputs import check_outputs
from fairseq_memattn.evaluation.fairseq_output import read_lines
from fairseq_memattn.evaluation.plots import check_format
from fairseq_memattn.files import write_text

RUN = re.compile(r"(?P<system>.+)-(?P<seed>[0-9]+)")
SOFTMAX = "softmax"  # the system that bytes are compared with
# In the order of the legend
NAMES = {
    SOFTMAX: "softmax attention",
    "mlp": "ABC-MLP",
    "random": "random slots",
    "linformer": "Linformer",
    "clustering": "clusters",
    "gated": "gated",
    "window": "window",
    "compressive": "compressive",
    "global": "global tokens",
    "local_global": "local and global",
    "strided": "strided window",
    "dilated": "dilated window",
    "elu": "ELU",
    "rfa": "RFA",
    "t2r": "T2R",
    "mlp-sigmoid": "ABC-MLP, sigmoid",
    "mlp-relu": "ABC-MLP, ReLU",
}
# Of Okabe and Ito, for all kinds of colour vision; without yellow, which is faint on white
COLOURS = ("#000000", "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
MARKERS = "os^vDXp<>h*"
LEGEND = "Numbers are of slots, of the tokens of a window, or of the features of ELU, RFA and T2R"


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


class Style(NamedTuple):
    """How a control is drawn.

    several: whether it has several numbers of slots
    """

    label: str
    colour: str
    marker: str
    several: bool

    def options(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "color": self.colour,
            "marker": self.marker,
            "markerfacecolor": "none",
            "ms": 7,
            "lw": 1.2,
        }


Form = dict[str, dict[Test, Cell]]  # by system


def read(folder: Path, seeds: Sequence[int] = ()) -> dict[str, Form]:
    """The results by form. Raises ValueError for a folder without any, and for another file."""
    folders = [path for path in sorted(folder.glob("*")) if path.is_dir()]
    forms = {path.name: read_form(path, seeds) for path in folders}
    forms = {name: form for name, form in forms.items() if form}
    if not forms:
        raise ValueError(f"{folder}/FORM has no SYSTEM-SEED/recall.txt")
    return forms


def read_form(folder: Path, seeds: Sequence[int] = ()) -> Form:
    """The systems of a folder, those with the largest state first."""
    found: dict[str, dict[Test, list[tuple[float, int]]]] = {}
    form_tests: set[Test] = set()
    for path in sorted(folder.glob("*/recall.txt")):
        run = RUN.fullmatch(path.parent.name)
        if run is None:
            raise ValueError(f"{path}: must be in a folder SYSTEM-SEED")
        if seeds and int(run["seed"]) not in seeds:
            continue
        rows = read_run(path)
        form_tests = form_tests or {test for test, _, _ in rows}
        if {test for test, _, _ in rows} != form_tests:
            raise ValueError(f"{path}: has other tests than the files before it")
        tests = found.setdefault(run["system"], {})
        for test, accuracy, size in rows:
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


def single_layers(form: Form) -> Form:
    """The systems of one layer above the window; all of them if there are none."""
    return {system: tests for system, tests in form.items() if "+" not in system} or form


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
    """A panel for each test: accuracy against bytes of state.

    A form whose tests differ only in their lengths has one panel: accuracy against length.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels: list[tuple[str, Form, Test | None]] = []
    for name, form in forms.items():
        tests = list(next(iter(form.values())))
        lengths_alone = len(tests) > 1 and len({test.pairs for test in tests}) == 1
        panels += [(name, form, test) for test in ([None] if lengths_alone else tests)]
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(5 * columns, 3.8 * rows + 1), layout="constrained")
    FigureCanvasAgg(figure)
    styles = styles_of(forms)
    drawn: dict[str, Any] = {}  # by label
    for number, (name, form, test) in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, number)
        axes.set_axisbelow(True)
        axes.grid(axis="y", color="0.9")
        if test is None:
            draw_lengths(axes, form, styles)
            tested = f"{next(iter(next(iter(form.values())))).pairs} pairs"
        else:
            draw_sizes(axes, form, test, styles)
            tested = f"{test.length} symbols, {test.pairs} pairs"
        title = f"{name.replace('_', '-')}: {tested}"
        axes.set(ylim=(0, 106), ylabel="accuracy (%)", title=title)
        handles, labels = axes.get_legend_handles_labels()
        drawn |= zip(labels, handles, strict=True)
    shown = [style.label for style in styles.values()]
    handles = [drawn[label] for label in shown]
    figure.legend(handles, shown, loc="outside lower center", ncols=2 * columns, title=LEGEND)
    figure.savefig(output, dpi=110)


def draw_sizes(axes: Any, form: Form, test: Test, styles: dict[str, Style]) -> None:
    """Accuracy against bytes: the sizes of a control are a line."""
    if SOFTMAX in form:
        quarter = form[SOFTMAX][test].size / 4096
        axes.axvline(quarter, color="0.6", lw=1, ls="--")
        place = {"xytext": (-4, 0), "textcoords": "offset points", "rotation": 90}
        axes.annotate("a quarter of softmax", (quarter, 22), ha="right", fontsize=8, **place)
    labelled: list[tuple[float, float]] = []
    for family, systems in families(form).items():
        cells = [form[system][test] for system in systems]
        sizes = [cell.size / 1024 for cell in cells]
        means = [cell.mean for cell in cells]
        axes.errorbar(sizes, means, [cell.spread for cell in cells], **styles[family].options())
        if styles[family].several:
            for system, size, mean in zip(systems, sizes, means, strict=True):
                if not any(abs(x / size - 1) < 0.05 and abs(y - mean) < 5 for x, y in labelled):
                    label(axes, number_of(system), size, mean, left=size < max(sizes))
                    labelled.append((size, mean))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.margins(x=0.15)
    axes.set_xlabel("state (KiB)")


def draw_lengths(axes: Any, form: Form, styles: dict[str, Style]) -> None:
    """Accuracy against length: a system is a line."""
    tests = list(next(iter(form.values())))
    lengths, last = [test.length for test in tests], tests[-1]
    for family, systems in families(form).items():
        ends: list[tuple[float, list[str]]] = []  # lines that end together have one label
        for system in sorted(systems, key=lambda system: form[system][last].mean):
            cells = form[system].values()
            means = [cell.mean for cell in cells]
            axes.errorbar(lengths, means, [c.spread for c in cells], **styles[family].options())
            if ends and means[-1] - ends[-1][0] < 5:
                ends[-1][1].append(number_of(system))
            else:
                ends.append((means[-1], [number_of(system)]))
        for mean, numbers in ends if styles[family].several else []:
            label(axes, ", ".join(numbers), lengths[-1], mean)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.margins(x=0.15)
    axes.set_xlabel("symbols")


def label(axes: Any, number: str, x: float, y: float, left: bool = False) -> None:
    """The number of slots beside a point, above it on the left or below it on the right."""
    place = {"xytext": (-4, 2), "ha": "right"} if left else {"xytext": (5, -3), "va": "top"}
    axes.annotate(number, (x, y), textcoords="offset points", fontsize=9, **place)


def styles_of(forms: dict[str, Form]) -> dict[str, Style]:
    """By control. The legend has the number of slots of a control that has only one."""
    numbers: dict[str, set[str]] = {}
    for form in forms.values():
        for system in form:
            numbers.setdefault(family_of(system), set()).add(number_of(system))
    styles = {}
    known = [family for family in NAMES if family in numbers]
    for index, family in enumerate(dict.fromkeys([*known, *numbers])):
        name, several = name_of(family), len(numbers[family]) > 1
        label = name if several else f"{name} {next(iter(numbers[family]))}".strip()
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        styles[family] = Style(label, colour, marker, several)
    return styles


def families(form: Form) -> dict[str, list[str]]:
    """The systems of each control."""
    found: dict[str, list[str]] = {}
    for system in form:
        found.setdefault(family_of(system), []).append(system)
    return found


def family_of(system: str) -> str:
    """A system without its number of slots."""
    return re.sub(r"-[0-9]+", "", system)


def number_of(system: str) -> str:
    """Of slots, in each layer; empty where a system has none."""
    return "+".join(re.findall(r"-([0-9]+)", system))


def name_of(family: str) -> str:
    """For the legend."""
    return " + ".join(NAMES.get(layer, layer) for layer in family.split("+"))


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the results, with a folder for each form")
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[], metavar="SEED", help="default: all in FOLDER"
    )
    parser.add_argument("--output", type=Path, required=True, help="without a suffix")
    args = parser.parse_args(argv)
    try:
        outputs = {s: args.output.with_name(args.output.name + s) for s in (".md", ".png")}
        check_format("--output", outputs[".png"])
        check_outputs({f"--output {path}": path for path in outputs.values()}, [])
        forms = read(args.folder, args.seeds)
        text = "\n".join(f"{name}\n\n{table(form)}" for name, form in forms.items())
        write_text(outputs[".md"], text)
        draw({name: single_layers(form) for name, form in forms.items()}, outputs[".png"])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
