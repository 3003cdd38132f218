"""Checkpoints and folders that the subcommands cannot load: one sentence, from one place."""

from argparse import Namespace

import pytest
import torch

from fairseq_memattn.cli import main

COMMANDS = {"plot": "--output {0}/x.png", "cxmi": "", "compress": "--output {0}/store"}


@pytest.fixture
def refusal(corpus, tmp_path, capsys):
    """Runs a subcommand, and returns the sentence that it ends in."""

    def run(command: str, data: object, checkpoint: object) -> str:
        flags = COMMANDS[command].format(tmp_path, corpus).split()
        assert main([command, str(data), "--path", str(checkpoint), *flags]) == 1
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith(f"memattn {command}: error: ")
        return last

    return run


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["architecture", "task"])
def test_what_nobody_has_registered(kind, command, softmax, refusal, tmp_path):
    state = torch.load(softmax.checkpoint, weights_only=False)
    if kind == "task":
        state["cfg"]["task"]["_name"] = "lost"
    else:
        model = Namespace(**vars(state["cfg"]["model"]))
        model.arch = model._name = "lost"
        state["cfg"]["model"] = model
    torch.save(state, tmp_path / "lost.pt")
    sentence = f"{tmp_path}/lost.pt cannot be loaded: its {kind} lost is not registered; --user-dir"
    assert sentence in refusal(command, softmax.data, tmp_path / "lost.pt")


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"compress", "perplexity"}))
def test_a_folder_of_another_kind(command, softmax, refusal, monolingual, tmp_path):
    sentence = refusal(command, monolingual, softmax.checkpoint)
    assert "Could not infer language pair" in sentence
    (tmp_path / "test.en-ru.en.idx").touch()
    sentence = refusal(command, tmp_path, softmax.checkpoint)
    assert f"{tmp_path}/dict.en.txt" in sentence


def test_dictionaries_of_another_model(softmax, refusal, tmp_path):
    (tmp_path / "test.en-ru.en.idx").touch()
    for language in ("en", "ru"):
        (tmp_path / f"dict.{language}.txt").write_text("the 1\n")
    sentence = refusal("cxmi", tmp_path, softmax.checkpoint)
    assert f"the model does not fit the dictionaries of {tmp_path}" in sentence
