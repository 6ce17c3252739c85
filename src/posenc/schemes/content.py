"""Content encodings: relative position -> a vector that meets the query, or joins the values."""

from collections.abc import Sequence as SequenceOf
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor, nn

from posenc.checks import flag, sizes, whole
from posenc.foreign import ForeignState
from posenc.inside import ContentEncoding
from posenc.layout import Device
from posenc.relative import Relative
from posenc.sinusoid import require_base, sinusoid
from posenc.term import Part

__all__ = ["RelativeLogits", "Shaw", "SinusoidalLogits"]


class Shaw(ContentEncoding):
    """Trained vectors by relative position, clipped to a largest distance, on keys and on values.

    logits `q_i . (k_j + rK[clip(i - j)])`, output `sum_j a_ij (v_j + rV[clip(i - j)])`; `clip` limits to
    +- max_distance, so that all farther tokens share the border rows. Tables are `[heads or 1, 2 max_distance + 1, d]`,
    ascending in i - j.

    Args:
        head_dim: channels of a head.
        max_distance: largest distance with vectors of its own, in tokens, at least 1.
        num_heads: separate vectors for each of so many heads; None shares them.
        values: vectors on the values too.

    Raises ValueError for a distance below 1, and for real coordinates.

    `load_foreign` reads "wav2vec2_bert" (or "shaw"), one layer's `distance_embedding.weight`, made with
    `values=False`: it may be clipped to the right at less than `max_distance`, then our border rows are all its last;
    and "vits", one layer's `emb_rel_k` and `emb_rel_v`, which add nothing beyond their window where these clip, so the
    two are equal for sequences of up to `max_distance + 1` tokens.

    >>> posenc.Shaw(64, max_distance=4)(torch.randn(2, 8, 10, 64)).shape
    torch.Size([2, 8, 10, 10])

    Shaw et al., Self-Attention with Relative Position Representations, 2018, arXiv:1803.02155.
    """

    def __init__(self, head_dim: int, max_distance: int, num_heads: int | None = None, values: bool = True) -> None:
        super().__init__()
        self.head_dim, self.num_heads = whole("head_dim", head_dim, 1), _heads(num_heads)
        self.max_distance, self.with_values = whole("max_distance", max_distance, 1), flag("values", values)
        size = (self.num_heads or 1, 2 * self.max_distance + 1, self.head_dim)
        self.key_table = nn.Parameter(torch.empty(size))
        if self.with_values:
            self.value_table = nn.Parameter(torch.empty(size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the tables anew."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=self.head_dim**-0.5)

    def check(self, relative: Relative) -> None:
        relative.require_integers("Shaw")

    def parts(self, relative: Relative, device: Device = None) -> list[Part]:
        parts = [Part("query", 0, self.key_table[None], self._row)]
        return [*parts, Part("value", 0, self.value_table[None], self._row)] if self.with_values else parts

    def _row(self, relative: Int[Tensor, "*b"]) -> Int[Tensor, "*b"]:
        return relative.clamp(-self.max_distance, self.max_distance) + self.max_distance

    def extra_repr(self) -> str:
        return f"{self.head_dim}, {self.max_distance}, num_heads={self.num_heads}, values={self.with_values}"

    def _from_wav2vec2_bert(self, state: ForeignState) -> dict[str, Tensor]:
        rows = state["distance_embedding.weight"]  # ascending in key - query, from -left to right
        left, right = self.max_distance, rows.shape[0] - 1 - self.max_distance
        if not 0 <= right <= left:
            raise ValueError(
                f"distance_embedding must have {left + 1} to {2 * left + 1} rows for max_distance={left}, "
                f"got {rows.shape[0]}: make the Shaw with max_distance=left_max_position_embeddings"
            )
        theirs = torch.arange(left, -left - 1, -1, device=rows.device).clamp(max=right)  # key - query
        return {"key_table": rows[theirs + left][None]}

    def _from_vits(self, state: ForeignState) -> dict[str, Tensor]:
        return {"key_table": state["emb_rel_k"].flip(1), "value_table": state["emb_rel_v"].flip(1)}

    foreign: ClassVar = {"shaw": _from_wav2vec2_bert, "wav2vec2_bert": _from_wav2vec2_bert, "vits": _from_vits}


class RelativeLogits(ContentEncoding):
    """Trained vectors by relative position on each axis of a grid, whose logits are summed.

    `q_i . k_j + sum over axes of q_i . r_axis(i - j)`. Tables are `[heads or 1, 2 size - 1, d]`, ascending in i - j.
    With `causal=True`, on one axis, there are vectors for keys that are not ahead of the query alone, `[heads or 1, L,
    d]`, row i - j, and the logits of keys ahead are minus infinity (Music Transformer).

    Args:
        head_dim: channels of a head.
        shape: size of each axis, or a number of tokens for one axis; smaller ones use part of the tables.
        num_heads: separate vectors for each of so many heads; None shares them.
        causal: for decoders; attention must then be causal.
        scaled: multiply these logits by the scale of attention (BoTNet); False adds them as they are (SAM).

    Raises ValueError for relative positions beyond the tables, for real coordinates, and for causal on several axes.

    Queries and keys may be grids of different sizes, the coarser one with a `step`: `grid(7, 7, step=2)` beside
    `grid(14, 14)`, shape the larger of the two. `load_foreign` reads "sam", "vitdet" and "mvitv2" (`rel_pos_h` and
    `rel_pos_w`), "botnet" (timm's `height_rel` and `width_rel`) and "self_attention_cv" (`rel_pos_emb`, one axis).
    MViTv2 counts from its last key: keys pooled by r stand at `r index + r - 1` there, and its tables suit those.

    >>> posenc.RelativeLogits(16, shape=(2, 3))(torch.randn(1, 4, 6, 16), posenc.grid(2, 3)).shape
    torch.Size([1, 4, 6, 6])

    Srinivas et al., BoTNet, 2021, arXiv:2101.11605; Huang et al., Music Transformer, 2018, arXiv:1809.04281;
    Kirillov et al., Segment Anything, 2023, arXiv:2304.02643.
    """

    def __init__(
        self,
        head_dim: int,
        shape: int | SequenceOf[int],
        num_heads: int | None = None,
        causal: bool = False,
        scaled: bool = True,
    ) -> None:
        super().__init__()
        self.shape = sizes("shape", shape)
        self.causal, self.scaled = flag("causal", causal), flag("scaled", scaled)
        if causal and len(self.shape) > 1:
            raise ValueError(f"causal is for one axis, got shape {self.shape}: pass a number of tokens")
        self.head_dim, self.axes, self.num_heads = whole("head_dim", head_dim, 1), len(self.shape), _heads(num_heads)
        rows = [size if causal else 2 * size - 1 for size in self.shape]
        self.tables = nn.ParameterList(
            nn.Parameter(torch.empty(self.num_heads or 1, count, self.head_dim)) for count in rows
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the tables anew."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=self.head_dim**-0.5)

    def check(self, relative: Relative) -> None:
        relative.require_within([size - 1 for size in self.shape], "RelativeLogits", behind=not self.causal)

    def parts(self, relative: Relative, device: Device = None) -> list[Part]:
        if self.causal:
            return [Part("query", 0, self.tables[0][None], lambda lags: lags.clamp(min=0), future=-torch.inf)]
        return [
            Part("query", axis, table[None], partial(torch.add, other=table.shape[1] // 2))
            for axis, table in enumerate(self.tables)
        ]

    def extra_repr(self) -> str:
        return f"{self.head_dim}, {self.shape}, num_heads={self.num_heads}, causal={self.causal}, scaled={self.scaled}"

    def _from_sam(self, state: ForeignState) -> dict[str, Tensor]:
        state.trained_with(self, scaled=False)
        return {f"tables.{axis}": state[f"rel_pos_{letter}"][None] for axis, letter in enumerate("hw")}

    def _from_botnet(self, state: ForeignState) -> dict[str, Tensor]:
        names = "height_rel", "width_rel"  # ascending in key - query
        return {f"tables.{axis}": state[name].flip(0)[None] for axis, name in enumerate(names)}

    def _from_self_attention_cv(self, state: ForeignState) -> dict[str, Tensor]:
        state.trained_with(self, causal=False)
        rows = state["rel_pos_emb"].flip(-2)  # ascending in key - query, [rows, d] or [heads, rows, d]
        return {"tables.0": rows if rows.ndim == 3 else rows[None]}

    foreign: ClassVar = {
        "sam": _from_sam,
        "vitdet": _from_sam,
        "mvitv2": _from_sam,
        "botnet": _from_botnet,
        "self_attention_cv": _from_self_attention_cv,
    }


class SinusoidalLogits(ContentEncoding):
    """Fixed sinusoids of the relative position that meet the query: `q_i . r(i - j)`.

    `r(x)[2c] = sin(x f_c)`, `r(x)[2c + 1] = cos(x f_c)`, `f_c = base ** (-2c / head_dim)`. No parameters.

    Args:
        head_dim: channels of a head; an odd number ends in a sine.
        base: longest wavelength / 2 pi, in tokens; more than 0.

    Raises ValueError for positions without an extent, of which no table can be made.

    >>> posenc.SinusoidalLogits(64)(torch.randn(2, 8, 10, 64)).shape
    torch.Size([2, 8, 10, 10])

    Dai et al., Transformer-XL, 2019, arXiv:1901.02860, without its projection and its two learned vectors.
    """

    def __init__(self, head_dim: int, base: float = 10000.0) -> None:
        super().__init__()
        require_base(base)
        self.head_dim, self.base = whole("head_dim", head_dim, 1), float(base)

    def check(self, relative: Relative) -> None:
        relative.require_box("SinusoidalLogits")

    def parts(self, relative: Relative, device: Device = None) -> list[Part]:
        lags = relative.lags(0, device)
        first = lags[:, :1, None]
        return [Part("query", 0, sinusoid(lags, self.head_dim, self.base)[:, None], lambda pairs: pairs - first)]

    def extra_repr(self) -> str:
        return f"{self.head_dim}, base={self.base:g}"


def _heads(num_heads: int | None) -> int | None:
    return None if num_heads is None else whole("num_heads", num_heads, 1)
