"""The references of rotary encodings have the values of the papers, and those of complex numbers."""

import numpy as np
import pytest

import second_loops
from posenc import reference, scaling
from reference_arrays import close, grid


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rotary_is_multiplication_by_a_complex_number(rng, layout):
    x, positions = rng.normal(size=(2, 3, 7, 10)), rng.integers(0, 5000, size=7).astype(float)
    turn = np.exp(1j * np.outer(positions, 10000 ** (-np.arange(5) / 5)))
    a, b = (x[..., :5], x[..., 5:]) if layout == "half" else (x[..., 0::2], x[..., 1::2])
    turned = (a + 1j * b) * turn
    got = reference.rotary(x, positions, 10, layout=layout)
    first, second = (got[..., :5], got[..., 5:]) if layout == "half" else (got[..., 0::2], got[..., 1::2])
    close(first, turned.real)
    close(second, turned.imag)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(("axes", "head_dim", "rotary_dim"), [(1, 8, None), (2, 14, None), (3, 16, 10), (2, 9, 6)])
def test_rotated_products_depend_on_relative_position_alone(rng, layout, axes, head_dim, rotary_dim):
    q, k = rng.normal(size=(2, 4, head_dim))
    positions, shift = rng.integers(0, 50, size=(2, 4, axes)).astype(float), rng.integers(1, 50, size=axes)

    def logits(moved):
        arguments = {"head_dim": head_dim, "axes": axes, "layout": layout, "rotary_dim": rotary_dim}
        turned_q = reference.rotary(q, positions[0] + moved, **arguments)
        return turned_q @ reference.rotary(k, positions[1] + moved, **arguments).T

    close(logits(shift), logits(0 * shift), atol=1e-11)
    assert np.abs(logits(0 * shift) - q @ k.T).max() > 1e-3


def test_rotary_deals_pairs_to_axes_in_order(rng):
    x, positions = rng.normal(size=(5, 10)), rng.normal(size=(5, 2))
    got = reference.rotary(x, positions, 10, axes=2, layout="interleaved", base=100.0)
    close(got[:, :6], reference.rotary(x[:, :6], positions[:, 0], 6, layout="interleaved", base=100.0))
    close(got[:, 6:], reference.rotary(x[:, 6:], positions[:, 1], 4, layout="interleaved", base=100.0))


def test_rotary_leaves_prefix_and_further_channels_bit_identical(rng):
    x = rng.normal(size=(2, 8, 12))
    got = reference.rotary(x, grid(2, 3, prefix=2), 12, axes=2, rotary_dim=8)
    np.testing.assert_array_equal(got[:, :2], x[:, :2])
    np.testing.assert_array_equal(got[:, :, 8:], x[:, :, 8:])
    assert (got[:, 3:, :8] != x[:, 3:, :8]).any(axis=-1).all()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_axis_order_says_whose_pairs_come_first(rng, order):
    x, positions = rng.normal(size=(5, 10)), rng.normal(size=(5, 2)) * 10
    got = reference.rotary(x, positions, 10, axes=2, layout="interleaved", axis_order=order)
    widths, start = (6, 4), 0  # five pairs: three for the first axis
    for axis in order:
        part = slice(start, start + widths[axis])
        close(got[:, part], reference.rotary(x[:, part], positions[:, axis], widths[axis], layout="interleaved"))
        start += widths[axis]


# Mixed axes


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_mixed_rotary_is_multiplication_by_a_complex_number(rng, layout):
    x, positions = rng.normal(size=(2, 3, 6, 8)), rng.normal(size=(6, 2)) * 5
    frequencies = rng.normal(size=(3, 2, 4))
    turn = np.exp(1j * np.einsum("na,hap->hnp", positions, frequencies))
    a, b = (x[..., :4], x[..., 4:]) if layout == "half" else (x[..., 0::2], x[..., 1::2])
    turned = (a + 1j * b) * turn
    got = reference.mixed_rotary(x, positions, 3, 8, frequencies, layout=layout)
    first, second = (got[..., :4], got[..., 4:]) if layout == "half" else (got[..., 0::2], got[..., 1::2])
    close(first, turned.real)
    close(second, turned.imag)


