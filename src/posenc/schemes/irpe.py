"""Image relative position encoding: rows shared by distances, ever more of them the farther off."""

import math
from bisect import bisect_left
from functools import partial
from typing import ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from posenc.buckets import bucket_of, whole_lags
from posenc.checks import real, whole
from posenc.foreign import ForeignState
from posenc.inside import ContentEncoding
from posenc.layout import Device
from posenc.relative import Relative
from posenc.term import Part

__all__ = ["IRPE", "piecewise_index"]


class IRPE(ContentEncoding):
    """Trained vectors by relative position on an image, nearby ones their own, far ones shared, that meet the query.

    `q_i . k_j + q_i . r[I(i - j)]`. The index of an axis is `piecewise_index`, from -B to B, B = floor(beta):
    `g(x) = round(x)` up to alpha, then `sign(x) min(round(alpha + log(|x| / alpha) / log(gamma / alpha) (beta -
    alpha)), B)`. The product method has a vector for each pair of indices, the cross method one for the rows and one
    for the columns, which are added.

    Trained: product `table` `[heads or 1, (2 B + 1) ** 2, d]`, row-major; cross `tables.0` (rows) and `tables.1`
    (columns), `[heads or 1, 2 B + 1, d]`; ascending in i - j.

    Args:
        head_dim: channels of a head.
        method: "product" or "cross".
        num_heads: separate vectors for each of so many heads; None shares them, as the paper does.
        alpha, beta, gamma: distances up to `alpha` have indices of their own, those from `gamma` on the last, at most
            `beta`; 0 < alpha <= beta, alpha < gamma, beta at least 1.

    Raises ValueError for another method, for coefficients out of order, and for real coordinates.

    `load_foreign` reads "irpe": the product's `lookup_table_weight`, the cross' `rp_rows.lookup_table_weight` and
    `rp_cols.lookup_table_weight`, contextual and on the keys, trained without a class token (`skip=0`).

    >>> posenc.IRPE(16)(torch.randn(1, 4, 6, 16), posenc.grid(2, 3)).shape
    torch.Size([1, 4, 6, 6])

    Wu et al., Rethinking and Improving Relative Position Encoding for Vision Transformer, 2021, arXiv:2107.14222.
    """

    axes = 2

    def __init__(
        self,
        head_dim: int,
        method: Literal["product", "cross"] = "product",
        num_heads: int | None = None,
        alpha: float = 1.9,
        beta: float = 3.8,
        gamma: float = 15.2,
    ) -> None:
        super().__init__()
        if method not in ("product", "cross"):
            raise ValueError(f"method must be 'product' or 'cross', got {method!r}: pass one of them")
        self._borders = _borders(alpha, beta, gamma)
        self.alpha, self.beta, self.gamma = float(alpha), float(beta), float(gamma)
        self.head_dim, self.method = whole("head_dim", head_dim, 1), method
        self.num_heads = None if num_heads is None else whole("num_heads", num_heads, 1)
        self.side = 2 * len(self._borders) + 1
        if method == "product":
            self.table = nn.Parameter(torch.empty(self.num_heads or 1, self.side**2, self.head_dim))
        else:
            self.tables = nn.ParameterList(
                nn.Parameter(torch.empty(self.num_heads or 1, self.side, self.head_dim)) for _ in range(2)
            )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the tables anew."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=self.head_dim**-0.5)

    def check(self, relative: Relative) -> None:
        relative.require_integers("IRPE")

    def parts(self, relative: Relative, device: Device = None) -> list[Part]:
        if self.method == "product":
            return [Part("query", None, self.table[None], self._product_row)]
        return [Part("query", axis, table[None], self._row) for axis, table in enumerate(self.tables)]

    def _row(self, relative: Int[Tensor, "*b"]) -> Int[Tensor, "*b"]:
        return relative.sign() * bucket_of(relative.abs(), self._borders) + len(self._borders)

    def _product_row(self, relative: Int[Tensor, "*b 2"]) -> Int[Tensor, "*b"]:
        rows, columns = self._row(relative).unbind(-1)
        return rows * self.side + columns

    def extra_repr(self) -> str:
        coefficients = f"alpha={self.alpha:g}, beta={self.beta:g}, gamma={self.gamma:g}"
        return f"{self.head_dim}, {self.method!r}, num_heads={self.num_heads}, {coefficients}"

    def _from_irpe(self, state: ForeignState) -> dict[str, Tensor]:
        if self.method == "product":
            return {"table": state["lookup_table_weight"].transpose(-2, -1)}  # theirs is [heads, d, rows]
        names = "rp_rows", "rp_cols"
        return {
            f"tables.{axis}": state[f"{name}.lookup_table_weight"].transpose(-2, -1) for axis, name in enumerate(names)
        }

    foreign: ClassVar = {"irpe": _from_irpe}


def piecewise_index(
    relative: Int[Tensor, "*b"], alpha: float = 1.9, beta: float = 3.8, gamma: float = 15.2
) -> Int[Tensor, "*b"]:
    """The index of each relative position, from -floor(beta) to floor(beta).

    Relative positions up to +- alpha are their own index; a distance n beyond has index
    `min(round(alpha + log(n / alpha) / log(gamma / alpha) * (beta - alpha)), floor(beta))`, halves rounded to even,
    with the sign of the relative position.

    Raises TypeError for positions that are not integer, ValueError for coefficients out of order.

    >>> posenc.piecewise_index(torch.tensor([0, 1, 2, 3, 4, 8, 100, -4])).tolist()
    [0, 1, 2, 2, 3, 3, 3, -3]

    Wu et al., 2021, arXiv:2107.14222, Eq. 18, as released.
    """
    relative = whole_lags(relative, "the piecewise index")
    return relative.sign() * bucket_of(relative.abs(), _borders(alpha, beta, gamma))


def _borders(alpha: float, beta: float, gamma: float) -> list[int]:
    """The smallest distances of indices 1, ..., floor(beta)."""
    given = {"alpha": alpha, "beta": beta, "gamma": gamma}
    alpha, beta, gamma = (real(name, value, "the paper's are 1.9, 3.8 and 15.2") for name, value in given.items())
    if beta > 2**16 or gamma > 2**62:
        raise ValueError(f"beta must be at most 2 ** 16 and gamma 2 ** 62, got {beta} and {gamma}: pass smaller ones")
    if not (0 < alpha <= beta and alpha < gamma and beta >= 1):
        raise ValueError(
            f"alpha, beta and gamma must be 0 < alpha <= beta, alpha < gamma and beta of 1 or more, "
            f"got {alpha}, {beta} and {gamma}: the paper's are 1.9, 3.8 and 15.2"
        )
    # no distance beyond gamma has an index that gamma has not: the index never falls as the distance grows
    distances = range(1, math.ceil(gamma) + 1)
    index = partial(_distance_index, alpha=alpha, beta=beta, gamma=gamma)
    return [1 + bisect_left(distances, row, key=index) for row in range(1, int(beta) + 1)]


def _distance_index(distance: int, alpha: float, beta: float, gamma: float) -> int:
    if distance <= alpha:
        return distance
    return min(round(alpha + math.log(distance / alpha) / math.log(gamma / alpha) * (beta - alpha)), int(beta))
