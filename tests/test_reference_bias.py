"""The references of the biases have the values of the papers, and those of a second formula."""

import itertools
import math

import numpy as np
import pytest

from posenc import reference
from reference_arrays import close, grid


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (1, 6), (5, 5), (2, 3, 4), (7,)])
def test_index_is_equal_exactly_when_the_lag_is(shape):
    index = reference.relative_index(shape)
    cells = grid(*shape)
    lags = cells[:, None] - cells[None]
    by_index, by_lag = {}, {}
    for i, j in itertools.product(range(len(cells)), repeat=2):
        by_index.setdefault(index[i, j], set()).add(tuple(lags[i, j]))
        by_lag.setdefault(tuple(lags[i, j]), set()).add(index[i, j])
    assert all(len(values) == 1 for values in (*by_index.values(), *by_lag.values()))
    assert sorted(by_index) == list(range(math.prod(2 * size - 1 for size in shape)))


def test_swin_window_of_3_by_4_has_35_indices():
    index = reference.relative_index((3, 4))
    assert len(np.unique(index)) == 35
    assert index[0, 11] == 0
    assert index[0, 0] == 17
    assert index[11, 0] == 34


@pytest.mark.parametrize("shape", [(3, 4), (4, 2), (6,), (2, 2, 3)])
def test_relative_position_bias_reads_the_table_by_lag(rng, shape):
    table = rng.normal(size=(3, math.prod(2 * size - 1 for size in shape)))
    box = table.reshape(3, *(2 * size - 1 for size in shape))
    queries, keys = rng.permutation(grid(*shape)), rng.permutation(grid(*shape))[:5]
    got = reference.relative_position_bias(queries, keys, 3, shape, table)
    lags = (queries[:, None] - keys[None]).astype(int) + np.array(shape) - 1
    np.testing.assert_array_equal(got, box[(slice(None), *np.moveaxis(lags, -1, 0))])


def test_prefix_has_three_numbers_of_its_own_or_none(rng):
    table, prefix_table = rng.normal(size=(2, 9)), rng.normal(size=(2, 3))
    positions = grid(2, 2, prefix=2)
    plain = reference.relative_position_bias(positions, positions, 2, (2, 2), table)
    assert (plain[:, :2] == 0).all()
    assert (plain[:, :, :2] == 0).all()
    full = reference.relative_position_bias(
        positions, positions, 2, (2, 2), table, prefix_bias=True, prefix_table=prefix_table
    )
    np.testing.assert_array_equal(full[:, 2:, 2:], plain[:, 2:, 2:])
    np.testing.assert_array_equal(full[:, :2, 2:], np.broadcast_to(prefix_table[:, 0, None, None], (2, 2, 4)))
    np.testing.assert_array_equal(full[:, 2:, :2], np.broadcast_to(prefix_table[:, 1, None, None], (2, 4, 2)))
    np.testing.assert_array_equal(full[:, :2, :2], np.broadcast_to(prefix_table[:, 2, None, None], (2, 2, 2)))


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (1, [1 / 256]),
        (3, [1 / 16, 1 / 256, 1 / 4]),
        (5, [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2]),
    ],
)
def test_alibi_slopes(heads, slopes):
    assert reference.alibi_slopes(heads).tolist() == slopes


def test_alibi_falls_with_distance_on_both_sides():
    got = reference.alibi(np.array([3.0, 4.0]), np.arange(5), 8)
    distances = np.abs(np.arange(2)[:, None] + 3 - np.arange(5))
    np.testing.assert_array_equal(got, -np.power(2.0, -np.arange(1, 9))[:, None, None] * distances)


def test_t5_buckets():
    key_minus_query = np.array([-1000, -16, -8, 0, 1, 8, 128, 100000])
    assert reference.t5_bucket(-key_minus_query).tolist() == [15, 10, 8, 0, 17, 24, 31, 31]
    assert reference.t5_bucket(np.array([1000, -1, -1000]), bidirectional=False).tolist() == [31, 0, 0]


