"""The data and the checkpoints of the cases: random sentences and random weights."""

import os
import random
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from contract_cases import Case
from corpora import numbered_words
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import make_builder
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf
from torch import nn

import fairseq_memattn
from fairseq_memattn.host.messages.handler import quiet_known_warnings

fairseq_memattn.register()

WORDS = 30
DOCUMENTS = (1, 4, 3, 4)  # sentences of each
LONGEST = 9  # words of a sentence


def words() -> Dictionary:
    return numbered_words(WORDS)


def sentences(count: int, seed: int) -> list[str]:
    """Of one word to LONGEST."""
    draw = random.Random(seed)
    lengths = [draw.randint(1, LONGEST) for _ in range(count)]
    return [" ".join(f"w{draw.randrange(WORDS)}" for _ in range(length)) for length in lengths]


def ids(documents: Sequence[int] = DOCUMENTS) -> list[str]:
    return [f"d{number}" for number, size in enumerate(documents) for _ in range(size)]


def binarise(prefix: Path, lines: Sequence[str]) -> None:
    """Writes prefix.bin and prefix.idx, as fairseq-preprocess does."""
    known = words()
    builder = make_builder(f"{prefix}.bin", "mmap", len(known))
    for line in lines:
        builder.add_item(known.encode_line(line, add_if_not_exist=False))
    builder.finalize(f"{prefix}.idx")


def write_pairs(
    folder: Path, split: str, sources: Sequence[str], targets: Sequence[str], documents: list[str]
) -> None:
    for side, lines in (("x", sources), ("y", targets)):
        binarise(folder / f"{split}.x-y.{side}", lines)
        words().save(str(folder / f"dict.{side}.txt"))
    write_ids(folder / f"{split}.x-y.docids", documents)


def write_ids(path: Path, documents: list[str]) -> None:
    path.write_text("".join(f"{one}\n" for one in documents), encoding="utf-8")


def write_text(folder: Path, split: str, lines: Sequence[str]) -> None:
    binarise(folder / split, lines)
    words().save(str(folder / "dict.txt"))


def write_data(root: Path) -> None:
    """The folders `pairs` and `text`, each with train, valid and test."""
    pairs, text = root / "pairs", root / "text"
    pairs.mkdir()
    text.mkdir()
    documents = ids()
    for seed, split in enumerate(("train", "valid", "test")):
        sources, targets = (sentences(len(documents), 10 * seed + side) for side in (1, 2))
        write_pairs(pairs, split, sources, targets, documents)
        write_text(text, split, sources)
        write_ids(text / f"{split}.docids", documents)


def folder_of(case: Case, root: Path) -> Path:
    return root / ("text" if case.kind in ("language_model", "masked") else "pairs")


def build(case: Case, root: Path) -> tuple[nn.Module, Any, Any]:
    """The model of a case for evaluation, its task, and its arguments."""
    argv = case.argv(folder_of(case, root))
    args = options.parse_args_and_arch(options.get_training_parser(), input_args=argv)
    task = tasks.setup_task(args)
    torch.manual_seed(3)
    model = task.build_model(args)
    known = task.target_dictionary
    with torch.no_grad():  # no weight at a value such as 0 or 1, and translations that differ
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
            if len(weight) == len(known):
                weight[known.bos()] = 0  # is not generated: no command prints it
    return model.eval(), task, args


def configuration(case: Case, data: Path) -> dict[str, Any]:
    """What fairseq-train saves of the flags."""
    argv = case.argv(data)
    args = options.parse_args_and_arch(options.get_training_parser(), input_args=argv)
    with warnings.catch_warnings():
        quiet_known_warnings()
        cfg = convert_namespace_to_omegaconf(args)
    made: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    return made


def save(case: Case, root: Path, path: Path) -> None:
    """A checkpoint as fairseq-train leaves it before the first update, with random weights."""
    model, _, _ = build(case, root)
    history = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}}
    state = {
        "args": None,
        "cfg": configuration(case, folder_of(case, root)),
        "model": model.state_dict(),
        "optimizer_history": [history | {"num_updates": 0}],
        "extra_state": {"train_iterator": {"epoch": 1}, "val_loss": None},
    }
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        torch.save(state, file)
    os.replace(file.name, path)
