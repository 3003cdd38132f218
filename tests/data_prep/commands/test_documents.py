"""Other toolkits' formats to ours and back, and every way they can be wrong."""

import re
from pathlib import Path

import pytest
from preparing import prepare

from fairseq_memattn.data_prep.commands import documents
from fairseq_memattn.data_prep.commands import prepare as load_and_prepare
from fairseq_memattn.errors import MemAttnError

EN, RU = "a\nb  c \nd\ne\nf\n", "А\nБ В\n Г\nД\nЕ\n"
NUMBERED = {"en": EN, "ru": RU, "docid": "1\n1\n2\n3\n3\n"}
NAMED = {"en": EN, "ru": RU, "docid": "x y\nx y\nGEN_1\n7\n7\n"}

# What each format makes of the documents 1 1 2 3 3, and so what becomes of it again.
WRITTEN = {
    "contextual-mt": {"en": EN, "ru": RU, "docids": "1\n1\n2\n3\n3\n"},
    "muda": {"en": EN, "ru": RU, "docids": "1\n1\n2\n3\n3\n"},
    "han": {"en": EN, "ru": RU, "doc": "0\n2\n3\n"},
    "focused-concat": {"en": EN, "ru": RU, "en.heads": "1\n3\n4\n"},
    "selective-attn": {
        "en": "<d>\na\nb  c \n<d>\nd\n<d>\ne\nf\n",
        "ru": "<d>\nА\nБ В\n<d>\n Г\n<d>\nД\nЕ\n",
    },
    "blank-lines": {"en": "a\nb  c \n\nd\n\ne\nf\n", "ru": "А\nБ В\n\n Г\n\nД\nЕ\n"},
    "jsonl": {
        "jsonl": """{"docid": "1", "en": "a", "ru": "А"}
{"docid": "1", "en": "b  c ", "ru": "Б В"}
{"docid": "2", "en": "d", "ru": " Г"}
{"docid": "3", "en": "e", "ru": "Д"}
{"docid": "3", "en": "f", "ru": "Е"}
"""
    },
    "jsonl-documents": {
        "jsonl": """{"docid": "1", "en": ["a", "b  c "], "ru": ["А", "Б В"]}
{"docid": "2", "en": ["d"], "ru": [" Г"]}
{"docid": "3", "en": ["e", "f"], "ru": ["Д", "Е"]}
"""
    },
    "tsv": {"tsv": "docid\ten\tru\n1\ta\tА\n1\tb  c \tБ В\n2\td\t Г\n3\te\tД\n3\tf\tЕ\n"},
    "g-transformer": {
        "en": "<s> a </s> <s> b  c  </s>\n<s> d </s>\n<s> e </s> <s> f </s>\n",
        "ru": "<s> А </s> <s> Б В </s>\n<s>  Г </s>\n<s> Д </s> <s> Е </s>\n",
    },
}


def write(prefix: Path, files: dict[str, str]) -> Path:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for suffix, text in files.items():
        Path(f"{prefix}.{suffix}").write_text(text, encoding="utf-8", newline="")
    return prefix


def written(prefix: Path) -> dict[str, str]:
    """What lies under a prefix, by suffix."""
    return {
        path.name.removeprefix(prefix.name + "."): path.read_bytes().decode("utf-8")
        for path in prefix.parent.glob(f"{prefix.name}.*")
    }


def convert(direction: str, form: str, source: Path, target: Path, *options: object) -> int:
    arguments = [direction, form, "--input", source, "--output", target, "--langs", "en", "ru"]
    return prepare(documents, [str(argument) for argument in (*arguments, *options)])


def mistake(capsys: pytest.CaptureFixture[str], status: int) -> str:
    """The message of a run that failed."""
    captured = capsys.readouterr()
    assert (status, captured.out) == (1, "")
    return captured.err.splitlines()[-1].removeprefix("memattn prepare: error: ")


@pytest.mark.parametrize("form", WRITTEN)
def test_numbered_documents_there_and_back_are_exact(form, tmp_path, capsys):
    ours = write(tmp_path / "ours" / "train", NUMBERED)
    theirs, back = tmp_path / "theirs" / "train", tmp_path / "back" / "train"
    assert convert("to", form, ours, theirs) == 0
    assert capsys.readouterr().out == "3 documents, 5 sentences, the longest document 2 (1)\n"
    assert written(theirs) == WRITTEN[form]
    assert convert("from", form, theirs, back) == 0
    assert written(back) == NUMBERED


