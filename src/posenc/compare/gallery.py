"""Pictures of the encodings as learned: the encoding's own numbers, and where its heads look."""

from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from posenc.compare.encodings import contestant
from posenc.compare.figures import SETTINGS, svg
from posenc.compare.summary import Row, TaskSummary

__all__ = ["Picture", "picture"]

Array = NDArray[Any]
HEADS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
OWN = {
    "similarity": (
        "vectors",
        "similarity of the vectors of any two positions, their mean taken off; from −1 (blue) to 1 (red)",
    ),
    "bias": ("bias", "bias by relative position, one a head"),
    "content": ("logits", "mean logit of real queries by relative position, one a head"),
    "rotation": ("rotation", "logit of two equal vectors by relative position"),
    "response": ("response", "response to a single token, averaged over channels"),
}


class Picture(NamedTuple):
    """What to show of one row: its title and paper, the drawing, and what its left half is."""

    title: str
    paper: str
    svg: str
    own: str


def picture(summary: TaskSummary, row: Row) -> Picture | None:
    """The pictures of one row, or None where nothing was kept."""
    portrait = row.portrait
    if portrait is None:
        return None
    shape = tuple(portrait["shape"])
    attention = np.array(portrait["attention"])
    own = portrait.get("own")
    with matplotlib.rc_context(SETTINGS | {"axes.grid": False, "font.size": 8}):
        figure = Figure(figsize=(3.4, 1.75), layout="constrained")
        parts: Any = figure.subfigures(1, 2, width_ratios=(1, 1))
        left, right = parts
        if own is None:
            left.text(0.5, 0.5, "no encoding", ha="center", va="center", alpha=0.6)
        else:
            _own(left, own["kind"], np.array(own["values"]), shape, summary)
        _attention(right, attention, shape, summary.task.causal)
        what = OWN[own["kind"]][1] if own else "nothing is added"
        label = f"{row.title} on {summary.task.title}. Left: {what}. Right: how much each head of the first block "
        label += f"attends to a relative position. {_looks(attention, shape)}"
        drawn = svg(figure, f"{summary.task.name}-{row.name}-picture", label)
        return Picture(row.title, contestant(row.name).paper, drawn, what)


def _own(figure: Any, kind: str, values: Array, shape: tuple[int, ...], summary: TaskSummary) -> None:
    axes = figure.subplots()
    axes.set_title(OWN[kind][0], fontsize=8, loc="left")
    if kind == "similarity":
        if len(shape) == 2:  # one small map a position: how similar all others are to it
            rows, columns = shape
            values = values.reshape(rows, columns, rows, columns).transpose(0, 2, 1, 3)
            values = values.reshape(rows * rows, columns * columns)
        axes.imshow(values, vmin=-1, vmax=1, cmap="RdBu_r")
        _bare(axes)
    elif values.ndim == 1 or (values.ndim == 2 and len(shape) == 1):
        lines = np.atleast_2d(values)
        lags = np.arange(lines.shape[-1]) - lines.shape[-1] // 2 if kind == "response" else _lags(lines.shape[-1])
        seen = lags >= 0 if summary.task.causal else slice(None)
        _lines(axes, lags[seen], lines[:, seen])
    else:
        _maps(figure, axes, values.reshape(-1, *values.shape[-2:]), "RdBu_r", symmetric=True)


def _attention(figure: Any, weights: Array, shape: tuple[int, ...], causal: bool) -> None:
    axes = figure.subplots()
    axes.set_title("where heads look", fontsize=8, loc="left")
    if len(shape) == 1:
        lags = _lags(weights.shape[-1])
        seen = lags >= 0 if causal else slice(None)
        _lines(axes, lags[seen], weights[:, seen])
        axes.set_yscale("log")
        axes.set_ylim(max(1e-5, float(weights[:, seen].min()) / 2), 1.5)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
        if causal:
            axes.set_xscale("symlog", linthresh=4)
            axes.set_xticks([0, 4, 16, 64], ["0", "4", "16", "64"])
            axes.minorticks_off()
    else:
        _maps(figure, axes, weights, "magma", symmetric=False)


def _lines(axes: Axes, lags: Array, lines: Array) -> None:
    for head, line in enumerate(lines):
        axes.plot(lags, line, color=HEADS[head % len(HEADS)], linewidth=1.2, label=f"head {head + 1}")
    axes.grid(True)
    axes.tick_params(labelsize=7)
    axes.set_xlabel("query − key", fontsize=7)


def _maps(figure: Any, axes: Axes, maps: Array, colours: str, *, symmetric: bool) -> None:
    """Up to four maps in a square, with a thin gap, on one scale."""
    maps = maps[:4]
    columns = 2 if len(maps) > 1 else 1
    gap = np.full((maps.shape[1], 1), np.nan)
    rows = []
    for start in range(0, len(maps), columns):
        pair = [maps[start], *(part for other in maps[start + 1 : start + columns] for part in (gap, other))]
        rows += [np.concatenate(pair, 1), np.full((1, sum(part.shape[1] for part in pair)), np.nan)]
    grid = np.concatenate(rows[:-1], 0)
    top = np.nanmax(np.abs(grid)) or 1.0
    axes.imshow(grid, cmap=colours, vmin=-top if symmetric else 0, vmax=top)
    _bare(axes)


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _lags(count: int) -> Array:
    return np.arange(count) - count // 2


def _looks(weights: Array, shape: tuple[int, ...]) -> str:
    """In words: how far from itself each head looks most."""
    found = []
    for head in weights[:4]:
        peak = np.unravel_index(int(np.argmax(head)), head.shape)
        lag = [int(at) - (size - 1) for at, size in zip(peak, shape, strict=True)]
        found.append(str(lag[0]) if len(lag) == 1 else f"({', '.join(map(str, lag))})")
    return f"The heads look most at query minus key = {', '.join(found)}."
