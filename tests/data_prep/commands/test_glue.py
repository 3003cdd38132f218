"""GLUE: from the official layouts to what fairseq's sentence_prediction task trains on."""

import argparse
import re
from collections import Counter
from pathlib import Path

import pytest
import sentencepiece
from official_archives import lines, tree, write_zip
from preparing import prepare, write_gpt2_files

from fairseq_memattn.data_prep.commands import glue
from fairseq_memattn.data_prep.pipeline import pretrained_subwords
from fairseq_memattn.data_prep.pipeline.pretrained_subwords import (
    Subwords,
    add_subword_arguments,
    find_subwords,
)
from fairseq_memattn.data_prep.pipeline.text_to_binary import check_published
from fairseq_memattn.data_prep.text import subword
from fairseq_memattn.errors import MemAttnError

MNLI_START = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
MNLI_START += "sentence1_parse sentence2_parse sentence1 sentence2"
HEADERS = {
    "MNLI/train.tsv": f"{MNLI_START} label1 gold_label",
    "MNLI/dev": f"{MNLI_START} label1 label2 label3 label4 label5 gold_label",
    "QNLI": "index question sentence label",
    "QQP": "id qid1 qid2 question1 question2 is_duplicate",
    "SST-2": "sentence label",
}
PREMISES = ['He said "the house is old.', "The house is théere", 'The "houses', "In the house"]
HYPOTHESES = ["It's the\u2028house", "the is", 'A "house"', "The house is the 2nd."]


def examples(name: str, count: int) -> list[tuple[str, ...]]:
    """Sentences and labels of a task."""
    task = glue.TASKS[name]
    sentences = (PREMISES, HYPOTHESES)[: len(task.sentences)]
    return [
        (*(f"{texts[i % 4]} {i}" for texts in sentences), task.labels[i % len(task.labels)])
        for i in range(count)
    ]


def table(name: str, file: str, rows: list[tuple[str, ...]]) -> str:
    """A file of a task, with what its other columns hold."""
    header = next(header for start, header in HEADERS.items() if f"{name}/{file}".startswith(start))
    task = glue.TASKS[name]
    columns = [*task.sentences, task.label]
    written = [header.replace(" ", "\t")]
    for number, row in enumerate(rows):
        fields = dict(zip(columns, row, strict=True))
        others = {"index": str(number), "id": str(number), "label1": "entailment"}
        written.append("\t".join(fields.get(c, others.get(c, "( x )")) for c in header.split()))
    return "\n".join(written) + "\n"


def archive_files(name: str) -> dict[str, str | bytes]:
    """What the archive of a task holds, test sets and other things included."""
    files: dict[str, str | bytes] = {
        f"{name}/{file}": table(name, file, examples(name, 9 if split == "train" else 5))
        for split, file in glue.TASKS[name].files.items()
    }
    return files | {
        f"{name}/test.tsv": "index\tsentence\n",
        f"__MACOSX/{name}/._train.tsv": b"\0",
        f"{name}/original/train.txt": "gold_label\n",
    }


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gpt2_files(tmp_path_factory.mktemp("gpt2") / "bpe")


