"""T5Mem against the equations written out, and what must not change its output."""

import pytest
import torch
from torch.nn.functional import pad
from torch.testing import assert_close

from fairseq_memattn.attention.ops.memory_slots import naive as reference
from fairseq_memattn.attention.ops.mixture import naive as mixture_reference
from fairseq_memattn.networks import T5, T5Mem, T5MemSizes, T5Sizes, join_sequences
from fairseq_memattn.networks.t5mem import T5MemSelector
from fairseq_memattn.networks.t5mem_encoder import SELECTOR_BIASES, SEQUENCE_POSITIONS

PAD, SEPARATOR, SYMBOLS = 1, 7, 16
TINY = {"vocab_size": SYMBOLS, "embed_dim": 8, "ffn_dim": 12, "heads": 2, "head_dim": 4}
DESIGNS: dict[str, dict] = {
    "one projection": {"separate_slot_output": False},
    "one feed-forward layer": {"separate_slot_ffn": False},
    "by layer": {"selector_query": "layer"},
    "no order": {"sequence_positions": "none", "selector_bias": "none", "selector_query": "layer"},
    "slots alone": {"selector": False},
    "slots alone, without attention to slots": {"selector": False, "mem_attention": False},
}
WITH_SELECTOR = [name for name, design in DESIGNS.items() if design.get("selector", True)]
each_design = pytest.mark.parametrize("name", DESIGNS)
each_with_selector = pytest.mark.parametrize("name", WITH_SELECTOR)


def build(name, **sizes):
    """A model of random weights in float64, norms and biases included."""
    torch.manual_seed(3)
    options = TINY | {"dropout": 0.0, "separator": SEPARATOR} | DESIGNS[name] | sizes
    model = T5Mem(T5MemSizes(**options), share_embeddings=False).double().eval()
    for weights in model.parameters():
        if weights.dim() == 1:
            torch.nn.init.normal_(weights, 1.0, 0.3)
    return model


def batch():
    """Two inputs of three sequences, of which the second lacks the first one.

    The first target has the translations of all three, the second of the last alone.
    """
    torch.manual_seed(0)
    sequences = torch.randint(8, SYMBOLS, (2, 3, 6))
    for row, lengths in enumerate([(4, 6, 5), (0, 3, 3)]):
        for number, length in enumerate(lengths):
            sequences[row, number, length:] = PAD
    target = torch.randint(8, SYMBOLS, (2, 6))
    target[0, 2] = target[0, 4] = SEPARATOR
    return sequences, target, torch.tensor([2, 0])


@torch.no_grad()
def logits(model, sequences, target, target_context=None, **options):
    return model(sequences, target, target_context=target_context, **options)


