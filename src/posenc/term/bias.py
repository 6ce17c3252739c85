"""Numbers added to the logits."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from posenc.relative import Relative
from posenc.term.base import Term
from posenc.term.reading import reader

__all__ = ["Bias"]


class Bias(Term):
    """Numbers added to the logits: a table over the box of lags, `[b, h, entries]`, or one a pair, `[b, h, i, j]`."""

    kind = "bias"

    def __init__(
        self,
        relative: Relative,
        values: Float[Tensor, "b h entries"] | Float[Tensor, "b h i j"],
        prefix_values: Float[Tensor, "h 3"] | None = None,
        *,
        heads: int | None = None,
        hides: bool = False,
    ) -> None:
        """`prefix_values`: from a prefix query to a token, from a token to a prefix key, between prefix tokens."""
        super().__init__(relative, heads=heads, hides=hides)
        self.values, self.prefix_values = values, prefix_values

    def tensors(self) -> list[Tensor]:
        return [self.values] if self.prefix_values is None else [self.values, self.prefix_values]

    @property
    def form(self) -> str:
        if type(self) is not Bias:  # a term of one's own may say its numbers in another way
            return "other"
        return "table" if self.is_table else "pairs"

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

    @property
    def is_table(self) -> bool:
        """Whether there is a number a lag, and not one a pair."""
        return self.values.ndim == 3

    def dense(self) -> Float[Tensor, "b h i j"]:
        """The bias of every pair."""
        if not self.is_table:
            return self._framed()
        table, code_query, code_key = self.table()
        index = code_query[:, :, None] + code_key[:, None, :]
        batch = max(table.shape[0], index.shape[0])
        flat = index.flatten(1)[:, None].expand(batch, table.shape[1], -1)
        return table.expand(batch, -1, -1).gather(-1, flat).reshape(batch, table.shape[1], *index.shape[1:])

    @property
    def score_mod(self) -> Callable[..., Tensor]:
        """The bias as a `score_mod` for `torch.nn.attention.flex_attention`."""
        if not self.is_table:
            number = reader(self._framed())

            def add_pair(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                return score + number(b, h, i, j)

            return add_pair
        entry, code_of_query, code_of_key = (reader(tensor) for tensor in self.table())

        def add_entry(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + entry(b, h, code_of_query(b, i) + code_of_key(b, j))

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
