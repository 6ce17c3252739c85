"""Every scheme, and the attention around it, in float64 NumPy: written from the formula, index by index.

This module is what the fast code is compared with, so it shares nothing with it. It is slow on purpose: a scheme is a
loop over tokens, pairs of tokens and channels, and the equation stands beside the line that computes it.

The letters are those of the whole project: `h` heads, `g` heads of keys and values, `i` queries, `j` keys, `d` channels
of a head, `n` tokens. *Relative position* is query position − key position, whatever a paper wrote.

Positions are arrays `[tokens, axes]`, or `[tokens]` where there is one axis. A row of NaN is a prefix token (a CLS
token, a register), which stands nowhere: it has no vector, is not rotated, and adds nothing to a logit.

>>> import numpy as np
>>> from posenc import reference
>>> q, k, v = np.random.default_rng(0).normal(size=(3, 8, 5, 16))  # 8 heads, 5 tokens, 16 channels
>>> bias = reference.alibi(np.arange(5), np.arange(5), num_heads=8)
>>> reference.attention(q, k, v, bias=bias).shape
(8, 5, 16)
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Num, Shaped
from numpy.typing import NDArray

Array = NDArray[np.float64]
AnyArray = NDArray[Any]  # positions and tables of integers are as good as floats


# ---------------------------------------------------------------------------------------------------------------------
# Absolute: position → vector
# ---------------------------------------------------------------------------------------------------------------------


def sinusoidal(
    positions: Num[AnyArray, "n *axes"],
    dim: int,
    axes: int = 1,
    base: float = 10000.0,
    layout: str = "interleaved",
    axis_order: Sequence[int] | None = None,
) -> Float[Array, "n {dim}"]:
    """Sines and cosines of geometrically spaced frequencies, in a block of channels for each axis.

    `p(c)[2t] = sin(c · base^(−2t/w))`, `p(c)[2t + 1] = cos(c · base^(−2t/w))`, with `w` the width of the axis' block.

    Args:
        positions: where the tokens stand, one coordinate an axis; NaN for a prefix token, whose vector is zero.
        dim: channels, dealt to the axes as evenly as they go, earlier axes first. At least one an axis.
        axes: number of axes.
        base: ratio of the slowest wavelength to the fastest, nearly.
        layout: `interleaved` (sin, cos, sin, cos) or `concatenated` (all sines, then all cosines). A block of odd width
            has one more sine than cosines.
        axis_order: the order in which the axes' blocks stand, `(1, 0)` for MAE; by default that of the axes.

    Raises:
        ValueError: for an unknown layout, an order that is no permutation, or fewer channels than axes.

    >>> sinusoidal(np.array([1.0]), 4).round(6).tolist()
    [[0.841471, 0.540302, 0.01, 0.99995]]
    >>> sinusoidal(np.arange(6), 5).shape
    (6, 5)

    Vaswani et al., Attention Is All You Need, arXiv:1706.03762.
    """
    coordinates = _coordinates(positions, axes)
    order = list(range(axes)) if axis_order is None else list(axis_order)
    _check(sorted(order) == list(range(axes)), f"axis_order must name each of {axes} axes once, got {axis_order}")
    _check(layout in ("interleaved", "concatenated"), f"layout must be interleaved or concatenated, got {layout!r}")
    widths = _dealt(dim, axes, "channels")

    vectors = np.zeros((len(coordinates), dim))
    for token in _standing(coordinates):
        channel = 0
        for axis in order:
            block = _sinusoid(coordinates[token, axis], widths[axis], base)
            if layout == "concatenated":
                block = np.concatenate([block[0::2], block[1::2]])
            vectors[token, channel : channel + widths[axis]] = block
            channel += widths[axis]
    return vectors


def _sinusoid(position: float, width: int, base: float) -> Float[Array, "{width}"]:
    """sin, cos, sin, cos … of one coordinate; an odd width ends in a sine."""
    vector = np.zeros(width)
    for channel in range(width):
        pair = channel // 2
        angle = position * base ** (-2 * pair / width)
        # p[2t] = sin(angle_t), p[2t + 1] = cos(angle_t)
        vector[channel] = math.sin(angle) if channel % 2 == 0 else math.cos(angle)
    return vector


def sinusoidal_table(length: int, dim: int, base: float = 10000.0) -> Float[Array, "{length} {dim}"]:
    """The sinusoidal table of the first `length` positions, its frequencies computed as an exponential.

    `p(c)[2t] = sin(c · exp(−2t · ln(base) / dim))`, `p(c)[2t + 1]` its cosine: the form in which most code has it. The
    number `exp(−2t · ln(base) / dim)` is a frequency, the *reciprocal* of `base^(2t/dim)`: it multiplies the position.

    Args:
        length: number of positions, from 0.
        dim: channels; an odd number ends in a sine.
        base: ratio of the slowest wavelength to the fastest, nearly.

    Raises:
        ValueError: for a negative length or no channels.

    >>> sinusoidal_table(3, 4)[1].round(6).tolist()
    [0.841471, 0.540302, 0.01, 0.99995]
    >>> np.allclose(sinusoidal_table(100, 6), sinusoidal(np.arange(100), 6), rtol=0, atol=1e-13)
    True

    Vaswani et al., Attention Is All You Need, arXiv:1706.03762.
    """
    _check(length >= 0, f"length must not be negative, got {length}")
    _check(dim >= 1, f"dim must be at least 1, got {dim}")
    frequencies = np.exp(np.arange(0, dim, 2) * (-math.log(base) / dim))
    angles = np.arange(length)[:, None] * frequencies[None, :]
    table = np.zeros((length, dim))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles)[:, : dim // 2]
    return table


def learned(
    positions: Num[AnyArray, "n *axes"],
    table: Float[Array, "rows {dim}"],
    shape: int | Sequence[int],
    dim: int,
    prefix: int = 0,
    std: float = 0.02,
    truncated: bool = True,
) -> Float[Array, "n {dim}"]:
    """A trained table with one row for each position.

    `p(c) = table[prefix + row-major index of c]`, and the prefix tokens have the first `prefix` rows.

    Args:
        positions: whole numbers from 0, below `shape`; NaN for a prefix token.
        table: `prefix + prod(shape)` rows of `dim` channels.
        shape: length of the table along each axis.
        dim: channels.
        prefix: rows for prefix tokens.
        std: how the table was started; of no consequence here.
        truncated: how the table was started; of no consequence here.

    Raises:
        ValueError: for a position outside `shape`, more prefix tokens than rows for them, or a table of another size.

    >>> table = np.arange(14.0).reshape(7, 2)  # a CLS token and 2 × 3 patches
    >>> learned(np.array([[np.nan, np.nan], [0, 0], [1, 2]]), table, (2, 3), dim=2, prefix=1).tolist()
    [[0.0, 1.0], [2.0, 3.0], [12.0, 13.0]]

    Dosovitskiy et al., An Image is Worth 16x16 Words, arXiv:2010.11929.
    """
    sizes = _sizes(shape)
    coordinates = _coordinates(positions, len(sizes))
    _check_shape("table", table, (prefix + math.prod(sizes), dim))

    vectors = np.zeros((len(coordinates), dim))
    prefix_tokens = 0
    for token, coordinate in enumerate(coordinates):
        if np.isnan(coordinate[0]):
            _check(prefix_tokens < prefix, f"the table has rows for {prefix} prefix tokens, got {prefix_tokens + 1}")
            row = prefix_tokens
            prefix_tokens += 1
        else:
            row = prefix + _row_major(_integers(coordinate), sizes)
        vectors[token] = table[row]
    return vectors


def fourier(
    positions: Num[AnyArray, "n *axes"],
    frequencies: Float[Array, "axes pairs"],
    dim: int,
    axes: int = 1,
    scale: float = 1.0,
    learnable: bool = False,
) -> Float[Array, "n {dim}"]:
    """Sines and cosines of random projections of the coordinates.

    `p(c) = [sin(2π c B), cos(2π c B)]`, with `B` drawn from `N(0, scale²)`.

    Args:
        positions: coordinates, usually within −1 and 1; NaN for a prefix token, whose vector is zero.
        frequencies: `B`, `[axes, dim / 2]`, in turns per unit of position.
        dim: channels, an even number.
        axes: number of axes.
        scale: how `B` was drawn; of no consequence here.
        learnable: whether `B` is trained; of no consequence here.

    Raises:
        ValueError: for an odd `dim` or frequencies of another shape.

    >>> fourier(np.array([0.25]), np.array([[1.0]]), dim=2).round(12).tolist()
    [[1.0, 0.0]]

    Tancik et al., Fourier Features Let Networks Learn High Frequency Functions, arXiv:2006.10739; as in Segment
    Anything, arXiv:2304.02643.
    """
    _check(dim % 2 == 0, f"dim must be even for Fourier features, got {dim}")
    coordinates = _coordinates(positions, axes)
    _check_shape("frequencies", frequencies, (axes, dim // 2))

    vectors = np.zeros((len(coordinates), dim))
    for token in _standing(coordinates):
        for pair in range(dim // 2):
            angle = 2 * math.pi * sum(coordinates[token, axis] * frequencies[axis, pair] for axis in range(axes))
            vectors[token, pair] = math.sin(angle)
            vectors[token, dim // 2 + pair] = math.cos(angle)
    return vectors


# ---------------------------------------------------------------------------------------------------------------------
# Rotary: the angle between two channels grows with position
# ---------------------------------------------------------------------------------------------------------------------


def rotary(
    x: Float[Array, "*batch n {head_dim}"],
    positions: Num[AnyArray, "n *axes"],
    head_dim: int,
    axes: int = 1,
    base: float = 10000.0,
    layout: str = "half",
    rotary_dim: int | None = None,
) -> Float[Array, "*batch n {head_dim}"]:
    """Queries or keys, each pair of channels turned by an angle proportional to a coordinate.

    `(a, b) → (a cos φ − b sin φ, a sin φ + b cos φ)`, `φ = c · base^(−t/p)` for pair `t` of the `p` pairs of an axis.

    Args:
        x: queries or keys, before rotation.
        positions: where the tokens stand; NaN for a prefix token, which is not rotated.
        head_dim: channels of a head.
        axes: number of axes; the pairs are dealt to them in order, as evenly as they go, earlier axes first.
        base: ratio of the slowest wavelength to the fastest, nearly.
        layout: `half` pairs channel `t` with `t + rotary_dim / 2`, `interleaved` pairs `2t` with `2t + 1`.
        rotary_dim: the first channels are rotated, this many (even, by default all); the others pass through.

    Raises:
        ValueError: for an odd width, more rotated channels than there are, fewer pairs than axes, an unknown layout,
            or another number of channels or positions than `x` has.

    >>> quarter = np.array([np.pi / 2])
    >>> rotary(np.array([[1.0, 0.0]]), quarter, head_dim=2).round(12).tolist()
    [[0.0, 1.0]]

    Su et al., RoFormer, arXiv:2104.09864; over two axes, Heo et al., arXiv:2403.13298.
    """
    width = head_dim if rotary_dim is None else rotary_dim
    name = "head_dim" if rotary_dim is None else "rotary_dim"
    advice = f"pass rotary_dim={width - 1} to rotate part of it"
    _check(width % 2 == 0, f"{name} must be even for rotary, got {width}: {advice}")
    _check(0 < width <= head_dim, f"rotary_dim must be from 2 to head_dim {head_dim}, got {width}")
    _check(layout in ("half", "interleaved"), f"layout must be half or interleaved, got {layout!r}")
    coordinates = _coordinates(positions, axes)
    _check_shape("x", x, (*x.shape[:-2], len(coordinates), head_dim))

    x = _float64(x)
    rotated = x.copy()
    for token in _standing(coordinates):
        pair = 0
        for axis, pairs in enumerate(_dealt(width // 2, axes, "pairs of channels")):
            for t in range(pairs):
                angle = coordinates[token, axis] * base ** (-t / pairs)
                first, second = (pair, pair + width // 2) if layout == "half" else (2 * pair, 2 * pair + 1)
                a, b = x[..., token, first], x[..., token, second]
                rotated[..., token, first] = a * math.cos(angle) - b * math.sin(angle)
                rotated[..., token, second] = a * math.sin(angle) + b * math.cos(angle)
                pair += 1
    return rotated


# ---------------------------------------------------------------------------------------------------------------------
# Bias: relative position → a number for each head, added to the logits after their scale
# ---------------------------------------------------------------------------------------------------------------------


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
    _check(num_heads >= 1, f"num_heads must be at least 1, got {num_heads}")
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    slopes += [2.0 ** (-8 * (2 * head + 1) / (2 * power)) for head in range(num_heads - power)]
    return np.array(slopes)


def alibi(
    query_positions: Num[AnyArray, "i *axes"], key_positions: Num[AnyArray, "j *axes"], num_heads: int
) -> Float[Array, "{num_heads} i j"]:
    """A penalty proportional to distance.

    `b[h, i, j] = −m_h |i − j|`.

    Args:
        query_positions: where the queries stand, on one axis; NaN for a prefix token.
        key_positions: where the keys stand.
        num_heads: number of heads, any.

    Raises:
        ValueError: for no heads, or more than one axis.

    >>> alibi(np.array([3, 4]), np.arange(5), num_heads=8)[0, :, :3].tolist()
    [[-1.5, -1.0, -0.5], [-2.0, -1.5, -1.0]]

    Press, Smith and Lewis, Train Short, Test Long, arXiv:2108.12409.
    """
    slopes = alibi_slopes(num_heads)
    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    for i, j, relative in _pairs(query_positions, key_positions, axes=1):
        for head in range(num_heads):
            bias[head, i, j] = -slopes[head] * abs(relative[0])  # b[h, i, j] = −m_h |i − j|
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
    _check(not bidirectional or num_buckets % 2 == 0, f"num_buckets must be even if bidirectional, got {num_buckets}")
    _check(exact >= 1, f"num_buckets must be at least {4 if bidirectional else 2}, got {num_buckets}")
    _check(max_distance > exact, f"max_distance must be above the {exact} exact buckets, got {max_distance}")

    buckets = np.zeros(np.shape(relative), dtype=np.int64)
    for index, value in np.ndenumerate(relative):
        (lag,) = _integers(np.atleast_1d(value))
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
    _check_shape("table", table, (num_heads, num_buckets))
    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    for i, j, relative in _pairs(query_positions, key_positions, axes=1):
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
    sizes = _sizes(shape)
    grid = np.array(list(itertools.product(*(range(size) for size in sizes))))
    index = np.zeros((len(grid), len(grid)), dtype=np.int64)
    for i, j, relative in _pairs(grid, grid, len(sizes)):
        index[i, j] = _relative_row(_integers(relative), sizes)
    return index


def relative_position_bias(
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    num_heads: int,
    shape: int | Sequence[int],
    table: Float[Array, "{num_heads} rows"],
    prefix_bias: bool = False,
    symmetric: bool = False,
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
        prefix_table: three numbers a head: prefix to token, token to prefix, prefix to prefix.

    Raises:
        ValueError: for a relative position that the table does not reach, or tables of another shape.

    >>> table = np.arange(35.0)[None]
    >>> grid = np.array([(row, column) for row in range(3) for column in range(4)])
    >>> relative_position_bias(grid, grid, 1, (3, 4), table)[0, 0, :5].tolist()
    [17.0, 16.0, 15.0, 14.0, 10.0]

    Liu et al., Swin Transformer, arXiv:2103.14030; the prefix's three numbers, Bao et al., BEiT, arXiv:2106.08254.
    """
    sizes = _sizes(shape)
    _check_shape("table", table, (num_heads, math.prod(size if symmetric else 2 * size - 1 for size in sizes)))
    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    for i, j, relative in _pairs(query_positions, key_positions, len(sizes)):
        lag = _integers(relative)
        row = _row_major([abs(step) for step in lag], sizes) if symmetric else _relative_row(lag, sizes)
        bias[:, i, j] = table[:, row]
    if not prefix_bias:
        return bias

    if prefix_table is None:
        raise ValueError("prefix_bias needs a prefix_table of shape [heads, 3], got none")
    _check_shape("prefix_table", prefix_table, (num_heads, 3))
    query_nowhere = np.isnan(_coordinates(query_positions, len(sizes))[:, 0])
    key_nowhere = np.isnan(_coordinates(key_positions, len(sizes))[:, 0])
    for head in range(num_heads):
        bias[head][np.ix_(query_nowhere, ~key_nowhere)] = prefix_table[head, 0]
        bias[head][np.ix_(~query_nowhere, key_nowhere)] = prefix_table[head, 1]
        bias[head][np.ix_(query_nowhere, key_nowhere)] = prefix_table[head, 2]
    return bias


