"""`memattn average`: the mean bit for bit, and one sentence for everything that cannot be."""

from argparse import Namespace
from collections import OrderedDict
from fractions import Fraction

import numpy as np
import pytest
import torch
from harness import Trained, assert_same, generate, hypotheses

from fairseq_memattn.cli import main


def checkpoint(seed=0, updates=1, arch="transformer", options=None, **weights):
    torch.manual_seed(seed)
    embedding = torch.randn(7, 5)
    model = OrderedDict(
        {
            "embed": embedding,
            "project": embedding,
            "half": torch.randn(9).half(),
            "brain": torch.randn(9).bfloat16(),
            "double": torch.randn(9).double(),
            "scalar": torch.randn(()),
            "positions": torch.arange(4),
            "mask": torch.tensor([True, False]),
        }
    )
    model.update(weights)
    return {
        "args": None,
        "cfg": {"model": Namespace(_name=arch, **{"abc_activation": "exp", **(options or {})})},
        "model": model,
        "optimizer_history": [{"num_updates": updates}],
        "extra_state": {"updates": updates},
        "last_optimizer_state": {"state": torch.randn(100)},
    }


@pytest.fixture
def save(tmp_path):
    def save(name, state):
        torch.save(state, tmp_path / name)
        return tmp_path / name

    return save


def average(tmp_path, *args):
    output = tmp_path / "averaged.pt"
    assert main(["average", "--output", str(output), "--inputs", *map(str, args)]) == 0
    return load(output)


def load(path):
    return torch.load(path, weights_only=True)


def same_bits(a, b):
    return a.dtype == b.dtype and np.array_equal(
        a.reshape(-1).view(torch.uint8).numpy(), b.reshape(-1).view(torch.uint8).numpy()
    )


