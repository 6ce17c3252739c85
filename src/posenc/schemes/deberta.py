"""DeBERTa: vectors by relative position that meet the queries, and others that meet the keys."""

from collections.abc import Sequence as SequenceOf
from itertools import permutations
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn

from posenc.buckets import bucket_of, whole_lags
from posenc.checks import flag, whole
from posenc.foreign import ForeignState
from posenc.inside import ContentEncoding
from posenc.layout import Device
from posenc.relative import Relative
from posenc.term import Part

__all__ = ["Deberta", "deberta_bucket"]

TERMS = {"c2p": ("key_table", "query"), "p2c": ("query_table", "key")}
"""Term -> its table, and the side that the table meets."""


class Deberta(ContentEncoding):
    """Content to position and position to content: vectors by bucket of distance that meet the query, and the key.

    logits `q_i . k_j + q_i . rK[D(i, j)] + k_j . rQ[D(i, j)]`, all over `sqrt((1 + terms) d)`. `D(i, j)` is the bucket
    of i - j, `deberta_bucket`, or, without buckets, i - j itself clipped to -max_distance ... max_distance - 1. The
    released weights were trained with D(i, j) in both terms; the paper writes D(j, i) in the last.

    Trained: `key_table` rK (c2p) and `query_table` rQ (p2c), `[heads, 2 buckets, head_dim]`, ascending in i - j from
    -buckets on; without buckets, `2 max_distance` rows. One layer's own: in the released models they are one table of
    vectors as wide as the model, projected by each layer.

    Args:
        num_heads: number of heads.
        head_dim: channels of a head.
        buckets: half the number of rows, 4 or more (v2 and v3 have 256); None is one row a distance (v1).
        max_distance: where the logarithmic buckets end, or where distances are clipped, in tokens.
        terms: "c2p", "p2c" or both. Each term there is lowers attention's default scale: `scale_factor` is
            `(1 + len(terms)) ** -0.5`.
        published: D(j, i) in the last term, as in the paper.

    Raises ValueError for terms that there are not, for buckets that cannot be formed, and for real coordinates.

    `load_foreign` reads "deberta" (v2, v3), from one state with the encoder's `rel_embeddings.weight`, and
    `LayerNorm.weight` and `LayerNorm.bias` if it has them (epsilon 1e-7), and the layer's `pos_key_proj` and
    `pos_query_proj` (weight, bias), or, where it has none of its own, its `key_proj` and `query_proj`; and
    "deberta_v1", `rel_embeddings.weight`, `pos_proj.weight`, `pos_q_proj.weight` and `.bias`.

    >>> q = k = torch.randn(2, 8, 10, 64)
    >>> posenc.Deberta(8, 64)(q, k=k).shape
    torch.Size([2, 8, 10, 10])

    He et al., DeBERTa, 2020, arXiv:2006.03654; DeBERTaV3, 2021, arXiv:2111.09543.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        buckets: int | None = 256,
        max_distance: int = 512,
        terms: SequenceOf[str] = ("c2p", "p2c"),
        published: bool = False,
    ) -> None:
        super().__init__()
        self.num_heads: int = whole("num_heads", num_heads, 1)
        self.head_dim = whole("head_dim", head_dim, 1)
        self.buckets = None if buckets is None else whole("buckets", buckets)
        self.max_distance, self.published = whole("max_distance", max_distance, 1), flag("published", published)
        self.terms = (terms,) if isinstance(terms, str) else tuple(terms) if isinstance(terms, SequenceOf) else ()
        if self.terms not in [*permutations(TERMS, 1), *permutations(TERMS)]:
            raise ValueError(f"terms must be 'c2p', 'p2c' or both, got {terms!r}: pass terms=('c2p', 'p2c')")
        self._borders = [] if self.buckets is None else _borders(self.buckets, self.max_distance)
        self.scale_factor = (1 + len(self.terms)) ** -0.5
        self.meets_keys = "p2c" in self.terms
        for term in TERMS:
            if term in self.terms:
                table = torch.empty(self.num_heads, 2 * self._half, self.head_dim)
                self.register_parameter(TERMS[term][0], nn.Parameter(table))
        self.reset_parameters()

    @property
    def _half(self) -> int:
        """The row of distance 0."""
        return self.max_distance if self.buckets is None else self.buckets

    def reset_parameters(self) -> None:
        """Draw the tables anew."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=self.head_dim**-0.5)

    def check(self, relative: Relative) -> None:
        relative.require_integers("Deberta")

    def parts(self, relative: Relative, device: Device = None) -> list[Part]:
        parts = []
        if "c2p" in self.terms:
            parts.append(Part("query", 0, self.get_parameter("key_table")[None], self._row))
        if "p2c" in self.terms:
            row = self._mirrored_row if self.published else self._row
            parts.append(Part("key", 0, self.get_parameter("query_table")[None], row))
        return parts

    def _row(self, relative: Int[Tensor, "*b"]) -> Int[Tensor, "*b"]:
        if self.buckets is None:
            return relative.clamp(-self.max_distance, self.max_distance - 1) + self._half
        return _bucket(relative, self.buckets, self._borders) + self._half

    def _mirrored_row(self, relative: Int[Tensor, "*b"]) -> Int[Tensor, "*b"]:
        return self._row(-relative)

    def extra_repr(self) -> str:
        sizes = f"{self.num_heads}, {self.head_dim}, buckets={self.buckets}, max_distance={self.max_distance}"
        return f"{sizes}, terms={self.terms}, published={self.published}"

    def _from_v2(self, state: ForeignState) -> dict[str, Tensor]:
        state.trained_with(self, published=False)
        vectors = state["rel_embeddings.weight"].double()
        if "LayerNorm.weight" in state:
            weight, bias = state["LayerNorm.weight"].double(), state["LayerNorm.bias"].double()
            vectors = F.layer_norm(vectors, vectors.shape[-1:], weight, bias, eps=1e-7)
        tables = {}
        for table, side in (TERMS[term] for term in self.terms):
            name = {"query": "key_proj", "key": "query_proj"}[side]  # a vector that meets the query is a key's
            name = f"pos_{name}" if f"pos_{name}.weight" in state else name
            tables[table] = self._projected(state, vectors, name)
        return tables

    def _from_v1(self, state: ForeignState) -> dict[str, Tensor]:
        state.trained_with(self, published=False, buckets=None)
        vectors, tables = state["rel_embeddings.weight"].double(), {}
        if "c2p" in self.terms:
            tables["key_table"] = self._projected(state, vectors, "pos_proj", biased=False)
        if "p2c" in self.terms:
            tables["query_table"] = self._projected(state, vectors, "pos_q_proj")
        return tables

    def _projected(self, state: ForeignState, vectors: Tensor, name: str, biased: bool = True) -> Tensor:
        width = self.num_heads * self.head_dim
        weight = state.shaped(f"{name}.weight", width, vectors.shape[-1]).double()
        bias = state.shaped(f"{name}.bias", width).double() if biased else None
        rows: Tensor = F.linear(vectors, weight, bias).unflatten(-1, (self.num_heads, self.head_dim))
        return rows.transpose(0, 1)

    foreign: ClassVar = {"deberta": _from_v2, "deberta_v1": _from_v1}


