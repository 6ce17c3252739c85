"""What the terms share."""

from typing import ClassVar

from torch import Tensor

from posenc.relative import Relative

__all__ = ["Term"]


class Term:
    """Base of the terms. `heads` and `head_dim` are None where any number will do."""

    kind: ClassVar[str]
    joins_values: bool = False
    """Whether it adds vectors to the output besides its part in the logits."""
    reads_product: bool = False
    """Whether its logits depend on the logits of queries and keys, and on who sees whom."""

    def __init__(
        self,
        relative: Relative,
        *,
        heads: int | None = None,
        head_dim: int | None = None,
        causal: bool = False,
        hides: bool = False,
        scale_factor: float = 1.0,
    ) -> None:
        """`causal`: attention must be. `hides`: a logit of minus infinity means that the pair is not attended to.
        `scale_factor`: what attention's default scale is multiplied by."""
        self.relative, self.heads, self.head_dim, self.causal = relative, heads, head_dim, causal
        self.hides, self.scale_factor = hides, scale_factor

    @property
    def form(self) -> str:
        """What its numbers are a function of.

        "table", of a code that is the sum of one of the query and one of the key; "pairs", of the pair; "rows", vectors
        by such a code; "key rows", some of which meet keys; "sparse rows", far more of them than pairs; or "other".
        """
        return "other"

    def tensors(self) -> list[Tensor]:
        """The tensors that hold the term's numbers."""
        return []

    def __repr__(self) -> str:
        queries, keys = self.relative.queries.length, self.relative.keys.length
        return f"{type(self).__name__}(queries={queries}, keys={keys})"
