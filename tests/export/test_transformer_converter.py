"""fairseq's transformers in transformers' format against fairseq."""

from types import SimpleNamespace

import abc_models
import pytest
import test_gmat
import torch
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from fairseq.sequence_generator import SequenceGenerator
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

import fairseq_memattn.transformers  # noqa: F401
from fairseq_memattn import register
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export.converters import converted
from fairseq_memattn.export.folder import set_generation
from fairseq_memattn.transformers.cache import MemoryCache

register()
WORDS = test_gmat.WORDBOOK
TASK = SimpleNamespace(
    source_dictionary=WORDS, target_dictionary=WORDS, cfg=SimpleNamespace(add_bos_token=False)
)
PRE_NORM = {
    "encoder_normalize_before": True,
    "decoder_normalize_before": True,
    "share_decoder_input_output_embed": True,
    "encoder_learned_pos": True,
    "decoder_learned_pos": True,
    "layernorm_embedding": True,
    "activation_fn": "gelu_accurate",
}
TRANSLATORS = [
    *((arch, "", {}) for arch in [*abc_models.TRANSLATORS, "transformer"]),
    *abc_models.VARIANTS,
    ("abc_mlp_transformer", "share", {"share_all_embeddings": True}),
    ("transformer", "before", PRE_NORM),
    ("abc_window_transformer", "before", PRE_NORM),
]
ADAPTIVE = {"adaptive_softmax_cutoff": "6,10", "decoder_output_dim": 16, "decoder_input_dim": 16}
ADAPTIVE_INPUT = {
    "adaptive_input": True,
    "adaptive_input_cutoff": "6,10",
    "adaptive_input_factor": 2,
    "adaptive_softmax_factor": 2,
    "tie_adaptive_weights": True,
}
# The widths 22, 5 and 1, whose quotients are not the factor.
BANDS = {"decoder_input_dim": 22, "adaptive_input_factor": 4, "tie_adaptive_weights": False}
LANGUAGE_MODELS = [
    *((arch, "", {}) for arch in [*abc_models.LANGUAGE_MODELS, "transformer_lm"]),
    ("transformer_lm", "wider words", {"decoder_input_dim": 24, "decoder_output_dim": 24}),
    ("abc_mlp_transformer_lm", "adaptive softmax", ADAPTIVE),
    ("abc_mlp_transformer_lm", "adaptive", ADAPTIVE | ADAPTIVE_INPUT),
    ("transformer_lm", "bands", ADAPTIVE | ADAPTIVE_INPUT | BANDS),
    ("transformer_lm", "tied", ADAPTIVE | ADAPTIVE_INPUT | {"tie_adaptive_proj": True}),
]
SHARED = {"share_all_embeddings": True}
ENDS = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
IDS = [f"{arch} {name}".strip() for arch, name, _ in TRANSLATORS]
LM_IDS = [f"{arch} {name}".strip() for arch, name, _ in LANGUAGE_MODELS]


def assert_equal_at_words(actual, expected, tokens, tolerance=1e-5):
    words = tokens.ne(WORDS.pad())
    torch.testing.assert_close(actual[words], expected[words], rtol=0, atol=tolerance)


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("decoder", test_gmat.DECODERS)
@torch.no_grad()
def test_translators_with_a_global_memory(decoder, positions):
    options = {"share_all_embeddings": True, "encoder_learned_pos": positions}
    model = test_gmat.translator(decoder, **options)
    new = converted(model, TASK)
    for left in (False, True):
        source, target = test_gmat.rows(9, 5, left=left), test_gmat.rows(6, 4)
        logits = new(input_ids=source, decoder_input_ids=target).logits
        assert_equal_at_words(logits, model(source, None, target)[0], target)
    limits = {"max_len_a": 0.0, "max_len_b": 6}
    assert_searches_alike(model, new, test_gmat.rows(9, 5, left=True), 3, 1.0, limits)


def language_model(arch, **options):
    extra = {}
    if arch == "transformer_lm":
        defaults = vars(TransformerLanguageModelConfig())
        extra = {name: value for name, value in defaults.items() if name not in test_gmat.TINY}
        extra["decoder_input_dim"] = extra["decoder_output_dim"] = 16
    options = {"abc_causal_slots": 4, "abc_stride": 8, "max_target_positions": 32} | options
    return test_gmat.build(arch, longest=32, **extra | options)


@pytest.mark.parametrize(("with_bos", "start"), [(False, WORDS.eos()), (True, WORDS.bos())])
def test_a_language_model_begins_as_in_training(with_bos, start):
    task = SimpleNamespace(**vars(TASK) | {"cfg": SimpleNamespace(add_bos_token=with_bos)})
    new = converted(language_model("abc_mlp_transformer_lm"), task)
    assert new.config.bos_token_id == new.generation_config.bos_token_id == start
    assert new.generate(max_new_tokens=1)[0, 0] == start


