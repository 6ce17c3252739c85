"""What an encoding looks like after training, as small arrays that a report can draw.

`attention` is the same for every encoding: how much each head of the first block attends to a relative position,
averaged over held-out examples. `own` depends on the place: similarity of the added vectors, bias or logit by relative
position, response of a convolution to one token.
"""

import math
from typing import Any

import torch
from torch import Tensor

import posenc
from posenc.compare.model import Model
from posenc.compare.tasks import Place, Task

__all__ = ["by_relative", "portrait"]

EXAMPLES = 16


@torch.no_grad()
def portrait(model: Model, task: Task) -> dict[str, Any]:
    """The two pictures of a trained model, rounded to what an eye can see."""
    batch = next(task.held_out(task.conditions()[0]))
    inputs = batch.inputs[:EXAMPLES]
    mask = None if batch.place.mask is None else batch.place.mask[:EXAMPLES]
    place = Place(tuple(batch.place.shape), mask=mask)
    positions, terms = model.encode(place)
    q, k, v = model.blocks[0].project(model.embedded(inputs, positions))
    weights = attention_weights(q, k, v, terms, model.options(place)).mean(0)
    found = {"shape": list(place.shape), "attention": rounded(by_relative(weights, place.shape))}
    everywhere = model.contestant.positions(task, Place(place.shape))  # one row, without padding
    own = _own(model, q, k, everywhere, place, task)
    return found | ({} if own is None else {"own": own})


def attention_weights(q: Tensor, k: Tensor, v: Tensor, terms: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    """The weights that `posenc.attention` uses, `[b, h, i, j]`.

    Attention is linear in the values, so values that are columns of the identity read the weights out, and values of
    zero read out what the encoding itself adds to the output.
    """
    length, width = k.shape[-2], v.shape[-1]
    added = posenc.attention(q, k, torch.zeros_like(v), *terms, **options)
    columns = []
    for start in range(0, length, width):
        one_hot = torch.zeros(length, width)
        rows = torch.arange(start, min(start + width, length))
        one_hot[rows, rows - start] = 1.0
        read = posenc.attention(q, k, one_hot.expand_as(v).contiguous(), *terms, **options) - added
        columns.append(read[..., : len(rows)])
    return torch.cat(columns, -1)


def by_relative(pairs: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Means of `[..., n, n]` over the pairs of each relative position, `[..., 2s − 1, ...]`, ascending."""
    index = posenc.relative_index(shape)
    lags = [2 * size - 1 for size in shape]
    index = index.flatten()
    count = torch.zeros(math.prod(lags)).index_add(0, index, torch.ones(len(index)))
    total = torch.zeros(*pairs.shape[:-2], math.prod(lags)).index_add(-1, index, pairs.flatten(-2).float())
    means: Tensor = (total / count).unflatten(-1, lags)
    return means


def rounded(values: Tensor) -> list[Any]:
    """Nested lists with four significant digits."""
    flat = [float(f"{value:.4g}") for value in values.flatten().tolist()]
    nested: list[Any] = torch.tensor(flat, dtype=torch.float64).reshape(values.shape).tolist()
    return nested


def _own(model: Model, q: Tensor, k: Tensor, positions: Any, place: Place, task: Task) -> dict[str, Any] | None:
    encoding, enters = model.encoding, model.contestant.enters
    if encoding is None:
        return None
    n, width = q.shape[-2], q.shape[1] * q.shape[-1]
    if enters == "embeddings":
        vectors = encoding(torch.zeros(1, n, width), positions)[0]
        vectors = torch.nn.functional.normalize(vectors - vectors.mean(0), dim=-1)
        step = max(1, n // 64) if task.axes == 1 else 1
        return {"kind": "similarity", "values": rounded((vectors @ vectors.T)[::step, ::step])}
    if enters == "between":
        still = torch.zeros(1, n, width)
        impulse = still.clone()
        centre = sum(size // 2 * math.prod(place.shape[axis + 1 :]) for axis, size in enumerate(place.shape))
        impulse[:, centre] = 1.0
        response = (encoding(impulse, positions) - encoding(still, positions) - impulse)[0].mean(-1)
        return {"kind": "response", "values": rounded(response.reshape(place.shape))}
    if isinstance(encoding, posenc.BiasEncoding):
        logits = encoding(positions)
        logits = logits[0] if logits.ndim == 4 else logits
        kind = "bias"
    elif isinstance(encoding, posenc.RotaryEncoding):
        ones = torch.ones(1, encoding.num_heads or 1, n, q.shape[-1])
        turned = encoding(ones, ones, positions)
        logits, kind = (turned[0] @ turned[1].transpose(-1, -2))[0] / q.shape[-1], "rotation"
    else:
        keys = {"k": k} if encoding.meets_keys else {}
        logits = encoding(q, positions, **keys).mean(0) / math.sqrt(q.shape[-1])
        logits, kind = torch.nan_to_num(logits, neginf=0.0), "content"
    return {"kind": kind, "values": rounded(by_relative(logits, place.shape))}
