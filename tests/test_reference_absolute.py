"""The references of absolute encodings have the values of the papers, and those of a second formula."""

import math

import numpy as np
import pytest

from posenc import reference
from reference_arrays import close, grid

EPSILON = float(np.finfo(np.float64).eps)


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


def test_sinusoidal_frequencies():
    row = reference.sinusoidal(np.array([1.0]), 8)[0]
    np.testing.assert_allclose(np.arctan2(row[0::2], row[1::2]), [1, 0.1, 0.01, 0.001], rtol=1e-12)


def test_sinusoidal_row_one():
    wanted = [[0.8414709848, 0.5403023059, 0.0099998333, 0.9999500004]]
    close(reference.sinusoidal(np.array([1.0]), 4), wanted, atol=1e-10)
    concatenated = [[0.8414709848, 0.0099998333, 0.5403023059, 0.9999500004]]
    close(reference.sinusoidal(np.array([1.0]), 4, layout="concatenated"), concatenated, atol=1e-10)


@pytest.mark.parametrize("dim", [1, 2, 5, 8, 11])
@pytest.mark.parametrize("base", [10000.0, 37.0])
def test_sinusoidal_is_the_imaginary_and_real_part_of_a_complex_exponential(rng, dim, base):
    positions = rng.normal(size=9) * 100
    waves = np.exp(1j * np.outer(positions, np.power(base, -2 * np.arange((dim + 1) // 2) / dim)))
    interleaved = reference.sinusoidal(positions, dim, base=base)
    close(interleaved[:, 0::2], waves.imag)
    close(interleaved[:, 1::2], waves.real[:, : dim // 2])
    concatenated = reference.sinusoidal(positions, dim, base=base, layout="concatenated")
    close(concatenated, np.concatenate([waves.imag, waves.real[:, : dim // 2]], axis=1))


@pytest.mark.parametrize("step", [1, -3, 0.5, 40])
def test_a_shift_is_the_same_linear_map_everywhere(rng, step):
    positions = rng.integers(0, 1000, size=7).astype(float)
    here, there = reference.sinusoidal(positions, 6), reference.sinusoidal(positions + step, 6)
    for pair in range(3):
        angle = step * 10000 ** (-pair / 3)
        turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        close(there[:, 2 * pair : 2 * pair + 2], here[:, 2 * pair : 2 * pair + 2] @ turn.T)


@pytest.mark.parametrize("dim", [1, 2, 7, 64])
def test_table_equals_sinusoidal_within_a_few_units_of_position_times_epsilon(dim):
    length = 3000
    error = np.abs(reference.sinusoidal_table(length, dim) - reference.sinusoidal(np.arange(length), dim))
    assert error.shape == (length, dim)
    assert (error <= 8 * EPSILON * np.maximum(np.arange(length), 1)[:, None]).all()


def test_table_of_nothing():
    assert reference.sinusoidal_table(0, 5).shape == (0, 5)


def test_learned_rows_are_row_major_after_the_prefix(rng):
    table = rng.normal(size=(2 + 3 * 4, 5))
    positions = np.concatenate([grid(3, 4, prefix=2)[:2], rng.integers(0, [3, 4], size=(6, 2)).astype(float)])
    got = reference.learned(positions, table, (3, 4), 5, prefix=2)
    np.testing.assert_array_equal(got[:2], table[:2])
    cells = table[2:].reshape(3, 4, 5)
    np.testing.assert_array_equal(got[2:], cells[tuple(positions[2:].astype(int).T)])


def test_mae_has_width_first():
    positions = grid(2, 3)
    vectors = reference.sinusoidal(positions, 8, axes=2, layout="concatenated", axis_order=(1, 0))
    rows, columns = positions.T
    one_axis = [reference.sinusoidal(axis, 4, layout="concatenated") for axis in (columns, rows)]
    np.testing.assert_array_equal(vectors, np.concatenate(one_axis, axis=1))


@pytest.mark.parametrize(("axis_order", "changed"), [(None, slice(4, 8)), ((1, 0), slice(0, 4))])
def test_moving_along_the_width_changes_its_half_alone(axis_order, changed):
    vectors = reference.sinusoidal(grid(2, 3), 8, axes=2, axis_order=axis_order).reshape(2, 3, 8)
    differs = (vectors[:, 1:] != vectors[:, :-1]).reshape(-1, 8).all(axis=0)
    same = (vectors[:, 1:] == vectors[:, :-1]).reshape(-1, 8).all(axis=0)
    assert differs[changed].all()
    assert differs.sum() == 4
    assert same.sum() == 4


@pytest.mark.parametrize(
    ("dim", "axes", "widths"), [(7, 2, [4, 3]), (10, 3, [4, 3, 3]), (11, 3, [4, 4, 3]), (3, 3, [1, 1, 1])]
)
def test_channels_are_dealt_evenly_and_none_is_dropped(rng, dim, axes, widths):
    positions = rng.normal(size=(5, axes)) * 10
    order = rng.permutation(axes).tolist()
    blocks = [reference.sinusoidal(positions[:, axis], widths[axis]) for axis in order]
    got = reference.sinusoidal(positions, dim, axes=axes, axis_order=order)
    np.testing.assert_array_equal(got, np.concatenate(blocks, axis=1))


def test_prefix_tokens_have_no_vector(rng):
    positions = grid(2, 3, prefix=2)
    frequencies = rng.normal(size=(2, 4))
    for vectors in (
        reference.sinusoidal(positions, 8, axes=2),
        reference.fourier(positions, frequencies, 8, axes=2),
    ):
        assert (vectors[:2] == 0).all()
        assert (np.abs(vectors[2:]).sum(axis=1) > 0).all()


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_fourier_is_a_complex_exponential_of_the_projection(rng, axes):
    positions, frequencies = rng.uniform(-1, 1, size=(6, axes)), rng.normal(size=(axes, 5))
    waves = np.exp(2j * np.pi * positions @ frequencies)
    got = reference.fourier(positions, frequencies, 10, axes=axes)
    close(got, np.concatenate([waves.imag, waves.real], axis=1))
