"""Problems that Hypothesis draws: a scheme, a layout of tokens, queries and keys, masks, dtypes; and the right answer.

Layouts are said twice: as posenc's positions, and as plain lists of what each token is, which the answer is made from.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

import posenc
from laws.oracle import refer_attention, refer_embedding
from laws.subject import OUTSIDE, Subject


class Tokens(NamedTuple):
    """What each token is, one array a batch row: coordinates (NaN in the prefix), order, document, present."""

    coordinates: list[np.ndarray]
    order: list[np.ndarray]
    document: list[np.ndarray]
    present: list[np.ndarray]

    @classmethod
    def of(cls, rows: int, coordinates: Any, order: Any = None, document: Any = None, present: Any = None) -> "Tokens":
        """The same in each row, where only one is given; by default in order, one document, nothing padded."""
        length = len(coordinates[0])

        def each(given: Any, default: np.ndarray) -> list[np.ndarray]:
            return [default] * rows if given is None else [np.asarray(row) for row in (given * rows)[:rows]]

        return cls(
            each(coordinates, np.empty(0)),
            each(order, np.arange(length)),
            each(document, np.zeros(length)),
            each(present, np.ones(length, bool)),
        )


class Drawn(NamedTuple):
    """One attention; `said` is how it is told where tokens stand, and `seed` draws the numbers."""

    subject: Subject
    kind: str
    layout: Callable[[], posenc.Positions]
    tokens: Tokens
    batch: int
    queries: int
    options: dict[str, Any]
    said: str
    dtype: torch.dtype
    groups: int
    seed: int


def schemes(subjects: list[Subject]) -> st.SearchStrategy[Subject]:
    """Any example of any card; a scheme first, so that one with many examples is not drawn more often."""
    names = sorted({subject.card.name for subject in subjects})
    return st.sampled_from(names).flatmap(
        lambda name: st.sampled_from([subject for subject in subjects if subject.card.name == name])
    )


@st.composite
def problems(draw: st.DrawFn, subjects: list[Subject]) -> Drawn:
    subject, batch = draw(schemes(subjects)), draw(st.integers(1, 3))
    kind, layout, tokens = draw(layouts(subject, batch))
    length = len(tokens.order[0])
    outside = subject.place in OUTSIDE
    options: dict[str, Any] = {"causal": subject.causal or draw(st.booleans())}
    if draw(st.booleans()):
        options["window"] = draw(st.integers(0, length))
    for mask in ("mask", "key_mask"):
        if draw(st.integers(0, 2)) == 0:
            options[mask] = draw(st.integers(0, 2**32 - 1))
    options["backend"] = draw(st.sampled_from(["auto", "dense"]))
    if "allowed" not in subject.takes and draw(st.booleans()):  # gates are of the default scale
        options["scale"] = draw(st.floats(0.1, 2.0))
    return Drawn(
        subject,
        kind,
        layout,
        tokens,
        batch,
        length if outside else draw(st.integers(1, length)),
        options,
        draw(st.sampled_from(["of the keys", "of both", "by the term"])),
        draw(st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16])),
        draw(st.sampled_from([count for count in range(1, subject.heads + 1) if subject.heads % count == 0])),
        draw(st.integers(0, 2**32 - 1)),
    )


@st.composite
def layouts(draw: st.DrawFn, subject: Subject, batch: int) -> tuple[str, Callable[[], posenc.Positions], Tokens]:
    """A layout that the subject can serve, to be made once all is drawn, and what its tokens are."""
    bounded = tuple(subject.arguments["shape"]) if subject.bounded else (6, 3, 2)
    bounded = (8,) if subject.axes == 1 and not subject.bounded else bounded[: subject.axes]
    sizes = tuple(draw(st.integers(1, min(size, 8))) for size in bounded)
    kinds = ["grid"]
    if subject.place != "conditional":
        kinds += ["shuffled"]
        if subject.axes == 1 and not subject.prefix:
            kinds += ["sequence", "packed", "padded"]
    kind = draw(st.sampled_from(kinds))
    if kind == "grid":
        prefix = draw(prefixes(subject))
        return kind, partial(posenc.grid, *sizes, prefix=prefix), Tokens.of(batch, [cells(sizes, prefix)])
    if kind == "shuffled":
        return kind, *draw(shuffled(subject, sizes, batch))
    (length,) = sizes
    if kind == "sequence":
        return kind, *draw(sequences(subject, length, batch))
    if kind == "packed":
        lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3).filter(any))
        lengths = [min(count, bounded[0]) for count in lengths]
        layout = partial(posenc.packed, torch.tensor(lengths) if draw(st.booleans()) else lengths)
        coordinates = np.concatenate([np.arange(count) for count in lengths])[:, None]
        documents = np.repeat(np.arange(len(lengths)), lengths)
        return kind, layout, Tokens.of(batch, [coordinates], document=[documents])
    left = draw(st.booleans())
    counts = [draw(st.integers(0, length)) for _ in range(batch)]
    mask = np.array([[(length - 1 - i if left else i) < count for i in range(length)] for count in counts])
    coordinates = [np.array([max(sum(row[: i + 1]) - 1, 0) for i in range(length)])[:, None] for row in mask]
    return kind, partial(posenc.padded, torch.from_numpy(mask)), Tokens.of(batch, coordinates, present=list(mask))


def prefixes(subject: Subject) -> st.SearchStrategy[int]:
    """Prefix tokens: as many as there are numbers for, where an encoding has any for them or for places in a table."""
    own = subject.prefix or (subject.place == "absolute" and subject.bounded)
    return st.just(subject.prefix) if own else st.integers(0, 2)


def cells(sizes: tuple[int, ...], prefix: int = 0) -> np.ndarray:
    return np.concatenate([np.full((prefix, len(sizes)), np.nan), np.array(list(np.ndindex(*sizes)), float)])


@st.composite
def sequences(
    draw: st.DrawFn, subject: Subject, length: int, batch: int
) -> tuple[Callable[[], posenc.Positions], Tokens]:
    room = subject.arguments["shape"][0] - length if subject.bounded and subject.place == "absolute" else 10**6
    starts = [draw(st.integers(0 if room < 10**6 else -50, room)) for _ in range(batch)]
    form = draw(st.sampled_from(["number", "tensor", "a row each"]))
    if form != "a row each":
        starts = starts[:1] * batch
    start = {"number": starts[0], "tensor": torch.tensor(starts[0])}.get(form, torch.tensor(starts))
    rows = [np.arange(start, start + length)[:, None] for start in starts]
    return partial(posenc.sequence, length, start), Tokens.of(batch, rows, [row[:, 0] for row in rows])


@st.composite
def shuffled(
    draw: st.DrawFn, subject: Subject, sizes: tuple[int, ...], batch: int
) -> tuple[Callable[[], posenc.Positions], Tokens]:
    """Cells of a grid in any order, in one document or several, with an extent or without."""
    prefix = draw(prefixes(subject))
    rows = draw(st.sampled_from([1, batch]))
    count = int(np.prod(sizes))
    orders = [
        np.array([*range(prefix), *(prefix + np.array(draw(st.permutations(range(count)))))]) for _ in range(rows)
    ]
    places = [cells(sizes, prefix)[order] for order in orders]
    documents = np.array([draw(st.integers(0, 1)) for _ in range(prefix + count)]) if draw(st.booleans()) else None
    inner = np.stack(places)[:, prefix:].astype(int)
    told = draw(st.booleans())
    layout = partial(
        lambda **numbers: posenc.coordinates(**numbers, extent=sizes if told or subject.needs_extent else None),
        values=torch.from_numpy(inner if rows > 1 else inner[0]),
        prefix=prefix,
        order=torch.from_numpy(np.stack(orders) if rows > 1 else orders[0]),
        document=None if documents is None else torch.from_numpy(documents),
    )
    return layout, Tokens.of(batch, places, orders, None if documents is None else [documents])


def answer(drawn: Drawn) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """Our output, the right one, and which of its rows are those of tokens: `[batch, heads, queries, channels]`."""
    torch.manual_seed(drawn.seed)
    random.seed(drawn.seed)
    subject, options, positions = drawn.subject, dict(drawn.options), drawn.layout()
    length = positions.length
    encoding = subject.make(torch.promote_types(drawn.dtype, torch.float32))
    x = torch.randn(drawn.batch, length, subject.width).to(drawn.dtype)
    if subject.place in OUTSIDE:
        ours = encoding(x, positions)[:, None]
        rows = zip(x, drawn.tokens.coordinates, strict=True)
        wanted = np.stack([refer_embedding(subject, encoding, row, positions, where) for row, where in rows])
        return ours, wanted[:, None], np.stack(drawn.tokens.present)[:, None]
    size = drawn.batch, subject.heads, length, subject.head_dim
    q, k, v = (torch.randn(size).to(drawn.dtype) for _ in range(3))
    q, k, v = q[:, :, length - drawn.queries :], k[:, : drawn.groups], v[:, : drawn.groups]
    for name, full in (
        ("mask", (drawn.batch, subject.heads, drawn.queries, length)),
        ("key_mask", (drawn.batch, length)),
    ):
        if name in options:
            options[name] = torch.rand(full, generator=torch.Generator().manual_seed(options[name])) < 0.7
    queries, keys = positions.last(drawn.queries), positions
    term = encoding.term(queries, keys, dtype=torch.promote_types(drawn.dtype, torch.float32))
    ours = {
        "of the keys": lambda: posenc.attention(q, k, v, encoding, positions=keys, **options),
        "of both": lambda: posenc.attention(q, k, v, encoding, positions=queries, key_positions=keys, **options),
        "by the term": lambda: posenc.attention(q, k, v, term, **options),
    }[drawn.said]()
    wanted = np.zeros((drawn.batch, subject.heads, drawn.queries, subject.head_dim))
    for row in range(drawn.batch):
        allowed = _allowed(drawn, row, options)
        arrays = [tensor[row].double().numpy() for tensor in (q, k, v)]
        _attended(drawn, encoding, row, arrays, allowed, wanted[row])
    return ours, wanted, np.stack(drawn.tokens.present)[:, None, length - drawn.queries :]


def _allowed(drawn: Drawn, row: int, options: dict[str, Any]) -> np.ndarray:
    """Who sees whom, pair by pair, `[heads, queries, keys]`."""
    tokens, length = drawn.tokens, len(drawn.tokens.order[row])
    allowed = np.ones((drawn.subject.heads, drawn.queries, length), bool)
    order, document = tokens.order[row], tokens.document[row]
    for i in range(drawn.queries):
        query = length - drawn.queries + i
        for key in range(length):
            behind = order[query] - order[key]
            seen = document[query] == document[key] and tokens.present[row][key]
            seen = seen and not (options["causal"] and behind < 0)
            seen = seen and not ("window" in options and abs(behind) > options["window"])
            seen = seen and not ("key_mask" in options and not options["key_mask"][row, key])
            allowed[:, i, key] = seen
    return allowed & options["mask"][row].numpy() if "mask" in options else allowed


def _attended(
    drawn: Drawn, encoding: Any, row: int, arrays: list[np.ndarray], allowed: np.ndarray, wanted: np.ndarray
) -> None:
    """Attention of one row, a document at a time: what is in another document is as good as not there."""
    q, k, v = arrays
    where, document = drawn.tokens.coordinates[row], drawn.tokens.document[row]
    scale = drawn.options.get("scale")
    for each in np.unique(document):
        keys = np.flatnonzero((document == each) & drawn.tokens.present[row])
        queries = np.flatnonzero(document[len(document) - drawn.queries :] == each)
        if len(keys) and len(queries):
            wanted[:, queries] = refer_attention(
                drawn.subject,
                encoding,
                q[:, queries],
                k[:, keys],
                v[:, keys],
                where[len(document) - drawn.queries + queries],
                where[keys],
                allowed[:, queries][..., keys],
                scale,
            )
