"""Reading tensors for one pair of tokens, inside the functions that FlexAttention is told."""

from collections.abc import Callable

from torch import Tensor

__all__ = ["reader"]


def reader(x: Tensor) -> Callable[..., Tensor]:
    """A function of one index an axis that reads `x`, whose axes of size 1 are shared: any index reads them.

    They are taken off beforehand, so that every index is a tensor: a number among them would be a constant of the
    kernel, and had no gradient in torch before 2.13.
    """
    axes, own = [axis for axis, size in enumerate(x.shape) if size != 1], x.squeeze().contiguous()

    def read(*index: Tensor) -> Tensor:
        picked = tuple(index[axis] for axis in axes)
        return own[picked] if picked else own

    return read
