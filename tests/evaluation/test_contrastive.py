"""Contrastive sets are read whole, and scores become the right accuracies."""

import json
import math
from pathlib import Path

import pytest
from corpora import corpus, needs
from preparing import prepare

from fairseq_memattn.data_prep.commands import discourse
from fairseq_memattn.evaluation.contrastive import (
    Group,
    judge,
    results,
    results_text,
    scoring_lines,
)
from fairseq_memattn.evaluation.contrastive_sets import (
    SETS,
    ContrastiveSet,
    direction_of,
    read_contrapro,
    read_set,
    read_voita_flat,
)
from fairseq_memattn.evaluation.contrastive_sets.contrapro import replaced_pronoun
from fairseq_memattn.evaluation.directions import check_direction, pair_in_name
from fairseq_memattn.evaluation.swapped_groups import exchanged, handle_exchanged

VOITA = corpus("voita-consistency-en-ru") / "consistency_testsets"
CONTRAPRO = corpus("contrapro-en-de")
DOCS = Path(__file__).resolve().parents[2] / "docs"


def group(size=2, true=0, phenomenon="any", distance=None, pronoun=None, texts=None):
    candidates = tuple(("context", text) for text in texts or map(str, range(size)))
    return Group(("context", "now"), candidates, true, phenomenon, distance, pronoun)


@needs("voita-consistency-en-ru")
@pytest.mark.parametrize(
    ("name", "groups", "lines", "distances", "repeated"),
    [
        ("deixis_dev", 500, 1000, [180, 154, 166], 0),
        ("deixis_test", 2500, 5000, [820, 846, 834], 0),
        ("lex_cohesion_dev", 500, 1124, [198, 170, 132], 0),
        ("lex_cohesion_test", 1500, 3428, [657, 460, 383], 0),
        ("ellipsis_infl", 500, 2520, [460, 39, 1], 2),
        ("ellipsis_vp", 500, 5203, [499, 1], 11),
    ],
)
def test_voitas_sets(name, groups, lines, distances, repeated):
    found = read_set(VOITA / f"{name}.json")
    flat = VOITA / "scoring_data" / name
    assert found == read_voita_flat(
        flat.with_suffix(".src"), flat.with_suffix(".dst"), VOITA / f"{name}.json"
    )
    # Scored by what is right, so that only groups that no score can decide are lost.
    right = [float(line.candidate == found[line.group].true_index) for line in scoring_lines(found)]
    total = results(found, [score - 1 for score in right])["total"]
    assert (total["groups"], total["lines"], total["repeated"]) == (groups, lines, repeated)
    assert total["right"] == groups - repeated
    assert [part["groups"] for part in total["distances"].values()] == distances
    assert {len(text) for each in found for text in (each.source, *each.candidates)} == {4}


@needs("contrapro-en-de")
def test_contrapro():
    found = read_set(CONTRAPRO)
    total = results(found, [0.0] * 36031)["total"]
    assert (total["groups"], total["lines"], total["right"]) == (12000, 36031, 0)
    assert total["ties"] == 12000
    counts = {name: part["groups"] for name, part in total["pronouns"].items()}
    assert counts == dict.fromkeys(("er", "es", "sie"), 4000)
    assert sum(len(each.source) == 1 for each in found) == 6
    assert exchanged(found) == []


def test_the_projects_own_sets(tmp_path):
    out = tmp_path / "corpus"
    small = "--train-docs 1 --valid-docs 1 --test-docs 1 --contrast-groups 6".split()
    assert prepare(discourse, ["--output", str(out), *small]) == 0
    names = ("pronoun", "deixis", "ellipsis", "cohesion")
    found = [each for name in names for each in read_set(out / f"contrast/{name}.json")]
    assert handle_exchanged(found).sentence == ""
    # A model of the current sentence alone is right by chance, as docs/data.md has it.
    scores = [
        -float(sum(map(ord, line.target[-1]))) - line.candidate / 100
        for line in scoring_lines(found)
    ]
    parts = results(found, scores)["phenomena"]
    for name in names:
        assert parts[name]["chance"] == 0.5
        assert parts[name]["accuracy"] == 0.5
        assert list(parts[name]["distances"]) == ["1", "2", "3"]


