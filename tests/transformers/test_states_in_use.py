"""States of decoding that are taken back, kept for other prompts, split and joined by rows."""

import copy

import pytest
import test_decoder_model
import torch
from full import others_in_full
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from fairseq_memattn.transformers.arguments import CACHE
from fairseq_memattn.transformers.cache import RECORDED, MemoryCache
from fairseq_memattn.transformers.prefix_store import PrefixStore

SINKS = {"control": "sinks", "slots": 8}
LOCAL = {"control": "local_mlp", "slots": 12}
CONTROLS = {
    "mixed": [SINKS, "softmax", LOCAL],
    "sinks": [SINKS],
    "local_mlp": [LOCAL],
    **{
        name: [{"control": name, "slots": 4}]
        for name in ("window", "gated", "mlp", "routed", "dilated", "strided", "clustering")
    },
    "softmax": ["softmax"],
}
EACH = pytest.mark.parametrize("name", others_in_full(CONTROLS, ["mixed"]))
GREEDY = {"max_new_tokens": 30, "do_sample": False}
tokens = test_decoder_model.tokens


def build(controls):
    return test_decoder_model.build(controls).double()


def read(model, ids, cache, **given):
    """The logits of further tokens."""
    return model(ids, **{CACHE: cache}, **given).logits


def start(model, ids=None, **given):
    """A cache, and the logits of the tokens that it has read."""
    cache = MemoryCache(model.config)
    return cache, None if ids is None else read(model, ids, cache, **given)


def assert_same_states(found, expected, **tolerance):
    assert_close(tree_leaves(found.state), tree_leaves(expected.state), **tolerance)
    assert found.get_seq_length() == expected.get_seq_length()


# --- Taking tokens back


@EACH
@torch.no_grad()
def test_searches_with_candidates_give_the_tokens_of_greedy_search(name):
    model, ids = build(CONTROLS[name]), tokens(1, 40)
    expected = model.generate(ids, **GREEDY)
    assistant = copy.deepcopy(model)
    for weight in assistant.parameters():  # so that it is right often, and not always
        weight.add_(0.01 * torch.randn_like(weight))
    calls = []
    model.register_forward_hook(lambda *given: calls.append(0))
    for options in ({"prompt_lookup_num_tokens": 5}, {"assistant_model": assistant}):
        calls.clear()
        assert torch.equal(model.generate(ids, **GREEDY, **options), expected)
    assert 2 < len(calls) < 20
    cache, _ = start(model, ids[:, :20])
    for _ in range(2):
        assert torch.equal(model.generate(ids, **{CACHE: cache}, **GREEDY, **options), expected)
        ids, expected = expected, model.generate(expected, **GREEDY)
    assert not cache.records


@EACH
@torch.no_grad()
def test_states_are_those_before(name):
    model, ids = build(CONTROLS[name]), tokens(2, 40)
    cache, _ = start(model, ids[:, :11])
    cache.activate_past_recording()
    old = copy.deepcopy(cache)
    for token in ids[:, 11:15].split(1, dim=1):
        read(model, token, cache)
    cache.crop(-4)
    assert_same_states(cache, old, rtol=0, atol=0)  # whole steps are taken back exactly
    read(model, ids[:, 11:20], cache)
    read(model, ids[:, 20:21], cache)
    cache.crop(-6)
    assert_same_states(cache, start(model, ids[:, :15])[0])
    read(model, ids[:, 15:25], cache)
    cache.crop(19)
    expected = start(model, ids)[1]
    assert_close(read(model, ids[:, 19:], cache), expected[:, 19:])


