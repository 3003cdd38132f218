"""A small corpus and small trained models, made once for all tests."""

import fcntl
import os
import pickle
import shutil
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import pytest
from harness import (
    LANGUAGE_MODEL,
    SOFTMAX,
    STREAM,
    TRANSLATOR,
    WINDOWS,
    Trained,
    lines_of,
    preprocess,
    run,
    train,
)
from questions import prepare, records

import fairseq_memattn
from fairseq_memattn.data_prep.pipeline.binarise import binarise

fairseq_memattn.register()

Result = TypeVar("Result")


class Once:
    """once(name, work) is what work(folder) returns; one call of all workers does the work.

    folder: an empty one for the files that the work leaves behind
    The result is pickled. A name stands for one piece of work in a run of pytest.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, name: str, work: Callable[[Path], Result]) -> Result:
        folder, result = self.root / name, self.root / f"{name}.pickle"
        with (self.root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                folder.mkdir()  # fails where another worker has failed before
                result.write_bytes(pickle.dumps(work(folder)))
            made: Result = pickle.loads(result.read_bytes())
        return made


@pytest.fixture(scope="session")
def once(tmp_path_factory) -> Once:
    """Shared between the workers of pytest-xdist, whose temporary folders have one parent."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    (root / "once").mkdir(exist_ok=True)
    return Once(root / "once")


@pytest.fixture(scope="session")
def corpus(once) -> Path:
    """English-Russian text: {train,valid,test}.{en,ru}, a sentence a line."""

    def generate(folder: Path) -> Path:
        sizes = "--train-docs 200 --valid-docs 4 --test-docs 4 --contrast-groups 6".split()
        run("memattn", "prepare", "discourse", "--output", folder / "text", *sizes)
        return folder / "text"

    return once("corpus", generate)


@pytest.fixture(scope="session")
def documents(corpus) -> list[list[str]]:
    """The English test set, a list of sentences for each document."""
    pairs = zip(lines_of(corpus / "test.docid"), lines_of(corpus / "test.en"), strict=True)
    return [[text for _, text in group] for _, group in groupby(pairs, key=lambda pair: pair[0])]


@pytest.fixture(scope="session")
def bilingual(corpus, once) -> Path:
    """The corpus, binarised."""

    def binarised(folder: Path) -> Path:
        for name in corpus.glob("*.??"):
            shutil.copy(name, folder)
        return preprocess(folder, *"-s en -t ru --joined-dictionary".split())

    return once("bilingual", binarised)


@pytest.fixture(scope="session")
def monolingual(corpus, once) -> Path:
    """The English half, binarised for a language model."""

    def binarised(folder: Path) -> Path:
        for split in ("train", "valid", "test"):
            shutil.copy(corpus / f"{split}.en", folder / split)
        return preprocess(folder, "--only-source")

    return once("monolingual", binarised)


@pytest.fixture(scope="session")
def question_data(once) -> Path:
    """Questions in HotpotQA's format, prepared for question answering."""

    def prepared(folder: Path) -> Path:
        return prepare("hotpotqa", folder, train=records(200, 1), valid=records(21, 2))

    return once("question_data", prepared)


@pytest.fixture(scope="session")
def sentence_pairs(corpus, once) -> Path:
    """Pairs of English lines labelled 0 or 1, binarised for sentence prediction."""

    def binarised(folder: Path) -> Path:
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

    return once("sentence_pairs", binarised)


@pytest.fixture(scope="session")
def translator(bilingual, once) -> Trained:
    """Trained until it has learned something."""
    flags = [*TRANSLATOR, "--max-update", 70]
    return once("translator", lambda folder: train(bilingual, folder, *flags))


@pytest.fixture(scope="session")
def softmax(bilingual, once) -> Trained:
    """fairseq's own transformer."""
    flags = [*SOFTMAX, "--max-update", 10]
    return once("softmax", lambda folder: train(bilingual, folder, *flags))


@pytest.fixture(scope="session")
def document_data(corpus, bilingual, once) -> Path:
    """The bilingual corpus with its document ids."""

    def with_ids(folder: Path) -> Path:
        shutil.copytree(bilingual, folder / "bin")
        for split in ("train", "valid", "test"):
            shutil.copy(corpus / f"{split}.docid", folder / "bin" / f"{split}.en-ru.docids")
        return folder / "bin"

    return once("document_data", with_ids)


@pytest.fixture(scope="session")
def document_model(document_data, once) -> Trained:
    """Sees two sentences of context on either side."""
    flags = [*TRANSLATOR, *WINDOWS, "--max-update", 90]
    return once("document_model", lambda folder: train(document_data, folder, *flags))


@pytest.fixture(scope="session")
def stream_model(document_data, once) -> Trained:
    """Carries its memories from sentence to sentence, four of which are trained together."""
    flags = [*TRANSLATOR, *STREAM, "--abc-document-gate", "sentence", "--max-update", 90]
    return once("stream_model", lambda folder: train(document_data, folder, *flags))


@pytest.fixture(scope="session")
def language_model(monolingual, once) -> Trained:
    flags = [*LANGUAGE_MODEL, "--max-update", 60]
    return once("language_model", lambda folder: train(monolingual, folder, *flags))
