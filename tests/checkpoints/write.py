"""Writes the checkpoints in this folder: `python tests/checkpoints/write.py`.

The files were written once, by the version of this package that their models first worked with,
and later versions must load them. Run this for a new family only: it keeps what is there.

It writes the data (`data/`), and for each family a checkpoint after two updates, with the state of
the optimiser (`kept/NAME.pt.xz`), and what the model computes from it (`kept/NAME.expected.pt.xz`):
  inputs         a batch of three examples
  logits         float32, of this batch, computed in double precision
  tokens         of a greedy search and of one with a beam of 3, where the model translates
  parameters     their names, in the optimiser's order
  first_moments  the norm of Adam's first moment of each parameter after one more update, where
                 that does not depend on random numbers
"""

import lzma
import multiprocessing
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import make_builder
from families import FAMILIES, HERE, UPDATES, batch, data_of, load, logits, optimised, search, train

import fairseq_memattn

WORDS, SENTENCES, DOCUMENT = 20, 8, 4


def write_data() -> None:
    """Random sentences: pairs in documents of four, and text."""
    words = Dictionary()
    for number in range(WORDS):
        words.add_symbol(f"w{number}")
    draw = random.Random(1)
    for folder, sides in (("pairs", ("train.x-y.x", "train.x-y.y")), ("text", ("train",))):
        place = HERE / "data" / folder
        place.mkdir(parents=True, exist_ok=True)
        for side in sides:
            builder = make_builder(str(place / f"{side}.bin"), "mmap", len(words))
            for _ in range(SENTENCES):
                sentence = [f"w{draw.randrange(WORDS)}" for _ in range(draw.randint(3, 9))]
                builder.add_item(words.encode_line(" ".join(sentence), add_if_not_exist=False))
            builder.finalize(str(place / f"{side}.idx"))
    words.save(str(HERE / "data" / "text" / "dict.txt"))
    for side in "xy":
        words.save(str(HERE / "data" / "pairs" / f"dict.{side}.txt"))
    ids = "".join(f"d{number // DOCUMENT}\n" for number in range(SENTENCES))
    (HERE / "data" / "pairs" / "train.x-y.docids").write_text(ids)


def is_random(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> bool:
    """Whether training draws random numbers."""
    model.train()
    outputs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        outputs.append(logits(model, inputs))
    model.eval()
    return not torch.equal(*outputs)


def write(name: str) -> None:
    """In a folder of its own, so that no path gets into the checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("data").symlink_to(HERE / "data")
        torch.manual_seed(1)
        path = train(name, data_of(name), Path("checkpoints"), UPDATES)
        written = path.read_bytes()
        model, task = load(path, data_of(name))
        inputs = batch(task)
        expected: dict[str, Any] = {"inputs": inputs, "parameters": optimised(model)}
        single = logits(model, inputs)
        random_training = is_random(model, inputs)
        model.double()
        expected["logits"] = logits(model, inputs).float()
        torch.testing.assert_close(single, expected["logits"], rtol=1e-4, atol=1e-5)
        if FAMILIES[name][0] not in ("language_modeling", "masked_lm"):
            expected["tokens"] = {beam: search(model, task, inputs, beam) for beam in (1, 3)}
            with torch.no_grad():
                for weight in model.parameters():
                    weight.mul_(1 + 1e-5 * torch.randn_like(weight))
            for beam, tokens in expected["tokens"].items():
                assert search(model, task, inputs, beam) == tokens, f"{name}: a near-tie"
        if not random_training:
            path = train(name, data_of(name), Path("checkpoints"), UPDATES + 1)
            state = torch.load(path, weights_only=False)["last_optimizer_state"]["state"]
            expected["first_moments"] = [
                state[number]["exp_avg"].norm().item() for number in range(len(state))
            ]
        (HERE / "kept").mkdir(exist_ok=True)
        (HERE / "kept" / f"{name}.pt.xz").write_bytes(lzma.compress(written))
        with lzma.open(HERE / "kept" / f"{name}.expected.pt.xz", "wb") as file:
            torch.save(expected, file)


def main() -> int:
    fairseq_memattn.register()
    if not (HERE / "data").exists():
        write_data()
    failed = []
    for name in FAMILIES:
        if not (HERE / "kept" / f"{name}.expected.pt.xz").exists():
            process = multiprocessing.get_context("fork").Process(target=write, args=(name,))
            process.start()
            process.join()
            failed += [name] if process.exitcode else []
    print("failed:", *failed or ["none"])
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
