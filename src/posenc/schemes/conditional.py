"""Conditional encodings: neighbourhood -> vector, added to the embeddings."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from posenc.checks import whole
from posenc.embedding import Conditional

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
        if causal and axes > 1:
            raise ValueError(f"causal is for one axis, got axes={axes}: a grid has no order to be causal in")
        self.dim, self.kernel_size, self.axes, self.causal = dim, kernel_size, axes, causal
        self.convolution = _CONVOLUTIONS[axes](dim, dim, kernel_size, groups=dim)

    def neighbourhood(self, x: Float[Tensor, "b dim *shape"]) -> Float[Tensor, "b dim *shape"]:
        before, after = (self.kernel_size - 1, 0) if self.causal else (self.kernel_size // 2,) * 2
        weight, bias = self.convolution.weight, self.convolution.bias
        dtype = torch.promote_types(x.dtype, weight.dtype)
        around = F.pad(x.to(dtype), (before, after) * self.axes)
        convolved: Tensor = _FUNCTIONS[self.axes](around, weight.to(dtype), bias.to(dtype), groups=self.dim)
        return convolved

    def extra_repr(self) -> str:
        return f"{self.dim}, kernel_size={self.kernel_size}, axes={self.axes}, causal={self.causal}"
