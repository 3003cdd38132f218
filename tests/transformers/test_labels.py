"""What decoders read for labels that are padded on either side."""

import pytest
import test_t5mem_generation as t5mem
import torch
from test_gmat_models import TINY

from fairseq_memattn.transformers import (
    BoundedTransformerConfig,
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
