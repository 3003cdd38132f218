"""GenBERT over GMAT's encoder: one set of weights that encodes and decodes."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from test_gmat import EOS, MASKABLE, PAD, SMALL, WORDBOOK, build, loaded, rows, saved
from torch.nn.functional import layer_norm
from torch.testing import assert_close

from fairseq_memattn.cli import main
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.genbert import GMATGenBert

DESIGNS = {
    "chunks": {},
    "untied": {"gmat_memory_projections": "qkv"},
    "window": {"gmat_sparsity": "window", "gmat_window": 2},
    "no memory": {"gmat_memory": 0},
    "positioned memory": {"gmat_memory_positions": True},
    "norm before": {"encoder_normalize_before": True},
    "the last layer decodes": {"decoder_layers": 1},
}
each_design = pytest.mark.parametrize("design", DESIGNS)


def genbert(design="chunks", **options):
    return build("gmat_genbert", words=MASKABLE, **SMALL | DESIGNS[design] | options)


def batch():
    return rows(9, 5, left=True), None, rows(6, 4)


class Literal:
    """The decoder, an attention at a time, from the encoder's weights."""

    def __init__(self, model, first):
        """first: of the encoder's layers that decode."""
        self.model, self.encoder, self.first = model, model.encoder, first

    def attention(self, layer, x, states, visible):
        """x: (T, E); states: (S, E); visible: (T, S)."""
        weights, heads = layer.self_attn, []
        size = x.shape[1] // weights.num_heads
        for h in range(weights.num_heads):
            part = slice(h * size, (h + 1) * size)
            q, k, v = weights.q_proj(x), weights.k_proj(states), weights.v_proj(states)
            logits = q[:, part] @ k[:, part].t() / size**0.5
            heads.append(logits.masked_fill(~visible, -torch.inf).softmax(1) @ v[:, part])
        return weights.out_proj(torch.cat(heads, dim=1))

    def norm(self, module, x):
        return layer_norm(x, x.shape[-1:], module.weight, module.bias, 1e-5)

    def layer(self, layer, x, states):
        first, last = layer.self_attn_layer_norm, layer.final_layer_norm
        causal = torch.ones(len(x), len(x)).tril().bool()
        x = self.norm(first, x + self.attention(layer, x, x, causal))
        everything = torch.ones(len(x), len(states)).bool()
        x = self.norm(first, x + self.attention(layer, x, states, everything))
        fed = layer.fc2(torch.nn.functional.gelu(layer.fc1(x)))
        return self.norm(last, x + fed)

    def __call__(self, source, fed):
        """source: (S,), fed: (T,), neither with padding."""
        encoder, decoder = self.encoder, self.model.decoder
        states = encoder(source[None])["encoder_out"][0][:, 0]
        places = encoder.embed_positions.weight[PAD + 1 : PAD + 1 + len(fed)]
        embedded = encoder.embed_tokens.weight[fed] + places + encoder.embed_positions.blocks[0]
        x = self.norm(encoder.layernorm_embedding, embedded + decoder.segment)
        for layer in encoder.layers[self.first :]:
            x = self.layer(layer, x, states)
        return decoder.lm_head(x)


@torch.no_grad()
@pytest.mark.parametrize("design", ["chunks", "untied", "no memory", "the last layer decodes"])
def test_the_decoder_written_out(design):
    model, (source, _, fed) = genbert(design), batch()
    out, _ = model(source, None, fed)
    first = 2 if design == "the last layer decodes" else 0
    for b in range(2):
        expected = Literal(model, first)(source[b][source[b].ne(PAD)], fed[b][fed[b].ne(PAD)])
        assert_close(out[b, : len(expected)], expected, rtol=0, atol=1e-5)


@each_design
def test_gradients_reach_every_weight(design):
    model = genbert(design).train()
    model(*batch())[0].square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        # What is added to all keys of a softmax changes nothing.
        assert name.endswith("k_proj.bias") or weight.grad.any(), name


