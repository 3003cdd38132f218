"""GlobalMemoryAttention against the oracle of its operations, and what it works under."""

import layers
import pytest
import torch
from cases import Case, draw
from cases import padding as padding_of
from full import full
from torch.nn.functional import linear
from torch.testing import assert_close

from fairseq_memattn.attention.nn import GlobalMemoryAttention
from fairseq_memattn.attention.ops.global_memory import naive
from fairseq_memattn.attention.ops.lsh import naive as lsh_naive
from fairseq_memattn.attention.ops.lsh.chunked import lsh_buckets
from fairseq_memattn.attention.ops.window import Window

KINDS = {
    "chunks": dict(chunk_size=4),
    "window": dict(sparsity="window", window=2),
    "lsh": dict(sparsity="lsh", chunk_size=4, rounds=2, buckets=4),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def layer(kind="chunks", own="", dtype=torch.float32, **options):
    torch.manual_seed(1)
    made = GlobalMemoryAttention(8, 2, memory_projections=own, **KINDS[kind] | options)
    return made.to(dtype)


def inputs(length=11, slots=3, dtype=torch.float32):
    return list(draw(length, x=(2, length, 8), memory=(2, slots, 8)).leaves(dtype, "cpu"))


def options(pad, length=11):
    mask = padding_of(Case(length, pad))
    return {} if mask is None else {"key_padding_mask": mask}


class Literal:
    """The layer from its weights, by the oracles of its operations. The dtype is float64."""

    def __init__(self, module):
        self.module, self.own = module, dict(module.memory_proj.items())

    def heads(self, name, x):
        projection = getattr(self.module, f"{name}_proj")
        return self.split(projection, x)

    def split(self, projection, x):
        return linear(x, projection.weight, projection.bias).unflatten(2, (2, 4)).transpose(1, 2)

    def joined(self, projection, x):
        return linear(x.transpose(1, 2).flatten(2), projection.weight, projection.bias)

    def attend(self, tokens, memory, mask):
        sparsity = self.module.sparsity
        if sparsity.kind == "lsh":
            generator = torch.Generator().manual_seed(sparsity.seed)
            qk, v = tokens
            unit = torch.nn.functional.normalize(qk, dim=3)
            bucket = lsh_buckets(unit, sparsity.buckets, sparsity.rounds, generator)
            return lsh_naive.lsh_memory_attention(
                qk, v, *memory, bucket, chunk_size=sparsity.size, key_padding_mask=mask
            )
        if sparsity.kind == "window":
            window = Window(2 * sparsity.window + 1)
            return naive.window_memory_attention(
                *tokens, *memory, window=window, key_padding_mask=mask
            )
        return naive.attention_with_memory(
            *tokens, *memory, seen=self.same_chunk, key_padding_mask=mask, scale=None
        )

    def same_chunk(self, b, h, t, tokens):
        """Chunks are cut from the tokens, wherever padding is."""
        size = self.module.sparsity.size
        return [i for i in tokens if tokens.index(i) // size == tokens.index(t) // size]

    def __call__(self, x, memory, key_padding_mask=None):
        names = "qv" if self.module.sparsity.kind == "lsh" else "qkv"
        of_tokens = [self.heads(name, x) for name in names]
        q, *k, v = (self.heads(name, memory) for name in names)
        readings, updated = self.attend(of_tokens, (q, *(k or [q]), v), key_padding_mask)
        out = self.joined(self.module.out_proj, readings)
        if not self.own:
            return out, self.joined(self.module.out_proj, updated)
        # Equation 3, on the right: softmax attention, which windows of the whole length are.
        q, k, v = (self.split(self.own[name], memory) for name in "qkv")
        tokens = (self.split(self.own[name], x) for name in "kkv")
        _, updated = naive.global_memory_attention(
            *tokens, q, k, v, chunk_size=99, key_padding_mask=key_padding_mask
        )
        return out, self.joined(self.own.get("o", self.module.out_proj), updated)


@pytest.mark.parametrize(
    "kind, own, pad, length, slots",
    [
        ("chunks", "", "none", 11, 3),
        ("chunks", "", "left", 13, 1),
        ("chunks", "qkv", "holes", 11, 3),
        ("chunks", "qkvo", "right", 9, 2),
        ("chunks", "", "right", 11, 0),
        ("chunks", "", "left", 3, 2),
        ("window", "", "left", 11, 3),
        ("window", "qkvo", "holes", 13, 1),
        ("window", "qkv", "none", 9, 2),
        ("lsh", "", "right", 11, 3),
        ("lsh", "qkv", "left", 13, 2),
        ("lsh", "qkvo", "holes", 9, 1),
        ("lsh", "", "none", 11, 0),
    ],
)
def test_equation_3(kind, own, pad, length, slots):
    module, x = layer(kind, own, torch.float64), inputs(length, slots, torch.float64)
    given = options(pad, length)
    layers.check_oracle(
        module, Literal(module), *x, tolerance=1e-9, compared=without_padding, **given
    )


def without_padding(outs, key_padding_mask=None):
    """What is at padding is undefined."""
    x, memory = outs
    if key_padding_mask is None:
        return outs
    return x.masked_fill(key_padding_mask.unsqueeze(2), 0.0), memory


@each_kind
@pytest.mark.parametrize("own", ["", "qkvo"])
@pytest.mark.parametrize("slots", [0, 3])
def test_without_tokens_the_memory_attends_to_itself(kind, own, slots):
    module = layer(kind, own).eval()
    x, memory = inputs(0, slots)
    out, updated = module(x, memory)
    assert out.shape == (2, 0, 8) and updated.shape == (2, slots, 8)
    if slots:
        long, _ = inputs(11, slots)
        absent = torch.ones(2, 11, dtype=torch.bool)
        _, expected = module(long, memory, key_padding_mask=absent)
        assert_close(updated, expected)


@each_kind
def test_hashing_is_fresh_in_training_and_seeded_in_evaluation(kind):
    module, x = layer(kind), inputs(64, 0)
    module.eval()
    assert torch.equal(module(*x)[0], module(*x)[0])
    module.train()
    assert torch.equal(module(*x)[0], module(*x)[0]) == (kind != "lsh")


# --- What it works under


CHECKS = {
    "autocast": "left", "checkpointing": "right", "second_derivatives": "right", "copies": "holes",
    "graph_is_freed": "left",
}  # fmt: skip


@each_kind
@pytest.mark.parametrize("check", CHECKS)
def test_it_works_under(kind, check):
    given = options(CHECKS[check])
    if check == "autocast" and kind == "lsh":
        given["tolerance"] = 1.0  # a rounded vector may fall into another bucket
    dropout = {} if check in ("autocast", "second_derivatives") else {"dropout": 0.2}
    own = "qkvo" if check == "autocast" else "qkv"
    module = layer(kind, own, **dropout).eval()
    getattr(layers, f"check_{check}")(module, *inputs(), **given)


@each_kind
def test_state_dict(kind):
    layers.check_state_dict(lambda: layer(kind, "qkvo"), *inputs())


@pytest.mark.full
@pytest.mark.parametrize(
    "kind, pad, training, broken_in",
    [
        ("chunks", "left", False, set()),
        full("window", "none", True, set()),
        full("lsh", "left", True, set()),
        ("lsh", "right", False, None),  # at the generator of the seed
    ],
)
def test_compile(kind, pad, training, broken_in):
    module = layer(kind, "qkv").train(training)
    layers.check_compile(module, *inputs(), broken_in=broken_in, **options(pad))


def test_no_tokens_under_autocast():
    layer = GlobalMemoryAttention(8, 2, sparsity="chunks")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, memory = layer(torch.zeros(1, 0, 8), torch.randn(1, 3, 8))
    assert out.shape == (1, 0, 8) and out.dtype == memory.dtype == torch.bfloat16