@pytest.mark.parametrize(
    ("form", "docid", "remark"),
    [
        ("muda", NAMED["docid"], ""),
        ("jsonl", NAMED["docid"], ""),
        ("jsonl-documents", NAMED["docid"], ""),
        ("tsv", NAMED["docid"], ""),
        ("contextual-mt", NUMBERED["docid"], "the document ids became the integers 1 to 3"),
        ("han", NUMBERED["docid"], "the document ids are not kept"),
        ("focused-concat", NUMBERED["docid"], "the document ids are not kept"),
        ("selective-attn", NUMBERED["docid"], "the document ids are not kept"),
        ("blank-lines", NUMBERED["docid"], "the document ids are not kept"),
        ("g-transformer", NUMBERED["docid"], "the document ids are not kept"),
    ],
)
def test_names_of_documents_that_are_lost_are_told(form, docid, remark, tmp_path, capsys):
    ours = write(tmp_path / "ours" / "train", NAMED)
    theirs, back = tmp_path / "theirs" / "train", tmp_path / "back" / "train"
    assert convert("to", form, ours, theirs) == 0
    notes = capsys.readouterr().out.splitlines()[1:]
    assert [note.startswith(f"note: {remark}") for note in notes] == [True] * bool(remark)
    assert convert("from", form, theirs, back) == 0
    assert written(back) == NAMED | {"docid": docid}


@pytest.mark.parametrize(
    ("form", "files", "docid"),
    [
        ("contextual-mt", {"docids": "-4\n-4\n007\n10\n10\n"}, "-4\n-4\n7\n10\n10\n"),
        ("focused-concat", {"en.heads": "0\n2\n3\n"}, "1\n1\n2\n3\n3\n"),
        ("focused-concat", {"en.heads": "1\n"}, "1\n" * 5),
        ("han", {"doc": " 0\r\n4\r\n"}, "1\n1\n1\n1\n2\n"),
        (
            "blank-lines",
            {"en": "\na\nb  c \n \nd\ne\nf\n\n", "ru": "\nА\nБ В\n\n Г\nД\nЕ\n\n"},
            "1\n1\n2\n2\n2\n",
        ),
    ],
)
def test_other_ways_to_write_a_format(form, files, docid, tmp_path):
    theirs = write(tmp_path / "theirs" / "train", {"en": EN, "ru": RU} | files)
    assert convert("from", form, theirs, tmp_path / "back" / "train") == 0
    assert written(tmp_path / "back" / "train") == {"en": EN, "ru": RU, "docid": docid}


def test_integers_that_are_ids_already_stay(tmp_path: Path) -> None:
    ours = write(tmp_path / "a", NUMBERED | {"docid": "30\n30\n-2\n0\n0\n"})
    assert convert("to", "contextual-mt", ours, tmp_path / "b") == 0
    assert written(tmp_path / "b")["docids"] == "30\n30\n-2\n0\n0\n"


def test_a_file_of_boundaries_by_another_name(tmp_path: Path) -> None:
    ours = write(tmp_path / "ours" / "train", NUMBERED)
    firsts = tmp_path / "train_doc.txt"
    option = ["--boundaries", firsts]
    assert convert("to", "han", ours, tmp_path / "han" / "train", *option) == 0
    assert firsts.read_text() == "0\n2\n3\n"
    assert convert("from", "han", tmp_path / "han" / "train", tmp_path / "train", *option) == 0
    assert written(tmp_path / "train") == NUMBERED


def test_segments_are_full_and_never_longer_than_the_limit(tmp_path, capsys):
    files = {
        "en": "a\na a\na a a\na\nb\n",
        "ru": "А А А\nБ\nВ\nГ Г\nД\n",
        "docid": "1\n" * 4 + "2\n",
    }
    ours = write(tmp_path / "ours", files)
    assert convert("to", "g-transformer", ours, tmp_path / "seg", "--max-tokens", "8") == 0
    assert "note: 1 of 2 documents have more than 8 tokens" in capsys.readouterr().out
    assert written(tmp_path / "seg") == {
        "en": "<s> a </s> <s> a a </s>\n<s> a a a </s> <s> a </s>\n<s> b </s>\n",
        "ru": "<s> А А А </s> <s> Б </s>\n<s> В </s> <s> Г Г </s>\n<s> Д </s>\n",
    }
    options = ["--max-tokens", "4", "--force"]
    status = convert("to", "g-transformer", ours, tmp_path / "seg", *options)
    assert mistake(capsys, status) == (
        f"{ours}.ru, line 1: --max-tokens must be at least 5 for this sentence, but is 4"
    )


