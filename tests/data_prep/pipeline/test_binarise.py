"""Binary data as fairseq reads it, with document ids, whatever happens on the way."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from preparing import prepare

from fairseq_memattn.data_prep.pipeline import binarise as script
from fairseq_memattn.data_prep.pipeline.binarise import RECORD, binarise, forget_other_parts
from fairseq_memattn.errors import MemAttnError

SPLITS = ("train", "valid", "test")
EN = ["the house is old", "it is big", "she sings", "the old letter", "it is hers"]
ES = ["la casa es vieja", "es grande", "ella canta", "la vieja carta", "es suya"]
IDS = ["talk 1", "talk 1", "2", "2", "última"]
REPEATS = 20
TEXT = {"en": EN, "es": ES, "docid": IDS}


def write(folder: Path, **changes: str | None) -> dict[str, Path]:
    """Text of three splits, without the files that are None; returns their prefixes."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        for suffix, lines in TEXT.items():
            contents = changes.get(f"{split}_{suffix}", "\n".join(lines) + "\n")
            if contents is not None:
                (folder / f"{split}.{suffix}").write_text(contents, encoding="utf-8")
    return {split: folder / split for split in SPLITS}


def run(*args: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "fairseq_memattn.cli", "prepare", "binarise", *map(str, args)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def arguments(text: dict[str, Path], output: Path, *langs: str) -> list[object]:
    pairs = [f"{split}={prefix}" for split, prefix in text.items()]
    return ["--text", *pairs, "--langs", *(langs or ("en", "es")), "--output", output]


def tree(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def decoded(folder: Path, name: str, dictionary: str) -> list[str]:
    """The sentences of a binary data set, read with fairseq."""
    from fairseq.data import Dictionary, data_utils

    words = Dictionary.load(str(folder / dictionary))
    dataset = data_utils.load_indexed_dataset(str(folder / name), words)
    return [words.string(dataset[index]) for index in range(len(dataset))]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Path]:
    """Prefixes of text, and the data that the command made of it."""
    folder = tmp_path_factory.mktemp("made")
    train = {"train_en": EN, "train_es": ES, "train_docid": ["one talk"] * len(EN)}
    many = {name: "\n".join(lines * REPEATS) + "\n" for name, lines in train.items()}
    text = write(folder / "pieces", test_en="unseen house\n", test_es="casa\n", **many)
    (folder / "pieces" / "test.docid").write_text("x\n", encoding="utf-8")
    done = run(*arguments(text, folder / "new" / "bin"))
    assert done.returncode == 0
    assert "is ready" in done.stdout
    return text, folder / "new" / "bin"


def test_fairseq_reads_the_text_and_every_pair_has_its_document(made):
    _, output = made
    assert decoded(output, "train.en-es.en", "dict.en.txt") == EN * REPEATS
    assert decoded(output, "valid.en-es.es", "dict.es.txt") == ES
    assert decoded(output, "test.en-es.en", "dict.en.txt") == ["<unk> house"]
    assert (output / "dict.en.txt").read_bytes() == (output / "dict.es.txt").read_bytes()
    sidecars = [(output / f"{split}.en-es.docids").read_text("utf-8") for split in SPLITS]
    assert sidecars == ["one talk\n" * len(EN) * REPEATS, "\n".join(IDS) + "\n", "x\n"]
    assert [path.name for path in output.parent.iterdir()] == ["bin"]


def test_the_same_bytes_are_binarised_once(made, tmp_path):
    text, output = made
    before = {path: path.stat().st_mtime_ns for path in output.iterdir()}
    moved = {split: tmp_path / split for split in SPLITS}
    for split, prefix in text.items():
        for suffix in TEXT:
            data = Path(f"{prefix}.{suffix}").read_bytes()
            Path(f"{moved[split]}.{suffix}").write_bytes(data)
    assert binarise(moved, ["en", "es"], output, workers=2) is False
    assert {path: path.stat().st_mtime_ns for path in output.iterdir()} == before


def copied(folder: Path, copy: Path) -> Path:
    return Path(shutil.copytree(folder, copy))


@pytest.mark.parametrize(
    ("file", "options"), [("train.docid", {}), ("test.es", {}), ("", {"joined_dictionary": False})]
)
def test_other_data_or_options_are_refused(file, options, made, tmp_path):
    text, output = made
    pieces = copied(text["train"].parent, tmp_path / "pieces")
    if file:
        (pieces / file).write_text("another line\n", encoding="utf-8")
    before = tree(output)
    with pytest.raises(MemAttnError, match="was made from other data or options .*--force"):
        binarise({split: pieces / split for split in SPLITS}, ["en", "es"], output, **options)
    assert tree(output) == before


def test_force_replaces_all_that_was_there(made, tmp_path):
    text, output = made
    stale = copied(output, tmp_path / "bin")
    (stale / "train.en-fr.docids").write_text("stale\n", encoding="utf-8")
    record = (stale / "binarised.json").read_text("utf-8")
    (stale / "binarised.json").write_text(record.replace('"es"', '"fr"'), encoding="utf-8")
    assert binarise(text, ["en", "es"], stale, force=True)
    assert tree(stale) == tree(output)
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


@pytest.mark.parametrize("name", ["checkpoint_best.pt", "raw/train.en"])
def test_what_another_program_has_made_is_kept(name, made, tmp_path):
    text, output = made
    other = copied(output, tmp_path / "bin")
    (other / name).parent.mkdir(exist_ok=True)
    (other / name).write_text("kept")
    record = (other / "binarised.json").read_text("utf-8")
    (other / "binarised.json").write_text(record.replace('"es"', '"fr"'), encoding="utf-8")
    for force in (False, True):
        with pytest.raises(
            MemAttnError, match=f"has {name.split('/')[0]}, which this command has not"
        ):
            binarise(text, ["en", "es"], other, force=force)
    assert (other / name).read_text() == "kept"


def killed_at(step: str, arguments: list[str]) -> int | None:
    """The exit code of the command in a process that is killed at a step of its work.

    checked: the document ids are written, and no data
    binary: the first data is written
    """

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        if step == "checked":
            script.write_data = die
        else:
            write = script.binary_data.write_binary
            script.binary_data.write_binary = lambda *args: die(write(*args))
        sys.exit(prepare(script, arguments))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.parametrize(
    ("step", "reached"), [("checked", "train.en-es.docids"), ("binary", "train.en-es.en.bin")]
)
def test_killed_and_started_again(step, reached, made, tmp_path):
    text, uninterrupted = made
    output = tmp_path / "bin"
    words = [*map(str, arguments(text, output))]
    assert killed_at(step, words) == -signal.SIGKILL
    lock, part = sorted(tmp_path.iterdir(), reverse=True)
    assert lock.name == ".bin.lock"
    assert part.name.startswith(".bin.binarising-") and (part / reached).exists()
    assert prepare(script, words) == 0
    assert tree(output) == tree(uninterrupted)
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_two_workers_without_ids_further_splits_and_a_dictionary(made, tmp_path):
    _, earlier = made
    none = {f"{split}_docid": None for split in SPLITS}
    text = write(tmp_path / "pieces", test_en="big\n", test_es="grande\n", **none)
    splits = {"valid1": text["test"], "valid": text["valid"], "test": text["train"]}
    output = tmp_path / "bin"
    dictionary = earlier / "dict.en.txt"
    assert binarise(splits, ["en", "es"], output, dictionary=dictionary, workers=2)
    assert not list(output.glob("*.docids")) and not list(output.glob("train*"))
    assert (output / "dict.es.txt").read_bytes() == dictionary.read_bytes()
    for split, lines in {"valid": ES, "valid1": ["grande"], "test": ES}.items():
        assert decoded(output, f"{split}.en-es.es", "dict.es.txt") == lines


def test_a_dictionary_for_each_language(made, tmp_path, capfd):
    text, _ = made
    apart, again = tmp_path / "apart", tmp_path / "again"
    assert binarise(text, ["en", "es"], apart, joined_dictionary=False)
    each = {language: apart / f"dict.{language}.txt" for language in ("en", "es")}
    assert binarise(text, ["en", "es"], again, joined_dictionary=False, dictionary=each)
    written = tree(apart)
    for name, content in tree(again).items():
        if "binarised.json" not in str(name) and "preprocess.log" not in str(name):
            assert content == written[name], name
    assert each["en"].read_bytes() != each["es"].read_bytes()
    for joined, wrong in ((True, each), (False, {"en": each["en"]})):
        with pytest.raises(MemAttnError, match="dictionaries are given for en.*, but needed for"):
            binarise(text, ["en", "es"], again, joined_dictionary=joined, dictionary=wrong)


def test_one_language_is_for_language_modelling_and_keeps_empty_lines(tmp_path: Path) -> None:
    lines = ["", *EN[:3], " "]
    text = write(tmp_path / "pieces", train_en="\n".join(lines) + "\n")
    assert binarise(text, ["en"], tmp_path / "bin")
    assert decoded(tmp_path / "bin", "train", "dict.txt") == ["", *EN[:3], ""]
    assert (tmp_path / "bin" / "train.docids").read_text("utf-8") == "\n".join(IDS) + "\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"valid_es": "a\n\nb\nc\nd\n"}, "valid.es, line 2: the line is empty"),
        ({"valid_docid": None}, "valid.docid: no such file, but "),
        ({"test_es": None}, "test.es: no such file"),
        ({"test_en": "", "test_es": "", "test_docid": ""}, "test.en: no lines"),
    ],
)
def test_wrong_data_is_refused_before_data_is_written(changes, message, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "write_data", None)
    text = write(tmp_path / "pieces", **changes)
    with pytest.raises(MemAttnError) as error:
        binarise(text, ["en", "es"], tmp_path / "new" / "bin")
    assert message in str(error.value)
    assert not (tmp_path / "new").exists()


def test_data_that_lost_a_file_is_not_taken_for_done(made, tmp_path):
    text, output = made
    copy = copied(output, tmp_path / "bin")
    assert not binarise(text, ["en", "es"], copy)
    (copy / "test.en-es.docids").unlink()
    with pytest.raises(MemAttnError, match="was changed since.*--force"):
        binarise(text, ["en", "es"], copy)


def test_parts_of_an_earlier_run_are_removed(tmp_path, capsys):
    for part, extra in (("input0", "train.bin"), ("input1", "dict.txt"), ("own", "notes.txt")):
        (tmp_path / part).mkdir()
        for name in (RECORD, extra):
            (tmp_path / part / name).write_text("x")
    (tmp_path / "other").mkdir()
    forget_other_parts(tmp_path, ["input0"])
    assert {path.name for path in tmp_path.iterdir()} == {"input0", "own", "other"}
    assert "input1, of an earlier run, is removed" in capsys.readouterr().out
