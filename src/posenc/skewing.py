"""Logits by relative position to logits by key, by padding and reshaping alone."""

import torch.nn.functional as F
from jaxtyping import Shaped
from torch import Tensor

__all__ = ["relative_to_absolute", "skew"]


def relative_to_absolute(x: Shaped[Tensor, "*b l lags"]) -> Shaped[Tensor, "*b l l"]:
    """Logits by relative position to logits by key: `out[i, j] = x[i, L - 1 + j - i]`.

    Pads one column and reshapes, so that each row begins one entry earlier than the row above: no gather, no index.
    `x` is `[..., L, 2L - 1]`, any dtype, its last axis ascending in key - query; the result is `[..., L, L]`.

    Raises ValueError where the last axis is not 2L - 1.

    >>> posenc.relative_to_absolute(torch.arange(15).reshape(3, 5)).tolist()
    [[2, 3, 4], [6, 7, 8], [10, 11, 12]]

    Huang et al., Music Transformer, 2018, arXiv:1809.04281; Srinivas et al., BoTNet, 2021, arXiv:2101.11605.
    """
    length, lags = _last_two(x, "2L - 1")
    if length == 0:
        return x.new_empty((*x.shape[:-2], 0, 0))
    if lags != 2 * length - 1:
        raise ValueError(
            f"x must be [..., L, 2L - 1], got shape {tuple(x.shape)}: for L = {length} give {2 * length - 1} columns"
        )
    flat = F.pad(x, (0, 1)).flatten(-2)[..., length - 1 :][..., : length * (2 * length - 1)]
    return flat.reshape(*x.shape[:-2], length, 2 * length - 1)[..., :length]


def skew(x: Shaped[Tensor, "*b l l"]) -> Shaped[Tensor, "*b l l"]:
    """The causal skew of the Music Transformer: `out[i, j] = x[i, L - 1 + j - i]` for `j <= i`.

    What lies above the diagonal is left over from the next row and means nothing: mask it before the softmax. An
    encoder wants `relative_to_absolute`. `x` is `[..., L, L]`, its last axis ascending in key - query, ending at 0.

    Raises ValueError where the last two axes differ.

    >>> posenc.skew(torch.arange(1, 10).reshape(3, 3)).tolist()
    [[3, 0, 4], [5, 6, 0], [7, 8, 9]]

    Huang et al., Music Transformer, 2018, arXiv:1809.04281.
    """
    length, lags = _last_two(x, "L")
    if lags != length:
        raise ValueError(
            f"x must be [..., L, L], got shape {tuple(x.shape)}: give one column a distance from 0 to L - 1"
        )
    return F.pad(x, (1, 0)).reshape(*x.shape[:-2], length + 1, length)[..., 1:, :]


def _last_two(x: Tensor, columns: str) -> tuple[int, int]:
    if not isinstance(x, Tensor) or x.ndim < 2:
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x must be a tensor [..., L, {columns}], got {got}: give one row a query")
    return x.shape[-2], x.shape[-1]
