"""How checkpoints are read and copied, and the errors of those that cannot be."""

import argparse
import functools
import os
import pickle
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fairseq_memattn.archive_limits import RefusedArchive
from fairseq_memattn.errors import MemAttnError

# Buffers that hold nothing a model reads. fairseq up to 0.12.2 saves those of its sinusoids, which
# later releases do not have; those of adaptive inputs and outputs are never written to, so that
# they may be NaN.
_DROPPED = re.compile(r"(^|\.)embed_positions\.(_float_tensor|weights)$")
_UNINITIALISED = re.compile(r"(^|\.)_float_tensor$")


class CheckpointError(MemAttnError):
    """A checkpoint that is refused or cannot be read; the message names the file and says why."""


def allow_fairseq_globals() -> None:
    """torch's protection lets pass `argparse.Namespace` and numpy's arrays and scalars.

    torch.load refuses every class that is not on its list, because unpickling can run code.
    The classes below only hold values. The protection itself stays on.
    """
    import numpy as np
    import torch
    from numpy._core import multiarray

    # Metrics that are numpy values: eval-bleu's n-gram counts, a best score from scikit-learn.
    dtypes = [type(np.dtype(t)) for t in ("?", "i4", "i8", "f2", "f4", "f8")]
    allowed: list[Any] = [
        # cfg.model of architectures without a dataclass (--arch transformer); older `args`.
        argparse.Namespace,
        # A numpy array is rebuilt from these and `_reconstruct`, a scalar from its dtype and
        # `scalar`; numpy 1 and 2 write the two functions under different names.
        np.ndarray,
        np.dtype,
        *dtypes,
        (multiarray._reconstruct, "numpy._core.multiarray._reconstruct"),
        (multiarray._reconstruct, "numpy.core.multiarray._reconstruct"),
        (multiarray.scalar, "numpy._core.multiarray.scalar"),
        (multiarray.scalar, "numpy.core.multiarray.scalar"),
    ]
    torch.serialization.add_safe_globals(allowed)


