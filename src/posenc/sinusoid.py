"""Frequencies, and the sines and cosines of one coordinate, which schemes of several places share."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from posenc.checks import real
from posenc.layout import Device

__all__ = ["geometric", "require_base", "sinusoid"]


def geometric(base: float, count: int, period: float, device: Device = None) -> Float[Tensor, "count"]:
    """`base ** (-i / period)` for i = 0 ... count - 1, in float64.

    On a CPU they are Python's own powers, to the last bit; elsewhere they are made where they are needed, as a captured
    step allows no copy from the host.
    """
    base = float(base)  # powers of NumPy's float32 would be float32
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


def require_base(base: float) -> float:
    """The base as a float; raise where it gives no frequencies."""
    number = real("base", base, "the papers use 10000")
    if number <= 0:
        raise ValueError(f"base must be more than 0 and finite, got {base}: the papers use 10000")
    if not 1e-30 <= number <= 1e30:  # so that its powers are numbers, in float32 too
        raise ValueError(f"base must be from 1e-30 to 1e30, got {base}: the papers use 10000")
    return number
