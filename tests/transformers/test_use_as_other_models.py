"""What programs for models of transformers do with these: loading, training, PEFT, generation."""

from functools import partial

import pytest
import test_decoder_model
import test_t5mem_generation as t5mem
import torch
from full import full
from recorded_graphs import record_graphs
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, GenerationConfig, LogitsProcessorList
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from fairseq_memattn.transformers import (
    BoundedTransformerConfig,
    BoundedTransformerForCausalLM,
    BoundedTransformerForConditionalGeneration,
    BoundedTransformerForMaskedLM,
    GenBERTConfig,
    GenBERTForConditionalGeneration,
)
from fairseq_memattn.transformers.tokenizer import MemAttnTokenizer
from fairseq_memattn.transformers.vocabulary import SPECIAL, Vocabulary

WORDS, PAD, EOS = t5mem.WORDS, t5mem.PAD, t5mem.EOS
SIZES = {
    **{"vocab_size": WORDS, "layers": 2, "embed_dim": 16, "ffn_dim": 24, "heads": 2},
    **{"input_dim": 16, "output_dim": 16, "dropout": 0.0, "max_positions": 64},
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CONTROLS = ["mlp", "gated", "linformer", "random", "rfa", "t2r", "global", "window"]
rows = t5mem.rows


def control(name):
    return {"name": name, "slots": 4, "heads": 1, "max_positions": 64}


def language_model(causal=None, **options):
    torch.manual_seed(1)
    stack = SIZES | {"causal": causal} | options
    return BoundedTransformerForCausalLM(BoundedTransformerConfig(decoder_stack=stack)).eval()


def translator(decoder=None, **options):
    torch.manual_seed(1)
    config = BoundedTransformerConfig(
        encoder_stack=SIZES,
        decoder_stack=SIZES | {"source_dim": 16, "cross": control("mlp"), "causal": decoder},
        is_encoder_decoder=True,
        decoder_start_token_id=EOS,
        **options,
    )
    return BoundedTransformerForConditionalGeneration(config).eval()


# --- Loading


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_that_the_checkpoint_lacks_has_its_first_weights(name, tmp_path):
    plain = language_model()
    plain.save_pretrained(tmp_path)
    causal = control(name) | ({"options": {"stride": 16}} if name == "global" else {})
    model = BoundedTransformerForCausalLM.from_pretrained(
        tmp_path, decoder_stack=SIZES | {"causal": causal}
    )
    fresh = language_model(causal).state_dict()
    for key, weight in model.state_dict().items():
        if key in plain.state_dict():
            assert torch.equal(weight, plain.state_dict()[key]), key
        else:
            expected = fresh[key]
            assert weight.dtype == expected.dtype and weight.isfinite().all(), key
            spread = [x.double().abs().mean() for x in (weight, expected)]
            assert_close(*spread, rtol=0.3, atol=0.1)
    assert model(rows(7, 5)).logits.isfinite().all()


def test_other_weights_that_the_checkpoint_lacks_have_theirs(tmp_path):
    model = language_model(control("mlp"), norm_output=True)
    lacking = ("layers.0.fc1.weight", "fc1.bias", "layer_norm.weight", "layer_norm.bias")
    weights = {k: w for k, w in model.state_dict().items() if not k.endswith(lacking)}
    model.save_pretrained(tmp_path, state_dict=dict(weights))
    loaded = BoundedTransformerForCausalLM.from_pretrained(tmp_path)
    for key, weight in loaded.state_dict().items():
        if key in weights:
            assert torch.equal(weight, weights[key]), key
        elif "norm.weight" in key:
            assert weight.eq(1).all(), key
        else:
            assert weight.abs().max() <= 16**-0.5, key


def test_a_stack_without_all_sizes():
    config = BoundedTransformerConfig(decoder_stack={"vocab_size": WORDS})
    assert (config.vocab_size, config.hidden_size, config.num_hidden_layers) == (WORDS, 512, 6)
    with pytest.raises(ValueError, match="`decoder_stack` of the configuration has no `depth`"):
        BoundedTransformerConfig(decoder_stack={"vocab_size": WORDS, "depth": 2})


def test_other_vocabularies(tmp_path):
    bounded = language_model()
    for same in (None, WORDS):
        assert bounded.resize_token_embeddings(same) is bounded.get_input_embeddings()
    with pytest.raises(ValueError, match=f"must be the {WORDS} tokens .* but is {WORDS + 2}"):
        bounded.resize_token_embeddings(WORDS + 2)
    model = t5mem.build("t5", share_embeddings=False)
    model.resize_token_embeddings(WORDS + 3)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert loaded.encoder.embed_tokens.num_embeddings == WORDS
    assert loaded.decoder.embed_tokens.num_embeddings == WORDS + 3


# --- Training


def genbert(**options):
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = GenBERTConfig(vocab_size=WORDS, intermediate_size=24, **NO_DROPOUT, **sizes, **options)
    return GenBERTForConditionalGeneration(config).eval()


@pytest.mark.parametrize("kind", ["t5", "selector", "genbert", "translator"])
def test_inputs_of_the_decoder_alone_are_those_of_the_labels(kind):
    """Trainer keeps the labels to itself with label_smoothing_factor. Padding is on the left."""
    if kind in ("t5", "selector"):
        model, given = t5mem.build(kind, dropout=0.0), t5mem.inputs(kind)
    else:
        model, given = translator() if kind == "translator" else genbert(), {}
        given["input_ids"] = rows(5, 7, 3)
    labels = rows(6, 2, 4, left=True, seed=3)
    labels[labels == PAD] = -100
    inputs = model.prepare_decoder_input_ids_from_labels(labels)
    real = labels != -100
    expected = model(**given, labels=labels).logits
    assert_close(model(**given, decoder_input_ids=inputs).logits[real], expected[real])
    model.train()
    assert_close(model(**given, decoder_input_ids=inputs).logits[real], expected[real])


def test_trainer_knows_the_language_model():
    """It then moves the labels by one position where it computes the loss itself."""
    assert BoundedTransformerForCausalLM.__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    model = AutoModelForCausalLM.from_config(language_model().config)
    assert type(model) is BoundedTransformerForCausalLM


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_adaptive_inputs_under_autocast(dtype):
    adaptive = {"cutoffs": [6, 12, WORDS], "initial_dim": 16, "factor": 2.0}
    model = language_model(adaptive_input=adaptive)
    tokens = rows(7, 5)
    with torch.autocast("cpu", dtype=dtype):
        out = model(tokens, labels=tokens)
    out.loss.backward()
    assert_close(out.loss, model(tokens, labels=tokens).loss, rtol=0.05, atol=0.05)


def test_outputs_that_trainer_cannot_join_are_left_out():
    ignored = t5mem.build("selector").config.keys_to_ignore_at_inference
    assert {"encoder_last_hidden_state", "selection"} <= set(ignored)


@pytest.mark.parametrize("kind", ["lm", "masked", "translator", "t5"])
def test_vectors_in_the_place_of_tokens(kind):
    """PEFT passes None."""
    stack = BoundedTransformerConfig(encoder_stack=SIZES)
    model = {
        "lm": language_model,
        "masked": lambda: BoundedTransformerForMaskedLM(stack).eval(),
        "translator": translator,
        "t5": lambda: t5mem.build("t5"),
    }[kind]()
    given = {"input_ids": rows(5, 7), "labels": rows(5, 7)}
    assert model(**given, inputs_embeds=None).loss.isfinite()
    with pytest.raises(ValueError, match="`inputs_embeds` must be left out"):
        model(**given, inputs_embeds=torch.zeros(2, 7, 16))


# --- Generation


@torch.no_grad()
def test_limits_of_a_search():
    model = translator(generation_limits={"max_len_a": 0.0, "max_len_b": 30})
    source = rows(6, 4)
    options = {"num_beams": 1, "min_new_tokens": 30, "do_sample": False}
    assert model.generate(source, **options).shape[1] == 32
    given = GenerationConfig(max_new_tokens=4, eos_token_id=EOS, pad_token_id=PAD)
    given.decoder_start_token_id = EOS
    assert model.generate(source, given).shape[1] == 5
    assert model.generate(source, generation_config=given).shape[1] == 5
    nothing = LogitsProcessorList()
    assert model.generate(source, given, nothing).shape[1] == 5
    assert model.generate(source, None, nothing, **options).shape[1] == 32
    mask = source.ne(PAD).long()
    outputs = model.get_encoder()(source, mask)
    for more in ({"attention_mask": mask}, {}):
        found = model.generate(encoder_outputs=outputs, **more, **options)
        assert found.shape[1] == 32


ENDS = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": EOS}
GREEDY = {"num_beams": 1, "do_sample": False}


@torch.no_grad()
def test_a_limit_of_the_model_holds_beside_another_configuration():
    model = translator(generation_limits={"max_len_a": 0.0, "max_len_b": 30})
    model.generation_config.max_new_tokens = 3
    given = GenerationConfig(num_beams=1, **ENDS)
    assert model.generate(rows(6, 4), given).shape[1] == 4
    assert model.generate(rows(6, 4), given, max_new_tokens=5, min_new_tokens=5).shape[1] == 6


@torch.no_grad()
@pytest.mark.parametrize("masked", [False, True])
def test_limits_of_a_source_of_vectors(masked):
    """They are those of its tokens."""
    model = genbert(generation_limits={"max_len_a": 3.0, "max_len_b": 10})
    source = rows(6, 4) if masked else rows(6, 6)
    mask = {"attention_mask": source.ne(PAD).long()} if masked else {}
    vectors = model.get_input_embeddings()(source)
    options = GREEDY | mask | {"min_new_tokens": 22}
    expected = model.generate(source, **options)
    assert expected.shape[1] > 23
    assert torch.equal(model.generate(inputs_embeds=vectors, **options), expected)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["translator", "t5"])
