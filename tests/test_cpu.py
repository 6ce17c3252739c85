"""The fused kernel gives what the dense path gives: every scheme, layout, size, mask and stride, and all gradients."""

import random
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import posenc
from fused import DTYPES, compare
from fused_problems import LAYOUTS, MASKS, STRIDES, SUBJECTS, Setting, build
from laws import Subject
from posenc import kernels

pytestmark = pytest.mark.skipif(not kernels.BUILT, reason=kernels.MISSING)

CHOICES: dict[str, list[Any]] = {
    "dtype": DTYPES,
    "tokens": [1, 17, 65, 91, 320],
    "layout": ["grid", "prefix", *LAYOUTS],
    "queries": [None, 1, 3, 60],
    "causal": [False, True],
    "window": [None, 0, 7, 100],
    "mask": [None, *MASKS],
    "key_mask": [False, True],
    "batch": [1, 2, 3],
    "head_dim": [None, 8, 20, 64, 80, 128, 256],
    "value_dim": [None, 3, 24, 70],
    "groups": [None, 1, 2],
    "strides": list(STRIDES),
}
NAMES = sorted({subject.card.name for subject in SUBJECTS})


def named(name: str, number: int = 0) -> Subject:
    """An example of a scheme."""
    return [subject for subject in SUBJECTS if subject.card.name == name][number]


def check(subjects: Subject | list[Subject], setting: Setting) -> None:
    """Compares the kernel with the dense path on a problem, and says which it was."""
    try:
        problem = build(subjects, setting)
        compare(problem.q, problem.k, problem.v, *problem.encodings, **problem.options)
    except Exception as error:
        error.add_note(f"{subjects} at {setting}")
        raise


@pytest.mark.parametrize("subject", SUBJECTS, ids=repr)
def test_every_example_of_every_scheme(subject: Subject, seed: int) -> None:
    for dtype in (torch.float64, random.choice(DTYPES[1:])):
        check(subject, Setting(dtype, tokens=65))


@pytest.mark.parametrize("name", NAMES)
def test_every_scheme_at_every_choice(name: str, seed: int) -> None:
    """A dozen settings in which every choice of every dimension comes once at least, shuffled anew each time."""
    rows = max(map(len, CHOICES.values()))
    columns = []
    for choices in CHOICES.values():
        column = (choices * rows)[:rows]
        random.shuffle(column)
        columns.append(column)
    examples = [subject for subject in SUBJECTS if subject.card.name == name]
    for row in zip(*columns, strict=True):
        check(random.choice(examples), Setting(*row))


def all_pairs() -> list[Setting]:
    """Settings in which any two choices of two dimensions come together, found greedily."""
    draw = random.Random(0)
    left = {
        ((one, first), (other, second))
        for one, other in combinations(range(len(CHOICES)), 2)
        for first in range(len([*CHOICES.values()][one]))
        for second in range(len([*CHOICES.values()][other]))
    }
    sizes, found = [len(choices) for choices in CHOICES.values()], []
    while left:
        best: set[Any] = set()
        for _ in range(12):
            start = dict(draw.choice(sorted(left)))
            row = [start.get(place, draw.randrange(size)) for place, size in enumerate(sizes)]
            covered = left & set(combinations(enumerate(row), 2))
            if len(covered) > len(best):
                best, chosen = covered, row
        left -= best
        found.append(Setting(*(choices[n] for choices, n in zip(CHOICES.values(), chosen, strict=True))))
    return found


PAIRS = all_pairs()


@pytest.mark.parametrize("part", range(8))
def test_any_two_choices_together(part: int, seed: int) -> None:
    """On several terms at once: a rotation, a table, and rows that meet queries and join values; or tables and rows of
    two axes."""
    terms = [
        [named("Rotary"), named("T5Bias"), named("Shaw")],
        [named("RelativePositionBias", 1), named("RelativeLogits", 5), named("Rotary", 4)],
    ]
    for number, setting in enumerate(PAIRS[part::8]):
        check(terms[number % 2], setting)