@pytest.mark.parametrize(("arch", "name", "options"), TRANSLATORS, ids=IDS)
@torch.no_grad()
def test_translators(arch, name, options):
    """At once, and a prompt of two tokens before the others, with padding on both sides."""
    model = abc_models.translator(arch, **options)
    new = converted(model, TASK)
    source, target = test_gmat.rows(9, 5, left=True), test_gmat.rows(6, 4)
    expected = model(source, None, target)[0]
    actual = new(input_ids=source, decoder_input_ids=target).logits
    assert_equal_at_words(actual, expected, target)
    first = new(input_ids=source, decoder_input_ids=target[:, :2], use_cache=True)
    last = new(
        attention_mask=source.ne(WORDS.pad()),
        encoder_outputs=(first.encoder_last_hidden_state,),
        decoder_input_ids=target[:, 2:],
        past_key_values=first.past_key_values,
    )
    assert_equal_at_words(torch.cat([first.logits, last.logits], dim=1), expected, target)


@pytest.mark.parametrize(("arch", "name", "options"), LANGUAGE_MODELS, ids=LM_IDS)
@torch.no_grad()
def test_language_models(arch, name, options):
    model = language_model(arch, **options)
    new = converted(model, TASK)
    tokens = test_gmat.rows(9, 5)
    out = model(tokens)
    expected = model.get_normalized_probs(out, log_probs=True, sample=None)
    whole = new(tokens).logits.log_softmax(dim=2)
    assert_equal_at_words(whole, expected, tokens)
    cache = MemoryCache(new.config)
    parts = [
        new(x, past_key_values=cache, use_cache=True).logits for x in tokens.split([3, 1, 5], 1)
    ]
    assert_equal_at_words(torch.cat(parts, dim=1).log_softmax(dim=2), expected, tokens)


@pytest.mark.parametrize("arch", [*abc_models.ROBERTAS, "roberta"])
@torch.no_grad()
def test_robertas(arch):
    model = abc_models.roberta(arch)
    for tokens in (test_gmat.rows(11, 6, left=True), test_gmat.rows(4, 7)):
        logits = converted(model, TASK)(tokens).logits
        assert_equal_at_words(logits, model(tokens)[0], tokens)


@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("lenpen", [0.6, 1.0])
@pytest.mark.parametrize("arch", ["abc_mlp_transformer", "abc_window_transformer", "transformer"])
@torch.no_grad()
def test_generate_is_fairseqs_search(arch, lenpen, beam):
    """The tokens and the score of every sentence, each with its own limit."""
    model = abc_models.translator(arch, share_all_embeddings=True)
    source = test_gmat.rows(9, 5, 3, 7, left=True)
    limits = {"max_len_a": 0.5, "max_len_b": 4}
    assert_searches_alike(model, converted(model, TASK), source, beam, lenpen, limits)


def assert_searches_alike(model, new, source, beam, lenpen, limits):
    search = SequenceGenerator([model], WORDS, beam_size=beam, len_penalty=lenpen, **limits)
    lengths = source.ne(WORDS.pad()).sum(dim=1)
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
    expected = search.generate([model], sample)
    out = new.generate(
        source,
        num_beams=beam,
        length_penalty=lenpen,
        early_stopping=beam > 1,
        min_new_tokens=1,
        **limits,
        return_dict_in_generate=True,
        output_scores=True,
    )
    for row, (hypothesis, *_) in zip(out.sequences, expected, strict=True):
        assert row[1:][row[1:] != WORDS.pad()].tolist() == hypothesis["tokens"].tolist()
    if beam > 1:
        scores = torch.stack([best["score"] for best, *_ in expected])
        torch.testing.assert_close(out.sequences_scores, scores, rtol=0, atol=1e-5)


@pytest.mark.parametrize("arch", ["abc_mlp_transformer_lm", "abc_window_transformer_lm"])
@torch.no_grad()
def test_left_padded_prompts(arch):
    """A batch continues each prompt as it would alone; the cache does not grow."""
    new = converted(language_model(arch), TASK)
    prompts = test_gmat.rows(7, 3, left=True)
    settings = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    both = new.generate(prompts, attention_mask=prompts.ne(WORDS.pad()), **settings)
    for row, prompt in zip(both, prompts, strict=True):
        alone = new.generate(prompt[prompt != WORDS.pad()][None], **settings)
        assert row[-8:].tolist() == alone[0, -8:].tolist()
    uncached = new.generate(prompts[:1], **settings, use_cache=False)
    assert uncached[0, -8:].tolist() == both[0, -8:].tolist()
    sizes = []
    cache = MemoryCache(new.config)
    for token in prompts[:1].split(1, dim=1):
        new(token, past_key_values=cache)
        sizes.append(cache.nbytes())
    assert len(set(sizes)) == 1 and sizes[0] > 0


