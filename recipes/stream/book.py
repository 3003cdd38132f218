"""Whether each sentence of a long document costs the same: CPU time and memory over the document.

    python recipes/stream/book.py book.en -- fairseq-interactive ... --buffer-size 1

Gives the lines of a document to the command, one after another. The last tenth of them takes turns
with the first tenth, which a second process translates that has translated it once before, so that
other programs slow down both, and both are warm.
Prints the CPU time of a sentence in either, the resident memory after the first tenth and at the
end, and how many sentences of the first and last tenth are exactly those of --reference. Ends with
1 unless each line has one translation, which is not empty.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

TRANSLATION = re.compile(r"D-(\d+)\t[^\t]*\t(.*)")
TURN = 50  # sentences


class Reader:
    """A process that translates a document."""

    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        unbuffered = os.environ | {"PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=unbuffered)
        self.found: list[tuple[int, str]] = []

    def read(self, lines: list[str]) -> float:
        """Translates lines; returns the seconds of CPU time."""
        assert self.process.stdin is not None and self.process.stdout is not None
        before = self._seconds()
        for line in lines:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
            for answer in self.process.stdout:
                if match := TRANSLATION.match(answer):
                    self.found.append((int(match[1]), match[2]))
                    break
        return self._seconds() - before

    def _fields(self) -> list[str]:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()

    def _seconds(self) -> float:
        return sum(map(int, self._fields()[11:13])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> float:
        """MiB."""
        return int(self._fields()[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def end(self) -> None:
        self.process.communicate()


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="a document, a sentence a line")
    parser.add_argument("--reference", type=Path)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    lines = args.source.read_text(encoding="utf-8").splitlines()
    command = [str(Path(sys.executable).with_name(args.command[0])), *args.command[1:]]
    tenth, rest = len(lines) // 10, len(lines) - len(lines) // 10
    late = Reader(command)
    late.read(lines[:tenth])
    resident = [late.resident()]
    late.read(lines[tenth:rest])
    early = Reader(command)
    early.read([*lines[:tenth], ""])  # an empty line ends the document
    early.read(lines[:1])
    seconds = [0.0, 0.0]
    for turn in range(0, tenth, TURN):
        seconds[0] += early.read(lines[1:][turn : min(turn + TURN, tenth)])
        seconds[1] += late.read(lines[rest:][turn : min(turn + TURN, tenth)])
    resident.append(late.resident())
    for reader in (late, early):
        reader.end()
    first, last = (1e3 * x / tenth for x in seconds)
    print(f"sentences: {len(lines)}, translations: {len(late.found)}")
    print(f"CPU of a sentence: {first:.2f} ms, then {last:.2f} ms, ratio {last / (first or 1):.3f}")
    print(f"memory: {resident[0]:.1f} MiB, then {resident[1]:.1f} MiB")
    texts = [text.strip() for _, text in late.found]
    if args.reference:
        wanted = args.reference.read_text(encoding="utf-8").splitlines()
        right = [text == reference for text, reference in zip(texts, wanted, strict=False)]
        shares = (100 * sum(part) / tenth for part in (right[:tenth], right[rest:]))
        print("right: {:.1f} %, then {:.1f} %".format(*shares))
    whole = [number for number, _ in late.found] == list(range(len(lines))) and all(texts)
    print("every sentence has its translation, in order" if whole else "sentences are omitted")
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
