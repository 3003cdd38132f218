"""T5's relative positions: buckets of distances, with one bias per head for each bucket.

Sources: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", section 2.1; for memory slots Al Adel and Burtsev, "Memory transformer with
hierarchical attention for long document processing" (T5Mem), sections III-A1 and IV, equation 8.

Half of the buckets on a side hold one distance each. The other half hold ranges that grow
logarithmically up to a largest distance. With e exact buckets, w ranges and a largest distance m,
range j starts at the smallest n with w log(n / e) / log(m / e) >= j. The comparison is made between
integers, n^w e^j >= m^j e^w, so that rounding cannot move a distance into a neighbouring bucket.
"""

from functools import cache
from itertools import count

import torch
from torch import Tensor
from torch.nn.functional import embedding

from fairseq_memattn.attention.ops import check


def relative_position_bucket(
    distance: Tensor, *, bidirectional: bool, buckets: int = 32, max_distance: int = 128
) -> Tensor:
    """The buckets of distances.

    distance: integers of any shape, the key's position minus the query's
    bidirectional: whether the first half of the buckets is for keys at or before the query and the
        second half for keys after it. If not, all buckets are for keys before the query; keys after
        it, which a causal mask hides, share bucket 0 with the query's own position
    max_distance: the distance from which on a side has a single bucket, its last

    Returns integers of distance's shape, from 0 to buckets - 1.

    Raises ValueError for an odd number of buckets with `bidirectional`, for fewer than two buckets
    on a side, and for a `max_distance` within the exact buckets.
    """
    starts = _starts(_buckets_on_a_side(buckets, bidirectional), max_distance)
    distance = distance.long()
    if not bidirectional:
        return _bucket((-distance).clamp(min=0), starts)
    return _bucket(distance.abs(), starts) + (len(starts) + 1) * (distance > 0)


def slot_position_bucket(
    sequences: int,
    slots: int,
    length: int,
    *,
    buckets: int = 32,
    max_distance: int = 128,
    device: torch.device | None = None,
) -> Tensor:
    """The buckets of T5Mem's encoder: K sequences of S tokens, each with a slot of M.

    A slot and its sequence have the positions 0 to M + S - 1, counted in columns. A query has no
    distance to the slot of another sequence: these pairs have a bucket of their own, number
    `buckets`, which T5 does not have.

    Returns (K, M + S, K M + S): for each sequence and query, the buckets of the memory tokens of
    all K slots and then those of the tokens of the query's own sequence.

    Raises the errors of `relative_position_bucket`, and ValueError for sizes below 1.
    """
    check.least(1, sequences=sequences, slots=slots, length=length)
    columns = slots + length
    bucket = relative_position_bucket(
        torch.arange(1 - columns, columns, device=device),
        bidirectional=True,
        buckets=buckets,
        max_distance=max_distance,
    )
    # By an index and not by `of_pairs`, whose unfold would fix the length in an exported model.
    position = torch.arange(columns, device=device)
    own = bucket[position - position[:, None] + columns - 1]
    index = own.new_full((sequences, slots + length, sequences, slots), buckets)
    index.diagonal(dim1=0, dim2=2).copy_(own[:, :slots, None])
    return torch.cat([index.flatten(2), own[:, slots:].expand(sequences, -1, -1)], dim=2)


def check_buckets(*, bidirectional: bool, buckets: int, max_distance: int) -> None:
    """Raises ValueError for the sizes that `relative_position_bucket` refuses."""
    _starts(_buckets_on_a_side(buckets, bidirectional), max_distance)


def of_pairs(of_distances: Tensor, keys: int) -> Tensor:
    """What belongs to the distances of T queries and S keys at successive positions, by pair.

    of_distances: (*, T + S - 1), from the distance of the first key to the last query up to that
        of the last key to the first query

    Returns (*, T, S).
    """
    # The distances of a query begin one further to the left than those of the query before.
    return of_distances.unfold(-1, keys, 1).flip(-2).contiguous()


def position_bias(table: Tensor, index: Tensor) -> Tensor:
    """The biases of buckets. table: (buckets, H); index: (*, T, S). Returns (*, H, T, S)."""
    # Contiguous, or each layer that adds the biases would copy them.
    return embedding(index, table).movedim(-1, -3).contiguous()


def slot_position_bias(
    table: Tensor, sequences: int, slots: int, length: int, *, max_distance: int = 128
) -> Tensor:
    """The `bias` of `mem_attention`, (K, H, M + S, K M + S).

    table: (buckets + 1, H). The last row is the bias between a query and the slots of other
        sequences, which the paper does not define. A number added to all logits of a head has no
        effect: a last row of zeros can express the same functions. But in a table that was learned
        from single sequences the level of the others is arbitrary relative to zero

    Raises the errors of `slot_position_bucket`.
    """
    index = slot_position_bucket(
        sequences,
        slots,
        length,
        buckets=table.shape[0] - 1,
        max_distance=max_distance,
        device=table.device,
    )
    return position_bias(table, index)


def _bucket(distance: Tensor, starts: tuple[int, ...]) -> Tensor:
    """The number of starts up to each distance, which is 0 at least.

    Not `torch.bucketize`, which takes the starts as a tensor: a GPU is waited for to copy it there.
    """
    exact = next((n for n, start in enumerate(starts) if start != n + 1), len(starts))
    bucket = distance.clamp(max=exact)
    for start in starts[exact:]:
        bucket = bucket + (distance >= start)
    return bucket


def _buckets_on_a_side(buckets: int, bidirectional: bool) -> int:
    if bidirectional and buckets % 2:
        raise ValueError(
            f"`buckets` must be even, half of them for each side, but is {buckets} instead."
        )
    fewest = 4 if bidirectional else 2
    check.least(fewest, buckets=buckets)
    return buckets // 2 if bidirectional else buckets


@cache
def _starts(side: int, max_distance: int) -> tuple[int, ...]:
    """The smallest distance in each bucket of one side, without the first, which starts at 0."""
    exact = side // 2
    if max_distance <= exact:
        raise ValueError(
            f"`max_distance` must be above the {exact} distances that have a bucket each, "
            f"but is {max_distance} instead."
        )
    ranges = side - exact
    starts = list(range(1, exact + 1))
    for j in range(1, ranges):
        least = max_distance**j * exact**ranges
        starts.append(next(n for n in count(starts[-1]) if n**ranges * exact**j >= least))
    return tuple(starts)
