"""The toy corpus of recipes/stream/cues.py, and the measurement of recipes/stream/book.py."""

import json
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "recipes/stream"


def call(monkeypatch, script, *args):
    monkeypatch.setattr(sys, "argv", [script, *map(str, args)])
    return runpy.run_path(str(FOLDER / script))["main"]()


def test_a_cue_decides(tmp_path, monkeypatch):
    """What cannot be known from the sentence is known from the cue, at each distance."""
    sizes = ["--train-docs", 30, "--sets", 4, "--tested", 2, 9, "--book", 50]
    call(monkeypatch, "cues.py", tmp_path, *sizes)
    columns = [(tmp_path / f"train.{side}").read_text().splitlines() for side in ("en", "ru")]
    assert all(len(a.split()) == len(b.split()) for a, b in zip(*columns, strict=True))
    assert set((tmp_path / "book.docid").read_text().split()) == {"1"}
    for path in (tmp_path / "contrast").iterdir():
        groups = json.loads(path.read_text())
        for one, two in zip(groups[::2], groups[1::2], strict=True):
            sources = [group["src"].split(" _eos ") for group in (one, two)]
            assert sources[0][-1] == sources[1][-1]
            differ = [i for i, pair in enumerate(zip(*sources, strict=True)) if len(set(pair)) > 1]
            assert differ == [len(sources[0]) - 1 - one["ctx_dist"]]
            last = [candidate.split(" _eos ")[-1] for candidate in one["dst"]]
            assert len(set(last)) == 2 and (one["true_ind"], two["true_ind"]) == (0, 1)


@pytest.mark.parametrize(
    "text, rc, message",
    [("b", 0, "every sentence has its translation, in order"), (" ", 1, "sentences are omitted")],
)
def test_a_book_is_whole(text, rc, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "source").write_text("a\n" * 19 + f"{text}\n")
    code = "import sys; [print(f'D-{i}\\t0\\t' + line.strip()) for i, line in enumerate(sys.stdin)]"
    source = tmp_path / "source"
    given = [source, "--reference", source, "--", Path(sys.executable).name, "-c", code]
    assert call(monkeypatch, "book.py", *given) == rc
    shown = capsys.readouterr().out
    assert message in shown and "right: 100.0 %, then" in shown
