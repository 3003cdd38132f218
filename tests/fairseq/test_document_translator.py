"""`DocumentTranslator` and `memattn translate` against fairseq-generate."""

import json
import shlex
import shutil
import subprocess
import sys
import warnings
from ast import literal_eval
from pathlib import Path

import pytest
import torch
from fairseq import options, tasks
from full import full
from harness import SIZES, Trained, generate, hypotheses, lines_of

from fairseq_memattn import cli
from fairseq_memattn.cli.shared.hf_checkpoint import checkpoint
from fairseq_memattn.evaluation.text_columns import read_column
from fairseq_memattn.host.messages.handler import quiet_known_warnings
from fairseq_memattn.transformers.document_translator import DocumentTranslator

SHORT = {"max_len_a": 1, "max_len_b": 2}
TASK = shlex.split("--task document_translation --source-context 2 --target-context 2")


def export(trained: Trained, folder: Path) -> Path:
    argv = ["--path", trained.checkpoint, "--data", trained.data, "--output", folder]
    assert cli.main(["export", *map(str, argv), "--tokenizer", "words"]) == 0
    return folder


@pytest.mark.full
def test_a_process_of_its_own_exports(document_model, tmp_path):
    """It registers the models, which other tests have done in this process."""
    argv = ["--path", document_model.checkpoint, "--data", document_model.data]
    argv += ["--output", tmp_path / "folder", "--tokenizer", "words"]
    command = [sys.executable, "-m", "fairseq_memattn.cli", "export", *map(str, argv)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "folder/model.safetensors").is_file()


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


def translator_of(folder: Path, **settings: object) -> DocumentTranslator:
    made = DocumentTranslator.from_pretrained(folder)
    made.model.config.translation |= settings
    return DocumentTranslator(made.model, made.tokenizer)


def generated(trained: Trained, *flags: object) -> list[str]:
    limits = ["--max-len-a", SHORT["max_len_a"], "--max-len-b", SHORT["max_len_b"]]
    return [one.text for one in hypotheses(generate(trained, *limits, *flags)).values()]


@pytest.mark.parametrize(
    ("context", "beam", "lenpen", "cropped"),
    [full(2, 5, 0.6, False), (1, 5, 0.6, True), full(0, 1, 1.0, False)],
)
def test_the_lines_of_fairseq_generate(
    context, beam, lenpen, cropped, document_model, exported, documents
):
    settings = {"source_context": context, "target_context": context}
    translator = translator_of(exported, **settings, **{"max_source": 24} if cropped else {})
    search = {"beam": beam, "lenpen": lenpen}
    found = translator.translate(documents, batch_size=3, **search, **SHORT)
    assert len(set(map(len, documents))) > 1
    assert list(map(len, found)) == list(map(len, documents))
    flags = ["--task", "document_translation", "--source-context", context]
    flags += ["--target-context", context, "--beam", beam, "--lenpen", lenpen]
    flags += ["--max-source-positions", 24] if cropped else []
    assert sum(found, []) == generated(document_model, *flags)


@pytest.mark.full
def test_context_in_sequences(document_data, documents, tmp_path):
    """T5Mem, of random weights."""
    sizes = [*SIZES, "--share-all-embeddings", "--t5mem-slots", "2", "--t5mem-sequences", "4"]
    task = [*TASK, *"--max-source-positions 24 --max-target-positions 20".split()]
    trained = untrained(document_data, tmp_path, *task, "--arch", "t5mem_v3", *sizes)
    translator = DocumentTranslator.from_pretrained(export(trained, tmp_path / "folder"))
    found = sum(translator.translate(documents, beam=3, batch_size=4, **SHORT), [])
    assert len(set(found)) > len(found) / 2
    assert found == generated(trained, *task, "--beam", 3)


@pytest.mark.full
def test_a_model_without_context(translator, documents, tmp_path):
    """Every sentence by itself."""
    made = DocumentTranslator.from_pretrained(export(translator, tmp_path / "folder"))
    found = sum(made.translate(documents, beam=3, **SHORT), [])
    assert found == generated(translator, "--beam", 3)


def test_empty_documents_and_sentences(exported):
    translator = DocumentTranslator.from_pretrained(exported)
    assert translator.translate([]) == []
    [first, empty, last] = translator.translate(
        [["", "Thank God!"], [], ["Life goes on."]], **SHORT
    )
    assert empty == [] and first[0] == "" and first[1] and last[0]


def test_the_code_of_the_card(exported, capsys):
    """It translates documents; the text of the example is unknown to the model."""
    code = (exported / "README.md").read_text("utf-8").partition("```python\n")[2]
    code = code.partition("```")[0].replace("FOLDER", str(exported))
    exec(code, {})
    (printed,) = capsys.readouterr().out.splitlines()
    assert list(map(len, literal_eval(printed))) == [2, 1]


def translate(folder: Path, lines: str, *flags: object) -> int:
    text = folder.parent / "text"
    text.write_text(lines, encoding="utf-8")
    return cli.main(["translate", *map(str, [folder, "--input", text, "--device", "cpu", *flags])])


def test_the_command(exported, documents, tmp_path, capsys):
    """Empty lines stay where they are."""
    text = "\n\n\n".join("\n".join(document) for document in documents[:2]) + "\n\n"
    flags = ["--beam", 2, "--lenpen", 0.6, "--max-len-a", 1, "--max-len-b", 2]
    assert translate(exported, text, *flags) == 0
    said = capsys.readouterr()
    translator = DocumentTranslator.from_pretrained(exported)
    found = translator.translate(documents[:2], beam=2, lenpen=0.6, **SHORT)
    assert said.out == "\n\n\n".join("\n".join(lines) for lines in found) + "\n\n"
    assert not said.err
    assert translate(exported, text, *flags, "--output", tmp_path / "out") == 0
    assert (tmp_path / "out").read_text(encoding="utf-8") == said.out