NEXT = -1.0 - 2**-23  # the next float32 below -1


@pytest.mark.parametrize(
    ("scores", "true", "verdict"),
    [
        ([-1.0, -2.0, -3.0], 0, "right"),
        ([-2.0, -1.0, -3.0], 0, "wrong"),
        ([-2.0, -3.0, -1.0], 2, "right"),
        ([-1.0, -2.0, -1.0], 0, "tie"),
        ([-1.0, -2.0, -1.0], 2, "tie"),
        ([-2.0, -1.0, -2.0], 0, "wrong"),
        ([-1.0, NEXT, -2.0], 0, "right"),
        ([-math.inf, -math.inf, -math.inf], 1, "tie"),
        ([0.0, -1.0, 2.0], 2, "right"),
    ],
)
def test_only_the_strictly_best_is_right(scores, true, verdict):
    assert judge([group(3, true)], scores) == [verdict]


@pytest.mark.parametrize("scores", [[-1.0, -2.0, -3.0], [-1.0, -1.0, -2.0], [-2.0, -1.0, -1.5]])
def test_a_right_candidate_that_is_also_a_wrong_one_is_never_right(scores):
    assert judge([group(true=0, texts=["a", "b", "a"])], scores) == ["repeated"]
    assert judge([group(true=0, texts=["c", "a", "a"])], scores) != ["repeated"]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([-1.0, -2.0, math.nan, -1.0], "the score of line 3 of 4 is NaN"),
        ([-1.0] * 3, "there are 3 scores for 4 lines"),
        ([1.0, 2.0, 0.0, 1.0], "but none is below 0, and the largest is 2.0: are they losses"),
    ],
)
def test_scores_that_cannot_be(scores, message):
    with pytest.raises(ValueError, match=message):
        judge([group(), group()], scores)
    with pytest.raises(ValueError, match="no groups"):
        results([], [])


def test_counts_by_phenomenon_distance_and_pronoun():
    groups = [
        group(2, 0, "deixis", 1), group(2, 0, "deixis", 1), group(4, 0, "deixis", 3),
        group(2, 0, "contrapro", None, "sie"), group(2, 0, "contrapro", None, "er"),
        group(2, 0, "contrapro", None, None),
    ]  # fmt: skip
    scores = [-1, -2, -2, -2, -1, -2, -2, -2, -2, -1, -1, -2, -1, -3]
    summary = results(groups, scores)
    assert json.loads(json.dumps(summary)) == summary
    pick = ("groups", "lines", "right", "ties", "accuracy", "chance")
    parts = {
        "total": summary["total"],
        **summary["phenomena"],
        **summary["phenomena"]["deixis"]["distances"],
        **summary["phenomena"]["contrapro"]["pronouns"],
    }
    assert {name: tuple(part[key] for key in pick) for name, part in parts.items()} == {
        "total": (6, 14, 4, 1, 4 / 6, 2.75 / 6),
        "deixis": (3, 8, 2, 1, 2 / 3, 1.25 / 3),
        "1": (2, 4, 1, 1, 0.5, 0.5),
        "3": (1, 4, 1, 0, 1.0, 0.25),
        "contrapro": (3, 6, 2, 0, 2 / 3, 0.5),
        "er": (1, 2, 1, 0, 1.0, 0.5),
        "sie": (1, 2, 0, 0, 0.0, 0.5),
    }
    assert results_text(summary).splitlines() == [
        "              groups  lines  right  ties  repeated  accuracy  chance",
        "deixis             3      8      2     1         0    66.7 %  41.7 %",
        "  distance 1       2      4      1     1         0    50.0 %  50.0 %",
        "  distance 3       1      4      1     0         0   100.0 %  25.0 %",
        "contrapro          3      6      2     0         0    66.7 %  50.0 %",
        "  er               1      2      1     0         0   100.0 %  50.0 %",
        "  sie              1      2      0     0         0     0.0 %  50.0 %",
        "total              6     14      4     1         0    66.7 %  45.8 %",
    ]


