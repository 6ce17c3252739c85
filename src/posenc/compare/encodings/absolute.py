"""The contestants that are added to the embeddings, and the model without any."""

import math
from typing import Any, cast

import torch
from torch import nn

import posenc
from posenc.compare.contestants import Contestant, Variant
from posenc.compare.looks import BLUE, GREY, INK, OLIVE, ORANGE
from posenc.compare.tasks import Place, Task

__all__ = ["RESIZED", "ROWS"]


def _resized(encoding: nn.Module, place: Place, task: Task) -> tuple[nn.Module, Place]:
    """A learned table stretched over another number of positions."""
    source = tuple(cast(Any, encoding).shape)
    if place.shift:
        raise ValueError("a resized table starts where the trained one does")
    if place.squeezed is not None:
        target = tuple(round(size * ratio) for size, ratio in zip(source, place.squeezed, strict=True))
    elif place.mask is None and len(source) == 1:
        target = place.shape
    elif all(now <= size for now, size in zip(place.shape, source, strict=True)):
        target = source
    else:
        raise ValueError("a resized table is stretched over the whole: see it squeezed")
    table = posenc.resize_table(cast(Any, encoding).table.detach(), source, target)
    stretched = posenc.Learned(target, table.shape[-1])
    with torch.no_grad():
        stretched.table.copy_(table)
    return stretched, place._replace(squeezed=None)


RESIZED = Variant("learned-resized", "Learned, resized", _resized)

ROWS = (
    Contestant("none", "No encoding", "", None, lambda task, sizes: {}, "nowhere", look=(GREY, "o")),
    Contestant(
        "sinusoidal",
        "Sinusoidal",
        "Vaswani et al. 2017",
        "Sinusoidal",
        lambda task, sizes: {"dim": sizes.width, "axes": task.axes},
        "embeddings",
        look=(BLUE, "o"),
    ),
    Contestant(
        "learned",
        "Learned",
        "Dosovitskiy et al. 2020",
        "Learned",
        lambda task, sizes: {"shape": task.shape, "dim": sizes.width},
        "embeddings",
        variants=(RESIZED,),
        look=(ORANGE, "s"),
    ),
    Contestant(
        "fourier",
        "Fourier",
        "Tancik et al. 2020",
        "Fourier",
        lambda task, sizes: {"dim": sizes.width, "axes": task.axes, "scale": 2.0 / max(task.shape)},
        "embeddings",
        look=(INK, "*"),
    ),
    Contestant(
        "fourier-bands",
        "Fourier bands",
        "Mildenhall et al. 2020 (NeRF), Jaegle et al. 2021 (Perceiver)",
        "FourierBands",
        lambda task, sizes: {
            "axes": task.axes,
            "bands": max(1, min(sizes.width // (2 * task.axes), max(task.shape) // 2)),
            "resolution": tuple(max(2, size) for size in task.shape),
            "scale": 2 / max(1, max(task.shape) - 1),  # positions of the longest axis fill −1 … 1, moved
            "dim": sizes.width,
        },
        "embeddings",
        look=(OLIVE, "H"),
    ),
    Contestant(
        "learnable-fourier",
        "Learnable Fourier",
        "Li et al. 2021",
        "LearnableFourier",
        lambda task, sizes: {
            "dim": sizes.width,
            "axes": task.axes,
            "features": 2 * sizes.width,
            "scale": 4 * math.pi / max(task.shape),  # as many turns as Fourier's
        },
        "embeddings",
        look=(BLUE, "8"),
    ),
)