def test_limits_after_a_prompt_without_the_start(kind):
    """transformers adds the start."""
    model = translator() if kind == "translator" else t5mem.build("t5")
    source, prompt = rows(6, 4), rows(3, 3, seed=4)
    start = torch.full((2, 1), model.config.decoder_start_token_id)
    options = GREEDY | {"max_len_b": 5, "min_new_tokens": 5}
    expected = model.generate(
        source, decoder_input_ids=torch.cat([start, prompt], dim=1), **options
    )
    found = model.generate(source, decoder_input_ids=prompt, **options)
    assert found.shape == (2, 4 + 6) and torch.equal(found, expected)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"min_new_tokens": 64}, "`min_new_tokens` must be below the 64 positions .* but is 64"),
        ({"eos_token_id": -1}, "`eos_token_id` must be ids from 0 .* but is -1; set `max_new_tok"),
        ({"eos_token_id": [EOS, -1]}, r"`eos_token_id` must be ids from 0 .* but is \[2, -1\]"),
        ({"eos_token_id": []}, r"`eos_token_id` must be ids from 0 .* but is \[\]"),
    ],
)
def test_limits_that_allow_no_token(options, message):
    model = translator(generation_limits={"max_target_positions": 64})
    with pytest.raises(ValueError, match=message):
        model.generate(rows(6, 3), **GREEDY, max_len_a=2.0, max_len_b=2, **options)


