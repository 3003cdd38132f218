"""Measures of documents in `memattn score`: hand-computed values, and equalities between them."""

import json
import random
from argparse import Namespace

import pytest
import sacrebleu
from scoring import refusal, score

from fairseq_memattn.cli.scoring.options import alignment_files
from fairseq_memattn.evaluation.document_lines import Document
from fairseq_memattn.evaluation.scores import Slide, slide_windows
from fairseq_memattn.evaluation.word_alignment import align_words
from fairseq_memattn.evaluation.words import function_words, tokenise

SIZES = {"a": 1, "b": 2, "c": 7, "d": 13, "e": 4}


@pytest.fixture
def texts():
    random_ = random.Random(3)
    words = "the cat sees one small tree and then it stops near our old House".split()
    reference = [
        " ".join(random_.choices(words, k=random_.randint(3, 20)))
        for _ in range(sum(SIZES.values()))
    ]
    systems = {
        name: [
            " ".join(random_.choice(words) if random_.random() < share else w for w in line.split())
            for line in reference
        ]
        for name, share in (("base", 0.2), ("other", 0.05))
    }
    ids = [name for name, size in SIZES.items() for _ in range(size)]
    source = [line.upper() for line in reference]
    return {"reference": reference, "ids": ids, "source": source, **systems}


ONE = "--system base={d}/base --reference {d}/reference --docids {d}/ids"
TWO = ONE + " --system other={d}/other --resamples 0"


# SLIDE


@pytest.mark.parametrize(
    ("size", "window", "stride", "expected"),
    [
        (7, 3, 2, ["0-3", "2-5", "4-7"]),
        (8, 3, 2, ["0-3", "2-5", "4-7", "5-8"]),
        (8, 3, 3, ["0-3", "3-6", "5-8"]),
        (3, 3, 1, ["0-3"]),
        (2, 3, 1, ["0-2"]),
        (3, 1, 1, ["0-1", "1-2", "2-3"]),
    ],
)
def test_windows_reach_the_end_of_a_document(size, window, stride, expected):
    windows = slide_windows([Document("x", 0, size)], Slide(window, stride))
    assert [f"{start}-{stop}" for _, start, stop in windows] == expected
    moved = slide_windows([Document("w", 0, 4), Document("x", 4, 4 + size)], Slide(window, stride))
    assert [(start - 4, stop - 4) for name, start, stop in moved if name == "x"] == [
        (start, stop) for _, start, stop in windows
    ]


def test_slide_of_single_sentences_is_the_mean_of_sentence_scores(tmp_path, capsys, texts):
    measures = score(tmp_path, capsys, texts, TWO + " --slide-window 1").report["measures"]
    metrics = {"BLEU": sacrebleu.BLEU(effective_order=True), "chrF2": sacrebleu.CHRF()}
    for name, metric in metrics.items():
        for system in ("base", "other"):
            pairs = zip(texts[system], texts["reference"], strict=True)
            scores = [metric.sentence_score(line, [reference]).score for line, reference in pairs]
            found = measures[f"SLIDE-{name}"]["systems"][system]["score"]
            assert found == pytest.approx(sum(scores) / len(scores))
        signature = measures[f"SLIDE-{name}"]["signature"]
        assert signature == f"window:1|stride:1|tail:shifted|{metric.get_signature()}"


def test_slide_of_a_document_in_one_window_is_its_score(tmp_path, capsys, texts):
    only = texts | {"ids": ["x"] * len(texts["ids"])}
    done = score(tmp_path, capsys, only, TWO + " --slide-window 99 --tokenize char --lowercase")
    measures = done.report["measures"]
    for system in ("base", "other"):
        slide = measures["SLIDE-BLEU"]["systems"][system]["score"]
        assert slide == pytest.approx(measures["d-BLEU"]["systems"][system]["score"])
    assert "case:lc|eff:yes|tok:char" in measures["SLIDE-BLEU"]["signature"]


