"""ONNX graphs and `torch.export` of decoding steps against the models that they are made of."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from full import full, others_in_full

from fairseq_memattn.attention.controls.registry import all_controls, control_class
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.onnx.onnx_decoder import OnnxDecoder
from fairseq_memattn.transformers import (
    BoundedDecoderConfig,
    BoundedDecoderForCausalLM,
    BoundedTransformerConfig,
    BoundedTransformerForCausalLM,
    BoundedTransformerForConditionalGeneration,
    BoundedTransformerForMaskedLM,
)
from fairseq_memattn.transformers.transformer_config import ControlConfig, StackConfig

WORDS, PAD, EOS = 24, 1, 2
SIZES = {"vocab_size": WORDS, "layers": 1, "embed_dim": 8, "ffn_dim": 12, "heads": 2}
SIZES |= {"input_dim": 8, "output_dim": 8, "max_positions": 32}
SOURCE = [[5, 9, 4, EOS], [7, EOS], [3, 3, 8, 6, 21, 11, EOS]]
OPTIONS = {"global": {"stride": 8}, "local_global": {"stride": 16}}
PROMPT = [[EOS, 8, 9], [EOS, 22, 3]]


def control(name, **options):
    if name == "softmax":
        return None
    return ControlConfig(name, slots=4, heads=2, max_positions=32, options=options)


def build(cls, config, seed=1):
    torch.manual_seed(seed)
    model = cls(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)  # so that log probabilities are far apart
    return model


def translator(name, encoder=None, **options):
    found = control(name, **options)
    causal = None if found and control_class(name).causal_refusal else found
    encoder = StackConfig(**SIZES, full=encoder)
    decoder = StackConfig(**SIZES, source_dim=8, causal=causal, cross=found)
    config = BoundedTransformerConfig(
        encoder_stack=encoder,
        decoder_stack=decoder,
        is_encoder_decoder=True,
        decoder_start_token_id=EOS,
    )
    model = build(BoundedTransformerForConditionalGeneration, config)
    model.config.generation_limits = {"max_len_a": 1.0, "max_len_b": 6}
    model.generation_config.min_new_tokens = 1
    return model


def language_model(name, options=None, **fields):
    stack = StackConfig(**SIZES, causal=control(name, **options or {}), **fields)
    return build(BoundedTransformerForCausalLM, BoundedTransformerConfig(decoder_stack=stack))


def decoder(*controls):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = BoundedDecoderConfig(
        vocab_size=WORDS, **sizes, num_key_value_heads=2, controls=controls
    )
    return build(BoundedDecoderForCausalLM, config)


def padded(rows):
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def trimmed(rows):
    """Without the start token, eos and what follows it."""
    return [[*map(int, row)] if EOS not in row else row[: row.index(EOS)] for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("onnxruntime")
    from fairseq_memattn.onnx.onnx_export import write_onnx

    def write(model):
        path = tmp_path_factory.mktemp("onnx")
        write_onnx(model, path)
        return path

    return write


@pytest.fixture(scope="module")
def exported(folder):
    """A translator, and its folder."""
    model = translator("mlp")
    return model, folder(model)


def test_translations(exported):
    """Rows of several lengths at once, and one by one."""
    model, path = exported
    expected = trimmed(model.generate(padded(SOURCE))[:, 1:].tolist())
    decoder = OnnxDecoder(path, threads=1)
    assert max(map(len, expected)) > 5
    assert decoder.generate(SOURCE) == expected
    assert [decoder.generate([row])[0] for row in SOURCE] == expected


def test_log_probabilities_and_the_size_of_the_state(exported):
    model, path = exported
    decoder = OnnxDecoder(path, threads=1)
    state = decoder.encode(SOURCE)
    size = sum(x.nbytes for x in state.values())
    rows = np.random.default_rng(1).integers(3, WORDS, (len(SOURCE), 20))
    found = []
    for tokens in rows.T:
        log_probs, state = decoder.step(state, tokens)
        found.append(torch.from_numpy(log_probs))
        assert sum(x.nbytes for x in state.values()) == size
    with torch.no_grad():
        logits = model(input_ids=padded(SOURCE), decoder_input_ids=torch.from_numpy(rows)).logits
    torch.testing.assert_close(
        torch.stack(found, dim=1), logits.log_softmax(dim=2), atol=1e-4, rtol=0
    )


def test_the_decoder_needs_no_torch(exported):
    _, path = exported
    program = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'fairseq', 'onnx'): sys.modules[name] = None\n"
        "from fairseq_memattn.onnx.onnx_decoder import OnnxDecoder\n"
        f"print(OnnxDecoder({str(path)!r}).generate({SOURCE}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == str(OnnxDecoder(path).generate(SOURCE)), done.stderr


@pytest.mark.full
def test_language_model(folder):
    """With slots that nothing is written into, and write logits whose exponential is infinite."""
    model = language_model("mlp", {"activation": "relu"})
    control = model.decoder.causal_controls[0]
    with torch.no_grad():
        control.proj.weight.mul_(40)
    decoder = OnnxDecoder(folder(model), threads=1)
    expected = model.generate(
        torch.tensor(PROMPT), max_new_tokens=9, do_sample=False, suppress_tokens=[PAD]
    )
    found = decoder.generate(prompt=PROMPT, max_new_tokens=9)
    assert found == trimmed(expected[:, 3:].tolist())


ADAPTIVE = {
    "adaptive_input": {"cutoffs": [6, 15, WORDS], "initial_dim": 8, "factor": 2},
    "adaptive_softmax": {"cutoffs": [6, 15, WORDS], "widths": [8, 4, 2]},
}
STEPS = {
    "window": lambda: language_model("window"),
    "rfa": lambda: language_model("rfa"),
    "adaptive": lambda: language_model("mlp", **ADAPTIVE),
    "softmax": lambda: language_model("softmax", positions="learned"),
    "decoder": lambda: decoder({"control": "local_mlp", "slots": 4}, "softmax"),
    "decoder with gates": lambda: decoder(
        {"control": "gated", "slots": 3, "rotary": False}, {"control": "sinks", "slots": 4}
    ),
    **{
        name: lambda name=name: language_model(name, OPTIONS.get(name))
        for name in all_controls()
        if not control_class(name).causal_refusal
    },
}


@pytest.mark.parametrize("name", others_in_full(STEPS, ["window", "adaptive"]))
@torch.no_grad()
def test_exported_steps(name):
    """By `torch.export`, for batches of other sizes than the traced one."""
    from fairseq_memattn.onnx.onnx_export import export_step, start_states
    from fairseq_memattn.onnx.step_graphs import parts

    model = STEPS[name]()
    step = export_step(model).module()
    for rows in (1, 3):
        tokens = torch.randint(3, WORDS, (rows, 7))
        read = torch.zeros(rows, dtype=torch.long)
        states = start_states(parts(model), {"batch": rows, "past": 0})
        found = []
        for column in tokens.split(1, dim=1):
            log_probs, read, states = step(column, read, states)
            found.append(log_probs)
        expected = model(tokens).logits.log_softmax(dim=2)
        torch.testing.assert_close(torch.stack(found, dim=1), expected, atol=1e-4, rtol=0)


ENCODERS = {
    **{
        name: lambda name=name: translator(name, **OPTIONS.get(name, {})) for name in all_controls()
    },
    "softmax": lambda: translator("softmax"),
    "encoder with a window": lambda: translator("softmax", encoder=control("window")),
    "encoder with dilation": lambda: translator("softmax", encoder=control("dilated")),
    "encoder with a stride": lambda: translator("softmax", encoder=control("strided")),
    "encoder with global tokens": lambda: translator(
        "softmax", encoder=control("local_global", stride=16)
    ),
}


@pytest.mark.parametrize("name", others_in_full(ENCODERS, ["encoder with global tokens"]))
@torch.no_grad()
def test_exported_encoders(name):
    """Of sources of other lengths than the traced one, and with padding."""
    from fairseq_memattn.onnx.onnx_export import export_encoder
    from fairseq_memattn.onnx.step_graphs import EncoderGraph

    model = ENCODERS[name]()
    graph, program = EncoderGraph(model), export_encoder(model).module()
    for rows in ([[4]], SOURCE, [[7, 8, 9, EOS]] * 4):
        tokens = padded(rows)
        mask = tokens.ne(PAD).long()
        for found, expected in zip(program(tokens, mask), graph(tokens, mask), strict=True):
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", map(full, all_controls()))
def test_translations_of_every_control(folder, name):
    model = translator(name, **OPTIONS.get(name, {}))
    expected = trimmed(model.generate(padded(SOURCE))[:, 1:].tolist())
    decoder = OnnxDecoder(folder(model), threads=1)
    assert decoder.generate(SOURCE) == expected
    assert [decoder.generate([row])[0] for row in SOURCE] == expected


def test_more_tokens_than_positions(exported):
    """Beyond the last position, a step of some controls would write nothing."""
    decoder = OnnxDecoder(exported[1], threads=1)
    decoder.about |= {"longest_source": 7, "longest_target": 9}
    log_probs, state = decoder.read(decoder.encode([[5] * 7]), [[5] * 9])
    with pytest.raises(ValueError, match="tokens of a row must be at most 9, but are 10"):
        decoder.step(state, log_probs.argmax(axis=1))
    with pytest.raises(ValueError, match="and the new ones must be at most 9, but are 10"):
        decoder.generate([[5]], [[EOS] * 5], max_new_tokens=6)
    with pytest.raises(ValueError, match="of a row of `source` must be at most 7, but are 8"):
        decoder.generate([[5] * 8])


def test_what_is_refused(tmp_path):
    from fairseq_memattn.onnx.onnx_export import write_onnx

    with pytest.raises(MemAttnError, match="onnx.json: there is no such file"):
        OnnxDecoder(tmp_path)
    config = BoundedTransformerConfig(encoder_stack=StackConfig(**SIZES))
    with pytest.raises(MemAttnError, match="a BoundedTransformerForMaskedLM are not supported"):
        write_onnx(BoundedTransformerForMaskedLM(config), Path(tmp_path))
    model = language_model("mlp")
    model.config.gmat = {}
    with pytest.raises(MemAttnError, match="an encoder with a global memory are not supported"):
        write_onnx(model, Path(tmp_path))
    assert not [*tmp_path.iterdir()]
