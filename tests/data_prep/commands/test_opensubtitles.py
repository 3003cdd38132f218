"""Voita et al.'s subtitles: sentences and groups of four, with one dictionary for both."""

from pathlib import Path

import pytest
import sentencepiece
from official_archives import lines, message, write_zip
from preparing import prepare

from fairseq_memattn.data_prep.commands import opensubtitles_en_ru

SPLITS = {"train": "train", "valid": "dev", "test": "test"}
ENGLISH = ["Hello there .", "I saw a cat .", "The cat was hungry .", "I fed the cat ."]
RUSSIAN = ["Привет .", "Я видел кота .", "Кот был голодный .", "Я покормил кота ."]


def group(sentences: list[str], shift: int = 0) -> str:
    """Four sentences on a line."""
    return " _eos ".join(sentences[shift:] + sentences[:shift])


def archive_files() -> dict[str, str | bytes]:
    """The files of the archive; one group and one pair to train on have an empty sentence."""
    files: dict[str, str | bytes] = {"__MACOSX/data_to_publish/context_aware/._en_dev": b"\x00"}
    for language, sentences in (("en", ENGLISH), ("ru", RUSSIAN)):
        broken = ["", *sentences[1:]] if language == "ru" else sentences
        for split in SPLITS.values():
            groups = [group(sentences), group(sentences, 1)]
            groups[1:1] = [group(broken)] if split == "train" else []
            single = [*sentences, *broken] if split == "train" else sentences
            for name, content in (("agnostic", single), ("aware", groups)):
                path = f"data_to_publish/context_{name}/{language}_{split}"
                files[path] = "\n".join(content) + "\n"
    return files


def argv(archive: Path, output: Path, *options: str, subwords: str = "") -> list[str]:
    given = f"--archive {archive} --output {output} {subwords or '--bpe-merges 25'}"
    return [*given.split(), *options]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_zip(tmp_path_factory.mktemp("voita") / "acl19.zip", archive_files())


@pytest.fixture(scope="module")
def corpus(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("opensubtitles") / "out"
    assert prepare(opensubtitles_en_ru, argv(archive, output)) == 0
    return output


@pytest.mark.parametrize(("language", "sentences"), [("en", ENGLISH), ("ru", RUSSIAN)])
@pytest.mark.parametrize("split", SPLITS)
def test_groups_become_documents(corpus, language, sentences, split):
    text = corpus / "context_aware/text"
    assert lines(text / f"{split}.{language}") == sentences + sentences[1:] + sentences[:1]
    last = "3" if split == "train" else "2"  # the second group to train on is left out
    assert lines(text / f"{split}.docid") == ["1"] * 4 + [last] * 4
    sentence_level = lines(corpus / f"context_agnostic/text/{split}.{language}")
    assert sentence_level == (sentences + sentences[1:] if split == "train" else sentences)


def test_pieces_know_no_separator(corpus: Path) -> None:
    for path in corpus.glob("*/pieces/*.*"):
        if path.suffix != ".docid":
            text = lines(path.parents[1] / "text" / path.name)
            assert [line.replace("@@ ", "") for line in lines(path)] == text
            assert not any("_eos" in line for line in text)


def test_both_sets_share_one_dictionary(corpus: Path) -> None:
    found = {path.read_bytes() for path in corpus.glob("*/bin/dict.*.txt")}
    assert len(found) == 1
    assert lines(corpus / "context_aware/bin/train.en-ru.docids") == ["1"] * 4 + ["3"] * 4
    # The fifth pair to train on is left out.
    assert lines(corpus / "context_agnostic/bin/train.en-ru.docids") == [*"1234678"]


def test_sentencepiece_of_each_language(archive: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert prepare(opensubtitles_en_ru, argv(archive, output, subwords="--sentencepiece 27")) == 0
    agnostic, aware = (output / f"context_{name}" for name in ("agnostic", "aware"))
    for language, other in (("en", "ru"), ("ru", "en")):
        model = str(agnostic / f"spm.{language}.model")
        processor = sentencepiece.SentencePieceProcessor(model_file=model)
        assert len(processor) == 27
        for folder in (agnostic, aware):
            text = lines(folder / f"text/train.{language}")
            pieces = lines(folder / f"pieces/train.{language}")
            assert pieces == [" ".join(processor.encode(line, out_type=str)) for line in text]
            assert [processor.decode(line.split()) for line in pieces] == text
        words = {
            piece for line in lines(agnostic / f"pieces/train.{language}") for piece in line.split()
        }
        entries = lines(agnostic / f"bin/dict.{language}.txt")
        assert {entry.split()[0] for entry in entries if "madeupword" not in entry} == words
        assert entries == lines(aware / f"bin/dict.{language}.txt")
        assert entries != lines(aware / f"bin/dict.{other}.txt")


@pytest.mark.usefixtures("no_binarising")
def test_options(archive, tmp_path):
    renamed = {
        name.removeprefix("data_to_publish/context_").replace("_", "."): content
        for name, content in archive_files().items()
        if not name.startswith("__")
    }
    other = write_zip(tmp_path / "other.zip", {f"context_{n}": t for n, t in renamed.items()})
    output = tmp_path / "out"
    options = ["--layout", "{set}/{language}.{split}", "--bpe", "each", "--lowercase"]
    assert prepare(opensubtitles_en_ru, argv(other, output, *options)) == 0
    assert lines(output / "context_aware/text/valid.ru")[:4] == [line.lower() for line in RUSSIAN]
    codes = [(output / f"context_agnostic/codes.{x}").read_text("utf-8") for x in ("en", "ru")]
    assert "c a" in codes[0] and "к о" not in codes[0]
    assert "к о" in codes[1] and "c a" not in codes[1]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("One . _eos Two .", "en_dev|valid.en, line 1: 2 sentences joined by _eos, but a group"),
        (group([*ENGLISH, "Five ."]), "line 1: 5 sentences joined by _eos"),
    ],
)
def test_groups_of_another_size(line, expected, tmp_path, capsys):
    files = archive_files() | {"data_to_publish/context_aware/en_dev": f"{line}\n{line}\n"}
    archive = write_zip(tmp_path / "broken.zip", files)
    assert prepare(opensubtitles_en_ru, argv(archive, tmp_path / "out")) == 1
    assert expected.split("|")[-1] in message(capsys.readouterr().err)
