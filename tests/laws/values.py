"""Laws of what an encoding computes: the reference's numbers, of relative position alone, whatever the layout."""

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

import posenc
from laws.oracle import refer_attention, refer_embedding, standing
from laws.subject import INSIDE, OUTSIDE, Subject, attend, draw, equal, law, part, shifted
from posenc.encoding import deal


def one_axis(subject: Subject) -> bool:
    return subject.axes == 1


def stands_alone(subject: Subject) -> bool:
    """Whether one sequence without prefix tokens is a layout for it."""
    return subject.axes == 1 and not subject.prefix


@law("equals the reference")
def equals_the_reference(subject: Subject) -> None:
    encoding, positions = subject.make(), subject.layout()
    if subject.place in OUTSIDE:
        x = draw(2, positions.length, subject.width)
        for row, ours in enumerate(encoding(x, positions)):
            equal(ours, refer_embedding(subject, encoding, x[row], positions, standing(positions)))
        return
    count, where = positions.length - 2, standing(positions)  # fewer queries than keys: the last ones
    size = 2, subject.heads, positions.length, subject.head_dim
    q, k, v = draw(*size)[:, :, :count], draw(*size), draw(*size)
    allowed = np.tril(np.ones((positions.length,) * 2, bool))[-count:][None] if subject.causal else None
    ours = posenc.attention(q, k, v, encoding, positions=positions, causal=subject.causal)
    for row in range(2):
        arrays = [x[row].numpy() for x in (q, k, v)]
        equal(ours[row], refer_attention(subject, encoding, *arrays, where[-count:], where, allowed))


@law("depends on relative position alone", INSIDE, lambda subject: subject.card.relative and not subject.by_length)
def depends_on_relative_position_alone(subject: Subject) -> None:
    encoding, positions = subject.make(), subject.layout()
    x = draw(2, positions.length, subject.width)
    shift = random.sample(range(-40, 400), subject.axes)
    equal(attend(subject, encoding, x, shifted(positions, shift)), attend(subject, encoding, x, positions), 1e-10)


@law("decoding token by token equals the full pass", ("absolute", *INSIDE))
def decoding_equals_the_full_pass(subject: Subject) -> None:
    encoding, positions = subject.make(), subject.layout()
    x = draw(2, positions.length, subject.width)
    if subject.place == "absolute":
        start = positions.prefix + 1
        steps = [encoding(x[:, :start], part(positions, 0, start))]
        steps += [encoding(x[:, i : i + 1], part(positions, i, i + 1)) for i in range(start, positions.length)]
        equal(torch.cat(steps, 1), encoding(x, positions))
        return
    whole = attend(subject, encoding, x, positions, causal=True)
    for end in range(1, positions.length + 1):
        newest = slice(end - min(end, 1 + end % 2), end)  # one token a step, or two
        seen, now = {"queries": newest, "keys": slice(end), "causal": True}, part(positions, 0, end)
        wanted = whole[:, :, newest]
        if subject.by_length:  # a longer sequence turns all its tokens otherwise: as long as it is now
            wanted = attend(subject, encoding, x[:, :end], now, causal=True)[:, :, newest]
        equal(attend(subject, encoding, x, now, **seen), wanted)
        if stands_alone(subject):  # and with nothing said of positions
            equal(attend(subject, encoding, x, **seen), wanted)


@law("padded equals alone", ("absolute", *INSIDE), stands_alone)
def padded_equals_alone(subject: Subject) -> None:
    encoding, (length,) = subject.make(), subject.shape()
    counts = [length, random.randint(1, max(length - 1, 1)), 0]
    for left in (True, False):
        mask = torch.arange(length) < torch.tensor(counts)[:, None]
        mask = mask.flip(1) if left else mask
        x = draw(3, length, subject.width)
        together = attend(subject, encoding, x, posenc.padded(mask))
        for row, count in enumerate(counts):
            real = slice(length - count, length) if left else slice(count)
            alone = attend(subject, encoding, x[row : row + 1, real], posenc.sequence(count))
            equal(together[row : row + 1, :, real], alone)