@torch.no_grad()
@pytest.mark.parametrize("options", [{"min_new_tokens": 12}, {"min_length": 13}])
def test_a_limit_is_at_least_the_shortest_length(options):
    """As in fairseq-generate."""
    out = translator().generate(rows(6, 3), **GREEDY, max_len_a=0.0, max_len_b=2, **options)
    assert out.shape[1] == 1 + 12 + 1
    assert out[:, 1:13].ne(PAD).all() and out[:, 13].eq(EOS).all()


@torch.no_grad()
@pytest.mark.parametrize("eos", [7, [7], torch.tensor(7)])
def test_a_row_ends_with_the_given_eos(eos):
    model = translator()
    options = GREEDY | {"max_len_b": 5, "min_new_tokens": 5}
    assert model.generate(rows(6, 4), **options)[:, -1].tolist() == [EOS, EOS]
    found = model.generate(rows(6, 4), eos_token_id=eos, **options)
    assert found.shape[1] == 7 and found[:, -1].tolist() == [7, 7]
    given = GenerationConfig(**GREEDY, **ENDS | {"eos_token_id": eos}, min_new_tokens=5)
    assert torch.equal(model.generate(rows(6, 4), given, max_len_b=5), found)


@pytest.mark.parametrize("causal", ["mlp", full("window"), full(None)])
@torch.no_grad()
def test_searches_with_candidates(causal):
    causal = causal and control(causal)
    for model in (language_model(causal), translator(decoder=causal)):
        options = GREEDY | {"max_new_tokens": 20, "min_new_tokens": 20}
        source = rows(6, 6)[:1]
        expected = model.generate(source, **options)
        for candidates in ({"prompt_lookup_num_tokens": 3}, {"assistant_model": model}):
            assert torch.equal(model.generate(source, **options, **candidates), expected)


