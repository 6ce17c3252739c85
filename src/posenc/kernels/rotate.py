"""Rotary alone: channels of queries and keys turned in one pass, into other tensors or where they lie.

Two operators of torch, which a compiled model keeps in its graph and autograd turns back. A call that nobody watches,
such as that of a decode step, goes to the kernel without them, with queries and keys at once.
"""

import ctypes
import struct
from collections.abc import Sequence as SequenceOf
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc import kernels
from posenc.kernels import structures
from posenc.kernels.eager import traced, transformed, unwatched

__all__ = ["Turning", "rotate", "rotate_", "serves"]

ARITHMETIC = {dtype: torch.promote_types(dtype, torch.float32) for dtype in structures.DTYPES}
_FIELDS = struct.Struct(f"{ctypes.sizeof(structures.Rotary) // 8}q")  # all are of 8 bytes: packed in one call


class Turning(NamedTuple):
    """x `[b, h, tokens, channels]`, which turns by the angles of cosines and sines `[#b, #h, tokens, pairs]`.

    The first `prefix` tokens, which have no angles, and channels that are of no pair stay as they are.
    """

    x: Tensor
    cos: Tensor
    sin: Tensor
    prefix: int


def serves(*given: Turning) -> bool:
    """Whether the kernel turns these; others are for torch's own operators."""
    return (
        kernels.BUILT
        and all(
            type(x) in (Tensor, torch.nn.Parameter)
            and (x.is_cpu and cos.is_cpu and sin.is_cpu)
            and (torch.compiler.is_compiling() or not (x.is_neg() or cos.is_neg() or sin.is_neg()))
            and not (torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad))
            and _fit(x, cos, sin, prefix)
            for x, cos, sin, prefix in given
        )
        and not transformed()
        and not traced()
    )


def rotate(*given: Turning, interleaved: bool) -> tuple[Tensor, ...]:
    """What each becomes. For what `serves` says yes to."""
    training = torch.is_grad_enabled() and any(each.x.requires_grad for each in given)
    if training or not _directly(given):
        return tuple(_rotate(*each, interleaved, False) for each in given)
    out = tuple(torch.empty_like(each.x, memory_format=torch.contiguous_format) for each in given)
    _compute(given, out, interleaved, False)
    return out


def rotate_(*given: Turning, interleaved: bool) -> None:
    """The same where each x lies, without gradients. No number may lie where another one does."""
    if _directly(given):
        _compute(given, [each.x for each in given], interleaved, False)
        for each in given:
            torch.autograd.graph.increment_version(each.x)
    else:
        for each in given:
            _rotate_in_place(*each, interleaved)


def _directly(given: SequenceOf[Turning]) -> bool:
    """Whether nobody is to see an operator."""
    return all(unwatched(*each[:3]) for each in given)


def _compute(given: SequenceOf[Turning], out: SequenceOf[Tensor], interleaved: bool, backwards: bool) -> None:
    packed, threads, kept = [struct.pack("q", len(given))], torch.get_num_threads(), []
    for (x, cos, sin, prefix), into in zip(given, out, strict=True):
        kept += [cos := cos.contiguous(), sin := sin.contiguous()]
        batch, heads, tokens, pairs = cos.shape
        fields = (
            *(structures.DTYPES[x.dtype], threads, *x.shape, prefix, pairs, interleaved, backwards),
            *(x.data_ptr(), *x.stride(), into.data_ptr(), *into.stride(), cos.data_ptr(), sin.data_ptr()),
            *(heads * tokens * pairs if batch > 1 else 0, tokens * pairs if heads > 1 else 0),
        )
        packed.append(_FIELDS.pack(*fields))
    structures.call("rotate", b"".join(packed))


def _fit(x: Tensor, cos: Tensor, sin: Tensor, prefix: int) -> bool:
    """Whether dtypes and sizes are those of a `Turning`, so that nothing is read beyond a tensor."""
    if x.ndim != 4 or cos.ndim != 4 or cos.shape != sin.shape or not ARITHMETIC.get(x.dtype) == cos.dtype == sin.dtype:
        return False
    (b, h, tokens, channels), (rows, heads, turned, pairs) = x.shape, cos.shape
    shared = (rows == 1 or rows == b) and (heads == 1 or heads == h)
    return bool(shared and prefix >= 0 and prefix + turned == tokens and 2 * pairs <= channels)


@torch.library.custom_op("posenc::rotate", mutates_args=(), device_types="cpu")
def _rotate(x: Tensor, cos: Tensor, sin: Tensor, prefix: int, interleaved: bool, backwards: bool) -> Tensor:
    _require_fit(x, cos, sin, prefix)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _compute([Turning(x, cos, sin, prefix)], [out], interleaved, backwards)
    return out


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
    return _rotate(gradient, *ctx.saved_tensors, prefix, interleaved, not backwards), *[None] * 5


_rotate.register_autograd(_backward, setup_context=_save)


@torch.library.custom_op("posenc::rotate_", mutates_args={"x"}, device_types="cpu")
def _rotate_in_place(x: Tensor, cos: Tensor, sin: Tensor, prefix: int, interleaved: bool) -> None:
    _require_fit(x, cos, sin, prefix)
    _compute([Turning(x, cos, sin, prefix)], [x], interleaved, False)


@_rotate_in_place.register_fake
def _(x: Tensor, cos: Tensor, sin: Tensor, prefix: int, interleaved: bool) -> None:
    return None


def _require_fit(x: Tensor, cos: Tensor, sin: Tensor, prefix: int) -> None:
    if not _fit(x, cos, sin, prefix):
        about = ", ".join(f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in (x, cos, sin))
        raise ValueError(
            "posenc::rotate must be given x [b, h, tokens, channels], and cosines and sines [#b, #h, tokens - prefix, "
            f"pairs] in float32 (float64 for float64), got {about} and prefix {prefix}: make them so"
        )
