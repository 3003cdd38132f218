"""WikiText: the released layouts, articles, and the published sizes."""

import hashlib
from collections import Counter
from pathlib import Path

import pytest
from corpora import corpus, needs
from official_archives import lines, message, write_zip
from preparing import prepare

from fairseq_memattn.data_prep.commands import wikitext

REAL = corpus("wikitext-2")
ARTICLES = """ \n = Robert <unk> = \n \n Robert is an actor . \n \n = = Career = = \n \n He was .
 = 7 / 2 ) is not a title = \n \n = Du Fu = \n \n He wrote poems . \n"""
DOCIDS = ["1"] * 10 + ["2"] * 3


def archive_files(pattern: str) -> dict[str, str | bytes]:
    return {pattern.format(split): ARTICLES for split in ("train", "valid", "test")}


def run(archive: Path, output: Path, *options: str) -> int:
    corpus = f"--corpus wikitext-103 --archive {archive} --output {output}"
    return prepare(wikitext, [*corpus.split(), *options])


def test_from_the_archive_to_binary_data(tmp_path, capsys):
    archive = write_zip(tmp_path / "a.zip", archive_files("wikitext-103/wiki.{}.tokens"))
    output = tmp_path / "out"
    assert run(archive, output, "--unchecked") == 0
    tokens = len(ARTICLES.split()) + ARTICLES.count("\n")
    assert f"text-test: 13 lines, 2 documents, {tokens} tokens" in capsys.readouterr().out
    for split in ("train", "valid", "test"):
        assert (output / f"text/{split}.en").read_text(encoding="utf-8") == ARTICLES
        assert lines(output / f"bin/{split}.docids") == DOCIDS
        assert (output / f"bin/{split}.bin").exists()
    words = {line.split()[0] for line in lines(output / "bin/dict.txt")}
    assert {word for word in words if "madeupword" not in word} == set(ARTICLES.split()) - {
        "<unk>"  # fairseq's dictionary begins with its own
    }


@pytest.mark.usefixtures("no_binarising")
def test_plain_text_files_will_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "wikitext"
    folder.mkdir()
    for name, text in archive_files("{}.txt").items():
        (folder / name).write_text(str(text), encoding="utf-8")
    assert run(folder, tmp_path / "out", "--unchecked") == 0
    assert (tmp_path / "out/text/train.en").read_text(encoding="utf-8") == ARTICLES
    assert run(folder, folder / "out") == 1
    assert "out is in --archive" in message(capsys.readouterr().err)
    assert run(folder, tmp_path / "out") == 1  # a folder has no checksum, but sizes
    expected = (
        "train has 48 tokens with the ends of lines, but train of wikitext-103 has 103,227,021"
    )
    assert expected in message(capsys.readouterr().err)


def test_other_archives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = write_zip(tmp_path / "a.zip", archive_files("wiki.{}.raw"))
    assert run(archive, tmp_path / "out") == 1
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    assert f"md5 {md5}, but the official wikitext-103-v1.zip" in message(capsys.readouterr().err)
    assert run(archive, tmp_path / "out", "--unchecked") == 1
    assert "has neither wiki.train.tokens nor train.txt" in message(capsys.readouterr().err)
    broken = write_zip(tmp_path / "b.zip", archive_files("{}.txt") | {"valid.txt": b"a\n \xe4\n"})
    assert run(broken, tmp_path / "out", "--unchecked") == 1
    assert "valid.txt, line 2: not UTF-8 at byte 2" in message(capsys.readouterr().err)


def test_the_vocabulary_is_checked() -> None:
    corpus = wikitext.CORPORA["wikitext-2"]
    wikitext.check_sizes(corpus, "wikitext-2", corpus.tokens, 33_278)
    with pytest.raises(
        wikitext.MemAttnError, match="33,277 words, but train of wikitext-2 has 33,278"
    ):
        wikitext.check_sizes(corpus, "wikitext-2", corpus.tokens, 33_277)


@pytest.mark.usefixtures("no_binarising")
@needs("wikitext-2")
def test_the_released_corpus_has_the_published_sizes(tmp_path: Path) -> None:
    argv = f"--corpus wikitext-2 --archive {REAL} --output {tmp_path / 'out'}"
    assert prepare(wikitext, argv.split()) == 0
    for split, articles in (("train", 600), ("valid", 60), ("test", 60)):
        assert (tmp_path / f"out/text/{split}.en").read_bytes() == (
            REAL / f"{split}.txt"
        ).read_bytes()
        assert len(Counter(lines(tmp_path / f"out/text/{split}.docid"))) == articles
