"""Attention problems for the fused kernel: schemes, layouts, sizes, masks and strides in all combinations."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

import posenc
from laws.subject import INSIDE, Subject
from posenc import catalog

REFUSED = ("XPos", "CoPE")

SUBJECTS = [
    Subject(card, arguments, getattr(posenc, card.name))
    for card in catalog.CARDS
    if card.place in INSIDE and card.name not in REFUSED
    for arguments in card.examples
]

SHAPES = {  # of about so many tokens, on one axis, two and three
    1: [(1,), (1, 1), (1, 1, 1)],
    17: [(17,), (1, 17), (17, 1, 1)],
    65: [(65,), (5, 13), (5, 1, 13)],
    91: [(91,), (7, 13), (3, 5, 6)],
    320: [(320,), (16, 20), (4, 8, 10)],
    1025: [(1025,), (25, 41), (5, 5, 41)],
}


class Setting(NamedTuple):
    """Everything about an attention but its schemes and its numbers. What a scheme cannot have is left as it is."""

    dtype: torch.dtype = torch.float32
    tokens: int = 91
    layout: str = "grid"
    queries: int | None = None
    causal: bool = False
    window: int | None = None
    mask: str | None = None
    key_mask: bool = False
    batch: int = 2
    head_dim: int | None = None
    value_dim: int | None = None
    groups: int | None = None
    strides: str = "contiguous"


class Problem(NamedTuple):
    """What `posenc.attention` is called with."""

    q: Tensor
    k: Tensor
    v: Tensor
    encodings: list[posenc.Encoding]
    options: dict[str, Any]


def of_width(subject: Subject, head_dim: int) -> Subject:
    """The subject for heads of another width, or itself where it was made for no width or for one alone."""
    arguments = dict(subject.arguments)
    if "head_dim" not in arguments or "scaling" in arguments or "rotary_dim" in arguments:
        return subject
    arguments["head_dim"] = head_dim
    if "sections" in arguments:
        if head_dim < 8:
            return subject
        pairs = head_dim // 2
        arguments["sections"] = (pairs - 2 * (pairs // 3), pairs // 3, pairs // 3)
    try:
        subject.kind(**arguments)
    except ValueError:  # an odd width, or one that does not go with its other numbers
        return subject
    return subject._replace(arguments=arguments)


def together(subjects: list[Subject]) -> list[Subject]:
    """Those that go with the first: as many axes, heads and channels, and prefix tokens of their own or none."""
    first = subjects[0]
    chosen: list[Subject] = []
    for subject in subjects:
        heads = {each.arguments.get("num_heads") for each in (*chosen, subject)} - {None}
        widths = {each.arguments.get("head_dim") for each in (*chosen, subject)} - {None}
        prefixes = {each.prefix for each in (*chosen, subject)}
        if subject.axes == first.axes and len(heads) <= 1 and len(widths) <= 1 and len(prefixes) == 1:
            chosen.append(subject)
    return chosen


def build(subjects: Subject | list[Subject], setting: Setting) -> Problem:
    """A problem with these schemes, its numbers drawn by torch's generator and `random`."""
    subjects = together(subjects if isinstance(subjects, list) else [subjects])
    if setting.head_dim is not None:
        subjects = [of_width(subject, setting.head_dim) for subject in subjects]
        subjects = together(subjects)
    first = subjects[0]
    axes, prefix = first.axes, first.prefix
    heads = next((each.arguments["num_heads"] for each in subjects if each.arguments.get("num_heads")), 4)
    widths = [each.arguments["head_dim"] for each in subjects if "head_dim" in each.arguments]
    head_dim = widths[0] if widths else setting.head_dim or 16
    shape = SHAPES[setting.tokens][axes - 1]
    encodings = [subject.on(*shape).make() for subject in subjects]
    if not prefix and setting.layout == "prefix":
        prefix = 2
    queries, keys = laid_out(setting, shape, prefix, encodings)
    options: dict[str, Any] = {"positions": queries, "key_positions": keys}
    if queries is keys:
        del options["key_positions"]
    i, j, batch = queries.length, keys.length, setting.batch
    if queries is keys and setting.queries is not None:
        i = min(i, setting.queries)
    options["causal"] = setting.causal or any(subject.causal for subject in subjects)
    options["window"] = setting.window
    if setting.mask is not None:
        options["mask"] = mask_of(setting.mask, (batch, heads, i, j))
    if setting.key_mask:
        options["key_mask"] = torch.rand(batch, j) < 0.7
    joined = any(term.joins_values for term in (each.term(queries, keys) for each in encodings))
    value_dim = head_dim if joined or setting.value_dim is None else setting.value_dim
    groups = heads if setting.groups is None or heads % setting.groups else setting.groups
    sizes = (batch, heads, i, head_dim), (batch, groups, j, head_dim), (batch, groups, j, value_dim)
    q, k, v = (strided(setting.strides, *size, dtype=setting.dtype) for size in sizes)
    while refused(q, k, v, encodings, options):
        encodings.pop()
    return Problem(q, k, v, encodings, options)


