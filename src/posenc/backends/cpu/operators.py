"""Attention and its gradients as custom operators of torch, so that a compiled model keeps them in one graph."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from posenc.backends.cpu.operands import Operands
from posenc.backends.cpu.structured import structured
from posenc.kernels import structures

__all__ = ["attention", "compute"]


def _outputs(q: Tensor, v: Tensor, training: bool) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, queries, _ = q.shape
    dtype = torch.promote_types(q.dtype, torch.float32)
    channels = v.shape[3]
    strides = queries * heads * channels, channels, heads * channels, 1  # as torch's own kernel lays it out
    out = q.new_empty_strided((batch, heads, queries, channels), strides)
    lse = q.new_empty((batch, heads, queries) if training else 0, dtype=dtype)
    rounded = training and q.dtype != dtype
    return out, lse, q.new_empty((batch, heads, queries, v.shape[3]) if rounded else 0, dtype=dtype)


def compute(
    q: Tensor, k: Tensor, v: Tensor, operands: Operands, scale: float, training: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The output; in training the logarithm of each row's sum, and the output before it is rounded."""
    out, lse, exact = _outputs(q, v, training)
    if out.numel():
        problem, _kept = structured(q, k, v, out, lse, exact, operands, scale)
        structures.call("forward", problem)
    return out, lse, exact


@torch.library.custom_op("posenc::attention", mutates_args=(), device_types="cpu")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    numbers: Sequence[Tensor],
    places: Sequence[Tensor],
    program: Sequence[int],
    scale: float,
    training: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """`compute`, with its operands one by one."""
    return compute(q, k, v, Operands(list(numbers), list(places), list(program)), scale, training)


@attention.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    numbers: Sequence[Tensor],
    places: Sequence[Tensor],
    program: Sequence[int],
    scale: float,
    training: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return _outputs(q, v, training)


@torch.library.custom_op("posenc::attention_backward", mutates_args=(), device_types="cpu")
def attention_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    exact: Tensor,
    numbers: Sequence[Tensor],
    places: Sequence[Tensor],
    program: Sequence[int],
    scale: float,
    trained: Sequence[bool],
) -> list[Tensor]:
    """Gradients of q, k and v, and of those numbers that are trained."""
    found = _gradients(q, k, v, numbers, trained)
    if not out.numel() or not k.shape[2]:
        return [each.zero_() for each in found]
    of_numbers = iter(found[3:])
    into = [next(of_numbers) if wanted else None for wanted in trained]
    operands = Operands(list(numbers), list(places), list(program))
    problem, _kept = structured(q, k, v, out, lse, exact, operands, scale, into)
    gradients = (structures.strided(x) for x in (gradient, *found[:3]))
    problem.out_gradient, problem.q_gradient, problem.k_gradient, problem.v_gradient = gradients
    structures.call("backward", problem)
    return found


def _gradients(q: Tensor, k: Tensor, v: Tensor, numbers: Sequence[Tensor], trained: Sequence[bool]) -> list[Tensor]:
    # a number a pair that is seen by nobody is never visited: the others are all written
    of_numbers = [torch.zeros_like(x) for x, wanted in zip(numbers, trained, strict=True) if wanted]
    return [*(torch.empty_like(x) for x in (q, k, v)), *of_numbers]


@attention_backward.register_fake
def _(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    exact: Tensor,
    numbers: Sequence[Tensor],
    places: Sequence[Tensor],
    program: Sequence[int],
    scale: float,
    trained: Sequence[bool],
) -> list[Tensor]:
    return _gradients(q, k, v, numbers, trained)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, numbers, places, ctx.program, ctx.scale, _ = inputs
    ctx.numbers, ctx.trained = len(numbers), [x.requires_grad for x in numbers]
    kept = (q, k, v, *output, *numbers, *places)
    ctx.save_for_backward(*(x.clone() if x.is_inference() else x for x in kept))  # a mask may be from inference_mode
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    q, k, v, out, lse, exact, *rest = ctx.saved_tensors
    numbers, places = rest[: ctx.numbers], rest[ctx.numbers :]
    nothing = [None] * len(numbers), [None] * len(places), None, None, None
    if gradient is None:
        return None, None, None, *nothing
    found = attention_backward(gradient, q, k, v, out, lse, exact, numbers, places, ctx.program, ctx.scale, ctx.trained)
    of_numbers = iter(found[3:])
    return *found[:3], [next(of_numbers) if wanted else None for wanted in ctx.trained], *nothing[1:]


attention.register_autograd(_backward, setup_context=_save)


def _refuse(ctx: Any, *_: Any) -> Any:
    raise NotImplementedError(
        "the CPU kernel has first derivatives alone, got a second one: pass backend='dense' to attention"
    )


attention_backward.register_autograd(_refuse)


@attention.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """One call a slice. Outside of a compiled graph the plan says no to torch.func before this is asked for."""

    def sliced(argument: Any, dims: Any, index: int) -> Any:
        if isinstance(argument, Tensor):
            return argument if dims is None else argument.select(dims, index)
        if isinstance(argument, list | tuple) and dims is not None:
            return [sliced(each, dim, index) for each, dim in zip(argument, dims, strict=True)]
        return argument

    found = [
        attention(*(sliced(argument, dims, index) for argument, dims in zip(arguments, in_dims, strict=True)))
        for index in range(info.batch_size)
    ]
    return tuple(torch.stack(outputs) for outputs in zip(*found, strict=True)), (0, 0, 0)
