"""Finds damaged records and files of a store, and removes them to be compressed again."""

from pathlib import Path

from fairseq_memattn.compression.shard import Damaged, Shard, mark
from fairseq_memattn.compression.store import files, opened


def faults(folder: Path, drop: bool = False) -> tuple[list[str], int]:
    """The errors of damaged files and records, and the number of intact records.

    drop: removes damaged records, and files that cannot be read
    """
    found: list[str] = []
    intact = 0
    for file in files(folder):
        try:
            wrong, right = _of_file(file, drop)
        except Damaged as error:
            wrong, right = [str(error)], 0
            if drop:
                _remove(file)
        found += wrong
        intact += right
    return found, intact


def _of_file(file: Path, drop: bool) -> tuple[list[str], int]:
    """`faults` of one file. Raises Damaged if the file cannot be read."""
    shard = opened(file)
    if shard is None:
        return [], 0
    found: list[str] = []
    try:
        try:
            shard.check_consistent()
        except Damaged as error:
            if not drop:
                raise
            found.append(str(error))
            shard.index_again()
            shard.check_consistent()
        wrong = shard.damaged()
        right = len(shard.numbers()) - len(wrong)
        if not found and not wrong:
            found += _changed(shard, drop)
        if drop and wrong:
            shard.drop(wrong)
    finally:
        shard.close()
    return [*found, *wrong.values()], right


def _changed(shard: Shard, drop: bool) -> list[str]:
    """The error of a shard with intact records that is not the file that was written."""
    try:
        shard.check_seal()
    except Damaged as error:
        if drop:
            shard.unseal()
        return [str(error)]
    return []


def _remove(file: Path) -> None:
    """Removes a shard, its mark last, so that an interrupted removal can be repeated."""
    for lost in (file, file.with_name(f"{file.name}-journal"), mark(file)):
        lost.unlink(missing_ok=True)
