"""Windows of sentences: which there are, and the tensors made of them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.sequence_scorer import SequenceScorer

from fairseq_memattn.data.documents.batches import ShardIterator, document_batches
from fairseq_memattn.data.documents.collation import WindowOptions
from fairseq_memattn.data.documents.dataset import DocumentDataset
from fairseq_memattn.data.documents.mixture import Mixture, weights_of
from fairseq_memattn.data.documents.segments import SegmentDataset
from fairseq_memattn.documents.ids import Documents, read_docids
from fairseq_memattn.documents.windows import context_counts, window_sizes
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.tasks.inference.context_generator import ContextGenerator
from fairseq_memattn.tasks.inference.session import DocumentSession, SessionOptions

PAD, EOS, SEPARATOR = 1, 2, 9


def sentences(lengths):
    """Sentences of these lengths, eos included, whose tokens tell them apart."""
    return [torch.tensor([10 * i + 10] * (n - 1) + [EOS]) for i, n in enumerate(lengths)]


def dataset(lengths, target_lengths, ids, **options):
    given = {"source_context": 2, "target_context": 2, "max_source": 99, "max_target": 99} | options
    source, target = sentences(lengths), sentences(target_lengths)
    return DocumentDataset(
        source,
        target,
        (np.array(lengths), np.array(target_lengths)),
        Documents.from_ids(ids, "ids"),
        WindowOptions(
            **given, source_separator=SEPARATOR, target_separator=SEPARATOR, pad=PAD, eos=EOS
        ),
        name="test",
    )


def test_documents():
    documents = Documents.from_ids(list("aabbbc"), "ids")
    assert [list(documents.sentences_of(d)) for d in range(len(documents))] == [
        [0, 1],
        [2, 3, 4],
        [5],
    ]
    assert [documents.of(i) for i in range(6)] == [0, 0, 1, 1, 1, 2]
    assert documents.first_sentences().tolist() == [0, 0, 2, 2, 2, 5]


@pytest.mark.parametrize("training", [False, True])
def test_the_last_windows_of_documents_alone(training):
    found = dataset([3, 2, 4, 2, 5], [2] * 5, list("aabbb"), last_of_documents=True)
    found.training = training
    (batch,) = document_batches(found, 1, 0, None, None)
    assert list(batch) == [1, 4]
    assert sorted(found.ordered_indices()) == ([1, 4] if training else [*range(5)])
    assert [len(found[i]["source"]) for i in batch] == [2, 3]


@pytest.mark.parametrize("weights", [(1, 1), (2, 0.25), (0.5, 3.3), (0, 1)])
def test_parts_are_read_as_often_as_their_weights_say(weights):
    """Whatever the weight, all examples equally often: they differ by one at most."""
    parts, mixture = [range(7), range(7, 27)], Mixture([0, 7], weights, seed=3)
    examples, counts = np.arange(27), np.zeros(27, int)
    for epoch in range(1, 9):
        drawn = mixture.draw(examples, examples, epoch)
        assert (
            drawn.tolist() == Mixture([0, 7], weights, 3).draw(examples, examples, epoch).tolist()
        )
        counts += np.bincount(drawn, minlength=27)
        for weight, part in zip(weights, parts, strict=True):
            of_part = counts[part.start : part.stop]
            assert of_part.sum() == epoch * round(weight * len(part))
            assert np.ptp(of_part) <= 1
    assert mixture.is_plain == (counts.tolist() == [8] * 27)


def test_weights_of_parts():
    assert weights_of([10, 40], [], 1.0, -1) == [1, 1]
    assert weights_of([10, 40], [2, 0.5], 1.0, 3) == [6, 0.5]
    sizes, weights = [10, 1000, 40], weights_of([10, 1000, 40], [], 5.0, -1)
    shares = np.array([weight * size for weight, size in zip(weights, sizes, strict=True)])
    assert shares / shares.sum() == pytest.approx(
        np.array(sizes) ** 0.2 / sum(np.array(sizes) ** 0.2)
    )


@pytest.mark.parametrize("segments", [False, True])
def test_an_epoch_of_windows_or_segments_has_the_mixture(segments):
    found = dataset([2] * 9, [2] * 9, list("aaabbcdef"))
    found.training, found.mixture = True, Mixture([0, 5], [1, 2], seed=1)
    shown = SegmentDataset(found, 2) if segments else found
    for epoch in (1, 2):
        shown.set_epoch(epoch)
        order = shown.ordered_indices()
        read = [i for number in order for i in (shown[number] if segments else [number])]
        assert np.bincount(read).tolist() == [1] * 5 + [2] * 4
    assert not shown.can_reuse_epoch_itr_across_epochs


@pytest.mark.parametrize(
    ("lengths", "shards"), [([10, 1, 1], 3), ([1, 9, 1, 9], 4), ([5, 60, 7], 2)]
)
def test_no_shard_is_empty_while_there_are_documents(lengths, shards):
    ids = [str(number) for number, length in enumerate(lengths) for _ in range(length)]
    documents = Documents.from_ids(ids, "ids")
    parts = [documents.shard(shards, i) for i in range(shards)]
    assert sum(map(list, parts), []) == list(range(len(lengths))) and all(parts)


def test_a_process_without_documents_has_something_to_compute():
    """fairseq computes the first batch in the place of those that a process lacks."""
    found = dataset([3, 2], [2, 3], list("aa"))
    for shard in range(3):
        batches = document_batches(found, 3, shard, None, 1)
        assert len(batches) == 2
        shown = ShardIterator(dataset=found, collate_fn=found.collater, batch_sampler=batches)
        assert shown.first_batch["id"].tolist() == [0]
        order = found.documents.shard(3, shard)
        session = DocumentSession(found, order, SessionOptions(1))
        assert session.is_past(0) == (not order)


def test_an_id_that_comes_back_is_refused():
    with pytest.raises(MemAttnError, match="x.docids, line 3: document id 'a' began at line 1"):
        Documents.from_ids(list("aba"), "x.docids")


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "is missing"), ("a\na\nb\n", "has 3 lines, but its split has 4 sentences")],
)
def test_a_bad_sidecar_is_refused(tmp_path, text, message):
    path = tmp_path / "train.en-ru.docids"
    if text is not None:
        path.write_text(text)
    with pytest.raises(MemAttnError, match=message) as error:
        read_docids(path, 4)
    assert str(path) in str(error.value)


def test_spaces_around_ids_do_not_count(tmp_path):
    path = tmp_path / "train.en-ru.docids"
    path.write_bytes(b"a\r\na \n a\nb")
    assert read_docids(path, 4).starts.tolist() == [0, 3]


@pytest.mark.parametrize("wanted", [0, 1, 3, 50])
@pytest.mark.parametrize("limit", [1, 7, 20, 1000])
def test_context_counts_one_sentence_at_a_time(wanted, limit):
    random = np.random.default_rng(0)
    sizes = random.integers(1, 9, 40)
    first = Documents.from_ids(sorted(map(str, random.integers(0, 6, 40))), "").first_sentences()
    counts = context_counts(sizes, first, wanted, limit)
    for i in range(40):
        most = [
            back
            for back in range(min(wanted, i - first[i]) + 1)
            if back == 0 or sizes[i - back : i + 1].sum() <= limit
        ]
        assert counts[i] == max(most)
    expected = [sizes[i - c : i + 1].sum() for i, c in enumerate(counts)]
    assert window_sizes(sizes, counts).tolist() == expected


def test_a_batch_of_windows():
    data = dataset([3, 2, 3], [2, 3, 2], list("aab"))
    batch = data.collater([data[1], data[2]])
    assert batch["id"].tolist() == [1, 2]
    assert batch["net_input"]["src_tokens"].tolist() == [
        [10, 10, SEPARATOR, 20, EOS],
        [PAD, PAD, 30, 30, EOS],
    ]
    assert batch["net_input"]["src_lengths"].tolist() == [5, 3]
    assert batch["target"].tolist() == [[10, SEPARATOR, 20, 20, EOS], [30, EOS, PAD, PAD, PAD]]
    assert batch["net_input"]["prev_output_tokens"].tolist() == [
        [EOS, 10, SEPARATOR, 20, 20],
        [EOS, 30, PAD, PAD, PAD],
    ]
    assert batch["ntokens"] == 7
    assert [data.size(i) for i in range(3)] == [(3, 2), (5, 5), (3, 2)]


def test_loss_on_the_current_sentence_alone():
    data = dataset([3, 2], [2, 3], list("aa"), loss_on_window=False)
    batch = data.collater([data[0], data[1]])
    assert batch["target"].tolist() == [[10, EOS, PAD, PAD, PAD], [PAD, PAD, 20, 20, EOS]]
    assert batch["net_input"]["prev_output_tokens"][1].tolist() == [EOS, 10, SEPARATOR, 20, 20]
    assert batch["ntokens"] == 5


def test_sequences_as_tensors_of_their_own():
    data = dataset([3, 2, 3, 2], [2] * 4, list("aaab"), as_sequences=True)
    inputs = data.collater([data[2], data[3]])["net_input"]
    assert inputs["src_tokens"].tolist() == [[30, 30, EOS], [PAD, 40, EOS]]
    nothing = [PAD] * 3
    assert inputs["context_tokens"].tolist() == [
        [[10, 10, EOS], [20, EOS, PAD]],
        [nothing, nothing],
    ]
    assert inputs["context_padding_mask"].equal(inputs["context_tokens"].eq(PAD))
    data = dataset([3, 2], [2, 2], list("aa"), as_sequences=True, source_context=0)
    inputs = data.collater([data[0], data[1]])["net_input"]
    assert "context_tokens" not in inputs and "target_context" in inputs


@pytest.mark.parametrize(("limit", "kept"), [(8, 2), (4, 0)])
def test_references_are_scored_with_the_context_of_training(limit, kept):
    """Two sentences of three and two tokens before one of three."""
    found = dataset([3, 2, 3], [3, 2, 3], list("aaa"), max_target=limit)
    scorer = SequenceScorer.__new__(SequenceScorer)
    model = SimpleNamespace(max_decoder_positions=lambda: 99)
    generator = ContextGenerator(
        scorer, [model], found, None, None, torch.device("cpu"), references=True
    )
    prefix = generator._prefix(2, generator._reference(2))
    assert found.target_counts[2] == int(prefix.eq(SEPARATOR).sum()) == kept


def test_windows_lose_whole_sentences_and_say_so():
    data = dataset([4, 4, 4], [2, 2, 2], list("aaa"), max_source=8)
    assert data.source_counts.tolist() == [0, 1, 1]
    assert data.target_counts.tolist() == [0, 1, 1]  # no target sentence without its source
    assert data.cropped == {"source": 1, "target": 0}


@pytest.mark.parametrize("length", [4, 60, 90])
def test_the_context_of_own_translations_does_not_depend_on_references(length):
    found = dataset([4, 4, 4], [4, 4, length], list("aaa"))
    assert found.unlimited_counts.tolist() == [0, 1, 2]
    crowded = dataset([4, 4, 4], [50, 50, length], list("aaa"))
    assert crowded.unlimited_counts.tolist() == [0, 1, 2]
    assert crowded.target_counts.tolist() != [0, 1, 2]
    cropped = dataset([60, 30, 30], [4, 4, length], list("aaa"))
    assert cropped.unlimited_counts.tolist() == cropped.source_counts.tolist() == [0, 1, 1]


def test_sampled_context_changes_with_the_epoch_and_is_never_too_much():
    data = dataset([2] * 30, [2] * 30, ["a"] * 30, sample_context=True)
    data.training = True
    counts = {}
    for epoch in (1, 2, 1):
        data.set_epoch(epoch)
        counts.setdefault(epoch, []).append([len(data[i]["source"]) for i in range(30)])
    assert counts[1][0] == counts[1][1] != counts[2][0]
    assert set(counts[1][0]) == {1, 2, 3}
