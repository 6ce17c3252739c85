"""Inner products of vectors by relative position with queries and keys, and vectors that join the values."""

from collections.abc import Callable
from math import prod
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from posenc.relative import Relative
from posenc.term.base import Term
from posenc.term.reading import reader
from posenc.term.rotation import repeated

__all__ = ["Content", "Part"]


class Part(NamedTuple):
    """One table of a content scheme: on a `side`, along an `axis`, rows of vectors, and relative position -> row."""

    side: Literal["query", "key", "value"]
    axis: int | None
    """The axis whose relative position `row` takes; None where it takes those of all axes, `[b, i, j, n]`."""
    table: Float[Tensor, "#b #h rows d"]
    row: Callable[[Int[Tensor, "b i j *n"]], Int[Tensor, "b i j"]]
    future: float = 0.0
    """In place of the product where a key is ahead of its query on the axis; -inf where the table has no row for it."""
    added: Float[Tensor, "1 #h 1 d"] | None = None
    """Added to the query (or the key) before the product. What joins the values has neither of these two."""


class Content(Term):
    """Vectors by relative position: their inner products with queries and keys, and those that join the values."""

    kind = "content"

    def __init__(
        self,
        relative: Relative,
        parts: list[Part],
        *,
        scaled: bool = True,
        heads: int | None = None,
        head_dim: int | None = None,
        causal: bool = False,
        scale_factor: float = 1.0,
    ) -> None:
        """`scaled`: whether the logits are multiplied by the scale of attention, as q k is."""
        super().__init__(
            relative,
            heads=heads,
            head_dim=head_dim,
            causal=causal,
            hides=any(part.future == -torch.inf for part in parts),
            scale_factor=scale_factor,
        )
        for part in parts:
            if part.side not in ("query", "key", "value"):
                raise ValueError(f"side must be query, key or value, got {part.side!r}: it says what the vectors meet")
            if part.side == "value" and (part.future or part.added is not None):
                raise ValueError("vectors that join the values have no future and nothing added, got one: leave it out")
        self.parts, self.scaled = parts, scaled
        self.joins_values = any(part.side == "value" for part in parts)

    @property
    def form(self) -> str:
        if self.relative.box is None or type(self) is not Content:  # a term of one's own may meet them in another way
            return "other"
        if self._is_sparse:
            return "sparse rows"
        return "key rows" if any(part.side == "key" for part in self.parts) else "rows"

    @property
    def _is_sparse(self) -> bool:
        """Whether the box has far more lags than there are pairs, so that no part is made a table over all of them."""
        box = self.relative.box or ()
        lags = max(prod(box) if part.axis is None else box[part.axis] for part in self.parts)
        return lags > self.relative.queries.length * self.relative.keys.length + 2**16

    def tensors(self) -> list[Tensor]:
        added = [part.added for part in self.parts if part.added is not None]
        return [*(part.table for part in self.parts), *added]

    def logits(
        self,
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b g j d"] | None = None,
        product: Float[Tensor, "b h i j"] | None = None,
        allowed: Bool[Tensor, "#b #h #i #j"] | None = None,
    ) -> Float[Tensor, "b h i j"]:
        """q_i . r(i - j) + k_j . r(i - j), unscaled; 0 for prefix tokens.

        Memory is tokens x rows and queries x keys, never x d. `product`, the scaled q k of attention, and `allowed`,
        who sees whom, are for schemes that read them.
        """
        prefix_query, prefix_key = self.relative.queries.prefix, self.relative.keys.prefix
        q = q[..., prefix_query:, :]
        total = q.new_zeros(*q.shape[:-1], self.relative.keys.length - prefix_key)
        for part in self.parts:
            if part.side == "value":
                continue
            if part.side == "query":
                met = self._meet(part, q, self._rows(part, q.device))
            else:
                if k is None:
                    raise ValueError("these logits meet the keys too, got no keys: pass k=")
                keys = repeated(k, q.shape[1])[..., prefix_key:, :]
                met = self._meet(part, keys, self._rows(part, q.device).mT).mT
            if part.future:
                assert part.axis is not None
                ahead = self.relative.along(part.axis, q.device) < 0
                met = met.masked_fill(ahead[:, None], part.future)
            total = total + met
        return F.pad(total, (prefix_key, 0, prefix_query, 0))

    def score_mod(
        self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b g j d"], scale: float = 1.0
    ) -> Callable[..., Tensor]:
        """The logits times `scale`, as a `score_mod` for `torch.nn.attention.flex_attention`.

        The products of every token with every row are made here, `[b, h, tokens, rows]`; a pair reads those of its row.
        """
        code_query, code_key, coded = self._coded_rows(q.device)
        code_of_query, code_of_key = reader(code_query), reader(code_key)
        reads: list[tuple[bool, Tensor | None, Callable[..., Tensor], Callable[..., Tensor]]] = []
        for part, rows in zip(self.parts, coded, strict=True):
            if part.side != "value":
                x = q if part.side == "query" else repeated(k, q.shape[1])
                table = F.pad(part.table, (0, 0, 1, 0))  # row 0 is nothing's
                by_row = ((x if part.added is None else x + part.added) * scale) @ table.mT
                future = by_row.new_full((), part.future) * scale if part.future else None
                reads.append((part.side == "query", future, reader(by_row), reader(rows)))

        def add_products(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            code = code_of_query(b, i) + code_of_key(b, j)
            total = torch.zeros_like(score)
            for meets_query, future, product, row_of in reads:
                row = row_of(b, code)
                met = product(b, h, i if meets_query else j, row if future is None else row.clamp(min=0))
                total = total + (met if future is None else torch.where(row < 0, future, met))
            return score + total

        return add_products

    def _coded_rows(self, device: torch.device) -> tuple[Int[Tensor, "#b i"], Int[Tensor, "#b j"], list[Tensor]]:
        """One code a token, and the row of each part that a pair reads, by the sum of its two codes: `[b, sums]`.

        Rows are counted from 1. Pairs with a prefix token read 0, and those whose key is ahead, where there is no row
        for them, -1. Codes are those of the box; without one, or with a sparse one, they
        count the pairs.
        """
        queries, keys = self.relative.queries, self.relative.keys
        around: tuple[int, ...]
        if self.relative.box is None or self._is_sparse:
            code_query = torch.arange(queries.length, device=device)[None] * keys.length
            code_key = torch.arange(keys.length, device=device)[None]
            lags, around = self.relative.pairs(device), (keys.prefix, 0, queries.prefix, 0)
        else:  # prefix tokens have codes as in Bias.table
            code_query, code_key = self.relative.codes(device)
            lags = self.relative.lag_table(device)[:, None]
            count = lags.shape[2]
            code_query = F.pad(code_query - (2 * count - 1), (queries.prefix, 0)) + (2 * count - 1)
            code_key = F.pad(code_key - 2 * count, (keys.prefix, 0)) + 2 * count
            around = (0, 3 * count if queries.prefix or keys.prefix else 0)
        coded = []
        for part in self.parts:
            own = lags if part.axis is None else lags[..., part.axis]
            rows = part.row(own).clamp(0, part.table.shape[-2] - 1) + 1  # lags that no pair has may have no row
            rows = rows.masked_fill(own < 0, -1) if part.future else rows
            coded.append(F.pad(rows, around).flatten(1).int())
        return code_query, code_key, coded

    def values(self, weights: Float[Tensor, "b h i j"]) -> Float[Tensor, "b h i d"] | None:
        """sum_j a_ij r(i - j): the weights are summed by row first, so that no vector a pair is built."""
        prefix_query, prefix_key = self.relative.queries.prefix, self.relative.keys.prefix
        weights = weights[..., prefix_query:, prefix_key:]
        total: Any = None
        for part in self.parts:
            if part.side == "value":
                rows = self._rows(part, weights.device)
                by_row = weights.new_zeros(*weights.shape[:-1], part.table.shape[-2])
                output = by_row.scatter_add(-1, _for_heads(rows, weights), weights) @ part.table
                total = output if total is None else total + output
        return None if total is None else F.pad(total, (0, 0, prefix_query, 0))

    def _rows(self, part: Part, device: torch.device) -> Tensor:
        """The row of every pair, `[b, i, j]`."""
        relative = self.relative
        return part.row(relative.pairs(device) if part.axis is None else relative.along(part.axis, device))

    def _meet(self, part: Part, x: Tensor, rows: Tensor) -> Tensor:
        """The product of every token with the row of every pair, from its products with every row."""
        by_row = (x if part.added is None else x + part.added) @ part.table.mT  # [b, h, tokens, rows]
        return by_row.gather(-1, _for_heads(rows, by_row))


def _for_heads(rows: Tensor, like: Tensor) -> Tensor:
    return rows[:, None].expand(*like.shape[:2], -1, -1)
