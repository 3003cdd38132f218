"""Text is what its pieces give back; what is not is counted, and its first line is named."""

import random
from functools import partial
from pathlib import Path

import pytest
from fairseq.data import data_utils
from fairseq.data.data_utils import post_process
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig
from fairseq.tokenizer import tokenize_line
from official_archives import lines
from preparing import prepare

from fairseq_memattn.data_prep.pipeline.binary_data import count_symbols, write_binary
from fairseq_memattn.data_prep.pipeline.spans import sentencepiece_cut
from fairseq_memattn.data_prep.text import bpe, subword
from fairseq_memattn.data_prep.text.lines import from_bpe, rewrite
from fairseq_memattn.evaluation.fairseq_output import join_window
from fairseq_memattn.host.patches import prepare_fairseq
from fairseq_memattn.pieces import BYTES, join_pieces
from fairseq_memattn.transformers.pieces import SentencePieces

# NFKC composes or decomposes letters, and replaces punctuation, ligatures, digits and joiners.
TEXT = {
    "yo": "O\u0323\u0300na\u0300 ti\u0301 a gba\u0300 s\u0323e e\u0301 da\u0301ra",
    "zh": "\u4ed6\u8bf4\uff1a\u201c\u4f60\u597d\uff0c\u4e16\u754c\uff01\u201d\uff08\uff21",
    "fa": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u06a9\u062a\u0627\u0628",
    "bn": "\u0986\u09ae\u09be\u09b0 \u09ac\u09be\u09dc\u09bf \u09b9\u09df \u0986\u09b7\u09be\u09dd",
    "en": "\u00bd cup, \ufb01ve 10\u00b2 \u2122 soft\u00adhyphen zero\u200bwidth \ufeff e\u0301",
}


ENGLISH = [f"The {a} {b} is old." for a in ("red", "blue") for b in ("house", "garden", "letter")]
LINES = [*TEXT.values(), *ENGLISH]
SIZE = "80"


def write(path: Path, content: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("text") / "train.xx", LINES)


def train(text: Path, folder: Path, *options: str) -> Path:
    """The model of `memattn prepare subword train`."""
    argv = ["train", "--input", str(text), "--model", str(folder / "spm"), "--vocab-size", SIZE]
    assert prepare(subword, [*argv, *options]) == 0
    return folder / "spm.model"


def as_fairseq_restores(pieces: str) -> str:
    return str(post_process(" ".join(tokenize_line(pieces)), "sentencepiece"))


@pytest.mark.parametrize("model_type", subword.MODEL_TYPES)
def test_pieces_give_every_character_back(model_type: str, text: Path, tmp_path: Path) -> None:
    model = train(text, tmp_path, "--model-type", model_type)
    assert subword.encode(model, [text], tmp_path) == {"lines": 11}
    assert list(map(as_fairseq_restores, lines(tmp_path / text.name))) == LINES


def test_a_normalisation_on_demand_is_counted(text, tmp_path, capsys):
    model = train(text, tmp_path, "--normalization", "nmt_nfkc")
    capsys.readouterr()
    counts = subword.encode(model, [text], tmp_path)
    restored = list(map(as_fairseq_restores, lines(tmp_path / text.name)))
    assert restored[5:] == ENGLISH and not set(restored[:5]) & {*LINES}
    what = "lines of train.xx that their pieces do not give back (the first is line 1)"
    assert counts == {"lines": 11, what: 5}
    [warning] = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"warning: {text}: 5 of 11 lines differ from the text that their")
    assert warning.endswith(f"is line 1, where {TEXT['yo'][:40]!r} becomes {restored[0][:40]!r}")


@pytest.mark.parametrize("normalization", ["identity", "nfkc", "nmt_nfkc"])
def test_white_space_becomes_single_spaces(normalization: str, text: Path, tmp_path: Path) -> None:
    """fairseq would split a piece at any other white space, and lose it."""
    model = train(text, tmp_path, "--normalization", normalization)
    spaces = "".join(c for c in map(chr, range(0x110000)) if c.isspace() and c not in "\r\n")
    source = write(tmp_path / "spaces", [" a ".join(spaces), f"{spaces}zero"])
    assert subword.encode(model, [source], tmp_path / "out") == {"lines": 2}
    words = " ".join((len(spaces) - 1) * ["a"])
    assert list(map(as_fairseq_restores, lines(tmp_path / "out/spaces"))) == [words, "zero"]
    prepare_fairseq()
    typed = SentencepieceBPE(SentencepieceConfig(sentencepiece_model=str(model)))
    for line, made in zip(lines(source), lines(tmp_path / "out/spaces"), strict=True):
        assert SentencePieces(model).split(line) == typed.encode(line).split() == made.split()
    pieces, places = sentencepiece_cut(model)(f"{spaces}zero")
    assert places[-1][1] == len(spaces) + 4 and all(piece.split() == [piece] for piece in pieces)


