"""Average the weights of several checkpoints into one.

The mean of a floating-point weight is its sum in float64 over the checkpoints, divided by their
number in float64 and rounded once, to float32: half-precision weights gain by that, and the mean
of n equal checkpoints is that checkpoint bit for bit. (float64 weights stay float64.) The sum runs
over the files in the order of their paths, so the order on the command line does not matter.
Everything but the weights comes from the checkpoint with the most updates, except the state of
its optimizer, which belongs to its own weights and is left out.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from fairseq_memattn.cli.models import architecture
from fairseq_memattn.cli.outputs import check_outputs
from fairseq_memattn.compat import read_checkpoint

EPOCH = re.compile(r"checkpoint(\d+)\.pt")
UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--inputs",
        nargs="+",
        type=Path,
        required=True,
        metavar="PATH",
        help="checkpoint files, or one folder together with --last-epochs or --last-updates",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="averaged checkpoint to write"
    )
    last = parser.add_mutually_exclusive_group()
    last.add_argument(
        "--last-epochs",
        type=int,
        metavar="N",
        help="average the N latest of the folder's checkpointEPOCH.pt",
    )
    last.add_argument(
        "--last-updates",
        type=int,
        metavar="N",
        help="average the N latest of the folder's checkpoint_EPOCH_UPDATE.pt",
    )
    parser.add_argument(
        "--upper-bound",
        type=int,
        metavar="X",
        help="with --last-epochs or --last-updates: ignore what is later than epoch or update X",
    )


def run(args: argparse.Namespace) -> None:
    paths = select(args.inputs, args.last_epochs, args.last_updates, args.upper_bound)
    check_outputs({"--output": args.output}, paths)
    write(average(paths), args.output)
    print(f"averaged {', '.join(map(str, paths))} into {args.output}")


def select(
    inputs: Sequence[Path],
    last_epochs: int | None = None,
    last_updates: int | None = None,
    upper_bound: int | None = None,
) -> list[Path]:
    """The checkpoint files that the command line asks for."""
    if last_epochs is not None:
        return latest(inputs, "--last-epochs", last_epochs, EPOCH, upper_bound)
    if last_updates is not None:
        return latest(inputs, "--last-updates", last_updates, UPDATE, upper_bound)
    if upper_bound is not None:
        raise ValueError("--upper-bound needs --last-epochs or --last-updates")
    for path in inputs:
        if path.is_dir():
            raise ValueError(
                f"--inputs {path} is a folder: say which of its checkpoints with --last-epochs "
                "or --last-updates"
            )
        if not path.is_file():
            raise ValueError(f"--inputs {path} does not exist")
    return list(inputs)


def latest(
    inputs: Sequence[Path], option: str, n: int, pattern: re.Pattern[str], bound: int | None
) -> list[Path]:
    """The `n` files of the one input folder with the highest numbers up to `bound`."""
    if n < 1:
        raise ValueError(f"{option} must be at least 1, but is {n}")
    if len(inputs) != 1 or not inputs[0].is_dir():
        given = " ".join(map(str, inputs))
        raise ValueError(f"{option} needs one folder as --inputs, but --inputs is {given}")
    numbered = []
    for path in inputs[0].iterdir():
        match = pattern.fullmatch(path.name)
        if match and (bound is None or int(match[1]) <= bound):
            numbered.append((int(match[1]), path))
    if len(numbered) < n:
        upto = "" if bound is None else f" up to --upper-bound {bound}"
        raise ValueError(
            f"{option} is {n}, but {inputs[0]} holds {len(numbered)} such checkpoints{upto}"
        )
    return [path for _, path in sorted(numbered)[-n:]]


def average(paths: Sequence[Path]) -> dict[str, Any]:
    """One checkpoint with the mean of the weights in `paths`; see the module's docstring."""
    sums: dict[str, Tensor] = {}
    newest: dict[str, Any] = {}
    newest_path = paths[0]
    for path in tqdm(
        sorted(paths, key=Path.resolve), desc="averaging", unit="checkpoint", disable=None
    ):
        state = read_checkpoint(path)
        state.pop("last_optimizer_state", None)
        if newest:
            check_same_model(newest_path, newest, path, state)
        for name, weight in state["model"].items():
            if not weight.is_floating_point():
                continue
            if name in sums:
                sums[name] += weight
            else:
                sums[name] = weight.to(torch.float64, copy=True)
        if not newest or num_updates(state) >= num_updates(newest):
            newest, newest_path = state, path
    means = {
        name: (total / len(paths)).to(torch.promote_types(newest["model"][name].dtype, torch.float))
        for name, total in sums.items()
    }
    newest["model"].update(share_tied(means, newest["model"]))
    return newest


def check_same_model(
    path: Path, state: dict[str, Any], other: Path, theirs: dict[str, Any]
) -> None:
    """Raise ValueError unless both checkpoints are of one model, whose weights can be averaged."""
    pair = f"{path} and {other} cannot be averaged"
    if architecture(state) != architecture(theirs):
        raise ValueError(
            f"{pair}: their architectures are {architecture(state)} and {architecture(theirs)}"
        )
    weights, others = state["model"], theirs["model"]
    for name in [*weights, *others]:
        if name not in weights or name not in others:
            raise ValueError(f"{pair}: only {path if name in weights else other} has `{name}`")
        mine, their = weights[name], others[name]
        if mine.shape != their.shape:
            raise ValueError(
                f"{pair}: `{name}` has the shapes {tuple(mine.shape)} and {tuple(their.shape)}"
            )
        if mine.dtype != their.dtype:
            raise ValueError(f"{pair}: `{name}` has the dtypes {mine.dtype} and {their.dtype}")
        # Integers are indices, seeds or counts: no mean of them means anything.
        if not mine.is_floating_point() and not torch.equal(mine, their):
            raise ValueError(f"{pair}: `{name}` holds {mine.dtype} values that differ")


def share_tied(means: dict[str, Tensor], weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Let tied weights, one tensor under several names in `weights`, share their mean again."""
    first: dict[tuple[int, torch.Size, tuple[int, ...]], Tensor] = {}
    shared = {}
    for name, mean in means.items():
        weight = weights[name]
        known = first.setdefault((weight.data_ptr(), weight.shape, weight.stride()), mean)
        # The other checkpoints may not have tied them.
        shared[name] = known if torch.equal(known, mean) else mean
    return shared


def num_updates(state: dict[str, Any]) -> int:
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates", 0))


def write(state: dict[str, Any], output: Path) -> None:
    """Write the checkpoint under another name first, so that `output` is never half a file."""
    unfinished = output.with_name(f"{output.name}.tmp")
    try:
        torch.save(state, unfinished)
        os.replace(unfinished, output)
    finally:
        unfinished.unlink(missing_ok=True)
