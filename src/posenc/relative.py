"""Relative positions of a query layout and a key layout: relative = query position - key position.

Everything that depends on the relative position alone is a function on a box of integer lags, one interval an axis,
and each token has one additive code: `box[code_query[i] + code_key[j]]` is the entry of the pair (i, j), for sequences,
grids, packed and padded batches alike. `skewing` has the same lookup for one axis by reshaping.
"""

from collections.abc import Sequence as SequenceOf
from functools import lru_cache
from math import prod
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Int, Shaped
from torch import Tensor

from posenc.checks import assert_on_device, sizes
from posenc.kernels.eager import transformed, unwatched
from posenc.layout import Device, Positions
from posenc.positions import grid, sequence

__all__ = ["Relative", "relative_index", "relative_to"]


def relative_to(queries: Positions, keys: Positions) -> "Relative":
    """`Relative(queries, keys)`, the same one again where both were made from no tensor that may change.

    The layers of a step share what it keeps.
    """
    kept = queries.device is None and keys.device is None and _lasts()
    return _kept_relative(queries, keys) if kept else Relative(queries, keys)


def _lasts() -> bool:
    """Whether what is made now may serve later calls: tensors of a trace or a transform may not."""
    return unwatched() and not transformed()


@lru_cache(maxsize=16)
def _kept_sequence(length: int) -> Positions:
    return sequence(length)


@lru_cache(maxsize=16)
def _kept_last(keys: Positions, count: int) -> Positions:
    return keys.last(count)


@lru_cache(maxsize=16)
def _kept_relative(queries: Positions, keys: Positions) -> "Relative":
    return Relative(queries, keys)


