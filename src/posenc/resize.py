"""Trained tables at another length or resolution, as pure functions."""

import math
from collections.abc import Sequence as SequenceOf
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from posenc.checks import flag, sizes, whole

__all__ = ["resize_table"]


def resize_table(
    table: Float[Tensor, "rows dim"],
    source: int | SequenceOf[int],
    target: int | SequenceOf[int],
    prefix: int = 0,
    mode: Literal["bicubic", "linear", "nearest"] = "bicubic",
    antialias: bool = True,
) -> Float[Tensor, "new_rows dim"]:
    """A `Learned` table interpolated from the grid `source` to the grid `target`, one axis after the other.

    Cells are at the centres of equal intervals (`align_corners=False`), for any number of axes.

    Args:
        table: `[prefix + prod(source), dim]`, row-major, any real dtype; interpolated in float32 or wider.
        source, target: size of each axis, or a number of tokens for one axis. They are never guessed from the rows.
        prefix: number of leading rows that belong to prefix tokens; they are kept bit-identical.
        mode: "bicubic" (Catmull-Rom-like, a = -0.5 with antialias and -0.75 without, as torch has it), "linear", or
            "nearest".
        antialias: widen the kernel when an axis shrinks; of no effect where it grows, or for "nearest".

    Returns `[prefix + prod(target), dim]` in the table's dtype; the same size gives a copy that is bit-identical.
    Raises ValueError where rows, source and target do not fit together.

    >>> posenc.resize_table(torch.randn(1 + 2 * 3, 8), (2, 3), (4, 6), prefix=1).shape
    torch.Size([25, 8])

    Dosovitskiy et al., ViT, 2020, arXiv:2010.11929, section 3.2.
    """
    before, after, prefix = sizes("source", source), sizes("target", target), whole("prefix", prefix)
    if len(before) != len(after):
        raise ValueError(f"source and target must be of the same axes, got {before} and {after}: give one size an axis")
    if not isinstance(table, Tensor) or not table.is_floating_point():
        raise TypeError(
            f"table must be a tensor of real numbers, got {getattr(table, 'dtype', type(table))}: convert it"
        )
    if table.ndim != 2 or table.shape[0] != prefix + math.prod(before):
        raise ValueError(
            f"table must have {prefix} prefix rows and {math.prod(before)} for the grid {before}, got shape "
            f"{tuple(table.shape)}: give the grid and the prefix that it was trained with"
        )
    if mode not in ("bicubic", "linear", "nearest"):
        raise ValueError(f"mode must be 'bicubic', 'linear' or 'nearest', got {mode!r}: pass one of them")
    antialias = flag("antialias", antialias)
    if before == after:
        return table.clone()
    cells = table[prefix:].to(torch.promote_types(table.dtype, torch.float32)).reshape(*before, -1)
    for axis, size in enumerate(after):
        cells = _resize_axis(cells.movedim(axis, -1), size, mode, antialias).movedim(-1, axis)
    return torch.cat([table[:prefix], cells.flatten(0, -2).to(table.dtype)])


def _resize_axis(cells: Tensor, size: int, mode: str, antialias: bool) -> Tensor:
    """The last axis interpolated, as images of one row (torch 2.13 antialiases images of one column wrongly)."""
    if cells.shape[-1] == size:
        return cells
    image = cells.flatten(0, -2)[:, None, None, :]
    if mode == "nearest":
        image = F.interpolate(image, size=(1, size), mode="nearest-exact")
    else:
        kernel = "bicubic" if mode == "bicubic" else "bilinear"
        image = F.interpolate(image, size=(1, size), mode=kernel, align_corners=False, antialias=antialias)
    return image.reshape(*cells.shape[:-1], size)
