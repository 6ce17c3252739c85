"""The place in attention where pairs of channels of queries and keys turn."""

from collections.abc import Sequence as SequenceOf
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from posenc.checks import whole
from posenc.encoding import (
    Encoding,
    arithmetic_dtype,
    require_axes,
    require_device,
    require_heads,
    require_pair,
    require_positions,
)
from posenc.layout import Device, Positions
from posenc.relative import Relative
from posenc.scaling import Scaling
from posenc.sinusoid import require_base
from posenc.term import Rotation

__all__ = ["RotaryEncoding"]


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

    def _set_turning(
        self,
        head_dim: int,
        base: float,
        layout: Literal["half", "interleaved"],
        *,
        rotary_dim: int | None = None,
        partial: bool = False,
        precision: Literal["exact", "float32"] = "exact",
    ) -> int:
        """Check and keep what rotary schemes are made with; the number of pairs. `partial`: a part may turn alone."""
        head_dim = whole("head_dim", head_dim, 2)
        width = head_dim if rotary_dim is None else whole("rotary_dim", rotary_dim, 2)
        if rotary_dim is None and head_dim % 2:
            advice = f"pass rotary_dim={head_dim - 1} to rotate part of it" if partial else f"pass {head_dim - 1}"
            raise ValueError(f"head_dim must be even for rotary, got {head_dim}: {advice}")
        if width % 2 or width > head_dim:
            raise ValueError(
                f"rotary_dim must be even and from 2 to head_dim = {head_dim}, got {width}: "
                f"pass rotary_dim={min(width, head_dim) // 2 * 2}"
            )
        if layout not in ("half", "interleaved"):
            raise ValueError(
                f"layout must be 'half' (Llama) or 'interleaved' (GPT-J), got {layout!r}: pass one of them"
            )
        if precision not in ("exact", "float32"):
            raise ValueError(f"precision must be 'exact' or 'float32', got {precision!r}: pass one of them")
        require_base(base)
        self.head_dim, self.rotary_dim, self.base = head_dim, width, float(base)
        self.layout, self.precision = layout, precision
        return width // 2

    def _set_scaling(self, scaling: Scaling | None, shares: SequenceOf[int]) -> None:
        """Check and keep a scaling, which changes the frequencies of each of these numbers of pairs."""
        self.scaling = scaling
        if scaling is None:
            return
        if not isinstance(scaling, Scaling):
            raise TypeError(f"scaling must be made by posenc.scaling, got {scaling!r}: pass scaling.linear(4)")
        for pairs in shares:
            scaling.multipliers(self.base, pairs)  # raises here, not in the first step, where it does not fit
        self.by_length, self.attention_factor = scaling.by_length, scaling.attention_factor

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
        return self._ready(q, k, positions, key_positions).apart(q, k)

    def rotate_(
        self,
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b g j d"],
        positions: Positions | None = None,
        key_positions: Positions | None = None,
    ) -> tuple[Float[Tensor, "b h i d"], Float[Tensor, "b g j d"]]:
        """The plain call where q and k lie, for inference: the same two tensors, which hold what it returns.

        Raises ValueError where q, k or the frequencies require gradients that are enabled; where a tensor is expanded,
        or q and k share memory; and where heads turn differently and k has fewer of them than q.

        >>> q, k = torch.randn(2, 1, 4, 12, 16)
        >>> rotary = posenc.Rotary(16)
        >>> turned = rotary(q, k)
        >>> rotary.rotate_(q, k)[0] is q and torch.equal(q, turned[0])
        True
        """
        return self._ready(q, k, positions, key_positions).apart_(q, k)

    def _ready(self, q: Tensor, k: Tensor, positions: Positions | None, key_positions: Positions | None) -> Rotation:
        for name, x in (("q", q), ("k", k)):
            require_heads(name, x, self.head_dim, type(self).__name__, self.num_heads if name == "q" else None)
            require_device(self, x)
        require_pair(q, k)
        relative = Relative.of(q.shape[-2], k.shape[-2], positions, key_positions)
        relative.require_batch(q.shape[0])
        term = self.term(relative.queries, relative.keys, device=q.device, dtype=arithmetic_dtype(q.dtype))
        assert isinstance(term, Rotation)
        return term