# Consistency

#         document x                          document y: Bank is not repeated
SOURCE = ["Bank river Bank", "the bank", "the River", "the Bank", "the Bank", "the end"]
TARGET = ["Bank Fluss Ufer", "die BANK", "ein Fluss", "die Bank", "das Ufer", "ein Ende"]
LINKS = ["0-0 1-1 2-2", "0-0 1-1", "0-0 1-1", "0-0 1-1", "0-0 1-1", "0-0 1-1"]
LTCR = {
    "source": SOURCE,
    "reference": TARGET,
    "base": TARGET,
    "ids": ["x", "x", "x", "x", "y", "z"],
    "links": LINKS,
    "stop": ["the"],
}
CONSISTENCY = ONE + " --source {d}/source --consistency"
ALIGNED = CONSISTENCY + " --alignments {d}/links --stop-words {d}/stop"


def test_ltcr_by_hand(tmp_path, capsys):
    done = score(tmp_path, capsys, LTCR, ALIGNED)
    found = done.report["consistency"]["systems"]["base"]
    # In x, "bank" is Bank, Ufer, Bank, Bank: 3 of 6 pairs. "river" is Fluss twice: 1 of 1.
    counts = {"words": 2, "occurrences": 6, "aligned": 6, "pairs": 7, "equal": 4}
    assert {key: found[key] for key in counts} == counts
    assert found["LTCR"] == pytest.approx(400 / 7)
    assert found["least_consistent"] == [
        {"document": "x", "word": "bank", "translations": {"bank": 3, "ufer": 1}}
    ]
    assert done.report["consistency"]["reference"] is None
    assert done.report["consistency"]["signature"] == (
        "aligner:file|source-tok:13a|tok:13a|case:folded|stop-words:file"
    )
    assert f"{400 / 7:.2f}" in done.out


def test_a_translation_consists_of_all_linked_words(tmp_path, capsys):
    links = ["0-0 0-0 0-1 1-1 2-1 2-0", "0-0", "1-1", "1-1", "", ""]
    done = score(tmp_path, capsys, LTCR | {"links": links}, ALIGNED)
    found = done.report["consistency"]["systems"]["base"]
    # "bank": Bank Fluss, Bank Fluss, no link, Bank: 1 of 3 pairs.
    assert (found["occurrences"], found["aligned"]) == (6, 5)
    assert (found["pairs"], found["equal"]) == (3 + 1, 1 + 1)


def test_the_reference_and_each_system_have_their_alignments(tmp_path, capsys):
    command = ALIGNED.replace("--alignments ", "--alignments base=") + (
        " --system other={d}/base --alignments other={d}/none"
    )
    files = LTCR | {"none": [""] * 6}
    options = command + " --reference-alignments {d}/links --resamples 0"
    report = score(tmp_path, capsys, files, options).report["consistency"]
    assert report["reference"] == report["systems"]["base"]
    assert report["systems"]["other"]["LTCR"] is None
    assert report["systems"]["other"]["occurrences"] == 6


def test_function_words_are_in_more_than_half_of_the_documents():
    sentences = tokenise(["The cat", "the dog", "A the cat", "the a"], "13a")
    documents = [Document(name, index, index + 1) for index, name in enumerate("wxyz")]
    assert function_words(sentences, documents) == {"the"}


def pairs_of_words(sentences, seed):
    """Source sentences, and their translation word by word with two neighbours exchanged."""
    random_ = random.Random(seed)
    words = [first + second for first in "abcdefgh" for second in "stuvwxyz"]
    source = [random_.sample(words, random_.randint(4, 8)) for _ in range(sentences)]
    target = []
    for line in source:
        index = random_.randrange(len(line) - 1)
        line = [word[::-1].upper() for word in line]
        line[index : index + 2] = line[index + 1], line[index]
        target.append(line)
    return source, target


