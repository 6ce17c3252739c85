"""Bias encodings with a trained table: T5's buckets of distances, and a number for each relative position."""

from collections.abc import Sequence as SequenceOf
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posenc.buckets import bucket_of, whole_lags
from posenc.checks import flag, sizes, whole
from posenc.encoding import arithmetic_dtype
from posenc.foreign import ForeignState
from posenc.inside import BiasEncoding
from posenc.relative import Relative, table_size

__all__ = ["RelativePositionBias", "T5Bias", "t5_bucket"]


class T5Bias(BiasEncoding):
    """A trained number for each head and bucket of distances: `b[h, i, j] = table[h, bucket(i - j)]`.

    Half of the buckets are one distance each, the others grow with its logarithm up to `max_distance`. T5 itself does
    not scale its logits: with its weights, pass `scale=1.0` to `attention`.

    Args:
        num_heads: number of heads.
        num_buckets: number of rows a head; even if bidirectional, and at least 2 a direction.
        max_distance: the last bucket holds everything from about here on, in tokens.
        bidirectional: separate buckets for keys ahead of the query; False is for decoders (keys ahead share bucket 0).

    Raises ValueError for buckets that cannot be formed, and for real coordinates.

    >>> posenc.T5Bias(num_heads=8)(posenc.sequence(128)).shape
    torch.Size([8, 128, 128])

    Raffel et al., T5, 2019, arXiv:1910.10683.
    """

    def __init__(
        self, num_heads: int, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
    ) -> None:
        super().__init__()
        num_buckets, max_distance = whole("num_buckets", num_buckets, 2), whole("max_distance", max_distance, 1)
        bidirectional = flag("bidirectional", bidirectional)
        _thresholds(num_buckets, max_distance, bidirectional)
        self.num_heads: int = whole("num_heads", num_heads, 1)
        self.num_buckets, self.max_distance, self.bidirectional = num_buckets, max_distance, bidirectional
        self.table = nn.Parameter(torch.empty(self.num_heads, num_buckets))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        nn.init.trunc_normal_(self.table, std=0.02)

    def check(self, relative: Relative) -> None:
        relative.require_integers("T5Bias")

    def bias(self, relative: Int[Tensor, "*b 1"]) -> Float[Tensor, "h *b"]:
        table = self.table.to(arithmetic_dtype(self.table.dtype))  # in which gradients of all lags of a bucket add up
        return table[:, t5_bucket(relative[..., 0], self.num_buckets, self.max_distance, self.bidirectional)]

    def extra_repr(self) -> str:
        return f"{self.num_heads}, {self.num_buckets}, {self.max_distance}, bidirectional={self.bidirectional}"

    def _from_t5(self, state: ForeignState) -> dict[str, Tensor]:
        # the buckets are the same; `t5_bucket` turns signs
        return {"table": state["relative_attention_bias.weight"].transpose(-2, -1)}

    foreign: ClassVar = {"t5": _from_t5}


