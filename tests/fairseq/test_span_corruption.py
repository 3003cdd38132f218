"""T5's objective: the corruption itself, its data set, and the task by fairseq's commands."""

import copy
import math
import re
import shlex
from argparse import Namespace
from collections import Counter

import numpy as np
import pytest
import torch
from fairseq import options, tasks
from fairseq.criterions.cross_entropy import CrossEntropyCriterionConfig
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from full import full
from harness import COMMON, PLUGGED, SIZES, logged, preprocess, run, train

from fairseq_memattn.data.corrupted_spans import (
    Noise,
    SpanCorruptionDataset,
    SpanOptions,
    add_sentinels,
    corrupt,
    random_lengths,
    text_blocks,
)
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.tasks.span_corruption import SpanCorruptionConfig, SpanCorruptionTask

PAD, EOS = 1, 2
SENTINELS = np.arange(99, 89, -1)


def generator(*seed):
    return np.random.default_rng(seed)


# ------------------------------------------------------------------------------ corruption


@pytest.mark.parametrize(
    ("source_length", "block", "target"), [(512, 568, 114), (128, 141, 29), (3, 2, 3)]
)
def test_lengths_are_those_of_t5(source_length, block, target):
    """568 and 114 for 512 are what T5's own code computes."""
    noise = Noise()
    assert noise.block_length(source_length) == block
    assert noise.corrupted(block) == (source_length, target)
    assert noise.corrupted(block + 1)[0] > source_length


@pytest.mark.parametrize("noise", [Noise(), Noise(0.5, 1.0), Noise(0.9, 1.0), Noise(0.01, 10.0)])
@pytest.mark.parametrize("length", [2, 7, 20])
def test_mask_has_exact_counts(noise, length):
    tokens, spans = noise.counts(length)
    assert tokens == min(max(round(length * noise.density), 1), length - 1)
    for seed in range(20):
        mask = noise.mask(length, generator(seed))
        starts = mask[1:] & ~mask[:-1]
        assert (len(mask), mask.sum(), starts.sum()) == (length, tokens, spans)
        assert not mask[0] and mask[-1]
        source, target = corrupt(np.arange(1000, 1000 + length), mask, np.arange(200), EOS)
        assert (len(source), len(target)) == noise.corrupted(length)


def test_all_divisions_are_equally_likely():
    random = generator(1)
    drawn = Counter(tuple(random_lengths(5, 3, random)) for _ in range(6000))
    assert set(drawn) == {(1, 1, 3), (1, 3, 1), (3, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 1)}
    assert all(abs(count - 1000) < 150 for count in drawn.values())  # five standard deviations


def test_corrupted_text():
    """Figure 2 of T5's paper, but for the sentinel at the end of its target."""
    text = np.array([10, 11, 12, 13, 14, 15, 16])
    mask = np.array([0, 0, 1, 1, 0, 0, 1], dtype=bool)
    source, target = corrupt(text, mask, SENTINELS, EOS)
    assert source.tolist() == [10, 11, 99, 14, 15, 98, EOS]
    assert target.tolist() == [99, 12, 13, 98, 16, EOS]


def restored(source, target, sentinels):
    """The text again, from what the model reads and what it should say."""
    spans, last = {}, None
    for token in target[:-1]:
        if token in sentinels:
            last = spans.setdefault(int(token), [])
        else:
            last.append(int(token))
    assert list(spans) == list(sentinels[: len(spans)])
    return [piece for token in source[:-1] for piece in spans.get(int(token), [int(token)])]


# --------------------------------------------------------------------------------- data set


class Corpus(list):
    """Lines as fairseq gives them."""

    @property
    def sizes(self):
        return np.array([len(line) for line in self])


LINES = Corpus(
    torch.tensor([*range(start, start + length), EOS])
    for start, length in ((200, 9), (300, 0), (400, 30), (500, 1), (600, 21), (700, 4))
)