@EACH
@torch.no_grad()
def test_padding_that_is_taken_back(name):
    model, ids = build(CONTROLS[name]), tokens(2, 20)
    mask = torch.ones_like(ids)
    mask[0, :6] = mask[1, 17:] = 0
    cache, _ = start(model)
    cache.activate_past_recording()
    read(model, ids[:, :9], cache, attention_mask=mask[:, :9])
    read(model, ids[:, 9:], cache, attention_mask=mask)
    cache.crop(-5)
    assert cache.read.tolist() == [9, 15]
    old, _ = start(model, ids[:, :9], attention_mask=mask[:, :9])
    read(model, ids[:, 9:15], old, attention_mask=mask[:, :15])
    assert_same_states(cache, old)


@torch.no_grad()
def test_what_cannot_be_taken_back():
    model, ids = build(CONTROLS["mixed"]), tokens(1, RECORDED + 30)
    cache, _ = start(model, ids[:, :20])
    with pytest.raises(ValueError, match="must be at most the 0 last tokens, .* but is 1"):
        cache.crop(-1)
    cache, _ = start(model)
    cache.activate_past_recording()
    read(model, ids, cache)
    assert cache.layers[0].croppable() == RECORDED
    read(model, ids[:, :9], cache)
    assert cache.layers[0].croppable() == 9 + RECORDED
    for _ in range(3):
        read(model, ids[:, :RECORDED], cache)
    assert cache.layers[0].croppable() == RECORDED
    cache.reorder_cache(torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="must be at most the 0 last tokens"):
        cache.crop(-1)
    with pytest.raises(ValueError, match="requires `use_cache=True`"):
        model.generate(ids[:, :9], use_cache=False, prompt_lookup_num_tokens=3)


# --- States of prompts


@EACH
@torch.no_grad()
def test_a_prompt_continues_from_its_longest_known_prefix(name, tmp_path):
    model, ids = build(CONTROLS[name]), tokens(1, 60)
    other = torch.cat([ids[:, :45], ids[:, :15]], dim=1)
    cold = PrefixStore(model).prefill(other, piece=8)
    store = PrefixStore(model)
    assert store.find(ids).get_seq_length() == 0
    assert store.prefill(ids, piece=8).get_seq_length() == 56
    store.save(tmp_path / "store.pt")
    loaded = PrefixStore(model)
    loaded.load(tmp_path / "store.pt")
    assert len(loaded) == len(store) == 7 and loaded.nbytes == store.nbytes
    expected = read(model, other[:, 56:], copy.deepcopy(cold))
    for known in (store, loaded):
        assert known.find(other).get_seq_length() == 40
        warm = known.prefill(other, piece=8)
        assert_same_states(warm, cold, rtol=0, atol=0)
        assert torch.equal(read(model, other[:, 56:], copy.deepcopy(warm)), expected)
    searched = model.generate(other, **{CACHE: warm}, **GREEDY)
    assert torch.equal(searched, model.generate(other, **GREEDY))
    store.keep(searched[:, :-1], warm)
    assert store.find(searched).get_seq_length() == searched.shape[1] - 1


@torch.no_grad()
def test_least_recently_used_states_go():
    model, ids = build([SINKS]), tokens(3, 9)
    caches = [start(model, row)[0] for row in ids.split(1)]
    store = PrefixStore(model, max_bytes=2 * caches[0].nbytes())
    whole = torch.nn.functional.pad(ids, (0, 1)).split(1)
    for row, cache in zip(ids[:2].split(1), caches, strict=False):
        store.keep(row, cache)
    assert store.find(whole[0]).get_seq_length() == 9
    store.keep(ids[2:], caches[2])
    assert [store.find(row).get_seq_length() for row in whole] == [9, 0, 9]
    assert store.nbytes == store.max_bytes
    assert store.find(ids[2:]).get_seq_length() == 0  # a search needs a token to read


@torch.no_grad()
def test_states_that_are_not_those_of_the_tokens(tmp_path):
    model, ids = build([SINKS]), tokens(1, 9)
    store = PrefixStore(model)
    with pytest.raises(ValueError, match=r"must have read the 9 tokens .* rows have read \[8\]"):
        store.keep(ids, start(model, ids[:, :8])[0])
    store.save(tmp_path / "store.pt")
    model.lm_head.weight[0] += 1
    with pytest.raises(ValueError, match="store.pt are those of a model with other weights"):
        PrefixStore(model).load(tmp_path / "store.pt")


