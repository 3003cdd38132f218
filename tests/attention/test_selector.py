"""The selector and its cross attention against the definition, in which every mixture is built."""

from dataclasses import KW_ONLY, dataclass
from functools import cache

import cases
import pytest
import torch
from cases import (
    PADS_OF_SEQUENCES,
    TOLERANCE,
    Inputs,
    any_padding_of_sequences,
    assert_all_close,
    draw,
    nbytes,
    padding,
    run,
    saved_for_backward,
)
from pairwise import pairwise
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close

from fairseq_memattn.attention import (
    MixtureState,
    SelectorState,
    mixture_attention,
    mixture_read,
    mixture_write,
    select_sequences,
)
from fairseq_memattn.attention.ops.mixture import naive as reference


@dataclass(frozen=True)
class Case(cases.Case):
    """length: of the target; source: of every sequence."""

    length: int = 4
    _: KW_ONLY
    source: int = 5
    sequences: int = 3
    slots: int = 2
    width: int = 3


def inputs(case):
    """The decoder's queries and states, and the encoder's, with E = 6."""
    return draw(
        case.source,
        query=(case.batch, case.length, case.slots * 6),
        key=(case.batch, case.sequences, case.slots * 6),
        q=(case.batch, case.heads, case.length, case.width),
        states=(case.batch, case.sequences, case.source, 6),
        w_key=(case.heads, 6, case.width),
        w_value=(case.heads, 6, case.width),
    )


def double(case, device):
    return inputs(case).to(device, torch.float64)


def absent(mask):
    return None if mask is None else mask.all(dim=2)


def project(states, weight):
    return torch.einsum("bkse,hed->bkhsd", states, weight)


def fast(mask, scale=1.0):
    def attend(query, key, q, states, w_key, w_value):
        selection = select_sequences(query, key, absent(mask), scale)
        k, v = project(states, w_key), project(states, w_value)
        return mixture_attention(q, k, v, selection, key_padding_mask=mask, scale=scale)

    return attend


def literal(mask, scale=1.0):
    def attend(query, key, q, states, w_key, w_value):
        selection = reference.select_sequences(query, key, absent(mask), scale)
        return reference.mixture_attention(
            q, states, w_key, w_value, selection, key_padding_mask=mask, scale=scale
        )

    return attend


@cache
def oracle(case, scale):
    return run(literal(padding(case), scale), inputs(case).leaves(torch.float64, "cpu"))


def assert_matches_the_oracle(case, dtype, device, scale=1.0):
    actual = run(fast(padding(case, device), scale), inputs(case).leaves(dtype, device))
    assert_all_close(actual, oracle(case, scale), TOLERANCE[dtype])


@pairwise(source=[4, 7], slots=[1, 3], pad=PADS_OF_SEQUENCES, dtype=TOLERANCE)
def test_equations_3_to_5(source, slots, pad, dtype, device):
    assert_matches_the_oracle(Case(pad=pad, slots=slots, source=source), dtype, device)


@pairwise(
    case=[Case(sequences=1), Case(1), Case(source=1), Case(9, sequences=5, slots=1, source=3)],
    scale=[1.0, 0.5],
)
def test_other_sizes(scale, case, device):
    assert_matches_the_oracle(case, torch.float64, device, scale)


def written(case, device):
    """A selection, queries, keys and values, and the mask."""
    args, mask = double(case, device), padding(case, device)
    selection = select_sequences(args.query, args.key, absent(mask))
    k, v = project(args.states, args.w_key), project(args.states, args.w_value)
    return selection, args.q, k, v, mask


# --- Equation 3


