"""Rotary alone: channels of queries or keys turned in one pass, into another tensor or where they lie.

Two operators of torch, which a compiled model keeps in its graph and autograd turns back. A call that nothing watches,
such as that of a decode step, goes to the kernel without them, in a third of the time.
"""

import ctypes
import struct
from typing import Any

import torch
from torch import Tensor

from posenc import kernels
from posenc.kernels import structures
from posenc.kernels.eager import traced, transformed, unwatched

__all__ = ["rotate", "rotate_", "serves"]

ARITHMETIC = {dtype: torch.promote_types(dtype, torch.float32) for dtype in structures.DTYPES}
_FIELDS = struct.Struct(f"{ctypes.sizeof(structures.Rotary) // 8}q")  # all are of 8 bytes: packed in one call


def serves(x: Tensor, cos: Tensor, sin: Tensor, prefix: int) -> bool:
    """Whether the kernel turns these; others are for torch's own operators."""
    return (
        kernels.BUILT
        and all(type(given) is Tensor or type(given) is torch.nn.Parameter for given in (x, cos, sin))
        and x.is_cpu
        and cos.is_cpu
        and _fits(x, cos, sin, prefix)
        and not (torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad))
        and not transformed()
        and not traced()
    )


def rotate(x: Tensor, cos: Tensor, sin: Tensor, prefix: int, interleaved: bool, backwards: bool = False) -> Tensor:
    """x `[b, h, tokens, channels]`, turned by the angles of these cosines and sines, `[#b, #h, tokens, pairs]`.

    The first `prefix` tokens, which have no angles, and channels that are of no pair stay as they are. `backwards`
    turns by the opposite angles. For what `serves` says yes to.
    """
    if unwatched(x, cos, sin) and _bare(x, cos, sin) and not (torch.is_grad_enabled() and x.requires_grad):
        return _rotated(x, cos, sin, prefix, interleaved, backwards)
    turned: Tensor = _rotate(x, cos, sin, prefix, interleaved, backwards)
    return turned


def rotate_(x: Tensor, cos: Tensor, sin: Tensor, prefix: int, interleaved: bool, backwards: bool = False) -> None:
    """The same where x lies, without gradients; no element of x may lie where another one does."""
    if unwatched(x, cos, sin) and _bare(x, cos, sin):
        _compute(x, x, cos, sin, prefix, interleaved, backwards)
        torch.autograd.graph.increment_version(x)
    else:
        _rotate_in_place(x, cos, sin, prefix, interleaved, backwards)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, prefix: int, interleaved: bool, backwards: bool) -> Tensor:
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _compute(x, out, cos, sin, prefix, interleaved, backwards)
    return out


def _compute(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, prefix: int, interleaved: bool, backwards: bool) -> None:
    cos, sin = cos.contiguous(), sin.contiguous()
    batch, heads, tokens, pairs = cos.shape
    problem = _FIELDS.pack(
        *(structures.DTYPES[x.dtype], torch.get_num_threads()),
        *(*x.shape, prefix, pairs, interleaved, backwards),
        *(x.data_ptr(), *x.stride(), out.data_ptr(), *out.stride()),
        *(cos.data_ptr(), sin.data_ptr()),
        *(heads * tokens * pairs if batch > 1 else 0, tokens * pairs if heads > 1 else 0),
    )
    structures.call("rotate", problem)


def _fits(x: Tensor, cos: Tensor, sin: Tensor, prefix: int) -> bool:
    if x.ndim != 4 or cos.ndim != 4 or cos.shape != sin.shape or not ARITHMETIC.get(x.dtype) == cos.dtype == sin.dtype:
        return False
    (b, h, tokens, channels), (rows, heads, turned, pairs) = x.shape, cos.shape
    shared = (rows == 1 or rows == b) and (heads == 1 or heads == h)
    return bool(shared and prefix + turned == tokens and 2 * pairs <= channels)


def _bare(*given: Tensor) -> bool:
    """Whether the numbers of tensors are those that lie at their address: none is lazily zero, or negated."""
    return all(x.data_ptr() and not x.is_neg() for x in given)


@torch.library.custom_op("posenc::rotate", mutates_args=(), device_types="cpu")
def _rotate(x: Tensor, cos: Tensor, sin: Tensor, prefix: int, interleaved: bool, backwards: bool) -> Tensor:
    _require_fit(x, cos, sin, prefix)
    return _rotated(x, cos, sin, prefix, interleaved, backwards)


@_rotate.register_fake
def _(x: Tensor, cos: Tensor, sin: Tensor, prefix: int, interleaved: bool, backwards: bool) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, cos, sin, *ctx.rest = inputs
    ctx.save_for_backward(cos, sin)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    if any(ctx.needs_input_grad[1:3]):
        raise NotImplementedError(
            "posenc::rotate has no gradients of cosines and sines, got some that require them: detach them"
        )
    prefix, interleaved, backwards = ctx.rest
    return rotate(gradient, *ctx.saved_tensors, prefix, interleaved, not backwards), *[None] * 5


_rotate.register_autograd(_backward, setup_context=_save)


@torch.library.custom_op("posenc::rotate_", mutates_args={"x"}, device_types="cpu")
def _rotate_in_place(x: Tensor, cos: Tensor, sin: Tensor, prefix: int, interleaved: bool, backwards: bool) -> None:
    _require_fit(x, cos, sin, prefix)
    _compute(x, x, cos, sin, prefix, interleaved, backwards)


@_rotate_in_place.register_fake
def _(x: Tensor, cos: Tensor, sin: Tensor, prefix: int, interleaved: bool, backwards: bool) -> None:
    return None


def _require_fit(x: Tensor, cos: Tensor, sin: Tensor, prefix: int) -> None:
    if not _fits(x, cos, sin, prefix):
        about = [f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in (x, cos, sin)]
        raise ValueError(
            "x must be [b, h, tokens, channels] in float32, bfloat16, float16 or float64, and cosines and sines "
            f"[#b, #h, tokens - prefix, pairs] in float32 (float64 for float64), got {', '.join(about)} with "
            f"prefix {prefix}: make them so"
        )
