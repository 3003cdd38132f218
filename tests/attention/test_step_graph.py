"""A step that is recorded and replayed equals `ABCAttention.step`."""

import copy
import os
from unittest import mock

import pytest
import torch
from full import others_in_full
from recorded_graphs import record_graphs
from torch.testing import assert_close

from fairseq_memattn.attention import step_graph
from fairseq_memattn.attention.controls.registry import all_controls, control_class
from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.attention.step_graph import StepGraph, overwrite, wants_graphs

B, E = 2, 8
CAUSAL = [name for name in all_controls() if not control_class(name).causal_refusal]


def make_step(name="mlp", device="cpu"):
    torch.manual_seed(1)
    options = {"stride": 8} if name in ("global", "local_global") else {}
    module = ABCAttention(E, 2, slots=4, control=name, causal=True, max_positions=32, **options)
    module.to(device).eval()

    def step(state, x, padding=None):
        return module.step(x, state, key_padding_mask=padding)

    return step


@torch.no_grad()
@pytest.mark.parametrize("name", others_in_full(CAUSAL, ["mlp", "linformer"]))
def test_steps(name, device, monkeypatch):
    recorded = record_graphs(monkeypatch)
    step, x = make_step(name, device), torch.randn(B, 12, E, device=device)
    padding = torch.rand(B, 12, 1, device=device) < 0.2
    graph = StepGraph(step)
    _, state = step(None, x[:, :5])
    states = [state, state]
    for t in range(5, 12):
        if t == 9:  # hypotheses of a beam
            states = [state.reorder(torch.tensor([1, 1], device=device)) for state in states]
        given = x[:, t : t + 1], padding[:, t]
        (expected, *states[:1]), (out, *states[1:]) = (
            step(states[0], *given),
            graph(states[1], *given),
        )
        assert_close(out, expected)
        assert_close(states[1], states[0])
    assert (recorded.graphs, recorded.replays) == (1, 6)


@torch.no_grad()
def test_the_given_state_is_not_changed(monkeypatch):
    record_graphs(monkeypatch)
    step, x = make_step(), torch.randn(B, 1, E)
    _, state = step(None, x)
    before, graph = [y.clone() for y in state], StepGraph(step)
    for _ in range(3):
        graph(state, x)
    assert_close([*state], before)


@torch.no_grad()
def test_another_batch_is_recorded_anew(monkeypatch):
    recorded = record_graphs(monkeypatch)
    step, state, x = make_step(), None, torch.randn(B, 1, E)
    graph = StepGraph(step)
    counts = []
    for rows in (2, 2, 2, 1, 1, 1):
        _, state = graph(state and state.reorder(torch.arange(rows)), x[:rows])
        counts.append((recorded.graphs, recorded.replays))
    assert counts == [(0, 0), (0, 0), (1, 1), (1, 1), (2, 2), (2, 3)]


@torch.no_grad()
def test_a_growing_state_is_not_recorded(monkeypatch):
    recorded = record_graphs(monkeypatch)
    graph, state = StepGraph(lambda state, x: (x, torch.cat([state, x]))), torch.zeros(1)
    for _ in range(4):
        _, state = graph(state, torch.ones(1))
    assert (recorded.graphs, state.tolist()) == (0, [0, 1, 1, 1, 1])


def test_a_number_that_is_read_is_an_error(monkeypatch):
    record_graphs(monkeypatch)
    graph = StepGraph(lambda state, x: (x if x.sum() > 0 else -x, state))
    state, x = torch.zeros(1), torch.ones(1)
    graph(state, x)
    with pytest.raises(RuntimeError):
        graph(state, x)


def test_tensors_that_move_within_a_state():
    old = [torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([3.0])]
    overwrite(old, [old[1], old[0], old[2]])
    assert torch.cat(old).tolist() == [2, 1, 3]


def test_copies_have_no_graph(monkeypatch):
    record_graphs(monkeypatch)
    step = make_step()
    graph = copy.deepcopy(StepGraph(step))
    assert graph._step is step


def test_recording_on_a_gpu(monkeypatch):
    """What is called, with a stand-in for torch.cuda."""
    cuda = {name: mock.MagicMock() for name in ("CUDAGraph", "Stream", "current_stream", "stream")}
    for name, stand_in in cuda.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    graph, x = cuda["CUDAGraph"].return_value, torch.ones(1)
    out, replay = step_graph.record(lambda: x + 1, [x])
    assert (out.item(), replay) == (2, graph.replay)
    names = [call[0] for call in graph.mock_calls]
    assert names == ["capture_begin", "capture_end"]
    with pytest.raises(ZeroDivisionError):
        step_graph.record(lambda: 1 / 0, [x])
    assert graph.capture_end.call_count == 2


def test_where_graphs_are_wanted(monkeypatch):
    x = torch.ones(1)
    assert os.environ.get("MEMATTN_GRAPHS") != "1"
    monkeypatch.setenv("MEMATTN_GRAPHS", "1")
    with torch.no_grad():
        assert not wants_graphs(x)
        record_graphs(monkeypatch)
        assert wants_graphs(x)
    assert not wants_graphs(x)
