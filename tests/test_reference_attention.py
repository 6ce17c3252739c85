"""The reference's attention, and system 11, have the values of a second formula."""

import math

import numpy as np
import pytest

from posenc import reference
from posenc.reference import content as content_module
from reference_arrays import close


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


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
    monkeypatch.setattr(content_module, "sinusoid", lambda position, width, base: np.zeros(width))  # r = 0
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
    numbers = {"hidden_weight": (3, 1), "hidden_bias": (3,), "output_weight": (2, 3), "output_bias": (2,)}
    three = {name: rng.normal(size=shape).astype(np.float32) for name, shape in numbers.items()}
    tables = rng.normal(size=(3, 1, 16, 4)).astype(np.float32)

    def cast(arrays, like):
        return {name: array.astype(like.dtype) for name, array in arrays.items()}

    ends = {"num_heads": 2, "hidden": 3}
    xl = {"projection": tables[0][:, :4], "content_bias": tables[1][:, 0], "position_bias": tables[1][:, 1]}
    calls += [
        lambda q, k, v: reference.kerple(positions, positions, 4, q[0, 0], k[0, 0]),
        lambda q, k, v: reference.kerple(positions, positions, 4, q[0, 0], k[0, 0], kind="power"),
        lambda q, k, v: reference.alibi(positions, positions, 4, slopes=q[0, 0]),
        lambda q, k, v: reference.fire(
            positions, positions, c=q[0, 0, :1], threshold=k[0, 0, :1], **cast(three, q), **ends
        ),
        lambda q, k, v: reference.continuous_position_bias(
            positions, positions, shape=4, **cast({n: x for n, x in three.items() if n != "output_bias"}, q), **ends
        ),
        lambda q, k, v: reference.learnable_fourier(
            positions, q[0, :1, :1], v[0, :3, :2], k[0, 0, :3], q[0, :, :3], k[0, 1], dim=4, features=2, hidden=3
        ),
        lambda q, k, v: reference.mixed_rotary(q, positions[:, None], 1, 4, v[:, :1, :2], axes=1),
        lambda q, k, v: reference.multimodal_rotary(q, positions[:, None], 4, (2,)),
        lambda q, k, v: reference.xpos(q, k, positions, positions, 4),
        lambda q, k, v: reference.transformer_xl(q, positions, positions, 1, 4, **cast(xl, q), k=k),
        lambda q, k, v: reference.deberta(
            q, positions, positions, 1, 4, k, 8, 99, **cast({"key_table": tables[0], "query_table": tables[1]}, q)
        ),
        lambda q, k, v: reference.cope(q, positions, positions, 4, 4, v, k),
        lambda q, k, v: reference.irpe(
            q,
            positions[:, None] + np.zeros(2),
            positions[:, None] * np.ones(2),
            4,
            alpha=1,
            beta=1,
            gamma=2,
            table=tables[2][:, :9].astype(q.dtype),
        ),
    ]
    for call in calls:
        got = call(**single)
        assert got.dtype == np.float64
        np.testing.assert_array_equal(got, call(**double))
