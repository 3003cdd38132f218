"""Stages from an archive to binary data: each runs once, and a run that was killed resumes.

One process writes to an output, and it overwrites nothing by accident.
"""

import argparse
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from time import monotonic

from fairseq_memattn.data_prep.pipeline.download import digest
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import locked, make_folders, write_json

VERSION = 1  # increase it when the same input gives other bytes
Counts = Mapping[str, int]
LOCK = ".lock"
SLOW = 10  # seconds, from which the time of a stage is printed
OTHER = "another preparation is writing to --output"
Command = Callable[[argparse.Namespace], None]


class Stages:
    """The stages of one folder, with a record of each in FOLDER/stages/.

    A record contains the checksums of the inputs and the options of a stage. When the outputs are
    complete, it contains their checksums and the counts as well; without these the stage runs
    again.
    """

    def __init__(self, folder: Path, force: bool = False) -> None:
        """force: whether a stage may replace what it made from other input or options."""
        self.folder = folder
        self.force = force
        self._digests: dict[tuple[str, int, int], str] = {}
        self._finished: list[str] = []

    def run(
        self,
        name: str,
        inputs: Sequence[Path],
        outputs: Sequence[Path],
        work: Callable[[], Counts | None],
        **options: object,
    ) -> Counts:
        """Run `work`, which writes all `outputs` or none, unless it is done; print its counts.

        Raises MemAttnError for outputs that no stage has made, that were made from other input or
        options, or that were changed since, unless `force` is set; and for an output that is an
        input.
        """
        for path in inputs:
            if not path.is_file():
                raise MemAttnError(f"{path}: no such file")
        refuse_overwriting(inputs, outputs)
        record = self.folder / "stages" / f"{name}.json"
        remove_leftovers([*outputs, record])
        made_from: dict[str, object] = {
            "version": VERSION,
            "inputs": self._labelled(inputs),
            "options": options,
        }
        counts = self._done(record, made_from, outputs)
        state, spent = "done before", ""
        if counts is None:
            self._refuse_foreign(record, outputs)
            wanted = {self._label(path) for path in outputs}
            for label in set(self._made(record)) - wanted:
                (self.folder / label).unlink(missing_ok=True)
            folders = make_folders(record.parent)
            write_json(record, made_from)
            began = monotonic()
            try:
                counts = work() or {}
            except Exception:
                self._remove_failed(record, outputs, folders)
                raise
            state, seconds = "done", monotonic() - began
            if seconds >= SLOW:  # a log has no bar
                lines = max(counts.values(), default=0)
                speed = f", {lines / seconds:,.0f} lines a second" if lines else ""
                spent = f" ({seconds:.0f} s{speed})"
            made = {self._label(path): self._digest(path) for path in outputs}
            write_json(record, {**made_from, "counts": counts, "outputs": made})
            self._finished.append(name)
        told = ", ".join(f"{number:,} {what}" for what, number in counts.items())
        print(f"{name}: {told or state}{spent}", flush=True)
        return counts

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Stages that check the user's files: after an error in one, all of them are undone.

        Stages that were done before the body are kept.
        """
        before = len(self._finished)
        there = self.folder.exists()
        try:
            yield
        except Exception:
            for name in self._finished[before:]:
                self.forget(name)
            remove_empty(self.folder, there)
            raise

    def forget(self, name: str) -> None:
        """Remove the outputs of a stage and its record, if there are any."""
        record = self.folder / "stages" / f"{name}.json"
        for label in self._made(record):
            (self.folder / label).unlink(missing_ok=True)
        record.unlink(missing_ok=True)

    @staticmethod
    def _remove_failed(record: Path, outputs: Sequence[Path], folders: Sequence[Path]) -> None:
        """Remove the record of a stage without outputs, and the folders that it has made.

        With outputs, of an earlier run, the record stays: it says that this stage made them.
        """
        if not any(path.exists() for path in outputs):
            record.unlink(missing_ok=True)
            for folder in reversed(folders):
                with suppress(OSError):  # not empty
                    folder.rmdir()

    def _made(self, record: Path) -> list[str]:
        """The labels of the outputs that a record lists.

        Raises MemAttnError for one that is outside of the folder: it would be removed.
        """
        try:
            labels = list(json.loads(record.read_text(encoding="utf-8"))["outputs"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return []
        folder = self.folder.resolve()
        for label in labels:
            is_name = isinstance(label, str) and "\0" not in label
            if not is_name or not (folder / label).resolve().is_relative_to(folder):
                raise MemAttnError(f"{record}: names {label!r:.80}, which is not in {self.folder}")
        return labels

    def _done(
        self, record: Path, made_from: Mapping[str, object], outputs: Sequence[Path]
    ) -> Counts | None:
        """The counts of a stage that is done; None where it is not."""
        try:
            found = json.loads(record.read_text(encoding="utf-8"))
            made = {**made_from, "counts": found["counts"]}
            same = {key: found[key] for key in made} == json.loads(json.dumps(made))
            same = same and json.dumps(found["inputs"]) == json.dumps(made["inputs"])  # in order
            changed = [
                path
                for path in outputs
                if path.exists() and self._digest(path) != found["outputs"].get(self._label(path))
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if same and not changed and all(path.exists() for path in outputs):
            return dict(found["counts"])
        if not self.force and (changed or not same):
            where = changed[0] if same else self.folder
            reason = "was changed since" if same else "was made from other input or options"
            raise MemAttnError(
                f"{where} {reason} (see {record}); choose another --output, or replace it with "
                "--force"
            )
        return None

    def _refuse_foreign(self, record: Path, outputs: Sequence[Path]) -> None:
        """Raise MemAttnError for existing files that no stage has made or begun."""
        there = [path for path in outputs if path.exists()]
        if there and not record.exists() and not self.force:
            raise MemAttnError(
                f"{there[0]} exists, but no stage has made it (no {record}); choose another "
                "--output, or replace it with --force"
            )

    def _label(self, path: Path) -> str:
        """A name that does not change when the folder is moved."""
        inside = path.is_relative_to(self.folder)
        return path.relative_to(self.folder).as_posix() if inside else path.name

    def _labelled(self, paths: Sequence[Path]) -> dict[str, str]:
        """The checksum of each file by its label; a second file of one name is NAME#2.

        A file may be there twice, which is text that counts twice.
        """
        found: dict[str, str] = {}
        for path in paths:
            label, number = self._label(path), 1
            while label in found:
                number += 1
                label = f"{self._label(path)}#{number}"
            found[label] = self._digest(path)
        return found

    def _digest(self, path: Path) -> str:
        """The file's checksum, computed once a run."""
        status = path.stat()
        key = (str(path), status.st_size, status.st_mtime_ns)
        if key not in self._digests:
            self._digests[key] = digest(path)
        return self._digests[key]


