"""Fetching archives in pieces, checking them, and taking files out of them."""

import gzip
import hashlib
import io
import json
import re
import socket
import stat
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from official_archives import write_tar, write_zip

from fairseq_memattn import archive_limits
from fairseq_memattn.data_prep.pipeline import download
from fairseq_memattn.data_prep.pipeline.archives import extract, names, sources
from fairseq_memattn.data_prep.pipeline.download import Archive, obtain, obtain_all
from fairseq_memattn.errors import MemAttnError

CONTENT = bytes(range(256)) * 40
FILES = {"x/a.txt": "eins\n", "x/b.txt": "zwei\n", "y/a.txt": "drei\n"}
WRITERS = {"tar": write_tar, "zip": write_zip}


@dataclass
class Site:
    """A server of one file; `sends` is how many bytes it gets out before the connection breaks."""

    url: str = ""
    content: bytes = CONTENT
    version: str = '"1"'
    sends: int = len(CONTENT)
    ranges: bool = True
    status: int = 200
    served: list[tuple[int, int]] = field(default_factory=list)  # status, first byte

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = re.fullmatch("bytes=([0-9]+)-", handler.headers.get("Range", ""))
        same = handler.headers.get("If-Range") == self.version
        start = int(asked[1]) if asked and same and self.ranges else 0
        status = 206 if start else self.status
        if start >= len(self.content):
            status = 416
        self.served.append((status, start))
        handler.send_response(status)
        if status == 416:
            handler.send_header("Content-Range", f"bytes */{len(self.content)}")
        handler.send_header("ETag", self.version)
        handler.send_header("Content-Length", str(max(0, len(self.content) - start)))
        handler.end_headers()
        handler.wfile.write(self.content[start : start + self.sends])


@pytest.fixture
def site() -> Iterator[Site]:
    found = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_port}/corpus.tgz"
    yield found
    server.shutdown()
    server.server_close()


def test_a_broken_download_goes_on_where_it_stopped(site: Site, tmp_path: Path) -> None:
    target = tmp_path / "new" / "corpus.tgz"
    site.sends = 4000
    for part in (4000, 8000):
        with pytest.raises(MemAttnError, match=f"ended after {part} of 10240 bytes; run .* again"):
            download.fetch(site.url, target)
        assert not target.exists()
    download.fetch(site.url, target)
    assert target.read_bytes() == CONTENT
    assert site.served == [(200, 0), (206, 4000), (206, 8000)]
    assert [path.name for path in target.parent.iterdir()] == ["corpus.tgz"]


@pytest.mark.parametrize("change", ["version", "no ranges"])
def test_what_cannot_go_on_starts_again(site: Site, tmp_path: Path, change: str) -> None:
    target = tmp_path / "corpus.tgz"
    site.sends = 100
    with pytest.raises(MemAttnError):
        download.fetch(site.url, target)
    site.sends = len(CONTENT)
    if change == "version":
        site.version, site.content = '"2"', CONTENT[::-1]
    else:
        site.ranges = False
    download.fetch(site.url, target)
    assert target.read_bytes() == site.content
    assert site.served[-1] == (200, 0)


@pytest.mark.parametrize("extra", [b"", b"x"])
def test_a_download_of_unknown_size_with_nothing_left(extra, site, tmp_path):
    target, part = tmp_path / "corpus.tgz", tmp_path / "corpus.tgz.part"
    part.write_bytes(CONTENT + extra)
    (tmp_path / "corpus.tgz.part.json").write_text(json.dumps({"version": '"1"', "size": None}))
    if extra:  # the part is not the server's file: it starts again
        with pytest.raises(MemAttnError, match="the server answered 416 .*; run the command again"):
            download.fetch(site.url, target)
        assert not part.exists()
    download.fetch(site.url, target)
    assert target.read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.tgz"]


