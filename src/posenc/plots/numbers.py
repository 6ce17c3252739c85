"""The numbers in the figures, read out of an encoding through its public call."""

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import posenc

__all__ = ["Array", "by_relative", "counts", "equal_logits", "tiles", "value_rows", "vector_rows", "vectors"]

Array = NDArray[Any]


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


def vectors(encoding: nn.Module, positions: posenc.Positions) -> Array:
    """`[tokens, dim]`: what is added to the embeddings."""
    width = int(encoding.dim)  # type: ignore[arg-type]
    result: Array = encoding(torch.zeros(1, positions.length, width), positions)[0].double().numpy()
    return result


def equal_logits(term: posenc.Rotation) -> Array:
    """`[heads, n, n]`: the logit of two equal vectors, as a share of |q|²; NaN for keys that a decay hides."""
    cosine, sine = (part[0].double().numpy() for part in term.query)
    rate = term.rate.double().numpy() if isinstance(term, posenc.Decay) else None
    tokens, pairs = cosine.shape[-2:]
    places = term.relative.queries.coordinates().double().numpy()[:, 0]
    lags = places[:, None] - places
    total = np.zeros((len(cosine), tokens, tokens))
    for pair in range(pairs):
        turned = sum(part[:, :, None, pair] * part[:, None, :, pair] for part in (cosine, sine))
        total += turned if rate is None else turned * np.exp(rate[pair] * np.maximum(lags, 0))
    found: Array = (total if rate is None else np.where(lags < 0, np.nan, total)) / pairs
    return found


def vector_rows(encoding: Any, positions: posenc.Positions, axis: int = 0) -> tuple[Array, Array, Array]:
    """What the first head of a content scheme has at each relative position along one axis, the others level.

    The vectors that meet the query and those that meet the key, `[2s − 1, head_dim]`, and the number that is added
    whatever the two are, `[2s − 1]`. Read through the encoding's call: the logits of unit vectors. NaN where a causal
    scheme has none.
    """
    assert positions.shape is not None
    size, width = positions.shape[axis], int(encoding.head_dim)
    line = torch.zeros(size, positions.axes, dtype=torch.int64)
    line[:, axis] = torch.arange(size)
    along = posenc.coordinates(line, extent=positions.shape)

    def read(queries: torch.Tensor, keys: torch.Tensor) -> Array:
        shape = (width + 1, encoding.num_heads or 1, size, width)
        inputs = [side[:, None, None].expand(shape) for side in (queries, keys)]
        logits = encoding(inputs[0], along, **({"k": inputs[1]} if encoding.meets_keys else {}))[:, 0]
        rows: Array = by_relative(logits.double().numpy(), posenc.sequence(size)).T
        return np.where(np.isfinite(rows), rows, np.nan)

    nothing = torch.zeros(width + 1, width)
    units = nothing.clone()
    units[:width] = torch.eye(width)  # the last one is zero: what is added whatever the query
    query = read(units, nothing)
    constant = query[:, width:]
    key = read(nothing, units) - constant if encoding.meets_keys else np.zeros_like(query)
    return query[:, :width] - constant, key[:, :width], constant[:, 0]


def value_rows(encoding: nn.Module, length: int) -> Array:
    """`[2·length − 1, head_dim]`: the vector of the first head that is added to the value, by relative position."""
    chosen = torch.eye(length)[:, None, None].expand(length, encoding.num_heads or 1, length, length)  # type: ignore[arg-type]
    added = encoding.values(chosen, posenc.sequence(length))[:, 0].double().numpy()  # type: ignore[operator]
    return by_relative(np.moveaxis(added, (2, 1, 0), (0, 1, 2)), posenc.sequence(length)).T


def counts(encoding: Any, positions: posenc.Positions) -> Array:
    """`[n, n]`: where a contextual encoding puts each key, for random queries and keys (seed 0); NaN for keys ahead.

    Its own counts, read through its call: the vector of count c is replaced by c times the first unit vector, and the
    first channel of every query is 1.
    """
    ramp = copy.deepcopy(encoding)
    with torch.no_grad():
        ramp.table.zero_()
        ramp.table[..., 0] = torch.arange(ramp.table.shape[-2], dtype=ramp.table.dtype)
    generator = torch.Generator().manual_seed(0)
    shape = (1, encoding.num_heads or 1, positions.length, encoding.head_dim)
    q, k = (torch.randn(shape, generator=generator) for _ in range(2))
    q[..., 0] = 1.0
    found: Array = ramp(q, positions, k=k)[0, 0].double().numpy()
    found[np.triu_indices(positions.length, 1)] = np.nan
    return found


def tiles(similarity: Array, shape: tuple[int, ...]) -> Array:
    """`[h·w, h·w]` → an image of h × w tiles of h × w pixels, with a gap of one pixel between tiles."""
    height, width = shape
    return spread(similarity.reshape(height, width, height, width))


def spread(blocks: Array) -> Array:
    """`[rows, columns, h, w]` → one image with gaps of NaN."""
    rows, columns, height, width = blocks.shape
    padded = np.full((rows, columns, height + 1, width + 1), np.nan)
    padded[:, :, :height, :width] = blocks
    return padded.swapaxes(1, 2).reshape(rows * (height + 1), columns * (width + 1))[:-1, :-1]
