"""What a layout of tokens is: coordinates, order, documents, padding, and the structure that makes them cheap.

A `Positions` says of every token its coordinates on one or more axes, its place in the order that `causal` and
`window` go by, the document it belongs to, and whether it is a token at all (or padding). The first `prefix` tokens (a
CLS token, registers) stand nowhere: they have an order, but no coordinates.

Integer layouts know an `extent`: coordinates are `origin + offset` with `0 <= offset < extent` on each axis, so that
what depends on the relative position alone fits in one small table. Real coordinates have none.
"""

from collections.abc import Sequence as SequenceOf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posenc.checks import assert_on_device, readable, real, whole

__all__ = ["Device", "Explicit", "Positions", "product"]

Device = torch.device | str | None


class Positions:
    """A layout of tokens. Made by `sequence`, `grid`, `packed`, `padded`, `multimodal` or
    `coordinates`; never changed afterwards.

    Tensors that it was made from are kept, not copied: a captured step may put new numbers there, checked or not.

    A plain class on purpose: mixed-precision policies rewrite the tensors inside dataclasses.
    """

    def __init__(
        self,
        length: int,
        axes: int,
        *,
        prefix: int = 0,
        shape: tuple[int, ...] | None = None,
        extent: tuple[int, ...] | None = None,
        ordered: bool = True,
        batch: int | None = None,
    ) -> None:
        self._length, self._axes, self._prefix, self._batch = length, axes, prefix, batch
        self._shape, self._extent, self._ordered = shape, extent, ordered

    @property
    def length(self) -> int:
        """Number of tokens, prefix included."""
        return self._length

    @property
    def axes(self) -> int:
        """Number of coordinates that a token has."""
        return self._axes

    @property
    def prefix(self) -> int:
        """Number of leading tokens that stand nowhere."""
        return self._prefix

    @property
    def batch(self) -> int | None:
        """Number of batch rows with places of their own, or None where all rows stand alike."""
        return self._batch

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The grid that the tokens after the prefix fill, row-major, or None."""
        return self._shape

    @property
    def extent(self) -> tuple[int, ...] | None:
        """Number of integer offsets from the origin on each axis, or None where coordinates may be anything."""
        return self._extent

    @property
    def ordered(self) -> bool:
        """Whether the order of the tokens is the order in which they are stored."""
        return self._ordered

    @property
    def by_real_order(self) -> bool:
        """Whether the order of the tokens is one of real numbers."""
        return False

    @property
    def origin(self) -> int | Tensor:
        """Where offset 0 stands: a number, or a tensor with one entry or one a batch row."""
        return 0

    @property
    def device(self) -> torch.device | None:
        """Where the tensors are that the layout was made from, or None where it was made from none."""
        return self.origin.device if isinstance(self.origin, Tensor) else None

    def offsets(self, device: Device = None) -> Tensor:
        """Coordinates less the origin, `[b, n, axes]` or `[n, axes]`."""
        raise TypeError("Positions is made by posenc.sequence, grid, packed, padded, multimodal or coordinates")

    def coordinates(self, device: Device = None) -> Tensor:
        """Coordinates of the tokens after the prefix, int64 or float64, `[n, axes]` or `[b, n, axes]`."""
        offsets, origin = self.offsets(device), self.origin
        if isinstance(origin, Tensor):
            return offsets + origin.to(device=offsets.device)[..., None, None]
        return offsets + origin

    def order(self, device: Device = None) -> Tensor:
        """The order of all tokens, `[length]` or `[b, length]`: a causal query sees the keys that are not after it."""
        return torch.arange(self.length, device=device)

    def document(self, device: Device = None) -> Tensor | None:
        """The document of each token, `[length]` or `[b, length]`, or None where all are of one."""
        return None

    def present(self, device: Device = None) -> Tensor | None:
        """True where there is a token, False at padding, `[b, length]`, or None where there is no padding."""
        return None

    def bounds(self) -> list[tuple[int, int]] | None:
        """Smallest and largest coordinate of each axis, or None where reading them would wait for a device."""
        return None

    def require_inside(self, shape: tuple[int, ...], scheme: str, advice: str) -> None:
        """Raise where a coordinate is not in 0 <= coordinate < size, on the host if it can be read there."""
        bounds = self.bounds()
        allowed = f"{scheme} has positions for {shape if len(shape) > 1 else shape[0]}"
        if bounds is None:
            coordinates = self.coordinates(self.device)
            for axis, size in enumerate(shape):  # a tensor of the sizes would be copied from the host
                inside = (coordinates[..., axis] >= 0) & (coordinates[..., axis] < size)
                assert_on_device(inside.all(), f"{allowed}, got one outside: {advice}")
            return
        for axis, (size, (low, high)) in enumerate(zip(shape, bounds, strict=True)):
            if low <= high and (low < 0 or high >= size):
                where = f" on axis {axis}" if len(shape) > 1 else ""
                got = f"position {low}" if low < 0 else f"{high + 1} (position {high} is past the end)"
                raise ValueError(f"{scheme} has {size} positions{where}, got {got}: {advice}")

    def last(self, count: int) -> "Positions":
        """The layout of the last `count` tokens, as in a cached decode step."""
        count = whole("count", count)
        if count == self.length:
            return self
        if count > self.length:
            raise ValueError(
                f"queries must be among the tokens of the positions, got {count} queries for {self.length} positions: "
                "pass positions for the queries and key_positions for the keys"
            )
        return self._slice(self.length - count)

    def _slice(self, skipped: int) -> "Positions":
        prefix = max(self.prefix - skipped, 0)
        document, present = self.document(), self.present()
        return Explicit(
            self.offsets()[..., max(skipped - self.prefix, 0) :, :],
            prefix=prefix,
            origin=self.origin,
            extent=self.extent,
            order=self.order()[..., skipped:] if self._has_order() else None,
            ordered=self.ordered,
            document=None if document is None else document[..., skipped:],
            present=None if present is None else present[..., skipped:],
        )

    def _has_order(self) -> bool:
        return True

    def agrees(self, other: "Positions") -> bool:
        """Whether two layouts place their tokens alike, as far as can be told without waiting for a device."""
        if self is other:
            return True
        if (self.length, self.axes, self.prefix) != (other.length, other.axes, other.prefix):
            return False
        if self.batch is not None and other.batch is not None and self.batch != other.batch:
            return False
        pairs = [(self.coordinates(), other.coordinates()), (self.document(), other.document())]
        pairs.append((self.present(), other.present()))
        if self._has_order() and other._has_order():
            pairs.append((self.order(), other.order()))
        for ours, theirs in pairs:
            if ours is None or theirs is None:
                if ours is not theirs:
                    return False
            elif readable(ours) and readable(theirs) and not bool((ours == theirs).all()):
                return False
        return True

    def rescaled(self, low: float | SequenceOf[float], high: float | SequenceOf[float]) -> "Positions":
        """The same tokens with real coordinates, the edges of the grid moved to `low` and `high`.

        A cell i of an axis with `size` cells moves to `low + (i + 1/2)(high - low) / size`, so `rescaled(-1, 1)` are
        the centred coordinates of SAM and DINOv3, and `rescaled(-0.5, n - 0.5)` squeezes or stretches a grid into the
        coordinates of one with n cells. `low` and `high` are numbers, or one number an axis.

        Raises ValueError where the tokens fill no grid.

        >>> posenc.grid(2, 2).rescaled(-1, 1).coordinates().tolist()
        [[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]]
        """
        if self.shape is None:
            raise ValueError("rescaled needs tokens that fill a grid or a sequence: give the coordinates instead")
        lows, highs = _per_axis("low", low, self.axes), _per_axis("high", high, self.axes)
        ticks = [
            begin + (torch.arange(size, dtype=torch.float64) + 0.5) * ((end - begin) / max(size, 1))
            for size, begin, end in zip(self.shape, lows, highs, strict=True)
        ]
        return Explicit(product(ticks), prefix=self.prefix, shape=self.shape, order=self.order(), ordered=self.ordered)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(length={self.length}, axes={self.axes}, prefix={self.prefix})"


class Explicit(Positions):
    """Any coordinates, held as tensors: offsets, and where offset 0 stands."""

    def __init__(
        self,
        offsets: Tensor,
        *,
        prefix: int = 0,
        origin: int | Tensor = 0,
        shape: tuple[int, ...] | None = None,
        extent: tuple[int, ...] | None = None,
        order: Tensor | None = None,
        ordered: bool = True,
        document: Tensor | None = None,
        present: Tensor | None = None,
    ) -> None:
        length, axes = offsets.shape[-2] + prefix, offsets.shape[-1]
        batch = offsets.shape[0] if offsets.ndim == 3 else None
        for tensor in (order, document, present):
            if tensor is not None and tensor.ndim == 2:
                if batch is not None and tensor.shape[0] != batch:
                    raise ValueError(
                        f"coordinates, order and document must be of one batch, got {batch} and {tensor.shape[0]}"
                    )
                batch = tensor.shape[0]
        super().__init__(length, axes, prefix=prefix, shape=shape, extent=extent, ordered=ordered, batch=batch)
        self._offsets, self._origin = offsets, origin
        self._order, self._document, self._present = order, document, present

    @property
    def origin(self) -> int | Tensor:
        return self._origin

    @property
    def device(self) -> torch.device | None:
        return self._offsets.device

    @property
    def by_real_order(self) -> bool:
        return self._order is not None and self._order.is_floating_point()

    def offsets(self, device: Device = None) -> Tensor:
        return self._offsets if device is None else self._offsets.to(device)

    def order(self, device: Device = None) -> Tensor:
        if self._order is None and not self.ordered:
            raise ValueError(
                "causal and window need the order of the tokens, got coordinates without one: "
                "pass order= to posenc.coordinates"
            )
        return super().order(device) if self._order is None else self._order.to(device or self._order.device)

    def _has_order(self) -> bool:
        return self._order is not None or self.ordered

    def document(self, device: Device = None) -> Tensor | None:
        return None if self._document is None else self._document.to(device or self._document.device)

    def present(self, device: Device = None) -> Tensor | None:
        return None if self._present is None else self._present.to(device or self._present.device)

    def bounds(self) -> list[tuple[int, int]] | None:
        coordinates = self.coordinates()
        if coordinates.is_floating_point() or not readable(coordinates):
            return None
        if coordinates.numel() == 0:
            return [(0, -1)] * self.axes
        columns = coordinates.reshape(-1, self.axes)
        return [(int(low), int(high)) for low, high in zip(columns.amin(0), columns.amax(0), strict=True)]


def _per_axis(name: str, value: float | SequenceOf[float], axes: int) -> list[float]:
    array = isinstance(value, np.ndarray) and value.ndim == 1
    many = array or (isinstance(value, SequenceOf) and not isinstance(value, str | bytes))
    given: Any = value if many else [value] * axes
    values = [real(name, item, "pass the coordinate of an edge") for item in given]
    if len(values) != axes:
        raise ValueError(f"{name} needs one number, or one an axis, got {len(values)} for {axes} axes")
    return values


def product(ticks: list[Tensor]) -> Tensor:
    """All combinations of one tick an axis, row-major, `[n, axes]`."""
    return torch.stack([mesh.reshape(-1) for mesh in torch.meshgrid(*ticks, indexing="ij")], -1)