@settings(max_examples=100)
@given(
    subjects=st.lists(
        st.sampled_from(NAMES).flatmap(lambda name: st.sampled_from([s for s in SUBJECTS if s.card.name == name])),
        min_size=1,
        max_size=4,
    ),
    setting=st.builds(Setting, **{name: st.sampled_from(choices) for name, choices in CHOICES.items()}),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_problem(subjects: list[Subject], setting: Setting, seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    check(subjects, setting)


@pytest.mark.parametrize("name", ["ALiBi", "T5Bias", "Rotary", "RelativeLogits", "Shaw", "Deberta", "SinusoidalLogits"])
def test_more_tokens_than_a_tile_by_far(name: str, seed: int) -> None:
    dtype, causal = random.choice([torch.float32, torch.bfloat16]), random.random() < 0.5
    check(named(name), Setting(dtype, tokens=1025, batch=1, causal=causal))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 0, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_encoding(dtype: torch.dtype, window: int | None, causal: bool, seed: int) -> None:
    q, k, v = (torch.randn(2, heads, 150, 20).to(dtype) for heads in (4, 2, 2))
    compare(q, k, v, causal=causal, window=window)
    compare(q[:, :, :7], k, v[..., :5], causal=causal, window=window, scale=0.7)
    compare(
        q,
        k[:, :, :7],
        v[:, :, :7],
        positions=posenc.sequence(150),
        key_positions=posenc.sequence(7, start=70),
        causal=causal,
        window=window,
    )


# --- schemes of one's own ---


class Corner(posenc.ContentEncoding):
    """Vectors for pairs whose key is not ahead on the second axis, and others that meet the keys."""

    meets_keys, head_dim, axes = True, 6, 2

    def __init__(self, future: float, scaled: bool) -> None:
        super().__init__()
        self.future, self.scaled = future, scaled
        self.on_queries, self.on_keys = (torch.nn.Parameter(torch.randn(1, *size, 6)) for size in ((1, 4), (4, 7)))
        self.added = torch.nn.Parameter(torch.randn(1, 4, 1, 6))

    def parts(self, relative: posenc.Relative, device: object = None) -> list[posenc.Part]:
        return [
            posenc.Part("query", 1, self.on_queries, lambda lag: lag.clamp(0, 3), future=self.future, added=self.added),
            posenc.Part("key", 0, self.on_keys, lambda lag: lag + 3, added=self.added),
        ]


@pytest.mark.parametrize("future", [-torch.inf, 0.7])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("prefix", [0, 3])
def test_parts_of_any_side_and_axis(prefix: int, scaled: bool, future: float, seed: int) -> None:
    encoding = Corner(future, scaled)
    where = torch.randint(0, 4, (2, 70, 2))
    positions = posenc.coordinates(where, prefix=prefix, extent=4, order=torch.arange(70 + prefix))
    for groups in (1, 2, 4):
        q, k, v = (torch.randn(2, heads, 70 + prefix, 6).double() for heads in (4, groups, groups))
        compare(q, k, v, encoding, positions=positions)
        compare(q[:, :, 30:].float(), k.float(), v.float(), encoding, positions=positions, scale=2.0, causal=True)


class Near(posenc.BiasEncoding):
    """One number for all heads; farther than two tokens, nobody is seen."""

    hides = True

    def bias(self, relative: Tensor) -> Tensor:
        distance = relative[..., 0].abs()
        return torch.where(distance > 2, -torch.inf, distance.cos())[None]


class Tilted(posenc.BiasEncoding):
    """One number for all heads, which depends on where the query stands."""

    reads_query = True

    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.randn(1))

    def bias_from(self, relative: Tensor, query: Tensor) -> Tensor:
        return (self.factor * relative[..., 0] * query[..., 0].cos())[None]


@pytest.mark.parametrize("encoding", [Near(), Tilted()], ids=repr)
def test_heads_share_a_bias_and_minus_infinity_hides(encoding: posenc.BiasEncoding, seed: int) -> None:
    q, k, v = (torch.randn(2, heads, 60, 16).double() for heads in (4, 2, 2))
    mask = torch.ones(1, 1, 60, 60, dtype=torch.bool)
    mask[..., 4, 2:7] = False  # all that the fifth query would see of its neighbours
    places = torch.rand(2, 58, 1).mul(60)
    compare(q, k, v, encoding)
    compare(q, k, v, encoding, causal=True)
    compare(q, k, v, encoding, positions=posenc.coordinates(places, prefix=2))
    ours = compare(q, k, v, encoding, mask=mask)
    assert bool(ours.output[:, :, 4].any()) != encoding.hides


# --- gradients of some, and of several uses ---


def test_gradients_are_the_same_whoever_else_has_one(seed: int) -> None:
    encodings = [posenc.Rotary(16), posenc.T5Bias(4), posenc.Shaw(16, 3), posenc.TransformerXL(4, 16)]
    for several in (encodings[:3], encodings[1:]):
        tensors = [torch.randn(2, heads, 70, 16) for heads in (4, 2, 2)]
        leaves = [*tensors, *(each for encoding in several for each in encoding.parameters())]
        slope = torch.randn(2, 4, 70, 16)
        wanted = [torch.autograd.grad(attend(leaves, tensors, several, leaves), leaves, slope)]
        for leaf, whole in zip(leaves, *wanted, strict=True):
            (alone,) = torch.autograd.grad(attend([leaf], tensors, several, leaves), leaf, slope)
            assert torch.equal(alone, whole)


def attend(trained: list[Tensor], tensors: list[Tensor], encodings: Any, leaves: list[Tensor]) -> Tensor:
    for leaf in leaves:
        leaf.requires_grad_(any(leaf is each for each in trained))
    return posenc.attention(*tensors, *encodings, causal=True, backend="cpu")


def test_a_term_is_shared_by_layers_and_used_twice_in_one(seed: int) -> None:
    encoding = posenc.RelativePositionBias(4, (5, 9)).double()
    torch.nn.init.normal_(encoding.table)
    tensors = [torch.randn(2, 4, 45, 16).double().requires_grad_() for _ in range(3)]
    found = []
    for backend in ("cpu", "dense"):
        term = encoding.term(posenc.grid(5, 9), dtype=torch.float64)
        q, k, v = tensors
        for _ in range(2):
            q = posenc.attention(q, k, v, term, term, backend=backend)
        found.append(torch.autograd.grad(q.square().sum(), [*tensors, encoding.table]))
    for ours, wanted in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-12, atol=1e-12)


