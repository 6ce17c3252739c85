"""Figures that show step by step which entry of a table by relative position lands where, by reshaping alone."""

from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

import posenc

Array = NDArray[Any]

MAP = "viridis"


def relative_to_absolute(length: int = 4) -> Figure:
    """How padding and reshaping alone turn `[L, 2L − 1]`, by relative position, into `[L, L]`, by key.

    Colour is relative position, the number is the place in the table, a dot is padding, hatching is what is thrown
    away. The last panel is what `posenc.relative_to_absolute` returns.
    """
    table = np.arange(length * (2 * length - 1)).reshape(length, -1)
    padded = np.pad(table, ((0, 0), (0, 1)), constant_values=-1)
    flat = padded.reshape(1, -1)
    dropped = length - 1
    middle = flat[:, dropped : dropped + table.size].reshape(table.shape)
    result = posenc.relative_to_absolute(torch.from_numpy(table)).numpy()

    def relative(numbers: Array) -> Array:
        return (length - 1) - numbers % (2 * length - 1)

    figure, panels = _step_figure(length, f"relative_to_absolute, L = {length}", length)
    last = 2 * length - 2
    titles = (
        f"1  The table: row = query, column c = relative position {length - 1} − c",
        "2  Pad one column (•)",
        f"3  Flatten, row after row; drop the first L − 1 = {dropped}, and what is left over at the end",
        "4  Reshape to L × (2L − 1)",
        "5  Keep the first L columns: column = key",
    )
    outside = (np.arange(flat.size) < dropped) | (np.arange(flat.size) >= dropped + table.size)
    beyond = np.broadcast_to(np.arange(last + 1) >= length, table.shape)
    steps = ((table, None), (padded, None), (flat, outside[None]), (middle, beyond), (result, None))
    for panel, title, (numbers, gone) in zip(panels, titles, steps, strict=True):
        _cells(panel, numbers, relative(numbers), title, gone, (1 - length, length - 1))
    _step_bar(figure, panels, (1 - length, 0, length - 1))
    return figure


def skew(length: int = 4) -> Figure:
    """How the Music Transformer's skew turns `[L, L]`, by causal relative position, into `[L, L]`, by key.

    Colour is relative position, the number is the place in the table. Hatched at the end: left over above the diagonal,
    which causal attention must never see. The last panel is what `posenc.skew` returns.
    """
    table = np.arange(1, length * length + 1).reshape(length, length)
    padded = np.pad(table, ((0, 0), (1, 0)), constant_values=-1)
    flat = padded.reshape(1, -1)
    tall = padded.reshape(length + 1, length)
    result = posenc.skew(torch.from_numpy(table)).numpy()
    result = np.where(result == 0, -1, result)  # what was padding

    def relative(numbers: Array) -> Array:
        return (length - 1) - (numbers - 1) % length

    figure, panels = _step_figure(length, f"skew, L = {length} (causal)", length + 1)
    titles = (
        f"1  The table: row = query, column c = relative position {length - 1} − c",
        "2  Pad one column in front (•)",
        "3  Flatten, row after row",
        "4  Reshape to (L + 1) × L, and drop the first row",
        "5  Column = key; above the diagonal: leftovers",
    )
    first = np.broadcast_to(np.arange(length + 1)[:, None] == 0, tall.shape)
    above = np.triu(np.ones((length, length), dtype=bool), 1)
    steps = ((table, None), (padded, None), (flat, None), (tall, first), (result, above))
    for panel, title, (numbers, gone) in zip(panels, titles, steps, strict=True):
        _cells(panel, numbers, relative(numbers), title, gone, (0, length - 1))
    _step_bar(figure, panels, (0, length - 1))
    return figure


def _step_figure(length: int, title: str, last_rows: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(12, 3.2 + 0.9 * length), layout="constrained")
    figure.suptitle(title, fontweight="bold")
    grid = figure.add_gridspec(3, 2, height_ratios=(length, 1.4, last_rows))
    places = (grid[0, 0], grid[0, 1], grid[1, :], grid[2, 0], grid[2, 1])
    return figure, [figure.add_subplot(place, anchor="NW") for place in places]


def _cells(
    panel: Axes, numbers: Array, relative: Array, title: str, gone: Array | None, limits: tuple[int, int]
) -> None:
    """Numbered cells coloured by relative position; −1 is padding; `gone` cells are faded and hatched."""
    low, high = limits
    padding = numbers < 0
    gone = np.zeros_like(padding) if gone is None else gone
    color = matplotlib.colormaps[MAP]
    panel.imshow(np.where(padding, np.nan, relative), cmap=MAP, vmin=low, vmax=max(high, low + 1))
    size = 10 if len(numbers) > 1 else min(10.0, 500 / numbers.size)
    for (row, column), number in np.ndenumerate(numbers):
        corner, is_padding, is_gone = (column - 0.5, row - 0.5), padding[row, column], gone[row, column]
        edge = Rectangle(corner, 1, 1, fill=False, edgecolor="0.6" if is_padding or is_gone else "white")
        edge.set_zorder(3 if is_padding or is_gone else 2)
        panel.add_patch(edge)
        if is_gone:
            panel.add_patch(Rectangle(corner, 1, 1, facecolor=(1, 1, 1, 0.65), edgecolor="0.55", hatch="///"))
        red, green, blue, _ = color((relative[row, column] - low) / max(high - low, 1))
        dark = not (is_padding or is_gone) and 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
        text = "•" if is_padding else str(number)
        panel.text(column, row, text, ha="center", va="center", fontsize=size, color="white" if dark else "black")
    panel.set_title(title, fontsize=10, loc="left")
    panel.set(xticks=[], yticks=[], xlim=(-0.55, numbers.shape[1] - 0.45), ylim=(len(numbers) - 0.45, -0.55))
    panel.set_frame_on(False)


def _step_bar(figure: Figure, panels: list[Axes], ticks: tuple[int, ...]) -> None:
    bar = figure.colorbar(panels[0].images[0], ax=panels, shrink=0.5, aspect=30, panchor=False)
    bar.set_label("relative position (query − key)")
    bar.set_ticks(sorted(set(ticks)))
