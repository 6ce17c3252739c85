"""Rotary encodings: pairs of channels of queries and keys turn with the position."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from posenc.checks import whole
from posenc.encoding import deal
from posenc.inside import RotaryEncoding
from posenc.layout import Device
from posenc.sinusoid import geometric, require_base

__all__ = ["Rotary"]


class Rotary(RotaryEncoding):
    """Rotary position embedding, for any number of axes; q . k then depends on the relative position alone.

    Pair p of an axis turns by `angle = position * f_p`, `f_p = base ** (-p / pairs)`:
    `(a, b) -> (a cos - b sin, b cos + a sin)`. The pairs are dealt to the axes in order, as evenly as they go.

    Args:
        head_dim: channels of a head.
        axes: number of coordinates of a token.
        base: longest wavelength / 2 pi, in positions; more than 0. 10000 is usual for text, 100 for images.
        layout: "half" pairs channel i with i + rotary_dim / 2 (Llama), "interleaved" 2i with 2i + 1 (the paper, GPT-J).
        rotary_dim: how many leading channels turn, even; the others stay as they are. Default: all.

    Raises ValueError for an odd width, a width beyond head_dim, fewer pairs than axes, or an unknown layout.

    >>> q, k = posenc.Rotary(64)(torch.randn(2, 8, 10, 64), torch.randn(2, 2, 10, 64))
    >>> q.shape, k.shape
    (torch.Size([2, 8, 10, 64]), torch.Size([2, 2, 10, 64]))

    Su et al., RoFormer, 2021, arXiv:2104.09864; Heo et al., RoPE for Vision Transformer, 2024, arXiv:2403.13298.
    """

    def __init__(
        self,
        head_dim: int,
        axes: int = 1,
        base: float = 10000.0,
        layout: Literal["half", "interleaved"] = "half",
        rotary_dim: int | None = None,
    ) -> None:
        super().__init__()
        head_dim, axes = whole("head_dim", head_dim, 2), whole("axes", axes, 1)
        width = head_dim if rotary_dim is None else whole("rotary_dim", rotary_dim, 2)
        if rotary_dim is None and head_dim % 2:
            raise ValueError(
                f"head_dim must be even for rotary, got {head_dim}: pass rotary_dim={head_dim - 1} to rotate part of it"
            )
        if width % 2 or width > head_dim:
            raise ValueError(
                f"rotary_dim must be even and from 2 to head_dim = {head_dim}, got {width}: "
                f"pass rotary_dim={min(width, head_dim) // 2 * 2}"
            )
        if width // 2 < axes:
            raise ValueError(f"rotary needs a pair of channels an axis, got {width} channels for {axes} axes: widen it")
        if layout not in ("half", "interleaved"):
            raise ValueError(
                f"layout must be 'half' (Llama) or 'interleaved' (GPT-J), got {layout!r}: pass one of them"
            )
        require_base(base)
        self.head_dim, self.axes, self.base, self.layout, self.rotary_dim = head_dim, axes, float(base), layout, width

    def frequencies(self, length: int | None = None, device: Device = None) -> Float[Tensor, "n pairs"]:
        """`[axes, pairs]`: row a holds the frequencies of the pairs that turn with axis a, and 0 elsewhere."""
        shares = deal(self.rotary_dim // 2, self.axes)
        rows, start = [], 0
        for pairs in shares:
            own = geometric(self.base, pairs, pairs, device)
            rows.append(torch.nn.functional.pad(own, (start, sum(shares) - start - pairs)))
            start += pairs
        return torch.stack(rows)

    def extra_repr(self) -> str:
        partial = f", rotary_dim={self.rotary_dim}" if self.rotary_dim != self.head_dim else ""
        return f"{self.head_dim}, axes={self.axes}, base={self.base:g}, layout={self.layout!r}{partial}"
