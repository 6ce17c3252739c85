"""xPos: rotary whose pairs also shrink with the distance."""

import math
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from posenc.checks import real
from posenc.inside import RotaryEncoding
from posenc.layout import Device
from posenc.relative import Relative
from posenc.scaling import spectrum
from posenc.term import Decay

__all__ = ["XPos"]

GAMMA = 0.4  # how much the fastest pair keeps of itself: 0.4 / 1.4 in scale_base positions


class XPos(RotaryEncoding):
    """xPos: rotary whose logits decay with the distance, fast pairs first; for causal attention.

    Pair p of P adds `zeta_p ** ((i - j) / scale_base) Re(q_p conj(k_p) e ** (i (i - j) f_p))` to the logits,
    `f_p = base ** (-p / P)`, `zeta_p = (p / P + 0.4) / 1.4`.

    The factor grows for keys ahead of the query, so attention must be causal. It is centred at each block of queries in
    the logits, where it is at most 1: the two factors of query and key alone leave the range of a float at some
    ten thousand positions. The plain call returns queries and keys with a factor each, and refuses what would overflow;
    a prefix token has none there, so its products with others keep theirs: `attention` alone takes no decay for it.

    Args:
        head_dim: channels of a head, even.
        base: longest wavelength / 2 pi, in positions; more than 0.
        scale_base: positions in which pair p shrinks to zeta_p; more than 0. 512 in the paper's code.
        layout: "interleaved" pairs channel 2i with 2i + 1 (torchscale), "half" i with i + head_dim / 2.

    Raises ValueError for an odd width, an unknown layout, or a base or scale that is not more than 0.

    >>> q, k, v = torch.randn(3, 1, 4, 10, 16)
    >>> posenc.attention(q, k, v, posenc.XPos(16), causal=True).shape
    torch.Size([1, 4, 10, 16])

    Sun et al., A Length-Extrapolatable Transformer, 2022, arXiv:2212.10554.
    """

    causal = True

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        scale_base: float = 512.0,
        layout: Literal["half", "interleaved"] = "interleaved",
    ) -> None:
        super().__init__()
        self._set_turning(head_dim, base, layout)
        self.scale_base = real("scale_base", scale_base, "the paper's code has 512")
        if not 1e-30 <= self.scale_base <= 1e30:
            raise ValueError(f"scale_base must be from 1e-30 to 1e30, got {scale_base}: the paper's code has 512")

    def frequencies(self, length: Shaped[Tensor, "#b #l"] | None = None, device: Device = None) -> Float[Tensor, "1 p"]:
        frequencies: Tensor = spectrum(torch.empty(0, device=device), self.base, self.head_dim // 2)
        return frequencies[None]

    def rates(self, device: Device = None) -> Float[Tensor, "pairs"]:
        """Logarithm of the factor a unit of relative position, `ln(zeta_p) / scale_base`, in float64."""
        pairs = self.head_dim // 2
        p = torch.arange(pairs, dtype=torch.float64, device=device)
        return ((p / pairs + GAMMA) / (1 + GAMMA)).log() / self.scale_base

    def _evaluate(self, relative: Relative, device: Device, dtype: torch.dtype) -> Decay:
        query, key = self._turns(relative, device, dtype)
        steepest = -math.log(GAMMA / (1 + GAMMA)) / self.scale_base  # that of pair 0
        rates = self.rates(query[0].device)
        return Decay(relative, query, key, self.layout, rates, steepest, head_dim=self.head_dim)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, base={self.base:g}, scale_base={self.scale_base:g}, layout={self.layout!r}"
