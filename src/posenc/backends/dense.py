"""Plain torch logits: always works, and is the truth that other backends are held to."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from posenc.encoding import arithmetic_dtype, exact_arithmetic
from posenc.plan import Facts, Problem
from posenc.term import Bias, Content, Decay, repeated

NAME = "dense"
ROTATES = False


def refuses(facts: Facts) -> list[str]:
    """Nothing."""
    return []


def run(problem: Problem) -> Float[Tensor, "b h i e"]:
    """softmax(scale (q k + q r) + bias) v, the L x L logits written out, in float32 or wider."""
    with exact_arithmetic(problem.q.device):
        return _run(problem, arithmetic_dtype(problem.q.dtype))


def _run(problem: Problem, dtype: torch.dtype) -> Tensor:
    heads = problem.q.shape[1]
    q, k, v = problem.q.to(dtype), *(repeated(x.to(dtype), heads) for x in (problem.k, problem.v))
    allowed = problem.visibility.allowed(q.device)

    decay = next((term for term in problem.terms if isinstance(term, Decay)), None)
    product = (q @ k.mT if decay is None else decay.product(q, k)) * problem.scale
    logits = product
    # what hides pairs comes before what reads who sees whom
    for term in sorted(problem.terms, key=lambda term: term.reads_product):
        if isinstance(term, Bias):
            logits = logits + term.dense()
        elif isinstance(term, Content):
            added = term.logits(problem.unrotated_q.to(dtype), problem.unrotated_k.to(dtype), product, allowed)
            logits = logits + added * (problem.scale if term.scaled else 1.0)
        if term.hides:
            seen = logits != -torch.inf
            allowed = seen if allowed is None else allowed & seen

    if allowed is None:
        weights = logits.softmax(-1)
    else:  # the lowest finite number, not -inf: a row that sees nothing has finite gradients, and weights of 0
        lowest = torch.finfo(dtype).min
        weights = logits.masked_fill(~allowed, lowest).softmax(-1).masked_fill(~allowed, 0.0)
    weights = F.dropout(weights, problem.dropout)

    output = weights @ v
    for term in problem.terms:
        joined = term.values(weights) if isinstance(term, Content) else None
        if joined is not None:
            output = output + joined
    return output.to(problem.q.dtype)
