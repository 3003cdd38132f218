"""Lines of corpora: reading that repairs known defects, rewriting, and what pieces give back."""

import os
import re
import signal
import sys
import threading
import time
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, tee, zip_longest
from multiprocessing import Pool
from pathlib import Path
from typing import Any, TextIO, TypeVar

from tqdm import tqdm

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import decode_line, iterate_lines, open_bytes, write_all_or_nothing

CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f]")  # all of C0 but the tab
BLOCK = 2000  # lines that a process gets at a time
INTERVAL = 0.5  # seconds
LineFunction = Callable[[str], str]
T = TypeVar("T")
CONTEXT = 10  # characters before the first difference that a warning shows
SHOWN = 40  # characters that a warning shows


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file. A carriage return, where fairseq ends a line, is refused."""
    return iterate_lines(path, returns=False)


def count_lines(path: Path) -> int:
    """The number of newlines of a file."""
    with open_bytes(path) as file:
        return sum(block.count(b"\n") for block in iter(partial(file.read, 2**20), b""))


def progress(rows: Iterable[T], name: str, path: Path | None = None) -> Iterator[T]:
    """The same rows. On a terminal, a bar shows their number a second.

    path: a file with as many lines; the bar then shows the time left as well
    """
    shown = sys.stderr is not None and sys.stderr.isatty()
    total = count_lines(path) if path and shown and path.suffix != ".gz" else None
    return iter(tqdm(rows, desc=name, unit=" lines", total=total, disable=None))


def raw_lines(path: Path, counts: Counter[str]) -> Iterator[str]:
    """The lines of a corpus as it was released, without white space around them.

    Control characters become spaces and are counted; fairseq would end a line at a carriage
    return. Raises MemAttnError, with the line, for bytes that are not UTF-8.
    """
    with open_bytes(path) as file:
        for number, raw in enumerate(file, start=1):
            raw = raw.removeprefix(BOM_UTF8) if number == 1 else raw
            line = decode_line(raw.rstrip(b"\r\n").replace(b"\r", b"\0"), path, number)
            line, found = CONTROL.subn(" ", line)
            if found:
                counts["control characters replaced by spaces"] += found
            yield line.strip()


def raw_pairs(paths: Sequence[Path], counts: Counter[str]) -> Iterator[tuple[str, ...]]:
    """`raw_lines` of line-aligned files, row by row.

    Raises MemAttnError where one file is shorter.
    """
    rows = zip_longest(*(raw_lines(path, counts) for path in paths))
    for number, row in enumerate(rows, start=1):
        for path, line in zip(paths, row, strict=True):
            if line is None:
                others = " and ".join(str(other) for other in paths if other != path)
                raise MemAttnError(
                    f"{path}: ends before line {number}, but {others} continues; the files must "
                    "have the same number of lines"
                )
        yield row


def write_row(files: Sequence[TextIO], texts: Iterable[str]) -> None:
    for file, text in zip(files, texts, strict=True):
        file.write(text + "\n")


def from_bpe(pieces: str) -> str:
    """The text that fairseq makes of pieces with `--post-process subword_nmt`."""
    return f"{' '.join(pieces.split())} ".replace("@@ ", "").rstrip()


class RoundTrip:
    """Compares the lines of a file with the text that their pieces give back.

    Runs of white space count as one space, because fairseq and the scorers split text there. What
    the dictionary lacks is not known here; `write_binary` tells it.
    """

    def __init__(self, source: Path, restore: Callable[[str], str]) -> None:
        """The comparison for a file. restore: the function from pieces to text"""
        self.source = source
        self.restore = restore
        self.lines = 0
        self.lost = 0
        self.first = (0, "", "")

    def add(self, line: str, pieces: str) -> None:
        self.lines += 1
        restored = self.restore(pieces)
        if restored == line:  # nearly always, and quicker than what follows
            return
        before, after = (" ".join(text.split()) for text in (line, restored))
        if before != after:
            self.lost += 1
            if self.lost == 1:
                self.first = (self.lines, before, after)

    def report(self) -> Counter[str]:
        """The count for the record of a stage; lines that are not restored are a warning."""
        if not self.lost:
            return Counter()
        number, before, after = self.first
        begin = max(0, len(os.path.commonprefix([before, after])) - CONTEXT)
        was, becomes = (text[begin : begin + SHOWN] for text in (before, after))
        print(
            f"warning: {self.source}: {self.lost:,} of {self.lines:,} lines differ from the text "
            f"that their pieces give back; the first is line {number}, where {was!r} becomes "
            f"{becomes!r}",
            file=sys.stderr,
        )
        what = f"lines of {self.source.name} that their pieces do not give back"
        return Counter({f"{what} (the first is line {number})": self.lost})


def rewrite(
    source: Path,
    target: Path,
    make: Callable[[], LineFunction],
    workers: int,
    restore: LineFunction | None = None,
    known: set[str] | None = None,
) -> Counter[str]:
    """Apply a function to every line of `source`, write the results to `target`, and return counts.

    make: returns the function; it is called once in each process, and must be picklable
    restore: the function from a result to its line, for results that are pieces; lines that it
        does not restore are counted
    known: the pieces of a dictionary; all pieces, and those that it lacks, are counted
    """
    counts = Counter({"lines": 0} if known is None else {"lines": 0, "pieces": 0})
    trip = RoundTrip(source, restore) if restore else None
    with write_all_or_nothing([target]) as [file]:
        lines = progress(read_lines(source), str(target), source)
        before, given = tee(lines)
        for line, result in zip(before, map_lines(make, given, workers), strict=True):
            file.write(result + "\n")
            counts["lines"] += 1
            if trip:
                trip.add(line, result)
            if known is not None:
                pieces = result.split()
                counts["pieces"] += len(pieces)
                if unknown := sum(piece not in known for piece in pieces):
                    counts["of them not in the dictionary (<unk>)"] += unknown
    counts.update(trip.report() if trip else {})
    return counts


def map_lines(
    make: Callable[[], Callable[[str], T]], lines: Iterable[str], workers: int
) -> Iterator[T]:
    """The results of the function for all lines, in order."""
    if workers == 1:
        yield from map(make(), lines)
        return
    make()  # a mistake ends in an error here; in a process, the pool would start it again
    source = iter(lines)
    stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # until the processes handle them
    try:
        started = Pool(workers, _start, (make, os.getpid(), before))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with started as pool:
        while blocks := list(islice(source, workers * BLOCK)):
            results = pool.map_async(_apply, blocks, chunksize=-(-len(blocks) // workers))
            while not results.ready():
                # A signal that arrives right before the wait for a lock does not interrupt it.
                results.wait(INTERVAL)
            yield from results.get()
        pool.close()
        pool.join()


_function: Callable[[str], Any]


def _start(
    make: Callable[[], Callable[[str], Any]], parent: int, mask: Iterable[signal.Signals]
) -> None:
    global _function
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent handles it and ends the pool
    # An exception, unlike the default, releases the lock of the queue that the parent needs.
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
    signal.pthread_sigmask(signal.SIG_SETMASK, {*mask, signal.SIGTERM})
    threading.Thread(target=_end, args=(parent, threading.get_ident()), daemon=True).start()
    _function = make()


def _end(parent: int, worker: int) -> None:
    """End this process on SIGTERM, or once its parent has ended without a word.

    The exception is raised again and again, for the reason why `map_lines` waits in intervals.

    worker: the thread that waits for lines
    """
    while os.getppid() == parent:
        if signal.sigtimedwait({signal.SIGTERM}, 1) is not None:
            while True:
                signal.pthread_kill(worker, signal.SIGALRM)
                time.sleep(INTERVAL)
    os._exit(1)


def _apply(line: str) -> Any:
    return _function(line)
