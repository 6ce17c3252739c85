"""Fourier features: sines and cosines of directions of the coordinates that are drawn, fixed, or trained."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Num

from posenc.reference._shared import AnyArray, Array, check, check_shape, coordinates_of, standing


def fourier(
    positions: Num[AnyArray, "n *axes"],
    frequencies: Float[Array, "axes pairs"],
    dim: int,
    axes: int = 1,
    scale: float = 1.0,
    learnable: bool = False,
) -> Float[Array, "n {dim}"]:
    """Sines and cosines of random projections of the coordinates.

    `p(c) = [sin(2π c B), cos(2π c B)]`, with `B` drawn from `N(0, scale²)`.

    Args:
        positions: coordinates, usually within −1 and 1; NaN for a prefix token, whose vector is zero.
        frequencies: `B`, `[axes, dim / 2]`, in turns per unit of position.
        dim: channels, an even number.
        axes: number of axes.
        scale: how `B` was drawn; of no consequence here.
        learnable: whether `B` is trained; of no consequence here.

    Raises:
        ValueError: for an odd `dim` or frequencies of another shape.

    >>> fourier(np.array([0.25]), np.array([[1.0]]), dim=2).round(12).tolist()
    [[1.0, 0.0]]

    Tancik et al., Fourier Features Let Networks Learn High Frequency Functions, arXiv:2006.10739; as in Segment
    Anything, arXiv:2304.02643.
    """
    check(dim % 2 == 0, f"dim must be even for Fourier features, got {dim}")
    coordinates = coordinates_of(positions, axes)
    check_shape("frequencies", frequencies, (axes, dim // 2))

    vectors = np.zeros((len(coordinates), dim))
    for token in standing(coordinates):
        for pair in range(dim // 2):
            angle = 2 * math.pi * sum(coordinates[token, axis] * frequencies[axis, pair] for axis in range(axes))
            vectors[token, pair] = math.sin(angle)
            vectors[token, dim // 2 + pair] = math.cos(angle)
    return vectors


def fourier_bands(
    positions: Num[AnyArray, "n *axes"],
    axes: int = 1,
    bands: int = 8,
    resolution: int | Sequence[int] | None = None,
    scale: float = 1.0,
    layout: str = "interleaved",
    dim: int | None = None,
) -> Float[Array, "n width"]:
    """Sines and cosines of each coordinate at fixed frequencies: octaves, or evenly spaced ones.

    `sin(π f_k s c_a)` and `cos(π f_k s c_a)` for axis `a` and band `k` of `K`: `f_k = 2^k` (NeRF), or, with a
    resolution `R_a`, `f_k = 1 + k (R_a / 2 − 1) / (K − 1)` (Perceiver).

    Args:
        positions: coordinates, usually within −1 and 1; NaN for a prefix token, whose vector is zero.
        axes: number of axes.
        bands: `K`, frequencies of an axis.
        resolution: samples along each axis, a number or one an axis, for evenly spaced frequencies; None for octaves.
        scale: `s`, multiplies the coordinates.
        layout: `interleaved` goes through the axes, in each through the bands, a sine and a cosine each; `concatenated`
            has all sines, axis after axis, then all cosines.
        dim: channels, `2 · axes · bands` if None; those beyond are zero.

    Raises:
        ValueError: for an unknown layout, or fewer channels than waves.

    >>> fourier_bands(np.array([0.5]), bands=2).round(12).tolist()
    [[1.0, 0.0, 0.0, -1.0]]
    >>> fourier_bands(np.array([0.5]), bands=2, resolution=4, layout="concatenated").round(12).tolist()
    [[1.0, 0.0, 0.0, -1.0]]

    Mildenhall et al., NeRF, arXiv:2003.08934; Jaegle et al., Perceiver, arXiv:2103.03206.
    """
    check(layout in ("interleaved", "concatenated"), f"layout must be interleaved or concatenated, got {layout!r}")
    width = 2 * axes * bands if dim is None else dim
    check(width >= 2 * axes * bands, f"dim must be at least {2 * axes * bands} for {axes * bands} waves, got {dim}")
    samples = (resolution,) * axes if resolution is None or isinstance(resolution, int) else tuple(resolution)
    check(len(samples) == axes, f"resolution must be one number, or one an axis of {axes}, got {resolution}")
    coordinates = coordinates_of(positions, axes)

    vectors = np.zeros((len(coordinates), width))
    for token in standing(coordinates):
        for axis in range(axes):
            for band in range(bands):
                many = samples[axis]
                frequency = 2.0**band if many is None else 1 + band * (many / 2 - 1) / max(bands - 1, 1)
                angle = math.pi * (coordinates[token, axis] * scale * frequency)
                wave = axis * bands + band
                sine, cosine = (2 * wave, 2 * wave + 1) if layout == "interleaved" else (wave, axes * bands + wave)
                vectors[token, sine], vectors[token, cosine] = math.sin(angle), math.cos(angle)
    return vectors


def learnable_fourier(
    positions: Num[AnyArray, "n *axes"],
    frequencies: Float[Array, "axes pairs"],
    hidden_weight: Float[Array, "{hidden} {features}"],
    hidden_bias: Float[Array, "{hidden}"],
    output_weight: Float[Array, "{dim} {hidden}"],
    output_bias: Float[Array, "{dim}"],
    dim: int,
    axes: int = 1,
    features: int = 384,
    hidden: int = 32,
    scale: float = 1.0,
) -> Float[Array, "n {dim}"]:
    """Trained directions of the coordinates, whose cosines and sines a small network mixes.

    `p(c) = W₂ gelu(W₁ r(c) + b₁) + b₂`, `r(c) = [cos(c W), sin(c W)] / √F`, `gelu(x) = x Φ(x)`.

    Args:
        positions: coordinates; NaN for a prefix token, whose vector is zero.
        frequencies: `W`, `[axes, features / 2]`, in radians per unit of position.
        hidden_weight: `W₁`.
        hidden_bias: `b₁`.
        output_weight: `W₂`.
        output_bias: `b₂`.
        dim: channels.
        axes: number of axes.
        features: `F`, cosines and sines, an even number.
        hidden: width of the network.
        scale: how the frequencies were drawn; of no consequence here.

    Raises:
        ValueError: for an odd number of features, or arrays of another shape.

    >>> weights = {"hidden_weight": np.array([[1.0, 0.0]]), "output_weight": np.ones((1, 1))}
    >>> biases = {"hidden_bias": np.zeros(1), "output_bias": np.zeros(1)}
    >>> sizes = {"dim": 1, "features": 2, "hidden": 1}
    >>> learnable_fourier(np.array([0.0]), np.ones((1, 1)), **weights, **biases, **sizes).round(6).tolist()
    [[0.537578]]

    Li et al., Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding, arXiv:2106.02795.
    """
    check(features % 2 == 0, f"features must be even, a cosine and a sine each, got {features}")
    check_shape("frequencies", frequencies, (axes, features // 2))
    check_shape("hidden_weight", hidden_weight, (hidden, features))
    check_shape("hidden_bias", hidden_bias, (hidden,))
    check_shape("output_weight", output_weight, (dim, hidden))
    check_shape("output_bias", output_bias, (dim,))
    coordinates = coordinates_of(positions, axes)

    vectors = np.zeros((len(coordinates), dim))
    for token in standing(coordinates):
        waves = np.zeros(features)
        for pair in range(features // 2):
            angle = sum(coordinates[token, axis] * frequencies[axis, pair] for axis in range(axes))
            waves[pair] = math.cos(angle) / math.sqrt(features)
            waves[features // 2 + pair] = math.sin(angle) / math.sqrt(features)
        vectors[token] = output_bias
        for unit in range(hidden):
            inner = hidden_weight[unit] @ waves + hidden_bias[unit]
            gelu = inner * (1 + math.erf(inner / math.sqrt(2))) / 2  # x Φ(x)
            vectors[token] += output_weight[:, unit] * gelu
    return vectors