def remove_empty(folder: Path, keep: bool) -> None:
    """Remove the empty folders in a folder and, without `keep`, itself if it is empty."""
    inside = [path for path in folder.rglob("*") if path.is_dir()]
    for path in [*reversed(sorted(inside)), *([] if keep else [folder])]:
        with suppress(OSError):  # not empty
            path.rmdir()


def remove_leftovers(outputs: Sequence[Path]) -> None:
    """Remove the temporary files that killed processes have left beside these files."""
    for path in outputs:
        pattern = re.compile(f"{re.escape(path.name)}.([0-9]{{1,9}}).tmp{re.escape(path.suffix)}")
        for leftover in path.parent.glob(f"*.tmp{path.suffix}"):
            if found := pattern.fullmatch(leftover.name):
                try:
                    os.kill(int(found[1]), 0)
                except ProcessLookupError:
                    leftover.unlink(missing_ok=True)
                except PermissionError:  # a process of another user
                    continue


def refuse_overwriting(inputs: Sequence[Path], outputs: Sequence[Path], force: bool = True) -> None:
    """Raise MemAttnError if an output is also an input or, without `force`, if it exists."""
    resolved = {os.path.realpath(path) for path in inputs}
    for path in outputs:
        if os.path.realpath(path) in resolved:
            raise MemAttnError(f"{path}: the output would overwrite an input; change --output")
        if path.exists() and not force:
            raise MemAttnError(
                f"{path} exists; choose another --output, or replace it with --force"
            )


def locks_output(work: Command) -> Command:
    """A preparation that holds the lock of the folder --output."""

    @wraps(work)
    def run(args: argparse.Namespace) -> None:
        with locked(args.output / LOCK, f"{OTHER} {args.output}"):
            work(args)

    return run
