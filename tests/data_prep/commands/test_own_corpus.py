"""A user's own text to binary data in one command."""

import re
from itertools import product
from pathlib import Path

import pytest
import sentencepiece
from official_archives import lines, message
from preparing import prepare

from fairseq_memattn.data_prep.commands import own_corpus
from fairseq_memattn.export.prepared import find

NOUNS = {"house": "casa", "table": "mesa", "letter": "carta", "garden": "huerta"}
SIZES = (("old", "vieja"), ("new", "nueva"), ("small", "chica"))
TEXT = [
    (f"The {a}'s {size[0]} & well-made.", f"La {b} es {size[1]}.")
    for (a, b), size in product(NOUNS.items(), SIZES)
]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    for split, text in (("train", TEXT), ("dev", TEXT[:3])):
        for side, language in enumerate(("en", "es")):
            content = "".join(pair[side] + "\n" for pair in text)
            (folder / f"{split}.{language}").write_text(content, encoding="utf-8")
        docids = [f"doc {number // 2}" for number in range(len(text))]
        (folder / f"{split}.docid").write_text("".join(f"{x}\n" for x in docids))
    return folder


def run(mine: Path, *options: str, langs: str = "en es") -> int:
    argv = f"--text train={mine / 'train'} valid={mine / 'dev'} --langs {langs}"
    return prepare(
        own_corpus, [*argv.split(), "--output", str(mine / "data"), "--vocab-size", "30", *options]
    )


def test_one_command(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mine) == 0
    data = mine / "data"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(data / "spm.model"))
    for split, name in (("train", "train"), ("valid", "dev")):
        for language in ("en", "es"):
            text = lines(mine / f"{name}.{language}")
            assert lines(data / f"text/{split}.{language}") == text
            pieces = lines(data / f"pieces/{split}.{language}")
            assert [processor.decode(line.split()) for line in pieces] == text
        docids = (data / f"bin/{split}.en-es.docids").read_bytes()
        assert docids == (mine / f"{name}.docid").read_bytes()
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    assert run(mine) == 0
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before
    capsys.readouterr()
    assert run(mine, "--model-type", "bpe") == 1
    told = message(capsys.readouterr().err)
    assert f"made from other input or options (see {data}/stages/spm.json);" in told
    assert run(mine, "--seed", "2") == 1
    assert "or replace it with --force" in message(capsys.readouterr().err)


def test_shards_of_whole_documents_with_one_dictionary(mine: Path) -> None:
    assert run(mine, "--shards", "2") == 0
    shards = [mine / "data/bin" / number for number in "01"]
    ids = [lines(shard / "train.en-es.docids") for shard in shards]
    every = list(dict.fromkeys(lines(mine / "train.docid")))
    assert [list(dict.fromkeys(one)) for one in ids] == [every[::2], every[1::2]]
    assert sum(map(len, ids)) == len(TEXT)
    assert (shards[0] / "valid.en-es.en.bin").is_file()
    assert not (shards[1] / "valid.en-es.en.bin").exists()
    first, second = ((shard / "dict.es.txt").read_text() for shard in shards)
    assert first == second
    processor = sentencepiece.SentencePieceProcessor(model_file=str(mine / "data/spm.model"))
    words = {line.split()[0] for line in first.splitlines() if not line.startswith("madeup")}
    assert len(words) == processor.get_piece_size() - 3  # without <unk>, <s>, </s>


