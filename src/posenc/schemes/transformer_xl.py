"""Transformer-XL: projected sinusoids of the relative position, and two trained vectors in place of the query."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from posenc.checks import whole
from posenc.encoding import arithmetic_dtype
from posenc.foreign import ForeignState
from posenc.inside import ContentEncoding
from posenc.kernels.eager import transformed
from posenc.layout import Device
from posenc.relative import Relative
from posenc.sinusoid import require_base, sinusoid
from posenc.term import Part

__all__ = ["TransformerXL"]


AT_ONCE = 1024
"""Relative positions, whose sinusoids are held at a time in float64."""


class TransformerXL(ContentEncoding):
    """Sinusoids of the relative position, projected for each head, with a trained vector beside the query in each term.

    logits `(q_i + u) . k_j + (q_i + v) . W r(i - j)`, in both directions; `r(x)` is `dim` wide, all sines, then all
    cosines: `r(x)[c] = sin(x f_c)`, `r(x)[dim / 2 + c] = cos(x f_c)`, `f_c = base ** (-2c / dim)`. What is added to
    `q_i . k_j` is `u . k_j + (q_i + v) . W r(i - j)`, so the plain call needs the keys.

    Trained: `projection` W `[heads, head_dim, dim]`, `content_bias` u and `position_bias` v `[heads, head_dim]`.

    Args:
        num_heads: number of heads.
        head_dim: channels of a head.
        dim: width of the sinusoid, that of the model; None is num_heads * head_dim.
        base: longest wavelength / 2 pi, in tokens; more than 0.

    Raises ValueError for positions without an extent, of which no table can be made.

    `load_foreign` reads one layer of "xlnet" (`r`, `r_w_bias`, `r_r_bias`), "parakeet" (`relative_k_proj.weight`,
    `bias_u`, `bias_v`) and "conformer" (`linear_pos.weight`, `pos_bias_u`, `pos_bias_v`: wav2vec2-bert's
    `position_embeddings_type="relative"`, wav2vec2-conformer); the last two alternate sines and cosines.

    >>> q = k = torch.randn(2, 8, 10, 64)
    >>> posenc.TransformerXL(8, 64)(q, k=k).shape
    torch.Size([2, 8, 10, 10])

    Dai et al., Transformer-XL, 2019, arXiv:1901.02860; as in Yang et al., XLNet, 2019, arXiv:1906.08237.
    """

    meets_keys = True

    def __init__(self, num_heads: int, head_dim: int, dim: int | None = None, base: float = 10000.0) -> None:
        super().__init__()
        require_base(base)
        self.num_heads: int = whole("num_heads", num_heads, 1)
        self.head_dim = whole("head_dim", head_dim, 1)
        self.dim = self.num_heads * self.head_dim if dim is None else whole("dim", dim, 1)
        self.base = float(base)
        self.projection = nn.Parameter(torch.empty(self.num_heads, self.head_dim, self.dim))
        self.content_bias = nn.Parameter(torch.empty(self.num_heads, self.head_dim))
        self.position_bias = nn.Parameter(torch.empty(self.num_heads, self.head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the projection and the two vectors anew."""
        nn.init.trunc_normal_(self.projection, std=self.dim**-0.5)
        for vector in (self.content_bias, self.position_bias):
            nn.init.trunc_normal_(vector, std=0.02)

    def check(self, relative: Relative) -> None:
        relative.require_box("TransformerXL")

    def parts(self, relative: Relative, device: Device = None) -> list[Part]:
        dtype = arithmetic_dtype(self.projection.dtype)
        projection, u, v = (x.to(dtype) for x in (self.projection, self.content_bias, self.position_bias))
        lags = relative.lags(0, self.projection.device if device is None else device)
        first = lags[:, :1, None]
        vectors = self._waves(lags, dtype)[:, None] @ projection.mT  # W r(i - j), [b, h, lags, d]
        return [
            Part("query", 0, vectors, lambda pairs: pairs - first, added=v[None, :, None]),
            Part("key", 0, u[None, :, None], torch.zeros_like),  # one row, whatever the relative position
        ]

    def _waves(self, lags: Tensor, dtype: torch.dtype) -> Tensor:
        """The sinusoids of lags, some at a time in float64."""
        if torch.compiler.is_compiling() or transformed():
            return sinusoid(lags, self.dim, self.base, "concatenated").to(dtype)
        waves = lags.new_empty((*lags.shape, self.dim), dtype=dtype)
        for piece, place in zip(lags.split(AT_ONCE, -1), waves.split(AT_ONCE, -2), strict=True):
            place.copy_(sinusoid(piece, self.dim, self.base, "concatenated"))
        return waves

    def extra_repr(self) -> str:
        return f"{self.num_heads}, {self.head_dim}, dim={self.dim}, base={self.base:g}"

    def _from_xlnet(self, state: ForeignState) -> dict[str, Tensor]:
        return {
            "projection": state["r"].permute(1, 2, 0),  # [dim, heads, d]
            "content_bias": state["r_w_bias"],
            "position_bias": state["r_r_bias"],
        }

    def _from_parakeet(self, state: ForeignState) -> dict[str, Tensor]:
        return self._alternating(state["relative_k_proj.weight"], state["bias_u"], state["bias_v"])

    def _from_conformer(self, state: ForeignState) -> dict[str, Tensor]:
        return self._alternating(state["linear_pos.weight"], state["pos_bias_u"], state["pos_bias_v"])

    def _alternating(self, weight: Tensor, u: Tensor, v: Tensor) -> dict[str, Tensor]:
        """From a projection `[heads d, dim]` of sinusoids whose sines and cosines alternate."""
        weight = torch.cat([weight[..., ::2], weight[..., 1::2]], -1)
        if weight.shape[0] == self.num_heads * self.head_dim:  # else the shape is said to be wrong as it is
            weight = weight.unflatten(0, (self.num_heads, self.head_dim))
        return {"projection": weight, "content_bias": u, "position_bias": v}

    foreign: ClassVar = {"xlnet": _from_xlnet, "parakeet": _from_parakeet, "conformer": _from_conformer}
