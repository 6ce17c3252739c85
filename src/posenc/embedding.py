"""The two places on embeddings: an absolute encoding adds p(i) to them, a conditional one f(x around i)."""

from typing import NoReturn

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from posenc.encoding import (
    Encoding,
    arithmetic_dtype,
    axis_names,
    exact_arithmetic,
    require_axes,
    require_device,
    require_positions,
    require_real,
)
from posenc.layout import Positions
from posenc.positions import sequence
from posenc.relative import Relative

__all__ = ["Absolute", "Conditional"]


class _OnEmbeddings(Encoding):
    """What absolute and conditional encodings share: `[batch, tokens, dim]` in and out, prefix tokens kept apart."""

    dim: int

    def term(self, *positions: object, **options: object) -> NoReturn:
        """There is none: raises TypeError."""
        raise TypeError(
            f"{type(self).__name__} acts on embeddings and has no term: "
            "apply it to them before attention, as in x = encoding(x)"
        )

    def default_positions(self, length: int) -> Positions:
        """The layout of `length` tokens where none is given."""
        if self.axes == 1:
            return sequence(length)
        raise ValueError(
            f"{type(self).__name__} for {self.axes} axes needs positions, got none: "
            f"pass posenc.grid({axis_names(self.axes)})"
        )

    def _layout(self, x: Tensor, positions: Positions | None) -> Positions:
        name = type(self).__name__
        if isinstance(x, Tensor) and not x.is_floating_point():
            raise TypeError(f"x must be real embeddings, got {x.dtype}: embed the tokens first")
        require_real("x", x)
        if x.ndim != 3 or x.shape[-1] != self.dim:
            raise ValueError(
                f"x must be [batch, tokens, {self.dim}] for {name}({self.dim}), got shape {tuple(x.shape)}: "
                "make the encoding as wide as the embeddings, batch first"
            )
        if positions is None:
            positions = self.default_positions(x.shape[1])
        require_positions(positions)
        require_axes(self, positions)
        if positions.length != x.shape[1]:
            raise ValueError(
                f"positions must cover the {x.shape[1]} tokens of x, got {positions.length}: "
                "count prefix tokens with prefix="
            )
        relative = Relative(positions)
        relative.require_batch(x.shape[0])
        require_device(self, x)
        self.check(relative)
        return positions


class Absolute(_OnEmbeddings):
    """A function position -> vector, added to the embeddings: x_i + p(i)."""

    place = "absolute"

    def vectors(self, coordinates: Shaped[Tensor, "*b l n"]) -> Float[Tensor, "*b l dim"]:
        """The vectors at coordinates: the one function of an absolute scheme."""
        raise TypeError(f"{type(self).__name__} must define vectors(coordinates)")

    def prefix_vectors(self) -> Float[Tensor, "prefix dim"] | None:
        """Vectors of prefix tokens of its own, or None where they stay as they are."""
        return None

    def forward(self, x: Float[Tensor, "b l dim"], positions: Positions | None = None) -> Float[Tensor, "b l dim"]:
        """x with the vectors of its positions added, same shape and dtype."""
        positions = self._layout(x, positions)
        dtype = arithmetic_dtype(x.dtype)
        prefix, tokens = x[:, : positions.prefix], x[:, positions.prefix :]
        with exact_arithmetic(x.device):
            vectors = self.vectors(positions.coordinates(x.device)).to(dtype)
        tokens = (tokens.to(dtype) + vectors).to(x.dtype)
        if not positions.prefix:
            return tokens
        own = self.prefix_vectors()
        return torch.cat([prefix if own is None else (prefix.to(dtype) + own.to(dtype)).to(x.dtype), tokens], 1)


class Conditional(_OnEmbeddings):
    """A function neighbourhood -> vector, added to the embeddings: x + f(x around i)."""

    place = "conditional"

    def neighbourhood(self, x: Float[Tensor, "b dim *shape"]) -> Float[Tensor, "b dim *shape"]:
        """The vectors of a grid of embeddings: the one function of a conditional scheme."""
        raise TypeError(f"{type(self).__name__} must define neighbourhood(x)")

    def forward(self, x: Float[Tensor, "b l dim"], positions: Positions | None = None) -> Float[Tensor, "b l dim"]:
        """x with the vectors of each token's neighbourhood added, same shape and dtype; prefix tokens are not seen."""
        positions = self._layout(x, positions)
        if positions.shape is None:
            raise ValueError(
                f"{type(self).__name__} needs tokens that fill a grid, got {positions!r}: pass posenc.grid(...)"
            )
        prefix, tokens = x[:, : positions.prefix], x[:, positions.prefix :]
        if tokens.numel():
            dtype = arithmetic_dtype(x.dtype)
            cells = tokens.mT.reshape(x.shape[0], self.dim, *positions.shape)
            tokens = (tokens.to(dtype) + self.neighbourhood(cells).flatten(2).mT.to(dtype)).to(x.dtype)
        return torch.cat([prefix, tokens], 1) if positions.prefix else tokens
