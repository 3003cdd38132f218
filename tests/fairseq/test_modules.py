"""The models with random weights: every way through them gives the same numbers."""

import re
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from corpora import numbered_words
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.transformer_lm import base_lm_architecture
from fairseq.sequence_generator import SequenceGenerator
from full import full

from fairseq_memattn.attention.controls import CONTROLS, KERNEL_ATTENTION, Sizes, make_control
from fairseq_memattn.attention.nn.control_pool import ForwardScope, LayerControl
from fairseq_memattn.modules.abc_attention import ABCAttention

TINY = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in (
        ("layers", 2),
        ("embed_dim", 16),
        ("ffn_embed_dim", 32),
        ("attention_heads", 2),
    )
}
# Controls that need options for sentences as short as these.
SPECIAL = {
    "compressive": {"abc_max_length": 12},
    "global": {"abc_stride": 4},
    "local_global": {"abc_global_positions": "1"},
}
VARIANTS = [
    {"abc_cross_slots": 0},
    {"abc_causal_slots": 0},
    {},
    {"abc_encoder_slots": 3},
    {"abc_activation": "sigmoid"},
    {"abc_activation": "relu"},
    {"abc_phi_heads": "shared"},
    {"abc_phi_layers": "separate"},
    {"abc_causal_layers": "window:2,softmax"},
    {"abc_causal_layers": "mlp,rfa:4"},
    {"encoder_embed_dim": 24},
    {"decoder_normalize_before": True},
    *({"control": name, "abc_causal_slots": 4, "abc_cross_slots": 6} for name in KERNEL_ATTENTION),
    {"control": "rfa", "abc_causal_slots": 4, "abc_cross_slots": 6, "abc_rfa_gate": True},
    *({"control": name} | options for name, options in SPECIAL.items()),
    *(
        {"control": name}
        for name in CONTROLS
        if name not in ("mlp", "compressive", "global", "local_global")
    ),
]


def variants(*left_out):
    kept = [variant for variant in VARIANTS if not variant.keys() & set(left_out)]
    names = ["-".join(f"{k}={v}" for k, v in variant.items()) or "plain" for variant in kept]
    return pytest.mark.parametrize("options", kept, ids=names)


WORDS = numbered_words(26)
PAD, EOS = WORDS.pad(), WORDS.eos()


def build(arch, words=WORDS, **options):
    args = Namespace(arch=arch, max_target_positions=64, **options)
    defaults = base_lm_architecture if arch == "transformer_lm" else ARCH_CONFIG_REGISTRY[arch]
    defaults(args)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    torch.manual_seed(1)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)


def translator(**options):
    sizes = {"abc_cross_slots": 5, "abc_causal_slots": 3, **TINY}
    control = options.pop("control", "mlp")
    if control == "workspace":
        sizes["abc_causal_slots"] = 0
    arch = f"{'' if control in KERNEL_ATTENTION else 'abc_'}{control}_transformer"
    return build(arch, **{**sizes, **options}).eval()


def language_model(**options):
    sizes = {key: value for key, value in TINY.items() if key.startswith("decoder")}
    control = options.pop("control", "mlp")
    arch = f"{'' if control in KERNEL_ATTENTION else 'abc_'}{control}_transformer_lm"
    return build(arch, **{**sizes, "abc_causal_slots": 3, **options}).eval()


