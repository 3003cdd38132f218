"""`memattn export`: a folder that transformers loads, or one sentence and no folder."""

import copy
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_roberta import ROBERTA, export, stand_in
from transformers import AutoModelForMaskedLM, AutoTokenizer, RobertaForMaskedLM

from fairseq_memattn.export.converters import CONVERTERS


def test_a_folder_that_transformers_loads(prepared, tmp_path, capsys):
    scores = tmp_path / "scores.json"
    scores.write_text(json.dumps({"name": "BLEU", "score": 12.345, "signature": "nrefs:1|v"}))
    flags = ["--check", 2, "--score-file", scores]
    assert export(prepared, tmp_path / "out", *flags) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert f"tokenizer: sentencepiece, from {prepared}/data/spm.model" in said
    assert (
        "check: the logits of 106 tokens differ by at most " in said
        and "and 0 tokens have another" in said
    )
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer_config.json", "README.md"} <= names
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]

    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    state = torch.load(prepared / "model.pt")["model"]
    weight = model.get_input_embeddings().weight
    assert torch.equal(weight, state["encoder.sentence_encoder.embed_tokens.weight"])
    ids = tokenizer(["the red <mask>", "a"], padding=True, return_tensors="pt")
    assert ids.input_ids[0, -2] == tokenizer.mask_token_id == len(tokenizer) - 1
    assert ids.input_ids[:, 0].tolist() == [0, 0] and ids.input_ids[1, -1] == 1
    assert tokenizer.model_max_length == 30
    assert model(**ids).logits.shape == (2, ids.input_ids.shape[1], len(tokenizer))


def test_the_model_card(prepared, tmp_path, capsys):
    rows = [{"way": "context 480", "perplexity": 12.3456}]
    system = {"score": 30.126, "mean": None}
    report = {
        "reference": "/private/test.de",
        "sentences": 7,
        "measures": {"BLEU": {"signature": "nrefs:1|bs:0", "systems": {"ours": system}}},
    }
    for name, content in {"a": rows, "b": report}.items():
        (tmp_path / name).write_text(json.dumps(content))
    files = ["--score-file", tmp_path / "a", "--score-file", tmp_path / "b"]
    assert export(prepared, tmp_path / "out", *files) == 0, capsys.readouterr().err
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    front = ["library_name: transformers", "language:", '- "en"', "tags:", "- fairseq-memattn"]
    assert card.splitlines()[:8] == ["---", *front, '- "roberta"', "---"]
    for row in (
        "| perplexity | 12.346 | context 480 |",
        "| BLEU | 30.13 | ours on test.de, 7 sentences; nrefs:1\\|bs:0 |",
        "| spm | vocab_size 20, separator _eos, seed 1, model_type unigram,",
        "| `train` | 12 |",
        "add `license:`",
    ):
        assert row in card, card
    count = sum(w.numel() for w in load_file(tmp_path / "out/model.safetensors").values())
    assert f"| parameters | {count:,} |" in card


def test_the_code_of_the_card_runs(prepared, tmp_path, capsys):
    assert export(prepared, tmp_path / "out") == 0, capsys.readouterr().err
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    code = card.partition("```python\n")[2].partition("```")[0]
    assert len(code.strip().splitlines()) == 5
    made: dict[str, torch.Tensor] = {}
    exec(code.replace("FOLDER", str(tmp_path / "out")), made)
    assert made["outputs"].logits.dim() == 3


@pytest.mark.parametrize(
    ("moved", "words"),
    [
        (0.5, "the largest difference must be --limit 1e-05"),
        (torch.nan, "differ by at most nan, and"),
    ],
)
def test_a_difference_is_an_error(moved, words, prepared, tmp_path, capsys, monkeypatch):
    def other(model, task):
        made = stand_in(model, task)
        made.lm_head.bias.data[5] += moved
        return made

    monkeypatch.setitem(CONVERTERS, ROBERTA, other)
    assert export(prepared, tmp_path / "out", "--check", 2) == 1
    said = capsys.readouterr().err
    assert "--check: the logits of " in said and words in said
    assert not [*tmp_path.iterdir()]
    if moved == 0.5:
        assert export(prepared, tmp_path / "out", "--check", 1, "--limit", 0.6) == 0


