"""Scripts, each in a process of its own that need not import torch and fairseq again.

A server imports them and forks every process. It leaves out fairseq_cli's modules, which set up
logging as they are imported, and the plugin.
"""

import atexit
import functools
import gc
import importlib
import json
import logging
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

FAIRSEQ = (
    *("torch", "fairseq", "fairseq.trainer", "fairseq.dataclass.initialize", "sacrebleu"),
    "torch._dynamo",  # which the first update of a training imports, for a second
)
STREAMS = ("stdin", "stdout", "stderr")


# ---------------------------------------------------------------------------- the server


def serve() -> None:
    """Answers each line of the standard input, JSON, with a number on the standard output.

    {"argv", "folder", "cwd", "env"} starts a process, whose id is the answer; {"wait": id} waits
    for it, and the answer is its return code, as of `subprocess`.
    """
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        elif (answer := os.fork()) == 0:
            become(**request)
        print(answer, flush=True)


def become(argv: list[str], folder: str, cwd: str, env: dict[str, str]) -> NoReturn:
    """Runs a script in this process, and ends it."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for descriptor, name in enumerate(STREAMS):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_APPEND
        os.dup2(os.open(Path(folder, name), flags), descriptor)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # the old one has read ahead
    logging.root.handlers.clear()  # commands set logging up before they import fairseq, which does
    logging.root.setLevel(logging.WARNING)
    sys.argv, sys.path[0] = argv, str(Path(argv[0]).parent)
    end(exit_code(argv[0]))


def exit_code(script: str) -> int:
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
        return 1 if isinstance(stop.code, str) else stop.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def end(code: int) -> NoReturn:
    """Ends as the interpreter does, without taking apart all modules, which takes a second."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# ---------------------------------------------------------------------------- its client


class Server:
    def __init__(self, *preloaded: str) -> None:
        # One thread, and no GPU: a forked process cannot use one that its parent has looked at.
        env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        argv = [sys.executable, __file__, *preloaded]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        atexit.register(self.process.terminate)

    def ask(self, **request: Any) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


@functools.cache
def server(*preloaded: str) -> Server:
    return Server(*preloaded)


@dataclass
class Forked:
    """A script that has been started; `folder` holds its streams."""

    argv: list[str]
    folder: Path
    process: int
    server: Server

    def wait(self) -> subprocess.CompletedProcess[str]:
        code = self.server.ask(wait=self.process)
        out, err = (Path(self.folder, name).read_text(encoding="utf-8") for name in STREAMS[1:])
        return subprocess.CompletedProcess(self.argv, code, out, err)

    def wait_until_it_prints(self, text: str, seconds: float = 120) -> None:
        printed, end = self.folder / "stdout", time.monotonic() + seconds
        while text not in printed.read_text(encoding="utf-8"):
            assert time.monotonic() < end, f"{text!r} was not printed"
            time.sleep(0.01)


def fork(
    argv: list[str],
    folder: Path,
    cwd: Path | None,
    stdin: str | None,
    env: dict[str, str],
    preloaded: tuple[str, ...] = FAIRSEQ,
) -> Forked:
    """Starts the Python script argv[0] with its arguments. folder: an empty one for its streams."""
    for name in STREAMS:
        Path(folder, name).write_text(stdin or "" if name == "stdin" else "", encoding="utf-8")
    forks = server(*preloaded)
    request = {"folder": str(folder), "cwd": str(cwd or Path.cwd()), "env": env}
    return Forked(argv, folder, forks.ask(argv=argv, **request), forks)


def run_forked(
    argv: list[str],
    cwd: Path | None,
    stdin: str | None,
    env: dict[str, str],
    preloaded: tuple[str, ...] = FAIRSEQ,
) -> subprocess.CompletedProcess[str]:
    """Runs the Python script argv[0] with its arguments, as subprocess.run would."""
    with tempfile.TemporaryDirectory() as folder:
        return fork(argv, Path(folder), cwd, stdin, env, preloaded).wait()


if __name__ == "__main__":
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a forked process does not look through these modules for garbage
    serve()