def deberta_bucket(relative: Int[Tensor, "*b"], buckets: int = 256, max_distance: int = 512) -> Int[Tensor, "*b"]:
    """The bucket of each relative position (query - key), from -buckets up to, not including, buckets.

    With `mid = buckets // 2`, relative positions up to +- mid are their own bucket; a distance n beyond has bucket
    `mid + ceil(log(n / mid) / log((max_distance - 1) / mid) * (mid - 1))` with the sign of the relative position.
    The borders are whole numbers found in integer arithmetic, so that no rounding of a logarithm moves one.

    Raises TypeError for positions that are not integer, ValueError for buckets that cannot be formed.

    >>> posenc.deberta_bucket(torch.tensor([128, 200, 511, 10**6, -200, -(10**6)])).tolist()
    [128, 169, 255, 255, -169, -256]

    He et al., DeBERTa, 2020, arXiv:2006.03654, as released for v2.
    """
    relative, buckets = whole_lags(relative, "DeBERTa's buckets"), whole("buckets", buckets)
    return _bucket(relative, buckets, _borders(buckets, whole("max_distance", max_distance)))


def _bucket(relative: Tensor, buckets: int, borders: list[int]) -> Tensor:
    distance, mid = relative.abs(), buckets // 2
    return (relative.sign() * (distance.clamp(max=mid) + bucket_of(distance, borders))).clamp(max=buckets - 1)


def _borders(buckets: int, max_distance: int) -> list[int]:
    """The smallest distances of buckets mid + 1, ..., buckets."""
    mid, reach = buckets // 2, max_distance - 1
    if buckets < 4 or reach <= mid:
        raise ValueError(
            f"DeBERTa's buckets need buckets of 4 or more and max_distance of at least buckets // 2 + 2 = {mid + 2}, "
            f"got buckets={buckets}, max_distance={max_distance}: the released ones are 256 and 512"
        )
    borders = []
    for step in range(buckets - mid):
        # the smallest n with (n / mid) ** (mid - 1) > (reach / mid) ** step: a guess, then whole numbers decide
        border = int(mid * (reach / mid) ** (step / (mid - 1)))
        bound, factor = reach**step * mid ** (mid - 1), mid**step
        while border ** (mid - 1) * factor <= bound:
            border += 1
        while (border - 1) ** (mid - 1) * factor > bound:
            border -= 1
        borders.append(border)
    return borders
