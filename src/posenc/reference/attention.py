"""Attention, and what positions add to it."""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from posenc.reference._shared import Array, check, check_shape, float64
from posenc.reference.content import sinusoidal_logits


def attention(
    q: Float[Array, "h i d"],
    k: Float[Array, "g j d"],
    v: Float[Array, "g j d_v"],
    *,
    bias: Float[Array, "#h #i #j"] | None = None,
    content: Float[Array, "#h #i #j"] | None = None,
    scale: float | None = None,
    allowed: Bool[NDArray[np.bool_], "#h #i #j"] | None = None,
    values: Callable[[Array], Array] | None = None,
) -> Float[Array, "h i d_v"]:
    """Attention, with the terms that positions add to it.

    `s[h, i, j] = (q[h, i] · k[h, j] + content[h, i, j]) · scale + bias[h, i, j]`, `a = softmax_j(s)`,
    `o[h, i] = Σ_j a[h, i, j] v[h, j] + values(a)[h, i]`.

    Args:
        q: queries.
        k: keys, of as many heads or fewer: head `h` of `H` reads head `h · g // H` of `g`.
        v: values, of as many heads as `k`.
        bias: added after the scale.
        content: added before the scale.
        scale: `1 / √d` if None.
        allowed: True where a query may attend to a key; a query that may attend to none gives zeros.
        values: what a scheme adds to the output, from the weights.

    Raises:
        ValueError: for arrays whose shapes do not belong together.

    >>> v = np.array([[[1.0], [2.0], [6.0]]])
    >>> attention(np.zeros((1, 1, 4)), np.zeros((1, 3, 4)), v).tolist()  # no preference: the mean
    [[[3.0]]]

    Vaswani et al., Attention Is All You Need, arXiv:1706.03762; grouped heads, Ainslie et al., arXiv:2305.13245.
    """
    heads, queries, head_dim = q.shape
    groups, keys, _ = k.shape
    check_shape("k", k, (groups, keys, head_dim))
    check_shape("v", v, (groups, keys, v.shape[-1]))
    q, k, v = float64(q), float64(k), float64(v)
    check(groups > 0 and heads % groups == 0, f"{heads} query heads cannot share {groups} key heads evenly")
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    size = (heads, queries, keys)
    bias = np.broadcast_to(0.0 if bias is None else bias, size)
    content = np.broadcast_to(0.0 if content is None else content, size)
    allowed = np.broadcast_to(True if allowed is None else allowed, size)

    weights = np.zeros(size)
    output = np.zeros((heads, queries, v.shape[-1]))
    for h in range(heads):
        group = h * groups // heads
        for i in range(queries):
            logits = np.full(keys, -math.inf)
            for j in range(keys):
                if allowed[h, i, j]:
                    # s = (q · k + content) · scale + bias
                    logits[j] = (q[h, i] @ k[group, j] + content[h, i, j]) * scale + bias[h, i, j]
            weights[h, i] = _softmax(logits)
            for j in range(keys):
                if weights[h, i, j] != 0:
                    output[h, i] += weights[h, i, j] * v[group, j]
    if values is not None:
        output += values(weights)  # o = a v + values(a)
    return output


def _softmax(logits: Float[Array, "j"]) -> Float[Array, "j"]:
    """`exp(s_j − max s) / Σ exp(s − max s)`; all zeros where every logit is −∞."""
    largest = logits.max(initial=-math.inf)
    if largest == -math.inf:
        return np.zeros_like(logits)
    exponentials: Array = np.exp(logits - largest)
    weights: Array = exponentials / exponentials.sum()
    return weights


def sinusoidal_self_attention(
    x: Float[Array, "i width"],
    query_weight: Float[Array, "width d"],
    key_weight: Float[Array, "width d"],
    value_weight: Float[Array, "width d_v"],
    context: Float[Array, "j width"] | None = None,
    base: float = 10000.0,
) -> Float[Array, "i d_v"]:
    """One head of self-attention with sinusoidal relative positions.

    `q = x W_Q`, `k = c W_K`, `v = c W_V`; `s[i, j] = (q_i · k_j + q_i · r(i − j)) / √d`; `o = softmax(s) v`, with `r`
    the sinusoid of the relative position.

    Args:
        x: the tokens that ask.
        query_weight: `W_Q`, applied from the right.
        key_weight: `W_K`.
        value_weight: `W_V`.
        context: `c`, the tokens that answer, of which `x` are the last; `x` itself if None. So one query against ten
            keys stands at the last of them.
        base: ratio of the slowest wavelength to the fastest, nearly.

    Raises:
        ValueError: for more queries than keys, or arrays whose shapes do not belong together.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> sinusoidal_self_attention(x, np.eye(2), np.eye(2), np.eye(2)).round(4).tolist()
    [[0.7862, 0.2138], [0.2627, 0.7373]]

    Vaswani et al., arXiv:1706.03762, with the relative logits of Dai et al., Transformer-XL, arXiv:1901.02860.
    """
    context = x if context is None else context
    queries, keys = len(x), len(context)
    width, head_dim = query_weight.shape
    check(queries <= keys, f"the queries are the last of the context: got {queries} queries and {keys} keys")
    check_shape("x", x, (queries, width))
    check_shape("context", context, (keys, width))
    check_shape("key_weight", key_weight, (width, head_dim))
    check_shape("value_weight", value_weight, (width, value_weight.shape[-1]))

    q, k, v = float64(x) @ query_weight, float64(context) @ key_weight, float64(context) @ value_weight
    key_positions = np.arange(keys, dtype=np.float64)
    query_positions = key_positions[keys - queries :]
    relative = sinusoidal_logits(q[None], query_positions, key_positions, head_dim, base)
    output: Array = attention(q[None], k[None], v[None], content=relative)[0]
    return output
