"""`memattn import-transformers`: an exported folder as a checkpoint that fairseq trains on."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from full import full
from harness import run
from tiny_roberta import FLAGS, export
from transformers import AutoModelForMaskedLM

from fairseq_memattn import cli
from fairseq_memattn.host.checkpoints import read_checkpoint


@pytest.fixture(scope="module")
def folder(prepared, tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("exported") / "folder"
    assert export(prepared, made) == 0
    return made


def back(folder: Path, output: Path, *flags: object) -> int:
    dictionaries = ["--dictionaries", output.with_name("dictionaries")]
    argv = [folder, "--output", output, *dictionaries, *flags]
    return cli.main(["import-transformers", *map(str, argv)])


def test_weights_and_dictionaries_are_equal(folder, prepared, tmp_path, capsys):
    assert back(folder, tmp_path / "again.pt") == 0, capsys.readouterr().err
    first, again = (
        read_checkpoint(path)["model"] for path in (prepared / "model.pt", tmp_path / "again.pt")
    )
    assert first.keys() == again.keys()
    for name, weight in first.items():
        assert weight.dtype == again[name].dtype and torch.equal(weight, again[name]), name
    dictionary = (tmp_path / "dictionaries" / "dict.txt").read_bytes()
    assert dictionary == (prepared / "data/bin/dict.txt").read_bytes()


def test_it_can_be_exported_again(folder, prepared, tmp_path, capsys):
    assert back(folder, tmp_path / "again.pt") == 0
    for file in ("train.bin", "train.idx", "valid.bin", "valid.idx"):
        shutil.copy(prepared / "data/bin" / file, tmp_path / "dictionaries")
    given = {"path": tmp_path / "again.pt", "data": tmp_path / "dictionaries"}
    spm = ["--tokenizer", prepared / "data/spm.model", "--check", 1]
    assert export(prepared, tmp_path / "folder", *spm, **given) == 0, capsys.readouterr().err
    for name in ("config.json", "fairseq.json", "tokenizer_config.json", "dict.source.txt"):
        assert (tmp_path / "folder" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("how", [full("--restore-file"), "--finetune-from-model"])
def test_fairseq_trains_on(how, folder, prepared, tmp_path):
    assert back(folder, tmp_path / "again.pt") == 0
    flags = ["--max-update", 1, "--batch-size", 4, "--disable-validation", "--cpu", "--num-workers"]
    saved = ["0", "--save-dir", tmp_path / "trained", how, tmp_path / "again.pt"]
    log = run("fairseq-train", prepared / "data/bin", *FLAGS.split(), *flags, *saved).stdout
    assert f"Loaded checkpoint {tmp_path}/again.pt" in log
    trained = read_checkpoint(tmp_path / "trained" / "checkpoint_last.pt")["model"]
    before = read_checkpoint(tmp_path / "again.pt")["model"]
    moved = max((trained[name] - before[name]).abs().max().item() for name in before)
    assert 0 < moved < 0.05


def said_of(folder: Path, output: Path, capsys) -> str:
    capsys.readouterr()
    before = sorted(output.parent.rglob("*"))
    assert back(folder, output) == 1
    assert sorted(output.parent.rglob("*")) == before
    last = capsys.readouterr().err.strip().splitlines()[-1]
    return last.removeprefix("memattn import-transformers: error: ")


def test_other_folders(folder, tmp_path, capsys):
    changed = tmp_path / "changed"
    shutil.copytree(folder, changed)
    content = json.loads((folder / "fairseq.json").read_text("utf-8"))
    name = next(iter(content["names"]))
    wrong = content | {"names": content["names"] | {name: "none"}}
    for text, expected in (
        ("{}", "is not what `memattn export` writes: it has no cfg, constants"),
        (
            json.dumps(content | {"dictionaries": {"../a": {}}}),
            "refused: the dictionary ../a is not",
        ),
        (json.dumps(content | {"lost": ["a", "b"]}), "the export does not keep its weights a, b"),
        (json.dumps(wrong), f"{changed} has no weight 'none', which {changed}/fairseq.json names"),
    ):
        (changed / "fairseq.json").write_text(text)
        assert expected in said_of(changed, tmp_path / "again.pt", capsys)
    (changed / "fairseq.json").unlink()
    said = said_of(changed, tmp_path / "again.pt", capsys)
    assert said.endswith("as the folder has no fairseq.json, but is 'roberta'")
    (tmp_path / "dictionaries").mkdir()
    said = said_of(folder, tmp_path / "again.pt", capsys)
    assert said == f"--dictionaries {tmp_path}/dictionaries exists; it must be a new folder"


@pytest.mark.parametrize("more", [3, -2])
def test_embeddings_of_other_symbols_than_the_dictionary(more, folder, tmp_path, capsys):
    changed = tmp_path / "changed"
    shutil.copytree(folder, changed)
    model = AutoModelForMaskedLM.from_pretrained(folder)
    symbols = model.config.vocab_size
    model.resize_token_embeddings(symbols + more, mean_resizing=False)
    model.save_pretrained(changed)
    assert said_of(changed, tmp_path / "again.pt", capsys) == (
        f"{changed}: the weight `encoder.sentence_encoder.embed_tokens.weight` has embeddings of "
        f"{symbols + more} symbols, but the dictionary dict.source.txt has {symbols}; fairseq "
        "needs one embedding for each symbol"
    )
