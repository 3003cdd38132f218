"""Sequences in parts, one for each of several processes, equal those of one process."""

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import abc_cases
import pytest
import test_nn_abc as layers
import torch
from cases import Inputs, assert_all_close, draw, padding, run
from torch import distributed
from torch.func import functional_call
from torch.nn.functional import pad as widen

from fairseq_memattn.attention import (
    MemoryState,
    abc_attention,
    abc_step,
    additive_attention,
    additive_step,
)
from fairseq_memattn.attention.controls import control_class
from fairseq_memattn.attention.ops import context_parallel

T = 23
EDGES = {1: [0, T], 2: [0, 8, T], 4: [0, 1, 9, 14, T]}  # of the parts
PACKED = [[0, T], [0, 3, 5, 5, 8, 14, 20], [0, 9, 9, 12, T], [0, 1, 7], [0, 14, 15, 15]]
PADS = ["none", "left", "right", "holes"]
LAYERS = [name for name in layers.CAUSAL if control_class(layers.DESIGNS[name].control).can_split]


def whole(attend, mask, group, span, *tokens):
    """`abc_attention` or another of a part; zeros at all other tokens."""
    options = {} if mask is None else {"key_padding_mask": mask[:, span]}
    out = attend(*(x[:, :, span] for x in tokens), causal=True, context_group=group, **options)
    return widen(out, (0, 0, span.start, T - span.stop))


def packed(bounds, group, span, *tokens):
    attend = partial(abc_attention, cu_seqlens=torch.tensor(bounds) - span.start)
    return whole(attend, None, group, span, *tokens)


def step(attend, mask, group, span, *leaves):
    """From a memory of the first process to one of the last."""
    options = {} if mask is None else {"key_padding_mask": mask[:, span]}
    tokens, state = [x[:, :, span] for x in leaves[:4]], MemoryState(*leaves[4:])
    state = state if span.start == 0 else None
    out, state = attend(*tokens, state, context_group=group, **options)
    ends = span.stop == T
    return widen(out, (0, 0, span.start, T - span.stop)), *(x * ends for x in state)


def through_layer(layer, mask, group, span, x, *weights):
    layer.split_context(group)
    options = {} if mask is None else {"key_padding_mask": mask[:, span]}
    weights = dict(zip(dict(layer.named_parameters()), weights, strict=True))
    out = functional_call(layer, weights, (x[:, span],), options)
    return widen(out, (0, 0, span.start, T - span.stop))


def calls(all_bounds=PACKED, pads=PADS, controls=("plain", "relu", "spikes")):
    """By name: a function of a group, the own part and tensors; and the tensors."""
    found = {}
    for control in controls:
        inputs = abc_cases.inputs(abc_cases.Case(T, control=control, batch=1))
        for bounds in all_bounds:
            found[f"packed {control} {bounds}"] = partial(packed, bounds), inputs
    for pad in pads:
        mask = padding(abc_cases.Case(T, pad))
        for control in controls:
            case = abc_cases.Case(T, pad, control=control, shared=pad == "left")
            inputs = abc_cases.inputs(case)
            found[f"abc {control} {pad}"] = partial(whole, abc_attention, mask), inputs
            shapes = dict(keys=(2, 2, 3, 4), values=(2, 2, 3, 4))
            state = draw(2, **shapes, log_mass=(2, 1 if case.shared else 2, 3))
            given = Inputs(**vars(inputs), **vars(state))
            found[f"step {control} {pad}"] = partial(step, abc_step, mask), given
        inputs = abc_cases.inputs(abc_cases.Case(T, pad, shared=pad == "holes"))
        found[f"additive {pad}"] = partial(whole, additive_attention, mask), inputs
        state.log_mass = torch.zeros(2, inputs.log_alpha.shape[1], 3)
        given = Inputs(**vars(inputs), **vars(state))
        found[f"additive step {pad}"] = partial(step, additive_step, mask), given
        mask = padding(abc_cases.Case(T, pad, batch=3))
        for name in LAYERS:
            longer = {"max_positions": T} | ({"stride": 8} if name == "global" else {})
            heads = "grouped" if pad == "left" else "equal"
            layer = layers.layer(name, "causal", torch.float64, heads, **longer)
            (x,) = layers.inputs("causal", T)
            weights = {n.replace(".", "_"): p for n, p in layer.named_parameters()}
            found[f"{name} {pad}"] = partial(through_layer, layer, mask), Inputs(x=x, **weights)
    return found


