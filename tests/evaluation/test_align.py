"""`memattn align` finds the lines of least cost, loses no word, and reports what is not aligned."""

import json
import random
from collections import Counter
from itertools import accumulate, combinations_with_replacement, pairwise

import pytest
import sacrebleu
from corpora import corpus, needs
from full import full

from fairseq_memattn.cli import main
from fairseq_memattn.evaluation.realignment import EDIT, additions, align, cuts, distance, units

WORDS = "der die das und ein Haus Baum sieht geht nicht".split()
REFERENCE = [
    "Guten Morgen, wie geht es dir?",
    "Der Zug nach Bremen fährt um acht.",
    "Nein, das Haus ist leer.",
    "Ich komme morgen wieder.",
]
FIRST, SECOND = " ".join(REFERENCE[:2]), " ".join(REFERENCE[2:])


def slow_distance(reference, words):
    row = list(range(len(words) + 1))
    for count, key in enumerate(reference, start=1):
        new = [count]
        for j, word in enumerate(words):
            new.append(min(row[j] + (word != key), row[j + 1] + 1, new[j] + 1))
        row = new
    return row[-1]


def cost(references, words, places, boundary_cost):
    """The cost of lines that begin at `places`, whose last one is the end."""
    total = 0
    for reference, (start, stop) in zip(references, pairwise(places), strict=True):
        keys = [[word.key for word in part] for part in (reference, words[start:stop])]
        free = stop in (0, len(words)) or words[stop - 1].end in ("final", reference[-1].end)
        total += EDIT * slow_distance(*keys) + (0 if free else round(EDIT * boundary_cost))
    return total


def all_cuts(sentences, words):
    inner = combinations_with_replacement(range(words + 1), sentences - 1)
    return [[0, *places, words] for places in inner]


def drawn(draw, words):
    """Text with a sign of punctuation after some of its words."""
    return " ".join(draw.choice(WORDS) + draw.choice(["", "", ",", "."]) for _ in range(words))


@pytest.mark.parametrize("seed", range(12))
def test_the_cost_is_the_least_of_all_cuts(seed):
    draw = random.Random(seed)
    references = [units(drawn(draw, draw.randint(1, 4))) for _ in range(draw.randint(1, 4))]
    words = units(drawn(draw, draw.randint(0, 9)))
    boundary_cost = draw.choice([0, 0.5, 1.5, 4])
    costs = [
        cost(references, words, places, boundary_cost)
        for places in all_cuts(len(references), len(words))
    ]
    places = cuts(references, words, boundary_cost)
    assert cost(references, words, places, boundary_cost) == min(costs)


def test_distances_of_long_lines():
    draw = random.Random(1)
    for _ in range(20):
        pair = [units(drawn(draw, draw.randint(0, 60))) for _ in range(2)]
        keys = [[word.key for word in side] for side in pair]
        assert distance(*pair) == slow_distance(*keys)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (" ".join(REFERENCE), REFERENCE),
        # Two sentences for one, and one for two.
        (
            "Guten Morgen! Wie geht es dir? Der Zug nach Bremen fährt um acht Uhr. "
            "Nein, das Haus steht leer, ich komme morgen wieder.",
            [
                "Guten Morgen! Wie geht es dir?",
                "Der Zug nach Bremen fährt um acht Uhr.",
                "Nein, das Haus steht leer,",
                "ich komme morgen wieder.",
            ],
        ),
        # An omission at the beginning, within and at the end.
        (" ".join(REFERENCE[1:]), ["", *REFERENCE[1:]]),
        (" ".join([*REFERENCE[:1], *REFERENCE[3:]]), [REFERENCE[0], "", "", REFERENCE[3]]),
        (" ".join(REFERENCE[:3]), [*REFERENCE[:3], ""]),
        # Without any word in common, a line ends where a sentence does.
        (
            "Hallo, alles gut? Um 8 Uhr geht der ICE. Da wohnt keiner. Bis bald!",
            ["Hallo, alles gut?", "Um 8 Uhr geht der ICE.", "Da wohnt keiner.", "Bis bald!"],
        ),
        ("", [""] * 4),
    ],
)
def test_alignments_that_are_known(text, lines):
    found = align(REFERENCE, text)
    assert found.lines == lines
    assert found.additions == [[]] * 4


def test_a_line_break_ends_a_line_and_becomes_a_space():
    text = "guten morgen\nwie gehts\n\nder bus fährt um acht\nnein das haus ist leer\nbis dann"
    lines = ["guten morgen wie gehts", *text.split("\n")[3:]]
    assert align(REFERENCE, text).lines == lines
    assert align(REFERENCE, text.replace("\n", " ")).lines == lines


def slow_additions(reference, line):
    """Each sentence, from the last to the first, that is worth more than half of its words."""
    kept, found = [[]], []
    for word in line:
        kept[-1].append(word)
        if word.end == "final":
            kept.append([])
    kept = [sentence for sentence in kept if sentence]
    keys = [word.key for word in reference]
    for index in reversed(range(len(kept))):
        rest = kept[:index] + kept[index + 1 :]
        texts = [[word.key for part in parts for word in part] for parts in (kept, rest)]
        saved = slow_distance(keys, texts[0]) - slow_distance(keys, texts[1])
        if rest and saved > len(kept[index]) / 2:
            found.append(kept.pop(index))
    return found[::-1]


