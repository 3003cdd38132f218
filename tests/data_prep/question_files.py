"""Small files in the formats of HotpotQA and SQuAD."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLOURS = ("red", "green", "blue", "black", "white", "brown")
ANIMALS = ("cat", "dog", "horse", "mouse", "goat", "sheep")


def hotpot_record(number: int, **changes: Any) -> dict[str, Any]:
    """A record whose answer is in the second of its three paragraphs."""
    animal, colour = ANIMALS[number % 6], COLOURS[number // 6 % 6]
    others = [f"The farm {number} is old.", " Nobody lives there."]
    record = {
        "_id": f"h{number}",
        "question": f"What colour is the {animal} of farm {number}?",
        "answer": colour,
        "type": "bridge",
        "level": "hard",
        "supporting_facts": [[f"The {animal}", 0], ["Elsewhere", 7]],
        "context": [
            [f"Farm {number}", others],
            [f"The {animal}", [f"The {animal} is {colour}.", " It\nruns.", ""]],
            ["Empty", []],
        ],
    }
    return {key: value for key, value in (record | changes).items() if value is not ...}


def hotpot_context(number: int) -> str:
    """The context of `hotpot_record` as text."""
    animal, colour = ANIMALS[number % 6], COLOURS[number // 6 % 6]
    first = f"The farm {number} is old. Nobody lives there."
    return f"{first} The {animal} is {colour}. It runs."


def squad_file(groups: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """SQuAD's JSON: one article, a paragraph for each group of questions."""
    paragraphs = [
        {"context": f"Paragraph  {number}\nis about a cat.", "qas": list(group)}
        for number, group in enumerate(groups)
    ]
    return {"version": "1.1", "data": [{"title": "Cats", "paragraphs": paragraphs}]}


def squad_question(name: str, *answers: str, **changes: Any) -> dict[str, Any]:
    spans = [{"text": answer, "answer_start": 3} for answer in answers]
    entry = {"id": name, "question": f"What is  {name}?", "answers": spans} | changes
    return {key: value for key, value in entry.items() if value is not ...}


def write_json(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path
