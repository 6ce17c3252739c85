"""The place in attention where a number is added to a logit."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from posenc.encoding import Encoding, arithmetic_dtype
from posenc.layout import Device, Positions
from posenc.relative import Relative
from posenc.term import Bias

__all__ = ["BiasEncoding"]


class BiasEncoding(Encoding):
    """A function relative position -> a number per head, added to the logits: s_ij + b_h(i - j).

    Subclasses write `bias(relative)` and set `num_heads`, and `axes` where a token has more than one coordinate.
    """

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
