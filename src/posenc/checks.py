"""Checks of what a caller gives, on the host wherever the numbers can be read there."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["assert_on_device", "flag", "readable", "real", "sizes", "whole"]


def whole(name: str, value: Any, least: int = 0) -> int:
    """A whole number of at least `least`, also where it is NumPy's; True is none, and neither is 2.0."""
    if isinstance(value, bool | np.bool_ | Tensor | np.ndarray) or not (
        isinstance(value, int | torch.SymInt) or hasattr(value, "__index__")
    ):
        raise TypeError(f"{name} must be an integer, got {value!r}: pass a whole number")
    number: Any = value if isinstance(value, int | torch.SymInt) else value.__index__()
    if number < least:
        raise ValueError(f"{name} must be {least} or more, got {number}: pass a larger number")
    if isinstance(number, int) and number > 2**62:
        raise ValueError(f"{name} must fit in 62 bits, got {number}: pass a smaller number")
    whole_number: int = number
    return whole_number


def real(name: str, value: Any, advice: str = "pass an int or a float") -> float:
    """A finite real number, also where it is NumPy's; True is none."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | torch.SymFloat | torch.SymInt):
        raise TypeError(f"{name} must be a number, got {value!r}: {advice}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not -math.inf < number < math.inf:
        raise ValueError(f"{name} must be finite, got {number}: {advice}")
    return number


def flag(name: str, value: Any) -> bool:
    """True or False; a string that says "no" is true to Python, and is refused here."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}: pass one of them")
    return bool(value)


def sizes(name: str, shape: Any) -> tuple[int, ...]:
    """One whole number of 1 or more for each axis; a number alone is one axis."""
    given = shape if isinstance(shape, Sequence) and not isinstance(shape, str | bytes) else (shape,)
    if not given:
        raise ValueError(f"{name} needs one size of 1 or more an axis, got {tuple(given)}: pass (height, width)")
    return tuple(whole(f"each size of {name}", size, 1) for size in given)


def readable(tensor: Tensor) -> bool:
    """Whether numbers can be read from a tensor on the host without waiting for a device or breaking a graph."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def assert_on_device(condition: Tensor, message: str) -> None:
    """Raise `message` where the condition is False, on the device, without a synchronisation."""
    torch._assert_async(condition, message)
