"""`memattn score --segale` and `--metricx`: the mean of documents, with nulls at their worst."""

import sys
from statistics import fmean
from types import ModuleType, SimpleNamespace

import pytest
import sacrebleu
from scoring import refusal, score

ROWS = [  # document, reference, translation without additions, additions
    ("a", "der Hund schläft", "der Hund schläft", 0),
    ("a", "die Katze wacht", "", 0),
    ("a", "alle gehen", "alle laufen", 2),
    ("b", "das Ende", "das Ende", 0),
]
TABLE = ["docid\tref\thyp\tkept\tadded"]
TABLE += [
    f"{name}\t{ref}\t{kept} {'Ach so.' * added}\t{kept}\t{added}" for name, ref, kept, added in ROWS
]
TEXTS = {"aligned.tsv": TABLE, "source": ["w", "x", "y", "z"]}
COMMAND = "--system {d}/aligned.tsv --reference {d}/aligned.tsv --docids {d}/aligned.tsv --segale"


def slow_score(of_row, worst):
    """By the definition: each row, and each addition, one after the other."""
    values = {}
    for name, ref, kept, added in ROWS:
        values.setdefault(name, []).append(of_row(kept, ref) if kept else worst)
        values[name] += [worst] * added
    return fmean(map(fmean, values.values()))


def scores_of(report):
    """The score of the only system by each measure."""
    measures = report["measures"].items()
    return {name: next(iter(one["systems"].values()))["score"] for name, one in measures}


def test_omitted_and_added_sentences(tmp_path, capsys):
    done = score(tmp_path, capsys, TEXTS, COMMAND)
    assert done.status == 0, done.err
    found = scores_of(done.report)
    assert found["SEGALE omitted %"] == pytest.approx(100 / 6)
    assert found["SEGALE added %"] == pytest.approx(200 / 6)
    chrf = slow_score(lambda kept, ref: sacrebleu.sentence_chrf(kept, [ref]).score, 0)
    assert found["SEGALE-chrF2"] == pytest.approx(chrf)
    assert found["chrF2"] != found["SEGALE-chrF2"]
    assert "SEGALE-chrF2|null:0|mean:documents|aligner:word-edits|" in done.out


METRICX = """
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert options["--model_name_or_path"] == "a/model" and options["--max_input_length"] == "1536"
if options["--tokenizer"] == "wrong":
    raise OSError("no such tokenizer")
with open(options["--input_file"]) as given, open(options["--output_file"], "w") as made:
    for row in map(json.loads, given):
        assert row["source"] and row["reference"] and row["hypothesis"]
        made.write(json.dumps(row | {"prediction": len(row["hypothesis"]) / 4}) + "\\n")
"""


def test_metricx_and_comet_read_no_null(tmp_path, capsys, monkeypatch):
    """Programs with the arguments and files of metricx24.predict and unbabel-comet."""
    (tmp_path / "metricx24").mkdir()
    (tmp_path / "metricx24/__init__.py").touch()
    (tmp_path / "metricx24/predict.py").write_text(METRICX)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    comet = ModuleType("comet")
    comet.__version__ = "2.2.7"
    comet.download_model = comet.load_from_checkpoint = lambda _: comet
    comet.predict = lambda data, gpus: SimpleNamespace(scores=[len(x["mt"]) / 100 for x in data])
    monkeypatch.setitem(sys.modules, "comet", comet)
    models = " --comet a/model --metricx a/model --source {d}/source"
    done = score(tmp_path, capsys, TEXTS, COMMAND + models)
    assert done.status == 0, done.err
    found = scores_of(done.report)
    assert found["SEGALE-COMET"] == pytest.approx(slow_score(lambda kept, _: len(kept) / 100, 0))
    assert found["SEGALE-MetricX"] == pytest.approx(slow_score(lambda kept, _: len(kept) / 4, 25))
    failed = score(tmp_path, capsys, TEXTS, COMMAND + models + " --metricx-tokenizer wrong")
    assert failed.status == 1 and "--metricx a/model: OSError: no such tokenizer" in failed.err


def test_mistakes(tmp_path, capsys):
    base = "--system s.tsv --reference r "
    assert "--segale needs --docids" in refusal(base + "--segale")
    assert "--metricx needs --source" in refusal(base + "--metricx m")
    assert "--metricx needs the package metricx24" in refusal(base + "--metricx m --source s")
    assert "--separator does not go with --segale" in refusal(
        base + "--docids d --segale --separator x"
    )
    plain = {**TEXTS, "plain": ["a"] * 4}
    command = COMMAND.replace("--system {d}/aligned.tsv", "--system {d}/plain")
    assert "--segale needs a table of memattn align" in score(tmp_path, capsys, plain, command).err