def error_of(capsys, *args):
    """The one line on stderr of a command that must fail."""
    assert main(["average", *map(str, args)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("memattn average: error: ")
    return lines[0]


@pytest.mark.parametrize("n", [2, 7])
def test_mean_is_exact(tmp_path, save, n):
    """Against rational arithmetic, rounded once by numpy."""
    states = [checkpoint(seed) for seed in range(n)]
    mean = average(tmp_path, *[save(f"{i}.pt", state) for i, state in enumerate(states)])["model"]
    for name in ("embed", "scalar", "half"):
        columns = zip(*[state["model"][name].flatten().tolist() for state in states], strict=True)
        exact = [float(sum(map(Fraction, column)) / n) for column in columns]
        expected = torch.from_numpy(np.array(exact, dtype=np.float32)).view_as(mean[name])
        assert same_bits(mean[name], expected), name
    double = torch.stack([state["model"]["double"] for state in states]).mean(0)
    torch.testing.assert_close(mean["double"], double, rtol=1e-15, atol=1e-15)


def test_the_rest_comes_from_the_checkpoint_with_most_updates(tmp_path, save):
    paths = [save(f"{updates}.pt", checkpoint(updates=updates)) for updates in (1, 10, 9)]
    mean = average(tmp_path, *paths)
    assert mean["extra_state"] == {"updates": 10}
    assert mean["cfg"]["model"]._name == "transformer"
    assert "last_optimizer_state" not in mean
    assert torch.equal(mean["model"]["positions"], torch.arange(4))


def test_tied_weights_stay_tied(tmp_path, save):
    paths = [save(f"{seed}.pt", checkpoint(seed)) for seed in range(3)]
    model = average(tmp_path, *paths)["model"]
    assert model["embed"].data_ptr() == model["project"].data_ptr()


def test_weights_tied_in_one_checkpoint_only_are_averaged_apart(tmp_path, save):
    loose = checkpoint(1, embed=torch.zeros(7, 5), project=torch.ones(7, 5))
    paths = [save("0.pt", loose), save("1.pt", checkpoint(2))]
    model = average(tmp_path, *paths)["model"]
    torch.testing.assert_close(model["project"] - model["embed"], torch.full((7, 5), 0.5))


@pytest.fixture
def folder(tmp_path):
    """Checkpoints by epoch and by update, each with its number as its only weight."""
    folder = tmp_path / "folder"
    folder.mkdir()
    names = {f"checkpoint{epoch}.pt": epoch for epoch in (1, 2, 9, 10, 11)}
    names |= {"checkpoint_1_50.pt": 50, "checkpoint_2_100.pt": 100, "checkpoint_10_200.pt": 200}
    names |= {"checkpoint_best.pt": 1000, "checkpoint_last.pt": 1000, "checkpoint.best_5.0.pt": 7}
    for name, number in names.items():
        state = {"model": {"number": torch.tensor(float(number))}}
        torch.save(state, folder / name)
    return folder


@pytest.mark.parametrize(
    "options, expected",
    [
        ("--last-epochs 1", 11),
        ("--last-epochs 3", 10),
        ("--last-epochs 2 --upper-bound 10", 9.5),
        ("--last-epochs 2 --upper-bound 8", 1.5),
        ("--last-updates 2", 150),
        ("--last-updates 2 --upper-bound 150", 75),
    ],
)
def test_last_checkpoints_of_a_folder(tmp_path, folder, options, expected):
    assert average(tmp_path, folder, *options.split())["model"]["number"] == expected


@pytest.mark.parametrize(
    "options, message",
    [
        (
            "--last-epochs 6",
            "--last-epochs must be at most 5, the number of such checkpoints in {folder}, but is 6",
        ),
        ("--upper-bound 3", "--upper-bound needs --last-epochs or --last-updates"),
    ],
)
def test_folder_errors(tmp_path, folder, capsys, options, message):
    output = tmp_path / "out.pt"
    error = error_of(capsys, "--inputs", folder, "--output", output, *options.split())
    assert message.format(folder=folder) in error
    assert not output.exists()


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"arch": "lstm"}, "their architectures are transformer and lstm"),
        ({"options": {"abc_activation": "relu"}}, "--abc-activation is exp and relu"),
        ({"more": torch.ones(1)}, "only {b} has `more`"),
        ({"embed": torch.ones(7, 6)}, "`embed` has the shapes (7, 5) and (7, 6)"),
        ({"half": torch.ones(9)}, "`half` has the dtypes torch.float16 and torch.float32"),
        ({"positions": torch.ones(4).long()}, "`positions` has torch.int64 values that differ"),
    ],
)
def test_checkpoints_that_do_not_match(tmp_path, save, capsys, changed, message):
    a, b = save("a.pt", checkpoint()), save("b.pt", checkpoint(**changed))
    output = tmp_path / "out.pt"
    error = error_of(capsys, "--inputs", b, a, "--output", output)
    assert f"{a} and {b} cannot be averaged: {message.format(b=b)}" in error
    assert not output.exists()


def test_output_over_an_input(tmp_path, save, capsys):
    path = save("a.pt", checkpoint())
    link = tmp_path / "link.pt"
    link.symlink_to(path)
    before = path.read_bytes()
    for output in (path, link, tmp_path / "." / "a.pt"):
        error = error_of(capsys, "--inputs", path, "--output", output)
        assert f"--output {output} would overwrite the input {path}" in error
    assert path.read_bytes() == before


def test_the_average_of_a_training_with_itself_generates_the_same(translator, tmp_path):
    """Its weights are those of the training, and fairseq loads it, also twice as an ensemble."""
    inputs = ["--inputs", translator.checkpoint, translator.checkpoint]
    assert main([*map(str, ["average", *inputs, "--output", tmp_path / "averaged.pt"])]) == 0
    averaged = Trained(translator.data, tmp_path / "averaged.pt", "")
    search = ["--beam", 1, "--max-len-b", 5]
    expected = hypotheses(generate(translator, *search))
    assert hypotheses(generate(averaged, *search)) == expected
    twins = Trained(translator.data, f"{averaged.checkpoint}:{translator.checkpoint}", "")
    assert_same(hypotheses(generate(twins, *search)), expected)


def test_other_dictionaries(tmp_path, save, capsys):
    paths = []
    for name in "ab":
        state = checkpoint()
        state["cfg"]["task"] = {"data": str(tmp_path / name)}
        (tmp_path / name).mkdir()
        (tmp_path / name / "dict.txt").write_text(f"the 2\n{name} 1\n")
        paths.append(save(f"{name}.pt", state))
    error = error_of(capsys, "--inputs", *paths, "--output", tmp_path / "out.pt")
    assert "/b/dict.txt has other symbols than " in error
