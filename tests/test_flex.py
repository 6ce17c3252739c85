"""FlexAttention gives what the dense path gives: every term, every mask, every layout; and what it is told compiles.

There need be no GPU: what the kernel is told is run unfused, and compiled for a CPU.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

import posenc
from laws import Subject
from laws.drawn import Drawn, answer, problems
from laws.subject import INSIDE
from posenc import attend, catalog, plan
from posenc.backends import dense, flex
from posenc.mask import Visibility
from posenc.plan import Problem


def refused(subject: Subject) -> bool:
    """Whether the scheme is one of those that FlexAttention cannot say."""
    joins = subject.card.name == "Shaw" and subject.arguments.get("values", True)
    return joins or subject.card.name in ("XPos", "CoPE")


SUBJECTS = [
    pytest.param(Subject(card, arguments, getattr(posenc, card.name)), id=f"{card.name}-{number}")
    for card in catalog.CARDS
    if card.place in INSIDE
    for number, arguments in enumerate(card.examples)
]
TAKEN = [case for case in SUBJECTS if not refused(case.values[0])]
ADDED = [case for case in TAKEN if case.values[0].place != "rotary"]
"""Those that are left in the logits."""
GRAPHS = [(case.values[0].card.name, case.values[0].graph) for case in ADDED]
KINDS = [case for number, case in enumerate(ADDED) if GRAPHS[number] not in GRAPHS[:number]]
"""Those that consist of other operations than all before."""


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def inputs(
    queries: int = 7,
    keys: int | None = None,
    heads: int = 4,
    groups: int | None = None,
    width: int = 16,
    batch: int = 2,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor, Tensor]:
    keys, groups = keys or queries, groups or heads
    sizes = (batch, heads, queries, width), (batch, groups, keys, width), (batch, groups, keys, width)
    q, k, v = (draw(*size, dtype=dtype) for size in sizes)
    return q, k, v


def frozen(encoding: posenc.Encoding) -> posenc.Encoding:
    """An encoding in float64 that nothing trains, its numbers large enough to matter."""
    with torch.no_grad():
        for tensor in encoding.double().requires_grad_(False).parameters():
            tensor.normal_()
    return encoding


def flexed(*arguments: Any, **options: Any) -> Tensor:
    """What FlexAttention gives."""
    return flex.run(told(*arguments, **options))


def told(*arguments: Any, **options: Any) -> Problem:
    """What a backend that does not rotate is handed."""
    return attend._problem(*arguments, **options).rotated()


def compare(*arguments: Any, **options: Any) -> Tensor:
    """FlexAttention's answer, which is the dense one, to a few parts in 1e15 of float64."""
    ours, wanted = flexed(*arguments, **options), posenc.attention(*arguments, backend="dense", **options)
    assert ours.dtype == wanted.dtype
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-13 * max(1.0, float(wanted.abs().max())))
    return ours


# --- schemes ---


@pytest.mark.parametrize("subject", ADDED)
def test_every_scheme_is_exact(subject: Subject, seed: int) -> None:
    encoding, positions = subject.make().requires_grad_(False), subject.layout()
    q, k, v = inputs(positions.length - 2, positions.length, subject.heads, 1, subject.head_dim)
    kept = torch.rand(2, positions.length) < 0.7
    compare(q, k, v, encoding, positions=positions, causal=subject.causal, key_mask=kept)


@pytest.mark.parametrize("subject", KINDS)
def test_in_float32_the_error_is_within_the_budget(subject: Subject, seed: int) -> None:
    """At most twice the dense path's, or a few units in the last place of the largest output."""
    encoding, positions = subject.make().requires_grad_(False), subject.layout()
    q, k, v = inputs(positions.length, heads=subject.heads, width=subject.head_dim)
    options = {"positions": positions, "causal": subject.causal}
    encoding, (q, k, v) = encoding.float(), (x.float() for x in (q, k, v))
    ours, plain = flexed(q, k, v, encoding, **options), posenc.attention(q, k, v, encoding, backend="dense", **options)
    wide = (x.double() for x in (q, k, v))
    exact = posenc.attention(*wide, encoding.double(), backend="dense", **options)
    error, own = ((x - exact).abs().max() for x in (ours, plain))
    assert error <= max(2 * own, 4 * torch.finfo(torch.float32).eps * exact.abs().max())