class Relative:
    """The relative positions of queries (i) to keys (j), in whatever form a scheme or a backend asks for."""

    def __init__(self, queries: Positions, keys: Positions | None = None) -> None:
        keys = queries if keys is None else keys
        if queries.axes != keys.axes:
            raise ValueError(
                f"queries and keys must stand on the same axes, got {queries.axes} and {keys.axes}: "
                "give both layouts as grids, or both as sequences"
            )
        ours, theirs = queries.batch, keys.batch
        if ours is not None and theirs is not None and ours != theirs and ours != 1 and theirs != 1:
            raise ValueError(f"queries and keys must be of one batch, got {ours} and {theirs} rows of positions")
        self.queries, self.keys = queries, keys
        self._kept: dict[tuple[torch.device, int | None], tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(cls, queries: int, keys: int, positions: Positions | None, key_positions: Positions | None) -> "Relative":
        """The layouts of `queries` and `keys` tokens, from what a caller says of them.

        Nothing: the queries are the last tokens of a sequence of keys. Only `positions`: they are of the keys, and the
        queries are the last of them. Both: each its own.
        """
        for name, layout in (("positions", positions), ("key_positions", key_positions)):
            if layout is not None and not isinstance(layout, Positions):
                raise TypeError(
                    f"{name} must be made by posenc.sequence, grid, packed, padded, multimodal or coordinates, "
                    f"got {type(layout).__name__}: wrap numbers in posenc.coordinates"
                )
        if positions is None and key_positions is not None:
            raise ValueError(
                "key_positions needs positions too, got key_positions alone: pass the queries' as positions"
            )
        if key_positions is None:
            lasts = _lasts()
            key_positions = positions or (_kept_sequence(keys) if lasts else sequence(keys))
            if key_positions.length != keys:
                advice = "pass positions for the queries and key_positions for the keys"
                raise ValueError(
                    f"positions must cover the {keys} keys, got {key_positions.length} tokens: "
                    + ("make the layout of that size" if queries == keys else advice)
                )
            kept = lasts and key_positions.device is None
            last = _kept_last(key_positions, queries) if kept else key_positions.last(queries)
            return relative_to(last, key_positions)
        assert positions is not None
        for name, layout, length in (("positions", positions, queries), ("key_positions", key_positions, keys)):
            if layout.length != length:
                raise ValueError(
                    f"{name} must cover {length} tokens, got {layout.length}: make a layout of that length"
                )
        return relative_to(positions, key_positions)

    @property
    def axes(self) -> int:
        return self.queries.axes

    @property
    def batch(self) -> int | None:
        """Number of batch rows that stand at places of their own, or None where all stand alike."""
        rows = [batch for batch in (self.queries.batch, self.keys.batch) if batch is not None]
        return max(rows) if rows else None

    def require_batch(self, rows: int) -> None:
        """Raise where positions are for another number of rows than the tensors they are used with."""
        if self.batch is not None and self.batch != 1 and self.batch != rows:
            raise ValueError(f"positions must be for the {rows} rows of the batch, got {self.batch}: give each its own")

    @property
    def box(self) -> tuple[int, ...] | None:
        """Number of lags on each axis, or None where coordinates may be anything."""
        if self.queries.extent is None or self.keys.extent is None:
            return None
        return tuple(q + k - 1 for q, k in zip(_spans(self.queries.extent), _spans(self.keys.extent), strict=True))

    def lags(self, axis: int, device: Device = None) -> Int[Tensor, "b lags"]:
        """The lags of one axis of the box, ascending."""
        assert self.box is not None
        assert self.keys.extent is not None
        span = _spans(self.keys.extent)[axis]
        first = _batched(self.queries.origin, device) - _batched(self.keys.origin, device) - (span - 1)
        lags = first + torch.arange(self.box[axis], device=device)
        return lags if lags.ndim == 2 else lags[None]

    def lag_table(self, device: Device = None) -> Int[Tensor, "b entries n"]:
        """All lags of the box, row-major: the argument of a function of relative position."""
        columns = []
        for axis in range(self.axes):
            lags = self.lags(axis, device)
            lags = lags.reshape(lags.shape[0], *[lags.shape[1] if other == axis else 1 for other in range(self.axes)])
            columns.append(lags.expand(-1, *(self.box or ())).flatten(1))
        return torch.stack(columns, -1)

    def codes(self, device: Device = None, axis: int | None = None) -> tuple[Int[Tensor, "b i"], Int[Tensor, "b j"]]:
        """One integer a token: the pair (i, j) reads entry `code_query[i] + code_key[j]` of the box, or of one axis."""
        assert self.box is not None
        assert self.keys.extent is not None
        queries, keys = _rows(self.queries.offsets(device)), _rows(self.keys.offsets(device))
        code_query, code_key = queries.new_zeros(queries.shape[:-1]), keys.new_zeros(keys.shape[:-1])
        spans = _spans(self.keys.extent)
        for each in range(self.axes) if axis is None else (axis,):
            code_query = code_query * self.box[each] + queries[..., each] + (spans[each] - 1)
            code_key = code_key * self.box[each] - keys[..., each]
        return code_query, code_key

    def short_codes(
        self, device: Device = None, axis: int | None = None
    ) -> tuple[Int[Tensor, "b i"], Int[Tensor, "b j"]]:
        """The codes in 32 bits, kept for the next layer where positions were made from no tensor that may change."""
        if self.queries.device is not None or self.keys.device is not None or not _lasts():
            code_query, code_key = (code.clamp(-(2**30), 2**30) for code in self.codes(device, axis))
            return code_query.int().contiguous(), code_key.int().contiguous()
        wanted = torch.device(device or "cpu"), axis
        if wanted not in self._kept:
            with torch.inference_mode(False):  # what is kept serves training too
                code_query, code_key = self.codes(device, axis)
                self._kept[wanted] = code_query.int().contiguous(), code_key.int().contiguous()
        return self._kept[wanted]

    def index(self, device: Device = None) -> Int[Tensor, "b i j"]:
        """The entry of the box that each pair reads."""
        code_query, code_key = self.codes(device)
        return code_query[:, :, None] + code_key[:, None, :]

    def pairs(self, device: Device = None) -> Shaped[Tensor, "b i j n"]:
        """The relative position of every pair, where there is no box."""
        return torch.stack([self.along(axis, device) for axis in range(self.axes)], -1)

    def along(self, axis: int, device: Device = None) -> Shaped[Tensor, "b i j"]:
        """The relative position of every pair on one axis."""
        queries, keys = _rows(self.queries.coordinates(device)), _rows(self.keys.coordinates(device))
        return queries[:, :, None, axis] - keys[:, None, :, axis]

    def lengths(self, device: Device = None) -> tuple[Shaped[Tensor, "b i"], Shaped[Tensor, "b j"]]:
        """Length of the sequence that each token after the prefix is part of: 1 + the largest coordinate in it.

        A batch row is one sequence, or as many as it has documents; queries and keys count alike. The token axis has
        size 1 where there are no documents.
        """
        ends = [_rows(side.coordinates(device)).amax(-1) + 1 for side in (self.queries, self.keys)]
        documents = self._documents(device)
        if documents is None:
            largest = torch.maximum(*(F.pad(end, (1, 0)).amax(-1, keepdim=True) for end in ends))
            return largest, largest
        return self._in_document(documents, ends, "amax")

    def lined_up(self, device: Device = None) -> tuple[Shaped[Tensor, "b i"], Shaped[Tensor, "b j"]]:
        """Coordinates of queries and keys on one axis, documents one behind the other as the tokens are.

        Differences within a document stay as they are. For what counts from a place near by, whatever the document.
        """
        where = [_rows(side.coordinates(device))[..., 0] for side in (self.queries, self.keys)]
        documents = self._documents(device)
        if documents is None:
            return where[0], where[1]
        sides = (self.queries, self.keys)
        orders = [side.order(device)[..., side.prefix :] for side in sides]
        starts = self._in_document(documents, [o - x for o, x in zip(orders, where, strict=True)], "amin")
        return where[0] + starts[0], where[1] + starts[1]

    def _documents(self, device: Device) -> list[Tensor] | None:
        """The documents of queries and keys after the prefix, where both have any."""
        documents = []
        for side in (self.queries, self.keys):
            document = side.document(device)
            if document is None:
                return None
            documents.append(document[..., side.prefix :])
        return documents

    def _in_document(
        self, documents: list[Tensor], values: list[Tensor], reduce: Literal["amax", "amin"]
    ) -> tuple[Tensor, Tensor]:
        """The largest (or smallest) value of queries and keys in the document of each."""
        rows = torch.broadcast_shapes(*(x.shape[:-1] for x in (*values, *documents)), (1,))
        document, value = (
            torch.cat([x.expand(*rows, -1) for x in sides], -1).contiguous() for sides in (documents, values)
        )
        # each document is known by its first place among the sorted ones
        place = torch.searchsorted(document.sort(-1).values, document)
        found = torch.zeros_like(value).scatter_reduce(-1, place, value, reduce, include_self=False).gather(-1, place)
        count = self.queries.length - self.queries.prefix
        return found[:, :count], found[:, count:]

    def require_integers(self, scheme: str) -> None:
        """Raise where positions are real numbers and the scheme looks up whole ones."""
        for positions in (self.queries, self.keys):
            if positions.extent is None and positions.coordinates().is_floating_point():
                raise ValueError(
                    f"{scheme} looks up integer positions, got real coordinates: "
                    "pass integer positions, or use an encoding that is a function of real ones"
                )

    def require_box(self, scheme: str) -> None:
        """Raise where there is no box, of whose lags the scheme could make a table."""
        self.require_integers(scheme)
        if self.box is None:
            raise ValueError(
                f"{scheme} needs integer positions with an extent, got coordinates without one: "
                "pass extent= to posenc.coordinates"
            )

    def require_within(self, farthest: SequenceOf[int], scheme: str, *, behind: bool = True) -> None:
        """Raise where a lag is farther than a table reaches, on the host if the lags can be read there."""
        self.require_integers(scheme)
        reach = tuple(farthest)
        message = f"{scheme} has relative positions up to {reach if len(reach) > 1 else reach[0]}"
        advice = "make a table for this size, or resize this one with posenc.resize_table"
        readable_lags = self._largest(behind)
        if readable_lags is not None:
            for axis, largest in enumerate(readable_lags):
                if largest > reach[axis]:
                    where = f" on axis {axis}" if len(reach) > 1 else ""
                    raise ValueError(f"{message}, got {largest}{where}: {advice}")
            return
        device = self.queries.device or self.keys.device
        for axis, limit in enumerate(reach):
            lags = self.along(axis, device)
            within = (lags <= limit) & (lags >= -limit) if behind else lags <= limit
            assert_on_device(within.all(), f"{message}, got a larger one: {advice}")

    def _largest(self, behind: bool) -> list[int] | None:
        """The largest lag of each axis, ahead and, if asked, behind; None where it cannot be read on the host."""
        queries, keys = self.queries.bounds(), self.keys.bounds()
        if queries is None or keys is None:
            return None
        if any(low > high for low, high in (*queries, *keys)):  # no tokens
            return [0] * self.axes
        if self.batch is None:
            pairs = zip(queries, keys, strict=True)
            return [max(q[1] - k[0], k[1] - q[0] if behind else 0) for q, k in pairs]
        query, key = _rows(self.queries.coordinates()), _rows(self.keys.coordinates())
        lags = query.amax(1) - key.amin(1)  # rows stand apart: only what is in one row has a lag
        if behind:
            lags = torch.maximum(lags, key.amax(1) - query.amin(1))
        return [int(lag) for lag in lags.amax(0)]


def relative_index(shape: SequenceOf[int]) -> Int[Tensor, "l l"]:
    """Index of every pair of cells of a grid into a table over relative positions.

    `index[i, j] = sum over axes of (relative + size - 1) * stride`, row-major, so that two pairs have the same index
    exactly when they have the same relative position (query - key). The table has `prod(2 size - 1)` rows.

    `shape`: one size an axis, each at least 1. Raises ValueError otherwise.

    >>> posenc.relative_index((3, 4)).unique().numel()
    35

    Liu et al., Swin Transformer, 2021, arXiv:2103.14030.
    """
    return Relative(grid(*sizes("shape", shape))).index()[0]


def table_size(shape: SequenceOf[int]) -> int:
    """Number of relative positions in a grid."""
    return prod(2 * size - 1 for size in shape)


def _spans(extent: SequenceOf[int]) -> tuple[int, ...]:
    """Offsets of each axis; one where there are prefix tokens alone, so that the codes of the others have room."""
    return tuple(max(size, 1) for size in extent)


def _rows(tensor: Tensor) -> Tensor:
    """An explicit batch axis, of size 1 if shared."""
    return tensor if tensor.ndim == 3 else tensor[None]


def _batched(origin: int | Tensor, device: Device) -> int | Tensor:
    return origin.to(device).reshape(-1, 1) if isinstance(origin, Tensor) else origin