RUSSIAN = Group(("Is it far ?", "No ."), (("Далеко ?", "Нет ."), ("Далеко ?", "Да .")), 0, "set")
EXCHANGED = Group(
    ("Далеко ?", "Нет ."), (("Is it far ?", "No ."), ("Is it far ?", "Да .")), 0, "set"
)


@pytest.mark.parametrize(
    ("handling", "groups"),
    [("keep", [RUSSIAN, EXCHANGED, RUSSIAN]), ("swap", [RUSSIAN] * 3), ("drop", [RUSSIAN] * 2)],
)
def test_an_exchanged_group(handling, groups):
    handled = handle_exchanged([RUSSIAN, EXCHANGED, RUSSIAN], handling)
    assert handled.groups == groups
    assert handled.report == {"handling": handling, "lines": ["3-4"]}
    assert handle_exchanged([EXCHANGED, RUSSIAN, EXCHANGED]).report["lines"] == ["3-4"]


@pytest.mark.parametrize(
    ("pronoun", "reference", "variants"),
    [
        ("es", "Das Buch? Es liegt da.", ["Das Buch? Sie liegt da.", "Das Buch? Er liegt da."]),
        ("er", "Ich sah ihn.", ["Ich sah es.", "Ich sah sie."]),
        # Every variant leaves its own part of a repeated pronoun alone.
        ("es", "Es ist, wo es war.", ["Sie ist, wo es war.", "Er ist, wo er war."]),
        # A possessive goes along with the pronoun, in one of the variants or in all.
        ("sie", "Sie hat ihre Zeit.", ["Er hat seine Zeit.", "Es hat seine Zeit."]),
        ("er", "Er hat seine Zeit.", ["Sie hat ihre Zeit.", "Es hat seine Zeit."]),
        ("es", "...und es geht!", ["...und \u201eer\u201c geht!", "...und sie da geht!"]),
        (None, "Er sah sie.", ["Sie sah ihn.", "Es sah ihn."]),
        (None, "Ein Haus.", ["Eine Haus.", "Einer Haus."]),
    ],
)
def test_the_pronoun_is_what_every_variant_replaces(pronoun, reference, variants):
    assert replaced_pronoun("de", reference, variants) == pronoun


def test_the_pronoun_in_other_languages():
    assert replaced_pronoun("fr", "Elles sont parties.", ["Ils sont partis."]) == "elles"
    assert replaced_pronoun("it", "Elles sont parties.", ["Ils sont partis."]) is None


CONTRAPRO_FILES = {
    "contrapro.text.en": ["It is here."] * 3 + ["I see it."] * 2,
    "contrapro.text.de": [f"{pronoun} ist da." for pronoun in ("Er", "Sie", "Es")]
    + ["Ich sehe es.", "Ich sehe ihn."],
    "contrapro.context.en": ["The tree?"] * 3 + [""] * 2,
    "contrapro.context.de": ["Der Baum?"] * 3 + [""] * 2,
    "sentence_groups.txt": ["0", "3"],
}


def write(folder, files):
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


@pytest.mark.parametrize("end", [[], ["5"]])
def test_an_empty_context_line_is_no_sentence(tmp_path, end):
    files = {**CONTRAPRO_FILES, "sentence_groups.txt": ["0", "3", *end]}
    first, second = read_set(write(tmp_path, files))
    assert first.source == ("The tree?", "It is here.")
    assert first.candidates == tuple(
        ("Der Baum?", f"{pronoun} ist da.") for pronoun in ("Er", "Sie", "Es")
    )
    assert second.source == ("I see it.",)
    assert second.candidates == (("Ich sehe es.",), ("Ich sehe ihn.",))
    assert [(each.true_index, each.pronoun) for each in (first, second)] == [(0, "er"), (0, "es")]


