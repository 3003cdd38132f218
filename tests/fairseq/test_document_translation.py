"""The task document_translation through fairseq's own commands."""

import itertools
import json
import re
import shlex
import shutil
from argparse import Namespace

import pytest
import sacrebleu
import torch
from fairseq.logging import metrics
from full import full
from harness import (
    PLUGGED,
    STREAM,
    TRANSLATOR,
    WINDOWS,
    Trained,
    assert_same,
    attempt,
    generate,
    hypotheses,
    lines_of,
    logged,
    preprocess,
    run,
    train,
)
from loaded_model import Loaded
from test_document_search import by_hand

from fairseq_memattn.data.documents.mixture import numbers_of, weights_of
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.tasks import validation

SEARCHES = {"greedy": ["--beam", 1], "beam": shlex.split("--beam 4 --lenpen 0.6")}
LONGER = 2  # a translation has at most so many words more than its source
SHORT = ["--max-len-a", 1, "--max-len-b", LONGER]
each_search = pytest.mark.parametrize("search", SEARCHES)


def translate(document_model, *flags):
    return generate(document_model, *WINDOWS, *SHORT, *flags)


@pytest.fixture(scope="module")
def printed(document_model):
    return {
        name: translate(document_model, *flags, "--batch-size", 16)
        for name, flags in SEARCHES.items()
    }


@pytest.fixture(scope="module")
def generated(printed):
    return {name: hypotheses(text) for name, text in printed.items()}


@each_search
def test_a_line_for_each_line_in_their_order(search, printed, corpus):
    numbers = [int(n) for n in re.findall(r"^H-(\d+)", printed[search], re.MULTILINE)]
    assert numbers == list(range(len(lines_of(corpus / "test.en"))))
    for kind, language in (("S", "en"), ("T", "ru")):
        shown = re.findall(rf"^{kind}-\d+\t(.*)$", printed[search], re.MULTILINE)
        given = lines_of(corpus / f"test.{language}")
        assert [len(line.split()) for line in shown] == [len(line.split()) for line in given]
    assert "_eos" not in printed[search].partition("S-0")[2]


@pytest.fixture(scope="module")
def loaded(document_model):
    return Loaded(document_model)


def test_the_command_finds_what_is_found_by_hand(loaded, generated):
    options = {"beam": 1, "max_len_a": 1, "max_len_b": LONGER}
    count = len(loaded.dataset.documents)
    expected = by_hand(loaded.task, [loaded.model], count, options).values()
    texts = [loaded.task.tgt_dict.string(best["tokens"]) for best, *_ in expected]
    assert [one.text for one in generated["greedy"].values()] == texts


@pytest.mark.full
def test_gold_context_is_the_references(document_model, generated, loaded):
    """The first sentence of a document has no context; some other changes with it."""
    gold = hypotheses(translate(document_model, "--beam", 1, "--gold-target-context"))
    starts = loaded.dataset.documents.starts.tolist()
    ours = generated["greedy"]
    assert gold.keys() == ours.keys()
    assert [gold[i].text for i in starts] == [ours[i].text for i in starts]
    assert [h.positional for h in gold.values()] != [h.positional for h in ours.values()]


@pytest.mark.full
@pytest.mark.parametrize(
    ("context", "tokenizer"), [([], "13a"), (["--gold-target-context"], "char")]
)
def test_measures_in_validation_are_those_of_the_translations(
    context, tokenizer, document_data, document_model, corpus, tmp_path
):
    """Validation of the test set against what fairseq-generate and `memattn score` print."""
    arguments = json.dumps({"beam": 4, "lenpen": 0.6, "max_len_a": 1, "max_len_b": LONGER})
    bleu = ["--eval-bleu", "--eval-bleu-args", arguments, "--eval-bleu-tokenizer", tokenizer]
    shutil.copy(document_model.checkpoint, tmp_path)
    best = ["--best-checkpoint-metric", "d_bleu", "--maximize-best-checkpoint-metric"]
    flags = [*TRANSLATOR, *WINDOWS, *bleu, *best, *context, "--valid-subset", "test"]
    again = train(document_data, tmp_path, *flags, "--max-update", 91, "--max-tokens-valid", 60)
    (tmp_path / "out").write_text(
        generate(again, *WINDOWS, *SHORT, *context, *SEARCHES["beam"]), encoding="utf-8"
    )
    known = {line.split(" ")[0] for line in lines_of(document_data / "dict.ru.txt")}
    # Validation has no word for what the dictionary lacks, with its punctuation, in the references.
    references = [
        " ".join(word if word in known else "UNKNOWNTOKENINREF" for word in line.split())
        for line in lines_of(corpus / "test.ru")
    ]
    (tmp_path / "ref").write_text("\n".join(references) + "\n", encoding="utf-8")
    names = ["--docids", document_data / "test.en-ru.docids", "--json", tmp_path / "scores"]
    names += ["--tokenize", tokenizer, "--reference", tmp_path / "ref"]
    run("memattn", "score", "--generated", tmp_path / "out", *names)
    found = json.loads((tmp_path / "scores").read_text(encoding="utf-8"))["measures"]
    row = logged(again.log, "test")[-1]
    for ours, theirs in (("bleu", "s-BLEU"), ("chrf", "chrF2"), ("d_bleu", "d-BLEU")):
        (score,) = found[theirs]["systems"].values()
        assert float(row[f"test_{ours}"]) == pytest.approx(score["score"], abs=0.005)
    saved = torch.load(again.checkpoint, weights_only=False)["extra_state"]
    assert saved["best"] == float(row["test_d_bleu"]) > 0


