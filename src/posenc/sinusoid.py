"""Frequencies, and the sines and cosines of one coordinate, which schemes of several places share."""

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from posenc.layout import Device

__all__ = ["geometric", "require_base", "sinusoid"]


def geometric(base: float, count: int, period: float, device: Device = None) -> Float[Tensor, "count"]:
    """`base ** (-i / period)` for i = 0 ... count - 1, in float64.

    On a CPU they are Python's own powers, to the last bit; elsewhere they are made where they are needed, as a captured
    step allows no copy from the host.
    """
    if torch.empty(0, device=device).device.type == "cpu":
        return torch.tensor([base ** (-i / period) for i in range(count)], dtype=torch.float64, device=device)
    return base ** (torch.arange(count, dtype=torch.float64, device=device) / -period)


def sinusoid(
    position: Shaped[Tensor, "*b"], width: int, base: float = 10000.0, layout: str = "interleaved"
) -> Float[Tensor, "*b width"]:
    """Sines and cosines of one coordinate, in float64."""
    frequencies = geometric(base, (width + 1) // 2, width / 2, position.device)  # base ** (-2i / width)
    angles = position.double()[..., None] * frequencies
    sines, cosines = angles.sin(), angles.cos()
    if layout == "concatenated":
        return torch.cat([sines, cosines], -1)[..., :width]
    return torch.stack([sines, cosines], -1).flatten(-2)[..., :width]


def require_base(base: float) -> None:
    """Raise where a base gives no frequencies."""
    if isinstance(base, bool) or not isinstance(base, int | float):
        raise TypeError(f"base must be a number, got {base!r}: the papers use 10000")
    if not 0 < base < math.inf:
        raise ValueError(f"base must be more than 0 and finite, got {base}: the papers use 10000")