@pytest.mark.parametrize(
    ("buckets", "distance", "bidirectional"),
    [(32, 128, True), (32, 128, False), (9, 20, False), (4, 2, True), (2, 5, False), (6, 50, True)],
)
def test_t5_buckets_follow_the_logarithm(buckets, distance, bidirectional):
    lags = np.arange(-4999, 5000)
    side = buckets // 2 if bidirectional else buckets
    exact = side // 2
    away = np.abs(lags) if bidirectional else np.maximum(lags, 0)
    far = np.log(np.maximum(away, 1) / exact) / np.log(distance / exact) * (side - exact) + exact
    # at a border itself a rounded logarithm may fall on either side of it
    whole = np.floor(np.where(np.abs(far - np.round(far)) < 1e-9, np.round(far), far)).astype(int)
    wanted = np.where(away < exact, away, np.minimum(whole, side - 1))
    wanted = wanted + np.where(bidirectional & (lags < 0), side, 0)
    np.testing.assert_array_equal(reference.t5_bucket(lags, buckets, distance, bidirectional), wanted)


def test_t5_buckets_are_exact_where_a_logarithm_is_not():
    # 8 buckets, 4 of them exact, up to 4 · 5^4: the borders are 4 · 5^s, whole numbers
    lags = np.array([19, 20, 21, 99, 100, 101, 499, 500])
    assert reference.t5_bucket(lags, 8, 4 * 5**4, bidirectional=False).tolist() == [4, 5, 5, 5, 6, 6, 6, 7]


def test_t5_bias_reads_the_table_by_bucket(rng):
    table = rng.normal(size=(3, 12))
    queries, keys = np.array([np.nan, 0.0, 40.0]), np.array([3.0, np.nan, 0.0, 17.0])
    got = reference.t5_bias(queries, keys, 3, table, num_buckets=12, max_distance=30)
    assert (got[:, 0] == 0).all()
    assert (got[:, :, 1] == 0).all()
    for i, j in itertools.product((1, 2), (0, 2, 3)):
        bucket = reference.t5_bucket(queries[i] - keys[j : j + 1], 12, 30)[0]
        np.testing.assert_array_equal(got[:, i, j], table[:, bucket])


def test_t5_bias_has_32_buckets_up_to_128_unless_told_otherwise():
    lags = np.arange(-200, 201)
    got = reference.t5_bias(lags, np.zeros(1), 1, np.arange(32.0)[None])
    np.testing.assert_array_equal(got[0, :, 0], reference.t5_bucket(lags, 32, 128, True))


def test_alibi_signed_falls_behind_and_rises_ahead():
    got = reference.alibi(np.array([2.0]), np.arange(5), 2, signed=True)
    close(got, np.array([1 / 16, 1 / 256])[:, None, None] * np.array([-2, -1, 0, 1, 2]))
    # BLOOM's m · j is the same to a softmax
    bloom = np.array([1 / 16, 1 / 256])[:, None, None] * np.arange(5)
    close(got - bloom, np.broadcast_to((got - bloom)[:, :, :1], got.shape))


def test_alibi_behind_the_query_is_the_same_signed_or_not(rng):
    slopes = rng.normal(size=3)
    symmetric, signed = (
        reference.alibi(np.array([9]), np.arange(9), 3, signed=s, slopes=slopes) for s in (False, True)
    )
    np.testing.assert_array_equal(symmetric, signed)
    close(symmetric, -slopes[:, None, None] * (9 - np.arange(9)))


@pytest.mark.parametrize("symmetric", [False, True])
def test_windowed_hides_what_is_beyond_the_table(rng, symmetric):
    sizes = (2, 3) if symmetric else (3, 5)
    table, cells = rng.normal(size=(2, math.prod(sizes))), grid(4, 5, prefix=1)
    got = reference.relative_position_bias(cells, cells, 2, (2, 3), table, symmetric=symmetric, windowed=True)
    lags = np.abs(cells[1:, None] - cells[1:])
    beyond = (lags >= [2, 3]).any(-1)
    assert (got[:, 1:, 1:][:, beyond] == -math.inf).all()
    assert np.isfinite(got[:, 1:, 1:][:, ~beyond]).all()
    assert (got[:, 0] == 0).all()
    assert (got[:, :, 0] == 0).all()
    small = grid(2, 3)  # where the table reaches everywhere, nothing changes
    arguments = (small, small, 2, (2, 3), table)
    np.testing.assert_array_equal(
        reference.relative_position_bias(*arguments, symmetric=symmetric, windowed=True),
        reference.relative_position_bias(*arguments, symmetric=symmetric),
    )