def test_contrapro_with_more_context_and_other_languages(tmp_path):
    files = {
        "contrapro.text.en": ["c"] * 2,
        "contrapro.text.fr": ["C", "D"],
        "contrapro.context.en": ["", "b"] * 2,
        "contrapro.context.fr": ["", "B"] * 2,
        "sentence_groups.txt": ["0"],
    }
    for langs in ({}, {"source_lang": "en"}, {"target_lang": "fr"}):
        (found,) = read_contrapro(write(tmp_path, files), **langs)
        assert (found.source, found.candidates) == (("b", "c"), (("B", "C"), ("B", "D")))
        assert (found.pronoun, found.phenomenon) == (None, "contrapro")
    with pytest.raises(ValueError, match="has no contrapro.text.it"):
        read_contrapro(tmp_path, target_lang="it")


def entry(pronoun, document, distance, *contrastive):
    errors = [{"contrastive": text, "replacement": "?", "type": "any"} for text in contrastive]
    return {"ref pronoun": pronoun, "src pronoun": "it", "document id": document} | {
        "ante distance": distance, "errors": errors, "ref segment": "tokenised otherwise",
    }  # fmt: skip


# As the script of Lopes et al. (2020) writes them: the groups of a document follow each other.
LOPES_FILES = {
    "Films.current.src": ["It shines ."] * 2 + ["It rains ."] * 2 + ["They run ."] * 2,
    "Films.current.trg": ["Il brille .", "Elle brille ."]
    + ["Elle tombe .", "Il tombe ."]
    + ["Ils courent .", "Elles courent ."],
    "Films.c2.context.src": [*["Look :", "the sun ."] * 2, "", "Water .", "", "Water .", *[""] * 4],
    "Films.c2.context.trg": [
        *["Vois :", "le soleil ."] * 2,
        "",
        "L'eau .",
        "",
        "L'eau .",
        *[""] * 4,
    ],
}
LOPES = [
    entry("Il", "1990_1", 1, "Elle  brille ."),
    entry("ils", "1991_2", 12, "Elles courent . "),
    entry("Elle", "1990_1", -1, "Il tombe ."),
]


def write_lopes(folder, entries=LOPES, **files):
    (folder / "testset-en-fr.json").write_text(json.dumps(entries, ensure_ascii=False))
    return write(folder, LOPES_FILES | files)


def test_the_set_of_lopes_et_al_without_its_json(tmp_path):
    """Its files are called src and trg, but its pronouns are French."""
    files = {**LOPES_FILES, "sentence_groups.txt": ["0", "2", "4"]}
    groups = read_set(write(tmp_path, files))
    assert [each.pronoun for each in groups] == ["il", "elle", "ils"]
    assert direction_of(tmp_path, groups) == ("en", "fr")
    assert read_set(tmp_path, "fr") == groups
    assert direction_of(tmp_path, groups, "de") == (None, "de")
    assert {each.pronoun for each in read_set(tmp_path, "de")} == {None}


def test_a_set_says_its_direction_and_another_one_is_an_error(tmp_path):
    path = write(tmp_path, {**CONTRAPRO_FILES, "sentence_groups.txt": ["0", "3"]})
    direction = direction_of(path, read_set(path))
    for model in (("en_XX", "de_DE"), ("eng_Latn", None), ("src", "tgt"), (None, "de")):
        check_direction(path, direction, model)
    with pytest.raises(ValueError, match="is en-de, but the model translates de-en"):
        check_direction(path, direction, ("de", "en"))
    with pytest.raises(ValueError, match="is en-de, but --lang is fr"):
        direction_of(path, read_set(path), "fr")
    assert pair_in_name(Path("auxiliary.opensubtitles.en-de.test.json")) == ("en", "de")
    russian = [RUSSIAN, RUSSIAN, EXCHANGED]
    assert SETS["voita"].direction(path, russian) == ("en", "ru")
    assert SETS["voita"].direction(path, [EXCHANGED]) == (None, None)
    assert SETS["disceval"].direction(Path("anaphora.json"), []) == ("en", "fr")


