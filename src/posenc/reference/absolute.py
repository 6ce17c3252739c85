"""Absolute encodings: position → vector."""

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
    deal,
    row_major,
    sinusoid,
    sizes_of,
    standing,
    whole_numbers,
)


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
    coordinates = coordinates_of(positions, axes)
    order = list(range(axes)) if axis_order is None else list(axis_order)
    check(sorted(order) == list(range(axes)), f"axis_order must name each of {axes} axes once, got {axis_order}")
    check(layout in ("interleaved", "concatenated"), f"layout must be interleaved or concatenated, got {layout!r}")
    widths = deal(dim, axes, "channels")

    vectors = np.zeros((len(coordinates), dim))
    for token in standing(coordinates):
        channel = 0
        for axis in order:
            block = sinusoid(coordinates[token, axis], widths[axis], base)
            if layout == "concatenated":
                block = np.concatenate([block[0::2], block[1::2]])
            vectors[token, channel : channel + widths[axis]] = block
            channel += widths[axis]
    return vectors


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
    check(length >= 0, f"length must not be negative, got {length}")
    check(dim >= 1, f"dim must be at least 1, got {dim}")
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
    sizes = sizes_of(shape)
    coordinates = coordinates_of(positions, len(sizes))
    check_shape("table", table, (prefix + math.prod(sizes), dim))

    vectors = np.zeros((len(coordinates), dim))
    prefix_tokens = 0
    for token, coordinate in enumerate(coordinates):
        if np.isnan(coordinate[0]):
            check(prefix_tokens < prefix, f"the table has rows for {prefix} prefix tokens, got {prefix_tokens + 1}")
            row = prefix_tokens
            prefix_tokens += 1
        else:
            row = prefix + row_major(whole_numbers(coordinate), sizes)
        vectors[token] = table[row]
    return vectors
