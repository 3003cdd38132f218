"""fairseq's commands as a user runs them, and what they print, as Python values."""

import json
import os
import re
import shlex
import socket
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from forked import Forked, fork, run_forked
from in_process import run_in_process

from fairseq_memattn.host.checkpoints import read_checkpoint

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "fairseq_memattn"
SCRIPTS = Path(sysconfig.get_path("scripts"))

PLUGGED = ["--user-dir", str(PLUGIN), "--cpu", "--num-workers", "0"]
SIZES = shlex.split(
    "--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 32 --decoder-embed-dim 32 "
    "--encoder-ffn-embed-dim 64 --decoder-ffn-embed-dim 64 --encoder-attention-heads 2 "
    "--decoder-attention-heads 2"
)
LM_SIZES = SIZES[2:4] + SIZES[6:8] + SIZES[10:12] + SIZES[14:16]
SLOTS = shlex.split("--abc-cross-slots 8 --abc-causal-slots 4")
OPTIMISER = shlex.split("--optimizer adam --lr 0.005 --clip-norm 1.0 --seed 1")
BATCHES = shlex.split("--max-tokens 1000 --required-batch-size-multiple 1")
LOGGING = shlex.split("--log-format json --log-interval 1")
NO_EPOCH_END = shlex.split("--no-epoch-checkpoints --save-interval 1000 --validate-interval 1000")

COMMON = [*PLUGGED, *OPTIMISER, *BATCHES, *LOGGING, *NO_EPOCH_END]
TRANSLATOR = [*COMMON, *SIZES, *SLOTS, "--arch", "abc_mlp_transformer", "--share-all-embeddings"]
SOFTMAX = [*COMMON, *SIZES, "--arch", "transformer", "--share-all-embeddings"]
WINDOWS = shlex.split("--task document_translation --source-context 2 --target-context 2")
STREAM = shlex.split(
    "--task document_translation --stream --stream-sentences 4 --source-context 0 "
    "--target-context 0"
)
LANGUAGE_MODEL = [
    *COMMON,
    *LM_SIZES,
    *shlex.split("--task language_modeling --arch abc_mlp_transformer_lm --abc-causal-slots 4"),
    *shlex.split("--tokens-per-sample 32 --sample-break-mode none"),
]


def script(name: str) -> str:
    return str(SCRIPTS / name)


def environment(gpu: bool = False) -> dict[str, str]:
    """One thread a process; fairseq would train on every GPU it sees."""
    hidden = {} if gpu else {"CUDA_VISIBLE_DEVICES": ""}
    return {**os.environ, "OMP_NUM_THREADS": "1", **hidden}


