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

    def frequencies(self, length: int | None = None, device: Device = None) -> Float[Tensor, "*h n pairs"]:
        """Radians a unit of position, in float64: the one function of a rotary scheme."""
        raise TypeError(f"{type(self).__name__} must define frequencies(length, device)")

    def cos_sin(
        self, positions: Positions, *, device: Device = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "b h l pairs"], Float[Tensor, "b h l pairs"]]:
        """Cosines and sines of the tokens after the prefix; angles are float64 until they are taken."""
        require_positions(positions)
        require_axes(self, positions)
        coordinates = positions.coordinates(device).double()
        coordinates = coordinates if coordinates.ndim == 3 else coordinates[None]
        frequencies = self.frequencies(positions.length, coordinates.device)
        frequencies = frequencies if frequencies.ndim == 3 else frequencies[None]
        angles = (coordinates[:, None, :, :, None] * frequencies[:, None]).sum(-2)  # [b, h, l, pairs]
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def _evaluate(self, relative: Relative, device: Device, dtype: torch.dtype) -> Rotation:
        query = self.cos_sin(relative.queries, device=device, dtype=dtype)
        same = relative.keys is relative.queries
        key = query if same else self.cos_sin(relative.keys, device=device, dtype=dtype)
        return Rotation(relative, query, key, self.layout, heads=self.num_heads, head_dim=self.head_dim)

    def forward(
        self,
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b g j d"],
        positions: Positions | None = None,
        key_positions: Positions | None = None,
    ) -> tuple[Float[Tensor, "b h i d"], Float[Tensor, "b g j d"]]:
        """Rotated queries and keys. Positions are understood as in `attention`."""
        for name, x in (("q", q), ("k", k)):
            require_heads(name, x, self.head_dim, type(self).__name__)
            require_device(self, x)
        if k.device != q.device or k.dtype != q.dtype or k.shape[0] != q.shape[0]:
            raise ValueError(f"q and k must be of one device, dtype and batch, got {_about(q)}, {_about(k)}")
        relative = Relative.of(q.shape[-2], k.shape[-2], positions, key_positions)
        relative.require_batch(q.shape[0])
        term = self.term(relative.queries, relative.keys, device=q.device, dtype=arithmetic_dtype(q.dtype))
        assert isinstance(term, Rotation)
        return term.rotate(q, k)


class BiasEncoding(Encoding):
    """A function relative position -> a number per head, added to the logits: s_ij + b_h(i - j)."""

    place = "bias"

    def bias(self, relative: Shaped[Tensor, "*b n"]) -> Float[Tensor, "h *b"]:
        """The numbers at relative positions, heads first: the one function of a bias scheme."""
        raise TypeError(f"{type(self).__name__} must define bias(relative)")

    def prefix_values(self) -> Float[Tensor, "h 3"] | None:
        """Numbers for pairs with a prefix token, or None where nothing is added to them."""
        return None

    def _evaluate(self, relative: Relative, device: Device, dtype: torch.dtype) -> Bias:
        positions = relative.pairs(device) if relative.box is None else relative.lag_table(device)
        own = self.prefix_values()
        values = self.bias(positions)
        if values.shape[1:] != positions.shape[:-1]:
            raise ValueError(
                f"{type(self).__name__}.bias must return [heads, ...] for relative positions [..., axes], got shape "
                f"{tuple(values.shape)} for {tuple(positions.shape)}: put the heads first, one if they share it"
            )
        values = values.movedim(0, 1).to(dtype)
        return Bias(relative, values, None if own is None else own.to(dtype), heads=self.num_heads)

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

    def parts(self, relative: Relative, device: Device = None) -> list[Part]:
        """Tables of vectors, each with its relative position -> row: the one function of a content scheme."""
        raise TypeError(f"{type(self).__name__} must define parts(relative)")

    def _evaluate(self, relative: Relative, device: Device, dtype: torch.dtype) -> Content:
        parts = [part._replace(table=part.table.to(dtype)) for part in self.parts(relative, device)]
        return Content(
            relative, parts, scaled=self.scaled, heads=self.num_heads, head_dim=self.head_dim, causal=self.causal
        )

    def forward(
        self, q: Float[Tensor, "b h i d"], positions: Positions | None = None, key_positions: Positions | None = None
    ) -> Float[Tensor, "b h i j"]:
        """The logits q_i . r(i - j), unscaled, in q's dtype."""
        require_heads("q", q, self.head_dim, type(self).__name__, self.num_heads)
        keys = key_positions or positions
        relative = Relative.of(q.shape[-2], q.shape[-2] if keys is None else keys.length, positions, key_positions)
        relative.require_batch(q.shape[0])
        require_device(self, q)
        dtype = arithmetic_dtype(q.dtype)
        return self._content(relative, q.device, dtype).logits(q.to(dtype)).to(q.dtype)

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
