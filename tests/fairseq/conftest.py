"""A small corpus and small trained models, made once for all tests."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import (
    LANGUAGE_MODEL,
    ROOT,
    TRANSLATOR,
    WINDOWS,
    Trained,
    lines_of,
    preprocess,
    train,
)
from questions import prepare, records

import fairseq_memattn
from data_prep.binarise import binarise

fairseq_memattn.register()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """English-Russian text: {train,valid,test}.{en,ru}, a sentence a line."""
    folder = tmp_path_factory.mktemp("corpus")
    script = ROOT / "data_prep" / "discourse.py"
    sizes = ["--train-docs", "200", "--valid-docs", "4", "--test-docs", "4"]
    argv = [sys.executable, script, "--out", folder / "text", *sizes, "--contrast-groups", "6"]
    subprocess.run(argv, check=True, capture_output=True)
    return folder / "text"


@pytest.fixture(scope="session")
def bilingual(corpus, tmp_path_factory) -> Path:
    """The corpus, binarised."""
    folder = tmp_path_factory.mktemp("bilingual")
    for name in corpus.glob("*.??"):
        shutil.copy(name, folder)
    return preprocess(folder, *"-s en -t ru --joined-dictionary".split())


@pytest.fixture(scope="session")
def monolingual(corpus, tmp_path_factory) -> Path:
    """The English half, binarised for a language model."""
    folder = tmp_path_factory.mktemp("monolingual")
    for split in ("train", "valid", "test"):
        shutil.copy(corpus / f"{split}.en", folder / split)
    return preprocess(folder, "--only-source")


@pytest.fixture(scope="session")
def question_data(tmp_path_factory) -> Path:
    """Questions in HotpotQA's format, prepared for question answering."""
    folder = tmp_path_factory.mktemp("hotpotqa")
    return prepare("hotpotqa", folder, train=records(200, 1), valid=records(21, 2))


@pytest.fixture(scope="session")
def sentence_pairs(corpus, tmp_path_factory) -> Path:
    """Pairs of English lines labelled 0 or 1, binarised for sentence prediction."""
    folder = tmp_path_factory.mktemp("sentence_pairs")
    prefixes = {"train": folder / "train", "valid": folder / "valid", "valid1": folder / "test"}
    for prefix in prefixes.values():
        first = lines_of(corpus / f"{prefix.name}.en")
        labels = [str(number % 2) for number in range(len(first))]
        for part, column in (("input0", first), ("input1", first[::-1]), ("label", labels)):
            text = "".join(f"{line}\n" for line in column)
            Path(f"{prefix}.{part}").write_text(text, encoding="utf-8")
    bin = folder / "bin"
    binarise(prefixes, ["input0"], bin / "input0")
    binarise(prefixes, ["input1"], bin / "input1", dictionary=bin / "input0" / "dict.txt")
    binarise(prefixes, ["label"], bin / "label")
    return bin


@pytest.fixture(scope="session")
def translator(bilingual, tmp_path_factory) -> Trained:
    folder = tmp_path_factory.mktemp("translator")
    return train(bilingual, folder, *TRANSLATOR, "--max-update", 120)


@pytest.fixture(scope="session")
def document_data(corpus, bilingual, tmp_path_factory) -> Path:
    """The bilingual corpus with its document ids."""
    folder = tmp_path_factory.mktemp("documents") / "bin"
    shutil.copytree(bilingual, folder)
    for split in ("train", "valid", "test"):
        shutil.copy(corpus / f"{split}.docid", folder / f"{split}.en-ru.docids")
    return folder


@pytest.fixture(scope="session")
def document_model(document_data, tmp_path_factory) -> Trained:
    """Sees two sentences of context on either side."""
    folder = tmp_path_factory.mktemp("document_model")
    return train(document_data, folder, *TRANSLATOR, *WINDOWS, "--max-update", 150)


@pytest.fixture(scope="session")
def language_model(monolingual, tmp_path_factory) -> Trained:
    folder = tmp_path_factory.mktemp("language_model")
    return train(monolingual, folder, *LANGUAGE_MODEL, "--max-update", 60)
