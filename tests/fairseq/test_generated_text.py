"""`memattn contrast --generate`: the translations are those of fairseq's own commands."""

import json
import shlex
import shutil

import pytest
import torch
from harness import (
    PLUGGED,
    SIZES,
    WINDOWS,
    Trained,
    generate,
    hypotheses,
    lines_of,
    preprocess,
    run,
)
from test_document_translator import export, untrained

from fairseq_memattn.cli import main
from fairseq_memattn.evaluation.text_columns import read_column

pytest.importorskip("sentence_splitter")

SEARCH = shlex.split("--beam 2 --lenpen 0.6 --max-len-a 1 --max-len-b 2")


@pytest.fixture(scope="module")
def ctxpro(documents, tmp_path_factory):
    """A set whose sources are the whole documents, its sources, and the folder of documents."""
    folder = tmp_path_factory.mktemp("ctxpro")
    entries = []
    for number, sentences in enumerate(documents):
        name = f"en-ru/{number}"
        (folder / "en-ru").mkdir(exist_ok=True)
        text = "".join(f"{sentence}\n" for sentence in [*sentences, "One line more."])
        (folder / f"{name}.en").write_text(text, encoding="utf-8")
        place = {"document id": name, "segment id": len(sentences), "src segment": sentences[-1]}
        entries.append({"expected": "он", "rule": f"R{number % 2}", "ante distance": 1, **place})
    (folder / "gender.json").write_text(json.dumps(entries), encoding="utf-8")
    lines = "".join("<eos> ".join(sentences) + "\n" for sentences in documents)
    (folder / "gender.test").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def genpro(corpus, tmp_path_factory):
    """A set in the layout of ContraPro: windows of up to three sentences of the test set."""
    folder = tmp_path_factory.mktemp("genpro") / "pronouns"
    folder.mkdir()
    sources, targets = (lines_of(corpus / f"test.{lang}") for lang in ("en", "ru"))
    ids = lines_of(corpus / "test.docid")
    texts = {kind: "" for kind in ("text.en", "text.ru", "context.en", "context.ru")}
    entries = []
    for number in range(6):
        before = [i if i >= 0 and ids[i] == ids[number] else None for i in (number - 2, number - 1)]
        wrong = f"wrong {targets[number]}"
        for target in (targets[number], wrong):
            texts["text.en"] += f"{sources[number]}\n"
            texts["text.ru"] += f"{target}\n"
            for lang, side in (("en", sources), ("ru", targets)):
                lines = ["" if i is None else side[i] for i in before]
                texts[f"context.{lang}"] += "".join(f"{line}\n" for line in lines)
        word = targets[number].split()[number % 2]
        errors = [{"contrastive": wrong}]
        entries.append({"ref pronoun": word, "ante distance": number, "errors": errors})
    for kind, text in texts.items():
        (folder / f"pronouns.{kind}").write_text(text, encoding="utf-8")
    (folder / "set.json").write_text(json.dumps(entries), encoding="utf-8")
    return folder


def contrast(folder, model, *flags):
    """The lines that a model wrote, and the results."""
    out, results = folder / "out.txt", folder / "results.json"
    where = [model] if not isinstance(model, Trained) else [model.data, "--path", model.checkpoint]
    argv = ["contrast", *where, "--cpu", "--generate", "--lang", "ru", *SEARCH, *flags]
    argv += ["--translations-out", out, "--json", results]
    assert main(list(map(str, argv))) == 0
    return lines_of(out), json.loads(results.read_text(encoding="utf-8"))


def set_of(ctxpro):
    return ["--sets", ctxpro / "gender.json", "--sources", ctxpro / "gender.test"]


def expected_lines(printed, documents, between=" "):
    """The translations of fairseq-generate, a line for each document."""
    texts = iter(one.text for one in hypotheses(printed).values())
    return [between.join(next(texts) for _ in document) for document in documents]


@pytest.fixture(scope="module")
def generated(document_model, documents):
    return expected_lines(generate(document_model, *WINDOWS, *SEARCH), documents)


@pytest.mark.full
def test_a_model_of_windows_made_beforehand(document_model, ctxpro, generated, tmp_path):
    """A checkpoint of fairseq's translation task, whose dictionary has the separator."""
    data = shutil.copytree(document_model.data, tmp_path / "bin")
    for lang in ("en", "ru"):
        with (data / f"dict.{lang}.txt").open("a") as dictionary:
            dictionary.write("_eos 1\n")
    state = torch.load(document_model.checkpoint, weights_only=False)
    state["cfg"]["task"]["_name"] = "translation"
    torch.save(state, tmp_path / "windows.pt")
    windows = Trained(data, tmp_path / "windows.pt", "")
    flags = [*set_of(ctxpro), "--source-context", 2, "--target-context", 2]
    assert contrast(tmp_path, windows, *flags)[0] == generated


