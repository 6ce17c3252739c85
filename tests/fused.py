"""The fused kernel beside the dense path: what both answer, and how far from float64 each may be."""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import posenc
from posenc.encoding import arithmetic_dtype
from posenc.term import repeated

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


class Answers(NamedTuple):
    """The output without gradients and with them, and those of q, k, v and every parameter, zero where there is none."""

    inferred: Tensor
    output: Tensor
    gradients: list[Tensor]

    @property
    def all(self) -> list[Tensor]:
        return [self.inferred, self.output, *self.gradients]


class LargestLogit(TorchDispatchMode):
    """Remembers the largest logit that a softmax was taken of, among those that are not e^20 below another's weight."""

    largest = 1.0

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        if function is torch.ops.aten._softmax.default and given[0].numel():
            logits = given[0]
            counts = (logits > -1e30) & (logits > logits.amax(-1, keepdim=True) - 20)
            self.largest = max(self.largest, float(logits.abs().where(counts, 0.0).max()))
        return function(*given, **(named or {}))


def answers(
    backend: str,
    inputs: Sequence[Tensor],
    slope: Tensor,
    encodings: Sequence[posenc.Encoding],
    **options: Any,
) -> Answers:
    """Attention without gradients, and with all, given that of its output."""
    with torch.no_grad():
        inferred = posenc.attention(*inputs, *encodings, backend=backend, **options)
    leaves = [x.detach().requires_grad_() for x in inputs]
    parameters = [each for encoding in encodings for each in encoding.parameters() if each.requires_grad]
    output = posenc.attention(*leaves, *encodings, backend=backend, **options)
    wanted = [*leaves, *parameters]
    found = torch.autograd.grad(output, wanted, slope, allow_unused=True)
    zero = [torch.zeros_like(x) if each is None else each for x, each in zip(wanted, found, strict=True)]
    return Answers(inferred, output.detach(), zero)


def like(encodings: Sequence[posenc.Encoding], dtype: torch.dtype) -> list[posenc.Encoding]:
    return [copy.deepcopy(encoding).to(dtype) for encoding in encodings]


def compare(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *encodings: posenc.Encoding,
    slope: Tensor | None = None,
    threads: int = 1,
    **options: Any,
) -> Answers:
    """The kernel's answers, after a look at each: no farther from float64 than twice the dense path in the same dtype.

    The floor is what four units in the last place of the largest logit make of a tensor's largest entry, or of the
    terms that it is a sum of; sixteen for a parameter, whose terms are not looked at. In float64, where dense is the
    truth, a part in 1e12 takes the place of the four units.
    """
    encodings = like(encodings, arithmetic_dtype(q.dtype))
    if slope is None:
        slope = torch.randn(*q.shape[:3], v.shape[3], dtype=torch.float64).to(q.dtype)
    torch.set_num_threads(threads)
    ours = answers("cpu", (q, k, v), slope, encodings, **options)
    torch.set_num_threads(1)
    plain = answers("dense", (q, k, v), slope, encodings, **options)
    wide = [x.double() for x in (q, k, v)]
    with LargestLogit() as logits:
        exact = answers("dense", wide, slope.double(), like(encodings, torch.float64), **options)
    assert ours.output.dtype == q.dtype
    unit = 1e-12 if q.dtype == torch.float64 else 4 * torch.finfo(torch.float32).eps
    for name, got, own, truth, size in named(ours, plain, exact, magnitudes(q, k, v, slope)):
        assert got.dtype == own.dtype, name
        assert got.shape == truth.shape, name
        if not truth.numel():
            continue
        error, allowed = (float((x.double() - truth).abs().max()) for x in (got, own))
        largest = float(truth.abs().max()) * (4 if "parameter" in name else 1)
        floor = unit * logits.largest * max(size, largest)
        assert error <= max(2 * allowed, floor), f"{name} is {error:.1e} off, dense {allowed:.1e}; floor {floor:.1e}"
    return ours


def named(ours: Answers, plain: Answers, exact: Answers, sizes: list[float]) -> Any:
    names = ["the output in inference", "the output", *(f"the gradient of {x}" for x in "qkv")]
    names += [f"the gradient of parameter {n}" for n in range(len(ours.gradients) - 3)]
    sizes = [sizes[0], *sizes, *[sizes[-1]] * len(names)]
    return zip(names, ours.all, plain.all, exact.all, sizes, strict=False)


def magnitudes(q: Tensor, k: Tensor, v: Tensor, slope: Tensor) -> list[float]:
    """Of what is summed for the output and the gradients of q, k, v and parameters."""

    def largest(x: Tensor) -> float:
        return float(x.abs().max()) if x.numel() else 0.0

    q, k, v = (x.detach().double() for x in (q, k, v))
    of_weights = largest(slope.double().abs() @ repeated(v, q.shape[1]).abs().mT)
    scale, rows = max(q.shape[-1], 1) ** -0.5, max(q.shape[:3].numel(), 1) ** 0.5
    met = [max(1.0, largest(x) * scale) for x in (q, k)]
    return [largest(v), of_weights * met[1], of_weights * met[0], largest(slope), of_weights * rows]
