"""T5 and T5Mem of transformers alone: caches, generation, losses and folders."""

import pickle

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch.testing import assert_close

from fairseq_memattn.transformers import T5MemConfig, T5MemForConditionalGeneration

WORDS, PAD, EOS, SEPARATOR = 20, 1, 2, 5
SIZES = {"layers": 2, "embed_dim": 16, "ffn_dim": 24, "attention_heads": 2, "head_dim": 8}
TINY = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in SIZES.items()}
DESIGNS = {
    "t5": {"slots": 0},
    "selector": {},
    "selector by layer": {"selector_query": "layer", "separate_slot_ffn": False},
    "slots alone": {"selector": False, "separate_slot_output": False},
    "without attention to slots": {"selector": False, "mem_attention": False},
}
each_design = pytest.mark.parametrize("design", DESIGNS)


def build(design, **options):
    """A model of random weights, embeddings small enough that it does not repeat its input."""
    torch.manual_seed(2)
    config = T5MemConfig(
        vocab_size=WORDS, context_separator_id=SEPARATOR, **TINY | DESIGNS[design] | options
    )
    model = T5MemForConditionalGeneration(config).eval()
    with torch.no_grad():
        model.decoder.embed_tokens.weight *= 0.3
    return model


def rows(*lengths, left=False, seed=0):
    """Random words, with padding on a side."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(tokens, lengths, strict=True):
        words = torch.randint(4, WORDS, (length,), generator=generator)
        row[slice(len(row) - length, None) if left else slice(length)] = words
    return tokens


def inputs(design, left=True):
    """Three inputs of up to three sequences, of which the last has no context."""
    source = {"input_ids": rows(5, 7, 3, left=left)}
    if DESIGNS[design].get("slots") == 0:
        return source
    context = rows(4, 6, 0, 3, 0, 0, seed=1, left=left).view(3, 2, 6)
    return source | {"context_input_ids": context, "target_context": torch.tensor([2, 1, 0])}


def one(arguments, row):
    """An input alone, without its padding on the left."""
    return {
        name: x[row : row + 1, (x[row] == PAD).sum() :] if name == "input_ids" else x[row : row + 1]
        for name, x in arguments.items()
    }


@torch.no_grad()
def logits(model, **arguments):
    return model(**arguments).logits


@each_design
def test_padding_on_either_side(design):
    model, fed = build(design), rows(4, 4, 4)
    expected = logits(model, **inputs(design), decoder_input_ids=fed)
    actual = logits(model, **inputs(design, left=False), decoder_input_ids=fed)
    assert_close(actual, expected)


@each_design
def test_a_cache_holds_what_was_read(design):
    """A prompt at once and then tokens; and a cache that was saved and loaded."""
    model, arguments, fed = build(design), inputs(design), rows(9, 9, 9)
    fed[:, [2, 6]] = SEPARATOR
    expected = logits(model, **arguments, decoder_input_ids=fed)
    before = arguments.pop("target_context", torch.zeros(3, dtype=torch.long))
    cache, out = None, []
    with torch.no_grad():
        encoded = model.encoder(**arguments)
        for start, end in ((0, 4), (4, 5), (5, 8), (8, 9)):
            written = fed[:, :start].eq(SEPARATOR).sum(dim=1)
            step = model(
                encoder_outputs=encoded,
                decoder_input_ids=fed[:, start:end],
                target_context=before - written,
                past_key_values=cache,
            )
            cache = pickle.loads(pickle.dumps(step.past_key_values))
            out.append(step.logits)
    assert cache.get_seq_length() == 9
    assert_close(torch.cat(out, dim=1), expected)


SEARCHES = {
    "greedy": {"num_beams": 1},
    "beams": {"num_beams": 3, "length_penalty": 0.7, "early_stopping": True},
}


@pytest.mark.parametrize("search", SEARCHES)
@each_design
def test_a_batch_is_its_inputs(design, search):
    """With prompts of several lengths, padded on the left."""
    model, arguments = build(design), inputs(design)
    prompts = rows(4, 2, 3, left=True, seed=3)
    prompts[:, -1] = SEPARATOR
    for row, length in zip(prompts, (4, 2, 3), strict=True):
        row[-length] = model.config.decoder_start_token_id
    options = {"do_sample": False, "max_new_tokens": 6, **SEARCHES[search]}
    together = model.generate(
        **arguments,
        decoder_input_ids=prompts,
        decoder_attention_mask=prompts.ne(PAD).long(),
        **options,
    )
    for row, length in enumerate((4, 2, 3)):
        prompt = prompts[row : row + 1, -length:]
        (alone,) = model.generate(**one(arguments, row), decoder_input_ids=prompt, **options)
        found = together[row, prompts.shape[1] :]
        assert found[: len(alone) - length].tolist() == alone[length:].tolist()
        assert found[len(alone) - length :].eq(PAD).all()


@each_design
def test_loss(design):
    model, arguments = build(design, dropout=0.0).train(), inputs(design)
    labels = rows(4, 6, 2, seed=5)
    labels[labels.eq(PAD)] = -100
    out = model(**arguments, labels=labels)
    assert out.past_key_values is None
    fed = model.prepare_decoder_input_ids_from_labels(labels)
    assert fed[:, 0].eq(model.config.decoder_start_token_id).all()
    scores = model(**arguments, decoder_input_ids=fed).logits.log_softmax(dim=2)
    real = labels.ne(-100)
    expected = -scores[real].gather(1, labels[real][:, None]).mean()
    assert_close(out.loss, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selector_query": "word"}, "`selector_query` must be one of embedding, layer, .* 'word'"),
        ({"position_buckets": 7}, "`position_buckets` must be even"),
    ],
)
def test_refused_configurations(options, message):
    with pytest.raises(StrictDataclassError, match=message):
        T5MemConfig(**options)


def test_refused_inputs():
    model, arguments = build("selector", max_sequences=2), inputs("selector")
    fed = {"decoder_input_ids": rows(2, 2, 2)}
    with pytest.raises(ValueError, match="must have at most 1 sequences .* but has 2"):
        model(**arguments, **fed)
    with pytest.raises(ValueError, match="`context_input_ids` must be left out"):
        build("t5")(**arguments, **fed)
    with pytest.raises(ValueError, match="`decoder_input_ids` or `labels` must be given"):
        build("t5")(**inputs("t5"))
    with pytest.raises(ValueError, match="`output_attentions` must not be True"):
        build("t5")(**inputs("t5"), **fed, output_attentions=True)


@each_design
def test_accumulated_gradients_are_those_of_one_batch(design):
    """As Trainer accumulates them: with the number of labels of all batches."""
    model, arguments = build(design), inputs(design)
    labels = rows(6, 2, 4, seed=3)
    labels[labels == PAD] = -100
    assert model.accepts_loss_kwargs
    whole = model(**arguments, labels=labels).loss
    count = labels.ne(-100).sum()
    parts = [
        model(**{n: x[i] for n, x in arguments.items()}, labels=labels[i], num_items_in_batch=count)
        for i in (slice(0, 1), slice(1, 3))
    ]
    assert_close(sum(part.loss for part in parts), whole)


def test_the_loss_of_a_model_in_half_precision_is_in_float32():
    model = build("t5").to(torch.bfloat16)
    out = model(rows(5, 7), labels=rows(4, 6))
    expected = torch.nn.functional.cross_entropy(
        out.logits.flatten(0, 1).float(), rows(4, 6).flatten()
    )
    assert_close(out.loss, expected)
