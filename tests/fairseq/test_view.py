"""`memattn view`: the page has the tokens, the windows and the weights of `memattn plot`."""

import json
import re

import pytest
from harness import COMMON, SIZES, WINDOWS, generate, hypotheses, lines_of, train

from fairseq_memattn.cli import main

DOCUMENT = 1
LONG = f"a\n{'a ' * 1024}\n"
T5MEM = [*COMMON, *SIZES[:-4], "--arch", "t5mem_v1", "--max-update", 2]


def viewed(trained, output, *flags):
    """The data of the page."""
    path = ["--path", str(trained.checkpoint), "--cpu", "--output", str(output)]
    assert main(["view", str(trained.data), *path, *map(str, flags)]) == 0
    page = output.read_text("utf-8")
    (data,) = re.findall(r"^const data = (.*);$", page, re.MULTILINE)
    assert page.count("<script>") == page.count("</script>") == 1
    return json.loads(data)


def plotted(trained, folder, sentence, *flags):
    """The numbers of `memattn plot` for a sentence of the test set."""
    figures, picture = folder / "plot.json", folder / "plot.png"
    argv = ["plot", str(trained.data), "--path", str(trained.checkpoint), "--index", str(sentence)]
    argv += ["--json", str(figures), "--output", str(picture), *flags]
    assert main(argv) == 0
    return json.loads(figures.read_text())


@pytest.fixture(scope="module")
def sentences(corpus):
    """The numbers of the sentences of the document."""
    ids = lines_of(corpus / "test.docid")
    names = list(dict.fromkeys(ids))
    return [number for number, name in enumerate(ids) if name == names[DOCUMENT]]


@pytest.mark.full
def test_slots(document_model, sentences, tmp_path):
    page = viewed(document_model, tmp_path / "x.html", "--document", DOCUMENT, "--reference")
    assert (page["kind"], page["layer"], page["translation"]) == ("slots", 1, "the reference")
    assert len(page["source"]) == len(page["target"]) == len(page["windows"]) == len(sentences)
    for place, sentence in enumerate(sentences[:4]):
        window, length = page["windows"][place], len(page["target"][place])
        assert window["first"] == max(0, place - 2)
        read = sum(len(source) for source in page["source"][window["first"] : place + 1])
        plot = plotted(document_model, tmp_path, sentence, "--head", "all")
        for head, memory in enumerate(plot["memories"]):
            assert len(memory["writing"]) == read
            for name, rows in (
                ("writing", memory["writing"]),
                ("reading", memory["reading"][-length:]),
            ):
                expected = [[round(1000 * weight) for weight in row] for row in rows]
                assert window[name][head] == expected


@pytest.mark.full
def test_a_selector(document_data, sentences, tmp_path):
    trained = train(document_data, tmp_path, *T5MEM, *WINDOWS)
    page = viewed(trained, tmp_path / "x.html", "--document", DOCUMENT, "--reference")
    assert (page["kind"], page["layer"]) == ("selector", None)
    for place, sentence in enumerate(sentences[:4]):
        weights, length = page["windows"][place]["weights"], len(page["target"][place])
        plot = plotted(trained, tmp_path, sentence)
        assert len(weights) == length
        assert len(weights[0]) == len(plot["sentences"]) == min(place, 2) + 1
        expected = [[round(1000 * w) for w in row] for row in plot["weights"][-1][-length:]]
        assert weights == expected


def test_softmax_attention_of_single_sentences(softmax, tmp_path, corpus):
    """Raw text, and its translation."""
    (tmp_path / "text").write_text("".join(f"{x}\n" for x in lines_of(corpus / "test.en")[:3]))
    (tmp_path / "target").write_text("".join(f"{x}\n" for x in lines_of(corpus / "test.ru")[:3]))
    files = ["--text", tmp_path / "text", "--target", tmp_path / "target"]
    page = viewed(softmax, tmp_path / "x.html", *files)
    assert (page["kind"], page["title"]) == ("softmax", "text")
    assert page["translation"] == "that of target"
    for place, window in enumerate(page["windows"]):
        assert window["first"] == place
        assert len(window["weights"]) == len(page["target"][place])
        for row in window["weights"]:
            assert len(row) == len(page["source"][place])
            assert sum(row) == pytest.approx(1000, abs=len(row))
    text = "".join(page["source"][0][:-1])
    assert text == " " + lines_of(corpus / "test.en")[0]


@pytest.mark.full
def test_its_own_translation(document_model, sentences, tmp_path):
    """As fairseq-generate translates the document."""
    search = ["--beam", 2, "--max-len-a", 0.5, "--max-len-b", 2]
    page = viewed(document_model, tmp_path / "x.html", "--document", DOCUMENT, *search)
    assert page["translation"] == "the model's own"
    expected = hypotheses(generate(document_model, *WINDOWS, *search))
    for place, sentence in enumerate(sentences):
        assert "".join(page["target"][place][:-1]) == f" {expected[sentence].text}"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--document", 99], "--document must be from 0 to 3 in test, but is 99"),
        (["--text", "{0}/two", "--target", "{0}/one"], "has 1 lines, but --text {0}/two has 2"),
        (["--text", "{0}/long"], "--text {0}/long, line 2: must have at most the 1024 tokens that"),
    ],
)
def test_errors(flags, message, document_model, tmp_path, capsys):
    for name, text in (("empty", ""), ("one", "a\n"), ("two", "a\nb\n"), ("long", LONG)):
        (tmp_path / name).write_text(text)
    given = [str(flag).format(tmp_path) for flag in flags]
    if "--output" not in given:
        given += ["--output", str(tmp_path / "x.html")]
    path = ["--path", str(document_model.checkpoint), "--cpu"]
    assert main(["view", str(document_model.data), *path, *given]) == 1
    assert message.format(tmp_path) in capsys.readouterr().err
