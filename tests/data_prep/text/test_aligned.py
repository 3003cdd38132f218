"""Line-aligned text and document ids: every way they can be wrong."""

from pathlib import Path

import pytest

from fairseq_memattn.data_prep.text.aligned import read_documents
from fairseq_memattn.errors import MemAttnError

GOOD = {"en": b"a\nb\nc\n", "ru": "А\nБ\nВ\n".encode(), "docid": b"1\n1\n2\n"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"ru": b"A\nB\n"}, "number of lines: .*en has 3, .*ru has 2, .*docid has 3"),
        ({"docid": b"1\n1\n1\n2\n"}, "docid has 4"),
        ({"docid": b"1\n2\n1\n"}, "docid, line 3: document id '1' began at line 1 and had already"),
        ({"en": b"a\n\nc\n"}, "en, line 2: the line is empty"),
        ({"ru": b"A\n  \t\nC\n"}, "ru, line 2: the line is empty"),
        ({"docid": b"1\n \n2\n"}, "docid, line 2: the line is empty"),
        ({"ru": b"A\n\xd0\x91 \xff\nC\n"}, r"ru, line 2: not UTF-8 at byte 4 of the line \(0xff\)"),
        ({"en": b"a\rb\nb\nc\n"}, "en, line 1: a carriage return inside the line"),
        ({"en": b"\xef\xbb\xbfa\nb\nc\n"}, "en, line 1: begins with a byte-order mark"),
    ],
)
def test_what_is_refused(files: dict[str, bytes], message: str, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in GOOD]
    for path, content in zip(paths, (GOOD | files).values(), strict=True):
        path.write_bytes(content)
    with pytest.raises(MemAttnError, match=message):
        list(read_documents(paths))
