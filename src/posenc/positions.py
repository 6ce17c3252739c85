"""Saying where tokens stand: a sequence, a grid, packed documents, a padded batch, or any coordinates."""

from collections.abc import Sequence as SequenceOf
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from posenc.checks import assert_on_device, readable, real, whole
from posenc.layout import Explicit, Grid, Positions, Sequence

__all__ = ["Positions", "coordinates", "grid", "packed", "padded", "sequence"]


def sequence(length: int, start: int | Int[Tensor, "*b"] = 0) -> Positions:
    """Tokens at start, start + 1, ..., start + length - 1.

    `length` is a number; `start` is a number, or an integer tensor with one entry (or one a batch row), so that a
    compiled or captured decode step serves every offset.

    Raises ValueError for a negative length, TypeError for a start that is no integer.

    >>> posenc.sequence(3, start=5).coordinates().flatten().tolist()
    [5, 6, 7]
    """
    length = whole("length", length)
    if isinstance(start, Tensor):
        if not _whole_numbers(start) or start.ndim > 1 or start.shape == (0,):
            raise TypeError(
                f"start must be an integer, or an integer tensor with one entry or one a batch row, "
                f"got {start.dtype} of shape {tuple(start.shape)}: pass start.long()"
            )
        start = _fitting("start", start)
        start = start.reshape(()) if start.shape == (1,) else start
    else:
        start = whole("start", start, -(2**62))
    return Sequence(length, start)


def grid(*shape: int, prefix: int = 0, step: int | SequenceOf[int] = 1) -> Positions:
    """The cells of a grid, row-major with the last axis fastest, after `prefix` tokens that stand nowhere.

    `shape` is one size an axis, as in `grid(height, width)` or `grid(frames, height, width)`. `step`, 1 or more, is how
    far apart neighbours stand, a number or one an axis: cell i is at coordinate i * step. Keys pooled by 2 beside a
    grid of queries are `grid(7, 7, step=2)` beside `grid(14, 14)` (MViTv2, SAM).

    Raises ValueError for no axis, a negative size, or a step below 1.

    >>> posenc.grid(2, 2, prefix=1).length
    5
    >>> posenc.grid(2, 2, step=(3, 1)).coordinates().tolist()
    [[0, 0], [0, 1], [3, 0], [3, 1]]
    """
    if not shape:
        raise ValueError("grid needs at least one size, got none: pass grid(height, width)")
    steps = tuple(step) if isinstance(step, SequenceOf) else (step,) * len(shape)
    if len(steps) != len(shape):
        raise ValueError(f"step must be one number, or one an axis, got {len(steps)} for {len(shape)} axes: drop some")
    steps = tuple(whole("step", each, 1) for each in steps)
    return Grid(tuple(whole("size", size) for size in shape), whole("prefix", prefix), steps)


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
    given = _integers("lengths", lengths) if cu_seqlens is None else _integers("cu_seqlens", cu_seqlens)
    if cu_seqlens is not None and not len(given):
        raise ValueError("cu_seqlens must begin with 0, got none: pass [0, length, ...]")
    boundaries = given if cu_seqlens is not None else F.pad(given.cumsum(0), (1, 0))
    if total is None and lengths is not None and not isinstance(lengths, Tensor):
        total = sum(lengths)
    elif total is None and cu_seqlens is not None and not isinstance(cu_seqlens, Tensor):
        total = cu_seqlens[-1]
    total = _require_documents(boundaries, None if total is None else whole("total", total))
    index = torch.arange(total, device=boundaries.device)
    document = torch.searchsorted(boundaries[1:].contiguous(), index, right=True)
    return Explicit((index - boundaries[document])[:, None], extent=(total,), document=document)


