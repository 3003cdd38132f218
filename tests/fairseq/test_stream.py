"""Translation with memories that are carried from sentence to sentence (--stream)."""

import contextlib
import json
import math
from itertools import pairwise
from random import Random

import numpy as np
import pytest
import torch
from full import full
from harness import (
    PLUGGED,
    STREAM,
    TRANSLATOR,
    WINDOWS,
    assert_same,
    attempt,
    generate,
    hypotheses,
    lines_of,
    logged,
    run,
    train,
    typed,
)
from loaded_model import Loaded

from fairseq_memattn.cli import main
from fairseq_memattn.data.documents.segments import Segment, SegmentDataset, segment_rows
from fairseq_memattn.tasks.inference.scorer import MemoryScorer, Pair

LONGER = 2  # a translation has at most so many words more than its source
SHORT = ["--max-len-a", 1, "--max-len-b", LONGER]
OTHERS = {"rfa": "rfa_transformer", "local_mlp": "abc_local_mlp_transformer"}
GREEDY, BEAM = ["--beam", 1], ["--beam", 4, "--lenpen", 0.6]


@pytest.fixture(scope="module")
def loaded(stream_model):
    return Loaded(stream_model)


def translate(model, *flags):
    return hypotheses(generate(model, *STREAM, *SHORT, *flags))


@pytest.fixture(scope="module")
def found(stream_model):
    return translate(stream_model, *BEAM, "--batch-size", 16)


def segments(loaded, numbers):
    """The first seven sentences of documents of the test set."""
    dataset = loaded.dataset
    documents = [dataset.documents.sentences_of(number)[:7] for number in numbers]
    return [
        Segment([dataset.source[i] for i in one], [dataset.reference(i) for i in one])
        for one in documents
    ]


def test_a_segment_is_its_sentences_one_after_another(loaded):
    """Logits and gradients, for documents of different lengths."""
    model, collate = loaded.model, loaded.dataset.collate
    documents = segments(loaded, [0, 1])
    inputs, targets = segment_rows(collate, documents)
    real = targets.ne(collate.options.pad)
    logits, _ = model(**inputs)
    logits = logits.log_softmax(dim=2)[real]
    slow = []
    for document in documents:
        memory = None
        for source, target in zip(*document, strict=True):
            row, _ = segment_rows(collate, [Segment([source], [target])])
            out, extra = model(**row, memory=memory)
            slow.append(out[0].log_softmax(dim=1))
            memory = extra["memory"]
    slow = torch.cat(slow)
    torch.testing.assert_close(logits, slow, atol=2e-5, rtol=0)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    wanted = torch.cat([x for document in documents for x in document.target]).unsqueeze(1)
    gradients = [
        torch.autograd.grad(-x.gather(1, wanted).mean(), weights, allow_unused=True)
        for x in (logits, slow)
    ]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-3)


def greedy_oracle(loaded):
    """Token by token, each step a forward pass over all sentences so far as one segment."""
    dataset, dictionary = loaded.dataset, loaded.task.tgt_dict
    eos = dictionary.eos()
    translations = []
    for number in range(len(dataset.documents)):
        done = []
        sentences = dataset.documents.sentences_of(number)
        for sentence in sentences:
            source = [dataset.source[i] for i in range(sentences[0], sentence + 1)]
            words = []
            while not words or words[-1] != eos:
                begun = torch.tensor([*words, eos])
                inputs, _ = segment_rows(dataset.collate, [Segment(source, [*done, begun])])
                with torch.no_grad():
                    logits = loaded.model(**inputs)[0][-1, len(words)]
                logits[dictionary.pad()] = -torch.inf
                if not words:
                    logits[eos] = -torch.inf
                is_full = len(words) == len(dataset.source[sentence]) + LONGER
                words.append(eos if is_full else int(logits.argmax()))
            done.append(torch.tensor(words))
        translations += done
    return [dictionary.string(words) for words in translations]


def test_greedy_search_is_the_obvious_loop(stream_model, loaded):
    greedy = translate(stream_model, *GREEDY)
    assert [one.text for one in greedy.values()] == greedy_oracle(loaded)
    assert len({one.text for one in greedy.values()}) > 5


