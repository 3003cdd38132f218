"""Checks of the files and folders that the options of fairseq's commands name."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from fairseq_memattn.errors import MemAttnError

MOST_NAMES = 12  # of files in an error message
BINARY = "bin"  # the folder of fairseq's data in that of a preparation
ONE_LANGUAGE = "dict.txt"  # the dictionary of data of one language


def check_paths(cfg: Any, command: str) -> None:
    """Raises MemAttnError, which names the option, for a path that the command cannot use.

    command: the name of the module in fairseq_cli
    """
    for folder in split_paths(getattr(cfg.task, "data", None)):
        _check_folder("the data folder", folder)
        if not os.path.exists(folder):
            raise MemAttnError(f"the data folder {folder} does not exist")
    if command == "train":
        _check_folder("--save-dir", cfg.checkpoint.save_dir)
    if command == "generate":
        _check_folder("--results-path", cfg.common_eval.results_path)
    for path in split_paths(cfg.common_eval.path):
        if os.path.isdir(path):
            raise MemAttnError(f"--path must be a checkpoint, but {path} is a folder")
    if command == "interactive" and cfg.interactive.input != "-":
        _check_input(cfg.interactive.input)


def split_paths(paths: str | None) -> list[str]:
    """The local paths of an option that takes several."""
    if not isinstance(paths, str) or "://" in paths:
        return []
    return [path for path in paths.split(os.pathsep) if path]


def _check_folder(option: str, path: str | None) -> None:
    if path and os.path.exists(path) and not os.path.isdir(path):
        raise MemAttnError(f"{option} must be a folder, but {path} is a file")


def _check_input(path: str) -> None:
    if not os.path.exists(path):
        raise MemAttnError(f"--input {path} does not exist")
    if os.path.isdir(path):
        raise MemAttnError(f"--input must be a file, but {path} is a folder")


def infer_language_pair(path: str) -> list[str]:
    """`fairseq.data.data_utils.infer_language_pair`: the languages in the names of the files.

    Raises MemAttnError if no file has a pair of languages in its name.
    """
    pair = language_pair(path)
    if pair:
        return pair
    raise MemAttnError(
        f"{path} must have files with a pair of languages in their names, such as "
        f"train.en-de.en.idx, but has {names_in(path)}; {_where_pairs_are(path)}"
    )


def _where_pairs_are(path: str) -> str:
    """The folder that has files with a pair of languages, or what writes them."""
    inner = os.path.join(path, BINARY)
    if language_pair(inner):
        return f"{inner} has them"
    for folder in (path, inner):
        if os.path.exists(os.path.join(folder, ONE_LANGUAGE)):
            return f"{folder} has {ONE_LANGUAGE}: its data is of one language"
    return "fairseq-preprocess -s SOURCE -t TARGET writes them"


def language_pair(folder: str) -> list[str]:
    """The languages in the name of the first file that has two; nothing if none has."""
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        parts = name.split(".")
        if len(parts) >= 3 and len(parts[1].split("-")) == 2:
            return parts[1].split("-")
    return []


def splits_in(folder: str) -> str:
    """The names of the splits that fairseq-preprocess has written, in an error message."""
    return _listed({name.partition(".")[0] for name in os.listdir(folder) if name.endswith(".idx")})


def names_in(folder: str) -> str:
    """The names of the files, in an error message."""
    return _listed(os.listdir(folder))


def _listed(names: Iterable[str]) -> str:
    names = sorted(names)
    more = ["..."] if len(names) > MOST_NAMES else []
    return ", ".join(names[:MOST_NAMES] + more) or "none"
