"""Text in shards, as fairseq's masked_lm task reads it."""

from itertools import groupby
from pathlib import Path

import pytest
from official_archives import lines
from preparing import prepare, write_gpt2_files

from fairseq_memattn.data_prep.commands import mlm_text
from fairseq_memattn.data_prep.pipeline import text_to_binary

DOCUMENTS = [
    [f'The "house" number {number} is old.', *["It is in the garden, thée!"] * (number % 3)]
    for number in range(12)
]
VALID = [["The house is here."], ["The others, too.", "Is it?"]]


def joined(documents: list[list[str]], between: str = "\n") -> str:
    return between.join("".join(f"{line}\n" for line in document) for document in documents)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    files = {"a.txt": joined(DOCUMENTS[:5], "\n \n\n"), "b.txt": "\n" + joined(DOCUMENTS[5:])}
    for name, text in (files | {"valid.txt": joined(VALID)}).items():
        (folder / name).write_text(text, encoding="utf-8")
    write_gpt2_files(folder / "bpe")
    return folder


def run(texts: Path, output: Path, *options: str) -> int:
    argv = f"--train {texts}/a.txt {texts}/b.txt --valid {texts}/valid.txt --output {output}"
    return prepare(mlm_text, [*argv.split(), "--gpt2-bpe-dir", str(texts / "bpe"), *options])


@pytest.fixture(scope="module")
def corpus(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("corpus") / "out"
    assert run(texts, output, "--shards", "2") == 0
    return output


def documents(text: list[str]) -> list[list[str]]:
    return [list(group) for full, group in groupby(text, key=bool) if full]


def test_every_document_is_in_one_shard(corpus: Path) -> None:
    shards = [documents(lines(corpus / f"text/train{number}.txt")) for number in range(2)]
    assert all(shards)
    assert sorted(shards[0] + shards[1]) == sorted(DOCUMENTS)
    for shard in shards:
        assert shard == [document for document in DOCUMENTS if document in shard]
    assert lines(corpus / "text/valid.txt") == [*VALID[0], "", *VALID[1], ""]


def test_fairseq_reads_what_went_in(corpus: Path, texts: Path) -> None:
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
    from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

    bpe = get_encoder(str(texts / "bpe/encoder.json"), str(texts / "bpe/vocab.bpe"))
    data = f"{corpus}/bin/0:{corpus}/bin/1"
    task = MaskedLMTask.setup_task(MaskedLMConfig(data=data, tokens_per_sample=64))
    for split, epoch, name in (("train", 1, "train0"), ("train", 2, "train1"), ("valid", 1, None)):
        tokens = [
            token
            for block in task._load_dataset_split(split, epoch, combine=False)
            for token in block.tolist()[1:]  # <s>
        ]
        ends = [number for number, token in enumerate(tokens) if token == task.dictionary.eos()]
        starts = [0, *(end + 1 for end in ends)]
        text = [
            bpe.decode([int(task.dictionary[token]) for token in tokens[start:end]])
            for start, end in zip(starts, ends, strict=False)
        ]
        assert text == lines(corpus / f"text/{name or split}.txt")


def test_berts_pieces(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `memattn import-bert` names them, in its dictionary."""
    pytest.importorskip("tokenizers", reason="BERT's pieces")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the house is her ##e .".split()]
    (tmp_path / "vocab.txt").write_text("".join(f"{name}\n" for name in names))
    (tmp_path / "dict.txt").write_text("".join(f"{name} 1\n" for name in names[5:]))
    argv = f"--train {texts}/a.txt --valid {texts}/valid.txt --output {tmp_path}/out".split()
    vocabulary = ["--bert-vocab", f"{tmp_path}/vocab.txt"]
    words = ["--dictionary", f"{tmp_path}/dict.txt"]
    assert prepare(mlm_text, [*argv, *vocabulary, *words]) == 0
    assert lines(tmp_path / "out/pieces/valid.txt")[0] == "the house is her ##e ."
    assert prepare(mlm_text, [*argv, *vocabulary, *words, "--cased"]) == 1
    capsys.readouterr()
    assert prepare(mlm_text, [*argv, *vocabulary, *words, "--cased", "--force"]) == 0
    assert lines(tmp_path / "out/pieces/valid.txt")[0] == "<unk> house is her ##e ."
    for options, told in (
        (vocabulary, "--bert-vocab requires --dictionary"),
        ([*words, "--cased"], "--cased requires --bert-vocab"),
        (words, "--dictionary requires --sentencepiece-model or --bert-vocab"),
    ):
        assert prepare(mlm_text, [*argv, *options, "--force"]) == 1
        assert told in capsys.readouterr().err


def test_the_seed_and_the_processes(texts, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(text_to_binary, "binarise", lambda *_, **__: True)
    again, other = tmp_path / "again", tmp_path / "other"
    assert run(texts, again, "--shards", "2", "--workers", "2") == 0
    assert run(texts, other, "--shards", "2", "--seed", "2") == 0
    for kind in ("text", "pieces"):
        expected, same, differs = (
            folder / kind / "train1.txt" for folder in (corpus, again, other)
        )
        assert same.read_bytes() == expected.read_bytes() != differs.read_bytes()


def test_shards_that_are_gone_are_not_kept(texts: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert run(texts, output, "--shards", "2") == 0
    assert run(texts, output) == 1
    assert (output / "bin/1/train.bin").exists()
    assert run(texts, output, "--force") == 0
    assert sorted(path.name for path in (output / "bin").iterdir()) == ["0"]
    assert not list(output.rglob("*train1*"))
    assert run(texts, output) == 0
