"""How far a computation is from the same one in float64, beside how far our dense path is in the same dtype."""

import copy
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

import posenc
from posenc.bench.calls import Call, called, embeds
from posenc.bench.machine import memory_limit
from posenc.bench.setting import Setting, Subject

__all__ = ["Error", "Errors", "errors"]

MOST_BYTES = 2**27  # of the float64 logits that are written at a time
SEED = 20180607
ROUNDING = 1e-9  # of the largest number of all tensors: in float64 less than that is 0


class Error(NamedTuple):
    """The largest difference from float64, over the largest number there, of all tensors that are compared."""

    own: float
    dense: float | None
    """Of our dense path in the same dtype; None where there is none."""


class Errors(NamedTuple):
    """Of the output, and of the gradients if trained: by queries, keys and values, and by what ours trains."""

    output: Error
    gradients: Error | None
    queries: int
    """How many rows of the output were compared, and had gradients; they are spread evenly over all."""


def errors(subject: Subject, setting: Setting, train: bool) -> Errors | None:
    """The errors of a subject, or None where there is no position in it to be right about."""
    if subject.way in ("plain", "plain with a ready mask", "clone"):
        return None
    call = called(subject, setting, train)
    ours = subject.way in ("attention", "rotate")  # what others train has no gradient of ours beside it
    rows = None if embeds(subject) or subject.way in ("rotate", "ready rotate", "ready rotate_") else _rows(setting)
    wide = Call(call.forward, [_wide(each) for each in call.given], [], copy.deepcopy(call.encoding))
    if wide.encoding is not None:
        wide.encoding.double()
    exact = _results(subject, setting, wide, rows, train and ours, train)
    with torch.set_grad_enabled(train):
        outputs = call.forward()[-1 if embeds(subject) else 0 :]
    gradients = _gradients(outputs, call, rows, ours) if train else []
    own = [_picked(output.detach(), rows) for output in outputs]
    dense = None
    if rows is not None:
        dense = _results(subject, setting, call, rows, train and ours, train)
    output = Error(_largest(own, exact[0]), None if dense is None else _largest(dense[0], exact[0]))
    trained = Error(_largest(gradients, exact[1]), None if dense is None else _largest(dense[1], exact[1]))
    return Errors(output, trained if train else None, setting.asking if rows is None else len(rows))


def _rows(setting: Setting) -> Tensor:
    """Rows of the output, as many as fit in bounded memory: all prefix tokens, then spread from first to last."""
    limit = min(MOST_BYTES, (memory_limit() or 2**40) // 64)
    count = max(1, limit * setting.asking // (8 * setting.logits))
    if count >= setting.asking:
        return torch.arange(setting.asking)
    prefix = torch.arange(setting.prefix)
    spread = torch.linspace(setting.prefix, setting.asking - 1, max(2, count), dtype=torch.float64).round().long()
    return torch.cat([prefix, spread.unique()])


def _results(
    subject: Subject, setting: Setting, call: Call, rows: Tensor | None, encoding_too: bool, train: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs of the dense path in the dtype of what is given, and gradients, for some rows."""
    q, k, v = call.given[:3]
    with torch.set_grad_enabled(train):
        if embeds(subject):
            outputs = [call.encoding(call.given[3], setting.positions())]
        elif rows is None:
            outputs = list(call.encoding(q, k, setting.positions(), setting.positions()))
        else:
            encodings = [] if call.encoding is None else [call.encoding]
            some, options = (
                (q, {}) if len(rows) == setting.asking else (q[:, :, rows.to(q.device)], _places(setting, rows))
            )
            options = options or {"positions": setting.positions()}
            outputs = [posenc.attention(some, k, v, *encodings, **options, causal=setting.causal, backend="dense")]
    gradients = _gradients(outputs, call, None, encoding_too) if train else []
    return [output.detach() for output in outputs], gradients


def _places(setting: Setting, rows: Tensor) -> dict[str, Any]:
    """Where the queries of these rows stand, and all keys."""
    keys = setting.positions()
    first = setting.tokens - setting.asking  # of the tokens that ask
    order = rows + first
    inner = order[setting.prefix :] - setting.prefix
    queries = posenc.coordinates(keys.coordinates()[inner], prefix=setting.prefix, order=order, extent=setting.shape)
    return {"positions": queries, "key_positions": keys}


def _gradients(outputs: list[Tensor], call: Call, rows: Tensor | None, encoding_too: bool) -> list[Tensor]:
    """By what is given, and by the encoding's parameters; only some rows of the output have a gradient."""
    generator = torch.Generator().manual_seed(SEED)
    inputs = [each for each in call.given if each.requires_grad]
    if encoding_too and call.encoding is not None:
        inputs += [each for each in call.encoding.parameters() if each.requires_grad]
    sent = []
    for output in outputs:
        shape = list(output.shape)
        if rows is not None:
            shape[2] = len(rows)
        # drawn in bfloat16, which every dtype holds
        drawn = torch.randn(shape, generator=generator).bfloat16().to(output.device, output.dtype)
        if rows is not None and len(rows) < output.shape[2]:
            drawn = torch.zeros_like(output).index_copy(2, rows.to(output.device), drawn)
        sent.append(drawn)
    found = torch.autograd.grad(outputs, inputs, sent, allow_unused=True)
    return [torch.zeros_like(given) if each is None else each for given, each in zip(inputs, found, strict=True)]


def _picked(output: Tensor, rows: Tensor | None) -> Tensor:
    return output if rows is None or len(rows) == output.shape[2] else output[:, :, rows.to(output.device)]


def _wide(tensor: Tensor) -> Tensor:
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


def _largest(found: list[Tensor], exact: list[Tensor]) -> float:
    """The largest difference over the largest number of its tensor; not a number where one is not."""
    sizes = [float(right.abs().max()) for right in exact]
    worst = 0.0
    for mine, right, size in zip(found, exact, sizes, strict=True):
        # what is nothing but rounding, as the gradient of a number that cancels out, is measured by the others
        scale = size if size > ROUNDING * max(sizes) else max(sizes)
        off = float((mine.double() - right).abs().max()) / (scale or 1.0)
        worst = off if math.isnan(off) else max(worst, off)
    return worst
