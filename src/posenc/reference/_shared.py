"""What the references share: checks of their input, tokens, pairs of tokens, and the order of a grid."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

Array = NDArray[np.float64]
AnyArray = NDArray[Any]  # positions and tables of integers are as good as floats


def check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def check_shape(name: str, array: AnyArray, wanted: tuple[int, ...]) -> None:
    check(np.shape(array) == wanted, f"{name} must have shape {list(wanted)}, got {list(np.shape(array))}")


def float64(array: AnyArray) -> Array:
    return np.asarray(array, dtype=np.float64)


def sigmoid(x: float) -> float:
    """`1 / (1 + exp(−x))`, of any number."""
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def softplus(x: float) -> float:
    """`log(1 + exp(x))`, of any number."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def queries_of(q: AnyArray, queries: int, head_dim: int) -> Float[Array, "h {queries} {head_dim}"]:
    check_shape("q", q, (len(q), queries, head_dim))
    return float64(q)


def coordinates_of(positions: AnyArray, axes: int) -> Float[Array, "n {axes}"]:
    """Positions as `[tokens, axes]` in float64; a token stands on every axis or on none."""
    coordinates = float64(positions)
    if coordinates.ndim == 1 and axes == 1:
        coordinates = coordinates[:, None]
    wanted = f"positions must have shape [tokens, {axes}], got {list(coordinates.shape)}"
    check(axes >= 1 and coordinates.ndim == 2 and coordinates.shape[1] == axes, wanted)
    for missing in np.isnan(coordinates).tolist():
        check(all(missing) or not any(missing), "a token must stand on every axis or on none, got NaN on some")
    return coordinates


def standing(coordinates: Float[Array, "n axes"]) -> list[int]:
    """The tokens that stand somewhere: all but the prefix."""
    return [token for token, coordinate in enumerate(coordinates) if not np.isnan(coordinate).any()]


def each_pair(
    query_positions: AnyArray, key_positions: AnyArray, axes: int
) -> Iterator[tuple[int, int, Float[Array, "{axes}"]]]:
    """Each query and key that both stand somewhere, and the relative position of the two: query − key."""
    queries, keys = coordinates_of(query_positions, axes), coordinates_of(key_positions, axes)
    for i in standing(queries):
        for j in standing(keys):
            yield i, j, queries[i] - keys[j]


def whole_numbers(values: Sequence[float] | AnyArray) -> list[int]:
    """Whole numbers, or an error: a table has no row between two positions."""
    check(all(float(value).is_integer() for value in values), f"a table needs whole positions, got {list(values)}")
    return [int(value) for value in values]


def sizes_of(shape: int | Sequence[int], smallest: int = 1) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    check(len(sizes) >= 1 and min(sizes) >= smallest, f"shape must have sizes of at least {smallest}, got {shape}")
    return sizes


def deal(total: int, axes: int, what: str) -> list[int]:
    """`total` things dealt to the axes one by one, so that earlier axes have at most one more."""
    check(total >= axes >= 1, f"each of {axes} axes needs {what}, got {total}")
    shares = [0] * axes
    for turn in range(total):
        shares[turn % axes] += 1
    return shares


def row_major(place: Sequence[int], sizes: Sequence[int]) -> int:
    """The index of a place on a grid, the last axis fastest."""
    index = 0
    for step, size in zip(place, sizes, strict=True):
        check(0 <= step < size, f"position {list(place)} is outside a table of shape {list(sizes)}")
        index = index * size + step
    return index


def relative_row(relative: Sequence[int], sizes: Sequence[int]) -> int:
    """The row-major index of `relative + size − 1` within `2 · size − 1`."""
    for lag, size in zip(relative, sizes, strict=True):
        check(abs(lag) < size, f"relative position {list(relative)} is outside a table of shape {list(sizes)}")
    return row_major(
        [lag + size - 1 for lag, size in zip(relative, sizes, strict=True)], [2 * size - 1 for size in sizes]
    )


def sinusoid(position: float, width: int, base: float) -> Float[Array, "{width}"]:
    """sin, cos, sin, cos … of one coordinate; an odd width ends in a sine."""
    vector = np.zeros(width)
    for channel in range(width):
        pair = channel // 2
        angle = position * base ** (-2 * pair / width)
        # p[2t] = sin(angle_t), p[2t + 1] = cos(angle_t)
        vector[channel] = math.sin(angle) if channel % 2 == 0 else math.cos(angle)
    return vector


def heads_of(
    name: str, table: AnyArray, num_heads: int | None, heads: int, rows: int, head_dim: int
) -> list[Float[Array, "rows d"]]:
    """One table for each head: its own, or the one that all share."""
    check(num_heads in (None, heads), f"num_heads is {num_heads}, but there are {heads} heads")
    check_shape(name, table, (1 if num_heads is None else heads, rows, head_dim))
    return [float64(table)[0 if num_heads is None else head] for head in range(heads)]