@law("packed equals separate", ("absolute", *INSIDE), stands_alone)
def packed_equals_separate(subject: Subject) -> None:
    encoding, (length,) = subject.make(), subject.shape()
    lengths = [random.randint(1, length), 1, length]
    x = draw(2, sum(lengths), subject.width)
    together = attend(subject, encoding, x, posenc.packed(lengths))
    separate = [
        attend(subject, encoding, document, posenc.sequence(document.shape[1])) for document in x.split(lengths, 1)
    ]
    equal(together, torch.cat(separate, 2))


@law("batch rows are independent")
def batch_rows_are_independent(subject: Subject) -> None:
    encoding, positions = subject.make(), subject.layout()
    for batch in (2, positions.length):  # as many rows as tokens: broadcasting hides an axis taken for another
        x = draw(batch, positions.length, subject.width)
        together = attend(subject, encoding, x, positions)
        assert together.shape == (batch, subject.heads, positions.length, subject.width // subject.heads)
        for row in range(batch):
            equal(together[row : row + 1], attend(subject, encoding, x[row : row + 1], positions))
        same = attend(subject, encoding, x[:1].expand_as(x), positions)
        equal(same, same[:1].expand_as(same))


@law("prefix tokens are untouched")
def prefix_tokens_are_untouched(subject: Subject) -> None:
    encoding, count = subject.make(), subject.prefix or 2
    positions, inner = subject.layout(prefix=count), slice(count, None)
    plain = posenc.grid(*positions.shape)
    q, k = (draw(2, subject.heads, positions.length, subject.head_dim) for _ in range(2))
    if subject.place in OUTSIDE:
        x = draw(2, positions.length, subject.width)
        y = encoding(x, positions)
        if not subject.prefix:
            assert torch.equal(y[:, :count], x[:, :count])
            equal(y[:, inner], encoding(x[:, inner], plain))
        else:  # rows of their own, and only theirs
            equal(y[:, :count] - x[:, :count], (y[:1, :count] - x[:1, :count]).expand(2, -1, -1))
    elif subject.place == "rotary":
        for turned, x in zip(encoding(q, k, positions), (q, k), strict=True):
            assert torch.equal(turned[:, :, :count], x[:, :, :count])
            assert not torch.allclose(turned[:, :, inner], x[:, :, inner])
    else:
        keys = [{}, {}] if not getattr(encoding, "meets_keys", False) else [{"k": k}, {"k": k[:, :, inner]}]
        inputs = [(), ()] if subject.place == "bias" else [(q,), (q[:, :, inner],)]
        framed = encoding(*inputs[0], positions, **keys[0])
        equal(framed[..., inner, inner], encoding(*inputs[1], plain, **keys[1]))
        frame = [framed[..., :count, inner], framed[..., inner, :count], framed[..., :count, :count]]
        own = encoding.prefix_values() if subject.place == "bias" else None
        for kind, values in enumerate(frame):
            wanted = torch.zeros_like(values) if own is None else own[:, kind, None, None].expand_as(values)
            assert torch.equal(values, wanted)


@law("axes are not mixed up", applies=lambda subject: subject.axes > 1)
def axes_are_not_mixed_up(subject: Subject) -> None:
    encoding, shape = subject.make(), subject.shape()
    positions = posenc.grid(*shape, prefix=subject.prefix)
    x = draw(2, positions.length, subject.width)
    ours = attend(subject, encoding, x, positions)
    if subject.place == "conditional":  # a neighbour on one axis is not a neighbour on another
        pulse = torch.zeros(1, positions.length, subject.width, dtype=torch.float64)
        centre = tuple(size // 2 for size in shape)
        pulse.unflatten(1, shape)[(0, *centre)] = 1.0
        reached = (encoding(pulse, positions) - encoding(torch.zeros_like(pulse), positions)).unflatten(1, shape)
        half = subject.arguments.get("kernel_size", 3) // 2
        cells = torch.stack(torch.meshgrid(*(torch.arange(size) for size in shape), indexing="ij"), -1)
        near = ((cells - torch.tensor(centre)).abs() <= half).all(-1)
        assert torch.equal((reached[0].abs() > 0).any(-1), near)
        return
    cells, prefix = positions.coordinates(), positions.prefix
    shuffle = torch.randperm(len(cells))
    tokens = torch.cat([torch.arange(prefix), shuffle + prefix])
    for extent in (positions.extent, None):  # the same cells in another order, with a table over lags and without
        if extent is None and not subject.card.relative and subject.place in INSIDE:
            continue
        elsewhere = posenc.coordinates(cells[shuffle], prefix=prefix, order=tokens, extent=extent)
        equal(attend(subject, encoding, x[:, tokens], elsewhere), ours[:, :, tokens])
    if subject.place == "absolute":  # every cell has a vector of its own
        assert len(encoding.vectors(cells).round(decimals=9).unique(dim=0)) == len(cells)
    else:  # every relative position has an effect of its own
        relative = cells[:, None] - cells
        distinct = (relative.abs() if subject.arguments.get("symmetric") else relative).flatten(0, 1).unique(dim=0)
        assert len(effects(subject, encoding, posenc.grid(*shape)).round(decimals=9).unique()) == len(distinct)


def effects(subject: Subject, encoding: posenc.Encoding, positions: posenc.Positions) -> Tensor:
    """What the encoding does to the logits of a head where all tokens are the same, less what it does at distance 0."""
    q, k = draw(2, 1, subject.heads, 1, subject.width // subject.heads).expand(-1, -1, -1, positions.length, -1)
    identity = torch.eye(positions.length, dtype=q.dtype).expand(1, subject.heads, -1, -1)
    term = encoding.term(positions, dtype=q.dtype)
    term.parts = [part for part in getattr(term, "parts", []) if part.side == "query"]
    logits = posenc.attention(q, k, identity, term, positions=positions)[0, 0].log()
    return logits - logits.diagonal()[:, None]


@law("grouped queries equal repeated heads", INSIDE)
def grouped_queries_equal_repeated_heads(subject: Subject) -> None:
    encoding, positions = subject.make(), subject.layout()
    size = positions.length, subject.width // subject.heads
    options = {"positions": positions, "causal": subject.causal}
    for groups in (count for count in range(1, subject.heads + 1) if subject.heads % count == 0):
        q, k, v = draw(2, subject.heads, *size), draw(2, groups, *size), draw(2, groups, *size)
        repeated = [x.repeat_interleave(subject.heads // groups, 1) for x in (k, v)]
        equal(posenc.attention(q, k, v, encoding, **options), posenc.attention(q, *repeated, encoding, **options))


@law("a row that sees nothing is zero")
def a_row_that_sees_nothing_is_zero(subject: Subject) -> None:
    encoding, positions = subject.make(), subject.layout()
    x = draw(2, positions.length, subject.width).requires_grad_()
    mask = torch.rand(2, subject.heads, positions.length, positions.length) < 0.7
    mask[0, :, 1], mask[1, :, 1, 0] = False, True
    out = attend(subject, encoding, x, positions, mask=mask)
    assert not out[0, :, 1].any()
    assert out[1, :, 1].any()
    out.square().sum().backward()
    gradients = [x.grad, *(parameter.grad for parameter in encoding.parameters())]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


@law("a shift is a linear map", applies=lambda subject: subject.card.name == "Sinusoidal")
def a_shift_is_a_linear_map(subject: Subject) -> None:
    """PE(p + k) = M_k PE(p): fitted on some positions, M_k carries all others, whatever p."""
    encoding = subject.make()
    shift = torch.tensor(random.sample(range(1, 60), subject.axes))
    places = torch.randint(0, 200, (8 * subject.arguments["dim"], subject.axes))
    before, after = encoding.vectors(places), encoding.vectors(places + shift)
    whole = paired_channels(encoding)
    before, after = before[:, whole], after[:, whole]
    half = len(places) // 2
    linear = torch.linalg.lstsq(before[:half], after[:half], driver="gelsd").solution
    equal(before[half:] @ linear, after[half:], 1e-6)


def paired_channels(encoding: Any) -> Tensor:
    """The channels whose sine has its cosine; an odd block ends in a sine alone."""
    zero, rest = encoding.vectors(torch.zeros(1, encoding.axes))[0], []
    start = 0
    for width in [deal(encoding.dim, encoding.axes)[axis] for axis in encoding.axis_order]:
        lonely = start + (width // 2 if encoding.layout == "concatenated" else width - 1)
        rest += [channel for channel in range(start, start + width) if width % 2 == 0 or channel != lonely]
        start += width
    assert len(zero) == start
    return torch.tensor(rest)
