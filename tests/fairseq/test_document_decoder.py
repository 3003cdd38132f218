"""The order in which documents are decoded, and what each sentence is told."""

import contextlib
import itertools

import pytest
import torch

from fairseq_memattn.documents.decoder import Conversation, DocumentDecoder, documents_of_lines
from fairseq_memattn.documents.ids import Documents

DOCUMENTS = Documents.from_ids(list("aaaabbcdddddddee"), "ids")


class Recorder:
    """Translates sentence i to the number 100 + i, and keeps what it was asked."""

    def __init__(self):
        self.rounds = []
        self.contexts = {}

    def __call__(self, sentences, contexts):
        self.rounds.append(list(sentences))
        for sentence, context in zip(sentences, contexts, strict=True):
            self.contexts[sentence] = [int(tokens) for tokens in context]
        return [[{"tokens": torch.tensor(100 + sentence)}] for sentence in sentences]


class Decoder:
    """A decoder and what it asks of its translator."""

    def __init__(self, side_by_side, order=None, context=3, known=None):
        order = range(len(DOCUMENTS)) if order is None else order
        self.translate = Recorder()
        self.decoder = DocumentDecoder(
            DOCUMENTS, order, context=context, side_by_side=side_by_side, known=known
        )

    def hypotheses(self, sentences):
        return self.decoder.hypotheses(sentences, self.translate)


@pytest.mark.parametrize("side_by_side", [1, 2, 3, 99])
@pytest.mark.parametrize("batch", [1, 3, 16])
def test_each_sentence_once_with_the_translations_before_it(side_by_side, batch):
    documents = Decoder(side_by_side)
    found = []
    for start in range(0, 16, batch):
        sentences = range(start, min(start + batch, 16))
        found += [int(h[0]["tokens"]) for h in documents.hypotheses(sentences)]
    assert found == [100 + i for i in range(16)]
    asked = sum(documents.translate.rounds, [])
    assert sorted(asked) == list(range(16))
    first = DOCUMENTS.first_sentences()
    for i in range(16):
        expected = [100 + j for j in range(max(first[i], i - 3), i)]
        assert documents.translate.contexts[i] == expected
    for sentences in documents.translate.rounds:
        assert len(sentences) <= side_by_side
        assert len({DOCUMENTS.of(i) for i in sentences}) == len(sentences)


def test_a_document_that_ends_makes_room_for_the_next():
    documents = Decoder(side_by_side=2)
    documents.hypotheses(range(16))
    assert documents.translate.rounds == [
        [0, 4], [1, 5], [2, 6], [3, 7], [8, 14], [9, 15], [10], [11], [12], [13],
    ]  # fmt: skip


def test_known_translations_are_context_and_are_not_made_again():
    documents = Decoder(99, known={0: torch.tensor(7), 1: torch.tensor(8)})
    documents.hypotheses([2, 3])
    assert documents.translate.contexts[2] == [7, 8]
    assert 0 not in documents.translate.contexts


@pytest.mark.parametrize("batch", [1, 3, 16])
def test_sentences_can_be_requested_again_after_an_error(batch):
    """As fairseq's validation does where it runs out of memory: twice in a row, for each round."""
    documents = Decoder(2)
    translate, calls = documents.translate, itertools.count()

    def out_of_memory(*requested):
        if next(calls) % 3 < 2:
            raise torch.OutOfMemoryError
        return translate(*requested)

    found = []
    while len(found) < 16:
        sentences = range(len(found), min(len(found) + batch, 16))
        with contextlib.suppress(torch.OutOfMemoryError):
            found += documents.decoder.hypotheses(sentences, out_of_memory)
    assert [int(h[0]["tokens"]) for h in found] == [100 + i for i in range(16)]
    undisturbed = Decoder(2)
    undisturbed.hypotheses(range(16))
    assert translate.rounds == undisturbed.translate.rounds
    assert translate.contexts == undisturbed.translate.contexts


def test_a_sentence_is_not_to_be_had_twice_nor_from_another_shard():
    documents = Decoder(1, order=[0])
    documents.hypotheses([0, 1])
    for sentence in (0, 15):
        with pytest.raises(RuntimeError, match=f"sentence {sentence}"):
            documents.hypotheses([sentence])


def line(words):
    return torch.tensor([5] * words + [2])


def test_an_empty_line_ends_a_document():
    lines = [line(n) for n in (2, 3, 0, 0, 1, 1, 0)]
    documents = documents_of_lines(lines)
    ranges = [list(documents.sentences_of(d)) for d in range(len(documents))]
    assert ranges == [[0, 1], [2], [3], [4, 5], [6]]


@pytest.mark.parametrize("keep", range(6))
def test_a_conversation_keeps_what_the_next_sentence_needs(keep):
    talk = Conversation(keep)
    for words in range(1, 9):
        talk.remember(line(words), line(words + 10))
        last = range(max(1, words - keep + 1), words + 1)
        assert [len(source) - 1 for source in talk.sources] == list(last)
        assert [len(tokens) - 11 for tokens in talk.translations] == list(last)
    talk.remember(line(0), line(0))
    assert talk.sources == talk.translations == []
