"""The data that is written without fairseq, byte for byte that of fairseq-preprocess."""

import os
from pathlib import Path

import pytest
from full import full
from in_process import run_in_process

from fairseq_memattn.data_prep.pipeline import binarise as script
from fairseq_memattn.data_prep.pipeline.binarise import find_splits

ODD = ["a  b\tc", "", "b </s> <unk> b", "ü\u00a0e\u0301 \x1c b", " 中 文 ", "a <pad> <s>"]
TEXT = {
    "train": {"en": [*ODD, "the end"], "de": ["eins b", "zwei", "c a a", "ü", "b", "e", "<unk>"]},
    "valid": {"en": ["new words a"], "de": ["neue b"]},
    "test": {"en": ["the", "b new"], "de": ["zwei", "zwei"]},
    "test1": {"en": ["a"], "de": ["a"]},
}
DICTIONARY = "the 7\na 3\n<unk> 2 #fairseq:overwrite\na 1 #fairseq:overwrite\nb 0\n"


def written(folder: Path, text: dict[str, dict[str, list[str]]] = TEXT) -> dict[str, Path]:
    """The prefixes of the splits."""
    for split, languages in text.items():
        for language, lines in languages.items():
            content = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{language}").write_text(content, encoding="utf-8")
    return {split: folder / split for split in text}


def preprocess(
    splits: dict[str, Path], languages: list[str], folder: Path, joined: object, dictionary: object
) -> None:
    """fairseq-preprocess for the same text."""
    argv = ["fairseq-preprocess", "--destdir", str(folder)]
    if len(languages) == 2:
        argv += ["--source-lang", languages[0], "--target-lang", languages[1]]
        argv += ["--joined-dictionary"] * bool(joined)
    else:
        argv += ["--only-source"]
        splits = {split: Path(f"{prefix}.{languages[0]}") for split, prefix in splits.items()}
    given = dictionary.values() if isinstance(dictionary, dict) else [dictionary] * bool(dictionary)
    for flag, path in zip(("--srcdict", "--tgtdict"), given, strict=False):
        argv += [flag, str(path)]
    for family in ("train", "valid", "test"):
        prefixes = ",".join(str(splits[name]) for name in splits if name.startswith(family))
        argv += [f"--{family}pref", prefixes]
    done = run_in_process("fairseq-preprocess", argv, None, None, {**os.environ})
    assert done.returncode == 0, done.stderr


def check(splits: dict[str, Path], languages: list[str], folder: Path, **options: object) -> None:
    joined, dictionary = options.get("joined", True), options.get("dictionary")
    ours, theirs = folder / "ours", folder / "theirs"
    found = find_splits(splits, languages)
    ours.mkdir()
    theirs.mkdir()
    symbols = script.symbols_by_language(found, joined, dictionary)
    script.write_data(found, ours, symbols, workers=2)
    preprocess(splits, languages, theirs, joined, dictionary)
    for folder in (ours, theirs):
        (folder / "preprocess.log").unlink()
    assert {p.name for p in ours.iterdir()} == {p.name for p in theirs.iterdir()}
    for path in ours.iterdir():
        assert path.read_bytes() == (theirs / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("languages", "joined"),
    [
        (["de", "en"], True),
        full(["en", "de"], True),
        full(["en", "de"], False),
        full(["de", "en"], False),
        (["en"], False),
    ],
)
def test_dictionaries_of_the_text(languages: list[str], joined: bool, tmp_path: Path) -> None:
    check(written(tmp_path), languages, tmp_path, joined=joined)


@pytest.mark.full
@pytest.mark.parametrize("languages", [["en"], ["en", "de"]])
def test_a_dictionary_that_overwrites_symbols(languages: list[str], tmp_path: Path) -> None:
    path = tmp_path / "given.txt"
    path.write_text(DICTIONARY, encoding="utf-8")
    check(written(tmp_path), languages, tmp_path, dictionary=path)


@pytest.mark.full
def test_a_dictionary_for_each_language(tmp_path: Path) -> None:
    given = {"en": tmp_path / "given.en", "de": tmp_path / "given.de"}
    given["en"].write_text(DICTIONARY, encoding="utf-8")
    given["de"].write_text("zwei 1\nb 1\n", encoding="utf-8")
    check(written(tmp_path), ["en", "de"], tmp_path, joined=False, dictionary=given)


@pytest.mark.parametrize("symbols", [full(65_496), 65_504])  # 2 and 4 bytes a token
def test_the_type_of_the_numbers(symbols: int, tmp_path: Path) -> None:
    path = tmp_path / "given.txt"
    path.write_text("".join(f"w{i} 1\n" for i in range(symbols - 4)), encoding="utf-8")
    text = {"test": {"en": [f"w0 w{symbols - 5} w{symbols}", "w1"]}}
    check(written(tmp_path, text), ["en"], tmp_path, dictionary=path)
