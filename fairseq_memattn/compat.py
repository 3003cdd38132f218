"""What fairseq needs to run on a current Python, torch and numpy.

fairseq is imported inside functions only, so that this module can say what is wrong with an
installation before anything fails on it.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import importlib.util
import logging
import os
import pickle
import queue
import re
import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fairseq_memattn import untrusted
from fairseq_memattn.bleu_note import explain_bleu
from fairseq_memattn.bleu_warnings import warn_of_tokenizers
from fairseq_memattn.checksums import damaged_entry
from fairseq_memattn.command_line import explain_command_lines
from fairseq_memattn.config_checks import check_configurations
from fairseq_memattn.data_files import check_data_files
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.excepthook import install_excepthook
from fairseq_memattn.failed_training import (
    explain_divergence,
    explain_missing_metrics,
    save_only_trained_models,
)
from fairseq_memattn.finished_training import leave_finished_trainings
from fairseq_memattn.model_checks import (
    explain_options,
    explain_sizes,
    explain_weights_of_trainings,
    options_of,
)
from fairseq_memattn.processes import repair_distributed_training
from fairseq_memattn.sample_limits import count_omitted_samples
from fairseq_memattn.text_checks import check_text_of_commands
from fairseq_memattn.workers import begin_epochs_with_new_workers

TORCH = "torch==2.13.0"
FAIRSEQ = "fairseq-fixed==0.12.3.1"
# fairseq is installed without its dependencies, one of which has no CPU build. These are the ones
# that it imports, beside those of this package, and what it is built with.
BESIDE = "bitarray scikit-learn Cython wheel 'setuptools<81'"
INSTALL = (
    f"on Python 3.11 or 3.12, run `make env`, or `pip install {TORCH} {BESIDE}` and then "
    f"`pip install --no-build-isolation --no-deps {FAIRSEQ}`"
)


class CheckpointError(MemAttnError):
    """A checkpoint that is refused or cannot be read; the message names the file and says why."""


@functools.cache
def prepare_fairseq() -> None:
    """Checks the installation, then repairs fairseq for today's Python, torch and numpy.

    This is the complete list of what registration changes outside this package. A second call
    does nothing.
    """
    check_environment()
    allow_fairseq_globals()
    untrusted.read_literals_only()
    untrusted.check_archives()
    untrusted.refuse_repositories()
    explain_checkpoint_errors()
    explain_weights_of_trainings()
    repair_distributed_training()
    explain_command_lines()
    check_configurations()
    check_data_files()
    check_text_of_commands()
    count_omitted_samples()
    save_only_trained_models()
    explain_divergence()
    explain_missing_metrics()
    leave_finished_trainings()
    explain_bleu()
    limit_each_sentence()
    warn_of_tokenizers()
    restore_older_numpy()
    end_prefetching_in_time()
    begin_epochs_with_new_workers()
    copy_checkpoints_whole()
    log_each_line_once()
    quiet_known_warnings()
    install_excepthook()


def require_fairseq(what: str) -> None:
    """Raises ImportError, which says how to install fairseq, if it is missing. Imports nothing.

    what: what needs it, the beginning of the message
    """
    if importlib.util.find_spec("fairseq") is None:
        raise ImportError(f"{what} needs fairseq, which is missing: {INSTALL}")


def check_environment() -> None:
    """Raise one ImportError that says what to install where torch or fairseq does not work."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"fairseq_memattn needs PyTorch, which is missing: {INSTALL}") from None
    if _version(torch.__version__) < (2, 6):
        raise ImportError(
            f"fairseq_memattn needs torch 2.6 or newer, but torch {torch.__version__} is "
            f"installed: {INSTALL}"
        )
    require_fairseq("fairseq_memattn")
    # It would advise to install tensorboardX, which is needed for speech alone.
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
    try:
        with _root_logger_as_it_is():
            import fairseq.models
            import fairseq.tasks  # noqa: F401
    except Exception as error:
        # fairseq 0.12.2 fails on Python 3.11 with a ValueError (a mutable default in a dataclass),
        # other mismatches with whatever they happen to meet first: hence any exception.
        reason = f"{type(error).__name__}: {_first_line(error)}"
        raise ImportError(
            f"the installed fairseq does not import on Python {sys.version.split()[0]} and torch "
            f"{torch.__version__} ({reason}); replace it: {INSTALL}"
        ) from error


@contextmanager
def _root_logger_as_it_is() -> Iterator[None]:
    """Keeps parts of fairseq from enabling all log messages when they are imported."""
    handler = logging.NullHandler()
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)


def allow_fairseq_globals() -> None:
    """Let torch load what fairseq's checkpoints contain beside tensors, and nothing more.

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


def explain_checkpoint_errors() -> None:
    """Make fairseq's loaders raise `CheckpointError` for a file they cannot load.

    All of fairseq (training, generation, `from_pretrained`) looks these two functions up in
    `checkpoint_utils` when it calls them, so replacing them there covers every route. torch's own
    message names no file and advises to switch its protection off. fairseq's own names neither the
    file nor the architecture that is not registered.
    It stays an exception, and no SystemExit, so that it can be caught in a notebook.
    """
    from fairseq import checkpoint_utils

    load = checkpoint_utils.load_checkpoint_to_cpu
    build = checkpoint_utils.load_model_ensemble_and_task

    @functools.wraps(load)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        untrusted.opened.append(path)
        with _checkpoint_errors(path), _registration_errors([path]):
            _check_sums(path)
            return _require_model(path, load(path, *args, **kwargs))

    @functools.wraps(build)
    def load_model_ensemble_and_task(
        filenames: list[str], arg_overrides: Any = None, task: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        with _registration_errors(filenames):
            try:
                return build(filenames, arg_overrides, task, *args, **kwargs)
            except CheckpointError:
                raise
            except (MemAttnError, RuntimeError) as error:
                explain_sizes(error, filenames, options_of(task, arg_overrides))
                for path in filenames:
                    explain_options(error, path, arg_overrides or {})
                raise

    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu
    checkpoint_utils.load_model_ensemble_and_task = load_model_ensemble_and_task


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


def limit_each_sentence() -> None:
    """Let fairseq's generators limit each sentence by its own length, not by that of its batch."""
    from fairseq_memattn import generation_limits

    generation_limits.limit_each_sentence()


