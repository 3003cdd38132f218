"""The documents of recipes/long_documents, and its positions."""

import math
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

RECIPE = Path(__file__).parents[2] / "recipes" / "long_documents"
PADDING, SEPARATOR = 1, 7
TOKENS = torch.tensor(
    [
        [2, 4, 7, 5, 6, 7, 7, 9],
        [1, 1, 7, 4, 4, 7, 5, 2],  # padded on the left, as sources are
        [2, 4, 4, 7, 2, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1, 1],
    ]
)


@pytest.fixture(scope="module", autouse=True)
def on_the_path():
    folders = [str(RECIPE), str(RECIPE / "numbered_sentences")]
    sys.path[:0] = folders
    yield
    for folder in folders:
        sys.path.remove(folder)


@pytest.fixture
def join():
    return import_module("join")


@pytest.fixture
def embed():
    return import_module("positions").SentencePositions(12, PADDING, SEPARATOR)


def slow_positions(tokens):
    """Pairs of position and number, from left to right; None at padding."""
    found, position, number = [], -1, 0
    for token in tokens:
        if token == PADDING:
            found.append(None)
            continue
        position += 1
        if token == SEPARATOR:
            position, number = 0, number + 1
        found.append((position, number))
    return found


def test_positions_and_numbers(embed):
    scale = import_module("positions").SCALE
    expected = torch.zeros(*TOKENS.shape, 12)
    for line, row in zip(TOKENS.tolist(), expected, strict=True):
        for place, pair in zip(slow_positions(line), row, strict=True):
            if place is not None:
                turns = [place[0] * 10_000 ** (-i / 2) for i in range(3)]
                circles = [place[1] * (0.05 + 1.5 * i) for i in range(3)]
                values = [f(x) for f in (math.sin, math.cos) for x in turns]
                values += [scale * f(x) for f in (math.sin, math.cos) for x in circles]
                pair.copy_(torch.tensor(values))
    assert_close(embed(TOKENS), expected)


def test_one_position_at_a_time(embed):
    whole = embed(TOKENS)
    for length in range(1, TOKENS.shape[1] + 1):
        last = embed(TOKENS[:, :length], incremental_state={})
        assert_close(last, whole[:, length - 1 : length])


def pieces(folder, sentences):
    folder.mkdir()
    for split, size in sentences.items():
        for language in ("en", "de"):
            lines = [f"{language}{number} {split}\n" for number in range(size)]
            (folder / f"{split}.{language}").write_text("".join(lines), encoding="utf-8")
    return folder


def test_documents(join, tmp_path, capsys):
    folder, out = pieces(tmp_path / "in", {"train": 40, "valid": 3, "test": 7}), tmp_path / "out"
    options = f"--langs en de --sentences 3 --passes 2 --output {out}".split()
    assert join.main([str(folder), *options]) == 0
    assert "valid: 1 documents, test: 3 documents" in capsys.readouterr().out
    texts = {path.name: path.read_text(encoding="utf-8").splitlines() for path in out.iterdir()}
    assert texts["test.de"] == [
        "de0 test <sep> de1 test <sep> de2 test",
        "de3 test <sep> de4 test <sep> de5 test",
        "de6 test",
    ]
    assert texts["test.docid"] == list("0001112") and texts["valid.docid"] == list("000")
    sources = [line.split(" <sep> ") for line in texts["train.en"]]
    targets = [line.split(" <sep> ") for line in texts["train.de"]]
    assert [[x.replace("en", "de") for x in line] for line in sources] == targets
    assert set(Counter(map(len, sources))) == {1, 2, 3}
    seen = Counter(sentence for line in sources for sentence in line)
    assert set(seen.values()) == {2} and len(seen) == 40
    assert join.main([str(folder), *options]) == 0
    assert (out / "train.en").read_text(encoding="utf-8").splitlines() == texts["train.en"]


@pytest.mark.parametrize(
    "change, options, message",
    [
        ("short", "", "error: not as many lines in all languages: "),
        ("separator", "", "valid.de, line 2: has <sep>, which ends sentences"),
        ("missing", "", "error: there is no file "),
        ("", "--sentences 0", "error: --sentences must be 1 or more, but is 0"),
        ("", "--passes -1", "error: --passes must be 1 or more, but is -1"),
    ],
)
def test_refusals(change, options, message, join, tmp_path, capsys):
    folder, out = pieces(tmp_path / "in", {"train": 4, "valid": 3, "test": 2}), tmp_path / "out"
    file = folder / "valid.de"
    if change == "short":
        file.write_text("a\n", encoding="utf-8")
    elif change == "separator":
        file.write_text("a\nb <sep> c\nd\n", encoding="utf-8")
    elif change == "missing":
        file.unlink()
    arguments = [str(folder), "--langs", "en", "de", "--output", str(out), *options.split()]
    assert join.main(arguments) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_the_pieces_are_not_overwritten(join, tmp_path, capsys):
    folder = pieces(tmp_path / "in", {"train": 4, "valid": 3, "test": 2})
    before = (folder / "train.en").read_bytes()
    assert join.main([str(folder), "--langs", "en", "de", "--output", str(folder)]) == 2
    assert "would overwrite the input" in capsys.readouterr().err
    assert (folder / "train.en").read_bytes() == before


def test_speeds():
    speed = import_module("speed")
    line = "Translated 8 sentences (12,000 tokens) in 30.5s (0.26 sentences/s, 393.44 tokens/s)"
    assert speed.timing(f"INFO:x\n{line}\n") == (12_000, 30.5)
    with pytest.raises(ValueError, match="does not say how long"):
        speed.timing("")
    timings = {"a": [(100, 2.0), (100, 4.0), (100, 1.0)], "b": [(90, 1.0), (90, 0.9), (90, 3.0)]}
    assert speed.table(timings).splitlines()[2:] == [
        "| `a` | 100 | 2.0 | 50 | 1.00 |",
        "| `b` | 90 | 1.0 | 90 | 1.80 |",
    ]
