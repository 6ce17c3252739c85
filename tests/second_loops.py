"""A second, differently written version of each scheme that no package holds an implementation of.

The references go pair by pair through plain loops. These are built otherwise: from whole matrices, from the factors
that the authors' code multiplies, or from another definition of the same thing. They share nothing with the library,
not even its helpers, and are slow or fragile where it did not matter (`xpos` overflows, as the authors' factors do).

Names of keywords are those of the constructors and of the trained numbers; positions are arrays `[tokens]` or
`[tokens, axes]`, none of them NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def _lags(query_positions: ArrayLike, key_positions: ArrayLike) -> Array:
    """Query − key of every pair, `[i, j]` or `[i, j, axes]`."""
    queries, keys = (np.asarray(positions, dtype=np.float64) for positions in (query_positions, key_positions))
    if queries.ndim == 2 and queries.shape[1] == 1:
        queries, keys = queries[:, 0], keys[:, 0]
    return queries[:, None] - keys[None]


def kerple(
    query_positions: ArrayLike,
    key_positions: ArrayLike,
    num_heads: int,
    raw_r1: ArrayLike,
    raw_r2: ArrayLike,
    kind: str = "logarithmic",
) -> Array:
    """The kernels of KERPLE over a matrix of distances (Chi et al., 2022, arXiv:2205.09921, equations 3 and 4)."""
    distance = np.abs(_lags(query_positions, key_positions))
    r1 = np.logaddexp(0.0, raw_r1).reshape(num_heads, 1, 1)
    if kind == "power":
        exponent = 1 + np.tanh(np.asarray(raw_r2) / 2)  # 2 · sigmoid
        return -r1 * np.power(distance, exponent.reshape(num_heads, 1, 1))
    r2 = np.logaddexp(0.0, raw_r2).reshape(num_heads, 1, 1)
    return -r1 * np.log1p(r2 * distance)


def fire(
    query_positions: ArrayLike,
    key_positions: ArrayLike,
    num_heads: int,
    hidden_weight: ArrayLike,
    hidden_bias: ArrayLike,
    output_weight: ArrayLike,
    output_bias: ArrayLike,
    c: ArrayLike,
    threshold: ArrayLike,
    hidden: int = 32,
) -> Array:
    """Distances in parts of the query's reach, through torch's layers (Li et al., 2023, arXiv:2310.04418, section 3)."""
    distance = torch.from_numpy(np.abs(_lags(query_positions, key_positions)))
    slope, shortest = (torch.as_tensor(x).double().abs() for x in (c, threshold))
    reach = torch.as_tensor(np.asarray(query_positions, dtype=np.float64)).reshape(-1, 1)
    parts = torch.log1p(slope * distance) / torch.log1p(slope * torch.maximum(reach, shortest))
    first, second = torch.nn.Linear(1, hidden).double(), torch.nn.Linear(hidden, num_heads).double()
    for layer, weight, bias in ((first, hidden_weight, hidden_bias), (second, output_weight, output_bias)):
        layer.load_state_dict({"weight": torch.as_tensor(weight), "bias": torch.as_tensor(bias)})
    with torch.no_grad():
        bias = torch.nn.Sequential(first, torch.nn.ReLU(), second)(parts[..., None])
    return bias.movedim(-1, 0).numpy()


def sandwich(query_positions: ArrayLike, key_positions: ArrayLike, num_heads: int, dim: int = 128) -> Array:
    """Two tables of sinusoidal vectors multiplied, and one compression a head (Chi et al., 2022, arXiv:2212.10356)."""
    tables = []
    for positions in (query_positions, key_positions):
        angles = np.multiply.outer(np.ravel(np.asarray(positions, float)), np.logspace(0, -4, dim // 2, endpoint=False))
        tables.append(np.concatenate([np.sin(angles), np.cos(angles)], axis=1))
    compression = 8 * np.arange(1, num_heads + 1) / num_heads
    return (tables[0] @ tables[1].T) / compression[:, None, None]


def irpe(
    q: Array,
    query_positions: ArrayLike,
    key_positions: ArrayLike,
    head_dim: int,
    method: str = "product",
    num_heads: int | None = None,
    alpha: float = 1.9,
    beta: float = 3.8,
    gamma: float = 15.2,
    table: Array | None = None,
    tables: Sequence[Array] | None = None,
) -> Array:
    """Queries meet every row first, and the index picks (Wu et al., 2021, arXiv:2107.14222, equations 17 to 20)."""
    lags = _lags(query_positions, key_positions)
    size = np.abs(lags)
    far = np.rint(alpha + np.log(np.maximum(size, alpha) / alpha) / np.log(gamma / alpha) * (beta - alpha))
    index = np.where(size <= alpha, np.rint(lags), np.sign(lags) * np.minimum(far, beta)).astype(int)  # truncates
    index += int(beta)
    side = 2 * int(beta) + 1
    if method == "product":
        picks = [(table, np.ravel_multi_index((index[..., 0], index[..., 1]), (side, side)))]
    else:
        picks = [(tables[0], index[..., 0]), (tables[1], index[..., 1])]
    logits = np.zeros((len(q), *lags.shape[:2]))
    for rows, row in picks:
        assert rows.shape[0] == (num_heads or 1)
        by_row = np.matmul(q, np.swapaxes(rows, -1, -2))  # [h, i, rows]
        logits += np.take_along_axis(by_row, np.broadcast_to(row, logits.shape), axis=-1)
    return logits


def learnable_fourier(
    positions: ArrayLike,
    frequencies: Array,
    hidden_weight: Array,
    hidden_bias: Array,
    output_weight: Array,
    output_bias: Array,
    dim: int,
    axes: int = 1,
    features: int = 384,
    hidden: int = 32,
    scale: float = 1.0,
) -> Array:
    """Waves on the unit circle through torch's network (Li et al., 2021, arXiv:2106.02795, algorithm 1)."""
    waves = np.exp(1j * np.asarray(positions, float).reshape(-1, axes) @ frequencies) / np.sqrt(features)
    network = torch.nn.Sequential(torch.nn.Linear(features, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, dim))
    network.double()
    for layer, weight, bias in ((0, hidden_weight, hidden_bias), (2, output_weight, output_bias)):
        network[layer].load_state_dict({"weight": torch.as_tensor(weight), "bias": torch.as_tensor(bias)})
    with torch.no_grad():
        return network(torch.from_numpy(np.concatenate([waves.real, waves.imag], axis=1))).numpy()


