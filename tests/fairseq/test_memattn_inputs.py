"""Files that the memattn commands cannot read or write: one sentence each, and nothing is left."""

import json
import os
import resource
from argparse import Namespace
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest
import torch

from fairseq_memattn.cli import main
from fairseq_memattn.cli.commands.average import average
from fairseq_memattn.cli.shared.inputs import named_file
from fairseq_memattn.cli.shared.outputs import check_outputs, write_checkpoint
from fairseq_memattn.cli.shared.segmentation import segmenter
from fairseq_memattn.documents.ids import read_docids
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.files import parse_json, read_json, replacing, write_json, write_text
from fairseq_memattn.host.checkpoints import allow_fairseq_globals
from fairseq_memattn.qa.span_records import read_span_records

DEEP, DIGITS = "[" * 100_000, "1" * 5000


def error_of(capsys, *argv):
    """The sentence of a command that fails."""
    capsys.readouterr()
    assert main(list(map(str, argv))) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "MEMATTN_TRACEBACK" not in said and len(said) < 500
    return said


@contextmanager
def full_disk(free=0):
    """No file can have more bytes; Python says so as it does of a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def in_place_of_stdout(folder, mode):
    """A file with one line, at whose end the standard output of this process goes on."""
    path, before = folder / "stdout", os.dup(1)
    path.write_text("before\n")
    with open(path, mode) as file, open(1, "w", closefd=False) as stdout:
        file.seek(0, os.SEEK_END)
        os.dup2(file.fileno(), 1)
        try:
            with redirect_stdout(stdout):
                yield path
        finally:
            stdout.flush()
            os.dup2(before, 1)
            os.close(before)


# ---------------------------------------------------------------------------------- JSON


@pytest.mark.parametrize(
    "text, told",
    [
        (DEEP, "the JSON is nested too deeply"),
        (f"[{DIGITS}]", "Exceeds the limit (4300 digits) for integer string conversion: value ha"),
        ("", "not JSON: Expecting value"),
    ],
)
def test_json(text, told, tmp_path, capsys):
    path, lines = tmp_path / "a.json", tmp_path / "a.jsonl"
    path.write_text(text)
    lines.write_text(f"{text}\n")
    with pytest.raises(ValueError, match=str(path)) as error:
        read_json(path)
    assert told in str(error.value)
    for gold in (path, lines):
        said = error_of(capsys, "answers", "--gold", gold, "--answers", path)
        assert str(gold) in said
    with pytest.raises(ValueError, match="a.jsonl, line 1: not a record of a question"):
        list(read_span_records(lines))


def test_json_that_is_damaged_says_where(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[1,\n2,\nx]")
    with pytest.raises(ValueError, match="a.json, line 3: not JSON: Expecting value"):
        read_json(path)
    path.write_bytes(b'["\xe4"]')
    with pytest.raises(ValueError, match="a.json, line 1: not UTF-8 at byte 3"):
        read_json(path)
    assert parse_json("[1]", "x") == [1]


# ---------------------------------------------------------------------------------- outputs


@pytest.mark.parametrize("free", [20])
def test_a_full_disk_names_file_and_folder(free, tmp_path):
    path = tmp_path / "out.json"
    path.write_text("old")
    told = f"out.json cannot be written in the folder {tmp_path}: File too large"
    with pytest.raises(MemAttnError, match=told), full_disk(free):
        write_text(path, "new" * 100)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_full_disk_under_a_checkpoint(tmp_path):
    path, output = tmp_path / "model.pt", tmp_path / "averaged.pt"
    torch.save({"cfg": None, "model": {"a": torch.zeros(1000)}}, path)
    told = f"averaged.pt cannot be written in the folder {tmp_path}: File too large"
    with pytest.raises(MemAttnError, match=told), full_disk(100):
        write_checkpoint(average([path]), output)
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_kept_and_a_pipe_is_written_directly(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)
    write_text(link, "new")
    assert link.is_symlink() and file.read_text() == "new"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with replacing(pipe) as unfinished:
        assert unfinished == pipe
    assert pipe.is_fifo()


@pytest.mark.parametrize("mode", ["ab", "r+b"])
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "LINK"])
def test_what_an_open_file_has_is_kept(name, mode, tmp_path):
    """The standard output goes on behind what was written, with >> and with > of a shell."""
    link = tmp_path / "link"
    link.symlink_to("/dev/stdout")
    with in_place_of_stdout(tmp_path, mode) as file:
        print("first")
        path = link if name == "LINK" else Path(name)
        check_outputs({"--output": path})
        write_text(path, "second\n")
        print("third")
    assert file.read_text() == "before\nfirst\nsecond\nthird\n"
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_a_file_with_a_temporary_name_is_kept(tmp_path):
    """Two commands that write the same file do not write the same temporary file either."""
    for name in ("out.tmp", "out.tmp.json", "out.json.tmp"):
        (tmp_path / name).write_text("kept")
    with replacing(tmp_path / "out.json") as unfinished:
        assert str(os.getpid()) in unfinished.name and unfinished.suffix == ".json"
        unfinished.write_text("new")
    assert (tmp_path / "out.json").read_text() == "new"
    assert sum(path.read_text() == "kept" for path in tmp_path.iterdir()) == 3


def test_a_folder_without_permission_is_told_first(tmp_path, monkeypatch):
    """A file that exists is replaced by a new one of the folder."""
    monkeypatch.setattr(os, "access", lambda folder, mode: folder != tmp_path)
    (tmp_path / "there").write_text("old")
    for name in ("there", "new"):
        with pytest.raises(ValueError, match=f"no files can be made in the folder {tmp_path}"):
            check_outputs({"--output": tmp_path / name})
    check_outputs({"--output": Path("/dev/null")})


def test_a_file_of_a_folder_that_is_read_is_not_overwritten(tmp_path):
    (tmp_path / "dict.en.txt").write_text("a 1")
    with pytest.raises(ValueError, match="would overwrite the input .*dict.en.txt"):
        check_outputs({"--json": tmp_path / "dict.en.txt"}, [tmp_path])
    for _ in range(2):
        check_outputs({"--json": tmp_path / "ppl.json"}, [tmp_path])
        (tmp_path / "ppl.json").touch()


@pytest.mark.parametrize("name", ["encoder.json", "config.json"])
def test_a_file_of_an_exported_folder_is_not_overwritten(name, tmp_path):
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=f"--output .* would overwrite the input .*{name}"):
        check_outputs({"--output": tmp_path / name}, [tmp_path])


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("--scores text --json set/new", "--json set/new must not be inside --sets set"),
        ("--translations text --json link", "--json link must not be inside --sets set"),
        ("--generate data --json data/config.json", "would overwrite the input data/config.json"),
        (
            "--generate data --sets list.json --documents documents --source-lang en --lang de "
            "--json documents/a.en",
            "--json documents/a.en must not be inside --documents documents, whose files are read",
        ),
    ],
)
def test_files_of_sets_models_and_documents_are_not_overwritten(
    command, told, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for name in ("set/set.text.en", "set/set.json", "data/config.json", "documents/a.en", "text"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("kept")
    Path("list.json").write_text("[]")
    Path("link").symlink_to("set/set.text.en")
    sets = [] if "--sets" in command else ["--sets", "set"]
    assert told in error_of(capsys, "contrast", *command.split(), *sets)
    assert Path("set/set.json").read_text() == Path("data/config.json").read_text() == "kept"


def test_json_without_numbers_that_it_does_not_have(tmp_path):
    write_json(tmp_path / "x.json", {"a": [1.5, float("nan")], "b": (float("-inf"), "NaN", 2)})
    content = json.loads((tmp_path / "x.json").read_text(), parse_constant=pytest.fail)
    assert content == {"a": [1.5, None], "b": [None, "NaN", 2]}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("a=h", ("a", "h")),
        ("runs/lr=0.1/h", (None, "runs/lr=0.1/h")),
        ("lr=0.1", (None, "lr=0.1")),
        ("lr=0.1.jsonl:t", (None, "lr=0.1.jsonl:t")),
    ],
)
def test_names_of_files(given, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("lr=0.1", "lr=0.1.jsonl", "h"):
        Path(file).touch()
    name, path = found
    assert named_file("--system", given) == (name, Path(path))


def test_an_interrupted_command_leaves_the_old_output(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as unfinished:
        unfinished.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


# ---------------------------------------------------------------------------------- texts


def test_ids_that_are_not_utf8(tmp_path):
    (tmp_path / "test.docids").write_bytes(b"a\n\xe4\n")
    with pytest.raises(MemAttnError, match="test.docids, line 2: not UTF-8 at byte 1 of the line"):
        read_docids(tmp_path / "test.docids", 2)


@pytest.mark.parametrize(
    "content, told", [(b"", " is empty"), (b"\xe4 b\n", ", line 1: not UTF-8 at byte 1")]
)
def test_codes_of_subword_nmt(content, told, tmp_path):
    path = tmp_path / "codes"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path}{told}"):
        segmenter(Namespace(sentencepiece_model=None, subword_nmt=path))
    path.write_bytes(b"#version: 0.2\na b\n\n")
    assert segmenter(Namespace(sentencepiece_model=None, subword_nmt=path))("ab") == "a@@ b"


# ---------------------------------------------------------------------------------- checkpoints


def changed(trained, folder, change):
    """A copy of a checkpoint, which the function has changed."""
    allow_fairseq_globals()
    state = torch.load(trained.checkpoint, weights_only=True)
    change(state)
    torch.save(state, folder / "changed.pt")
    return folder / "changed.pt"


def option(name, value):
    def change(state):
        options = state["cfg"]["model"]
        fields = vars(options) if isinstance(options, Namespace) else options
        fields[name] = value

    return change


@pytest.mark.parametrize(
    "change, told",
    [
        (option("decoder_layers", 10**12), "decoder_layers 1000000000000, but must have at most"),
        (lambda state: state["cfg"].pop("model"), "its configuration has no `model`"),
    ],
)
def test_configurations_of_checkpoints(change, told, language_model, tmp_path, capsys):
    path = changed(language_model, tmp_path, change)
    flags = ["--path", path, "--context-window", 0, "--cpu"]
    assert told in error_of(capsys, "perplexity", language_model.data, *flags)


def diverged(state):
    state["model"]["decoder.layers.0.fc1.weight"][1, 2] = torch.nan


@pytest.mark.parametrize(
    "command, flags",
    [
        ("perplexity", "--context-window 0"),
        ("convert", "--arch abc_mlp_transformer_lm --output OUT"),
        ("compress", "--output OUT"),
    ],
)
def test_weights_that_are_not_finite(command, flags, language_model, tmp_path, capsys):
    path, output = changed(language_model, tmp_path, diverged), tmp_path / "out.png"
    (tmp_path / "set.json").write_text('[{"src": "a", "dst": ["b", "c"], "true_ind": 0}]')
    names = {"SET": tmp_path / "set.json", "OUT": output}
    flags = ["--path", path, *(names.get(flag, flag) for flag in flags.split())]
    told = f"--path {path}: the weight `decoder.layers.0.fc1.weight` has values that are infinite"
    assert told in error_of(capsys, command, language_model.data, *flags)
    assert not output.exists()


def test_a_language_model_translates_nothing(language_model, capsys):
    argv = ["cxmi", language_model.data, "--path", language_model.checkpoint, "--cpu"]
    assert "is a language model, but this needs a translation model" in error_of(capsys, *argv)


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"a": 1}},
        {"model": {"a": torch.tensor([1, torch.nan])}},
        {"cfg": {"model": 3}},
        {"optimizer_history": [{"num_updates": "x"}]},
    ],
)
def test_what_cannot_be_averaged(change, tmp_path, capsys):
    path, output = tmp_path / "a.pt", tmp_path / "out.pt"
    torch.save({"cfg": None, "model": {"a": torch.zeros(3)}} | change, path)
    said = error_of(capsys, "average", "--inputs", path, "--output", output)
    assert f"{path} cannot be averaged: " in said
    assert not output.exists()
