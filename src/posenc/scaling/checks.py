"""Checks of numbers and flags by the standard library alone; NumPy's are taken over, strings and tensors are not."""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

__all__ = ["flag", "listed", "number", "positive", "whole"]


def number(name: str, value: Any) -> float:
    """A finite real number; True is none."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}: pass an int or a float")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise ValueError(f"{name} must be finite, got {found}: pass a finite number")
    return found


def positive(name: str, value: Any) -> float:
    """A number of more than 0 that can be divided by and multiplied."""
    found = number(name, value)
    if found <= 0:
        raise ValueError(f"{name} must be more than 0, got {found:g}: pass a positive number")
    if not 1e-100 <= found <= 1e100:
        raise ValueError(f"{name} must be from 1e-100 to 1e100, got {found:g}: pass a number that floats can invert")
    return found


def whole(name: str, value: Any, least: int, what: str) -> int:
    """A whole number of at least `least`; `what` says in the message which to pass."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}: {what}")
    found = int(value)
    if found < least:
        raise ValueError(f"{name} must be {least} or more, got {found}: {what}")
    if found > 2**62:
        raise ValueError(f"{name} must fit in 62 bits, got {found}: {what}")
    return found


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if type(value).__name__ not in ("bool", "bool_"):  # NumPy's has one of these names too
        raise TypeError(f"{name} must be True or False, got {value!r}: pass one of them")
    return bool(value)


def listed(name: str, values: Any, advice: str) -> list[Any]:
    """The items of a list, a tuple or an array of one axis; sets have no order, and tensors belong to a device."""
    array = hasattr(values, "__array_interface__") and values.ndim == 1
    if not array and (not isinstance(values, Sequence) or isinstance(values, str | bytes)):
        raise TypeError(f"{name} must be a list of numbers, got {values!r}: {advice}")
    return list(values)