@pytest.mark.full
@pytest.mark.parametrize("arch", ["rfa", "local_mlp"])
def test_controls_that_carry_one_sentence_after_another(arch, document_data, tmp_path):
    flags = [*STREAM, "--arch", OTHERS[arch], "--abc-document-gate", "first", "--max-update", 90]
    model = train(document_data, tmp_path, *TRANSLATOR, *flags)
    greedy = translate(model, *GREEDY)
    assert [one.text for one in greedy.values()] == greedy_oracle(Loaded(model))
    assert len({one.text for one in greedy.values()}) > 5


@pytest.mark.full
@pytest.mark.parametrize("buffer", [1, full(7), full(1000)])
def test_interactive_carries_memories_from_buffer_to_buffer(buffer, stream_model, found, corpus):
    lines, places = typed(corpus)
    flags = [*STREAM, *SHORT, *BEAM, "--path", stream_model.checkpoint]
    done = run(
        "fairseq-interactive", stream_model.data, *PLUGGED, *flags, "--buffer-size", buffer,
        stdin="".join(f"{line}\n" for line in lines),
    )  # fmt: skip
    ours = hypotheses(done.stdout)
    assert_same({i: ours[place] for i, place in enumerate(places)}, found)
    assert {ours[i].text for i, line in enumerate(lines) if not line} == {""}


def test_from_pretrained(loaded, found, corpus):
    lines, places = typed(corpus)
    options = {"beam": 4, "lenpen": 0.6, "max_len_a": 1, "max_len_b": LONGER}
    for _ in range(2):  # each call begins a new document
        ours = loaded.hub.translate(lines, **options)
        assert [ours[place] for place in places] == [one.text for one in found.values()]


@pytest.mark.full
def test_a_second_pass_begins_again_and_keeps_no_memory(loaded, found):
    task = loaded.task
    batches, generator = loaded.batches(5), loaded.generator(LONGER)
    for _ in range(2):
        ours = []
        for batch in batches.next_epoch_itr(shuffle=False):
            ours += task.inference_step(generator, [loaded.model], batch)
        texts = [task.tgt_dict.string(one[0]["tokens"]) for one in ours]
        assert texts == [one.text for one in found.values()]
        assert task.sessions["test"].memories == {}


def test_a_batch_that_ran_out_of_memory_is_translated_again(loaded, found, monkeypatch):
    """Also where some of its sentences had been translated, a few together."""
    task = loaded.task
    batches, generator = loaded.batches(2), loaded.generator(LONGER)
    generate, random, failures = generator.generate, Random(1), []

    def out_of_memory(models, sample):
        if random.random() < 0.3:
            failures.append(sample["id"])
            raise torch.OutOfMemoryError
        return generate(models, sample)

    monkeypatch.setattr(generator, "generate", out_of_memory)
    ours = []
    for batch in batches.next_epoch_itr(shuffle=False):
        while len(ours) <= int(batch["id"]):
            with contextlib.suppress(torch.OutOfMemoryError):
                ours += task.inference_step(generator, [loaded.model], batch)
    assert [task.tgt_dict.string(h[0]["tokens"]) for h in ours] == [h.text for h in found.values()]
    assert len(failures) > 5


def test_references_are_scored_as_a_segment_scores_them(stream_model, loaded):
    scored = hypotheses(generate(stream_model, *STREAM, "--score-reference", "--batch-size", 3))
    inputs, targets = segment_rows(loaded.dataset.collate, segments(loaded, [0]))
    with torch.no_grad():
        log_probs = loaded.model(**inputs)[0].log_softmax(dim=2)
    for number, target in enumerate(targets):
        target = target[target.ne(loaded.task.tgt_dict.pad())]
        ours = log_probs[number, : len(target)].gather(1, target.unsqueeze(1)).squeeze(1)
        in_base_2 = (ours / math.log(2)).tolist()
        assert scored[number].positional == pytest.approx(in_base_2, abs=2e-4)