def test_windows_of_four_and_the_sentences_that_have_none(tmp_path, capsys):
    files = {"en": "a\nb\nc\nd\ne\nf\n", "ru": "А\nБ\nВ\nГ\nД\nЕ\n", "docid": "1\n" * 5 + "2\n"}
    ours = write(tmp_path / "ours", files)
    assert convert("to", "voita", ours, tmp_path / "v") == 0
    assert (
        "note: 4 sentences have fewer than 3 before them and no line of their own; "
        "1 documents of fewer than 4 sentences are left out"
    ) in capsys.readouterr().out
    assert written(tmp_path / "v") == {
        "en": "a _eos b _eos c _eos d\nb _eos c _eos d _eos e\n",
        "ru": "А _eos Б _eos В _eos Г\nБ _eos В _eos Г _eos Д\n",
    }
    assert convert("from", "voita", tmp_path / "v", tmp_path / "back") == 0
    assert "note: each line became a document of its own" in capsys.readouterr().out
    assert written(tmp_path / "back") == {
        "en": "a\nb\nc\nd\nb\nc\nd\ne\n",
        "ru": "А\nБ\nВ\nГ\nБ\nВ\nГ\nД\n",
        "docid": "1\n" * 4 + "2\n" * 4,
    }
    assert convert("to", "voita", tmp_path / "back", tmp_path / "again") == 0
    assert written(tmp_path / "again") == written(tmp_path / "v")


@pytest.mark.parametrize("columns", ["docid=talk en=English ru=Russian", "docid=1 en=3 ru=4"])
def test_a_table_with_other_names(columns: str, tmp_path: Path) -> None:
    rows = "talk\tspeaker\tEnglish\tRussian\n1\tx\ta\tА\n1\ty\tb\tБ\n2\tx\tc\tВ\n"
    if columns[-1] == "4":
        rows = rows.partition("\n")[2]
    (tmp_path / "table.tsv").write_text(rows, encoding="utf-8")
    given = ["--columns", *columns.split()]
    assert convert("from", "tsv", tmp_path / "table.tsv", tmp_path / "ours", *given) == 0
    expected = {"en": "a\nb\nc\n", "ru": "А\nБ\nВ\n", "docid": "1\n1\n2\n"}
    assert written(tmp_path / "ours") == expected


def test_lines_without_text_are_dropped_only_when_asked_for_and_counted(tmp_path, capsys):
    en, ru = "<d>\na\n \n<d>\nc\n\n<d>\nd\n", "<d>\nА\nБ\n<d>\n\n\n<d>\nГ\n"
    theirs = write(tmp_path / "theirs", {"en": en, "ru": ru})
    status = convert("from", "selective-attn", theirs, tmp_path / "back")
    assert mistake(capsys, status) == f"{theirs}.en, line 3: the line is empty"
    assert convert("from", "selective-attn", theirs, tmp_path / "back", "--drop-empty") == 0
    assert "note: 3 lines without text in some language dropped, the first was line 3" in (
        capsys.readouterr().out
    )
    assert written(tmp_path / "back") == {"en": "a\nd\n", "ru": "А\nГ\n", "docid": "1\n3\n"}


MALFORMED = [
    ("contextual-mt", {"docids": "1\n1\n2\n1\n1\n"}, "line 4: document id '1' began at line 1"),
    ("han", {"doc": "1\n3\n"}, "doc, line 1: the first document must begin at 0, but begins at 1"),
    ("han", {"doc": "0\n3\n3\n"}, "doc, line 3: must be greater than the number before, 3, but"),
    ("han", {"doc": "0\n4\n5\n"}, "doc, line 3: a document must begin at 4 or before"),
    ("selective-attn", {"en": "<d>\na\n", "ru": "<d>\n<d>\n"}, "en, line 2: must be <d> as in"),
    ("selective-attn", {"en": "<d>\n<d>\na\n", "ru": "<d>\n<d>\nА\n"}, "2: the document before"),
    ("blank-lines", {"en": "a\n\nb\n", "ru": "А\nБ\nВ\n"}, "en, line 2: the line is empty"),
    ("blank-lines", {"en": "a\n\n\nb\n", "ru": "А\n\n\nБ\n"}, "en, line 3: the document before"),
    ("g-transformer", {"en": "<s> a </s>\n", "ru": "<s> А </s> <s> Б </s>\n"}, "1, but has 2"),
    ("jsonl", {"jsonl": '{"docid": 1, "en": "a"}\n'}, "jsonl, line 1: has no key 'ru'"),
    ("jsonl-documents", {"jsonl": '{"docid": 1, "en": ["a"], "ru": []}\n'}, "must be a list of"),
    (
        "jsonl-documents",
        {"jsonl": '{"docid": 1, "en": ["a\\r"], "ru": [""]}\n'},
        "has a line break",
    ),
    (
        "jsonl-documents",
        {"jsonl": 2 * '{"docid": "t", "en": ["a"], "ru": ["А"]}\n'},
        "id 't' began",
    ),
    ("tsv", {"tsv": "docid\ten\tru\n1\ta\n"}, "tsv, line 2: must have at least 3 fields"),
    (
        "voita",
        {"en": "a _eos b _eos c _eos d\n", "ru": "А _eos Б _eos _eos Г\n"},
        "ru, line 1: a sent",
    ),
]


