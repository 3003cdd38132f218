"""One SQLite file of compressed documents.

SQLite's transactions are what makes a kill harmless: a batch of records is there or it is not.
A file has two tables. `header` says of which model and of what shape the vectors are; `records`
has a row for each document:

  number    the order of writing
  id        unique in the whole store
  length    L, tokens of the document
  source    SHA-256 of these tokens, by which a document is known again
  checksum  SHA-256 of id, length, source and vectors
  vectors   M x E numbers, row by row, little-endian float16 or float32

Only rows that are asked for are read.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairseq_memattn.errors import MemAttnError

FORMAT = "1"
DTYPES = {"float32": "<f4", "float16": "<f2"}
PATIENCE = 600  # seconds that a process waits for another to have read or written
SCHEMA = (
    "CREATE TABLE header (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE records (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, length INTEGER "
    "NOT NULL, source BLOB NOT NULL, checksum BLOB NOT NULL, vectors BLOB NOT NULL)",
)
COLUMNS = "id, length, source, checksum, vectors"


@dataclass(frozen=True)
class Header:
    """What all records of a store have in common.

    model, dictionary: fingerprints; vectors: M; size: E; dtype: one of DTYPES
    languages: of a translation model, "SOURCE TARGET", by which its dictionaries are found
    """

    model: str
    dictionary: str
    vectors: int
    size: int
    dtype: str
    languages: str = ""

    def check_same(self, other: "Header", file: Path) -> None:
        """Raises MemAttnError where `other`, that of the file, is of another model or kind."""
        for name in ("model", "dictionary"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise MemAttnError(
                    f"{file} was made with another {name}: its fingerprint is {theirs[:12]}, not "
                    f"{mine[:12]}"
                )
        for name in ("vectors", "size", "dtype", "languages"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                told = f"; add to it with --dtype {theirs}" if name == "dtype" else ""
                raise MemAttnError(f"{file} has the {name} {theirs}, but {mine} is wanted{told}")


@dataclass(frozen=True)
class Record:
    """A document: its id, its tokens' number L and SHA-256, and its vectors (M, E)."""

    id: str
    length: int
    source: bytes
    vectors: NDArray[Any]


class Damaged(MemAttnError):
    """A record or a file that is not what was written."""


