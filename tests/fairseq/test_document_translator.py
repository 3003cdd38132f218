"""`DocumentTranslator` and `memattn translate` against fairseq-generate."""

import shlex
import warnings
from itertools import groupby
from pathlib import Path

import pytest
import torch
from fairseq import options, tasks
from harness import SIZES, Trained, generate, hypotheses, lines_of

from fairseq_memattn import cli
from fairseq_memattn.cli.hf_checkpoint import checkpoint
from fairseq_memattn.compat import quiet_known_warnings
from fairseq_memattn.transformers.document_translator import DocumentTranslator

SHORT = {"max_len_a": 1, "max_len_b": 2}
TASK = shlex.split("--task document_translation --source-context 2 --target-context 2")
# Random weights: sentences as sequences, T5, and windows that are cropped.
OTHERS = {
    "t5mem_v3": "--t5mem-slots 2 --t5mem-sequences 4",
    "t5": "",
    "transformer": "--encoder-learned-pos --decoder-learned-pos",
}
CROPPED = shlex.split("--max-source-positions 24 --max-target-positions 20")


def export(trained: Trained, folder: Path) -> Path:
    argv = ["--path", trained.checkpoint, "--data", trained.data, "--output", folder]
    assert cli.main(["export", *map(str, argv), "--tokenizer", "words"]) == 0
    return folder


def untrained(data: Path, folder: Path, *flags: str) -> Trained:
    """A checkpoint of random weights."""
    args = options.parse_args_and_arch(options.get_training_parser(), [str(data), *flags])
    task = tasks.setup_task(args)
    torch.manual_seed(1)
    model = task.build_model(args)
    with warnings.catch_warnings():
        quiet_known_warnings()
        state = checkpoint(type(model), flags, model.state_dict(), task.target_dictionary)
    torch.save(state, folder / "model.pt")
    return Trained(data, folder / "model.pt", "")


@pytest.fixture(scope="module")
def exported(document_model, tmp_path_factory) -> Path:
    return export(document_model, tmp_path_factory.mktemp("exported") / "documents")


@pytest.fixture(scope="module")
def documents(corpus) -> list[list[str]]:
    """The test set."""
    pairs = zip(lines_of(corpus / "test.docid"), lines_of(corpus / "test.en"), strict=True)
    return [[text for _, text in group] for _, group in groupby(pairs, key=lambda pair: pair[0])]


def translator_of(folder: Path, **settings: object) -> DocumentTranslator:
    made = DocumentTranslator.from_pretrained(folder)
    made.model.config.translation |= settings
    return DocumentTranslator(made.model, made.tokenizer)


def generated(trained: Trained, *flags: object) -> list[str]:
    limits = ["--max-len-a", SHORT["max_len_a"], "--max-len-b", SHORT["max_len_b"]]
    return [one.text for one in hypotheses(generate(trained, *limits, *flags)).values()]


@pytest.mark.parametrize(
    ("source", "target", "beam", "lenpen"),
    [(2, 2, 5, 0.6), (2, 2, 1, 1), (1, 1, 5, 1), (1, 2, 1, 1), (2, 0, 5, 1), (0, 0, 5, 1.5)],
)
def test_the_lines_of_fairseq_generate(
    source, target, beam, lenpen, document_model, exported, documents
):
    context = {"source_context": source, "target_context": target}
    flags = ["--task", "document_translation", "--source-context", source]
    flags += ["--target-context", target, "--beam", beam, "--lenpen", lenpen]
    found = translator_of(exported, **context).translate(
        documents, beam=beam, lenpen=lenpen, batch_size=3, **SHORT
    )
    assert list(map(len, found)) == list(map(len, documents))
    assert sum(found, []) == generated(document_model, *flags)


@pytest.mark.parametrize("arch", OTHERS)
def test_other_models(arch, document_data, documents, tmp_path):
    flags = ["--arch", arch, *SIZES, "--share-all-embeddings", *OTHERS[arch].split()]
    task = [*TASK, *CROPPED]
    trained = untrained(document_data, tmp_path, *task, *flags)
    translator = DocumentTranslator.from_pretrained(export(trained, tmp_path / "folder"))
    found = sum(translator.translate(documents, beam=3, batch_size=4, **SHORT), [])
    print(found[:5])
    assert len(set(found)) > len(found) / 2
    assert found == generated(trained, *task, "--beam", 3)


def test_a_model_without_context(translator, documents, tmp_path):
    """Every sentence by itself."""
    made = DocumentTranslator.from_pretrained(export(translator, tmp_path / "folder"))
    found = sum(made.translate(documents, beam=3, **SHORT), [])
    assert found == generated(translator, "--beam", 3)
