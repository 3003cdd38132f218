"""Time and memory of training with causal attention, against the length of the sequence.

The contenders compute attention of the same q, k, v (B, H, T, D):

    abc       fairseq_memattn.attention.abc_attention, M slots, with its own backward pass
    plain     the same function in benchmarks/plain_chunked.py, with autograd's backward pass
    softmax   torch.nn.functional.scaled_dot_product_attention, is_causal=True

The time is that of one forward and one backward pass, as the median over rounds in which the
contenders take turns. The memory is what autograd stores between the two passes; each storage
counts once.

The number of floating-point operations in matrix products gives the largest possible ratio
softmax / abc. A multiplication with addition counts as two operations, and a product over a causal
half as half a product. C is the chunk length of `abc`. For each head and token:

    softmax   forward 2 products over T/2 tokens, backward 5 (the logits are recomputed):
              7 * 2 * (T / 2) * D = 7 T D
    abc       forward:  4 products with M x D memories, and over a chunk, whose causal half is not
                        skipped, 2 of width D and 2 of width M:   8 M D +  4 C D +  4 C M
              backward: 8 with memories, 5 of width D, 5 of M:   16 M D + 10 C D + 10 C M

`allowed` = 7 T D / (24 M D + 14 C (D + M)) is the ratio of the times if both do the same number of
operations per second.
"""

from argparse import Namespace
from functools import partial

import torch
from common import make_parser, parse
from plain_chunked import CHUNK_SIZE, plain_chunked_attention
from training import (
    Contenders,
    add_options,
    make_inputs,
    run,
    softmax_attention,
    softmax_operations,
)

from fairseq_memattn.attention import abc_attention
from fairseq_memattn.attention.ops.abc import chunked as causal

CONTENDERS: Contenders = {
    "abc": partial(abc_attention, causal=True),
    "plain": plain_chunked_attention,
    "softmax": softmax_attention,
}


def ratios(args: Namespace, length: int, seconds: dict[str, float]) -> dict[str, float]:
    """The measured ratios, and `allowed` as defined at the top of this file."""
    width, slots, chunk = args.head_size, args.slots, min(causal.CHUNK_SIZE, length)
    operations = 24 * slots * width + 14 * chunk * (width + slots)
    return {
        "softmax_over_abc": seconds["softmax"] / seconds["abc"],
        "softmax_over_abc_allowed": softmax_operations(length, width) / operations,
        "plain_over_abc": seconds["plain"] / seconds["abc"],
    }


def check_agreement(args: Namespace) -> None:
    """Raises AssertionError unless `plain` and `abc` compute the same function."""
    inputs = [x.detach().float() for x in make_inputs(args, 8 * CHUNK_SIZE, args.slots)]
    torch.testing.assert_close(
        CONTENDERS["plain"](*inputs), CONTENDERS["abc"](*inputs), rtol=1e-3, atol=1e-4
    )


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    add_options(parser, "attention_training", lengths=[128, 512, 2048, 8192], slots=32)
    args = parse(parser)
    for length in args.lengths:
        if length < 1 or length % CHUNK_SIZE:
            parser.error(f"--lengths must be multiples of {CHUNK_SIZE}, but one is {length}")
    return args


def main() -> None:
    args = parse_arguments()
    check_agreement(args)
    run(args, CONTENDERS, partial(ratios, args), (args.slots,))


if __name__ == "__main__":
    main()
