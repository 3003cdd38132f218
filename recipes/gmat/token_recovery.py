"""How many tokens of documents come back from a store of compressed texts."""

import argparse
import re
import sys
from collections.abc import Collection, Sequence
from itertools import groupby
from pathlib import Path

PIECE = re.compile(r"(.+)#([0-9]+)")


def filled_documents(path: Path, ids: Collection[str]) -> dict[str, list[str]]:
    """The tokens that `memattn decompress --tokens` wrote for each document, pieces joined.

    ids: of the documents; a piece of one is called ID#NUMBER
    """
    pieces: dict[str, dict[int, list[str]]] = {}
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        name, tokens = line.split("\t")
        piece = None if name in ids else PIECE.fullmatch(name)
        document, number = (piece[1], int(piece[2])) if piece else (name, 0)
        begin, *rest = tokens.split(" ")  # what is found for <s> is none of the document's
        pieces.setdefault(document, {})[number] = rest
    return {
        document: [token for number in sorted(parts) for token in parts[number]]
        for document, parts in pieces.items()
    }


def documents(pieces: Path, docids: Path) -> dict[str, list[str]]:
    """The tokens of each document, with the end of each line."""
    lines = zip(
        *(path.read_text(encoding="utf-8").split("\n")[:-1] for path in (docids, pieces)),
        strict=True,
    )
    return {
        document: [token for _, line in group for token in [*line.split(), "</s>"]]
        for document, group in groupby(lines, key=lambda row: row[0])
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("filled", type=Path, help="of memattn decompress --tokens")
    parser.add_argument("--pieces", type=Path, required=True, help="the split as it was binarised")
    parser.add_argument("--docids", type=Path, required=True, help="its ids, one a line")
    args = parser.parse_args(argv)
    true = documents(args.pieces, args.docids)
    filled = filled_documents(args.filled, true)
    if {name: len(tokens) for name, tokens in true.items()} != {
        name: len(tokens) for name, tokens in filled.items()
    }:
        print(f"error: {args.filled} is not of the documents in {args.pieces}", file=sys.stderr)
        return 2
    right = sum(
        mine == theirs
        for name, tokens in true.items()
        for mine, theirs in zip(tokens, filled[name], strict=True)
    )
    total = sum(map(len, true.values()))
    print(f"{right:,} of {total:,} tokens come back: {100 * right / total:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