@pytest.fixture(scope="module")
def mnli(gpt2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mnli")
    archive = write_zip(folder / "MNLI.zip", archive_files("MNLI"))
    assert run("MNLI", archive, folder / "out", gpt2) == 0
    return folder / "out"


def run(
    name: str, archive: Path, output: Path, gpt2: Path | None, *more: str, checked: bool = False
) -> int:
    argv = ["--task", name, "--archive", str(archive), "--output", str(output), *more]
    argv += [] if gpt2 is None else ["--gpt2-bpe-dir", str(gpt2)]
    return prepare(glue, argv if checked else [*argv, "--unchecked"])


# ------------------------------------------------------------------------------------ fairseq


@pytest.mark.parametrize(("split", "count"), [("train", 9), ("valid", 5), ("valid1", 5)])
def test_fairseq_reads_what_went_in(split: str, count: int, mnli: Path, gpt2: Path) -> None:
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
    from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

    bpe = get_encoder(str(gpt2 / "encoder.json"), str(gpt2 / "vocab.bpe"))
    config = SentencePredictionConfig(
        data=str(mnli / "bin"), num_classes=3, init_token=0, separator_token=2, no_shuffle=True
    )
    config.regression_target, config.seed = False, 1
    task = SentencePredictionTask.setup_task(config)
    read = []
    for item in task.load_dataset(split):
        start, *tokens, end = item["net_input.src_tokens"].tolist()
        middle = tokens.index(2)
        assert (start, tokens[middle : middle + 2], end) == (0, [2, 2], 2)
        assert task.dictionary.unk() not in tokens
        numbers = [[int(task.dictionary[t]) for t in part] for part in split_at(tokens, middle)]
        assert numbers[0] == bpe.encode(bpe.decode(numbers[0]))
        label = glue.TASKS["MNLI"].labels[item["target"].item()]
        read.append((*map(bpe.decode, numbers), label))
    assert read == examples("MNLI", count)
    labels = ["contradiction 1", "neutral 1", "entailment 1"]  # numbered as in roberta.large.mnli
    assert lines(mnli / "bin/label/dict.txt") == labels


def split_at(tokens: list[int], middle: int) -> tuple[list[int], list[int]]:
    return tokens[:middle], tokens[middle + 2 :]


# ------------------------------------------------------------------------------------- layouts


@pytest.mark.usefixtures("no_binarising")
@pytest.mark.parametrize("name", ["QNLI", "QQP", "SST-2"])
@pytest.mark.parametrize("inside", [True, False])
def test_text_is_what_was_released(name: str, inside: bool, gpt2: Path, tmp_path: Path) -> None:
    """In a folder of several tasks, as GLUE's download script leaves it, and in the task's own."""
    folder = tmp_path / "glue"
    for task in (name, "RTE"):
        (folder / task).mkdir(parents=True)
        for path, content in archive_files(name).items():
            if path.endswith((f"{name}/train.tsv", f"{name}/dev.tsv")):
                (folder / task / Path(path).name).write_text(str(content), encoding="utf-8")
    archive, output = folder / name if not inside else folder, tmp_path / "out"
    assert run(name, archive, output, gpt2) == 0
    for split, count in (("train", 9), ("valid", 5)):
        columns = list(zip(*examples(name, count), strict=True))
        parts = [*(f"input{i}" for i in range(len(columns) - 1)), "label"]
        for part, column in zip(parts, columns, strict=True):
            assert lines(output / f"text/{split}.{part}") == list(column)
        assert not (output / f"text/{split}.input{len(parts) - 1}").exists()
    labels = [line.removesuffix(" 1") for line in lines(output / "labels.txt")]
    assert tuple(labels) == glue.TASKS[name].labels


@pytest.mark.usefixtures("no_binarising")
def test_rows_of_qqp_that_are_broken(gpt2, tmp_path, capsys):
    files = archive_files("QQP")
    broken = '9\t1\t2\tWhat is\n"\tthe house?\t0\n9\t1\t2\ta\tb\tc\t1\n9\t1\t2\t\tb\r!\t1\n'
    files["QQP/train.tsv"] = str(files["QQP/train.tsv"]) + broken
    archive = write_zip(tmp_path / "QQP.zip", files)
    assert run("QQP", archive, tmp_path / "out", gpt2) == 0
    assert (
        "text-train: 10 examples, 3 rows with more or fewer fields than the header left out, "
        "1 control characters replaced by spaces, 1 examples with an empty sentence, kept\n"
    ) in capsys.readouterr().out
    for part, last in (("input0", ""), ("input1", "b !"), ("label", "1")):
        assert lines(tmp_path / f"out/text/train.{part}")[9] == last
    assert lines(tmp_path / "out/pieces/train.input0")[9] == ""


WRONG_TABLES = [
    (b"sentence\tclass\n", "line 1: no column label in the header 'sentence class'"),
    (b"sentence\tlabel\nGood\tyes\n", "line 2: the label must be one of 0, 1, but is 'yes'"),
    (b"sentence\tlabel\nCaf\xe9\t1\n", "line 2: not UTF-8 at byte 4 of the line"),
]


def test_files_that_are_not_as_they_should_be(tmp_path: Path) -> None:
    for content, expected in WRONG_TABLES:
        (tmp_path / "train.tsv").write_bytes(content)
        with pytest.raises(MemAttnError, match=expected):
            list(glue.examples(glue.TASKS["SST-2"], tmp_path / "train.tsv", Counter()))
    check_published("train", 1, "examples", "train of SST-2", [1, 2])
    with pytest.raises(MemAttnError, match="train has 3 examples, but train of SST-2 has 1 or 2;"):
        check_published("train", 3, "examples", "train of SST-2", [1, 2])


# -------------------------------------------------------------------------------------- pieces


def options(**given: Path | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_subword_arguments(parser)
    return argparse.Namespace(**vars(parser.parse_args([])) | given)


def pieces_of(gpt2: Path | None, downloads: Path) -> Subwords:
    return find_subwords(options(gpt2_bpe_dir=gpt2), downloads)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece model, and a dictionary that lacks one of its pieces."""
    folder = tmp_path_factory.mktemp("own")
    text = folder / "text"
    text.write_text("\n".join(PREMISES + HYPOTHESES[2:]) + "\n", encoding="utf-8")
    subword.train([text], folder / "spm", subword.Training(30))
    pieces = [line.split("\t")[0] for line in lines(folder / "spm.vocab")[3:]]
    kept = [piece for piece in pieces if piece != "▁"]
    (folder / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in kept), encoding="utf-8")
    for name, content in {"twice": "a 1\na 2\n", "own": "a 1\n<s> 1\n", "empty": ""}.items():
        (folder / name).write_text(content)
    return folder


@pytest.mark.usefixtures("no_binarising")
def test_pieces_of_a_model_of_ones_own(own, tmp_path, capsys):
    archive = write_zip(tmp_path / "SST-2.zip", archive_files("SST-2"))
    options = ["--sentencepiece-model", str(own / "spm.model")]
    options += ["--dictionary", str(own / "dict.txt")]
    assert run("SST-2", archive, tmp_path / "out", None, *options) == 0
    processor = sentencepiece.SentencePieceProcessor(model_file=str(own / "spm.model"))
    pieces = [line.split() for line in lines(tmp_path / "out/pieces/train.input0")]
    text = lines(tmp_path / "out/text/train.input0")
    assert [processor.decode(line) for line in pieces] == text
    words = {line.split()[0] for line in lines(own / "dict.txt")}
    unknown = sum(piece not in words for line in pieces for piece in line)
    assert unknown > 0
    expected = f"pieces, {unknown} of them not in the dictionary (<unk>)\npieces-valid-input0"
    assert expected in capsys.readouterr().out


def test_robertas_pieces_are_fetched(gpt2, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained_subwords, "HOST", gpt2.as_uri())
    fetched = pieces_of(None, tmp_path / "archives")
    assert tree(tmp_path / "archives") == tree(gpt2)
    assert fetched.dictionary == tmp_path / "archives/dict.txt"
    assert fetched.make()("house") == pieces_of(gpt2, tmp_path).make()("house")


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("dict.txt", "0 1\n", "bpe/dict.txt: has no 7, the number of the piece"),
        ("vocab.bpe", "#\nt h\nh o\n", "encoder.json: has no piece 'ho', which bpe/vocab.bpe"),
    ],
)
def test_broken_gpt2_files(file, content, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_gpt2_files(Path("bpe")) / file
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(MemAttnError, match=re.escape(expected)):
        pieces_of(Path("bpe"), tmp_path).make()("house")


WRONG_PIECES = [
    ("spm.model", None, "needs --dictionary"),
    (None, "dict.txt", "--dictionary requires --sentencepiece-model"),
    ("spm.model", "spm.vocab", "spm.vocab, line 1: must be a symbol, a space and a count"),
    ("spm.model", "twice", "line 2: 'a' occurs twice;"),
    ("spm.model", "own", "'<s>' is one of fairseq's own"),
]


def test_options_that_do_not_go_together(own: Path, tmp_path: Path) -> None:
    for model, dictionary, expected in WRONG_PIECES:
        paths = [name and own / name for name in (model, dictionary)]
        args = options(sentencepiece_model=paths[0], dictionary=paths[1])
        with pytest.raises(MemAttnError, match=expected):
            find_subwords(args, tmp_path)
