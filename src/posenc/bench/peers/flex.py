"""FlexAttention, torch's own way to change logits, with a table that is read as its users read one.

Compiled; forward only on a CPU, where inputs that need gradients are refused.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from posenc.bench.peers.peer import Made, Peer
from posenc.bench.setting import Setting

__all__ = ["PEERS"]

Change = Callable[..., Tensor]


def _lags(code: Any, encoding: Any, setting: Setting) -> Made:
    """Bias: a number a head and relative position, read at i - j on each axis."""

    def table() -> Tensor:
        ticks = [torch.arange(1 - size, size, device=setting.device) for size in setting.shape]
        lags = torch.stack(torch.meshgrid(*ticks, indexing="ij"), -1)
        bias: Tensor = encoding.bias(lags)
        return bias.float()

    def change(numbers: Tensor) -> Change:
        if len(setting.shape) == 1:
            last, few = setting.tokens - 1, setting.tokens - setting.asking
            return lambda score, b, h, i, j: score + numbers[h, i + few - j + last]
        height, width = setting.shape
        return lambda score, b, h, i, j: (
            score + numbers[h, i // width - j // width + height - 1, i % width - j % width + width - 1]
        )

    return _compiled(setting, lambda q: table(), change, encoding)


def _rows(code: Any, encoding: Any, setting: Setting) -> Made:
    """Content: the products of every query with every vector, read at i - j."""
    scale = setting.head_dim**-0.5

    def products(q: Tensor) -> Any:
        return q @ encoding.tables[0].mT.to(q.dtype) * scale

    def change(numbers: Tensor) -> Change:
        last = setting.tokens - 1
        return lambda score, b, h, i, j: score + numbers[b, h, i, i - j + last]

    return _compiled(setting, products, change, encoding)


def _clipped_rows(code: Any, encoding: Any, setting: Setting) -> Made:
    scale, reach = setting.head_dim**-0.5, encoding.max_distance

    def products(q: Tensor) -> Any:
        return q @ encoding.key_table.mT.to(q.dtype) * scale

    def change(numbers: Tensor) -> Change:
        return lambda score, b, h, i, j: score + numbers[b, h, i, (i - j).clamp(-reach, reach) + reach]

    return _compiled(setting, products, change, encoding)


def _decomposed_rows(code: Any, encoding: Any, setting: Setting) -> Made:
    (height, width), scale = setting.shape, setting.head_dim**-0.5
    rows = 2 * height - 1

    def products(q: Tensor) -> Any:
        return q @ torch.cat(list(encoding.tables), 1).mT.to(q.dtype) * scale

    def change(numbers: Tensor) -> Change:
        return lambda score, b, h, i, j: (
            score
            + numbers[b, h, i, i // width - j // width + height - 1]
            + numbers[b, h, i, rows + i % width - j % width + width - 1]
        )

    return _compiled(setting, products, change, encoding)


def _compiled(
    setting: Setting, evaluate: Callable[[Tensor], Any], change: Callable[[Tensor], Change], encoding: Any
) -> Made:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()  # each case compiles anew, and none falls back for having been preceded by many
    mask = None
    if setting.causal:
        mask = create_block_mask(
            lambda b, h, i, j: i >= j, None, None, setting.asking, setting.tokens, device=setting.device
        )

    @torch.compile
    def attend(q: Tensor, k: Tensor, v: Tensor, numbers: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=change(numbers), block_mask=mask)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return attend(q, k, v, evaluate(q).contiguous())

    return Made(call, list(encoding.parameters()))


HOME = "torch.nn.attention.flex_attention"

PEERS = (
    *(
        Peer(scheme, "FlexAttention", scheme, HOME, _lags, some=True, compiled=True)
        for scheme in ("ALiBi", "T5Bias", "Kerple", "Sandwich")
    ),
    *(
        Peer(scheme, "FlexAttention", scheme, HOME, _lags, axes=(2,), causal=False, compiled=True)
        for scheme in ("RelativePositionBias", "ContinuousPositionBias")
    ),
    Peer("RelativeLogits", "FlexAttention", "RelativeLogits", HOME, _rows, compiled=True),
    Peer("Shaw", "FlexAttention", "Shaw", HOME, _clipped_rows, options=(("values", False),), compiled=True),
    Peer(
        "RelativeLogits",
        "FlexAttention",
        "RelativeLogits, 2 axes",
        HOME,
        _decomposed_rows,
        axes=(2,),
        causal=False,
        compiled=True,
    ),
)
