"""What else looks at a call: transforms of torch, and dispatch modes."""

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = ["traced", "transformed", "unwatched"]


def transformed() -> bool:
    """Whether torch.func (vmap, grad, jvp) or forward-mode differentiation is at work: kernels have no rule for it."""
    return forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None


# asked while a compiled function is traced, which enters its transforms; as torch.compiler.assume_constant_result does,
# without importing the compiler
transformed._dynamo_marked_constant = True  # type: ignore[attr-defined]


def traced() -> bool:
    """Whether torch records its own operators, and nothing else, for another runtime."""
    return torch.compiler.is_exporting() or bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


def unwatched(*tensors: Tensor) -> bool:
    """Whether a kernel may be called without torch's dispatcher: no trace, mode or subclass wants to see it, and each
    tensor has memory that says what it is (not so one that is lazily negative, or lazily zero)."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._len_torch_dispatch_stack() == 0
        and all(type(x) in (Tensor, torch.nn.Parameter) and x.data_ptr() and not x.is_neg() for x in tensors)
        and not traced()
    )
