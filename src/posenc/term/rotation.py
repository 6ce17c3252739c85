"""Pairs of channels of queries and keys that turn, and may decay with the distance as they do."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from posenc.checks import assert_on_device, readable
from posenc.kernels.rotate import Turning, rotate, rotate_, serves
from posenc.relative import Relative
from posenc.term.base import Term
from posenc.term.in_place import require_in_place
from posenc.term.turning import require_turning

__all__ = ["Decay", "Rotation"]


class Rotation(Term):
    """Pairs of channels of queries and keys turned by an angle that depends on where they stand."""

    kind = "rotation"

    def __init__(
        self,
        relative: Relative,
        query: tuple[Float[Tensor, "#b #h i pairs"], Float[Tensor, "#b #h i pairs"]],
        key: tuple[Float[Tensor, "#b #h j pairs"], Float[Tensor, "#b #h j pairs"]],
        layout: Literal["half", "interleaved"],
        *,
        heads: int | None = None,
        head_dim: int | None = None,
        causal: bool = False,
    ) -> None:
        """`query`, `key`: cosines and sines of the tokens after the prefix, which may carry a factor."""
        super().__init__(relative, heads=heads, head_dim=head_dim, causal=causal)
        if layout not in ("half", "interleaved"):
            raise ValueError(f"layout must be half or interleaved, got {layout!r}: it says which channels are a pair")
        self.query, self.key, self.layout = query, key, layout

    def tensors(self) -> list[Tensor]:
        return [*self.query, *self.key]

    def rotate(
        self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b g j d"]
    ) -> tuple[Float[Tensor, "b h i d"], Float[Tensor, "b _ j d"]]:
        """Rotated queries and keys, in their own dtype.

        Where heads turn differently and queries are grouped, keys come back with as many heads as the queries have.

        Raises ValueError for numbers of tokens, heads, rows or channels, a dtype or a device that the term is not for.
        """
        if self.key[0].shape[1] > 1 and k.shape[1] and not q.shape[1] % k.shape[1]:
            k = repeated(k, q.shape[1])
        given = self._given(q, k)
        if self._served(given):
            turned = rotate(*given, interleaved=self.layout == "interleaved")
            return turned[0], turned[1]
        return _rotated(*given[0], self.layout), _rotated(*given[1], self.layout)

    def rotate_(
        self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b g j d"]
    ) -> tuple[Float[Tensor, "b h i d"], Float[Tensor, "b g j d"]]:
        """The same two tensors, rotated where they lie, for inference: nothing of their size is allocated on a CPU.

        Raises ValueError as `rotate`; where q, k or the frequencies require gradients that are enabled; where a tensor
        is expanded, or q and k share memory; and where heads turn differently and k has fewer of them than q.
        """
        if self.key[0].shape[1] > 1 and k.shape[1] != q.shape[1]:
            raise ValueError(
                f"k must have the {q.shape[1]} heads of q, each of which turns in its own way, got {k.shape[1]}: "
                "there is no room for more in place, call rotate"
            )
        given = self._given(q, k)
        served = self._served(given)
        require_in_place(q, k, self.tensors())
        if served:
            rotate_(*given, interleaved=self.layout == "interleaved")
        else:
            for x, cos, sin, prefix in given:
                turning = x[..., prefix:, : 2 * cos.shape[-1]]
                turning.copy_(_turned(turning, cos, sin, self.layout))
        return q, k

    def apart(
        self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b g j d"]
    ) -> tuple[Float[Tensor, "b h i d"], Float[Tensor, "b _ j d"]]:
        """Queries and keys whose products are the logits, for an attention of one's own."""
        return self.rotate(q, k)

    def apart_(
        self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b g j d"]
    ) -> tuple[Float[Tensor, "b h i d"], Float[Tensor, "b g j d"]]:
        """The same where they lie; raises what `rotate_` does."""
        return self.rotate_(q, k)

    def _given(self, q: Tensor, k: Tensor) -> tuple[Turning, Turning]:
        prefix = self.relative.queries.prefix, self.relative.keys.prefix
        return Turning(q, *self.query, prefix[0]), Turning(k, *self.key, prefix[1])

    def _served(self, given: tuple[Turning, Turning]) -> bool:
        """Whether the kernel turns these. Raises where they are not what the term is for."""
        q, k = given
        if serves(q, k) and (self.head_dim is None or q.x.shape[-1] == k.x.shape[-1] == self.head_dim):
            return True  # the kernel has looked at all else
        require_turning("q", q, self.head_dim)
        require_turning("k", k, self.head_dim)
        return False