# ---------------------------------------------------------------------------------------------------------------------
# Content: relative position → a vector, which meets the query before the logits are scaled
# ---------------------------------------------------------------------------------------------------------------------


def shaw(
    q: Float[Array, "h i {head_dim}"],
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    head_dim: int,
    max_distance: int,
    key_table: Float[Array, "tables rows {head_dim}"],
    num_heads: int | None = None,
    values: bool = True,
    value_table: Float[Array, "tables rows {head_dim}"] | None = None,
) -> Float[Array, "h i j"]:
    """The logits of clipped relative positions; `shaw_values` is their part of the output.

    `e[h, i, j] = q[h, i] · rK[h, clip(i − j, −k, k) + k]`.

    Args:
        q: queries.
        query_positions: where the queries stand, whole numbers on one axis; NaN for a prefix token.
        key_positions: where the keys stand.
        head_dim: channels of a head.
        max_distance: `k`, at least 1: all keys this far off and farther share a row.
        key_table: `rK`, `2k + 1` rows ascending by relative position, one table a head or one for all.
        num_heads: number of tables; None shares one.
        values: whether vectors are added to the values as well; of no consequence for the logits.
        value_table: `rV`; of no consequence for the logits.

    Raises:
        ValueError: for a `max_distance` below 1, or arrays of another shape.

    >>> table = np.arange(-4.0, 5.0).reshape(1, 9, 1)
    >>> shaw(np.ones((1, 10, 1)), np.arange(10), np.arange(10), 1, 4, table)[0, 9].tolist()
    [4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 3.0, 2.0, 1.0, 0.0]

    Shaw, Uszkoreit and Vaswani, Self-Attention with Relative Position Representations, arXiv:1803.02155.
    """
    rows = _heads_of("key_table", key_table, num_heads, len(q), _clipped_rows(max_distance), head_dim)
    q = _queries(q, len(query_positions), head_dim)
    logits = np.zeros((len(q), len(query_positions), len(key_positions)))
    for i, j, relative in _pairs(query_positions, key_positions, axes=1):
        row = _clipped_row(relative, max_distance)
        for head in range(len(q)):
            logits[head, i, j] = q[head, i] @ rows[head][row]  # q_i · rK[clip(i − j)]
    return logits


