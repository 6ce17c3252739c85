"""Rotary with trained frequencies: every head turns with its own mixture of the axes."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from posenc.checks import whole
from posenc.encoding import deal
from posenc.foreign import ForeignState
from posenc.inside import RotaryEncoding
from posenc.layout import Device
from posenc.sinusoid import geometric

__all__ = ["MixedRotary"]


class MixedRotary(RotaryEncoding):
    """RoPE-Mixed: the angle of a pair is a trained mixture of all coordinates, in every head another.

    Pair p of head h turns by `angle = sum_a position_a f[h, a, p]`, so that diagonals are seen as well as rows and
    columns, and q . k still depends on the relative position alone.

    At the start each head has one random orthonormal direction an axis; the pairs are dealt to the directions, and go
    through magnitudes `base ** (-p / pairs)` along each. Axis 0 is height, as in `posenc.grid(height, width)`.

    Args:
        num_heads: number of query heads; with fewer key heads, each is repeated.
        head_dim: channels of a head, even, with a pair or more an axis.
        axes: number of coordinates of a token.
        base: ratio of the largest magnitude at the start to the smallest, nearly; more than 0.
        layout: "interleaved" pairs channel 2i with 2i + 1 (rope-vit, timm), "half" pairs i with i + head_dim / 2.

    Trained: `table`, the frequencies, `[heads, axes, pairs]`, in radians a unit of position. Foreign
    sources: "timm" and "rope-vit" (`freqs`, both of which put width first and hold all blocks of a model: give
    `{"freqs": state["freqs"][:, [block]]}`), for positions that count from 0 in steps of 1.

    Raises ValueError for an odd width, fewer pairs than axes, or an unknown layout.

    >>> q, k = posenc.MixedRotary(4, 16)(*torch.randn(2, 1, 4, 12, 16), posenc.grid(3, 4), posenc.grid(3, 4))
    >>> q.shape
    torch.Size([1, 4, 12, 16])

    Heo et al., Rotary Position Embedding for Vision Transformer, 2024, arXiv:2403.13298.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        axes: int = 2,
        base: float = 10.0,
        layout: Literal["half", "interleaved"] = "interleaved",
    ) -> None:
        super().__init__()
        self.num_heads, self.axes = num_heads, axes = whole("num_heads", num_heads, 1), whole("axes", axes, 1)
        pairs = self._set_turning(head_dim, base, layout)
        if pairs < axes:
            raise ValueError(
                f"head_dim must have a pair of channels for each of {axes} axes, got {head_dim}: pass {2 * axes}"
            )
        self.table = nn.Parameter(torch.empty(num_heads, axes, pairs))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the directions anew."""
        trained, shares = self.table, deal(self.head_dim // 2, self.axes)
        drawn = torch.randn(trained.shape[0], self.axes, self.axes, dtype=torch.float64, device=trained.device)
        columns, upper = torch.linalg.qr(drawn)
        directions = columns * upper.diagonal(dim1=-2, dim2=-1).sign()[:, None]  # [h, n, n], in all directions alike
        blocks = [
            directions[:, :, axis, None] * geometric(self.base, pairs, pairs, trained.device)
            for axis, pairs in enumerate(shares)
        ]
        with torch.no_grad():
            trained.copy_(torch.cat(blocks, -1))

    def frequencies(
        self, length: Shaped[Tensor, "#b #l"] | None = None, device: Device = None
    ) -> Float[Tensor, "h n p"]:
        """The trained frequencies in float64."""
        return self.table.double()

    def _from_timm(self, state: ForeignState) -> dict[str, Tensor]:
        freqs = state["freqs"]  # [2, blocks, heads, pairs]
        return self._turned(self._one_block(freqs) if freqs.ndim == 4 else freqs)

    def _from_rope_vit(self, state: ForeignState) -> dict[str, Tensor]:
        freqs = state["freqs"]  # [2, blocks, heads * pairs], in Swin [2, heads * pairs]
        freqs = self._one_block(freqs) if freqs.ndim == 3 else freqs
        if freqs.shape[-1] == self.table[:, 0].numel():
            freqs = freqs.unflatten(-1, (-1, self.head_dim // 2))
        return self._turned(freqs)

    def _one_block(self, freqs: Tensor) -> Tensor:
        if freqs.shape[1] != 1:
            raise ValueError(
                f"freqs must be of one block, got {freqs.shape[1]} of them, {tuple(freqs.shape)}: "
                'pass {"freqs": state["freqs"][:, [block]]}'
            )
        return freqs[:, 0]

    def _turned(self, freqs: Tensor) -> dict[str, Tensor]:
        """Width first and axes first -> height first and heads first."""
        if self.layout != "interleaved":
            raise ValueError("rope-vit and timm pair neighbouring channels, got layout='half': make it 'interleaved'")
        return {"table": freqs.flip(0).transpose(0, 1)}

    foreign: ClassVar = {"timm": _from_timm, "rope-vit": _from_rope_vit}

    def extra_repr(self) -> str:
        return f"{self.num_heads}, {self.head_dim}, axes={self.axes}, base={self.base:g}, layout={self.layout!r}"
