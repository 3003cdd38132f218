"""recipes/gmat/token_recovery.py: tokens that come back from a store, counted by document."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "recipes" / "gmat" / "token_recovery.py"
# Two documents of 7 and 3 tokens, ends of lines included; the first in two pieces, out of order.
PIECES, DOCIDS = "a b c\nd e\nf g\n", "1\n1\n2\n"
FILLED = "2\t<s> f g </s>\n1#1\t<s> e x\n1#0\t<s> a b x </s> d\n"


@pytest.mark.parametrize(
    ("filled", "status", "message"),
    [
        (FILLED, 0, "8 of 10 tokens come back: 80.0 %"),
        (FILLED.replace(" f", ""), 2, "filled.txt is not of the documents in"),
        (FILLED.replace("2\t", "3\t"), 2, "filled.txt is not of the documents in"),
    ],
)
def test_counts(filled, status, message, tmp_path):
    done = recovery(tmp_path, filled, DOCIDS)
    assert done.returncode == status and message in done.stdout + done.stderr


def test_ids_with_the_sign_before_a_number(tmp_path):
    filled = "C#1\t<s> f g </s>\nC# lang#1\t<s> e x\nC# lang#0\t<s> a b x </s> d\n"
    done = recovery(tmp_path, filled, "C# lang\nC# lang\nC#1\n")
    assert done.stdout == "8 of 10 tokens come back: 80.0 %\n"


def recovery(tmp_path, filled, docids):
    files = {"filled.txt": filled, "test.en": PIECES, "test.docids": docids}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, SCRIPT, "filled.txt", "--pieces", "test.en", "--docids", "test.docids"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
