"""The structures of `problem.h`, field by field."""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from posenc import kernels

__all__ = ["DTYPES", "Attention", "Rotary", "Rotation", "Strided", "Term", "Visibility", "call", "strided"]

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}


def _numbers(*names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_int64) for name in names]


def _pointers(*names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_void_p) for name in names]


class Strided(ctypes.Structure):
    """`struct Tensor`."""

    _fields_ = [*_pointers("data"), *_numbers("batch", "head", "token", "channel")]


class Rotation(ctypes.Structure):
    """`struct Rotation`."""

    _fields_ = [
        *_pointers("query_cos", "query_sin", "key_cos", "key_sin"),
        *_numbers("query_batch", "query_head", "key_batch", "key_head", "pairs", "interleaved"),
    ]


class Term(ctypes.Structure):
    """`struct Term`."""

    _fields_ = [
        *_numbers("kind"),
        *_pointers("table", "gradient"),
        *_numbers("batch", "head", "query", "key", "rows", "codes"),
        *_pointers("query_code", "key_code", "row"),
        *_numbers("query_code_batch", "key_code_batch", "row_batch"),
        *_pointers("prefix", "prefix_gradient"),
        *_numbers("prefix_head"),
        *_pointers("added", "added_gradient"),
        *_numbers("added_head", "scaled"),
    ]


class Visibility(ctypes.Structure):
    """`struct Visibility`."""

    _fields_ = [
        *_numbers("causal", "window"),
        *_pointers("query_order", "key_order", "query_document", "key_document"),
        *_numbers("query_order_batch", "key_order_batch", "query_document_batch", "key_document_batch"),
        *_pointers("present", "key_mask"),
        *_numbers("present_batch", "key_mask_batch", "key_mask_key"),
        *_pointers("mask"),
        *_numbers("mask_batch", "mask_head", "mask_query", "mask_key"),
    ]


class Attention(ctypes.Structure):
    """`struct Attention`."""

    _fields_ = [
        *_numbers("dtype", "threads"),
        *_numbers("batch", "heads", "groups", "queries", "keys", "channels", "value_channels"),
        *_numbers("query_prefix", "key_prefix"),
        ("scale", ctypes.c_double),
        *_numbers("blind_is_zero"),
        *[(name, Strided) for name in ("q", "k", "v", "out")],
        *_pointers("lse", "exact", "rotation", "terms"),
        *_numbers("term_count"),
        *_pointers("visibility"),
        *[(name, Strided) for name in ("out_gradient", "q_gradient", "k_gradient", "v_gradient")],
    ]


class Rotary(ctypes.Structure):
    """`struct Rotary`."""

    _fields_ = [
        *_numbers("dtype", "threads"),
        *_numbers("batch", "heads", "tokens", "channels", "prefix", "pairs", "interleaved", "backwards"),
        *[(name, Strided) for name in ("x", "out")],
        *_pointers("cos", "sin"),
        *_numbers("turn_batch", "turn_head"),
    ]


def strided(x: torch.Tensor) -> Strided:
    """A tensor [batch, heads, tokens, channels], as it lies."""
    return Strided(x.data_ptr(), *x.stride())


@cache
def function(name: str) -> Callable[..., int]:
    """A function of the library, which reads the same structures as this module writes.

    Raises RuntimeError where the library is of other sources.
    """
    size = kernels.library().posenc_size
    size.argtypes, size.restype = [ctypes.c_int64], ctypes.c_int64
    for which, structure in enumerate((Strided, Rotation, Term, Visibility, Attention, Rotary)):
        if size(which) != ctypes.sizeof(structure):
            raise RuntimeError(
                f"the CPU kernel must read {structure.__name__} as {ctypes.sizeof(structure)} bytes, "
                f"got a library that reads {size(which)}: install posenc again"
            )
    return kernels.function(name)


def call(name: str, problem: Any) -> None:
    """Run a function of the library; raise where it says that it could not. `problem`: a structure, or its bytes."""
    address = problem if isinstance(problem, bytes) else ctypes.addressof(problem)
    code = function(name)(address)
    if code == 1:
        raise MemoryError(f"the CPU kernel had no memory for its tiles of {name}: use fewer tokens, or fewer threads")
    if code == 2:
        raise ValueError("positions must lie inside their extent, got one outside: make the layout with a larger one")
    if code == 3:
        raise ValueError(
            "every relative position must have a row of its table, got one that has none: make the table larger, "
            "or the positions nearer to each other"
        )
