"""Compressed documents on disk: a folder of shards, one for each process that writes."""

from collections.abc import Iterator
from pathlib import Path

from fairseq_memattn.compression.shard import MARK, Damaged, Header, Record, Shard, mark
from fairseq_memattn.errors import MemAttnError

FILES = "shard-*.sqlite"


class Store:
    """The shards of a folder, for reading. Shards without a header are left out.

    Raises MemAttnError if there are none, if one is lost, and if their headers differ.
    """

    def __init__(self, folder: Path) -> None:
        self.shards = shards(folder)
        if not self.shards or self.shards[0].header is None:
            raise MemAttnError(f"{folder} is not a store: it has no {FILES} with a header")
        self.folder = folder
        self.header: Header = self.shards[0].header
        for shard in self.shards:
            assert shard.header is not None
            self.header.check_same(shard.header, shard.file)

    def ids(self) -> Iterator[str]:
        """The ids of all documents, in the order of `lengths`. Raises the same errors."""
        yield from (id for id, _ in self.lengths())

    def lengths(self) -> Iterator[tuple[str, int]]:
        """The id and the number of tokens of each document, by shard and in the order of writing.

        Raises Damaged for a damaged record, and for records that are lost.
        """
        for shard in self.shards:
            yield from shard.lengths()

    def __getitem__(self, id: str) -> Record:
        """The record with this id. Raises MemAttnError if it is missing or damaged."""
        for shard in self.shards:
            record = shard.get(id)
            if record is not None:
                return record
        raise MemAttnError(f"{self.folder} has no record {id!r}")

    def __contains__(self, id: str) -> bool:
        return self.source(id) is not None

    def source(self, id: str) -> bytes | None:
        """The SHA-256 of the tokens of a document; None if the store does not have it."""
        found = (shard.source(id) for shard in self.shards)
        return next((source for source in found if source is not None), None)

    def close(self) -> None:
        for shard in self.shards:
            shard.close()


def shards(folder: Path) -> list[Shard]:
    """The shards of a folder, for reading.

    Raises Damaged if one is lost; the error says how to recover it.
    """
    try:
        return [shard for shard in map(opened, files(folder)) if shard is not None]
    except Damaged as error:
        raise Damaged(
            f"{error}; memattn decompress {folder} --check --drop-damaged removes the shard, and "
            "memattn compress writes its records again"
        ) from None


def files(folder: Path) -> list[Path]:
    """The paths of the shards of a folder, including lost ones."""
    present = set(folder.glob(FILES))
    return sorted(present | {path.with_name(path.stem) for path in folder.glob(FILES + MARK)})


def opened(file: Path) -> Shard | None:
    """A shard for reading, or None for an empty file that a killed process left.

    Raises Damaged for a shard that is lost.
    """
    if not file.exists():
        raise Damaged(f"{file} is missing")
    shard = Shard(file)
    if shard.header is None:
        shard.close()
        if mark(file).exists():
            raise Damaged(f"{file} has lost its records")
        return None
    return shard


def open_for_writing(folder: Path, header: Header, rank: int) -> tuple[Shard, Store]:
    """The shard of process `rank`, created if it does not exist, and the store that it is part of.

    Raises MemAttnError if any shard is lost or has another header, and Damaged for a damaged index,
    by which the records that are there already would not be found.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Checked first, so that no shard is created beside shards of another model.
    for other in shards(folder):
        assert other.header is not None
        header.check_same(other.header, other.file)
        other.lengths()
        other.close()
    shard = Shard(folder / FILES.replace("*", f"{rank:05d}"), header)
    mark(shard.file).touch()
    return shard, Store(folder)


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
            if drop:  # the mark last, so that an interrupted removal can be repeated
                for lost in (file, file.with_name(f"{file.name}-journal"), mark(file)):
                    lost.unlink(missing_ok=True)
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
            try:
                shard.check_seal()
            except Damaged as error:  # its records are intact, but it is not what was written
                found.append(str(error))
                if drop:
                    shard.unseal()
        if drop and wrong:
            shard.drop(wrong)
    finally:
        shard.close()
    return [*found, *wrong.values()], right
