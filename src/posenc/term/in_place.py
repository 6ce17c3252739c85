"""What queries and keys must be to be turned where they lie."""

from collections.abc import Sequence as SequenceOf

import torch
from torch import Tensor

from posenc.kernels.eager import transformed

__all__ = ["require_in_place"]


def require_in_place(q: Tensor, k: Tensor, tensors: SequenceOf[Tensor]) -> None:
    """Raise ValueError where gradients are wanted, of q, k or a term's `tensors`, and where numbers share memory."""
    advice = "call rotate, or rotate_ under torch.no_grad()"
    for name, x in (("q", q), ("k", k)):
        if torch.is_grad_enabled() and x.requires_grad:
            raise ValueError(f"{name} must need no gradient to turn in place, got one that requires it: {advice}")
        if any(size > 1 and stride == 0 for size, stride in zip(x.shape, _strides(x), strict=True)):
            raise ValueError(
                f"{name} must have memory of its own for each number to turn in place, got shape {tuple(x.shape)} with "
                f"strides {x.stride()}: it is expanded, pass {name}.contiguous()"
            )
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        raise ValueError(f"frequencies must need no gradient to turn in place, got trained ones: {advice}")
    if q is k or _overlap(q, k):
        raise ValueError(
            "q and k must lie apart to turn in place, got tensors that share memory, which would turn twice: pass "
            "k.clone()"
        )


def _strides(x: Tensor) -> tuple[int, ...]:
    return x.stride() if x.layout == torch.strided else ()


def _overlap(q: Tensor, k: Tensor) -> bool:
    """Whether a number of one lies where a number of the other does, as far as their memory is known."""
    if torch.compiler.is_compiling() or any(type(x) not in (Tensor, torch.nn.Parameter) for x in (q, k)):
        return False
    if transformed() or q.device != k.device or not q.numel() or not k.numel() or not (q.data_ptr() and k.data_ptr()):
        return False
    # is there i, within the shape of q, and j, within that of k, with  q + sum i stride = k + sum j stride ?
    reach: dict[int, tuple[int, int]] = {}
    for x, sign in ((q, 1), (k, -1)):
        for length, stride in zip(x.shape, x.stride(), strict=True):
            step = stride * x.element_size()
            low, high = reach.get(step, (0, 0))
            reach[step] = (low, high + length - 1) if sign > 0 else (low - length + 1, high)
    return _is_sum(k.data_ptr() - q.data_ptr(), sorted(reach.items(), reverse=True))


def _is_sum(total: int, reach: SequenceOf[tuple[int, tuple[int, int]]]) -> bool:
    """Whether it is a sum of whole multiples of strides, each multiple within its bounds; the largest stride first."""
    if not reach:
        return total == 0
    (stride, (low, high)), *rest = reach
    least, most = (sum(step * bounds[end] for step, bounds in rest) for end in (0, 1))
    first, last = max(low, -((most - total) // stride)), min(high, (total - least) // stride)
    return any(_is_sum(total - n * stride, rest) for n in range(first, last + 1))
