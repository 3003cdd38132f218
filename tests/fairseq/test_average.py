"""`memattn average`: the mean bit for bit, and one sentence for everything that cannot be."""

import errno
import shlex
from argparse import Namespace
from collections import OrderedDict
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
import torch
from harness import PLUGGED, run

from fairseq_memattn.cli import main


def checkpoint(seed=0, updates=1, arch="transformer", **weights):
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
        "cfg": {"model": Namespace(_name=arch)},
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


@pytest.mark.parametrize("n", [1, 2, 3, 7])
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


@pytest.mark.parametrize("n", [1, 2, 3, 5, 10])
def test_mean_of_equal_checkpoints_is_the_checkpoint(tmp_path, save, n):
    weights = {"wide": torch.tensor([1e-45, -3e38, 0.1, 1 / 3, 0.0])}
    paths = [save(f"{i}.pt", checkpoint(**weights)) for i in range(n)]
    mean = average(tmp_path, *paths)["model"]
    expected = checkpoint(**weights)["model"]
    del mean["double"], expected["double"]
    assert list(mean) == list(expected)
    for name, weight in expected.items():
        wanted = weight.float() if weight.is_floating_point() else weight
        assert same_bits(mean[name], wanted), name


def test_order_of_inputs_does_not_matter(tmp_path, save):
    wide = [1e30, 1.0, -1e30, 1e-30]
    paths = [
        save(f"{i}.pt", checkpoint(i, updates=i, wide=torch.tensor([value])))
        for i, value in enumerate(wide)
    ]
    first = average(tmp_path, *paths)
    for order in permutations(paths):
        mean = average(tmp_path, *order)
        assert mean["extra_state"] == first["extra_state"]
        for name, weight in first["model"].items():
            assert same_bits(mean["model"][name], weight), name


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
        (
            "--last-updates 3 --upper-bound 150",
            "--last-updates must be at most 2, the number of such checkpoints in {folder} up to "
            "--upper-bound 150, but is 3",
        ),
        ("--last-epochs 0", "--last-epochs must be at least 1, but is 0"),
        ("--upper-bound 3", "--upper-bound needs --last-epochs or --last-updates"),
        ("", "--inputs {folder} is a folder: select its checkpoints with --last-epochs"),
    ],
)
def test_folder_errors(tmp_path, folder, capsys, options, message):
    output = tmp_path / "out.pt"
    error = error_of(capsys, "--inputs", folder, "--output", output, *options.split())
    assert message.format(folder=folder) in error
    assert not output.exists()


def test_last_epochs_of_a_file(tmp_path, folder, capsys):
    path = folder / "checkpoint1.pt"
    error = error_of(capsys, "--inputs", path, "--output", tmp_path / "o", "--last-epochs", 1)
    assert f"--last-epochs needs one folder as --inputs, but --inputs is {path}" in error


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"arch": "lstm"}, "their architectures are transformer and lstm"),
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


def test_output_that_cannot_be_written(tmp_path, save, capsys):
    path = save("a.pt", checkpoint())
    nowhere = tmp_path / "nowhere" / "out.pt"
    assert f"the folder {nowhere.parent} does not exist" in error_of(
        capsys, "--inputs", path, "--output", nowhere
    )
    assert "is a folder, not a file" in error_of(capsys, "--inputs", path, "--output", tmp_path)


def test_failed_write_leaves_the_old_output(tmp_path, save, monkeypatch, capsys):
    path, output = save("a.pt", checkpoint()), tmp_path / "out.pt"
    output.write_text("old")

    def full(state, file):
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    message = f"out.pt cannot be written in the folder {tmp_path}: No space left on device"
    assert message in error_of(capsys, "--inputs", path, "--output", output)
    assert output.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [path, output]


def test_inputs_that_cannot_be_read(tmp_path, capsys):
    path, output = tmp_path / "broken.pt", tmp_path / "out.pt"
    message = f"--inputs {path}: there is no such file"
    assert message in error_of(capsys, "--inputs", path, "--output", output)
    path.write_text("no checkpoint")
    assert f"{path} cannot be loaded" in error_of(capsys, "--inputs", path, "--output", output)


def test_help_and_usage(capsys):
    for argv, status in ((["--help"], 0), (["average", "--help"], 0), ([], 2), (["no"], 2)):
        with pytest.raises(SystemExit) as stop:
            main(argv)
        assert stop.value.code == status
    assert "average the weights of several checkpoints into one" in capsys.readouterr().out


def test_average_of_a_training_generates(tmp_path):
    """preprocess, train two epochs, average them, generate from the mean."""
    lines = "".join(f"the {word} sees the {word}\n" for word in ["a", "b", "c", "d", "e"] * 2)
    for name in ("train.x", "train.y", "valid.x", "valid.y"):
        (tmp_path / name).write_text(lines)

    def call(command):
        return run(*shlex.split(command), cwd=tmp_path).stdout

    call(
        "fairseq-preprocess -s x -t y --trainpref train --validpref valid --destdir bin "
        "--joined-dictionary"
    )
    plugin = shlex.join(PLUGGED)
    sizes = " ".join(
        f"--{side}-layers 1 --{side}-embed-dim 8 --{side}-ffn-embed-dim 8 "
        f"--{side}-attention-heads 2"
        for side in ("encoder", "decoder")
    )
    call(
        f"fairseq-train bin {plugin} --arch transformer {sizes} --share-all-embeddings "
        "--optimizer adam --lr 0.01 --max-tokens 256 --max-epoch 2 --save-dir checkpoints"
    )
    call("memattn average --inputs checkpoints --last-epochs 2 --output averaged.pt")
    first, second, mean = (
        load(tmp_path / path)["model"]
        for path in ("checkpoints/checkpoint1.pt", "checkpoints/checkpoint2.pt", "averaged.pt")
    )
    for name, weight in mean.items():
        assert torch.equal(weight, ((first[name].double() + second[name]) / 2).float())
    output = call(
        f"fairseq-generate bin {plugin} --gen-subset valid --path averaged.pt --beam 1 "
        "--max-len-b 5 --max-tokens 256 --required-batch-size-multiple 1"
    )
    assert sum(line.startswith("H-") for line in output.splitlines()) == 10
