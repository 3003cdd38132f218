"""Associative recall by fairseq's commands."""

import shlex

import pytest
import torch
from harness import LOGGING, PLUGGED, logged, run

from fairseq_memattn.data.recall import FORMS
from fairseq_memattn.tasks.associative_recall import AssociativeRecallConfig, AssociativeRecallTask

TASK = [
    *PLUGGED,
    *LOGGING,
    *shlex.split("--task associative_recall --length 12 --pairs 2 --criterion sequence_tagging"),
]
MODEL = shlex.split(
    "--arch abc_mlp_transformer_lm --abc-causal-layers window:2,softmax --decoder-layers 2 "
    "--decoder-embed-dim 32 --decoder-ffn-embed-dim 32 --decoder-attention-heads 1 "
    "--no-token-positional-embeddings --decoder-normalize-before --dropout 0 "
    "--share-decoder-input-output-embed --key-symbols 8 --value-symbols 8 --noise-symbols 4 "
    "--optimizer adam --lr 0.003 --batch-size 64 --train-examples 25600 --valid-examples 200 "
    "--no-epoch-checkpoints --max-epoch 1"
)


def task(**options) -> AssociativeRecallTask:
    return AssociativeRecallTask(AssociativeRecallConfig(**options))


def slow_answers(words: list[str]) -> list[str]:
    """What a reader with a notebook answers: the value of a key that has had one."""
    values: dict[str, str] = {}
    answers = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        answers.append(values.get(word, "<pad>"))
        if following.startswith("value"):
            values[word] = following
    return answers


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("sizes", [(21, 7, 7), (40, 5, 2), (3, 1, 1)])
def test_targets_are_the_values_that_the_sequence_states(form, split, sizes):
    length, pairs, queries = sizes
    recall = task(form=form, length=length, pairs=pairs, queries=queries)
    recall.load_dataset(split)
    name = recall.dictionary.__getitem__
    numbers = set()
    for number in range(50):
        example = recall.dataset(split)[number]
        words, targets = ([name(int(i)) for i in example[key]] for key in ("source", "target"))
        assert targets == slow_answers(words) and len(words) == length
        stated = sum(word.startswith("value") for word in words)
        asked = sum(target != "<pad>" for target in targets)
        assert asked == min(queries, stated)
        numbers.add(stated)
        first = [i for i, word in enumerate(words) if word.startswith("value")]
        if form == "multi_query":
            assert first == list(range(1, 2 * stated, 2))
        else:
            assert all(target != "<pad>" for target in targets[length - asked :])
    assert numbers == ({pairs} if split == "test" else set(range(1, pairs + 1)))


def test_examples_depend_on_their_number_the_seed_the_split_and_the_epoch():
    def first(split="train", epoch=1, number=0, **options):
        recall = task(**options)
        recall.load_dataset(split, combine=True)
        recall.dataset(split).set_epoch(epoch)
        return recall.dataset(split)[number]["source"]

    others = [{"number": 1}, {"data_seed": 2}, {"split": "valid"}, {"epoch": 2}]
    assert torch.equal(first(), first())
    assert not any(torch.equal(first(), first(**other)) for other in others)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": 65}, "--pairs must be at most --key-symbols 64, but is 65"),
        ({"pairs": 4, "queries": 5}, "--queries must be at most --pairs 4, but is 5"),
        ({"pairs": 8, "length": 23}, "--length must be at least 24, .* but is 23"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        task(**options)


@pytest.mark.full
def test_train_and_recall_at_twice_the_length(tmp_path):
    """A window of two tokens and softmax attention recall, and need no positions to do so."""
    done = run("fairseq-train", *TASK, *MODEL, "--save-dir", tmp_path)
    (row,) = logged(done.stdout, "valid")
    assert float(row["valid_accuracy"]) > 90
    longer = ["--length", 24, "--valid-subset", "test", "--batch-size", 50]
    done = run(
        "fairseq-validate", *TASK, "--path", tmp_path / "checkpoint_last.pt", *map(str, longer)
    )
    (row,) = logged(done.stdout + done.stderr, "test")
    assert float(row["test_accuracy"]) > 90
