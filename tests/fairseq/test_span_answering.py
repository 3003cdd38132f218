"""Answers as spans: windows, losses and the question as memory, and the task."""

import math
from argparse import Namespace
from multiprocessing import active_children

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics
from fairseq.models import ARCH_CONFIG_REGISTRY
from test_gmat import WORDBOOK, bert, rows
from torch.testing import assert_close

from fairseq_memattn.criterions.span_answering import SpanAnsweringCriterion, span_scores, tag_loss
from fairseq_memattn.data.questions.span_finder import (
    AnswerGatherer,
    SpanFinder,
    SpanTexts,
    supporting,
)
from fairseq_memattn.data.questions.spans import NO_TAG, QuestionShards, SpanDataset, SpanOptions
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.correctness.workers import end_workers
from fairseq_memattn.modules.span_head import SpanHead
from fairseq_memattn.qa.span_candidates import (
    LONGEST,
    Candidate,
    answers_of,
    best_spans,
    best_text,
    best_windows,
    cut_windows,
)
from fairseq_memattn.qa.span_records import SpanRecord
from fairseq_memattn.tasks.span_answering import SpanAnsweringConfig, SpanAnsweringTask
from fairseq_memattn.tasks.validation import MEASURES

BOS, PAD, EOS = 0, 1, 2


# Windows.


def windows_of(length, room, stride):
    """As run_squad.py cuts them, one by one."""
    found, start = [], 0
    while True:
        size = min(length - start, room)
        found.append((start, size))
        if start + size == length:
            return found
        start += min(size, stride)


def best_window(windows, token):
    """As run_squad.py finds the maximum context, one by one."""
    best, best_score = None, None
    for number, (start, size) in enumerate(windows):
        if start <= token < start + size:
            score = min(token - start, start + size - 1 - token) + 0.01 * size
            if best_score is None or score > best_score:
                best, best_score = number, score
    return best


def test_windows_are_those_of_run_squad():
    cases = [(n, r, s) for n in range(25) for r in (1, 4, 7) for s in (1, 3, 4, 9)]
    for stride in (1, 3, 4, 9):
        own = [case for case in cases if case[2] == stride]
        lengths, rooms, _ = (np.array(column) for column in zip(*own, strict=True))
        context, first, tokens = cut_windows(lengths, rooms, stride)
        for number, (length, room, _) in enumerate(own):
            held = context == number
            expected = windows_of(length, room, stride)
            assert list(zip(first[held], tokens[held], strict=True)) == expected
            best = best_windows(first[held], tokens[held], length)
            assert best.tolist() == [best_window(expected, token) for token in range(length)]


class Texts(list):
    """Texts of given tokens and eos, with their sizes, as fairseq has them."""

    def __init__(self, *texts):
        super().__init__(torch.tensor([*text, EOS], dtype=torch.int32) for text in texts)
        self.sizes = np.array([len(text) for text in self])


def dataset(answers=((1, 2), (6, 6)), tags=None, window=9, **options):
    """Contexts of 3 and 8 tokens after questions of 1 and 4, of which 3 are kept."""
    return SpanDataset(
        Texts([10], [11, 12, 13, 14]),
        Texts([20, 21, 22], range(30, 38)),
        None if answers is None else np.array(answers),
        tags,
        SpanOptions(window, 2, 3, BOS, EOS, PAD, **options),
        name="dev",
    )


def test_batches_of_windows():
    data = dataset(tags=np.array([0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0], dtype=np.uint8))
    assert (len(data), data.cut, data.sizes.tolist()) == (5, 1, [7, 9, 9, 9, 8])
    batch = data.collater([data[number] for number in range(5)])
    asked = [BOS, 11, 12, 13, EOS]
    assert batch["net_input"]["src_tokens"].tolist() == [
        [BOS, 10, EOS, 20, 21, 22, EOS, PAD, PAD],
        [*asked, 30, 31, 32, EOS],
        [*asked, 32, 33, 34, EOS],
        [*asked, 34, 35, 36, EOS],
        [*asked, 36, 37, EOS, PAD],
    ]
    assert batch["net_input"]["src_lengths"].tolist() == data.sizes.tolist()
    assert "memory_words" not in batch["net_input"]
    # Kept whole or not at all: <s> is the answer of windows without it.
    assert batch["target"].tolist() == [[4, 5], [0, 0], [0, 0], [7, 7], [5, 5]]
    assert batch["tags"].tolist() == [
        [0, 0, 0, 0, 1, 1, 0, NO_TAG, NO_TAG],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, 1, 0, 0, NO_TAG],
    ]
    tokens = batch["net_input"]["src_tokens"]
    assert torch.equal(batch["candidates"], tokens.ge(20) | tokens.eq(BOS))
    bare = dataset(None, question_memory=True)
    batch = bare.collater([bare[0], bare[1]])
    assert batch["target"] is None and batch["tags"] is None
    assert batch["net_input"]["memory_words"].tolist() == [[10, PAD, PAD], [11, 12, 13]]
    split = dataset([(-1, -1), (2, 3)])
    assert [split[number]["target"].tolist() for number in range(4)] == [
        [0, 0],
        [0, 0],
        [5, 6],
        [0, 0],
    ]
    assert sorted(data.ordered_indices()) == [0, 1, 2, 3, 4]