def test_a_sample_of_the_lines(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train", "dev"):
        (mine / f"{name}.docid").unlink()
    for path in (mine / "train.en", mine / "train.es"):
        path.write_text(20 * path.read_text(encoding="utf-8"), encoding="utf-8")
    assert run(mine, "--sample-lines", "150") == 0
    assert "learns from 150 of 480 lines" in capsys.readouterr().out


def test_pieces_of_two_corpora_in_lower_case_with_single_digits(mine: Path) -> None:
    more = mine / "more"
    more.write_text("Quiz 2024 2024 2024\n" * 9, encoding="utf-8")
    given = f"--more-text {more} --normalization nmt_nfkc_cf --split-digits --vocab-size 40"
    assert run(mine, *given.split()) == 0
    processor = sentencepiece.SentencePieceProcessor(model_file=str(mine / "data/spm.model"))
    pieces = processor.encode("QUIZ 2024", out_type=str)
    assert processor.unk_id() not in processor.piece_to_id(pieces)
    assert "".join(pieces) == "▁quiz▁2024" and [*"2024"] == pieces[-4:]


def test_a_part_without_document_ids_and_with_a_tag(mine, capsys):
    """Its sentences are documents of one, and its words are learnt."""
    for side, language in enumerate(("en", "es")):
        text = "".join(f"Quiz: {pair[side]}\n" for pair in TEXT)
        (mine / f"more.{language}").write_text(text, encoding="utf-8")
    parts = {"train1": "more", "valid": "dev", "train": "train"}
    given = [
        "--text",
        *(f"{split}={mine / name}" for split, name in parts.items()),
        "--tag",
        "train1=_bt",
        "--vocab-size",
        "40",
    ]
    assert run(mine, *given) == 0
    data = mine / "data"
    assert lines(data / "text/train1.en") == [f"_bt Quiz: {pair[0]}" for pair in TEXT]
    assert lines(data / "text/train1.es") == [f"Quiz: {pair[1]}" for pair in TEXT]
    assert all(line.startswith("\u2581_bt \u2581") for line in lines(data / "pieces/train1.en"))
    assert "\u2581_bt 12" in lines(data / "bin/dict.es.txt")
    told = capsys.readouterr().err
    assert "train1.es: 12 sentences" in told and "dictionary lacks" not in told
    assert lines(data / "bin/train1.en-es.docids") == [str(n) for n in range(1, 13)]
    assert lines(data / "bin/train.en-es.docids") == lines(mine / "train.docid")
    for options, said in (
        (["--tag", "test=_bt"], "--tag names test, which --text does not have"),
        (["--shards", "2"], "--shards is for a training set of one part"),
        (["--text", f"train={mine / 'more'}", *given[1:3]], "more.docid: no such file, but"),
    ):
        assert run(mine, *given, *options, "--output", str(mine / "none")) == 1
        assert said in message(capsys.readouterr().err)


def test_the_vocabulary_of_another_model(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of one for both sides, then one a side; a model and a dictionary that differ are refused."""
    assert run(mine) == 0
    data, old = mine / "data", (mine / "data").rename(mine / "old")
    (mine / "dev.en").write_text(
        "The old house.\nThe letter \u9f98.\nThe small.\n", encoding="utf-8"
    )
    spm, dictionary = old / "spm.model", old / "bin/dict.en.txt"
    for count in (1, 2):
        options = ["--sentencepiece-model", *count * [str(spm)], "--dictionary"]
        capsys.readouterr()
        assert run(mine, *options, *count * [str(dictionary)], "--force") == 0
        told = capsys.readouterr().err
        assert re.search(r"valid.en: 3 sentences, \d+ tokens, [1-5]\.\d+% of them <unk>", told)
        for language in ("en", "es"):
            assert (data / f"bin/dict.{language}.txt").read_bytes() == dictionary.read_bytes()
            for kind in ("bin", "idx"):
                name = f"bin/train.en-es.{language}.{kind}"
                assert (data / name).read_bytes() == (old / name).read_bytes()
        docids = (data / "bin/train.en-es.docids").read_bytes()
        assert docids == (mine / "train.docid").read_bytes()
        found = find(data / "bin", {"src": "en", "tgt": "es"}).files()
        names = ["spm.model"] if count == 1 else ["spm.en.model", "spm.es.model"]
        assert found == [data / name for name in names]
    (mine / "other").write_text("".join(f"{word} 1\n" for word in ("house", "casa")))
    for options, told in (
        ([str(mine / "other")], "other and --sentencepiece-model"),
        ([str(dictionary), str(mine / "other"), "x"], "must be one file, or one for each of --lan"),
    ):
        given = ["--sentencepiece-model", str(spm), "--dictionary", *options]
        assert run(mine, *given, "--output", str(mine / "none")) == 1
        assert told in message(capsys.readouterr().err)
    assert run(mine, "--dictionary", str(dictionary), "--output", str(mine / "none")) == 1
    assert "--dictionary needs --sentencepiece-model" in message(capsys.readouterr().err)
    assert not (mine / "none").exists()


def test_document_ids_that_are_gone_are_not_kept(mine: Path) -> None:
    assert run(mine) == 0
    for path in mine.glob("*.docid"):
        path.unlink()
    assert run(mine) == 1
    assert run(mine, "--force") == 0
    assert not list((mine / "data").rglob("*.docid*"))


def test_splits_that_are_gone_are_not_kept(mine: Path) -> None:
    text = [f"{split}={mine / name}" for split, name in (("train", "train"), ("valid", "dev"))]
    assert run(mine, "--text", *text, f"test={mine / 'dev'}") == 0
    assert run(mine) == 1
    assert list((mine / "data").rglob("*test.*"))
    assert run(mine, "--force") == 0
    assert not list((mine / "data").rglob("*test*"))
    assert run(mine) == 0


def test_tokenised_text_of_one_language(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without document ids, and with an empty line, which may stand between paragraphs."""
    calls = []
    monkeypatch.setattr(
        "fairseq_memattn.data_prep.pipeline.text_to_binary.binarise",
        lambda *args, **_: calls.append(args),
    )
    for name in ("train", "dev"):
        (mine / f"{name}.docid").unlink()
    with open(mine / "dev.en", "a") as file:
        file.write("\nThe end.\n")
    assert run(mine, "--tokenise", langs="en") == 0
    tokens = lines(mine / "data/tokens/valid.en")
    assert tokens[0] == "The house &apos;s old &amp; well @-@ made ."
    assert tokens[3:] == ["", "The end ."]
    assert [len(lines(path)) for path in sorted((mine / "data/pieces").iterdir())] == [12, 5]
    [(text, languages, output)] = calls
    assert text == {"train": mine / "data/pieces/train", "valid": mine / "data/pieces/valid"}
    assert (languages, output) == (("en",), mine / "data/bin")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("dev.es", "a\n\nb\n", "dev.es, line 2: the line is empty"),
        ("dev.docid", "1\n2\n1\n", "dev.docid, line 3: document id '1' began at line 1"),
        ("train.es", None, "--text train={0}/train: {0}/train.es: no such file"),
    ],
)
def test_mistakes(name, content, expected, mine, capsys):
    path = mine / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert run(mine) == 1
    assert expected.format(mine) in message(capsys.readouterr().err)
    assert not (mine / "data").exists()


def test_the_users_own_files_are_never_overwritten(mine, capsys):
    text = mine.rename(mine.with_name("text"))
    before = {path: path.read_bytes() for path in text.iterdir()}
    argv = f"--text train={text / 'train'} valid={text / 'dev'} --langs en es"
    assert prepare(own_corpus, [*argv.split(), "--output", str(text.parent)]) == 1
    assert "train.en: the output would overwrite an input" in message(capsys.readouterr().err)
    assert {path: path.read_bytes() for path in text.iterdir()} == before
