"""PyTorch's FlexAttention, for CUDA: terms are numbers read for each pair inside the one kernel that it compiles.

A bias is `table[code_query[i] + code_key[j]]` by explicit codes, so that it is right wherever tokens stand: packed,
shuffled, or a shard of a longer sequence. Content logits are read from the products of every token with every row. Who
sees whom is a function of the pair too, and blocks of pairs of which none is seen are skipped. Nothing of size L x L is
made, but what a term or a mask comes with.

On a CPU it runs where it is asked for, unfused, so that what the kernel is told is tested without a GPU.
"""

import inspect
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from posenc.encoding import arithmetic_dtype, exact_arithmetic
from posenc.layout import Device
from posenc.mask import Visibility
from posenc.plan import Facts, Problem
from posenc.term import Bias, Content, repeated
from posenc.term.reading import reader

NAME = "flex"
ROTATES = False

BLOCK = 128
"""Queries, and keys, of a block that is skipped, or seen, as a whole."""
NARROWEST, WIDEST = 16, 256
"""Channels of a head that the kernel is made for; narrower heads are filled up with zeros."""


def refuses(facts: Facts) -> list[str]:
    """What no number a pair can say, and devices other than CUDA where it is not asked for."""
    asked = facts.wanted == NAME
    reasons = {
        "FlexAttention is for CUDA": facts.device != "cuda" and not (asked and facts.device == "cpu"),
        "FlexAttention has no gradients on a CPU": facts.device == "cpu" and facts.gradients,
        "its CUDA kernel sums in float32": facts.device == "cuda" and facts.dtype == torch.float64,
        "it is for heads of up to 256 channels": facts.widest > WIDEST,
        "torch's fused kernel, which needs no compiling, does the same": not (
            asked or facts.terms or facts.visibility == "mask"
        ),
        "it has no dropout": facts.dropout,
        "a decay is a factor of every pair of channels, and not a number to add": "decay" in facts.terms,
        "a term reads the logits of other pairs": not {*facts.terms} <= {"bias", "content", "decay"},
        "vectors join the values, and it keeps no weights to sum them by": facts.joins_values,
        "exported graphs have torch's own operators alone": facts.exporting,
        "transforms of torch.func and forward-mode derivatives have no rule for it": facts.transformed,
    }
    return [reason for reason, holds in reasons.items() if holds]


def run(problem: Problem) -> Float[Tensor, "b h i e"]:
    """softmax(scale (q k + q r) + bias) v, a tile at a time, in q's dtype with sums in float32 (float64 on a CPU)."""
    q, k, v = problem.q, problem.k, problem.v
    if not (q.shape[0] and q.shape[2] and k.shape[2]):  # no pair to make a kernel for
        return q @ repeated(k, q.shape[1]).mT @ repeated(v, q.shape[1])
    width, visibility = v.shape[3], problem.visibility
    with exact_arithmetic(q.device):
        add = _score_mod(problem)
        q, k, v = (F.pad(x, (0, NARROWEST - x.shape[3])) if x.shape[3] < NARROWEST else x for x in (q, k, v))
        attend = _compiled() if q.device.type == "cuda" and not torch.compiler.is_compiling() else _unfused
        output = attend(q, k, v, add, _bands(visibility, q.device), _masks(visibility, q.device), problem.scale)
    return output[..., :width] if width < NARROWEST else output


@cache
def _compiled() -> Callable[..., Tensor]:
    """The kernel, compiled at its first use for every shape and structure, and never for values.

    Kept, because torch keeps what it compiles with the function: another one would begin anew. A model with many
    schemes needs more kernels than torch's usual eight, beyond which it would run unfused.
    """
    options: dict[str, Any] = {}
    if "recompile_limit" in inspect.signature(torch.compile).parameters:  # not yet in torch 2.6
        options["recompile_limit"] = 256
    return torch.compile(_attend, **options)


def _unfused(q: Tensor, k: Tensor, v: Tensor, *more: Any) -> Tensor:
    """The same in a graph of the caller's, or on a CPU, where FlexAttention takes nothing that may have gradients."""
    if q.device.type == "cpu":
        q, k, v = q.detach(), k.detach(), v.detach()
    if torch.compiler.is_compiling():
        return _attend(q, k, v, *more)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        return _attend(q, k, v, *more)


