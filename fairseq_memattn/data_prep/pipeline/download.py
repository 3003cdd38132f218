"""Official archives: downloads that resume after an interruption, sizes and checksums checked.

Libraries for checked downloads, such as pooch, start again after an interruption; the largest
archive here has 900 MB.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from ssl import SSLError
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tqdm import tqdm

from fairseq_memattn.data_prep.text.tables import read_table
from fairseq_memattn.errors import MemAttnError

BLOCK = 1 << 20
UNSATISFIABLE = 416  # the server has nothing after the part that is there
TIMEOUT = 60  # seconds without a byte


@dataclass(frozen=True)
class Archive:
    """An official archive.

    name: the name of its file
    page: the web page that publishes it
    url: the address of the file; None where the download requires a browser
    size: in bytes; None where it is not known
    digest: "md5:..." or "sha256:..." in hexadecimal; None where it is not known
    """

    name: str
    page: str
    url: str | None = None
    size: int | None = None
    digest: str | None = None


def official(name: str) -> Archive:
    """The archive of this name in archives.tsv.

    Its sizes and checksums are those that Hugging Face's datasets library, TensorFlow Datasets,
    sacreBLEU and torchtext record.
    """
    [row] = (row for row in read_table(__package__, "archives.tsv") if row["name"] == name)
    size = int(row["size"]) if row["size"] else None
    return Archive(name, row["page"], row["url"] or None, size, row["digest"] or None)


def obtain(archive: Archive, given: Path | None, folder: Path, unchecked: bool = False) -> Path:
    """The path of an archive: the user's, or else the one downloaded to `folder`; checked.

    given: the user's file, or a folder with the contents of the archive, which is not checked
    Raises MemAttnError for an archive that is missing, cannot be downloaded, or is not the official
    one.
    """
    path = folder / archive.name if given is None else given
    is_new = given is None and not path.exists()
    if is_new:
        if archive.url is None:
            raise MemAttnError(
                f"{archive.name} can only be downloaded with a browser; download it from "
                f"{archive.page} and pass it with --archive"
            )
        fetch(archive.url, path)
    if not path.exists():
        raise MemAttnError(f"--archive {path}: no such file or folder")
    if path.is_file() and not unchecked:
        try:
            check(path, archive)
        except MemAttnError:
            if is_new:  # or the next run would take it for the archive
                path.unlink()
            raise
    return path


def obtain_all(
    archives: Sequence[Archive], given: Sequence[Path], folder: Path, unchecked: bool = False
) -> list[Path]:
    """The path of each archive: the given file of that name, or else the downloaded one.

    Raises MemAttnError as `obtain` does, and for a given file that has the name of no archive.
    """
    found: dict[str, Path] = {}
    for path in given:
        if path.name not in {archive.name for archive in archives}:
            names = ", ".join(archive.name for archive in archives)
            raise MemAttnError(f"--archive {path}: the name must be one of {names}")
        if found.setdefault(path.name, path) != path:
            raise MemAttnError(f"--archive names {path.name} twice")
    return [obtain(archive, found.get(archive.name), folder, unchecked) for archive in archives]


def check(path: Path, archive: Archive) -> None:
    """Raise MemAttnError if a file does not have the size and checksum of the official archive."""
    advice = "download it again, or accept it with --unchecked"
    size = path.stat().st_size
    if archive.size is not None and size != archive.size:
        raise MemAttnError(
            f"{path}: {size} bytes, but the official {archive.name} has {archive.size}; {advice}"
        )
    if archive.digest is not None:
        kind, expected = archive.digest.split(":")
        found = digest(path, kind)
        if found != expected:
            raise MemAttnError(
                f"{path}: {kind} {found}, but the official {archive.name} has {expected}; {advice}"
            )


def digest(path: Path, kind: str = "sha256") -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def fetch(url: str, target: Path) -> None:
    """Download to `target`; an earlier attempt that was interrupted is resumed.

    Until the download is complete, its data is in TARGET.part, and the version of the file (ETag
    or Last-Modified) in TARGET.part.json. If the server has another version, the download starts
    again. Raises MemAttnError where the download fails; the data that has arrived is kept.
    """
    part = target.with_name(f"{target.name}.part")
    note = target.with_name(f"{target.name}.part.json")
    version, size = "", None
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        found = json.loads(note.read_text(encoding="utf-8"))
        version, size = found["version"], found["size"]
    have = part.stat().st_size if version and part.exists() else 0
    if not have or have != size:
        request = Request(url, headers={"User-Agent": "fairseq-memattn"})
        if have:
            request.add_header("Range", f"bytes={have}-")
            request.add_header("If-Range", version)
        _receive(request, part, note)
    part.replace(target)
    note.unlink()


def _receive(request: Request, part: Path, note: Path) -> None:
    """Append the response to `part`, or replace `part` if the server sends the whole file."""
    url = request.full_url
    again = "run the command again to resume, or pass the file with --archive"
    try:
        with urlopen(request, timeout=TIMEOUT) as response:
            part.parent.mkdir(parents=True, exist_ok=True)
            have = part.stat().st_size if response.status == 206 else 0
            length = response.headers["Content-Length"]
            size = None if length is None else have + int(length)
            version = response.headers["ETag"] or response.headers["Last-Modified"] or ""
            note.write_text(json.dumps({"version": version, "size": size}), encoding="utf-8")
            with (
                open(part, "ab" if have else "wb") as file,
                tqdm(
                    desc=part.stem,
                    total=size,
                    initial=have,
                    unit="B",
                    unit_scale=True,
                    disable=None,
                ) as bar,
            ):
                while block := response.read(BLOCK):
                    file.write(block)
                    bar.update(len(block))
    except HTTPError as error:
        if error.code == UNSATISFIABLE and part.exists():
            if error.headers["Content-Range"] == f"bytes */{part.stat().st_size}":
                return  # all was there
            part.unlink()
            note.unlink(missing_ok=True)
        raise MemAttnError(
            f"{url}: the server answered {error.code} {error.reason}; {again}"
        ) from None
    except URLError as error:
        raise MemAttnError(f"{url}: cannot be downloaded ({error.reason}); {again}") from None
    except (HTTPException, TimeoutError, ConnectionError, SSLError) as error:
        raise MemAttnError(f"{url}: the connection failed ({error!r}); {again}") from None
    if size is not None and part.stat().st_size != size:
        raise MemAttnError(f"{url}: ended after {part.stat().st_size} of {size} bytes; {again}")
