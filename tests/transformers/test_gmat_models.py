"""GMAT's models in transformers' format, without fairseq."""

import pytest
import torch
from torch.testing import assert_close

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.transformers import (
    GMATConfig,
    GMATForMaskedLM,
    GMATForQuestionAnswering,
    GMATForTokenClassification,
    GMATModel,
)

TINY = {
    "vocab_size": 24,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "memory_slots": 3,
    "chunk_size": 4,
    "lsh_buckets": 4,
    "lsh_rounds": 2,
}
TOKENS = torch.tensor([[0, 4, 5, 6, 2, 7, 8, 9, 10, 2], [0, 5, 2, 4, 9, 11, 2, 1, 1, 1]])


def config(**options):
    return GMATConfig(**TINY | options)


@pytest.mark.parametrize(
    "options", [{}, {"sparsity": "lsh"}, {"compress_after": 1}, {"hidden_dropout_prob": 0.3}]
)
def test_gradient_checkpointing_changes_no_gradients(options):
    model = GMATForMaskedLM(config(**options)).train()
    gradients = []
    for _ in range(2):
        torch.manual_seed(1)
        model.zero_grad()
        model(TOKENS, labels=TOKENS).loss.backward()
        gradients.append([weight.grad.clone() for weight in model.parameters()])
        model.activation_checkpointing_enable()
    assert_close(*gradients, rtol=0, atol=1e-7)


def test_losses():
    labels = TOKENS.masked_fill(TOKENS.eq(1), -100)
    for model in (GMATForMaskedLM(config()), GMATForTokenClassification(config(num_labels=12))):
        out = model.eval()(TOKENS, labels=labels)
        expected = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), labels.flatten())
        assert_close(out.loss, expected)
    model = GMATForQuestionAnswering(config()).eval()
    ends = torch.tensor([5, 3]), torch.tensor([6, 3])
    out = model(TOKENS, start_positions=ends[0], end_positions=ends[1])
    losses = [
        torch.nn.functional.cross_entropy(logits, place)
        for logits, place in zip((out.start_logits, out.end_logits), ends, strict=True)
    ]
    assert_close(out.loss, sum(losses) / 2)
    assert model(TOKENS, return_dict=False)[0].shape == (2, 10)


@torch.no_grad()
def test_embeddings_instead_of_symbols():
    model = GMATModel(config()).eval()
    mask = TOKENS.ne(1).long()
    expected = model(TOKENS).last_hidden_state[mask.bool()]
    out = model(inputs_embeds=model.embed_tokens(TOKENS), attention_mask=mask)
    assert torch.equal(out.last_hidden_state[mask.bool()], expected)
    with pytest.raises(MemAttnError, match="either `input_ids` or `inputs_embeds`"):
        model()


@torch.no_grad()
def test_training_skips_layers():
    model = GMATModel(config(layerdrop=1.0))
    out = model.train()(TOKENS, output_hidden_states=True).hidden_states
    real = TOKENS.ne(1)
    assert torch.equal(out[0][real], out[-1][real])
    out = model.eval()(TOKENS, output_hidden_states=True).hidden_states
    assert not torch.equal(out[0][real], out[-1][real])


@pytest.mark.full
def test_a_graph_without_breaks():
    model = GMATForMaskedLM(config()).eval()
    with torch.no_grad():
        exported = torch.export.export(model, (TOKENS,)).module()
        real = TOKENS.ne(1)
        assert_close(exported(TOKENS).logits[real], model(TOKENS).logits[real])


def test_options_that_cannot_be():
    for options, message in (
        ({"position_embedding_type": "x"}, "`position_embedding_type` must be one of blocks"),
        (
            {"memory_positions": True, "position_embedding_type": "none"},
            "`position_embedding_type` must not be none with `memory_positions`",
        ),
        ({"memory_layers": 1}, "`memory_layers` must be 0 without `compress_after`, but is 1"),
        ({"compress_after": 2, "memory_layers": 1}, "must leave some of the 3"),
        ({"compress_after": 1, "memory_slots": 0}, "`memory_slots` must not be 0"),
        ({"compress_after": 1, "position_embedding_type": "none"}, "must not be none"),
    ):
        with pytest.raises(MemAttnError, match=message):
            config(**options)
    with pytest.raises(ValueError, match="`sparsity` must be one of chunks, lsh, window"):
        GMATModel(config(sparsity="x"))
    model = GMATModel(config(max_position_embeddings=9))
    with pytest.raises(MemAttnError, match="at most 9 tokens .* but has 10"):
        model(TOKENS)
    with pytest.raises(MemAttnError, match="the model has `compress_after` 0"):
        model.compress(TOKENS[:, :5])
    compressed = GMATModel(config(compress_after=1))
    with pytest.raises(MemAttnError, match="a memory of 3 vectors, but the given memories have 2"):
        compressed.decompress(torch.zeros(1, 2, 16), torch.tensor([4]))