def test_nothing_is_left_of_an_export_that_fails(prepared, tmp_path, capsys, monkeypatch):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RobertaForMaskedLM, "save_pretrained", full)
    assert export(prepared, tmp_path / "out") == 1
    said = capsys.readouterr().err
    assert said.endswith(f"--output {tmp_path}/out cannot be written: No space left on device\n")
    monkeypatch.setattr(RobertaForMaskedLM, "save_pretrained", interrupted)
    assert export(prepared, tmp_path / "out") == 130
    assert not [*tmp_path.iterdir()]


def interrupted(*args, **options):
    raise KeyboardInterrupt


def said_of(prepared: Path, output: Path, capsys, *flags: object, **given: object) -> str:
    """The sentence of an export that fails, which leaves nothing."""
    before = sorted(output.parent.rglob("*"))
    capsys.readouterr()
    assert export(prepared, output, *flags, **given) == 1
    said = capsys.readouterr().err
    assert sorted(output.parent.rglob("*")) == before
    last = said.strip().splitlines()[-1]
    assert last.startswith("memattn export: error: ")
    return last.removeprefix("memattn export: error: ")


def test_a_folder_that_exists(prepared, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch, "load", interrupted)  # it is refused before the model is loaded
    said = said_of(prepared, tmp_path, capsys)
    assert said == f"--output {tmp_path} exists; it must be a new folder"
    said = said_of(prepared, tmp_path / "a" / "b", capsys)
    assert said == f"--output {tmp_path}/a/b: the folder {tmp_path}/a does not exist"


def test_other_checkpoints_and_data(prepared, tmp_path, capsys, monkeypatch):
    state = torch.load(prepared / "model.pt")
    for part, name in (("model", "their_arch"), ("task", "their_task")):
        changed = copy.deepcopy(state)
        options = changed["cfg"][part]
        options = options if isinstance(options, dict) else vars(options)
        options.update(_name=name, arch=name)
        torch.save(changed, prepared / f"{name}.pt")
        said = said_of(prepared, tmp_path / "out", capsys, path=prepared / f"{name}.pt")
        assert f"{name} is not registered; --user-dir must be the folder" in said
    monkeypatch.delitem(CONVERTERS, ROBERTA)
    assert "a RobertaModel cannot be exported" in said_of(prepared, tmp_path / "out", capsys)
    smaller = tmp_path / "bin"
    smaller.mkdir()
    lines = (prepared / "data/bin/dict.txt").read_text("utf-8").splitlines(keepends=True)
    (smaller / "dict.txt").write_text("".join(lines[:5]), encoding="utf-8")
    said = said_of(prepared, tmp_path / "out", capsys, data=smaller)
    assert f"/model.pt: the model does not fit the dictionaries of {smaller}" in said


def test_the_dictionary_of_other_data_is_a_warning(prepared, tmp_path, capsys):
    """It has the size of the right one."""
    dictionary = prepared / "data/bin/dict.txt"
    state = torch.load(prepared / "model.pt", weights_only=False)
    for name, lines in (("same", None), ("other", dictionary.read_text("utf-8").splitlines())):
        trained = tmp_path / name
        trained.mkdir()
        text = "\n".join(reversed(lines)) if lines else dictionary.read_text("utf-8")
        (trained / "dict.txt").write_text(text, encoding="utf-8")
        state["cfg"]["task"]["data"] = f"{trained}:elsewhere"
        torch.save(state, tmp_path / f"{name}.pt")
        path = tmp_path / f"{name}.pt"
        assert export(prepared, tmp_path / f"{name}.out", path=path) == 0
        warning = f"warning: {dictionary} has other symbols than {trained}/dict.txt, with which"
        assert (warning in capsys.readouterr().err) == (name == "other")
