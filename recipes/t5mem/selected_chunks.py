"""How often T5Mem's selector takes the chunk that has the answer of a generated story.

    python recipes/t5mem/selected_chunks.py STORIES --path CHECKPOINT

STORIES is the folder of `memattn prepare stories`. The selection is that of the first token of the
answer. The true chunks are those with the last supporting sentence of a question. Prints for each
layer of the decoder the share of questions with the largest weight on a true chunk, and the mean
weight of the true chunks, beside the share of the chunks that are true; all in percent.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import fairseq_memattn
from fairseq_memattn.evaluation.tables import table


def read_spans(path: Path) -> list[tuple[int, int]]:
    """The tokens BEGIN, END of the last supporting sentence of each question."""
    lines = path.read_text(encoding="utf-8").splitlines()
    begins_ends = (line.split()[-1].split(":") for line in lines)
    return [(int(begin), int(end)) for begin, end in begins_ends]


def true_chunks(spans: Sequence[tuple[int, int]], sizes: Tensor, length: int, most: int) -> Tensor:
    """(B, K), True at the chunks that have some token of the span.

    sizes: (B,), tokens of the sources; length: of a chunk; most: K, of which the first are empty
    where a source fills fewer
    """
    chunks = torch.arange(most)
    first = most - (sizes + length - 1) // length
    begins, ends = (torch.tensor(column) for column in zip(*spans, strict=True))
    low, high = begins // length + first, (ends - 1) // length + first
    return (chunks >= low.unsqueeze(1)) & (chunks <= high.unsqueeze(1))


@torch.no_grad()
def selections(model: Any, task: Any) -> tuple[Tensor, Tensor]:
    """For each test question, in order: the layers' weights (B, N, K), and its tokens (B,)."""
    task.computes_loss = True  # inputs in chunks
    task.load_dataset("test")
    batches = task.get_batch_iterator(task.dataset("test"), max_sentences=64)
    found, sizes, numbers = [], [], []
    for batch in batches.next_epoch_itr(shuffle=False):
        inputs = batch["net_input"]
        chosen = model(**inputs)[1]["selection"]
        weights = torch.stack([weights[:, 0] for weights in chosen], dim=1)
        # The encoder leaves out chunks that are empty in the whole batch, which are the first.
        found.append(nn.functional.pad(weights, (task.cfg.chunks - weights.shape[2], 0)))
        before = inputs["context_padding_mask"].logical_not().sum(dim=(1, 2))
        sizes.append(before + inputs["src_lengths"])
        numbers.append(batch["id"])
    order = torch.cat(numbers).argsort()
    return torch.cat(found)[order], torch.cat(sizes)[order]


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
    weights, sizes = selections(models[0].eval(), task)
    options = task.options
    true = true_chunks(read_spans(facts), sizes, options.chunk_length, options.chunks)
    present = -(-sizes // options.chunk_length)
    chance = 100 * float((true.sum(dim=1) / present).mean())
    head = ["layer", "largest weight on the true chunk", "weight of it"]
    print(table([head, *rows(weights, true)]))
    print(f"true chunks among those that are not empty: {chance:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
