"""What `attention` asks of its arguments before anything runs."""

import math
from collections.abc import Sequence as SequenceOf

import torch
from torch import Tensor

from posenc.checks import real
from posenc.encoding import arithmetic_dtype, require_real
from posenc.relative import Relative
from posenc.term import Bias, Decay, Term

__all__ = ["require_lengths", "require_masks", "require_numbers", "require_tensors", "require_term", "require_together"]


def require_lengths(relative: Relative, q: Tensor, keys: int) -> None:
    """Raise where positions that came with a term are of other lengths than queries and keys."""
    lengths = relative.queries.length, relative.keys.length
    if lengths[0] != q.shape[2] or lengths[1] != keys:
        raise ValueError(
            f"the term is for {lengths[0]} queries and {lengths[1]} keys, got {q.shape[2]} and {keys}: "
            "evaluate it at these positions"
        )


def require_numbers(scale: float | None, dropout: float, q: Tensor) -> tuple[float | None, float]:
    """Scale and dropout as floats; raise where they are not numbers that attention can be computed with."""
    scale = None if scale is None else _real("scale", scale)
    dropout = _real("dropout", dropout)
    if scale is None and not q.shape[3]:
        raise ValueError("q must have at least one channel, got none: pass queries with channels")
    if scale is not None and not 0 < scale < math.inf:
        raise ValueError(f"scale must be more than 0 and finite, got {scale}: for other factors scale q itself")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be from 0 up to, not including, 1, got {dropout}: pass a probability")
    return scale, dropout


def _real(name: str, number: float) -> float:
    # a float is taken as it is: in a compiled graph it may be a symbol
    return number if isinstance(number, float) else real(name, number, "pass a float")


def require_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise where queries, keys and values do not fit together."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        require_real(name, x)
        if x.ndim != 4:
            raise ValueError(f"{name} must be [batch, heads, tokens, channels], got shape {tuple(x.shape)}: reshape it")
        if x.device != q.device:
            raise ValueError(f"q, k and v must be on one device, got {name} on {x.device} and q on {q.device}: move it")
        if x.dtype != q.dtype:
            raise TypeError(f"q, k and v must have one dtype, got {name} in {x.dtype} and q in {q.dtype}: convert it")
        if x.shape[0] != q.shape[0]:
            raise ValueError(f"q, k and v must have one batch size, got {x.shape[0]} in {name} and {q.shape[0]} in q")
    if k.shape[3] != q.shape[3]:
        raise ValueError(f"k must have the {q.shape[3]} channels of q, got {k.shape[3]}: project to the same width")
    if k.shape[1:3] != v.shape[1:3]:
        raise ValueError(f"k and v must have the same heads and tokens, got {tuple(k.shape)} and {tuple(v.shape)}")
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"heads of k must divide those of q, got {k.shape[1]} and {q.shape[1]}: group the queries evenly"
        )


def require_masks(q: Tensor, k: Tensor, mask: Tensor | None, key_mask: Tensor | None) -> None:
    """Raise where a mask is not boolean, elsewhere, or of another shape."""
    full = (*q.shape[:3], k.shape[2])
    for name, given in (("mask", mask), ("key_mask", key_mask)):
        if given is None:
            continue
        if not isinstance(given, Tensor):
            raise TypeError(
                f"{name} must be a boolean tensor, got {type(given).__name__}: convert it with torch.tensor"
            )
        if given.dtype != torch.bool:
            raise TypeError(
                f"{name} must be boolean, True = may attend, got {given.dtype}: numbers to add are an encoding"
            )
        if given.device != q.device:
            raise ValueError(f"{name} must be on q's device {q.device}, got {given.device}: move it")
    if mask is not None:
        fits = mask.ndim == 4 and all(size in (1, whole) for size, whole in zip(mask.shape, full, strict=True))
        if not fits:
            advice = "give it all four, as mask[None, None] of a square"
            if mask.ndim == 4:
                advice = "repeat what is shared by part of the batch, as mask.repeat(images, 1, 1, 1) of windows"
            raise ValueError(
                f"mask must have four dimensions that broadcast to {full}, got shape {tuple(mask.shape)}: {advice}"
            )
    if key_mask is not None and key_mask.shape != (q.shape[0], k.shape[2]):
        raise ValueError(
            f"key_mask must be [batch, keys] = {(q.shape[0], k.shape[2])}, got shape {tuple(key_mask.shape)}"
        )


def require_term(term: Term, name: str, relative: Relative, q: Tensor, causal: bool) -> None:
    """Raise where a term is for another device, dtype, place, number of heads or width than this attention."""
    _, heads, _, head_dim = q.shape
    dtype = arithmetic_dtype(q.dtype)
    for tensor in term.tensors():
        if tensor.device != q.device or tensor.dtype != dtype:
            raise ValueError(
                f"the term must be in {dtype} on {q.device} for q in {q.dtype}, got {tensor.dtype} on {tensor.device}: "
                f"evaluate it with device=q.device, dtype={dtype}"
            )
    require_lengths(term.relative, q, relative.keys.length)
    term.relative.require_batch(q.shape[0])
    if not (term.relative.queries.agrees(relative.queries) and term.relative.keys.agrees(relative.keys)):
        raise ValueError(
            "the term was evaluated at other positions than those of this attention: "
            "evaluate it at the same, or leave positions out"
        )
    if term.heads is not None and term.heads != heads:
        raise ValueError(f"{name} was made for {term.heads} heads, got q with {heads}: make it with num_heads={heads}")
    if isinstance(term, Bias) and term.is_table and term.values.shape[2] != math.prod(term.relative.box or ()):
        raise ValueError(
            f"{name} must give a number for each of the {math.prod(term.relative.box or ())} relative positions, got "
            f"{term.values.shape[2]}: make its table of that size"
        )
    own = term.values.shape[1] if isinstance(term, Bias) else 1
    if own != 1 and own != heads:  # membership in a tuple would compare symbols by identity under compile
        raise ValueError(
            f"{name} gave numbers for {own} heads, got q with {heads}: give one for each head, or one for all"
        )
    if term.head_dim is not None and term.head_dim != head_dim:
        raise ValueError(
            f"{name} was made for head_dim {term.head_dim}, got q with {head_dim}: make it with head_dim={head_dim}"
        )
    if term.causal and not causal:
        raise ValueError(f"{name} is for queries that see nothing ahead of them, got causal=False: pass causal=True")


def require_together(terms: SequenceOf[Term], q: Tensor, v: Tensor) -> None:
    """Raise where terms do not go together, or would join values of another width."""
    if sum(isinstance(term, Decay) for term in terms) > 1:
        raise ValueError("attention takes one rotation with a decay, got several: add their rates in one")
    if v.shape[3] != q.shape[3] and any(term.joins_values for term in terms):
        raise ValueError(
            f"vectors by relative position join values of q's {q.shape[3]} channels, got v with {v.shape[3]}: "
            "make v as wide, or the encoding without vectors on the values"
        )
