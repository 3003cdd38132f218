"""Checks the paths of output files before a command starts its work, and writes the files."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_memattn.evaluation.text_columns import file_of, table_lines
from fairseq_memattn.files import is_device, replacing

# The files in folders of data, of models in transformers' format, and of compressed documents.
READ = (
    *("dict*.txt", "*.bin", "*.idx", "*.docids", "binarised.json"),
    *("*config.json", "*.safetensors", "*.index.json", "tokenizer*", "*.model", "fairseq.json"),
    *("onnx.json", "*.onnx", "*.onnx.data", "shard-*", "*.py"),
    *("encoder.json", "truecase.*.txt"),
)


def say(text: str) -> None:
    """Prints what is no result."""
    print(text, file=sys.stderr)


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
        if not is_device(path) and not os.access(folder, os.W_OK | os.X_OK):
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
                if not path or not folder.is_dir():
                    continue
                if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
                    raise ValueError(
                        f"{output} {path} must not be inside {option} {folder}, whose files are "
                        "read"
                    )


def _files_in(path: Path) -> list[Path]:
    """The files of a folder that commands read, and not those that they may have written there."""
    return [file for name in READ for file in path.glob(name)] if path.is_dir() else [path]


def write_checkpoint(state: dict[str, Any], output: Path) -> None:
    """Writes the checkpoint as a whole. Raises MemAttnError as `replacing` does."""
    import torch

    # torch names no reason if it opens the file itself.
    with replacing(output) as unfinished, open(unfinished, "wb") as file:
        torch.save(state, file)


def columns_text(columns: Mapping[str, Sequence[str]], text: str, kind: str) -> str:
    """The content of a file of line-aligned columns.

    text: the name of the column that is the content of a plain file
    kind: "text", or "jsonl" or "tsv" with all columns
    """
    lines = columns[text] if kind == "text" else table_lines(columns, kind)
    return "".join(f"{line}\n" for line in lines)