@pytest.mark.full
def test_documents_give_the_lines_of_a_file(document_model, ctxpro, documents, generated, tmp_path):
    sets, longest = ["--sets", ctxpro / "gender.json"], max(map(len, documents))
    folder = ["--documents", ctxpro, "--source-lang", "en", "--document-sentences"]
    assert contrast(tmp_path, document_model, *sets, *folder, longest)[0] == generated
    short = "".join("<eos> ".join(sentences[-2:]) + "\n" for sentences in documents)
    (tmp_path / "short").write_text(short, encoding="utf-8")
    expected, _ = contrast(tmp_path, document_model, *sets, "--sources", tmp_path / "short")
    assert contrast(tmp_path, document_model, *sets, *folder, 2)[0] == expected


def test_genpro_has_the_lines_of_the_interactive_session(document_model, genpro, tmp_path):
    lines, results = contrast(tmp_path, document_model, "--sets", genpro)
    read = {name: lines_of(genpro / f"pronouns.{name}.en") for name in ("context", "text")}
    typed, lengths = [], []
    for group in range(6):  # of two candidates
        context = filter(None, read["context"][4 * group : 4 * group + 2])
        window = [*context, read["text"][2 * group]]
        typed += [*window, ""]
        lengths.append(len(window))
    assert lengths == [1, 2, 3, 3, 3, 3]
    done = run(
        "fairseq-interactive", document_model.data, *PLUGGED, *WINDOWS, *SEARCH,
        "--path", document_model.checkpoint, "--buffer-size", 100, "--max-tokens", 2000,
        stdin="".join(f"{line}\n" for line in typed),
    )  # fmt: skip
    texts = [one.text for one in hypotheses(done.stdout).values() if one.text]
    assert lines == expected_of(texts, lengths)
    entries = json.loads((genpro / "set.json").read_text(encoding="utf-8"))
    last = [line.split(" <eos> ")[-1].lower().split() for line in lines]
    words = [entry["ref pronoun"].lower() for entry in entries]
    right = [word in line for word, line in zip(words, last, strict=True)]
    assert sum(right) > 0
    assert (results[0]["correct"], results[0]["total"]) == (sum(right), 6)
    assert [part["pronoun"] for part in results if "pronoun" in part] == list(dict.fromkeys(words))
    distances = [part["distance"] for part in results if "distance" in part]
    assert distances == [0, 1, 2, 3, ">3"]


def expected_of(texts, lengths):
    left = iter(texts)
    return [" <eos> ".join(next(left) for _ in range(length)) for length in lengths]


def test_written_translations_are_scored_the_same(document_model, ctxpro, genpro, tmp_path):
    """Sets of both kinds in one command, beside a baseline."""
    sets = ["--sets", genpro, ctxpro / "gender.json"]
    base = tmp_path / "base.txt"
    base.write_text("он\n" * 10, encoding="utf-8")
    flags = [*sets, "--sources", ctxpro / "gender.test", "--translations", f"base={base}"]
    lines, results = contrast(tmp_path, document_model, *flags)
    assert len(lines) == 10
    systems = list(dict.fromkeys(entry["system"] for entry in results))
    assert systems == ["base", str(document_model.checkpoint)]
    assert [entry["system"] for entry in results if "p" in entry] == [systems[1]] * (
        len(results) // 2
    )
    whole = [entry for entry in results if entry["set"] == "gender" and "rule" not in entry]
    assert whole[0]["correct"] == 4
    out = tmp_path / "again.json"
    again = ["--translations", f"base={base}", "--translations"]
    again += [f"{systems[1]}={tmp_path / 'out.txt'}"]
    argv = ["contrast", *sets, *again, "--lang", "ru", "--json", out]
    assert main(list(map(str, argv))) == 0
    assert json.loads(out.read_text(encoding="utf-8")) == results


def test_sources_and_translations_of_tables(document_model, ctxpro, generated, tmp_path):
    sources, table, out = (tmp_path / name for name in ("sources.jsonl", "out.tsv", "again.json"))
    rows = [json.dumps({"text": line}) for line in lines_of(ctxpro / "gender.test")]
    sources.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    where = [document_model.data, "--path", document_model.checkpoint, "--cpu", "--generate"]
    sets = ["--sets", ctxpro / "gender.json", "--lang", "ru", "--json", out]
    flags = [*SEARCH, "--sources", f"{sources}:text", "--translations-out", table]
    assert main(list(map(str, ["contrast", *where, *sets, *flags]))) == 0
    assert read_column(table, "hyp") == generated
    assert read_column(table, "src") == lines_of(ctxpro / "gender.test")
    results = json.loads(out.read_text(encoding="utf-8"))
    name = f"{document_model.checkpoint}={table}"
    assert main(list(map(str, ["contrast", *sets, "--translations", name]))) == 0
    assert json.loads(out.read_text(encoding="utf-8")) == results