def test_malformed_input_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    for number, (form, files, message) in enumerate(MALFORMED):
        theirs = write(tmp_path / str(number) / "theirs", {"en": EN, "ru": RU} | files)
        with pytest.raises(MemAttnError, match=re.escape(message)):
            options = (
                f"from {form} --langs en ru --input {theirs} --output {theirs.parent}/new/back"
            )
            load_and_prepare("documents", options.split())
        assert not (theirs.parent / "new").exists()


@pytest.mark.parametrize(
    ("form", "files", "options", "message"),
    [
        ("selective-attn", {"en": EN.replace("d", "<d>")}, "", "line 3: the text contains '<d>'"),
        ("voita", {"en": EN.replace("f", "f _eos f")}, "", "line 5: the text contains '_eos'"),
        ("tsv", {"en": EN.replace("d", "d\td")}, "", "line 3: the text contains '\\t'"),
        ("han", {}, "--output ours", "would overwrite an input"),
    ],
)
def test_text_that_a_format_cannot_hold_and_impossible_options(
    form, files, options, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    write(Path("ours"), NUMBERED | files)
    before = written(tmp_path / "ours")
    status = convert("to", form, Path("ours"), Path("new/theirs"), *options.split())
    assert message in mistake(capsys, status)
    assert written(tmp_path / "ours") == before and not Path("new").exists()


SPLIT = "--langs en ru --valid-docs 3 --test-docs 4 --seed"


def documents_of(order: list[int]) -> dict[str, str]:
    """Documents of one to three sentences, in the order of their numbers."""
    rows = [(f"d{n} s{i}", f"д{n} п{i}", f"doc {n}") for n in order for i in range(1 + n % 3)]
    columns = zip(*rows, strict=True)
    texts = ("\n".join(column) + "\n" for column in columns)
    return dict(zip(("en", "ru", "docid"), texts, strict=True))


def split(prefix: Path, folder: Path, seed: int) -> dict[str, dict[str, str]]:
    places = ["--input", str(prefix), "--output", str(folder)]
    assert prepare(documents, ["split", *places, *SPLIT.split(), str(seed)]) == 0
    return {name: written(folder / name) for name in documents.SPLITS}


def test_a_split_is_by_whole_documents_and_loses_none(tmp_path, capsys):
    numbers = list(range(20))
    parts = split(write(tmp_path / "all", documents_of(numbers)), tmp_path / "s", seed=1)
    ids = {name: list(dict.fromkeys(part["docid"].splitlines())) for name, part in parts.items()}
    assert {name: len(found) for name, found in ids.items()} == {"train": 13, "valid": 3, "test": 4}
    for name, part in parts.items():
        own = [n for n in numbers if f"doc {n}" in ids[name]]
        assert part == documents_of(own)
    assert sum(len(part["en"].splitlines()) for part in parts.values()) == len(
        documents_of(numbers)["en"].splitlines()
    )
    assert capsys.readouterr().out.splitlines()[1].startswith("valid 3 documents, ")


def test_a_split_depends_on_seed_and_ids_alone(tmp_path: Path) -> None:
    numbers = list(range(20))
    prefix = write(tmp_path / "all", documents_of(numbers))
    first = split(prefix, tmp_path / "s1", seed=1)
    assert split(prefix, tmp_path / "s2", seed=1) == first
    assert split(prefix, tmp_path / "s3", seed=2) != first
    assert set(first["test"]["docid"].splitlines()) == {"doc 7", "doc 9", "doc 11", "doc 13"}
    backwards = split(
        write(tmp_path / "back", documents_of(numbers[::-1])), tmp_path / "s4", seed=1
    )
    for name, part in backwards.items():
        assert sorted(part["en"].splitlines()) == sorted(first[name]["en"].splitlines())


def test_a_split_leaves_documents_to_train_on(tmp_path: Path) -> None:
    prefix = write(tmp_path / "all", documents_of(list(range(7))))
    with pytest.raises(MemAttnError, match="leave at least one of the 7 documents in"):
        options = f"split --input {prefix} --output {tmp_path / 'new'} --langs en ru"
        load_and_prepare("documents", f"{options} --valid-docs 3 --test-docs 4".split())
    assert not (tmp_path / "new").exists()


def test_a_split_is_replaced_only_by_force(tmp_path, capsys):
    prefix = write(tmp_path / "all", documents_of(list(range(20))))
    first = split(prefix, tmp_path / "s", seed=1)
    again = ["split", "--input", str(prefix), "--output", str(tmp_path / "s"), *SPLIT.split(), "2"]
    assert prepare(documents, again) == 1
    assert "train.en exists; choose another --output" in capsys.readouterr().err
    assert written(tmp_path / "s" / "train") == first["train"]
    assert prepare(documents, [*again, "--force"]) == 0
    assert written(tmp_path / "s" / "train") != first["train"]
