"""Conditional encodings: neighbourhood -> vector, added to the embeddings."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from posenc.checks import flag, whole
from posenc.embedding import Conditional
from posenc.encoding import arithmetic_dtype, exact_arithmetic
from posenc.foreign import ForeignState

__all__ = ["ConditionalEncoding"]

_CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_FUNCTIONS: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class ConditionalEncoding(Conditional):
    """A depth-wise convolution over the grid of tokens (PEG): `x + conv(x)`.

    Equivariant to shifts inside the grid; the zeros around it give the border, and so the position, away. Prefix tokens
    are neither changed nor seen.

    Args:
        dim: channels.
        kernel_size: cells on each axis that a token sees, odd.
        axes: 1, 2 or 3.
        causal: on one axis, see the token itself and those before it alone, for decoders.

    `load_foreign` reads "cpvt" and "twins" (`proj.0.weight`, `proj.0.bias` of a position block), "coat" and "davit"
    (`proj.weight`, `proj.bias`).

    Raises ValueError for an even kernel, and for tokens that fill no grid.

    >>> posenc.ConditionalEncoding(8)(torch.randn(2, 7, 8), posenc.grid(2, 3, prefix=1)).shape
    torch.Size([2, 7, 8])

    Chu et al., Conditional Positional Encodings for Vision Transformers, 2021, arXiv:2102.10882.
    """

    def __init__(self, dim: int, kernel_size: int = 3, axes: int = 2, causal: bool = False) -> None:
        super().__init__()
        dim, kernel_size, axes = whole("dim", dim, 1), whole("kernel_size", kernel_size, 1), whole("axes", axes, 1)
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {kernel_size}: CPVT uses 3")
        if axes not in _CONVOLUTIONS:
            raise ValueError(f"axes must be 1, 2 or 3 for a convolution, got {axes}: fold the others into the batch")
        causal = flag("causal", causal)
        if causal and axes > 1:
            raise ValueError(f"causal is for one axis, got axes={axes}: a grid has no order to be causal in")
        self.dim, self.kernel_size, self.axes, self.causal = dim, kernel_size, axes, causal
        self.convolution = _CONVOLUTIONS[axes](dim, dim, kernel_size, groups=dim)

    def neighbourhood(self, x: Float[Tensor, "b dim *shape"]) -> Float[Tensor, "b dim *shape"]:
        before, after = (self.kernel_size - 1, 0) if self.causal else (self.kernel_size // 2,) * 2
        weight, bias = self.convolution.weight, self.convolution.bias
        dtype = arithmetic_dtype(torch.promote_types(x.dtype, weight.dtype))  # never in half precision
        with exact_arithmetic(x.device):
            around = F.pad(x.to(dtype), (before, after) * self.axes)
            convolved: Tensor = _FUNCTIONS[self.axes](around, weight.to(dtype), bias.to(dtype), groups=self.dim)
        return convolved

    def _from_block(self, state: ForeignState) -> dict[str, Tensor]:
        return {"convolution.weight": state["proj.0.weight"], "convolution.bias": state["proj.0.bias"]}

    def _from_projection(self, state: ForeignState) -> dict[str, Tensor]:
        return {"convolution.weight": state["proj.weight"], "convolution.bias": state["proj.bias"]}

    foreign: ClassVar = {
        "cpvt": _from_block,
        "twins": _from_block,
        "coat": _from_projection,
        "davit": _from_projection,
    }

    def extra_repr(self) -> str:
        return f"{self.dim}, kernel_size={self.kernel_size}, axes={self.axes}, causal={self.causal}"