@settings(max_examples=25)
@given(problems([case.values[0] for case in TAKEN]))
def test_any_problem_is_answered_as_by_the_reference(drawn: Drawn) -> None:
    """Any scheme on any layout, with any masks, in any dtype: what float64 loops over pairs of tokens give."""
    with mock.patch.object(plan, "choose", return_value=SimpleNamespace(backend=flex)), torch.no_grad():
        ours, wanted, real = answer(drawn)
    off = np.abs(ours.double().numpy() - wanted)[np.broadcast_to(real, wanted.shape[:-1])]
    far = np.nanmax(np.abs(np.concatenate(drawn.tokens.coordinates)), initial=1.0)
    allowed = {torch.float64: 1e-12 * max(1.0, far / 1e3), torch.float32: 200 * torch.finfo(torch.float32).eps}
    narrow = 8 * torch.finfo(drawn.dtype).eps
    assert off.max(initial=0.0) <= allowed.get(drawn.dtype, narrow) * np.abs(wanted).max(initial=1.0)


def test_several_terms_at_once(seed: int) -> None:
    encodings = [
        posenc.Rotary(16, axes=2),
        posenc.RelativePositionBias(4, (5, 6), prefix_bias=True),
        posenc.RelativeLogits(16, (5, 6), scaled=False),
        posenc.IRPE(16),
        posenc.ContinuousPositionBias(4, (5, 6)),
    ]
    encodings = [frozen(encoding) for encoding in encodings]
    positions = posenc.grid(5, 6, prefix=1)
    compare(*inputs(31), *encodings, positions=positions, scale=0.3)
    compare(*inputs(8, 31, groups=2), *encodings, positions=positions, causal=True)


class Shared(posenc.BiasEncoding):
    """One number for all heads; farther than two tokens, nobody is seen."""

    hides = True

    def bias(self, relative: Tensor) -> Tensor:
        distance = relative[..., 0].abs()
        return torch.where(distance > 2, -torch.inf, distance.cos())[None]


class Tilted(posenc.BiasEncoding):
    """One number for all heads, which depends on where the query stands."""

    reads_query = True

    def bias_from(self, relative: Tensor, query: Tensor) -> Tensor:
        return (relative[..., 0] * query[..., 0].cos())[None]


def test_heads_share_a_bias_and_minus_infinity_hides(seed: int) -> None:
    mask = torch.ones(1, 1, 9, 9, dtype=torch.bool)
    mask[..., 4, 2:7] = False  # all that the fifth query would see
    for encoding in (Shared(), Tilted()):
        compare(*inputs(9), encoding)
        compare(*inputs(9), encoding, positions=posenc.coordinates(torch.rand(2, 9, 1).mul(9)))
    assert not compare(*inputs(9), Shared(), mask=mask)[:, :, 4].any()


class Corner(posenc.ContentEncoding):
    """Vectors for pairs whose key is not ahead on the second axis, and others that meet the keys."""

    meets_keys, head_dim, axes = True, 6, 2

    def __init__(self, future: float) -> None:
        super().__init__()
        self.on_queries, self.on_keys, self.future = draw(1, 4, 6), draw(4, 7, 6), future

    def parts(self, relative: posenc.Relative, device: object = None) -> list[posenc.Part]:
        return [
            posenc.Part("query", 1, self.on_queries[None], lambda lag: lag.clamp(0, 3), future=self.future),
            posenc.Part("key", 0, self.on_keys[None], lambda lag: lag + 3, added=torch.ones(1, 1, 1, 6).double()),
        ]


@pytest.mark.parametrize("future", [-torch.inf, 0.7])
@pytest.mark.parametrize("extent", [4, None])
@pytest.mark.parametrize("prefix", [0, 3])
def test_parts_of_any_side_and_axis(future: float, extent: int | None, prefix: int, seed: int) -> None:
    where, encoding = torch.randint(0, 4, (2, 10, 2)), Corner(future)
    positions = posenc.coordinates(where, prefix=prefix, extent=extent, order=torch.arange(10 + prefix))
    for groups, options in ((4, {}), (2, {"scale": 2.0, "causal": True})):
        q, k, v = inputs(4, 10 + prefix, groups=groups, width=6)
        compare(q, k, v, encoding, positions=positions, **options)


# --- who sees whom ---

LAYOUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "the last of a sequence": dict,
    "everybody": lambda: {"positions": posenc.sequence(150)},
    "packed": lambda: {"positions": posenc.packed([20, 1, 0, 100, 29])},
    "padded on the left": lambda: {"positions": posenc.padded(torch.arange(150) >= torch.tensor([[30], [140]]))},
    "an offset a row": lambda: {"positions": posenc.sequence(150, torch.tensor([3, 10**6]))},
    "shuffled": lambda: {
        "positions": posenc.coordinates(
            torch.randint(0, 150, (2, 150, 1)),
            order=torch.stack([torch.randperm(150) for _ in range(2)]),
            document=torch.randint(0, 3, (150,)),
            extent=150,
        )
    },
    "a shard against all": lambda: {
        "positions": posenc.coordinates(torch.arange(1, 150, 4)[:, None], order=torch.arange(1, 150, 4), extent=150),
        "key_positions": posenc.sequence(150),
    },
    "real order": lambda: {"positions": posenc.coordinates(torch.rand(150, 1), order=torch.rand(150))},
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 0, 20])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_order_windows_and_documents(layout: str, window: int | None, causal: bool, seed: int) -> None:
    where = LAYOUTS[layout]()
    queries = {"everybody": 150, "a shard against all": 38}.get(layout, 140)
    bias = posenc.ALiBi(4).double()
    compare(*inputs(queries, 150), bias, causal=causal, window=window, **where)


def test_masks_of_the_callers_own(seed: int) -> None:
    q, k, v = inputs(40, 150, groups=2)
    bias, key_mask = posenc.ALiBi(4).double(), torch.rand(2, 150) < 0.5
    compare(q, k, v, mask=torch.rand(2, 4, 40, 150) < 0.5)
    for shape in ((1, 1, 40, 150), (2, 1, 1, 150), (1, 4, 40, 1)):
        compare(q, k, v, bias, mask=torch.rand(shape) < 0.5, key_mask=key_mask, causal=True, window=30)


def test_a_row_that_sees_nothing_is_zero(seed: int) -> None:
    mask, key_mask = torch.ones(2, 1, 5, 200, dtype=torch.bool), torch.ones(2, 200, dtype=torch.bool)
    mask[0, 0, 3], key_mask[1] = False, False
    for encodings in ([], [frozen(posenc.T5Bias(4))], [frozen(posenc.Deberta(4, 16))]):
        out = compare(*inputs(5, 200), *encodings, mask=mask, key_mask=key_mask)
        assert not out[0, :, 3].any()
        assert not out[1].any()


def test_documents_must_be_said_on_both_sides() -> None:
    q, k, v = inputs(3, 3)
    with pytest.raises(ValueError, match="queries and keys must both say their documents, got one that does not"):
        flexed(q, k, v, positions=posenc.packed([1, 2]), key_positions=posenc.sequence(3))


