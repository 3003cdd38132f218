"""Small sets of questions, and data_prep's scripts run on them."""

import json
import random
import subprocess
import sys
from pathlib import Path

from harness import ROOT

COLOURS = ("red", "green", "blue", "black")
ANIMALS = ("cat", "dog", "horse", "mouse")


def records(count: int, seed: int) -> list[dict]:
    """HotpotQA's format: the colour of one of two animals, or whether it runs, as all do."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        animals = draw.sample(ANIMALS, 2)
        colours = draw.sample(COLOURS, 2)
        context = [
            [animal, [f"The {animal} is {colour}.", " It runs."]]
            for animal, colour in zip(animals, colours, strict=True)
        ]
        question, answer = f"What colour is the {animals[0]}?", f"the {colours[0]} one"
        if number % 3 == 0:
            question, answer = f"Does the {animals[0]} run?", "yes"
        found.append(
            {"_id": f"{seed}-{number}", "question": question, "answer": answer, "context": context}
        )
    return found


def prepare(name: str, folder: Path, **contents: object) -> Path:
    """Runs a script of data_prep on small files of its format, which it leaves in the folder."""
    files = []
    for split, content in contents.items():
        path = folder / f"{split}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        files.append(f"{split}={path}")
    argv = [sys.executable, ROOT / "data_prep" / f"{name}.py", "--output", folder / "data"]
    argv += ["--vocab-size", "33", "--files", *files]
    subprocess.run(argv, check=True, capture_output=True)
    return folder / "data/bin"