def test_mixed_rotary_with_frequencies_of_one_axis_each_is_axial(rng):
    x, positions = rng.normal(size=(2, 9, 8)), grid(3, 3)
    axial = np.zeros((2, 2, 4))
    axial[:, 0, :2] = axial[:, 1, 2:] = [1, 0.1]
    got = reference.mixed_rotary(x, positions, 2, 8, axial, layout="half")
    close(got, reference.rotary(x, positions, 8, axes=2, base=100.0))


def test_mixed_products_depend_on_relative_position_alone(rng):
    """Case 39: with frequencies of any value, for each head its own."""
    q, k = rng.normal(size=(2, 3, 6, 4))
    frequencies, positions, shift = rng.normal(size=(3, 2, 2)), grid(2, 3), np.array([11.0, -4.0])

    def logits(moved):
        turned = [reference.mixed_rotary(x, positions + moved, 3, 4, frequencies) for x in (q, k)]
        return turned[0] @ turned[1].swapaxes(1, 2)

    close(logits(shift), logits(0 * shift), atol=1e-11)
    assert np.abs(logits(0 * shift) - q @ k.swapaxes(1, 2)).max() > 1e-3


def test_mixed_rotary_leaves_the_prefix_bit_identical(rng):
    x = rng.normal(size=(2, 6, 4))
    got = reference.mixed_rotary(x, grid(2, 2, prefix=2), 2, 4, rng.normal(size=(2, 2, 2)))
    np.testing.assert_array_equal(got[:, :2], x[:, :2])
    assert (got[:, 3:] != x[:, 3:]).any(axis=-1).all()


# Text, images and videos


def test_one_section_is_plain_rotary(rng):
    x, positions = rng.normal(size=(2, 7, 12)), rng.integers(0, 99, size=7).astype(float)
    for interleaved in (False, True):
        got = reference.multimodal_rotary(x, positions[:, None], 12, (6,), interleaved=interleaved, base=300.0)
        np.testing.assert_array_equal(got, reference.rotary(x, positions, 12, base=300.0))


@pytest.mark.parametrize(("sections", "interleaved"), [((2, 3, 3), False), ((4, 2, 2), True), ((3, 3, 2), True)])
def test_text_is_turned_as_by_plain_rotary(rng, sections, interleaved):
    x, positions = rng.normal(size=(2, 5, 16)), rng.integers(0, 99, size=5).astype(float)
    got = reference.multimodal_rotary(x, np.stack([positions] * 3, axis=1), 16, sections, interleaved)
    np.testing.assert_array_equal(got, reference.rotary(x, positions, 16))


@pytest.mark.parametrize(
    ("sections", "interleaved", "axes"),
    [
        ((2, 3, 3), False, [0, 0, 1, 1, 1, 2, 2, 2]),
        ((4, 2, 2), True, [0, 1, 2, 0, 1, 2, 0, 0]),
        ((3, 3, 2), True, [0, 1, 2, 0, 1, 2, 0, 1]),
    ],
)
def test_pairs_turn_with_the_axis_of_their_section(rng, sections, interleaved, axes):
    x, positions = rng.normal(size=(5, 16)), rng.normal(size=(5, 3)) * 20
    got = reference.multimodal_rotary(x, positions, 16, sections, interleaved, layout="interleaved")
    turn = np.exp(1j * positions[:, axes] * 10000 ** (-np.arange(8) / 8))  # one ladder of frequencies for all
    turned = (x[:, 0::2] + 1j * x[:, 1::2]) * turn
    close(got[:, 0::2], turned.real)
    close(got[:, 1::2], turned.imag)


