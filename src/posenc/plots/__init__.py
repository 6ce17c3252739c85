"""One function a figure, each drawn from the numbers that an encoding gives through its public call.

Every function returns a matplotlib `Figure` (no window is opened, no global state is touched): `figure.savefig(path)`.
Vectors and similarities are in viridis; what is added to logits, and may be of either sign, is in a diverging map
centred on zero. Both can be told apart by colour-blind readers and in grey.

>>> import posenc
>>> from posenc import plots
>>> figure = plots.picture(posenc.ALiBi(num_heads=4), posenc.sequence(16))
>>> [axes.get_xlabel() for axes in figure.axes[:2]]
['relative position (query − key)', 'key position']
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

import posenc
from posenc import catalog
from posenc.plots.drawing import MOST_HEADS
from posenc.plots.inside import bias, content, contextual, rotary
from posenc.plots.numbers import by_relative
from posenc.plots.outside import absolute, conditional

__all__ = [
    "MOST_HEADS",
    "absolute",
    "bias",
    "by_relative",
    "conditional",
    "content",
    "contextual",
    "picture",
    "rotary",
    "untrained",
]


def picture(encoding: nn.Module, positions: posenc.Positions) -> Figure:
    """The figure of an encoding at these positions, by its place in the catalog."""
    draw: dict[str, Callable[..., Figure]] = {
        "absolute": absolute,
        "rotary": rotary,
        "bias": bias,
        "content": content,
        "conditional": conditional,
    }
    if isinstance(encoding, posenc.CoPE):  # where a key stands is for the query to say
        return contextual(encoding, positions)
    return draw[catalog.card(type(encoding).__name__).place](encoding, positions)


def untrained(scheme: str, arguments: dict[str, Any], shape: tuple[int, ...]) -> Figure:
    """The figure of a scheme as constructed (seed 0); tables, which start at or near zero, are filled with draws."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        encoding = getattr(posenc, scheme)(**arguments)
        for name, parameter in encoding.named_parameters():
            if "table" in name:
                parameter.normal_()
    positions = posenc.sequence(*shape) if len(shape) == 1 else posenc.grid(*shape)
    if "Fourier" in scheme:  # frequencies are made for coordinates in −1 … 1, here in turns and there in radians
        reach = 2 * math.pi if scheme == "LearnableFourier" else 1
        positions = positions.rescaled(-reach, reach)
    figure = picture(encoding, positions)
    if any(True for _ in encoding.parameters()):
        figure.suptitle(figure.get_suptitle() + ", untrained: random numbers", fontweight="bold")
    return figure