def test_words_are_aligned_by_what_they_occur_with():
    source, target = pairs_of_words(300, seed=2)
    links = align_words([*source, []], [*target, ["SA"]])
    assert links[-1] == []
    found = [
        (source[number][i], target[number][j].casefold()[::-1])
        for number, each in enumerate(links[:-1])
        for i, j in each
    ]
    assert len(found) > 0.97 * sum(map(len, source))
    assert sum(word == other for word, other in found) > 0.99 * len(found)


def test_consistent_translations_are_found_without_alignments(tmp_path, capsys):
    source, target = pairs_of_words(240, seed=5)
    # Each second sentence has other words.
    mixed = [[f"{word}{'I' * (number % 2)}" for word in line] for number, line in enumerate(target)]
    columns = {"source": source, "reference": target, "base": target, "other": mixed}
    files = {name: [" ".join(line) for line in lines] for name, lines in columns.items()}
    files["ids"] = [str(index // 4) for index in range(240)]
    report = score(tmp_path, capsys, files, TWO + " --source {d}/source --consistency").report
    consistency = report["consistency"]
    base, other = consistency["systems"].values()
    assert consistency["reference"]["LTCR"] == base["LTCR"] == 100
    assert base["aligned"] > 0.95 * base["occurrences"]
    assert 25 < other["LTCR"] < 45  # of the pairs of 4 sentences, 2 of 6
    assert consistency["signature"].startswith("aligner:ibm2-diagonal-intersection|")
    alone = score(tmp_path, capsys, files, ONE + " --source {d}/source --consistency").report
    assert alone["consistency"]["systems"]["base"] == base


# Cohesion


def test_stop_words_in_any_form_of_unicode(tmp_path, capsys):
    lines = ["the caf\u00e9", "a caf\u00e9"]
    files = {"base": lines, "reference": lines, "ids": ["x", "x"]}
    found = []
    for word in ("caf\u00e9", "cafe\u0301", "none"):
        files["stop"] = [word]
        report = score(tmp_path, capsys, files, ONE + " --cohesion --stop-words {d}/stop").report
        found.append(report["cohesion"]["systems"]["base"])
    assert found[0] == found[1] != found[2]


def test_cohesion_by_hand(tmp_path, capsys):
    files = {
        "base": ["The cat sees a cat .", "translation translated", "cat 5 5", "the the"],
        "reference": ["the dog", "the cat", "the end", "a end"],
        "ids": ["x", "x", "y", "z"],
    }
    report = score(tmp_path, capsys, files, ONE + " --cohesion").report["cohesion"]
    # `the` is in all documents of the reference, `a` in one of three.
    expected = {"content": 7, "repeated": 1, "cohesive": 2}
    found = report["systems"]["base"]
    assert found == {"LC": pytest.approx(200 / 7), "RC": pytest.approx(100 / 7), **expected}
    assert report["reference"]["RC"] == 0
    assert report["signature"] == "tok:13a|stem:first5|stop-words:df50"


# Position and length


def test_groups_are_scored_as_sacrebleu_scores_their_sentences(tmp_path, capsys, texts):
    texts["base"][0] = texts["reference"][0] + " "
    done = score(tmp_path, capsys, texts, TWO + " --positions --lengths reference")
    positions = [1 + index for size in SIZES.values() for index in range(size)]
    lengths = [len(line.split()) for line in texts["reference"]]
    bounds = {
        "positions": (positions, {"1": (1, 1), "2": (2, 2), "3": (3, 3), "4-5": (4, 5)}),
        "lengths": (lengths, {"1-5": (1, 5), "6-10": (6, 10)}),
    }
    bounds["positions"][1].update({"6-10": (6, 10), "11-20": (11, 20)})
    bounds["lengths"][1].update({"11-15": (11, 15), "16-20": (16, 20)})
    for name, (numbers, groups) in bounds.items():
        rows = done.report[name]["rows"]
        assert [row["group"] for row in rows] == list(groups)
        assert sum(row["sentences"] for row in rows) == sum(SIZES.values())
        for row in rows:
            first, last = groups[row["group"]]
            chosen = [index for index, number in enumerate(numbers) if first <= number <= last]
            reference = [texts["reference"][index] for index in chosen]
            lines = [texts["other"][index] for index in chosen]
            exact = sum(map(str.__eq__, lines, reference))
            assert row["systems"]["other"] == {
                "s-BLEU": sacrebleu.corpus_bleu(lines, [reference]).score,
                "chrF2": sacrebleu.corpus_chrf(lines, [reference]).score,
                "accuracy": 100 * exact / len(chosen),
            }
    assert done.report["positions"]["rows"][0]["systems"]["base"]["accuracy"] >= 20


def test_lengths_of_the_source_need_no_documents(tmp_path, capsys, texts):
    texts["source"] = ["我们 学校 。"] * len(texts["source"])
    command = "--system {d}/base --reference {d}/reference --source {d}/source --lengths source"
    done = score(tmp_path, capsys, texts, command + " --source-tokenize zh")
    (row,) = done.report["lengths"]["rows"]
    assert row["group"] == "1-5" and "words of the source" in done.out
    assert "BLEU" in next(iter(row["systems"].values()))


def test_the_picture_is_written_whole(tmp_path, capsys, texts):
    options = TWO + " --positions --lengths reference --plot {d}/picture.png"
    done = score(tmp_path, capsys, texts, options)
    assert f"drew {tmp_path}/picture.png" in done.out
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.tmp*"))


# Errors


WRONG_OPTIONS = [
    ("--cohesion", "--cohesion needs --docids"),
    ("--docids ids --slide-window 2 --slide-stride 3", "--slide-stride must be at most 2, but is"),
    ("--docids ids --consistency", "--consistency needs --source"),
    ("--lengths source --source s --source-tokenize 14b", "--source-tokenize must be one of none"),
    ("--lengths reference --plot p.text", "--plot must end with .png"),
]


def test_options_that_cannot_be_are_refused():
    for options, message in WRONG_OPTIONS:
        assert message in refusal(f"--system base --reference reference {options}")


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (LINKS[:5], "--alignments {d}/links has 5 lines, but --source has 6"),
        (["0-0 3-1", *LINKS[1:]], "line 1: 3-1 has position 3 of the source, which has 3 tokens"),
    ],
)
def test_wrong_alignments_are_refused(tmp_path, capsys, links, message):
    done = score(tmp_path, capsys, LTCR | {"links": links}, ALIGNED)
    assert done.status == 1 and done.out == ""
    assert message.format(d=tmp_path) in done.err


