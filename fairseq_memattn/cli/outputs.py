"""Checks the paths of output files before a command starts its work, and writes the files."""

import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.evaluation.text_columns import file_of, table_lines

# The files in folders of data, of models in transformers' format, and of compressed documents.
READ = (
    *("dict*.txt", "*.bin", "*.idx", "*.docids", "binarised.json"),
    *("*config.json", "*.safetensors", "*.index.json", "tokenizer*", "*.model", "fairseq.json"),
    *("onnx.json", "*.onnx", "*.onnx.data", "shard-*", "*.py"),
    *("encoder.json", "truecase.*.txt"),
)


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Raises ValueError for outputs that are folders, have no folder, or overwrite another file.

    outputs: the path of each option; inputs: the files that the command reads, and folders, of
        which it reads the files
    """
    given = [file_of(path) for path in inputs if path and file_of(path).exists()]
    read = [file for path in given for file in ([path] if path.is_file() else _files_in(path))]
    taken: dict[str, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        if str(path) == "-":
            raise ValueError(f"{option} must be a file, but is -; /dev/stdout is standard output")
        if path.is_dir():
            raise ValueError(f"{option} {path} is a folder, not a file")
        if file_of(path) != path:
            raise ValueError(f"{option} {path}: an output is {file_of(path)}, without a column")
        folder = path.absolute().parent
        if not folder.is_dir():
            raise ValueError(f"{option} {path}: the folder {folder} does not exist")
        folder = Path(os.path.realpath(path)).parent
        if not _is_device(path) and not os.access(folder, os.W_OK | os.X_OK):
            raise ValueError(f"{option} {path}: no files can be made in the folder {folder}")
        for other in read:
            if path.exists() and path.samefile(other):
                raise ValueError(f"{option} {path} would overwrite the input {other}")
        first = taken.setdefault(os.path.realpath(path), option)
        if first != option:
            raise ValueError(f"{option} {path} is the file of {first} as well")


def check_outside(
    outputs: Mapping[str, Path | None], folders: Mapping[str, Iterable[Path | None]]
) -> None:
    """Raises ValueError for outputs inside folders of which a command may read any file.

    outputs: the path of each option; folders: the paths of each option; a file is passed over
    """
    for option, paths in folders.items():
        for folder in filter(None, paths):
            for output, path in outputs.items():
                if path and folder.is_dir() and _is_inside(path, folder):
                    raise ValueError(
                        f"{output} {path} must not be inside {option} {folder}, whose files are "
                        "read"
                    )


def _is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _files_in(path: Path) -> list[Path]:
    """The files of a folder that commands read, and not those that they may have written there."""
    return [file for name in READ for file in path.glob(name)] if path.is_dir() else [path]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The path of a temporary file, which takes the place of `path` if the body does not fail.

    It has the same suffix. Devices and pipes are written directly, and an open file of a process,
    such as /dev/stdout, gets the content after what it has already.

    Raises MemAttnError, which names the device or the file and its folder, if it cannot be written.
    """
    target, opened = Path(os.path.realpath(path)), _open_file(path)
    place, unfinished = "", path.absolute()
    way: AbstractContextManager[Path]
    if opened:
        way = _appended(opened, path.suffix)
    elif _is_device(path):
        way = nullcontext(unfinished)
    else:
        place = f" in the folder {target.parent}"
        unfinished = target.with_name(f"{target.name}.{os.getpid()}.tmp{target.suffix}")
        way = _renamed(unfinished, target)
    try:
        with way as unfinished:
            yield unfinished
    except OSError as error:
        # Python names no file where a write fails.
        if error.filename not in (None, str(unfinished)):
            raise
        raise MemAttnError(
            f"{target.name if place else path} cannot be written{place}: {error.strerror or error}"
        ) from error


@contextmanager
def _renamed(unfinished: Path, target: Path) -> Iterator[Path]:
    """A file in the folder of `target`, whose name it gets."""
    try:
        yield unfinished
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _appended(opened: Path, suffix: str) -> Iterator[Path]:
    """A temporary file, whose content goes to the end of an open file, after what was printed."""
    with TemporaryDirectory() as folder:
        unfinished = Path(folder, f"output{suffix}")
        yield unfinished
        sys.stdout.flush()
        # A descriptor of this process has the place at which what is printed later goes on.
        own = opened.parent == Path(os.path.realpath("/dev/fd"))
        file = os.dup(int(opened.name)) if own else opened
        with open(unfinished, "rb") as content, open(file, "ab") as stream:
            shutil.copyfileobj(content, stream)


def _open_file(path: Path) -> Path | None:
    """The path of a process's open file that `path` is or leads to, as /dev/stdout does."""
    place = Path(os.path.realpath(path.parent), path.name)
    if not path.exists():
        return None
    if place.parent.name == "fd" and place.parts[1] in ("proc", "dev"):
        return place
    return _open_file(place.parent / place.readlink()) if place.is_symlink() else None


def _is_device(path: Path) -> bool:
    """Whether a path is a device, a pipe or an open file, such as /dev/stdout."""
    target = Path(os.path.realpath(path))
    special = _open_file(path) is not None or target.is_relative_to("/proc")
    return path.exists() and (not path.is_file() or special)


def write_text(path: Path, text: str) -> None:
    """Writes a text file as a whole. Raises MemAttnError as `replacing` does.

    Names of files that are not UTF-8 keep their bytes.
    """
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", errors="surrogateescape")


def columns_text(columns: Mapping[str, Sequence[str]], text: str, kind: str) -> str:
    """The content of a file of line-aligned columns.

    text: the name of the column that is the content of a plain file
    kind: "text", or "jsonl" or "tsv" with all columns

    Raises ValueError as `table_lines` does.
    """
    lines = columns[text] if kind == "text" else table_lines(columns, kind)
    return "".join(f"{line}\n" for line in lines)


def write_json(path: Path, content: Any, indent: int | None = 2) -> None:
    """Writes a JSON file as a whole. Raises MemAttnError as `replacing` does.

    NaN and infinity, which JSON cannot express, become null, and texts are `printable`.
    """
    text = json.dumps(_expressible(content), indent=indent, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def printable(text: str) -> str:
    """A text with escapes, such as \\udce4, for the bytes of a name of a file that is not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _expressible(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, str):
        return printable(content)
    if isinstance(content, Mapping):
        return {_expressible(key): _expressible(value) for key, value in content.items()}
    return [*map(_expressible, content)] if isinstance(content, list | tuple) else content