# --- Caches of fixed size, compiled steps, prompts in pieces


@pytest.mark.full
@pytest.mark.parametrize("name", ["mixed", "window", "gated", "mlp", "routed"])
@torch.no_grad()
def test_a_compiled_step_is_the_step(name):
    model, ids = build(CONTROLS[name]), tokens(1, 21)
    torch.compiler.reset()
    step = torch.compile(model, fullgraph=True, backend="eager")
    cache, _ = start(model, ids[:, :12])
    compiled = copy.deepcopy(cache)
    for token in ids[:, 12:].split(1, dim=1):
        assert torch.equal(read(step, token, compiled), read(model, token, cache))
    assert_same_states(compiled, cache, rtol=0, atol=0)


@torch.no_grad()
def test_caches_of_fixed_size():
    model, ids = build([SINKS, LOCAL]), tokens()
    expected = model.generate(ids, **GREEDY)
    assert torch.equal(model.generate(ids, **GREEDY, cache_implementation="static"), expected)
    with pytest.raises(ValueError, match="`cache_implementation` must be left out.*'quantized'"):
        model.generate(ids, **GREEDY, cache_implementation="quantized")
    with pytest.raises(ValueError, match="softmax attention one that grows, but is 'static'"):
        build(CONTROLS["mixed"]).generate(ids, **GREEDY, cache_implementation="static")


@EACH
@torch.no_grad()
def test_a_prompt_in_pieces_is_the_whole_prompt(name):
    model, ids = build(CONTROLS[name]), tokens(2, 30)
    mask = torch.ones_like(ids)
    mask[1, :9] = 0
    given = {"attention_mask": mask, **GREEDY, "return_dict_in_generate": True}
    expected = model.generate(ids, **given)
    found = model.generate(ids, **given, prefill_chunk_size=7)
    assert torch.equal(found.sequences, expected.sequences)
    assert_same_states(getattr(found, CACHE, found.past_key_values), expected.past_key_values)


# --- Rows that enter and leave a batch


@EACH
@torch.no_grad()
def test_rows_that_enter_and_leave_are_as_alone(name):
    model, ids = build(CONTROLS[name]), tokens(3, 40)
    alone = start(model, ids)[1]
    first, _ = start(model, ids[:1, :23])
    second, _ = start(model, ids[1:2, :9])
    both = MemoryCache.concatenate([first, second])
    for at in range(5):
        found = read(model, torch.stack([ids[0, 23 + at], ids[1, 9 + at]])[:, None], both)
        assert_close(found[:, 0], torch.stack([alone[0, 23 + at], alone[1, 9 + at]]))
    left = both.rows(torch.tensor([1]))
    assert left.get_seq_length() == 14 and both.get_seq_length() == 28
    assert_close(read(model, ids[1:2, 14:17], copy.deepcopy(left)), alone[1:2, 14:17])
    third, _ = start(model, ids[2:, :30])
    three = MemoryCache.concatenate([left, both.rows(torch.tensor([0])), third])
    starts = torch.tensor([14, 28, 30])
    for at in range(4):
        rows = torch.tensor([1, 0, 2]), starts + at
        assert_close(read(model, ids[rows][:, None], three)[:, 0], alone[rows])
    last = three.rows(torch.tensor([0]))
    assert_same_states(last, start(model, ids[1:2, :18])[0])
    assert last.rows(torch.tensor([], dtype=torch.long)).get_seq_length() == 0


@torch.no_grad()
def test_empty_caches_have_no_rows():
    model = build([SINKS])
    with pytest.raises(ValueError, match="`caches` must have read a token each, but one is empty"):
        MemoryCache.concatenate([start(model, tokens())[0], MemoryCache(model.config)])
