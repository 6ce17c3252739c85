"""A subject to put under the laws, the table of laws, and what they share: attention around it, drawing, comparing."""

import inspect
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import posenc
from posenc import reference

OUTSIDE = ("absolute", "conditional")
INSIDE = ("rotary", "bias", "content")
PLACES = OUTSIDE + INSIDE


class Subject(NamedTuple):
    """An encoding's class with arguments to make it, and the shape of the tokens where a test wants one."""

    card: Any
    arguments: dict[str, Any]
    kind: Callable[..., posenc.Encoding]
    tokens: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.card.name}({arguments})" + (f" on {self.tokens}" if self.tokens else "")

    @property
    def place(self) -> str:
        return self.card.place

    @property
    def axes(self) -> int:
        if self.card.axes.isdigit():
            return int(self.card.axes)
        return len(self.arguments["shape"]) if "shape" in self.arguments else self.arguments.get("axes", 1)

    @property
    def causal(self) -> bool:
        """Whether the encoding is for decoders alone."""
        return self.card.causal or (self.place in INSIDE and bool(self.arguments.get("causal", False)))

    @property
    def heads(self) -> int:
        return 1 if self.place in OUTSIDE else self.arguments.get("num_heads") or 4

    @property
    def head_dim(self) -> int:
        return self.arguments.get("head_dim", 16)

    @property
    def width(self) -> int:
        """Channels of the embeddings that `attend` splits into heads."""
        return self._plain().dim if self.place in OUTSIDE else self.heads * self.head_dim

    @property
    def prefix(self) -> int:
        """Prefix tokens that the encoding has numbers of its own for."""
        return self.arguments.get("prefix", 1 if self.arguments.get("prefix_bias") else 0)

    @property
    def by_length(self) -> bool:
        """Whether its numbers depend on how long the sequence is, so that a shift of all positions changes them."""
        return getattr(self._plain(), "by_length", False)

    @property
    def needs_extent(self) -> bool:
        """Whether it makes a table of all lags, of which there must be a number."""
        try:
            self._plain().term(posenc.coordinates(torch.zeros(1, self.axes, dtype=torch.long)))
        except (TypeError, ValueError) as error:
            return "extent" in str(error)
        return False

    @property
    def bounded(self) -> bool:
        """Whether positions must stay inside a table."""
        return "shape" in self.arguments

    @property
    def graph(self) -> tuple[Any, ...]:
        """What decides which operations it consists of, apart from its numbers, sizes and the order of its channels."""
        words = {name: value for name, value in self.arguments.items() if isinstance(value, bool | str)}
        words |= {"terms": self.arguments.get("terms"), "layout": None}
        return min(self.axes, 2), self.prefix > 0, self.by_length, sorted(words.items(), key=repr)

    def _plain(self) -> Any:
        return self.kind(**self.arguments)

    def make(self, dtype: torch.dtype = torch.float64) -> posenc.Encoding:
        """The encoding, its trained and drawn numbers drawn large enough to matter."""
        encoding = self.kind(**self.arguments).to(dtype)
        with torch.no_grad():
            for name, tensor in encoding.state_dict().items():
                tensor.normal_(std=tensor.shape[-1] ** -0.5 if name.endswith("weight") and tensor.ndim == 2 else 1.0)
                if tensor.numel() == 1:
                    tensor.abs_()  # a number that all heads share is a scale or a threshold
        return encoding

    def on(self, *tokens: int) -> "Subject":
        """The subject on tokens of this shape; one with a table has a table of it."""
        arguments = {**self.arguments, "shape": tokens} if self.bounded else self.arguments
        return self._replace(arguments=arguments, tokens=tokens)

    def shape(self) -> tuple[int, ...]:
        """A shape that the encoding can serve: its own, or a small one at random."""
        if self.tokens:
            return self.tokens
        if self.bounded:
            return tuple(self.arguments["shape"])
        return (random.randint(5, 9),) if self.axes == 1 else tuple(random.sample(range(2, 5), self.axes))

    def layout(self, prefix: int | None = None) -> posenc.Positions:
        return posenc.grid(*self.shape(), prefix=self.prefix if prefix is None else prefix)

    def state(self, encoding: posenc.Encoding) -> dict[str, Any]:
        """Trained and drawn numbers by the names that the reference gives them."""
        state: dict[str, Any] = {}
        for name, tensor in encoding.state_dict().items():
            if name.startswith("tables."):
                state.setdefault("tables", []).append(tensor.numpy())
            else:
                state[name.removeprefix("convolution.").replace(".", "_")] = tensor.numpy()
        return state

    @property
    def takes(self) -> frozenset[str]:
        """What its reference asks for."""
        return frozenset(inspect.signature(getattr(reference, self.card.reference)).parameters)

    def refer(self, encoding: posenc.Encoding, *inputs: Any, suffix: str = "", **more: Any) -> np.ndarray:
        """The reference of the scheme with this encoding's arguments and numbers."""
        function = getattr(reference, self.card.reference + suffix)
        numbers = {**self.arguments, **self.state(encoding)}  # one that is trained has left the value it began with
        return function(*inputs, **more, **numbers)