class Shard:
    """One file. Without a header it is opened to be read, with one made where it is missing."""

    def __init__(self, file: Path, header: Header | None = None) -> None:
        """Raises MemAttnError for what is no such file, or one with another header."""
        self.file = file
        mode = "rw" if header is None else "rwc"
        with self._explained():
            self._connection = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                timeout=PATIENCE,
            )
            # A killed process may have left a file without tables.
            found = self._header()
            if header is not None and found is None:
                self._make(header)
                found = header
        if header is not None and found is not None:
            header.check_same(found, file)
        self.header = found

    def close(self) -> None:
        self._connection.close()

    def append(self, records: Iterable[Record]) -> None:
        """All of them or, whatever happens meanwhile, none."""
        with self._explained(), self._transaction():
            self._connection.executemany(
                f"INSERT INTO records ({COLUMNS}) VALUES (?, ?, ?, ?, ?)",
                (self._row(record) for record in records),
            )

    def lengths(self) -> Iterator[tuple[str, int]]:
        """Each id with the tokens of its document, in the order of writing."""
        yield from self._select("SELECT id, length FROM records ORDER BY number")

    def source(self, id: str) -> bytes | None:
        """SHA-256 of the tokens of a document; None where it is not here."""
        for (source,) in self._select("SELECT source FROM records WHERE id = ?", id):
            return bytes(source)
        return None

    def get(self, id: str) -> Record | None:
        """Raises Damaged where it is."""
        for row in self._select(f"SELECT {COLUMNS} FROM records WHERE id = ?", id):
            return self._record(*row)
        return None

    def damaged(self) -> dict[int, str]:
        """What is wrong with the records that are not whole, by number."""
        # One by one: whoever reads for long keeps others from writing.
        faults = {}
        for (number,) in list(self._select("SELECT number FROM records")):
            try:
                for row in self._select(f"SELECT {COLUMNS} FROM records WHERE number = ?", number):
                    self._record(*row)
            except Damaged as error:
                faults[number] = str(error)
        return faults

    def check_consistent(self) -> None:
        """Raises Damaged where SQLite finds the file inconsistent."""
        for (found,) in self._select("PRAGMA integrity_check(1)"):
            if found != "ok":
                raise Damaged(f"{self.file} is damaged: {found.splitlines()[-1]}")

    def index_again(self) -> None:
        """Finds records by the ids that they have, whatever their index says.

        Raises Damaged where two of them have the same one.
        """
        with self._explained():
            try:
                self._connection.execute("REINDEX")
            except sqlite3.IntegrityError as error:
                raise Damaged(f"{self.file} is damaged: two records have the same id") from error

    def drop(self, numbers: Iterable[int]) -> None:
        """Removes records."""
        with self._explained(), self._transaction():
            self._connection.executemany(
                "DELETE FROM records WHERE number = ?", ((number,) for number in numbers)
            )

    def _row(self, record: Record) -> tuple[Any, ...]:
        assert self.header is not None
        vectors = record.vectors.astype(DTYPES[self.header.dtype]).tobytes()
        checked = checksum(record.id, record.length, record.source, vectors)
        return record.id, record.length, record.source, checked, vectors

    def _record(self, id: Any, length: Any, source: Any, checked: Any, vectors: Any) -> Record:
        header = self.header
        assert header is not None
        blobs = isinstance(source, bytes) and isinstance(vectors, bytes)
        if not blobs or checked != checksum(id, length, source, vectors):
            raise Damaged(
                f"{self.file}: the record {id!r} is damaged: it does not have its checksum"
            )
        numbers = np.frombuffer(vectors, DTYPES[header.dtype])
        if numbers.size != header.vectors * header.size:
            raise Damaged(
                f"{self.file}: the record {id!r} has {numbers.size} numbers, not "
                f"{header.vectors} x {header.size}"
            )
        return Record(id, length, source, numbers.reshape(header.vectors, header.size))

    def _make(self, header: Header) -> None:
        with self._transaction():
            for statement in SCHEMA:
                self._connection.execute(statement)
            self._connection.executemany(
                "INSERT INTO header VALUES (?, ?)",
                [("format", FORMAT), *((key, str(value)) for key, value in asdict(header).items())],
            )

    def _header(self) -> Header | None:
        if not self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return None
        found = dict(self._connection.execute("SELECT key, value FROM header"))
        if found.get("format") != FORMAT:
            raise MemAttnError(f"{self.file} is no store of format {FORMAT}")
        try:
            header = Header(
                found["model"],
                found["dictionary"],
                int(found["vectors"]),
                int(found["size"]),
                found["dtype"],
                found.get("languages", ""),
            )
        except (KeyError, ValueError):
            header = None
        if header is None or header.dtype not in DTYPES:
            raise Damaged(f"{self.file} is damaged: its header is not whole")
        return header

    def _select(self, query: str, *values: str | int) -> Iterator[tuple[Any, ...]]:
        with self._explained():
            yield from self._connection.execute(query, values)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite ends it by itself where a disk is full
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors as sentences that name the file."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise MemAttnError(
                f"{self.file} is being written by another process ({error})"
            ) from error
        except sqlite3.Error as error:
            passing = isinstance(error, sqlite3.OperationalError)
            kind = MemAttnError if passing else Damaged
            raise kind(f"{self.file} cannot be used as a store: {error}") from error


def checksum(id: Any, length: Any, source: bytes, vectors: bytes) -> bytes:
    """SHA-256 of a record."""
    return hashlib.sha256(b"\0".join([f"{id}\0{length}".encode(), source, vectors])).digest()