def repeated(x: Float[Tensor, "b g j d"], heads: int) -> Float[Tensor, "b {heads} j d"]:
    """Keys or values with one head for each of so many query heads."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, prefix: int, layout: str) -> Tensor:
    width = 2 * cos.shape[-1]
    turned = _turned(x[..., prefix:, :width], cos, sin, layout)
    if width < x.shape[-1]:
        turned = torch.cat([turned, x[..., prefix:, width:]], -1)
    return torch.cat([x[..., :prefix, :], turned], -2) if prefix else turned


def _turned(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    turned = x.to(torch.promote_types(x.dtype, cos.dtype))
    # (a, b) -> (a cos - b sin, b cos + a sin)
    if layout == "half":
        a, b = turned.chunk(2, -1)
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    else:
        a, b = turned.reshape(*turned.shape[:-1], cos.shape[-1], 2).unbind(-1)
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return turned.to(x.dtype)


class Decay(Rotation):
    """A rotation whose pairs also shrink with the distance: `q_i . k_j` has the factor `exp(rate (i - j))` a pair.

    The factor is no product of one for the query and one for the key that stays finite: at a few ten thousand tokens
    both leave the range of a float. So it stays in the logits, where each block of queries counts from its own first
    position: the keys before it have factors below one, and those ahead of it are not seen.
    """

    kind = "decay"
    block = 128
    """Queries that share a centre, at most."""

    def __init__(
        self,
        relative: Relative,
        query: tuple[Float[Tensor, "#b #h i pairs"], Float[Tensor, "#b #h i pairs"]],
        key: tuple[Float[Tensor, "#b #h j pairs"], Float[Tensor, "#b #h j pairs"]],
        layout: Literal["half", "interleaved"],
        rate: Float[Tensor, "pairs"],
        steepest: float,
        *,
        heads: int | None = None,
        head_dim: int | None = None,
    ) -> None:
        """`rate`: logarithm of the factor a unit of relative position, 0 or less, one a pair; `steepest`: the largest
        of their absolute values, as a number."""
        super().__init__(relative, query, key, layout, heads=heads, head_dim=head_dim, causal=True)
        self.rate, self.steepest = rate, steepest

    def product(self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"]) -> Float[Tensor, "b h i j"]:
        """The logits of queries and keys, unscaled; without decay where one of the two is a prefix token."""
        q, k = self.rotate(q, k)
        queries, keys = self.relative.queries, self.relative.keys
        inner = self._decayed(q[:, :, queries.prefix :], k[:, :, keys.prefix :])
        if not queries.prefix and not keys.prefix:
            return inner
        above = q[:, :, : queries.prefix] @ k.mT
        beside = q[:, :, queries.prefix :] @ k[:, :, : keys.prefix].mT
        return torch.cat([above, torch.cat([beside, inner], -1)], -2)

    def apart(
        self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b g j d"]
    ) -> tuple[Float[Tensor, "b h i d"], Float[Tensor, "b _ j d"]]:
        """Rotated queries and keys with their share of the decay, counted from the middle of the positions.

        Raises ValueError where positions are so far apart that the shares leave the range of float32.
        """
        q, k = self.rotate(q, k)
        own, their = self._shares(q)
        return (q * own).to(q.dtype), (k * their).to(k.dtype)

    def apart_(
        self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b g j d"]
    ) -> tuple[Float[Tensor, "b h i d"], Float[Tensor, "b g j d"]]:
        """The same where they lie; raises what `apart` and `rotate_` do."""
        own, their = self._shares(q)
        self.rotate_(q, k)
        return q.mul_(own), k.mul_(their)

    def _shares(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """What each token's channels are multiplied by, those of queries and those of keys, in float64."""
        where = [x.double() for x in self.relative.lined_up(q.device)]
        if where[0].shape[-1] == 0 or where[1].shape[-1] == 0:  # no pair that decays
            return where[0].new_ones(()), where[1].new_ones(())
        low = torch.minimum(*(x.amin(-1, keepdim=True) for x in where))
        high = torch.maximum(*(x.amax(-1, keepdim=True) for x in where))
        advice = "use attention, which counts from every block of queries anew"
        self._require_near((high - low) / 2, torch.float32, "positions, from their middle,", advice)
        rate, middle = self._channels(q), (low + high) / 2
        own, their = (
            F.pad((sign * rate * (x - middle)[:, None, :, None]).exp(), (0, 0, side.prefix, 0), value=1.0)
            for sign, x, side in zip((1, -1), where, (self.relative.queries, self.relative.keys), strict=True)
        )
        return own, their

    def _decayed(self, q: Tensor, k: Tensor) -> Tensor:
        tokens = q.shape[2]
        if tokens == 0 or k.shape[2] == 0:
            return q @ k.mT
        largest = _largest_exponent(q.dtype)
        # a number of blocks that may be one, or may not, would be two graphs: there is always one to spare
        each = max(min(self.block, int(largest / max(self.steepest, 1e-9))), 1)
        blocks, each = (1, 1) if tokens == 1 else (tokens // each + 2, each)
        index = torch.arange(blocks * each, device=q.device).clamp(max=tokens - 1)  # what is to spare repeats the last
        rate = self._channels(q)
        query, key = (x.double() for x in self.relative.lined_up(q.device))
        query = query[:, index].unflatten(1, (blocks, each))  # [b, blocks, each]
        first = query.amin(-1, keepdim=True)
        advice = "give tokens that follow each other positions that do, or the encoding a larger scale"
        self._require_near((query - first).amax(-1), q.dtype, f"positions of {each} consecutive queries", advice)
        own = (rate * (query - first)[..., None]).exp().to(q.dtype)
        exponent = rate * (first - key[:, None, :])[..., None]
        self._require_unseen((exponent > largest).any(-1), index, blocks)
        their = exponent.clamp(max=largest).exp().to(q.dtype)
        blocked = q[:, :, index].unflatten(2, (blocks, each)) * own[:, None]  # [b, h, blocks, each, d]
        logits: Tensor = blocked @ (k[:, :, None] * their[:, None]).mT  # [b, h, blocks, each, j]
        return logits.flatten(2, 3)[:, :, :tokens]

    def _channels(self, x: Tensor) -> Tensor:
        """The rate of each channel, 0 for those that do not turn."""
        rate = self.rate.double()
        rate = torch.cat([rate, rate]) if self.layout == "half" else rate.repeat_interleave(2)
        return F.pad(rate, (0, x.shape[-1] - rate.shape[0]))

    def _require_near(self, distance: Tensor, dtype: torch.dtype, what: str, advice: str) -> None:
        limit = _largest_exponent(dtype) / max(self.steepest, 1e-9)
        message = f"{what} must be near each other, so that the decay stays in the range of a float"
        within = (distance <= limit).all()
        if not readable(within):
            assert_on_device(within, message)
        elif not bool(within):
            raise ValueError(f"{message}: within {limit:.0f}, got {float(distance.max()):.0f}: {advice}")

    def _require_unseen(self, ahead: Tensor, index: Tensor, blocks: int) -> None:
        """Raise where a key so far ahead that its factor leaves the range of a float comes before a query."""
        queries, keys = self.relative.queries, self.relative.keys
        order, theirs = (
            side.order(index.device)[..., side.prefix :].reshape(-1, 1, side.length - side.prefix)
            for side in (queries, keys)
        )
        latest = order[..., index].unflatten(-1, (blocks, -1)).amax(-1).mT  # [b, blocks, 1]
        unseen = ~(ahead & (theirs <= latest)).any()
        message = "keys that a query sees must not be far ahead of it, where the decay leaves the range of a float"
        if not readable(unseen):
            assert_on_device(unseen, message)
        elif not bool(unseen):
            raise ValueError(f"{message}, got one that is: order tokens by their positions")


def _largest_exponent(dtype: torch.dtype) -> float:
    """Where exp still leaves room for the numbers that it multiplies."""
    return 600.0 if dtype == torch.float64 else 75.0
