"""Commands that run in this process, as if each had a process of its own.

A command sees its own arguments, streams, environment, working directory, logging and random
state, and no GPU. What it changes of them is undone when it ends.
"""

import importlib
import logging
import os
import random
import runpy
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.logging import metrics, progress_bar
from fairseq_cli import interactive, preprocess, train
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton

from fairseq_memattn.host.correctness.hydra_train import prepare_hydra_train
from fairseq_memattn.host.messages.handler import install_excepthook, quiet_known_warnings

# Functions of fairseq that remember the best loss as attributes of their own.
FUNCTIONS = (checkpoint_utils.save_checkpoint, train.should_stop_early)
# Commands whose text is checked. As in a process of its own, they are imported before registration.
CHECKED = (preprocess, interactive)
# The logging of fairseq_cli's modules, which set it up on import: a process imports one of them.
LOG_FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"


def _main(command: str) -> Callable[[], object]:
    """The function behind a console script, or a script that is run as `python SCRIPT`."""
    if command.endswith(".py"):
        return lambda: runpy.run_path(command, run_name="__main__")
    if command == "memattn":
        return importlib.import_module("fairseq_memattn.cli").main
    name = command.removeprefix("fairseq-").replace("-", "_")
    main = importlib.import_module(f"fairseq_cli.{name}").cli_main
    if name in ("generate", "hydra_train"):  # which set up logging as they begin
        return main

    def with_logging() -> object:
        logging.basicConfig(
            format=LOG_FORMAT, datefmt="%Y-%m-%d %H:%M:%S", level="INFO", stream=sys.stdout
        )
        return main()

    return with_logging


def run_in_process(
    command: str, argv: Sequence[str], cwd: Path | None, stdin: str | None, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs a console script or a Python script with its arguments, as subprocess.run would.

    argv: of the process, argv[0] being the path of the script
    """
    main = _main(command)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        streams = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        streams[0].write_text(stdin or "", encoding="utf-8")
        stack.enter_context(_state_restored())
        stack.enter_context(mock.patch.dict(os.environ, env, clear=True))
        stack.enter_context(mock.patch.object(torch.cuda, "is_available", return_value=False))
        stack.enter_context(mock.patch.object(torch.cuda, "device_count", return_value=0))
        stack.enter_context(mock.patch.object(sys, "argv", list(argv)))
        os.chdir(cwd or Path.cwd())
        with _redirected(streams):
            code = _exit_code(main)
        out, err = (stream.read_text(encoding="utf-8") for stream in streams[1:])
    return subprocess.CompletedProcess(list(argv), code, out, err)


def _exit_code(main: Callable[[], object]) -> int:
    sys.excepthook = sys.__excepthook__
    install_excepthook()  # which depends on the name of the command
    try:
        with warnings.catch_warnings():
            quiet_known_warnings()  # pytest undoes what registration has silenced
            prepare_hydra_train()  # by hydra's plugins, which it imports once in a process
            code = main()
        return code if isinstance(code, int) else 0
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return 1


@contextmanager
def _redirected(streams: Sequence[Path]) -> Iterator[None]:
    """Descriptors 0, 1 and 2, and Python's streams over them, are files."""
    names = ("stdin", "stdout", "stderr")
    for name in names[1:]:
        getattr(sys, name).flush()
    python, kept = [getattr(sys, name) for name in names], [os.dup(number) for number in range(3)]
    for number, (name, path) in enumerate(zip(names, streams, strict=True)):
        file = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
        mode = "r" if number == 0 else "w"
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    try:
        yield
    finally:
        for number, name in enumerate(names):
            if number:
                getattr(sys, name).flush()
            setattr(sys, name, python[number])
            os.dup2(kept[number], number)
            os.close(kept[number])


@contextmanager
def _state_restored() -> Iterator[None]:
    root = logging.root
    handlers, level, disabled = root.handlers[:], root.level, logging.root.manager.disable
    cwd, path, hook = Path.cwd(), sys.path[:], sys.excepthook
    singletons = dict(Singleton._instances)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    gradients, threads = torch.is_grad_enabled(), torch.get_num_threads()
    root.handlers[:] = []
    root.setLevel(logging.WARNING)
    torch.set_num_threads(1)  # as in the environment of a command
    for function in FUNCTIONS:
        vars(function).clear()
    metrics.reset()
    try:
        yield
    finally:
        for handler in root.handlers:
            if handler not in handlers:
                handler.close()
        root.handlers[:] = handlers
        for handler in preprocess.logger.handlers[:]:  # it writes a file beside the data
            preprocess.logger.removeHandler(handler)
            handler.close()
        root.setLevel(level)
        root.manager.disable = disabled
        os.chdir(cwd)
        sys.path[:], sys.excepthook = path, hook
        progress_bar._close_writers()  # of TensorBoard
        progress_bar._tensorboard_writers.clear()
        Singleton._instances = singletons
        GlobalHydra.instance().clear()
        HydraConfig.instance().cfg = None
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_grad_enabled(gradients)
        torch.set_num_threads(threads)
        metrics.reset()
