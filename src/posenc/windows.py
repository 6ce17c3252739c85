"""Neighbourhood windows: each query sees the keys around it, on any number of axes, as a mask for attention."""

from collections.abc import Sequence as SequenceOf

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor

from posenc.checks import flag, sizes, whole
from posenc.layout import Device

__all__ = ["neighbourhood"]


def neighbourhood(
    shape: int | SequenceOf[int],
    size: int | SequenceOf[int],
    dilation: int | SequenceOf[int] = 1,
    shifted: bool = True,
    *,
    prefix: int = 0,
    device: Device = None,
) -> Bool[Tensor, "1 1 l l"]:
    """Which cells of a grid see which: a window of `size` keys around each query, `mask=` of `attention`.

    Query i sees key j where, on each axis, `start <= j < start + size` with `start = i - floor(size / 2)`; shifted,
    `start` is moved to where the window lies inside the axis, so that every query sees just as many keys, and one at a
    border is not in the middle of its own. With a dilation D, positions that are equal modulo D are an axis of their
    own, of every D-th position.

    Args:
        shape: size of each axis of the grid, row-major.
        size: keys that a query sees on each axis, one number or one an axis. An even window has one key more before.
        dilation: steps between them, one number or one an axis.
        shifted: move windows at the border inside (NATTEN); otherwise they are cut there (a sliding window).
        prefix: tokens before the grid, which see and are seen by all.
        device: where the mask is made.

    Raises ValueError for a shifted window that is larger than its axis, with its dilation.

    >>> posenc.neighbourhood(5, 3)[0, 0].int().tolist()
    [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 1, 1, 1]]

    Hassani et al., Neighborhood Attention Transformer, 2022, arXiv:2204.07143; Hassani and Shi, Dilated Neighborhood
    Attention Transformer, 2022, arXiv:2209.15001.
    """
    shape, prefix, shifted = sizes("shape", shape), whole("prefix", prefix), flag("shifted", shifted)
    windows, steps = _each_axis("size", size, len(shape)), _each_axis("dilation", dilation, len(shape))
    seen = torch.ones(1, 1, dtype=torch.bool, device=device)
    for axis, (length, window, step) in enumerate(zip(shape, windows, steps, strict=True)):
        if shifted and window * step > length:
            where = f" on axis {axis}" if len(shape) > 1 else ""
            raise ValueError(
                f"size times dilation must be at most the {length} positions{where}, got {window} times {step}: "
                "take a smaller window, or shifted=False to cut it at the border"
            )
        near = _along(length, window, step, shifted, device)
        cells = seen.shape[0] * length
        seen = (seen[:, None, :, None] & near[None, :, None, :]).reshape(cells, cells)
    return F.pad(seen, (prefix, 0, prefix, 0), value=True)[None, None]


def _along(length: int, size: int, dilation: int, shifted: bool, device: Device) -> Bool[Tensor, "l l"]:
    """The windows of one axis."""
    position = torch.arange(length, device=device)
    group, place = position % dilation, position // dilation
    start = place - size // 2
    if shifted:
        members = (length - group + dilation - 1) // dilation  # positions of this group
        start = torch.minimum(start.clamp(min=0), members - size)
    ahead = place[None, :] - start[:, None]
    return (ahead >= 0) & (ahead < size) & (group[:, None] == group[None, :])


def _each_axis(name: str, value: int | SequenceOf[int], axes: int) -> tuple[int, ...]:
    given = sizes(name, value)
    if len(given) == 1:
        return given * axes
    if len(given) != axes:
        raise ValueError(f"{name} needs one number, or one an axis, got {len(given)} for {axes} axes: pass {axes}")
    return given
