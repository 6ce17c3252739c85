"""Rotary encodings: the angle between two channels grows with position."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from posenc.reference._shared import AnyArray, Array, check, check_shape, coordinates_of, deal, float64, standing
from posenc.reference.scaling import rotary_frequencies


def rotary(
    x: Float[Array, "*batch n {head_dim}"],
    positions: Num[AnyArray, "n *axes"],
    head_dim: int,
    axes: int = 1,
    base: float = 10000.0,
    layout: str = "half",
    rotary_dim: int | None = None,
    scaling: Any = None,
    axis_order: Sequence[int] | None = None,
    precision: str = "exact",
    length: int | None = None,
) -> Float[Array, "*batch n {head_dim}"]:
    """Queries or keys, each pair of channels turned by an angle proportional to a coordinate.

    `(a, b) → (a cos φ − b sin φ, a sin φ + b cos φ)`, `φ = c · base^(−t/p)` for pair `t` of the `p` pairs of an axis.

    Args:
        x: queries or keys, before rotation.
        positions: where the tokens stand; NaN for a prefix token, which is not rotated.
        head_dim: channels of a head.
        axes: number of axes; the pairs are dealt to them as evenly as they go, earlier axes first.
        base: ratio of the slowest wavelength to the fastest, nearly.
        layout: `half` pairs channel `t` with `t + rotary_dim / 2`, `interleaved` pairs `2t` with `2t + 1`.
        rotary_dim: the first channels are rotated, this many (even, by default all); the others pass through.
        scaling: a value of `posenc.scaling`, applied to the pairs of each axis.
        axis_order: the order in which the axes' pairs stand; by default that of the axes.
        precision: `exact`, or `float32` to round frequencies, coordinates and angles to it, as most models did when
            they were trained.
        length: positions of the whole sequence, for scalings that depend on it; by default the largest position here,
            and one.

    Raises:
        ValueError: for an odd width, more rotated channels than there are, fewer pairs than axes, an unknown layout or
            precision, an order that is no permutation, or another number of channels or positions than `x` has.

    >>> quarter = np.array([np.pi / 2])
    >>> rotary(np.array([[1.0, 0.0]]), quarter, head_dim=2).round(12).tolist()
    [[0.0, 1.0]]

    Su et al., RoFormer, arXiv:2104.09864; over two axes, Heo et al., arXiv:2403.13298.
    """
    width = head_dim if rotary_dim is None else rotary_dim
    name = "head_dim" if rotary_dim is None else "rotary_dim"
    advice = f"pass rotary_dim={width - 1} to rotate part of it"
    order = list(range(axes)) if axis_order is None else list(axis_order)
    check(width % 2 == 0, f"{name} must be even for rotary, got {width}: {advice}")
    check(0 < width <= head_dim, f"rotary_dim must be from 2 to head_dim {head_dim}, got {width}")
    check(sorted(order) == list(range(axes)), f"axis_order must name each of {axes} axes once, got {axis_order}")
    check(precision in ("exact", "float32"), f"precision must be exact or float32, got {precision!r}")
    coordinates = coordinates_of(positions, axes)
    shares = deal(width // 2, axes, "pairs of channels")
    length = _length(coordinates) if length is None else length

    angles = np.zeros((len(coordinates), width // 2))
    first, factor = 0, 1.0
    for axis in order:
        frequencies, factor = rotary_frequencies(shares[axis], base, scaling, length)
        if precision == "float32":
            frequencies = _rounded(frequencies, base)
        for token in standing(coordinates):
            for t in range(shares[axis]):
                angles[token, first + t] = _angle(coordinates[token, axis], frequencies[t], precision)
        first += shares[axis]
    return _turned(x, coordinates, angles, head_dim, layout, factor)


def mixed_rotary(
    x: Float[Array, "*batch {num_heads} n {head_dim}"],
    positions: Num[AnyArray, "n *axes"],
    num_heads: int,
    head_dim: int,
    table: Float[Array, "{num_heads} {axes} pairs"],
    axes: int = 2,
    base: float = 10.0,
    layout: str = "interleaved",
) -> Float[Array, "*batch {num_heads} n {head_dim}"]:
    """Queries or keys turned by angles that mix the axes, with frequencies trained for each head.

    `φ[h, t] = Σ_a c_a f[h, a, t]` for pair `t` of head `h`.

    Args:
        x: queries or keys, before rotation.
        positions: where the tokens stand; NaN for a prefix token, which is not rotated.
        num_heads: number of heads.
        head_dim: channels of a head, an even number.
        table: `f`, in radians a unit of position.
        axes: number of axes.
        base: how the frequencies were drawn; of no consequence here.
        layout: `half` pairs channel `t` with `t + head_dim / 2`, `interleaved` pairs `2t` with `2t + 1`.

    Raises:
        ValueError: for an odd width, an unknown layout, or arrays of another shape.

    >>> frequencies = np.array([[[np.pi / 4], [np.pi / 4]]])
    >>> mixed_rotary(np.array([[[1.0, 0.0]]]), np.array([[1, 1]]), 1, 2, frequencies).round(12).tolist()
    [[[0.0, 1.0]]]

    Heo et al., Rotary Position Embedding for Vision Transformer, arXiv:2403.13298.
    """
    check(head_dim % 2 == 0, f"head_dim must be even for rotary, got {head_dim}")
    check_shape("table", table, (num_heads, axes, head_dim // 2))
    coordinates = coordinates_of(positions, axes)
    check(x.shape[-3] == num_heads, f"x must have {num_heads} heads, got {x.shape[-3]}")
    rotated = float64(x).copy()
    for head in range(num_heads):
        angles = np.zeros((len(coordinates), head_dim // 2))
        for token in standing(coordinates):
            for t in range(head_dim // 2):
                angles[token, t] = sum(coordinates[token, axis] * table[head, axis, t] for axis in range(axes))
        rotated[..., head, :, :] = _turned(x[..., head, :, :], coordinates, angles, head_dim, layout)
    return rotated


def multimodal_rotary(
    x: Float[Array, "*batch n {head_dim}"],
    positions: Num[AnyArray, "n axes"],
    head_dim: int,
    sections: Sequence[int],
    interleaved: bool = False,
    base: float = 10000.0,
    scaling: Any = None,
    layout: str = "half",
    rotary_dim: int | None = None,
    precision: str = "exact",
    length: int | None = None,
) -> Float[Array, "*batch n {head_dim}"]:
    """One ladder of frequencies over all pairs, each of which turns with one of several coordinates (M-RoPE).

    `φ_t = c_a(t) · base^(−t/P)`, `t = 0 … P − 1` over the whole width. In chunks, the first `sections[0]` pairs turn
    with axis 0, the next with axis 1, and so on; interleaved, pair `t` turns with axis `t mod n` while that axis has
    pairs left, else with axis 0.

    Args:
        x: queries or keys, before rotation.
        positions: where the tokens stand: time, height and width, all three the same for text; NaN for a prefix token.
        head_dim: channels of a head.
        sections: pairs of each axis, half the width in all.
        interleaved: whether the axes take turns, as in Qwen3-VL, so that each has fast and slow pairs.
        base: ratio of the slowest wavelength to the fastest, nearly.
        scaling: a value of `posenc.scaling`.
        layout: `half` pairs channel `t` with `t + rotary_dim / 2`, `interleaved` pairs `2t` with `2t + 1`.
        rotary_dim: the first channels are rotated, this many (even, by default all); the others pass through.
        precision: as in `rotary`.
        length: positions of the whole sequence, for scalings that depend on it; by default the largest position here,
            and one.

    Raises:
        ValueError: for sections that do not sum to the pairs, or that the axes cannot have by taking turns.

    >>> x = np.array([[1.0, 1.0, 0.0, 0.0]])
    >>> multimodal_rotary(x, np.array([[0, np.pi / 2]]), 4, sections=(1, 1), base=1.0).round(12).tolist()
    [[1.0, 0.0, 0.0, 1.0]]

    Wang et al., Qwen2-VL, arXiv:2409.12191; interleaved, Qwen3-VL, arXiv:2511.21631.
    """
    axes = len(sections)
    width = head_dim if rotary_dim is None else rotary_dim
    pairs = width // 2
    check(width % 2 == 0 and width <= head_dim, f"rotary_dim must be even, at most {head_dim}, got {width}")
    check(sum(sections) == pairs, f"sections must sum to the {pairs} pairs of {width} channels, got {sections}")
    check(precision in ("exact", "float32"), f"precision must be exact or float32, got {precision!r}")
    turns_with = []
    for t in range(pairs):
        if interleaved:
            axis = t % axes
            turns_with.append(axis if t < axes * sections[axis] else 0)
        else:
            turns_with.append(next(axis for axis in range(axes) if t < sum(sections[: axis + 1])))
    counts = [turns_with.count(axis) for axis in range(axes)]
    check(counts == list(sections), f"axes that take turns have {counts} pairs, got sections {list(sections)}")

    coordinates = coordinates_of(positions, axes)
    length = _length(coordinates) if length is None else length
    frequencies, factor = rotary_frequencies(pairs, base, scaling, length)
    if precision == "float32":
        frequencies = _rounded(frequencies, base)
    angles = np.zeros((len(coordinates), pairs))
    for token in standing(coordinates):
        for t in range(pairs):
            angles[token, t] = _angle(coordinates[token, turns_with[t]], frequencies[t], precision)
    return _turned(x, coordinates, angles, head_dim, layout, factor)


def xpos(
    q: Float[Array, "h i {head_dim}"],
    k: Float[Array, "h j {head_dim}"],
    query_positions: Num[AnyArray, "i *axes"],
    key_positions: Num[AnyArray, "j *axes"],
    head_dim: int,
    base: float = 10000.0,
    scale_base: float = 512.0,
    layout: str = "interleaved",
) -> Float[Array, "h i j"]:
    """Logits of rotated queries and keys whose pairs also shrink with the distance, the fast ones sooner.

    `s[h, i, j] = Σ_t ζ_t^((i − j)/B) Re(q_t k̄_t e^(√−1 (i − j) θ_t))`, with `q_t = a + √−1 b` for the pair `(a, b)`,
    `θ_t = base^(−t/P)` and `ζ_t = (t/P + γ) / (1 + γ)`, `γ = 0.4`. It has no meaning for a key after the query, whose
    factor grows: attention must be causal.

    Args:
        q: queries.
        k: keys.
        query_positions: where the queries stand, on one axis; NaN for a prefix token, which is not rotated and whose
            logits do not shrink.
        key_positions: where the keys stand.
        head_dim: channels of a head, an even number.
        base: ratio of the slowest wavelength to the fastest, nearly.
        scale_base: `B`, in positions.
        layout: `half` pairs channel `t` with `t + head_dim / 2`, `interleaved` pairs `2t` with `2t + 1`.

    Raises:
        ValueError: for an odd width, an unknown layout, or arrays of another shape.

    >>> ones = np.ones((1, 1, 2))  # one pair: ζ = 0.4 / 1.4
    >>> logit = xpos(ones, ones, np.array([512]), np.array([0]), head_dim=2)
    >>> bool(np.isclose(logit.item(), 2 * math.cos(512) * 0.4 / 1.4))
    True

    Sun et al., A Length-Extrapolatable Transformer, arXiv:2212.10554.
    """
    check(head_dim % 2 == 0, f"head_dim must be even for rotary, got {head_dim}")
    queries, keys = coordinates_of(query_positions, 1)[:, 0], coordinates_of(key_positions, 1)[:, 0]
    check_shape("q", q, (len(q), len(queries), head_dim))
    check_shape("k", k, (len(q), len(keys), head_dim))
    q, k, pairs = float64(q), float64(k), head_dim // 2
    logits = np.zeros((len(q), len(queries), len(keys)))
    for i, query in enumerate(queries):
        for j, key in enumerate(keys):
            apart = np.nan_to_num(query) - np.nan_to_num(key)  # what is not rotated is as if it stood at 0
            decays = not math.isnan(query) and not math.isnan(key)
            for t in range(pairs):
                zeta = (t / pairs + 0.4) / (1 + 0.4) if decays else 1.0
                angle = apart * base ** (-t / pairs)
                first, second = _channels(t, pairs, layout)
                a, b, c, d = q[:, i, first], q[:, i, second], k[:, j, first], k[:, j, second]
                # Re((a + √−1 b)(c − √−1 d)(cos + √−1 sin))
                product = (a * c + b * d) * math.cos(angle) - (b * c - a * d) * math.sin(angle)
                logits[:, i, j] += zeta ** (apart / scale_base) * product
    return logits


def _length(coordinates: Float[Array, "n axes"]) -> int:
    """Positions of a sequence that ends at the largest coordinate."""
    return 1 + int(max([0.0, *(coordinates[token].max() for token in standing(coordinates))]))


def _angle(coordinate: float, frequency: float, precision: str) -> float:
    if precision == "exact":
        return coordinate * frequency
    return float(np.float32(coordinate) * np.float32(frequency))


def _rounded(frequencies: Float[Array, "pairs"], base: float) -> Float[Array, "pairs"]:
    """Frequencies as the models' code has them: each step of `1 / base^(t/P)` in float32, then scaled."""
    pairs = len(frequencies)
    rounded = np.zeros(pairs)
    for t in range(pairs):
        plain = np.float32(1) / np.float32(base) ** (np.float32(t) / np.float32(pairs))
        rounded[t] = float(plain) * (frequencies[t] / base ** (-t / pairs))
    return rounded


def _turned(
    x: AnyArray,
    coordinates: Float[Array, "n axes"],
    angles: Float[Array, "n pairs"],
    head_dim: int,
    layout: str,
    factor: float = 1.0,
) -> Float[Array, "*batch n {head_dim}"]:
    """The pairs of the standing tokens turned by their angles."""
    check_shape("x", x, (*x.shape[:-2], len(coordinates), head_dim))
    x, pairs = float64(x), angles.shape[-1]
    rotated = x.copy()
    for token in standing(coordinates):
        for pair in range(pairs):
            first, second = _channels(pair, pairs, layout)
            a, b = x[..., token, first], x[..., token, second]
            cos, sin = factor * math.cos(angles[token, pair]), factor * math.sin(angles[token, pair])
            rotated[..., token, first] = a * cos - b * sin
            rotated[..., token, second] = a * sin + b * cos
    return rotated


def _channels(pair: int, pairs: int, layout: str) -> tuple[int, int]:
    check(layout in ("half", "interleaved"), f"layout must be half or interleaved, got {layout!r}")
    return (pair, pair + pairs) if layout == "half" else (2 * pair, 2 * pair + 1)
