"""Each sentence has its own limits: alone and in a batch, its hypotheses are the same."""

from argparse import Namespace

import pytest
import test_gmat
import torch
from abc_models import language_model, translator
from fairseq.data.data_utils import collate_tokens
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.token_generation_constraints import pack_constraints

from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.correctness.lengths import own_limits, source_lengths

WORDS, PAD, EOS = test_gmat.WORDBOOK, test_gmat.PAD, test_gmat.EOS
LENGTHS = [3, 9, 1, 12, 2, 7, 12, 5]
LIMIT = {"max_len_a": 0.5, "max_len_b": 1}  # at which nearly all sentences end


@pytest.fixture(scope="module")
def models():
    torch.manual_seed(1)
    built = [test_gmat.build("transformer", longest=32), translator("abc_mlp_transformer")]
    return {"transformer": built[:1], "abc": built[1:], "ensemble": built}


@pytest.fixture(scope="module")
def sources():
    torch.manual_seed(2)
    words = range(4, len(WORDS))
    rows = [torch.randint(words[0], words[-1] + 1, (n - 1,)) for n in LENGTHS]
    return [torch.cat([row, torch.tensor([EOS])]) for row in rows]


def batch_of(rows, *, left=True):
    tokens = collate_tokens(rows, PAD, left_pad=left)
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.arange(100, 100 + len(rows))  # of a corpus, not of the batch
    return {"id": ids, "net_input": {"src_tokens": tokens, "src_lengths": lengths}}


class Task(FairseqTask):
    target_dictionary = WORDS


def generator_of(models, **options):
    task = Task(Namespace())
    return task.build_generator(models, Namespace(**LIMIT | {"beam": 4} | options))


def assert_alone_as_together(models, rows, *, left=True, more=None, **options):
    """more: makes the keyword arguments of `generate` for the numbers of some rows."""
    more = more or (lambda numbers: {})
    generator = generator_of(models, **options)
    everything = range(len(rows))
    together = generator.generate(models, batch_of(rows, left=left), **more(list(everything)))
    for number in everything:
        alone = batch_of([rows[number]], left=left)
        (expected,) = generator.generate(models, alone, **more([number]))
        found = together[number]
        assert [one["tokens"].tolist() for one in found] == [
            one["tokens"].tolist() for one in expected
        ]
        for one, other in zip(found, expected, strict=True):
            assert float(one["score"]) == pytest.approx(float(other["score"]), abs=1e-4)
            assert one["tokens"][-1] == EOS
    return together


