"""The reference of the convolutional encoding has the values of shifted maps."""

import itertools

import numpy as np
import pytest

from posenc import reference
from reference_arrays import close


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


def test_convolution_by_shifted_maps(rng):
    x, weight, bias = rng.normal(size=(4, 5, 3)), rng.normal(size=(3, 1, 3, 3)), rng.normal(size=3)
    padded = np.pad(x, [(1, 1), (1, 1), (0, 0)])
    wanted = x + bias
    for y, z in itertools.product(range(3), range(3)):
        wanted = wanted + weight[:, 0, y, z] * padded[y : y + 4, z : z + 5]
    close(reference.conditional_encoding(x.reshape(20, 3), (4, 5), weight, bias, 3), wanted.reshape(20, 3))


def test_convolution_moves_with_the_image_inside_and_shows_the_border(rng):
    weight, bias = rng.normal(size=(2, 1, 3, 3)), rng.normal(size=2)
    image = np.zeros((7, 8, 2))
    image[1:3, 1:4] = rng.normal(size=(2, 3, 2))
    moved = np.roll(image, (3, 2), axis=(0, 1))

    def encode(map_):
        return reference.conditional_encoding(map_.reshape(56, 2), (7, 8), weight, bias, 2).reshape(7, 8, 2)

    close(np.roll(encode(image), (3, 2), axis=(0, 1)), encode(moved))
    constant = encode(np.ones((7, 8, 2)))
    close(constant[1:-1, 1:-1], np.broadcast_to(constant[3, 3], (5, 6, 2)))
    assert (np.abs(constant[0] - constant[3, 3]) > 1e-6).all()
    assert (np.abs(constant[:, -1] - constant[3, 3]) > 1e-6).all()


@pytest.mark.parametrize("prefix", [0, 2])
def test_convolution_passes_the_prefix_through(rng, prefix):
    x, weight, bias = rng.normal(size=(2, prefix + 6, 3)), rng.normal(size=(3, 1, 3, 3)), rng.normal(size=3)
    got = reference.conditional_encoding(x, (2, 3), weight, bias, 3, prefix=prefix)
    np.testing.assert_array_equal(got[:, :prefix], x[:, :prefix])
    np.testing.assert_array_equal(
        got[:, prefix:], reference.conditional_encoding(x[:, prefix:], (2, 3), weight, bias, 3)
    )


def test_causal_convolution_sees_no_later_token(rng):
    x, weight = rng.normal(size=(6, 2)), rng.normal(size=(2, 1, 3))
    got = reference.conditional_encoding(x, 6, weight, np.zeros(2), 2, axes=1, causal=True)
    for channel in range(2):
        wanted = x[:, channel] + np.convolve(x[:, channel], weight[channel, 0, ::-1])[:6]
        close(got[:, channel], wanted)


def test_convolution_of_nothing():
    got = reference.conditional_encoding(np.ones((2, 3)), (0, 4), np.ones((3, 1, 3, 3)), np.ones(3), 3, prefix=2)
    assert got.tolist() == np.ones((2, 3)).tolist()


@pytest.mark.parametrize("kernel_size", [1, 5])
def test_convolution_over_three_axes(rng, kernel_size):
    x, weight = rng.normal(size=(12, 2)), np.zeros((2, 1, kernel_size, kernel_size, kernel_size))
    weight[:, 0, kernel_size // 2, kernel_size // 2, kernel_size // 2] = [3.0, -2.0]
    got = reference.conditional_encoding(x, (2, 3, 2), weight, np.zeros(2), 2, kernel_size, axes=3)
    close(got, x * [4.0, -1.0])
