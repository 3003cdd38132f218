"""`memattn score` says what sacreBLEU says of the same sentences and documents."""

import json
import os
import random
import re
import subprocess
import sys
from itertools import groupby
from types import ModuleType, SimpleNamespace

import pytest
import sacrebleu
from full import full
from scoring import refusal, score

WORDS = "The a Cat dog Sees hears one bird tree , and then it stops near the old House".split()
DOCUMENTS = {"b": 5, "a": 9, "c 1": 1, "d": 7, "e": 8}


def spoil(lines, share, seed):
    """The lines with a share of their words replaced."""
    random_ = random.Random(seed)
    return [
        " ".join(
            random_.choice(WORDS) if random_.random() < share else word for word in line.split(" ")
        )
        for line in lines
    ]


def join_documents(lines, ids):
    pairs = groupby(zip(ids, lines, strict=True), key=lambda pair: pair[0])
    return [" ".join(line for _, line in document) for _, document in pairs]


class Case:
    """Three systems, a reference and ids: texts in memory, the same as files in a folder."""

    def __init__(self, folder):
        self.folder = folder
        random_ = random.Random(1)
        self.ids = [name for name, size in DOCUMENTS.items() for _ in range(size)]
        reference = [
            " ".join(random_.choice(WORDS) for _ in range(random_.randint(5, 14))) + "."
            for _ in self.ids
        ]
        self.texts = {"reference": reference}
        for name, share in (("base", 0.3), ("better", 0.1), ("same", 0.3)):
            self.texts[name] = spoil(reference, share, name)
        for name, lines in self.texts.items():
            self.write(name, lines)
            self.write(f"{name}.documents", join_documents(lines, self.ids))
        self.write("ids", self.ids)

    def write(self, name, lines):
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def run(self, capsys, command):
        return score(self.folder, capsys, {}, command)


@pytest.fixture
def case(tmp_path):
    return Case(tmp_path)


ONE = "--system base={d}/base --reference {d}/reference"
THREE = (
    "--system base={d}/base --system better={d}/better --system {d}/same "
    "--reference {d}/reference --docids {d}/ids"
)


def numbers(report, measure):
    """(score, mean, interval, p) of each system, rounded as `sacrebleu --width 4` does."""
    return [
        tuple(
            round(result[key], 4)
            for key in ("score", "mean", "ci", "p_value")
            if result[key] is not None
        )
        for result in report["measures"][measure]["systems"].values()
    ]


@pytest.mark.parametrize(
    ("options", "bleu", "chrf"),
    [
        ("", {}, {}),
        (" --tokenize char", {"tokenize": "char"}, {}),
        (" --lowercase", {"lowercase": True}, {"lowercase": True}),
    ],
)
def test_scores_are_those_of_direct_calls(case, capsys, options, bleu, chrf):
    done = case.run(capsys, THREE + " --resamples 0" + options)
    measures = done.report["measures"]
    reference = case.texts["reference"]
    documents = join_documents(reference, case.ids)
    assert [done.report[key] for key in ("sentences", "documents", "baseline")] == [30, 5, "base"]
    for name in ("base", "better"):
        lines = case.texts[name]
        expected = {
            "s-BLEU": sacrebleu.corpus_bleu(lines, [reference], **bleu),
            "d-BLEU": sacrebleu.corpus_bleu(join_documents(lines, case.ids), [documents], **bleu),
            "chrF2": sacrebleu.CHRF(**chrf).corpus_score(lines, [reference]),
        }
        assert {measure: each["systems"][name]["score"] for measure, each in measures.items()} == {
            measure: score.score for measure, score in expected.items()
        }
    metric = sacrebleu.BLEU(**bleu)
    metric.corpus_score(lines, [reference])
    assert measures["d-BLEU"]["signature"] == str(metric.get_signature())
    assert "±" not in done.out
    assert len({score for score, *_ in numbers(done.report, "d-BLEU")}) == 3