def refused(q: Tensor, k: Tensor, v: Tensor, encodings: list[posenc.Encoding], options: dict[str, Any]) -> bool:
    """Whether the kernel leaves these encodings together to other backends."""
    ready = [encoding.to(torch.promote_types(q.dtype, torch.float32)) for encoding in encodings]
    return posenc.explain(q, k, v, *ready, **options).backend.NAME != "cpu"


def laid_out(
    setting: Setting, shape: tuple[int, ...], prefix: int, encodings: list[posenc.Encoding]
) -> tuple[posenc.Positions, posenc.Positions]:
    """Queries and keys as the setting says, or on a grid where a scheme cannot stand so."""
    plain = posenc.grid(*shape, prefix=prefix)
    make = LAYOUTS.get(setting.layout)
    if make is None:
        return plain, plain
    try:
        layouts = make(shape, prefix, setting.batch)
        for encoding in encodings:
            term = encoding.term(*layouts)
            assert getattr(term, "form", "") != "other" or isinstance(term, posenc.Rotation)
    except (AssertionError, TypeError, ValueError):
        return plain, plain
    return layouts


def cells(shape: tuple[int, ...]) -> Tensor:
    return posenc.grid(*shape).coordinates()


def shuffled(shape: tuple[int, ...], prefix: int, batch: int) -> Any:
    """Cells in another order in each row of the batch, seen in the order of the cells."""
    count = cells(shape).shape[0]
    orders = torch.stack([torch.randperm(count) for _ in range(batch)])
    order = torch.cat([torch.arange(prefix).expand(batch, -1), orders + prefix], 1)
    positions = posenc.coordinates(cells(shape)[orders], prefix=prefix, order=order, extent=shape)
    return positions, positions


def documents(shape: tuple[int, ...], prefix: int, batch: int) -> Any:
    """Cells in any order, each in one of three documents, the same for all rows."""
    count = cells(shape).shape[0]
    order = torch.randperm(count)
    positions = posenc.coordinates(
        cells(shape)[order],
        prefix=prefix,
        order=torch.arange(prefix + count),
        document=torch.randint(0, 3, (prefix + count,)),
        extent=shape,
    )
    return positions, positions


def zigzag(shape: tuple[int, ...], prefix: int, batch: int) -> Any:
    """The shard of the first of three devices, its first and its last piece, against everything."""
    count = cells(shape).shape[0]
    pieces = torch.arange(count).chunk(6)
    shard = torch.cat([pieces[0], pieces[-1]])
    everything = posenc.coordinates(cells(shape), order=torch.arange(count), extent=shape)
    return posenc.coordinates(cells(shape)[shard], order=shard, extent=shape), everything


