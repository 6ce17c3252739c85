"""The references of biases that a formula or a network computes: the papers' values, limits, and a second version."""

import math

import numpy as np
import pytest

import second_loops
from posenc import reference
from reference_arrays import close, grid

QUERIES, KEYS = np.array([3.0, 0.0, 40.0, 2000.0]), np.array([0.0, 41.0, 2.0, 2000.0, 1999.0])


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


def softplus_inverse(x):
    return np.log(np.expm1(np.asarray(x, dtype=float)))


def network(rng, hidden, axes, heads, biases=("hidden", "output")):
    weights = {"hidden_weight": rng.normal(size=(hidden, axes)), "output_weight": rng.normal(size=(heads, hidden))}
    sizes = {"hidden": hidden, "output": heads}
    return weights | {f"{layer}_bias": rng.normal(size=sizes[layer]) for layer in biases}


# KERPLE


@pytest.mark.parametrize("kind", ["logarithmic", "power"])
def test_kerple_equals_the_second_version(rng, kind):
    raw_r1, raw_r2 = rng.normal(size=(2, 3)) * 2
    got = reference.kerple(QUERIES, KEYS, 3, raw_r1, raw_r2, kind=kind)
    np.testing.assert_allclose(got, second_loops.kerple(QUERIES, KEYS, 3, raw_r1, raw_r2, kind=kind), rtol=1e-12)
    assert (got[:, 3, 3] == 0).all()


def test_kerple_values_worked_by_hand():
    # r1 = 2, r2 = 3: −2 ln(1 + 3 · 5)
    raw_r1, raw_r2 = softplus_inverse([2.0]), softplus_inverse([3.0])
    got = reference.kerple(np.array([7.0]), np.array([2.0, 12.0, 7.0]), 1, raw_r1, raw_r2)
    close(got, [[[-2 * math.log(16), -2 * math.log(16), 0.0]]])
    # 2 · sigmoid(ln 3) = 1.5: −2 · 4^1.5
    got = reference.kerple(np.array([0.0]), np.array([4.0]), 1, raw_r1, np.array([math.log(3)]), kind="power")
    close(got, [[[-16.0]]])


def test_kerple_of_power_one_is_alibi():
    slopes = reference.alibi_slopes(6)
    got = reference.kerple(QUERIES, KEYS, 6, softplus_inverse(slopes), np.zeros(6), kind="power")
    close(got, reference.alibi(QUERIES, KEYS, 6), atol=1e-10)


def test_kerple_of_a_small_logarithm_is_alibi():
    """−r1 log(1 + r2 d) tends to −(r1 r2) d as r2 falls with r1 r2 fixed."""
    slopes, near = reference.alibi_slopes(2), np.arange(4.0)
    raw = softplus_inverse(slopes * 1e3), softplus_inverse([1e-3, 1e-3])
    got = reference.kerple(near, near, 2, *raw)
    np.testing.assert_allclose(got, reference.alibi(near, near, 2), rtol=2e-3)


# FIRE


def test_fire_equals_the_second_version(rng):
    weights = network(rng, 8, 1, 3) | {"c": rng.normal(size=1), "threshold": 30 * rng.normal(size=1)}
    got = reference.fire(QUERIES, KEYS, 3, **weights, hidden=8)
    close(got, second_loops.fire(QUERIES, KEYS, 3, **weights, hidden=8), atol=1e-11)


def linear_fire(slope, c, threshold):
    """FIRE with a network that is a straight line through zero, on numbers that are not negative."""
    one = np.ones((1, 1))
    numbers = {"c": np.array([c]), "threshold": np.array([threshold])}
    return {"hidden_weight": one, "output_weight": slope * one, "hidden": 1, **numbers} | {
        "hidden_bias": np.zeros(1),
        "output_bias": np.zeros(1),
    }


def test_fire_of_a_straight_line_is_kerple_up_to_the_threshold():
    """Up to position L every query divides by the same log(1 + c L)."""
    queries, keys = np.arange(0.0, 50.0, 7), np.arange(0.0, 50.0, 5)
    got = reference.fire(queries, keys, 1, **linear_fire(-2 * math.log(1 + 0.3 * 50), 0.3, 50.0))
    kerple = reference.kerple(queries, keys, 1, softplus_inverse([2.0]), softplus_inverse([0.3]))
    close(got, kerple)


def test_fire_of_a_straight_line_and_a_small_c_is_a_part_of_the_way():
    """log(1 + c x) / log(1 + c y) tends to x / y, so that the first key is at 1 from any query beyond the threshold."""
    queries = np.array([10.0, 100.0, 1000.0])
    got = reference.fire(queries, np.array([0.0, 5.0]), 1, **linear_fire(1.0, 1e-9, 4.0))
    close(got[0], [[1, 0.5], [1, 0.95], [1, 0.995]], atol=1e-6)
    close(reference.fire(queries, np.zeros(1), 1, **linear_fire(1.0, 0.7, 4.0)), np.ones((1, 3, 1)))


