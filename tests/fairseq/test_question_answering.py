"""Questions and answers by the real commands: prepare, train, generate, score."""

import json
import re
import shlex

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from harness import (
    NO_EPOCH_END,
    PLUGGED,
    SIZES,
    Trained,
    attempt,
    generate,
    hypotheses,
    lines_of,
    logged,
)
from harness import train as train_model
from questions import records

from fairseq_memattn.cli import main
from fairseq_memattn.data.chunks import Chunking, UnchunkedInputs, chunk_inputs, collate_chunks
from fairseq_memattn.data.documents.collation import WindowCollater, WindowOptions
from fairseq_memattn.data.questions.dataset import QuestionDataset, QuestionOptions
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.qa.answer_scores import mean, score_answer
from fairseq_memattn.qa.question_sets import Record
from fairseq_memattn.tasks.question_answering import QuestionAnsweringConfig, QuestionAnsweringTask

PAD, EOS = 1, 2
TASK = shlex.split("--task question_answering --max-source-length 128 --max-target-length 20")
TRAINING = shlex.split(
    "--arch transformer --share-all-embeddings --criterion cross_entropy --dropout 0 --optimizer "
    "adam --lr 0.005 --clip-norm 1 --seed 1 --batch-size 32 --num-workers 0 --log-format json "
    "--log-interval 1 --no-epoch-checkpoints"
)
ANSWERING = [*TASK, *shlex.split("--beam 1 --max-len-b 20 --batch-size 7")]


# Chunks and batches.


@pytest.mark.parametrize("head, overlap", [(0, 0), (0, 2), (3, 0), (3, 2)])
def test_chunks_repeat_a_head_and_overlap(head: int, overlap: int) -> None:
    """A chunk is the head, the end of what the chunk before holds, and tokens that follow."""
    chunking = Chunking(4, 8, overlap)
    most = head + (8 - head) + 3 * (8 - head - overlap)
    assert chunking.capacity(head) == most
    sizes = np.arange(1, most + 1)
    filled, tokens = chunking.filled(sizes, head), chunking.tokens(sizes, head)
    for size in sizes.tolist():
        source = torch.arange(size)
        chunks = chunking.split(source, head)
        full = [chunk for chunk in chunks if len(chunk)]
        assert chunks[4 - len(full) :] == full and filled[size - 1] == len(full)
        assert tokens[size - 1] == sum(map(len, chunks))
        assert all(len(chunk) == 8 for chunk in full[:-1]) and len(full[-1]) <= 8
        assert all(chunk[:head].equal(source[:head]) for chunk in full)
        whole, end = [source[:head]], head
        for number, chunk in enumerate(full):
            rest = chunk[head:]
            shared = overlap if number else 0
            assert rest[:shared].equal(source[end - shared : end])
            whole.append(rest[shared:])
            end += len(rest) - shared
            assert number == 0 or len(rest) > shared
        assert torch.cat(whole).equal(source)
    with pytest.raises(ValueError, match=f"must have 1 to {most} tokens, but there are {most + 1}"):
        chunking.split(torch.arange(most + 1), head)


@pytest.mark.parametrize("chunks", [2, 4])
def test_chunks_are_collated_as_windows_of_sequences_are(chunks: int) -> None:
    rows = [Chunking(chunks, 5).split(torch.arange(3, 3 + size)) for size in (1, 5, 6, 10)]
    options = WindowOptions(
        *(chunks - 1, 0, 99, 99, 3, 3, PAD, EOS), left_pad_source=False, as_sequences=True
    )
    windows = [[chunk for chunk in row if len(chunk)] for row in rows]
    expected = WindowCollater(options).sources(windows, [0] * len(windows))
    assert not expected.pop("target_context").any()
    found = collate_chunks(rows, PAD)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.equal(expected[name]), name
    assert found["context_padding_mask"][0].all()
    assert found["src_tokens"].ne(PAD).any(dim=1).all()


