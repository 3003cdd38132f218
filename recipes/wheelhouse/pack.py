"""Packs wheels as one archive, which is a quarter smaller than the wheels.

    python recipes/wheelhouse/pack.py FOLDER ARCHIVE

A wheel is a zip file, whose files are compressed one by one. Here they are stored uncompressed in
their wheels, and the wheels are compressed together, so that what one wheel has in common with
another is kept once. The archive depends on the contents of the wheels alone.
"""

import lzma
import sys
import tarfile
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

# Wheels hold machine code for the most part; the window spans the copies that numpy and scipy have
# of the same libraries.
FILTERS = [
    {"id": lzma.FILTER_X86},
    {"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 192 * 2**20},
]


def store(wheel: Path, stored: Path) -> None:
    """Write the files of `wheel` uncompressed, without their times, as `stored`."""
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(stored, "w") as target:
        for name in sorted(source.namelist()):
            info = zipfile.ZipInfo(name)  # of 1980
            info.external_attr = source.getinfo(name).external_attr
            target.writestr(info, source.read(name))


def without_owner(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.mtime = info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o644
    return info


def pack(folder: Path, archive: Path) -> None:
    """Write all files of `folder` to `archive` (.tar.xz), wheels with their files uncompressed."""
    with (
        TemporaryDirectory(dir=folder.parent) as work,
        lzma.open(archive, "wb", filters=FILTERS) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        for path in sorted(folder.iterdir()):
            print(f"  {path.name}", flush=True)
            if path.suffix == ".whl":
                store(path, path := Path(work, path.name))
            tar.add(path, path.name, filter=without_owner)


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
