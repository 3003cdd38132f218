"""Scoring given translations: `memattn contrast` and `memattn cxmi`."""

import json
import math
import re

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from harness import WINDOWS, generate, hypotheses, lines_of, run

from fairseq_memattn.cli import main
from fairseq_memattn.data.documents.collation import WindowOptions
from fairseq_memattn.documents.context_gain import cxmi
from fairseq_memattn.tasks.inference.scorer import Pair, Scorer


@pytest.fixture(scope="module")
def loaded(document_model):
    overrides = {"data": str(document_model.data)}
    (model,), _, task = load_model_ensemble_and_task(
        [str(document_model.checkpoint)], arg_overrides=overrides
    )
    task.load_dataset("test")
    return model.eval(), task


def pairs_of(task, count=12):
    """Windows of up to three sentences."""
    data = task.datasets["test"]
    windows = [range(max(0, i - 2), i + 1) for i in range(count)]
    return [
        Pair([data.source[i].long() for i in w], [data.target[i].long() for i in w])
        for w in windows
    ]


def options(task, source_context=2, target_context=2, **more):
    return WindowOptions(
        **{
            "source_context": source_context,
            "target_context": target_context,
            "max_source": 1024,
            "max_target": 1024,
            "source_separator": task.src_dict.index("_eos"),
            "target_separator": task.tgt_dict.index("_eos"),
            "pad": task.src_dict.pad(),
            "eos": task.src_dict.eos(),
        }
        | more
    )


def oracle(model, task, pair, source_context, target_context):
    """One window, unpadded, one forward pass, the last sentence's log-probabilities."""
    eos = task.src_dict.eos()
    rows = []
    for side, count, dictionary in (
        (pair.source, source_context, task.src_dict),
        (pair.target, target_context, task.tgt_dict),
    ):
        row = []
        for sentence in list(side)[-1 - count : -1] if count else []:
            row += [*sentence.tolist()[:-1], dictionary.index("_eos")]
        rows.append(row + side[-1].tolist())
    source, target = rows
    with torch.no_grad():
        logits = model(
            torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[eos, *target[:-1]]])
        )[0][0]
    scores = logits.log_softmax(dim=-1)[range(len(target)), target]
    return scores[-len(pair.target[-1]) :]


