"""Whether each sentence of a long document costs the same: CPU time and memory over the document.

    python recipes/stream/book.py --source test.en -- fairseq-generate ... --batch-size 1

Runs the command, which translates --source as fairseq-generate or fairseq-interactive does, and
reads its CPU time and its resident memory whenever a translation comes. Prints the CPU time of a
sentence in the first and in the last tenth, without the first sentence, which begins when the model
is loaded, and the memory after either. Ends with 1 unless every sentence of the source has one
translation that is not empty.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HYPOTHESIS = re.compile(r"H-(\d+)\t[^\t]*\t(.*)")


class Moment(NamedTuple):
    """seconds: of CPU so far; resident: MiB"""

    seconds: float
    resident: float


def moment(process: int) -> Moment:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    return Moment(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def follow(command: list[str]) -> tuple[dict[int, str], list[Moment]]:
    """The translation of each sentence in the order in which they come, and the moments."""
    found: dict[int, str] = {}
    moments = []
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        for line in process.stdout or []:
            if match := HYPOTHESIS.match(line):
                found[int(match[1])] = match[2]
                moments.append(moment(process.pid))
    if process.returncode:
        sys.exit(f"error: the command ended with {process.returncode}")
    return found, moments


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, required=True, help="a sentence a line")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    lines = args.source.read_text(encoding="utf-8").splitlines()
    program, *flags = args.command
    found, moments = follow([str(Path(sys.executable).with_name(program)), *flags])
    tenth = len(moments) // 10
    parts = (moments[0], moments[tenth]), (moments[-1 - tenth], moments[-1])
    first, last = (1e3 * (after.seconds - before.seconds) / tenth for before, after in parts)
    print(f"sentences: {len(lines)}, translations: {len(found)}")
    print(f"CPU of a sentence: {first:.2f} ms, then {last:.2f} ms, ratio {last / (first or 1):.3f}")
    print(f"memory: {parts[0][1].resident:.1f} MiB, then {moments[-1].resident:.1f} MiB")
    whole = list(found) == list(range(len(lines))) and all(map(str.strip, found.values()))
    print("every sentence has its translation, in order" if whole else "sentences are omitted")
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