def test_an_exported_folder_translates_the_same(document_model, ctxpro, generated, tmp_path):
    folder = export(document_model, tmp_path / "exported")
    sets = set_of(ctxpro)
    assert contrast(tmp_path, folder, *sets)[0] == generated


@pytest.mark.full
def test_pieces_are_segmented_and_joined(corpus, ctxpro, documents, tmp_path):
    import sentencepiece

    text = [line for lang in ("en", "ru") for line in lines_of(corpus / f"test.{lang}")]
    prefix = str(tmp_path / "spm")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_prefix=prefix, vocab_size=150, minloglevel=2,
        hard_vocab_limit=False,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(f"{prefix}.model")
    for lang in ("en", "ru"):
        rows = processor.encode(lines_of(corpus / f"test.{lang}"), out_type=str)
        pieces = "".join(" ".join(row) + "\n" for row in rows)
        (tmp_path / f"test.{lang}").write_text(pieces, encoding="utf-8")
    shutil.copy(tmp_path / "test.en", tmp_path / "train.en")
    shutil.copy(tmp_path / "test.ru", tmp_path / "train.ru")
    languages = "-s en -t ru --joined-dictionary".split()
    data = preprocess(tmp_path, *languages, splits="train test")
    flags = ["--arch", "transformer", "--share-all-embeddings", *SIZES]
    model = untrained(data, tmp_path, "--task", "translation", *flags)
    joined = generate(model, *SEARCH, "--post-process", "sentencepiece")
    spm = ["--sentencepiece-model", f"{prefix}.model"]
    lines, _ = contrast(tmp_path, model, *set_of(ctxpro), *spm)
    assert lines == expected_lines(joined, documents)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--sources SOURCES --translations-out SOURCES", "gender.test would overwrite the input"),
        ("--sources SHORT", "SHORT has 3 lines, but"),
        ("--sources JOINED", "must have <eos> between sentences, but no line has one"),
        ("--sources EMPTY", "EMPTY, line 2: a sentence is empty"),
        ("--sources OTHER", "OTHER, line 4: the last sentence must be that of"),
        ("--sources LONG", "gender, example 3, sentence 1 of the source: must have at"),
        ("--sources MARKED", "example 1, sentence 1 of the source: contains the sep"),
    ],
)
def test_bad_files(flags, message, document_model, ctxpro, documents, tmp_path, capsys):
    lines = ["<eos> ".join(sentences) for sentences in documents]
    made = {
        "SHORT": lines[:3],
        "JOINED": [sentences[-1] for sentences in documents],
        "EMPTY": [lines[0], f"a<eos> <eos>{documents[1][-1]}", *lines[2:]],
        "OTHER": [*lines[:3], lines[0]],
        "LONG": [*lines[:2], f"{'a ' * 2000}<eos> {lines[2]}", lines[3]],
        "MARKED": [f"a _eos b<eos> {lines[0]}", *lines[1:]],
    }
    paths = {name: tmp_path / name for name in made} | {"SOURCES": ctxpro / "gender.test"}
    for name, text in made.items():
        paths[name].write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    argv = ["contrast", document_model.data, "--path", document_model.checkpoint, "--cpu"]
    argv += ["--generate", "--lang", "ru", "--sets", ctxpro / "gender.json"]
    argv += [paths.get(flag, flag) for flag in flags.split()]
    assert main(list(map(str, argv))) == 1
    assert message in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"segment id": 99}, "0.en has 9 lines, but"),
        ({"segment id": 2}, "0.en, line 2: the last sentence must be that of"),
    ],
)
def test_bad_places_in_documents(entry, message, document_model, ctxpro, tmp_path, capsys):
    entries = json.loads((ctxpro / "gender.json").read_text(encoding="utf-8"))
    lines = len(lines_of(ctxpro / "en-ru" / "0.en"))
    (tmp_path / "gender.json").write_text(json.dumps([entries[0] | entry]), encoding="utf-8")
    flags = ["--sets", tmp_path / "gender.json", "--documents", ctxpro, "--source-lang", "en"]
    argv = ["contrast", document_model.data, "--path", document_model.checkpoint, "--generate"]
    assert main(list(map(str, [*argv, *flags, "--lang", "ru"]))) == 1
    assert message.replace("9 lines", f"{lines} lines") in capsys.readouterr().err
