"""Who sees whom in a neighbourhood."""

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

from posenc.reference._shared import check, row_major, sizes_of


def neighbourhood(
    shape: int | Sequence[int],
    size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    shifted: bool = True,
    prefix: int = 0,
) -> Bool[NDArray[np.bool_], "n n"]:
    """Which keys of a grid a query sees: a window of them around itself.

    Centred, those at `d (−k // 2), …, −d, 0, d, …, d ((k − 1) // 2)` from it along each axis, as far as there are any.
    Shifted, a window that would reach over the border is moved inside, so that every query sees `k` keys an axis. With
    a dilation `d` a query sees only the tokens whose coordinate leaves the same remainder after division by `d`, and
    the window moves among those.

    Args:
        shape: size of the grid along each axis, tokens row-major.
        size: keys in the window along each axis.
        dilation: distance of neighbours in the window, along each axis.
        shifted: whether windows are moved inside at the border, as NATTEN does.
        prefix: tokens before the grid, which see and are seen by all.

    Raises:
        ValueError: for another number of sizes than axes, sizes below 1, or a shifted window larger than the grid.

    >>> neighbourhood(5, 3)[0].tolist()  # moved inside
    [True, True, True, False, False]
    >>> neighbourhood(5, 3, shifted=False)[0].tolist()
    [True, True, False, False, False]
    >>> neighbourhood((4, 4), 3).sum(axis=1).tolist()
    [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]

    Hassani et al., Neighborhood Attention Transformer, arXiv:2204.07143; dilated, Hassani and Shi, arXiv:2209.15001.
    """
    lengths = sizes_of(shape)
    windows = _one_an_axis("size", size, len(lengths))
    dilations = _one_an_axis("dilation", dilation, len(lengths))
    seen = [
        [_window(place, length, window, step, shifted) for place in range(length)]
        for length, window, step in zip(lengths, windows, dilations, strict=True)
    ]
    cells = list(itertools.product(*(range(length) for length in lengths)))
    mask = np.ones((prefix + len(cells), prefix + len(cells)), dtype=bool)
    mask[prefix:, prefix:] = False
    for query in cells:
        for key in itertools.product(*(seen[axis][place] for axis, place in enumerate(query))):
            mask[prefix + row_major(query, lengths), prefix + row_major(key, lengths)] = True
    return mask


def _window(place: int, length: int, size: int, dilation: int, shifted: bool) -> list[int]:
    """The places on one axis that a query at `place` sees."""
    if not shifted:
        around = [place + dilation * step for step in range(-(size // 2), (size + 1) // 2)]
        return [key for key in around if 0 <= key < length]
    group = [key for key in range(length) if key % dilation == place % dilation]
    check(size <= len(group), f"a window of {size} must fit {len(group)} tokens, {dilation} apart: take a smaller one")
    first = group.index(place) - size // 2
    while first < 0:
        first += 1
    while first + size > len(group):
        first -= 1
    return group[first : first + size]


def _one_an_axis(name: str, value: int | Sequence[int], axes: int) -> tuple[int, ...]:
    values = (value,) * axes if isinstance(value, int) else tuple(value)
    check(len(values) == axes and min(values) >= 1, f"{name} must be 1 or more, one an axis of {axes}, got {value}")
    return values
