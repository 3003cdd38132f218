"""What an archive may not do to the program that unpacks it.

An archive can hold paths that lead out of its folder, links, devices, and little data that unpacks
to more than a disk holds.
"""

import tarfile
from pathlib import PurePosixPath

from fairseq_memattn.errors import MemAttnError

UNPACKED = 1 << 30  # bytes that any archive may unpack to
RATIO = 100  # a larger archive may unpack to this many times its own size
HEADER = 1 << 20  # bytes of a member's extended header, which is read into memory whole
EXTENDED = {
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
}


class RefusedArchive(MemAttnError):
    """An archive that is not unpacked; the message names the member and says why."""


class Budget:
    """The bytes that an archive of a size may still unpack to."""

    def __init__(self, archive_size: int) -> None:
        self.limit = self.left = max(UNPACKED, RATIO * archive_size)

    def take(self, name: str, size: int) -> None:
        """Counts a member. Raises RefusedArchive beyond the limit."""
        self.left -= size
        if self.left < 0:
            raise RefusedArchive(
                f"refused, because it unpacks to more than {self.limit} bytes, of which {name!r} "
                f"has {size}"
            )


class TarInfo(tarfile.TarInfo):
    """A member of a tar archive, read only if its header is of a plausible size."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size < 0 or (self.type in EXTENDED and self.size > HEADER):
            raise RefusedArchive(
                f"refused, because the header of {self.name!r} must have 0 to {HEADER} bytes, but "
                f"has {self.size}"
            )
        return super()._proc_member(archive)  # type: ignore[misc]


def safe_path(name: str) -> str:
    """A member's path without "./". Raises RefusedArchive if it leads out of the folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise RefusedArchive(f"refused, because its path {name!r} leads out of its folder")
    return str(path)


def refuse_special(name: str) -> RefusedArchive:
    """The error for a link, a device or a pipe."""
    return RefusedArchive(f"refused, because {name!r} is neither a file nor a folder")
