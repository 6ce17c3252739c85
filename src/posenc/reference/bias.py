"""Biases read from a table or a slope: relative position → a number for each head, added after the scale."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int, Num
from numpy.typing import NDArray

from posenc.reference._shared import (
    AnyArray,
    Array,
    check,
    check_shape,
    coordinates_of,
    each_pair,
    relative_row,
    row_major,
    sizes_of,
    whole_numbers,
)


def alibi_slopes(num_heads: int) -> Float[Array, "{num_heads}"]:
    """The slopes of ALiBi: a geometric sequence, and every other one of the next for the heads that are left over.

    `m_h = 2^(−8 (h + 1) / H)` for `H` heads, a power of two; otherwise those of the largest power of two below, then
    the 1st, 3rd, 5th … of twice as many heads.

    Raises:
        ValueError: for no heads.

    >>> alibi_slopes(6).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]

    Press, Smith and Lewis, Train Short, Test Long, arXiv:2108.12409.
    """
    check(num_heads >= 1, f"num_heads must be at least 1, got {num_heads}")
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    slopes += [2.0 ** (-8 * (2 * head + 1) / (2 * power)) for head in range(num_heads - power)]
    return np.array(slopes)


def alibi(
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    num_heads: int,
    signed: bool = False,
    learned: bool = False,
    slopes: Float[Array, "{num_heads}"] | None = None,
) -> Float[Array, "{num_heads} i j"]:
    """A penalty proportional to distance.

    `b[h, i, j] = −m_h |i − j|`; signed, `−m_h (i − j)`, which favours keys the more the later they come.

    Args:
        query_positions: where the queries stand, on one axis; NaN for a prefix token.
        key_positions: where the keys stand.
        num_heads: number of heads, any.
        signed: whether the sign of the relative position counts.
        learned: whether the slopes are trained; of no consequence here.
        slopes: `m_h`, in logits a position; by default those of the paper.

    Raises:
        ValueError: for no heads, more than one axis, or slopes of another shape.

    >>> alibi(np.array([3, 4]), np.arange(5), num_heads=8)[0, :, :3].tolist()
    [[-1.5, -1.0, -0.5], [-2.0, -1.5, -1.0]]
    >>> alibi(np.array([2]), np.array([0, 5]), num_heads=1, signed=True, slopes=np.ones(1)).tolist()
    [[[-2.0, 3.0]]]

    Press, Smith and Lewis, Train Short, Test Long, arXiv:2108.12409.
    """
    slopes = alibi_slopes(num_heads) if slopes is None else slopes
    check_shape("slopes", slopes, (num_heads,))
    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    for i, j, relative in each_pair(query_positions, key_positions, axes=1):
        for head in range(num_heads):
            # b[h, i, j] = −m_h |i − j|
            bias[head, i, j] = -slopes[head] * (relative[0] if signed else abs(relative[0]))
    return bias


def t5_bucket(
    relative: Num[AnyArray, "*shape"], num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> Int[NDArray[np.int64], "*shape"]:
    """The bucket of each relative position: one each for near keys, logarithmically wider ones farther off.

    With `n` buckets a side, `e = n // 2` of them exact: bucket `m` for a distance `m < e`, else
    `min(n − 1, e + floor((n − e) · log(m / e) / log(max_distance / e)))`; keys after the query add `n`.
    Computed in whole numbers, so that no bucket border depends on how a logarithm is rounded.

    Args:
        relative: query position − key position (T5's own has the other sign), whole numbers.
        num_buckets: buckets in all; bidirectional, half of them for keys after the query.
        max_distance: from this distance on all share the last bucket.
        bidirectional: False counts every key after the query as at distance 0.

    Raises:
        ValueError: for too few buckets, a `max_distance` within the exact ones, or relative positions between whole
            numbers.

    >>> t5_bucket(np.array([1000, 16, 8, 0, -1, -8, -128])).tolist()
    [15, 10, 8, 0, 17, 24, 31]

    Raffel et al., Exploring the Limits of Transfer Learning, arXiv:1910.10683.
    """
    side = num_buckets // 2 if bidirectional else num_buckets
    exact = side // 2
    check(not bidirectional or num_buckets % 2 == 0, f"num_buckets must be even if bidirectional, got {num_buckets}")
    check(exact >= 1, f"num_buckets must be at least {4 if bidirectional else 2}, got {num_buckets}")
    check(max_distance > exact, f"max_distance must be above the {exact} exact buckets, got {max_distance}")

    buckets = np.zeros(np.shape(relative), dtype=np.int64)
    for index, value in np.ndenumerate(relative):
        (lag,) = whole_numbers(np.atleast_1d(value))
        distance = abs(lag) if bidirectional else max(lag, 0)
        bucket = distance
        if distance >= exact:
            # (n − e) log(m / e) / log(D / e) ≥ s   ⇔   m^(n − e) e^s ≥ D^s e^(n − e)
            steps = side - exact
            reached = [distance**steps * exact**s >= max_distance**s * exact**steps for s in range(1, steps)]
            bucket = exact + sum(reached)
        buckets[index] = bucket + (side if bidirectional and lag < 0 else 0)
    return buckets


def t5_bias(
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    num_heads: int,
    table: Float[Array, "{num_heads} {num_buckets}"],
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Float[Array, "{num_heads} i j"]:
    """A trained number for each bucket of distance.

    `b[h, i, j] = table[h, bucket(i − j)]`.

    Args:
        query_positions: where the queries stand, whole numbers on one axis; NaN for a prefix token.
        key_positions: where the keys stand.
        num_heads: number of heads.
        table: one row a head, one column a bucket.
        num_buckets: see `t5_bucket`.
        max_distance: see `t5_bucket`.
        bidirectional: see `t5_bucket`.

    Raises:
        ValueError: for a table of another shape, and as `t5_bucket`.

    >>> table = np.arange(32.0)[None]
    >>> t5_bias(np.arange(3), np.arange(3), 1, table).tolist()
    [[[0.0, 17.0, 18.0], [1.0, 0.0, 17.0], [2.0, 1.0, 0.0]]]

    Raffel et al., Exploring the Limits of Transfer Learning, arXiv:1910.10683.
    """
    check_shape("table", table, (num_heads, num_buckets))
    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    for i, j, relative in each_pair(query_positions, key_positions, axes=1):
        bucket = t5_bucket(relative, num_buckets, max_distance, bidirectional)[0]
        bias[:, i, j] = table[:, bucket]  # b[h, i, j] = table[h, bucket(i − j)]
    return bias


def relative_index(shape: int | Sequence[int]) -> Int[NDArray[np.int64], "n n"]:
    """For each query and key of a grid, the row of a table of all relative positions.

    `index[i, j] = row-major index of (relative + size − 1) within 2 · size − 1`, axis by axis.

    Args:
        shape: size of the grid along each axis, tokens row-major.

    Raises:
        ValueError: for a size below 1.

    >>> relative_index(3).tolist()
    [[2, 1, 0], [3, 2, 1], [4, 3, 2]]
    >>> len(np.unique(relative_index((3, 4))))  # 5 · 7 relative positions
    35

    Liu et al., Swin Transformer, arXiv:2103.14030.
    """
    sizes = sizes_of(shape)
    grid = np.array(list(itertools.product(*(range(size) for size in sizes))))
    index = np.zeros((len(grid), len(grid)), dtype=np.int64)
    for i, j, relative in each_pair(grid, grid, len(sizes)):
        index[i, j] = relative_row(whole_numbers(relative), sizes)
    return index


def relative_position_bias(
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    num_heads: int,
    shape: int | Sequence[int],
    table: Float[Array, "{num_heads} rows"],
    prefix_bias: bool = False,
    symmetric: bool = False,
    windowed: bool = False,
    prefix_table: Float[Array, "{num_heads} 3"] | None = None,
) -> Float[Array, "{num_heads} i j"]:
    """A trained number for each relative position on a grid.

    `b[h, i, j] = table[h, row-major index of (relative + size − 1)]`.

    Args:
        query_positions: where the queries stand, whole numbers; NaN for a prefix token.
        key_positions: where the keys stand.
        num_heads: number of heads.
        shape: size of the grid along each axis.
        table: one row a head, `prod(2 · shape − 1)` columns, ascending by relative position, row-major; `prod(shape)`
            if symmetric.
        prefix_bias: whether `prefix_table` is added where a prefix token is query or key.
        symmetric: whether only the distance along each axis counts: `table[h, row-major index of |relative|]`.
        windowed: whether a key beyond the table is out of sight, a logit of −∞, instead of an error.
        prefix_table: three numbers a head: prefix to token, token to prefix, prefix to prefix.

    Raises:
        ValueError: for a relative position that the table does not reach unless windowed, or tables of another shape.

    >>> table = np.arange(35.0)[None]
    >>> grid = np.array([(row, column) for row in range(3) for column in range(4)])
    >>> relative_position_bias(grid, grid, 1, (3, 4), table)[0, 0, :5].tolist()
    [17.0, 16.0, 15.0, 14.0, 10.0]

    Liu et al., Swin Transformer, arXiv:2103.14030; the prefix's three numbers, Bao et al., BEiT, arXiv:2106.08254.
    """
    sizes = sizes_of(shape)
    check_shape("table", table, (num_heads, math.prod(size if symmetric else 2 * size - 1 for size in sizes)))
    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    for i, j, relative in each_pair(query_positions, key_positions, len(sizes)):
        lag = whole_numbers(relative)
        if windowed and any(abs(step) >= size for step, size in zip(lag, sizes, strict=True)):
            bias[:, i, j] = -math.inf
            continue
        row = row_major([abs(step) for step in lag], sizes) if symmetric else relative_row(lag, sizes)
        bias[:, i, j] = table[:, row]
    if not prefix_bias:
        return bias

    if prefix_table is None:
        raise ValueError("prefix_bias needs a prefix_table of shape [heads, 3], got none")
    check_shape("prefix_table", prefix_table, (num_heads, 3))
    query_nowhere = np.isnan(coordinates_of(query_positions, len(sizes))[:, 0])
    key_nowhere = np.isnan(coordinates_of(key_positions, len(sizes))[:, 0])
    for head in range(num_heads):
        bias[head][np.ix_(query_nowhere, ~key_nowhere)] = prefix_table[head, 0]
        bias[head][np.ix_(~query_nowhere, key_nowhere)] = prefix_table[head, 1]
        bias[head][np.ix_(query_nowhere, key_nowhere)] = prefix_table[head, 2]
    return bias
