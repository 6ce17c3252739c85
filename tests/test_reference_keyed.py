"""The references of content encodings that meet the keys: the papers' values, limits, and a second formula."""

import itertools
import math

import numpy as np
import pytest

from posenc import reference
from reference_arrays import close


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


# Transformer-XL


def numbers_of_transformer_xl(rng, heads=2, head_dim=4, dim=6):
    return {
        "projection": rng.normal(size=(heads, head_dim, dim)),
        "content_bias": rng.normal(size=(heads, head_dim)),
        "position_bias": rng.normal(size=(heads, head_dim)),
    }


def released_wave(lags, dim, base=10000.0):
    angles = np.multiply.outer(lags, 1 / base ** (np.arange(0, dim, 2) / dim))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)


@pytest.mark.parametrize("base", [10000.0, 30.0])
def test_transformer_xl_is_the_four_terms_of_the_paper_less_the_first(rng, base):
    numbers = numbers_of_transformer_xl(rng)
    q, k = rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 9, 4))
    queries, keys = np.arange(4.0, 9.0), np.arange(9.0)
    wave = released_wave(queries[:, None] - keys, 6, base)
    vectors = np.einsum("hdw,ijw->hijd", numbers["projection"], wave)
    b = np.einsum("hid,hijd->hij", q, vectors)
    c = np.einsum("hd,hjd->hj", numbers["content_bias"], k)[:, None]
    d = np.einsum("hd,hijd->hij", numbers["position_bias"], vectors)
    close(reference.transformer_xl(q, queries, keys, 2, 4, **numbers, k=k, dim=6, base=base), b + c + d)


def test_transformer_xl_by_the_shift_of_a_row(rng):
    """As released, for a decoder: products with the vectors of L − 1 … 0, shifted by pad and reshape."""
    numbers, length = numbers_of_transformer_xl(rng), 6
    q = k = rng.normal(size=(2, length, 4))
    wave = released_wave(np.arange(length - 1, -1.0, -1), 6)
    vectors = np.einsum("hdw,rw->hrd", numbers["projection"], wave)
    by_row = np.einsum("hid,hrd->hir", q + numbers["position_bias"][:, None], vectors)
    content = np.einsum("hd,hjd->hj", numbers["content_bias"], k)[:, None]
    causal = np.tril(np.ones((length, length), dtype=bool))
    got = reference.transformer_xl(q, np.arange(6), np.arange(6), 2, 4, **numbers, k=k, dim=6)
    close(got[:, causal], (reference.skew(by_row) + content)[:, causal])


def test_transformer_xl_without_its_numbers_is_sinusoidal_logits_reordered(rng):
    q, k = rng.normal(size=(2, 2, 5, 6))
    order = np.eye(6)[[0, 2, 4, 1, 3, 5]].T  # from all sines, all cosines to sin, cos, sin, cos
    nothing = np.zeros((2, 6))
    numbers = {"projection": np.stack([order] * 2), "content_bias": nothing, "position_bias": nothing}
    got = reference.transformer_xl(q, np.arange(5), np.arange(5), 2, 6, **numbers, k=k, dim=6)
    close(got, reference.sinusoidal_logits(q, np.arange(5), np.arange(5), 6))


def test_transformer_xl_is_as_wide_as_all_heads_by_default_and_leaves_out_the_prefix(rng):
    numbers = numbers_of_transformer_xl(rng, heads=3, head_dim=2, dim=6)
    q, k = rng.normal(size=(2, 3, 4, 2))
    positions = np.array([np.nan, 0, 1, 2])
    got = reference.transformer_xl(q, positions, positions, 3, 2, **numbers, k=k)
    assert (got[:, 0] == 0).all()
    assert (got[:, :, 0] == 0).all()
    inner = reference.transformer_xl(q[:, 1:], positions[1:], positions[1:], 3, 2, **numbers, k=k[:, 1:])
    np.testing.assert_array_equal(got[:, 1:, 1:], inner)
    assert (inner != 0).all()


# DeBERTa


def test_case_20_buckets():
    got = reference.deberta_bucket(np.array([0, 127, 128, -128, 129, 200, -200, 511, 10**9, -(10**9)]))
    assert got.tolist() == [0, 127, 128, -128, 129, 169, -169, 255, 255, -256]