def test_additions_are_those_of_a_slow_search():
    draw, counts = random.Random(4), Counter()
    for _ in range(60):
        pair = [units(drawn(draw, draw.randint(1, 15))) for _ in range(2)]
        found = additions(*pair)
        assert found == slow_additions(*pair)
        counts[len(found)] += 1
    assert counts[0] and counts[1] and counts[2]


def test_a_repetition_is_an_addition_but_for_its_first_time():
    line = units(" ".join([REFERENCE[2]] * 500))
    found = additions(units(REFERENCE[2]), line)
    assert found[0][0] == line[5]
    assert [len(sentence) for sentence in found] == [5] * 499


def test_without_a_boundary_cost_the_words_alone_decide():
    references = ["a b,", "c d."]
    assert align(references, "a, x b c d.", 0).lines == ["a, x b", "c d."]
    assert align(references, "a, x b c d.", 4).lines == ["a,", "x b c d."]
    assert align(["a b", "c d"], "a, b c d.", 0).lines == ["a, b", "c d."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sagt er „ja“? Nein…", ["Sagt", "er", "„ja“?", "Nein…"]),
        ("z.\u00a0B. ça va\u00a0?", ["z.\u00a0B.", "ça", "va\u00a0?"]),
        ("他说：“好。”我走了3.5公里。", "他 说： “好。” 我 走 了 3.5 公 里。".split()),
        ("ＡＢ社の iPhone15を買う", "ＡＢ 社 の iPhone15 を 買 う".split()),
        ("집에 갔다.", ["집에", "갔다."]),
        ("ฉันรัก", ["ฉั", "น", "รั", "ก"]),
    ],
)
def test_units(text, expected):
    assert [text[unit.start : unit.stop] for unit in units(text)] == expected


@pytest.mark.parametrize(
    ("word", "key", "end"),
    [
        ("„Straße!“", "strasse", "final"),
        ("acht,", "acht", "medial"),
        ("(leer)", "leer", ""),
        ("...", "...", "final"),
        ("好。”", "好", "final"),
        ("ﬁn;", "fin", "medial"),
    ],
)
def test_keys_ignore_case_and_punctuation(word, key, end):
    [unit] = units(word)
    assert (unit.key, unit.end) == (key, end)


def test_text_without_spaces():
    reference = ["今天天气很好。", "我们去公园吧？", "好的，我带狗去。"]
    text = "今天天气真好，我们去公园好吗？好，我带上我的狗。"
    lines = ["今天天气真好，", "我们去公园好吗？", "好，我带上我的狗。"]
    assert align(reference, text).lines == lines
    assert align(reference, "".join(reference)).lines == reference


# ---------------------------------------------------------------------------- the command


class Case:
    """Files in a folder, and the command for them."""

    def __init__(self, folder, capsys):
        self.folder, self.capsys = folder, capsys
        self.write("reference", REFERENCE)
        self.write("ids", ["a", "a", "b", "b"])

    def write(self, name, lines):
        content = lines if isinstance(lines, bytes) else "".join(f"{x}\n" for x in lines).encode()
        (self.folder / name).write_bytes(content)
        return str(self.folder / name)

    def run(self, system, *more, docids=True):
        """The lines, the report and what was printed, or only the error."""
        command = ["align", "--system", self.write("system", system)]
        command += ["--reference", str(self.folder / "reference")]
        command += ["--docids", str(self.folder / "ids")] if docids else []
        out, report = self.folder / "out", self.folder / "report.json"
        status = main([*command, "--output", str(out), "--json", str(report), *more])
        printed = self.capsys.readouterr().err
        if status:
            assert not out.exists() and not report.exists()
            return printed
        lines = out.read_text(encoding="utf-8").split("\n")
        assert lines.pop() == ""
        return lines, json.loads(report.read_text(encoding="utf-8")), printed


@pytest.fixture
def case(tmp_path, capsys):
    return Case(tmp_path, capsys)


