"""WMT14: from archives in the official layout to segmented text, without the pairs left out."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from official_archives import lines, message, nist_set, write_tar
from preparing import prepare

from fairseq_memattn.data_prep.commands import wmt14

PAIRS = {
    "training/europarl-v7.de-en": [("Resumption of the session", "Wiederaufnahme der Sitzung")],
    "commoncrawl.de-en": [
        ("The house is old.", "Das Haus ist alt."),
        ("Buy\rnow – it's cheap!", "Kaufen Sie jetzt, es ist preiswert!"),
        ("Yes.", "Ja, das ist richtig, und das wissen wir alle schon sehr lange."),
        (" ", "Ohne Quelle."),
    ],
    "training/news-commentary-v9.de-en": [
        ("The house is old. " * 60, "Das Haus ist alt. " * 60),
        ("The session is old.", "Die Sitzung ist alt."),
    ],
}
TESTS = {"newstest2013-src": 2, "newstest2014-deen": 3}


def archive_files(key: str) -> dict[str, str | bytes]:
    """What the archive under this key holds, other languages included."""
    if key in PAIRS:
        files: dict[str, str | bytes] = {
            f"{key}.{language}": "\n".join(pair[side] for pair in PAIRS[key]) + "\n"
            for side, language in enumerate(wmt14.LANGUAGES)
        }
        return files | {re.sub("[.]de-en$", ".fr-en.en", key): "Other.\n"}
    return {
        f"test/{name}": nist_set(
            "srcset", {"doc": [f"{name[-6:-4]} & {i}." for i in range(TESTS[key])]}
        )
        for name in wmt14.wanted_files(key)
    }


def write_archives(folder: Path, changed: Mapping[str, str | bytes] | None = None) -> list[str]:
    """The five archives; returns the options to use them."""
    options = ["--unchecked", "--archive"]
    for key, archive in wmt14.ARCHIVES.items():
        files = archive_files(key)
        files |= {name: content for name, content in (changed or {}).items() if name in files}
        options.append(str(write_tar(folder / archive.name, files)))
    return options


def arguments(options: list[str], output: Path, *more: str) -> list[str]:
    return [*options, "--output", str(output), "--bpe-symbols", "90", *more]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_archives(tmp_path_factory.mktemp("archives"))


@pytest.fixture(scope="module")
def corpus(archives: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("wmt14") / "out"
    assert prepare(wmt14, arguments(archives, output)) == 0
    return output


def test_text_is_what_was_released(corpus: Path) -> None:
    for side, language in enumerate(wmt14.LANGUAGES):
        released = [pair[side] for pairs in PAIRS.values() for pair in pairs if pair[0].strip()]
        expected = [line.strip().replace("\r", " ") for line in released]
        assert lines(corpus / f"text/train.{language}") == expected
        assert lines(corpus / f"text/valid.{language}") == [f"{language} & 0.", f"{language} & 1."]
        assert len(lines(corpus / f"text/test.{language}")) == 3


def test_uneven_and_long_pairs_are_left_out(archives, corpus, capsys):
    assert prepare(wmt14, arguments(archives, corpus)) == 0  # and all is done already
    printed = capsys.readouterr().out
    assert (
        "text-train: 6 pairs, 1 control characters replaced by spaces, "
        "1 pairs with an empty side dropped"
    ) in printed
    assert "pieces-train: 4 pairs, 1 too long, dropped, 1 too uneven, dropped" in printed
    english, german = ([corpus / kind / "train" for kind in ("segmented", "pieces")] for _ in "12")
    for language, (segmented, pieces) in zip(wmt14.LANGUAGES, (english, german), strict=True):
        every = lines(segmented.with_suffix(f".{language}"))
        assert lines(pieces.with_suffix(f".{language}")) == [every[i] for i in (0, 1, 2, 5)]
    assert lines(corpus / "pieces/train.en")[2].replace("@@ ", "") == (
        "Buy now - it &apos;s cheap !"
    )


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [((1, 1), True), ((250, 250), True), ((251, 250), False), ((2, 3), True), ((4, 2), False)],
)
def test_the_limits_are_those_of_moses(lengths, kept, tmp_path):
    sources, targets = ([tmp_path / f"{kind}.{i}" for i in "ab"] for kind in ("in", "out"))
    for path, length in zip(sources, lengths, strict=True):
        path.write_text("x " * length + "\n")
    assert wmt14.clean(sources, targets, 250, 1.5)["pairs"] == kept


def test_binary_data_has_one_dictionary(corpus: Path) -> None:
    assert (corpus / "bin/dict.en.txt").read_bytes() == (corpus / "bin/dict.de.txt").read_bytes()
    assert not list((corpus / "bin").glob("*.docids"))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("commoncrawl.de-en.de", "Eins\n", "commoncrawl.de-en.de: ends before line 2"),
        ("commoncrawl.de-en.en", b"a\n\xe9\n", "commoncrawl.de-en.en, line 2: not UTF-8 at byte 1"),
        ("test/newstest2014-deen-ref.de.sgm", "<p></p>", "deen-ref.de.sgm: no <seg>"),
    ],
)
def test_archives_that_are_not_as_they_should_be(name, content, expected, tmp_path, capsys):
    options = write_archives(tmp_path, {name: content})
    assert prepare(wmt14, arguments(options, tmp_path / "out")) == 1
    assert expected in message(capsys.readouterr().err)
