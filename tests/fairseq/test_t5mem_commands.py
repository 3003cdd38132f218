"""T5Mem through fairseq's own commands, with sentences of context as sequences."""

import json
import shlex

import pytest
from harness import COMMON, SIZES, Trained, lines_of, train
from matplotlib.image import imread

from fairseq_memattn.cli import main

ARCH = shlex.split("--arch t5mem_v3 --share-all-embeddings --dropout 0.1")
T5MEM = [*COMMON, *SIZES, *ARCH]
TASK = shlex.split("--task document_translation --target-context 0 --source-context")
CONTEXT = [*TASK, 3]


@pytest.fixture(scope="module")
def model(document_data, tmp_path_factory) -> Trained:
    """Trained with three sentences of context."""
    folder = tmp_path_factory.mktemp("t5mem")
    return train(document_data, folder, *T5MEM, *CONTEXT, "--max-update", 60)


def plotted(model, folder, *flags):
    report = folder / "selection.json"
    files = ["--output", folder / "selection.png", "--json", report]
    given = [model.data, "--path", model.checkpoint, *files, *flags]
    status = main(["plot", *map(str, given)])
    return None if status else json.loads(report.read_text(encoding="utf-8"))


@pytest.mark.full
def test_a_picture_of_the_sentences_that_are_selected(model, corpus, tmp_path):
    """The last sentence of the first document, as binary data and as a line of text."""
    ids, text = lines_of(corpus / "test.docid"), {}
    index = next(i for i in range(len(ids)) if ids[i] != ids[i + 1])
    window = lines_of(corpus / "test.en")[index - 3 : index + 1]
    target = lines_of(corpus / "test.ru")[index]
    shown = plotted(model, tmp_path, "--index", index)
    assert imread(tmp_path / "selection.png").any()
    assert shown["attention"] == "selector" and shown["layers"] is None
    assert list(map(len, map(str.split, shown["sentences"]))) == [len(s.split()) for s in window]
    assert len(shown["readers"]) == len(target.split()) + 1
    (rows,) = shown["weights"]
    assert [len(row) for row in rows] == [4] * len(shown["readers"])
    assert [sum(row) for row in rows] == pytest.approx([1.0] * len(rows))
    for side, line in (("en", " _eos ".join(window)), ("ru", target)):
        text[side] = tmp_path / side
        text[side].write_text(line + "\n", encoding="utf-8")
    again = plotted(model, tmp_path, "--text", text["en"], "--target", text["ru"])
    for row, other in zip(again["weights"][0], rows, strict=True):
        assert row == pytest.approx(other, abs=1e-5)
