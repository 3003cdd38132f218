"""GenPro: the pronouns of ContraPro in translations, and the sources of ctxpro's examples."""

import json

import pytest
from corpora import corpus, needs

from fairseq_memattn.cli import main
from fairseq_memattn.evaluation.contrastive_sets import read_contrapro
from fairseq_memattn.evaluation.generative import Example
from fairseq_memattn.evaluation.generative_sets import read_generative
from fairseq_memattn.evaluation.generative_sets.ctxpro import sources_of_file

CONTRAPRO, CTXPRO = corpus("contrapro-en-de"), corpus("ctxpro-en-de")
# German lines of two groups, the first candidate of which is correct, and their pronouns.
CANDIDATES = [["Es ist rot.", "Er ist rot.", "Sie ist rot."], ["Ich sehe sie.", "Ich sehe es."]]
PRONOUNS, DISTANCES = ["es", "Sie"], [0, 7]


def write_set(folder, candidates=CANDIDATES, with_json=True, context="Was?"):
    """A set in the layout of ContraPro; its name is that of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    name, lines = folder.name, [line for group in candidates for line in group]
    sources = [f"It is {number}." for number, group in enumerate(candidates) for _ in group]
    starts = [sum(map(len, candidates[:number])) for number in range(len(candidates))]
    (folder / "sentence_groups.txt").write_text("".join(f"{start}\n" for start in starts))
    for kind, text in (
        ("text.en", sources),
        ("text.de", lines),
        ("context.en", [context] * len(lines)),
        ("context.de", [context] * len(lines)),
    ):
        (folder / f"{name}.{kind}").write_text("".join(f"{line}\n" for line in text), "utf-8")
    if with_json:
        entries = [
            {
                "ref pronoun": pronoun,
                "ante distance": distance,
                "errors": [{"contrastive": line} for line in group[1:]],
            }
            for group, pronoun, distance in zip(candidates, PRONOUNS, DISTANCES, strict=True)
        ]
        (folder / "set.json").write_text(json.dumps(entries), encoding="utf-8")
    return folder


def judged(folder, sets, *texts, lang=()):
    """The results of texts, each as long as the sets."""
    argv = ["contrast", "--sets", *sets, *lang, "--json", folder / "out.json"]
    for number, text in enumerate(texts):
        (folder / f"text{number}").write_text(text, encoding="utf-8")
        argv += ["--translations", f"system{number}={folder / f'text{number}'}"]
    status = main(list(map(str, argv)))
    return json.loads((folder / "out.json").read_text("utf-8")) if status == 0 else status


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Er ist rot.", True),
        ("-Er ist rot.", True),
        ("Ist „er“ rot?", True),
        ("Ihn sehe ich, und sie sieht er.", True),
        ("Er ist da. Was ist rot?", True),  # a line of subtitles has several sentences
        ("Er ist da. <eos> Was ist rot?", False),
        ("Was?<eos>Er ist rot.", True),
        ("Ihn sehe ich.", False),
        ("Erst dann.", False),
        ("", False),
    ],
)
def test_the_pronoun_is_a_word_after_the_last_separator(text, right):
    example = Example("Er", "set", "pronoun", pronoun="Er")
    assert example.is_right(text, lambda text: [text]) is right


def test_pronouns_and_distances_are_parts(tmp_path, capsys):
    folder = write_set(tmp_path / "pronouns")
    results = judged(tmp_path, [folder], "Es? <eos> Er ist rot.\nWas? <eos> Ich sehe sie.\n")
    start = {"system": "system0", "set": "pronouns", "category": "pronoun"}
    wrong, right = ({"correct": n, "total": 1, "accuracy": 100.0 * n} for n in (0, 1))
    assert results == [
        start | {"correct": 1, "total": 2, "accuracy": 50.0},
        start | {"pronoun": "es"} | wrong,
        start | {"pronoun": "sie"} | right,
        start | {"distance": 0} | wrong,
        start | {"distance": ">3"} | right,
    ]
    printed = capsys.readouterr()
    assert "pronoun sie" in printed.out and "distance >3" in printed.out
    assert printed.err == ""


def test_sets_of_both_kinds_mix_and_systems_are_compared(tmp_path):
    pytest.importorskip("sentence_splitter")
    folder = write_set(tmp_path / "pronouns", [[f"Es {n}.", f"Er {n}."] for n in range(8)], False)
    entries = [{"expected": "weiß", "rule": "DO.ELL"}] * 2
    (tmp_path / "auxiliary.json").write_text(json.dumps(entries), encoding="utf-8")
    base = "Er? <eos> Sie.\n" * 8 + "Ich weiß. Ja.\nIch weiß.\n"
    other = "Er? <eos> Es.\n" * 8 + "Ich weiß.\n" * 2
    sets = [folder, tmp_path / "auxiliary.json"]
    results = judged(tmp_path, sets, base, other, lang=["--lang", "de"])
    whole = [entry for entry in results if not {"rule", "pronoun"} & entry.keys()]
    found = [(entry["set"], entry["correct"]) for entry in whole]
    assert found == [("pronouns", 0), ("auxiliary", 1), ("pronouns", 8), ("auxiliary", 2)]
    assert [entry.get("p") for entry in whole] == [None, None, pytest.approx(2**-7), 1.0]


def test_bad_sets(tmp_path, capsys):
    unknown = write_set(tmp_path / "unknown", [["Da.", "Dort."]], with_json=False)
    pronouns = write_set(tmp_path / "pronouns")
    copy = write_set(tmp_path / "copies" / "pronouns")
    (tmp_path / "auxiliary.json").write_text('[{"expected": "a", "rule": "b"}]')
    for sets, text, message in (
        ([unknown], "a\n", "unknown, group 1: the pronoun is not known; the folder must have the"),
        ([pronouns], "a\n", "text0 has 1 lines, but --sets have 2 examples"),
        ([pronouns, copy], "a\n" * 4, "--sets: two sets have the name pronouns"),
        ([pronouns, tmp_path / "auxiliary.json"], "a\n" * 3, "--lang is missing; JSON files of"),
    ):
        assert judged(tmp_path, sets, text) == 1
        assert message in capsys.readouterr().err
        assert not (tmp_path / "out.json").exists()


@pytest.mark.full
@needs("contrapro-en-de")
def test_the_references_of_contrapro_are_right(tmp_path):
    groups = read_contrapro(CONTRAPRO)
    text = "".join(" <eos> ".join(group.true) + "\n" for group in groups)
    whole, *parts = judged(tmp_path, [CONTRAPRO], text)
    assert (whole["correct"], whole["total"]) == (12000, 12000)
    totals = {part["pronoun"]: part["total"] for part in parts}
    assert totals == dict.fromkeys(("er", "sie", "es"), 4000)
    examples = read_generative(CONTRAPRO)
    wrong = [
        example.is_right(candidate[-1], lambda text: [text])
        for example, group in zip(examples, groups, strict=True)
        for candidate in group.candidates[1:]
    ]
    assert (sum(wrong), len(wrong)) == (987, 24031)
    assert examples[0].source == groups[0].source and len(examples[0].source) == 2


@needs("ctxpro-en-de")
@pytest.mark.parametrize(
    ("name", "file", "lengths"),
    [
        ("auxiliary.opensubtitles.en-de.dev", "contexts", {5, 7, 10}),
        ("mini.formality.opensubtitles.en-de.test", "", {1, 2, 3, 4, 5}),
    ],
)
def test_the_published_sources(name, file, lengths):
    path = CTXPRO / f"{name}.json"
    entries = json.loads(path.read_text(encoding="utf-8"))
    sources = sources_of_file(path, CTXPRO / (f"{name}.{file}" if file else name))
    assert set(map(len, sources)) == lengths
    # A source has at most the lines before the tested one, which the JSON counts from 1.
    most = max(lengths)
    assert all(
        len(source) == min(most, entry["segment id"])
        for source, entry in zip(sources, entries, strict=True)
    )