@pytest.mark.parametrize("contexts", [(0, 0), (2, 0), (0, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("max_tokens", [1, 100, 4096])
def test_scores_are_those_of_one_window_at_a_time(loaded, contexts, max_tokens):
    model, task = loaded
    pairs = pairs_of(task)
    scored = Scorer([model], options(task, *contexts), max_tokens=max_tokens).score(pairs)
    for pair, tokens in zip(pairs, scored, strict=True):
        torch.testing.assert_close(
            tokens, oracle(model, task, pair, *contexts), atol=1e-4, rtol=1e-4
        )


def test_an_ensemble_averages_probabilities(loaded):
    model, task = loaded
    pairs = pairs_of(task, 4)
    once = Scorer([model], options(task)).score(pairs)
    twice = Scorer([model, model], options(task)).score(pairs)
    for one, other in zip(once, twice, strict=True):
        torch.testing.assert_close(one, other)


def test_long_windows_lose_context_and_are_counted(loaded):
    model, task = loaded
    pairs = pairs_of(task, 6)
    limit = max(len(pair.source[-1]) for pair in pairs)
    scorer = Scorer([model], options(task, max_source=limit))
    scored = scorer.score(pairs)
    kept = [
        max(n for n in range(3) if n < len(p.source) and sum(map(len, p.source[-1 - n :])) <= limit)
        for p in pairs
    ]
    assert scorer.dropped == sum(n + 1 < len(p.source) for n, p in zip(kept, pairs, strict=True))
    assert scorer.in_context == [count > 0 for count in kept] != [True] * 6
    for pair, tokens, count in zip(pairs, scored, kept, strict=True):
        torch.testing.assert_close(
            tokens, oracle(model, task, pair, count, count), atol=1e-4, rtol=1e-4
        )
    with pytest.raises(ValueError, match=r"pair \d+ must have at most 2 tokens .*, but has \d+"):
        Scorer([model], options(task, max_source=2)).score(pairs)


def scored_sets(document_model, corpus, folder, *flags):
    sets = sorted((corpus / "contrast").glob("*.json"))
    arguments = [document_model.data, "--path", document_model.checkpoint, "--cpu"]
    done = run(
        "memattn", "contrast", *arguments, "--sets", *sets, *flags,
        "--json", folder / "results.json", "--scores", folder / "scores.txt",
    )  # fmt: skip
    return sets, done, json.loads((folder / "results.json").read_text())


def test_contrast(document_model, corpus, loaded, tmp_path):
    """Every score is the oracle's, and every accuracy is what the scores say."""
    model, task = loaded
    sets, done, summary = scored_sets(document_model, corpus, tmp_path)
    scores = [float(line) for line in lines_of(tmp_path / "scores.txt")]
    place = 0
    for path in sets:
        right = []
        for group in json.loads(path.read_text(encoding="utf-8")):
            found = []
            for text in group["dst"]:
                sides = (group["src"], task.src_dict), (text, task.tgt_dict)
                pair = Pair(
                    *(
                        [
                            d.encode_line(s, add_if_not_exist=False).long()
                            for s in side.split("_eos")
                        ]
                        for side, d in sides
                    )
                )
                expected = float(oracle(model, task, pair, 2, 2).sum())
                assert scores[place] == pytest.approx(expected, abs=1e-3)
                found.append(scores[place])
                place += 1
            others = [s for i, s in enumerate(found) if i != group["true_ind"]]
            right.append(found[group["true_ind"]] > max(others))
        counts = summary["results"]["phenomena"][path.stem]
        assert counts["right"] == sum(right)
        assert counts["accuracy"] == sum(right) / len(right)
        assert sum(part["groups"] for part in counts["distances"].values()) == len(right)
    assert place == len(scores)
    assert summary["settings"]["source_context"] == 2
    assert "source context 2, target context 2 sentences" in done.stdout
    again = ["--scores", tmp_path / "scores.txt", "--json", tmp_path / "again.json"]
    judged = run("memattn", "contrast", "--sets", *sets, *again)
    assert judged.stdout.splitlines()[:-1] == done.stdout.splitlines()[:-1]
    assert json.loads((tmp_path / "again.json").read_text())["results"] == summary["results"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--scores WORDS", "WORDS, line 2: must be a log-likelihood, but is 'two'"),
        ("--scores NUMBERS", "NUMBERS: there are 2 scores for"),
        ("--scores NUMBERS --json NUMBERS", "would overwrite the input NUMBERS"),
    ],
)
def test_bad_files_of_scores(flags, message, corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "WORDS").write_text("-1\ntwo\n")
    (tmp_path / "NUMBERS").write_text("-1\n-2\n")
    sets = ["--sets", str(corpus / "contrast" / "deixis.json")]
    assert main(["contrast", *sets, *flags.split()]) == 1
    assert message in capsys.readouterr().err


def test_contrast_without_context_is_chance(document_model, corpus, tmp_path):
    """The sets are balanced: half of the groups, whatever the model is like."""
    _, done, summary = scored_sets(
        document_model, corpus, tmp_path, "--source-context", 0, "--target-context", 0
    )
    for side in ("source", "target"):
        assert f"was trained with 2 sentences of {side} context, but" in done.stderr
    for counts in summary["results"]["phenomena"].values():
        assert counts["accuracy"] == pytest.approx(0.5 * (1 - counts["ties"] / counts["groups"]))


def test_cxmi(document_model, corpus, tmp_path):
    """The sums over fairseq-generate's own scores of the references."""
    table, tokens, picture = (tmp_path / name for name in ("cxmi.json", "tokens", "cxmi.png"))
    done = run(
        "memattn", "cxmi", document_model.data, "--path", document_model.checkpoint, "--cpu",
        "--json", table, "--tokens", tokens, "--picture", picture,
    )  # fmt: skip
    assert "was not trained with --sample-context" in done.stderr
    rows = json.loads(table.read_text())["cxmi"]
    kinds = [(row["source_context"], row["target_context"]) for row in rows]
    assert kinds == [(1, 0), (2, 0), (0, 1), (0, 2), (1, 1), (2, 2)]
    scored = {
        context: hypotheses(
            generate(
                document_model, *WINDOWS, "--source-context", context, "--target-context", context,
                "--score-reference", "--max-tokens", 1000,
            )
        )
        for context in (0, 1, 2)
    }  # fmt: skip
    sums = {
        context: [math.log(2) * sum(h.positional) for h in scored[context].values()]
        for context in scored
    }
    for context, row in ((1, rows[4]), (2, rows[5])):
        gains = [a - b for a, b in zip(sums[context], sums[0], strict=True)]
        assert row["per_sentence"] == pytest.approx(sum(gains) / len(gains), abs=2e-3)
    lines = [line.split("\t") for line in lines_of(tokens)]
    assert len(lines) == sum(len(h.positional) for h in scored[0].values())
    gain = sum(float(after) - float(before) for *_, before, after in lines)
    assert gain / len(sums[0]) == pytest.approx(rows[5]["per_sentence"], abs=1e-3)
    assert {int(document) for _, document, *_ in lines} == set(range(4))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_sentences_without_context_are_not_helped():
    """Their two scores are of one input, and differ by the rounding of different batches."""
    without = [torch.tensor([-1.0, -2.0]), torch.tensor([-3.0]), torch.tensor([-3.0])]
    with_context = [without[0] + 1e-6, torch.tensor([-2.0]), torch.tensor([-3.5])]
    found = cxmi(without, with_context, [False, True, True])
    assert found.helped == 0.5
    assert found.per_sentence == pytest.approx(0.5 / 3, abs=1e-5)
    assert cxmi(without[:1], with_context[:1], [False]).helped == 0


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        ("contrast", "--sets SET SET", "--sets: 2 sets have the name deixis"),
        ("contrast", "--sets SET --json MODEL", "would overwrite the input"),
        ("contrast", "--sets SET --source-context -1", "--source-context must be at least 0"),
        ("contrast", "--sets SET --separator ##", "--separator ## is not in the mod"),
        ("contrast", "--sets GERMAN", "is en-de, but the model translates en-ru"),
        ("cxmi", "--source-context 0 --target-context 0", "the model sees no context"),
    ],
)
def test_bad_flags_end_in_one_sentence(
    command, flags, message, document_model, corpus, tmp_path, capsys
):
    for side, *lines in (("en", "It is.", "It is."), ("de", "Er ist.", "Sie ist.")):
        (tmp_path / f"set.text.{side}").write_text("".join(f"{line}\n" for line in lines))
        (tmp_path / f"set.context.{side}").write_text("Oh.\nOh.\n")
    (tmp_path / "sentence_groups.txt").write_text("0\n")
    paths = {
        "GERMAN": tmp_path,
        "SET": corpus / "contrast" / "deixis.json",
        "CORPUS": corpus / "contrast",
        "MODEL": document_model.checkpoint,
    }
    flags = [str(paths.get(flag, flag)) for flag in flags.split()]
    path = ["--path", str(document_model.checkpoint), "--cpu"]
    assert main([command, str(document_model.data), *path, *flags]) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.match(rf"memattn {command}: error: .*{re.escape(message)}", error)