class Law(NamedTuple):
    """A law, the places it is about, and the cards: `applies(subject)` says whether it is about a scheme at all.

    A slow law (it compiles or exports) is for those examples of a card alone whose graphs differ.
    """

    check: Callable[[Subject], None]
    places: tuple[str, ...]
    applies: Callable[[Subject], bool]
    slow: bool = False

    def concerns(self, subject: Subject) -> bool:
        return subject.place in self.places and self.applies(subject)


LAWS: dict[str, Law] = {}


def law(
    name: str,
    places: tuple[str, ...] = PLACES,
    applies: Callable[[Subject], bool] = lambda subject: True,
    slow: bool = False,
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    def enter(check: Callable[[Subject], None]) -> Callable[[Subject], None]:
        LAWS[name] = Law(check, places, applies, slow)
        return check

    return enter


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def heads_of(subject: Subject, x: Tensor) -> list[Tensor]:
    """Queries, keys and values: different mixtures of the channels of x, `[batch, heads, tokens, channels]`."""
    return [
        (x.roll(shift, -1) if shift else x).unflatten(-1, (subject.heads, -1)).transpose(1, 2) for shift in range(3)
    ]


def attend(
    subject: Subject,
    encoding: posenc.Encoding,
    x: Tensor,
    positions: posenc.Positions | None = None,
    *,
    queries: slice = slice(None),
    keys: slice = slice(None),
    embedded: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """One attention over x with the encoding at its place."""
    options.setdefault("causal", subject.causal)
    encodings = [encoding]
    if subject.place in OUTSIDE:
        x, encodings = (encoding(x, positions) if embedded is None else embedded), []
    q, k, v = heads_of(subject, x)
    return posenc.attention(q[:, :, queries], k[:, :, keys], v[:, :, keys], *encodings, positions=positions, **options)


def logits(term: posenc.Term, q: Tensor, k: Tensor, allowed: Tensor | None = None) -> Tensor:
    """What attention takes the softmax of, with a scale of 1: what is turned keeps its dtype, the rest is exact."""
    if isinstance(term, posenc.Rotation) and not isinstance(term, posenc.Decay):
        q, k = term.rotate(q, k)
        return q @ k.mT
    q, k = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k))
    if isinstance(term, posenc.Decay):
        return term.product(q, k)
    product = q @ k.mT
    if isinstance(term, posenc.Bias):
        return product + term.dense()
    assert isinstance(term, posenc.Content)
    return product + term.logits(q, k, product, allowed)


def equal(ours: Tensor, wanted: Tensor | np.ndarray, relative: float = 1e-11) -> None:
    """Equal to a part in 1e11 of the largest entry: float64 arithmetic in another order, and nothing else."""
    wanted = torch.as_tensor(wanted).detach().to(ours.dtype)
    finite = wanted[wanted.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    torch.testing.assert_close(ours, wanted, rtol=0, atol=relative * max(1.0, largest))


def shifted(positions: posenc.Positions, shift: list[int]) -> posenc.Positions:
    """The same tokens, so far on along each axis."""
    if positions.axes == 1 and not positions.prefix:
        return posenc.sequence(positions.length, start=shift[0])
    places = positions.coordinates() + torch.tensor(shift)
    return posenc.coordinates(places, prefix=positions.prefix, order=positions.order())


def part(positions: posenc.Positions, start: int, end: int) -> posenc.Positions:
    """Some tokens of a grid, as coordinates."""
    prefix = max(min(positions.prefix, end) - start, 0)
    cells = positions.coordinates()[max(start - positions.prefix, 0) : max(end - positions.prefix, 0)]
    return posenc.coordinates(cells, prefix=prefix, order=torch.arange(start, end), extent=positions.extent)