def _score_mod(problem: Problem) -> Callable[..., Tensor] | None:
    """What all terms add to the logit of a pair."""
    dtype, adds = arithmetic_dtype(problem.q.dtype), []
    for term in problem.terms:
        if isinstance(term, Bias):
            adds.append(term.score_mod)
        elif isinstance(term, Content):
            q, k = problem.unrotated_q.to(dtype), problem.unrotated_k.to(dtype)
            adds.append(term.score_mod(q, k, problem.scale if term.scaled else 1.0))
    if not adds:
        return None

    def add_all(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for add in adds:
            score = add(score, b, h, i, j)
        return score

    return add_all


class _Band(NamedTuple):
    """Pairs whose query and key differ by `least` to `most` in a number that tokens have."""

    queries: Shaped[Tensor, "#b i"]
    keys: Shaped[Tensor, "#b j"]
    least: int | None
    most: int | None

    def holds(self, low: Tensor, high: Tensor) -> Tensor:
        """Whether all differences from low to high are in the band; any of them, where the two change places."""
        above = torch.ones_like(low, dtype=torch.bool) if self.least is None else low >= self.least
        return above if self.most is None else above & (high <= self.most)


def _bands(visibility: Visibility, device: Device) -> list[_Band]:
    """Causal order, window and documents."""
    queries, keys, bands = visibility.queries, visibility.keys, []
    window, documents = visibility.window, (queries.document(device), keys.document(device))
    if visibility.causal or window is not None:
        least = 0 if visibility.causal or window is None else -window
        bands.append(_Band(_rows(queries.order(device)), _rows(keys.order(device)), least, window))
    if documents[0] is not None and documents[1] is not None:
        bands.append(_Band(_rows(documents[0]), _rows(documents[1]), 0, 0))
    elif documents[0] is not None or documents[1] is not None:
        visibility.allowed(device)  # raises, and says what is missing
    return bands


def _masks(visibility: Visibility, device: Device) -> list[Bool[Tensor, "#b #h #i #j"]]:
    """Padding and the caller's masks."""
    present, key_mask = visibility.keys.present(device), visibility.key_mask
    tokens = [mask[:, None, None] for mask in (present, key_mask) if mask is not None]
    return tokens if visibility.mask is None else [*tokens, visibility.mask]


def _rows(x: Tensor) -> Tensor:
    x = x if x.ndim == 2 else x[None]
    return x if x.is_floating_point() else x.long()  # of which differences are


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    add: Callable[..., Tensor] | None,
    bands: list[_Band],
    masks: list[Tensor],
    scale: float,
) -> Tensor:
    """What is compiled as one."""
    grouped = True if k.shape[1] != q.shape[1] else False  # noqa: SIM210 - a symbolic bool is refused
    seen = _block_mask(q.shape[2], k.shape[2], bands, masks, q.device) if bands or masks else None
    output: Tensor = flex_attention(q, k, v, add, seen, scale, grouped)
    return output


def _block_mask(queries: int, keys: int, bands: list[_Band], masks: list[Tensor], device: torch.device) -> BlockMask:
    """Who sees whom, pair by pair, and the blocks where nobody sees anybody, or all see all."""

    numbers = [(band, reader(band.queries), reader(band.keys)) for band in bands]
    marks = [reader(mask) for mask in masks]

    def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        allowed = i >= 0
        for band, of_query, of_key in numbers:
            difference = of_query(b, i) - of_key(b, j)
            allowed = allowed & band.holds(difference, difference)
        for mark in marks:
            allowed = allowed & mark(b, h, i, j)
        return allowed

    # blocks that are not filled are never seen as a whole, and the one to spare is never seen
    ends = [torch.arange(1, _blocks(length) + 1, device=device) * BLOCK for length in (queries, keys)]
    every = ((ends[0] <= queries)[:, None] & (ends[1] <= keys))[None, None]
    some = ((ends[0] < queries + BLOCK)[:, None] & (ends[1] < keys + BLOCK))[None, None]
    for band in bands:
        (lowest, highest), (first, last) = _extremes(band.queries, 1), _extremes(band.keys, 1)
        low, high = lowest[:, None, :, None] - last[:, None, None], highest[:, None, :, None] - first[:, None, None]
        every, some = every & band.holds(low, high), some & band.holds(high, low)
    for mask in masks:
        low, high = _extremes(_extremes(mask, 2)[0], 3)[0], _extremes(_extremes(mask, 2)[1], 3)[1]
        every, some = every & low, some & high
    return BlockMask.from_kv_blocks(
        *_listed(some & ~every), *_listed(every), BLOCK_SIZE=BLOCK, mask_mod=sees, seq_lengths=(queries, keys)
    )


def _extremes(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The smallest and the largest number of each block of tokens; one that is not filled repeats its last."""
    count = x.shape[axis]
    if count == 1:
        return x, x
    index = torch.arange(_blocks(count) * BLOCK, device=x.device).clamp(max=count - 1)
    blocked = x.index_select(axis, index).unflatten(axis, (_blocks(count), BLOCK))
    return blocked.amin(axis + 1), blocked.amax(axis + 1)


def _blocks(length: int) -> int:
    """One to spare: a number of blocks that may be one, or may not, would be two graphs."""
    return length // BLOCK + 2


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of keys each block of queries has, and which, those first."""
    count, order = blocks.sum(-1), blocks.int().argsort(dim=-1, descending=True, stable=True)
    return count.int().contiguous(), order.int().contiguous()
