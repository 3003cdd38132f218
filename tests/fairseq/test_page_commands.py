"""The commands of a page run, one after another, as they are written there."""

import os
import re
import shlex
import shutil
from itertools import groupby

import pytest
from harness import PLUGIN, ROOT, attempt, lines_of

from fairseq_memattn.cli import main
from fairseq_memattn.evaluation.text_columns import table_lines

DATA = "docs/data.md"
# Sizes and updates with which the commands take seconds.
SMALLER = {
    "docs/language_models.md": {
        "--vocab-size": "120",
        "--max-update": "2",
        "--warmup-updates": "1",
        "--decoder-layers": "1",
        "--tokens-per-sample": "64",
        "--max-len-b": "3",
    },
    "README.md": {},
    DATA: {"--train-docs": "60", "--vocab-size": "300"},
}


def blocks(page: str, start: str = "") -> list[tuple[str, str]]:
    """Language and code of the blocks of a page that contain a text."""
    text = (ROOT / page).read_text("utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    return [(language, code) for language, code in found if start in code]


def outputs_of(page, chosen, folder):
    """The output of all commands of blocks, none of which fails."""
    done = []
    for language, code in chosen:
        if language:
            (folder / "script.py").write_text(code, "utf-8")
            done.append(attempt(str(folder / "script.py"), cwd=folder, fresh=True))
        else:
            lines = code.replace("\\\n", "").splitlines()
            done += [ran(page, line, folder) for line in lines if not line.endswith("...")]
    assert [one.stderr for one in done if one.returncode] == []
    return "".join(one.stdout for one in done)


def ran(page, line, folder):
    """A command, `echo TEXT | command`, or `command > FILE`."""
    words = shlex.split(line.replace("--user-dir fairseq_memattn", f"--user-dir {PLUGIN}"))
    for flag, value in SMALLER[page].items():
        if flag in words:
            words[words.index(flag) + 1] = value
    given = output = None
    if words[0] == "echo":
        given, words = f"{words[1]}\n", words[3:]
    if words[-2] == ">":
        words, output = words[:-2], folder / words[-1]
    if words[0].startswith("fairseq-"):
        words.append("--cpu")
    done = attempt(words[0], *words[1:], cwd=folder, stdin=given)
    if output:
        output.write_text(done.stdout, "utf-8")
    return done


@pytest.fixture
def folder(corpus, tmp_path, monkeypatch):
    """A folder with the beginning of a corpus in `my`."""
    (tmp_path / "my").mkdir()
    for split in ("train", "valid", "test"):
        for side, name in (("en", "en"), ("ru", "de"), ("docid", "docid")):
            lines = (corpus / f"{split}.{side}").read_text("utf-8").splitlines(True)[:300]
            (tmp_path / f"my/{split}.{name}").write_text("".join(lines), "utf-8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path


@pytest.mark.full
def test_language_models(folder):
    for name in folder.glob("my/*.d*"):
        name.unlink()
    page = "docs/language_models.md"
    chosen = [
        (language, code.replace("softmax.pt", "checkpoint_best.pt"))
        for language, code in blocks(page)
    ]
    training = next(line for _, code in chosen for line in code.splitlines() if "-train " in line)
    softmax = training.replace("abc_gated_transformer_lm --abc-causal-slots 64", "transformer_lm")
    softmax = softmax.replace("--save-dir lm/model", "--save-dir . --decoder-normalize-before")
    chosen.insert(1, ("", softmax))
    printed = outputs_of(page, chosen, folder)
    assert "stateful, positions restart" in printed and "64 to 127" in printed
    assert "\nH-0\t" in printed and "tensor([" in printed
    assert (folder / "lm/training.png").is_file()
    assert (folder / "lm/exported/config.json").is_file()
    assert (folder / "lm/memory.png").is_file() and (folder / "start.pt").is_file()


def test_a_corpus_of_ones_own(folder):
    """The script that the last command starts runs in test_new.py."""
    ((language, code),) = blocks("README.md", "prepare own-corpus")
    code, script = code.rstrip().rsplit("\n", 1)
    outputs_of("README.md", [(language, code)], folder)
    assert os.access(folder / script, os.X_OK)


def commands_of_data():
    """The blocks of commands before the generated corpus, and those from there on."""
    found = [code for _, code in blocks(DATA) if code.startswith("memattn ")]
    first = next(index for index, code in enumerate(found) if "prepare discourse" in code)
    return found[:first], found[first:]


@pytest.fixture(scope="module")
def texts(corpus, document_model, tmp_path_factory):
    """The reader's files, which the page names."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "corpus").mkdir()
    (folder / "my").mkdir()
    (folder / "ted").mkdir()
    columns = {}
    for side, name in (("docid", "docid"), ("en", "src"), ("ru", "hyp")):
        columns[name] = lines_of(corpus / f"test.{side}")
        shutil.copy(corpus / f"train.{side}", folder / f"corpus/all.{side}")
    ids, english, russian = columns.values()

    def write(name, content, kind="tsv"):
        (folder / name).write_text("\n".join([*table_lines(content, kind), ""]), "utf-8")

    lines = zip(
        *(lines_of(corpus / f"train.{side}") for side in ("docid", "en", "ru")), strict=True
    )
    names = ("dialogue", "German", "English")
    write("dialogues.tsv", dict(zip(names, zip(*lines, strict=True), strict=True)))
    write("test.jsonl", columns | {"ref": russian}, "jsonl")
    write("base.jsonl", {"hyp": english}, "jsonl")
    write("out.tsv", {"translation": russian})
    starts = [next(group)[0] for _, group in groupby(enumerate(ids), lambda pair: pair[1])]
    for suffix, content in (("en", english), ("es", russian), ("doc", map(str, starts))):
        (folder / f"ted/train.{suffix}").write_text("\n".join([*content, ""]), "utf-8")
    argv = ["--path", document_model.checkpoint, "--data", document_model.data]
    argv += ["--output", folder / "FOLDER", "--tokenizer", "words"]
    assert main(["export", *map(str, argv)]) == 0
    return folder


@pytest.mark.full
@pytest.mark.parametrize("code", commands_of_data()[0], ids=str.split)
def test_data(code, texts, tmp_path):
    """Each block in a folder of its own."""
    folder = tmp_path / "texts"
    shutil.copytree(texts, folder)
    own = "prepare own-corpus"
    outputs_of(DATA, [("", code.replace(own, f"{own} --vocab-size 200"))], folder)
    written = re.findall(r"--output (\S+)|memattn new \w+ (\w+)", code)
    assert written or "score" in code
    for name in map("".join, written):
        assert list(folder.glob(f"{name}*")), name


@pytest.mark.full
def test_generated_data(tmp_path):
    """The blocks from the generated corpus on, one after another."""
    for code in commands_of_data()[1]:
        if "windows last" in code:
            text = (tmp_path / "windows/train.en").read_text("utf-8")
            (tmp_path / "windows/test.en").write_text(text, "utf-8")
            (tmp_path / "hypotheses.txt").write_text(text, "utf-8")
        if "binarise" in code:
            for path in list((tmp_path / "pieces").iterdir()):
                for split in ("valid", "test"):
                    shutil.copy(path, path.with_name(f"{split}{path.suffix}"))
        outputs_of(DATA, [("", code)], tmp_path)
    english = lines_of(tmp_path / "test.hyp.ru")
    assert english == lines_of(tmp_path / "corpus/train.en")
    assert (tmp_path / "bin/train.en-ru.ru.bin").is_file()


def test_what_is_made_smaller_is_there():
    for page, flags in SMALLER.items():
        text = (ROOT / page).read_text("utf-8")
        assert [flag for flag in flags if f"{flag} " not in text] == [], page
