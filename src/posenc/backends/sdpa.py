"""torch's fused kernel, where no term is left in the logits."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from posenc.plan import Facts, Problem

NAME = "sdpa"
ROTATES = False


def refuses(facts: Facts) -> list[str]:
    """Terms that the kernel cannot add without an L x L mask."""
    return ["a term is left in the logits, and it would need an L x L mask"] if facts.terms else []


def run(problem: Problem) -> Float[Tensor, "b h i e"]:
    """softmax(scale q k) v in one pass over the keys."""
    q, k, v = problem.q, problem.k, problem.v
    grouped = True if k.shape[1] != q.shape[1] else False  # noqa: SIM210 - a symbolic bool is refused
    kind = problem.visibility.kind
    if kind != "mask":
        output = F.scaled_dot_product_attention(
            q, k, v, None, problem.dropout, kind == "causal", scale=problem.scale, enable_gqa=grouped
        )
        return output.to(q.dtype)  # autocast answers in its own
    allowed = problem.visibility.allowed(q.device)
    assert allowed is not None
    blind = ~allowed.any(-1, keepdim=True)  # not every kernel gives 0 for a row that sees nothing
    output = F.scaled_dot_product_attention(
        q, k, v, allowed | blind, problem.dropout, scale=problem.scale, enable_gqa=grouped
    )
    return output.masked_fill(blind, 0.0).to(q.dtype)