def sights() -> list[Visibility]:
    """Who sees whom, in as many ways as there are, over several blocks."""
    shuffled = posenc.coordinates(
        torch.zeros(300, 1), order=torch.randperm(300), document=torch.randint(0, 2, (2, 300))
    )
    narrow = posenc.coordinates(torch.zeros(300, 1), document=(torch.arange(300) // 70).to(torch.uint8))
    packed, padded = posenc.packed([100, 30, 170]), posenc.padded(torch.arange(300) < torch.tensor([[300], [40]]))
    plain = posenc.sequence(300)
    return [
        Visibility(plain, plain, causal=True),
        Visibility(plain, plain, window=0),
        Visibility(plain.last(130), plain, causal=True, window=90),
        Visibility(packed, packed),
        Visibility(packed.last(128), packed, causal=True),
        Visibility(padded, padded, window=200),
        Visibility(shuffled, shuffled, causal=True),
        Visibility(narrow, narrow),
        Visibility(plain, plain, mask=torch.rand(2, 3, 300, 300) < 0.5, key_mask=torch.rand(2, 300) < 0.01),
        Visibility(plain.last(1), plain, mask=(torch.arange(300) < 129)[None, None, None], newest=True),
    ]


@pytest.mark.parametrize("number", range(10))
def test_blocks_that_are_skipped_hold_nothing(number: int, seed: int) -> None:
    """Blocks are those that torch finds by looking at each pair; of tokens in no order, or by two rules, maybe more."""
    sight = sights()[number]
    queries, keys, device = sight.queries.length, sight.keys.length, torch.device("cpu")
    ours = flex._block_mask(queries, keys, flex._bands(sight, device), flex._masks(sight, device), device)
    allowed = sight.allowed()
    assert allowed is not None
    allowed = allowed.expand(-1, -1, queries, keys)

    def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return allowed[b, h, i, j]

    theirs = create_block_mask(sees, *allowed.shape, device="cpu")
    seen, wanted = (blocks_of(mask, partial=True) for mask in (ours, theirs))
    whole, wholly = (blocks_of(mask, partial=False) for mask in (ours, theirs))
    assert not (wanted & ~seen).any()
    assert not (whole & ~wholly).any()
    if number not in (5, 6):
        assert torch.equal(*torch.broadcast_tensors(seen, wanted))
        assert torch.equal(*torch.broadcast_tensors(whole, wholly))


def blocks_of(mask: Any, partial: bool) -> Tensor:
    """The blocks that a BlockMask has at all, or those that all see, `[b, h, 3, 3]` at most."""
    found = torch.zeros(*mask.kv_num_blocks.shape, mask.kv_indices.shape[-1] + 1, dtype=torch.bool)
    kinds = [(mask.full_kv_num_blocks, mask.full_kv_indices)]
    kinds += [(mask.kv_num_blocks, mask.kv_indices)] if partial else []
    for counts, indices in kinds:
        place = torch.arange(indices.shape[-1]) < counts[..., None]
        found.scatter_(-1, indices.long().masked_fill(~place, found.shape[-1] - 1), True)
    rows, columns = -(-mask.shape[-2] // flex.BLOCK), -(-mask.shape[-1] // flex.BLOCK)
    assert not found[..., rows:, :-1].any()
    assert not found[..., :, columns:-1].any()
    return found[..., :rows, :columns]


# --- sizes ---


@pytest.mark.parametrize("length", [1, 17, 65, 128, 129, 320])
def test_lengths(length: int, seed: int) -> None:
    t5, logits = frozen(posenc.T5Bias(4)), frozen(posenc.RelativeLogits(16, 320, causal=True))
    compare(*inputs(length), t5)
    compare(*inputs(length, batch=3), t5, logits, causal=True)
    compare(*inputs(1, length), t5, causal=True)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 5), (5, 0)])
def test_no_tokens(sizes: tuple[int, int]) -> None:
    q, k, v = draw(2, 4, sizes[0], 16), draw(2, 2, sizes[1], 16), draw(2, 2, sizes[1], 24)
    assert torch.equal(flexed(q, k, v), torch.zeros(2, 4, sizes[0], 24))
    assert flexed(q[:0], k[:0], v[:0]).shape == (0, 4, sizes[0], 24)


@pytest.mark.parametrize("width", [2, 8, 20, 80, 256])
@pytest.mark.parametrize("values", [3, 20, 64])
def test_widths_of_heads(width: int, values: int, seed: int) -> None:
    q, k, _ = inputs(9, width=width)
    out = compare(q, k, draw(2, 4, 9, values), posenc.Rotary(width), posenc.SinusoidalLogits(width), causal=True)
    assert out.shape == (2, 4, 9, values)


def test_a_prefix_alone_and_beside_cells(seed: int) -> None:
    bias = frozen(posenc.RelativePositionBias(4, (3, 4), prefix_bias=True))
    logits = frozen(posenc.RelativeLogits(16, (3, 4)))
    for positions in (posenc.grid(3, 4, prefix=1), posenc.grid(0, 4, prefix=1)):
        compare(*inputs(positions.length), bias, logits, positions=positions)
    q, k, v = inputs(1, 13)
    places = {"positions": posenc.grid(0, 4, prefix=1), "key_positions": posenc.grid(3, 4, prefix=1)}
    compare(q, k, v, bias, logits, **places)


def test_queries_and_keys_on_grids_of_two_resolutions(seed: int) -> None:
    logits = frozen(posenc.RelativeLogits(16, (6, 6), scaled=False))
    places = {"positions": posenc.grid(6, 6, prefix=1), "key_positions": posenc.grid(3, 3, prefix=2, step=2)}
    compare(*inputs(37, 11), logits, **places)


def test_a_layout_that_is_not_contiguous(seed: int) -> None:
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs(30))
    k, v = k[:, :1, :1].expand(-1, 2, 30, -1), v.flip(2)[:, :2, ::1]
    compare(q, k, v, frozen(posenc.Fire(4)), causal=True)


# --- gradients, which torch has for CUDA: the formulas it takes there, unfused ---


