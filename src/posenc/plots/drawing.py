"""Panels, maps and curves that the figures share."""

import math

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import nn

import posenc
from posenc import catalog
from posenc.plots.numbers import Array

__all__ = [
    "AXES",
    "DIVERGING",
    "LINE",
    "MOST_HEADS",
    "RELATIVE",
    "SEQUENTIAL",
    "curves",
    "head_maps",
    "image",
    "relative_map",
    "rows_label",
    "suptitle",
    "ticks",
    "two_panels",
    "whole",
]

SEQUENTIAL = "viridis"
DIVERGING = "RdBu_r"
LINE = "#30678d"
RELATIVE = "relative position (query − key)"
AXES = {1: ("position",), 2: ("height", "width"), 3: ("depth", "height", "width")}
MOST_HEADS = 8


def suptitle(figure: Figure, encoding: nn.Module) -> None:
    """The scheme's title, without what stands in brackets."""
    title = catalog.card(type(encoding).__name__).title
    figure.suptitle(title.partition(" (")[0], fontweight="bold")


def two_panels(encoding: nn.Module) -> tuple[Figure, Axes, Axes]:
    """A figure of two panels side by side."""
    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    suptitle(figure, encoding)
    left, right = figure.subplots(1, 2)
    return figure, left, right


def rows_label(positions: posenc.Positions) -> str:
    """What the rows of a picture of vectors are."""
    return "position" if positions.axes == 1 and positions.prefix == 0 else "token, row-major"


def ticks(count: int) -> Array:
    """The relative positions of so many entries."""
    return np.arange(count) - count // 2


def whole() -> MaxNLocator:
    """Ticks at whole numbers."""
    return MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10])


def curves(panel: Axes, lags: Array, values: Array, title: str, ylabel: str) -> None:
    """One curve, or one a head, over relative positions."""
    lines = np.atleast_2d(values)
    colors = matplotlib.colormaps[SEQUENTIAL](np.linspace(0, 0.9, len(lines))) if len(lines) > 1 else [LINE]
    for head, (curve, color) in enumerate(zip(lines, colors, strict=True)):
        panel.plot(lags, curve, color=color, label=f"head {head + 1}")
    panel.set(title=title, xlabel=RELATIVE, ylabel=ylabel)
    panel.grid(alpha=0.3)
    if values.ndim > 1:
        panel.legend(ncols=2, fontsize="small")


def image(
    figure: Figure,
    panel: Axes,
    data: Array,
    colors: str,
    title: str,
    xlabel: str = "",
    ylabel: str = "",
    extent: tuple[float, float, float, float] | None = None,
    limits: tuple[float, float] | None = None,
    bar: bool = True,
) -> None:
    """A heat map. A diverging one is centred on zero; values that leave zero out are shown on their own range."""
    low, high = limits or (float(np.nanmin(data)), float(np.nanmax(data)))
    if colors == DIVERGING and low <= 0 <= high:
        high = max(-low, high) or 1.0
        low = -high
    elif colors == DIVERGING:
        colors = SEQUENTIAL
    drawn = panel.imshow(data, cmap=colors, vmin=low, vmax=high, aspect="auto", interpolation="nearest", extent=extent)
    panel.set(title=title, xlabel=xlabel, ylabel=ylabel)
    panel.xaxis.set_major_locator(whole())
    panel.yaxis.set_major_locator(whole())
    if bar:
        figure.colorbar(drawn, ax=panel)


def relative_map(
    figure: Figure,
    panel: Axes,
    values: Array,
    colors: str,
    title: str,
    limits: tuple[float, float] | None = None,
    bar: bool = True,
) -> None:
    """A heat map of the relative position on the last two axes, the others level."""
    while values.ndim > 2:
        values = values[values.shape[0] // 2]
    height, width = (size // 2 + 0.5 for size in values.shape)
    extent = (-width, width, height, -height)
    names = ("relative width (query − key)", "relative height (query − key)")
    image(figure, panel, values, colors, title, *names, extent=extent, limits=limits, bar=bar)
    panel.set_aspect("equal")


def head_maps(encoding: nn.Module, values: Array, title: str) -> Figure:
    """A figure with a map for each head, at most eight of them, on one scale."""
    shown = values[:MOST_HEADS]
    columns = min(len(shown), 4)
    rows = math.ceil(len(shown) / columns)
    height, width = shown.shape[-2:]
    figure = Figure(figsize=(3 * columns + 1, rows * (0.8 + min(2.4 * height / width, 6)) + 0.6), layout="constrained")
    suptitle(figure, encoding)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    limits = float(shown.min()), float(shown.max())
    for head, panel in enumerate(panels):
        if head < len(shown):
            name, last = f"{title} {head + 1}", head == len(shown) - 1
            relative_map(figure, panel, shown[head], DIVERGING, name, limits, bar=last)
        else:
            panel.set_axis_off()
    return figure