class Texts(list):
    """Texts of tokens from 3 on, each ending with eos; also their sizes, as fairseq has them."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(torch.cat([torch.arange(3, 2 + n), torch.tensor([EOS])]) for n in sizes)
        self.sizes = np.array(sizes)


def dataset(
    chunks: int = 1, questions: Texts | None = None, contexts: Texts | None = None
) -> QuestionDataset:
    questions, contexts = questions or Texts(4, 3, 11), contexts or Texts(4, 20, 5)
    records = [Record("squad", f"q{number}", ("x",)) for number in range(len(questions))]
    options = QuestionOptions(12, chunks, 3, PAD, EOS)
    answers = Texts(2, 3, 5)
    return QuestionDataset(questions, contexts, answers, records, options, name="dev")


def test_long_contexts_and_answers_are_cut_and_counted() -> None:
    found = dataset()
    assert found.cut == {"contexts": 2, "answers": 1}
    assert found[0]["source"].tolist() == [3, 4, 5, EOS, 3, 4, 5, EOS]
    assert found[1]["source"].tolist() == [3, 4, EOS, *range(3, 11), EOS]
    assert found[2]["source"].tolist() == [*range(3, 13), EOS, EOS]
    assert [found[index]["target"].tolist() for index in range(3)] == [
        [3, EOS],
        [3, 4, EOS],
        [3, 4, EOS],
    ]
    assert [found.size(index) for index in range(3)] == [(8, 2), (12, 3), (12, 3)]
    assert found.num_tokens(1) == 12
    with pytest.raises(MemAttnError, match="dev, the question 'q1': its 12 tokens with </s>"):
        dataset(questions=Texts(4, 12, 3))


def batches(found: QuestionDataset) -> tuple[dict, dict]:
    """The batch of three questions in chunks and of whole inputs, which give the same chunks."""
    samples = [found[index] for index in range(3)]
    batch, unchunked = found.collater(samples), UnchunkedInputs(found).collater(samples)
    rechunked = chunk_inputs(unchunked, found.options.split, PAD)["net_input"]
    assert rechunked.keys() == batch["net_input"].keys()
    assert all(rechunked[name].equal(tensor) for name, tensor in batch["net_input"].items())
    return batch, unchunked


@pytest.mark.parametrize("chunks", [1, 3])
def test_batches(chunks: int) -> None:
    found = dataset(chunks)
    batch, unchunked = batches(found)
    inputs = batch["net_input"]
    assert batch["target"].tolist() == [[3, EOS, PAD], [3, 4, EOS], [3, 4, EOS]]
    assert inputs["prev_output_tokens"].tolist() == [[EOS, 3, PAD], [EOS, 3, 4], [EOS, 3, 4]]
    assert (batch["ntokens"], batch["nsentences"]) == (8, 3)
    for row in range(3):
        source = found[row]["source"]
        whole = [
            *inputs.get("context_tokens", torch.empty(3, 0, 0))[row],
            inputs["src_tokens"][row],
        ]
        assert torch.cat(whole)[torch.cat(whole).ne(PAD)].equal(source)
        assert unchunked["net_input"]["src_tokens"][row][: len(source)].equal(source)
    assert ("context_tokens" in inputs) == (chunks > 1)
    if chunks > 1:
        assert inputs["context_tokens"].shape == (3, 2, 4)
        assert inputs["context_padding_mask"].equal(inputs["context_tokens"].eq(PAD))
        assert found.size(1) == (4, 3)


def repeated(overlap: int, questions: Texts) -> QuestionDataset:
    """Three chunks of seven tokens that all begin with the question."""
    options = QuestionOptions(21, 3, 3, PAD, EOS, overlap, repeat_question=True)
    contexts = Texts(4, 20, 5)
    records = [Record("squad", f"q{number}", ("x",)) for number in range(len(questions))]
    return QuestionDataset(questions, contexts, Texts(2, 3, 5), records, options, name="dev")


@pytest.mark.parametrize("overlap", [0, 1])
def test_every_chunk_begins_with_the_question(overlap: int) -> None:
    found = repeated(overlap, Texts(4, 3, 5))
    batch, _ = batches(found)
    inputs = batch["net_input"]
    assert found.cut == {"contexts": 1 + (overlap == 1), "answers": 1}
    for row, asked in enumerate((4, 3, 5)):
        question, room = found.questions[row], 7 - asked
        context = found[row]["source"][asked:]
        assert found[row]["source"][:asked].equal(question)
        assert len(context) == min(len(found.contexts[row]), overlap + 3 * (room - overlap))
        begins = range(0, max(1, len(context) - overlap), room - overlap)
        expected = [torch.cat([question, context[begin : begin + room]]) for begin in begins]
        chunks = [*inputs["context_tokens"][row], inputs["src_tokens"][row]]
        told = [chunk[chunk.ne(PAD)] for chunk in chunks if chunk.ne(PAD).any()]
        assert len(told) == len(expected)
        assert all(one.equal(other) for one, other in zip(told, expected, strict=True))
        assert found.num_tokens(row) == sum(map(len, told))
        assert found.size(row)[0] == max(map(len, told))


def test_a_repeated_question_ends_at_its_first_eos() -> None:
    questions = Texts(4, 3, 5)
    questions[2][1] = EOS
    reason = "dev, the question 'q2': it has </s> before its end, and with"
    with pytest.raises(MemAttnError, match=reason):
        repeated(1, questions)


# The commands.


@pytest.fixture(scope="module")
def model(question_data, tmp_path_factory) -> Trained:
    flags = [*PLUGGED, *SIZES, *TASK, *TRAINING, "--eval-answers", "--sentinels", 3]
    best = shlex.split("--best-checkpoint-metric f1 --maximize-best-checkpoint-metric")
    folder = tmp_path_factory.mktemp("model")
    return train_model(question_data, folder, *flags, *best, *NO_EPOCH_END, "--max-update", 100)


@pytest.fixture(scope="module")
def printed(model) -> str:
    return generate(model, *ANSWERING, "--gen-subset", "valid", "--sentinels", 3)


def answers(printed: str) -> list[str]:
    found = [one.text for one in hypotheses(printed).values()]
    return ["".join(text.split()).replace("\u2581", " ").strip() for text in found]


def score(*options: object) -> int:
    return main(["answers", *map(str, options)])


def test_scores_equal_the_arithmetic_and_those_of_validation(
    printed, model, question_data, tmp_path, capsys
) -> None:
    (tmp_path / "generated").write_text(printed, encoding="utf-8")
    gold = [record["answer"] for record in records(21, 2)]
    expected = mean(
        [
            score_answer(one, [other], "hotpotqa")
            for one, other in zip(answers(printed), gold, strict=True)
        ]
    )
    official = question_data.parents[1] / "valid.json"
    for file in (official, question_data / "records/valid.jsonl"):
        outputs = ["--json", tmp_path / "scores.json", "--predictions", tmp_path / "said.json"]
        assert score("--generated", tmp_path / "generated", "--gold", file, *outputs) == 0
        found = json.loads((tmp_path / "scores.json").read_text())
        assert found == {"rules": "hotpotqa", "questions": 21, "empty_predictions": 0} | (
            expected._asdict()
        )
    assert f"{100 * expected.f1:.3f}" in capsys.readouterr().out
    said = json.loads((tmp_path / "said.json").read_text())
    ids = [record["_id"] for record in records(21, 2)]
    assert said == {"answer": dict(zip(ids, answers(printed), strict=True)), "sp": {}}
    assert score("--answers", tmp_path / "said.json", "--gold", official) == 0
    *_, last = logged(model.log, "valid")
    measures = [float(last[f"valid_{name}"]) for name in ("em", "f1", "precision", "recall")]
    assert measures == pytest.approx([100 * value for value in expected], abs=1e-3)


def test_shards_together_are_the_whole(printed, question_data, tmp_path, capsys) -> None:
    lines = [line for line in printed.splitlines() if line.startswith("H-")]
    (tmp_path / "all").write_text("\n".join(lines))
    shards = [tmp_path / "0", tmp_path / "1"]
    for number, path in enumerate(shards):
        path.write_text("\n".join(lines[number::2]))
    gold = ["--gold", question_data / "records/valid.jsonl"]
    for files in ([tmp_path / "all"], shards):
        assert score("--generated", *files, *gold) == 0
    first, second = capsys.readouterr().out.split("rules")[1:]
    assert first == second
    assert score("--generated", shards[0], *gold) == 1
    assert "11 sentences, but must have 21" in capsys.readouterr().err


@pytest.mark.full
def test_chunks_that_repeat_the_question(question_data, tmp_path) -> None:
    """Sources are printed whole, limits are by their whole lengths, and batches do not matter."""
    chunks = shlex.split("--max-source-length 256 --chunks 4 --chunk-overlap 3 --repeat-question")
    flags = [*PLUGGED, *SIZES, *TASK, *TRAINING, *NO_EPOCH_END, *chunks, "--arch", "t5mem_v4"]
    trained = train_model(question_data, tmp_path, *flags, "--max-update", 2)
    limits = shlex.split("--gen-subset valid --max-len-a 0.1 --max-len-b 0 --lenpen 9")
    together = generate(trained, *ANSWERING, *limits, *chunks)
    alone = generate(trained, *ANSWERING[:-1], 1, *limits, *chunks)
    assert answers(together) == answers(alone)
    sources = dict(re.findall(r"^S-(\d+)\t(.*)$", together, re.MULTILINE))
    text = question_data.parent / "pieces"
    pairs = zip(lines_of(text / "valid.question"), lines_of(text / "valid.context"), strict=True)
    assert [sources[str(number)] for number in range(21)] == [" ".join(pair) for pair in pairs]
    lengths = {number: len(one.text.split()) for number, one in hypotheses(together).items()}
    most = {int(number): int(0.1 * (len(text.split()) + 2)) for number, text in sources.items()}
    assert lengths == most
    whole = [*PLUGGED, *ANSWERING, "--chunks", 4, "--gen-subset", "valid"]
    done = attempt("fairseq-generate", trained.data, *whole, "--path", trained.checkpoint)
    for name, value, now in (("repeat-question", True, False), ("chunk-overlap", 3, 0)):
        assert f"the model was trained with --{name} {value}, but now it is {now}" in done.stdout


def test_finetuning_from_a_model_with_sentinels(question_data, model, tmp_path) -> None:
    """Nothing of the model is lost: the first validation is the pretrained one's last."""
    flags = [*PLUGGED, *SIZES, *TASK, *TRAINING, "--sentinels", 3, "--max-update", 1, "--lr", 0]
    flags += ["--finetune-from-model", model.checkpoint, "--eval-answers"]
    tuned = train_model(question_data, tmp_path, *flags)
    last, first = logged(model.log, "valid")[-1], logged(tuned.log, "valid")[0]
    for name in ("valid_loss", "valid_em", "valid_f1"):
        assert first[name] == last[name]


