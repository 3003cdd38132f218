"""T5Mem's models in fairseq's conventions: layout, decoding, refusals, checkpoints.

tests/networks has the tests of what they compute.
"""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from corpora import numbered_words

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.t5mem import DESIGNS

WORDS = 12
MODELS = {name: (name, "embedding") for name in DESIGNS} | {"by layer": ("t5mem_v3", "layer")}
PAPERS = {"t5mem_sequence_positions": "none", "t5mem_selector_bias": "none"}
each_model = pytest.mark.parametrize("name", MODELS)


WORDBOOK = numbered_words(WORDS)
PAD, EOS, SEPARATOR = WORDBOOK.pad(), WORDBOOK.eos(), WORDBOOK.index("w3")


def build(name="t5mem_v3", **flags):
    """A model of random weights in float64, norms and biases included."""
    design, query = MODELS.get(name, (name, "embedding"))
    sizes = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in dict(layers=2, embed_dim=8, ffn_embed_dim=12, attention_heads=2).items()
    }
    args = Namespace(**sizes | dict(dropout=0.0, t5mem_selector_query=query) | flags)
    cfg = SimpleNamespace(context_separator=WORDBOOK[SEPARATOR])
    task = SimpleNamespace(source_dictionary=WORDBOOK, target_dictionary=WORDBOOK, cfg=cfg)
    torch.manual_seed(3)
    model = models()[design].build_model(args, task).double().eval()
    for weights in model.parameters():
        if weights.dim() == 1:
            torch.nn.init.normal_(weights, 1.0, 0.3)
    return model


def models():
    from fairseq.models import ARCH_MODEL_REGISTRY

    return {name: ARCH_MODEL_REGISTRY[name] for name in DESIGNS}


def rows(*lengths, width=None, seed=0):
    """Random words (len(lengths), width), each row ending with eos, padding on the right."""
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths) if width is None else width
    tokens = torch.full((len(lengths), width), PAD)
    for row, length in zip(tokens, lengths, strict=True):
        if length:
            words = torch.randint(4, 4 + WORDS, (length - 1,), generator=generator)
            row[:length] = torch.cat([words, torch.tensor([EOS])])
    return tokens


def batch():
    """Two inputs of up to three sequences, of which the second has one context sequence only.

    The first writes all three, the second the last alone.
    """
    context = rows(4, 6, 0, 3, seed=1).view(2, 2, 6)
    fed = rows(6, 4, seed=3)
    fed[0, 2] = fed[0, 4] = SEPARATOR
    return {
        "src_tokens": rows(5, 3, seed=2),
        "src_lengths": torch.tensor([5, 3]),
        "context_tokens": context,
        "context_padding_mask": context.eq(PAD),
        "prev_output_tokens": fed,
        "target_context": torch.tensor([2, 0]),
    }


def logits(model, inputs):
    with torch.no_grad():
        return model(**inputs)[0]


# --- Refusals


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"t5mem_selector_query": "x"}, "query must be one of embedding, layer, but is x"),
        ({"encoder_attention_heads": 3}, "must divide --encoder-embed-dim 8, but is 3"),
        (
            {"encoder_embed_dim": 4, "share_all_embeddings": True},
            "needs equal --encoder-embed-dim and --decoder-embed-dim, but they are 4 and 8",
        ),
    ],
)
def test_refused_flags(flags, message):
    with pytest.raises(MemAttnError, match=message):
        build("t5mem_v3", **flags)


@pytest.mark.parametrize("shared", [False, True])
def test_scaled_embeddings_are_the_same_function(shared):
    plain = build(share_all_embeddings=shared)
    scaled = build(share_all_embeddings=shared, t5_scale_embeddings=True)
    scaled.load_state_dict(plain.state_dict())
    inputs = batch()
    expected = logits(plain, inputs)
    torch.testing.assert_close(logits(scaled, inputs), expected)
    again, other = (build(share_all_embeddings=shared, t5_scale_embeddings=on) for on in (0, 1))
    again.load_state_dict(scaled.state_dict())
    other.load_state_dict(scaled.state_dict())
    torch.testing.assert_close(logits(again, inputs), expected)
    assert torch.equal(logits(other, inputs), logits(scaled, inputs))


@pytest.mark.parametrize("arch", ["t5mem_v1", "t5mem_ws_wma"])
def test_scaled_positions_are_the_same_function(arch):
    plain, scaled, again, other = (
        build(arch, share_all_embeddings=True, t5_scale_positions=on) for on in (0, 1, 0, 1)
    )
    scaled.load_state_dict(plain.state_dict())
    inputs = batch()
    expected = logits(plain, inputs)
    torch.testing.assert_close(logits(scaled, inputs), expected)
    for model in (again, other):
        model.load_state_dict(scaled.state_dict())
        torch.testing.assert_close(logits(model, inputs), expected)
    assert torch.equal(logits(other, inputs), logits(scaled, inputs))
    tables = [name for name in plain.state_dict() if name.endswith("table")]
    assert len(tables) == 2
    for name in tables:
        weight = scaled.state_dict()[name]
        torch.testing.assert_close(weight * weight.new_tensor(8).sqrt(), plain.state_dict()[name])
