"""Checks the checksums of checkpoints, which torch writes but does not compare."""

import functools
import os
import zipfile

from fairseq_memattn.archive_limits import RefusedArchive

SIGNATURE = b"PK\x03\x04"  # with which torch's archives begin


def damaged_entry(path: str | os.PathLike[str]) -> str | None:
    """The first entry of an archive of torch.save whose content does not have its CRC-32.

    None if there is none, and for other files: remote ones, those of older formats, archives
    without an index, and those that are saved after `torch.serialization.set_crc32_options(False)`.
    A file is read once in a process as long as its size and time do not change.

    Raises RefusedArchive for a compressed entry, which may be far larger than the file: torch.save
    compresses none.
    """
    if not os.path.isfile(path):
        return None
    status = os.stat(path)
    return _damaged_entry(os.path.abspath(path), status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _damaged_entry(path: str, size: int, time: int) -> str | None:
    with open(path, "rb") as stream:
        if stream.read(len(SIGNATURE)) != SIGNATURE:
            return None
        try:
            archive = zipfile.ZipFile(stream)
        except zipfile.BadZipFile:  # of which torch tells
            return None
        with archive:
            for entry in archive.infolist():
                if entry.compress_type != zipfile.ZIP_STORED:
                    raise RefusedArchive(f"{path}: {entry.filename} is compressed")
            if not any(entry.CRC for entry in archive.infolist()):
                return None
            return archive.testzip()