def test_each_system_has_one_file_of_alignments():
    for given, message in (
        (["third=links"], "NAME= must name a system, one of base, other"),
        (["links"], "NAME= must name a system, one of base, other"),
        (["base=links"], "--alignments is missing for the system other"),
        (["base=links", "base=links"], "--alignments base is given twice"),
    ):
        with pytest.raises(ValueError, match=message):
            alignment_files(Namespace(alignments=given), ["base", "other"])


def test_text_is_read_from_tables(tmp_path, capsys):
    names = ("source", "reference", "base", "ids")
    rows = zip(*(LTCR[name] for name in names), strict=True)
    tables = LTCR | {
        "all.jsonl": [json.dumps(dict(zip(names, row, strict=True))) for row in rows],
        "stop.tsv": ["word\tlanguage", "the\ten"],
    }
    report = score(tmp_path, capsys, LTCR, f"{ALIGNED} --positions --slide-window 2").report
    options = f"{ALIGNED} --positions --slide-window 2".replace("{d}/stop", "{d}/stop.tsv")
    for name in names:
        options = options.replace(f"{{d}}/{name}", f"{{d}}/all.jsonl:{name}")
    found = score(tmp_path, capsys, tables, options).report
    for key in ("measures", "consistency", "positions"):
        assert found[key] == report[key]