def test_fire_knows_no_sign_of_its_two_numbers(rng):
    weights = network(rng, 4, 1, 2)
    signs = [np.array([sign]) for sign in (1.0, -1.0)]
    got = [reference.fire(QUERIES, KEYS, 2, **weights, c=s * 0.2, threshold=s * 9, hidden=4) for s in signs]
    np.testing.assert_array_equal(*got)


def test_fire_leaves_out_the_prefix(rng):
    weights = network(rng, 4, 1, 2) | {"c": np.ones(1), "threshold": np.ones(1), "hidden": 4}
    line = np.array([np.nan, 0.0, 1.0])
    got = reference.fire(line, line, 2, **weights)
    assert (got[:, 0] == 0).all()
    assert (got[:, :, 0] == 0).all()
    assert (got[:, 1:, 1:] != 0).all()


# Sandwich


@pytest.mark.parametrize(("heads", "dim"), [(8, 128), (3, 6), (1, 2)])
def test_sandwich_equals_the_second_version(heads, dim):
    got = reference.sandwich(QUERIES, KEYS, heads, dim=dim)
    np.testing.assert_allclose(got, second_loops.sandwich(QUERIES, KEYS, heads, dim=dim), rtol=0, atol=1e-9)


def test_sandwich_is_the_product_of_two_sinusoidal_vectors():
    vectors = reference.sinusoidal(np.arange(30), 16)
    got = reference.sandwich(np.arange(30), np.arange(30), 8, dim=16)
    for head in range(8):
        close(got[head], vectors @ vectors.T / (head + 1))  # 8 heads: the compression is 1, 2, … 8


def test_sandwich_is_symmetric_and_falls_off():
    got = reference.sandwich(np.arange(200), np.arange(200), 4)
    np.testing.assert_array_equal(got, got.swapaxes(1, 2))
    close(got[:, 0, 0], 64 / (2 * np.arange(1, 5)))  # D/2 at the query itself, over 8 h / H
    assert (got[:, 0, 1:] < got[:, :1, 0]).all()
    means = [got[0, 0, start : start + 25].mean() for start in range(0, 200, 25)]
    assert (np.diff(means) < 0).all()


# The network of Swin-v2


@pytest.mark.parametrize(("shape", "pretrained"), [((3, 5), None), ((4, 3), (8, 8)), ((1, 4), None), ((6,), (3,))])
def test_continuous_position_bias_over_a_table_of_coordinates(rng, shape, pretrained):
    """As the authors have it: the network on every relative position once, then looked up."""
    weights = network(rng, 7, len(shape), 2, biases=("hidden",))
    axes = [
        np.arange(1 - size, size) * 8 / max(limit - 1, 1)
        for size, limit in zip(shape, pretrained or shape, strict=True)
    ]
    table = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(shape))
    table = np.sign(table) * np.log2(np.abs(table) + 1) / 3
    layer = np.maximum(table @ weights["hidden_weight"].T + weights["hidden_bias"], 0)
    numbers = 16 / (1 + np.exp(-layer @ weights["output_weight"].T))
    got = reference.continuous_position_bias(
        grid(*shape), grid(*shape), 2, shape, **weights, pretrained_shape=pretrained, hidden=7
    )
    close(got, np.moveaxis(numbers[reference.relative_index(shape)], -1, 0))


def test_continuous_position_bias_is_within_0_and_16_and_8_for_a_network_of_zeros(rng):
    weights = {name: 0 * array for name, array in network(rng, 3, 2, 2, biases=("hidden",)).items()}
    cells = grid(2, 3, prefix=1)
    got = reference.continuous_position_bias(cells, cells, 2, (2, 3), **weights, hidden=3)
    assert (got[:, 1:, 1:] == 8).all()
    assert (got[:, 0] == 0).all()
    assert (got[:, :, 0] == 0).all()


def test_continuous_position_bias_carries_over_to_a_larger_window(rng):
    """What a window of 4 gives a relative position, a window of 8 trained as 4 gives it too."""
    weights = network(rng, 5, 1, 2, biases=("hidden",))
    # no unit is off at any distance, and the sigmoid is far from its ends
    weights["hidden_bias"] = np.abs(weights["hidden_bias"]) + 9
    weights["output_weight"] = weights["output_weight"] / 100
    small = reference.continuous_position_bias(grid(4), grid(4), 2, 4, **weights, hidden=5)
    large = reference.continuous_position_bias(grid(8), grid(8), 2, 8, **weights, pretrained_shape=4, hidden=5)
    np.testing.assert_array_equal(small, large[:, 2:6, 2:6])
    assert np.abs(large[:, 0, 7] - small[:, 0, 3]).min() > 1e-9
