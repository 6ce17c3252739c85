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

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import nn

import posenc
from posenc import catalog

Array = NDArray[Any]

SEQUENTIAL = "viridis"
DIVERGING = "RdBu_r"
RELATIVE = "relative position (query − key)"
AXES = {1: ("position",), 2: ("height", "width"), 3: ("depth", "height", "width")}
MOST_HEADS = 8


def picture(encoding: nn.Module, positions: posenc.Positions) -> Figure:
    """The figure of an encoding at these positions, by its place in the catalog."""
    draw: dict[str, Callable[..., Figure]] = {
        "absolute": absolute,
        "rotary": rotary,
        "bias": bias,
        "content": content,
        "conditional": conditional,
    }
    return draw[catalog.card(type(encoding).__name__).place](encoding, positions)


def untrained(scheme: str, arguments: dict[str, Any], shape: tuple[int, ...]) -> Figure:
    """The figure of a scheme as constructed; parameters, if it has any, are filled with normal draws (seed 0)."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        encoding = getattr(posenc, scheme)(**arguments)
        for parameter in encoding.parameters():
            parameter.normal_()
    positions = posenc.sequence(*shape) if len(shape) == 1 else posenc.grid(*shape)
    if scheme == "Fourier":  # frequencies are drawn for coordinates in −1 … 1
        positions = positions.rescaled(-1, 1)
    figure = picture(encoding, positions)
    if any(True for _ in encoding.parameters()):
        figure.suptitle(figure.get_suptitle() + ", untrained: random numbers", fontweight="bold")
    return figure


# --- a figure for each place ------------------------------------------------------------------------------------------


@torch.no_grad()
def absolute(encoding: nn.Module, positions: posenc.Positions) -> Figure:
    """Left: the vector of each position. Right: cosine similarity of the vectors.

    On a grid of two axes the right side is a grid of tiles: tile (y, x) shows how similar the vector of cell (y, x) is
    to the vectors of all cells.
    """
    vectors = _vectors(encoding, positions)
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    similarity = units @ units.T
    figure, left, right = _two_panels(encoding)
    _image(figure, left, vectors, SEQUENTIAL, "Position vectors", "channel", _rows_label(positions))
    tokens = similarity[positions.prefix :, positions.prefix :]
    if positions.shape is not None and positions.axes == 2:
        _image(figure, right, tiles(tokens, positions.shape), SEQUENTIAL, "Cosine similarity: a tile a position")
        right.set(xticks=[], yticks=[], xlabel="width", ylabel="height")
    else:
        label = _rows_label(positions)
        _image(figure, right, similarity, SEQUENTIAL, "Cosine similarity of positions", label, label)
    return figure


@torch.no_grad()
def rotary(encoding: posenc.RotaryEncoding, positions: posenc.Positions) -> Figure:
    """Left: cosine of the angle of each pair of channels. Right: the logit of two equal vectors."""
    cosine, sine = (part[0, 0].double().numpy() for part in encoding.cos_sin(positions))
    figure, left, right = _two_panels(encoding)
    _image(figure, left, cosine, SEQUENTIAL, "Cosine of the angle", "pair of channels", _rows_label(positions))
    logits = (cosine @ cosine.T + sine @ sine.T) / cosine.shape[-1]
    values = by_relative(logits, positions)
    title = "Logit of two equal vectors, before the scale"
    if values.ndim == 1:
        right.plot(_ticks(len(values)), values, color="#30678d")
        right.set(title=title, xlabel=RELATIVE, ylabel="logit, as a share of |q|²")
        right.grid(alpha=0.3)
    else:
        _map(figure, right, values, SEQUENTIAL, title)
    return figure


@torch.no_grad()
def bias(encoding: nn.Module, positions: posenc.Positions) -> Figure:
    """The number added to the logits: by relative position, head by head.

    One axis: left a curve for each head, right the matrix of the first head. A grid: a map for each head (of its last
    two axes, the others level), at most eight of them.
    """
    matrix = encoding(positions)
    matrix = matrix[:, positions.prefix :, positions.prefix :].double().numpy()
    values = by_relative(matrix, positions)
    if values.ndim == 2:
        figure, left, right = _two_panels(encoding)
        colors = matplotlib.colormaps[SEQUENTIAL](np.linspace(0, 0.9, len(values)))
        for head, (curve, color) in enumerate(zip(values, colors, strict=True)):
            left.plot(_ticks(len(curve)), curve, color=color, label=f"head {head + 1}")
        left.set(title="Bias by relative position", xlabel=RELATIVE, ylabel="added to the logit")
        left.grid(alpha=0.3)
        left.legend(ncols=2, fontsize="small")
        _image(figure, right, matrix[0], DIVERGING, "Bias of head 1", "key position", "query position")
        return figure
    shown = values[:MOST_HEADS]
    columns = min(len(shown), 4)
    rows = math.ceil(len(shown) / columns)
    height, width = shown.shape[-2:]
    figure = Figure(figsize=(3 * columns + 1, rows * (0.8 + min(2.4 * height / width, 6)) + 0.6), layout="constrained")
    _suptitle(figure, encoding)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    limit = np.abs(shown).max()
    for head, panel in enumerate(panels):
        if head < len(shown):
            _map(figure, panel, shown[head], DIVERGING, f"Bias of head {head + 1}", limit, bar=head == len(shown) - 1)
        else:
            panel.set_axis_off()
    return figure


@torch.no_grad()
def content(encoding: nn.Module, positions: posenc.Positions) -> Figure:
    """The vector that the query meets at each relative position, of the first head: a panel an axis, the others level.

    Schemes that also add vectors to the values (Shaw) get a panel for those.
    """
    if positions.shape is None:
        raise ValueError("the picture of a content encoding needs a sequence or a grid, got coordinates")
    names = AXES.get(positions.axes, tuple(f"axis {axis}" for axis in range(positions.axes)))
    panels = [
        (f"Vector met by the query, {name}" if positions.axes > 1 else "Vector met by the query", rows)
        for name, rows in zip(
            names, (key_rows(encoding, positions, axis) for axis in range(positions.axes)), strict=True
        )
    ]
    if "value_table" in dict(encoding.named_parameters()):
        panels.append(("Vector added to the value", value_rows(encoding, positions.shape[0])))
    figure = Figure(figsize=(max(7, 5.2 * len(panels)), 4.6), layout="constrained")
    _suptitle(figure, encoding)
    for panel, (title, rows) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        reach = len(rows) // 2 + 0.5
        _image(figure, panel, rows, DIVERGING, title, "channel", RELATIVE, (-0.5, rows.shape[1] - 0.5, reach, -reach))
    return figure


@torch.no_grad()
def conditional(encoding: nn.Module, positions: posenc.Positions) -> Figure:
    """Left: the kernels of the first channels. Right: what is added where all tokens are alike.

    There it is the same everywhere but near the border, where zero padding enters: that is how position gets in.
    """
    if positions.shape is None:
        raise ValueError("the picture of a conditional encoding needs a sequence or a grid, got coordinates")
    weight = dict(encoding.named_parameters())["convolution.weight"][:, 0].double().numpy()
    alike = torch.ones(1, positions.length, len(weight))
    added = (encoding(alike, positions) - alike)[0, positions.prefix :].double().numpy()
    strength = np.linalg.norm(added, axis=-1).reshape(positions.shape)
    figure, left, right = _two_panels(encoding)
    while weight.ndim > 3:  # the middle slice of axes before the last two
        weight = weight[:, weight.shape[1] // 2]
    if weight.ndim == 2:
        _image(figure, left, weight, DIVERGING, "Kernel of each channel", "tap", "channel")
    else:
        side = min(4, math.isqrt(len(weight)))
        blocks = weight[: side * side].reshape(side, side, *weight.shape[1:])
        _image(figure, left, _spread(blocks), DIVERGING, f"Kernels of the first {side * side} channels")
        left.set(xticks=[], yticks=[])
    title = "Size of what is added to equal tokens"
    if strength.ndim == 1:
        right.plot(np.arange(len(strength)), strength, color="#30678d", marker="o", markersize=3)
        right.set(title=title, xlabel="position", ylabel="norm over the channels", ylim=(0, 1.05 * strength.max()))
        right.xaxis.set_major_locator(_whole())
        right.grid(alpha=0.3)
    else:
        while strength.ndim > 2:
            strength = strength[strength.shape[0] // 2]
        _image(figure, right, strength, SEQUENTIAL, title, "width", "height")
    return figure


# --- the numbers in them ----------------------------------------------------------------------------------------------


def by_relative(values: Array, positions: posenc.Positions) -> Array:
    """`[..., n, n]` over tokens (without prefix) → `[..., 2s − 1, …]`: one number for each relative position.

    Index r + s − 1 along an axis of extent s holds relative position r. Where several pairs of tokens have the same
    relative position the last one is kept: for a relative encoding they are equal.
    """
    places = positions.coordinates().numpy()
    if places.ndim != 2 or places.dtype != np.int64:
        raise ValueError("relative positions are drawn for whole coordinates without a batch axis")
    relative = places[:, None] - places[None]
    extent = relative.max(axis=(0, 1))
    result = np.full((*values.shape[:-2], *(2 * extent + 1)), np.nan)
    result[(..., *np.moveaxis(relative + extent, -1, 0))] = values
    return result


def key_rows(encoding: nn.Module, positions: posenc.Positions, axis: int = 0) -> Array:
    """`[2s − 1, head_dim]`: the vector of the first head that meets the query, by relative position along one axis.

    Read through the encoding's call: the logits of the unit vectors. NaN where a causal scheme has none.
    """
    assert positions.shape is not None
    size = positions.shape[axis]
    line = torch.zeros(size, positions.axes, dtype=torch.int64)
    line[:, axis] = torch.arange(size)
    along = posenc.coordinates(line, extent=positions.shape)
    width = int(encoding.head_dim)  # type: ignore[arg-type]
    units = torch.eye(width)[:, None, None].expand(width, encoding.num_heads or 1, size, width)  # type: ignore[arg-type]
    logits = encoding(units, along)[:, 0].double().numpy()
    rows: Array = by_relative(logits, posenc.sequence(size)).T
    return np.where(np.isfinite(rows), rows, np.nan)


def value_rows(encoding: nn.Module, length: int) -> Array:
    """`[2·length − 1, head_dim]`: the vector of the first head that is added to the value, by relative position."""
    chosen = torch.eye(length)[:, None, None].expand(length, encoding.num_heads or 1, length, length)  # type: ignore[arg-type]
    added = encoding.values(chosen, posenc.sequence(length))[:, 0].double().numpy()  # type: ignore[operator]
    return by_relative(np.moveaxis(added, (2, 1, 0), (0, 1, 2)), posenc.sequence(length)).T


def tiles(similarity: Array, shape: tuple[int, ...]) -> Array:
    """`[h·w, h·w]` → an image of h × w tiles of h × w pixels, with a gap of one pixel between tiles."""
    height, width = shape
    return _spread(similarity.reshape(height, width, height, width))


def _vectors(encoding: nn.Module, positions: posenc.Positions) -> Array:
    width = int(encoding.dim)  # type: ignore[arg-type]
    result: Array = encoding(torch.zeros(1, positions.length, width), positions)[0].double().numpy()
    return result


def _spread(blocks: Array) -> Array:
    """`[rows, columns, h, w]` → one image with gaps of NaN."""
    rows, columns, height, width = blocks.shape
    padded = np.full((rows, columns, height + 1, width + 1), np.nan)
    padded[:, :, :height, :width] = blocks
    return padded.swapaxes(1, 2).reshape(rows * (height + 1), columns * (width + 1))[:-1, :-1]


# --- drawing ----------------------------------------------------------------------------------------------------------


def _suptitle(figure: Figure, encoding: nn.Module) -> None:
    title = catalog.card(type(encoding).__name__).title
    figure.suptitle(title.partition(" (")[0], fontweight="bold")


def _two_panels(encoding: nn.Module) -> tuple[Figure, Axes, Axes]:
    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    _suptitle(figure, encoding)
    left, right = figure.subplots(1, 2)
    return figure, left, right


def _rows_label(positions: posenc.Positions) -> str:
    return "position" if positions.axes == 1 and positions.prefix == 0 else "token, row-major"


def _ticks(count: int) -> Array:
    return np.arange(count) - count // 2


def _whole() -> MaxNLocator:
    return MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10])


def _image(
    figure: Figure,
    panel: Axes,
    data: Array,
    colors: str,
    title: str,
    xlabel: str = "",
    ylabel: str = "",
    extent: tuple[float, float, float, float] | None = None,
    limit: float | None = None,
    bar: bool = True,
) -> None:
    """A heat map. A diverging one is centred on zero."""
    if colors == DIVERGING and limit is None:
        limit = float(np.nanmax(np.abs(data))) or 1.0
    low = None if limit is None else -limit
    image = panel.imshow(data, cmap=colors, vmin=low, vmax=limit, aspect="auto", interpolation="nearest", extent=extent)
    panel.set(title=title, xlabel=xlabel, ylabel=ylabel)
    panel.xaxis.set_major_locator(_whole())
    panel.yaxis.set_major_locator(_whole())
    if bar:
        figure.colorbar(image, ax=panel)


def _map(
    figure: Figure, panel: Axes, values: Array, colors: str, title: str, limit: float | None = None, bar: bool = True
) -> None:
    """A heat map of the relative position on the last two axes, the others level."""
    while values.ndim > 2:
        values = values[values.shape[0] // 2]
    height, width = (size // 2 + 0.5 for size in values.shape)
    extent = (-width, width, height, -height)
    names = ("relative width (query − key)", "relative height (query − key)")
    _image(figure, panel, values, colors, title, *names, extent=extent, limit=limit, bar=bar)
    panel.set_aspect("equal")
