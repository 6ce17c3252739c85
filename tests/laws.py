"""What must hold of every encoding: one table of laws, each a function of a subject that raises AssertionError.

A subject is an encoding's class with arguments to make it. Every law draws fresh random inputs, odd sizes and
non-square grids. `test_laws.py` runs every law on every example of every card, and on a broken encoding that it must
find out.
"""

import copy
import pickle
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
    """An encoding to put under the laws."""

    card: Any
    arguments: dict[str, Any]
    kind: Callable[..., posenc.Encoding]

    @property
    def place(self) -> str:
        return self.card.place

    @property
    def axes(self) -> int:
        return len(self.arguments["shape"]) if "shape" in self.arguments else self.arguments.get("axes", 1)

    @property
    def causal(self) -> bool:
        """Whether the encoding is for decoders alone."""
        return bool(self.arguments.get("causal", False))

    @property
    def heads(self) -> int:
        return 1 if self.place in OUTSIDE else self.arguments.get("num_heads") or 4

    @property
    def width(self) -> int:
        """Channels of the embeddings that `attend` splits into heads."""
        return self.arguments.get("dim", self.heads * self.arguments.get("head_dim", 16))

    @property
    def prefix(self) -> int:
        """Prefix tokens that the encoding has numbers of its own for."""
        return self.arguments.get("prefix", 1 if self.arguments.get("prefix_bias") else 0)

    def make(self, dtype: torch.dtype = torch.float64) -> posenc.Encoding:
        """The encoding, its trained and drawn numbers drawn large enough to matter."""
        encoding = self.kind(**self.arguments).to(dtype)
        with torch.no_grad():
            for tensor in encoding.state_dict().values():
                tensor.normal_()
        return encoding

    def resized(self, *shape: int) -> "Subject":
        """The subject for another shape, where it has one."""
        return self._replace(arguments={**self.arguments, "shape": shape}) if "shape" in self.arguments else self

    def shape(self) -> tuple[int, ...]:
        """A shape that the encoding can serve: its own, or a small one at random."""
        if "shape" in self.arguments:
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
                state[name.removeprefix("convolution.")] = tensor.numpy()
        return state

    def refer(self, encoding: posenc.Encoding, *inputs: Any, suffix: str = "", **more: Any) -> np.ndarray:
        """The reference of the scheme with this encoding's arguments and numbers."""
        return getattr(reference, self.card.reference + suffix)(
            *inputs, **more, **self.arguments, **self.state(encoding)
        )


class Law(NamedTuple):
    """A law, the places it is about, and the cards: `applies(subject)` says whether it is about a scheme at all."""

    check: Callable[[Subject], None]
    places: tuple[str, ...]
    applies: Callable[[Subject], bool]


LAWS: dict[str, Law] = {}