def test_what_the_dictionary_lacks_is_told_where_it_is_lost(text, tmp_path, capsys):
    """SentencePiece's own pieces are not those of the dictionary, which the training text has."""
    model = train(text, tmp_path)
    source = write(tmp_path / "test.xx", ["a cup", "zero \u6f22 width", "a \u2581 cup", ""])
    what = "lines of test.xx that their pieces do not give back (the first is line 3)"
    assert subword.encode(model, [source], tmp_path / "out")[what] == 1
    assert "'a \u2581 cup' becomes 'a cup'" in capsys.readouterr().err
    pieces = [tmp_path / "out" / name for name in ("train.xx", "test.xx")]
    write(pieces[0], [line for line in lines(pieces[1]) if "\u6f22" not in line])
    words = len(lines(pieces[1])[1].split())
    content = write_binary(pieces[1], count_symbols(pieces[:1]), tmp_path / "test", workers=1)
    told = capsys.readouterr().err
    assert content.startswith("4 sentences") and words > 2
    assert f"warning: {pieces[1]}: 1 of 4 lines have symbols that the dictionary lacks" in told
    assert "; the first is line 2, '" in told


@pytest.mark.parametrize(
    ("restore", "name"), [(join_pieces, "sentencepiece"), (from_bpe, "subword_nmt")]
)
@pytest.mark.parametrize(
    "pieces", ["\u2581The \u2581ho use", "a@@ b c@@", " \u2581 \u2581a\u3000b \u2581", "", "@@ x"]
)
def test_text_is_restored_as_fairseq_does_it(restore, name: str, pieces: str) -> None:
    assert restore(pieces) == post_process(" ".join(tokenize_line(pieces)), name)


RARE = ["\u9f98\u9f98 \U0001f600", "<0x41> zero", "e\u0301 \u6f22"]


@pytest.mark.parametrize("model_type", subword.MODEL_TYPES)
def test_characters_that_a_model_spells(model_type: str, text: Path, tmp_path: Path) -> None:
    """Nothing is <unk>, and every reader of pieces gives the characters back, as SentencePiece."""
    options = ["--byte-fallback", "--model-type", model_type]
    model = train(text, tmp_path, "--vocab-size", "336", *options)
    source = write(tmp_path / "rare", RARE)
    assert subword.encode(model, [source], tmp_path / "out") == {"lines": 3}
    pieces = lines(tmp_path / "out/rare")
    symbols = count_symbols([], subword.all_pieces(model))
    assert ", 0.000% of them <unk>" in write_binary(
        tmp_path / "out/rare", symbols, tmp_path / "x", 1
    )
    assert not {"<unk>", "<s>", "</s>"} & {symbol for symbol, _ in symbols}
    prepare_fairseq()
    typed = SentencepieceBPE(SentencepieceConfig(sentencepiece_model=str(model)))
    spelled = random.Random(1).choices([*BYTES[0x21:], "\u2581"], k=4000)
    drawn = [" ".join(spelled[start : start + 8]) for start in range(0, 4000, 8)]
    decode = subword.load(model).decode
    for line in [*pieces, *drawn]:
        expected = decode(line.split()).strip()
        assert join_pieces(line) == " ".join(expected.split(" ")) == typed.decode(line)
        assert data_utils.post_process(line, "sentencepiece") == expected
        assert SentencePieces(model).join(line.split()) == join_window(line, "_eos") == expected
    assert [join_pieces(line) for line in pieces] == RARE
    assert join_pieces("<0x0A> <0x41> <0x20> b <0xE2> <0x80> <0xA8> c") == "A b c"  # one line


def test_a_text_of_many_characters_is_spelled_by_default(tmp_path: Path) -> None:
    """What covers 0.9995 of the characters has pieces, and the rest has those of its bytes."""
    many = [chr(0x4E00 + number) for number in range(subword.MOST_CHARACTERS)]
    frequent = write(tmp_path / "text", 30 * ["".join(many)])
    arguments = ["--input", str(frequent), "--model", str(tmp_path / "spm"), "--vocab-size"]
    for size, rare, spelled in ((505, "", False), (761, "\u9f98", True)):
        write(frequent, [*30 * ["".join(many)], rare])
        assert prepare(subword, ["train", *arguments, str(size)]) == 0
        pieces = subword.all_pieces(tmp_path / "spm.model")
        assert subword.spells(tmp_path / "spm.model") == (BYTES[0] in pieces) == spelled
        assert {*many} <= {*pieces} and "\u9f98" not in pieces


@pytest.mark.parametrize("workers", [1, 2])
def test_bpe_gives_back_what_has_no_mark_of_its_own(workers, tmp_path, capsys):
    source = write(tmp_path / "text", ["the house", "the@@ mouse", " a\u00a0house  ", "an @@ end"])
    bpe.learn([source, source], tmp_path / "codes", 99, total=False)
    make = partial(bpe.segmenter, tmp_path / "codes")
    counts = rewrite(source, tmp_path / "out", make, workers, from_bpe)
    what = "lines of text that their pieces do not give back (the first is line 2)"
    assert counts == {"lines": 4, what: 2}
    assert "where 'the@@ mouse' becomes 'themouse'" in capsys.readouterr().err