def test_statistics_of_batches_and_processes_add_up():
    """Also batches whose translations are all empty, in which no document ends."""
    cfg = Namespace(eval_tokenized_bleu=False, eval_bleu_tokenizer="zh")
    measures = validation.text_metrics(cfg)
    hypotheses, references = (
        ["我有一本书。", "他们来了", "", ""],
        ["我有一本书", "他来了。", "是", "a b"],
    )
    joined = ([" ".join(hypotheses)], [" ".join(references)])
    logs = []
    for start in (0, 2):
        batch = (hypotheses[start : start + 2], references[start : start + 2])
        log = validation.text_statistics(measures, batch, joined if start else ([], []))
        assert list(log) == validation.STATISTICS
        logs.append(log)
    with metrics.aggregate() as whole:
        for log in [*logs, dict.fromkeys(validation.STATISTICS, 0)]:
            validation.log_texts(measures, [log])
    found = whole.get_smoothed_values()
    expected = {
        "bleu": sacrebleu.corpus_bleu(hypotheses, [references], tokenize="zh"),
        "chrf": sacrebleu.corpus_chrf(hypotheses, [references]),
        "d_bleu": sacrebleu.corpus_bleu(joined[0], [joined[1]], tokenize="zh"),
    }
    for name, score in expected.items():
        assert 10 < score.score < 90
        assert found[name] == pytest.approx(score.score, abs=0.005)


def test_validate_as_training_did(document_model):
    path = ["--path", document_model.checkpoint, "--max-tokens", 1000, "--log-format", "json"]
    path += ["--num-workers", 0]
    done = run("fairseq-validate", document_model.data, *PLUGGED, *WINDOWS, *path)
    (again,) = logged(done.stdout + done.stderr, "valid")
    assert again["valid_loss"] == logged(document_model.log, "valid")[-1]["valid_loss"]


@pytest.mark.full
def test_the_reverse_direction_of_the_data(document_data, tmp_path):
    """As with the same data binarised for that direction."""
    reversed_data = tmp_path / "bin"
    reversed_data.mkdir()
    for path in document_data.iterdir():
        shutil.copy(path, reversed_data / path.name.replace(".en-ru.", ".ru-en."))
    reverse = [*WINDOWS, "-s", "ru", "-t", "en"]
    greedy = [*reverse, *SHORT, *SEARCHES["greedy"]]
    losses, found, gains = [], [], []
    for number, data in enumerate((document_data, reversed_data)):
        folder = tmp_path / f"{number}"
        trained = train(data, folder, *TRANSLATOR, *reverse, "--max-update", 3)
        path = ["--path", trained.checkpoint]
        losses.append(logged(trained.log, "valid")[-1]["valid_loss"])
        limits = ["--max-tokens", 1000, "--log-format", "json"]
        done = run("fairseq-validate", data, *PLUGGED, *reverse, *path, *limits)
        (again,) = logged(done.stdout + done.stderr, "valid")
        assert again["valid_loss"] == losses[-1]
        found.append(hypotheses(generate(trained, *greedy)))
        gains.append(run("memattn", "cxmi", data, *path, "--cpu").stdout)
    assert losses[0] == losses[1]
    assert found[0] == found[1]
    assert gains[0] == gains[1]


