"""The references of Fourier features have the values of the papers, and those of a second version."""

import math

import numpy as np
import pytest

import second_loops
from posenc import reference
from reference_arrays import close, grid


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
@pytest.mark.parametrize(
    ("axes", "bands", "resolution", "dim"),
    [(1, 6, None, None), (3, 4, None, 27), (1, 5, 64, None), (2, 3, (10, 32), None), (2, 1, 8, 9)],
)
def test_bands_equal_the_second_version(rng, axes, bands, resolution, dim, layout):
    positions = rng.uniform(-1, 1, size=(5, axes))
    arguments = {"axes": axes, "bands": bands, "resolution": resolution, "scale": 0.7, "layout": layout, "dim": dim}
    got = reference.fourier_bands(positions, **arguments)
    assert got.shape == (5, dim or 2 * axes * bands)
    close(got, second_loops.fourier_bands(positions, **arguments), atol=1e-11)


def test_nerf_octaves_in_the_order_of_its_equation():
    """γ(p) = (sin(2⁰πp), cos(2⁰πp), …, sin(2^(L−1)πp), cos(2^(L−1)πp)), for each coordinate in turn."""
    p = (0.3, -0.8)
    wanted = [f(2**k * math.pi * x) for x in p for k in range(3) for f in (math.sin, math.cos)]
    close(reference.fourier_bands(np.array([p]), axes=2, bands=3), [wanted])


def test_perceiver_bands_reach_from_one_to_the_nyquist_frequency():
    """At the Nyquist frequency R/2, neighbours on a grid of R samples of −1 … 1 are half a turn apart, nearly."""
    got = reference.fourier_bands(np.array([0.01]), bands=4, resolution=20, layout="concatenated")
    frequencies = np.arctan2(got[0, :4], got[0, 4:]) / (math.pi * 0.01)
    np.testing.assert_allclose(frequencies, [1, 4, 7, 10], rtol=1e-12)


def test_learnable_fourier_equals_the_second_version(rng):
    weights = {
        "frequencies": rng.normal(size=(2, 5)),
        "hidden_weight": rng.normal(size=(7, 10)),
        "hidden_bias": rng.normal(size=7),
        "output_weight": rng.normal(size=(4, 7)),
        "output_bias": rng.normal(size=4),
    }
    sizes = {"dim": 4, "axes": 2, "features": 10, "hidden": 7}
    positions = rng.normal(size=(6, 2))
    got = reference.learnable_fourier(positions, **weights, **sizes)
    close(got, second_loops.learnable_fourier(positions, **weights, **sizes))
    with_prefix = reference.learnable_fourier(np.concatenate([grid(1, 1, prefix=1)[:1], positions]), **weights, **sizes)
    np.testing.assert_array_equal(with_prefix, np.concatenate([np.zeros((1, 4)), got]))


def test_the_waves_of_learnable_fourier_are_of_length_one_over_the_square_root_of_two(rng):
    """‖r(c)‖² = Σ (cos² + sin²) / F = 1/2, and r(c) · r(c') depends on c − c' alone: read through a wide linear gelu."""
    features, large = 12, 1e4
    frequencies, positions = rng.normal(size=(1, 6)), rng.normal(size=(5, 1))
    arguments = {"hidden_weight": np.eye(features), "hidden_bias": np.full(features, large)}
    output = {"output_weight": np.eye(features), "output_bias": np.full(features, -large)}  # gelu(x) = x far from 0
    sizes = {"dim": features, "features": features, "hidden": features}

    def waves(c):
        return reference.learnable_fourier(c, frequencies, **arguments, **output, **sizes)

    close(waves(positions) @ waves(positions).T, waves(positions + 3) @ waves(positions + 3).T, atol=1e-10)
    close(np.diag(waves(positions) @ waves(positions).T), np.full(5, 0.5), atol=1e-10)
    close(waves(np.zeros(1))[0, :6], np.full(6, 1 / math.sqrt(12)), atol=1e-10)  # cosines first