def test_searches_that_the_models_cannot_do():
    source = rows(6, 4)
    for model in (translator(), t5mem.build("t5")):
        with pytest.raises(ValueError, match="`cache_implementation` must be left out"):
            model.generate(source, cache_implementation="static", max_new_tokens=4)
        fixed = GenerationConfig(cache_implementation="static", max_new_tokens=4)
        with pytest.raises(ValueError, match="`cache_implementation` must be left out"):
            model.generate(source, fixed)
        with pytest.raises(ValueError, match="`inputs_embeds` must be left out"):
            model.generate(inputs_embeds=torch.zeros(2, 4, 16), max_new_tokens=4)


MODELS = [language_model, translator, genbert, partial(t5mem.build, "selector")]


@pytest.mark.parametrize("make", MODELS)
def test_stop_strings(make, tmp_path):
    """In the target's words, which the source's vocabulary has in another order."""
    names = [f"w{number}" for number in range(WORDS - len(SPECIAL))]
    for name, words in {"dict.txt": names[::-1], "tgt_dict.txt": names}.items():
        Vocabulary([*SPECIAL, *words], [1] * WORDS).save(tmp_path / name)
    tokenizer = MemAttnTokenizer(
        str(tmp_path / "dict.txt"), str(tmp_path / "tgt_dict.txt"), pieces="words"
    )
    model, prompt = make(), rows(7, 5)[:, :2]
    search = {"max_new_tokens": 6, "min_new_tokens": 6, "suppress_tokens": [*range(len(SPECIAL))]}
    whole = model.generate(prompt, **search)[0]
    start = len(whole) - 6
    stop = tokenizer.decode(whole[start + 2 : start + 3])
    found = model.generate(prompt[:1], stop_strings=stop, tokenizer=tokenizer, **search)[0]
    assert stop in tokenizer.decode(found[start:]) and len(found) <= start + 3
    assert found.equal(whole[: len(found)])


def test_arguments_that_are_not_read():
    model = language_model()
    assert_close(model(rows(7, 5), position_ids=None).logits, model(rows(7, 5)).logits)
    with pytest.raises(ValueError, match="`position_ids` must be left out"):
        model(rows(7, 5), position_ids=torch.arange(5))


# --- Steps as CUDA graphs


@pytest.mark.parametrize("beams", [1, full(3)])
@pytest.mark.parametrize("make", [full("language model"), "translator", "llama"])
def test_generation_by_graphs(make, beams, monkeypatch):
    """As without them; the graph is recorded once, at the second step after the prompt."""
    source = rows(6, 3 if make == "translator" else 6)
    if make == "translator":
        model = translator(decoder=control("mlp"))
    elif make == "llama":
        model = test_decoder_model.build(controls=[{"control": "mlp", "slots": 4}])
    else:
        model = language_model(control("mlp"))
    options = {"num_beams": beams, "min_new_tokens": 9, "max_new_tokens": 9, "do_sample": False}
    expected = model.generate(source, **options)
    recorded = record_graphs(monkeypatch)
    assert torch.equal(model.generate(source, **options), expected)
    assert recorded.graphs == 1 and recorded.replays >= 6


def test_softmax_attention_has_no_graph(monkeypatch):
    recorded = record_graphs(monkeypatch)
    language_model().generate(rows(6, 6), max_new_tokens=5, do_sample=False)
    assert recorded.graphs == 0
