"""The language model on a generated text: training, generation, and its messages."""

import random
from pathlib import Path

import pytest
import torch

from examples import language_model
from examples.language_model import LanguageModel, generate, loss_of, state_size, train, validate
from fairseq_memattn.attention.nn import Rotary


@pytest.fixture
def text() -> torch.Tensor:
    words = ["memory", "slots", "bounded", "the", "a", "of", "reads", "writes"]
    sentence = " ".join(random.Random(1).choices(words, k=600))
    return torch.tensor(list(sentence.encode()))


@pytest.fixture
def model() -> LanguageModel:
    torch.manual_seed(1)
    return LanguageModel(32, 2, 2, 8, ["window", "mlp"])


def test_the_loss_falls(model: LanguageModel, text: torch.Tensor) -> None:
    before = validate(model, text[-500:], 32)
    train(model, text[:-500], updates=12, batch=8, length=32, lr=1e-2)
    assert validate(model, text[-500:], 32) < before - 2


@pytest.mark.parametrize("rotary", [None, Rotary()])
def test_steps_equal_the_parallel_forward_pass(rotary: Rotary | None, text: torch.Tensor) -> None:
    torch.manual_seed(1)
    model = LanguageModel(32, 2, 2, 8, ["local_mlp", "mlp"], rotary).double()
    text = text[None, :120]
    logits, state = model.step(text[:, :20])  # the prompt at once
    steps = [logits]
    for position in range(20, text.shape[1]):
        logits, state = model.step(text[:, position : position + 1], state)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), model(text))


def test_the_state_does_not_grow(model: LanguageModel) -> None:
    sizes = [state_size(state) for _, state in generate(model, b"the ", 50, 1.0)]
    assert len(sizes) == 50
    assert len(set(sizes)) == 1


def test_validation_is_the_mean_over_blocks(model: LanguageModel, text: torch.Tensor) -> None:
    blocks = torch.stack([text[start : start + 33] for start in range(0, len(text) - 32, 32)])
    assert len(blocks) > 50
    with torch.no_grad():
        expected = loss_of(model, blocks).item()
    assert validate(model, text, 32) == pytest.approx(expected, rel=1e-5)


def test_the_command(tmp_path: Path, text: torch.Tensor, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(bytes(text.tolist()))
    options = "--size 16 --heads 2 --layers 2 --slots 4 --length 32 --updates 2 --generate 20"
    outputs = []
    for _ in range(2):
        language_model.main([str(file), *options.split()])
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]  # the same seed
    assert "after 2 updates: " in outputs[0]
    assert "bits per character" in outputs[0]
    assert "\nThe " in outputs[0]


def test_bits_of_a_character_count_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("ж" * 1000, encoding="utf-8")
    train_text, valid, width = language_model.read(file, 32)
    assert (len(train_text), len(valid), width) == (1800, 200, 2.0)


@pytest.mark.parametrize(
    "options, message",
    [
        ("nowhere.txt", "error: cannot read nowhere.txt: No such file or directory"),
        (
            "short.txt --length 32",
            "error: short.txt must have at least 330 bytes for --length 32, but has 300; "
            "choose a longer file or a smaller --length",
        ),
        ("long.txt --length 32 --heads 3", "error: `num_heads` must divide `embed_dim` 128"),
        ("long.txt --length 32 --controls none", "error: `control` must be one of "),
        ("long.txt --prompt=", "error: --prompt must not be empty"),
        ("long.txt --temperature 0", "--temperature must be above 0"),
    ],
)
def test_messages(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("short.txt").write_text("a" * 300)
    Path("long.txt").write_text("a" * 400)
    with pytest.raises(SystemExit) as raised:
        language_model.main(options.split())
    assert message in str(raised.value)