def shaw_values(
    weights: Float[Array, "h i j"],
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    head_dim: int,
    max_distance: int,
    key_table: Float[Array, "tables rows {head_dim}"] | None = None,
    num_heads: int | None = None,
    values: bool = True,
    value_table: Float[Array, "tables rows {head_dim}"] | None = None,
) -> Float[Array, "h i {head_dim}"]:
    """What clipped relative positions add to the output of attention.

    `o[h, i] = Σ_j a[h, i, j] rV[h, clip(i − j, −k, k) + k]`.

    Args:
        weights: `a`, the attention weights.
        query_positions: as in `shaw`.
        key_positions: as in `shaw`.
        head_dim: as in `shaw`.
        max_distance: as in `shaw`.
        key_table: `rK`; of no consequence for the output.
        num_heads: as in `shaw`.
        values: False adds nothing.
        value_table: `rV`, `2k + 1` rows ascending by relative position, one table a head or one for all.

    Raises:
        ValueError: for a `max_distance` below 1, a missing `value_table`, or arrays of another shape.

    >>> table = np.arange(-1.0, 2.0).reshape(1, 3, 1)
    >>> shaw_values(np.ones((1, 3, 3)) / 3, np.arange(3), np.arange(3), 1, 1, value_table=table).round(4).tolist()
    [[[-0.6667], [0.0], [0.6667]]]

    Shaw, Uszkoreit and Vaswani, Self-Attention with Relative Position Representations, arXiv:1803.02155.
    """
    _check_shape("weights", weights, (len(weights), len(query_positions), len(key_positions)))
    output = np.zeros((len(weights), len(query_positions), head_dim))
    if not values:
        return output
    if value_table is None:
        raise ValueError("values=True needs a value_table, got none: pass values=False to add nothing to the values")
    rows = _heads_of("value_table", value_table, num_heads, len(weights), _clipped_rows(max_distance), head_dim)
    for i, j, relative in _pairs(query_positions, key_positions, axes=1):
        row = _clipped_row(relative, max_distance)
        for head in range(len(weights)):
            output[head, i] += weights[head, i, j] * rows[head][row]  # a_ij rV[clip(i − j)]
    return output


