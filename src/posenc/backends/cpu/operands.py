"""What the custom operators take: tensors that may have gradients, tensors that have none, and whole numbers.

A custom operator takes flat lists, so a `Problem` is written into them, and read back where the kernel is called. The
whole numbers say how many tensors of which meaning follow; they depend on no size, so that a compiled model makes one
graph for all lengths.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.encoding import exact_arithmetic
from posenc.mask import Visibility
from posenc.plan import Problem
from posenc.relative import Relative
from posenc.term import Bias, Content, Part, Rotation

__all__ = ["Operands", "written"]

TABLE, PAIRS, ROWS = 0, 1, {"query": 2, "key": 3, "value": 4}


class Operands(NamedTuple):
    """A problem without q, k, v and its scale."""

    numbers: list[Tensor]
    """Tables, rows and prefix numbers, in the dtype of the arithmetic."""
    places: list[Tensor]
    """Codes, rows of codes, cosines and sines, orders, documents and masks."""
    program: list[int]


class _Writer:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.numbers: list[Tensor] = []
        self.places: list[Tensor] = []
        self.program: list[int] = []
        self.device = problem.q.device
        self.batch, self.heads = problem.q.shape[:2]

    def bias(self, term: Bias) -> None:
        kind = TABLE if term.is_table else PAIRS
        prefix = term.prefix_values
        self.program += [kind, prefix is not None, 0]
        if kind == TABLE:
            self.numbers.append(self._each(term.values))
            self._codes(term.relative, None)
        else:
            queries, keys = (side.length - side.prefix for side in (term.relative.queries, term.relative.keys))
            whole = queries if term.values.shape[2] == 1 else -1, keys if term.values.shape[3] == 1 else -1
            values = term.values.expand(-1, -1, *whole)
            if torch.is_grad_enabled() and values.requires_grad:
                values = values.expand(self.batch, self.heads, -1, -1).contiguous()
            self.numbers.append(values)
        if prefix is not None:
            self.numbers.append(prefix.contiguous())

    def table(self, relative: Relative, axis: int | None, values: Tensor) -> None:
        """A table that a content term makes: `[#b, #h, codes]`."""
        self.program += [TABLE, 0, 0]
        self.numbers.append(self._each(values))
        self._codes(relative, axis)

    def part(self, term: Content, part: Part) -> None:
        relative, axis = term.relative, part.axis
        lags = relative.lag_table(self.device) if axis is None else relative.lags(axis, self.device)
        rows = part.row(lags[:, None])[:, 0]  # of every code
        if rows.is_floating_point() or rows.dtype == torch.bool or rows.shape[-1] != lags.shape[1]:
            raise ValueError(
                f"a part must have one whole row for each of {lags.shape[1]} relative positions, got "
                f"{list(rows.shape)} in {rows.dtype}: let its row function keep the shape"
            )
        rows = rows.masked_fill((rows < 0) | (rows >= part.table.shape[-2]), -1)  # a box may be larger than the table
        rows = rows.masked_fill(lags < 0, 0) if part.future else rows
        table, scaled = part.table, term.scaled and part.side != "value"
        ahead = lags < 0 if part.future and not self._sees_no_future() else None
        if ahead is not None and part.future != -torch.inf:  # these pairs have a number, and no row
            rows, table = rows.masked_fill(ahead, table.shape[-2]), F.pad(table, (0, 0, 0, 1))
        meets_added = part.side == "query" and part.added is not None
        self.program += [ROWS[part.side], meets_added, scaled]
        self.numbers.append(self._each(table))
        self._codes(relative, axis)
        self.places.append(rows.int().contiguous())
        if part.added is not None and part.side == "query":
            self.numbers.append(self._added(part.added))
        elif part.added is not None:  # (k + a) . r = k . r + a . r, the second a number by relative position
            with exact_arithmetic(self.device):
                met = (self._added(part.added)[None, :, None] @ table.mT).squeeze(-2)
            met = met.expand(max(met.shape[0], rows.shape[0]), -1, -1)
            met = met.gather(-1, rows.clamp(min=0)[:, None].expand(*met.shape[:2], -1))
            self.table(relative, axis, met * self.problem.scale if scaled else met)
        if ahead is not None:
            number = part.future * self.problem.scale if scaled else part.future
            self.table(relative, axis, torch.zeros_like(ahead, dtype=table.dtype).masked_fill(ahead, number)[:, None])

    def rotation(self, term: Rotation) -> None:
        self.program.append(term.layout == "interleaved")
        self.places += [turn.contiguous() for turn in (*term.query, *term.key)]

    def visibility(self, seen: Visibility) -> None:
        ordered = seen.causal or seen.window is not None
        documents = seen.documents(self.device)
        present, mask = seen.keys.present(self.device), seen.mask
        window = -1 if seen.window is None else seen.window
        said = [ordered, documents is not None, present is not None, seen.key_mask is not None, mask is not None]
        self.program += [seen.causal, window, *said]
        if ordered:
            self.places += [order.long().contiguous() for order in seen.orders(self.device)]
        if documents is not None:
            self.places += [document.contiguous() for document in _whole(*documents)]
        self.places += [given.contiguous() for given in (present, seen.key_mask) if given is not None]
        if mask is not None:
            q, k = self.problem.q, self.problem.k
            self.places.append(mask.expand(*q.shape[:3], k.shape[2]))

    def _added(self, added: Tensor) -> Tensor:
        """What is added to the queries (or the keys) of each head, `[#h, d]`."""
        channels = self.problem.q.shape[-1]
        fits = added.ndim == 4 and added.shape[0] == added.shape[2] == 1
        if not fits or (added.shape[3] != 1 and added.shape[3] != channels):
            raise ValueError(
                f"what a part adds must be [1, 1 or heads, 1, {channels}], got {list(added.shape)}: it is one vector "
                "for all rows and tokens, as wide as q"
            )
        return added[0, :, 0].expand(-1, channels).contiguous()

    def _each(self, table: Tensor) -> Tensor:
        """A table of each batch row is one of each head too. One that does not fit is refused where it is read."""
        spread = table.shape[0] != 1 and table.shape[1] == 1
        return (table.expand(-1, self.heads, *table.shape[2:]) if spread else table).contiguous()

    def _codes(self, relative: Relative, axis: int | None) -> None:
        self.places += relative.short_codes(self.device, axis)

    def _sees_no_future(self) -> bool:
        """Whether what is ahead on the axis is hidden anyway, as its order says the same."""
        seen = self.problem.visibility
        return seen.kind == "causal" and seen.queries.axes == 1 and seen.queries.shape is not None


def _whole(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Documents as whole numbers: real ones by their place among all."""
    if not queries.is_floating_point() and not keys.is_floating_point():
        return queries.long(), keys.long()
    rows = max(queries.shape[0], keys.shape[0])
    both = torch.cat([queries.expand(rows, -1), keys.expand(rows, -1)], -1)
    place = torch.searchsorted(both.sort(-1).values, both)
    return place[:, : queries.shape[1]], place[:, queries.shape[1] :]


def written(problem: Problem) -> Operands:
    """The operands of a problem."""
    writer = _Writer(problem)
    terms, seen = problem.terms, problem.visibility
    layout = (terms[0] if terms else problem.rotations[0]).relative if terms or problem.rotations else None
    prefixes = (layout.queries.prefix, layout.keys.prefix) if layout is not None else (0, 0)
    hidden = seen.kind != "all" or any(term.hides for term in terms)
    writer.program += [*prefixes, hidden, len(problem.rotations), seen.kind != "all"]
    for rotation in problem.rotations:
        writer.rotation(rotation)
    if seen.kind != "all":
        writer.visibility(seen)
    for term in terms:
        if isinstance(term, Bias):
            writer.bias(term)
        elif isinstance(term, Content):
            for part in term.parts:
                writer.part(term, part)
    numbers, places = ([_in_memory(x) for x in each] for each in (writer.numbers, writer.places))
    return Operands(numbers, places, [int(number) for number in writer.program])


def _in_memory(x: Tensor) -> Tensor:
    """The same, with numbers where it had none: torch hands lists of lazily zero tensors on as they are."""
    return x.clone() if not torch.compiler.is_compiling() and x._is_zerotensor() else x