@torch.no_grad()
def test_a_saved_cache(tmp_path):
    new = converted(abc_models.translator("abc_local_global_transformer"), TASK)
    source, target = test_gmat.rows(9, 5), test_gmat.rows(6, 6)
    first = new(input_ids=source, decoder_input_ids=target[:, :3], use_cache=True)
    torch.save(first.past_key_values.state_dict(), tmp_path / "cache.pt")
    cache = MemoryCache(new.config)
    cache.load_state_dict(torch.load(tmp_path / "cache.pt"))
    rest = {
        "encoder_outputs": (first.encoder_last_hidden_state,),
        "decoder_input_ids": target[:, 3:],
    }
    saved = new(**rest, past_key_values=cache).logits
    assert torch.equal(saved, new(**rest, past_key_values=first.past_key_values).logits)
    with pytest.raises(ValueError, match="3 layers of the cache, but has 1"):
        cache.load_state_dict({"layers": [None]})


@pytest.mark.parametrize(
    ("model", "auto"),
    [
        (
            lambda: abc_models.translator("abc_mlp_transformer", share_all_embeddings=True),
            "seq2seq",
        ),
        (lambda: language_model("abc_mlp_transformer_lm", **ADAPTIVE, **ADAPTIVE_INPUT), "lm"),
        (lambda: abc_models.roberta("abc_mlp_roberta"), "masked"),
        (lambda: abc_models.translator("abc_local_global_transformer"), "seq2seq"),
        (lambda: abc_models.translator("rfa_transformer"), "seq2seq"),
        (lambda: test_gmat.translator("clustering"), "seq2seq"),
    ],
    ids=["translator", "language model", "roberta", "global tokens", "features", "memory"],
)
def test_a_folder(model, auto, tmp_path):
    """What is saved is what is loaded, each tied weight once."""
    new = converted(model(), TASK)
    new.save_pretrained(tmp_path)
    classes = {
        "seq2seq": AutoModelForSeq2SeqLM,
        "lm": AutoModelForCausalLM,
        "masked": AutoModelForMaskedLM,
    }
    loaded = classes[auto].from_pretrained(tmp_path)
    assert type(loaded) is type(new)
    for (name, old), again in zip(
        new.state_dict().items(), loaded.state_dict().values(), strict=True
    ):
        assert torch.equal(old, again), name
    for (name, old), again in zip(new.named_buffers(), loaded.buffers(), strict=True):
        assert torch.equal(old, again), name
    assert sum(x.numel() for x in loaded.parameters()) == sum(x.numel() for x in new.parameters())


@torch.no_grad()
def test_an_exported_folder_searches_by_fairseqs_defaults(tmp_path):
    model = abc_models.translator("abc_mlp_transformer", **SHARED)
    new = converted(model, TASK)
    set_generation(new, model, WORDS)
    new.save_pretrained(tmp_path)
    source = test_gmat.rows(9, 5, left=True)
    lengths = source.ne(WORDS.pad()).sum(dim=1)
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
    search = SequenceGenerator([model], WORDS, beam_size=5, max_len_a=0, max_len_b=200)
    expected = search.generate([model], sample)
    assert max(len(best["tokens"]) for best, *_ in expected) > 21  # transformers' own limit
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    for row, (best, *_) in zip(loaded.generate(source), expected, strict=True):
        assert row[1:][row[1:] != WORDS.pad()].tolist() == best["tokens"].tolist()


def test_training(tmp_path):
    """Gradients of the loss are fairseq's, with and without checkpoints."""
    model = abc_models.translator("abc_mlp_transformer", dropout=0.0)
    source, target = test_gmat.rows(9, 5), test_gmat.rows(6, 4)
    new = converted(model, TASK).train()
    labels = target.masked_fill(target == WORDS.pad(), -100)
    grads = []
    for checkpoints in (False, True):
        if checkpoints:
            new.activation_checkpointing_enable()
        new.zero_grad()
        new(input_ids=source, labels=labels).loss.backward()
        grads.append([x.grad.clone() for x in new.parameters()])
    torch.testing.assert_close(*grads)
    logits = model(source, None, new.prepare_decoder_input_ids_from_labels(labels))[0]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    loss.backward()
    expected = model.encoder.layers[0].fc1.weight.grad
    torch.testing.assert_close(new.encoder.layers[0].fc1.weight.grad, expected)