def relative_logits(
    q: Float[Array, "h i {head_dim}"],
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    head_dim: int,
    shape: int | Sequence[int],
    tables: Sequence[Float[Array, "_ _ {head_dim}"]],
    num_heads: int | None = None,
    causal: bool = False,
    scaled: bool = True,
) -> Float[Array, "h i j"]:
    """The query's product with a trained vector for the relative position along each axis.

    `e[h, i, j] = Σ_axis q[h, i] · r_axis[h, relative_axis + size_axis − 1]`; causal, `r[h, relative]`, and −∞ for the
    keys after the query.

    Args:
        q: queries.
        query_positions: where the queries stand, whole numbers; NaN for a prefix token.
        key_positions: where the keys stand.
        head_dim: channels of a head.
        shape: size along each axis.
        tables: one array an axis: `2 · size − 1` rows ascending by relative position (`size` if causal), one table a
            head or one for all.
        num_heads: number of tables an axis; None shares one.
        causal: whether there are rows for keys that are not after the query alone; one axis.
        scaled: whether attention scales these logits with the content's: pass them to `attention` as `content`, or,
            where False, as `bias`. Of no consequence here.

    Raises:
        ValueError: for a relative position outside the tables, causal tables on several axes, or arrays of another
            shape.

    >>> table = np.arange(-2.0, 3.0).reshape(1, 5, 1)
    >>> relative_logits(np.ones((1, 3, 1)), np.arange(3), np.arange(3), 1, 3, [table])[0].tolist()
    [[0.0, -1.0, -2.0], [1.0, 0.0, -1.0], [2.0, 1.0, 0.0]]

    Srinivas et al., Bottleneck Transformers, arXiv:2101.11605; causal, Huang et al., Music Transformer,
    arXiv:1809.04281; unscaled, Kirillov et al., Segment Anything, arXiv:2304.02643.
    """
    sizes = _sizes(shape)
    _check(not causal or len(sizes) == 1, f"causal tables have one axis, got {len(sizes)}")
    _check(len(tables) == len(sizes), f"tables must be one an axis, got {len(tables)} for {len(sizes)} axes")
    q = _queries(q, len(query_positions), head_dim)
    rows = [
        _heads_of("tables", table, num_heads, len(q), size if causal else 2 * size - 1, head_dim)
        for table, size in zip(tables, sizes, strict=True)
    ]

    logits = np.zeros((len(q), len(query_positions), len(key_positions)))
    for i, j, relative in _pairs(query_positions, key_positions, len(sizes)):
        for axis, (lag, size) in enumerate(zip(_integers(relative), sizes, strict=True)):
            if causal and lag < 0:
                logits[:, i, j] = -math.inf
                continue
            _check(abs(lag) < size, f"relative position {lag} is outside tables for {size} positions")
            row = lag if causal else lag + size - 1
            for head in range(len(q)):
                logits[head, i, j] += q[head, i] @ rows[axis][head][row]  # q_i · r_axis[relative]
    return logits