def law(
    name: str, places: tuple[str, ...] = PLACES, applies: Callable[[Subject], bool] = lambda subject: True
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    def enter(check: Callable[[Subject], None]) -> Callable[[Subject], None]:
        LAWS[name] = Law(check, places, applies)
        return check

    return enter


def one_axis(subject: Subject) -> bool:
    return subject.axes == 1


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


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
    """One attention over x with the encoding at its place; q, k and v are different mixtures of the channels."""
    options.setdefault("causal", subject.causal)
    encodings = [encoding]
    if subject.place in OUTSIDE:
        x, encodings = (encoding(x, positions) if embedded is None else embedded), []
    q, k, v = (
        (x if shift == 0 else x.roll(shift, -1)).unflatten(-1, (subject.heads, -1)).transpose(1, 2)
        for shift in range(3)
    )
    return posenc.attention(q[:, :, queries], k[:, :, keys], v[:, :, keys], *encodings, positions=positions, **options)


def equal(ours: Tensor, wanted: Tensor | np.ndarray, relative: float = 1e-11) -> None:
    """Equal to a part in 1e11 of the largest entry: float64 arithmetic in another order, and nothing else."""
    wanted = torch.as_tensor(wanted).detach().to(ours.dtype)
    largest = float(wanted.abs().max()) if wanted.numel() else 0.0
    torch.testing.assert_close(ours, wanted, rtol=0, atol=relative * max(1.0, largest))


def standing(positions: posenc.Positions) -> np.ndarray:
    """Coordinates as the reference takes them: prefix tokens are rows of NaN."""
    coordinates = positions.coordinates().double().numpy()
    return np.concatenate([np.full((positions.prefix, positions.axes), np.nan), coordinates])


# --- the laws ---------------------------------------------------------------------------------------------------------


@law("equals the reference")
def equals_the_reference(subject: Subject) -> None:
    encoding, positions = subject.make(), subject.layout()
    x = draw(2, positions.length, subject.width)
    where = standing(positions)
    if subject.place == "absolute":
        equal(encoding(x, positions), x.numpy() + subject.refer(encoding, where))
    elif subject.place == "conditional":
        grid = {"grid_shape": positions.shape, "prefix": positions.prefix}
        equal(encoding(x, positions), subject.refer(encoding, x.numpy(), **grid))
    else:
        count = positions.length - 2  # fewer queries than keys: the last ones
        q, k, v = draw(2, subject.heads, count, subject.width // subject.heads), *draw_keys(subject, positions)
        allowed = np.tril(np.ones((positions.length,) * 2, bool))[-count:][None] if subject.causal else None
        ours = posenc.attention(q, k, v, encoding, positions=positions, causal=subject.causal)
        for row in range(2):
            arrays = [x[row].numpy() for x in (q, k, v)]
            equal(ours[row], refer_attention(subject, encoding, *arrays, where[-count:], where, allowed))


def draw_keys(subject: Subject, positions: posenc.Positions) -> tuple[Tensor, Tensor]:
    size = 2, subject.heads, positions.length, subject.width // subject.heads
    return draw(*size), draw(*size)


def refer_attention(
    subject: Subject,
    encoding: posenc.Encoding,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    allowed: np.ndarray | None,
) -> np.ndarray:
    """The reference's attention around the reference's scheme."""
    both = query_positions, key_positions
    if subject.place == "rotary":
        return reference.attention(
            subject.refer(encoding, q, query_positions), subject.refer(encoding, k, key_positions), v, allowed=allowed
        )
    if subject.place == "bias":
        return reference.attention(q, k, v, bias=subject.refer(encoding, *both), allowed=allowed)
    logits = subject.refer(encoding, q, *both)
    where = "content" if subject.arguments.get("scaled", True) else "bias"
    adds = hasattr(reference, subject.card.reference + "_values") and subject.arguments.get("values", True)
    values = (lambda weights: subject.refer(encoding, weights, *both, suffix="_values")) if adds else None
    return reference.attention(q, k, v, allowed=allowed, values=values, **{where: logits})


@law("depends on relative position alone", INSIDE, lambda subject: subject.card.relative)
def depends_on_relative_position_alone(subject: Subject) -> None:
    encoding, positions = subject.make(), subject.layout()
    x = draw(2, positions.length, subject.width)
    shift = random.sample(range(-40, 400), subject.axes)
    equal(attend(subject, encoding, x, shifted(positions, shift)), attend(subject, encoding, x, positions), 1e-10)


def shifted(positions: posenc.Positions, shift: list[int]) -> posenc.Positions:
    if positions.axes == 1 and not positions.prefix:
        return posenc.sequence(positions.length, start=shift[0])
    places = positions.coordinates() + torch.tensor(shift)
    return posenc.coordinates(places, prefix=positions.prefix, order=positions.order())


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
        seen = {"queries": newest, "keys": slice(end), "causal": True}
        equal(attend(subject, encoding, x, part(positions, 0, end), **seen), whole[:, :, newest])
        if subject.axes == 1 and not positions.prefix:  # and with nothing said of positions
            equal(attend(subject, encoding, x, **seen), whole[:, :, newest])


def part(positions: posenc.Positions, start: int, end: int) -> posenc.Positions:
    """Some tokens of a grid, as coordinates."""
    prefix = max(min(positions.prefix, end) - start, 0)
    cells = positions.coordinates()[max(start - positions.prefix, 0) : max(end - positions.prefix, 0)]
    return posenc.coordinates(cells, prefix=prefix, order=torch.arange(start, end), extent=positions.extent)


@law("padded equals alone", ("absolute", *INSIDE), lambda subject: one_axis(subject) and not subject.prefix)
def padded_equals_alone(subject: Subject) -> None:
    encoding, (length,) = subject.make(), subject.shape()
    counts = [length, random.randint(1, length - 1), 0]
    for left in (True, False):
        mask = torch.arange(length) < torch.tensor(counts)[:, None]
        mask = mask.flip(1) if left else mask
        x = draw(3, length, subject.width)
        together = attend(subject, encoding, x, posenc.padded(mask))
        for row, count in enumerate(counts):
            real = slice(length - count, length) if left else slice(count)
            alone = attend(subject, encoding, x[row : row + 1, real], posenc.sequence(count))
            equal(together[row : row + 1, :, real], alone)


@law("packed equals separate", ("absolute", *INSIDE), lambda subject: one_axis(subject) and not subject.prefix)
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


@law("the output dtype is the input's")
def output_dtype_is_the_inputs(subject: Subject) -> None:
    encoding, positions = subject.make(torch.float32), subject.layout()
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for numbers in (encoding, copy.deepcopy(encoding).to(dtype)):
            x = draw(2, positions.length, subject.width, dtype=dtype)
            assert attend(subject, numbers, x, positions).dtype == dtype


@law("a cast moves no angle")
def a_cast_moves_no_angle(subject: Subject) -> None:
    rounded = subject.make()
    for tensor in rounded.state_dict().values():
        tensor.copy_(tensor.bfloat16())
    cast = copy.deepcopy(rounded).to(torch.bfloat16)
    positions = subject.layout()
    if subject.card.relative and subject.place == "rotary":
        positions = shifted(positions, [4095] * subject.axes)
    x = draw(2, positions.length, subject.width, dtype=torch.float32)
    # numbers that bfloat16 holds exactly: the same result, to float32's rounding and no worse
    equal(attend(subject, cast, x, positions), attend(subject, rounded, x.double(), positions), 2e-5)


@law("prefix tokens are untouched")
def prefix_tokens_are_untouched(subject: Subject) -> None:
    encoding, count = subject.make(), subject.prefix or 2
    positions, inner = subject.layout(prefix=count), slice(count, None)
    q, k = (draw(2, subject.heads, positions.length, subject.width // subject.heads) for _ in range(2))
    if subject.place in OUTSIDE:
        x = draw(2, positions.length, subject.width)
        y = encoding(x, positions)
        if not subject.prefix:
            assert torch.equal(y[:, :count], x[:, :count])
            equal(y[:, inner], encoding(x[:, inner], posenc.grid(*positions.shape)))
        else:  # rows of their own, and only theirs
            equal(y[:, :count] - x[:, :count], (y[:1, :count] - x[:1, :count]).expand(2, -1, -1))
    elif subject.place == "rotary":
        for turned, x in zip(encoding(q, k, positions), (q, k), strict=True):
            assert torch.equal(turned[:, :, :count], x[:, :, :count])
            assert not torch.allclose(turned[:, :, inner], x[:, :, inner])
    else:
        inputs = [(), ()] if subject.place == "bias" else [(q,), (q[:, :, inner],)]
        framed, plain = encoding(*inputs[0], positions), encoding(*inputs[1], posenc.grid(*positions.shape))
        equal(framed[..., inner, inner], plain)
        frame = [framed[..., :count, inner], framed[..., inner, :count], framed[..., :count, :count]]
        own = encoding.prefix_values() if subject.place == "bias" else None
        for kind, values in enumerate(frame):
            wanted = torch.zeros_like(values) if own is None else own[:, kind, None, None].expand_as(values)
            assert torch.equal(values, wanted)


@law("only trained or drawn numbers are saved")
def only_trained_or_drawn_numbers_are_saved(subject: Subject) -> None:
    encoding = subject.make()
    parameters = sum(parameter.numel() for parameter in encoding.parameters())
    if subject.card.trained:
        assert parameters > 0
    before = {name: tensor.clone() for name, tensor in encoding.state_dict().items()}
    for size in (5, 8) if "shape" not in subject.arguments else (None,):  # use it, also at another length
        shape = subject.shape() if size is None else [size] * subject.axes
        attend(
            subject,
            encoding,
            draw(1, int(np.prod(shape)) + subject.prefix, subject.width),
            posenc.grid(*shape, prefix=subject.prefix),
        )
        assert encoding.state_dict().keys() == before.keys()
        assert all(torch.equal(tensor, before[name]) for name, tensor in encoding.state_dict().items())
        loaded = subject.make()
        loaded.load_state_dict(before, strict=True)
        positions = subject.layout()
        x = draw(2, positions.length, subject.width)
        assert torch.equal(attend(subject, loaded, x, positions), attend(subject, encoding, x, positions))
    drawn = sum(tensor.numel() for tensor in before.values())
    assert drawn == count_of_numbers(subject), "something derived is saved"


def count_of_numbers(subject: Subject) -> int:
    """How many numbers a scheme may save, from its card's formula."""
    names = {
        "heads": subject.arguments.get("num_heads") or 1,
        "prefix": 0,
        "kernel_size": 3,
        "num_buckets": 32,
        "axes": subject.axes,
        **subject.arguments,
    }
    shape = np.array(subject.arguments.get("shape", ()), int)
    return {
        "Learned": lambda: (names["prefix"] + shape.prod()) * names["dim"],
        "Fourier": lambda: names["axes"] * names["dim"] // 2,
        "T5Bias": lambda: names["heads"] * names["num_buckets"],
        "RelativePositionBias": lambda: (
            names["heads"]
            * ((shape if names.get("symmetric") else 2 * shape - 1).prod() + 3 * names.get("prefix_bias", False))
        ),
        "Shaw": lambda: (
            names["heads"] * (2 * names["max_distance"] + 1) * names["head_dim"] * (1 + names.get("values", True))
        ),
        "RelativeLogits": lambda: (
            names["heads"] * (shape if subject.causal else 2 * shape - 1).sum() * names["head_dim"]
        ),
        "ConditionalEncoding": lambda: names["dim"] * (names["kernel_size"] ** names.get("axes", 2) + 1),
    }.get(subject.card.name, lambda: 0)()


@law("a copy is equal")
def a_copy_is_equal(subject: Subject) -> None:
    encoding, positions = subject.make(), subject.layout()
    x = draw(2, positions.length, subject.width)
    wanted = attend(subject, encoding, x, positions)
    for twin in (copy.deepcopy(encoding), pickle.loads(pickle.dumps(encoding))):
        assert torch.equal(attend(subject, twin, x, positions), wanted)
        with torch.no_grad():
            for tensor in twin.state_dict().values():
                tensor.add_(1.0)
    assert torch.equal(attend(subject, encoding, x, positions), wanted), "a copy shares its numbers"


@law("gradients are right and reach every parameter")
def gradients_are_right(subject: Subject) -> None:
    encoding, positions = subject.make(), subject.layout()
    parameters = dict(encoding.named_parameters())
    x = draw(1, positions.length, subject.width).requires_grad_()

    def loss(x: Tensor, *values: Tensor) -> Tensor:
        own = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(
            _Attend(subject, encoding), {f"encoding.{k}": v for k, v in own.items()}, (x, positions)
        )

    assert torch.autograd.gradcheck(loss, (x, *parameters.values()), fast_mode=True, raise_exception=False)
    attend(subject, encoding, x, positions).square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    for name, parameter in parameters.items():
        assert parameter.grad is not None, f"{name} has no gradient"
        assert parameter.grad.abs().sum() > 0, f"{name} has a gradient of zero"


class _Attend(torch.nn.Module):
    def __init__(self, subject: Subject, encoding: posenc.Encoding) -> None:
        super().__init__()
        self.subject, self.encoding = subject, encoding

    def forward(self, x: Tensor, positions: posenc.Positions) -> Tensor:
        return attend(self.subject, self.encoding, x, positions)


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
        elsewhere = posenc.coordinates(cells[shuffle], prefix=prefix, extent=extent)
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
    mask[0, :, 1] = False
    out = attend(subject, encoding, x, positions, mask=mask)
    assert not out[0, :, 1].any()
    assert out[1, :, 1].any() or subject.causal
    out.square().sum().backward()
    gradients = [x.grad, *(parameter.grad for parameter in encoding.parameters())]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


LENGTHS = (7, 12, 31, 64, 110, 301)


@law("one compiled graph serves all lengths")
def one_compiled_graph_serves_all_lengths(subject: Subject) -> None:
    largest = (301,) if subject.axes == 1 else (20, 17, 9)[: subject.axes]
    resized = subject.resized(*largest)
    encoding, graphs = resized.make(torch.float32), []

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph

    def run(x: Tensor, *shape: int) -> Tensor:
        return attend(resized, encoding, x, posenc.grid(*shape, prefix=subject.prefix))

    torch._dynamo.reset()
    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend=count)
    shapes = [(length,) for length in LENGTHS] if subject.axes == 1 else [(4, 3, 5), (3, 6, 2), (9, 2, 3), (7, 17, 9)]
    with torch.no_grad():
        for shape in shapes:
            shape = shape[: subject.axes]
            x = draw(2, int(np.prod(shape)) + subject.prefix, subject.width, dtype=torch.float32)
            equal(compiled(x, *shape), run(x, *shape), 1e-6)
    assert len(graphs) == 1, f"{len(graphs)} graphs"


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
    from posenc.encoding import deal

    start = 0
    for width in [deal(encoding.dim, encoding.axes)[axis] for axis in encoding.axis_order]:
        lonely = start + (width // 2 if encoding.layout == "concatenated" else width - 1)
        rest += [channel for channel in range(start, start + width) if width % 2 == 0 or channel != lonely]
        start += width
    assert len(zero) == start
    return torch.tensor(rest)