def test_no_server(tmp_path: Path) -> None:
    with socket.socket() as taken:  # and does not listen
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/corpus.tgz"
        with pytest.raises(MemAttnError, match="cannot be downloaded .* --archive"):
            download.fetch(url, tmp_path / "archives/corpus.tgz")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("size", "digest", "expected"),
    [
        (len(CONTENT), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", None),
        (None, f"md5:{hashlib.md5(CONTENT).hexdigest()}", None),
        (None, None, None),
        (5, None, "10240 bytes, but the official corpus.tgz has 5"),
        (None, "md5:0", "but the official corpus.tgz has 0; download it again, or .*--unchecked"),
    ],
)
def test_checksums(size, digest, expected, tmp_path):
    path = tmp_path / "mine.tgz"
    path.write_bytes(CONTENT)
    archive = Archive("corpus.tgz", "https://example.org", None, size, digest)
    assert obtain(archive, path, tmp_path, unchecked=True) == path
    if expected is None:
        assert obtain(archive, path, tmp_path) == path
    else:
        with pytest.raises(MemAttnError, match=expected):
            obtain(archive, path, tmp_path)


def test_a_wrong_download_is_not_kept(site: Site, tmp_path: Path) -> None:
    right = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
    archive = Archive("corpus.tgz", "page", site.url, None, right)
    site.content = b"<html>the proxy is tired</html>"
    with pytest.raises(MemAttnError, match="download it again"):
        obtain(archive, None, tmp_path)
    assert not [*tmp_path.iterdir()]
    site.content = CONTENT
    assert obtain(archive, None, tmp_path).read_bytes() == CONTENT


def test_several_archives_are_known_by_their_names(site: Site, tmp_path: Path) -> None:
    mine = tmp_path / "a.tgz"
    mine.write_bytes(b"mine")
    archives = [Archive("a.tgz", "page"), Archive("b.tgz", "page", site.url)]
    found = obtain_all(archives, [mine], tmp_path / "archives")
    assert found == [mine, tmp_path / "archives/b.tgz"]
    assert found[1].read_bytes() == CONTENT
    with pytest.raises(MemAttnError, match="c.tgz: the name must be one of a.tgz, b.tgz"):
        obtain_all(archives, [tmp_path / "c.tgz"], tmp_path)
    with pytest.raises(MemAttnError, match="names a.tgz twice"):
        obtain_all(archives, [mine, tmp_path / "other/a.tgz"], tmp_path)


@pytest.mark.parametrize("kind", ["tar", "zip", "folder"])
def test_files_are_found_by_the_end_of_their_path(kind: str, tmp_path: Path) -> None:
    if kind == "folder":
        archive = tmp_path / "folder"
        for name, text in FILES.items():
            (archive / name).parent.mkdir(parents=True, exist_ok=True)
            (archive / name).write_text(text)
    else:
        archive = WRITERS[kind](tmp_path / "archive", {f"./top/{n}": t for n, t in FILES.items()})
    wanted = {"x/a.txt": tmp_path / "out/1", "b.txt": tmp_path / "out/2"}
    extract(archive, wanted)
    assert [path.read_text() for path in wanted.values()] == ["eins\n", "zwei\n"]
    assert [name.removeprefix("top/") for name in names(archive)] == [*FILES]
    inputs = [archive / "x/a.txt", archive / "x/b.txt"] if kind == "folder" else [archive]
    assert sources(archive, wanted) == inputs
    for end, expected in (
        ("a.txt", "two files a.txt: .*x/a.txt and .*y/a.txt"),
        ("c", "no file c"),
    ):
        with pytest.raises(MemAttnError, match=f"{archive.name}: has {expected}"):
            extract(archive, {"b.txt": tmp_path / "new/b", end: tmp_path / "new/x"})
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", [*WRITERS])
@pytest.mark.parametrize(
    "name", ["../evil.txt", "/tmp/evil.txt", "x/../../evil.txt", "..\\evil.txt"]
)
def test_paths_that_lead_out_of_the_folder_are_refused(kind, name, tmp_path):
    archive = WRITERS[kind](tmp_path / "archive", {name: "evil\n", "b.txt": "good\n"})
    with pytest.raises(MemAttnError, match="refused, because its path '.*evil.txt' leads out"):
        extract(archive, {"b.txt": tmp_path / "out" / "b"})
    assert not (tmp_path / "out").exists()


SPECIAL = {
    "symbolic link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
    "device": tarfile.CHRTYPE,
    "pipe": tarfile.FIFOTYPE,
}