def restore_older_numpy() -> None:
    """Give three of fairseq's data modules, and only them, what they use of an older numpy.

    `--sample-break-mode eos` needs `np.compat.long`, `--num-batch-buckets` that and an old
    argument of `np.percentile`.
    """
    import numpy as np
    from fairseq.data import data_utils, language_pair_dataset, token_block_dataset

    class OlderNumpy(types.ModuleType):
        compat = types.SimpleNamespace(long=int)

        @staticmethod
        def percentile(a: Any, q: Any, interpolation: Any) -> Any:
            return np.percentile(a, q, method=interpolation)

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

    for module in (data_utils, language_pair_dataset, token_block_dataset):
        if module.np is np:
            module.np = OlderNumpy("numpy")


def end_prefetching_in_time() -> None:
    """Stop the threads that fetch batches ahead before the interpreter is taken down.

    fairseq leaves that to the interpreter, under which a thread that is just then freeing a batch
    aborts the process: training that ends within an epoch, by `--max-update`, would now and then
    report failure after all was done and saved.
    """
    from fairseq.data import iterators

    class BackgroundConsumer(iterators.BackgroundConsumer):
        def __init__(self, batches: Any, source: Any, *args: Any) -> None:
            super().__init__(batches, self._until_stopped(source), *args)
            self.stopped = False
            atexit.register(self.stop)

        def _until_stopped(self, source: Any) -> Iterator[Any]:
            for batch in source:
                if self.stopped:
                    break
                yield batch

        def run(self) -> None:
            super().run()
            atexit.unregister(self.stop)

        def stop(self) -> None:
            self.stopped = True
            while self.is_alive():
                with suppress(queue.Empty):  # it may wait for room
                    self._queue.get(timeout=0.01)

    iterators.BackgroundConsumer = BackgroundConsumer


def copy_checkpoints_whole() -> None:
    """Give the copy of a checkpoint its name when it is complete.

    fairseq copies what it has saved to checkpoint_last.pt and checkpoint_best.pt. A training that
    is killed meanwhile would leave half a file there, from which none can be resumed.
    """
    from fairseq.file_io import PathManager

    copy = PathManager.copy

    @functools.wraps(copy)
    def copy_whole(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        if not PathManager.supports_rename(dst_path):
            return bool(copy(src_path, dst_path, overwrite))
        copy(src_path, f"{dst_path}.tmp", overwrite=True)
        os.replace(f"{dst_path}.tmp", dst_path)
        return True

    PathManager.copy = staticmethod(copy_whole)


def log_each_line_once() -> None:
    """Lets the progress bars of all epochs share what writes to --log-file.

    fairseq adds another one each epoch, so that the lines of epoch 9 are in the file nine times.
    """
    from fairseq.logging import progress_bar

    make = progress_bar.progress_bar

    @functools.wraps(make)
    def progress_bar_(*args: Any, log_file: str | None = None, **kwargs: Any) -> Any:
        open_files = (getattr(one, "baseFilename", "") for one in progress_bar.logger.handlers)
        if log_file is not None and os.path.abspath(log_file) in open_files:
            log_file = None
        return make(*args, log_file=log_file, **kwargs)

    progress_bar.progress_bar = progress_bar_


def quiet_known_warnings() -> None:
    """Silence what fairseq's older calls of hydra, torch and numpy make those warn about.

    None of it says anything about a user's command, and it hides what does. Commands that import
    fairseq before the plugin have its root logger, which shows all messages, those of hydra too.
    """
    logging.getLogger("hydra").setLevel(logging.INFO)
    for message in (
        r"hydra\.experimental\.\w+\(\) is no longer experimental",
        r"\nThe version_base parameter is not specified",
        r"In '.*': Usage of deprecated keyword in package header",
        r"\n'.*' is validated against ConfigStore schema",
        r"\nThe strict flag in the compose API is deprecated",
        r"`torch\.cuda\.amp\.autocast\(args\.\.\.\)` is deprecated",
        r"Using (a )?non-full backward hook",
        r"'pin_memory' argument is set as true but no accelerator is found",
        r"Support for mismatched key_padding_mask and attn_mask is deprecated",
    ):
        warnings.filterwarnings("ignore", message=message)
    # The targets before last, which no model reads, of a block with a single token
    blocks = r"fairseq\.data\.token_block_dataset"
    warnings.filterwarnings("ignore", message="overflow encountered", module=blocks)


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
        reason = f"{type(error).__name__}: {_first_line(error).partition('. ')[0]}".rstrip(": ")
        raise CheckpointError(_damage(path, reason)) from error


@contextmanager
def _registration_errors(paths: list[str]) -> Iterator[None]:
    """Raise CheckpointError where fairseq fails on an unregistered name, in one of several ways.

    Checked afterwards only: a model that is not registered still has weights to restore.
    """
    try:
        yield
    except (AssertionError, LookupError):
        for path in filter(os.path.isfile, paths):
            check_registered(path, read_checkpoint(path))
        raise


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
    return state


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
