"""Absolute encodings: position -> vector, added to the embeddings."""

import math
from collections.abc import Sequence as SequenceOf
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from posenc.checks import flag, real, sizes, whole
from posenc.embedding import Absolute
from posenc.encoding import deal
from posenc.foreign import ForeignState
from posenc.layout import Positions
from posenc.positions import grid
from posenc.relative import Relative
from posenc.sinusoid import require_base, sinusoid

__all__ = ["Learned", "Sinusoidal"]


class Sinusoidal(Absolute):
    """Fixed sines and cosines of the position, for any number of axes.

    `p(x)[2i] = sin(x f_i)`, `p(x)[2i + 1] = cos(x f_i)`, `f_i = base ** (-2i / width)`, for each axis in a block of
    channels of its own. A shift is a linear map: p(x + k) = M_k p(x). DETR's sine of padded images is two axes at the
    positions `padded(mask, start=1, span=2 * math.pi)`, or without the span where it is not normalised.

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

    Vaswani et al., Attention Is All You Need, 2017, arXiv:1706.03762; He et al., MAE, 2021, arXiv:2111.06377;
    Carion et al., DETR, 2020, arXiv:2005.12872.
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
        given = axis_order if isinstance(axis_order, SequenceOf) else (axis_order,)
        order = tuple(range(axes)) if axis_order is None else tuple(whole("axis_order", axis) for axis in given)
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

    Tables that keep rows free for padding need no option, as positions may start anywhere: BART's of L + 2 rows is
    `Learned(L + 2, dim)` at `sequence(length, start=2)`, RoBERTa's at `padded(mask, start=padding_idx + 1)`, where
    tokens count from `padding_idx + 1`, and padding on the left reads the row `padding_idx` as RoBERTa has it.

    Args:
        shape: size of each axis, or a number of tokens for one axis.
        dim: channels.
        prefix: number of prefix tokens with rows of their own; they are the first rows of the table.
        std: standard deviation at the start; 0 starts from zeros.
        truncated: draw again what falls beyond two standard deviations.

    `load_foreign` reads the tables of "timm" (`pos_embed`), "transformers" (a ViT's `position_embeddings`; both with
    the class token's row if this encoding has a prefix for it), "bert", "roberta" (`position_embeddings.weight`) and
    "bart" (`embed_positions.weight`). Every row is kept, those of padding too: positions tell which are read.

    Raises ValueError for positions outside `shape`, naming both, and for a prefix of another length.

    >>> posenc.Learned((14, 14), 192, prefix=1)(torch.zeros(2, 197, 192)).shape
    torch.Size([2, 197, 192])

    Dosovitskiy et al., ViT, 2020, arXiv:2010.11929; Lewis et al., BART, 2019, arXiv:1910.13461; Liu et al., RoBERTa,
    2019, arXiv:1907.11692.
    """

    def __init__(
        self, shape: int | SequenceOf[int], dim: int, prefix: int = 0, std: float = 0.02, truncated: bool = True
    ) -> None:
        super().__init__()
        self.shape, self.dim, self.prefix = sizes("shape", shape), whole("dim", dim, 1), whole("prefix", prefix)
        self.axes, self.truncated = len(self.shape), flag("truncated", truncated)
        self.std = real("std", std, "ViT uses 0.02")
        if self.std < 0:
            raise ValueError(f"std must be 0 or more, got {std}: ViT uses 0.02")
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

    def _from_timm(self, state: ForeignState) -> dict[str, Tensor]:
        return {"table": state["pos_embed"].squeeze(0)}

    def _from_transformers(self, state: ForeignState) -> dict[str, Tensor]:
        return {"table": state["position_embeddings"].squeeze(0)}

    def _from_bert(self, state: ForeignState) -> dict[str, Tensor]:
        return {"table": state["position_embeddings.weight"]}

    def _from_bart(self, state: ForeignState) -> dict[str, Tensor]:
        return {"table": state["embed_positions.weight"]}

    foreign: ClassVar = {
        "timm": _from_timm,
        "transformers": _from_transformers,
        "bert": _from_bert,
        "roberta": _from_bert,
        "bart": _from_bart,
    }

    def extra_repr(self) -> str:
        return f"{self.shape}, {self.dim}, prefix={self.prefix}"


def _width(dim: int, axes: int) -> tuple[int, int]:
    dim, axes = whole("dim", dim, 1), whole("axes", axes, 1)
    if dim < axes:
        raise ValueError(f"dim must give each axis a channel, got dim={dim} for axes={axes}: pass a larger dim")
    return dim, axes
