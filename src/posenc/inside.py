"""The three places inside attention: turn queries and keys, add numbers to the logits, meet the query with vectors."""

from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from posenc.encoding import (
    Encoding,
    arithmetic_dtype,
    require_axes,
    require_device,
    require_heads,
    require_positions,
)
from posenc.layout import Device, Positions
from posenc.relative import Relative
from posenc.term import Bias, Content, Part, Rotation

__all__ = ["BiasEncoding", "ContentEncoding", "RotaryEncoding"]


class RotaryEncoding(Encoding):
    """Frequencies, one an axis and a pair of channels: pairs turn by angle = position * frequency."""

    place = "rotary"
    head_dim: int
    layout: Literal["half", "interleaved"] = "half"

    by_length: bool = False
    """Whether the frequencies depend on the length of the sequence."""
    attention_factor: float = 1.0
    """What cosines and sines are multiplied by."""
    precision: Literal["exact", "float32"] = "exact"
    """Float64 angles, or float32 ones as checkpoints were trained with."""

    def frequencies(self, length: Shaped[Tensor, "#b #l"] | None = None, device: Device = None) -> Float[Tensor, "..."]:
        """Radians a unit of position, in float64: the one function of a rotary scheme.

        `[axes, pairs]`, or `[heads, axes, pairs]`; where they depend on the `length` of each token's sequence,
        `[b, l, axes, pairs]`.
        """
        raise TypeError(f"{type(self).__name__} must define frequencies(length, device)")

    def cos_sin(
        self,
        positions: Positions,
        *,
        length: Shaped[Tensor, "#b #l"] | None = None,
        device: Device = None,
        dtype: torch.dtype = torch.float32,
    ) -> tuple[Float[Tensor, "b h l pairs"], Float[Tensor, "b h l pairs"]]:
        """Cosines and sines of the tokens after the prefix; angles are float64 until they are taken.

        `length`, for schemes whose frequencies depend on it: that of the sequence that each token is part of. By
        default these positions are the whole sequence, up to the largest one.
        """
        require_positions(positions)
        require_axes(self, positions)
        if self.by_length and length is None:
            length, _ = Relative(positions).lengths(device)
        coordinates = positions.coordinates(device).double()
        coordinates = coordinates if coordinates.ndim == 3 else coordinates[None]
        frequencies = self.frequencies(length if self.by_length else None, coordinates.device)
        if frequencies.ndim == 4:  # [b, l, axes, pairs]
            frequencies = frequencies[:, None]
        else:  # [heads or 1, 1, axes, pairs]
            frequencies = (frequencies if frequencies.ndim == 3 else frequencies[None])[:, None]
        if self.precision == "float32":
            coordinates, frequencies = coordinates.float(), frequencies.float()
        angles = (coordinates[:, None, :, :, None] * frequencies).sum(-2)  # [b, h, l, pairs]
        cos, sin = angles.cos(), angles.sin()
        if self.attention_factor != 1.0:
            cos, sin = cos * self.attention_factor, sin * self.attention_factor
        return cos.to(dtype), sin.to(dtype)

    def _turns(
        self, relative: Relative, device: Device, dtype: torch.dtype
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Cosines and sines of queries and keys, which are of one sequence."""
        lengths = relative.lengths(device) if self.by_length else (None, None)
        query = self.cos_sin(relative.queries, length=lengths[0], device=device, dtype=dtype)
        if relative.keys is relative.queries:
            return query, query
        return query, self.cos_sin(relative.keys, length=lengths[1], device=device, dtype=dtype)

    def _evaluate(self, relative: Relative, device: Device, dtype: torch.dtype) -> Rotation:
        query, key = self._turns(relative, device, dtype)
        return Rotation(relative, query, key, self.layout, heads=self.num_heads, head_dim=self.head_dim)

    def forward(
        self,
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b g j d"],
        positions: Positions | None = None,
        key_positions: Positions | None = None,
    ) -> tuple[Float[Tensor, "b h i d"], Float[Tensor, "b _ j d"]]:
        """Rotated queries and keys. Positions are understood as in `attention`.

        Where each head turns in its own way, keys come back with as many heads as the queries.
        """
        for name, x in (("q", q), ("k", k)):
            require_heads(name, x, self.head_dim, type(self).__name__, self.num_heads if name == "q" else None)
            require_device(self, x)
        if k.device != q.device or k.dtype != q.dtype or k.shape[0] != q.shape[0]:
            raise ValueError(f"q and k must be of one device, dtype and batch, got {_about(q)}, {_about(k)}")
        relative = Relative.of(q.shape[-2], k.shape[-2], positions, key_positions)
        relative.require_batch(q.shape[0])
        term = self.term(relative.queries, relative.keys, device=q.device, dtype=arithmetic_dtype(q.dtype))
        assert isinstance(term, Rotation)
        return term.apart(q, k)


class BiasEncoding(Encoding):
    """A function relative position -> a number per head, added to the logits: s_ij + b_h(i - j)."""

    place = "bias"
    reads_query: bool = False
    """Whether the numbers depend on the query's position too: then `bias_from` is the one function."""
    hides: bool = False
    """Whether a number may be minus infinity: such pairs are not attended to."""

    def bias_from(
        self, relative: Shaped[Tensor, "b i j n"], query: Shaped[Tensor, "b i 1 n"]
    ) -> Float[Tensor, "h b i j"]:
        """The numbers of pairs, from their relative positions and the queries' own."""
        return self.bias(relative)

    def bias(self, relative: Shaped[Tensor, "*b n"]) -> Float[Tensor, "h *b"]:
        """The numbers at relative positions, heads first: the one function of a bias scheme."""
        raise TypeError(f"{type(self).__name__} must define bias(relative)")

    def prefix_values(self) -> Float[Tensor, "h 3"] | None:
        """Numbers for pairs with a prefix token, or None where nothing is added to them."""
        return None

    def _evaluate(self, relative: Relative, device: Device, dtype: torch.dtype) -> Bias:
        pairwise = relative.box is None or self.reads_query
        positions = relative.pairs(device) if pairwise else relative.lag_table(device)
        if self.reads_query:
            query = relative.queries.coordinates(device)
            values = self.bias_from(positions, (query if query.ndim == 3 else query[None])[:, :, None])
        else:
            values = self.bias(positions)
        own, function = self.prefix_values(), "bias_from" if self.reads_query else "bias"
        if values.shape[1:] != positions.shape[:-1]:
            raise ValueError(
                f"{type(self).__name__}.{function} must return [heads, ...] for relative positions [..., axes], got "
                f"shape {tuple(values.shape)} for {tuple(positions.shape)}: put the heads first, one if they share it"
            )
        values = values.movedim(0, 1).to(dtype)
        own = None if own is None else own.to(dtype)
        return Bias(relative, values, own, heads=self.num_heads, hides=self.hides)

    def forward(
        self, positions: Positions, key_positions: Positions | None = None
    ) -> Float[Tensor, "h i j"] | Float[Tensor, "b h i j"]:
        """The bias of every pair, `[heads, Lq, Lk]`, after a batch axis where rows stand at different places."""
        parameter = next(self.parameters(), None)
        dtype = torch.get_default_dtype() if parameter is None else parameter.dtype
        device = None if parameter is None else parameter.device
        term = self.term(positions, key_positions, device=device, dtype=arithmetic_dtype(dtype))
        assert isinstance(term, Bias)
        dense = term.dense().to(dtype)
        return dense[0] if term.relative.batch is None else dense


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
            keys, k = k.shape[-2], k.to(dtype)
        else:
            layout = key_positions or positions
            keys = q.shape[-2] if layout is None else layout.length
        relative = Relative.of(q.shape[-2], keys, positions, key_positions)
        relative.require_batch(q.shape[0])
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
        output = self._content(relative, weights.device, dtype).values(weights.to(dtype))
        if output is None:
            raise TypeError(f"{type(self).__name__} adds nothing to the values: use its logits alone")
        return output.to(weights.dtype)

    def _content(self, relative: Relative, device: Device, dtype: torch.dtype) -> Content:
        term = self.term(relative.queries, relative.keys, device=device, dtype=dtype)
        assert isinstance(term, Content)
        return term


def _about(x: Tensor) -> str:
    return f"{x.dtype} {tuple(x.shape)} on {x.device}"
