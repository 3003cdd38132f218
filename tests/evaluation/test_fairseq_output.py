"""What fairseq-generate printed is read whole or not at all, and scored as text."""

import pytest

from fairseq_memattn.cli import main
from fairseq_memattn.cli.commands.score import last_sentence
from fairseq_memattn.evaluation.fairseq_output import detokenise, read_hypotheses, read_lines
from fairseq_memattn.pieces import spell_bytes

OUTPUT = """S-1\t▁a\nT-1\t▁b
H-1\t-0.5\t▁second
D-1\t-0.5\tsecond
P-1\t-0.5
H-0\t-0.1\t▁first ▁one
H-0\t-0.9\t▁first ▁two
Translated 2 sentences
"""


@pytest.fixture
def generated(tmp_path):
    path = tmp_path / "generated.txt"
    path.write_text(OUTPUT, encoding="utf-8")
    return path


def test_the_best_hypothesis_of_each_sentence_in_the_order_of_the_input(generated):
    assert read_hypotheses(generated, 2) == ["▁first ▁one", "▁second"]


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (3, "of 2 sentences, but must have 3; the first missing one is number 2"),
        (1, "a hypothesis of sentence 1 .* but there are 1 references"),
    ],
)
def test_a_lost_or_a_surplus_sentence_is_refused(generated, expected, message):
    with pytest.raises(ValueError, match=message):
        read_hypotheses(generated, expected)


def test_a_sentence_in_two_places_is_refused(tmp_path):
    """Several hypotheses of a sentence follow one another; two outputs in one file do not."""
    path = tmp_path / "generated.txt"
    path.write_text("H-0\t-1\ta\nH-0\t-2\tb\nH-1\t-1\tc\n", encoding="utf-8")
    assert read_hypotheses(path, 2) == ["a", "c"]
    path.write_text("H-0\t-1\ta\nH-1\t-1\tc\nH-0\t-1\ta\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"hypotheses of sentence 0 \(from 0\) in two places"):
        read_hypotheses(path, 2)


def test_lines_end_at_newlines_alone(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("one\u2028still one\r\ntwo\n\n".encode())
    assert read_lines(path) == ["one\u2028still one", "two", ""]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ("▁Где ▁ваш а ▁сумка ? ▁_eos ▁Там .", "Где ваша сумка? _eos Там."),
        ("▁Ja . _eos ▁Nein .", "Ja. _eos Nein."),
        ("▁_eos ▁Там", "_eos Там"),
        ("", ""),
    ],
)
def test_pieces_to_text(pieces, text):
    assert detokenise(["▁x", pieces], "_eos") == ["x", text]


@pytest.mark.parametrize(
    ("line", "last"), [("A. _eos B. _eos C.", "C."), ("C.", "C."), ("A. _eos", "")]
)
def test_last_sentence(line, last):
    assert last_sentence(line, "_eos") == last


def score(capsys, *args):
    status = main(["score", *map(str, args)])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_hypotheses_that_are_the_references_are_told(tmp_path, capsys):
    (tmp_path / "generated").write_text("T-0\ta b\nH-0\t-1\ta b\n")
    (tmp_path / "reference").write_text("a b\n")
    options = "--system", tmp_path / "generated", "--reference", tmp_path / "reference"
    assert "all 1 hypotheses are the references (T-)" in score(capsys, *options)[2]
    status, _, err = score(capsys, *options, "--separator", "")
    assert status == 1 and "--separator must be a token without spaces, but is ''" in err


def test_windows_are_scored_by_their_last_sentence(tmp_path, capsys):
    generated, reference = tmp_path / "generated", tmp_path / "reference"
    generated.write_text("H-0\t-1\t▁x ▁_eos ▁The ▁cat ▁sat ▁down\nH-1\t-1\t▁A ▁dog ▁ran ▁off\n")
    reference.write_text("y y y _eos The cat sat down\nz _eos A dog ran off\n")
    output = tmp_path / "output"
    status, out, err = score(
        capsys, "--generated", generated, "--reference", reference,
        "--separator", "_eos", "--output", output,
    )  # fmt: skip
    assert status == 0
    assert " = 100.00 " in out.splitlines()[0]
    assert "1 of 2 hypotheses have another number of _eos" in err
    assert output.read_text() == "The cat sat down\nA dog ran off\n"


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        (b"H-0\t-1\ta\n", b"a\n", "--separator _eos occurs neither"),
        (b"H-0\t-1\ta\n", b"\n", "has no text"),
        (b"H-0\t-1\ta\n", b"a\n\xff\n", "reference, line 2: not UTF-8 at byte 1"),
        (b"nothing\n", b"a\n", "no line that starts with H-"),
        (
            b"{'generation': {'score_reference': True}}\nH-0\t-1\ta\n",
            b"a\n",
            "its hypotheses are the references",
        ),
    ],
)
def test_what_cannot_be_scored(tmp_path, capsys, hypotheses, references, message):
    (tmp_path / "generated").write_bytes(hypotheses)
    (tmp_path / "reference").write_bytes(references)
    status, _, err = score(
        capsys, "--generated", tmp_path / "generated", "--reference", tmp_path / "reference",
        "--separator", "_eos",
    )  # fmt: skip
    assert status == 1
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("pieces", "labels"),
    [
        ("▁caf <0xC3> <0xA9> !", ["▁caf", "é", "", "!"]),
        ("<0xE2> <0x82> <0xAC> <0x41>", ["€", "", "", "A"]),
        ("<0xC3> ▁a <0xA9>", ["<0xC3>", "▁a", "<0xA9>"]),  # none forms a character
    ],
)
def test_bytes_of_a_character_are_shown_as_it(pieces, labels):
    assert spell_bytes(pieces.split()) == labels
