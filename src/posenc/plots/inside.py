"""The figures of the three places inside attention."""

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import posenc
from posenc.plots.drawing import (
    AXES,
    DIVERGING,
    RELATIVE,
    SEQUENTIAL,
    curves,
    head_maps,
    image,
    relative_map,
    rows_label,
    suptitle,
    ticks,
    two_panels,
)
from posenc.plots.numbers import Array, by_relative, counts, equal_logits, value_rows, vector_rows

__all__ = ["bias", "content", "contextual", "rotary"]


@torch.no_grad()
def rotary(encoding: posenc.RotaryEncoding, positions: posenc.Positions) -> Figure:
    """Left: cosine of the angle of each pair of channels. Right: the logit of two equal vectors.

    Where heads turn differently: the angles of the first, and the logits of each; on a grid, those alone. A grid of
    three axes or more, where heads turn alike: which pair turns with which axis, how fast, and the logit along each.
    """
    term = encoding.term(positions)
    assert isinstance(term, posenc.Rotation)
    if positions.axes > 2 and positions.shape is not None and term.query[0].shape[1] == 1:
        return _by_axis(encoding, positions.shape)
    cosine = term.query[0][0].double().numpy()
    logits = by_relative(equal_logits(term), positions)
    several = len(logits) > 1
    if several and logits.ndim > 2:
        return head_maps(encoding, logits, "Logit of equal vectors, head")
    figure, left, right = two_panels(encoding)
    angles = "Cosine of the angle, head 1" if several else "Cosine of the angle"
    image(figure, left, cosine[0], SEQUENTIAL, angles, "pair of channels", rows_label(positions))
    title = "Logit of two equal vectors, before the scale"
    if logits.ndim == 2:
        values = logits if several else logits[0]
        curves(right, ticks(values.shape[-1]), values, title, "logit, as a share of |q|²")
    else:
        relative_map(figure, right, logits[0], SEQUENTIAL, title)
    return figure


def _by_axis(encoding: posenc.RotaryEncoding, shape: tuple[int, ...]) -> Figure:
    """First the angle of a step along each axis, by pair; then the logit along each axis on its own scale."""
    names = AXES.get(len(shape), tuple(f"axis {axis}" for axis in range(len(shape))))
    if isinstance(encoding, posenc.MultimodalRotary) and len(shape) == 3:
        names = ("time", "height", "width")
    figure = Figure(figsize=(10.5, 3.9 * (len(shape) // 2 + 1)), layout="constrained")
    suptitle(figure, encoding)
    sizes = " × ".join(f"{size} ({name})" for size, name in zip(shape, names, strict=True))
    figure.suptitle(f"{figure.get_suptitle()}, grid {sizes}", fontweight="bold")
    first, *panels = figure.subplots(len(shape) // 2 + 1, 2).flatten()
    for axis, (name, panel) in enumerate(zip(names, panels, strict=False)):
        line = torch.zeros(shape[axis], len(shape), dtype=torch.int64)
        line[:, axis] = torch.arange(shape[axis])
        term = encoding.term(posenc.coordinates(line, extent=shape))
        assert isinstance(term, posenc.Rotation)
        logits = by_relative(equal_logits(term), posenc.sequence(shape[axis]))[0]
        curves(panel, ticks(len(logits)), logits, f"Logit of two equal vectors, {name}", "as a share of |q|²")
        panel.ticklabel_format(axis="y", useOffset=False)
        cosine, sine = (part[0, 0, min(1, len(line) - 1)].double().numpy() for part in term.query)
        turn = np.abs(np.arctan2(sine, cosine))
        pairs = np.flatnonzero(turn)
        first.plot(pairs, turn[pairs], "o^sDv"[axis % 5], label=name)
    first.set(title="Angle of a step", xlabel="pair of channels", ylabel="radians", yscale="log")
    first.grid(alpha=0.3)
    first.legend()
    for panel in panels[len(shape) :]:
        panel.set_axis_off()
    return figure


@torch.no_grad()
def bias(encoding: posenc.BiasEncoding, positions: posenc.Positions) -> Figure:
    """The number added to the logits: by relative position, head by head.

    One axis: left a curve for each head, right the matrix of the first head. A grid: a map for each head (of its last
    two axes, the others level), at most eight of them. A bias that reads the query's position has no one curve: it is
    that of the last query.
    """
    matrix = encoding(positions)
    matrix = matrix[:, positions.prefix :, positions.prefix :].double().numpy()
    if encoding.reads_query:
        lags, values, title = np.arange(matrix.shape[-1]), matrix[:, -1, ::-1], "Bias of the last query"
    else:
        values = by_relative(matrix, positions)
        lags, title = ticks(values.shape[-1]), "Bias by relative position"
    if values.ndim > 2:
        return head_maps(encoding, values, "Bias of head")
    figure, left, right = two_panels(encoding)
    curves(left, lags, values, title, "added to the logit")
    image(figure, right, matrix[0], DIVERGING, "Bias of head 1", "key position", "query position")
    return figure


@torch.no_grad()
def content(encoding: posenc.ContentEncoding, positions: posenc.Positions) -> Figure:
    """The vector that the query meets at each relative position, of the first head: a panel an axis, the others level.

    Schemes with vectors for the keys (DeBERTa, Transformer-XL) get a panel for those, schemes that also add vectors to
    the values (Shaw) another, and so does what is added whatever the query (Transformer-XL).
    """
    if positions.shape is None:
        raise ValueError("the picture of a content encoding needs a sequence or a grid, got coordinates")
    names = AXES.get(positions.axes, tuple(f"axis {axis}" for axis in range(positions.axes)))
    panels: list[tuple[str, Array]] = []
    for axis, name in enumerate(names):
        where = f", {name}" if positions.axes > 1 else ""
        query, key, constant = vector_rows(encoding, positions, axis)
        panels.append((f"Vector met by the query{where}", query))
        rest = ((f"Vector met by the key{where}", key), (f"Added whatever the query{where}", constant))
        panels += [(title, rows) for title, rows in rest if np.nan_to_num(rows).any()]
    if "value_table" in dict(encoding.named_parameters()):
        panels.append(("Vector added to the value", value_rows(encoding, positions.shape[0])))
    figure = Figure(figsize=(max(7, 5.2 * len(panels)), 4.6), layout="constrained")
    suptitle(figure, encoding)
    for panel, (title, rows) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        if rows.ndim == 1:
            curves(panel, ticks(len(rows)), rows, title, "added to the logit, before the scale")
            continue
        reach = len(rows) // 2 + 0.5
        image(figure, panel, rows, DIVERGING, title, "channel", RELATIVE, (-0.5, rows.shape[1] - 0.5, reach, -reach))
    return figure


@torch.no_grad()
def contextual(encoding: nn.Module, positions: posenc.Positions) -> Figure:
    """Left: where each query puts each key, for random queries and keys. Right: the vector of each whole count."""
    figure, left, right = two_panels(encoding)
    found = counts(encoding, positions)
    image(figure, left, found, SEQUENTIAL, "Position, as random queries count", "key", "query")
    table = dict(encoding.named_parameters())["table"][0].double().numpy()
    image(figure, right, table, DIVERGING, "Vector met by the query", "channel", "count")
    return figure