def packed(shape: tuple[int, ...], prefix: int, batch: int) -> Any:
    (count,) = shape
    assert not prefix
    lengths, left = [], count
    while left:
        lengths.append(min(random.randint(0, max(count // 2, 1)), left))
        left -= lengths[-1]
    positions = posenc.packed(lengths)
    return positions, positions


def padded(shape: tuple[int, ...], prefix: int, batch: int) -> Any:
    """Rows of many tokens and of none, padding on the left in every other row."""
    assert not prefix
    sizes = torch.randint(0, shape[-1] + 1, (batch,))
    index = torch.arange(shape[-1])
    mask = torch.stack(
        [(index >= shape[-1] - size) if row % 2 else (index < size) for row, size in enumerate(sizes.tolist())]
    )
    mask = mask.reshape(batch, *[1] * (len(shape) - 1), -1).expand(batch, *shape)
    positions = posenc.padded(mask)
    return positions, positions


def starts(shape: tuple[int, ...], prefix: int, batch: int) -> Any:
    (count,) = shape
    assert not prefix
    positions = posenc.sequence(count, torch.randint(-50, 9000, (batch,)))
    return positions, positions


def start(shape: tuple[int, ...], prefix: int, batch: int) -> Any:
    (count,) = shape
    assert not prefix
    positions = posenc.sequence(count, torch.tensor(12345))
    return positions, positions


def anywhere(shape: tuple[int, ...], prefix: int, batch: int) -> Any:
    """Integers without an extent."""
    places = cells(shape)[torch.randint(0, cells(shape).shape[0], (batch, cells(shape).shape[0]))]
    order = torch.randperm(places.shape[1] + prefix)
    positions = posenc.coordinates(places, prefix=prefix, order=order)
    return positions, positions


def real(shape: tuple[int, ...], prefix: int, batch: int) -> Any:
    places = cells(shape) + torch.rand(batch, *cells(shape).shape)
    order = torch.stack([torch.randperm(places.shape[1] + prefix) for _ in range(batch)])
    positions = posenc.coordinates(places, prefix=prefix, order=order)
    return positions, positions


def pooled(shape: tuple[int, ...], prefix: int, batch: int) -> Any:
    """Keys on every second cell, and a prefix of another length."""
    assert not prefix
    return posenc.grid(*shape), posenc.grid(*(-(-size // 2) for size in shape), prefix=1, step=2)


LAYOUTS: dict[str, Callable[[tuple[int, ...], int, int], tuple[posenc.Positions, posenc.Positions]]] = {
    make.__name__: make for make in (shuffled, documents, zigzag, packed, padded, starts, start, anywhere, real, pooled)
}


MASKS = {  # which dimensions are not broadcast
    "full": (True, True, True, True),
    "shared": (False, False, True, True),
    "heads": (False, True, False, True),
    "rows": (True, False, True, False),
    "blind": (True, True, True, True),
}


def mask_of(kind: str, full: tuple[int, int, int, int]) -> Tensor:
    """One in four entries is False; where it is blind, a third of all rows."""
    sizes = [size if own else 1 for size, own in zip(full, MASKS[kind], strict=True)]
    mask = torch.rand(sizes) < 0.75
    return mask & (torch.rand(*sizes[:3], 1) < 0.7) if kind == "blind" else mask


def strided(kind: str, *size: int, dtype: torch.dtype) -> Tensor:
    """Numbers `[batch, heads, tokens, channels]`, laid out as the kind says."""
    batch, heads, tokens, channels = size

    def draw(*sizes: int) -> Tensor:
        return torch.randn(sizes, dtype=torch.float64).to(dtype)

    if kind == "tokens first":
        return draw(batch, tokens, heads, channels).transpose(1, 2)
    if kind == "every other channel":
        return draw(batch, heads, tokens, 2 * channels)[..., 1::2]
    if kind == "channels first":
        return draw(batch, heads, channels, tokens).mT
    if kind == "one for all heads":
        return draw(batch, 1, tokens, channels).expand(size)
    if kind == "one for all rows":
        return draw(1, 1, tokens, channels).expand(size)
    if kind == "inside":
        return draw(batch + 1, heads + 2, tokens + 3, channels + 5)[1:, 1:-1, 2:-1, 3:-2]
    if kind == "part of three":
        return draw(batch, tokens, 3, heads, channels)[:, :, 1].transpose(1, 2)
    return draw(*size)


STRIDES = (
    "contiguous",
    "tokens first",
    "every other channel",
    "channels first",
    "one for all heads",
    "one for all rows",
    "inside",
    "part of three",
)
