"""Sines and cosines of one coordinate, which absolute and content schemes share."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from posenc.layout import Device

__all__ = ["require_base", "sinusoid", "sinusoid_frequencies"]


def sinusoid_frequencies(width: int, base: float, device: Device = None) -> Float[Tensor, "sines"]:
    """`base ** (-2i / width)`, one a sine, in float64."""
    return base ** (torch.arange(0, width, 2, dtype=torch.float64, device=device) / -width)


def sinusoid(
    position: Shaped[Tensor, "*b"], width: int, base: float = 10000.0, layout: str = "interleaved"
) -> Float[Tensor, "*b width"]:
    """Sines and cosines of one coordinate, in float64."""
    angles = position.double()[..., None] * sinusoid_frequencies(width, base, position.device)
    sines, cosines = angles.sin(), angles.cos()
    if layout == "concatenated":
        return torch.cat([sines, cosines], -1)[..., :width]
    return torch.stack([sines, cosines], -1).flatten(-2)[..., :width]


def require_base(base: float) -> None:
    """Raise where a base gives no frequencies."""
    if not base > 0:
        raise ValueError(f"base must be more than 0, got {base}: the papers use 10000")
