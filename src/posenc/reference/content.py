"""Content encodings: relative position → a vector, which meets the query before the logits are scaled."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Num

from posenc.reference._shared import (
    AnyArray,
    Array,
    check,
    check_shape,
    each_pair,
    heads_of,
    queries_of,
    sinusoid,
    sizes_of,
    whole_numbers,
)


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
    rows = heads_of("key_table", key_table, num_heads, len(q), _clipped_rows(max_distance), head_dim)
    q = queries_of(q, len(query_positions), head_dim)
    logits = np.zeros((len(q), len(query_positions), len(key_positions)))
    for i, j, relative in each_pair(query_positions, key_positions, axes=1):
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
    check_shape("weights", weights, (len(weights), len(query_positions), len(key_positions)))
    output = np.zeros((len(weights), len(query_positions), head_dim))
    if not values:
        return output
    if value_table is None:
        raise ValueError("values=True needs a value_table, got none: pass values=False to add nothing to the values")
    rows = heads_of("value_table", value_table, num_heads, len(weights), _clipped_rows(max_distance), head_dim)
    for i, j, relative in each_pair(query_positions, key_positions, axes=1):
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
    sizes = sizes_of(shape)
    check(not causal or len(sizes) == 1, f"causal tables have one axis, got {len(sizes)}")
    check(len(tables) == len(sizes), f"tables must be one an axis, got {len(tables)} for {len(sizes)} axes")
    q = queries_of(q, len(query_positions), head_dim)
    rows = [
        heads_of("tables", table, num_heads, len(q), size if causal else 2 * size - 1, head_dim)
        for table, size in zip(tables, sizes, strict=True)
    ]

    logits = np.zeros((len(q), len(query_positions), len(key_positions)))
    for i, j, relative in each_pair(query_positions, key_positions, len(sizes)):
        for axis, (lag, size) in enumerate(zip(whole_numbers(relative), sizes, strict=True)):
            if causal and lag < 0:
                logits[:, i, j] = -math.inf
                continue
            check(abs(lag) < size, f"relative position {lag} is outside tables for {size} positions")
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
    q = queries_of(q, len(query_positions), head_dim)
    logits = np.zeros((len(q), len(query_positions), len(key_positions)))
    for i, j, relative in each_pair(query_positions, key_positions, axes=1):
        vector = sinusoid(relative[0], head_dim, base)
        for head in range(len(q)):
            logits[head, i, j] = q[head, i] @ vector  # q_i · r(i − j)
    return logits


def irpe_index(x: float, alpha: float = 1.9, beta: float = 3.8, gamma: float = 15.2) -> int:
    """The index of a relative position along one axis: its own when near, shared with ever more others farther off.

    `round(x)` for `|x| ≤ α`, else `sign(x) min(β, round(α + (β − α) ln(|x| / α) / ln(γ / α)))`, towards zero where `β`
    is no whole number.

    >>> [irpe_index(x) for x in (-100, -2, 0, 1, 2, 3, 4, 10, 11)]
    [-3, -2, 0, 1, 2, 2, 3, 3, 3]

    Wu et al., Rethinking and Improving Relative Position Encoding for Vision Transformer, arXiv:2107.14222, eq. 18.
    """
    if abs(x) <= alpha:
        return round(x)
    grown = round(alpha + (beta - alpha) * math.log(abs(x) / alpha) / math.log(gamma / alpha))
    return int(math.copysign(math.floor(min(beta, grown)), x))


def irpe(
    q: Float[Array, "h i {head_dim}"],
    query_positions: Num[AnyArray, "i 2"],
    key_positions: Num[AnyArray, "j 2"],
    head_dim: int,
    method: str = "product",
    num_heads: int | None = None,
    alpha: float = 1.9,
    beta: float = 3.8,
    gamma: float = 15.2,
    table: Float[Array, "tables rows {head_dim}"] | None = None,
    tables: Sequence[Float[Array, "_ _ {head_dim}"]] | None = None,
) -> Float[Array, "h i j"]:
    """The query's product with a trained vector for the relative position on an image, far ones sharing theirs.

    With `I` the index of each axis and `B = ⌊β⌋`: product, `e[h, i, j] = q[h, i] · r[h, (I_y + B)(2B + 1) + I_x + B]`;
    cross, `e[h, i, j] = q[h, i] · (r_y[h, I_y + B] + r_x[h, I_x + B])`.

    Args:
        q: queries.
        query_positions: where the queries stand, on two axes; NaN for a prefix token.
        key_positions: where the keys stand.
        head_dim: channels of a head.
        method: `product` or `cross`.
        num_heads: number of tables; None shares one.
        alpha: distance up to which each has an index of its own.
        beta: the largest index.
        gamma: distance from which on all share the largest index.
        table: `r`, `(2B + 1)²` rows, row-major, for the product.
        tables: `r_y` and `r_x`, `2B + 1` rows each, for the cross.

    Raises:
        ValueError: for an unknown method, coefficients out of order, missing tables, or arrays of another shape.

    >>> table = np.arange(-24.0, 25.0).reshape(1, 49, 1)
    >>> irpe(np.ones((1, 1, 1)), np.array([[1, 5]]), np.array([[1, 5], [0, 5], [1, 0]]), 1, table=table).tolist()
    [[[0.0, 7.0, 3.0]]]

    Wu et al., Rethinking and Improving Relative Position Encoding for Vision Transformer, arXiv:2107.14222.
    """
    check(method in ("product", "cross"), f"method must be product or cross, got {method!r}")
    check(0 < alpha <= beta and alpha < gamma, f"0 < alpha <= beta and alpha < gamma, got {alpha}, {beta}, {gamma}")
    q = queries_of(q, len(query_positions), head_dim)
    largest = math.floor(beta)
    side = 2 * largest + 1
    if method == "product":
        if table is None:
            raise ValueError("the product method needs a table, got none")
        product = heads_of("table", table, num_heads, len(q), side**2, head_dim)
    else:
        if tables is None or len(tables) != 2:
            raise ValueError(f"the cross method needs two tables, got {0 if tables is None else len(tables)}")
        rows, columns = (heads_of("tables", each, num_heads, len(q), side, head_dim) for each in tables)

    logits = np.zeros((len(q), len(query_positions), len(key_positions)))
    for i, j, relative in each_pair(query_positions, key_positions, axes=2):
        row, column = (irpe_index(step, alpha, beta, gamma) + largest for step in relative)
        for head in range(len(q)):
            vector = (
                product[head][row * side + column] if method == "product" else rows[head][row] + columns[head][column]
            )
            logits[head, i, j] = q[head, i] @ vector
    return logits


def _clipped_rows(max_distance: int) -> int:
    check(max_distance >= 1, f"max_distance must be at least 1, got {max_distance}")
    return 2 * max_distance + 1


def _clipped_row(relative: Float[Array, "1"], max_distance: int) -> int:
    """`clip(i − j, −k, k) + k`."""
    (lag,) = whole_numbers(relative)
    return max(-max_distance, min(lag, max_distance)) + max_distance
