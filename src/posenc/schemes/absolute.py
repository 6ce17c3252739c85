"""Absolute encodings: position -> vector, added to the embeddings."""

import math
from collections.abc import Sequence as SequenceOf
from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from posenc.checks import sizes, whole
from posenc.embedding import Absolute
from posenc.encoding import deal
from posenc.layout import Positions
from posenc.positions import grid
from posenc.relative import Relative
from posenc.sinusoid import require_base, sinusoid

__all__ = ["Fourier", "Learned", "Sinusoidal"]


class Sinusoidal(Absolute):
    """Fixed sines and cosines of the position, for any number of axes.

    `p(x)[2i] = sin(x f_i)`, `p(x)[2i + 1] = cos(x f_i)`, `f_i = base ** (-2i / width)`, for each axis in a block of
    channels of its own. A shift is a linear map: p(x + k) = M_k p(x).

    Args:
        dim: channels, at least one an axis. They are dealt to the axes as evenly as they go, earlier axes first.
        axes: number of coordinates of a token.
        base: longest wavelength / 2 pi, in positions; more than 0.
        layout: inside a block, "interleaved" is sin, cos, sin, cos (the paper), "concatenated" all sines, then all
            cosines. A block of odd width ends in a sine (interleaved), or has one sine more (concatenated).
        axis_order: the order of the blocks; MAE puts width first, `axis_order=(1, 0)`. Default: axis 0 first.

    Raises ValueError for a width below the number of axes, an unknown layout, or an order that is no permutation.

    >>> posenc.Sinusoidal(4)(torch.zeros(1, 2, 4).double())[0, 1].round(decimals=5).tolist()
    [0.84147, 0.5403, 0.01, 0.99995]

    Vaswani et al., Attention Is All You Need, 2017, arXiv:1706.03762; He et al., MAE, 2021, arXiv:2111.06377.
    """

    def __init__(
        self,
        dim: int,
        axes: int = 1,
        base: float = 10000.0,
        layout: Literal["interleaved", "concatenated"] = "interleaved",
        axis_order: SequenceOf[int] | None = None,
    ) -> None:
        super().__init__()
        dim, axes = _width(dim, axes)
        if layout not in ("interleaved", "concatenated"):
            raise ValueError(f"layout must be 'interleaved' or 'concatenated', got {layout!r}: pass one of the two")
        require_base(base)
        order = tuple(range(axes)) if axis_order is None else tuple(whole("axis_order", axis) for axis in axis_order)
        if sorted(order) != list(range(axes)):
            raise ValueError(f"axis_order must name each of the {axes} axes once, got {order}: for MAE pass (1, 0)")
        self.dim, self.axes, self.base, self.layout, self.axis_order = dim, axes, float(base), layout, order

    def vectors(self, coordinates: Shaped[Tensor, "*b l n"]) -> Float[Tensor, "*b l dim"]:
        widths = deal(self.dim, self.axes)
        blocks = [sinusoid(coordinates[..., axis], widths[axis], self.base, self.layout) for axis in self.axis_order]
        return torch.cat(blocks, -1)

    def extra_repr(self) -> str:
        return f"{self.dim}, axes={self.axes}, base={self.base:g}, layout={self.layout!r}"


