"""Extraction of single files from tar and zip archives of any compression, and from folders."""

import errno
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NoReturn, cast

from tqdm import tqdm

from fairseq_memattn import archive_limits
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import write_all_or_nothing

BLOCK = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT)  # a full disk or quota
ZIP_MAGIC = b"PK"
BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    NotImplementedError,  # a zip's compression that Python does not know
    RuntimeError,  # a zip with a password
)
Stream = Callable[[], IO[bytes]]
Member = tuple[str, Stream]


def names(archive: Path) -> list[str]:
    """The files in an archive or a folder.

    Raises MemAttnError for a damaged archive, for a path that leads out of its folder, and for one
    that unpacks to more than `fairseq_memattn.archive_limits` allows.
    """
    with _opened(archive) as members:
        return [name for name, _ in members]


def extract(archive: Path, wanted: Mapping[str, Path]) -> None:
    """Write files of an archive or a folder, all of them or none.

    wanted: the end of each file's path in the archive, and the path to write the file to
    Raises MemAttnError as `names` does, and for a file that is missing, a link, or there twice.
    """
    found: dict[str, str] = {}
    with write_all_or_nothing(list(wanted.values())) as files, _opened(archive) as members:
        for name, stream in members:
            for end, file in zip(wanted, files, strict=True):
                if not is_at(name, end):
                    continue
                if end in found:
                    raise MemAttnError(f"{archive}: has two files {end}: {found[end]} and {name}")
                found[end] = name
                with stream() as content:
                    shutil.copyfileobj(content, file.buffer, BLOCK)
        missing = [end for end in wanted if end not in found]
        if missing:
            raise MemAttnError(f"{archive}: has no file {missing[0]}")


def sources(archive: Path, wanted: Mapping[str, Path]) -> list[Path]:
    """The files that `extract` reads: the archive, or the wanted files of a folder."""
    if archive.is_file():
        return [archive]
    ends = [(name, end) for name in names(archive) for end in wanted if is_at(name, end)]
    return [archive / name for name, _ in ends]


def is_at(name: str, end: str) -> bool:
    """Whether a file's path is `end` or ends with it, at the name of a folder."""
    return f"/{name}".endswith(f"/{end}")


@contextmanager
def _opened(archive: Path) -> Iterator[Iterator[Member]]:
    """The members of an archive, in its order; errors in reading it become a MemAttnError."""
    if archive.is_dir():
        yield _folder_members(archive)
        return
    size = archive.stat().st_size
    try:
        with (
            open(archive, "rb") as file,
            tqdm.wrapattr(file, "read", total=size, desc=archive.name, disable=None) as bar,
        ):
            is_zip = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
            file.seek(0)
            yield (_zip_members if is_zip else _tar_members)(
                cast(IO[bytes], bar), archive_limits.Budget(size)
            )
    except archive_limits.RefusedArchive as error:
        raise MemAttnError(f"{archive}: {error}") from None
    except BROKEN as error:
        if isinstance(error, OSError) and error.errno in FULL:  # of what is written
            raise
        if isinstance(error, OSError) and error.errno is not None:
            raise MemAttnError(f"{archive}: unpacking stopped ({error.strerror})") from None
        reason = str(error).partition(":\n")[0] or type(error).__name__
        raise MemAttnError(
            f"{archive}: cannot be unpacked ({reason}); "
            "the file is damaged, or is not a tar or zip archive"
        ) from None


def _folder_members(folder: Path) -> Iterator[Member]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), cast(Stream, partial(open, path, "rb"))


def _zip_members(file: IO[bytes], budget: archive_limits.Budget) -> Iterator[Member]:
    with zipfile.ZipFile(file) as content:
        for info in content.infolist():
            name = archive_limits.safe_path(info.filename)
            budget.take(name, info.file_size)
            if stat.S_ISLNK(info.external_attr >> 16):
                yield name, partial(_refuse, name)
            elif not info.is_dir():
                yield name, partial(content.open, info)


def _tar_members(file: IO[bytes], budget: archive_limits.Budget) -> Iterator[Member]:
    with tarfile.open(fileobj=file, mode="r:*", tarinfo=archive_limits.TarInfo) as content:
        for info in content:
            name = archive_limits.safe_path(info.name)
            budget.take(name, info.size)
            if info.isfile():
                yield name, cast(Stream, partial(content.extractfile, info))  # not None
            elif not info.isdir():
                yield name, partial(_refuse, name)
        stream = cast(IO[bytes], content.fileobj)
        while rest := stream.read(BLOCK):  # the checksum of a compressed archive is at its end
            budget.take("what follows the last file", len(rest))


def _refuse(name: str) -> NoReturn:
    raise archive_limits.refuse_special(name)
