"""One SQLite file of compressed documents.

A batch of records is one transaction, so a process that is killed writes all of them or none.
A file has two tables. `header` holds the model's fingerprint, the shape of the vectors, and a
checksum of both; `records` has a row for each document:

  number    the order of writing
  id        unique in the whole store
  length    L, the number of tokens of the document
  source    SHA-256 of these tokens, which identifies the text
  digest    SHA-256 of the vectors
  checksum  SHA-256 of number, id, length, source and digest
  vectors   M x E numbers, row by row, little-endian float16 or float32

A query reads only the rows that it selects, and of these the vectors only if it returns them. What
it reads is checked: a record has two checksums so that ids and lengths are checked without vectors.

The mark beside a file shows that the file was created. It is empty, or holds the SHA-256 of the
whole file where nothing was added since `seal`. That covers what SQLite does not use, too, and a
copy of the file with fewer records.

Format 1 has neither `digest` nor a checksum of the header, and its checksum is the SHA-256 of id,
length, source and vectors. Header, order, and lengths without vectors are not checked. A file of
format 1 stays one when records are added.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairseq_memattn.errors import MemAttnError

FORMAT = "2"
MARK = ".made"  # suffix of the mark
DTYPES = {"float32": "<f4", "float16": "<f2"}
LOCK_TIMEOUT = 600  # seconds that a process waits for the locks of others
_DIGEST = {"1": "", "2": "digest BLOB NOT NULL, "}  # by format
SCHEMAS = {
    format: (
        "CREATE TABLE header (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
        "CREATE TABLE records (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, length INTEGER "
        f"NOT NULL, source BLOB NOT NULL, {digest}checksum BLOB NOT NULL, vectors BLOB NOT NULL)",
    )
    for format, digest in _DIGEST.items()
}
FIELDS = {
    "1": "number, id, length, source, NULL, checksum",
    "2": "number, id, length, source, digest, checksum",
}
# SQLite's errors that do not mean damage, such as those of locks and of a full disk.
OPERATIONAL = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


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


class Row(NamedTuple):
    """What the table has of a record beside its vectors.

    Of a damaged file the values can have any type. digest: None in format 1
    """

    number: int
    id: str
    length: int
    source: bytes
    digest: bytes | None
    checksum: bytes


class Shard:
    """One file of a store.

    file: must exist unless `header` is given
    header: that of the file, which is created if it does not exist; None for any header

    Raises MemAttnError for a file that is not a shard or has another header.
    """

    def __init__(self, file: Path, header: Header | None = None) -> None:
        self.file, self.format = file, FORMAT
        mode = "rw" if header is None else "rwc"
        with self._errors_with_file():
            self._connection = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                timeout=LOCK_TIMEOUT,
            )
            # A damaged file may have text that is not UTF-8.
            self._connection.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
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
        fields = FIELDS[self.format].replace("NULL, ", "")
        marks = ", ".join("?" * (fields.count(",") + 2))
        with self._errors_with_file(), self._transaction():
            self.unseal()
            query = "SELECT coalesce(max(number), 0) + 1 FROM records"
            ((first,),) = self._connection.execute(query)
            self._connection.executemany(
                f"INSERT INTO records ({fields}, vectors) VALUES ({marks})",
                (self._values(number, record) for number, record in enumerate(records, first)),
            )

    def lengths(self) -> list[tuple[str, int]]:
        """The id and the number of tokens of each document, in the order of writing.

        Raises Damaged for a damaged record, and for records that are lost.
        """
        numbers, lengths = {}, []
        with self._errors_with_file(), self._transaction("DEFERRED"):
            query = f"SELECT {FIELDS[self.format]} FROM records NOT INDEXED ORDER BY number"
            for row in map(Row._make, self._connection.execute(query)):
                self._check(row)
                numbers[row.id] = row.number
                lengths.append((row.id, row.length))
            # In SQLite's index alone, which has the ids and the numbers.
            query = "SELECT id, number FROM records INDEXED BY sqlite_autoindex_records_1"
            indexed = dict(self._connection.execute(query))
        if numbers != indexed:
            raise Damaged(f"{self.file} is damaged: its records are not those of its index")
        return lengths

    def source(self, id: str) -> bytes | None:
        """The SHA-256 of the tokens of a document; None if the file does not have it.

        Raises Damaged for a damaged record.
        """
        query = f"SELECT {FIELDS[self.format]} FROM records WHERE id = ?"
        for row in map(Row._make, self._select(query, id)):
            self._check(row, id)
            return row.source
        return None

    def get(self, id: str) -> Record | None:
        """The record with this id; None if the file does not have it.

        Raises Damaged for a damaged record.
        """
        query = f"SELECT {FIELDS[self.format]}, vectors FROM records WHERE id = ?"
        for *row, vectors in self._select(query, id):
            return self._record(Row._make(row), vectors, id)
        return None

    def damaged(self) -> dict[int, str]:
        """The errors of damaged records, by the number of the record."""
        # One query for each record, because a long query keeps other processes from writing.
        faults = {}
        query = f"SELECT {FIELDS[self.format]}, vectors FROM records WHERE number = ?"
        for number in self.numbers():
            try:
                for *row, vectors in self._select(query, number):
                    self._record(Row._make(row), vectors)
            except Damaged as error:
                faults[number] = str(error)
        return faults

    def numbers(self) -> list[int]:
        """The numbers of all records, damaged ones included."""
        return [number for (number,) in self._select("SELECT number FROM records NOT INDEXED")]

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
            self.unseal()
            try:
                self._connection.execute("REINDEX")
            except sqlite3.IntegrityError as error:
                raise Damaged(f"{self.file} is damaged: two records have the same id") from error

    def drop(self, numbers: Iterable[int]) -> None:
        """Removes the records with these numbers."""
        with self._errors_with_file(), self._transaction():
            self.unseal()
            self._connection.executemany(
                "DELETE FROM records WHERE number = ?", ((number,) for number in numbers)
            )

    def seal(self) -> None:
        """Writes the SHA-256 of the file into its mark, while no other process adds records."""
        with self._errors_with_file(), self._transaction(), open(self.file, "rb") as content:
            if not mark(self.file).read_text(encoding="ascii"):
                digest = hashlib.file_digest(content, "sha256").hexdigest()
                mark(self.file).write_text(digest, encoding="ascii")

    def unseal(self) -> None:
        """Empties the mark."""
        if mark(self.file).exists():
            mark(self.file).write_bytes(b"")

    def check_seal(self) -> None:
        """Raises Damaged if the file is sealed and not the one that was sealed."""
        shared = self._transaction("DEFERRED")
        with self._errors_with_file(), shared, open(self.file, "rb") as content:
            self._connection.execute("SELECT count(*) FROM sqlite_master")  # takes the lock
            sealed = mark(self.file).read_bytes() if mark(self.file).exists() else b""
            if sealed and sealed != hashlib.file_digest(content, "sha256").hexdigest().encode():
                raise Damaged(
                    f"{self.file} is damaged: it is not the file that was written, although the "
                    "records that it has are intact"
                )

    def _values(self, number: int, record: Record) -> tuple[Any, ...]:
        """The values of a row, in the order of FIELDS."""
        assert self.header is not None
        vectors = record.vectors.astype(DTYPES[self.header.dtype]).tobytes()
        fields = (record.id, record.length, record.source)
        if self.format == "1":
            return number, *fields, checksum_1(*fields, vectors), vectors
        digest = hashlib.sha256(vectors).digest()
        return number, *fields, digest, checksum(number, *fields, digest), vectors

    def _check(self, row: Row, id: str | None = None) -> None:
        """Raises Damaged for a row whose checksum does not match, or that is of another id.

        The checksum of format 1 needs the vectors.
        """
        if id is not None and row.id != id:
            raise Damaged(f"{self.file}: the record {id!r} is damaged: {row.id!r} has its place")
        if self.format != "1" and row.checksum != checksum(*row[:5]):
            raise self._mismatch(row)

    def _record(self, row: Row, vectors: Any, id: str | None = None) -> Record:
        header = self.header
        assert header is not None
        self._check(row, id)
        if not isinstance(vectors, bytes) or not self._has_vectors(row, vectors):
            raise self._mismatch(row)
        numbers = np.frombuffer(vectors, DTYPES[header.dtype])
        if numbers.size != header.vectors * header.size:
            raise Damaged(
                f"{self.file}: the record {row.id!r} must have {header.vectors} x {header.size} "
                f"numbers, but has {numbers.size}"
            )
        shape = (header.vectors, header.size)
        return Record(row.id, row.length, row.source, numbers.reshape(shape))

    def _has_vectors(self, row: Row, vectors: bytes) -> bool:
        if self.format == "1":
            fields = (row.id, row.length, row.source)
            return isinstance(row.source, bytes) and row.checksum == checksum_1(*fields, vectors)
        return row.digest == hashlib.sha256(vectors).digest()

    def _mismatch(self, row: Row) -> Damaged:
        return Damaged(
            f"{self.file}: the record {row.id!r} is damaged: its checksum does not match"
        )

    def _create_tables(self, header: Header) -> None:
        values = {"format": FORMAT} | {key: str(value) for key, value in asdict(header).items()}
        with self._transaction():
            for statement in SCHEMAS[FORMAT]:
                self._connection.execute(statement)
            self._connection.executemany(
                "INSERT INTO header VALUES (?, ?)",
                [*values.items(), ("checksum", header_checksum(values))],
            )

    def _header(self) -> Header | None:
        # A foreign file could compute what is read of it, or run SQL when something is written.
        self._connection.execute("PRAGMA trusted_schema = OFF")
        schema = list(self._connection.execute("SELECT type, name, sql FROM sqlite_master"))
        if not schema:
            return None
        for kind, name, _ in schema:
            if kind in ("view", "trigger"):
                raise MemAttnError(
                    f"{self.file} is refused: a store has tables only, but this has the {kind} "
                    f"{name!r}"
                )
        found = dict(self._connection.execute("SELECT key, value FROM header NOT INDEXED"))
        format = found.get("format")
        if format is None:
            raise Damaged(f"{self.file} is damaged: its header is incomplete")
        if format not in SCHEMAS:
            raise MemAttnError(
                f"{self.file}: the format must be {' or '.join(SCHEMAS)}, but is {format}"
            )
        self.format = format
        if {sql for _, _, sql in schema if sql is not None} != set(SCHEMAS[self.format]):
            raise Damaged(f"{self.file} is damaged: its tables are not those of a store")
        checked = found.pop("checksum", None)
        if (checked or self.format != "1") and checked != header_checksum(found):
            raise Damaged(f"{self.file} is damaged: the checksum of its header does not match")
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

    def _select(self, query: str, *values: str | int) -> list[tuple[Any, ...]]:
        with self._errors_with_file():
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        self._connection.execute(f"BEGIN {kind}")
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
        except (sqlite3.Error, UnicodeDecodeError) as error:
            operational = getattr(error, "sqlite_errorcode", 0) & 0xFF in OPERATIONAL
            kind = MemAttnError if operational else Damaged
            raise kind(f"{self.file} cannot be used as a store: {error}") from error


def mark(file: Path) -> Path:
    """The file that says that a shard was created."""
    return file.with_name(file.name + MARK)


def checksum(*fields: Any) -> bytes:
    """The SHA-256 of number, id, length, source and digest."""
    return hashlib.sha256(repr(fields).encode("utf-8", "surrogatepass")).digest()


def checksum_1(id: Any, length: Any, source: bytes, vectors: bytes) -> bytes:
    """The checksum of format 1."""
    text = f"{id}\0{length}".encode()
    return hashlib.sha256(b"\0".join([text, source, vectors])).digest()


def header_checksum(values: Mapping[str, str]) -> str:
    """The SHA-256 of a header's keys and values."""
    return hashlib.sha256(repr(sorted(values.items(), key=repr)).encode()).hexdigest()
