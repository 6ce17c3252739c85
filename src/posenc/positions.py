"""Saying where tokens stand: a sequence, a grid, packed documents, a padded batch, or any coordinates."""

from collections.abc import Sequence as SequenceOf
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from posenc.layout import Explicit, Grid, Positions, Sequence, assert_on_device, readable

__all__ = ["Positions", "coordinates", "grid", "packed", "padded", "sequence"]


def sequence(length: int, start: int | Int[Tensor, "*b"] = 0) -> Positions:
    """Tokens at start, start + 1, ..., start + length - 1.

    `length` is a number; `start` is a number, or an integer tensor with one entry (or one a batch row), so that a
    compiled or captured decode step serves every offset.

    Raises ValueError for a negative length, TypeError for a start that is no integer.

    >>> posenc.sequence(3, start=5).coordinates().flatten().tolist()
    [5, 6, 7]
    """
    _require_size("length", length)
    if isinstance(start, Tensor):
        if start.is_floating_point() or start.dtype == torch.bool or start.ndim > 1:
            raise TypeError(
                f"start must be an integer, or an integer tensor with one entry or one a batch row, "
                f"got {start.dtype} of shape {tuple(start.shape)}: pass start.long()"
            )
        start = start.long()
        start = start.reshape(()) if start.shape == (1,) else start
    elif isinstance(start, bool) or not isinstance(start, int | torch.SymInt):
        raise TypeError(f"start must be an integer, got {start!r}: pass whole positions, or use posenc.coordinates")
    return Sequence(length, start)


def grid(*shape: int, prefix: int = 0) -> Positions:
    """The cells of a grid, row-major with the last axis fastest, after `prefix` tokens that stand nowhere.

    `shape` is one size an axis, as in `grid(height, width)` or `grid(frames, height, width)`.

    Raises ValueError for no axis or a negative size.

    >>> posenc.grid(2, 2, prefix=1).length
    5
    >>> posenc.grid(2, 2).coordinates().tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    if not shape:
        raise ValueError("grid needs at least one size, got none: pass grid(height, width)")
    for size in shape:
        _require_size("size", size)
    _require_size("prefix", prefix)
    return Grid(shape, prefix)


def packed(
    lengths: SequenceOf[int] | Int[Tensor, "documents"] | None = None,
    *,
    cu_seqlens: SequenceOf[int] | Int[Tensor, "boundaries"] | None = None,
    total: int | None = None,
) -> Positions:
    """Documents one after another: positions restart at each, and documents do not see each other.

    Give `lengths`, or `cu_seqlens` (their running sum, from 0). Both may be tensors; `total` is then the number of
    tokens, for where it must not be read from them (under `torch.compile`, or on an accelerator).

    Raises ValueError for both or neither, for negative lengths, and for a `total` that disagrees.

    >>> posenc.packed([2, 1, 3]).coordinates().flatten().tolist()
    [0, 1, 0, 0, 1, 2]
    """
    if (lengths is None) == (cu_seqlens is None):
        raise ValueError("packed needs lengths or cu_seqlens, got both or neither: pass one of them")
    if lengths is not None:
        sizes = _integers("lengths", lengths)
        boundaries = F.pad(sizes.cumsum(0), (1, 0))
    else:
        boundaries = _integers("cu_seqlens", cu_seqlens)
        if boundaries.numel() == 0:
            raise ValueError("cu_seqlens must begin with 0, got none: pass [0, length, ...]")
        sizes = boundaries.diff()
    if readable(sizes):
        if (sizes < 0).any() or int(boundaries[0]) != 0:
            raise ValueError(f"documents need lengths of 0 or more, got {sizes.tolist()} from {int(boundaries[0])}")
        if total is not None and total != int(boundaries[-1]):
            raise ValueError(f"total must be the sum of the lengths {int(boundaries[-1])}, got {total}: leave it out")
    elif total is None:
        raise ValueError("packed cannot read its lengths here: pass total=, the number of tokens")
    count = int(boundaries[-1]) if total is None else total
    index = torch.arange(count, device=boundaries.device)
    document = torch.searchsorted(boundaries[1:].contiguous(), index, right=True)
    return Explicit((index - boundaries[document])[:, None], extent=(count,), document=document)


def padded(mask: Bool[Tensor, "b l"]) -> Positions:
    """A batch of sequences padded on the left or on the right; `mask` is True where there is a token.

    Positions count the real tokens of each row from 0, and padding is not seen.

    Raises TypeError for a mask that is not boolean, ValueError for one that is not `[batch, tokens]`.

    >>> posenc.padded(torch.tensor([[False, False, True, True, True]])).coordinates()[..., 0].tolist()
    [[0, 0, 0, 1, 2]]
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a boolean tensor, True = a token, got {kind}: pass mask.bool()")
    if mask.ndim != 2:
        raise ValueError(f"mask must be [batch, tokens], got shape {tuple(mask.shape)}: add or drop an axis")
    position = (mask.long().cumsum(1) - 1).clamp(min=0)
    return Explicit(position[..., None], extent=(mask.shape[1],), present=mask)


