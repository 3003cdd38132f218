"""Checks of dictionaries, `.bin` and `.idx` files, subword models and alignment dictionaries.

A file that is empty, truncated, of another format or from another corpus ends a command with one
sentence that names it, before the first batch.
"""

from __future__ import annotations

import functools
import os
import re
import struct
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.correctness.paths import BINARY, infer_language_pair
from fairseq_memattn.white_space import with_spaces

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQ")  # magic, version, code of the type, number of sentences
BLOCK = 1 << 22  # entries that are checked at once
FOREIGN = " is not an index that fairseq-preprocess writes, or it is damaged"


def check_data_files() -> None:
    """Lets fairseq check the files when it opens them."""
    from fairseq import utils
    from fairseq.data import Dictionary, data_utils, indexed_dataset
    from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE

    utils.load_align_dict = load_align_dict
    data_utils.infer_language_pair = infer_language_pair
    SentencepieceBPE.__init__ = _checked_pieces(SentencepieceBPE.__init__)
    SentencepieceBPE.encode = _of_spaces(SentencepieceBPE.encode)
    Dictionary.add_from_file = _checked_dictionary(Dictionary.add_from_file)
    indexed_dataset.make_dataset = _checked_dataset(indexed_dataset.make_dataset)
    indexed_dataset.FastaDataset._build_index = _refuse_fasta


