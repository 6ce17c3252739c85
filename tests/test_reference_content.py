"""The references of the content encodings have the values of the papers, and those of a second formula."""

import itertools
import math

import numpy as np
import pytest

import second_loops
from posenc import reference
from reference_arrays import close, grid


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


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


# iRPE


def test_irpe_index_of_the_released_coefficients():
    """α, β, γ = 1.9, 3.8, 15.2: 7 indices an axis, 49 for the product."""
    got = [reference.irpe_index(x) for x in range(-12, 13)]
    assert got == [-3] * 9 + [-2] * 2 + [-1, 0, 1] + [2] * 2 + [3] * 9


def test_irpe_index_is_odd_and_rises_to_beta():
    steps = [reference.irpe_index(x, 3, 7, 40) for x in range(60)]
    assert steps[:4] == [0, 1, 2, 3]
    assert steps == sorted(steps)
    assert steps[40:] == [7] * 20  # from γ on
    assert [reference.irpe_index(-x, 3, 7, 40) for x in range(60)] == [-step for step in steps]


@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize(
    "coefficients", [{}, {"alpha": 1.0, "beta": 2.0, "gamma": 3.0}, {"alpha": 2, "beta": 5, "gamma": 9}]
)
def test_irpe_equals_the_second_version(rng, per_head, coefficients):
    heads, side = 2, 2 * int(coefficients.get("beta", 3.8)) + 1
    queries, keys = rng.integers(0, 15, size=(4, 2)).astype(float), rng.integers(0, 15, size=(6, 2)).astype(float)
    q, groups = rng.normal(size=(heads, 4, 3)), heads if per_head else 1
    arguments = {"head_dim": 3, "num_heads": heads if per_head else None, **coefficients}
    product = {"table": rng.normal(size=(groups, side**2, 3)), **arguments}
    close(reference.irpe(q, queries, keys, **product), second_loops.irpe(q, queries, keys, **product))
    cross = {"method": "cross", "tables": list(rng.normal(size=(2, groups, side, 3))), **arguments}
    close(reference.irpe(q, queries, keys, **cross), second_loops.irpe(q, queries, keys, **cross))


def test_irpe_near_by_is_relative_logits(rng):
    """Where every distance has an index of its own, the cross method is the decomposed logits of BoTNet."""
    q, cells = rng.normal(size=(2, 12, 3)), grid(3, 4)
    tables = [rng.normal(size=(1, 9, 3)) for _ in range(2)]
    got = reference.irpe(q, cells, cells, 3, method="cross", alpha=4, beta=4, gamma=8, tables=tables)
    inner = [tables[0][:, 2:7], tables[1][:, 1:8]]
    close(got, reference.relative_logits(q, cells, cells, 3, (3, 4), inner))


def test_irpe_product_of_sums_is_cross(rng):
    q, cells = rng.normal(size=(2, 20, 3)), grid(4, 5, prefix=0)
    rows, columns = rng.normal(size=(2, 1, 7, 3))
    product = (rows[:, :, None] + columns[:, None]).reshape(1, 49, 3)
    got = reference.irpe(q, cells, cells, 3, table=product)
    close(got, reference.irpe(q, cells, cells, 3, method="cross", tables=[rows, columns]))