# --- decoding: one query or a few, without gradients, against many keys ---


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_few_queries_against_many_keys(dtype: torch.dtype, groups: int, seed: int) -> None:
    arithmetic = torch.promote_types(dtype, torch.float32)
    table, vectors = posenc.T5Bias(4).to(arithmetic), posenc.Shaw(20, 3).to(arithmetic)
    for queries in (1, 2, 4, 5, 16, 17):
        q, k, v = (
            torch.randn(2, heads, tokens, 20).to(dtype)
            for heads, tokens in ((4, queries), (groups, 700), (groups, 700))
        )
        mask, threads = torch.rand(2, 1, queries, 700) < 0.5, random.choice([1, 2, 3])
        compare(q, k, v, threads=threads)
        compare(q, k, v, posenc.Rotary(20), table, causal=True, threads=threads)
        compare(q, k, v, table, posenc.ALiBi(4), mask=mask, key_mask=torch.rand(2, 700) < 0.5, threads=threads)
        compare(q, k, v, posenc.Rotary(20), vectors, window=300, threads=threads)
        compare(
            q,
            k,
            v[..., :7],
            posenc.Fire(4).to(arithmetic),
            positions=posenc.padded(torch.arange(700) >= torch.tensor([[650], [0]])),
            threads=threads,
        )
