"""Scripts, each in a process of its own that need not import torch and fairseq again.

A server that has imported them forks every process. It leaves out fairseq_cli's modules, which set
up logging as they are imported, and the plugin.
"""

import functools
import logging
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

PRELOADED = ["torch", "fairseq", "fairseq.trainer", "fairseq.dataclass.initialize", "sacrebleu"]


@functools.cache
def _server() -> multiprocessing.context.ForkServerContext:
    """One thread, and no GPU: a forked process cannot use one that its parent has looked at."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with mock.patch.dict(os.environ, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES=""):
        multiprocessing.forkserver.ensure_running()
    return context


def _become(argv: list[str], streams: list[str], cwd: Path, env: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for descriptor, name in enumerate(streams):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY
        os.dup2(os.open(name, flags), descriptor)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # multiprocessing has closed it
    multiprocessing.set_start_method("fork", force=True)  # not as this process has begun
    logging.root.handlers.clear()  # commands set logging up before they import fairseq, which does
    logging.root.setLevel(logging.WARNING)
    sys.argv = argv
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except Exception:  # multiprocessing would not ask the hook
        sys.excepthook(*sys.exc_info())
        sys.exit(1)


def run_forked(
    argv: list[str], cwd: Path | None, stdin: str | None, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs the Python script argv[0] with its arguments, as subprocess.run would."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        for stream in streams:
            stream.touch()
        streams[0].write_text(stdin or "", encoding="utf-8")
        process = _server().Process(
            target=_become, args=(argv, [str(stream) for stream in streams], cwd or Path.cwd(), env)
        )
        process.start()
        process.join()
        assert process.exitcode is not None
        out, err = (stream.read_text(encoding="utf-8") for stream in streams[1:])
    return subprocess.CompletedProcess(argv, process.exitcode, out, err)
