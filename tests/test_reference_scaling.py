"""The references of the rotary scalings have the values of the released rules, and their limits."""

import math

import numpy as np
import pytest

from posenc import reference, scaling
from reference_arrays import close


def plain(pairs, base=10000.0):
    return np.power(base, -np.arange(pairs) / pairs)


def test_no_scaling_is_a_geometric_progression():
    frequencies, factor = reference.rotary_frequencies(32, 500000.0)
    np.testing.assert_allclose(frequencies, plain(32, 500000.0), rtol=1e-14)
    assert factor == 1.0


def test_linear_divides_positions():
    x = np.random.default_rng(0).normal(size=(6, 8))
    positions = np.arange(6.0) * 100
    stretched = reference.rotary(x, positions, 8, scaling=scaling.linear(4))
    close(stretched, reference.rotary(x, positions / 4, 8))


@pytest.mark.parametrize("pairs", [2, 3, 32])
def test_ntk_leaves_the_fastest_pair_and_divides_the_slowest_by_the_factor(pairs):
    ratio = reference.ntk_frequencies(pairs, 10000.0, 8.0) / plain(pairs)
    np.testing.assert_allclose(ratio[[0, -1]], [1, 1 / 8], rtol=1e-13)
    np.testing.assert_allclose(ratio[1:] / ratio[:-1], 8 ** (-1 / (pairs - 1)), rtol=1e-13)


def test_dynamic_ntk_begins_beyond_the_trained_length():
    for length in (1, 100, 4096):
        np.testing.assert_allclose(reference.dynamic_ntk_frequencies(8, 1e4, 2.0, 4096, length), plain(8), rtol=1e-14)
    # twice as long: s l / L − (s − 1) = 2 · 2 − 1
    doubled = reference.dynamic_ntk_frequencies(8, 1e4, 2.0, 4096, 8192)
    np.testing.assert_allclose(doubled, reference.ntk_frequencies(8, 1e4, 3.0), rtol=1e-14)
    # a factor of 1 is the ratio of the lengths itself
    np.testing.assert_allclose(
        reference.dynamic_ntk_frequencies(8, 1e4, 1.0, 1000, 2500),
        reference.ntk_frequencies(8, 1e4, 2.5),
        rtol=1e-14,
    )


def test_yarn_of_llama_2():
    """64 pairs, base 10000, 4096 tokens: the ramp runs from pair ⌊20.94⌋ to ⌈45.03⌉."""
    ratio = reference.yarn_frequencies(64, 10000.0, 16.0, 4096) / plain(64)
    np.testing.assert_allclose(ratio[:21], 1, rtol=1e-13)
    np.testing.assert_allclose(ratio[46:], 1 / 16, rtol=1e-13)
    ramp = np.arange(21, 46) - 20
    np.testing.assert_allclose(ratio[21:46], 1 - ramp / 26 * (15 / 16), rtol=1e-12)
    assert reference.yarn_factor(16.0) == pytest.approx(0.1 * math.log(16) + 1, rel=1e-15)


def test_yarn_without_truncation_ends_its_ramp_between_pairs():
    ratio = reference.yarn_frequencies(64, 10000.0, 16.0, 4096, truncate=False) / plain(64)
    low, high = (64 * math.log(4096 / (2 * math.pi * turns)) / math.log(10000) for turns in (32, 1))
    assert (round(low, 2), round(high, 2)) == (20.94, 45.03)
    np.testing.assert_allclose(ratio[30], 1 - (30 - low) / (high - low) * 15 / 16, rtol=1e-12)
    np.testing.assert_allclose(ratio[:21], 1, rtol=1e-13)
    assert ratio[21] < 0.999
    assert ratio[45] > ratio[46]


