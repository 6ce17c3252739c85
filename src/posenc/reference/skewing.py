"""From logits by relative position to logits by query and key."""

import numpy as np
from jaxtyping import Shaped

from posenc.reference._shared import AnyArray, check


def relative_to_absolute(x: Shaped[AnyArray, "*batch n relative"]) -> Shaped[AnyArray, "*batch n n"]:
    """Logits by query and relative position, as logits by query and key.

    `out[i, j] = x[i, n − 1 + j − i]`: here the last axis ascends by key − query, as in the papers that have this step.

    Args:
        x: `[..., n, 2n − 1]`, of any type.

    Raises:
        ValueError: for another number of columns than `2n − 1`.

    >>> relative_to_absolute(np.arange(15).reshape(3, 5)).tolist()
    [[2, 3, 4], [6, 7, 8], [10, 11, 12]]

    Huang et al., Music Transformer, arXiv:1809.04281; Srinivas et al., Bottleneck Transformers, arXiv:2101.11605.
    """
    length = x.shape[-2]
    columns = max(2 * length - 1, 0)
    check(x.shape[-1] == columns, f"{length} queries need {columns} columns, got {x.shape[-1]}")
    absolute = np.zeros((*x.shape[:-1], length), dtype=x.dtype)
    for i in range(length):
        for j in range(length):
            absolute[..., i, j] = x[..., i, length - 1 + j - i]
    return absolute


def skew(x: Shaped[AnyArray, "*batch n n"]) -> Shaped[AnyArray, "*batch n n"]:
    """The causal skew of the Music Transformer, with what it leaves above the diagonal.

    `out[i, j] = x[i, n − 1 + j − i]` for `j ≤ i`. What stands above the diagonal is no logit: a zero beside it, then
    the first entries of the next row. It must never reach a softmax.

    Args:
        x: `[..., n, n]`, of any type: by query, and by relative position from `n − 1` down to 0.

    Raises:
        ValueError: for an array that is not square.

    >>> skew(np.arange(1, 10).reshape(3, 3)).tolist()
    [[3, 0, 4], [5, 6, 0], [7, 8, 9]]

    Huang et al., Music Transformer, arXiv:1809.04281.
    """
    length = x.shape[-2]
    check(x.shape[-1] == length, f"skew needs as many columns as queries, got {x.shape[-1]} for {length}")
    skewed = np.zeros_like(x)
    for i in range(length):
        for j in range(length):
            if j <= i:
                skewed[..., i, j] = x[..., i, length - 1 + j - i]
            elif j > i + 1:
                skewed[..., i, j] = x[..., i + 1, j - i - 2]
    return skewed