def sinusoidal_logits(
    q: Float[Array, "h i {head_dim}"],
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    head_dim: int,
    base: float = 10000.0,
) -> Float[Array, "h i j"]:
    """The query's product with the sinusoid of the relative position.

    `e[h, i, j] = q[h, i] · r(i − j)`, `r(c)[2t] = sin(c · base^(−2t/d))`, `r(c)[2t + 1]` its cosine.

    Args:
        q: queries.
        query_positions: where the queries stand, on one axis; NaN for a prefix token.
        key_positions: where the keys stand.
        head_dim: channels of a head; an odd number ends in a sine.
        base: ratio of the slowest wavelength to the fastest, nearly.

    Raises:
        ValueError: for arrays of another shape.

    >>> sinusoidal_logits(np.array([[[0.0, 1.0]]]), np.array([2]), np.arange(3), 2).round(6).tolist()
    [[[-0.416147, 0.540302, 1.0]]]

    Dai et al., Transformer-XL, arXiv:1901.02860, without its projection and its two vectors.
    """
    q = _queries(q, len(query_positions), head_dim)
    logits = np.zeros((len(q), len(query_positions), len(key_positions)))
    for i, j, relative in _pairs(query_positions, key_positions, axes=1):
        vector = _sinusoid(relative[0], head_dim, base)
        for head in range(len(q)):
            logits[head, i, j] = q[head, i] @ vector  # q_i · r(i − j)
    return logits


# ---------------------------------------------------------------------------------------------------------------------
# Conditional: what stands around a token → vector
# ---------------------------------------------------------------------------------------------------------------------


