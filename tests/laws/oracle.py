"""The float64 reference of one attention, index by index, around the reference of a scheme."""

import numpy as np
from torch import Tensor

import posenc
from laws.subject import Subject
from posenc import reference


def standing(positions: posenc.Positions) -> np.ndarray:
    """Coordinates as the reference takes them: prefix tokens are rows of NaN."""
    coordinates = positions.coordinates().double().numpy()
    return np.concatenate([np.full((positions.prefix, positions.axes), np.nan), coordinates])


def refer_embedding(
    subject: Subject, encoding: posenc.Encoding, x: Tensor, positions: posenc.Positions, where: np.ndarray
) -> np.ndarray:
    """The reference of an encoding at its place on the embeddings of one row, `[tokens, dim]`, that stand at `where`."""
    if subject.place == "absolute":
        return x.double().numpy() + subject.refer(encoding, where)
    return subject.refer(encoding, x.double().numpy(), grid_shape=positions.shape, prefix=positions.prefix)


def refer_attention(
    subject: Subject,
    encoding: posenc.Encoding,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    allowed: np.ndarray | None = None,
    scale: float | None = None,
) -> np.ndarray:
    """The reference's attention of one row, `[heads, tokens, channels]`, around the reference's scheme."""
    both = query_positions, key_positions
    scale = getattr(encoding, "scale_factor", 1.0) * q.shape[-1] ** -0.5 if scale is None else scale
    groups = np.arange(len(q)) * len(k) // len(q)
    k, v = k[groups], v[groups]
    if subject.place == "rotary" and "k" in subject.takes:  # the logits themselves, as no rotation of each gives them
        every = subject.refer(encoding, q, k, *both)
        return reference.attention(np.zeros_like(q), k, v, content=every, scale=scale, allowed=allowed)
    if subject.place == "rotary":
        more = {"length": _length(*both)} if encoding.by_length else {}
        turned = [subject.refer(encoding, x, where, **more) for x, where in zip((q, k), both, strict=True)]
        return reference.attention(*turned, v, scale=scale, allowed=allowed)
    if subject.place == "bias":
        logits = subject.refer(encoding, *both)
        if np.isneginf(logits).any():
            seen = ~np.isneginf(logits)
            allowed, logits = seen if allowed is None else allowed & seen, np.where(seen, logits, 0.0)
        return reference.attention(q, k, v, bias=logits, scale=scale, allowed=allowed)
    more = {name: given for name, given in (("k", k), ("allowed", allowed)) if name in subject.takes}
    logits = subject.refer(encoding, q, *both, **more)
    where = "content" if getattr(encoding, "scaled", True) else "bias"
    adds = hasattr(reference, subject.card.reference + "_values") and subject.arguments.get("values", True)
    values = (lambda weights: subject.refer(encoding, weights, *both, suffix="_values")) if adds else None
    return reference.attention(q, k, v, scale=scale, allowed=allowed, values=values, **{where: logits})


def _length(*positions: np.ndarray) -> int:
    """1 + the largest position of a sequence."""
    return int(np.nanmax(np.concatenate(positions), initial=-1.0)) + 1
