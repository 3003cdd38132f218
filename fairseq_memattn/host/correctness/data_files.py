"""Checks of dictionaries and of `.bin` and `.idx` files when fairseq opens them.

A file that is truncated or from another corpus would be read as other tokens.
"""

import os
import struct
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.pieces import join_bytes, with_spaces

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQ")  # magic, version, code of the type, number of sentences
BLOCK = 1 << 22  # entries that are checked at once


def check_dictionary(add_from_file: Callable[..., None], self: Any, file: Any) -> None:
    """An empty dictionary is an error."""
    before = len(self)
    add_from_file(self, file)
    if isinstance(file, str):
        if len(self) == before:
            raise MemAttnError(f"{file} must have a token and its count in each line")
        # Tasks add symbols later, such as a separator, which the data does not have.
        self.symbols_of_file = len(self)


def check_dataset(
    make_dataset: Callable[..., Any], path: str, impl: str, *args: Any, **kwargs: Any
) -> Any:
    """`.bin` and `.idx` files that are damaged or of another dictionary are an error."""
    index, data = f"{path}.idx", f"{path}.bin"
    mapped = impl == "mmap" and os.path.exists(index) and os.path.exists(data)
    if mapped:
        check_index(index, data)
    dataset = make_dataset(path, impl, *args, **kwargs)
    dictionary = kwargs.get("dictionary")
    if mapped and dictionary is not None:
        check_tokens(dataset, data, getattr(dictionary, "symbols_of_file", len(dictionary)))
    return dataset


def refuse_fasta(build_index: Callable[..., Any], self: Any, path: str) -> NoReturn:
    """FASTA data, whose path fairseq passes to a shell, are refused.

    The names of files in a folder of data are a part of that path.
    """
    raise MemAttnError(f"{path}.fasta: data in FASTA format are not read")


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
        raise MemAttnError(f"{index} is damaged, or no index that fairseq-preprocess writes")
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


def segment_spaces(encode: Callable[..., str], self: Any, x: str) -> str:
    """Every white space is a space before a line is segmented."""
    return encode(self, with_spaces(x))


def decode_bytes(decode: Callable[..., str], self: Any, x: str) -> str:
    """Pieces of bytes become the characters that they spell."""
    return decode(self, join_bytes(x))


def join_sentencepiece(post_process: Callable[..., str], sentence: str, symbol: str) -> str:
    """The same for `--post-process sentencepiece`."""
    return post_process(join_bytes(sentence) if symbol == "sentencepiece" else sentence, symbol)


def copy_unknown(load: Callable[..., Any], replace_unk: str | None) -> Any:
    """`--replace-unk` without a file copies the source word.

    fairseq looks for the file "@@ " then.
    """
    return {} if replace_unk in ("", "@@ ") else load(replace_unk)


def replace_unknown(
    post_process: Callable[..., Any],
    hypo_tokens: Any,
    src_str: str,
    alignment: Any,
    align_dict: Mapping[str, str] | None,
    tgt_dict: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """`--replace-unk` uses the pairs of `--print-alignment`.

    fairseq takes them for places of the source. A replacement becomes a symbol of the dictionary,
    as in fairseq, before pieces are joined.
    """
    if align_dict is not None:
        source, aligned = src_str.split(), {target: place for place, target in alignment}
        special = (tgt_dict.pad(), tgt_dict.eos())
        places = [n for n, token in enumerate(hypo_tokens.tolist()) if token not in special]
        hypo_tokens = hypo_tokens.clone()
        for number, place in enumerate(places):
            if hypo_tokens[place] == tgt_dict.unk() and number in aligned:
                word = source[aligned[number]]
                hypo_tokens[place] = tgt_dict.add_symbol(align_dict.get(word, word))
    return post_process(hypo_tokens, src_str, alignment, None, tgt_dict, *args, **kwargs)