def dataset(source_length=16, chunks=1, mode="none", training=True, lines=LINES, noise=None):
    noise = noise or Noise(0.3, 2.0)
    blocks = text_blocks(lines, mode, noise.block_length(source_length), pad=PAD, eos=EOS)
    options = SpanOptions(noise, SENTINELS, PAD, EOS, source_length // chunks, chunks)
    return SpanCorruptionDataset(blocks, options, training=training)


@pytest.mark.parametrize("mode", ["none", "complete", "complete_doc", "eos"])
@pytest.mark.parametrize("chunks", [1, 4])
def test_nothing_of_the_text_is_lost(mode, chunks):
    data = dataset(64, chunks, mode)
    text = [restored(data[i]["source"], data[i]["target"], SENTINELS) for i in range(len(data))]
    left_out = {500} if mode == "eos" else set()
    assert data.left_out == (2 if mode == "eos" else 0)  # an empty line, and one of one token
    words = [word for line in LINES for word in line[:-1].tolist() if word not in left_out]
    assert [word for block in text for word in block] == words
    if mode == "eos":
        assert [len(block) for block in text] == [9, 30, 21, 4]
    if mode == "complete_doc":
        assert text[0] == list(range(200, 209))


def test_a_block_that_ends_after_an_empty_line_is_whole():
    lines = Corpus(torch.tensor([*words, EOS]) for words in ([10, 11], [], [12], [13, 14, 15]))
    for mode in ("none", "complete"):
        blocks = text_blocks(lines, mode, 3, pad=PAD, eos=EOS)
        assert [block.tolist() for block in blocks] == [[10, 11, 12], [13, 14, 15]]


@pytest.mark.parametrize("mode", ["none", "complete", "complete_doc", "eos"])
@pytest.mark.parametrize("sizes", [(1, 0, 0), (0, 1, 0, 1)])
def test_a_text_of_documents_of_one_token(mode, sizes):
    lines = Corpus(torch.tensor([*range(10, 10 + size), EOS]) for size in sizes)
    reason = "no block of the text has 2 tokens or more"
    if mode in ("none", "complete") and sum(sizes) > 1:
        assert len(dataset(mode=mode, lines=lines)) == 1
    else:
        with pytest.raises(MemAttnError, match=reason):
            dataset(mode=mode, lines=lines)


def test_batches():
    data = dataset()
    batch = data.collater([data[i] for i in range(len(data))])
    inputs, target = batch["net_input"], batch["target"]
    assert inputs["src_tokens"].shape == (len(data), 16)
    assert inputs["src_lengths"].tolist() == [data.size(i)[0] for i in range(len(data))]
    assert inputs["src_lengths"][:-1].eq(16).all() and inputs["src_lengths"][-1] < 16
    assert (
        batch["ntokens"] == target.ne(PAD).sum() == sum(data.size(i)[1] for i in range(len(data)))
    )
    assert batch["nsentences"] == len(data) and batch["id"].tolist() == list(range(len(data)))
    assert "context_tokens" not in inputs
    assert inputs["prev_output_tokens"][:, 0].eq(EOS).all()
    for row, (fed, said) in enumerate(zip(inputs["prev_output_tokens"], target, strict=True)):
        length = data.size(row)[1]
        assert torch.equal(fed[1:length], said[: length - 1]) and said[length - 1] == EOS
        assert said[length:].eq(PAD).all() and fed[length:].eq(PAD).all()


def test_chunks_are_the_same_input_divided():
    """The last one as src_tokens, never empty; a short input has padding for its first chunks."""
    one, four = dataset(16, 1), dataset(16, 4)
    assert len(one) == len(four)
    rows = [one[i]["source"] for i in range(len(one))]
    inputs = four.collater([four[i] for i in range(len(four))])["net_input"]
    assert inputs["context_tokens"].shape == (len(four), 3, 4)
    assert torch.equal(inputs["context_padding_mask"], inputs["context_tokens"].eq(PAD))
    assert inputs["src_lengths"].min() > 0
    for row, context, last in zip(
        rows, inputs["context_tokens"], inputs["src_tokens"], strict=True
    ):
        together = torch.cat([context.flatten(), last])
        assert torch.equal(together[together != PAD], row)
    assert 8 < len(rows[-1]) <= 12  # three chunks
    assert inputs["context_padding_mask"][-1].all(dim=1).tolist() == [True, False, False]


def test_a_batch_of_short_inputs_has_context_without_length():
    data = dataset(64, 4, "eos")
    inputs = data.collater([data[3]])["net_input"]
    assert inputs["src_tokens"].shape[1] == data.size(3)[0]
    assert inputs["context_tokens"].shape == (1, 3, 0)


def draws(data):
    return [tuple(data[i]["source"].tolist()) for i in range(len(data))]


def test_spans_depend_on_seed_epoch_and_block_alone():
    training, evaluated = dataset(), dataset(training=False)
    first = draws(training)
    assert draws(training) == draws(dataset()) == first
    training.set_epoch(2)
    second = draws(training)
    assert first != second
    training.set_epoch(1)
    assert draws(training) == first
    same = draws(evaluated)
    evaluated.set_epoch(2)
    assert draws(evaluated) == same
    other = dataset()
    other.options = Namespace(**{**vars(other.options), "seed": 2})
    assert draws(other) != first
    assert (
        training.can_reuse_epoch_itr_across_epochs,
        evaluated.can_reuse_epoch_itr_across_epochs,
    ) == (False, True)


def test_what_a_data_set_refuses():
    with pytest.raises(
        MemAttnError, match=r"block 3 of the text must have .* --source-length 16, but has 30"
    ):
        dataset(16, 1, "eos")
    without_end = dataset(lines=Corpus([torch.tensor([200, 201, 202, 203])]))
    with pytest.raises(MemAttnError, match="line 1 of the binarised text must end with </s>"):
        without_end[0]


# -------------------------------------------------------------------------------- sentinels


def words(*extra):
    dictionary = Dictionary()
    for word in ("a", "b", *extra):
        dictionary.add_symbol(word)
    return dictionary


def test_sentinels_come_last_and_once():
    dictionary = words()
    indices = add_sentinels(dictionary, 3)
    assert dictionary.symbols[-3:] == ["<extra_id_2>", "<extra_id_1>", "<extra_id_0>"]
    assert indices.tolist() == [8, 7, 6]
    assert add_sentinels(dictionary, 3).tolist() == [8, 7, 6] and len(dictionary) == 9
    assert add_sentinels(dictionary, 2).tolist() == [8, 7]
    elsewhere = words("<extra_id_0>", "<extra_id_1>", "c")
    assert add_sentinels(elsewhere, 2).tolist() == [6, 7]
    with pytest.raises(
        MemAttnError, match=r"has 2 of the 5 symbols of --sentinels 5, but not .*_2>"
    ):
        add_sentinels(elsewhere, 5)


# --------------------------------------------------------------------------------- the task

TASK = shlex.split(
    "--task span_corruption --source-length 64 --criterion label_smoothed_cross_entropy "
    "--label-smoothing 0 --report-accuracy"
)
MODEL = [*COMMON, *SIZES, *TASK, "--arch", "transformer", "--share-all-embeddings"]


@pytest.fixture(scope="module")
def trained(monolingual, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return train(monolingual, folder, *MODEL, "--max-update", 60)


@pytest.mark.full
def test_validation_reports_loss_accuracy_and_perplexity(trained):
    checkpoint = ["--path", trained.checkpoint, "--log-format", "json"]

    def validated(*flags):
        done = run("fairseq-validate", trained.data, *PLUGGED, *TASK[:4], *checkpoint, *flags)
        (row,) = logged(done.stdout + done.stderr, "valid")
        return {name.removeprefix("valid_"): float(value) for name, value in row.items()}

    row = validated("--max-tokens", 1000)
    assert row["ppl"] == pytest.approx(math.exp(row["loss_nats"]), rel=2e-3)
    assert row["loss"] == pytest.approx(row["loss_nats"] / math.log(2), abs=2e-3)
    assert 0 < row["accuracy"] < 100
    alone, last = validated("--batch-size", 1), logged(trained.log, "valid")[-1]
    for name in ("loss_nats", "accuracy"):
        assert alone[name] == pytest.approx(row[name], abs=2e-3)
        assert float(last[f"valid_{name}"]) == pytest.approx(row[name], abs=2e-3)


@pytest.mark.full
@pytest.mark.parametrize("workers", [0, full(2)])
def test_resumed_in_a_later_epoch_equals_uninterrupted(workers, monolingual, tmp_path):
    """Without --update-epoch-batch-itr: spans, and so batches, are new in every epoch."""
    flags = [*MODEL, "--max-tokens", 4000]
    whole = train(monolingual, tmp_path / "whole", *flags, "--max-update", 13)
    rows = logged(whole.log, "train_inner")
    stop = next(i for i, row in enumerate(rows, 1) if int(row["epoch"]) == 2) + 2
    train(monolingual, tmp_path / "part", *flags, "--max-update", stop)
    more = ["--max-update", 13, "--num-workers", workers]
    resumed = train(monolingual, tmp_path / "part", *flags, *more, fresh=True)
    seen = [(row["num_updates"], row["loss"]) for row in logged(resumed.log, "train_inner")]
    assert 0 < len(seen) == 13 - stop
    assert seen == [(row["num_updates"], row["loss"]) for row in rows[stop:]]


def begin(data, *flags):
    """What fairseq-train does before its first update, in this process."""
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, [str(data), *MODEL[3:], *flags])
    cfg = convert_namespace_to_omegaconf(args)
    task = tasks.setup_task(cfg.task)
    task.build_model(cfg.model)
    task.load_dataset("train", combine=True)
    return task.get_batch_iterator(task.dataset("train"), max_tokens=cfg.dataset.max_tokens)


REFUSED = {
    "--noise-density 1": "--noise-density must be between 0 and 1, but is 1.0",
    "--chunks 3": "--source-length must be a multiple of --chunks 3, but is 64",
    "--chunks 4": "--chunks 4 needs a model that takes several sequences, such as t5mem_v4",
    "--chunks 16 --arch t5mem_v4": "--chunks must be at most --t5mem-sequences 8, but is 16",
    "--sentinels 2": "--sentinels must be at least 3, one for each span of --source-length 64, but",
    "--max-source-positions 50": "--max-source-positions must be at least the 64 tokens",
    "--max-tokens 60": "--max-tokens must be at least the 64 tokens of the longest example",
}


def test_what_the_task_refuses(monolingual):
    begin(monolingual)
    for flags, message in REFUSED.items():
        with pytest.raises(MemAttnError, match=re.escape(message)):
            begin(monolingual, *flags.split())


def test_a_text_of_ends_alone_is_refused(monolingual, tmp_path):
    (tmp_path / "train").write_text("\n\n")
    flags = ["--only-source", "--srcdict", monolingual / "dict.txt"]
    data = preprocess(tmp_path, *flags, splits="train")
    with pytest.raises(MemAttnError, match="train: the text is empty"):
        begin(data)


class TakesSequences(torch.nn.Module):
    takes_sequences = True

    def max_positions(self):
        return (16, 16)

    def max_sequences(self):
        return 4


def test_chunks_for_a_model_that_takes_them(monolingual, monkeypatch):
    """Positions are those of one chunk; fairseq-generate gets whole inputs, the model chunks."""
    cfg = SpanCorruptionConfig(data=str(monolingual), source_length=64, chunks=4, seed=1)
    task = SpanCorruptionTask.setup_task(cfg)
    monkeypatch.setattr("fairseq.models.build_model", lambda *_: TakesSequences())
    task.build_model(Namespace())
    task.load_dataset("valid")
    data = task.dataset("valid")
    batches = task.get_batch_iterator(data, max_sentences=len(data)).next_epoch_itr(shuffle=False)
    (sample,) = batches
    assert sample["id"].tolist() == list(range(len(data)))
    for row, index in zip(sample["net_input"]["src_tokens"], range(len(data)), strict=True):
        assert torch.equal(row[row != task.dictionary.pad()], data[index]["source"])
    whole = copy.deepcopy(sample)
    generate = Namespace(generate=lambda models, sample, **_: sample["net_input"])
    chunked = data.collater([data[index] for index in range(len(data))])
    for given in (sample, chunked):
        found = task.inference_step(generate, [], given, prefix_tokens=None)
        assert_equal(found, chunked["net_input"])
    assert_equal(sample["net_input"], whole["net_input"])
    task.build_criterion(CrossEntropyCriterionConfig(_name="cross_entropy"))
    (sample,) = task.get_batch_iterator(data, max_sentences=len(data)).next_epoch_itr(shuffle=False)
    assert_equal(sample["net_input"], chunked["net_input"])


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