def released_bucket(lags, buckets, distance):
    """Without the last step of the released code, which keeps rows within the table."""
    middle = buckets // 2
    far = np.log(np.maximum(np.abs(lags), 1) / middle) / np.log((distance - 1) / middle) * (middle - 1)
    # at a border itself a rounded logarithm may fall on either side of it
    far = np.ceil(np.where(np.abs(far - np.round(far)) < 1e-9, np.round(far), far)).astype(int)
    return np.where(np.abs(lags) <= middle, lags, np.sign(lags) * (far + middle))


@pytest.mark.parametrize(("buckets", "distance"), [(256, 512), (8, 20), (32, 100), (5, 9), (4, 1000)])
def test_buckets_follow_the_logarithm(rng, buckets, distance):
    lags = np.arange(-1500, 1501)
    if buckets > 100:  # whole powers of large numbers take long: a part of them
        lags = np.concatenate([[0], rng.choice(lags, 600, replace=False)])
    wanted = released_bucket(lags, buckets, distance)
    np.testing.assert_array_equal(
        reference.deberta_bucket(lags, buckets, distance), np.clip(wanted, -buckets, buckets - 1)
    )


def deberta_arrays(rng, heads=2, head_dim=3, half=4, queries=5, keys=5):
    q, k = rng.normal(size=(heads, queries, head_dim)), rng.normal(size=(heads, keys, head_dim))
    key_table, query_table = rng.normal(size=(2, heads, 2 * half, head_dim))
    return q, k, key_table, query_table


@pytest.mark.parametrize("published", [False, True])
def test_deberta_is_the_released_gather_in_both_terms(rng, published):
    """Released: products with all rows, gathered at δ for the queries, and at −δ, transposed, for the keys."""
    q, k, key_table, query_table = deberta_arrays(rng, queries=30, keys=30)
    positions, half = np.arange(30), 4
    rel = released_bucket(positions[:, None] - positions, 4, 12)
    by_row = np.einsum("hid,hrd->hir", q, key_table)
    c2p = np.take_along_axis(by_row, np.broadcast_to(np.clip(rel + half, 0, 2 * half - 1), (2, 30, 30)), -1)
    by_row = np.einsum("hjd,hrd->hjr", k, query_table)
    row = rel + half if published else -rel + half  # the paper's is rQ[δ(j, ·)], met by k_j
    p2c = np.take_along_axis(by_row, np.broadcast_to(np.clip(row, 0, 2 * half - 1), (2, 30, 30)), -1).swapaxes(1, 2)
    arguments = {"k": k, "buckets": 4, "max_distance": 12, "published": published}
    tables = {"key_table": key_table, "query_table": query_table}
    close(reference.deberta(q, positions, positions, 2, 3, **arguments, **tables), c2p + p2c)


def test_deberta_is_the_sum_of_its_terms(rng):
    q, k, key_table, query_table = deberta_arrays(rng)
    where, arguments = (np.arange(5), np.arange(5), 2, 3), {"buckets": 4, "max_distance": 12}
    both = reference.deberta(q, *where, k=k, key_table=key_table, query_table=query_table, **arguments)
    c2p = reference.deberta(q, *where, key_table=key_table, terms=("c2p",), **arguments)
    p2c = reference.deberta(q, *where, k=k, query_table=query_table, terms=("p2c",), **arguments)
    close(both, c2p + p2c)
    # the second term is the first of queries and keys exchanged, looking the other way
    swapped = reference.deberta(k, *where, key_table=query_table[:, ::-1], terms=("c2p",), **arguments)
    inside = np.abs(np.arange(5)[:, None] - np.arange(5)) < 4
    shifted = reference.deberta(
        k, *where, key_table=np.roll(query_table[:, ::-1], 1, axis=1), terms=("c2p",), **arguments
    )
    close(p2c[:, inside], shifted.swapaxes(1, 2)[:, inside])
    assert np.abs(p2c - swapped.swapaxes(1, 2)).max() > 1e-3


def test_deberta_without_buckets_clips_like_shaw_but_for_the_last_row(rng):
    q, _, key_table, _ = deberta_arrays(rng, queries=12, keys=12)
    where = np.arange(12), np.arange(12)
    got = reference.deberta(q, *where, 2, 3, key_table=key_table, terms=("c2p",), buckets=None, max_distance=4)
    longer = np.concatenate([key_table, key_table[:, -1:]], axis=1)  # Shaw has a row for +4, here it shares that of +3
    close(got, reference.shaw(q, *where, 3, 4, longer, num_heads=2))