class Learned(Absolute):
    """A trained table with one row a position of a grid (or a sequence), and one a prefix token.

    `p(x) = table[prefix + index of x]`, row-major.

    Args:
        shape: size of each axis, or a number of tokens for one axis.
        dim: channels.
        prefix: number of prefix tokens with rows of their own; they are the first rows of the table.
        std: standard deviation at the start; 0 starts from zeros.
        truncated: draw again what falls beyond two standard deviations.

    Raises ValueError for positions outside `shape`, naming both, and for a prefix of another length.

    >>> posenc.Learned((14, 14), 192, prefix=1)(torch.zeros(2, 197, 192)).shape
    torch.Size([2, 197, 192])

    Dosovitskiy et al., ViT, 2020, arXiv:2010.11929.
    """

    def __init__(
        self, shape: int | SequenceOf[int], dim: int, prefix: int = 0, std: float = 0.02, truncated: bool = True
    ) -> None:
        super().__init__()
        self.shape, self.dim, self.prefix = sizes("shape", shape), whole("dim", dim, 1), whole("prefix", prefix)
        self.axes, self.std, self.truncated = len(self.shape), std, truncated
        if not 0 <= std < math.inf:
            raise ValueError(f"std must be 0 or more and finite, got {std}: ViT uses 0.02")
        self.table = nn.Parameter(torch.empty(self.prefix + math.prod(self.shape), self.dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        if self.truncated and self.std:
            nn.init.trunc_normal_(self.table, std=self.std, a=-2 * self.std, b=2 * self.std)
        else:
            nn.init.normal_(self.table, std=self.std)

    def default_positions(self, length: int) -> Positions:
        if self.axes == 1:
            if length < self.prefix:
                raise ValueError(f"Learned has {self.prefix} prefix rows, got {length} tokens: make it with fewer")
            return grid(length - self.prefix, prefix=self.prefix)
        if length == self.table.shape[0]:
            return grid(*self.shape, prefix=self.prefix)
        return super().default_positions(length)

    def check(self, relative: Relative) -> None:
        positions = relative.queries
        relative.require_integers("Learned")
        if positions.prefix not in (0, self.prefix) and self.prefix:
            raise ValueError(
                f"Learned has rows for {self.prefix} prefix tokens, got positions with {positions.prefix}: "
                f"pass posenc.grid(..., prefix={self.prefix})"
            )
        positions.require_inside(
            self.shape, "Learned", "make a longer table, or resize this one with posenc.resize_table"
        )

    def vectors(self, coordinates: Int[Tensor, "*b l n"]) -> Float[Tensor, "*b l dim"]:
        row = torch.zeros_like(coordinates[..., 0])
        for axis, size in enumerate(self.shape):
            row = row * size + coordinates[..., axis]
        return nn.functional.embedding(row + self.prefix, self.table)

    def prefix_vectors(self) -> Float[Tensor, "prefix dim"] | None:
        return self.table[: self.prefix] if self.prefix else None

    def extra_repr(self) -> str:
        return f"{self.shape}, {self.dim}, prefix={self.prefix}"


class Fourier(Absolute):
    """Sines and cosines of random (or learned) directions of the coordinates.

    `p(x) = [sin(2 pi x B), cos(2 pi x B)]`, `B ~ N(0, scale ** 2)`, `[axes, dim / 2]`.

    Coordinates are taken as they stand: `positions.rescaled(-1, 1)` gives the centred ones of SAM, and for whole
    positions up to L a scale near 1 / L is a good start (a scale of 1 turns more than once from token to token).

    Args:
        dim: channels, even.
        axes: number of coordinates of a token.
        scale: standard deviation of the frequencies, in turns a unit of position; more than 0.
        learnable: train the frequencies. They are saved either way, as they are drawn, and rounded where the module is
            cast, as any saved number is: keep it in float32.

    Raises ValueError for an odd width or a scale of 0 or less.

    >>> posenc.Fourier(6, axes=2)(torch.zeros(1, 4, 6), posenc.grid(2, 2).rescaled(-1, 1)).shape
    torch.Size([1, 4, 6])

    Tancik et al., Fourier Features, 2020, arXiv:2006.10739; Li et al., Learnable Fourier Features, 2021,
    arXiv:2106.02795; Kirillov et al., Segment Anything, 2023, arXiv:2304.02643.
    """

    frequencies: Tensor

    def __init__(self, dim: int, axes: int = 1, scale: float = 1.0, learnable: bool = False) -> None:
        super().__init__()
        dim, axes = _width(dim, axes)
        if dim % 2:
            raise ValueError(f"dim must be even for Fourier, a sine and a cosine each, got {dim}: pass {dim + 1}")
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be more than 0 and finite, got {scale}: pass the spread of the frequencies")
        self.dim, self.axes, self.scale, self.learnable = dim, axes, float(scale), learnable
        drawn = torch.empty(axes, dim // 2)
        if learnable:
            self.frequencies = nn.Parameter(drawn)
        else:
            self.register_buffer("frequencies", drawn)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the frequencies anew."""
        nn.init.normal_(self.frequencies, std=self.scale)

    def vectors(self, coordinates: Shaped[Tensor, "*b l n"]) -> Float[Tensor, "*b l dim"]:
        turns = (coordinates.double()[..., None] * self.frequencies.double()).sum(-2)
        return torch.cat([(2 * math.pi * turns).sin(), (2 * math.pi * turns).cos()], -1)

    def extra_repr(self) -> str:
        return f"{self.dim}, axes={self.axes}, scale={self.scale:g}, learnable={self.learnable}"


def _width(dim: int, axes: int) -> tuple[int, int]:
    dim, axes = whole("dim", dim, 1), whole("axes", axes, 1)
    if dim < axes:
        raise ValueError(f"dim must give each axis a channel, got dim={dim} for axes={axes}: pass a larger dim")
    return dim, axes