@pytest.mark.parametrize("name", ["transformer", "abc", "ensemble"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("beam", [1, 4])
def test_beam_search(name, left, beam, models, sources):
    found = assert_alone_as_together(models[name], sources, left=left, beam=beam)
    lengths = [len(one["tokens"]) for hypotheses in found for one in hypotheses]
    most = [int(0.5 * n + 1) + 1 for n in LENGTHS for _ in range(beam)]
    assert all(length <= limit for length, limit in zip(lengths, most, strict=True))
    assert sum(length == limit for length, limit in zip(lengths, most, strict=True)) > 3 * beam


@pytest.mark.parametrize(
    "options",
    [
        {"min_len": 3},
        {"lenpen": 0.5, "unkpen": 1.0, "temperature": 2.0},
        {"no_repeat_ngram_size": 2},
        {"diverse_beam_groups": 4},
        {"match_source_len": True},
        {"prefix_allowed_tokens_fn": lambda row, tokens: [EOS, *range(4, 12)]},
    ],
    ids=lambda options: ", ".join(options),
)
def test_searches(options, models, sources):
    assert_alone_as_together(models["abc"], sources, **options)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_is_repeated(size, models, sources):
    limit = {"max_len_a": 0, "max_len_b": 9, "min_len": 7}
    free, forbidden = (
        generator_of(models["transformer"], no_repeat_ngram_size=n, **limit).generate(
            models["transformer"], batch_of(sources)
        )
        for n in (0, size)
    )

    def repeats(found):
        for words in (one["tokens"].tolist()[:-1] for each in found for one in each):
            ngrams = [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]
            yield len(ngrams) - len(set(ngrams))

    assert sum(repeats(free)) > 0 == sum(repeats(forbidden))


def test_diverse_beams_of_several_hypotheses(models, sources):
    generator = generator_of(models["abc"], diverse_beam_groups=2)
    with pytest.raises(MemAttnError, match="--diverse-beam-groups must be --beam 4, but is 2"):
        generator.generate(models["abc"], batch_of(sources))


def test_alignments(models, sources):
    found = assert_alone_as_together(models["transformer"], sources, print_alignment="hard")
    for hypotheses, length in zip(found, LENGTHS, strict=True):
        assert all(0 <= place < length for one in hypotheses for place, _ in one["alignment"])


def test_sampled_sentences_end_at_their_limits(models, sources):
    torch.manual_seed(3)
    for options in ({}, {"sampling_topk": 5}, {"sampling_topp": 0.9}):
        generator = generator_of(models["abc"], sampling=True, **options)
        for found, length in zip(
            generator.generate(models["abc"], batch_of(sources)), LENGTHS, strict=True
        ):
            assert all(len(one["tokens"]) <= int(0.5 * length + 1) + 1 for one in found)


def test_prefixes(models, sources):
    """Also prefixes beyond a sentence's limit, and one that ends the sentence."""
    torch.manual_seed(4)
    prefixes = torch.randint(4, len(WORDS), (len(sources), 5))
    prefixes[1, 2:] = torch.tensor([EOS, PAD, PAD])
    prefixes[3, 1:] = PAD

    def more(numbers):
        return {"prefix_tokens": prefixes[numbers]}

    found = assert_alone_as_together(models["abc"], sources, more=more)
    assert found[1][0]["tokens"].tolist() == [*prefixes[1, :2].tolist(), EOS]
    assert found[6][0]["tokens"][:5].equal(prefixes[6])
    assert found[0][0]["tokens"].tolist() == [*prefixes[0, :2].tolist(), EOS]


def constraints_of(numbers):
    words = [[torch.tensor([4 + number, 9])] for number in numbers]
    return {"constraints": pack_constraints(words)}


@pytest.mark.parametrize("kind", ["ordered", "unordered"])
def test_constraints(kind, models, sources):
    limit = {"max_len_a": 1, "max_len_b": 4}
    options = {"constraints": kind, **limit, "beam": 6}
    found = assert_alone_as_together(models["abc"], sources, more=constraints_of, **options)
    for number, hypotheses in enumerate(found):
        text = " ".join(map(str, hypotheses[0]["tokens"].tolist()))
        assert f"{4 + number} 9" in text


def test_constraints_that_do_not_fit(models, sources):
    generator = generator_of(models["abc"], constraints="unordered", max_len_a=0, max_len_b=1)
    with pytest.raises(MemAttnError, match="a hypothesis cannot end after 1 tokens, the limit"):
        generator.generate(models["abc"], batch_of(sources), **constraints_of(range(len(LENGTHS))))


@pytest.mark.parametrize("least", [1, 8])
def test_language_model(least):
    """Also a prompt without a word, for which the others are no reason to end at once."""
    torch.manual_seed(5)
    model = language_model("abc_mlp_transformer_lm")
    ends = torch.nn.functional.one_hot(torch.tensor(EOS), len(WORDS)) * 9.0
    model.decoder.output_projection.register_forward_hook(lambda *call: call[-1] + ends)
    lengths = [*LENGTHS, 0]
    rows = [torch.randint(4, len(WORDS), (length,)) for length in lengths]
    prefixes = collate_tokens(rows, PAD)

    def more(numbers):
        return {"prefix_tokens": prefixes[numbers, : max(lengths[n] for n in numbers)]}

    limit = {"max_len_a": 1.5, "max_len_b": 2, "min_len": least}
    found = assert_alone_as_together([model], rows, left=False, more=more, **limit)
    for hypotheses, row in zip(found, rows, strict=True):
        assert hypotheses[0]["tokens"][: len(row)].equal(row)


def test_limits(models):
    generator = generator_of(models["transformer"], max_len_a=1.2, max_len_b=5, min_len=8)
    most = models["transformer"][0].max_decoder_positions() - 1
    lengths = torch.tensor([1, 5, 10, most])
    limits = own_limits(generator, {"net_input": {"src_lengths": lengths}})
    told = {"net_input": {"src_lengths": 2 * lengths}, "source_lengths": lengths}
    assert own_limits(generator, told).equal(limits)
    assert limits.tolist() == [8, 11, 17, most]  # --min-len, twice 1.2 x + 5, the model's


def test_lengths_of_sources():
    tokens = torch.tensor([[4, 5, EOS, PAD], [4, 5, 6, EOS]])
    padding = tokens.eq(PAD)
    frames = torch.zeros(2, 4, 3)
    for inputs in (
        {"src_tokens": tokens},
        {"src_tokens": tokens, "src_lengths": None},
        {"src_lengths": torch.tensor([3, 4])},
        {"features": frames, "padding_mask": padding},
        {"source": frames[..., 0], "padding_mask": padding},
    ):
        assert source_lengths(inputs, PAD).tolist() == [3, 4]
    assert source_lengths({"source": frames[..., 0], "padding_mask": None}, PAD).tolist() == [4, 4]
    chunks = torch.stack([padding, ~padding], dim=1)
    several = {"src_lengths": torch.tensor([3, 4]), "context_padding_mask": chunks}
    assert source_lengths(several, PAD).tolist() == [3 + 4, 4 + 4]