def test_deberta_leaves_out_the_prefix(rng):
    q, k, key_table, query_table = deberta_arrays(rng, queries=3, keys=3)
    positions = np.array([np.nan, 0, 1])
    tables = {"key_table": key_table, "query_table": query_table}
    got = reference.deberta(q, positions, positions, 2, 3, k=k, buckets=4, max_distance=12, **tables)
    assert (got[:, 0] == 0).all()
    assert (got[:, :, 0] == 0).all()
    assert (got[:, 1:, 1:] != 0).all()


# CoPE


def test_cope_is_the_listing_of_the_paper(rng):
    heads, length, dim, rows = 2, 7, 4, 3
    q, k = rng.normal(size=(2, heads, length, dim)) * 2
    table = rng.normal(size=(1, rows, dim))
    causal = np.tril(np.ones((length, length), dtype=bool))
    logits = np.where(causal, q @ k.swapaxes(1, 2) / math.sqrt(dim), -np.inf)
    gates = np.where(causal, 1 / (1 + np.exp(-np.where(causal, logits, 0))), 0)
    counts = np.minimum(gates[..., ::-1].cumsum(-1)[..., ::-1], rows - 1)
    by_row = q @ table[0].T
    below, above = (np.take_along_axis(by_row, part.astype(int), -1) for part in (np.floor(counts), np.ceil(counts)))
    share = counts - np.floor(counts)
    got = reference.cope(q, np.arange(length), np.arange(length), dim, rows, table, k=k)
    close(got[:, causal], (above * share + below * (1 - share))[:, causal])
    assert (counts == rows - 1).any()  # the clamp is met


def test_cope_with_open_gates_counts_positions(rng):
    """Gates of 1 count every key: p_ij = i − j + 1, one row a distance, as in relative position vectors."""
    q = np.concatenate([np.full((1, 5, 1), 1e3), rng.normal(size=(1, 5, 2))], axis=-1)
    k = np.tile([1e3, 0.0, 0.0], (1, 5, 1))
    table = rng.normal(size=(1, 8, 3))
    got = reference.cope(q, np.arange(5), np.arange(5), 3, 8, table, k=k)
    for i, j in itertools.product(range(5), repeat=2):
        if j <= i:
            close(got[0, i, j], q[0, i] @ table[0, i - j + 1], atol=1e-9)


def test_cope_with_shut_gates_meets_the_first_row_alone(rng):
    q, k = np.full((1, 4, 1), 1e2), np.full((1, 4, 1), -1e2)
    got = reference.cope(q, np.arange(4), np.arange(4), 1, 5, rng.normal(size=(1, 5, 1)) + 3, k=k)
    close(got, np.broadcast_to(got[:, :1, :1], got.shape))


@pytest.mark.parametrize("per_head", [False, True])
def test_cope_counts_keys_that_are_attended_to_alone(rng, per_head):
    q, k = rng.normal(size=(2, 2, 6, 3))
    table = rng.normal(size=(2 if per_head else 1, 4, 3))
    arguments = {"head_dim": 3, "max_position": 4, "table": table, "num_heads": 2 if per_head else None}
    allowed = np.tril(np.ones((6, 6), dtype=bool))
    allowed[:, 2] = False
    got = reference.cope(q, np.arange(6), np.arange(6), k=k, allowed=allowed[None], **arguments)
    keep = [0, 1, 3, 4, 5]
    without = reference.cope(q, np.arange(6), np.arange(6)[keep], k=k[:, keep], **arguments)
    below = np.tril(np.ones((6, 6), dtype=bool))[:, keep]
    close(got[:, :, keep][:, below], without[:, below])


def test_cope_counts_in_the_order_of_positions(rng):
    q, k, table = rng.normal(size=(1, 6, 3)), rng.normal(size=(1, 6, 3)), rng.normal(size=(1, 9, 3))
    shuffle = rng.permutation(6)
    got = reference.cope(q, np.arange(6), np.arange(6)[shuffle], 3, 9, table, k=k[:, shuffle])
    close(got, reference.cope(q, np.arange(6), np.arange(6), 3, 9, table, k=k)[:, :, shuffle])


def test_cope_counts_no_prefix_token(rng):
    q, k, table = rng.normal(size=(1, 5, 3)), rng.normal(size=(1, 5, 3)), rng.normal(size=(1, 9, 3))
    positions = np.array([np.nan, np.nan, 0, 1, 2])
    got = reference.cope(q, positions, positions, 3, 9, table, k=k)
    assert (got[:, :2] == 0).all()
    assert (got[:, :, :2] == 0).all()
    close(got[:, 2:, 2:], reference.cope(q[:, 2:], positions[2:], positions[2:], 3, 9, table, k=k[:, 2:]))