# What cannot be.


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"chunks": 3}, "--max-source-length must be a multiple of --chunks 3, but is 512"),
        ({"repeat_question": True}, "--repeat-question needs --chunks above 1"),
    ],
)
def test_flags_that_cannot_be(changes, reason) -> None:
    with pytest.raises(MemAttnError, match=f"^{reason}$"):
        QuestionAnsweringTask.setup_task(QuestionAnsweringConfig(data="nowhere", **changes))


def test_answers_in_pieces_are_joined_in_every_batch(question_data) -> None:
    task = QuestionAnsweringTask.setup_task(QuestionAnsweringConfig(data=str(question_data)))
    assert task._texts(["19 98", "\u2581the \u2581ca t"]) == ["1998", "the cat"]
    assert task._texts(["19 98"]) == ["1998"]
    task.dictionary = Dictionary()
    assert task._texts(["19 98"]) == ["19 98"]


def test_generating_without_the_sentinels_is_refused(model) -> None:
    flags = [*PLUGGED, *ANSWERING, "--gen-subset", "valid", "--path", model.checkpoint]
    done = attempt("fairseq-generate", model.data, *flags)
    assert "the model was trained with --sentinels 3, but now it is 0" in done.stderr


@pytest.mark.parametrize(
    "gold, said, reason",
    [
        ('{"rules": "squad", "id": "a", "answers": ["x"]}', {"b": "x"}, "the id 'b' is not in"),
        ('{"rules": "squad", "id": "a", "answers": ["x"]}', {}, "lacks 1 of the 1 questions"),
        ("", {}, "gold.jsonl has no questions"),
    ],
)
def test_answers_that_cannot_be_scored(gold, said, reason, tmp_path, capsys) -> None:
    (tmp_path / "gold.jsonl").write_text(gold)
    (tmp_path / "said.json").write_text(json.dumps(said))
    assert score("--answers", tmp_path / "said.json", "--gold", tmp_path / "gold.jsonl") == 1
    assert reason in capsys.readouterr().err


def test_an_answer_that_comes_twice(tmp_path, capsys) -> None:
    (tmp_path / "gold.jsonl").write_text('{"rules": "squad", "id": "a", "answers": ["x"]}')
    (tmp_path / "said.json").write_text('{"a": "x", "a": "y"}')
    assert score("--answers", tmp_path / "said.json", "--gold", tmp_path / "gold.jsonl") == 1
    assert "the key 'a' occurs twice" in capsys.readouterr().err