@any_padding_of_sequences
def test_a_bias_is_a_prior(pad, device):
    """Its exponential multiplies what would be selected; the oracle says the same."""
    args, mask = double(Case(pad=pad), device), padding(Case(pad=pad), device)
    shape = (len(args.query), args.query.shape[1], args.key.shape[1])
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(5)).double().to(device)
    actual = select_sequences(args.query, args.key, absent(mask), bias=bias)
    prior = bias.exp() * select_sequences(args.query, args.key, absent(mask))
    assert_close(actual, prior / prior.sum(dim=2, keepdim=True).clamp(min=1e-300))
    cpu = (args.query.cpu(), args.key.cpu(), absent(padding(Case(pad=pad))))
    assert_close(actual.cpu(), reference.select_sequences(*cpu, bias=bias.cpu()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_selection_is_in_float32(dtype, device):
    args = inputs(Case()).to(device, dtype)
    expected = select_sequences(args.query.float(), args.key.float())
    assert torch.equal(select_sequences(args.query, args.key), expected)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert torch.equal(select_sequences(args.query, args.key), expected)


# --- Equations 4 and 5


def test_a_selection_of_a_short_sequence_is_attention_to_it(device):
    """Longer sequences, which nearly nothing is selected of, do not compete beyond its end."""
    case = Case(pad="right")
    selection, q, k, v, mask = written(case, device)
    mask[:, 0, 2:] = True
    nearly = torch.full_like(selection, 1e-9)
    nearly[:, :, 0] = 1 - 2e-9
    expected = scaled_dot_product_attention(q, k[:, 0, :, :2], v[:, 0, :, :2], scale=1.0)
    actual = mixture_attention(q, k, v, nearly, key_padding_mask=mask)
    assert_close(actual, expected, rtol=0, atol=1e-6)
    nearly[:, :, 0], nearly[:, :, 1:] = 1, 0
    assert_close(mixture_attention(q, k, v, nearly, key_padding_mask=mask), expected)


@any_padding_of_sequences
def test_step_by_step_from_what_was_written_once(pad, device):
    selection, q, k, v, mask = written(Case(pad=pad), device)
    expected = mixture_attention(q, k, v, selection, key_padding_mask=mask)
    state = mixture_write(k, v, mask)
    steps = [
        mixture_read(q[:, :, t : t + 1], selection[:, t : t + 1], state) for t in range(q.shape[2])
    ]
    assert_close(torch.cat(steps, dim=2), expected)


def test_the_state_can_be_reordered(device):
    selection, q, k, v, mask = written(Case(pad="absent"), device)
    order = torch.tensor([1, 0, 1], device=device)
    expected = mixture_attention(q, k, v, selection, key_padding_mask=mask)[order]
    state = mixture_write(k, v, mask).reorder(order)
    assert isinstance(state, MixtureState)
    assert_close(mixture_read(q[order], selection[order], state), expected)
    args = double(Case(pad="absent"), device)
    slots = SelectorState(args.key, absent(mask)).reorder(order)
    assert_close(select_sequences(args.query[order], *slots), selection[order])


# --- Numbers


@pairwise(dtype=[torch.bfloat16, torch.float16], pad=["none", "absent", "nothing"])
def test_half_precision(pad, dtype, device):
    selection, q, k, v, mask = written(Case(pad=pad), device)
    leaves = Inputs(q=q, k=k, v=v).leaves(dtype, device)
    selection = selection.float().requires_grad_()

    def attend(selection, q, k, v):
        return mixture_attention(q, k, v, selection, key_padding_mask=mask)

    given = Inputs(selection=selection, **vars(leaves))
    actual, *gradients = run(attend, given).values()
    assert actual.dtype == dtype
    assert all(gradient.isfinite().all() for gradient in gradients)
    expected = attend(*given.to(torch.float32))
    assert_close(actual.float(), expected, rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_logits_beyond_the_range_of_half_precision(device):
    selection, q, k, v, _ = written(Case(), device)
    q, k, v = ((200 * x).to(torch.float16) for x in (q, k, v))
    assert torch.einsum("bhtd,bkhsd->bktshd", q.float(), k.float()).sum(dim=-1).max() > 65504
    assert mixture_attention(q, k, v, selection).isfinite().all()


def test_dropout_of_the_weights(device):
    """With unit vectors for values, what comes out is the weights."""
    selection, q, k, _, _ = written(Case(source=5, width=5), device)
    v = torch.eye(5, dtype=k.dtype, device=device).expand_as(k)
    weights = mixture_attention(q, k, v, selection)
    assert_close(weights.sum(dim=3), torch.ones_like(weights[..., 0]))
    torch.manual_seed(0)
    dropped = mixture_attention(q, k, v, selection, dropout=0.5)
    kept = dropped != 0
    assert 0.3 < kept.double().mean() < 0.7
    assert_close(dropped, 2 * weights * kept)


def test_no_mixture_is_built(device):
    """Z takes T S E numbers; the largest tensor here is one of K T E."""
    case = Case(50, source=50, sequences=2, slots=1, batch=1, width=8)
    saved = saved_for_backward(fast(None), inputs(case).leaves(torch.float32, device))
    assert max(map(nbytes, saved)) < 4 * 50 * 50 * 2 * 8 / 4


@pytest.mark.parametrize("level", [0, -90, -300])
def test_a_sequence_that_is_not_selected_is_hidden(level, device):
    """However low the logits of the one that is, which T5 does not scale."""
    q = torch.full((1, 1, 1, 2), float(level), device=device)
    k = torch.ones(1, 2, 1, 5, 2, device=device)
    mask = torch.zeros(1, 2, 5, dtype=torch.bool, device=device)
    mask[:, 0, 2:] = True
    v = torch.randn(k.shape, device=device)
    selection = torch.tensor([[[1.0, 0.0]]], device=device)
    both = mixture_attention(q, k, v, selection, key_padding_mask=mask)
    alone = mixture_attention(
        q, k[:, :1], v[:, :1], selection[..., :1], key_padding_mask=mask[:, :1]
    )
    assert_close(both, alone)
