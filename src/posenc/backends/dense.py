"""Plain torch logits: always works, and is the truth that other backends are held to."""

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from posenc.encoding import arithmetic_dtype
from posenc.plan import Facts, Problem
from posenc.term import Bias

NAME = "dense"


def refuses(facts: Facts) -> list[str]:
    """Nothing."""
    return []


def run(problem: Problem) -> Float[Tensor, "b h i e"]:
    """softmax(scale (q k + q r) + bias) v, the L x L logits written out, in float32 or wider."""
    device = problem.q.device.type
    exact = torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()
    with exact:  # the arithmetic below is float32 or wider, always
        return _run(problem, arithmetic_dtype(problem.q.dtype))


def _run(problem: Problem, dtype: torch.dtype) -> Tensor:
    q, k, v, unrotated_q = (x.to(dtype) for x in (problem.q, problem.k, problem.v, problem.unrotated_q))
    if k.shape[1] != q.shape[1]:
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)

    logits = q @ k.mT * problem.scale
    for term in problem.terms:
        if isinstance(term, Bias):
            logits = logits + term.dense()
        else:
            logits = logits + term.logits(unrotated_q) * (problem.scale if term.scaled else 1.0)

    allowed = problem.visibility.allowed(q.device)
    if allowed is None:
        weights = logits.softmax(-1)
    else:  # the lowest finite number, not -inf: a row that sees nothing has finite gradients, and weights of 0
        lowest = torch.finfo(dtype).min
        weights = logits.masked_fill(~allowed, lowest).softmax(-1).masked_fill(~allowed, 0.0)
    weights = F.dropout(weights, problem.dropout)

    output = weights @ v
    for term in problem.terms:
        added = None if isinstance(term, Bias) else term.values(weights)
        if added is not None:
            output = output + added
    return output.to(problem.q.dtype)
