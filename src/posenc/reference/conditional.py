"""Conditional encodings: what stands around a token → vector."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from posenc.reference._shared import Array, check, check_shape, float64, row_major, sizes_of


def conditional_encoding(
    x: Float[Array, "*batch n {dim}"],
    grid_shape: int | Sequence[int],
    weight: Float[Array, "{dim} 1 *kernel"],
    bias: Float[Array, "{dim}"],
    dim: int,
    kernel_size: int = 3,
    axes: int = 2,
    causal: bool = False,
    prefix: int = 0,
) -> Float[Array, "*batch n {dim}"]:
    """Tokens, each with a weighted sum of its neighbours on the grid added, channel by channel.

    `y[c, p] = x[c, p] + bias[c] + Σ_o weight[c, o] x[c, p + o − kernel_size // 2]`, zero beyond the grid's edge.

    Args:
        x: tokens of the grid, row-major, after `prefix` tokens that pass through.
        grid_shape: size of the grid along each axis.
        weight: a kernel for each channel.
        bias: a number for each channel.
        dim: channels.
        kernel_size: an odd number, the same on each axis.
        axes: number of axes.
        causal: whether the kernel ends at the token instead of being centred on it; one axis.
        prefix: tokens before the grid.

    Raises:
        ValueError: for an even kernel, a causal kernel on several axes, or arrays of another shape.

    >>> x = np.array([[1.0], [2.0], [4.0]])
    >>> conditional_encoding(x, 3, np.array([[[10.0, 0.0, 1.0]]]), np.zeros(1), 1, axes=1).ravel().tolist()
    [3.0, 16.0, 24.0]

    Chu et al., Conditional Positional Encodings for Vision Transformers, arXiv:2102.10882.
    """
    sizes = sizes_of(grid_shape, smallest=0)
    check(len(sizes) == axes, f"grid_shape must have {axes} axes, got {sizes}")
    check(kernel_size % 2 == 1, f"kernel_size must be odd, got {kernel_size}")
    check(not causal or axes == 1, f"a causal convolution has one axis, got {axes}")
    check_shape("x", x, (*x.shape[:-2], prefix + math.prod(sizes), dim))
    check_shape("weight", weight, (dim, 1, *[kernel_size] * axes))
    check_shape("bias", bias, (dim,))

    reach = kernel_size - 1 if causal else kernel_size // 2
    x, kernel = float64(x), np.moveaxis(float64(weight)[:, 0], 0, -1)  # [*offset, dim]
    encoded = x.copy()
    for place in itertools.product(*(range(size) for size in sizes)):
        token = prefix + row_major(place, sizes)
        encoded[..., token, :] += bias
        for offset in itertools.product(range(kernel_size), repeat=axes):
            neighbour = [p + o - reach for p, o in zip(place, offset, strict=True)]
            if all(0 <= p < size for p, size in zip(neighbour, sizes, strict=True)):
                # y[c, p] += weight[c, o] x[c, p + o − reach]
                encoded[..., token, :] += kernel[offset] * x[..., prefix + row_major(neighbour, sizes), :]
    return encoded
