"""What else looks at a call: transforms of torch, and dispatch modes."""

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = ["transformed", "unwatched"]


def transformed() -> bool:
    """Whether torch.func (vmap, grad, jvp) or forward-mode differentiation is at work, which kernels have no rule for."""
    if torch.compiler.is_compiling():
        return False
    return forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None


def unwatched(*tensors: Tensor) -> bool:
    """Whether a kernel may be called without torch's dispatcher: nothing is traced, no mode or subclass sees the call."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._len_torch_dispatch_stack() == 0
        and all(type(tensor) in (Tensor, torch.nn.Parameter) for tensor in tensors)
        and not torch.jit.is_tracing()
    )