def conditional_encoding(
    x: Float[Array, "*batch n {dim}"],
    grid_shape: int | Sequence[int],
    weight: Float[Array, "{dim} 1 *kernel"],
    bias: Float[Array, "{dim}"],
    dim: int,
    kernel_size: int = 3,
    axes: int = 2,
    causal: bool = False,
    prefix: int = 0,
) -> Float[Array, "*batch n {dim}"]:
    """Tokens, each with a weighted sum of its neighbours on the grid added, channel by channel.

    `y[c, p] = x[c, p] + bias[c] + Σ_o weight[c, o] x[c, p + o − kernel_size // 2]`, zero beyond the grid's edge.

    Args:
        x: tokens of the grid, row-major, after `prefix` tokens that pass through.
        grid_shape: size of the grid along each axis.
        weight: a kernel for each channel.
        bias: a number for each channel.
        dim: channels.
        kernel_size: an odd number, the same on each axis.
        axes: number of axes.
        causal: whether the kernel ends at the token instead of being centred on it; one axis.
        prefix: tokens before the grid.

    Raises:
        ValueError: for an even kernel, a causal kernel on several axes, or arrays of another shape.

    >>> x = np.array([[1.0], [2.0], [4.0]])
    >>> conditional_encoding(x, 3, np.array([[[10.0, 0.0, 1.0]]]), np.zeros(1), 1, axes=1).ravel().tolist()
    [3.0, 16.0, 24.0]

    Chu et al., Conditional Positional Encodings for Vision Transformers, arXiv:2102.10882.
    """
    sizes = _sizes(grid_shape, smallest=0)
    _check(len(sizes) == axes, f"grid_shape must have {axes} axes, got {sizes}")
    _check(kernel_size % 2 == 1, f"kernel_size must be odd, got {kernel_size}")
    _check(not causal or axes == 1, f"a causal convolution has one axis, got {axes}")
    _check_shape("x", x, (*x.shape[:-2], prefix + math.prod(sizes), dim))
    _check_shape("weight", weight, (dim, 1, *[kernel_size] * axes))
    _check_shape("bias", bias, (dim,))

    reach = kernel_size - 1 if causal else kernel_size // 2
    x, kernel = _float64(x), np.moveaxis(_float64(weight)[:, 0], 0, -1)  # [*offset, dim]
    encoded = x.copy()
    for place in itertools.product(*(range(size) for size in sizes)):
        token = prefix + _row_major(place, sizes)
        encoded[..., token, :] += bias
        for offset in itertools.product(range(kernel_size), repeat=axes):
            neighbour = [p + o - reach for p, o in zip(place, offset, strict=True)]
            if all(0 <= p < size for p, size in zip(neighbour, sizes, strict=True)):
                # y[c, p] += weight[c, o] x[c, p + o − reach]
                encoded[..., token, :] += kernel[offset] * x[..., prefix + _row_major(neighbour, sizes), :]
    return encoded


# ---------------------------------------------------------------------------------------------------------------------
# From a table by relative position to a matrix by query and key
# ---------------------------------------------------------------------------------------------------------------------


def relative_to_absolute(x: Shaped[AnyArray, "*batch n relative"]) -> Shaped[AnyArray, "*batch n n"]:
    """Logits by query and relative position, as logits by query and key.

    `out[i, j] = x[i, n − 1 + j − i]`: here the last axis ascends by key − query, as in the papers that have this step.

    Args:
        x: `[..., n, 2n − 1]`, of any type.

    Raises:
        ValueError: for another number of columns than `2n − 1`.

    >>> relative_to_absolute(np.arange(15).reshape(3, 5)).tolist()
    [[2, 3, 4], [6, 7, 8], [10, 11, 12]]

    Huang et al., Music Transformer, arXiv:1809.04281; Srinivas et al., Bottleneck Transformers, arXiv:2101.11605.
    """
    length = x.shape[-2]
    columns = max(2 * length - 1, 0)
    _check(x.shape[-1] == columns, f"{length} queries need {columns} columns, got {x.shape[-1]}")
    absolute = np.zeros((*x.shape[:-1], length), dtype=x.dtype)
    for i in range(length):
        for j in range(length):
            absolute[..., i, j] = x[..., i, length - 1 + j - i]
    return absolute


def skew(x: Shaped[AnyArray, "*batch n n"]) -> Shaped[AnyArray, "*batch n n"]:
    """The causal skew of the Music Transformer, with what it leaves above the diagonal.

    `out[i, j] = x[i, n − 1 + j − i]` for `j ≤ i`. What stands above the diagonal is no logit: a zero beside it, then
    the first entries of the next row. It must never reach a softmax.

    Args:
        x: `[..., n, n]`, of any type: by query, and by relative position from `n − 1` down to 0.

    Raises:
        ValueError: for an array that is not square.

    >>> skew(np.arange(1, 10).reshape(3, 3)).tolist()
    [[3, 0, 4], [5, 6, 0], [7, 8, 9]]

    Huang et al., Music Transformer, arXiv:1809.04281.
    """
    length = x.shape[-2]
    _check(x.shape[-1] == length, f"skew needs as many columns as queries, got {x.shape[-1]} for {length}")
    skewed = np.zeros_like(x)
    for i in range(length):
        for j in range(length):
            if j <= i:
                skewed[..., i, j] = x[..., i, length - 1 + j - i]
            elif j > i + 1:
                skewed[..., i, j] = x[..., i + 1, j - i - 2]
    return skewed