@pytest.mark.filterwarnings("ignore")  # of torch's own while it captures
@pytest.mark.parametrize("subject", KINDS)
def test_gradients_are_those_of_the_dense_path(subject: Subject, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention derives the backward of what it is told; on CUDA, it compiles what is run here as it stands."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *tensors: None)
    encoding, positions = subject.make(), subject.layout()
    trained = [*encoding.parameters()]
    leaves = [x.requires_grad_() for x in inputs(positions.length, heads=subject.heads, width=subject.head_dim)]
    mask = torch.rand(2, 1, positions.length, positions.length) < 0.8
    mask[0, 0, 1] = False
    wanted, ours = [], []
    for found, run in ((wanted, dense.run), (ours, with_gradients)):
        problem = told(*leaves, encoding, positions=positions, causal=subject.causal, mask=mask)
        output = run(problem)
        weights = torch.linspace(-1, 2, output.numel()).reshape(output.shape)
        found += torch.autograd.grad(output, [*leaves, *trained], weights, allow_unused=True)
    for gradient, truth in zip(ours, wanted, strict=True):
        truth = torch.zeros_like(gradient) if truth is None else truth
        largest = max(1.0, float(truth.abs().max()))
        torch.testing.assert_close(gradient, truth, rtol=0, atol=1e-12 * largest)


def with_gradients(problem: Problem) -> Tensor:
    """What `flex.run` compiles on CUDA."""
    q, device = problem.q, problem.q.device
    bands, masks = flex._bands(problem.visibility, device), flex._masks(problem.visibility, device)
    return flex._attend(q, problem.k, problem.v, flex._score_mod(problem), bands, masks, problem.scale)


# --- compiling ---


def test_what_requires_gradients_runs_without_them(seed: int) -> None:
    q, k, v = (x.requires_grad_() for x in inputs())
    t5 = posenc.T5Bias(4).double()
    with torch.no_grad():
        assert not compare(q, k, v, t5).requires_grad
    with torch.inference_mode():
        compare(q, k, v, t5)
    assert all(x.requires_grad for x in (q, k, v))


def test_autocast_narrows_nothing(seed: int) -> None:
    q, k, v = inputs(dtype=torch.float32)
    encodings = [posenc.Shaw(16, 3, values=False).requires_grad_(False), posenc.ALiBi(4)]
    wanted = flexed(q, k, v, *encodings)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(flexed(q, k, v, *encodings), wanted)


def counted(function: Callable[..., Tensor]) -> tuple[Callable[..., Tensor], list[Any]]:
    graphs: list[Any] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, dynamic=True, backend=count), graphs


@pytest.mark.filterwarnings("ignore")  # of torch's own while it captures
@pytest.mark.parametrize(
    ("encodings", "options"),
    [
        ([], {"causal": True}),
        ([posenc.T5Bias(4), posenc.RelativeLogits(16, 301, causal=True)], {"causal": True, "window": 9}),
        ([posenc.Fire(4), posenc.TransformerXL(4, 16), posenc.Deberta(4, 16, buckets=8, max_distance=20)], {}),
    ],
)
def test_one_graph_serves_all_lengths(encodings: list[Any], options: dict[str, Any], seed: int) -> None:
    """In a compiled model nothing reads a tensor, and neither lengths nor numbers are part of the graph."""
    fast, graphs = counted(lambda q, k, v: flexed(q, k, v, *encodings, **options))
    with torch.no_grad():
        for length in (7, 150, 13, 128, 129, 301):
            q, k, v = inputs(length, groups=2, dtype=torch.float32)
            wanted = posenc.attention(q, k, v, *encodings, backend="dense", **options)
            torch.testing.assert_close(fast(q, k, v), wanted, rtol=0, atol=2e-6)
    assert len(graphs) == 1


@pytest.mark.filterwarnings("ignore")
def test_other_positions_make_no_other_graph(seed: int) -> None:
    """The kernel that is compiled on CUDA is made for shapes alone, whatever stands where."""
    bias = posenc.T5Bias(4).double()

    def arguments_of(positions: posenc.Positions) -> tuple[Any, ...]:
        problem = told(*inputs(150), bias, positions=positions, causal=True)
        device, sight = problem.q.device, problem.visibility
        bands = flex._bands(sight, device)
        return problem, (problem.q, problem.k, problem.v, flex._score_mod(problem), bands, [], problem.scale)

    fast, graphs = counted(flex._attend)
    with torch.no_grad():
        for lengths in ([100, 50], [3, 140, 7], [150]):
            problem, arguments = arguments_of(posenc.packed(torch.tensor(lengths)))
            torch.testing.assert_close(fast(*arguments), dense.run(problem), rtol=0, atol=1e-12)
    assert len(graphs) == 1


