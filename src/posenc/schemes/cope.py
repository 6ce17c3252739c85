"""Contextual position: how many of the keys between a key and its query count, as the query itself sees them."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from posenc.checks import flag, whole
from posenc.foreign import ForeignState
from posenc.inside import ContentEncoding
from posenc.layout import Device
from posenc.mask import Visibility
from posenc.relative import Relative
from posenc.term import Content, repeated

__all__ = ["CoPE"]


class CoPE(ContentEncoding):
    """A query counts the keys back to each key, every one by a gate of its own, and meets a vector of that count.

    `s_ij = q_i . k_j / sqrt(d) + q_i . e[p_ij]`, `p_ij = min(sum_(k = j)^i g_ik, max_position - 1)`,
    `g_ik = sigmoid(q_i . k_k / sqrt(d))`; between whole counts, `e[p]` lies on the line between its two neighbours.

    As in the paper's listing, the gates see the scaled logits with the mask applied (a key that is not attended to
    counts for nothing), the position's logits are not scaled, and *counts beyond the last row are clamped to it*: the
    scheme's own rule, not a limit of this code. For decoders: attention must be causal. Keys are counted in the order
    of the tokens; where they stand matters no further. The plain call needs the keys, and counts what causal attention
    without a mask of the caller's own would see.

    Trained: `table` e, `[heads or 1, max_position, head_dim]`.

    Args:
        head_dim: channels of a head.
        max_position: number of rows, at least 1: counts 0 to max_position - 1; 64 in the paper's language models.
        num_heads: separate vectors for each of so many heads; None shares them, as the paper does.
        scaled: multiply these logits by the scale of attention, as the authors' released code does by default.

    `load_foreign` reads "x_transformers" (`pos_emb`, `[rows, d]`) and "cope" (the authors', `[1, d, rows]`).

    >>> q = k = torch.randn(2, 8, 10, 64)
    >>> posenc.CoPE(64, max_position=16)(q, k=k).shape
    torch.Size([2, 8, 10, 10])

    Golovneva et al., Contextual Position Encoding, 2024, arXiv:2405.18719.
    """

    meets_keys = True
    causal = True

    def __init__(
        self, head_dim: int, max_position: int = 64, num_heads: int | None = None, scaled: bool = False
    ) -> None:
        super().__init__()
        self.head_dim, self.max_position = whole("head_dim", head_dim, 1), whole("max_position", max_position, 1)
        self.num_heads = None if num_heads is None else whole("num_heads", num_heads, 1)
        self.scaled = flag("scaled", scaled)
        self.table = nn.Parameter(torch.empty(self.num_heads or 1, self.max_position, self.head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        nn.init.trunc_normal_(self.table, std=self.head_dim**-0.5)

    def _evaluate(self, relative: Relative, device: Device, dtype: torch.dtype) -> Content:
        table = self.table.to(dtype)[None]
        return _Counts(relative, table, scaled=self.scaled, heads=self.num_heads, head_dim=self.head_dim)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, {self.max_position}, num_heads={self.num_heads}, scaled={self.scaled}"

    def _from_x_transformers(self, state: ForeignState) -> dict[str, Tensor]:
        state.without("talking_heads.weight", "heads that mix before they count")
        state.without("positions", "a soft choice of rows")
        return {"table": state["pos_emb"][None]}

    def _from_cope(self, state: ForeignState) -> dict[str, Tensor]:
        return {"table": state["pos_emb"].transpose(-2, -1)}

    foreign: ClassVar = {"x_transformers": _from_x_transformers, "cope": _from_cope}


class _Counts(Content):
    """The table of CoPE, and its logits, which depend on queries and keys alone."""

    kind = "contextual"
    reads_product = True

    def __init__(
        self,
        relative: Relative,
        table: Float[Tensor, "1 #h rows d"],
        *,
        scaled: bool,
        heads: int | None,
        head_dim: int,
    ) -> None:
        super().__init__(relative, [], scaled=scaled, heads=heads, head_dim=head_dim, causal=True)
        self.table = table

    def tensors(self) -> list[Tensor]:
        return [self.table]

    def logits(
        self,
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b g j d"] | None = None,
        product: Float[Tensor, "b h i j"] | None = None,
        allowed: Bool[Tensor, "#b #h #i #j"] | None = None,
    ) -> Float[Tensor, "b h i j"]:
        """q_i . e[p_ij], unscaled; 0 for prefix tokens, which nobody counts."""
        queries, keys = self.relative.queries, self.relative.keys
        if product is None:
            if k is None:
                raise ValueError("CoPE's gates meet the keys, got no keys: pass k=")
            product = q @ repeated(k, q.shape[1]).mT * q.shape[-1] ** -0.5
        if allowed is None:
            allowed = Visibility(queries, keys, causal=True).allowed(q.device)
            assert allowed is not None
        gates = product.sigmoid().masked_fill(~allowed, 0.0)[..., queries.prefix :, keys.prefix :]
        counts = self._counted(gates).clamp(max=self.table.shape[-2] - 1)
        by_row = q[..., queries.prefix :, :] @ self.table.mT  # [b, h, i, rows]
        below, above = counts.floor(), counts.ceil()
        share = counts - below
        logits = by_row.gather(-1, above.long()) * share + by_row.gather(-1, below.long()) * (1 - share)
        return F.pad(logits, (keys.prefix, 0, queries.prefix, 0))

    def _counted(self, gates: Float[Tensor, "b h i j"]) -> Float[Tensor, "b h i j"]:
        """The sum of each key's gate and of those after it, in the order of the keys."""
        keys = self.relative.keys
        if keys.ordered:
            return gates.flip(-1).cumsum(-1).flip(-1)
        order = keys.order(gates.device)[..., keys.prefix :]  # [j] or [b, j]
        latest_first = order.argsort(stable=True, dim=-1, descending=True)
        place = latest_first.argsort(-1)
        if order.ndim == 2:
            latest_first, place = latest_first[:, None, None], place[:, None, None]
        sums = gates.gather(-1, latest_first.expand_as(gates)).cumsum(-1)
        return sums.gather(-1, place.expand_as(gates))