def sentences(*lengths, left_pad, width=None, seed=1):
    """(B, longest or width) of random words, each sentence ended and padded."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.full((len(lengths), width or max(lengths)), PAD)
    for row, length in zip(rows, lengths, strict=True):
        words = torch.randint(4, len(WORDS), (length,), generator=generator)
        words[-1] = EOS
        where = slice(len(row) - length, None) if left_pad else slice(length)
        row[where] = words
    return rows


def source(lengths=(7, 4, 5)):
    return sentences(*lengths, left_pad=True)


def prefix(rows=3, length=9):
    """(rows, length) of what a decoder has said so far."""
    tokens = sentences(*[length] * rows, left_pad=False, seed=2)
    return torch.cat([torch.full((rows, 1), EOS), tokens[:, :-1]], dim=1)


def encode(model, src):
    return model.encoder(src, src.ne(PAD).sum(1))


def step_by_step(decoder, tokens, encoder_out=None, state=None, start=0):
    """Logits of the positions from `start`, each from one incremental call."""
    state = {} if state is None else state
    steps = [
        decoder(tokens[:, : end + 1], encoder_out=encoder_out, incremental_state=state)[0]
        for end in range(start, tokens.shape[1])
    ]
    return torch.cat(steps, dim=1), state


def set_beam_size(model, size):
    for module in model.modules():
        if hasattr(module, "set_beam_size"):
            module.set_beam_size(size)


def attentions(model, kind):
    return [getattr(layer, kind) for layer in model.decoder.layers]


@pytest.fixture(autouse=True)
def no_gradients(request):
    with torch.set_grad_enabled("gradients" in request.fixturenames):
        yield


@pytest.fixture
def gradients():
    """For tests that train."""


# ---------------------------------------------------------------------------------- decoding


def test_every_control_is_a_variant():
    assert {"mlp"} | {v["control"] for v in VARIANTS if "control" in v} == (
        CONTROLS.keys() | KERNEL_ATTENTION.keys()
    )


def test_lengths_that_a_control_cannot_tell_apart_are_the_model_s_limit():
    limits = {"abc_max_length": 12, "max_source_positions": 40}
    assert translator(control="linformer", **limits).max_positions() == (12, 12)
    model = translator(control="global", abc_stride=4, **limits)
    assert model.max_positions() == (20, 12)
    model = translator(control="global", abc_causal_slots=0, abc_stride=2, **limits)
    assert model.max_positions() == (10, 64)
    assert translator(**limits).max_positions() == (40, 64)
    assert language_model(control="global", abc_stride=5).max_positions() == 15


@pytest.mark.parametrize("control", ["global", "local_global"])
def test_global_tokens_cover_the_model_s_positions_unless_a_checkpoint_says_otherwise(control):
    """Those of version 1.0 have a stride of 2."""
    model = translator(control=control, max_source_positions=40)
    assert model.max_positions() == (40, 64)
    assert re.search(r"GlobalControl\(.*max_length=\d\d\)", repr(model))
    source, target = translator(
        control=control, max_source_positions=40, abc_stride=2
    ).max_positions()
    assert source <= 10 and target <= 6


# fairseq's own cross attention leaves out the reordering between sentences.
@variants("abc_cross_slots")
@pytest.mark.parametrize(
    ("beam", "order"),
    [
        (1, [2, 0, 1]),  # batch-mates change places
        full(1, [1]),  # two sentences have ended
        full(2, [1, 1, 2, 3, 5, 4]),  # beams swap within their sentences
        (2, [1, 0, 4, 4]),  # the same, and one sentence has ended
        full(2, [0, 2, 5]),  # one hypothesis of each is left
        (2, [3, 0, 1, 4, 2, 5]),  # hypotheses change sentences
    ],
)
def test_reordering_equals_decoding_the_reordered_batch(options, beam, order):
    model, order = translator(**options), torch.tensor(order)
    encoder_out = encode(model, source())
    copies = torch.arange(3).repeat_interleave(beam)
    encoder_out = model.encoder.reorder_encoder_out(encoder_out, copies)
    tokens = prefix(rows=3 * beam)
    set_beam_size(model, beam)
    _, state = step_by_step(model.decoder, tokens[:, :4], encoder_out)

    tokens = tokens.index_select(0, order)
    model.decoder.reorder_incremental_state_scripting(state, order)
    encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
    continued, _ = step_by_step(model.decoder, tokens, encoder_out, state, start=4)
    expected = model.decoder(tokens, encoder_out=encoder_out)[0][:, 4:]
    torch.testing.assert_close(continued, expected, rtol=1e-4, atol=1e-5)


def only_layer(control):
    """A control as the only layer uses it."""
    return LayerControl(control, 0, ForwardScope())


def attention(causal=True, heads=2, dropout=0.0, **options):
    torch.manual_seed(1)
    control = only_layer(make_control("mlp", Sizes(16, 4, heads)))
    return ABCAttention(16, heads, control, causal=causal, dropout=dropout, **options).eval()


def test_padded_prefix():
    module, x = attention(), torch.randn(6, 2, 16)
    mask = torch.zeros(2, 6, dtype=torch.bool)
    mask[0, :2] = True
    state = {}
    outs = [
        module(part, part, part, key_padding_mask=part_mask, incremental_state=state)[0]
        for part, part_mask in zip(x.split([4, 1, 1]), mask.split([4, 1, 1], dim=1), strict=True)
    ]
    alone = x[2:, :1]
    torch.testing.assert_close(
        torch.cat(outs)[2:, :1], module(alone, alone, alone)[0], rtol=1e-4, atol=1e-5
    )


# ------------------------------------------------------------------------------- cross memory


@pytest.mark.parametrize("options", [{"abc_phi_heads": "shared"}])
def test_cross_memory_is_written_once_a_sentence(options):
    model, beam = translator(**options), 5
    set_beam_size(model, beam)
    one = encode(model, source())
    copies = torch.arange(3).repeat_interleave(beam)
    repeated = model.encoder.reorder_encoder_out(one, copies)
    tokens = prefix(rows=3 * beam)
    steps, state = step_by_step(model.decoder, tokens, repeated)
    for module in attentions(model, "encoder_attn"):
        memory = module.get_incremental_state(state, "source")
        assert memory.copies == beam
        assert {len(tensor) for tensor in memory.state} == {3}

    set_beam_size(model, 1)
    alone, state = step_by_step(model.decoder, tokens, repeated)
    memory = attentions(model, "encoder_attn")[0].get_incremental_state(state, "source")
    assert len(memory.state.keys) == 15
    torch.testing.assert_close(steps, alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        steps, model.decoder(tokens, encoder_out=repeated)[0], rtol=1e-4, atol=1e-5
    )


def test_reordered_sources_of_hypotheses():
    """Nothing is copied while all sentences stay; a sentence that ends takes its copies along."""
    model = translator()
    one = encode(model, source())
    each = torch.arange(3).repeat_interleave(2)
    repeated = model.encoder.reorder_encoder_out(one, each)
    assert model.encoder.reorder_encoder_out(repeated, torch.tensor([1, 0, 2, 2, 5, 4])) is repeated
    fewer = model.encoder.reorder_encoder_out(repeated, torch.tensor([1, 0, 4, 4]))
    assert model.encoder.reorder_encoder_out(fewer, torch.tensor([1, 1, 3, 2])) is fewer
    mixed = model.encoder.reorder_encoder_out(fewer, torch.tensor([2, 1, 3, 0]))
    for out, rows in ((repeated, each), (fewer, [0, 0, 2, 2]), (mixed, [2, 0, 2, 0])):
        expected = one["encoder_out"][0][:, rows]
        torch.testing.assert_close(out["encoder_out"][0], expected, rtol=0, atol=0)


def test_the_generator_announces_its_beam():
    model = translator()
    SequenceGenerator([model], model.decoder.dictionary, beam_size=3)
    assert {module.beam_size for module in attentions(model, "encoder_attn")} == {3}


def test_different_sentences_are_not_taken_for_copies():
    """A caller may decode another number of hypotheses than it announced."""
    model = translator()
    set_beam_size(model, 3)
    encoder_out, tokens = encode(model, source()), prefix()
    steps, state = step_by_step(model.decoder, tokens, encoder_out)
    memory = attentions(model, "encoder_attn")[0].get_incremental_state(state, "source")
    assert (memory.copies, len(memory.state.keys)) == (1, 3)
    torch.testing.assert_close(
        steps, model.decoder(tokens, encoder_out=encoder_out)[0], rtol=1e-4, atol=1e-5
    )


# -------------------------------------------------------------------------- what is in a memory


def test_source_weights_are_the_same_at_once_and_step_by_step():
    model, tokens = translator(), prefix()
    model.prepare_for_inference_(
        SimpleNamespace(generation=SimpleNamespace(print_alignment="hard"))
    )
    encoder_out = encode(model, source())
    at_once = model.decoder(tokens, encoder_out=encoder_out)[1]["attn"][0]
    torch.testing.assert_close(at_once.sum(2), torch.ones(3, 9))
    state = {}
    for end in range(9):
        step = model.decoder(
            tokens[:, : end + 1], encoder_out=encoder_out, incremental_state=state
        )[1]["attn"][0]
        torch.testing.assert_close(step[:, 0], at_once[:, end], rtol=1e-4, atol=1e-5)


# ----------------------------------------------------------------------------------- training


def batch():
    return {"src_tokens": source(), "src_lengths": torch.tensor([7, 4, 5])}, prefix()


def loss_of(model):
    net_input, tokens = batch()
    logits = model(**net_input, prev_output_tokens=tokens)[0]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())


def gradients_of(model):
    model.zero_grad()
    loss = loss_of(model)
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@variants()
def test_every_parameter_learns(options, gradients):
    model = translator(**options).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    before, grads = gradients_of(model)
    for name, grad in grads.items():
        assert grad is not None and grad.isfinite().all(), name
        # The bias of a key moves all logits of a softmax alike.
        assert grad.abs().max() > 0 or "k_proj.bias" in name, name
    model.eval()
    first = loss_of(model)
    for _ in range(3):
        model.train()
        gradients_of(model)
        optimiser.step()
    model.eval()
    assert loss_of(model) < first


def test_layer_dropout_leaves_out_layers_in_training_alone(gradients):
    model = language_model(decoder_layerdrop=1.0)
    tokens = prefix()
    everything = model.decoder(tokens)[0]
    torch.testing.assert_close(everything, language_model().decoder(tokens)[0])
    nothing = model.train().decoder(tokens)[0]
    assert not torch.allclose(everything, nothing)


def test_checkpointed_activations_give_the_same_gradients(gradients):
    plain, saving = (translator(checkpoint_activations=on, dropout=0) for on in (False, True))
    saving.load_state_dict(plain.state_dict())
    loss, grads = gradients_of(plain.train())
    saved_loss, saved_grads = gradients_of(saving.train())
    assert torch.equal(loss, saved_loss)
    assert grads.keys() == saved_grads.keys()
    for name, grad in grads.items():
        torch.testing.assert_close(saved_grads[name], grad, msg=lambda m, n=name: f"{n}: {m}")


def test_a_language_model_of_which_layers_are_kept():
    model = language_model(decoder_layers=4, decoder_layers_to_keep="1,3")
    assert len(model.decoder.layers) == 2
