"""Small sets of questions, and preparations run on them."""

import json
import random
import shlex
from collections.abc import Sequence
from pathlib import Path

from harness import run

COLOURS = ("red", "green", "blue", "black")
ANIMALS = ("cat", "dog", "horse", "mouse")
ANSWERER = shlex.split(
    "--arch gmat_bert_tiny --encoder-layers 1 --encoder-embed-dim 32 --encoder-ffn-embed-dim 32 "
    "--encoder-attention-heads 2 --gmat-memory 4 --gmat-chunk 16 --dropout 0 --attention-dropout 0"
)
SPAN_TRAINING = shlex.split(
    "--optimizer adam --lr 0.005 --clip-norm 1 --seed 1 --batch-size 16 --num-workers 0 "
    "--log-format json --log-interval 1 --no-epoch-checkpoints --required-batch-size-multiple 1"
)
SPANS = shlex.split(
    "--task span_answering --criterion span_answering --window 64 --stride 24 --max-question 30"
)


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
            {
                "_id": f"{seed}-{number}",
                "question": question,
                "answer": answer,
                "context": context,
                "type": "comparison" if answer == "yes" else "bridge",
                "supporting_facts": [[animals[0], 0], [animals[1], 0]],
            }
        )
    return found


def squad_records(count: int, seed: int) -> dict:
    """SQuAD's format: the colour of one of all animals, in a context of several windows."""
    draw = random.Random(seed)
    paragraphs = []
    for number in range(count):
        animals = draw.sample(ANIMALS, len(ANIMALS))
        sentences = [f"The {animal} is {draw.choice(COLOURS)}." for animal in animals]
        context = "  It runs.\n".join(sentences)
        asked = draw.randrange(len(ANIMALS))
        answer = sentences[asked].split()[-1][:-1]
        start = context.index(sentences[asked]) + sentences[asked].index(answer)
        entry = {
            "id": f"{seed}-{number}",
            "question": f"What colour is the {animals[asked]}?",
            "answers": [{"text": answer, "answer_start": start}],
        }
        paragraphs.append({"context": context, "qas": [entry]})
    return {"version": "1.1", "data": [{"title": "Animals", "paragraphs": paragraphs}]}


def prepare(name: str, folder: Path, options: Sequence[str] = (), **contents: object) -> Path:
    """Runs `memattn prepare` on small files of its format, which it leaves in the folder."""
    files = []
    for split, content in contents.items():
        path = folder / f"{split}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        files.append(f"{split}={path}")
    flags = ["--output", folder / "data", "--vocab-size", "33", "--files", *files, *options]
    run("memattn", "prepare", name, *flags)
    return folder / "data/bin"
