"""Biases that a formula or a small network computes: relative position → a number for each head."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Num

from posenc.reference._shared import (
    AnyArray,
    Array,
    check,
    check_shape,
    coordinates_of,
    each_pair,
    float64,
    sigmoid,
    sizes_of,
    softplus,
)


def kerple(
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    num_heads: int,
    raw_r1: Float[Array, "{num_heads}"],
    raw_r2: Float[Array, "{num_heads}"],
    kind: str = "logarithmic",
) -> Float[Array, "{num_heads} i j"]:
    """A conditionally positive definite kernel of the distance, its shape trained for each head.

    `b[h, i, j] = −r1_h log(1 + r2_h |i − j|)`, or `−r1_h |i − j|^r2_h` with `r2_h` between 0 and 2.

    Args:
        query_positions: where the queries stand, on one axis; NaN for a prefix token.
        key_positions: where the keys stand.
        num_heads: number of heads.
        raw_r1: trained; `r1 = softplus(raw_r1)`.
        raw_r2: trained; `r2 = softplus(raw_r2)` in the logarithm, `2 · sigmoid(raw_r2)` in the power.
        kind: `logarithmic` or `power`.

    Raises:
        ValueError: for an unknown kind, more than one axis, or arrays of another shape.

    >>> raw = np.array([math.log(math.e - 1)])  # softplus of which is 1
    >>> kerple(np.array([2]), np.arange(3), 1, raw, raw).round(6).tolist()
    [[[-1.098612, -0.693147, -0.0]]]

    Chi et al., KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation, arXiv:2205.09921.
    """
    check(kind in ("logarithmic", "power"), f"kind must be logarithmic or power, got {kind!r}")
    check_shape("raw_r1", raw_r1, (num_heads,))
    check_shape("raw_r2", raw_r2, (num_heads,))
    raw_r1, raw_r2 = float64(raw_r1), float64(raw_r2)
    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    for i, j, relative in each_pair(query_positions, key_positions, axes=1):
        distance = abs(relative[0])
        for head in range(num_heads):
            r1 = softplus(raw_r1[head])
            if kind == "logarithmic":
                r2 = softplus(raw_r2[head])
                bias[head, i, j] = -r1 * math.log(1 + r2 * distance)
            else:
                r2 = 2 * sigmoid(raw_r2[head])
                bias[head, i, j] = -r1 * distance**r2
    return bias


def fire(
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    num_heads: int,
    hidden_weight: Float[Array, "{hidden} 1"],
    hidden_bias: Float[Array, "{hidden}"],
    output_weight: Float[Array, "{num_heads} {hidden}"],
    output_bias: Float[Array, "{num_heads}"],
    c: Float[Array, "1"],
    threshold: Float[Array, "1"],
    hidden: int = 32,
) -> Float[Array, "{num_heads} i j"]:
    """A small network of the distance, in proportion to how far the query has come.

    `b[h, i, j] = f_h(ψ(i − j) / ψ(max(L, i)))`, `ψ(x) = log(1 + |c x|)`, `f(x) = W₂ relu(W₁ x + b₁) + b₂`: every
    ratio is within 0 and 1 for a key before the query, however long the sequence.

    Args:
        query_positions: where the queries stand, on one axis, from 0; NaN for a prefix token.
        key_positions: where the keys stand.
        num_heads: number of heads.
        hidden_weight: `W₁`.
        hidden_bias: `b₁`.
        output_weight: `W₂`.
        output_bias: `b₂`.
        c: trained, in nats a position.
        threshold: `L`, trained, in positions; its sign is of no consequence.
        hidden: width of the network.

    Raises:
        ValueError: for more than one axis, or arrays of another shape.

    >>> one = np.ones(1)
    >>> identity = {"hidden_weight": one[:, None], "hidden_bias": 0 * one, "output_weight": one[:, None]}
    >>> fire(np.array([3]), np.arange(4), 1, **identity, output_bias=0 * one, c=one, threshold=one, hidden=1).tolist()
    [[[1.0, 0.7924812503605781, 0.5, 0.0]]]

    Li et al., Functional Interpolation for Relative Positions Improves Long Context Transformers, arXiv:2310.04418.
    """
    check_shape("hidden_weight", hidden_weight, (hidden, 1))
    check_shape("hidden_bias", hidden_bias, (hidden,))
    check_shape("output_weight", output_weight, (num_heads, hidden))
    check_shape("output_bias", output_bias, (num_heads,))
    check_shape("c", c, (1,))
    check_shape("threshold", threshold, (1,))
    weight, shift, output = float64(hidden_weight), float64(hidden_bias), float64(output_weight)
    rate, least = abs(float(c[0])), abs(float(threshold[0]))

    def psi(x: float) -> float:
        return math.log(1 + rate * abs(x))

    queries = coordinates_of(query_positions, 1)
    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    for i, j, relative in each_pair(query_positions, key_positions, axes=1):
        # ψ(i − j) / ψ(max(L, i))
        ratio = psi(relative[0]) / psi(max(least, queries[i, 0]))
        bias[:, i, j] = output_bias
        for unit in range(hidden):
            bias[:, i, j] += output[:, unit] * max(0.0, weight[unit, 0] * ratio + shift[unit])
    return bias


def sandwich(
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    num_heads: int,
    dim: int = 128,
) -> Float[Array, "{num_heads} i j"]:
    """The product of two sinusoidal position vectors, which falls off like a logarithm, at another rate in each head.

    `b[h, i, j] = p(i) · p(j) H / (8 h)`, `p(i) · p(j) = Σ_t cos((i − j) 10000^(−2t/D))`, `t = 0 … D/2 − 1`,
    `h = 1 … H`.

    Args:
        query_positions: where the queries stand, on one axis; NaN for a prefix token.
        key_positions: where the keys stand.
        num_heads: `H`.
        dim: `D`, channels of the position vectors, an even number; it has nothing to do with the width of the model.

    Raises:
        ValueError: for an odd `dim`, or more than one axis.

    >>> sandwich(np.array([1]), np.arange(2), num_heads=8, dim=4).round(6).tolist()[0]
    [[1.540252, 2.0]]

    Chi et al., Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis, arXiv:2212.10356.
    """
    check(dim >= 2 and dim % 2 == 0, f"dim must be even and at least 2 for Sandwich, got {dim}")
    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    for i, j, relative in each_pair(query_positions, key_positions, axes=1):
        product = sum(math.cos(relative[0] * 10000 ** (-2 * t / dim)) for t in range(dim // 2))  # p(i) · p(j)
        for head in range(num_heads):
            bias[head, i, j] = product / (8 * (head + 1) / num_heads)
    return bias


def continuous_position_bias(
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    num_heads: int,
    shape: int | Sequence[int],
    hidden_weight: Float[Array, "{hidden} axes"],
    hidden_bias: Float[Array, "{hidden}"],
    output_weight: Float[Array, "{num_heads} {hidden}"],
    pretrained_shape: int | Sequence[int] | None = None,
    hidden: int = 512,
) -> Float[Array, "{num_heads} i j"]:
    """A small network of the log-spaced relative position, so that it carries over to larger windows.

    `b[h, i, j] = 16 · sigmoid(W₂ relu(W₁ u + b₁))_h`, `u_a = sign(Δ_a) log2(1 + 8 |Δ_a| / (size_a − 1)) / log2(8)`.

    Args:
        query_positions: where the queries stand; NaN for a prefix token.
        key_positions: where the keys stand.
        num_heads: number of heads.
        shape: size of the window along each axis.
        hidden_weight: `W₁`.
        hidden_bias: `b₁`.
        output_weight: `W₂`, which has no bias.
        pretrained_shape: the window in which the network was trained, whose sizes stand in the formula; `shape` if
            None. A size of 1 counts as 2: the only relative position it knows is 0, whatever it is divided by.
        hidden: width of the network.

    Raises:
        ValueError: for another number of axes in `pretrained_shape`, or arrays of another shape.

    >>> weights = {"hidden_weight": np.ones((1, 1)), "hidden_bias": np.zeros(1), "output_weight": np.ones((1, 1))}
    >>> continuous_position_bias(np.array([7]), np.array([0, 7]), 1, 8, **weights, hidden=1).round(4).tolist()
    [[[11.8728, 8.0]]]

    Liu et al., Swin Transformer V2, arXiv:2111.09883.
    """
    sizes = sizes_of(shape)
    trained = sizes if pretrained_shape is None else sizes_of(pretrained_shape)
    check(len(trained) == len(sizes), f"pretrained_shape must have {len(sizes)} axes, got {pretrained_shape}")
    check_shape("hidden_weight", hidden_weight, (hidden, len(sizes)))
    check_shape("hidden_bias", hidden_bias, (hidden,))
    check_shape("output_weight", output_weight, (num_heads, hidden))
    weight, shift, output = float64(hidden_weight), float64(hidden_bias), float64(output_weight)

    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    for i, j, relative in each_pair(query_positions, key_positions, len(sizes)):
        logarithms = [
            math.copysign(math.log2(1 + 8 * abs(step) / max(size - 1, 1)) / math.log2(8), step)
            for step, size in zip(relative, trained, strict=True)
        ]
        total = np.zeros(num_heads)
        for unit in range(hidden):
            inner = shift[unit] + sum(w * u for w, u in zip(weight[unit], logarithms, strict=True))
            total += output[:, unit] * max(0.0, inner)
        for head in range(num_heads):
            bias[head, i, j] = 16 * sigmoid(total[head])
    return bias
