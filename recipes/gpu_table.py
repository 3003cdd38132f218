"""What recipes/gpu.py has measured, as tables in Markdown and as JSON.

A run that has begun has PART-SYSTEM-LENGTH.log, what fairseq-train printed with --log-format json.
One that has ended has a .status beside it, its exit status and its seconds.
"""

import json
import re
import statistics
from pathlib import Path
from typing import Any

FORMAT = 1  # of the JSON
TIMED_OUT = 124  # the exit status
OUT_OF_TIME, NOT_RUN, INTERRUPTED = "out of time", "not run", "interrupted"
PARTS = {
    "speed": "Words a second and peak memory",
    "modes": "Half precision, abc-32",
    "processes": "Two processes",
    "wikitext-2": "WikiText-2",
    "multi30k": "Multi30k English-German",
}
COLUMNS = {
    "system": "",
    "length": "tokens",
    "words_per_second": "words/s",
    "peak_gb": "peak GB",
    "updates": "updates",
    "seconds": "s in all",
    "train_ppl": "training perplexity",
    "valid_ppl": "validation perplexity",
    "result": "",
}
STATISTICS = re.compile(r'\{"epoch": .*\}$', re.M)
MEMORY = re.compile(r"total memory = ([0-9.]+) GB")


def read_run(folder: Path, part: str, system: str, length: int | None) -> dict[str, Any]:
    """A row of the table; what the run has not measured is left out."""
    run: dict[str, Any] = {"part": part, "system": system}
    if length:
        run["length"] = length
    log = folder / f"{part}-{system}-{length or '-'}.log"
    if not log.exists():
        return {**run, "result": NOT_RUN}
    text = log.read_text("utf-8", errors="replace")
    status = log.with_suffix(".status")
    code, seconds = map(int, status.read_text().split()) if status.exists() else (None, None)
    if seconds is not None:
        run["seconds"] = seconds
    return {**run, **measured(text), "result": result(text, code)}


def measured(text: str) -> dict[str, Any]:
    """Speed, memory and perplexity from a log of fairseq-train."""
    found = [json.loads(line) for line in STATISTICS.findall(text)]
    intervals = [values for values in found if "wps" in values]
    run: dict[str, Any] = {}
    # The first interval has the compilation of kernels, too; fairseq has 0 for its first update.
    speeds = [float(values["wps"]) for values in intervals]
    speeds = speeds[1:] or [speed for speed in speeds if speed > 0]
    if speeds:
        run["words_per_second"] = statistics.median(speeds)
    free = [float(values["gb_free"]) for values in intervals if "gb_free" in values]
    total = MEMORY.search(text)
    if free and total:
        run["peak_gb"] = round(float(total[1]) - min(free), 1)
    for values in found:
        if "wps" in values:
            run["updates"] = int(values["num_updates"])
            run["train_ppl"] = float(values["ppl"])
        if "train_ppl" in values:  # the mean of an epoch, or of what there was of it
            run["updates"] = int(values["train_num_updates"])
            run.setdefault("train_ppl", float(values["train_ppl"]))
        if "valid_ppl" in values:
            run["valid_ppl"] = float(values["valid_ppl"])
    return run


def result(text: str, code: int | None) -> str:
    """Empty for a run that ended as it was to."""
    if "Ran out of memory with exception" in text or "OutOfMemoryError" in text:
        return "out of memory"
    if code is None:
        return INTERRUPTED
    if code == TIMED_OUT:
        return OUT_OF_TIME
    if code:
        lines = text.strip().splitlines() or [f"exit status {code}"]
        return f"failed: {lines[-1][:200]}"
    return ""


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")


def table(runs: list[dict[str, Any]]) -> str:
    """Markdown; columns that are empty are left out."""
    columns = {key: head for key, head in COLUMNS.items() if any(run.get(key) for run in runs)}
    rows = [list(columns.values()), ["---"] * len(columns)]
    rows += [[shown(run.get(key, "")) for key in columns] for run in runs]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def page(machine: str, runs: list[dict[str, Any]]) -> str:
    parts = [machine]
    for part, title in PARTS.items():
        if rows := [run for run in runs if run["part"] == part]:
            is_measured = part != "speed" or any("peak_gb" in run for run in rows)
            title = title if is_measured else title.removesuffix(" and peak memory")
            parts += [f"## {title}", table(rows)]
    results = [run["result"] for run in runs]
    short = sum(result in (OUT_OF_TIME, NOT_RUN) for result in results)
    if short and INTERRUPTED not in results and set(results) != {NOT_RUN}:
        parts.append(
            f"{short} of {len(runs)} runs had too little time; raise --budget, the seconds for all."
        )
    return "\n\n".join(parts) + "\n"


def write(machine: str, runs: list[dict[str, Any]], output: Path) -> None:
    """OUTPUT.md and OUTPUT.json, and the former on the screen."""
    report = {"format": FORMAT, "machine": machine, "runs": runs}
    output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    output.with_suffix(".md").write_text(page(machine, runs), "utf-8")
    print(f"\n{page(machine, runs)}")
