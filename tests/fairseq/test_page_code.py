"""The Python of the pages of docs that needs a model or a file runs as it is written there.

That of docs/library.md is in tests/test_docs.py, of docs/networks.md in test_without_fairseq.py, of
docs/controls.md in test_own_control.py, of docs/language_models.md in test_page_commands.py, of
docs/fairseq.md in test_from_pretrained_page.py, of docs/data.md in test_preparation_docs.py.
"""

import json
import re
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from harness import ROOT, Trained, lines_of
from test_compress import made  # noqa: F401
from torch.nn.utils.rnn import pad_sequence

from fairseq_memattn.attention import MemoryState, abc_attention
from fairseq_memattn.cli import main
from fairseq_memattn.compression.store import Store
from fairseq_memattn.transformers.prefix_store import PrefixStore


def blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


def ran(page: str, number: int, **names: object) -> dict:
    """The names after a block, counted from 0, and before it."""
    exec(compile(blocks(page)[number], f"docs/{page}.md", "exec"), names)
    return names


def test_every_page_with_python_has_a_test():
    counts = {path.stem: len(blocks(path.stem)) for path in (ROOT / "docs").glob("*.md")}
    here = {"export": 8, "gmat": 2}
    here |= dict.fromkeys(("evaluation", "context_sets", "equations", "corpora"), 1)
    elsewhere = {
        "fairseq": 1,
        "data": 1,
        "library": counts["library"],
        "networks": counts["networks"],
        "controls": 1,
        "context_sets": 1,
        "language_models": 2,
    }
    assert {page: count for page, count in counts.items() if count} == Counter(here) + Counter(
        elsewhere
    )


def test_a_preparation(tmp_path: Path) -> None:
    assert main(["new", "corpus", str(tmp_path / "talks")]) == 0
    talks = ran("corpora", 0, __name__="talks")
    parser = ArgumentParser()
    talks["add_arguments"](parser)
    argv = ["--archive", tmp_path / "talks", "--output", tmp_path / "data", "--vocab-size", "120"]
    talks["run"](parser.parse_args(list(map(str, argv))))
    assert (tmp_path / "data/bin/train.en-de.docids").is_file()


@pytest.fixture(scope="module")
def beside(document_model: Trained, tmp_path_factory: pytest.TempPathFactory):
    """A folder with an exported model in FOLDER."""
    folder = tmp_path_factory.mktemp("exported")
    argv = ["--path", document_model.checkpoint, "--data", document_model.data, "--onnx"]
    argv += ["--output", folder / "FOLDER", "--tokenizer", "words"]
    assert main(["export", *map(str, argv)]) == 0
    return folder


@pytest.mark.full
def test_export(beside, corpus, monkeypatch, capsys):
    monkeypatch.chdir(beside)
    names = ran("export", 0)
    before = {name: weight.clone() for name, weight in names["model"].state_dict().items()}
    ran("export", 6, tokenizer=names["tokenizer"])
    by_torch, by_onnx = capsys.readouterr().out.splitlines()
    assert len(eval(by_torch)) == len(eval(by_onnx)) == 1
    pairs = zip(lines_of(corpus / "test.en"), lines_of(corpus / "test.ru"), strict=True)
    ran("export", 4, **names, pairs=list(pairs)[:8])
    trained = names["model"].state_dict()
    assert any(not torch.equal(weight.cpu(), before[name]) for name, weight in trained.items())
    assert "trust_remote_code=True" in blocks("export")[5]
    ran("export", 5, **names)


def test_a_decoder_from_nothing(tmp_path, monkeypatch):
    """And its states in a store and in batches that change."""
    names = ran("export", 3)
    model = names["model"].eval()
    assert all(weight.grad is not None for weight in model.parameters())

    class Tokenizer:
        eos_token_id = int(model(names["tokens"]).logits[0, -1].argmax())

        def __call__(self, text, return_tensors):
            return SimpleNamespace(input_ids=torch.tensor([list(text.encode())]))

    monkeypatch.chdir(tmp_path)
    PrefixStore(model, max_bytes=2**20).save("states.pt")
    texts = {"document": "Some text. " * 30, "questions": ["Who?", "Why?"]}
    kept = ran("export", 1, model=model, tokenizer=Tokenizer(), **texts)
    assert kept["out"].shape[1] == kept["ids"].shape[1] + 20
    words = {"torch": torch, "tokenizer": Tokenizer()}
    with torch.no_grad():
        after = ran("export", 2, model=model, prompts=[names["tokens"]] * 2, **words)
    assert len(after["token"]) == 0


@pytest.mark.full
def test_documents_of_an_export(beside, monkeypatch):
    monkeypatch.chdir(beside)
    names = ran("export", 7)
    translated = names["translator"].translate(names["documents"], beam=1)
    assert list(map(len, translated)) == [2, 1]


def test_words_for_an_aligner(tmp_path, monkeypatch, capsys):
    (tmp_path / "test.en").write_text("Hello, you.\nYes.\n", "utf-8")
    (tmp_path / "mild.txt").write_text("Hallo.\nJa.\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    ran("evaluation", 0)
    assert capsys.readouterr().out == "Hello , you . ||| Hallo .\nYes . ||| Ja .\n"


def test_scores_of_a_contrastive_set(tmp_path, monkeypatch, capsys):
    group = {"src": "A _eos B", "dst": ["a _eos b", "a _eos c"], "true_ind": 0}
    (tmp_path / "ellipsis_infl.json").write_text(json.dumps([group, group]), "utf-8")
    monkeypatch.chdir(tmp_path)
    likely = {"b": -1.0, "c": -2.0}
    ran("context_sets", 0, log_likelihood=lambda line: likely[line.target[-1]])
    assert re.search(r"ellipsis_infl +2 +4 +2 .* 100\.0 %", capsys.readouterr().out)


def test_compression(made, monkeypatch):  # noqa: F811
    folder, model, lines = made
    lengths = torch.tensor(list(map(len, lines[:3])))
    tokens = pad_sequence(lines[:3], batch_first=True, padding_value=1)
    names = ran("gmat", 0, model=model, tokens=tokens, lengths=lengths)
    assert names["memory"].shape == (3, 3, 16)
    assert names["features"].shape == (3, max(lengths), 16)
    monkeypatch.chdir(folder)
    first = next(iter(Store(folder / "store").ids()))
    code = blocks("gmat")[1].replace('store["doc7"].vectors', f"vectors = store[{first!r}].vectors")
    exec(code, names)
    assert names["vectors"].shape == (3, 16)


def test_equations():
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 2, 3, 5, 8)
    log_alpha = torch.randn(2, 3, 5, 4)
    whole = abc_attention(q, k, v, log_alpha, causal=True)
    names = ran("equations", 0, q=q, k=k, v=v, log_alpha=log_alpha, state=None)
    torch.testing.assert_close(names["out"], whole)
    assert isinstance(names["state"], MemoryState)
