"""Data that is damaged or of another dictionary is refused."""

import re
import shutil

import numpy as np
import pytest
import torch
from fairseq import utils
from fairseq.data import Dictionary, data_utils
from harness import LANGUAGE_MODEL, PLUGGED, attempt, run

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.correctness import data_files

TEXT = "a b c\nb\nc c a b a\n\na\n"


@pytest.fixture(scope="module")
def dictionary():
    words = Dictionary()
    for word in "abc":
        words.add_symbol(word)
    return words


@pytest.fixture
def data(dictionary, tmp_path):
    """Five binarised sentences."""
    from fairseq.binarizer import FileBinarizer, VocabularyDatasetBinarizer

    (tmp_path / "text").write_text(TEXT, encoding="utf-8")
    FileBinarizer.multiprocess_dataset(
        str(tmp_path / "text"),
        "mmap",
        VocabularyDatasetBinarizer(dictionary),
        str(tmp_path / "train"),
        len(dictionary),
    )
    return tmp_path / "train"


def load(data, dictionary):
    return list(data_utils.load_indexed_dataset(str(data), dictionary))


def fault(data, dictionary):
    with pytest.raises((MemAttnError, AssertionError)) as info:  # fairseq's own, of the format
        load(data, dictionary)
    return str(info.value)


@pytest.mark.parametrize("damage", [b"", b"hello world\n" * 9, "half", "one byte less", "one more"])
@pytest.mark.parametrize("kind", ["bin", "idx"])
def test_a_file_of_another_size_or_format(kind, damage, data, dictionary):
    path = data.with_suffix(f".{kind}")
    whole = path.read_bytes()
    damages = {"half": whole[: len(whole) // 2], "one byte less": whole[:-1]}
    damages["one more"] = whole + b"\0"
    path.write_bytes(damage if isinstance(damage, bytes) else damages[damage])
    assert fault(data, dictionary).startswith((f"{path} ", "Index file doesn't match"))


def test_a_changed_byte_of_the_index_is_found(data, dictionary):
    """Whatever byte it is, and whatever blocks the index is checked in."""
    path = data.with_suffix(".idx")
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert fault(data, dictionary), place
    path.write_bytes(whole)
    assert [len(sentence) for sentence in load(data, dictionary)] == [4, 2, 6, 1, 2]


@pytest.mark.parametrize("block", [1, 5])
def test_blocks(block, data, dictionary, monkeypatch):
    monkeypatch.setattr(data_files, "BLOCK", block)
    assert len(load(data, dictionary)) == 5
    tokens = np.fromfile(data.with_suffix(".bin"), np.uint16)
    tokens[9] = 7  # of the third sentence
    tokens.tofile(data.with_suffix(".bin"))
    assert fault(data, dictionary) == (
        f"{data}.bin, sentence 3 has the token 7, but the dictionary has 7 symbols: the data was "
        "binarised with another dictionary"
    )


def test_data_have_no_symbol_that_a_task_adds(data, dictionary, tmp_path):
    dictionary.save(str(tmp_path / "dict.txt"))
    read = Dictionary.load(str(tmp_path / "dict.txt"))
    separator = read.add_symbol("_eos")
    assert len(load(data, read)) == 5
    tokens = np.fromfile(data.with_suffix(".bin"), np.uint16)
    tokens[0] = separator
    tokens.tofile(data.with_suffix(".bin"))
    assert "sentence 1 has the token 7, but the dictionary has 7 symbols" in fault(data, read)


def test_no_sentences(data, dictionary):
    header = data_files.HEADER.pack(data_files.MAGIC, 1, 8, 0)
    data.with_suffix(".idx").write_bytes(header)
    data.with_suffix(".bin").write_bytes(b"")
    assert fault(data, dictionary) == f"{data}.bin must have sentences, but has none"


@pytest.mark.parametrize("command", ["fairseq-train", "memattn"])
def test_commands(command, language_model, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(language_model.data, data)
    split = data / ("train" if command == "fairseq-train" else "test")
    split.with_suffix(".bin").write_bytes(b"")
    path = ["--path", language_model.checkpoint]
    flags = {
        "fairseq-train": [data, *LANGUAGE_MODEL, "--save-dir", tmp_path / "saved"],
        "fairseq-eval-lm": [data, *PLUGGED, *path],
        "memattn": ["perplexity", data, *path, "--context-window", 4],
    }
    done = attempt(command, *flags[command])
    assert done.returncode == 1
    assert f"error: {split}.bin must have the" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "saved").exists() or not list((tmp_path / "saved").iterdir())


@pytest.mark.parametrize(
    ("file", "joined", "expected"),
    [
        ({}, None, "a Zoë b Bob@@"),
        ({"Bob@@": "Rob"}, None, "a Zoë b Rob"),
        ({}, "subword_nmt", "a Zoë b Bob"),
    ],
)
def test_unknown_words_are_replaced(file, joined, expected):
    """By the source word, or by its translation in a file, before pieces are joined."""
    known = Dictionary()
    a, b = known.add_symbol("a"), known.add_symbol("b")
    tokens = torch.tensor([a, known.unk(), b, known.unk(), known.eos()])
    pairs = [(2, 0), (0, 1), (2, 2), (1, 3)]  # (source, target)
    _, text, alignment = utils.post_process_prediction(
        hypo_tokens=tokens, src_str="Zoë Bob@@ c", alignment=pairs, align_dict=file, tgt_dict=known,
        remove_bpe=joined,
    )  # fmt: skip
    assert (text, alignment) == (expected, pairs)
    assert tokens.tolist() == [a, known.unk(), b, known.unk(), known.eos()]
    _, text, _ = utils.post_process_prediction(tokens, "Zoë", torch.empty(0), None, known)
    assert text == "a <unk> b <unk>"


def test_a_file_of_replacements(tmp_path):
    (tmp_path / "words").write_text("xyzzy plugh\n", encoding="utf-8")
    assert utils.load_align_dict(str(tmp_path / "words")) == {"xyzzy": "plugh"}
    assert utils.load_align_dict("@@ ") == {}


@pytest.mark.full
@pytest.mark.parametrize("more", [[], ["--print-alignment", "--nbest", 2]])
def test_commands_replace_unknown_words(more, translator, tmp_path):
    """All lines, where unknown words have the best scores."""
    text = tmp_path / "text"
    text.mkdir()
    for side in ("en", "ru"):
        shutil.copy(translator.data / f"dict.{side}.txt", text)
        lines = [f"xyzzy{number} the" for number in range(5)]
        (text / f"test.en-ru.{side}").write_text("".join(f"{x}\n" for x in lines), "utf-8")
    flags = ["--path", translator.checkpoint, "--replace-unk", *more, "--unkpen", -100]
    flags += ["--max-len-b", 4, "--max-len-a", 0]
    done = run("fairseq-generate", text, *PLUGGED, *flags, "--dataset-impl", "raw")
    found = re.findall(r"^H-(\d+)\t\S+\t(.*)$", done.stdout, re.MULTILINE)
    assert len(found) == 5 * (2 if more else 1)
    assert "<unk>" not in str(found) and any("xyzzy" in words for _, words in found)
    done = run("fairseq-interactive", translator.data, *PLUGGED, *flags, stdin="the\n")
    assert re.search(r"^H-0\t\S+\tthe the", done.stdout, re.MULTILINE)
