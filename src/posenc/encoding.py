"""The five places where a position encoding enters a transformer: one base class a place.

To add a scheme is to subclass the class of its place and write its one function:

* `Absolute.vectors(coordinates)`: position -> vector, added to the embeddings
* `RotaryEncoding.frequencies()`: angle = position * frequency, turning queries and keys
* `BiasEncoding.bias(relative)`: relative position -> a number per head, added to the logits
* `ContentEncoding.parts(relative)`: relative position -> a vector that meets the query (or joins the values)
* `Conditional.neighbourhood(x)`: neighbourhood -> vector, added to the embeddings

Evaluated at positions, an encoding of the middle three gives a `Term`, which every layer of a model can share.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from posenc.foreign import ForeignState, take_over
from posenc.layout import Device, Positions
from posenc.relative import Relative, relative_to
from posenc.term import Term

__all__ = [
    "Encoding",
    "arithmetic_dtype",
    "axis_names",
    "deal",
    "exact_arithmetic",
    "require_axes",
    "require_device",
    "require_heads",
    "require_pair",
    "require_positions",
    "require_real",
]


This = TypeVar("This", bound="Encoding")


class Encoding(nn.Module):
    """A scheme's parameters and its function of position.

    A scheme of your own subclasses the class of its place, and sets `axes`, the coordinates that it reads (1 by
    default), and `num_heads`, where each head has numbers of its own.
    """

    place: ClassVar[str]
    axes: int = 1
    """Number of coordinates of a token that it reads."""
    num_heads: int | None = None
    """Number of heads that the encoding has numbers for, or None where any number share them."""
    foreign: ClassVar[Mapping[str, Callable[[Any, ForeignState], dict[str, Tensor]]]] = {}
    """Where trained numbers may come from: source -> what turns its state into this module's, beside the scheme."""

    def check(self, relative: Relative) -> None:
        """Raise where the encoding cannot serve these positions."""

    def wanted_positions(self) -> str:
        """What makes positions for it, for messages."""
        return "posenc.sequence(length)" if self.axes == 1 else f"posenc.grid({axis_names(self.axes)})"

    def term(
        self,
        positions: Positions,
        key_positions: Positions | None = None,
        *,
        device: Device = None,
        dtype: torch.dtype = torch.float32,
    ) -> Term:
        """The encoding evaluated at the positions of queries and keys, for every layer of a model to share.

        `dtype` is that of the arithmetic: float32, or float64 for a model in float64. A term with gradients lives for
        one backward pass.
        """
        require_positions(positions)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise TypeError(f"dtype must be a real dtype, got {dtype}: attention wants torch.float32, or torch.float64")
        relative = relative_to(positions, positions if key_positions is None else key_positions)
        require_axes(self, relative.queries)
        self.check(relative)
        with exact_arithmetic(device):
            return self._evaluate(relative, device, dtype)

    def load_foreign(self: This, state: Mapping[str, Tensor], source: str, prefix: str = "") -> This:
        """Take over numbers that another library trained: their order, sign and shape are turned into ours.

        `state` holds tensors by the names that `source` saves them under, after `prefix`; other names are left alone.

        Raises ValueError for a source that this scheme does not know, a name that is missing, a shape or an option that
        does not fit this encoding, and numbers that are not finite here; TypeError for what are no real numbers.
        Nothing is written then.
        """
        take_over(self, self.foreign, state, source, prefix)
        return self

    def _evaluate(self, relative: Relative, device: Device, dtype: torch.dtype) -> Term:
        raise TypeError(f"{type(self).__name__} must be of one of the places: subclass posenc.BiasEncoding, or another")


def arithmetic_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which attention and its terms compute: float64 for float64, float32 for all narrower."""
    return torch.promote_types(dtype, torch.float32)


def exact_arithmetic(device: Device) -> AbstractContextManager[object]:
    """Arithmetic in the dtypes that are written: what autocast would narrow is position, and stays exact."""
    kind = torch.empty(0, device=device).device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def deal(total: int, axes: int) -> list[int]:
    """Shares of `total` for each axis, as even as they go, earlier axes first.

    >>> deal(7, 3)
    [3, 2, 2]
    """
    return [total // axes + (axis < total % axes) for axis in range(axes)]


def require_positions(positions: object) -> None:
    """Raise TypeError for anything but a layout."""
    if not isinstance(positions, Positions):
        raise TypeError(
            f"positions must be made by posenc.sequence, grid, packed, padded, multimodal or coordinates, "
            f"got {type(positions).__name__}: wrap numbers in posenc.coordinates"
        )


def require_axes(encoding: Encoding, positions: Positions) -> None:
    """Raise ValueError where positions have another number of axes than the encoding."""
    if positions.axes != encoding.axes:
        raise ValueError(
            f"{type(encoding).__name__} was made for positions with {_count(encoding.axes)}, "
            f"got {_count(positions.axes)}: pass positions={encoding.wanted_positions()}, "
            f"or an encoding for {_count(positions.axes)}"
        )


def require_device(encoding: Encoding, x: Tensor) -> None:
    """Raise ValueError where an encoding's numbers are on another device than what it is applied to."""
    for tensor in (*encoding.parameters(), *encoding.buffers()):
        if tensor.device != x.device:
            name, there = type(encoding).__name__, str(x.device)
            raise ValueError(f"{name} is on {tensor.device}, got tensors on {there}: move it with .to({there!r})")


def require_real(name: str, x: object) -> None:
    """Raise TypeError for anything but a tensor of real numbers."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(x).__name__}: convert it with torch.as_tensor")
    if not x.is_floating_point():
        raise TypeError(f"{name} must be a real tensor, got {x.dtype}: convert it to float32 or bfloat16")


def require_heads(name: str, x: Tensor, head_dim: int, scheme: str, num_heads: int | None = None) -> None:
    """Raise where a tensor is not [batch, heads, tokens, head_dim] for an encoding."""
    require_real(name, x)
    if x.ndim != 4 or x.shape[-1] != head_dim:
        raise ValueError(
            f"{name} must be [batch, heads, tokens, {head_dim}] for this {scheme}, got shape {tuple(x.shape)}: "
            f"make the {scheme} with head_dim={x.shape[-1] if x.ndim else 1}, or reshape {name}"
        )
    if num_heads is not None and x.shape[1] != num_heads:
        raise ValueError(
            f"{scheme} was made for {num_heads} heads, got {x.shape[1]} in {name}: make it with num_heads={x.shape[1]}"
        )


def require_pair(q: Tensor, k: Tensor) -> None:
    """Raise where queries and keys are not of one device, dtype and batch, or their heads do not go together."""
    about = [f"{x.dtype} {tuple(x.shape)} on {x.device}" for x in (q, k)]
    if k.device != q.device or k.dtype != q.dtype or k.shape[0] != q.shape[0]:
        raise ValueError(f"q and k must be of one device, dtype and batch, got {about[0]}, {about[1]}: convert one")
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"heads of k must divide those of q, got {k.shape[1]} and {q.shape[1]}: group the queries evenly"
        )


def _count(axes: int) -> str:
    return "1 axis" if axes == 1 else f"{axes} axes"


def axis_names(axes: int) -> str:
    """What a grid of so many axes is called with, for messages."""
    return {2: "height, width", 3: "frames, height, width"}.get(axes, ", ".join("abcdefgh"[:axes]))