def test_the_set_of_lopes_et_al(tmp_path):
    found = read_set(write_lopes(tmp_path))
    assert [one.source for one in found] == [
        ("Look :", "the sun .", "It shines ."), ("Water .", "It rains ."), ("They run .",),
    ]  # fmt: skip
    assert found[1].candidates == (("L'eau .", "Elle tombe ."), ("L'eau .", "Il tombe ."))
    parts = results(found, [-1.0, -2.0, -1.0, -2.0, -2.0, -1.0])["phenomena"]["Films"]
    pick = ("groups", "right")
    rows = parts["pronouns"] | {f"distance {name}": row for name, row in parts["distances"].items()}
    assert {name: tuple(row[key] for key in pick) for name, row in rows.items()} == {
        "il": (1, 1), "elle": (1, 1), "ils": (1, 0), "distance 1": (1, 1), "distance >3": (1, 0),
    }  # fmt: skip


def test_contrapros_json_names_groups_and_pronouns(tmp_path):
    files = {name: lines for name, lines in CONTRAPRO_FILES.items() if name.startswith("contrapro")}
    entries = [
        entry("Er", "1.de", 2, "Sie ist da.", "Es ist da."),
        entry("es", "1.de", None, "Ich sehe ihn."),
    ]
    (tmp_path / "contrapro.json").write_text(json.dumps(entries))
    first, second = read_set(write(tmp_path, files))
    assert [(len(one.candidates), one.pronoun, one.distance) for one in (first, second)] == [
        (3, "er", 2), (2, "es", None),
    ]  # fmt: skip


def write_extracted(folder, **files):
    """The layout of the repository: the text in a folder of its own, with several contexts."""
    (folder / "extracted").mkdir()
    (folder / "testset-en-fr.json").write_text(json.dumps(LOPES, ensure_ascii=False))
    return write(folder / "extracted", EXTRACTED_FILES | files)


# Two sentences of context are missing where a document has one, which the smaller files have.
EXTRACTED_FILES = {
    **LOPES_FILES,
    "Films.c1.context.src": ["the sun ."] * 2 + ["Water ."] * 2 + [""] * 2,
    "Films.c1.context.trg": ["le soleil ."] * 2 + ["L'eau ."] * 2 + [""] * 2,
    "Films.c2.context.src": [*["Look :", "the sun ."] * 2, *[""] * 8],
    "Films.c2.context.trg": [*["Vois :", "le soleil ."] * 2, *[""] * 8],
}


def test_the_published_layout_of_lopes_et_al(tmp_path):
    (tmp_path / "joined").mkdir()
    joined = read_set(write_lopes(tmp_path / "joined"))
    (tmp_path / "published").mkdir()
    assert read_set(write_extracted(tmp_path / "published")) == joined


def test_context_files_of_different_extractions(tmp_path):
    folder = write_extracted(tmp_path, **{"Films.c1.context.src": ["Wine ."] * 6})
    message = "c1.context.src: the context of line 1 of Films.current.src is not that of the other"
    with pytest.raises(ValueError, match=message):
        read_set(folder)


def test_entries_with_the_same_candidates_in_another_order(tmp_path):
    entries = [
        entry("il", "1", 1, "Elle ."),
        entry("elle", "2", 0, "Il tombe ."),
        entry("il", "3", 2, "Elle ."),
    ]
    files = {
        "Films.current.src": ["It ."] * 4 + ["It falls ."] * 2,
        "Films.current.trg": ["Il .", "Elle ."] * 2 + ["Elle tombe .", "Il tombe ."],
        **{f"Films.c2.context.{side}": [""] * 12 for side in ("src", "trg")},
    }
    found = read_set(write_lopes(tmp_path, entries, **files))
    assert [(one.pronoun, one.distance) for one in found] == [
        ("il", None), ("il", None), ("elle", 0),
    ]  # fmt: skip
    files["Films.current.trg"] = ["Il .", "Elle ."] * 3
    with pytest.raises(ValueError, match="json: line 6 of the text must be the `contrastive`"):
        read_set(write_lopes(tmp_path, entries, **files))