def test_yarn_ends_its_ramp_within_the_channels_not_the_pairs():
    """A trained length so long that the slowest pair turns often: the ramp would end beyond all pairs."""
    ratio = reference.yarn_frequencies(8, 10000.0, 4.0, 10**7) / plain(8)
    low = math.floor(8 * math.log(1e7 / (64 * math.pi)) / math.log(10000))
    high = min(math.ceil(8 * math.log(1e7 / (2 * math.pi)) / math.log(10000)), 15)
    assert (low, high) == (9, 13)
    np.testing.assert_allclose(ratio, 1, rtol=1e-13)
    ratio = reference.yarn_frequencies(4, 10.0, 4.0, 1000) / plain(4, 10.0)  # ends at pairs 2 and ⌈8.8⌉ > 2 · 4 − 1
    np.testing.assert_allclose(ratio, [1, 1, 1, 1 - 0.75 / 5], rtol=1e-13)


def test_yarn_of_one_length_survives():
    ratio = reference.yarn_frequencies(4, 10000.0, 4.0, 4096, beta_fast=5.0, beta_slow=5.0) / plain(4)
    assert np.isfinite(ratio).all()
    assert ratio[0] == 1
    assert ratio[3] == pytest.approx(1 / 4, rel=1e-13)


@pytest.mark.parametrize(
    ("mscale", "mscale_all_dim", "factor"),
    [
        (None, None, 1.3688879454),
        (1.0, 1.0, 1.0),
        (1.0, 0.5, 1.3688879454 / 1.1844439727),
        (0.707, None, 1.3688879454),
        (0.0, 1.0, 1.3688879454),
    ],
)
def test_yarn_factor_of_deepseek(mscale, mscale_all_dim, factor):
    assert reference.yarn_factor(40.0, mscale, mscale_all_dim) == pytest.approx(factor, rel=1e-9)
    value = scaling.yarn(factor=40.0, original=4096, mscale=mscale, mscale_all_dim=mscale_all_dim)
    assert reference.rotary_frequencies(32, scaling=value)[1] == pytest.approx(factor, rel=1e-9)


@pytest.mark.parametrize("given", [0.3, 1.0, 1.7])
def test_an_attention_factor_given_outright_wins(given):
    yarn = scaling.yarn(factor=40.0, original=4096, mscale=1.0, mscale_all_dim=0.5, attention_factor=given)
    assert reference.rotary_frequencies(4, scaling=yarn)[1] == given
    longrope = scaling.longrope([1.0], [2.0], original=4096, factor=32, attention_factor=given)
    assert reference.rotary_frequencies(1, scaling=longrope, length=9)[1] == given


@pytest.mark.parametrize("length", [4096, 4097])
def test_case_38_longrope_switches_beyond_the_trained_length(length):
    short, long = np.linspace(1, 2, 8), np.linspace(3, 60, 8)
    value = scaling.longrope(short.tolist(), long.tolist(), original=4096, factor=32)
    frequencies, factor = reference.rotary_frequencies(8, 10000.0, value, length)
    np.testing.assert_allclose(frequencies, plain(8) / (short if length == 4096 else long), rtol=1e-14)
    assert round(factor, 5) == 1.19024
    assert reference.longrope_factor(1, 4096) == 1.0


def test_case_37_llama3_keeps_15_blends_3_divides_14():
    frequencies, factor = reference.rotary_frequencies(32, 5e5, scaling.llama3(32, original=8192, low=1, high=4))
    ratio = frequencies / plain(32, 5e5)
    np.testing.assert_allclose(ratio[:15], 1, rtol=1e-15)
    np.testing.assert_allclose(ratio[18:], 1 / 32, rtol=1e-15)
    assert ((ratio[15:18] > 1 / 32 * 1.001) & (ratio[15:18] < 0.999)).all()
    assert round(frequencies[15], 8) == 0.00129055
    assert factor == 1.0