def t5_bucket(
    relative: Int[Tensor, "*b"], num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> Int[Tensor, "*b"]:
    """The bucket of each relative position (query - key; T5's own code has the opposite sign).

    Distances below `max_exact`, half the buckets of a direction, have a bucket each; a distance n beyond is in bucket
    `max_exact + floor(log(n / max_exact) / log(max_distance / max_exact) * (buckets - max_exact))`, at most the last.
    The borders are whole numbers found in integer arithmetic, so that no rounding of a logarithm moves one.

    Raises TypeError for positions that are not integer, ValueError for buckets that cannot be formed.

    >>> posenc.t5_bucket(torch.tensor([1000, 8, 0, -1, -8, -128])).tolist()
    [15, 8, 0, 17, 24, 31]

    Raffel et al., T5, 2019, arXiv:1910.10683.
    """
    relative, bidirectional = whole_lags(relative, "T5 buckets"), flag("bidirectional", bidirectional)
    num_buckets, max_distance = whole("num_buckets", num_buckets, 2), whole("max_distance", max_distance, 1)
    distance = relative.abs() if bidirectional else relative.clamp(min=0)  # keys ahead count as distance 0
    bucket = bucket_of(distance, _thresholds(num_buckets, max_distance, bidirectional))
    return bucket + (relative < 0) * (num_buckets // 2) if bidirectional else bucket


def _thresholds(num_buckets: int, max_distance: int, bidirectional: bool) -> list[int]:
    """The smallest distance of every bucket but the first."""
    buckets = num_buckets // 2 if bidirectional else num_buckets
    exact = buckets // 2
    if exact < 1 or (bidirectional and num_buckets % 2) or max_distance <= exact:
        raise ValueError(
            f"T5 buckets need at least 2 a direction, an even number of both, and max_distance beyond the {exact} "
            f"exact ones, got num_buckets={num_buckets}, max_distance={max_distance}: T5 has 32 and 128"
        )
    borders, steps = list(range(1, exact + 1)), buckets - exact
    for step in range(1, steps):
        # the smallest n with (n / exact) ** steps >= (max_distance / exact) ** step: a guess, then whole numbers decide
        border, reach = (
            round(exact * (max_distance / exact) ** (step / steps)),
            max_distance**step * exact ** (steps - step),
        )
        while border**steps < reach:
            border += 1
        while (border - 1) ** steps >= reach:
            border -= 1
        borders.append(border)
    return borders


class RelativePositionBias(BiasEncoding):
    """A trained number for each head and relative position in a window: `b[h, i, j] = table[h, index(i - j)]`.

    `index` is row-major over (relative + size - 1). `table` is `[heads, prod(2 size - 1)]`; a saved state does not say
    the window, nor whether it is symmetric, and one of another window with as many entries fits too.

    Args:
        num_heads: number of heads.
        shape: size of each axis of the largest window; smaller ones use part of the table.
        prefix_bias: three trained numbers a head for pairs with a prefix token (BEiT): prefix query to token, token to
            prefix key, prefix to prefix. Otherwise nothing is added to them.
        symmetric: one number for (di, dj) and (|di|, |dj|) alike (LeViT); `table` is then `[heads, prod(size)]`.
        windowed: pairs beyond the table are minus infinity and do not see each other: the table is that of a
            neighbourhood (size - 1 to either side), in a layout of any size. For windows that shift at the border give
            attention `mask=posenc.neighbourhood(...)` too.

    Raises ValueError for relative positions beyond a table that is not windowed, and for real coordinates.

    >>> posenc.RelativePositionBias(num_heads=3, shape=(2, 5))(posenc.grid(2, 5)).shape
    torch.Size([3, 10, 10])

    Liu et al., Swin Transformer, 2021, arXiv:2103.14030; Bao et al., BEiT, 2021, arXiv:2106.08254;
    Graham et al., LeViT, 2021, arXiv:2104.01136; Hassani et al., Neighborhood Attention, 2022, arXiv:2204.07143.
    """

    def __init__(
        self,
        num_heads: int,
        shape: int | SequenceOf[int],
        prefix_bias: bool = False,
        symmetric: bool = False,
        windowed: bool = False,
    ) -> None:
        super().__init__()
        self.shape = sizes("shape", shape)
        self.num_heads: int = whole("num_heads", num_heads, 1)
        self.axes, self.prefix_bias = len(self.shape), flag("prefix_bias", prefix_bias)
        self.symmetric = flag("symmetric", symmetric)
        self.windowed = self.hides = flag("windowed", windowed)
        entries = torch.Size(self.shape).numel() if self.symmetric else table_size(self.shape)
        self.table = nn.Parameter(torch.empty(self.num_heads, entries))
        if self.prefix_bias:
            self.prefix_table = nn.Parameter(torch.empty(self.num_heads, 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the tables anew."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def check(self, relative: Relative) -> None:
        if self.windowed:
            relative.require_integers("RelativePositionBias")
        else:
            relative.require_within([size - 1 for size in self.shape], "RelativePositionBias")

    def bias(self, relative: Int[Tensor, "*b n"]) -> Float[Tensor, "h *b"]:
        index = torch.zeros_like(relative[..., 0])
        inside = torch.ones_like(index, dtype=torch.bool)
        for axis, size in enumerate(self.shape):
            lag = relative[..., axis]
            lag, rows = (lag.abs(), size) if self.symmetric else (lag + (size - 1), 2 * size - 1)
            inside = inside & (lag >= 0) & (lag < rows)
            index = index * rows + lag
        # a box may be wider than the lags that occur, which `check` has bounded: what no pair reads is not a number
        values = self.table[:, torch.where(inside, index, 0)]
        return torch.where(inside, values, -torch.inf if self.windowed else torch.nan)

    def prefix_values(self) -> Float[Tensor, "h 3"] | None:
        return self.prefix_table if self.prefix_bias else None

    def extra_repr(self) -> str:
        options = [name for name in ("prefix_bias", "symmetric", "windowed") if getattr(self, name)]
        return ", ".join([f"{self.num_heads}, {self.shape}", *(f"{name}=True" for name in options)])

    def _from_swin(self, state: ForeignState) -> dict[str, Tensor]:
        # Swin's index is relative + (size - 1) on each axis, row-major: our order
        state.trained_with(self, symmetric=False)
        return {"table": state["relative_position_bias_table"].transpose(-2, -1)}

    def _from_beit(self, state: ForeignState) -> dict[str, Tensor]:
        # three rows more: class token to token, token to class token, class token to itself
        state.trained_with(self, symmetric=False)
        table = state["relative_position_bias_table"].transpose(-2, -1)
        return {"table": table[:, :-3], "prefix_table": table[:, -3:]}

    def _from_timm(self, state: ForeignState) -> dict[str, Tensor]:
        return self._from_beit(state) if self.prefix_bias else self._from_swin(state)

    def _from_levit(self, state: ForeignState) -> dict[str, Tensor]:
        # numbered as a query in the first corner meets the keys: row-major over absolute relative positions
        state.trained_with(self, symmetric=True)
        return {"table": state["attention_biases"]}

    def _from_maxvit(self, state: ForeignState) -> dict[str, Tensor]:
        return {"table": self._turned(state, "relative_position_bias_table")}

    def _from_natten(self, state: ForeignState) -> dict[str, Tensor]:
        state.trained_with(self, windowed=True)
        return {"table": self._turned(state, "rpb")}

    def _turned(self, state: ForeignState, name: str) -> Float[Tensor, "h entries"]:
        """A table with an axis for each axis of the window, ascending by key - query, in our order."""
        state.trained_with(self, symmetric=False)
        table = state.shaped(name, self.num_heads, *(2 * size - 1 for size in self.shape))
        return table.flip(*range(1, table.ndim)).flatten(1)

    foreign: ClassVar = {
        "beit": _from_beit,
        "levit": _from_levit,
        "maxvit": _from_maxvit,
        "natten": _from_natten,
        "swin": _from_swin,
        "timm": _from_timm,
    }