def fourier_bands(
    positions: ArrayLike,
    axes: int = 1,
    bands: int = 8,
    resolution: int | Sequence[int] | None = None,
    scale: float = 1.0,
    layout: str = "interleaved",
    dim: int | None = None,
) -> Array:
    """The squares of NeRF's octaves, one from the last, or Perceiver's grid (arXiv:2003.08934, arXiv:2103.03206)."""
    coordinates = np.asarray(positions, float).reshape(-1, axes) * scale
    if resolution is None:  # every octave is the square of the one before
        octaves = [np.exp(1j * np.pi * coordinates)]
        for _ in range(bands - 1):
            octaves.append(octaves[-1] ** 2)
        waves = np.stack(octaves, -1)
    else:
        highest = np.broadcast_to(np.asarray(resolution), axes) / 2
        waves = np.exp(1j * np.pi * coordinates[..., None] * np.linspace(1, highest, bands, axis=-1))
    waves = waves.reshape(len(coordinates), -1)
    if layout == "interleaved":
        vectors = np.stack([waves.imag, waves.real], -1).reshape(len(coordinates), -1)
    else:
        vectors = np.concatenate([waves.imag, waves.real], -1)
    return np.pad(vectors, [(0, 0), (0, (dim or vectors.shape[1]) - vectors.shape[1])])


def xpos(
    q: Array,
    k: Array,
    query_positions: ArrayLike,
    key_positions: ArrayLike,
    head_dim: int,
    base: float = 10000.0,
    scale_base: float = 512.0,
    layout: str = "interleaved",
) -> Array:
    """Queries times ζ^n, keys over it, as the authors have it: for short sequences (Sun et al., arXiv:2212.10554)."""
    pairs = head_dim // 2
    zeta = (np.arange(0, head_dim, 2) + 0.4 * head_dim) / (1.4 * head_dim)
    turned = []
    for x, positions, sign in ((q, query_positions, 1), (k, key_positions, -1)):
        where = np.ravel(np.asarray(positions, float))[:, None]
        if layout == "interleaved":
            complex_x = x[..., 0::2] + 1j * x[..., 1::2]
        else:
            complex_x = x[..., :pairs] + 1j * x[..., pairs:]
        phase = np.exp(1j * where / base ** (np.arange(pairs) / pairs))
        turned.append(complex_x * phase * zeta ** (sign * where / scale_base))
    return np.einsum("hip,hjp->hij", turned[0], turned[1].conj()).real


def neighbourhood(
    shape: int | Sequence[int],
    size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    shifted: bool = True,
    prefix: int = 0,
) -> NDArray[np.bool_]:
    """A shifted window is the nearest keys of the dilated axis, the earlier of two that are as near (arXiv:2209.15001)."""
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    mask = np.ones((1, 1), dtype=bool)
    for length, window, step in zip(
        lengths, *(np.broadcast_to(x, len(lengths)) for x in (size, dilation)), strict=True
    ):
        near = np.zeros((length, length), dtype=bool)
        for query in range(length):
            group = np.arange(query % step, length, step)
            if shifted:
                near[query, sorted(group, key=lambda key: (abs(key - query), key))[:window]] = True
            else:
                steps = (group - query) // step
                near[query, group[(steps >= -(window // 2)) & (steps < (window + 1) // 2)]] = True
        mask = np.kron(mask, near)
    return np.pad(mask, (prefix, 0), constant_values=True)


def multimodal_positions(
    segments: Sequence[int | Sequence[int]], temporal_step: float = 1.0, start: int = 0, follow: str = "largest"
) -> Array:
    """Grids shifted to one beyond what came before (Wang et al., Qwen2-VL, 2024, arXiv:2409.12191, section 2.1)."""
    pieces, begin = [np.zeros((3, 0))], start
    for segment in segments:
        if isinstance(segment, int):
            piece = np.tile(np.arange(segment), (3, 1))
        else:
            piece = np.indices(segment).reshape(3, -1)
            piece[0] = np.floor(piece[0].astype(np.float32) * np.float32(temporal_step))
        pieces.append(piece + begin)
        begin += 1 + int(piece[0 if follow == "largest" else 1 :].max(initial=-1))
    return np.concatenate(pieces, axis=1).T
