"""T5 and T5Mem of transformers against fairseq's, with the same random weights."""

import pytest
import test_gmat
import test_t5mem
import torch
from test_t5mem import EOS, PAD, SEPARATOR
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM

import fairseq_memattn.transformers  # noqa: F401
from fairseq_memattn.export.converters import converted
from fairseq_memattn.transformers.t5mem_seq2seq import T5MemForConditionalGeneration

UNEQUAL = {"decoder_embed_dim": 24, "decoder_ffn_embed_dim": 20, "decoder_attention_heads": 3}
SCALED = {"t5_scale_embeddings": True, "t5_scale_positions": True}
SHARED = {"share_all_embeddings": True, **SCALED}
LARGER = {"layers": 1, "embed_dim": 48, "ffn_embed_dim": 64, "attention_heads": 8}
PLAIN = {
    "t5": {"t5_position_buckets": 8, "t5_max_distance": 11},
    "t5, unequal sides": {**UNEQUAL, "encoder_layers": 1, "t5_head_dim": 5},
    "t5, shared and scaled": SHARED,
}
MEMORY = {
    "by layer": {},
    "t5mem_v1, unequal sides": {**UNEQUAL, "t5mem_slots": 1},
    "t5mem_v2, as the paper": {**test_t5mem.PAPERS, "t5mem_selector_query": "layer"},
    "t5mem_ws_wma, unequal sides": UNEQUAL,
    "t5mem_v4, shared and scaled": {**SHARED, "t5mem_sequences": 3},
}
NAMES = {
    "src_tokens": "input_ids",
    "context_tokens": "context_input_ids",
    "target_context": "target_context",
    "prev_output_tokens": "decoder_input_ids",
}
each_model = pytest.mark.parametrize("name", [*PLAIN, *MEMORY])
each_with_memory = pytest.mark.parametrize("name", MEMORY)


def built(name):
    """A model of fairseq that repeats its input less than random weights do, in float32."""
    arch, options = name.split(",")[0], (PLAIN | MEMORY)[name]
    model = (test_gmat if name in PLAIN else test_t5mem).build(arch, **options).float()
    with torch.no_grad():
        for layer in model.decoder.layers:
            for block in (layer.attention, layer.cross_attention):
                block.block.out_proj.weight *= 4
            layer.ffn.block.wo.weight *= 4
    return model


@pytest.fixture(scope="module")
def pairs():
    """fairseq's model and transformers' by name, made once."""
    made = {}

    def pair(name):
        if name not in made:
            model = built(name)
            made[name] = (model, converted(model, None))
        return made[name]

    return pair


def inputs(name):
    """fairseq's arguments: padding on both sides, and for T5Mem up to three sequences."""
    if name in PLAIN:
        source = test_gmat.rows(9, 5, 1, left=True)
        return {"src_tokens": source, "src_lengths": None, "prev_output_tokens": fed(6, 4, 5)}
    batch = test_t5mem.batch()
    batch["src_tokens"][1] = batch["src_tokens"][1].roll(2)
    return batch


def fed(*lengths):
    """Targets that begin with the end of sentence, as fairseq's do."""
    rows = test_gmat.rows(*lengths, seed=4)
    return torch.cat([torch.full_like(rows[:, :1], EOS), rows[:, :-1]], dim=1)


def renamed(arguments):
    return {NAMES[name]: x for name, x in arguments.items() if name in NAMES}


@torch.no_grad()
def logits(model, arguments):
    return model(**arguments)[0]


@each_model
def test_logits(name, pairs):
    model, ours = pairs(name)
    arguments = inputs(name)
    expected, report = model(**arguments)
    actual = ours(**renamed(arguments))
    assert_close(actual.logits, expected, rtol=0, atol=1e-5)
    for weights, wanted in zip(actual.selection or (), report.get("selection", ()), strict=True):
        assert_close(weights, wanted)


@each_with_memory
def test_logits_with_masks_and_without_context(name, pairs):
    model, ours = pairs(name)
    arguments = inputs(name)
    expected = logits(model, arguments)
    masked = renamed(arguments)
    for tokens, mask in (("input_ids", ""), ("context_input_ids", "context_")):
        masked[f"{mask}attention_mask"] = masked[tokens].ne(PAD).long()
        masked[tokens] = masked[tokens].masked_fill(masked[tokens].eq(PAD), 7)
    with torch.no_grad():
        assert_close(ours(**masked).logits, expected, rtol=0, atol=1e-5)
        alone = {k: x for k, x in arguments.items() if not k.startswith("context")}
        expected = logits(model, alone)
        assert_close(ours(**renamed(alone)).logits, expected, rtol=0, atol=1e-5)
        # An absent sequence, at either end of the context, is no sequence.
        absent = torch.full((2, 2, 3), PAD)
        alone = renamed(alone) | {"context_input_ids": absent}
        assert_close(ours(**alone).logits, expected, rtol=0, atol=1e-5)


