"""What an encoding is once its positions are known: the numbers that attention needs, and nothing of the scheme.

A `Rotation` turns queries and keys, a `Bias` adds numbers to the logits, a `Content` adds inner products with the
queries (and may add vectors to the values). Tensors have explicit batch and head axes, of size 1 where shared.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from posenc.relative import Relative

__all__ = ["Bias", "Content", "Part", "Rotation", "Term"]


class Term:
    """Base of the three terms. `heads` and `head_dim` are None where any number will do."""

    kind: ClassVar[str]
    joins_values: bool = False
    """Whether it adds vectors to the output besides its part in the logits."""

    def __init__(
        self, relative: Relative, *, heads: int | None = None, head_dim: int | None = None, causal: bool = False
    ) -> None:
        self.relative, self.heads, self.head_dim, self.causal = relative, heads, head_dim, causal

    def tensors(self) -> list[Tensor]:
        """The tensors that hold the term's numbers."""
        return []

    def __repr__(self) -> str:
        queries, keys = self.relative.queries.length, self.relative.keys.length
        return f"{type(self).__name__}(queries={queries}, keys={keys})"


class Rotation(Term):
    """Pairs of channels of queries and keys turned by an angle that depends on where they stand."""

    kind = "rotation"

    def __init__(
        self,
        relative: Relative,
        query: tuple[Float[Tensor, "#b #h i pairs"], Float[Tensor, "#b #h i pairs"]],
        key: tuple[Float[Tensor, "#b #h j pairs"], Float[Tensor, "#b #h j pairs"]],
        layout: Literal["half", "interleaved"],
        *,
        heads: int | None = None,
        head_dim: int | None = None,
    ) -> None:
        super().__init__(relative, heads=heads, head_dim=head_dim)
        self.query, self.key, self.layout = query, key, layout

    def tensors(self) -> list[Tensor]:
        return [*self.query, *self.key]

    def rotate(
        self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b g j d"]
    ) -> tuple[Float[Tensor, "b h i d"], Float[Tensor, "b g j d"]]:
        """Rotated queries and keys, in their own dtype."""
        prefix = self.relative.queries.prefix, self.relative.keys.prefix
        return _rotate(q, *self.query, prefix[0], self.layout), _rotate(k, *self.key, prefix[1], self.layout)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, prefix: int, layout: str) -> Tensor:
    width = 2 * cos.shape[-1]
    turned = x[..., prefix:, :width].to(torch.promote_types(x.dtype, cos.dtype))
    # (a, b) -> (a cos - b sin, b cos + a sin)
    if layout == "half":
        a, b = turned.chunk(2, -1)
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    else:
        a, b = turned.reshape(*turned.shape[:-1], width // 2, 2).unbind(-1)
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    turned = turned.to(x.dtype)
    if width < x.shape[-1]:
        turned = torch.cat([turned, x[..., prefix:, width:]], -1)
    return torch.cat([x[..., :prefix, :], turned], -2) if prefix else turned


class Bias(Term):
    """Numbers added to the logits: a table over the box of lags, or one a pair where there is no box."""

    kind = "bias"

    def __init__(
        self,
        relative: Relative,
        values: Float[Tensor, "b h entries"] | Float[Tensor, "b h i j"],
        prefix_values: Float[Tensor, "h 3"] | None = None,
        *,
        heads: int | None = None,
    ) -> None:
        """`prefix_values`: from a prefix query to a token, from a token to a prefix key, between prefix tokens."""
        super().__init__(relative, heads=heads)
        self.values, self.prefix_values = values, prefix_values

    def tensors(self) -> list[Tensor]:
        return [self.values] if self.prefix_values is None else [self.values, self.prefix_values]

    def table(self) -> tuple[Float[Tensor, "#b h entries"], Int[Tensor, "#b i"], Int[Tensor, "#b j"]]:
        """A table and one code a token, prefix included: the pair (i, j) adds `table[code_query[i] + code_key[j]]`.

        With T lags, a prefix query has code 2T - 1 and a prefix key 2T, so that their sums fall into three further
        runs of T equal entries: prefix to token, token to prefix, and prefix to prefix.
        """
        queries, keys = self.relative.queries, self.relative.keys
        code_query, code_key = self.relative.codes(self.values.device)
        if self.prefix_values is None and not queries.prefix and not keys.prefix:
            return self.values, code_query, code_key
        lags = self.values.shape[-1]
        code_query = F.pad(code_query - (2 * lags - 1), (queries.prefix, 0)) + (2 * lags - 1)
        code_key = F.pad(code_key - 2 * lags, (keys.prefix, 0)) + 2 * lags
        runs = self._prefix_numbers()[None, :, :, None].expand(self.values.shape[0], -1, -1, lags).flatten(2)
        return torch.cat([self.values, runs], -1), code_query, code_key

    def dense(self) -> Float[Tensor, "b h i j"]:
        """The bias of every pair."""
        if self.relative.box is None:
            return self._framed()
        table, code_query, code_key = self.table()
        index = code_query[:, :, None] + code_key[:, None, :]
        batch = max(table.shape[0], index.shape[0])
        flat = index.flatten(1)[:, None].expand(batch, table.shape[1], -1)
        return table.expand(batch, -1, -1).gather(-1, flat).reshape(batch, table.shape[1], *index.shape[1:])

    @property
    def score_mod(self) -> Callable[..., Tensor]:
        """The bias as a `score_mod` for `torch.nn.attention.flex_attention`."""
        if self.relative.box is None:
            dense = self._framed()

            def add_pair(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                return score + dense[_shared(b, dense), h, i, j]

            return add_pair
        table, code_query, code_key = (tensor.contiguous() for tensor in self.table())

        def add_entry(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            entry = code_query[_shared(b, code_query), i] + code_key[_shared(b, code_key), j]
            return score + table[_shared(b, table), h, entry]

        return add_entry

    def _framed(self) -> Tensor:
        prefix_query, prefix_key = self.relative.queries.prefix, self.relative.keys.prefix
        if self.prefix_values is None and not prefix_query and not prefix_key:
            return self.values
        batch, heads, queries, keys = self.values.shape
        runs = self._prefix_numbers()[None, :, :, None].expand(batch, -1, -1, 1)
        to_token, from_token, between = (runs[:, :, [kind]] for kind in range(3))
        above = torch.cat(
            [
                between.expand(batch, heads, prefix_query, prefix_key),
                to_token.expand(batch, heads, prefix_query, keys),
            ],
            -1,
        )
        return torch.cat(
            [above, torch.cat([from_token.expand(batch, heads, queries, prefix_key), self.values], -1)], -2
        )

    def _prefix_numbers(self) -> Tensor:
        return self.values.new_zeros(self.values.shape[1], 3) if self.prefix_values is None else self.prefix_values


def _shared(b: Tensor, tensor: Tensor) -> Tensor | int:
    return b if tensor.shape[0] > 1 else 0


class Part(NamedTuple):
    """One table of a content scheme: on a `side`, along an `axis`, rows of vectors, and relative position -> row."""

    side: Literal["query", "value"]
    axis: int
    table: Float[Tensor, "#b #h rows d"]
    row: Callable[[Int[Tensor, "b i j"]], Int[Tensor, "b i j"]]
    future: float = 0.0  # added where a key is ahead of its query; -inf where the table has no row for it


class Content(Term):
    """Vectors by relative position: their inner products with the queries, and those that join the values."""

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
    ) -> None:
        """`scaled`: whether the logits are multiplied by the scale of attention, as q k is."""
        super().__init__(relative, heads=heads, head_dim=head_dim, causal=causal)
        self.parts, self.scaled = parts, scaled
        self.joins_values = any(part.side == "value" for part in parts)

    def tensors(self) -> list[Tensor]:
        return [part.table for part in self.parts]

    def logits(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i j"]:
        """q_i . r(i - j), unscaled; 0 for prefix tokens. Memory is queries x rows and queries x keys, never x d."""
        prefix_query, prefix_key = self.relative.queries.prefix, self.relative.keys.prefix
        q = q[..., prefix_query:, :]
        total = q.new_zeros(*q.shape[:-1], self.relative.keys.length - prefix_key)
        for part in self.parts:
            if part.side == "query":
                lags = self.relative.along(part.axis, q.device)
                by_row = q @ part.table.mT  # [b, h, i, rows]
                total = total + by_row.gather(-1, _for_heads(part.row(lags), by_row))
                if part.future:
                    total = total.masked_fill((lags < 0)[:, None], part.future)
        return F.pad(total, (prefix_key, 0, prefix_query, 0))

    def values(self, weights: Float[Tensor, "b h i j"]) -> Float[Tensor, "b h i d"] | None:
        """sum_j a_ij r(i - j): the weights are summed by row first, so that no vector a pair is built."""
        prefix_query, prefix_key = self.relative.queries.prefix, self.relative.keys.prefix
        weights = weights[..., prefix_query:, prefix_key:]
        total: Any = None
        for part in self.parts:
            if part.side == "value":
                rows = part.row(self.relative.along(part.axis, weights.device))
                by_row = weights.new_zeros(*weights.shape[:-1], part.table.shape[-2])
                output = by_row.scatter_add(-1, _for_heads(rows, weights), weights) @ part.table
                total = output if total is None else total + output
        return None if total is None else F.pad(total, (0, 0, prefix_query, 0))


def _for_heads(rows: Tensor, like: Tensor) -> Tensor:
    return rows[:, None].expand(*like.shape[:2], -1, -1)