@pytest.mark.full
def test_documents_by_id_and_in_tables(exported, documents, tmp_path, capsys):
    """Ids, lines between empty lines and tables are the same documents."""
    flags = ["--beam", 2, "--max-len-a", 1, "--max-len-b", 2]
    text = "\n\n".join("\n".join(document) for document in documents[:3]) + "\n"
    assert translate(exported, text, *flags) == 0
    expected = [line for line in capsys.readouterr().out.splitlines() if line]

    lines = [line for document in documents[:3] for line in document]
    ids = [f"d {index}" for index, document in enumerate(documents[:3]) for _ in document]
    (tmp_path / "ids").write_text("".join(f"{name}\n" for name in ids), encoding="utf-8")
    given = ["--docids", tmp_path / "ids"]
    joined = "".join(f"{line}\n" for line in lines)
    assert translate(exported, joined, *flags, *given) == 0
    assert capsys.readouterr().out.splitlines() == expected
    assert translate(exported, joined, *flags) == 0  # one document
    assert capsys.readouterr().out.splitlines() != expected

    out = tmp_path / "out.jsonl"
    assert translate(exported, joined, *flags, *given, "--output", out) == 0
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert rows == [
        {"docid": name, "src": source, "hyp": hyp}
        for name, source, hyp in zip(ids, lines, expected, strict=True)
    ]
    for kind in ("text", "jsonl", "tsv"):  # the ids are in the table
        again = ["translate", exported, "--input", out, "--device", "cpu", *flags]
        assert cli.main([*map(str, again), "--format", kind]) == 0
        shown = capsys.readouterr().out
        if kind == "text":
            assert shown.splitlines() == expected
        else:
            (tmp_path / f"again.{kind}").write_text(shown, encoding="utf-8")
            assert read_column(tmp_path / f"again.{kind}", "hyp") == expected
            assert read_column(tmp_path / f"again.{kind}", "docid") == ids

    assert translate(exported, text, *flags, "--format", "tsv") == 0  # documents are numbered
    table = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    numbers = [str(index) for index, document in enumerate(documents[:3], 1) for _ in document]
    expected_rows = zip(numbers, lines, expected, strict=True)
    assert table == [["docid", "src", "hyp"], *map(list, expected_rows)]


@pytest.mark.full
def test_scores_with_a_reference(exported, documents, corpus, tmp_path, capsys):
    """They are those of `memattn score`, with the documents of --docids or of a table."""
    (table, text), reference = (tmp_path / "in.tsv", tmp_path / "out"), corpus / "test.ru"
    ids = lines_of(corpus / "test.docid")
    rows = zip(ids, sum(documents, []), strict=True)
    table.write_text("docid\tsrc\n" + "".join(f"{name}\t{line}\n" for name, line in rows))
    flags = ["--beam", 1, "--max-len-a", 1, "--max-len-b", 2, "--output", text]
    argv = ["translate", exported, "--input", table, "--device", "cpu", *flags]
    assert cli.main([*map(str, argv), "--reference", str(reference)]) == 0
    printed = capsys.readouterr().out
    argv = ["--system", text, "--reference", reference, "--docids", corpus / "test.docid"]
    assert cli.main(["score", *map(str, argv)]) == 0
    assert printed == capsys.readouterr().out
    assert "d-BLEU" in printed


def refusal(capsys, folder: Path, lines: str, *flags: object) -> str:
    assert translate(folder, lines, *flags) == 1
    [line] = capsys.readouterr().err.splitlines()
    return line.removeprefix("memattn translate: error: ")


def test_what_the_command_refuses(exported, tmp_path, capsys):
    text = f"--input {exported.parent / 'text'}"
    long = "a\n\nb\n" + "c " * 1024
    said = refusal(capsys, exported, long)
    assert said == f"{text}, line 4: the model reads at most 1024 tokens, but the sentence has 1025"
    said = refusal(capsys, exported, "a _eos b\n")
    assert said == f"{text}, line 1: the sentence contains the separator '_eos' of sentences"
    (tmp_path / "ids").write_text("1\n2\n1\n")
    said = refusal(capsys, exported, "a\n", "--docids", tmp_path / "ids")
    assert said == f"--docids {tmp_path / 'ids'} has 3 lines, but {text} has 1"
    said = refusal(capsys, exported, "a\n", "--reference", tmp_path / "ids")
    assert said == "--reference needs --output, with the suffix of --format if that is given"
    given = ["--output", tmp_path / "out", "--reference", tmp_path / "ids"]
    said = refusal(capsys, exported, "a\n", *given)
    assert said == f"--reference {tmp_path / 'ids'} has 3 lines, but {text} has 1"
    said = refusal(capsys, exported, "a\tb\n", "--format", "tsv")
    assert said.startswith("line 1: 'src' contains a tab")
    other = shutil.copytree(exported, tmp_path / "other")
    (other / "model.safetensors").write_bytes(b"damaged")
    assert refusal(capsys, other, "a").startswith(f"{other}: the weights cannot be read: ")
    (other / "dict.source.txt").unlink()
    assert refusal(capsys, other, "a").startswith(f"{other}: the tokenizer cannot be read: ")
