"""The tables that `memattn score` prints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairseq_memattn.evaluation.tables import p_text, table

if TYPE_CHECKING:
    from fairseq_memattn.evaluation.breakdown import Breakdown
    from fairseq_memattn.evaluation.scores import Measured

SIGNIFICANT = 0.05
STANDARD = {"BLEU", "s-BLEU", "d-BLEU", "chrF2"}  # of which sacreBLEU prints a line


def results_text(
    measured: "Mapping[str, Measured]", resamples: int, seed: int, test: str = "bootstrap"
) -> str:
    """A table of measures and systems, what the test did, and the signatures."""
    baseline, *others = next(iter(measured.values())).results
    header = ["measure", "system", "score", "mean ± 95 %" if resamples else ""]
    rows = [[*header, "p" if resamples and others else ""]]
    for measure, one in measured.items():
        digits = 4 if measure.endswith("COMET") else 2
        for system, result in one.results.items():
            interval = p = ""
            if result.mean is not None:
                interval = f"{result.mean:.{digits}f} ± {result.ci:.{digits}f}"
            if result.p_value is not None:
                p = f"{p_text(result.p_value)}{'*' if result.p_value < SIGNIFICANT else ' '}"
            rows.append([measure, system, f"{result.score:.{digits}f}", interval, p])
    lines = [table(rows, left=2)]
    if resamples and others:
        draws = f"{resamples} paired bootstrap resamples"
        if test == "randomisation":
            draws = f"{resamples} trials of approximate randomisation, and bootstrap resamples"
        lines.append(f"{draws}, seed {seed}; p: against {baseline}, * below {SIGNIFICANT}")
        lines += [
            f"{measure} has no p: {one.segments} segments are too few"
            for measure, one in measured.items()
            if one.too_few
        ]
    elif resamples:
        lines.append(f"{resamples} bootstrap resamples, seed {seed}")
    # sacreBLEU's own lines, which come before a single system's table, have its signatures.
    lines += [
        f"{measure}|{one.signature}"
        for measure, one in measured.items()
        if others or measure not in STANDARD
    ]
    return "\n".join(lines)


def documents_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table with a line for each document, as `evaluation.scores.by_document` gives them."""
    return _rows_text(rows, "document", "document")


def breakdown_text(breakdown: "Breakdown") -> str:
    return _rows_text(breakdown.rows, "group", breakdown.name)


def _rows_text(rows: Sequence[Mapping[str, Any]], key: str, name: str) -> str:
    """A table of the scores of each system. key: of the first column, whose header is `name`."""
    systems = rows[0]["systems"]
    header = [name, "sentences"]
    for system, scores in systems.items():
        header += [f"{system} {measure}" if len(systems) > 1 else measure for measure in scores]
    lines = [header]
    for row in rows:
        scores = [score for each in row["systems"].values() for score in each.values()]
        numbers = [f"{score:.2f}" for score in scores]
        lines.append([row[key], str(row["sentences"]), *numbers])
    return table(lines)


def consistency_text(report: Mapping[str, Any]) -> str:
    """A table of the LTCR of content words and of names, and the signature."""
    header = ["consistency", "LTCR", "words", "pairs", "aligned %", "LTCR of names", "words"]
    rows = [[*header, "pairs"]]
    for name, one in _with_reference(report):
        names = one["names"]
        aligned = 100 * one["aligned"] / one["occurrences"] if one["occurrences"] else None
        rows.append([name, _number(one["LTCR"]), str(one["words"]), str(one["pairs"])])
        rows[-1] += [_number(aligned), _number(names["LTCR"])]
        rows[-1] += [str(names["words"]), str(names["pairs"])]
    return f"{table(rows)}\nLTCR|{report['signature']}"


def cohesion_text(report: Mapping[str, Any]) -> str:
    """A table of LC and RC, and the signature."""
    rows = [["cohesion", "LC", "RC", "content words"]]
    for name, one in _with_reference(report):
        rows.append([name, _number(one["LC"]), _number(one["RC"]), str(one["content"])])
    return f"{table(rows)}\nLC and RC|{report['signature']}"


def _with_reference(report: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The results of the systems, and those of the reference where there are any."""
    yield from report["systems"].items()
    if report["reference"]:
        yield "--reference", report["reference"]


def _number(score: float | None) -> str:
    return "" if score is None else f"{score:.2f}"