def padded(mask: Bool[Tensor, "b *shape"], start: float = 0, span: float | None = None) -> Positions:
    """A batch of sequences, images or volumes padded to one size; `mask` is True where there is a token.

    `position = max(start - 1 + c, 0)`, c = the number of real tokens up to here along the axis, this one included.

    So the first token of a line stands at `start`, padding on either side counts for nothing, and it is not seen. A
    mask `[b, l]` gives one axis, `[b, height, width]` two, with the tokens row-major as in a grid.

    Args:
        mask: boolean, `[b, l]` or `[b, *shape]`.
        start: position of the first token, 0 or more: RoBERTa's is padding_idx + 1, BART's 2, DETR's 1. A whole number,
            unless there is a span.
        span: give real positions instead, `position * span / (n + 1e-6)`, n = the number of tokens on the line: DETR's
            is 2 pi. The 1e-6 is DETR's own and keeps a line without tokens finite.

    Raises TypeError for a mask that is not boolean or a start that is not whole, ValueError for a mask without a batch
    axis, a start below 0 or a span that is not more than 0 and finite.

    >>> posenc.padded(torch.tensor([[False, False, True, True, True]])).coordinates()[..., 0].tolist()
    [[0, 0, 0, 1, 2]]
    >>> posenc.padded(torch.ones(1, 2, 2).bool(), start=1).coordinates().tolist()
    [[[1, 1], [1, 2], [2, 1], [2, 2]]]

    Liu et al., RoBERTa, 2019, arXiv:1907.11692; Carion et al., DETR, 2020, arXiv:2005.12872.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a boolean tensor, True = a token, got {kind}: pass mask.bool()")
    if mask.ndim < 2:
        raise ValueError(
            f"mask must be [batch, tokens] or [batch, *shape], got shape {tuple(mask.shape)}: add an axis for the batch"
        )
    present, axes = mask.flatten(1), range(1, mask.ndim)
    if span is not None:
        detr = "DETR's are start=1 and span=2 * math.pi"
        start, span = real("start", start, detr), real("span", span, detr)
        if start < 0 or span <= 0:
            raise ValueError(f"start must be 0 or more and span more than 0, got start={start} and span={span}: {detr}")
        lines = [(mask.cumsum(axis).double(), mask.sum(axis, keepdim=True).double()) for axis in axes]
        values = [(count + (start - 1)).clamp(min=0) / (number + 1e-6) * span for count, number in lines]
        return Explicit(torch.stack(values, -1).flatten(1, -2), present=present)
    start = whole("start", start)
    counts = torch.stack([mask.cumsum(axis) for axis in axes], -1).flatten(1, -2)  # padding that comes first has 0
    if start:
        return Explicit(counts, origin=start - 1, extent=tuple(size + 1 for size in mask.shape[1:]), present=present)
    return Explicit((counts - 1).clamp(min=0), extent=tuple(mask.shape[1:]), present=present)


def coordinates(
    values: Any,
    prefix: int = 0,
    order: Tensor | None = None,
    document: Tensor | None = None,
    extent: int | SequenceOf[int] | None = None,
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
    if not isinstance(values, Tensor):
        try:
            values = torch.as_tensor(values)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"coordinates must be numbers of one shape, got {type(values).__name__}: {error}"
            ) from error
    if values.dtype == torch.bool or values.is_complex() or (values.is_floating_point() and values.itemsize < 4):
        half = "half precision cannot tell neighbours apart, so compute positions in integers"
        advice = half if values.is_floating_point() else "pass real numbers, an axis each"
        raise TypeError(f"coordinates must be integer, float32 or float64, got {values.dtype}: {advice}")
    if values.ndim not in (2, 3) or values.shape[-1] == 0:
        raise ValueError(
            f"coordinates must be [tokens, axes] or [batch, tokens, axes], got shape {tuple(values.shape)}: "
            "for one axis pass values[..., None]"
        )
    prefix = whole("prefix", prefix)
    length = values.shape[-2] + prefix
    for name, tensor in (("order", order), ("document", document)):
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor) or tensor.dtype == torch.bool or tensor.is_complex():
            raise TypeError(f"{name} must be a tensor of numbers, got {tensor!r}: pass torch.tensor([...])")
        if tensor.ndim not in (1, 2) or tensor.shape[-1] != length:
            raise ValueError(
                f"{name} must have one entry a token, prefix included, got shape {tuple(tensor.shape)} "
                f"for {length} tokens"
            )
        if tensor.is_floating_point():
            _require(~tensor.isnan().any(), f"{name} must be numbers, got NaN", "NaN stands nowhere")
        elif name == "order":  # of which differences are taken
            _fitting(name, tensor)
        if name == "document" and tensor.is_floating_point():
            _require(tensor.isfinite().all(), "document must be finite, got infinity", "number the documents")
    values = values.double() if values.is_floating_point() else _fitting("coordinates", values)
    if extent is not None:
        extents = extent if isinstance(extent, SequenceOf) else (extent,) * values.shape[-1]
        extent = tuple(whole("extent", size) for size in extents)
        _require_extent(values, extent)
    elif values.is_floating_point():
        message = "coordinates must be finite, got NaN or infinity"
        _require(values.isfinite().all(), message, "prefix tokens are said with prefix=")
    return Explicit(values, prefix=prefix, extent=extent, order=order, ordered=False, document=document)


def _require_documents(boundaries: Tensor, total: int | None) -> int:
    """The number of tokens, where the boundaries are those of documents; checked on the device if it must be."""
    first, last, rises = boundaries[0] == 0, boundaries[-1], (boundaries.diff() >= 0).all()
    if not readable(boundaries):
        if total is None:
            raise ValueError("packed cannot read its lengths here: pass total=, the number of tokens")
        assert_on_device(first & rises & (last == total), "documents need lengths of 0 or more that sum to total")
        return total
    if not (first and rises):
        raise ValueError(f"documents need lengths of 0 or more from 0 on, got boundaries {boundaries.tolist()}")
    if total is not None and total != int(last):
        raise ValueError(f"total must be the sum of the lengths {int(last)}, got {total}: leave it out")
    return int(last)


def _require_extent(values: Tensor, extent: tuple[int, ...]) -> None:
    if values.is_floating_point():
        raise ValueError("extent is for integer coordinates, got real ones: leave extent out, or round them")
    if len(extent) != values.shape[-1]:
        raise ValueError(f"extent needs one size an axis, got {len(extent)} for {values.shape[-1]} axes")
    columns = zip(values.unbind(-1), extent, strict=True)
    inside = torch.stack([((column >= 0) & (column < size)).all() for column, size in columns]).all()
    message = f"coordinates must be from 0 up to, not including, extent {extent}"
    if not readable(values):
        assert_on_device(inside, message)
    elif not inside:
        raise ValueError(f"{message}, got {int(values.min())} to {int(values.max())}: give a larger extent")


def _integers(name: str, values: Any) -> Tensor:
    if not isinstance(values, Tensor):
        try:
            if not isinstance(values, SequenceOf | np.ndarray):  # a set has no order, and a generator ends
                raise TypeError(f"{type(values).__name__} is no list")
            values = torch.tensor([whole(name, value) for value in values], dtype=torch.int64)
        except TypeError as error:
            raise TypeError(f"{name} must be one list of integers, got {values!r}") from error
    tensor: Tensor = values
    if not _whole_numbers(tensor) or tensor.ndim != 1:
        raise TypeError(f"{name} must be one list of integers, got {tensor.dtype} of shape {tuple(tensor.shape)}")
    return _fitting(name, tensor)


def _whole_numbers(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _fitting(name: str, tensor: Tensor) -> Tensor:
    """Integers as int64, of which the difference of any two is one too."""
    values = tensor.long()
    if tensor.dtype == torch.uint64 or (tensor.dtype == torch.int64 and readable(tensor)):  # others fit
        inside = (values >= (0 if tensor.dtype == torch.uint64 else -(2**62))) & (values <= 2**62)
        _require(inside.all(), f"{name} must fit in 62 bits, got larger numbers", "count from where the tokens begin")
    return values


def _require(condition: Tensor, message: str, advice: str) -> None:
    """Raise where a condition is False, on the host if it can be read there."""
    if not readable(condition):
        assert_on_device(condition, message)
    elif not condition:
        raise ValueError(f"{message}: {advice}")
