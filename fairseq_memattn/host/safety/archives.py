"""Archives that fairseq's `from_pretrained` unpacks."""

import os
import shutil
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairseq_memattn import archive_limits
from fairseq_memattn.errors import MemAttnError


class _CheckedArchive(tarfile.TarFile):
    """A tar archive whose members are checked before any of them is extracted."""

    tarinfo = archive_limits.TarInfo

    def getmembers(self) -> list[tarfile.TarInfo]:
        path = os.fsdecode(self.name or "")
        budget = archive_limits.Budget(os.path.getsize(path))
        try:
            for member in self:
                archive_limits.safe_path(member.name)
                if not (member.isfile() or member.isdir()):
                    raise archive_limits.refuse_special(member.name)
                budget.take(member.name, member.size)
        except archive_limits.RefusedArchive as error:
            raise archive_limits.RefusedArchive(f"{path}: {error}") from None
        return super().getmembers()

    def extractall(self, path: Any = ".", *args: Any, **options: Any) -> None:
        self.getmembers()
        super().extractall(path, filter="data")


def unpack_inside(load: Callable[..., Any], archive_file: str) -> str:
    """Archives are unpacked inside their folder, and hold plain files only.

    fairseq extracts whatever the archive holds, removes the archive, and then moves the folder that
    its names begin with, which may be outside. Here the content is in a folder beside the archive,
    which stays, or in the one folder in that, and so on. A folder is returned as given.

    Raises MemAttnError if there is neither.
    """
    from fairseq import file_utils

    try:
        archive = file_utils.cached_path(archive_file, cache_dir=None)
    except OSError as error:
        raise MemAttnError(
            f"{archive_file} must be a folder, an archive or its address: {error}"
        ) from error
    if os.path.isdir(archive):
        return str(archive)
    folder = Path(f"{archive}.extracted-{os.stat(archive).st_mtime_ns}")
    if not folder.is_dir():
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
        unfinished.mkdir()
        try:
            with _CheckedArchive.open(archive) as content:
                content.extractall(unfinished)
            with suppress(OSError):  # another process has made it meanwhile
                unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    while len(inside := list(folder.iterdir())) == 1 and inside[0].is_dir():
        folder = inside[0]
    return str(folder)
