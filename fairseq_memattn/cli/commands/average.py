"""Average the weights of several checkpoints into one.

The mean of a floating-point weight is computed in float64 and rounded once, to float32. Weights in
half precision become float32, and weights in float64 stay float64. The mean of n equal checkpoints
has exactly their values. The sum runs over the files in the order of their paths, so the
order on the command line does not matter. Everything except the weights is from the checkpoint with
the most updates. Its optimizer state is left out, because it belongs to weights that are not kept.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from fairseq_memattn.cli.shared.inputs import require_file
from fairseq_memattn.cli.shared.models import check_finite
from fairseq_memattn.cli.shared.options import Options
from fairseq_memattn.cli.shared.outputs import check_outputs, write_checkpoint
from fairseq_memattn.errors import flag
from fairseq_memattn.host.checkpoints import architecture, read_checkpoint
from fairseq_memattn.host.correctness.same_model import differences, part
from fairseq_memattn.host.correctness.trained_options import other_dictionaries

EPOCH = re.compile(r"checkpoint(\d+)\.pt")
UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = Options(parser)
    add.file(
        "--inputs",
        "checkpoint files, or one folder together with --last-epochs or --last-updates",
        nargs="+",
        required=True,
        metavar="PATH",
    )
    add.file("--output", "averaged checkpoint to write", required=True)
    last = Options(parser.add_mutually_exclusive_group())
    last.number("--last-epochs", "average the N latest checkpointEPOCH.pt of the folder")
    last.number("--last-updates", "average the N latest checkpoint_EPOCH_UPDATE.pt of the folder")
    add(
        "--upper-bound",
        "with --last-epochs or --last-updates: ignore checkpoints after epoch or update X",
        type=int,
        metavar="X",
    )


def run(args: argparse.Namespace) -> None:
    paths = select(args.inputs, args.last_epochs, args.last_updates, args.upper_bound)
    check_outputs({"--output": args.output}, paths)
    write_checkpoint(average(paths), args.output)
    print(f"averaged {', '.join(map(str, paths))} into {args.output}")


def select(
    inputs: Sequence[Path],
    last_epochs: int | None = None,
    last_updates: int | None = None,
    upper_bound: int | None = None,
) -> list[Path]:
    """The checkpoint files that the options select."""
    if last_epochs is not None:
        return latest(inputs, "--last-epochs", last_epochs, EPOCH, upper_bound)
    if last_updates is not None:
        return latest(inputs, "--last-updates", last_updates, UPDATE, upper_bound)
    if upper_bound is not None:
        raise ValueError("--upper-bound needs --last-epochs or --last-updates")
    for path in inputs:
        if path.is_dir():
            raise ValueError(
                f"--inputs {path} is a folder: select its checkpoints with --last-epochs or "
                "--last-updates"
            )
        require_file("--inputs", path)
    return list(inputs)


def latest(
    inputs: Sequence[Path], option: str, n: int, pattern: re.Pattern[str], bound: int | None
) -> list[Path]:
    """The `n` files of the input folder with the highest numbers up to `bound`, lowest first."""
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
            f"{option} must be at most {len(numbered)}, the number of such checkpoints in "
            f"{inputs[0]}{upto}, but is {n}"
        )
    return [path for _, path in sorted(numbered)[-n:]]


def average(paths: Sequence[Path]) -> dict[str, Any]:
    """One checkpoint with the means of the weights in `paths`, as the module's docstring says."""
    sums: dict[str, Tensor] = {}
    newest: dict[str, Any] = {}
    newest_path = paths[0]
    for path in tqdm(
        sorted(paths, key=Path.resolve), desc="averaging", unit="checkpoint", disable=None
    ):
        state = read_checkpoint(path)
        check_content(path, state)
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


def check_content(path: Path, state: dict[str, Any]) -> None:
    """Raises ValueError for a checkpoint that is no result of training or has diverged."""
    try:
        architecture(state), num_updates(state)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be averaged: its configuration or its history is damaged ({error})"
        ) from None
    for name, weight in state["model"].items():
        if not isinstance(weight, Tensor) or weight.layout != torch.strided:
            raise ValueError(f"{path} cannot be averaged: `{name}` is no dense tensor")
    check_finite(f"{path} cannot be averaged", state["model"])


def check_same_model(
    path: Path, state: dict[str, Any], other_path: Path, other: dict[str, Any]
) -> None:
    """Raises ValueError unless options, dictionaries and names, shapes and dtypes match."""
    pair = f"{path} and {other_path} cannot be averaged"
    if architecture(state) != architecture(other):
        raise ValueError(
            f"{pair}: their architectures are {architecture(state)} and {architecture(other)}"
        )
    before, now = (part((one.get("cfg") or {}).get("model")) for one in (state, other))
    for option, first, second in differences(before, now):
        raise ValueError(f"{pair}: {flag(option)} is {first} and {second}")
    trained, data = (part((one.get("cfg") or {}).get("task")) for one in (state, other))
    for text in other_dictionaries(str(path), trained, data.get("data")):
        raise ValueError(f"{pair}: {text.partition(':')[0]}")
    weights, others = state["model"], other["model"]
    for name in [*weights, *others]:
        if name not in weights or name not in others:
            raise ValueError(f"{pair}: only {path if name in weights else other_path} has `{name}`")
        first, second = weights[name], others[name]
        if first.shape != second.shape:
            raise ValueError(
                f"{pair}: `{name}` has the shapes {tuple(first.shape)} and {tuple(second.shape)}"
            )
        if first.dtype != second.dtype:
            raise ValueError(f"{pair}: `{name}` has the dtypes {first.dtype} and {second.dtype}")
        # Integers are indices, seeds or counts, which cannot be averaged.
        if not first.is_floating_point() and not torch.equal(first, second):
            raise ValueError(f"{pair}: `{name}` has {first.dtype} values that differ")


def share_tied(means: dict[str, Tensor], weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tie the means of tied weights, which are one tensor under several names in `weights`."""
    first: dict[tuple[int, torch.Size, tuple[int, ...]], Tensor] = {}
    shared = {}
    for name, mean in means.items():
        weight = weights[name]
        tied = first.setdefault((weight.data_ptr(), weight.shape, weight.stride()), mean)
        # Weights that are tied in one checkpoint may differ in another.
        shared[name] = tied if torch.equal(tied, mean) else mean
    return shared


def num_updates(state: dict[str, Any]) -> int:
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates", 0))
