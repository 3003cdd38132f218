"""One SQLite file of compressed documents.

A batch of records is one transaction, so a process that is killed writes all of them or none.
A file has two tables. `header` holds the model's fingerprint and the shape of the vectors;
`records` has a row for each document:

  number    the order of writing
  id        unique in the whole store
  length    L, the number of tokens of the document
  source    SHA-256 of these tokens, which identifies the text
  checksum  SHA-256 of id, length, source and vectors
  vectors   M x E numbers, row by row, little-endian float16 or float32

A query reads only the rows that it selects.
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
LOCK_TIMEOUT = 600  # seconds that a process waits for the locks of others
SCHEMA = (
    "CREATE TABLE header (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE records (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, length INTEGER "
    "NOT NULL, source BLOB NOT NULL, checksum BLOB NOT NULL, vectors BLOB NOT NULL)",
)
COLUMNS = "id, length, source, checksum, vectors"


@dataclass(frozen=True)
class Header:
    """The properties that all records of a store share.

    model, dictionary: SHA-256 fingerprints
    vectors: M, the number of vectors of a record
    size: E, the size of a vector
    dtype: one of DTYPES
    languages: "SOURCE TARGET" of a translation model, for the names of its dictionaries; else empty
    """

    model: str
    dictionary: str
    vectors: int
    size: int
    dtype: str
    languages: str = ""

    def check_same(self, other: "Header", file: Path) -> None:
        """Raises MemAttnError if the header of `file`, `other`, differs from this one."""
        for name in ("model", "dictionary"):
            expected, found = getattr(self, name), getattr(other, name)
            if expected != found:
                raise MemAttnError(
                    f"{file} was made with another {name}: its fingerprint is {found[:12]}, not "
                    f"{expected[:12]}"
                )
        for name in ("vectors", "size", "dtype", "languages"):
            expected, found = getattr(self, name), getattr(other, name)
            if expected != found:
                hint = f"; add to it with --dtype {found}" if name == "dtype" else ""
                raise MemAttnError(f"{file}: `{name}` must be {expected}, but is {found}{hint}")


@dataclass(frozen=True)
class Record:
    """A compressed document.

    length: L, its number of tokens
    source: the SHA-256 of its tokens
    vectors: (M, E)
    """

    id: str
    length: int
    source: bytes
    vectors: NDArray[Any]


class Damaged(MemAttnError):
    """Raised for a record or a file whose content differs from what was written."""


class Shard:
    """One file of a store.

    file: must exist unless `header` is given
    header: that of the file, which is created if it does not exist; None for any header

    Raises MemAttnError for a file that is not a shard or has another header.
    """

    def __init__(self, file: Path, header: Header | None = None) -> None:
        self.file = file
        mode = "rw" if header is None else "rwc"
        with self._errors_with_file():
            self._connection = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                timeout=LOCK_TIMEOUT,
            )
            # A killed process may have left a file without tables.
            found = self._header()
            if header is not None and found is None:
                self._create_tables(header)
                found = header
        if header is not None and found is not None:
            header.check_same(found, file)
        self.header = found

    def close(self) -> None:
        self._connection.close()

    def append(self, records: Iterable[Record]) -> None:
        """Appends records in one transaction: all of them or, if it fails, none."""
        with self._errors_with_file(), self._transaction():
            self._connection.executemany(
                f"INSERT INTO records ({COLUMNS}) VALUES (?, ?, ?, ?, ?)",
                (self._row(record) for record in records),
            )

    def lengths(self) -> Iterator[tuple[str, int]]:
        """The id and the number of tokens of each document, in the order of writing."""
        yield from self._select("SELECT id, length FROM records ORDER BY number")

    def source(self, id: str) -> bytes | None:
        """The SHA-256 of the tokens of a document; None if the file does not have it."""
        for (source,) in self._select("SELECT source FROM records WHERE id = ?", id):
            return bytes(source)
        return None

    def get(self, id: str) -> Record | None:
        """The record with this id; None if the file does not have it.

        Raises Damaged for a damaged record.
        """
        for row in self._select(f"SELECT {COLUMNS} FROM records WHERE id = ?", id):
            return self._record(*row)
        return None

    def damaged(self) -> dict[int, str]:
        """The errors of damaged records, by the number of the record."""
        # One query for each record, because a long query keeps other processes from writing.
        faults = {}
        for (number,) in list(self._select("SELECT number FROM records")):
            try:
                for row in self._select(f"SELECT {COLUMNS} FROM records WHERE number = ?", number):
                    self._record(*row)
            except Damaged as error:
                faults[number] = str(error)
        return faults

    def check_consistent(self) -> None:
        """Raises Damaged if the file fails SQLite's integrity check."""
        for (found,) in self._select("PRAGMA integrity_check(1)"):
            if found != "ok":
                raise Damaged(f"{self.file} is damaged: {found.splitlines()[-1]}")

    def index_again(self) -> None:
        """Builds the index of ids again from the records.

        Raises Damaged if two records have the same id.
        """
        with self._errors_with_file():
            try:
                self._connection.execute("REINDEX")
            except sqlite3.IntegrityError as error:
                raise Damaged(f"{self.file} is damaged: two records have the same id") from error

    def drop(self, numbers: Iterable[int]) -> None:
        """Removes the records with these numbers."""
        with self._errors_with_file(), self._transaction():
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
            raise Damaged(f"{self.file}: the record {id!r} is damaged: its checksum does not match")
        numbers = np.frombuffer(vectors, DTYPES[header.dtype])
        if numbers.size != header.vectors * header.size:
            raise Damaged(
                f"{self.file}: the record {id!r} must have {header.vectors} x {header.size} "
                f"numbers, but has {numbers.size}"
            )
        return Record(id, length, source, numbers.reshape(header.vectors, header.size))

    def _create_tables(self, header: Header) -> None:
        with self._transaction():
            for statement in SCHEMA:
                self._connection.execute(statement)
            self._connection.executemany(
                "INSERT INTO header VALUES (?, ?)",
                [("format", FORMAT), *((key, str(value)) for key, value in asdict(header).items())],
            )

    def _header(self) -> Header | None:
        # A foreign file could compute what is read of it, or run SQL when something is written.
        self._connection.execute("PRAGMA trusted_schema = OFF")
        schema = list(self._connection.execute("SELECT type, name FROM sqlite_master"))
        if not schema:
            return None
        for kind, name in schema:
            if kind in ("view", "trigger"):
                raise MemAttnError(
                    f"{self.file} is refused: a store has tables only, but this has the {kind} "
                    f"{name!r}"
                )
        found = dict(self._connection.execute("SELECT key, value FROM header"))
        if found.get("format") != FORMAT:
            raise MemAttnError(
                f"{self.file}: the format must be {FORMAT}, but is {found.get('format')}"
            )
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
        if header is None or header.dtype not in DTYPES or min(header.vectors, header.size) < 1:
            raise Damaged(f"{self.file} is damaged: its header is incomplete")
        return header

    def _select(self, query: str, *values: str | int) -> Iterator[tuple[Any, ...]]:
        with self._errors_with_file():
            yield from self._connection.execute(query, values)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # not after a full disk: SQLite has rolled back
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors_with_file(self) -> Iterator[None]:
        """Raises SQLite's errors as MemAttnErrors that name the file."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise MemAttnError(
                f"{self.file} is being written by another process ({error})"
            ) from error
        except sqlite3.Error as error:
            # Operational errors, such as locks and full disks, do not mean damage.
            operational = isinstance(error, sqlite3.OperationalError)
            kind = MemAttnError if operational else Damaged
            raise kind(f"{self.file} cannot be used as a store: {error}") from error


def checksum(id: Any, length: Any, source: bytes, vectors: bytes) -> bytes:
    """The SHA-256 of the fields of a record."""
    return hashlib.sha256(b"\0".join([f"{id}\0{length}".encode(), source, vectors])).digest()