class Literal:
    """A T5Mem's forward pass, position by position, from its weights."""

    def __init__(self, model):
        self.model, self.slots = model, model.encoder.sizes.slots

    def heads(self, linear, x):
        return linear(x).unflatten(-1, (2, -1)).transpose(-3, -2)

    def bias(self, count, length):
        """(K, H, M + S, K M + S), equation 8."""
        table, slots = self.model.encoder.position_bias.table, self.slots
        bias = torch.zeros(count, 2, slots + length, count * slots + length)
        for i in range(count):
            for query in range(slots + length):
                for column in range(count * slots + length):
                    distance = reference.slot_distance(i, query, column, count, slots)
                    row = 32 if distance is None else reference.bucket(distance, True, 32, 128)
                    bias[i, :, query, column] = table[row]
        return bias

    def encode(self, tokens):
        encoder, slots = self.model.encoder, self.slots
        padding = tokens.eq(PAD)
        batch, count, length = tokens.shape
        rows = []
        for b in range(batch):
            for i in range(count):
                slot = encoder.slot_tokens
                if encoder.distances is not None:
                    slot = slot + encoder.distances[count - 1 - i]
                rows.append(torch.cat([slot, encoder.embed_tokens(tokens[b, i])]))
        x = torch.stack(rows).view(batch, count, slots + length, -1)
        for layer in encoder.layers:
            x = self.encoder_layer(layer, x, self.bias(count, length), padding)
        x = encoder.final_norm(x)
        return x[:, :, slots:], x[:, :, :slots], padding

    def encoder_layer(self, layer, x, bias, padding):
        frame, slots = layer.attention, self.slots
        normed, block = frame.norm(x), frame.block
        q = self.heads(block.q_proj, normed)
        q[..., :slots, :] = self.heads(block.slot_q_proj, normed)[..., :slots, :]
        k, v = self.heads(block.k_proj, normed), self.heads(block.v_proj, normed)
        out = reference.mem_attention(q, k, v, slots=slots, bias=bias, key_padding_mask=padding)
        out = out.transpose(2, 3).flatten(3)
        projected = block.out_proj(out)
        if block.slot_out_proj is not None:
            projected[:, :, :slots] = block.slot_out_proj(out)[:, :, :slots]
        x = x + projected
        fed = layer.ffn.of_tokens(x)
        if layer.ffn.of_slots is not None:
            fed[:, :, :slots] = layer.ffn.of_slots(x)[:, :, :slots]
        return fed

    def written(self, fed, target_context, count):
        """(B, T, K), the bias by how far a sequence is before the one that is being written."""
        table, rows = self.model.decoder.selector.distance_bias, []
        if table is None:
            return None
        for row, ahead in zip(fed.tolist(), target_context.tolist(), strict=True):
            for token in row:
                ahead -= token == SEPARATOR
                before = [count - 1 - i - max(ahead, 0) for i in range(count)]
                rows.append([table[max(7 + distance, 0)] for distance in before])
        return torch.tensor(rows).double().view(*fed.shape, count)

    def decode(self, fed, target_context, sequences, slots, padding):
        decoder = self.model.decoder
        selector = decoder.selector
        written = self.written(fed, target_context, padding.shape[1])
        embedded = decoder.embed_tokens(fed)
        sentences = selector.sentence_proj(sequences)
        bias, x = decoder.position_bias(fed.shape[1]), embedded
        for layer in decoder.layers:
            x, _ = layer.attention(x, bias)
            frame = layer.cross_attention
            normed, block = frame.norm(x), frame.block
            query = normed if selector.by_layer else embedded
            selection = mixture_reference.select_sequences(
                selector.q_proj(query),
                selector.k_proj(slots).flatten(2),
                padding.all(dim=2),
                bias=written,
            )
            w_key, w_value = (
                f.weight.unflatten(0, (2, -1)).transpose(1, 2) for f in (block.k_proj, block.v_proj)
            )
            out = mixture_reference.mixture_attention(
                self.heads(block.q_proj, normed),
                sentences,
                w_key,
                w_value,
                selection,
                key_padding_mask=padding,
            )
            x = layer.ffn(x + block.join(out))
        return decoder.logits(decoder.final_norm(x))

    def __call__(self, sequences, target, target_context):
        with torch.no_grad():
            return self.decode(target, target_context, *self.encode(sequences))


@pytest.mark.parametrize("slots", [1, 2])
@each_with_selector
def test_the_equations_written_out(name, slots):
    model = build(name, slots=slots)
    assert_close(logits(model, *batch()), Literal(model)(*batch()), rtol=0, atol=1e-9)


@each_design
def test_gradients_reach_every_weight(name):
    model, (sequences, target, before) = build(name, sequences=3).train(), batch()
    model(sequences, target, target_context=before).square().sum().backward()
    assert all(weights.grad is not None for weights in model.parameters())
    unused = [n for n, weights in model.named_parameters() if not weights.grad.any()]
    if name in WITH_SELECTOR:
        assert unused == []
    else:  # What the last layer makes of the tokens is read by nobody.
        assert all(part.startswith("encoder.layers.1.") for part in unused)


# --- Sequences


@each_design
def test_padding_and_absent_sequences_change_nothing(name):
    model, (sequences, *rest) = build(name), batch()
    expected = logits(model, sequences, *rest)
    assert_close(logits(model, pad(sequences, (0, 2, 2, 0), value=PAD), *rest), expected)
    padding = sequences.eq(PAD)
    hidden = sequences.masked_fill(padding, 9)
    assert_close(logits(model, hidden, *rest, key_padding_mask=padding), expected)
    alone = logits(model, sequences[1:, 1:], *(x[1:] for x in rest))
    assert_close(alone, expected[1:])


@pytest.mark.parametrize("positions", SEQUENCE_POSITIONS)
@pytest.mark.parametrize("bias", SELECTOR_BIASES)
def test_without_positions_and_bias_the_order_of_sequences_has_no_effect(positions, bias):
    options = {"sequence_positions": positions, "selector_bias": bias}
    model, (sequences, *rest) = build("one projection", **options), batch()
    difference = logits(model, sequences[:, [2, 0, 1]], *rest) - logits(model, sequences, *rest)
    assert (difference.abs().max() < 1e-9) == (positions == bias == "none")


def test_joined_sequences_have_padding_on_the_right():
    current, context = torch.tensor([[PAD, 8, 9]]), torch.tensor([[[PAD, PAD], [5, PAD]]])
    tokens, padding = join_sequences(current, context, current.eq(PAD), context.eq(PAD), PAD)
    assert tokens.tolist() == [[[PAD] * 3, [5, PAD, PAD], [8, 9, PAD]]]
    assert torch.equal(padding, tokens.eq(PAD))
    assert join_sequences(current, None, current.eq(PAD), None, PAD)[0].tolist() == [[[8, 9, PAD]]]