# ---------------------------------------------------------------------------------------------------------------------
# Attention
# ---------------------------------------------------------------------------------------------------------------------


def attention(
    q: Float[Array, "h i d"],
    k: Float[Array, "g j d"],
    v: Float[Array, "g j d_v"],
    *,
    bias: Float[Array, "#h #i #j"] | None = None,
    content: Float[Array, "#h #i #j"] | None = None,
    scale: float | None = None,
    allowed: Bool[NDArray[np.bool_], "#h #i #j"] | None = None,
    values: Callable[[Array], Array] | None = None,
) -> Float[Array, "h i d_v"]:
    """Attention, with the terms that positions add to it.

    `s[h, i, j] = (q[h, i] · k[h, j] + content[h, i, j]) · scale + bias[h, i, j]`, `a = softmax_j(s)`,
    `o[h, i] = Σ_j a[h, i, j] v[h, j] + values(a)[h, i]`.

    Args:
        q: queries.
        k: keys, of as many heads or fewer: head `h` of `H` reads head `h · g // H` of `g`.
        v: values, of as many heads as `k`.
        bias: added after the scale.
        content: added before the scale.
        scale: `1 / √d` if None.
        allowed: True where a query may attend to a key; a query that may attend to none gives zeros.
        values: what a scheme adds to the output, from the weights.

    Raises:
        ValueError: for arrays whose shapes do not belong together.

    >>> v = np.array([[[1.0], [2.0], [6.0]]])
    >>> attention(np.zeros((1, 1, 4)), np.zeros((1, 3, 4)), v).tolist()  # no preference: the mean
    [[[3.0]]]

    Vaswani et al., Attention Is All You Need, arXiv:1706.03762; grouped heads, Ainslie et al., arXiv:2305.13245.
    """
    heads, queries, head_dim = q.shape
    groups, keys, _ = k.shape
    _check_shape("k", k, (groups, keys, head_dim))
    _check_shape("v", v, (groups, keys, v.shape[-1]))
    q, k, v = _float64(q), _float64(k), _float64(v)
    _check(groups > 0 and heads % groups == 0, f"{heads} query heads cannot share {groups} key heads evenly")
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    size = (heads, queries, keys)
    bias = np.broadcast_to(0.0 if bias is None else bias, size)
    content = np.broadcast_to(0.0 if content is None else content, size)
    allowed = np.broadcast_to(True if allowed is None else allowed, size)

    weights = np.zeros(size)
    output = np.zeros((heads, queries, v.shape[-1]))
    for h in range(heads):
        group = h * groups // heads
        for i in range(queries):
            logits = np.full(keys, -math.inf)
            for j in range(keys):
                if allowed[h, i, j]:
                    # s = (q · k + content) · scale + bias
                    logits[j] = (q[h, i] @ k[group, j] + content[h, i, j]) * scale + bias[h, i, j]
            weights[h, i] = _softmax(logits)
            for j in range(keys):
                if weights[h, i, j] != 0:
                    output[h, i] += weights[h, i, j] * v[group, j]
    if values is not None:
        output += values(weights)  # o = a v + values(a)
    return output


def _softmax(logits: Float[Array, "j"]) -> Float[Array, "j"]:
    """`exp(s_j − max s) / Σ exp(s − max s)`; all zeros where every logit is −∞."""
    largest = logits.max(initial=-math.inf)
    if largest == -math.inf:
        return np.zeros_like(logits)
    exponentials: Array = np.exp(logits - largest)
    weights: Array = exponentials / exponentials.sum()
    return weights


def sinusoidal_self_attention(
    x: Float[Array, "i width"],
    query_weight: Float[Array, "width d"],
    key_weight: Float[Array, "width d"],
    value_weight: Float[Array, "width d_v"],
    context: Float[Array, "j width"] | None = None,
    base: float = 10000.0,
) -> Float[Array, "i d_v"]:
    """One head of self-attention with sinusoidal relative positions.

    `q = x W_Q`, `k = c W_K`, `v = c W_V`; `s[i, j] = (q_i · k_j + q_i · r(i − j)) / √d`; `o = softmax(s) v`, with `r`
    the sinusoid of the relative position.

    Args:
        x: the tokens that ask.
        query_weight: `W_Q`, applied from the right.
        key_weight: `W_K`.
        value_weight: `W_V`.
        context: `c`, the tokens that answer, of which `x` are the last; `x` itself if None. So one query against ten
            keys stands at the last of them.
        base: ratio of the slowest wavelength to the fastest, nearly.

    Raises:
        ValueError: for more queries than keys, or arrays whose shapes do not belong together.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> sinusoidal_self_attention(x, np.eye(2), np.eye(2), np.eye(2)).round(4).tolist()
    [[0.7862, 0.2138], [0.2627, 0.7373]]

    Vaswani et al., arXiv:1706.03762, with the relative logits of Dai et al., Transformer-XL, arXiv:1901.02860.
    """
    context = x if context is None else context
    queries, keys = len(x), len(context)
    width, head_dim = query_weight.shape
    _check(queries <= keys, f"the queries are the last of the context: got {queries} queries and {keys} keys")
    _check_shape("x", x, (queries, width))
    _check_shape("context", context, (keys, width))
    _check_shape("key_weight", key_weight, (width, head_dim))
    _check_shape("value_weight", value_weight, (width, value_weight.shape[-1]))

    q, k, v = _float64(x) @ query_weight, _float64(context) @ key_weight, _float64(context) @ value_weight
    key_positions = np.arange(keys, dtype=np.float64)
    query_positions = key_positions[keys - queries :]
    relative = sinusoidal_logits(q[None], query_positions, key_positions, head_dim, base)
    output: Array = attention(q[None], k[None], v[None], content=relative)[0]
    return output


