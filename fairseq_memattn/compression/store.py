"""Compressed documents on disk: a folder of shards, one for each process that writes."""

from collections.abc import Iterator
from pathlib import Path

from fairseq_memattn.compression.shard import Header, Record, Shard
from fairseq_memattn.errors import MemAttnError

FILES = "shard-*.sqlite"


class Store:
    """All shards of a folder, to be read, those without records left out.

    Raises MemAttnError where there is none, and where they are of several models.
    """

    def __init__(self, folder: Path) -> None:
        shards = [Shard(file) for file in sorted(folder.glob(FILES))]
        self.shards = [shard for shard in shards if shard.header is not None]
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

    def damaged(self, drop: bool = False) -> list[str]:
        """What is wrong with the records that are not whole, which `drop` removes.

        Raises MemAttnError for a file that is not whole itself.
        """
        found: list[str] = []
        for shard in self.shards:
            faults = shard.damaged()
            found += faults.values()
            if drop:
                shard.drop(faults)
        return found

    def close(self) -> None:
        for shard in self.shards:
            shard.close()


def open_for_writing(folder: Path, header: Header, rank: int) -> tuple[Shard, Store]:
    """The shard of a process, made where it is missing, and the store that it is part of.

    Raises MemAttnError where any shard has another header.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Before a shard is made, which would not go with the others.
    for file in sorted(folder.glob(FILES)):
        found = Shard(file).header
        if found is not None:
            header.check_same(found, file)
    shard = Shard(folder / FILES.replace("*", f"{rank:05d}"), header)
    return shard, Store(folder)