def special(path: Path, kind: str) -> Path:
    """An archive whose a.txt is no file, and whose b.txt is one."""
    if kind == "symbolic link in a zip":
        with zipfile.ZipFile(path, "w") as archive:
            info = zipfile.ZipInfo("a.txt")
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, "/etc/hostname")
            archive.writestr("b.txt", "zwei\n")
    else:
        with tarfile.open(path, "w") as content:
            link, file = tarfile.TarInfo("a.txt"), tarfile.TarInfo("b.txt")
            link.type, link.linkname, file.size = SPECIAL[kind], "/etc/hostname", 5
            content.addfile(link)
            content.addfile(file, io.BytesIO(b"zwei\n"))
    return path


@pytest.mark.parametrize("kind", [*SPECIAL, "symbolic link in a zip"])
def test_links_and_devices(kind: str, tmp_path: Path) -> None:
    """An archive may have them, where they are not wanted."""
    archive = special(tmp_path / "archive", kind)
    with pytest.raises(
        MemAttnError, match="archive: refused, because 'a.txt' is neither a file nor"
    ):
        extract(archive, {"a.txt": tmp_path / "out" / "a"})
    assert not (tmp_path / "out").exists()
    extract(archive, {"b.txt": tmp_path / "out" / "b"})
    assert (tmp_path / "out" / "b").read_text() == "zwei\n"


@pytest.mark.parametrize("kind", [*WRITERS])
def test_archives_that_unpack_to_too_much(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(archive_limits, "UNPACKED", 100_000)
    monkeypatch.setattr(archive_limits, "RATIO", 10)
    plenty = "0" * 60_000
    archive = WRITERS[kind](tmp_path / "archive", {"a.txt": plenty, "b.txt": plenty})
    refused = "archive: refused, because it unpacks to more than 100000 bytes, of which 'b.txt' has"
    for wanted in ("a.txt", "b.txt"):
        with pytest.raises(MemAttnError, match=refused):
            extract(archive, {wanted: tmp_path / "out" / "a"})
    with pytest.raises(MemAttnError, match=refused):
        names(archive)
    assert not (tmp_path / "out").exists()
    text = "".join(f"{i * i * 7919 % 10007}\n" for i in range(50_000))  # more than 100,000 bytes
    extract(WRITERS[kind](archive, {"a.txt": text}), {"a.txt": tmp_path / "out" / "a"})
    assert (tmp_path / "out" / "a").read_text() == text


def test_zeros_after_the_last_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_limits, "UNPACKED", 100_000)
    content = gzip.decompress(write_tar(tmp_path / "archive", {"a.txt": "eins\n"}).read_bytes())
    (tmp_path / "archive").write_bytes(gzip.compress(content + bytes(10_000_000)))
    with pytest.raises(MemAttnError, match="of which 'what follows the last file' has"):
        extract(tmp_path / "archive", {"a.txt": tmp_path / "out" / "a"})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_would_fill_the_memory(kind: bytes, tmp_path: Path) -> None:
    header = tarfile.TarInfo("long")
    header.type, header.size = kind, 1 << 40
    packed = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))
    (tmp_path / "archive").write_bytes(packed)
    with pytest.raises(
        MemAttnError, match="archive: refused, because the header of 'long' must have"
    ):
        names(tmp_path / "archive")


@pytest.mark.parametrize("kind", [*WRITERS])
@pytest.mark.parametrize("damage", ["cut", "flipped", "page", "empty"])
def test_broken_archives(kind: str, damage: str, tmp_path: Path) -> None:
    text = "".join(f"{i} {i * i}\n" for i in range(5000))
    archive = WRITERS[kind](tmp_path / "archive", {"a.txt": text, "b.txt": "zwei\n"})
    data = archive.read_bytes()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0x10
    archive.write_bytes(
        {
            "cut": data[: len(data) * 2 // 3],
            "flipped": bytes(flipped),
            "page": b"<!DOCTYPE html><title>Sign in</title>",
            "empty": b"",
        }[damage]
    )
    with pytest.raises(
        MemAttnError, match="/archive: cannot be unpacked .* damaged, or is not a tar or zip"
    ):
        extract(archive, {"a.txt": tmp_path / "out" / "a"})
    assert not (tmp_path / "out").exists()