@pytest.mark.filterwarnings("ignore")
def test_the_compiled_kernel_skips_blocks_and_reads_the_rest(seed: int) -> None:
    """torch's kernel for a CPU, which is told the same as that for CUDA: it goes by blocks."""
    encodings = [posenc.RelativeLogits(16, 300, causal=True).requires_grad_(False), posenc.T5Bias(4)]
    q, k, v = inputs(300, groups=2, dtype=torch.float32)
    options = {"positions": posenc.packed([20, 1, 200, 79]), "causal": True, "key_mask": torch.rand(2, 300) < 0.9}
    problem = told(q, k, v, *encodings, **options)
    bands, masks = flex._bands(problem.visibility, q.device), flex._masks(problem.visibility, q.device)
    torch._dynamo.reset()
    with torch.no_grad():
        fast = torch.compile(flex._attend, dynamic=False)
        ours = fast(problem.q, problem.k, problem.v, flex._score_mod(problem), bands, masks, problem.scale)
    wanted = posenc.attention(q, k, v, *encodings, backend="dense", **options)
    torch.testing.assert_close(ours, wanted, rtol=0, atol=2e-6)


def test_one_kernel_is_kept_for_all() -> None:
    assert flex._compiled() is flex._compiled()


# --- refusals ---


def facts(*encodings: Any, wanted: str = "flex", **changes: Any) -> plan.Facts:
    return attend._problem(*inputs(), *encodings, causal=True).facts(wanted)._replace(**changes)


def test_refusals() -> None:
    bias = posenc.ALiBi(4).double()
    assert flex.refuses(facts(bias)) == []
    assert flex.refuses(facts(bias, wanted="auto")) == ["FlexAttention is for CUDA"]
    assert flex.refuses(facts(bias, device="mps")) == ["FlexAttention is for CUDA"]
    assert flex.refuses(facts(bias, gradients=True)) == ["FlexAttention has no gradients on a CPU"]
    assert flex.refuses(facts(bias, dropout=True)) == ["it has no dropout"]
    assert flex.refuses(facts(posenc.Shaw(16, 3).double())) == [
        "FlexAttention has no gradients on a CPU",
        "vectors join the values, and it keeps no weights to sum them by",
    ]
    assert flex.refuses(facts(posenc.CoPE(16, 5).double(), gradients=False)) == [
        "a term reads the logits of other pairs"
    ]
    assert flex.refuses(facts(posenc.XPos(16).double(), gradients=False)) == [
        "a decay is a factor of every pair of channels, and not a number to add"
    ]
    assert flex.refuses(facts(bias, widest=257)) == ["it is for heads of up to 256 channels"]
    assert flex.refuses(facts(bias, exporting=True)) == ["exported graphs have torch's own operators alone"]
    assert flex.refuses(facts(bias, transformed=True)) == [
        "transforms of torch.func and forward-mode derivatives have no rule for it"
    ]


def test_on_cuda_it_is_chosen_by_itself() -> None:
    bias, single = posenc.ALiBi(4).double(), torch.float32
    for trained in (False, True):
        assert flex.refuses(facts(bias, wanted="auto", device="cuda", dtype=single, gradients=trained)) == []
    assert flex.refuses(facts(bias, wanted="auto", device="cuda")) == ["its CUDA kernel sums in float32"]
    plain = {"wanted": "auto", "device": "cuda", "dtype": single}
    fused = "torch's fused kernel, which needs no compiling, does the same"
    assert flex.refuses(facts(**plain)) == [fused]
    assert flex.refuses(facts(**plain, visibility="all")) == [fused]
    assert flex.refuses(facts(**plain, visibility="mask")) == []


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_is_refused_of_the_catalog(subject: Subject) -> None:
    encoding, positions = subject.make(), subject.layout()
    q, k, v = inputs(positions.length, heads=subject.heads, width=subject.head_dim)
    with torch.no_grad():
        problem = attend._problem(q, k, v, encoding, positions=positions, causal=subject.causal)
    assert bool(flex.refuses(problem.facts("flex")._replace(gradients=False))) == refused(subject)