def test_candidates_are_scored_as_documents(loaded):
    dataset = loaded.dataset
    pairs, expected = [], []
    for number in (0, 1):
        (document,) = segments(loaded, [number])
        pairs.append(Pair(*document))
        inputs, _ = segment_rows(dataset.collate, [document])
        with torch.no_grad():
            last = loaded.model(**inputs)[0][-1].log_softmax(dim=1)
        target = document.target[-1]
        expected.append(last[: len(target)].gather(1, target.unsqueeze(1)).squeeze(1))
    scorer = MemoryScorer([loaded.model], dataset.options, max_tokens=200)
    torch.testing.assert_close(scorer.score(pairs), expected, atol=2e-5, rtol=0)
    with pytest.raises(ValueError, match="pair 1 must have as many target as source sentences"):
        scorer.score([Pair(pairs[0].source, pairs[0].target[1:])])


def test_contrast(stream_model, loaded, corpus, tmp_path, capsys):
    """The candidates of a set through the command, each the last sentence of a document."""
    path, scores = corpus / "contrast" / "pronoun.json", tmp_path / "scores.txt"
    command = ["contrast", str(stream_model.data), "--path", str(stream_model.checkpoint), "--cpu"]
    assert main([*command, "--sets", str(path), "--scores", str(scores)]) == 0
    assert "context: all sentences before" in capsys.readouterr().out
    group = json.loads(path.read_text(encoding="utf-8"))[0]
    dictionaries = (loaded.task.src_dict, loaded.task.tgt_dict)
    pair = Pair(
        *(
            [d.encode_line(s, add_if_not_exist=False).long() for s in text.split("_eos")]
            for text, d in zip((group["src"], group["dst"][0]), dictionaries, strict=True)
        )
    )
    (expected,) = MemoryScorer([loaded.model], loaded.dataset.options).score([pair])
    assert float(lines_of(scores)[0]) == pytest.approx(float(expected.sum()), abs=1e-3)
    assert main([*command, "--sets", str(path), "--source-context", "1"]) != 0
    assert "sees all sentences before; leave out --source-context" in capsys.readouterr().err


def test_generated_text_is_that_of_fairseq_generate(stream_model, found, corpus, tmp_path):
    """With documents of ctxpro's layout, which are whole documents of the test set."""
    pytest.importorskip("sentence_splitter")
    ids, sources = lines_of(corpus / "test.docid"), lines_of(corpus / "test.en")
    entries, lines, places = [], [], []
    for number in dict.fromkeys(ids):
        places.append([i for i, own in enumerate(ids) if own == number])
        sentences = [sources[i] for i in places[-1]]
        entries.append({"expected": "он", "rule": "R", "src segment": sentences[-1]})
        lines.append("<eos> ".join(sentences))
    (tmp_path / "gender.json").write_text(json.dumps(entries), encoding="utf-8")
    (tmp_path / "gender.test").write_text("".join(f"{x}\n" for x in lines), encoding="utf-8")
    command = ["contrast", str(stream_model.data), "--path", str(stream_model.checkpoint), "--cpu"]
    command += ["--generate", "--sets", str(tmp_path / "gender.json"), "--lang", "ru"]
    command += ["--sources", str(tmp_path / "gender.test"), "--max-len-a", "1", "--max-len-b", "2"]
    command += ["--translations-out", str(tmp_path / "out"), "--beam", "4", "--lenpen", "0.6"]
    assert main(command) == 0
    assert lines_of(tmp_path / "out") == [" ".join(found[i].text for i in row) for row in places]


