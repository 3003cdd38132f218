"""Damage to a file. Each function gives the new contents, or changes the file and gives None."""

import random
import re
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[random.Random, Path, bytes], bytes | None]

FOREIGN = (
    b"\x89PNG\r\n\x1a\n" + bytes(50),
    b"PK\x03\x04" + bytes(60),
    b"\x1f\x8b\x08" + bytes(30),
    b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x05hello\x94.",
    b"<html><body>404 Not Found</body></html>\n",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12345\n",
    b"[1, 2, 3]\n",
    b'{"a": {"b": null}}\n',
    b"12\n",
    b"null",
    b'"text"',
    b"[NaN, Infinity]",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"[" + b"9" * 6000 + b"]",
    b"a: [1, 2\nb: {c",
    b"w1 x\nw2 1\n",
)
ODD = (b"\r", b"\x0b", b"\x0c", b"\x1c", b"\x85", b"\xe2\x80\xa8", b"\xc2\x85", b"\0", b"\t", b" ")
LINES = (
    b"\n",
    b"   \n",
    b"w1 " * 3000 + b"\n",
    b"x" * 100_000 + b"\n",
    b"never seen these words\n",
    b"<pad> </s> <unk>\n",
    b"w1 -5\n",
    b"w1 1 2 3\n",
    b"w1 99999999999999999999999\n",
    b"w1 #fairseq:overwrite\n",
    b"\xf0\x9f\x98\x80 1\n",
    b"H-0\tnan\tw1\n",
)
WORDS = (b"", b"-1", b"0", b"1.5", b"1e999", b"null", b"true", b"nan", b"NaN", b"Infinity", b"[]")
WORDS += (b"{}", b'"x"', b"\xff", b"9" * 5000)


def missing(draw: random.Random, path: Path, data: bytes) -> None:
    path.unlink()


def a_folder(draw: random.Random, path: Path, data: bytes) -> None:
    path.unlink()
    path.mkdir()


def a_dangling_link(draw: random.Random, path: Path, data: bytes) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def a_device(draw: random.Random, path: Path, data: bytes) -> None:
    path.unlink()
    path.symlink_to("/dev/null")


def empty(draw: random.Random, path: Path, data: bytes) -> bytes:
    return b""


def truncated(draw: random.Random, path: Path, data: bytes) -> bytes:
    return data[: draw.randrange(len(data) or 1)]


def a_bit_flipped(draw: random.Random, path: Path, data: bytes) -> bytes:
    at = draw.randrange(len(data) or 1)
    flipped = bytes(byte ^ 1 << draw.randrange(8) for byte in data[at : at + 1])
    return data[:at] + flipped + data[at + 1 :]


def a_byte_of_the_header_changed(draw: random.Random, path: Path, data: bytes) -> bytes:
    at = draw.randrange(min(len(data), 64) or 1)
    return data[:at] + draw.randbytes(1) + data[at + 1 :]


def foreign(draw: random.Random, path: Path, data: bytes) -> bytes:
    return draw.choice(FOREIGN)


def noise(draw: random.Random, path: Path, data: bytes) -> bytes:
    return draw.randbytes(500)


def not_utf8(draw: random.Random, path: Path, data: bytes) -> bytes:
    return _inserted(draw, data, b"\xff\xe9")


def an_odd_character(draw: random.Random, path: Path, data: bytes) -> bytes:
    return _inserted(draw, data, draw.choice(ODD))


def a_byte_order_mark(draw: random.Random, path: Path, data: bytes) -> bytes:
    return b"\xef\xbb\xbf" + data


def utf16(draw: random.Random, path: Path, data: bytes) -> bytes:
    return data.decode("latin-1").encode("utf-16")


def crlf(draw: random.Random, path: Path, data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def nul_bytes(draw: random.Random, path: Path, data: bytes) -> bytes:
    return data.replace(b" ", b"\0", 2) + b"\0"


def no_final_newline(draw: random.Random, path: Path, data: bytes) -> bytes:
    return data.rstrip(b"\n")


def a_line_lost(draw: random.Random, path: Path, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    at = draw.randrange(len(lines) or 1)
    return b"".join(lines[:at] + lines[at + 1 :])


def a_line_repeated(draw: random.Random, path: Path, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    at = draw.randrange(len(lines) or 1)
    return b"".join(lines[: at + 1] + lines[at:])


def a_line_replaced(draw: random.Random, path: Path, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True) or [b""]
    lines[draw.randrange(len(lines))] = draw.choice(LINES)
    return b"".join(lines)


def twice(draw: random.Random, path: Path, data: bytes) -> bytes:
    return data + data


def a_word_replaced(draw: random.Random, path: Path, data: bytes) -> bytes:
    words = list(re.finditer(rb"[A-Za-z0-9_.]+", data[:200_000]))
    if not words:
        return draw.choice(WORDS)
    word = draw.choice(words)
    return data[: word.start()] + draw.choice(WORDS) + data[word.end() :]


def _inserted(draw: random.Random, data: bytes, some: bytes) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + some + data[at:]


KINDS: tuple[Damage, ...] = (
    *(missing, a_folder, a_dangling_link, a_device, empty, truncated, a_bit_flipped),
    *(a_byte_of_the_header_changed, foreign, foreign, noise, not_utf8, an_odd_character),
    *(a_byte_order_mark, utf16, crlf, nul_bytes, no_final_newline, a_line_lost),
    *(a_line_repeated, a_line_replaced, a_line_replaced, twice, a_word_replaced, a_word_replaced),
)


def damage(draw: random.Random, path: Path) -> str:
    """Damages a file, and says how."""
    kind = draw.choice(KINDS)
    contents = kind(draw, path, path.read_bytes())
    if contents is not None:
        path.write_bytes(contents)
    return kind.__name__.replace("_", " ")
