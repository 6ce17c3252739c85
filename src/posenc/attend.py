"""Attention with position: validate, evaluate terms, rotate, plan, run.

Not named after its function, which the package exports: a submodule of that name would hide it under lazy import.
"""

from collections.abc import Sequence as SequenceOf

from jaxtyping import Bool, Float
from torch import Tensor

from posenc.backends import cpu, dense, flex, sdpa
from posenc.checks import flag
from posenc.encoding import Encoding, arithmetic_dtype, require_device
from posenc.layout import Positions
from posenc.mask import Visibility
from posenc.plan import Backend, Plan, Problem, choose, left_in_logits, run
from posenc.positions import sequence
from posenc.relative import Relative
from posenc.term import Decay, Rotation, Term
from posenc.validate import (
    require_lengths,
    require_masks,
    require_numbers,
    require_tensors,
    require_term,
    require_together,
)

__all__ = ["attention", "explain"]

BACKENDS: tuple[Backend, ...] = (cpu, flex, sdpa, dense)
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
            them. Both: each its own, as in cross-attention. Ready terms stand where they were evaluated.
        causal: a query sees the keys whose order is not after its own.
        window: and those whose order is at most so many tokens from its own, on either side.
        mask: True = may attend; four dimensions that broadcast to [batch, heads, queries, keys].
        key_mask: True = a token, [batch, keys]. All of these combine. A row that may attend to nothing gives zeros.
        scale: factor of the logits, more than 0. Default: channels ** -0.5, and what an encoding's `scale_factor` makes
            of it (DeBERTa's three products are each divided by sqrt(3)). Bias is added after it.
        dropout: probability, from 0 up to, not including, 1, of dropping a weight; the caller says 0 at inference.
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
    return run(problem, BACKENDS, backend)


def explain(
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
) -> Plan:
    """The plan of `attention` for the same arguments: which backend, and why not the others.

    Prints as a few lines, which also say what a mask is made of, and which encodings turn queries and keys where more
    than one does. Its `backend.NAME` is what `attention` takes as `backend`; `refusals` are the reasons by that name.

    >>> q = k = v = torch.randn(1, 4, 9, 16)
    >>> print(posenc.explain(q, k, v, posenc.ALiBi(4), window=2, dropout=0.1))
    backend: dense
      terms in the logits: bias; visibility: mask; torch.float32 on cpu, without gradients
      not cpu: it has no dropout
      not flex: FlexAttention is for CUDA; it has no dropout
      not sdpa: a term is left in the logits, and it would need an L x L mask
      hidden by: a window of 2
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
    return choose(problem.facts(backend), BACKENDS)._replace(notes=_notes(problem, encodings))


def _notes(problem: Problem, encodings: SequenceOf[Encoding | Term]) -> list[str]:
    notes = []
    if problem.visibility.kind == "mask":
        notes.append(f"hidden by: {', '.join(problem.visibility.hidden_by())}")
    turning = _turning(encodings)
    if len(turning) > 1:
        times = "twice" if len(turning) == 2 else f"{len(turning)} times"
        notes.append(f"q and k are turned {times}, by {' and by '.join(map(repr, turning))}")
    return notes


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
    require_tensors(q, k, v)
    require_masks(q, k, mask, key_mask)
    scale, dropout = require_numbers(scale, dropout, q)
    causal = flag("causal", causal)
    ready = next((term for term in encodings if isinstance(term, Term)), None)
    unsaid = positions is None and key_positions is None
    if unsaid and ready is not None:
        relative = ready.relative  # a term stands where it was evaluated
    elif unsaid and not encodings and not causal and window is None:
        relative = Relative(sequence(q.shape[2]), sequence(k.shape[2]))  # nobody asks where tokens stand
    else:
        relative = Relative.of(q.shape[2], k.shape[2], positions, key_positions)
    require_lengths(relative, q, k.shape[2])
    relative.require_batch(q.shape[0])

    terms = [_term(encoding, relative, q, causal) for encoding in encodings]
    _require_once(_turning(encodings))
    require_together(terms, q, v)
    rotations = [term for term in terms if isinstance(term, Rotation) and not isinstance(term, Decay)]
    visibility = Visibility(
        relative.queries,
        relative.keys,
        causal=causal,
        window=window,
        mask=mask,
        key_mask=key_mask,
        newest=relative.queries is relative.keys or (key_positions is None and ready is None),
    )
    if scale is None:
        scale = q.shape[-1] ** -0.5
        for term in terms:
            scale *= term.scale_factor
    return Problem(q, k, v, q, k, rotations, left_in_logits(terms), visibility, scale, dropout)


def _turning(encodings: SequenceOf[Encoding | Term]) -> list[Encoding | Term]:
    """Those that turn queries and keys."""
    return [each for each in encodings if isinstance(each, Rotation) or getattr(each, "place", "") == "rotary"]


def _require_once(turning: SequenceOf[Encoding | Term]) -> None:
    """Raise where the same one turns twice. Two that are alike may be meant, and so may a bias that is added twice."""
    for place, each in enumerate(turning):
        if any(each is other for other in turning[:place]):
            name = type(each).__name__
            raise ValueError(
                f"each encoding must turn q and k once, got the same {name} twice, which is double its angle: "
                "leave one out"
            )


def _term(encoding: Encoding | Term, relative: Relative, q: Tensor, causal: bool) -> Term:
    if isinstance(encoding, Encoding):
        require_device(encoding, q)
        term = encoding.term(relative.queries, relative.keys, device=q.device, dtype=arithmetic_dtype(q.dtype))
    elif isinstance(encoding, Term):
        term = encoding
    else:
        if isinstance(encoding, type) and issubclass(encoding, Encoding):
            raise TypeError(
                f"encodings must be made first, got the class {encoding.__name__}: {encoding.__name__}(...)"
            )
        if isinstance(encoding, list | tuple):
            raise TypeError(f"encodings must be given one by one, got a {type(encoding).__name__}: unpack it with *")
        name, keyword = type(encoding).__name__, "positions" if isinstance(encoding, Positions) else "mask"
        raise TypeError(f"encodings must be posenc encodings or their terms, got {name}: did you mean {keyword}=?")
    require_term(term, type(encoding).__name__, relative, q, causal)
    return term
