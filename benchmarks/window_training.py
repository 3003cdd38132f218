"""Time and memory of training with causal window attention, against the length of the sequence.

The contenders compute attention of the same q, k, v (B, H, T, D):

    window    fairseq_memattn.attention.window_attention over the last M tokens of each query
    softmax   torch.nn.functional.scaled_dot_product_attention, is_causal=True

The time is that of one forward and one backward pass, as the median over rounds in which the
contenders take turns. The memory is what autograd stores between the two passes; each storage
counts once.

The number of floating-point operations in matrix products, as in `attention_training.py`, gives the
largest possible ratio softmax / window. A block of C queries attends to a band of M + C keys, none
of which is skipped, in the 2 products of the forward pass and the 5 of the backward pass:

    softmax   7 * 2 * (T / 2) * D = 7 T D
    window    7 * 2 * (M + C) * D = 14 (M + C) D

`allowed` = T / (2 (M + C)) is the ratio of the times if both do the same number of operations per
second.
"""

from argparse import Namespace
from functools import partial

import torch
from common import make_parser, parse
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from training import (
    Contenders,
    add_options,
    make_inputs,
    run,
    softmax_attention,
    softmax_operations,
)

from fairseq_memattn.attention.ops.window import Window, window_attention
from fairseq_memattn.attention.ops.window.chunked import BLOCK_SIZE


def make_contenders(args: Namespace) -> Contenders:
    window = Window(args.slots)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return window_attention(q, k, v, window)

    return {"window": attend, "softmax": softmax_attention}


def ratios(args: Namespace, length: int, seconds: dict[str, float]) -> dict[str, float]:
    """The measured ratio, and `allowed` as defined at the top of this file."""
    block = min(max(BLOCK_SIZE, (args.slots - 1) // 2), length)
    operations = 14 * (args.slots + block) * args.head_size
    return {
        "softmax_over_window": seconds["softmax"] / seconds["window"],
        "softmax_over_window_allowed": softmax_operations(length, args.head_size) / operations,
    }


def check_agreement(args: Namespace, contenders: Contenders) -> None:
    """Raises AssertionError unless `window` equals softmax attention with a mask."""
    length = 4 * args.slots
    q, k, v = (x.detach().float() for x in make_inputs(args, length))
    near = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    mask = near.triu(1 - args.slots)
    expected = scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(contenders["window"](q, k, v), expected, rtol=1e-3, atol=1e-4)


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    lengths = [512, 1024, 2048, 4096, 8192]
    add_options(parser, "window_training", lengths=lengths, slots=64)
    return parse(parser)


def main() -> None:
    args = parse_arguments()
    contenders = make_contenders(args)
    check_agreement(args, contenders)
    run(args, contenders, partial(ratios, args))


if __name__ == "__main__":
    main()