@torch.no_grad()
def by_the_loop(model, arguments, start, most):
    """Greedy search over fairseq's model, one input after the other."""
    found = []
    for row in range(len(start)):
        alone = {k: None if x is None else x[row : row + 1] for k, x in arguments.items()}
        tokens = start[row : row + 1]
        for _ in range(most - start.shape[1]):
            scores = logits(model, alone | {"prev_output_tokens": tokens})
            tokens = torch.cat([tokens, scores[:, -1:].argmax(dim=2)], dim=1)
            if tokens[0, -1] == EOS:
                break
        found.append(tokens[0, start.shape[1] :])
    return torch.nn.utils.rnn.pad_sequence(found, batch_first=True, padding_value=PAD)


@each_model
def test_greedy_search(name, pairs):
    """From the beginning, and after translations of the context."""
    model, ours = pairs(name)
    arguments = inputs(name)
    count = len(arguments["src_tokens"])
    begun = torch.tensor([EOS, 6, SEPARATOR, 8, SEPARATOR]).expand(count, -1)
    for start in (begun[:, :1], begun):
        expected = by_the_loop(model, arguments, start, 12)
        prompt = start.clone()
        prompt[:, 0] = ours.config.decoder_start_token_id
        given = renamed(arguments) | {"decoder_input_ids": prompt}
        actual = ours.generate(**given, max_length=12, do_sample=False)
        assert torch.equal(actual[:, start.shape[1] :], expected)


@each_model
def test_round_trip(name, pairs, tmp_path):
    _, ours = pairs(name)
    ours.save_pretrained(tmp_path)
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert isinstance(again, T5MemForConditionalGeneration)
    assert again.config.to_diff_dict() == ours.config.to_diff_dict()
    weights = again.state_dict()
    assert weights.keys() == ours.state_dict().keys()
    assert all(torch.equal(weight, weights[key]) for key, weight in ours.state_dict().items())
    assert again.lm_head.weight is again.decoder.embed_tokens.weight
    shared = again.encoder.embed_tokens.weight is again.decoder.embed_tokens.weight
    assert shared == again.config.share_embeddings == ("shared" in name)


@each_model
def test_gradients(name, pairs):
    """fairseq's, and with checkpoints of the layers the same."""
    model, ours = pairs(name)
    arguments = inputs(name)
    labels = arguments["prev_output_tokens"].roll(-1, 1)
    labels[labels.eq(PAD)] = -100
    scores = model(**arguments)[0].flatten(0, 1)
    torch.nn.functional.cross_entropy(scores, labels.flatten()).backward()
    wanted = {key: weight.grad for key, weight in model.named_parameters()}
    model.zero_grad()
    ours.train()
    for checkpoints in (False, True):
        if checkpoints:
            ours.activation_checkpointing_enable()
        ours(**renamed(arguments), labels=labels).loss.backward()
        for key, weight in ours.named_parameters():
            if wanted[key] is None or not wanted[key].any():
                assert weight.grad is None or not weight.grad.any(), key
            else:
                assert_close(weight.grad, wanted[key], rtol=1e-4, atol=1e-6, msg=key)
        ours.zero_grad()
    ours.activation_checkpointing_disable()
    ours.eval()


def test_first_weights():
    """A new model begins with weights of the deviations that fairseq's begins with."""
    sizes = {f"{s}_{k}": n for s in ("encoder", "decoder") for k, n in LARGER.items()}
    for name in ("t5mem_v3", "t5mem_ws_wma"):
        options = dict.fromkeys(SCALED, name != "t5mem_v3") | {"t5mem_sequences": 40, **sizes}
        model = test_t5mem.build(name, **options)
        new = T5MemForConditionalGeneration(converted(model, None).config).state_dict()
        for key, weight in model.state_dict().items():
            if key.endswith(".scale"):
                continue
            if weight.dim() == 2:
                ratio = new[key].std() / weight.std()
                assert 0.85 < ratio < 1.15, key
            elif key.endswith("distance_bias"):
                assert new[key].nonzero().tolist() == [[39]]
                assert_close(new[key][39].exp() / (2 + new[key][39].exp()), torch.tensor(0.9))