def refuse_damaged(
    load: Callable[..., Any], path: str, *args: Any, **kwargs: Any
) -> dict[str, Any]:
    """A checkpoint that holds more than values, or is damaged, is refused.

    All of fairseq (training, generation, `from_pretrained`) looks the function up when it calls it.
    torch's own message names no file and advises to switch its protection off. The error stays an
    exception, and no SystemExit, so that it can be caught in a notebook.
    """
    with _checkpoint_errors(path):
        _check_sums(path)
        return _require_model(path, load(path, *args, **kwargs))


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of a checkpoint as it was saved, without fairseq's upgrades and overrides."""
    import torch

    allow_fairseq_globals()
    with _checkpoint_errors(path):
        _check_sums(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
        return _require_model(path, state)


def architecture(state: dict[str, Any]) -> str | None:
    """The registered name of the checkpoint's model; None if the checkpoint has none."""
    return _name_of(state, "model", "arch")


def check_registered(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Raise CheckpointError for an architecture or a task that is not registered."""
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    for kind, name, known in (
        ("architecture", architecture(state), {*ARCH_MODEL_REGISTRY, *MODEL_DATACLASS_REGISTRY}),
        ("task", _name_of(state, "task", "task"), TASK_REGISTRY),
    ):
        if name and name not in known:
            raise CheckpointError(
                f"{path} cannot be loaded: its {kind} {name} is not registered; --user-dir must be "
                "the folder that registers it"
            )


def copy_whole(
    copy: Callable[..., Any], src_path: str, dst_path: str, overwrite: bool = False
) -> bool:
    """Checkpoints get their names when they are complete.

    fairseq copies what it has saved to checkpoint_last.pt and checkpoint_best.pt. A training that
    is killed meanwhile would leave half a file there, from which none can be resumed.
    """
    from fairseq.file_io import PathManager

    if not PathManager.supports_rename(dst_path):
        return bool(copy(src_path, dst_path, overwrite))
    copy(src_path, f"{dst_path}.tmp", overwrite=True)
    os.replace(f"{dst_path}.tmp", dst_path)
    return True


@contextmanager
def _checkpoint_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn whatever reading `path` raises into a `CheckpointError` of one sentence."""
    try:
        yield
    except MemAttnError:
        raise
    except pickle.UnpicklingError as error:
        # Not chained: torch's text would advise to load the file without protection.
        raise CheckpointError(_refusal(path, str(error))) from None
    except Exception as error:
        # A damaged file can raise nearly anything, an OSError without a file name included.
        if isinstance(error, OSError) and error.filename is not None:
            raise
        # The first sentence will do: torch's zip reader goes on to explain miniz.
        message = re.split(r"\n|\. ", str(error))[0]
        reason = f"{type(error).__name__}: {message}".rstrip(": ")
        raise CheckpointError(_damage(path, reason)) from error


def _name_of(state: dict[str, Any], part: str, option: str) -> str | None:
    """The name of the model or the task, from `cfg` or from the `args` of older checkpoints."""
    options = (state.get("cfg") or {}).get(part) or state.get("args") or {}
    fields = vars(options) if isinstance(options, argparse.Namespace) else options
    return fields.get("_name") or fields.get(option)


def forbidden_global(message: str) -> str | None:
    """The class or function for which torch refuses to load a file; None for another message."""
    found = re.search(r"GLOBAL (\S+) (?:was not|whose)", message)
    return found[1] if found else None


def _refusal(path: str | os.PathLike[str], message: str) -> str:
    name = forbidden_global(message)
    if name is None:
        return _damage(path, "its pickle holds an instruction that no checkpoint has")
    return (
        f"{path} is refused: it contains `{name}`, which a checkpoint has no need of and "
        "which could run code; nothing of it was run, use a checkpoint that holds plain values"
    )


def _damage(path: str | os.PathLike[str], reason: str) -> str:
    if os.path.exists(path) and os.path.getsize(path) == 0:
        return f"{path} cannot be loaded: the file is empty"
    return (
        f"{path} cannot be loaded: it is truncated, damaged or no fairseq checkpoint at all "
        f"({reason})"
    )


def _check_sums(path: str | os.PathLike[str]) -> None:
    entry = damaged_entry(path)
    if entry is not None:
        raise CheckpointError(
            f"{path} cannot be loaded: it is damaged, its entry {entry} does not have the CRC-32 "
            "with which it was saved"
        )


def _require_model(path: str | os.PathLike[str], state: Any) -> dict[str, Any]:
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise CheckpointError(f"{path} is no fairseq checkpoint: it holds no `model`")
    weights = state["model"]
    for name in [name for name in weights if _DROPPED.search(str(name))]:
        del weights[name]
    for name in weights:
        if _UNINITIALISED.search(str(name)):
            weights[name] = weights[name].new_zeros(weights[name].shape)
    return state


SIGNATURE = b"PK\x03\x04"  # with which torch's archives begin


def damaged_entry(path: str | os.PathLike[str]) -> str | None:
    """The first entry of an archive of torch.save whose content does not have its CRC-32.

    None if there is none, and for other files: remote ones, those of older formats, archives
    without an index, and those that are saved after `torch.serialization.set_crc32_options(False)`.
    A file is read once in a process as long as its size and time do not change.

    Raises RefusedArchive for a compressed entry, which may be far larger than the file: torch.save
    compresses none.
    """
    if not os.path.isfile(path):
        return None
    status = os.stat(path)
    return _damaged_entry(os.path.abspath(path), status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _damaged_entry(path: str, size: int, time: int) -> str | None:
    with open(path, "rb") as stream:
        if stream.read(len(SIGNATURE)) != SIGNATURE:
            return None
        try:
            archive = zipfile.ZipFile(stream)
        except zipfile.BadZipFile:  # of which torch tells
            return None
        with archive:
            for entry in archive.infolist():
                if entry.compress_type != zipfile.ZIP_STORED:
                    raise RefusedArchive(f"{path}: {entry.filename} is compressed")
            if not any(entry.CRC for entry in archive.infolist()):
                return None
            return archive.testzip()
