"""Attention with position: validate, evaluate terms, rotate, plan, run.

Not named after its function, which the package exports: a submodule of that name would hide it under lazy import.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from posenc.backends import dense, sdpa
from posenc.encoding import Encoding, arithmetic_dtype
from posenc.layout import Positions
from posenc.mask import Visibility
from posenc.plan import Backend, Plan, Problem, choose, left_in_logits
from posenc.positions import sequence
from posenc.relative import Relative
from posenc.term import Rotation, Term

__all__ = ["attention", "explain"]

BACKENDS: tuple[Backend, ...] = (sdpa, dense)
"""Fastest first; the last one refuses nothing."""


def attention(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    v: Float[Tensor, "b g j e"],
    *encodings: Encoding | Term,
    positions: Positions | None = None,
    key_positions: Positions | None = None,
    causal: bool = False,
    window: int | None = None,
    mask: Bool[Tensor, "#b #h #i #j"] | None = None,
    key_mask: Bool[Tensor, "b j"] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    backend: str = "auto",
) -> Float[Tensor, "b h i e"]:
    """Scaled dot-product attention with any number of position encodings.

    `out_i = sum_j softmax_j(scale (R_i q_i . R_j k_j + q_i . r(i - j)) + b_h(i - j)) v_j`

    Args:
        q, k, v: queries, keys and values, `[batch, heads, tokens, channels]`. k and v may have fewer heads, a divisor
            of q's (grouped queries).
        encodings: rotary, bias and content encodings, or terms made from them for several layers to share.
        positions, key_positions: where tokens stand. None: the queries are the last of the sequence of keys, so that a
            cached decode step is right as it is. Only `positions`: those of all keys, the queries being the last of
            them. Both: each its own, as in cross-attention.
        causal: a query sees the keys whose order is not after its own.
        window: and those whose order is at most so many tokens from its own, on either side.
        mask: True = may attend; four dimensions that broadcast to [batch, heads, queries, keys].
        key_mask: True = a token, [batch, keys]. All of these combine. A row that may attend to nothing gives zeros.
        scale: factor of the logits. Default: channels ** -0.5. Bias is added after it.
        dropout: probability from 0 to 1 with which a weight is dropped; the caller says 0 at inference.
        backend: "auto" is the fastest that is exact; `explain` says which, and why.

    Returns the output in q's dtype. Raises TypeError and ValueError, before anything runs, for shapes, dtypes, devices,
    positions or encodings that do not fit.

    >>> q = k = v = torch.randn(2, 8, 197, 64)
    >>> posenc.attention(q, k, v, posenc.Rotary(64, axes=2), positions=posenc.grid(14, 14, prefix=1)).shape
    torch.Size([2, 8, 197, 64])
    """
    problem = _problem(
        q,
        k,
        v,
        *encodings,
        positions=positions,
        key_positions=key_positions,
        causal=causal,
        window=window,
        mask=mask,
        key_mask=key_mask,
        scale=scale,
        dropout=dropout,
    )
    return choose(problem.facts, BACKENDS, backend).backend.run(problem)


def explain(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    v: Float[Tensor, "b g j e"],
    *encodings: Encoding | Term,
    backend: str = "auto",
    **options: Any,
) -> Plan:
    """The plan of `attention` for the same arguments: which backend, and why not the others. Prints as a few lines.

    >>> q = k = v = torch.randn(1, 4, 9, 16)
    >>> print(posenc.explain(q, k, v, posenc.ALiBi(4)))
    backend: dense
      terms in the logits: bias; visibility: all; torch.float32 on cpu, without gradients
      not sdpa: a term is left in the logits, and it would need an L x L mask
    """
    return choose(_problem(q, k, v, *encodings, **options).facts, BACKENDS, backend)


def _problem(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *encodings: Encoding | Term,
    positions: Positions | None = None,
    key_positions: Positions | None = None,
    causal: bool = False,
    window: int | None = None,
    mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Problem:
    _require_tensors(q, k, v)
    _require_masks(q, k, mask, key_mask)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be from 0 up to, not including, 1, got {dropout}: pass a probability")
    if not encodings and not causal and window is None and positions is None and key_positions is None:
        relative = Relative(sequence(q.shape[2]), sequence(k.shape[2]))  # nobody asks where they stand
    else:
        relative = Relative.of(q.shape[2], k.shape[2], positions, key_positions)
    if relative.batch is not None and relative.batch != q.shape[0]:
        raise ValueError(
            f"positions must be for the {q.shape[0]} rows of the batch, got {relative.batch}: give each its own"
        )

    terms = [_term(encoding, relative, q, causal) for encoding in encodings]
    rotated_q, rotated_k = q, k
    for term in terms:
        if isinstance(term, Rotation):
            rotated_q, rotated_k = term.rotate(rotated_q, rotated_k)
    visibility = Visibility(
        relative.queries,
        relative.keys,
        causal=causal,
        window=window,
        mask=mask,
        key_mask=key_mask,
        newest=key_positions is None,
    )
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return Problem(rotated_q, rotated_k, v, q, left_in_logits(terms), visibility, scale, dropout)


def _term(encoding: Encoding | Term, relative: Relative, q: Tensor, causal: bool) -> Term:
    name = type(encoding).__name__
    if isinstance(encoding, Encoding):
        for parameter in encoding.parameters():
            if parameter.device != q.device:
                raise ValueError(
                    f"{name} is on {parameter.device}, got q on {q.device}: move it with .to({str(q.device)!r})"
                )
        dtype = arithmetic_dtype(q.dtype)
        term = encoding.term(relative.queries, relative.keys, device=q.device, dtype=dtype)
    elif isinstance(encoding, Term):
        term = encoding
        if any(tensor.device != q.device for tensor in term.tensors()):
            raise ValueError(
                f"the term must be on q's device {q.device}, got another: evaluate it with device=q.device"
            )
    else:
        keyword = "positions" if isinstance(encoding, Positions) else "mask"
        raise TypeError(f"encodings must be posenc encodings or their terms, got {name}: did you mean {keyword}=?")

    _, heads, queries, head_dim = q.shape
    lengths = term.relative.queries.length, term.relative.keys.length
    if lengths[0] != queries or lengths[1] != relative.keys.length:
        raise ValueError(
            f"the term is for {lengths[0]} queries and {lengths[1]} keys, got {queries} and {relative.keys.length}: "
            "evaluate it at these positions"
        )
    if term.heads is not None and term.heads != heads:
        raise ValueError(f"{name} was made for {term.heads} heads, got q with {heads}: make it with num_heads={heads}")
    if term.head_dim is not None and term.head_dim != head_dim:
        raise ValueError(
            f"{name} was made for head_dim {term.head_dim}, got q with {head_dim}: make it with head_dim={head_dim}"
        )
    if term.causal and not causal:
        raise ValueError(
            f"{name} has no vectors for keys ahead of the query, got causal=False: "
            "pass causal=True, or make it without causal for an encoder"
        )
    return term


def _require_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not x.is_floating_point():
            raise TypeError(f"{name} must be a real tensor, got {x.dtype}: convert it to float32 or bfloat16")
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


def _require_masks(q: Tensor, k: Tensor, mask: Tensor | None, key_mask: Tensor | None) -> None:
    full = (*q.shape[:3], k.shape[2])
    for name, given in (("mask", mask), ("key_mask", key_mask)):
        if given is None:
            continue
        if given.dtype != torch.bool:
            raise TypeError(
                f"{name} must be boolean, True = may attend, got {given.dtype}: numbers to add are an encoding"
            )
        if given.device != q.device:
            raise ValueError(f"{name} must be on q's device {q.device}, got {given.device}: move it")
    if mask is not None:
        fits = mask.ndim == 4 and all(size in (1, whole) for size, whole in zip(mask.shape, full, strict=True))
        if not fits:
            raise ValueError(f"mask must have four dimensions that broadcast to {full}, got shape {tuple(mask.shape)}")
    if key_mask is not None and key_mask.shape != (q.shape[0], k.shape[2]):
        raise ValueError(
            f"key_mask must be [batch, keys] = {(q.shape[0], k.shape[2])}, got shape {tuple(key_mask.shape)}"
        )
