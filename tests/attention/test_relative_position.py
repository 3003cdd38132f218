"""Relative positions against their definition, and the table that T5Mem's encoder reads."""

import pytest
import torch

from fairseq_memattn.attention import position_bias, relative_position_bucket, slot_position_bias
from fairseq_memattn.attention.ops.memory_slots import naive as reference
from fairseq_memattn.attention.ops.relative_position import of_pairs, slot_position_bucket

SIZES = [(32, 128), (32, 20), (8, 128), (12, 50), (64, 1000)]
either_side = pytest.mark.parametrize("bidirectional", [True, False], ids=["both", "causal"])


@either_side
@pytest.mark.parametrize("buckets, max_distance", [(4, 3), *SIZES, (64, 64)])
def test_buckets(buckets, max_distance, bidirectional, device):
    distances = range(-1100, 1101)
    actual = relative_position_bucket(
        torch.tensor(distances, device=device),
        bidirectional=bidirectional,
        buckets=buckets,
        max_distance=max_distance,
    )
    expected = [reference.bucket(n, bidirectional, buckets, max_distance) for n in distances]
    assert actual.tolist() == expected


@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 5), (4, 4), (3, 7)])
def test_distances_by_pair(queries, keys, device):
    """The last query is at the last key, as in decoding."""
    positions = torch.arange(keys, device=device)
    distances = torch.arange(1 - keys, queries, device=device)
    expected = positions - positions[keys - queries :].unsqueeze(1)
    pairs = of_pairs(distances.expand(2, -1), keys)
    assert pairs.is_contiguous() and torch.equal(pairs, expected.expand(2, -1, -1))


T5_STARTS = {
    True: [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91],
    False: [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113],
}


@either_side
def test_the_first_distance_in_each_bucket_of_t5(bidirectional, device):
    """The numbers that the public T5 models were trained with."""
    starts = torch.tensor(T5_STARTS[bidirectional], device=device)
    before = relative_position_bucket(-starts, bidirectional=bidirectional)
    after = relative_position_bucket(starts, bidirectional=bidirectional)
    just_before = relative_position_bucket(1 - starts[1:], bidirectional=bidirectional)
    assert before.tolist() == list(range(len(starts)))
    assert just_before.tolist() == list(range(len(starts) - 1))
    assert after.tolist() == ([0, *range(17, 32)] if bidirectional else [0] * 32)


@pytest.mark.parametrize("sequences, slots, length", [(1, 1, 1), (1, 3, 5), (4, 1, 3), (3, 2, 7)])
def test_buckets_of_slots(sequences, slots, length, device):
    index = slot_position_bucket(sequences, slots, length, buckets=8, max_distance=6, device=device)
    queries, columns = slots + length, sequences * slots + length
    assert index.shape == (sequences, queries, columns)
    for i in range(sequences):
        for t in range(queries):
            for column in range(columns):
                distance = reference.slot_distance(i, t, column, sequences, slots)
                expected = 8 if distance is None else reference.bucket(distance, True, 8, 6)
                assert index[i, t, column] == expected


def test_one_sequence_has_the_positions_of_t5(device):
    positions = torch.arange(9, device=device)
    expected = relative_position_bucket(positions - positions.unsqueeze(1), bidirectional=True)
    assert torch.equal(slot_position_bucket(1, 2, 7, device=device)[0], expected)


@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7)], ids=str)
def test_biases_are_rows_of_the_table(shape, device):
    table = torch.randn(32, 2, device=device)
    index = torch.randint(32, shape, device=device)
    bias = position_bias(table, index)
    assert bias.shape == (*shape[:-2], 2, *shape[-2:])
    for head in range(2):
        assert torch.equal(bias.select(-3, head), table[:, head][index])


def test_biases_of_the_slots_of_others(device):
    table = torch.randn(9, 2, dtype=torch.float64, device=device, requires_grad=True)
    bias = slot_position_bias(table, 3, 2, 5, max_distance=6)
    index = slot_position_bucket(3, 2, 5, buckets=8, max_distance=6, device=device)
    others = (index == 8).unsqueeze(1).expand_as(bias)
    assert others.sum() == 2 * 3 * 7 * 4  # heads, sequences, queries, memory tokens of others
    own = position_bias(table, index.clamp(max=7))
    assert torch.equal(bias[~others], own[~others])
    assert torch.equal(bias[others], table[8].view(2, 1, 1).expand_as(bias)[others])

    bias.sum().backward()
    assert torch.equal(table.grad[:, 0], index.flatten().bincount(minlength=9).double())


def test_a_last_row_of_zeros_expresses_the_same(device):
    """A softmax takes away the constant of a head."""
    table = torch.randn(9, 2, dtype=torch.float64, device=device)
    learned = slot_position_bias(table, 3, 2, 5)
    zero = slot_position_bias(table - table[8], 3, 2, 5)
    torch.testing.assert_close(learned.softmax(dim=3), zero.softmax(dim=3))
