"""The reference has the right values: those the papers give, and those of a second formula written differently."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest

from posenc import reference

EPSILON = float(np.finfo(np.float64).eps)


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


def grid(*shape, prefix=0):
    cells = np.indices(shape).reshape(len(shape), -1).T.astype(float)
    return np.concatenate([np.full((prefix, len(shape)), np.nan), cells])


def close(got, wanted, atol=1e-12):
    np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)


# System 1: sinusoidal, one axis


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


# System 10: the table in its exponential form


@pytest.mark.parametrize("dim", [1, 2, 7, 64])
def test_table_equals_sinusoidal_within_a_few_units_of_position_times_epsilon(dim):
    length = 3000
    error = np.abs(reference.sinusoidal_table(length, dim) - reference.sinusoidal(np.arange(length), dim))
    assert error.shape == (length, dim)
    assert (error <= 8 * EPSILON * np.maximum(np.arange(length), 1)[:, None]).all()


def test_table_of_nothing():
    assert reference.sinusoidal_table(0, 5).shape == (0, 5)


# System 2: learned


def test_learned_rows_are_row_major_after_the_prefix(rng):
    table = rng.normal(size=(2 + 3 * 4, 5))
    positions = np.concatenate([grid(3, 4, prefix=2)[:2], rng.integers(0, [3, 4], size=(6, 2)).astype(float)])
    got = reference.learned(positions, table, (3, 4), 5, prefix=2)
    np.testing.assert_array_equal(got[:2], table[:2])
    cells = table[2:].reshape(3, 4, 5)
    np.testing.assert_array_equal(got[2:], cells[tuple(positions[2:].astype(int).T)])


# System 3: relative position bias


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


# Systems 4 and 12: several axes


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


# Rotary


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


# Biases of one axis


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


# System 5: Shaw


def test_shaw_shares_the_border_rows(rng):
    table = rng.normal(size=(1, 9, 6))
    q = rng.normal(size=(2, 10, 6))
    got = reference.shaw(q, np.arange(10), np.arange(10), 6, 4, table)
    rows = [[min(max(i - j, -4), 4) + 4 for j in range(10)] for i in range(10)]
    assert len(np.unique(rows)) == 9
    close(got, np.einsum("hid,ijd->hij", q, table[0][rows]))
    for i in range(10):
        for side in (got[:, i, : max(i - 3, 0)], got[:, i, i + 4 :]):
            assert (side == side[:, :1]).all()  # all lags of 4 and beyond share one row


@pytest.mark.parametrize("per_head", [False, True])
def test_shaw_keys_and_values_by_one_hot_matrices(rng, per_head):
    heads, k, dim = 3, 2, 5
    queries, keys = np.array([4.0, 9.0, 0.0]), np.arange(10.0)
    key_table, value_table = rng.normal(size=(2, heads if per_head else 1, 2 * k + 1, dim))
    q, weights = rng.normal(size=(heads, 3, dim)), rng.random(size=(heads, 3, 10))
    one_hot = np.eye(2 * k + 1)[(np.clip(queries[:, None] - keys, -k, k) + k).astype(int)]
    arguments = {"key_table": key_table, "num_heads": heads if per_head else None, "value_table": value_table}
    wanted = np.einsum("hid,hrd,ijr->hij", q, np.broadcast_to(key_table, (heads, 5, dim)), one_hot)
    close(reference.shaw(q, queries, keys, dim, k, **arguments), wanted)
    wanted = np.einsum("hij,ijr,hrd->hid", weights, one_hot, np.broadcast_to(value_table, (heads, 5, dim)))
    close(reference.shaw_values(weights, queries, keys, dim, k, **arguments), wanted)
    arguments["value_table"] = None
    assert (reference.shaw_values(weights, queries, keys, dim, k, values=False, **arguments) == 0).all()


# Systems 6, 7, 8 and 9: relative logits


def test_skew():
    assert reference.skew(np.arange(1, 10).reshape(3, 3)).tolist() == [[3, 0, 4], [5, 6, 0], [7, 8, 9]]
    assert reference.skew(np.array([[7]])).tolist() == [[7]]


@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_skew_is_pad_reshape_slice(rng, length):
    x = rng.normal(size=(2, 3, length, length))
    padded = np.pad(x, [(0, 0), (0, 0), (0, 0), (1, 0)]).reshape(2, 3, length + 1, length)
    np.testing.assert_array_equal(reference.skew(x), padded[:, :, 1:])


def test_relative_to_absolute():
    got = reference.relative_to_absolute(np.arange(15).reshape(3, 5))
    assert got.tolist() == [[2, 3, 4], [6, 7, 8], [10, 11, 12]]
    assert reference.relative_to_absolute(np.array([[5]])).tolist() == [[5]]


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64, bool, complex])
@pytest.mark.parametrize("length", [0, 1, 4, 7])
def test_relative_to_absolute_of_any_type(rng, dtype, length):
    x = rng.integers(0, 2 if dtype is bool else 100, size=(2, 3, length, max(2 * length - 1, 0))).astype(dtype)
    got = reference.relative_to_absolute(x)
    assert got.dtype == dtype
    assert got.shape == (2, 3, length, length)
    padded = np.pad(x, [(0, 0), (0, 0), (0, 0), (0, 1)]).reshape(2, 3, -1)  # pad, flatten, drop, reshape, cut
    padded = padded[..., max(length - 1, 0) :][..., : length * max(2 * length - 1, 0)]
    np.testing.assert_array_equal(got, padded.reshape(2, 3, length, max(2 * length - 1, 0))[..., :length])


def test_music_transformer_is_the_skew_under_the_diagonal_and_nothing_above(rng):
    heads, length, dim = 2, 6, 4
    q, embeddings = rng.normal(size=(heads, length, dim)), rng.normal(size=(heads, length, dim))
    # E[L − 1 + j − i] descends with the distance, our rows ascend
    got = reference.relative_logits(
        q, np.arange(6), np.arange(6), dim, length, [embeddings[:, ::-1]], num_heads=heads, causal=True
    )
    below = np.tril(np.ones((length, length), dtype=bool))
    close(got[:, below], reference.skew(q @ embeddings.swapaxes(1, 2))[:, below])
    assert (got[:, ~below] == -math.inf).all()


@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("length", [1, 4, 7])
def test_relative_logits_of_one_axis_are_relative_to_absolute(rng, per_head, length):
    heads, dim = 3, 4
    q, table = rng.normal(size=(heads, length, dim)), rng.normal(size=(heads if per_head else 1, 2 * length - 1, dim))
    positions = np.arange(length)
    got = reference.relative_logits(
        q, positions, positions, dim, length, [table], num_heads=heads if per_head else None
    )
    by_key_minus_query = np.einsum("hid,hrd->hir", q, np.broadcast_to(table[:, ::-1], (heads, 2 * length - 1, dim)))
    close(got, reference.relative_to_absolute(by_key_minus_query))


@pytest.mark.parametrize(("height", "width"), [(2, 3), (3, 2), (1, 4)])
@pytest.mark.parametrize("per_head", [False, True])
def test_relative_logits_of_a_map_are_six_nested_loops(rng, height, width, per_head):
    heads, dim = 4, 5
    q = rng.normal(size=(heads, height, width, dim))
    rows = rng.normal(size=(heads if per_head else 1, 2 * height - 1, dim))
    columns = rng.normal(size=(heads if per_head else 1, 2 * width - 1, dim))
    wanted = np.zeros((heads, height, width, height, width))
    for head in range(heads):
        table = head if per_head else 0
        for y, x in itertools.product(range(height), range(width)):
            for key_y, key_x in itertools.product(range(height), range(width)):
                for channel in range(dim):
                    wanted[head, y, x, key_y, key_x] += q[head, y, x, channel] * (
                        rows[table, y - key_y + height - 1, channel] + columns[table, x - key_x + width - 1, channel]
                    )
    cells = grid(height, width)
    got = reference.relative_logits(
        q.reshape(heads, -1, dim), cells, cells, dim, (height, width), [rows, columns], heads if per_head else None
    )
    close(got, wanted.reshape(heads, height * width, height * width))


def test_content_terms_leave_out_the_prefix(rng):
    q, positions = rng.normal(size=(2, 7, 4)), grid(2, 3, prefix=1)
    tables = [rng.normal(size=(1, 3, 4)), rng.normal(size=(1, 5, 4))]
    got = reference.relative_logits(q, positions, positions, 4, (2, 3), tables)
    assert (got[:, 0] == 0).all()
    assert (got[:, :, 0] == 0).all()
    assert (got[:, 1:, 1:] != 0).all()
    line = np.array([np.nan, 0.0, 1.0])
    got = reference.sinusoidal_logits(q[:, :3], line, line, 4)
    assert (got[:, 0] == 0).all()
    assert (got[:, :, 0] == 0).all()
    assert (got[:, 1:, 1:] != 0).all()


# System 11: self-attention with sinusoidal relative positions


def system_11_by_loop(x, context, query_weight, key_weight, value_weight, base=10000.0):
    """Written with complex numbers and running sums, for one query after the other."""
    dim = query_weight.shape[1]
    rows = []
    for query, token in enumerate(x):
        place = len(context) - len(x) + query
        q = token @ query_weight
        total, weighted = 0.0, 0.0
        for key, other in enumerate(context):
            logit = sum(q * (other @ key_weight))
            for channel in range(dim):
                wave = np.exp(1j * (place - key) / base ** ((channel - channel % 2) / dim))
                logit += q[channel] * (wave.imag, wave.real)[channel % 2]
            weight = math.exp(logit / math.sqrt(dim))
            total += weight
            weighted = weighted + weight * (other @ value_weight)
        rows.append(weighted / total)
    return np.array(rows)


@pytest.mark.parametrize(("queries", "keys", "dim"), [(5, 5, 4), (1, 10, 6), (3, 8, 5), (1, 1, 2)])
def test_system_11_equals_a_loop(rng, queries, keys, dim):
    context = rng.normal(size=(keys, 7))
    weights = rng.normal(size=(3, 7, dim))
    x = context[keys - queries :] if queries < keys else rng.normal(size=(queries, 7))
    got = reference.sinusoidal_self_attention(x, *weights, context=context)
    close(got, system_11_by_loop(x, context, *weights))
    if queries == keys:
        close(reference.sinusoidal_self_attention(x, *weights), system_11_by_loop(x, x, *weights))


def test_system_11_has_a_base(rng):
    x, weights = rng.normal(size=(6, 4)), rng.normal(size=(3, 4, 4))
    got = reference.sinusoidal_self_attention(x, *weights, base=9.0)
    close(got, system_11_by_loop(x, x, *weights, base=9.0))
    assert np.abs(got - reference.sinusoidal_self_attention(x, *weights)).max() > 1e-3


def test_system_11_without_relative_vectors_is_plain_attention(rng, monkeypatch):
    x, (query_weight, key_weight, value_weight) = rng.normal(size=(6, 4)), rng.normal(size=(3, 4, 5))
    logits = (x @ query_weight) @ (x @ key_weight).T / math.sqrt(5)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    plain = softmax @ (x @ value_weight)
    assert np.abs(reference.sinusoidal_self_attention(x, query_weight, key_weight, value_weight) - plain).max() > 1e-3
    monkeypatch.setattr(reference, "_sinusoid", lambda position, width, base: np.zeros(width))  # r = 0
    close(reference.sinusoidal_self_attention(x, query_weight, key_weight, value_weight), plain)


@pytest.mark.parametrize("shift", [1, 6, 1000])
def test_system_11_is_shift_invariant(rng, shift):
    """Tokens that nobody attends to, put in front of the others, move those by `shift` and change nothing."""
    weights = rng.normal(size=(3, 5, 6))
    tokens = np.concatenate([rng.normal(size=(7, 3)), np.ones((7, 1)), np.zeros((7, 1))], axis=1)
    in_front = np.tile([0.0, 0.0, 0.0, 0.0, 1.0], (shift, 1))
    query_weight, key_weight, _ = weights
    query_weight[:, 5] = key_weight[:, 5] = 0
    query_weight[3, 5], key_weight[4, 5] = 1, -1e6  # q · k = −1e6 with the tokens in front
    moved = reference.sinusoidal_self_attention(tokens, *weights, context=np.concatenate([in_front, tokens]))
    close(moved, reference.sinusoidal_self_attention(tokens, *weights))


def test_system_11_one_query_against_ten_keys_stands_at_the_last(rng):
    context, weights = rng.normal(size=(10, 4)), rng.normal(size=(3, 4, 4))
    whole = reference.sinusoidal_self_attention(context, *weights)
    for queries in (1, 2, 7):
        last = reference.sinusoidal_self_attention(context[-queries:], *weights, context=context)
        close(last, whole[-queries:])


def test_system_11_survives_large_logits(rng):
    x, weights = 1e3 * rng.normal(size=(6, 4)), rng.normal(size=(3, 4, 4))
    assert np.isfinite(reference.sinusoidal_self_attention(x, *weights)).all()


# System 13: convolutional positions


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


# Attention


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def test_attention_adds_content_before_the_scale_and_bias_after(rng):
    q, (k, v) = rng.normal(size=(3, 4, 6)), rng.normal(size=(2, 3, 5, 6))
    content, bias = rng.normal(size=(2, 3, 4, 5))
    products = np.einsum("hid,hjd->hij", q, k)
    close(reference.attention(q, k, v), softmax(products / math.sqrt(6)) @ v)
    close(reference.attention(q, k, v, bias=bias), softmax(products / math.sqrt(6) + bias) @ v)
    close(reference.attention(q, k, v, content=content), softmax((products + content) / math.sqrt(6)) @ v)
    got = reference.attention(q, k, v, content=content, bias=bias, scale=0.3)
    close(got, softmax((products + content) * 0.3 + bias) @ v)


def test_attention_composes_rotary_bias_content_and_values(rng):
    """System 14: one from each place, in one call."""
    positions = np.arange(6.0)
    q, k, v = rng.normal(size=(3, 2, 6, 8))
    table, key_table, value_table = rng.normal(size=(2, 11)), *rng.normal(size=(2, 1, 5, 8))
    bias = reference.relative_position_bias(positions, positions, 2, 6, table)
    shaw = {"head_dim": 8, "max_distance": 2, "key_table": key_table, "value_table": value_table}
    got = reference.attention(
        reference.rotary(q, positions, 8),
        reference.rotary(k, positions, 8),
        v,
        bias=bias,
        content=reference.shaw(q, positions, positions, **shaw),
        values=lambda weights: reference.shaw_values(weights, positions, positions, **shaw),
    )
    lags = (positions[:, None] - positions).astype(int)
    turns = np.exp(1j * np.outer(positions, 10000 ** (-np.arange(4) / 4)))
    complex_q, complex_k = (q[..., :4] + 1j * q[..., 4:]) * turns, (k[..., :4] + 1j * k[..., 4:]) * turns
    products = np.einsum("hid,hjd->hij", complex_q, complex_k.conj()).real
    row = np.clip(lags, -2, 2) + 2
    logits = (products + np.einsum("hid,ijd->hij", q, key_table[0][row])) / math.sqrt(8) + table[:, lags + 5]
    weights = softmax(logits)
    close(got, weights @ v + np.einsum("hij,ijd->hid", weights, value_table[0][row]))


def test_attention_shares_key_heads_in_groups(rng):
    q, (k, v) = rng.normal(size=(6, 4, 3)), rng.normal(size=(2, 2, 5, 3))
    got = reference.attention(q, k, v)
    np.testing.assert_array_equal(got, reference.attention(q, k.repeat(3, axis=0), v.repeat(3, axis=0)))


def test_attention_reads_allowed_keys_only(rng):
    q, k, v = rng.normal(size=(3, 2, 4, 3))
    allowed = np.array([[True, False, True, False], [False] * 4, [True] * 4, [False, False, False, True]])
    got = reference.attention(q, k, v, allowed=allowed[None])
    close(got[:, 0], reference.attention(q[:, :1], k[:, ::2], v[:, ::2])[:, 0])
    assert (got[:, 1] == 0).all()  # sees nothing: zeros
    close(got[:, 2], reference.attention(q, k, v)[:, 2])
    np.testing.assert_array_equal(got[:, 3], v[:, 3])


def test_attention_gives_zeros_where_every_logit_is_minus_infinity(rng):
    q, k, v = rng.normal(size=(3, 1, 3, 4))
    content = np.zeros((1, 3, 3))
    content[:, 1] = -math.inf
    got = reference.attention(q, k, v, content=content, values=lambda weights: weights.sum(-1, keepdims=True) * v)
    assert (got[:, 1] == 0).all()
    assert np.isfinite(got).all()
    assert (got[:, [0, 2]] != 0).all()
    assert reference.attention(q, k[:, :0], v[:, :0]).tolist() == np.zeros((1, 3, 4)).tolist()


def test_attention_survives_large_logits(rng):
    v = rng.normal(size=(1, 3, 2))
    q, k = np.array([[[2000.0]]]), np.array([[[1.0], [2.0], [-5.0]]])
    np.testing.assert_array_equal(reference.attention(q, k, v)[0, 0], v[0, 1])


def test_everything_is_computed_in_float64(rng):
    single = {name: rng.normal(size=(1, 4, 4)).astype(np.float32) for name in "qkv"}
    double = {name: array.astype(np.float64) for name, array in single.items()}
    positions, weight = np.arange(4), rng.normal(size=(4, 1, 3)).astype(np.float32)
    table = rng.normal(size=(1, 5, 4)).astype(np.float32)
    calls = [
        lambda q, k, v: reference.attention(q, k, v),
        lambda q, k, v: reference.rotary(q, positions, 4),
        lambda q, k, v: reference.shaw(q, positions, positions, 4, 2, table.astype(q.dtype)),
        lambda q, k, v: reference.sinusoidal_logits(q, positions, positions, 4),
        lambda q, k, v: reference.sinusoidal_self_attention(q[0], q[0], k[0], v[0]),
        lambda q, k, v: reference.conditional_encoding(q[0], 4, weight.astype(q.dtype), k[0, 0], 4, axes=1),
    ]
    for call in calls:
        got = call(**single)
        assert got.dtype == np.float64
        np.testing.assert_array_equal(got, call(**double))


# Bad input

LINE = np.arange(5.0)
Q = np.zeros((2, 5, 4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reference.sinusoidal(LINE, 8, axes=2), r"positions must have shape \[tokens, 2\], got \[5\]"),
        (lambda: reference.sinusoidal(np.zeros((5, 3)), 8, axes=2), r"\[tokens, 2\], got \[5, 3\]"),
        (lambda: reference.sinusoidal(np.array([[0, np.nan]]), 8, axes=2), "on every axis or on none"),
        (lambda: reference.sinusoidal(np.zeros((5, 3)), 2, axes=3), "each of 3 axes needs channels, got 2"),
        (lambda: reference.sinusoidal(LINE, 0), "needs channels, got 0"),
        (lambda: reference.sinusoidal(LINE, 8, layout="half"), "interleaved or concatenated, got 'half'"),
        (lambda: reference.sinusoidal(np.zeros((5, 2)), 8, axes=2, axis_order=(1, 1)), "each of 2 axes once"),
        (lambda: reference.sinusoidal_table(-1, 4), "length must not be negative, got -1"),
        (lambda: reference.sinusoidal_table(3, 0), "dim must be at least 1, got 0"),
        (lambda: reference.learned(LINE, np.zeros((4, 3)), 4, 3), r"position \[4\] is outside a table of shape \[4\]"),
        (lambda: reference.learned(LINE - 1, np.zeros((9, 3)), 9, 3), r"position \[-1\] is outside"),
        (lambda: reference.learned(LINE + 0.5, np.zeros((9, 3)), 9, 3), "needs whole positions, got"),
        (lambda: reference.learned(LINE, np.zeros((9, 3)), 9, 4), r"table must have shape \[9, 4\], got \[9, 3\]"),
        (lambda: reference.learned(np.array([np.nan]), np.zeros((9, 3)), 9, 3), "rows for 0 prefix tokens, got 1"),
        (lambda: reference.fourier(LINE, np.zeros((1, 2)), 5), "dim must be even for Fourier features, got 5"),
        (lambda: reference.fourier(LINE, np.zeros((2, 2)), 4), r"frequencies must have shape \[1, 2\], got \[2, 2\]"),
        (lambda: reference.rotary(np.zeros((5, 63)), LINE, 63), "got 63: pass rotary_dim=62 to rotate part of it"),
        (
            lambda: reference.rotary(np.zeros((5, 8)), LINE, 8, rotary_dim=3),
            "rotary_dim must be even for rotary, got 3",
        ),
        (lambda: reference.rotary(np.zeros((5, 8)), LINE, 8, rotary_dim=10), "from 2 to head_dim 8, got 10"),
        (lambda: reference.rotary(np.zeros((5, 8)), LINE, 8, rotary_dim=0), "from 2 to head_dim 8, got 0"),
        (lambda: reference.rotary(np.zeros((5, 8)), LINE, 8, layout="paper"), "half or interleaved, got 'paper'"),
        (lambda: reference.rotary(np.zeros((5, 6)), LINE, 8), r"x must have shape \[5, 8\], got \[5, 6\]"),
        (lambda: reference.rotary(np.zeros((4, 8)), LINE, 8), r"x must have shape \[5, 8\], got \[4, 8\]"),
        (
            lambda: reference.rotary(np.zeros((5, 4)), np.zeros((5, 3)), 4, axes=3),
            "3 axes needs pairs of channels, got 2",
        ),
        (lambda: reference.alibi_slopes(0), "num_heads must be at least 1, got 0"),
        (lambda: reference.alibi(np.zeros((5, 2)), np.zeros((5, 2)), 4), r"\[tokens, 1\], got \[5, 2\]"),
        (lambda: reference.t5_bucket(LINE, num_buckets=2), "num_buckets must be at least 4, got 2"),
        (lambda: reference.t5_bucket(LINE, num_buckets=9), "num_buckets must be even if bidirectional, got 9"),
        (lambda: reference.t5_bucket(LINE, max_distance=8), "max_distance must be above the 8 exact buckets, got 8"),
        (lambda: reference.t5_bucket(LINE / 2), "needs whole positions"),
        (
            lambda: reference.t5_bias(LINE, LINE, 4, np.zeros((8, 32))),
            r"table must have shape \[4, 32\], got \[8, 32\]",
        ),
        (lambda: reference.relative_index(()), r"sizes of at least 1, got \(\)"),
        (lambda: reference.relative_index((3, 0)), r"sizes of at least 1, got \(3, 0\)"),
        (
            lambda: reference.relative_position_bias(LINE, LINE, 1, 4, np.zeros((1, 7))),
            r"relative position \[-4\] is outside a table of shape \[4\]",
        ),
        (
            lambda: reference.relative_position_bias(LINE, LINE, 1, 5, np.zeros((1, 9)), prefix_bias=True),
            r"prefix_bias needs a prefix_table of shape \[heads, 3\], got none",
        ),
        (lambda: reference.shaw(Q, LINE, LINE, 4, 0, np.zeros((1, 1, 4))), "max_distance must be at least 1, got 0"),
        (lambda: reference.shaw(Q, LINE, LINE, 4, 2, np.zeros((1, 4, 4))), r"\[1, 5, 4\], got \[1, 4, 4\]"),
        (lambda: reference.shaw(Q, LINE, LINE, 4, 2, np.zeros((3, 5, 4)), 3), "num_heads is 3, but there are 2 heads"),
        (lambda: reference.shaw(Q[:, :4], LINE, LINE, 4, 2, np.zeros((1, 5, 4))), r"q must have shape \[2, 5, 4\]"),
        (
            lambda: reference.shaw_values(np.zeros((2, 5, 5)), LINE, LINE, 4, 2),
            "values=True needs a value_table, got none",
        ),
        (lambda: reference.relative_logits(Q, LINE, LINE, 4, 4, [np.zeros((1, 7, 4))]), "-4 is outside tables for 4"),
        (lambda: reference.relative_logits(Q, LINE, LINE, 4, 4, [np.zeros((1, 4, 4))], causal=True), "4 is outside"),
        (
            lambda: reference.relative_logits(Q, LINE, LINE, 4, 5, [np.zeros((1, 8, 4))]),
            r"\[1, 9, 4\], got \[1, 8, 4\]",
        ),
        (lambda: reference.relative_logits(Q, LINE, LINE, 4, 5, []), "tables must be one an axis, got 0 for 1 axes"),
        (lambda: reference.relative_logits(Q, LINE, LINE, 4, (5, 1), [Q, Q], causal=True), "one axis, got 2"),
        (lambda: reference.sinusoidal_logits(Q, LINE, LINE, 6), r"q must have shape \[2, 5, 6\], got \[2, 5, 4\]"),
        (lambda: reference.relative_to_absolute(np.zeros((3, 6))), "3 queries need 5 columns, got 6"),
        (lambda: reference.skew(np.zeros((3, 5))), "as many columns as queries, got 5 for 3"),
        (
            lambda: reference.conditional_encoding(np.zeros((5, 2)), 5, np.zeros((2, 1, 4)), np.zeros(2), 2, 4, axes=1),
            "kernel_size must be odd, got 4",
        ),
        (
            lambda: reference.conditional_encoding(np.zeros((5, 2)), 5, np.zeros((2, 1, 3)), np.zeros(2), 2),
            r"grid_shape must have 2 axes, got \(5,\)",
        ),
        (
            lambda: reference.conditional_encoding(np.zeros((5, 2)), (2, 2), np.zeros((2, 1, 3, 3)), np.zeros(2), 2),
            r"x must have shape \[4, 2\], got \[5, 2\]",
        ),
        (
            lambda: reference.conditional_encoding(np.zeros((4, 2)), (2, 2), Q, np.zeros(2), 2, causal=True),
            "a causal convolution has one axis, got 2",
        ),
        (lambda: reference.attention(np.zeros((3, 5, 4)), Q, Q), "3 query heads cannot share 2 key heads evenly"),
        (lambda: reference.attention(Q, Q[:0], Q[:0]), "2 query heads cannot share 0 key heads"),
        (lambda: reference.attention(Q, Q[..., :3], Q), r"k must have shape \[2, 5, 4\], got \[2, 5, 3\]"),
        (lambda: reference.attention(Q, Q, Q[:, :4]), r"v must have shape \[2, 5, 4\], got \[2, 4, 4\]"),
        (lambda: reference.attention(Q, Q, Q, bias=np.zeros((3, 5, 5))), "broadcast"),
        (
            lambda: reference.sinusoidal_self_attention(Q[0], *Q[:1, :4].repeat(3, 0), context=Q[0, :3]),
            "got 5 queries and 3 keys",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_reference_needs_no_torch():
    script = (
        "import sys\n"
        "sys.modules['torch'] = None  # import torch would fail\n"
        "from posenc import reference\n"
        "print(reference.alibi_slopes(2).tolist())"
    )
    result = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[0.0625, 0.00390625]"
