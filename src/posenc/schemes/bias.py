"""Bias encodings: relative position -> a number per head, added to the logits."""

from collections.abc import Sequence as SequenceOf

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from posenc.checks import sizes, whole
from posenc.inside import BiasEncoding
from posenc.layout import Device
from posenc.relative import Relative, table_size
from posenc.sinusoid import geometric

__all__ = ["ALiBi", "RelativePositionBias", "T5Bias", "alibi_slopes", "t5_bucket"]


class ALiBi(BiasEncoding):
    """A penalty in proportion to distance, with a fixed slope a head: `b[h, i, j] = -m_h |i - j|`.

    Args:
        num_heads: number of heads, any number from 1.

    Raises ValueError for fewer than one head.

    >>> posenc.ALiBi(2)(posenc.sequence(3)).shape
    torch.Size([2, 3, 3])

    Press et al., Train Short, Test Long, 2021, arXiv:2108.12409.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads: int = whole("num_heads", num_heads, 1)

    def bias(self, relative: Shaped[Tensor, "*b 1"]) -> Float[Tensor, "h *b"]:
        slopes = alibi_slopes(self.num_heads, device=relative.device)
        return -slopes.reshape(-1, *[1] * (relative.ndim - 1)) * relative[..., 0].abs()

    def extra_repr(self) -> str:
        return f"{self.num_heads}"


def alibi_slopes(num_heads: int, device: Device = None) -> Float[Tensor, "h"]:
    """The slopes m_h of ALiBi, in float64: `2 ** (-8 (h + 1) / H)` for H a power of two.

    For other head counts, those of the largest power of two below, then every other one of the next power's.

    Raises ValueError for fewer than one head.

    >>> posenc.alibi_slopes(6).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]

    Press et al., Train Short, Test Long, 2021, arXiv:2108.12409.
    """
    num_heads = whole("num_heads", num_heads, 1)
    power = 1 << (num_heads.bit_length() - 1)
    own = geometric(2.0, power + 1, power / 8, device)[1:]
    between = geometric(2.0, 2 * (num_heads - power), power / 4, device)[1::2]
    return torch.cat([own, between])


class T5Bias(BiasEncoding):
    """A trained number for each head and bucket of distances: `b[h, i, j] = table[h, bucket(i - j)]`.

    Half of the buckets are one distance each, the others grow with its logarithm up to `max_distance`.

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
        return self.table[:, t5_bucket(relative[..., 0], self.num_buckets, self.max_distance, self.bidirectional)]

    def extra_repr(self) -> str:
        return f"{self.num_heads}, {self.num_buckets}, {self.max_distance}, bidirectional={self.bidirectional}"


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
    if relative.is_floating_point() or relative.is_complex() or relative.dtype == torch.bool:
        raise TypeError(f"relative must be integer for T5 buckets, got {relative.dtype}: round it first")
    borders = torch.tensor(_thresholds(num_buckets, max_distance, bidirectional), device=relative.device)
    distance = relative.abs() if bidirectional else relative.clamp(min=0)  # keys ahead count as distance 0
    bucket = torch.bucketize(distance, borders, right=True)
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

    `index` is row-major over (relative + size - 1). `table` is `[heads, prod(2 size - 1)]`.

    Args:
        num_heads: number of heads.
        shape: size of each axis of the largest window; smaller ones use part of the table.
        prefix_bias: three trained numbers a head for pairs with a prefix token (BEiT): prefix query to token, token to
            prefix key, prefix to prefix. Otherwise nothing is added to them.
        symmetric: one number for (di, dj) and (|di|, |dj|) alike (LeViT); `table` is then `[heads, prod(size)]`.

    Raises ValueError for relative positions beyond the table, and for real coordinates.

    >>> posenc.RelativePositionBias(num_heads=3, shape=(2, 5))(posenc.grid(2, 5)).shape
    torch.Size([3, 10, 10])

    Liu et al., Swin Transformer, 2021, arXiv:2103.14030; Bao et al., BEiT, 2021, arXiv:2106.08254;
    Graham et al., LeViT, 2021, arXiv:2104.01136.
    """

    def __init__(
        self, num_heads: int, shape: int | SequenceOf[int], prefix_bias: bool = False, symmetric: bool = False
    ) -> None:
        super().__init__()
        self.shape = sizes("shape", shape)
        self.num_heads: int = whole("num_heads", num_heads, 1)
        self.axes, self.prefix_bias, self.symmetric = len(self.shape), prefix_bias, symmetric
        entries = torch.Size(self.shape).numel() if symmetric else table_size(self.shape)
        self.table = nn.Parameter(torch.empty(self.num_heads, entries))
        if prefix_bias:
            self.prefix_table = nn.Parameter(torch.empty(self.num_heads, 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the tables anew."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def check(self, relative: Relative) -> None:
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
        return torch.where(inside, values, torch.nan)

    def prefix_values(self) -> Float[Tensor, "h 3"] | None:
        return self.prefix_table if self.prefix_bias else None

    def extra_repr(self) -> str:
        return f"{self.num_heads}, {self.shape}, prefix_bias={self.prefix_bias}, symmetric={self.symmetric}"
