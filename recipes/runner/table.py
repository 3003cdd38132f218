"""The table of an experiment: means and standard deviations over the seeds.

Writes NAME.md, NAME.json, which has the value of each system and seed, and NAME.png, a picture of
the first column.
"""

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .bars import Bar, draw
from .experiment import Experiment, RecipeError

NUMBER = r"([0-9.]+(?:e[+-]?[0-9]+)?)"
Scores = Mapping[int, float]  # by seed


def read_value(experiment: Experiment, system: str, seed: int, column: str) -> float:
    """Raises RecipeError where the output of the stage does not have it."""
    stage, pattern = experiment.data["columns"][column]
    scope = experiment.run_scope(system, seed)
    path = Path(scope["run"]) / f"{stage}.txt"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = re.findall(pattern.replace("NUMBER", NUMBER), text, re.MULTILINE)
    if not found:
        raise RecipeError(f"{path} has no {column}")
    return float(found[-1])


def shown(numbers: Sequence[float], decimals: int = 2) -> str:
    """The mean, and the standard deviation of more than one number."""
    mean = f"{statistics.fmean(numbers):.{decimals}f}"
    return mean + (f" ± {statistics.stdev(numbers):.{decimals}f}" if len(numbers) > 1 else "")


def difference(scores: Scores, first: Scores) -> str:
    """From the first system, seed by seed."""
    text = shown([score - first[seed] for seed, score in scores.items()])
    return text if text.startswith("-") else f"+{text}"


def quotient(scores: Scores, first: Scores) -> str:
    """Relative to the first system, likewise."""
    return shown([score / first[seed] for seed, score in scores.items()], 3)


COMPARISONS = {
    "difference": ("difference from", difference),
    "quotient": ("relative to", quotient),
}


def table(
    scores: Mapping[str, Mapping[str, Scores]], paper: Mapping[str, Any], compare: str = "none"
) -> str:
    """Markdown: a row for each system, and below, with several seeds, the first column by seed."""
    systems = list(scores)
    first = scores[systems[0]]
    value, seeds = next(iter(first)), list(next(iter(first.values())))
    head = ["system", "seeds", *first]
    if compare != "none":
        head.append(f"{value}, {COMPARISONS[compare][0]} `{systems[0]}`")
    paper = {system: figure for system, figure in paper.items() if system in systems}
    rows = [head + (["the paper"] if paper else [])]
    for system, columns in scores.items():
        row = [f"`{system}`", str(len(seeds)), *(shown(list(c.values())) for c in columns.values())]
        if compare != "none":
            compared = COMPARISONS[compare][1](columns[value], first[value])
            row.append("" if system == systems[0] else compared)
        rows.append(row + ([str(paper.get(system, ""))] if paper else []))
    text = markdown(rows)
    if len(seeds) > 1:
        rows = [[value, *(f"seed {seed}" for seed in seeds)]]
        for system, columns in scores.items():
            rows.append([f"`{system}`", *(f"{score:.2f}" for score in columns[value].values())])
        text += "\n" + markdown(rows)
    return text


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table, whose first row is its head."""
    rows = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def write(experiment: Experiment, systems: Sequence[str], seeds: Sequence[int]) -> None:
    """The files, and the table on the screen."""
    given = experiment.data["table"]
    scope = experiment.scope(systems=systems, seeds=seeds)
    columns = scope.evaluate(given["columns"])
    scores = {
        system: {
            column: {seed: read_value(experiment, system, seed, column) for seed in seeds}
            for column in columns
        }
        for system in systems
    }
    name = Path(scope["work"]) / scope.evaluate(given["name"])
    text = table(
        scores, scope.evaluate(given.get("paper") or {}), given.get("compare", "difference")
    )
    settings = {key: scope[key] for key in experiment.given}
    data = {"experiment": experiment.name, "settings": settings, "scores": scores}
    name.with_name(f"{name.name}.json").write_text(json.dumps(data, indent=1) + "\n")
    name.with_name(f"{name.name}.md").write_text(text, encoding="utf-8")
    bars = [bar(system, list(row[columns[0]].values())) for system, row in scores.items()]
    draw(bars, columns[0], name.with_name(f"{name.name}.png"))
    print(f"\n{text}", end="")


def bar(name: str, numbers: Sequence[float]) -> Bar:
    """The mean over the seeds."""
    spread = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
    return Bar(name, statistics.fmean(numbers), spread)