def hidden_of(model, *inputs):
    """fairseq's states of the encoder and of the decoder, (B, T, E)."""
    found = []
    if len(inputs) == 3:
        encoded = model.encoder(inputs[0], None, return_all_hiddens=True)
        found.append([x.transpose(0, 1) for x in encoded["encoder_states"]])
        _, extra = model.decoder(inputs[2], encoded)
    else:
        _, extra = model.decoder(inputs[0])
    return [*found, [x.transpose(0, 1) for x in extra["inner_states"]]]


@torch.no_grad()
def test_hidden_states():
    """Those of fairseq after each layer, and normalised after the last."""
    model = abc_models.translator("abc_mlp_transformer", **PRE_NORM)
    new = converted(model, TASK)
    source, target = test_gmat.rows(9, 5), test_gmat.rows(6, 4)
    out = new(input_ids=source, decoder_input_ids=target, output_hidden_states=True)
    found = [out.encoder_hidden_states, out.decoder_hidden_states]
    stacks = (model.encoder, source), (model.decoder, target)
    both = zip(found, hidden_of(model, source, None, target), stacks, strict=True)
    for ours, theirs, (stack, tokens) in both:
        theirs[-1] = stack.layer_norm(theirs[-1])
        assert len(ours) == len(theirs) == len(stack.layers) + 1
        for one, other in zip(ours, theirs, strict=True):
            assert_equal_at_words(one, other, tokens)
    torch.testing.assert_close(found[0][-1], out.encoder_last_hidden_state)
    without = new(input_ids=source, decoder_input_ids=target)
    assert without.decoder_hidden_states is without.encoder_hidden_states is None
    torch.testing.assert_close(without.logits, out.logits)
    as_tuple = new(input_ids=source, decoder_input_ids=target, return_dict=False)
    assert torch.equal(as_tuple[0], without.logits)


@torch.no_grad()
def test_hidden_states_of_the_other_models():
    tokens = test_gmat.rows(9, 5)
    model = language_model("abc_mlp_transformer_lm")
    states = converted(model, TASK)(tokens, output_hidden_states=True).hidden_states
    [expected] = hidden_of(model, tokens)
    if model.decoder.layer_norm is not None:
        expected[-1] = model.decoder.layer_norm(expected[-1])
    for one, other in zip(states, expected, strict=True):
        assert_equal_at_words(one, other, tokens)
    model = abc_models.roberta("abc_mlp_roberta")
    new = converted(model, TASK)
    new.config.output_hidden_states = True
    states = new(tokens).hidden_states
    features, _ = model(tokens, features_only=True)
    assert len(states) == len(new.encoder.layers) + 1
    assert_equal_at_words(states[-1], features, tokens)
    gmat = converted(test_gmat.translator("clustering"), TASK)
    out = gmat(input_ids=tokens, decoder_input_ids=tokens, output_hidden_states=True)
    assert torch.equal(out.encoder_hidden_states[-1], out.encoder_last_hidden_state)


def test_accumulated_gradients_are_those_of_one_batch():
    """As Trainer accumulates them: with the number of labels of all batches."""
    tokens = test_gmat.rows(9, 5, 7, 4)
    labels = tokens.masked_fill(tokens == WORDS.pad(), -100)
    lm = converted(language_model("abc_mlp_transformer_lm"), TASK)
    seq2seq = converted(abc_models.translator("abc_mlp_transformer"), TASK)
    masked = converted(abc_models.roberta("abc_mlp_roberta"), TASK)
    for model, count in ((lm, labels[:, 1:]), (seq2seq, labels), (masked, labels)):
        assert model.accepts_loss_kwargs
        whole = model(tokens, labels=labels).loss
        parts = [
            model(x, labels=y, num_items_in_batch=count.ne(-100).sum()).loss
            for x, y in zip(tokens.split(2), labels.split(2), strict=True)
        ]
        torch.testing.assert_close(sum(parts), whole)


def test_what_cannot_be_exported():
    with pytest.raises(MemAttnError, match="a Linear cannot be exported: the models that can be"):
        converted(torch.nn.Linear(2, 2), TASK)
    model = abc_models.translator("abc_mlp_transformer")
    model.encoder.cfg.activation_fn = "relu_squared"
    with pytest.raises(MemAttnError, match="--activation-fn relu_squared"):
        converted(model, TASK)
    model = test_gmat.build("transformer", longest=32, scale_fc=True)
    with pytest.raises(MemAttnError, match="its weight .*ffn_layernorm.weight has no counterpart"):
        converted(model, TASK)
    model = abc_models.translator("abc_mlp_transformer")
    model.encoder.embed_positions = torch.nn.Identity()
    with pytest.raises(MemAttnError, match="a model with Identity for its positions cannot"):
        converted(model, TASK)