@each_design
def test_slots_do_not_collapse(name):
    """Tokens of a slot differ, before training and after some; copies would remain copies."""
    model, (sequences, target, before) = build(name).train(), batch()
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(10):
        optimiser.zero_grad()
        model(sequences, target, target_context=before).square().mean().backward()
        optimiser.step()
    assert slot_distance(model) > 0.3
    with torch.no_grad():
        model.encoder.slot_tokens[1] = model.encoder.slot_tokens[0]
    if model.encoder.sizes.mem_attention:
        # Their positions differ, but nothing else does.
        model.encoder.position_bias.table.data.zero_()
    assert slot_distance(model) < 1e-6


@torch.no_grad()
def slot_distance(model):
    """The smallest between the two tokens of a slot, in units of their size."""
    first, second = model.encoder(batch()[0]).slots.unbind(2)
    apart = (first - second).norm(dim=-1) / first.norm(dim=-1)
    return float(apart[[0, 0, 0, 1, 1], [0, 1, 2, 1, 2]].min())


# --- The selector


@each_with_selector
def test_selection_is_reported(name):
    model, (sequences, target, before) = build(name), batch()
    with torch.no_grad():
        selection = model.decoder(target, model.encoder(sequences), before).weights
    by_layer = model.decoder.selector.by_layer
    assert len(selection) == (2 if by_layer else 1)
    for weights in selection:
        assert weights.shape == (2, 6, 3)
        assert_close(weights.sum(dim=2), torch.ones_like(weights[..., 0]))
        assert weights[1, :, 0].count_nonzero() == 0
    if by_layer:
        assert (selection[0] - selection[1]).abs().max() > 1e-3


def test_selection_begins_at_what_is_being_written_and_is_not_saturated():
    torch.manual_seed(0)
    selector = T5MemSelector(T5MemSizes(embed_dim=64, slots=4))
    query, slots = (torch.randn(1, *shape, 64) for shape in [(4000,), (3, 4)])
    padding, ahead = torch.zeros(1, 3, 5, dtype=torch.bool), torch.zeros(1, 4000, dtype=torch.long)
    ahead[0, :3] = torch.tensor([9, 2, 1])  # 9: of a target context longer than the source's
    with torch.no_grad():
        rest = (selector.write(slots, padding), selector.bias(3, ahead))
        whatever = selector.select(torch.zeros_like(query), *rest)
        weights = selector.select(query, *rest)[:, 3:]
    expected = torch.tensor([[1 / 3] * 3, [0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]])
    assert_close(whatever[0, :4], expected)
    odds = weights.log().diff(dim=2)  # of two logits
    assert 0.7 < float(odds.std(dim=1).mean()) / 2**0.5 < 1.4


# --- Decoding


@torch.no_grad()
@pytest.mark.parametrize("name", [*DESIGNS, "t5"])
def test_steps_are_the_forward_pass(name):
    """With hypotheses that change places on the way, and several tokens in a step."""
    sequences, target, before = batch()
    if name == "t5":
        model, sequences = T5(T5Sizes(**TINY)).double().eval(), sequences[:, 2]
    else:
        model = build(name)
    order = torch.tensor([1, 0, 0])
    options = {"target_context": before}
    expected = model(sequences[order], target[order], target_context=before[order])
    state, found = model.start(sequences, **options), []
    for start, end in ((0, 3), (3, 4), (4, 6)):
        tokens = target[:, start:end] if start < 4 else target[order, start:end]
        if start == 4:
            state = state.reorder(order)
            found = [step[order] for step in found]
        step, state = model.step(tokens, state)
        found.append(step)
    assert state.length == 6
    assert_close(torch.cat(found, dim=1), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@each_design
def test_half_precision(name, dtype):
    model = build(name, embed_dim=16, head_dim=8)
    expected = logits(model, *batch())
    actual = logits(model.to(dtype), *batch())
    assert actual.dtype == dtype
    error = (actual.double() - expected).norm() / expected.norm()
    assert error < 12 * torch.finfo(dtype).eps


def test_refusals():
    with pytest.raises(ValueError, match="`selector_query` must be one of embedding, layer, but"):
        T5MemSizes(selector_query="word")
    with pytest.raises(ValueError, match="`selector_bias` must be one of distance, none, but is 0"):
        T5MemSizes(selector_bias=0)
    with pytest.raises(ValueError, match="`slots` must be at least 1, but is 0"):
        T5MemSizes(slots=0)
    with pytest.raises(ValueError, match="`share_embeddings` needs `vocab_size` and"):
        T5(T5Sizes(**TINY), T5Sizes(**TINY | {"vocab_size": 20}))
    with pytest.raises(ValueError, match="at most `sequences` 2 sequences, but has 3"):
        logits(build("by layer", sequences=2), *batch())