def test_a_sentence_is_printed_before_the_next_is_translated(loaded):
    """Not after all sentences of a batch, nor after documents that come later."""
    task = loaded.task
    task.cfg.parallel_documents = 1
    batches = task.get_batch_iterator(loaded.dataset, max_sentences=50, max_positions=(99, 99))
    task.cfg.parallel_documents = 256
    generator = task.build_generator([loaded.model], Namespace(beam=1, max_len_b=3))
    decoder = task.sessions["test"].decoder
    for number, batch in enumerate(itertools.islice(batches.next_epoch_itr(shuffle=False), 12)):
        assert batch["id"].tolist() == [number]
        task.inference_step(generator, [loaded.model], batch)
        decoder = task.sessions["test"].decoder
        assert not decoder.ready
        assert sum(map(len, [position.todo for position in decoder.active])) + number + 1 == sum(
            len(loaded.dataset.documents.sentences_of(d))
            for d in range(loaded.dataset.documents.of(number) + 1)
        )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--context-separator ###", "must be '_eos', with which the model was trained, but is '#"),
        full(
            "--stream --source-context 0 --target-context 0 --loss-on last",
            "--loss-on last does not work with --stream",
        ),
        full("--best-checkpoint-metric chrf", "--best-checkpoint-metric chrf needs --eval-bleu"),
        full("--eval-bleu --eval-bleu-tokenizer x", "--eval-bleu-tokenizer must be one of none, z"),
        full(
            '--eval-bleu --eval-bleu-args {"beem":1}',
            "has 'beem', which fairseq-generate does not have",
        ),
        ("--num-shards 99", "--num-shards must be at most the 4 documents of test"),
    ],
)
def test_bad_flags_end_in_one_sentence(flags, message, document_model):
    path = ["--path", document_model.checkpoint]
    done = attempt(
        "fairseq-generate", document_model.data, *PLUGGED, *path, *WINDOWS, *flags.split(" ")
    )
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_another_task_than_in_training_ends_in_one_sentence(document_model):
    path = ["--path", document_model.checkpoint]
    done = attempt("fairseq-generate", document_model.data, *PLUGGED, *path)
    assert "which adds a separator" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_text_that_holds_the_separator_is_refused(document_data, corpus, tmp_path):
    (tmp_path / "text").mkdir()
    for split, lang in itertools.product(("train", "valid"), ("en", "ru")):
        text = (corpus / f"{split}.{lang}").read_text(encoding="utf-8")
        if (split, lang) == ("train", "ru"):
            text = text.replace("\n", " _eos\n", 7)
        (tmp_path / "text" / f"{split}.{lang}").write_text(text, encoding="utf-8")
    joined = "-s en -t ru --joined-dictionary".split()
    folder = preprocess(tmp_path / "text", *joined, splits="train valid")
    for split in ("train", "valid"):
        shutil.copy(document_data / f"{split}.en-ru.docids", folder)
    done = attempt("fairseq-train", folder, *TRANSLATOR, *WINDOWS, "--save-dir", tmp_path)
    assert (
        "train, target sentence 1: the text already contains the sep"
        in done.stderr.splitlines()[-1]
    )


def test_typed_text_that_is_refused(document_model):
    flags = ["--path", document_model.checkpoint, *WINDOWS, "--max-tokens", 99, "--max-len-b", 1]
    for line, message in (
        ("a _eos b", "line 2 of the input contains the separator '_eos'"),
        ("a " * 100, "the input, sentence 2: its window must have at most 99 tokens (--max-tokens"),
    ):
        done = attempt(
            "fairseq-interactive", document_model.data, *PLUGGED, *flags, stdin=f"a b\n{line}\n"
        )
        assert done.returncode != 0
        assert message in done.stderr.splitlines()[-1]


@pytest.mark.full
def test_windows_are_no_longer_than_those_of_training(document_data, document_model, tmp_path):
    limits = ["--max-source-positions", 20, "--max-target-positions", 18]
    learned = ["--encoder-learned-pos", "--decoder-learned-pos", "--max-update", 1]
    short = train(document_data, tmp_path, *TRANSLATOR, *WINDOWS, *limits, *learned)
    again, given = (translate(short, *SEARCHES["greedy"], *more) for more in ([], limits))
    assert_same(hypotheses(again), hypotheses(given))
    assert len(re.findall(r"[1-9]\d* of 34 windows lost \w+ context", again)) == 2
    both = Trained(document_data, f"{short.checkpoint}:{document_model.checkpoint}", "")
    together, given = (translate(both, *SEARCHES["greedy"], *more) for more in ([], limits))
    assert_same(hypotheses(together), hypotheses(given))


@pytest.fixture(scope="module")
def mixed_data(document_data, tmp_path_factory):
    """Documents, and the sentences of valid, each a document, as a second part of train."""
    folder = shutil.copytree(document_data, tmp_path_factory.mktemp("mixed") / "bin")
    for path in folder.glob("valid.*"):
        shutil.copy(path, folder / path.name.replace("valid", "train1"))
    ids = folder / "train1.en-ru.docids"
    ids.write_text("".join(f"{number}\n" for number in range(len(lines_of(ids)))))
    return folder


@pytest.mark.full
@pytest.mark.parametrize("kind", [WINDOWS, STREAM])
def test_a_mixture_is_resumed_in_the_middle_of_an_epoch(kind, mixed_data, tmp_path):
    flags = [*TRANSLATOR, *kind, "--sampling-weights", "0.2,4", "--disable-validation"]
    flags += ["--max-tokens", 3000, "--max-update"]
    whole = train(mixed_data, tmp_path / "whole", *flags, 9)
    assert re.search(r"train1: \d+ sentences, read 4 times an epoch", whole.log)
    epochs = [one["epoch"] for one in logged(whole.log, "train_inner")]
    second = epochs.index(2) + 1
    assert epochs[second] == 2
    for updates in (second, 9):
        parts = train(mixed_data, tmp_path / "parts", *flags, updates)
    ours, theirs = (torch.load(one.checkpoint)["model"] for one in (parts, whole))
    torch.testing.assert_close(ours, theirs, atol=0, rtol=0)


def test_weights_that_do_not_fit():
    with pytest.raises(
        MemAttnError, match=r"of which there are 2 \(train, train1, ...\), but has 3"
    ):
        weights_of([5, 5], [1, 2, 3], 1.0, -1)
    for text in ("1,-2", "1,x", "nan", "inf"):
        with pytest.raises(MemAttnError, match="--sampling-weights must be numbers such as 1,0.25"):
            numbers_of(text)
