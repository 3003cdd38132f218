"""ctxpro (Wicks and Post, 2023): forms that need context, found in OpenSubtitles by rules.

https://github.com/rewicks/ctxpro
"""

from pathlib import Path
from typing import Any

from fairseq_memattn.evaluation.contrastive import read_entries
from fairseq_memattn.evaluation.contrastive_sets.disceval import is_disceval
from fairseq_memattn.evaluation.generative import Example

# The phenomena, as the names of the files have them.
CATEGORIES = ("animacy", "auxiliary", "formality", "gender", "inflection")
CONTRASTIVE = (
    "is a contrastive set, whose candidates are scored without --generate and --translations"
)


def read_ctxpro(path: Path) -> list[Example]:
    """The examples of an evaluation set: a JSON list with `expected` and `rule`.

    `ante distance` may be the distance of the antecedent. The category is the one that the name of
    the file has, such as auxiliary.opensubtitles.en-de.test.json, and otherwise the whole name.

    Raises ValueError, which names the file and the entry, counted from 1.
    """
    if is_disceval(path):
        raise ValueError(f"{path} {CONTRASTIVE}")
    name = path.name.removesuffix(".json")
    named = [category for category in CATEGORIES if category in name.lower()]
    category = named[0] if len(named) == 1 else name
    return [
        Example(
            entry["expected"],
            name,
            category,
            rule=entry["rule"],
            distance=entry.get("ante distance"),
        )
        for entry in read_entries(path, _problem)
    ]


def _problem(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return "must be an object with expected and rule"
    if "true_ind" in entry:
        return CONTRASTIVE
    for key in ("expected", "rule"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            return f"{key} must be a string with text, but is {entry.get(key)!r}"
    distance = entry.get("ante distance")
    if distance is not None and (type(distance) is not int or distance < 0):
        return f"ante distance must be an integer from 0, but is {distance!r}"
    return None
