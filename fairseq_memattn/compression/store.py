"""Compressed documents on disk: a folder of shards, one for each process that writes."""

from collections.abc import Iterator
from pathlib import Path

from fairseq_memattn.compression.shard import Damaged, Header, Record, Shard
from fairseq_memattn.errors import MemAttnError

FILES = "shard-*.sqlite"
MADE = ".made"  # ends the name of an empty file beside each shard that was made


class Store:
    """All shards of a folder, to be read, those without records left out.

    Raises MemAttnError where there is none, where one that was made is lost, and where they are of
    several models.
    """

    def __init__(self, folder: Path) -> None:
        self.shards = shards(folder)
        if not self.shards or self.shards[0].header is None:
            raise MemAttnError(f"{folder} is no store: it has no {FILES} with a header")
        self.folder = folder
        self.header: Header = self.shards[0].header
        for shard in self.shards:
            assert shard.header is not None
            self.header.check_same(shard.header, shard.file)

    def ids(self) -> Iterator[str]:
        """Shard after shard, each in the order of writing."""
        yield from (id for id, _ in self.lengths())

    def lengths(self) -> Iterator[tuple[str, int]]:
        """Each id with the tokens of its document, in the same order."""
        for shard in self.shards:
            yield from shard.lengths()

    def __getitem__(self, id: str) -> Record:
        """Raises MemAttnError where it is missing or damaged."""
        for shard in self.shards:
            record = shard.get(id)
            if record is not None:
                return record
        raise MemAttnError(f"{self.folder} has no record {id!r}")

    def __contains__(self, id: str) -> bool:
        return self.source(id) is not None

    def source(self, id: str) -> bytes | None:
        """SHA-256 of the tokens of a document; None where it is not here."""
        found = (shard.source(id) for shard in self.shards)
        return next((source for source in found if source is not None), None)

    def close(self) -> None:
        for shard in self.shards:
            shard.close()


def shards(folder: Path) -> list[Shard]:
    """Those of a folder, to be read. Raises Damaged, and tells the way out, where one is lost."""
    try:
        return [shard for shard in map(opened, files(folder)) if shard is not None]
    except Damaged as error:
        raise Damaged(
            f"{error}; memattn decompress {folder} --check --drop-damaged gives it up, and "
            "memattn compress makes its records again"
        ) from None


def files(folder: Path) -> list[Path]:
    """Those of the shards of a folder, lost ones included."""
    there = set(folder.glob(FILES))
    return sorted(there | {made.with_name(made.stem) for made in folder.glob(FILES + MADE)})


def mark(file: Path) -> Path:
    """What tells that a shard was made."""
    return file.with_name(file.name + MADE)


def opened(file: Path) -> Shard | None:
    """A shard to be read, or None for one that was never begun.

    Raises Damaged for one that is lost.
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
    """The shard of a process, made where it is missing, and the store that it is part of.

    Raises MemAttnError where any shard is lost or has another header.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Before a shard is made, which would not go with the others.
    for other in shards(folder):
        assert other.header is not None
        header.check_same(other.header, other.file)
    shard = Shard(folder / FILES.replace("*", f"{rank:05d}"), header)
    mark(shard.file).touch()
    return shard, Store(folder)
