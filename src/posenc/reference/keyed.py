"""Content encodings that meet the keys as well as the queries: Transformer-XL, DeBERTa, CoPE."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, Num
from numpy.typing import NDArray

from posenc.reference._shared import (
    AnyArray,
    Array,
    check,
    check_shape,
    coordinates_of,
    each_pair,
    float64,
    heads_of,
    queries_of,
    sigmoid,
    sinusoid,
    standing,
    whole_numbers,
)


def transformer_xl(
    q: Float[Array, "h i {head_dim}"],
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    num_heads: int,
    head_dim: int,
    projection: Float[Array, "{num_heads} {head_dim} width"],
    content_bias: Float[Array, "{num_heads} {head_dim}"],
    position_bias: Float[Array, "{num_heads} {head_dim}"],
    k: Float[Array, "h j {head_dim}"],
    dim: int | None = None,
    base: float = 10000.0,
) -> Float[Array, "h i j"]:
    """Projected sinusoids of the relative position, and a vector beside the query for content and for position.

    `(q_i + u) · k_j + (q_i + v) · W r(i − j)` are the logits; without `q_i · k_j`, which attention adds itself,
    `e[h, i, j] = u_h · k[h, j] + (q[h, i] + v_h) · W_h r(i − j)`. `r(c)[t] = sin(c · base^(−2t/D))` for all `t`, then
    their cosines.

    Args:
        q: queries.
        query_positions: where the queries stand, on one axis; NaN for a prefix token.
        key_positions: where the keys stand.
        num_heads: number of heads.
        head_dim: channels of a head.
        projection: `W`.
        content_bias: `u`.
        position_bias: `v`.
        k: keys.
        dim: `D`, channels of the sinusoid, `num_heads · head_dim` if None; an odd number has one more sine.
        base: ratio of the slowest wavelength to the fastest, nearly.

    Raises:
        ValueError: for arrays of another shape.

    >>> one = np.ones((1, 1))
    >>> logits = {"projection": np.array([[[0.0, 1.0]]]), "content_bias": 5 * one, "position_bias": 0 * one}
    >>> q = k = np.ones((1, 3, 1))
    >>> transformer_xl(q[:, :1], np.array([2]), np.arange(3), 1, 1, **logits, k=k, dim=2).round(6).tolist()
    [[[4.583853, 5.540302, 6.0]]]

    Dai et al., Transformer-XL, arXiv:1901.02860.
    """
    width = num_heads * head_dim if dim is None else dim
    check_shape("q", q, (num_heads, len(query_positions), head_dim))
    check_shape("k", k, (num_heads, len(key_positions), head_dim))
    check_shape("projection", projection, (num_heads, head_dim, width))
    check_shape("content_bias", content_bias, (num_heads, head_dim))
    check_shape("position_bias", position_bias, (num_heads, head_dim))
    q, k = float64(q), float64(k)
    logits = np.zeros((num_heads, len(query_positions), len(key_positions)))
    for i, j, relative in each_pair(query_positions, key_positions, axes=1):
        wave = sinusoid(relative[0], width, base)
        wave = np.concatenate([wave[0::2], wave[1::2]])  # as released: all sines, then all cosines
        for head in range(num_heads):
            vector = projection[head] @ wave
            logits[head, i, j] = content_bias[head] @ k[head, j] + (q[head, i] + position_bias[head]) @ vector
    return logits


def deberta_bucket(
    relative: Num[AnyArray, "*shape"], buckets: int = 256, max_distance: int = 512
) -> Int[NDArray[np.int64], "*shape"]:
    """The bucket of each relative position: its own up to half the buckets, logarithmically wider ones farther off.

    With `m = buckets // 2`: `x` for `|x| ≤ m`, else `sign(x) (m + ⌈(m − 1) log(|x| / m) / log((D − 1) / m)⌉)`, `D` the
    `max_distance`; kept within `−buckets` and `buckets − 1`. Computed in whole numbers, so that no bucket border
    depends on how a logarithm is rounded.

    Args:
        relative: query position − key position, whole numbers.
        buckets: buckets of each sign.
        max_distance: about the distance at which the last bucket begins.

    Raises:
        ValueError: for fewer than 4 buckets, a `max_distance` within the exact ones, or relative positions between
            whole numbers.

    >>> deberta_bucket(np.array([-200, 128, 200, 511, 9999, -9999])).tolist()
    [-169, 128, 169, 255, 255, -256]

    He et al., DeBERTa, arXiv:2006.03654, as released with its second version.
    """
    middle, reach = buckets // 2, max_distance - 1
    check(buckets >= 4, f"buckets must be at least 4, got {buckets}")
    check(reach > middle, f"max_distance must be above {middle + 1} for {buckets} buckets, got {max_distance}")
    found = np.zeros(np.shape(relative), dtype=np.int64)
    for index, value in np.ndenumerate(relative):
        (lag,) = whole_numbers(np.atleast_1d(value))
        distance = abs(lag)
        bucket = distance
        if distance > middle:
            # ⌈x⌉ is the first whole s with x ≤ s, and (m − 1) log(n / m) / log(R / m) ≤ s ⇔ n^(m−1) m^s ≤ R^s m^(m−1)
            step = 0
            while step < buckets and distance ** (middle - 1) * middle**step > reach**step * middle ** (middle - 1):
                step += 1
            bucket = middle + step
        signed = bucket if lag >= 0 else -bucket
        found[index] = max(-buckets, min(signed, buckets - 1))
    return found


def deberta(
    q: Float[Array, "h i {head_dim}"],
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    num_heads: int,
    head_dim: int,
    k: Float[Array, "h j {head_dim}"] | None = None,
    buckets: int | None = 256,
    max_distance: int = 512,
    terms: Sequence[str] = ("c2p", "p2c"),
    published: bool = False,
    key_table: Float[Array, "{num_heads} rows {head_dim}"] | None = None,
    query_table: Float[Array, "{num_heads} rows {head_dim}"] | None = None,
) -> Float[Array, "h i j"]:
    """The query's product with a vector for the relative position, and the key's with another.

    `e[h, i, j] = q[h, i] · rK[h, δ(i, j)] + k[h, j] · rQ[h, δ(i, j)]`, `δ` the bucket of `i − j`, from 0. The paper
    writes `δ(j, i)` in the last, but what was released was trained with `δ(i, j)`.

    Attention divides these logits and `q_i · k_j` by `√(d · (1 + number of terms))`: pass it that `scale`.

    Args:
        q: queries.
        query_positions: where the queries stand, whole numbers on one axis; NaN for a prefix token.
        key_positions: where the keys stand.
        num_heads: number of heads.
        head_dim: channels of a head.
        k: keys, for the second term.
        buckets: see `deberta_bucket`; None clips the relative position to `max_distance` instead (the first version).
        max_distance: see `deberta_bucket`.
        terms: which of the two there are: `c2p`, content to position, and `p2c`, position to content.
        published: whether the second term follows the paper instead.
        key_table: `rK`, `2 · buckets` rows ascending by relative position, from `−buckets`.
        query_table: `rQ`.

    Raises:
        ValueError: for unknown terms, a table or keys that a term needs and that are missing, or arrays of another
            shape.

    >>> table = np.arange(-4.0, 4.0).reshape(1, 8, 1)
    >>> few = {"buckets": 4, "max_distance": 8, "key_table": table, "query_table": table}
    >>> both = deberta(np.ones((1, 1, 1)), np.array([2]), np.arange(4), 1, 1, np.ones((1, 4, 1)), **few)
    >>> both.tolist()
    [[[4.0, 2.0, 0.0, -2.0]]]

    He et al., DeBERTa, arXiv:2006.03654.
    """
    known = len(terms) > 0 and set(terms) <= {"c2p", "p2c"}
    check(known, f"terms must be c2p, p2c or both, got {list(terms)}")
    half = max_distance if buckets is None else buckets
    q = queries_of(q, len(query_positions), head_dim)
    check_shape("q", q, (num_heads, len(query_positions), head_dim))

    def row(lag: int) -> int:
        if buckets is None:
            return max(-half, min(lag, half - 1)) + half
        return int(deberta_bucket(np.array([lag]), buckets, max_distance)[0]) + half

    logits = np.zeros((num_heads, len(query_positions), len(key_positions)))
    if "c2p" in terms:
        if key_table is None:
            raise ValueError("c2p needs a key_table, got none: leave c2p out of terms")
        check_shape("key_table", key_table, (num_heads, 2 * half, head_dim))
        for i, j, relative in each_pair(query_positions, key_positions, axes=1):
            (lag,) = whole_numbers(relative)
            for head in range(num_heads):
                logits[head, i, j] += q[head, i] @ key_table[head, row(lag)]  # q_i · rK[δ(i, j)]
    if "p2c" in terms:
        if query_table is None or k is None:
            raise ValueError("p2c needs a query_table and the keys, got none: leave p2c out of terms, or pass them")
        check_shape("query_table", query_table, (num_heads, 2 * half, head_dim))
        check_shape("k", k, (num_heads, len(key_positions), head_dim))
        k = float64(k)
        for i, j, relative in each_pair(query_positions, key_positions, axes=1):
            (lag,) = whole_numbers(relative)
            for head in range(num_heads):
                # k_j · rQ[δ(i, j)], or as published rQ[δ(j, i)]
                logits[head, i, j] += k[head, j] @ query_table[head, row(-lag if published else lag)]
    return logits


def cope(
    q: Float[Array, "h i {head_dim}"],
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    head_dim: int,
    max_position: int,
    table: Float[Array, "tables {max_position} {head_dim}"],
    k: Float[Array, "h j {head_dim}"],
    num_heads: int | None = None,
    scaled: bool = False,
    allowed: Bool[NDArray[np.bool_], "#h #i #j"] | None = None,
) -> Float[Array, "h i j"]:
    """The query's product with a vector for the number of keys that count from the key to the query.

    `e[h, i, j] = q[h, i] · r[h, p_ij]`, `p_ij = min(Σ_m g_im, max_position − 1)` over the keys `m` from `j` on that `i`
    attends to, each counting by its gate `g_im = sigmoid(q_i · k_m / √d)`; `r[p]` between two rows is on the line
    between them.

    Args:
        q: queries.
        query_positions: where the queries stand, on one axis; NaN for a prefix token, for which nothing counts.
        key_positions: where the keys stand.
        head_dim: channels of a head.
        max_position: number of rows.
        table: `r`, one table a head or one for all.
        k: keys.
        num_heads: number of tables; None shares one.
        scaled: whether attention scales these logits with the content's: pass them to `attention` as `content`, or,
            where False, as in the paper's listing, as `bias`. Of no consequence here.
        allowed: who attends to whom; by default to the keys that are not after the query.

    Raises:
        ValueError: for arrays of another shape.

    >>> table = np.array([[[0.0], [10.0], [20.0]]])  # gates of 1/2: two keys count as one
    >>> cope(np.ones((1, 1, 1)), np.array([2]), np.arange(3), 1, 3, table, k=np.zeros((1, 3, 1))).tolist()
    [[[15.0, 10.0, 5.0]]]

    Golovneva et al., Contextual Position Encoding, arXiv:2405.18719.
    """
    rows = heads_of("table", table, num_heads, len(q), max_position, head_dim)
    q = queries_of(q, len(query_positions), head_dim)
    check_shape("k", k, (len(q), len(key_positions), head_dim))
    queries, keys = coordinates_of(query_positions, 1)[:, 0], coordinates_of(key_positions, 1)[:, 0]
    size = (len(q), len(queries), len(keys))
    seen = np.broadcast_to(keys[None, None, :] <= queries[None, :, None] if allowed is None else allowed, size)
    k = float64(k)
    logits = np.zeros(size)
    for i, j, _ in each_pair(query_positions, key_positions, axes=1):
        for head in range(len(q)):
            counted = 0.0
            for m in standing(keys[:, None]):
                if keys[m] >= keys[j] and seen[head, i, m]:
                    counted += sigmoid(q[head, i] @ k[head, m] / math.sqrt(head_dim))
            counted = min(counted, max_position - 1)
            below, above = math.floor(counted), math.ceil(counted)
            share = counted - below
            logits[head, i, j] = q[head, i] @ ((1 - share) * rows[head][below] + share * rows[head][above])
    return logits