DOES_NOT_FIT = [
    ("contrapro.text.en", ["a", "a", "b", "c", "c"], "contrapro.text.en, line 3: differs from l"),
    ("contrapro.context.en", ["a"] * 4, "must have a multiple of the 5 lines of .*, but has 4"),
    ("contrapro.context.de", [""] * 5, "lines 1-3: the source has 2 sentences, but a candidate"),
    ("sentence_groups.txt", ["0", "6"], "line 2: must be from 1 to 5, but is 6"),
]


def test_contrapro_that_does_not_fit(tmp_path):
    for file, lines, message in DOES_NOT_FIT:
        folder = write(tmp_path, {**CONTRAPRO_FILES, file: lines})
        with pytest.raises(ValueError, match=message):
            read_contrapro(folder)


ENTRY = {"src": "A . _eos B .", "dst": ["a . _eos b .", "a . _eos c ."], "true_ind": 1}


def test_voitas_format(tmp_path):
    path = tmp_path / "deixis.json"
    path.write_text(json.dumps([ENTRY, {**ENTRY, "ctx_dist": 2}]))
    found = Group(("A .", "B ."), (("a .", "b ."), ("a .", "c .")), 1, "deixis")
    assert read_set(path)[0] == found
    assert [each.distance for each in read_set(path)] == [None, 2]
    assert [line[:2] for line in scoring_lines([found] * 2)] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert scoring_lines([found])[1].target == ("a .", "c .")


WRONG_GROUPS = [
    ([{**ENTRY, "true_ind": 2}], "group 1: the index .* must be from 0 to 1, but is 2"),
    ([ENTRY, {**ENTRY, "dst": ["a _eos b"]}], "group 2: there must be at least 2 candidates"),
    ([{**ENTRY, "dst": ["a", "a _eos c"]}], "source has 2 sentences, but a candidate has 1"),
    ([{**ENTRY, "dst": ["a _eos", "a _eos c"]}], "group 1: a sentence is empty"),
]


def test_voitas_format_that_does_not_fit(tmp_path):
    path = tmp_path / "set.json"
    for content, message in WRONG_GROUPS:
        path.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=message):
            read_set(path)
    path.write_text(json.dumps([ENTRY]))
    write(tmp_path, {"src": ["A _eos B", "A _eos C"], "dst": ["a _eos b", "a _eos c"]})
    with pytest.raises(ValueError, match="src, line 2: differs from line 1"):
        read_voita_flat(tmp_path / "src", tmp_path / "dst", path)


def test_a_set_is_added_by_an_entry(tmp_path, monkeypatch):
    """The example of docs/context_sets.md, "Adding a contrastive set"."""
    text = (DOCS / "context_sets.md").read_text(encoding="utf-8")
    example = text.partition("### Adding a contrastive set")[2].partition("```python")[2]
    names: dict = {}
    exec(example.partition("```")[0], names)
    entry = names["TSV"]
    assert isinstance(entry, ContrastiveSet)
    path = tmp_path / "gender.tsv"
    path.write_text("A .\tB .\tc .\td .\te .\n", encoding="utf-8")
    with pytest.raises(ValueError, match="not JSON"):
        read_set(path)
    monkeypatch.setattr("fairseq_memattn.evaluation.contrastive_sets.SETS", {"tsv": entry} | SETS)
    (found,) = read_set(path)
    assert found == Group(("A .", "B ."), (("c .", "d ."), ("c .", "e .")), 0, "gender")
    folder = tmp_path / "folder"
    folder.mkdir()
    message = r"folder must be one of: a .tsv file \(tsv\), a folder with NAME.text.LANG"
    with pytest.raises(ValueError, match=message):
        read_set(folder)
