"""The figures of the two places on embeddings."""

import math

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import posenc
from posenc.plots.drawing import DIVERGING, LINE, SEQUENTIAL, image, rows_label, two_panels, whole
from posenc.plots.numbers import spread, tiles, vectors

__all__ = ["absolute", "conditional"]


@torch.no_grad()
def absolute(encoding: nn.Module, positions: posenc.Positions) -> Figure:
    """Left: the vector of each position. Right: cosine similarity of the vectors.

    On a grid of two axes the right side is a grid of tiles: tile (y, x) shows how similar the vector of cell (y, x) is
    to the vectors of all cells.
    """
    rows = vectors(encoding, positions)
    units = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)
    similarity = units @ units.T
    figure, left, right = two_panels(encoding)
    image(figure, left, rows, SEQUENTIAL, "Position vectors", "channel", rows_label(positions))
    tokens = similarity[positions.prefix :, positions.prefix :]
    if positions.shape is not None and positions.axes == 2:
        image(figure, right, tiles(tokens, positions.shape), SEQUENTIAL, "Cosine similarity: a tile a position")
        right.set(xticks=[], yticks=[], xlabel="width", ylabel="height")
    else:
        label = rows_label(positions)
        image(figure, right, similarity, SEQUENTIAL, "Cosine similarity of positions", label, label)
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
    figure, left, right = two_panels(encoding)
    while weight.ndim > 3:  # the middle slice of axes before the last two
        weight = weight[:, weight.shape[1] // 2]
    if weight.ndim == 2:
        image(figure, left, weight, DIVERGING, "Kernel of each channel", "tap", "channel")
    else:
        side = min(4, math.isqrt(len(weight)))
        blocks = weight[: side * side].reshape(side, side, *weight.shape[1:])
        image(figure, left, spread(blocks), DIVERGING, f"Kernels of the first {side * side} channels")
        left.set(xticks=[], yticks=[])
    title = "Size of what is added to equal tokens"
    if strength.ndim == 1:
        right.plot(np.arange(len(strength)), strength, color=LINE, marker="o", markersize=3)
        right.set(title=title, xlabel="position", ylabel="norm over the channels", ylim=(0, 1.05 * strength.max()))
        right.xaxis.set_major_locator(whole())
        right.grid(alpha=0.3)
    else:
        while strength.ndim > 2:
            strength = strength[strength.shape[0] // 2]
        image(figure, right, strength, SEQUENTIAL, title, "width", "height")
    return figure
