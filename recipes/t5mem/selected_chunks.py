"""How often T5Mem's selector takes the chunk that has the answer of a generated story.

    python recipes/t5mem/selected_chunks.py STORIES --path CHECKPOINT

STORIES is the folder of `memattn prepare stories`. The selection is that of the first token of the
answer. The true chunks are those that have most tokens of the last supporting sentence of a
question. Prints for each layer of the decoder the share of questions with the largest weight on a
true chunk, and the mean weight of the true chunks, beside the share of the chunks that are true;
all in percent.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fairseq_memattn
from fairseq_memattn.evaluation.tables import table


def read_spans(path: Path) -> list[tuple[int, int]]:
    """The tokens BEGIN, END of the last supporting sentence of each question."""
    lines = path.read_text(encoding="utf-8").splitlines()
    begins_ends = (line.split()[-1].split(":") for line in lines)
    return [(int(begin), int(end)) for begin, end in begins_ends]


def true_chunk(span: tuple[int, int], size: int, head: int, chunking: Any) -> list[bool]:
    """Whether each of the K chunks has tokens of the span, and no other has more of them.

    size: tokens of the source; head: those with which every chunk begins, none of which is in the
    span
    chunking: a `fairseq_memattn.data.chunks.Chunking`
    """
    filled = int(chunking.filled(size, head))
    held = [0] * (chunking.chunks - filled)
    for number in range(filled):
        begin = head + number * chunking.step(head)
        low, high = max(span[0], begin), min(span[1], begin + chunking.length - head)
        held.append(max(0, high - low))
    most = max(held)
    return [count == most > 0 for count in held]


@torch.no_grad()
def selections(model: Any, task: Any) -> Tensor:
    """The layers' weights (B, N, K) for each test question, in order."""
    task.computes_loss = True  # inputs in chunks
    task.load_dataset("test")
    batches = task.get_batch_iterator(task.dataset("test"), max_sentences=64)
    found, numbers = [], []
    for batch in batches.next_epoch_itr(shuffle=False):
        inputs = batch["net_input"]
        chosen = model(**inputs)[1]["selection"]
        weights = torch.stack([weights[:, 0] for weights in chosen], dim=1)
        # The encoder leaves out chunks that are empty in the whole batch, which are the first.
        found.append(nn.functional.pad(weights, (task.cfg.chunks - weights.shape[2], 0)))
        numbers.append(batch["id"])
    return torch.cat(found)[torch.cat(numbers).argsort()]


def rows(weights: Tensor, true: Tensor) -> list[list[str]]:
    """A row for each layer. weights: (B, N, K); true: (B, K)."""
    best = weights.argmax(dim=2)  # (B, N)
    hits = true.gather(1, best).double().mean(dim=0)
    shares = (weights * true.unsqueeze(1)).sum(dim=2).double().mean(dim=0)
    return [
        [str(layer), f"{100 * hit:.1f}", f"{100 * share:.1f}"]
        for layer, (hit, share) in enumerate(zip(hits.tolist(), shares.tolist(), strict=True))
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stories", type=Path, help="with bin and pieces")
    parser.add_argument("--path", type=Path, required=True, help="a model with --chunks above 1")
    args = parser.parse_args(argv)
    facts = args.stories / "pieces" / "test.facts"
    for path in (facts, args.path):
        if not path.is_file():
            print(f"error: {path}: there is no such file", file=sys.stderr)
            return 2
    fairseq_memattn.register()
    from fairseq import checkpoint_utils

    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(args.path)], {"data": str(args.stories / "bin")}
    )
    if not hasattr(models[0].decoder, "selector") or task.cfg.chunks == 1:
        print(f"error: {args.path}: has no selector, or no chunks to select", file=sys.stderr)
        return 2
    weights = selections(models[0].eval(), task)
    options, dataset = task.options, task.dataset("test")
    sizes = np.array([len(dataset[number]["source"]) for number in range(len(dataset))])
    heads = options.heads(np.asarray(dataset.questions.sizes))
    told = zip(read_spans(facts), sizes.tolist(), heads.tolist(), strict=True)
    true = torch.tensor([true_chunk(*one, options.chunking) for one in told])
    chance = 100 * (true.sum(dim=1).numpy() / options.chunking.filled(sizes, heads)).mean()
    head = ["layer", "largest weight on the true chunk", "weight of it"]
    print(table([head, *rows(weights, true)]))
    print(f"true chunks among those that are not empty: {chance:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
