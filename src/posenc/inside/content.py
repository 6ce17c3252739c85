"""The place in attention where vectors by relative position meet queries, keys and values."""

import torch
from jaxtyping import Float
from torch import Tensor

from posenc.encoding import (
    Encoding,
    arithmetic_dtype,
    exact_arithmetic,
    require_device,
    require_heads,
    require_pair,
)
from posenc.layout import Device, Positions
from posenc.relative import Relative
from posenc.term import Content, Part

__all__ = ["ContentEncoding"]


class ContentEncoding(Encoding):
    """A function relative position -> vector that meets the query: s_ij + q_i . r(i - j)."""

    place = "content"
    head_dim: int
    scaled: bool = True
    """Whether attention multiplies these logits by its scale, as it does q k."""
    causal: bool = False
    """Whether there are vectors only for keys that are not ahead of the query."""
    meets_keys: bool = False
    """Whether the logits depend on the keys too."""
    scale_factor: float = 1.0
    """What attention's default scale is multiplied by, for all logits."""

    def parts(self, relative: Relative, device: Device = None) -> list[Part]:
        """Tables of vectors, each with its relative position -> row: the one function of a content scheme."""
        raise TypeError(f"{type(self).__name__} must define parts(relative)")

    def _evaluate(self, relative: Relative, device: Device, dtype: torch.dtype) -> Content:
        parts = [
            part._replace(table=part.table.to(dtype), added=None if part.added is None else part.added.to(dtype))
            for part in self.parts(relative, device)
        ]
        return Content(
            relative,
            parts,
            scaled=self.scaled,
            heads=self.num_heads,
            head_dim=self.head_dim,
            causal=self.causal,
            scale_factor=self.scale_factor,
        )

    def forward(
        self,
        q: Float[Tensor, "b h i d"],
        positions: Positions | None = None,
        key_positions: Positions | None = None,
        *,
        k: Float[Tensor, "b g j d"] | None = None,
    ) -> Float[Tensor, "b h i j"]:
        """The logits q_i . r(i - j), unscaled, in q's dtype; `k` is for schemes that meet the keys too."""
        name = type(self).__name__
        require_heads("q", q, self.head_dim, name, self.num_heads)
        if self.meets_keys != (k is not None):
            raise TypeError(
                f"{name} meets the keys too, got none: pass k="
                if self.meets_keys
                else f"{name} meets the queries alone, got keys: leave k out"
            )
        require_device(self, q)
        dtype = arithmetic_dtype(q.dtype)
        if k is not None:
            require_heads("k", k, self.head_dim, name)
            require_pair(q, k)
            keys, k = k.shape[-2], k.to(dtype)
        else:
            layout = key_positions or positions
            keys = q.shape[-2] if layout is None else layout.length
        relative = Relative.of(q.shape[-2], keys, positions, key_positions)
        relative.require_batch(q.shape[0])
        with exact_arithmetic(q.device):
            return self._content(relative, q.device, dtype).logits(q.to(dtype), k).to(q.dtype)

    def values(
        self,
        weights: Float[Tensor, "b h i j"],
        positions: Positions | None = None,
        key_positions: Positions | None = None,
    ) -> Float[Tensor, "b h i d"]:
        """What the attention weights add to the output, sum_j a_ij r(i - j), in their dtype."""
        require_heads("weights", weights, weights.shape[-1], type(self).__name__, self.num_heads)
        relative = Relative.of(weights.shape[-2], weights.shape[-1], positions, key_positions)
        relative.require_batch(weights.shape[0])
        require_device(self, weights)
        dtype = arithmetic_dtype(weights.dtype)
        with exact_arithmetic(weights.device):
            output = self._content(relative, weights.device, dtype).values(weights.to(dtype))
        if output is None:
            raise TypeError(f"{type(self).__name__} adds nothing to the values: use its logits alone")
        return output.to(weights.dtype)

    def _content(self, relative: Relative, device: Device, dtype: torch.dtype) -> Content:
        term = self.term(relative.queries, relative.keys, device=device, dtype=dtype)
        assert isinstance(term, Content)
        return term
