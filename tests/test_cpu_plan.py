"""When the fused kernel is chosen, and what is said where it is not; one with no library; and CASES 42."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

import posenc
from posenc import attend, kernels
from posenc.backends import cpu
from posenc.plan import Facts

built = pytest.mark.skipif(not kernels.BUILT, reason=kernels.MISSING)


def drawn(tokens: int = 9, width: int = 16, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(2, 4, tokens, width, dtype=torch.float64).to(dtype) for _ in range(3))


def because(*encodings: Any, width: int = 16, dtype: torch.dtype = torch.float32, **options: Any) -> list[str]:
    """Why the kernel does not compute this; what is asked for by name is refused with the same words."""
    q, k, v = drawn(options.pop("tokens", 9), width, dtype)
    reasons = posenc.explain(q, k, v, *encodings, **options).refusals.get("cpu", [])
    if reasons:
        with pytest.raises(ValueError, match="backend 'cpu'") as error:
            posenc.attention(q, k, v, *encodings, backend="cpu", **options)
        assert str(error.value) == f"backend 'cpu' cannot compute this: {'; '.join(reasons)}: leave backend out"
    return reasons


@built
def test_it_comes_first() -> None:
    assert attend.BACKENDS[0] is cpu
    plan = posenc.explain(*drawn(), posenc.T5Bias(4), causal=True)
    assert plan.backend is cpu
    assert plan.refusals == {}
    assert str(plan).startswith("backend: cpu\n  terms in the logits: bias; visibility: causal; torch.float32 on cpu")


@built
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_it_is_for_every_dtype_and_width(dtype: torch.dtype) -> None:
    arithmetic = torch.promote_types(dtype, torch.float32)
    for width in (1, 2, 64, 256):
        assert because(posenc.ALiBi(4), posenc.Shaw(width, 3).to(arithmetic), width=width, dtype=dtype) == []


@built
def test_refusals_by_value() -> None:
    no_code = "a term is no function of position that a code can say"
    assert because(width=257) == ["it is for heads of up to 256 channels"]
    assert because(dropout=0.1) == ["it has no dropout"]
    assert because(posenc.CoPE(16, 12), causal=True) == [no_code]
    assert because(posenc.XPos(16), causal=True) == [no_code]
    assert because(posenc.XPos(16), dropout=0.1, causal=True) == ["it has no dropout", no_code]
    anywhere = posenc.coordinates(torch.arange(9)[:, None], order=torch.rand(9))
    assert because(posenc.ALiBi(4), positions=anywhere) == []
    assert because(posenc.Shaw(16, 3), positions=anywhere) == [no_code]
    whole = ["it compares orders that are whole numbers"]
    assert because(positions=anywhere, causal=True) == whole
    assert because(positions=anywhere, window=3) == whole


@built
def test_refusals_of_vectors_beside_rotations() -> None:
    """Vectors meet queries and keys before they turn."""
    turn, mixed = posenc.Rotary(16), posenc.MixedRotary(4, 16, axes=1)
    before = "vectors meet queries before they turn, and it turns by one rotation that is not trained"
    keys = "vectors meet keys before they turn"
    assert because(turn, posenc.Rotary(16)) == []
    assert because(mixed, posenc.T5Bias(4)) == []
    assert because(turn, posenc.Shaw(16, 3)) == []
    assert because(mixed.requires_grad_(False), posenc.Shaw(16, 3)) == []
    assert because(turn, posenc.Rotary(16), posenc.Shaw(16, 3)) == [before]
    assert because(mixed.requires_grad_(True), posenc.Shaw(16, 3)) == [before]
    with torch.no_grad():
        assert because(mixed, posenc.Shaw(16, 3)) == []
    assert because(turn, posenc.Deberta(4, 16)) == [keys]
    assert because(turn, posenc.TransformerXL(4, 16)) == [keys]


def test_what_a_cpu_alone_can_do() -> None:
    facts = Facts(("bias",), "all", torch.float32, "cpu", False, False, forms=("table",), widest=64)
    asked = {
        "the kernel is for CPUs": {"device": "cuda"},
        "it computes in float32, bfloat16, float16 and float64": {"dtype": torch.float8_e4m3fn},
        "exported graphs have torch's own operators alone": {"exporting": True},
        "transforms of torch.func and forward-mode derivatives have no rule for it": {"transformed": True},
    }
    missing = [] if kernels.BUILT else [kernels.MISSING]
    for reason, changes in asked.items():
        assert cpu.refuses(facts._replace(**changes)) == [*missing, reason]
    assert cpu.refuses(facts) == missing


@built
def test_a_slow_path_says_so() -> None:
    """CASES 42: what would write an L x L tensor is named, and so is the reason."""
    said = str(posenc.explain(*drawn(), posenc.T5Bias(4), dropout=0.1))
    assert said.splitlines() == [
        "backend: dense",
        "  terms in the logits: bias; visibility: all; torch.float32 on cpu, with gradients",
        "  not cpu: it has no dropout",
        "  not flex: FlexAttention is for CUDA; FlexAttention has no gradients on a CPU; it has no dropout",
        "  not sdpa: a term is left in the logits, and it would need an L x L mask",
    ]


def test_without_the_library_others_answer() -> None:
    program = """
import torch, posenc
q = k = v = torch.randn(2, 4, 9, 16)
bias = posenc.ALiBi(4)
print(posenc.explain(q, k, v, bias))
assert torch.equal(posenc.attention(q, k, v, bias), posenc.attention(q, k, v, bias, backend="dense"))
assert posenc.attention(q, k, v, posenc.Rotary(16)).shape == q.shape
rotated = posenc.Rotary(16)(q, k)
assert rotated[0].shape == q.shape
try:
    posenc.attention(q, k, v, bias, backend="cpu")
except ValueError as error:
    print(error)
"""
    environment = os.environ | {"POSENC_CPU_LIBRARY": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    missing = "the CPU kernel is not built: POSENC_CPU_LIBRARY names /nonexistent, where no file is"
    assert done.stdout.splitlines() == [
        "backend: dense",
        "  terms in the logits: bias; visibility: all; torch.float32 on cpu, without gradients",
        f"  not cpu: {missing}",
        "  not flex: FlexAttention is for CUDA",
        "  not sdpa: a term is left in the logits, and it would need an L x L mask",
        f"backend 'cpu' cannot compute this: {missing}: leave backend out",
    ]
