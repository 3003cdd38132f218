"""Accuracy of recall, and the bytes of the decoding state, of a model of recall."""

import argparse
from collections.abc import Iterator
from typing import Any

import torch
from fairseq import checkpoint_utils
from torch import Tensor

import fairseq_memattn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument(
        "--tests",
        nargs="+",
        required=True,
        metavar="LENGTH:PAIRS",
        help="lengths and numbers of pairs of the test sequences",
    )
    args = parser.parse_args()
    fairseq_memattn.register()
    for test in args.tests:
        length, pairs = (int(number) for number in test.split(":"))
        options = {"length": length, "pairs": pairs, "least_pairs": 1}
        if length > 256:
            options["test_examples"] = 100
        models, _, task = checkpoint_utils.load_model_ensemble_and_task([args.checkpoint], options)
        right, size = accuracy(models[0].eval(), task), state_bytes(models[0], task)
        print(length, pairs, f"{right:.2f}", size, sep="\t")


@torch.no_grad()
def accuracy(model: Any, task: Any) -> float:
    """The percentage of queries of the test set whose value is predicted."""
    task.load_dataset("test")
    rows = max(1, 6400 // task.cfg.length)
    batches = task.get_batch_iterator(task.dataset("test"), max_sentences=rows)
    right = asked = 0
    for batch in batches.next_epoch_itr(shuffle=False):
        target = batch["target"]
        counted = target.ne(task.dictionary.pad())
        logits, _ = model(**batch["net_input"])
        right += int((logits.argmax(-1).eq(target) & counted).sum())
        asked += int(counted.sum())
    return 100 * right / asked


@torch.no_grad()
def state_bytes(model: Any, task: Any) -> int:
    """Of one sequence, after its last token, in incremental decoding."""
    task.load_dataset("test")
    tokens = task.dataset("test")[0]["source"].unsqueeze(0)
    state: dict[str, Any] = {}
    for end in range(1, tokens.shape[1] + 1):
        model.decoder(tokens[:, :end], incremental_state=state)
    return sum(x.numel() * x.element_size() for x in tensors(state))


def tensors(state: Any) -> Iterator[Tensor]:
    """The tensors in nested dictionaries and tuples."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for value in state.values() if isinstance(state, dict) else state:
            yield from tensors(value)


if __name__ == "__main__":
    main()
