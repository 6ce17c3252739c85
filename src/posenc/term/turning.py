"""What queries and keys must be to be turned by a rotation."""

import torch

from posenc.kernels.rotate import Turning

__all__ = ["require_turning"]


def require_turning(name: str, given: Turning, head_dim: int | None) -> None:
    """Raise ValueError where the cosines and sines of a rotation are not those of the tensor called `name`.

    `head_dim` is what the rotation was made for, or None where it leaves channels beyond its pairs as they are.
    """
    x, cos, _, prefix = given
    if not x.is_floating_point():
        raise TypeError(f"{name} must be a real tensor, got {x.dtype}: convert it to float32 or bfloat16")
    dtype = torch.promote_types(x.dtype, torch.float32)
    if cos.dtype != dtype or cos.device != x.device:
        raise ValueError(
            f"the term must be in {dtype} on {x.device} for {name} in {x.dtype}, got {cos.dtype} on {cos.device}: "
            f"evaluate it with device={name}.device, dtype={dtype}"
        )
    if x.ndim != 4:
        raise ValueError(f"{name} must be [batch, heads, tokens, channels], got shape {tuple(x.shape)}: reshape it")
    (b, h, tokens, channels), (rows, heads, turned, pairs) = x.shape, cos.shape
    if tokens != prefix + turned:
        raise ValueError(
            f"{name} must have the {prefix + turned} tokens that the term was evaluated at, got {tokens}: evaluate it "
            "at these positions"
        )
    if channels < 2 * pairs or (head_dim is not None and channels != head_dim):
        wanted = f"{2 * pairs} or more" if head_dim is None else head_dim
        raise ValueError(
            f"{name} must have the {wanted} channels that the term was made for, got {channels}: make an encoding of "
            "that width"
        )
    if (heads != 1 and heads != h) or (rows != 1 and rows != b):
        raise ValueError(
            f"{name} must have the {rows} rows and {heads} heads that the term has angles for, got {b} and {h}: "
            "evaluate it for this batch"
        )
