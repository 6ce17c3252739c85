"""The layouts that need no tensors, a sequence and a grid, beside those of `tokens` that are held in them."""

import math

import torch
from torch import Tensor

from posenc.checks import readable
from posenc.tokens import Device, Explicit, Positions, product

__all__ = ["Device", "Explicit", "Grid", "Positions", "Sequence"]


class Sequence(Positions):
    """Consecutive integers from `start`."""

    def __init__(self, length: int, start: int | Tensor = 0) -> None:
        batch = start.shape[0] if isinstance(start, Tensor) and start.ndim else None
        super().__init__(length, 1, shape=(length,), extent=(length,), batch=batch)
        self._start = start

    @property
    def origin(self) -> int | Tensor:
        return self._start

    def offsets(self, device: Device = None) -> Tensor:
        return torch.arange(self.length, device=device)[:, None]

    def order(self, device: Device = None) -> Tensor:
        return self.coordinates(device)[..., 0]

    def bounds(self) -> list[tuple[int, int]] | None:
        if isinstance(self._start, int | torch.SymInt):
            return [(self._start, self._start + self.length - 1)]
        if not readable(self._start):
            return None
        return [(int(self._start.min()), int(self._start.max()) + self.length - 1)]

    def _slice(self, skipped: int) -> Positions:
        return Sequence(self.length - skipped, self._start + skipped)


class Grid(Positions):
    """The cells of a grid, row-major, after the prefix tokens; neighbours are `step` apart on each axis."""

    def __init__(self, shape: tuple[int, ...], prefix: int = 0, step: tuple[int, ...] | None = None) -> None:
        self._step = step or (1,) * len(shape)
        extent = tuple((size - 1) * apart + 1 if size else 0 for size, apart in zip(shape, self._step, strict=True))
        if any(apart > 1 and size > 2**62 for size, apart in zip(extent, self._step, strict=True)):
            raise ValueError(f"coordinates must fit in 62 bits, got sizes {shape} in steps of {self._step}: step less")
        super().__init__(math.prod(shape) + prefix, len(shape), prefix=prefix, shape=shape, extent=extent)

    def offsets(self, device: Device = None) -> Tensor:
        assert self.shape is not None
        ticks = [torch.arange(size, device=device) for size in self.shape]
        return product([tick * apart if apart > 1 else tick for tick, apart in zip(ticks, self._step, strict=True)])

    def bounds(self) -> list[tuple[int, int]] | None:
        assert self.extent is not None
        return [(0, extent - 1) for extent in self.extent]