def test_qwen3_vl_gives_each_axis_its_pairs(rng):
    """Sections of 24, 20 and 20 pairs: the last four pairs of all, and no others out of turn, are time's."""
    x, steps = np.ones((3, 128)), np.eye(3) * 1000
    got = reference.multimodal_rotary(x, steps, 128, (24, 20, 20), interleaved=True, base=5e6)
    moved = (got != x)[:, :64]
    assert moved.sum(axis=1).tolist() == [24, 20, 20]
    assert np.flatnonzero(moved[0])[-5:].tolist() == [57, 60, 61, 62, 63]
    assert np.flatnonzero(moved[1]).tolist() == list(range(1, 60, 3))
    assert np.flatnonzero(moved[2]).tolist() == list(range(2, 60, 3))


def test_multimodal_rotary_turns_a_part_and_rounds_as_plain_rotary_does(rng):
    x, positions = rng.normal(size=(2, 5, 12)), rng.integers(0, 9999, size=5).astype(float)
    arguments = {"rotary_dim": 8, "precision": "float32", "scaling": scaling.yarn(factor=4, original=512)}
    got = reference.multimodal_rotary(x, np.stack([positions] * 3, axis=1), 12, (2, 1, 1), **arguments)
    np.testing.assert_array_equal(got, reference.rotary(x, positions, 12, **arguments))
    np.testing.assert_array_equal(got[..., 8:], x[..., 8:])


# XPos


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_xpos_is_the_authors_factors_where_those_are_finite(rng, layout):
    q, k = rng.normal(size=(2, 5, 8)), rng.normal(size=(2, 7, 8))
    queries, keys = rng.integers(0, 300, size=5).astype(float), rng.integers(0, 300, size=7).astype(float)
    arguments = {"head_dim": 8, "scale_base": 200.0, "layout": layout}
    got = reference.xpos(q, k, queries, keys, **arguments)
    close(got, second_loops.xpos(q, k, queries, keys, **arguments))


def test_xpos_of_an_endless_scale_is_rotary(rng):
    q, k = rng.normal(size=(2, 2, 6, 8))
    positions = np.arange(6.0)
    turned = [reference.rotary(x, positions, 8, layout="interleaved") for x in (q, k)]
    got = reference.xpos(q, k, positions, positions, 8, scale_base=1e15)
    close(got, turned[0] @ turned[1].swapaxes(1, 2))


def test_xpos_depends_on_relative_position_alone_and_stays_finite(rng):
    q, k = rng.normal(size=(2, 1, 4, 16))
    positions = np.array([0.0, 1.0, 700.0, 3000.0])
    near = reference.xpos(q, k, positions, positions, 16)
    far = reference.xpos(q, k, positions + 1e6, positions + 1e6, 16)
    causal = np.tril(np.ones((4, 4), dtype=bool))
    assert np.isfinite(far[:, causal]).all()
    close(far[:, causal], near[:, causal], atol=1e-8)
    # 3000 behind, a pair of channels adds at most its factor times the lengths of its two vectors
    factors = ((np.arange(8) / 8 + 0.4) / 1.4) ** (3000 / 512)
    lengths = np.hypot(*q[0, 3].reshape(8, 2).T) * np.hypot(*k[0, 0].reshape(8, 2).T)
    assert abs(near[0, 3, 0]) <= factors @ lengths
    assert factors @ lengths < 0.6 * lengths.sum()  # whatever is drawn, well below what does not decay may give


def test_xpos_of_a_prefix_token_does_not_shrink(rng):
    q, k = rng.normal(size=(2, 1, 2, 4))
    positions = np.array([np.nan, 900.0])
    got = reference.xpos(q, k, positions, positions, 4)
    turned = [reference.rotary(x, positions, 4, layout="interleaved") for x in (q, k)]
    plain = turned[0] @ turned[1].swapaxes(1, 2)
    close(got[:, 0], plain[:, 0])
    close(got[:, 1, 0], plain[:, 1, 0])
    close(got[:, 1, 1], (q * k)[:, 1].sum(-1))
