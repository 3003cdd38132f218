"""Official archives: fetched, going on where an earlier attempt stopped, and checked."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from ssl import SSLError
from typing import cast
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tqdm import tqdm

from data_prep.files import DataError

BLOCK = 1 << 20
TIMEOUT = 60  # seconds without a byte


@dataclass(frozen=True)
class Archive:
    """An official archive.

    name: its file's name
    page: the site that it comes from
    url: where to fetch it; None where that takes a browser
    size: in bytes, and digest: "md5:..." or "sha256:..." in hexadecimal; None where not known
    """

    name: str
    page: str
    url: str | None = None
    size: int | None = None
    digest: str | None = None


def obtain(archive: Archive, given: Path | None, folder: Path, unchecked: bool = False) -> Path:
    """The archive that the user has, or else the one fetched into `folder`; checked.

    given: a file, or a folder with what the archive holds; a folder cannot be checked.
    Raises DataError where the archive is missing, cannot be fetched, or is not the official one.
    """
    path = folder / archive.name if given is None else given
    if given is None and not path.exists():
        if archive.url is None:
            raise DataError(
                f"{archive.name} cannot be fetched by a script: download it from {archive.page} "
                "and give it with --archive"
            )
        fetch(archive.url, path)
    if not path.exists():
        raise DataError(f"--archive {path}: no such file or folder")
    if path.is_file() and not unchecked:
        check(path, archive)
    return path


def obtain_all(
    archives: Sequence[Archive], given: Sequence[Path], folder: Path, unchecked: bool = False
) -> list[Path]:
    """One path for each archive: the given file of that name, or else the fetched one.

    Raises DataError as `obtain` does, and for a given file whose name is none of theirs.
    """
    found: dict[str, Path] = {}
    for path in given:
        if path.name not in {archive.name for archive in archives}:
            names = ", ".join(archive.name for archive in archives)
            raise DataError(f"--archive {path}: the name must be one of {names}")
        if found.setdefault(path.name, path) != path:
            raise DataError(f"--archive names {path.name} twice")
    return [obtain(archive, found.get(archive.name), folder, unchecked) for archive in archives]


def check(path: Path, archive: Archive) -> None:
    """A DataError if a file has another size or checksum than the official archive."""
    advice = "fetch it again, or accept it as it is with --unchecked"
    size = path.stat().st_size
    if archive.size is not None and size != archive.size:
        raise DataError(
            f"{path}: {size} bytes, but the official {archive.name} has {archive.size}; {advice}"
        )
    if archive.digest is not None:
        kind, expected = archive.digest.split(":")
        found = digest(path, kind)
        if found != expected:
            raise DataError(
                f"{path}: {kind} {found}, but the official {archive.name} has {expected}; {advice}"
            )


def digest(path: Path, kind: str = "sha256") -> str:
    """A file's checksum in hexadecimal."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, kind).hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def fetch(url: str, target: Path) -> None:
    """Download to `target`, going on with what an attempt that broke off has left.

    Until all is there it is in `target`.part, and in `target`.part.json which version of the file
    that is: of another version the server sends everything again.
    Raises DataError where the file cannot be had; what has arrived is kept.
    """
    part = target.with_name(f"{target.name}.part")
    note = target.with_name(f"{target.name}.part.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    version, size = _read_note(note)
    have = part.stat().st_size if version and part.exists() else 0
    if not have or have != size:
        request = Request(url, headers={"User-Agent": "fairseq-memattn"})
        if have:
            request.add_header("Range", f"bytes={have}-")
            request.add_header("If-Range", version)
        _receive(request, part, note)
    part.replace(target)
    note.unlink()


def _read_note(note: Path) -> tuple[str, int | None]:
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
        return found["version"], found["size"]
    except (OSError, ValueError, KeyError, TypeError):
        return "", None


def _receive(request: Request, part: Path, note: Path) -> None:
    """Append what the server sends to `part`, or start it anew if the server sends everything."""
    url = request.full_url
    again = "run the command again to go on, or give the file with --archive"
    try:
        with urlopen(request, timeout=TIMEOUT) as response:
            have = part.stat().st_size if response.status == 206 else 0
            size = _whole_size(response, have)
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
        raise DataError(f"{url}: the server says {error.code} {error.reason}; {again}") from None
    except URLError as error:
        raise DataError(f"{url}: cannot be fetched ({error.reason}); {again}") from None
    except (HTTPException, TimeoutError, ConnectionError, SSLError) as error:
        raise DataError(f"{url}: the connection broke ({error!r}); {again}") from None
    except OSError as error:
        raise DataError(f"{part}: cannot be written ({error.strerror})") from None
    if size is not None and part.stat().st_size != size:
        raise DataError(f"{url}: ended after {part.stat().st_size} of {size} bytes; {again}")


def _whole_size(response: HTTPResponse, have: int) -> int | None:
    length = response.headers["Content-Length"]
    return None if length is None else have + int(cast(str, length))
