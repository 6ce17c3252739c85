"""Operands back into the structures that the library reads."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from posenc.backends.cpu.fit import require_dtype, require_rotation, require_sizes
from posenc.backends.cpu.operands import PAIRS, ROWS, TABLE, Operands
from posenc.kernels import structures

__all__ = ["structured"]


class _Reader:
    """Takes operands in the order in which they were written, and keeps what pointers point to."""

    def __init__(self, operands: Operands, gradients: Sequence[Tensor | None]) -> None:
        self._numbers = zip(operands.numbers, gradients, strict=True)
        self._places, self._program = iter(operands.places), iter(operands.program)
        self.kept: list[Any] = []

    def number(self) -> int:
        return next(self._program)

    def numbers(self) -> tuple[Tensor, int | None]:
        """A tensor of numbers, and the address of its gradient."""
        numbers, gradient = next(self._numbers)
        return numbers, None if gradient is None else gradient.data_ptr()

    def place(self) -> Tensor:
        return next(self._places)

    def row(self) -> tuple[int, int]:
        """Address and batch stride of numbers of tokens."""
        place = self.place()
        return place.data_ptr(), place.stride(0) if place.shape[0] > 1 else 0

    def keep(self, structure: Any) -> int:
        self.kept.append(structure)
        return ctypes.addressof(structure)


def structured(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    exact: Tensor,
    operands: Operands,
    scale: float,
    gradients: Sequence[Tensor | None] = (),
) -> tuple[structures.Attention, list[Any]]:
    """The structure of an attention, and what has to live as long as it; `gradients` are those of the numbers."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    require_dtype(operands.numbers, dtype)
    reader = _Reader(operands, gradients or [None] * len(operands.numbers))
    problem = structures.Attention()
    problem.dtype, problem.threads = structures.DTYPES[q.dtype], torch.get_num_threads()
    problem.batch, problem.heads, problem.queries, problem.channels = q.shape
    problem.groups, problem.keys, problem.value_channels = *k.shape[1:3], v.shape[3]
    problem.scale = scale
    problem.q, problem.k, problem.v, problem.out = (structures.strided(x) for x in (q, k, v, out))
    problem.lse, problem.exact = (x.data_ptr() if x.numel() else None for x in (lse, exact))
    problem.query_prefix, problem.key_prefix, problem.blind_is_zero = (reader.number() for _ in range(3))
    rotates, sees_less = reader.number(), reader.number()
    if rotates:
        problem.rotation = reader.keep(_rotation(reader, problem, dtype))
    if sees_less:
        problem.visibility = reader.keep(_visibility(reader))
    terms = []
    while (kind := next(reader._program, None)) is not None:
        terms.append(_term(reader, kind, problem))
    if terms:
        problem.terms = reader.keep((structures.Term * len(terms))(*terms))
    problem.term_count = len(terms)
    return problem, reader.kept


def _rotation(reader: _Reader, problem: structures.Attention, dtype: torch.dtype) -> structures.Rotation:
    rotation = structures.Rotation()
    rotation.interleaved = reader.number()
    query, query_sin, key, key_sin = (reader.place() for _ in range(4))
    require_rotation(problem, (query, query_sin), (key, key_sin), dtype)
    rotation.query_cos, rotation.query_sin = query.data_ptr(), query_sin.data_ptr()
    rotation.key_cos, rotation.key_sin = key.data_ptr(), key_sin.data_ptr()
    rotation.query_batch, rotation.query_head = _shared(query)
    rotation.key_batch, rotation.key_head = _shared(key)
    rotation.pairs = query.shape[-1]
    return rotation


def _visibility(reader: _Reader) -> structures.Visibility:
    seen = structures.Visibility()
    seen.causal, seen.window = reader.number(), reader.number()
    ordered, documents, present, key_mask, mask = (reader.number() for _ in range(5))
    if ordered:
        seen.query_order, seen.query_order_batch = reader.row()
        seen.key_order, seen.key_order_batch = reader.row()
    if documents:
        seen.query_document, seen.query_document_batch = reader.row()
        seen.key_document, seen.key_document_batch = reader.row()
    if present:
        seen.present, seen.present_batch = reader.row()
    if key_mask:
        given = reader.place()
        seen.key_mask, (seen.key_mask_batch, seen.key_mask_key) = given.data_ptr(), given.stride()
    if mask:
        given = reader.place()
        seen.mask = given.data_ptr()
        seen.mask_batch, seen.mask_head, seen.mask_query, seen.mask_key = given.stride()
    return seen


def _term(reader: _Reader, kind: int, problem: structures.Attention) -> structures.Term:
    term = structures.Term()
    term.kind = kind
    has_more, term.scaled = reader.number(), reader.number()
    table, term.gradient = reader.numbers()
    _require_table(kind, table, problem)
    term.table = table.data_ptr()
    term.batch, term.head = _shared(table)
    if kind == PAIRS:
        term.query, term.key = table.stride()[2:]
    else:
        term.query_code, term.query_code_batch = reader.row()
        term.key_code, term.key_code_batch = reader.row()
        if kind == TABLE:
            term.codes = table.shape[-1]
        else:
            rows = reader.place()
            require_sizes("the rows of relative positions", rows, (1, problem.batch), rows.shape[-1])
            term.rows, term.codes = table.shape[-2], rows.shape[-1]
            term.row, term.row_batch = rows.data_ptr(), rows.stride(0) if rows.shape[0] > 1 else 0
    if has_more:
        more, gradient = reader.numbers()
        width = 3 if kind in (TABLE, PAIRS) else problem.channels
        require_sizes("prefix numbers, or what is added to queries,", more, (1, problem.heads), width)
        address, stride = more.data_ptr(), more.stride(0) if more.shape[0] > 1 else 0
        if kind in (TABLE, PAIRS):
            term.prefix, term.prefix_head, term.prefix_gradient = address, stride, gradient
        else:
            term.added, term.added_head, term.added_gradient = address, stride, gradient
    return term


def _require_table(kind: int, table: Tensor, problem: structures.Attention) -> None:
    heads = (1, problem.batch), (1, problem.heads)
    if kind == TABLE:  # how many codes there are, the library asks
        require_sizes("the table", table, *heads, table.shape[-1])
    elif kind == PAIRS:
        pairs = problem.queries - problem.query_prefix, problem.keys - problem.key_prefix
        require_sizes("the numbers", table, *heads, *pairs)
    else:
        channels = problem.value_channels if kind == ROWS["value"] else problem.channels
        require_sizes("the vectors", table, *heads, table.shape[-2], channels)


def _shared(x: Tensor) -> tuple[int, int]:
    """Strides of batch and heads, 0 where they share."""
    batch, head = x.stride()[:2]
    return batch if x.shape[0] > 1 else 0, head if x.shape[1] > 1 else 0