# ---------------------------------------------------------------------------------------------------------------------
# Small things
# ---------------------------------------------------------------------------------------------------------------------


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _check_shape(name: str, array: AnyArray, wanted: tuple[int, ...]) -> None:
    _check(np.shape(array) == wanted, f"{name} must have shape {list(wanted)}, got {list(np.shape(array))}")


def _float64(array: AnyArray) -> Array:
    return np.asarray(array, dtype=np.float64)


def _queries(q: AnyArray, queries: int, head_dim: int) -> Float[Array, "h {queries} {head_dim}"]:
    _check_shape("q", q, (len(q), queries, head_dim))
    return _float64(q)


def _coordinates(positions: AnyArray, axes: int) -> Float[Array, "n {axes}"]:
    """Positions as `[tokens, axes]` in float64; a token stands on every axis or on none."""
    coordinates = _float64(positions)
    if coordinates.ndim == 1 and axes == 1:
        coordinates = coordinates[:, None]
    wanted = f"positions must have shape [tokens, {axes}], got {list(coordinates.shape)}"
    _check(axes >= 1 and coordinates.ndim == 2 and coordinates.shape[1] == axes, wanted)
    for missing in np.isnan(coordinates).tolist():
        _check(all(missing) or not any(missing), "a token must stand on every axis or on none, got NaN on some")
    return coordinates


def _standing(coordinates: Float[Array, "n axes"]) -> list[int]:
    """The tokens that stand somewhere: all but the prefix."""
    return [token for token, coordinate in enumerate(coordinates) if not np.isnan(coordinate).any()]


def _pairs(
    query_positions: AnyArray, key_positions: AnyArray, axes: int
) -> Iterator[tuple[int, int, Float[Array, "{axes}"]]]:
    """Each query and key that both stand somewhere, and the relative position of the two: query − key."""
    queries, keys = _coordinates(query_positions, axes), _coordinates(key_positions, axes)
    for i in _standing(queries):
        for j in _standing(keys):
            yield i, j, queries[i] - keys[j]


def _integers(values: Sequence[float] | AnyArray) -> list[int]:
    """Whole numbers, or an error: a table has no row between two positions."""
    _check(all(float(value).is_integer() for value in values), f"a table needs whole positions, got {list(values)}")
    return [int(value) for value in values]


def _sizes(shape: int | Sequence[int], smallest: int = 1) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    _check(len(sizes) >= 1 and min(sizes) >= smallest, f"shape must have sizes of at least {smallest}, got {shape}")
    return sizes


def _dealt(total: int, axes: int, what: str) -> list[int]:
    """`total` things dealt to the axes one by one, so that earlier axes have at most one more."""
    _check(total >= axes >= 1, f"each of {axes} axes needs {what}, got {total}")
    shares = [0] * axes
    for turn in range(total):
        shares[turn % axes] += 1
    return shares


def _row_major(place: Sequence[int], sizes: Sequence[int]) -> int:
    """The index of a place on a grid, the last axis fastest."""
    index = 0
    for step, size in zip(place, sizes, strict=True):
        _check(0 <= step < size, f"position {list(place)} is outside a table of shape {list(sizes)}")
        index = index * size + step
    return index


def _relative_row(relative: Sequence[int], sizes: Sequence[int]) -> int:
    """The row-major index of `relative + size − 1` within `2 · size − 1`."""
    for lag, size in zip(relative, sizes, strict=True):
        _check(abs(lag) < size, f"relative position {list(relative)} is outside a table of shape {list(sizes)}")
    return _row_major(
        [lag + size - 1 for lag, size in zip(relative, sizes, strict=True)], [2 * size - 1 for size in sizes]
    )


def _clipped_rows(max_distance: int) -> int:
    _check(max_distance >= 1, f"max_distance must be at least 1, got {max_distance}")
    return 2 * max_distance + 1


def _clipped_row(relative: Float[Array, "1"], max_distance: int) -> int:
    """`clip(i − j, −k, k) + k`."""
    (lag,) = _integers(relative)
    return max(-max_distance, min(lag, max_distance)) + max_distance


def _heads_of(
    name: str, table: AnyArray, num_heads: int | None, heads: int, rows: int, head_dim: int
) -> list[Float[Array, "rows d"]]:
    """One table for each head: its own, or the one that all share."""
    _check(num_heads in (None, heads), f"num_heads is {num_heads}, but there are {heads} heads")
    _check_shape(name, table, (1 if num_heads is None else heads, rows, head_dim))
    return [_float64(table)[0 if num_heads is None else head] for head in range(heads)]