@each_design
@pytest.mark.parametrize("beam", [1, 3])
@torch.no_grad()
def test_search_is_scored_as_the_whole_target(design, beam):
    model, lengths = genbert(design), (9, 5)
    generator = SequenceGenerator([model], MASKABLE, beam_size=beam, max_len_b=8)
    source = rows(*lengths, left=True)
    sample = {"net_input": {"src_tokens": source, "src_lengths": torch.tensor(lengths)}}
    for row, found in zip(source, generator.generate([model], sample), strict=True):
        words = found[0]["tokens"]
        before = torch.cat([torch.tensor([EOS]), words[:-1]]).unsqueeze(0)
        scores = model(row[row.ne(PAD)].unsqueeze(0), None, before)[0].log_softmax(2)[0]
        scores = scores.gather(1, words.unsqueeze(1)).squeeze(1)
        assert_close(found[0]["positional_scores"], scores, rtol=0, atol=2e-5)


@torch.no_grad()
def test_the_encoder_is_gmat_s_bert():
    bert = build("gmat_bert", words=MASKABLE, **SMALL)
    model = genbert()
    weights = model.weights_from(bert.state_dict())
    lacking, unexpected = model.load_state_dict(weights, strict=False)
    assert (lacking, unexpected) == (["decoder.segment"], [])
    source = rows(9, 5)
    real = source.ne(PAD)
    features = model.encoder(source)["encoder_out"][0].transpose(0, 1)
    assert_close(features[real], bert(source, features_only=True)[0][real])
    assert_close(model.decoder.lm_head(features)[real], bert(source)[0][real])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gmat_sparsity": "lsh"}, "--gmat-sparsity lsh has no key projection, which"),
        ({"encoder_layerdrop": 0.1}, "--encoder-layerdrop must be 0 .* but is 0.1"),
        ({"max_target_positions": 40000}, "--max-target-positions has 40000 positions, but"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(MemAttnError, match=message):
        genbert(**options)


# --- Commands


@pytest.fixture
def convert(tmp_path):
    """Converts a masked language model to another architecture; the model, its file and the new."""
    bert = build("gmat_bert", words=MASKABLE, **SMALL)
    path = saved(tmp_path / "bert", bert, "gmat_bert", flags=["--gmat-memory", "3"])
    output = tmp_path / "new.pt"

    def run(arch, *flags):
        argv = ["convert", str(path.parent), "--path", str(path), "--arch", arch]
        return main([*argv, "--output", str(output), *flags])

    return bert, path, output, run


def test_from_a_masked_language_model(convert):
    bert, path, output, run = convert
    assert run("gmat_genbert", "--flags=--gmat-memory-projections qkv") == 0
    state = torch.load(output, weights_only=False)["model"]
    of_bert = GMATGenBert.weights_from(bert.state_dict())
    assert all(torch.equal(state[name], weight) for name, weight in of_bert.items())
    new = {name for name in state if name not in of_bert}
    assert "decoder.segment" in new
    assert all(name == "decoder.segment" or ".memory_proj." in name for name in new)
    model, _ = loaded(output, path.parent)
    assert model(rows(9, 5), None, rows(6, 4))[0].isfinite().all()
    # Translation, to which it is finetuned, reads a dictionary without <mask>.
    finetuned = build("gmat_genbert", words=WORDBOOK, gmat_memory_projections="qkv", **SMALL)
    finetuned.load_state_dict(state)


def test_a_memory_for_a_genbert_without_one(tmp_path):
    bert = build("gmat_bert", words=MASKABLE, gmat_memory=0)
    path = saved(tmp_path / "bert", bert, "gmat_bert", flags=["--gmat-memory", "0"])
    states = []
    for number, flags in enumerate(("--gmat-memory 0", "--gmat-memory 5")):
        argv = ["convert", str(path.parent), "--path", str(path), "--arch", "gmat_genbert"]
        path = tmp_path / "bert" / f"{number}.pt"
        assert main([*argv, "--output", str(path), f"--flags={flags}"]) == 0
        states.append(torch.load(path, weights_only=False)["model"])
    without, state = states
    assert all(torch.equal(state[name], weight) for name, weight in without.items())
    assert set(state) - set(without) == {"encoder.memory_tokens.weight"}
