"""fairseq's dictionary without fairseq: symbols and their ids."""

from itertools import islice
from pathlib import Path

from fairseq_memattn.errors import MemAttnError

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # the first ids, which no file lists
OVERWRITE = "#fairseq:overwrite"


class Vocabulary:
    """Symbols, the first of which are SPECIAL, and the id of each.

    symbols: in the order of their ids; of equal symbols, text has the last one's id
    counts: of each symbol in the training data; models do not need them
    """

    def __init__(self, symbols: list[str], counts: list[int]) -> None:
        self.symbols = symbols
        self.counts = counts
        self.ids = {symbol: number for number, symbol in enumerate(symbols)}

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """The vocabulary of a `dict.txt`. Raises MemAttnError for a file of another form."""
        symbols, counts = list(SPECIAL), [1] * len(SPECIAL)
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                entry = line.rstrip().removesuffix(f" {OVERWRITE}")
                symbol, space, count = entry.rpartition(" ")
                if not space or not count.isdecimal():
                    raise MemAttnError(
                        f"{path}, line {number}: must be a symbol, a space and a count, as in a "
                        f"dictionary of fairseq, but is {line!r}"
                    )
                symbols.append(symbol)
                counts.append(int(count))
        return cls(symbols, counts)

    def save(self, path: Path) -> None:
        """Writes a `dict.txt`, which fairseq reads too."""
        seen = set(SPECIAL)
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            entries = zip(self.symbols, self.counts, strict=True)
            for symbol, count in islice(entries, len(SPECIAL), None):
                file.write(f"{symbol} {count}{f' {OVERWRITE}' * (symbol in seen)}\n")
                seen.add(symbol)

    def __len__(self) -> int:
        return len(self.symbols)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.symbols == other.symbols

    def id(self, symbol: str) -> int:
        """The id of a symbol, that of `<unk>` for an unknown one."""
        return self.ids.get(symbol, SPECIAL.index("<unk>"))

    def symbol(self, number: int) -> str:
        """The symbol of an id, `<unk>` for an id beyond the last."""
        return self.symbols[number] if 0 <= number < len(self) else "<unk>"