def sacrebleu_command(folder, seed, *args):
    return subprocess.run(
        [sys.executable, "-m", "sacrebleu", *args, "-w", "4", "--no-color", "-q"],
        cwd=folder, env={**os.environ, "SACREBLEU_SEED": str(seed)},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


@pytest.mark.parametrize(
    ("suffix", "metric", "measure"),
    [("", "bleu", "s-BLEU"), full("", "chrf", "chrF2"), full(".documents", "bleu", "d-BLEU")],
)
def test_paired_bootstrap_is_that_of_sacrebleus_command(case, capsys, suffix, metric, measure):
    done = case.run(capsys, THREE + " --resamples 150 --seed 7")
    systems = [f"{name}{suffix}" for name in ("base", "better", "same")]
    shown = sacrebleu_command(
        case.folder, 7, f"reference{suffix}", "-i", *systems, "-m", metric,
        "--paired-bs", "--paired-bs-n", "150", "--format", "text",
    )  # fmt: skip
    values = re.findall(r"(\d+\.\d+) \((\d+\.\d+) ± (\d+\.\d+)\)", shown)
    ps = [(p,) for p in re.findall(r"\(p = (\d\.\d+)\)", shown)]
    if suffix:  # five documents are too few for p-values
        ps = [()] * len(ps)
    expected = [tuple(map(float, (*value, *p))) for value, p in zip(values, [(), *ps], strict=True)]
    assert len(expected) == 3
    assert numbers(done.report, measure) == expected
    assert done.report["measures"][measure]["signature"] in shown
    assert f"{measure}|{done.report['measures'][measure]['signature']}" in done.out


@pytest.mark.parametrize(
    ("metric", "name", "measure"), [full("bleu", "BLEU", "s-BLEU"), ("chrf", "chrF2", "chrF2")]
)
def test_randomisation_is_that_of_sacrebleus_command(case, capsys, metric, name, measure):
    options = " --resamples 150 --seed 7"
    done = case.run(capsys, f"{THREE}{options} --test randomisation")
    shown = sacrebleu_command(
        case.folder, 7, "reference", "-i", "base", "better", "same", "-m", metric,
        "--paired-ar", "--paired-ar-n", "150", "--format", "json",
    )  # fmt: skip
    ours = done.report["measures"][measure]
    theirs = [each[name] for each in json.loads(shown)]
    for one, other in zip(ours["systems"].values(), theirs, strict=True):
        assert one["p_value"] == other["p_value"]
        assert one["mean"] > one["ci"] > 0
    assert "|ar:150|seed:7|" in ours["signature"]
    assert "150 trials of approximate randomisation, and bootstrap resamples, seed 7" in done.out


def test_one_system_gets_sacrebleus_confidence_interval(case, capsys):
    done = case.run(capsys, ONE + " --resamples 150 --seed 7")
    shown = sacrebleu_command(
        case.folder, 7, "reference", "-i", "base", "-m", "bleu", "chrf",
        "--confidence", "--confidence-n", "150", "--format", "json",
    )  # fmt: skip
    expected = [
        (each["score"], each["confidence_mean"], each["confidence_var"])
        for each in json.loads(shown)
    ]
    assert [*numbers(done.report, "BLEU"), *numbers(done.report, "chrF2")] == expected
    assert "150 bootstrap resamples, seed 7" in done.out
    plain = sacrebleu_command(
        case.folder, 7, "reference", "-i", "base", "-m", "bleu", "--format", "text"
    )
    signature = plain.split(" = ")[0]
    assert done.out.startswith(f"{signature} = {expected[0][0]:.2f} ")


@pytest.mark.parametrize("before", [None, "99"])
def test_the_seed_is_the_options_and_leaves_the_environment_alone(
    case, capsys, monkeypatch, before
):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    if before:
        monkeypatch.setenv("SACREBLEU_SEED", before)
    first, again, other = (
        numbers(case.run(capsys, f"{ONE} --resamples 50 --seed {seed}").report, "BLEU")
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert os.environ.get("SACREBLEU_SEED") == before


def test_by_document(case, capsys):
    done = case.run(capsys, THREE + " --resamples 0 --per-document")
    rows = done.report["per_document"]
    assert {row["document"]: row["sentences"] for row in rows} == DOCUMENTS
    start, stop = 5, 14
    for name in ("base", "better"):
        lines, reference = (case.texts[x][start:stop] for x in (name, "reference"))
        assert rows[1]["systems"][name] == {
            "s-BLEU": sacrebleu.corpus_bleu(lines, [reference]).score,
            "chrF2": sacrebleu.corpus_chrf(lines, [reference]).score,
        }
    row = next(line for line in done.out.splitlines() if line.startswith("a  "))
    scores = [score for each in rows[1]["systems"].values() for score in each.values()]
    assert row.split() == ["a", "9", *(f"{score:.2f}" for score in scores)]


def test_the_last_sentence_of_each_document(case, capsys):
    last = [i for i, name in enumerate(case.ids) if name not in case.ids[i + 1 :]]
    for name in ("base", "reference"):
        case.write(f"{name}.last", [case.texts[name][i] for i in last])
    case.write("ids.last", [case.ids[i] for i in last])
    given = ONE + " --docids {d}/ids --resamples 0"
    whole = case.run(capsys, given).report
    done = case.run(capsys, given + " --last-of-documents").report
    for name in ("base", "reference", "ids"):
        (case.folder / f"{name}.last").replace(case.folder / name)
    alone = case.run(capsys, given).report
    for measure in ("s-BLEU", "d-BLEU", "chrF2"):
        assert numbers(done, measure) == numbers(alone, measure) != numbers(whole, measure)


@pytest.mark.parametrize("option", ["--generated ", "--system ", "--system any="])
def test_what_fairseq_generate_printed_is_told_from_text(case, capsys, option):
    lines = [
        f"H-{number}\t-0.5\t" + " ".join(f"\u2581{word}" for word in line.split(" "))
        for number, line in enumerate(case.texts["base"])
    ]
    case.write("generated", ["S-0\tx", *reversed(lines), "Generate test: done"])
    command = f"{option}{{d}}/generated --reference {{d}}/reference --resamples 0"
    done = case.run(capsys, command + " --output {d}/text")
    assert numbers(done.report, "BLEU") == numbers(
        case.run(capsys, ONE + " --resamples 0").report, "BLEU"
    )
    assert (case.folder / "text").read_bytes() == (case.folder / "base").read_bytes()
    assert done.err == ""


@pytest.mark.parametrize(("wrong", "warned"), [(15, False), (16, True)])
def test_the_reference_of_other_data_is_warned_of(case, capsys, wrong, warned):
    generated = []
    for number, line in enumerate(case.texts["base"]):
        target = "otro texto" if number < wrong else case.texts["reference"][number].upper()
        for mark, text in (("T-{}", target), ("H-{}\t-0.5", line)):
            pieces = " ".join(f"\u2581{word}" for word in text.split(" "))
            generated.append(f"{mark.format(number)}\t{pieces}")
    case.write("generated", generated)
    done = case.run(capsys, "--system {d}/generated --reference {d}/reference --resamples 0")
    warning = (
        f"warning: {case.folder}/generated: {wrong} of 30 references (T-) differ from --reference "
        f"{case.folder}/reference, first line 1; it may be the reference of other data\n"
    )
    assert done.status == 0 and done.err == (warning if warned else "")


@pytest.mark.parametrize(
    ("file", "line", "text", "message"),
    [
        ("base", 30, None, "/base has 29 lines, but there are 30 references"),
        ("ids", 30, None, "--docids {d}/ids has 29 lines, but --reference {d}/reference has 30"),
        ("ids", 8, "b", "--docids {d}/ids, line 8: document id 'b' began at line 1 and had"),
        ("reference", 2, "  ", "--reference {d}/reference, line 2: there is no reference; 1 of 30"),
        ("base", 9, "H-0\t-1\ta", "/base has hypotheses of 1 sentences, but must have 30"),
    ],
)
def test_files_that_do_not_fit_are_refused(case, capsys, file, line, text, message):
    lines = (case.folder / file).read_text().splitlines()
    lines[line - 1 : line] = [] if text is None else [text]
    case.write(file, lines)
    done = case.run(capsys, ONE + " --docids {d}/ids")
    assert done.status == 1
    assert message.format(d=case.folder) in done.err
    assert len(done.err.splitlines()) == 1


WRONG_OPTIONS = [
    ("--per-document", "--per-document needs --docids"),
    ("--last-of-documents", "--last-of-documents needs --docids"),
    ("--comet m", "--comet needs --source"),
    ("--comet m --source reference", "--comet needs the package unbabel-comet"),
]
WRONG_FILES = [
    (ONE + " --test randomisation", "--test needs several systems and --resamples above 0"),
    (ONE + " --resamples 2000000000", "of 30 sentences takes 4800.0 GB of memory, but "),
    (ONE + " --output {d}/base", "--output {d}/base would overwrite the input {d}/base"),
    (THREE + " --output {d}/text", "--output takes one system, but 3 are given"),
    (ONE + " --system base={d}/better", "--system base is given twice"),
]


def test_options_that_cannot_be_are_refused(case, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "comet", None)
    for options, message in WRONG_OPTIONS:
        assert message in refusal(f"--system base --reference reference {options}")
    for command, message in WRONG_FILES:
        done = case.run(capsys, command)
        assert done.status == 1 and done.out == ""
        assert message.format(d=case.folder) in done.err


def test_a_copy_of_the_baseline_is_not_significantly_different(case, capsys):
    copy = " --system copy={d}/copy --reference {d}/reference --docids {d}/ids"
    case.write("copy", case.texts["base"])
    done = case.run(capsys, "--system base={d}/base" + copy)
    assert done.status == 0
    for name in ("s-BLEU", "chrF2"):
        assert done.report["measures"][name]["systems"]["copy"]["p_value"] == 1


class StandInForComet(ModuleType):
    """Records how it is called, and scores by the length of the translations."""

    __version__ = "0.1"

    def __init__(self):
        super().__init__("comet")
        self.calls = []

    def download_model(self, name):
        if name == "Unknown/model":
            raise KeyError("not supported")
        self.calls.append(("download", name))
        return "downloaded"

    def load_from_checkpoint(self, path):
        self.calls.append(("load", path))
        return self

    def predict(self, data, gpus):
        self.calls.append(("predict", data, gpus))
        return SimpleNamespace(scores=[len(each["mt"]) * len(data) / 1000 for each in data])


@pytest.mark.parametrize(
    ("model", "is_file", "before"),
    [("Some/model", False, ""), ("{d}/ids", True, ""), ("{d}/ids", True, "before _eos ")],
)
def test_comet_gets_sources_translations_and_references(
    case, capsys, monkeypatch, model, is_file, before
):
    comet = StandInForComet()
    monkeypatch.setitem(sys.modules, "comet", comet)
    case.texts["source"] = [line.upper() for line in case.texts["reference"]]
    for name, lines in case.texts.items():
        case.write(name, [before + line for line in lines])
    command = THREE + f" --resamples 0 --source {{d}}/source --comet {model}"
    done = case.run(capsys, command + (" --separator _eos" if before else ""))
    model = model.format(d=case.folder)
    names = ["base", "better", "same"]
    loading = [("load", model)] if is_file else [("download", model), ("load", "downloaded")]
    assert comet.calls[:-3] == loading
    assert [data for _, data, _ in comet.calls[-3:]] == [
        [
            {"src": reference.upper(), "mt": line, "ref": reference}
            for line, reference in zip(case.texts[name], case.texts["reference"], strict=True)
        ]
        for name in names
    ]
    scores = [sum(map(len, case.texts[name])) / 1000 for name in names]
    measure = done.report["measures"]["COMET"]
    assert [each["score"] for each in measure["systems"].values()] == pytest.approx(scores)
    assert measure["signature"] == f"model:{model}|version:0.1"
    assert f"{scores[0]:.4f}" in done.out
