"""No operation waits for a GPU, and none that is linear in its length makes T x T numbers."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from cases import assert_equal, fixed_sum, outputs
from full import full
from pairwise import pairwise
from torch import Tensor
from waiting import META, Waits, kernels, on_no_gpu

from fairseq_memattn.attention import (
    Window,
    abc_attention,
    additive_attention,
    global_memory_attention,
    kernel_attention,
    lsh_memory_attention,
    mem_attention,
    mixture_attention,
    relative_position_bucket,
    select_sequences,
    slot_position_bias,
    window_attention,
    window_memory_attention,
)
from fairseq_memattn.attention.controls.registry import all_controls, control_class
from fairseq_memattn.attention.nn import ABCAttention, GlobalMemoryAttention, MemorySlotAttention
from fairseq_memattn.attention.ops import common

B, H, D, M, K = 2, 2, 8, 4, 3
E = H * D
LONGEST = 2048

Attend = Callable[..., Any]


class Draw:
    """Inputs of T positions on a device, of which all that can require a gradient do."""

    def __init__(self, length: int, device: Any = META) -> None:
        self.length, self.device = length, torch.device(device)

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self.device, requires_grad=True)

    def tokens(self, count: int = 3) -> list[Tensor]:
        """(B, H, T, D)"""
        return [self(B, H, self.length, D) for _ in range(count)]

    def memory(self) -> list[Tensor]:
        return [self(B, H, M, D) for _ in range(3)]

    def mask(self, *shape: int) -> Tensor:
        """True at the ends of rows."""
        columns = torch.arange(shape[-1], device=self.device)
        return ((columns < 2) | (columns >= shape[-1] - 2)).expand(shape).clone()

    @property
    def padding(self) -> Tensor:
        return self.mask(B, self.length)


def windows(window: Window, **options: Any) -> Attend:
    def attend(draw: Draw, **padding: Tensor) -> Any:
        return window_attention(*draw.tokens(), window, **options, **padding)

    return attend


def some_global(draw: Draw, **padding: Tensor) -> Any:
    seen_by_all = draw.mask(B, draw.length)
    return window_attention(
        *draw.tokens(), Window(4), global_mask=seen_by_all, max_global=4, **padding
    )


def chunks(size: int, slots: int) -> Attend:
    def attend(draw: Draw, **padding: Tensor) -> Any:
        memory = (draw(B, H, slots, D) for _ in range(3))
        return global_memory_attention(*draw.tokens(), *memory, chunk_size=size, **padding)

    return attend


def around_memory(draw: Draw, **padding: Tensor) -> Any:
    return window_memory_attention(*draw.tokens(), *draw.memory(), window=Window(9), **padding)


def hashed(seed: int | None) -> Attend:
    def attend(draw: Draw, **padding: Tensor) -> Any:
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return lsh_memory_attention(
            *draw.tokens(2), *draw.memory(), chunk_size=8, rounds=2, buckets=4, dropout=0.1,
            generator=generator, **padding,
        )  # fmt: skip

    return attend


def kernel(**options: Any) -> Attend:
    def attend(draw: Draw, **padding: Tensor) -> Any:
        gate = draw(B, 1, draw.length) if options["causal"] else None
        return kernel_attention(*draw.tokens(), log_gate=gate, floor=0.1, **options, **padding)

    return attend


def bounded(attend: Attend, **options: Any) -> Attend:
    def attend_bounded(draw: Draw, **padding: Tensor) -> Any:
        return attend(*draw.tokens(), draw(B, 1, draw.length, M), **options, **padding)

    return attend_bounded


def mixed(draw: Draw, **padding: Tensor) -> Any:
    """Cross attention to K sequences of 7 tokens."""
    absent = draw.mask(B, K) if padding else None
    selection = select_sequences(draw(B, draw.length, E), draw(B, K, E), absent)
    k, v = (draw(B, K, H, 7, D) for _ in range(2))
    mask = draw.mask(B, K, 7) if padding else None
    return mixture_attention(draw.tokens(1)[0], k, v, selection, key_padding_mask=mask)


LINEAR = {
    "window": windows(Window(4)),
    "centred": windows(Window(5), causal=False, dropout=0.1),
    "dilated": windows(Window(4, dilation=3)),
    "strided": windows(Window(4, stride=3)),
    "global tokens": some_global,
    "chunks": chunks(16, M),
    "tiny chunks": chunks(4, 8),
    "window and memory": around_memory,
    "lsh": hashed(None),
    "lsh, seed": hashed(1),
    "kernel": kernel(causal=False),
    "causal kernel": kernel(causal=True),
    "abc": bounded(abc_attention, causal=False),
    "additive": bounded(additive_attention, causal=False),
    "mixture": mixed,
}
CAUSAL = {
    "causal abc": bounded(abc_attention, causal=True),
    "causal additive": bounded(additive_attention, causal=True),
}


def slots_of_sequences(draw: Draw, **padding: Tensor) -> Any:
    q, k, v = (draw(B, K, H, M + draw.length, D) for _ in range(3))
    bias = slot_position_bias(draw(33, H), K, M, draw.length)
    mask = draw.mask(B, K, draw.length) if padding else None
    return mem_attention(q, k, v, slots=M, bias=bias, key_padding_mask=mask, dropout=0.1)


def one_chunk(draw: Draw, **padding: Tensor) -> Any:
    return chunks(draw.length, M)(draw, **padding)


QUADRATIC = {"memory slots": slots_of_sequences, "one chunk": one_chunk}


def differentiate(outs: Any) -> None:
    torch.stack([out.sum() for out in outputs(outs)]).sum().backward()


def largest(attend: Attend, length: int, *, padded: bool) -> int:
    """The largest tensor of a forward and a backward pass that do not wait."""
    draw = Draw(length)
    padding = {"key_padding_mask": draw.padding} if padded else {}
    with on_no_gpu() as sizes:
        differentiate(attend(draw, **padding))
    return sizes.largest


def grows_linearly(attend: Attend, *, padded: bool) -> bool:
    shorter, longer = (largest(attend, length, padded=padded) for length in (256, 1024))
    return longer < 6 * shorter


padded = pytest.mark.parametrize("padded", [False, True], ids=["tokens", "padded"])
padded_or_full = pytest.mark.parametrize("padded", [full(False), True], ids=["tokens", "padded"])


@padded
@pytest.mark.parametrize("name", LINEAR)
def test_linear_operations(name, padded):
    assert grows_linearly(LINEAR[name], padded=padded)


@padded
@pytest.mark.parametrize("name", CAUSAL)
def test_the_causal_form_by_kernels(name, padded):
    with kernels():
        assert grows_linearly(CAUSAL[name], padded=padded)


@padded
@pytest.mark.parametrize("name", QUADRATIC)
def test_quadratic_operations(name, padded):
    assert largest(QUADRATIC[name], 64, padded=padded)
    assert not grows_linearly(QUADRATIC[name], padded=padded)


def test_relative_positions():
    with on_no_gpu():
        distance = torch.arange(-300, 300, device=META)
        for bidirectional in (False, True):
            relative_position_bucket(distance, bidirectional=bidirectional)


# --- Layers

KINDS = ("causal", "encoder", "cross")


def placed(module: torch.nn.Module, training: bool) -> torch.nn.Module:
    return module.to(META).train(training)


def layer(name: str, kind: str) -> ABCAttention:
    return ABCAttention(
        E, H, slots=M, control=name, causal=kind == "causal", dropout=0.1,
        source_dim=E if kind == "cross" else None, max_positions=LONGEST,
        **({"stride": LONGEST // M} if name == "global" else {}),
    )  # fmt: skip


CASES = dict(name=all_controls(), kind=KINDS, padded=[False, True], training=[False, True])


@pairwise(**CASES)
def test_abc_layers(name, kind, padded, training):
    if kind == "causal" and control_class(name).causal_refusal:
        kind = "encoder"
    module = placed(layer(name, kind), training)

    def attend(draw: Draw, **padding: Tensor) -> Any:
        x = [draw(B, draw.length, E) for _ in range(1 + (kind == "cross"))]
        return module(*x, **padding)

    with kernels():
        if name == "clustering":  # token after token
            assert largest(attend, 16, padded=padded)
        else:
            assert grows_linearly(attend, padded=padded)


@padded_or_full
@pytest.mark.parametrize("name", [n for n in all_controls() if not control_class(n).causal_refusal])
def test_abc_layers_step_by_step(name, padded):
    module = placed(layer(name, "causal"), training=False)

    def attend(draw: Draw, **padding: Tensor) -> Any:
        state, outs = None, []
        for _ in range(3):
            out, state = module.step(draw(B, draw.length, E), state, **padding)
            outs.append(out)
        state.reorder(torch.zeros(B, dtype=torch.long, device=META))
        return tuple(outs)

    with kernels():
        assert largest(attend, 1, padded=padded)
        assert largest(attend, 5, padded=padded)


@padded_or_full
@pytest.mark.parametrize("name", all_controls())
def test_what_is_written_is_read(name, padded):
    module = placed(layer(name, "cross"), training=False)

    def attend(draw: Draw, key_padding_mask: Tensor | None = None) -> Any:
        memory = module.write(draw(B, draw.length, E), key_padding_mask)
        return module.read(draw(B, 1, E), memory)

    assert largest(attend, 30, padded=padded)


@pairwise(
    kind=[
        ("chunks", dict(chunk_size=16)),
        ("window", dict(window=4)),
        ("lsh", dict(buckets=4, rounds=2)),
    ],
    projections=["", "qkvo"],
    padded=[False, True],
    training=[False, True],
)
def test_global_memory_layers(kind, projections, padded, training):
    sparsity, options = kind
    module = GlobalMemoryAttention(
        E, H, sparsity=sparsity, memory_projections=projections, dropout=0.1, **options
    )
    placed(module, training)

    def attend(draw: Draw, **padding: Tensor) -> Any:
        return module(draw(B, draw.length, E), draw(B, M, E), **padding)

    assert grows_linearly(attend, padded=padded)


@padded
def test_memory_slot_layers(padded):
    module = placed(MemorySlotAttention(E, H, dropout=0.1), training=True)
    draw = Draw(9)
    options = {"key_padding_mask": draw.mask(B, K, 9)} if padded else {}
    with on_no_gpu():
        differentiate(module(draw(B, K, 9, E), draw(B, K, M, E), **options))


# --- What a GPU computes in the place of asking


@pytest.fixture
def on_a_gpu_s_way(monkeypatch):
    return lambda: monkeypatch.setattr(common, "IMMEDIATE", set())


ASKING = ["window", "centred", "dilated", "strided", "global tokens", "window and memory"]


@pytest.mark.parametrize("pad", ["left", "right", "holes"])
@pytest.mark.parametrize("name", ASKING)
def test_the_results_are_the_same(name, pad, on_a_gpu_s_way):
    attend = windows(Window(5), causal=False) if name == "centred" else LINEAR[name]
    mask = torch.zeros(B, 23, dtype=torch.bool)
    mask[:, {"left": slice(3), "right": slice(-4, None), "holes": slice(1, None, 3)}[pad]] = True

    def results() -> list[Tensor]:
        torch.manual_seed(1)
        given = []

        class Recording(Draw):
            def __call__(self, *shape: int) -> Tensor:
                given.append(super().__call__(*shape))
                return given[-1]

        outs = attend(Recording(23, "cpu"), key_padding_mask=mask)
        return [*outputs(outs), *torch.autograd.grad(fixed_sum(outs), given)]

    expected = results()
    on_a_gpu_s_way()
    assert_equal(results(), expected)


def test_too_long_sequences_are_asserted_on_the_device(on_a_gpu_s_way):
    module = ABCAttention(E, H, slots=M, control="linformer", causal=True, max_positions=6)
    x = torch.randn(B, 6, E)
    _, state = module.step(x)
    with pytest.raises(ValueError, match="up to 6 tokens .*, but there are 7"):
        module.step(x[:, :1], state)
    on_a_gpu_s_way()
    with pytest.raises(RuntimeError, match="LinformerControl supports sequences of up to 6 tokens"):
        module.step(x[:, :1], state)


def test_more_global_tokens_than_there_can_be():
    with pytest.raises(RuntimeError, match="`global_mask` must have at most 3 tokens a row"):
        tokens = Draw(9, "cpu").tokens()
        window_attention(
            *tokens, Window(4), global_mask=torch.ones(B, 9, dtype=torch.bool), max_global=3
        )


# --- What finds the waits


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: bool(x.any()),
        lambda x: x.nonzero(),
        lambda x: torch.equal(x, x),
        lambda x: x[x > 0],
        lambda x: x.repeat_interleave(x.long(), dim=0),
        lambda x: x[torch.tensor([0, 1])],
        lambda x: torch.tensor([0, 1], device=x.device),
    ],
)
def test_a_wait_is_an_error(wait):
    with pytest.raises((Waits, RuntimeError, NotImplementedError)), on_no_gpu():
        wait(torch.ones(5, device=META))


@pytest.mark.parametrize("compiles", [False, True])
def test_memory_is_pinned_unless_torch_compiles(compiles, monkeypatch):
    """Which cannot trace it."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiles)
    x = mock.Mock(spec=Tensor)
    common.on_device(x, torch.device("cuda"))
    assert x.pin_memory.called != compiles
    moved = x if compiles else x.pin_memory()
    moved.to.assert_called_once_with(torch.device("cuda"), non_blocking=True)