def coordinates(
    values: Any,
    prefix: int = 0,
    order: Tensor | None = None,
    document: Tensor | None = None,
    extent: int | tuple[int, ...] | None = None,
) -> Positions:
    """Any coordinates, `[tokens, axes]` or `[batch, tokens, axes]`, integer or real.

    `values` leaves out the `prefix` tokens; `order` and `document`, `[length]` or `[batch, length]`, cover all tokens.
    `order` is needed for `causal` and `window`. Integer values from 0 up to, not including, `extent` (a number, or
    one an axis) allow everything to be looked up in one table.

    Raises TypeError for half precision, where 257 is 256; ValueError for shapes that disagree or values outside
    `extent`.

    >>> posenc.coordinates([[0.5], [2.25]]).coordinates().flatten().tolist()
    [0.5, 2.25]
    """
    values = values if isinstance(values, Tensor) else torch.as_tensor(values)
    if values.dtype in (torch.float16, torch.bfloat16, torch.bool) or values.is_complex():
        raise TypeError(
            f"coordinates must be integer, float32 or float64, got {values.dtype}: "
            "half precision cannot tell neighbours apart, so compute positions in integers"
        )
    if values.ndim not in (2, 3):
        raise ValueError(
            f"coordinates must be [tokens, axes] or [batch, tokens, axes], got shape {tuple(values.shape)}: "
            "for one axis pass values[..., None]"
        )
    _require_size("prefix", prefix)
    length = values.shape[-2] + prefix
    for name, tensor in (("order", order), ("document", document)):
        if tensor is not None and (tensor.ndim not in (1, 2) or tensor.shape[-1] != length):
            raise ValueError(
                f"{name} must have one entry a token, prefix included, got shape {tuple(tensor.shape)} "
                f"for {length} tokens"
            )
    values = values.double() if values.is_floating_point() else values.long()
    if extent is not None:
        extent = (extent,) * values.shape[-1] if isinstance(extent, int | torch.SymInt) else tuple(extent)
        _require_extent(values, extent)
    return Explicit(values, prefix=prefix, extent=extent, order=order, ordered=False, document=document)


def _require_extent(values: Tensor, extent: tuple[int, ...]) -> None:
    if values.is_floating_point():
        raise ValueError("extent is for integer coordinates, got real ones: leave extent out, or round them")
    if len(extent) != values.shape[-1]:
        raise ValueError(f"extent needs one size an axis, got {len(extent)} for {values.shape[-1]} axes")
    inside = ((values >= 0) & (values < torch.tensor(extent, device=values.device))).all()
    message = f"coordinates must be from 0 up to, not including, extent {extent}"
    if not readable(values):
        assert_on_device(inside, message)
    elif not inside:
        raise ValueError(f"{message}, got {int(values.min())} to {int(values.max())}: give a larger extent")


def _require_size(name: str, size: int) -> None:
    if isinstance(size, bool) or not isinstance(size, int | torch.SymInt):
        raise TypeError(f"{name} must be an integer, got {size!r}: pass a whole number of tokens")
    if size < 0:
        raise ValueError(f"{name} must be 0 or more, got {size}: pass a number of tokens")


def _integers(name: str, values: Any) -> Tensor:
    tensor = values if isinstance(values, Tensor) else torch.as_tensor(list(values), dtype=torch.int64)
    if tensor.is_floating_point() or tensor.dtype == torch.bool or tensor.ndim != 1:
        raise TypeError(f"{name} must be one list of integers, got {tensor.dtype} of shape {tuple(tensor.shape)}")
    return tensor.long()
