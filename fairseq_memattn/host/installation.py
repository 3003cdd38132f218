"""What is installed of torch and fairseq, and what to do if they do not work.

Neither is imported before a function is called.
"""

import importlib.util
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

TORCH = "torch==2.13.0"
FAIRSEQ = "fairseq-fixed==0.12.3.1"
# fairseq is installed without its dependencies, one of which has no CPU build. These are the ones
# that it imports, beside those of this package, and what it is built with.
BESIDE = "bitarray scikit-learn Cython wheel 'setuptools<81'"
INSTALL = (
    f"on Python 3.11 or 3.12, run `make env`, or `pip install {TORCH} {BESIDE}` and then "
    f"`pip install --no-build-isolation --no-deps {FAIRSEQ}`"
)


def require_fairseq(what: str) -> None:
    """Raises ImportError, which says how to install fairseq, if it is missing. Imports nothing.

    what: what needs it, the beginning of the message
    """
    if importlib.util.find_spec("fairseq") is None:
        raise ImportError(f"{what} needs fairseq, which is missing: {INSTALL}")


def version_of_fairseq() -> str:
    """The name and version of the installed fairseq, for messages."""
    for name in ("fairseq-fixed", "fairseq"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return "the installed fairseq"


def check_environment() -> None:
    """Raise one ImportError that says what to install where torch or fairseq does not work."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"fairseq_memattn needs PyTorch, which is missing: {INSTALL}") from None
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < (2, 6):
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
        message = str(error).partition("\n")[0]
        raise ImportError(
            f"the installed fairseq does not import on Python {sys.version.split()[0]} and torch "
            f"{torch.__version__} ({type(error).__name__}: {message}); replace it: {INSTALL}"
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
