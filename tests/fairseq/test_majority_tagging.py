"""Majority tagging by fairseq's commands, and the criterion that tells the exact match."""

import shlex
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from fairseq.logging import metrics
from harness import LOGGING, PLUGGED, logged, run

from fairseq_memattn.criterions.sequence_tagging import SequenceTaggingCriterion
from fairseq_memattn.data.majority import Majority
from fairseq_memattn.tasks.majority_tagging import MajorityTaggingConfig, MajorityTaggingTask

TASK = [*PLUGGED, *LOGGING, *shlex.split("--task majority_tagging --length 16 --num-workers 0")]
MODEL = shlex.split(
    "--criterion sequence_tagging --arch roberta --encoder-layers 1 --encoder-embed-dim 32 "
    "--encoder-ffn-embed-dim 64 --encoder-attention-heads 2 --dropout 0 --attention-dropout 0 "
    "--optimizer adam --lr 0.005 --batch-size 32 --train-examples 3200 --valid-examples 101 "
    "--no-epoch-checkpoints --max-epoch 1"
)
PERCENT = pytest.approx


def slow_tags(sequence: list[int]) -> list[int]:
    """The definition of section 3.1, word for word."""

    def maj(x: int) -> int:
        even = x if x % 2 == 0 else x + 1
        return even - 1 if sequence.count(even - 1) >= sequence.count(even) else even

    return [maj(x) for x in sequence]


def task(**options) -> MajorityTaggingTask:
    return MajorityTaggingTask(MajorityTaggingConfig(**options))


@pytest.mark.parametrize("length", [1, 2, 7, 40])
@pytest.mark.parametrize("pairs", [1, 3, 4])
def test_tags_are_the_definition(length, pairs):
    majority = Majority(length, pairs)
    for number in range(20):
        sequence = majority.sequence("train", number)
        assert majority.tags(sequence).tolist() == slow_tags(sequence.tolist())


def test_sequences_are_uniform_and_a_function_of_their_number():
    majority = Majority(1792, 4, seed=3)
    counts = np.bincount(majority.sequence("train", 5), minlength=9)
    assert counts[0] == 0 and len(counts) == 9
    # Each of 8 integers is expected 224 times, with a standard deviation of 14.
    assert counts[1:].min() > 154 and counts[1:].max() < 294
    others = [(3, "train", 6, 0), (3, "valid", 5, 0), (3, "train", 5, 1), (4, "train", 5, 0)]
    first = majority.sequence("train", 5)
    assert np.array_equal(first, Majority(1792, 4, seed=3).sequence("train", 5, epoch=0))
    for seed, split, number, epoch in others:
        again = Majority(1792, 4, seed).sequence(split, number, epoch)
        assert not np.array_equal(first, again)


def test_batches_hold_every_example_as_symbols():
    tagging = task(length=7, pairs=2, valid_examples=21)
    tagging.load_dataset("valid")
    data = tagging.dataset("valid")
    batches = tagging.get_batch_iterator(data, max_sentences=8, required_batch_size_multiple=8)
    found = {}
    for batch in batches.next_epoch_itr(shuffle=False):
        for number, source, target in zip(
            batch["id"].tolist(), batch["net_input"]["src_tokens"], batch["target"], strict=True
        ):
            words = [tagging.dictionary.string(row) for row in (source, target)]
            found[number] = [[int(word) for word in line.split()] for line in words]
    assert sorted(found) == list(range(21))
    for sequence, tags in found.values():
        assert len(sequence) == 7 and tags == slow_tags(sequence)


@pytest.mark.parametrize("fresh", [False, True])
def test_examples_of_two_epochs(fresh):
    tagging = task(length=9, train_examples=4, fresh_examples=fresh)
    tagging.load_dataset("train", combine=True)
    data, epochs = tagging.dataset("train"), []
    for epoch in (1, 2):
        iterator = tagging.get_batch_iterator(data, max_sentences=4, epoch=epoch)
        (batch,) = iterator.next_epoch_itr(shuffle=False)
        epochs.append(batch["net_input"]["src_tokens"])
    assert torch.equal(*epochs) != fresh


