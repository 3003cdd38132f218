"""GPT-2's byte-level BPE (Radford et al., 2019), with the same pieces as fairseq's."""

import json
import math
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import regex

# Endings such as 'll, words, numbers and other signs with the space before them, and white space.
TOKEN = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
MOST_KNOWN = 500_000  # tokens whose numbers are kept
PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]


def letters() -> dict[int, str]:
    """A visible letter for each byte: the byte's own, or one from U+0100 on."""
    others = [byte for byte in range(256) if byte not in PRINTABLE]
    own = {byte: chr(byte) for byte in PRINTABLE}
    return own | {byte: chr(256 + number) for number, byte in enumerate(others)}


class GPT2BPE:
    """Encodes text with the numbers of a vocabulary (encoder.json) and merges (vocab.bpe).

    Raises ValueError for files that are not JSON or UTF-8.
    """

    def __init__(self, vocabulary: Path, merges: Path) -> None:
        self.numbers: dict[str, int] = json.loads(vocabulary.read_text(encoding="utf-8"))
        lines = merges.read_text(encoding="utf-8").split("\n")[1:-1]
        self.ranks = {tuple(line.split()): rank for rank, line in enumerate(lines)}
        self.letters = letters()
        self.known = lru_cache(MOST_KNOWN)(self.encode_token)

    def encode(self, text: str) -> list[int]:
        """The numbers of the pieces. Raises KeyError for a piece that has none."""
        return [number for token in TOKEN.findall(text) for number in self.known(token)]

    def encode_token(self, token: str) -> list[int]:
        return [self.numbers[piece] for piece in self.pieces(token)]

    def pieces(self, token: str) -> list[str]:
        """A token's letters, merged in the order of the merges."""
        parts = [self.letters[byte] for byte in token.encode("utf-8")]
        while len(parts) > 1:
            best = min(pairwise(parts), key=lambda pair: self.ranks.get(pair, math.inf))
            if best not in self.ranks:
                break
            parts = merged(parts, best)
        return parts


def merged(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """The parts with every occurrence of the pair as one part, from left to right."""
    found: list[str] = []
    rest = iter(range(len(parts)))
    for i in rest:
        if tuple(parts[i : i + 2]) == pair:
            found.append("".join(pair))
            next(rest)
        else:
            found.append(parts[i])
    return found