# Answers.


def test_best_spans_are_those_of_brute_force():
    draw = np.random.default_rng(0)
    for size, longest, most in ((1, 3, 5), (6, 3, 4), (7, 30, 99), (9, 2, 6)):
        starts, ends = draw.normal(size=(2, size))
        allowed = draw.random(size) < 0.7
        ends_at = np.cumsum(draw.integers(0, 3, size))
        places = np.stack([np.concatenate([[0], ends_at[:-1]]), ends_at], axis=1)
        expected = sorted(
            (
                Candidate(starts[first] + ends[last], first, last)
                for first in range(size)
                for last in range(first, min(size, first + longest))
                if allowed[first] and places[last, 1] > places[first, 0]
            ),
            reverse=True,
        )[:most]
        found = best_spans(starts, ends, allowed, places, longest, most)
        assert [one[1:] for one in found] == [one[1:] for one in expected]
        assert_close([one.score for one in found], [float(one.score) for one in expected])


class Marker(torch.nn.Module):
    """Scores by symbol, position and length."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.tables = torch.nn.Parameter(torch.randn(3, 50, 4, generator=generator))

    def forward(self, src_tokens, src_lengths):
        words, places, lengths = self.tables
        by_place = places[: src_tokens.shape[1]] + lengths[src_lengths].unsqueeze(1)
        return words[src_tokens] * by_place, None


@torch.no_grad()
@pytest.mark.parametrize("window", [9, 11, 40])
def test_the_best_window_of_each_token_decides(window):
    data = dataset(tags=np.zeros(11, dtype=np.uint8), window=window)
    places = np.array([(2 * number, 2 * number + 1) for number in (*range(3), *range(8))])
    model = Marker()
    finder = SpanFinder(data, places, longest=3, most=99)
    found, again = (finder.find(model, max_tokens) for max_tokens in (100, window))
    for question, context, one, other in zip(
        ([10], [11, 12, 13]), ([20, 21, 22], range(30, 38)), found, again, strict=True
    ):
        windows = windows_of(len(context), window - len(question) - 3, 2)
        expected, odds = [], []
        for token in range(len(context)):
            number = best_window(windows, token)
            start, size = windows[number]
            row = [BOS, *question, EOS, *context[start : start + size], EOS]
            scores, _ = model(torch.tensor([row]), torch.tensor([len(row)]))
            scores = scores[0, len(question) + 2 : -1]
            at = token - start
            odds.append(scores[at, 3] - scores[at, 2])
            for last in range(at, min(at + 3, size)):
                expected.append((float(scores[at, 0] + scores[last, 1]), token, start + last))
        assert sorted(c[1:] for c in one.candidates) == sorted(c[1:] for c in expected)
        assert_close(sorted(c[0] for c in one.candidates), sorted(c[0] for c in expected))
        assert_close(one.facts, np.array(odds, dtype=np.float32))
        assert sorted(c[1:] for c in other.candidates) == sorted(c[1:] for c in one.candidates)


def test_answers_are_cut_out_of_the_original_text():
    context, places = "A  red\ncat, red", np.array([(0, 1), (3, 6), (7, 10), (10, 11), (12, 15)])
    said = [Candidate(1.0, 4, 4), Candidate(3.0, 1, 2), Candidate(2.0, 1, 1), Candidate(0.5, 0, 3)]
    found = answers_of(said, context, places, 3)
    assert [(one.text, one.score) for one in found] == [("red\ncat", 3.0), ("red", 2.0)]
    assert_close([one.probability for one in found], [1 / (1 + math.exp(-1)), 1 / (1 + math.e)])
    assert answers_of([], context, places, 3) == []


def test_answers_are_gathered_from_any_batches():
    """Once each, with the last window of its question, and as they are found all together."""
    data = dataset()
    texts = [" ".join(map(str, range(first, last))) for first, last in ((20, 23), (30, 38))]
    records = [SpanRecord("squad", "", ("x",), "", "", text, (), (), frozenset()) for text in texts]
    places = np.array([(3 * n, 3 * n + 2) for n in (*range(3), *range(8))])
    texts, model = SpanTexts(data, records, places), Marker()
    found = SpanFinder(data, places, longest=LONGEST, most=20).find(model, max_tokens=100)
    expected = {n: best_text(texts.answers(n, one.candidates, 20)) for n, one in enumerate(found)}
    assert all(expected.values())
    gatherer = AnswerGatherer(texts)
    for order in ([[0, 1, 2, 3, 4]], [[4, 2], [1, 0], [3]], [[3], [1], [4], [0], [2]]):
        taken = [gatherer.take(model, data.collater([data[n] for n in batch])) for batch in order]
        assert sum(map(len, taken)) == 2 and taken[-1]
        assert {n: text for some in taken for n, text in some.items()} == expected
    # What was cut short leaves nothing behind.
    gatherer.take(model, data.collater([data[1], data[2]]))
    gatherer.forget()
    assert gatherer.take(model, data.collater([data[3], data[4]])) == {}
    assert gatherer.take(model, data.collater([data[1], data[2]])) == {1: expected[1]}


@pytest.mark.parametrize("workers", [1, 3])
def test_a_worker_evaluates_all_windows_of_a_question(workers):
    data = SpanDataset(
        Texts(*([9] for _ in range(4))),
        Texts(*(range(20, 20 + size) for size in (3, 11, 7, 16))),
        None,
        None,
        SpanOptions(9, 2, 3, BOS, EOS, PAD),
        name="dev",
    )
    shards = QuestionShards(data, workers)
    batches = shards.batch_by_size(data.ordered_indices(), max_sentences=2)
    dealt = [[n for batch in batches[worker::workers] for n in batch] for worker in range(workers)]
    assert sorted(n for part in dealt for n in part) == list(range(len(data)))
    questions = [{int(data.windows.context[n]) for n in part} for part in dealt]
    assert sum(map(len, questions)) == 4
    assert max(map(len, batches)) == 2 and len(batches[0]) > 0 and len(batches) % workers == 0
    assert sorted(
        n for part in data.batch_by_size(data.ordered_indices(), max_sentences=2) for n in part
    ) == list(range(len(data)))


def test_a_validation_leaves_no_iterator_behind():
    """Each would keep its worker processes."""
    task = SpanAnsweringTask.__new__(SpanAnsweringTask)
    task.cfg, task.dataset_to_epoch_iter, task.batches = Namespace(), {}, {}
    before = set(active_children())
    data = SpanDataset(
        Texts([9]),
        Texts(range(20, 23)),
        None,
        None,
        SpanOptions(9, 2, 3, BOS, EOS, PAD),
        name="dev",
    )
    for _ in range(2):
        batches = task.get_batch_iterator(data, max_sentences=2, max_positions=9, num_workers=1)
        assert len(list(batches.next_epoch_itr(shuffle=False))) == 1
        assert len(set(active_children()) - before) == 1
    assert not task.dataset_to_epoch_iter
    end_workers(batches)


def test_supporting_facts():
    places = np.array([(0, 2), (3, 5), (5, 6), (7, 9)])
    facts = np.array([1.0, -3.0, 1.0, 2.0], dtype=np.float32)
    said = supporting(places, facts, [(0, 2), (0, 5), (5, 9), (9, 12)])
    assert list(said) == [True, False, True, False]


# Losses.


def test_losses_of_both_ends_and_of_the_tags():
    torch.manual_seed(0)
    scores = torch.randn(2, 4, 4).half()
    candidates = torch.tensor([[True, False, True, True], [True, False, True, False]])
    ends = span_scores(scores, candidates)
    assert ends.dtype == torch.float32
    assert torch.equal(ends.isfinite().all(2), candidates)
    tags = torch.tensor([[0, 1, 0, 0], [0, 0, 0, NO_TAG]])
    log_p = F.log_softmax(scores[..., 2:].float(), dim=2)
    expected = -(log_p[0, 1, 1] + log_p[0, [0, 2, 3], 0].mean()) / 2 - log_p[1, :3, 0].mean()
    assert_close(tag_loss(scores[..., 2:], tags), expected)


def test_head_takes_what_a_checkpoint_has():
    plain, tagging = SpanHead(4, facts=False), SpanHead(4, facts=True)
    x = torch.randn(2, 3, 4)
    assert plain(x).shape == (2, 3, 2) and tagging(x).shape == (2, 3, 4)
    given = {f"head.{key}": weight for key, weight in tagging.state_dict().items()}
    given |= {"head.dense.weight": torch.ones(1), "other.weight": torch.ones(1)}
    plain.upgrade_state_dict_named(given, "head")
    assert given.pop("other.weight").item() == 1
    plain.load_state_dict({key.removeprefix("head."): weight for key, weight in given.items()})
    assert torch.equal(plain(x), tagging(x)[..., :2])
    nothing = {}
    tagging.upgrade_state_dict_named(nothing, "head")
    assert set(nothing) == {f"head.{key}" for key in tagging.state_dict()}


# The question as memory.


@torch.no_grad()
def test_words_replace_the_first_memory_vectors():
    model = bert(gmat_memory=4)
    encoder, tokens = model.encoder.sentence_encoder, rows(9, 7)
    words = torch.tensor([[7, PAD, PAD], [8, 9, 10]])
    lengths = torch.tensor([9, 7])
    found = encoder.first_memory(lengths, words)
    learned, table = encoder.memory_tokens.weight, encoder.embed_tokens.weight
    expected = torch.stack(
        [torch.stack([table[7], *learned[1:]]), torch.stack([*table[[8, 9, 10]], learned[3]])]
    )
    assert_close(found, encoder.layernorm_embedding(expected))
    assert torch.equal(encoder.first_memory(lengths, words[:, :0]), encoder.first_memory(lengths))
    with_words = model(tokens, memory_words=words)[0]
    assert not torch.allclose(with_words, model(tokens)[0])
    alone = model(tokens[:1], memory_words=words[:1, :1])[0]
    assert_close(with_words[:1], alone, rtol=0, atol=1e-5)
    many = torch.tensor([[7, 8, 9, 10, 11], [8, 9, 10, 11, 12]])
    assert torch.equal(
        model(tokens, memory_words=many)[0], model(tokens, memory_words=many[:, :4])[0]
    )
    none = bert(gmat_memory=0)
    assert torch.equal(none(tokens, memory_words=words)[0], none(tokens)[0])


def test_words_are_trained_through_the_memory():
    model = bert("compressed", gmat_memory=4)
    model(rows(9), memory_words=torch.tensor([[7, PAD]]))[0].square().sum().backward()
    grad = model.encoder.sentence_encoder.memory_tokens.weight.grad
    assert not grad[0].any() and grad[1:].any(dim=1).all()


# The task.

SIZES = dict(layers=1, embed_dim=16, ffn_embed_dim=16, attention_heads=2)
OPTIONS = dict(window=48, stride=16, max_question=12)


def task(folder, **options):
    (folder / "question").mkdir(exist_ok=True)
    WORDBOOK.save(str(folder / "question" / "dict.txt"))
    return SpanAnsweringTask.setup_task(SpanAnsweringConfig(data=str(folder), **OPTIONS | options))


def built(folder, arch, options=(), **model):
    sizes = {f"encoder_{name}": value for name, value in SIZES.items()}
    args = Namespace(arch=arch, **sizes | model)
    ARCH_CONFIG_REGISTRY[arch](args)
    return task(folder, **dict(options)).build_model(args)


@torch.no_grad()
@pytest.mark.parametrize("arch", ["roberta", "abc_mlp_roberta", "gmat_bert"])
def test_every_masked_language_model_can_answer(arch, tmp_path):
    model = built(tmp_path, arch, {"supporting_facts": True}, max_positions=48).eval()
    scores, _ = model(src_tokens=rows(9, 5))
    assert scores.shape == (2, 9, 4)
    assert not [name for name in model.state_dict() if "lm_head.dense" in name]
    again = built(tmp_path, arch, {"supporting_facts": True}, max_positions=48).eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(src_tokens=rows(9, 5))[0], scores)


def test_workers_without_a_batch_of_their_own(tmp_path):
    tiny = task(tmp_path, eval_answers=True)
    assert tiny.valid_step({}, None, None) == (0, 0, {})
    criterion = SpanAnsweringCriterion(tiny)
    row = {"loss": math.log(2), "nexact": 1, "sample_size": 2, "_answers": 1}
    row |= {f"_{name}": value for name, value in zip(MEASURES, (0, 0.5, 0.4, 0.8), strict=True)}
    with metrics.aggregate() as log:
        tiny.reduce_metrics([row, {}], criterion)
    found = log.get_smoothed_values()
    assert [found[name] for name in ("loss", "exact", "em", "f1")] == [0.5, 50, 0, 50]


def test_models_that_cannot_answer(tmp_path):
    with pytest.raises(MemAttnError, match="--window must be more than --max-question 12 and the"):
        task(tmp_path, window=15)
    for arch, flags, told in (
        ("transformer", {}, "needs a masked language model, such as --arch gmat_bert or"),
        ("gmat_bert", {"gmat_memory": 0}, "--question-memory needs a model with a memory"),
        ("roberta", {"max_positions": 20}, "--window must be at most the 20 positions of the mode"),
    ):
        options = {"question_memory": True} if arch == "gmat_bert" else {}
        with pytest.raises(MemAttnError, match=told):
            built(tmp_path, arch, options, **flags)