ANSWERS = [
    {"docid": "b", "text": f"{REFERENCE[2]}\r\n\r\n{REFERENCE[3]}"},
    {"docid": "a", "text": FIRST},
]
FORMS = {
    "a line each": [FIRST, SECOND],
    "blocks": [*REFERENCE[:2], "", "", *SECOND.split(". "), ""],
    "JSON lines": [json.dumps(answer) for answer in ANSWERS],
    "WMT": [
        json.dumps({"doc_id": answer["docid"], "hypothesis": answer["text"]})
        for answer in (*ANSWERS, {"docid": "of another pair", "text": "x"})
    ],
    "fairseq": [
        f"H-{number}\t-0.5\t▁{text.replace(' ', ' ▁')}"
        for number, text in ((1, SECOND), (0, FIRST))
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_an_output(case, form):
    lines, report, printed = case.run(FORMS[form])
    assert [line.rstrip(".") for line in lines] == [line.rstrip(".") for line in REFERENCE]
    counts = {"documents": 2, "sentences": 4, "words": 22, "edits": 0}
    assert {key: report[key] for key in counts} == counts
    assert "0 sentences have no translation\n" in printed


def test_what_is_not_aligned_is_reported(case):
    lines, report, printed = case.run([f"{FIRST} Ach was, egal!", REFERENCE[3]])
    assert lines == [REFERENCE[0], f"{REFERENCE[1]} Ach was, egal!", "", REFERENCE[3]]
    first, second = report["per_document"]
    assert (first["omissions"], second["additions"]) == ([], [])
    assert first["additions"] == [{"line": 2, "text": "Ach was, egal!"}]
    assert second["omissions"] == [{"line": 3, "reference": REFERENCE[2]}]
    assert (report["omissions"], report["additions"], report["edits"]) == (1, 1, 8)
    assert "1 sentences have no translation: lines 3\n" in printed
    assert (
        "1 sentences of the translation have no reference and stay in their lines: lines 2\n"
        in printed
    )


BAD_INPUT = [
    (["a", "b", "c"], "3 lines, and 1 blocks of lines between empty ones, but the reference has 2"),
    (['{"docid": "a", "text": "x"}'], "the first missing one is 'b'"),
    (['{"docid": "c", "text": "x"}'], "line 1: the reference has no document 'c'"),
    (['{"docid": "a", "text": "x"}'] * 2, "line 2: document 'a' occurs a second time"),
    (['{"docid": "a", "text": "x \\ud83d"}'], "line 1: 'text' contains half of a surrogate pair"),
    (["H-0\t-1\ta"], "must have 2; the first missing one is number 1"),
]
BAD_OPTIONS = [
    ("--separator _eos", "--separator _eos does not occur in"),
    ("--boundary-cost -1", "--boundary-cost must be at least 0"),
]


def test_bad_input(case):
    for system, message in BAD_INPUT:
        assert message in case.run(system)
    for options, message in BAD_OPTIONS:
        assert message in case.run([FIRST, SECOND], *options.split())


def test_references_and_ids_of_a_table_and_a_table_as_output(case):
    table = [
        json.dumps({"docid": name, "ref": line}, ensure_ascii=False)
        for name, line in zip("aabb", REFERENCE, strict=True)
    ]
    table = case.write("table.jsonl", table)
    system, out = case.write("system", [f"{FIRST} Ach so.", SECOND]), case.folder / "out.tsv"
    files = ["--reference", table, "--docids", f"{table}:docid"]
    assert main(["align", "--system", system, *files, "--output", str(out)]) == 0
    lines = [REFERENCE[0], f"{REFERENCE[1]} Ach so.", *REFERENCE[2:]]
    rows = zip("aabb", REFERENCE, lines, REFERENCE, "0100", strict=True)
    assert out.read_text(encoding="utf-8").split("\n") == [
        "docid\tref\thyp\tkept\tadded",
        *map("\t".join, rows),
        "",
    ]


# ------------------------------------------------------------------------------ real text


def read(name):
    return corpus(name).read_text(encoding="utf-8").split("\n")[:-1]


@needs("ctxpro-en-de")
@pytest.mark.parametrize(
    ("name", "swap", "precision", "recall", "before", "after"),
    [
        ("auxiliary", False, 94.8, 93.3, 17.38, 17.20),
        ("auxiliary", True, 92.1, 86.5, 12.52, 14.72),
        full("mini.formality", False, 94.9, 94.8, 25.71, 25.72),
        full("mini.formality", True, 88.1, 83.6, 17.99, 21.71),
    ],
)
def test_the_lines_of_a_real_system(case, name, swap, precision, recall, before, after):
    """The figures of docs/alignment.md: DeepL beside subtitles, 30 examples as a document."""
    file = f"ctxpro-en-de/{{}}{name}.opensubtitles.en-de.test.{{}}"
    examples = json.loads(corpus(file.format("", "json")).read_text(encoding="utf-8"))
    references = [example["ref segment"] for example in examples]
    system = read(file.format("deepl.", "sentences"))
    if swap:  # the first two of each six
        for start in range(0, len(system), 6):
            system[start : start + 2] = system[start : start + 2][::-1]
    case.write("reference", references)
    case.write("ids", [str(number // 30) for number in range(len(references))])
    documents = [system[start : start + 30] for start in range(0, len(system), 30)]
    lines, *_ = case.run([" ".join(document) for document in documents])
    assert " ".join(lines).split() == " ".join(system).split()
    right, found = (set(accumulate(len(line.split()) for line in text)) for text in (system, lines))
    shares = [100 * len(right & found) / len(ends) for ends in (found, right)]
    assert shares == pytest.approx([precision, recall], abs=0.06)
    scores = [sacrebleu.corpus_bleu(text, [references]).score for text in (system, lines)]
    assert scores == pytest.approx([before, after], abs=0.006)