def test_no_such_split_and_too_small_a_batch():
    tagging = task(length=50)
    with pytest.raises(ValueError, match="has the splits train, valid, test, but not 'valid1'"):
        tagging.load_dataset("valid1")
    tagging.load_dataset("test")
    with pytest.raises(ValueError, match="--max-tokens must be at least --length 50, but is 49"):
        tagging.get_batch_iterator(tagging.dataset("test"), max_tokens=49)


def test_criterion_leaves_padding_out():
    """Three sequences of which one is all right, one is wrong once, and one has no tags."""
    dictionary = Dictionary()
    tags = [dictionary.add_symbol(tag) for tag in "abc"]
    pad = dictionary.pad()
    targets = torch.tensor([[*tags, pad], [tags[0], tags[0], tags[1], tags[2]], [pad] * 4])
    said = torch.tensor([[*tags, tags[0]], [tags[0], tags[0], tags[2], tags[2]], [tags[1]] * 4])
    logits = torch.nn.functional.one_hot(said, len(dictionary)).float()
    logits[:, :, 3] = -1.0
    criterion = SequenceTaggingCriterion(SimpleNamespace(target_dictionary=dictionary))
    sample = {"net_input": {}, "target": targets}
    loss, size, log = criterion(lambda: (logits, None), sample)
    log_probabilities = logits.log_softmax(-1)
    expected = -sum(
        log_probabilities[row, column, targets[row, column]]
        for row in range(2)
        for column in range(4)
        if targets[row, column] != pad
    )
    assert size == 7 and torch.allclose(loss, expected)
    with metrics.aggregate() as logged_metrics:
        criterion.reduce_metrics([log, {}])
        values = logged_metrics.get_smoothed_values()
    assert values["accuracy"] == PERCENT(100 * 6 / 7, abs=0.01)
    assert values["exact_match"] == PERCENT(100 * 2 / 3, abs=0.01)
    assert values["loss"] == PERCENT(float(expected) / 7 / np.log(2), abs=0.001)


def validate(checkpoint, *flags):
    done = run("fairseq-validate", *TASK, "--path", checkpoint, "--batch-size", 8, *flags)
    split = flags[flags.index("--valid-subset") + 1] if "--valid-subset" in flags else "valid"
    (row,) = logged(done.stdout + done.stderr, split)
    return {name: float(value) for name, value in row.items()}


@pytest.mark.full
def test_train_and_validate(tmp_path):
    """The exact match that validation prints is counted again from the model's own tags."""
    done = run("fairseq-train", *TASK, *MODEL, "--save-dir", tmp_path)
    losses = [float(row["loss"]) for row in logged(done.stdout, "train_inner")]
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    checkpoint = tmp_path / "checkpoint_last.pt"
    (after_training,) = logged(done.stdout, "valid")
    row = validate(checkpoint)
    assert row["valid_exact_match"] == float(after_training["valid_exact_match"])

    from fairseq.checkpoint_utils import load_model_ensemble_and_task

    (model,), _, tagging = load_model_ensemble_and_task([str(checkpoint)])
    model.eval()
    majority, right = Majority(16, 1), []
    for number in range(101):
        sequence = majority.sequence("valid", number)
        logits, _ = model(tagging.symbols[sequence][None])
        tags = logits[0].argmax(-1).tolist()
        words = [int(tagging.dictionary[tag]) for tag in tags]
        right.append([a == b for a, b in zip(words, slow_tags(sequence.tolist()), strict=True)])
    assert row["valid_exact_match"] == PERCENT(100 * np.mean([all(r) for r in right]), abs=0.01)
    assert row["valid_accuracy"] == PERCENT(100 * np.mean(right), abs=0.01)
    assert 20 < row["valid_exact_match"] < row["valid_accuracy"]
    test = validate(checkpoint, "--valid-subset", "test", "--test-examples", 30)
    assert 0 < test["test_exact_match"] <= 100
