"""MemorySlotAttention against the oracle of its operation, and what it works under."""

import layers
import pytest
import torch
from cases import Case, draw
from cases import padding as padding_of
from torch.nn.functional import linear
from torch.testing import assert_close

from fairseq_memattn.attention.nn import MemorySlotAttention, SlotPositionBias
from fairseq_memattn.attention.ops.memory_slots import naive

DESIGNS = {
    "own positions": {},
    "one output": dict(separate_output=False),
    "no positions": dict(relative_positions=False, bias=True),
    "wide heads": dict(head_dim=5, buckets=8, max_distance=6),
}
each_design = pytest.mark.parametrize("design", DESIGNS)


def layer(design="own positions", dtype=torch.float32, **options):
    torch.manual_seed(1)
    return MemorySlotAttention(8, 2, **DESIGNS[design] | options).to(dtype)


def inputs(sequences=3, slots=2, length=5, dtype=torch.float32):
    drawn = draw(length, tokens=(2, sequences, length, 8), memory=(2, sequences, slots, 8))
    return list(drawn.leaves(dtype, "cpu"))


def padding(pad, sequences=3, length=5):
    return padding_of(Case(length, pad, sequences=sequences))


def options(pad, *sizes):
    return {} if pad == "none" else {"key_padding_mask": padding(pad, *sizes)}


class Literal:
    """The layer from its weights, by the oracle of its operation. The dtype is float64."""

    def __init__(self, module):
        self.module = module

    def project(self, name, x):
        projection = getattr(self.module, name)
        return linear(x, projection.weight, projection.bias)

    def heads(self, tokens, memory):
        return torch.cat([memory, tokens], dim=2).unflatten(3, (2, -1)).transpose(2, 3)

    def bias(self, count, slots, length):
        own = self.module.position_bias
        if own is None:
            return None
        table, (rows, _) = own.table, own.table.shape
        places = (count, slots + length, count * slots + length)
        index = torch.empty(places, dtype=torch.long)
        for i in range(count):
            for query in range(places[1]):
                for column in range(places[2]):
                    distance = naive.slot_distance(i, query, column, count, slots)
                    sizes = (True, rows - 1, own.max_distance)
                    bucket = rows - 1 if distance is None else naive.bucket(distance, *sizes)
                    index[i, query, column] = bucket
        return table[index].permute(0, 3, 1, 2)

    def __call__(self, tokens, memory, key_padding_mask=None):
        count, slots, length = memory.shape[1], memory.shape[2], tokens.shape[2]
        q = self.heads(self.project("q_proj", tokens), self.project("slot_q_proj", memory))
        k, v = (
            self.heads(self.project(name, tokens), self.project(name, memory))
            for name in ("k_proj", "v_proj")
        )
        out = naive.mem_attention(
            q,
            k,
            v,
            slots=slots,
            bias=self.bias(count, slots, length),
            key_padding_mask=key_padding_mask,
        )
        out = out.transpose(2, 3).flatten(3)
        of_slots = "out_proj" if self.module.slot_out_proj is None else "slot_out_proj"
        return (
            self.project("out_proj", out[:, :, slots:]),
            self.project(of_slots, out[:, :, :slots]),
        )


@pytest.mark.parametrize(
    "design, pad, sequences, slots, length",
    [
        ("own positions", "right", 3, 2, 5),
        ("own positions", "none", 1, 1, 7),
        ("one output", "absent", 3, 1, 7),
        ("no positions", "holes", 3, 3, 5),
        ("wide heads", "holes", 3, 1, 5),
        ("wide heads", "absent", 3, 2, 1),
    ],
)
def test_equations_6_to_14(design, pad, sequences, slots, length):
    module, x = layer(design, torch.float64), inputs(sequences, slots, length, torch.float64)
    given = options(pad, sequences, length)
    layers.check_oracle(module, Literal(module), *x, tolerance=1e-10, **given)


def test_a_position_bias_that_layers_share():
    module, x = layer(), inputs()
    shared = SlotPositionBias(8, 2)
    shared.load_state_dict(module.position_bias.state_dict())
    other = layer(relative_positions=False)
    other.load_state_dict(module.state_dict(), strict=False)
    bias = shared(3, 2, 5)
    assert bias.shape == (3, 2, 7, 11)
    expected = module(*x)
    assert all(map(torch.equal, other(*x, position_bias=bias), expected))
    assert all(map(torch.equal, module(*x, position_bias=bias), expected))
    assert not torch.equal(module(*x, position_bias=2 * bias)[0], expected[0])


@each_design
def test_absent_sequences_and_more_padding_change_nothing(design):
    module = layer(design, torch.float64).eval()
    tokens, memory = (x.detach() for x in inputs(dtype=torch.float64))
    mask = padding("right")
    out, updated = module(tokens, memory, key_padding_mask=mask)
    wider = torch.nn.functional.pad(tokens, (0, 0, 0, 3, 0, 2), value=9.0)
    more = torch.nn.functional.pad(memory, (0, 0, 0, 0, 0, 2), value=9.0)
    mask = torch.nn.functional.pad(mask, (0, 3, 0, 2), value=True)
    again, updated_again = module(wider, more, key_padding_mask=mask)
    assert_close(again[:, :3, :5], out)
    assert_close(updated_again[:, :3], updated)


# --- What it works under


CHECKS = {
    "autocast": "absent", "checkpointing": "holes", "second_derivatives": "holes",
    "copies": "right", "graph_is_freed": "right",
}  # fmt: skip


@each_design
@pytest.mark.parametrize("check", CHECKS)
def test_it_works_under(design, check):
    dropout = {} if check in ("autocast", "second_derivatives") else {"dropout": 0.2}
    module = layer(design, **dropout).eval()
    getattr(layers, f"check_{check}")(module, *inputs(), **options(CHECKS[check]))


@each_design
def test_state_dict(design):
    layers.check_state_dict(lambda: layer(design), *inputs())


@pytest.mark.parametrize("design", ["own positions", "no positions"])
def test_compile(design):
    layers.check_compile(layer(design), *inputs(), **options("absent"))


@pytest.mark.full
def test_an_exported_layer_takes_every_length():
    """The positions too, which an exported `unfold` would fix."""
    module, given, more = layer().eval(), inputs(), inputs(sequences=5, length=9)
    auto = torch.export.Dim.AUTO
    dynamic = {"tokens": {1: auto, 2: auto}, "memory": {1: auto}}
    exported = torch.export.export(module, tuple(given), dynamic_shapes=dynamic).module()
    assert_close(exported(*more), module(*more))