def test_a_streaming_model_is_not_exported(stream_model, tmp_path, capsys):
    given = ["--data", stream_model.data, "--path", stream_model.checkpoint]
    assert main(list(map(str, ["export", *given, "--output", tmp_path / "out"]))) != 0
    assert "trained with --stream cannot be export" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_segments_of_an_epoch_are_the_corpus(loaded):
    dataset = loaded.dataset
    seen = set()
    dataset.training = True
    try:
        parts = SegmentDataset(dataset, 4)
        for epoch in range(1, 6):
            parts.set_epoch(epoch)
            rows = [parts[number] for number in range(len(parts))]
            assert [i for row in rows for i in row] == list(range(len(dataset)))
            assert max(map(len, rows)) == 4
            for row in rows:
                assert dataset.documents.of(row[0]) == dataset.documents.of(row[-1])
            seen.add(tuple(map(len, rows)))
            longest = [max(map(max, zip(*map(dataset.size, row), strict=True))) for row in rows]
            sizes = [len(row) * size for row, size in zip(rows, longest, strict=True)]
            assert list(map(parts.num_tokens, range(len(parts)))) == sizes
    finally:
        dataset.training = False
    assert len(seen) > 1
    whole = SegmentDataset(dataset, 1000)
    assert [len(whole[i]) for i in range(len(whole))] == [
        len(dataset.documents.sentences_of(i)) for i in range(len(dataset.documents))
    ]
    assert whole.of_documents(range(1, 3)).tolist() == [1, 2]
    assert len(parts.of_documents(range(0, 0))) == 0


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("multiple, most", [(1, None), (1, 3), (3, None), (8, None)])
def test_batches_fit_with_their_padding(multiple, most, training, loaded, monkeypatch):
    """And hold every segment. Without other limits, the next segment would not fit."""
    loaded.task.load_dataset("train", combine=True)
    dataset = loaded.task.datasets["train"].dataset
    monkeypatch.setattr(dataset, "training", training)
    limit, parts = 120, SegmentDataset(dataset, 4)

    def padded(batch):
        """The elements of the larger of the batch's two tensors."""
        collated = parts.collater([parts[number] for number in batch])
        return max(x.numel() for x in (collated["net_input"]["src_tokens"], collated["target"]))

    order = parts.ordered_indices()
    batches = parts.batch_by_size(order, limit, most, multiple)
    assert np.concatenate(batches).tolist() == order.tolist()
    assert max(map(padded, batches)) <= limit
    sizes = list(map(len, batches))
    assert max(sizes) == most or most is None
    assert all(size < multiple or size % multiple == 0 for size in sizes)
    if multiple == 1 and most is None:
        assert all(padded([*one, after[0]]) > limit for one, after in pairwise(batches))
    assert len(parts.batch_by_size(order)) == 1


@pytest.mark.full
def test_a_resumed_training_is_the_uninterrupted_one(document_data, tmp_path):
    """From the middle of an epoch into the next."""
    flags = [*TRANSLATOR, *STREAM, "--disable-validation", "--max-tokens", 3000, "--max-update"]
    whole = train(document_data, tmp_path / "whole", *flags, 9)
    epochs = [one["epoch"] for one in logged(whole.log, "train_inner")]
    assert epochs[2:4] == [1, 1] and epochs[-1] == 2
    for updates in (3, 9):
        parts = train(document_data, tmp_path / "parts", *flags, updates)
    ours, theirs = (torch.load(one.checkpoint)["model"] for one in (parts, whole))
    torch.testing.assert_close(ours, theirs, atol=0, rtol=0)


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--source-context", 2], "--source-context must be 0 with --stream"),
        (["--max-tokens", 30], "padded to its longest sentence; raise --max-tokens or lower"),
        (["--arch", "abc_clustering_transformer"], "--stream does not work with the control clust"),
    ],
)
def test_bad_flags_end_in_one_sentence(flags, message, document_data, tmp_path):
    flags = [*TRANSLATOR, *STREAM, *flags, "--save-dir", tmp_path]
    done = attempt("fairseq-train", document_data, *flags)
    assert done.returncode != 0 and message in done.stderr


@pytest.mark.parametrize(
    "model, flags, message",
    [
        ("stream_model", WINDOWS, "--stream must be given: the model was trained with it"),
        ("document_model", STREAM, "--stream must be left out: the model was trained without it"),
    ],
)
def test_another_task_than_in_training_ends_in_one_sentence(model, flags, message, request):
    model = request.getfixturevalue(model)
    checkpoint = ["--path", model.checkpoint]
    done = attempt("fairseq-generate", model.data, *PLUGGED, *flags, *checkpoint)
    assert done.returncode != 0
    assert message in done.stderr and "Traceback" not in done.stderr