def results(given, processes=1, rank=0, group=None):
    """Outputs and gradients, zeros where they are another process's."""
    span = slice(*EDGES[processes][rank : rank + 2])
    found = {}
    for name, (attend, inputs) in given.items():
        leaves = inputs.map(torch.detach).leaves(torch.float64, "cpu")
        for result, x in run(partial(attend, group, span), leaves, allow_unused=True).items():
            found[f"{name}, {result}"] = x
    return found


def check(found, expected):
    sums = {name: sum(one[name] for one in found) for name in expected}
    assert_all_close(sums, expected, 1e-10)


class Threads:
    """A group of threads, with what `context_parallel` uses of torch.distributed."""

    def __init__(self, size):
        self.barrier = threading.Barrier(size, timeout=30)
        self.ranks, self.given = {}, [None] * size

    def get_rank(self, group):
        return self.ranks[threading.get_ident()]

    def get_world_size(self, group):
        return len(self.given)

    def all_gather(self, outs, x, group):
        for out, given in zip(outs, self.exchange(x), strict=True):
            out.copy_(given)

    def reduce_scatter(self, out, parts, group):
        rank = self.get_rank(group)
        out.copy_(sum(given[rank] for given in self.exchange(parts)))

    def exchange(self, x):
        self.given[self.get_rank(None)] = x
        self.barrier.wait()
        given = [*self.given]
        self.barrier.wait()
        return given

    def run(self, rank, given):
        self.ranks[threading.get_ident()] = rank
        return results(given, len(self.given), rank, self)


def test_parts_of_a_sequence(monkeypatch):
    """In threads. With --full there are processes, and more cases."""
    threads = Threads(4)
    monkeypatch.setattr(context_parallel, "distributed", threads)
    given = [calls(PACKED[1:2], ["left"], ["plain"]) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(threads.run, range(4), given))
    check(found, results(given[0]))


def _process(rank, processes, folder):
    torch.set_num_threads(1)
    method = f"file://{folder}/rendezvous"
    distributed.init_process_group("gloo", init_method=method, rank=rank, world_size=processes)
    torch.save(results(calls(), processes, rank, distributed.group.WORLD), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.full
@pytest.mark.parametrize("processes", [2, 4])
def test_processes(processes, tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    started = [
        context.Process(target=_process, args=(rank, processes, str(tmp_path)))
        for rank in range(processes)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()
        assert process.exitcode == 0
    found = [torch.load(f"{tmp_path}/{rank}.pt") for rank in range(processes)]
    check(found, results(calls()))


def test_refusals(monkeypatch):
    with pytest.raises(ValueError, match="needs causal attention .* WindowControl"):
        layers.layer("window", "causal").split_context(Threads(2))
    with pytest.raises(ValueError, match="causal=False"):
        layers.layer("mlp", "encoder").split_context(Threads(2))
    q = torch.ones(1, 1, 2, 3)
    for attend in (abc_attention, additive_attention):
        with pytest.raises(ValueError, match="`context_group` needs causal=True"):
            attend(q, q, q, q, causal=False, context_group=Threads(2))
    threads = Threads(2)
    threads.ranks[threading.get_ident()] = 1
    monkeypatch.setattr(context_parallel, "distributed", threads)
    with pytest.raises(ValueError, match="must be None in process 1"):
        abc_step(q, q, q, q, MemoryState.empty(q, q, q), context_group=threads)