def _checked_dictionary(add_from_file: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(add_from_file)
    def add_from_file_(self: Any, file: Any) -> None:
        if not isinstance(file, str):
            return add_from_file(self, file)
        before = len(self)
        try:
            add_from_file(self, file)
        except FileNotFoundError as error:
            raise MemAttnError(_missing_dictionary(file)) from error
        except OSError:
            raise
        except Exception as error:
            raise MemAttnError(_fault_of_dictionary(file) or f"{file}: {error}") from error
        if len(self) == before:
            raise MemAttnError(f"{file} must have a token and its count in each line, but is empty")
        # Tasks add symbols later, such as a separator, which data of this dictionary does not have.
        self.symbols_of_file = len(self)
        return None

    return add_from_file_


def _missing_dictionary(path: str) -> str:
    """A dictionary is sought by the name of a language, or without one for one language."""
    folder, name = os.path.split(path)
    if not os.path.isdir(folder or "."):
        return f"the dictionary {path} does not exist"
    found = sorted(name for name in os.listdir(folder or ".") if name.startswith("dict."))
    language = re.fullmatch(r"dict\.(.+)\.txt", name)
    inner = os.path.join(folder, BINARY)
    if found:
        others = f"the dictionaries there are {', '.join(found)}"
    elif os.path.exists(os.path.join(inner, name)):
        others = f"{inner} has it"
    else:
        others = "there is no other there"
    of = f" of the language {language[1]}" if language else ""
    return f"the dictionary {path}{of} does not exist; {others}"


def _fault_of_dictionary(path: str) -> str | None:
    """The first line that a dictionary cannot have, in a sentence."""
    seen: dict[str, int] = {}
    with open(path, "rb") as lines:
        for number, raw in enumerate(lines, start=1):
            place = f"{path}, line {number}"
            try:
                text = raw.decode("utf-8").rstrip()
            except UnicodeDecodeError:
                return f"{place} must be UTF-8, but is {raw[:40]!r}"
            replaces = text.endswith(" #fairseq:overwrite")
            token, _, count = text.removesuffix(" #fairseq:overwrite").rpartition(" ")
            if not token or not count.isdecimal():
                return f"{place} must be a token and its count, but is {text[:80]!r}"
            if token in seen and not replaces:
                return f"{place} has the token {token!r} of line {seen[token]} again"
            seen[token] = number
    return None


def _checked_dataset(make_dataset: Callable[..., Any]) -> Callable[..., Any]:
    """`make_dataset`, which returns None for a file that does not exist."""

    @functools.wraps(make_dataset)
    def make_dataset_(path: str, impl: str, *args: Any, **kwargs: Any) -> Any:
        if impl not in ("mmap", "cached", "lazy"):
            return make_dataset(path, impl, *args, **kwargs)
        index, data = f"{path}.idx", f"{path}.bin"
        _check_both_exist(index, data)
        mapped = impl == "mmap" and os.path.exists(index)
        if mapped:
            check_index(index, data)
        try:
            dataset = make_dataset(path, impl, *args, **kwargs)
        except (AssertionError, LookupError, ValueError, struct.error) as error:
            raise MemAttnError(f"{index}{FOREIGN}") from error
        dictionary = kwargs.get("dictionary")
        if mapped and dictionary is not None:
            symbols = getattr(dictionary, "symbols_of_file", len(dictionary))
            check_tokens(dataset, data, symbols)
        return dataset

    return make_dataset_


def _refuse_fasta(dataset: Any, path: str) -> NoReturn:
    """fairseq reads these files by commands of a shell, which has the path among its words."""
    raise MemAttnError(
        f"{path}.fasta: data in FASTA format are not read; fairseq-preprocess makes other data of "
        "text"
    )


def _check_both_exist(index: str, data: str) -> None:
    for missing, present in ((index, data), (data, index)):
        if os.path.exists(present) and not os.path.exists(missing):
            raise MemAttnError(f"{present} needs {missing}, which is missing")


def check_index(index: str, data: str) -> None:
    """Raises MemAttnError where a memory-mapped index and its data do not fit.

    index, data: the paths of the `.idx` and the `.bin` file
    """
    from fairseq.data.indexed_dataset import _code_to_dtype

    size = os.path.getsize(index)
    if size < HEADER.size:
        raise MemAttnError(f"{index} is empty or truncated: it has {size} bytes")
    with open(index, "rb") as stream:
        magic, version, code, count = HEADER.unpack(stream.read(HEADER.size))
    if (magic, version) != (MAGIC, 1) or code not in _code_to_dtype:
        raise MemAttnError(f"{index}{FOREIGN}")
    if count == 0:
        raise MemAttnError(f"{data} must have sentences, but has none")
    if size != HEADER.size + 12 * count:
        raise MemAttnError(
            f"{index} must have {HEADER.size + 12 * count} bytes for its {count} sentences, but "
            f"has {size}: it is truncated or damaged"
        )
    expected = _bytes_of_data(index, count, np.dtype(_code_to_dtype[code]).itemsize)
    if expected != os.path.getsize(data):
        raise MemAttnError(
            f"{data} must have the {expected} bytes of which {os.path.basename(index)} tells, but "
            f"has {os.path.getsize(data)}: it is truncated or belongs to another index"
        )


def _bytes_of_data(index: str, count: int, width: int) -> int:
    """The end of the last sentence, after a check that each begins where the one before ends."""
    lengths = np.memmap(index, np.int32, "r", HEADER.size, (count,))
    starts = np.memmap(index, np.int64, "r", HEADER.size + 4 * count, (count,))
    position = 0
    for first in range(0, count, BLOCK):
        sizes = lengths[first : first + BLOCK].astype(np.int64) * width
        ends = position + sizes.cumsum()
        wrong = (sizes < 0) | (starts[first : first + BLOCK] != ends - sizes)
        if wrong.any():
            raise MemAttnError(f"{index} is damaged at sentence {first + int(wrong.argmax()) + 1}")
        position = int(ends[-1])
    return position


def check_tokens(dataset: Any, data: str, symbols: int) -> None:
    """Raises MemAttnError for a token beyond the dictionary.

    dataset: a memory-mapped one
    data: the path of its `.bin` file, which is read once
    symbols: the length of the dictionary
    """
    tokens = np.memmap(data, dataset._index.dtype, "r")
    for first in range(0, len(tokens), BLOCK):
        block = tokens[first : first + BLOCK]
        wrong = (block >= symbols) | (block < 0)
        if wrong.any():
            place = first + int(wrong.argmax())
            starts = dataset._index._pointers
            sentence = int(np.searchsorted(starts, place * tokens.itemsize, side="right"))
            raise MemAttnError(
                f"{data}, sentence {sentence} has the token {int(tokens[place])}, but the "
                f"dictionary has {symbols} symbols: the data was binarised with another dictionary"
            )


def _checked_pieces(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def init_(self: Any, cfg: Any) -> None:
        try:
            init(self, cfg)
        except RuntimeError as error:
            raise MemAttnError(
                f"--sentencepiece-model {cfg.sentencepiece_model} is not a SentencePiece model, or "
                "it is damaged"
            ) from error

    return init_


def _of_spaces(encode: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(encode)
    def encode_(self: Any, x: str) -> str:
        return encode(self, with_spaces(x))

    return encode_


def load_align_dict(replace_unk: str | None) -> dict[str, str] | None:
    """`fairseq.utils.load_align_dict`: the translations of source words that --replace-unk names.

    Without a file, --replace-unk copies the source word; fairseq looks for the file "@@ " then.

    Raises MemAttnError for a line without two columns.
    """
    if replace_unk is None:
        return None
    if replace_unk in ("", "@@ "):
        return {}
    translations = {}
    with open(replace_unk, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            columns = line.split()
            if len(columns) < 2:
                raise MemAttnError(
                    f"--replace-unk {replace_unk}, line {number} must have a word and its "
                    f"translation, but is {line.strip()!r}"
                )
            translations[columns[0]] = columns[1]
    return translations
