"""The fused kernel for CPUs: terms are added in registers, tile by tile, and nothing of the size L x L is written."""

from jaxtyping import Float
from torch import Tensor

from posenc import kernels
from posenc.backends.cpu.operands import written
from posenc.backends.cpu.operators import attention, compute
from posenc.kernels.eager import unwatched
from posenc.kernels.structures import DTYPES
from posenc.plan import Facts, Problem

NAME = "cpu"
ROTATES = True

WIDEST = 256


def refuses(facts: Facts) -> list[str]:
    """Everything but attention on a CPU whose terms are functions of position."""
    vectors = "rows" in facts.forms or "key rows" in facts.forms
    reasons = {
        kernels.MISSING: not kernels.BUILT,
        "the kernel is for CPUs": facts.device != "cpu",
        "it computes in float32, bfloat16, float16 and float64": facts.dtype not in DTYPES,
        "it is for heads of up to 256 channels": facts.widest > WIDEST,
        "it has no dropout": facts.dropout,
        "a term is no function of position that a code can say": "other" in facts.forms,
        "a term has vectors for far more relative positions than there are pairs": "sparse rows" in facts.forms,
        "it compares orders that are whole numbers": facts.by_real_order,
        "vectors meet queries before they turn, and it turns by one rotation that is not trained": vectors
        and facts.rotation == "other",
        "vectors meet keys before they turn": "key rows" in facts.forms and facts.rotation != "none",
        "exported graphs have torch's own operators alone": facts.exporting,
        "transforms of torch.func and forward-mode derivatives have no rule for it": facts.transformed,
    }
    return [reason for reason, holds in reasons.items() if holds]


def run(problem: Problem) -> Float[Tensor, "b h i e"]:
    """softmax(scale (q k + q r) + bias) v, a tile at a time, in q's dtype; sums are float32, or float64."""
    gradients = problem.gradients
    problem = problem.rotated() if problem.rotation == "other" else problem
    operands = written(problem)
    if not gradients and unwatched(problem.q, problem.k, problem.v, *operands.numbers, *operands.places):
        return compute(problem.q, problem.k, problem.v, operands, problem.scale, False)[0]
    out: Tensor = attention(
        problem.q,
        problem.k,
        problem.v,
        operands.numbers,
        operands.places,
        operands.program,
        problem.scale,
        gradients,
    )[0]
    return out