def attempt(
    command: str,
    *args: object,
    cwd: Path | None = None,
    stdin: str | None = None,
    gpu: bool = False,
    fresh: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs a command that may fail.

    command: a console script, or the path of a Python script
    fresh: in a process of its own, where imports or several processes are what is tested
    """
    path = command if command.endswith(".py") else script(command)
    argv = [path, *map(str, args)]
    if not (gpu or fresh):
        return run_in_process(command, argv, cwd, stdin, environment())
    if not gpu:
        return run_forked(argv, cwd, stdin, environment())
    return subprocess.run(
        argv, capture_output=True, text=True, cwd=cwd, input=stdin, env=environment(gpu)
    )


def run(command: str, *args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command that must succeed."""
    done = attempt(command, *args, **options)
    if done.returncode != 0:
        tail = "\n".join(line[:200] for line in (done.stdout + done.stderr).splitlines()[-30:])
        raise AssertionError(f"{command} ended with {done.returncode}:\n{tail}")
    return done


@dataclass
class Trained:
    """A trained model: its binarised data, its last checkpoint and what the training logged."""

    data: Path
    checkpoint: Path
    log: str


def train(data: Path, folder: Path, *flags: object, **options: Any) -> Trained:
    done = run("fairseq-train", data, *flags, "--save-dir", folder, **options)
    return Trained(data, folder / "checkpoint_last.pt", done.stdout)


def weights(trained: Trained) -> dict[str, torch.Tensor]:
    return read_checkpoint(trained.checkpoint)["model"]


def assert_same_weights(one: Trained, other: Trained, **tolerances: float) -> None:
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        close = torch.testing.assert_close
        close(weight, theirs[name], **tolerances, msg=lambda m, n=name: f"{n}: {m}")


def flags_of(shown: str) -> list[str]:
    """The flags of the training that `memattn convert` shows, after those of every command."""
    command = shown.rpartition("\nfairseq-train ")[2].replace("\\\n", " ")
    data, option, folder, *flags = shlex.split(command)
    assert option == "--user-dir"
    return flags


def convert(data: Path, path: Path, arch: str, output: Path, flags: str) -> str:
    """What `memattn convert` prints of a checkpoint that it gives another attention."""
    given = ["--path", path, "--arch", arch, "--output", output]
    return run("memattn", "convert", data, *given, f"--flags={flags}").stdout


def start_on(processes: int, folder: Path, command: str, *args: object) -> list[Forked]:
    """Starts a command on the CPU in processes that find each other as those of torchrun do.

    folder: an empty one, for the streams
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free.getsockname()[1])}
    started = []
    for rank in range(processes):
        (folder / f"{rank}").mkdir(parents=True)
        place = {"WORLD_SIZE": str(processes), "RANK": str(rank), "LOCAL_RANK": str(rank)}
        argv = [script(command), *map(str, args)]
        env = environment() | address | place
        started.append(fork(argv, folder / f"{rank}", None, None, env))
    return started


def run_on(
    processes: int, folder: Path, command: str, *args: object
) -> list[subprocess.CompletedProcess[str]]:
    """Runs a command that must succeed in each of several processes."""
    done = [process.wait() for process in start_on(processes, folder, command, *args)]
    for one in done:
        assert one.returncode == 0, one.stdout + one.stderr
    return done


def train_on(processes: int, data: Path, folder: Path, *flags: object) -> Trained:
    """Data-parallel training."""
    with tempfile.TemporaryDirectory() as streams:
        done = run_on(processes, Path(streams), "fairseq-train", data, *flags, "--save-dir", folder)
    return Trained(data, folder / "checkpoint_last.pt", done[0].stdout)


def logged(log: str, tag: str) -> list[dict[str, str]]:
    """What fairseq logs in JSON under a tag: train_inner, train, valid."""
    return [json.loads(row) for row in re.findall(rf"\| {tag} \| (\{{.*\}})", log)]


class Hypothesis(NamedTuple):
    text: str
    score: float  # mean over the tokens, in base 2
    positional: list[float]
    alignment: str


def hypotheses(output: str) -> dict[int, Hypothesis]:
    """What fairseq-generate prints, by sentence."""
    rows: dict[str, dict[int, list[str]]] = {kind: {} for kind in "HPA"}
    for kind, number, rest in re.findall(r"^([HPA])-(\d+)\t(.*)$", output, re.MULTILINE):
        assert int(number) not in rows[kind], f"{kind}-{number} twice"
        rows[kind][int(number)] = rest.split("\t")
    return {
        number: Hypothesis(
            text,
            float(score),
            [float(value) for value in rows["P"][number][0].split()],
            rows["A"].get(number, [""])[0],
        )
        for number, (score, text) in sorted(rows["H"].items())
    }


def generate(trained: Trained, *flags: object) -> str:
    """What fairseq-generate prints on the test set."""
    checkpoint = ["--path", trained.checkpoint, "--required-batch-size-multiple", 1]
    return run("fairseq-generate", trained.data, *PLUGGED, *checkpoint, *flags).stdout


def preprocess(folder: Path, *flags: object, splits: str = "train valid test") -> Path:
    """Binarises the text in `folder`."""
    prefixes = [f"--{split}pref={folder / split}" for split in splits.split()]
    run("fairseq-preprocess", *flags, *prefixes, "--destdir", folder / "bin")
    return folder / "bin"


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def typed(corpus: Path) -> tuple[list[str], list[int]]:
    """The test set as lines with empty ones between documents, and its places."""
    ids, sources = lines_of(corpus / "test.docid"), lines_of(corpus / "test.en")
    lines: list[str] = []
    places: list[int] = []
    for i, source in enumerate(sources):
        if i and ids[i] != ids[i - 1]:
            lines.append("")
        places.append(len(lines))
        lines.append(source)
    return lines, places


def assert_same(ours: dict[int, Hypothesis], theirs: dict[int, Hypothesis]) -> None:
    assert ours.keys() == theirs.keys()
    for number, one in ours.items():
        assert one.text == theirs[number].text
        assert one.score == pytest.approx(theirs[number].score, abs=1e-4)
        assert one.positional == pytest.approx(theirs[number].positional, abs=2e-4)
