"""Steps from an archive to binary data, each done once: a run that was killed goes on."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from data_prep.download import digest
from data_prep.files import DataError, refuse_overwriting, write_all_or_nothing

VERSION = 1  # raise it whenever the same input gives other bytes
Counts = Mapping[str, int]


class Stages:
    """The steps that lead to one folder, with a record of each in FOLDER/stages/.

    A record says from which input and options a step's output is made. When the output is in its
    place it also says what was counted; a step that does not has to be done.
    """

    def __init__(self, folder: Path, force: bool = False) -> None:
        """force: whether a step may replace what it made from other input or options."""
        self.folder = folder
        self.force = force
        self._digests: dict[tuple[str, int, int], str] = {}

    def run(
        self,
        name: str,
        inputs: Sequence[Path],
        outputs: Sequence[Path],
        work: Callable[[], Counts | None],
        **options: object,
    ) -> Counts:
        """Do `work`, which makes `outputs` all or none, unless they are there; print its counts.

        Raises DataError where the outputs are there but not made here, made from something else,
        or changed since, unless `force` is on; and where an output is an input.
        """
        for path in inputs:
            if not path.is_file():
                raise DataError(f"{path}: no such file")
        refuse_overwriting(inputs, outputs)
        record = self.folder / "stages" / f"{name}.json"
        made_from = {
            "version": VERSION,
            "inputs": {self._label(path): self._digest(path) for path in inputs},
            "options": options,
        }
        counts = self._done(record, made_from, outputs)
        state = "done before"
        if counts is None:
            self._refuse_foreign(record, outputs)
            remove_leftovers([*outputs, record])
            wanted = {self._label(path) for path in outputs}
            for label in set(self._made(record)) - wanted:
                (self.folder / label).unlink(missing_ok=True)
            self._write(record, made_from)
            counts = work() or {}
            state = "done"
            made = {self._label(path): self._digest(path) for path in outputs}
            self._write(record, {**made_from, "counts": counts, "outputs": made})
        told = ", ".join(f"{number:,} {what}" for what, number in counts.items())
        print(f"{name}: {told or state}", flush=True)
        return counts

    def forget(self, name: str) -> None:
        """Remove what a step has made, and its record, where it has been done."""
        record = self.folder / "stages" / f"{name}.json"
        for label in self._made(record):
            (self.folder / label).unlink(missing_ok=True)
        record.unlink(missing_ok=True)

    @staticmethod
    def _made(record: Path) -> list[str]:
        """The labels of the outputs that a record speaks of."""
        try:
            return list(json.loads(record.read_text(encoding="utf-8"))["outputs"])
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def _done(
        self, record: Path, made_from: Mapping[str, object], outputs: Sequence[Path]
    ) -> Counts | None:
        """The counts of a step that is done; None where it is not."""
        try:
            found = json.loads(record.read_text(encoding="utf-8"))
            made = {**made_from, "counts": found["counts"]}
            same = {key: found[key] for key in made} == json.loads(json.dumps(made))
            changed = [
                path
                for path in outputs
                if path.exists() and self._digest(path) != found["outputs"].get(self._label(path))
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        if same and not changed and all(path.exists() for path in outputs):
            return dict(found["counts"])
        if not self.force and (changed or not same):
            where = changed[0] if same else self.folder
            reason = "was changed since it was made" if same else "was made otherwise"
            raise DataError(
                f"{where} {reason} (says {record}); choose another --output, or replace what is "
                "there with --force"
            )
        return None

    def _refuse_foreign(self, record: Path, outputs: Sequence[Path]) -> None:
        """A DataError for files in the way that no step has made or begun."""
        there = [path for path in outputs if path.exists()]
        if there and not record.exists() and not self.force:
            raise DataError(
                f"{there[0]} is there, but was not made here (no {record}); choose another "
                "--output, or replace what is there with --force"
            )

    def _write(self, record: Path, contents: Mapping[str, object]) -> None:
        with write_all_or_nothing([record]) as [file]:
            file.write(json.dumps(contents, indent=2, ensure_ascii=False) + "\n")

    def _label(self, path: Path) -> str:
        """A name that does not change when the folder is moved."""
        inside = path.is_relative_to(self.folder)
        return path.relative_to(self.folder).as_posix() if inside else path.name

    def _digest(self, path: Path) -> str:
        """The file's checksum, computed once a run."""
        status = path.stat()
        key = (str(path), status.st_size, status.st_mtime_ns)
        if key not in self._digests:
            self._digests[key] = digest(path)
        return self._digests[key]


def remove_leftovers(outputs: Sequence[Path]) -> None:
    """Remove what processes that were killed have left of these files, beside them."""
    for path in outputs:
        pattern = re.compile(re.escape(f"{path.name}.part") + "([0-9]+)")
        for leftover in path.parent.glob("*.part*"):
            found = pattern.fullmatch(leftover.name)
            if found and not _is_alive(int(found[1])):
                leftover.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True
