"""What decoders read for labels that are padded on either side."""

import pytest
import test_t5mem_generation as t5mem
import torch
from test_gmat_models import TINY

from fairseq_memattn.transformers import (
    BoundedTransformerConfig,
    BoundedTransformerForCausalLM,
    BoundedTransformerForConditionalGeneration,
    GenBERTConfig,
    GenBERTForConditionalGeneration,
)
from fairseq_memattn.transformers.labels import decoder_inputs, visible_inputs
from fairseq_memattn.transformers.transformer_config import ControlConfig, StackConfig

SIZES = {"vocab_size": 12, "layers": 1, "embed_dim": 8, "ffn_dim": 12, "heads": 2}
SIZES |= {"input_dim": 8, "output_dim": 8}
LEFT = [[7, 8, 9, 2], [-100, -100, 6, 2], [-100, -100, -100, -100]]
RIGHT = [[7, 8, 9, 2], [6, 2, -100, -100], [-100, -100, -100, -100]]


def test_inputs():
    left, right = (decoder_inputs(torch.tensor(x), start=2, pad=1).tolist() for x in (LEFT, RIGHT))
    assert left == [[2, 7, 8, 9], [1, 1, 2, 6], [2, 1, 1, 1]]
    assert right == [[2, 7, 8, 9], [2, 6, 2, 1], [2, 1, 1, 1]]
    for rows, inputs, expected in [
        (LEFT, left, [False, False, True, True]),
        (RIGHT, right, [True] * 4),
        (LEFT, [[2, 5, 6, 7]] * 3, [True] * 4),  # a prompt that has no labels
    ]:
        found = visible_inputs(torch.tensor(inputs), torch.tensor(rows), pad=1)
        assert found[1].tolist() == expected


def bounded():
    torch.manual_seed(1)
    control = ControlConfig("mlp", slots=4, heads=2)
    config = BoundedTransformerConfig(
        encoder_stack=StackConfig(**SIZES),
        decoder_stack=StackConfig(**SIZES, source_dim=8, causal=control, cross=control),
        is_encoder_decoder=True,
        decoder_start_token_id=2,
    )
    return BoundedTransformerForConditionalGeneration(config).eval()


MODELS = {
    "transformer": bounded,
    "t5": lambda: t5mem.build("t5"),
    "t5mem": lambda: t5mem.build("selector"),
    "genbert": lambda: GenBERTForConditionalGeneration(GenBERTConfig(**TINY)).eval(),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("collated", [False, True])
@torch.no_grad()
def test_the_loss_does_not_depend_on_the_side(name, collated):
    """A collator gives the decoder's inputs too, without a mask."""
    model, source = MODELS[name](), torch.tensor([[4, 5, 2], [6, 7, 2]])
    losses = []
    for rows in (LEFT, RIGHT):
        labels = torch.tensor(rows[:2])
        given = {"labels": labels}
        if collated:
            given["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels)
        losses.append(model(source, **given).loss)
    torch.testing.assert_close(*losses)


@torch.no_grad()
@pytest.mark.parametrize("control", ["mlp", "window", None])
def test_the_loss_of_a_language_model_does_not_depend_on_the_side(control):
    torch.manual_seed(1)
    causal = None if control is None else ControlConfig(control, slots=4, heads=2)
    config = BoundedTransformerConfig(decoder_stack=StackConfig(**SIZES, causal=causal))
    model = BoundedTransformerForCausalLM(config).eval()
    losses = [
        model(tokens.masked_fill(tokens == -100, 1), labels=tokens).loss
        for tokens in map(torch.tensor, (LEFT[:2], RIGHT[:2]))
    ]
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_labels_of_a_target_in_parts(name):
    """A cache is read beside labels, and where no cache is asked for."""
    model, source = MODELS[name](), torch.tensor([[4, 5, 2], [6, 7, 2]])
    target, labels = torch.tensor([[2, 7, 8, 9], [2, 6, 4, 5]]), torch.tensor(RIGHT[:2])
    whole = model(source, decoder_input_ids=target).logits
    for options in ({"labels": labels[:, 2:]}, {"use_cache": False}):
        first = model(source, decoder_input_ids=target[:, :2], use_cache=True)
        assert first.past_key_values.get_seq_length() == 2
        given = {"decoder_input_ids": target[:, 2:], "past_key_values": first.past_key_values}
        torch.testing.assert_close(model(source, **given, **options).logits, whole[:, 2:])


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_a_beginning_with_padding_on_the_left_needs_no_mask(name):
    model, source = MODELS[name](), torch.tensor([[4, 5, 2], [6, 7, 2]])
    beginning = torch.tensor([[2, 7, 9, 4], [1, 1, 2, 8]])
    options = {"decoder_input_ids": beginning, "max_new_tokens": 5, "min_new_tokens": 5}
    options |= {"output_logits": True, "return_dict_in_generate": True}
    found, again = (model.generate(source, **options, use_cache=x) for x in (True, False))
    torch.testing.assert_close(torch.stack(found.logits), torch.stack(again.logits))


@pytest.mark.parametrize("name", MODELS)
def test_gradient_checkpoints_refuse_a_cache(name):
    model, source = MODELS[name]().train(), torch.tensor([[4, 5, 2], [6, 7, 2]])
    model.gradient_checkpointing_enable()
    assert model(source, decoder_input_ids=source).past_key_values is None
    with pytest.raises(ValueError, match="must be left out in training with gradient"):
        model.generate(source, max_new_tokens=3)
    model.eval().generate(source, max_new_tokens=3)


@torch.no_grad()
def test_softmax_attention_to_padding_alone_sees_no_later_token():
    """With a start symbol that is padding, as in other models."""
    torch.manual_seed(1)
    config = BoundedTransformerConfig(
        encoder_stack=StackConfig(**SIZES),
        decoder_stack=StackConfig(**SIZES, source_dim=8),
        is_encoder_decoder=True,
        decoder_start_token_id=1,
    )
    model = BoundedTransformerForConditionalGeneration(config).eval()
    source, target = torch.tensor([[4, 5, 2]]), torch.tensor([[1, 7, 8, 9]])
    whole = model(source, decoder_input_ids=target)
    for length in (1, 2, 3):
        part = model(source, decoder_input_ids=target[:, :length], use_cache=True)
        torch.testing.assert_close(part.logits, whole.logits[:, :length])
        given = {"decoder_input_ids": target[:, length:], "past_key_values": part.past_key_values}
        torch.testing.assert_close(model(source, **given).logits, whole.logits[:, length:])