def test_proportional_turns_the_first_pairs_with_the_frequencies_of_all():
    frequencies, _ = reference.rotary_frequencies(8, 1e6, scaling.proportional(0.25, factor=8))
    np.testing.assert_allclose(frequencies[:2], plain(8, 1e6)[:2] / 8, rtol=1e-15)
    assert (frequencies[2:] == 0).all()
    assert reference.proportional_frequencies(5, 1e4, 0.5).astype(bool).tolist() == [True] * 2 + [False] * 3


def test_periods_reach_both_ends():
    frequencies, _ = reference.rotary_frequencies(5, scaling=scaling.periods(0.5, 8.0))
    close(2 * math.pi / frequencies, 0.5 * 2.0 ** np.arange(5), atol=1e-13)


def test_scaled_rotations_turn_by_the_scaled_frequencies_and_grow_by_the_factor():
    value = scaling.yarn(factor=4, original=4096)
    x, positions = np.random.default_rng(1).normal(size=(7, 16)), np.arange(7.0) * 1000
    frequencies, factor = reference.rotary_frequencies(8, 10000.0, value)
    turned = (x[:, :8] + 1j * x[:, 8:]) * factor * np.exp(1j * np.outer(positions, frequencies))
    got = reference.rotary(x, positions, 16, scaling=value)
    close(got, np.concatenate([turned.real, turned.imag], axis=1), atol=1e-11)
    rounded = reference.rotary(x, positions, 16, scaling=value, precision="float32")
    assert 1e-7 < np.abs(got - rounded).max() < 1e-2


def test_float32_rounds_coordinates_and_their_products_with_the_frequencies():
    # frequencies 1 and 1/2, which float32 holds; 2^24 + 1 it does not
    x, positions = np.array([[1.0, 1.0, 0.0, 0.0]]), np.array([2.0**24 + 1])
    got = reference.rotary(x, positions, 4, base=4.0, precision="float32")
    angles = np.array([2.0**24, 2.0**23])
    close(got, [[*np.cos(angles), *np.sin(angles)]])
    # 3 · float32(1/√3) is rounded once more
    got = reference.rotary(x, np.array([3.0]), 4, base=3.0, precision="float32")
    angle = float(np.float32(3) * (np.float32(1) / np.float32(3) ** np.float32(0.5)))
    close(got[0, [1, 3]], [math.cos(angle), math.sin(angle)], atol=1e-15)


def test_the_sequence_is_as_long_as_its_largest_position_unless_said_otherwise():
    value = scaling.dynamic_ntk(2.0, original=8)
    x, positions = np.random.default_rng(2).normal(size=(3, 6)), np.array([0.0, 3.0, 15.0])
    whole = reference.rotary(x, positions, 6, scaling=value)
    np.testing.assert_array_equal(whole, reference.rotary(x, positions, 6, scaling=value, length=16))
    np.testing.assert_array_equal(whole[:2], reference.rotary(x[:2], positions[:2], 6, scaling=value, length=16))
    assert np.abs(whole[1] - reference.rotary(x[:2], positions[:2], 6, scaling=value)[1]).max() > 1e-3


def test_each_axis_is_scaled_by_itself():
    value = scaling.ntk(4.0)
    x, positions = np.random.default_rng(3).normal(size=(4, 12)), np.random.default_rng(4).normal(size=(4, 2)) * 9
    got = reference.rotary(x, positions, 12, axes=2, layout="interleaved", scaling=value)
    for axis in range(2):
        part = slice(6 * axis, 6 * axis + 6)
        one = reference.rotary(x[:, part], positions[:, axis], 6, layout="interleaved", scaling=value)
        close(got[:, part], one)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: reference.rotary_frequencies(4, scaling="yarn"),
            "scaling must be a value of posenc.scaling, got 'yarn'",
        ),
        (lambda: reference.rotary_frequencies(4, scaling=scaling.dynamic_ntk(2.0, 8)), "depends on the length"),
        (lambda: reference.longrope_frequencies(4, 1e4, [1.0] * 3, [1.0] * 3, 8, 8), "each of 4 pairs, got 3"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
