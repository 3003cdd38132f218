"""Commands in forked processes, which limits of time, memory and file size may kill.

A forked process inherits the imported modules, and what it does to them ends with it.
"""

import importlib
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from unittest import mock

import torch
from in_process import _exit_code, _main, _state_restored

import fairseq_memattn
from fairseq_memattn.cli import COMMANDS
from fairseq_memattn.data_prep.commands import PREPARATIONS
from fairseq_memattn.data_prep.commands import load as load_preparation

SECONDS = 60
MEMORY = 3 * 2**30  # of address space beyond that of this process
FILE_SIZE = 50 * 2**20
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
# Imported here once, they are not imported by each command.
FAIRSEQ = ("train", "generate", "interactive", "validate", "eval_lm", "preprocess", "hydra_train")
LATE = ("torch._dynamo", "matplotlib.pyplot", "safetensors", "sentencepiece")


@dataclass
class Done:
    """A command that has ended.

    status: of the process, negative for a signal
    left: the paths of files and folders that it made or changed, folders with a slash at the end
    """

    status: int
    out: str
    err: str
    left: list[str]


def preload() -> None:
    """Imports what the commands import."""
    fairseq_memattn.register()
    names = [f"fairseq_cli.{name}" for name in FAIRSEQ]
    names += [f"fairseq_memattn.cli.commands.{name.replace('-', '_')}" for name in COMMANDS]
    with _state_restored():  # fairseq's modules set up logging
        for name in (*LATE, *names):
            with suppress(ImportError):  # an optional dependency
                importlib.import_module(name)
        for name in PREPARATIONS:
            load_preparation(name)


def run(command: str, argv: Sequence[str], folder: Path, stdin: bytes = b"") -> Done:
    """Runs a console script or a Python script with its arguments in `folder`."""
    before = contents(folder)
    with tempfile.TemporaryDirectory() as place:
        streams = [Path(place, name) for name in ("stdin", "stdout", "stderr")]
        streams[0].write_bytes(stdin)
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the threads of pytest-xdist
            child = os.fork()
        if child == 0:
            become(command, argv, folder, streams)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it has started
        out, err = (stream.read_text("utf-8", "replace") for stream in streams[1:])
    after = contents(folder)
    left = [name for name in after if name not in before or before[name] != after[name]]
    return Done(status, out, err, sorted(left))


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of the last change of every file, and every folder with zeros."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in folders:
            found[os.path.relpath(os.path.join(root, name), folder) + "/"] = (0, 0)
        for name in files:
            path = os.path.join(root, name)
            status = os.lstat(path)
            found[os.path.relpath(path, folder)] = (status.st_size, status.st_mtime_ns)
    return found


def become(command: str, argv: Sequence[str], folder: Path, streams: Sequence[Path]) -> NoReturn:
    """Runs the command in this process, which ends with it."""
    status = 1
    try:
        limit()
        redirect(streams)
        status = call(command, argv, folder)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(status)


def limit() -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = pages * os.sysconf("SC_PAGESIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def redirect(streams: Sequence[Path]) -> None:
    """Descriptors 0, 1 and 2, and Python's streams over them, are files."""
    for number, stream in enumerate(streams):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        file = os.open(stream, flags)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def call(command: str, argv: Sequence[str], folder: Path) -> int:
    with ExitStack() as stack:
        stack.enter_context(_state_restored())
        stack.enter_context(mock.patch.dict(os.environ, ENVIRONMENT))
        stack.enter_context(mock.patch.object(torch.cuda, "is_available", return_value=False))
        stack.enter_context(mock.patch.object(torch.cuda, "device_count", return_value=0))
        stack.enter_context(mock.patch.object(sys, "argv", [command, *argv]))
        os.chdir(folder)
        return _exit_code(_main(command))
