"""The fused kernel at its edges: rows that see nothing, what is not finite, how tensors lie, no tokens, far addresses."""

import mmap
import random
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import posenc
from fused import DTYPES, Answers, answers, compare, like
from fused_problems import STRIDES, strided
from posenc import kernels

pytestmark = pytest.mark.skipif(not kernels.BUILT, reason=kernels.MISSING)

SCHEMES: dict[str, Callable[[int], list[posenc.Encoding]]] = {
    "none": lambda tokens: [],
    "a rotation": lambda tokens: [posenc.Rotary(16)],
    "a table": lambda tokens: [posenc.T5Bias(4)],
    "pairs": lambda tokens: [posenc.Fire(4)],
    "rows for queries": lambda tokens: [posenc.RelativeLogits(16, (tokens,), causal=True)],
    "rows for keys": lambda tokens: [posenc.Deberta(4, 16)],
    "rows for values": lambda tokens: [posenc.Shaw(16, 3)],
    "several": lambda tokens: [posenc.Rotary(16), posenc.ALiBi(4, learned=True), posenc.Shaw(16, 3)],
}


def drawn(queries: int, keys: int, dtype: torch.dtype = torch.float32, groups: int = 4) -> tuple[Tensor, ...]:
    """q, k, v and a gradient of the output."""
    sizes = ((4, queries), (groups, keys), (groups, keys), (4, queries))
    return tuple(torch.randn(2, *size, 16, dtype=torch.float64).to(dtype) for size in sizes)


# --- rows that see nothing ---


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_that_sees_nothing_is_zero(dtype: torch.dtype, scheme: str, seed: int) -> None:
    """In every backend; and its gradients are finite: those of its query are zero."""
    encodings = like(SCHEMES[scheme](130), torch.promote_types(dtype, torch.float32))
    q, k, v, slope = drawn(70, 130, dtype, groups=2)
    mask, key_mask = torch.rand(2, 4, 70, 130) < 0.8, torch.rand(2, 130) < 0.8
    mask[0, 2, 5:60], mask[:, :, 69] = False, False
    key_mask[1] = False
    blind = ~(mask & key_mask[:, None, None]).any(-1)
    for backend in ("cpu", "dense", *(["sdpa"] if scheme in ("none", "a rotation") else [])):
        found = answers(backend, (q, k, v), slope, encodings, mask=mask, key_mask=key_mask, causal=True)
        assert not found.output[blind].any(), backend
        assert not found.inferred[blind].any(), backend
        assert not found.gradients[0][blind].any(), backend
        assert all(gradient.isfinite().all() for gradient in found.gradients), backend
    compare(q, k, v, *encodings, slope=slope, mask=mask, key_mask=key_mask, causal=True)


@pytest.mark.parametrize("backend", ["cpu", "sdpa", "dense"])
def test_a_batch_of_padding_alone(backend: str) -> None:
    positions = posenc.padded(torch.zeros(2, 9, dtype=torch.bool))
    q, k, v, slope = drawn(9, 9)
    found = answers(backend, (q, k, v), slope, [], positions=positions)
    assert not any(x.any() for x in found.all)


# --- infinities and NaN ---


def spoiled(which: str, tensors: tuple[Tensor, ...]) -> None:
    """Puts infinities or NaN into one head of the second row of the batch."""
    x = tensors[["q", "k", "v", "slope"].index(which)]
    for _ in range(random.choice([1, 3])):
        place = random.randrange(x.shape[2]), random.randrange(16)
        x[1, random.randrange(x.shape[1])][place] = random.choice([torch.inf, -torch.inf, torch.nan])


def kinds(x: Tensor) -> Tensor:
    return torch.stack([x.isnan(), x == torch.inf, x == -torch.inf])


@pytest.mark.parametrize("which", ["q", "k", "v", "slope"])
@pytest.mark.parametrize("seen", ["all", "causal", "window", "mask", "key_mask"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_not_finite_goes_where_it_goes_in_the_dense_path(scheme: str, seen: str, which: str, seed: int) -> None:
    """In the output. Gradients are spoiled wherever they are there; and nothing of another row of the batch is."""
    tokens = random.choice([9, 70, 150])
    queries, dtype = random.choice([tokens, 5]), random.choice(DTYPES)
    encodings = like(SCHEMES[scheme](tokens), torch.promote_types(dtype, torch.float32))
    causal = seen == "causal" or any(getattr(each, "causal", False) for each in encodings)
    options: dict[str, Any] = {"causal": causal, "window": 5 if seen == "window" else None}
    if seen == "mask":
        options["mask"] = torch.rand(2, 1, queries, tokens) < 0.7
    if seen == "key_mask":
        options["key_mask"] = torch.rand(2, tokens) < 0.7
    sound = drawn(queries, tokens, dtype, groups=2)
    tensors = tuple(x.clone() for x in sound)
    spoiled(which, tensors)
    ours, wanted, before = (
        answers(backend, given[:3], given[3], encodings, **options)
        for backend, given in (("cpu", tensors), ("dense", tensors), ("cpu", sound))
    )
    for mine in ours.all[:2]:
        assert torch.equal(kinds(mine), kinds(wanted.output))
    for mine, theirs in zip(ours.gradients, wanted.gradients, strict=True):
        assert not (mine.isfinite() & ~theirs.isfinite()).any()
    if seen == "all" and not causal:
        for mine, theirs in zip(ours.gradients[:3], wanted.gradients[:3], strict=True):
            assert torch.equal(mine.isfinite(), theirs.isfinite())
    for mine, sane in zip(ours.all[:5], before.all[:5], strict=True):
        assert torch.equal(mine[0], sane[0])


def test_a_problem_after_a_spoiled_one_is_as_before(seed: int) -> None:
    """Memory that held NaN is no number of the next."""
    q, k, v, slope = drawn(150, 150)
    encodings = SCHEMES["several"](150)
    wanted = answers("cpu", (q, k, v), slope, encodings)
    answers("cpu", (q * torch.nan, k * torch.nan, v * torch.nan), slope * torch.nan, encodings)
    assert identical(answers("cpu", (q, k, v), slope, encodings), wanted)


def identical(ours: Answers, wanted: Answers) -> bool:
    return all(torch.equal(x, y) for x, y in zip(ours.all, wanted.all, strict=True))


# --- how tensors lie ---


def close(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


@pytest.mark.parametrize("scheme", ["none", "several", "rows for keys"])
@pytest.mark.parametrize("kind", [kind for kind in STRIDES if kind != "contiguous"])
def test_strides_do_not_matter(kind: str, scheme: str, seed: int) -> None:
    """The same to the bit as for tensors that are packed close, gradients of the output too."""
    for dtype in DTYPES:
        encodings = like(SCHEMES[scheme](70), torch.promote_types(dtype, torch.float32))
        tensors = [strided(kind, 2, heads, 70, 16, dtype=dtype) for heads in (4, 2, 2, 4)]
        *inputs, slope = tensors
        ours = answers("cpu", inputs, slope, encodings, causal=True)
        wanted = answers("cpu", [close(x) for x in inputs], close(slope), encodings, causal=True)
        assert identical(ours, wanted)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (3,), (0, 1, 2), (0, 1, 2, 3)])
def test_strides_of_zero(axes: tuple[int, ...], seed: int) -> None:
    """Any axes of q, k, v and the output's gradient expanded: as a sum's gradient is along all of them."""
    for dtype in DTYPES:
        one_each = [1 if axis in axes else size for axis, size in enumerate((2, 4, 70, 16))]
        tensors = [torch.randn(one_each, dtype=torch.float64).to(dtype).expand(2, 4, 70, 16) for _ in range(4)]
        encodings = like(SCHEMES["several"](70), torch.promote_types(dtype, torch.float32))
        ours = answers("cpu", tensors[:3], tensors[3], encodings)
        assert identical(ours, answers("cpu", [close(x) for x in tensors[:3]], close(tensors[3]), encodings))
        if 2 not in axes or dtype == torch.float64:  # rounding of sums of equal numbers does not average out
            compare(*tensors[:3], slope=tensors[3])


def test_flipped_permuted_and_single_axes(seed: int) -> None:
    x = torch.randn(70, 2, 16, 4, requires_grad=True)
    q = x.permute(1, 3, 0, 2)
    k, v = (torch.randn(1, 70, 2, 16).transpose(1, 2).expand(2, 2, 70, 16) for _ in range(2))
    compare(q, k, v, posenc.T5Bias(4), causal=True)
    compare(q[:1, :1].as_strided((1, 1, 70, 16), (999, 777, 8, 1)), k[:1, :1], v[:1, :1, :, :1], posenc.Rotary(16))
    compare(q[:, :, 1::3], k[:, :, ::3], v[:, :, ::3], posenc.ALiBi(4))


@pytest.mark.parametrize(
    "own",
    [
        (True, True, True, True),
        (True, False, True, True),
        (False, True, True, True),
        (False, False, False, True),
        (True, False, True, False),
        (False, True, False, False),
        (False, False, False, False),
    ],
    ids=repr,
)
def test_masks_are_broadcast_in_any_dimension(own: tuple[bool, ...], seed: int) -> None:
    full = (2, 4, 70, 140)
    mask = torch.rand([size if kept else 1 for size, kept in zip(full, own, strict=True)]) < 0.6
    q, k, v, _ = drawn(70, 140)
    key_mask = torch.rand(140, 2).t() < 0.8
    for given in (
        mask,
        mask.expand(full),
        mask.mT.contiguous().mT,
        mask.expand(full).permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0),
    ):
        compare(q, k, v, posenc.ALiBi(4), mask=given)
        compare(q, k, v, mask=given, key_mask=key_mask, causal=True, window=50)


def test_masks_of_padding_lie_anyhow(seed: int) -> None:
    q, k, v, _ = drawn(70, 70)
    there = torch.rand(70, 2) < 0.7
    ours = compare(q, k, v, positions=posenc.padded(there.t()))
    kept = posenc.attention(q, k, v, positions=posenc.padded(close(there.t())), backend="cpu")
    assert torch.equal(ours.inferred, kept)
    compare(q, k, v, positions=posenc.padded((torch.rand(2, 1) < 0.9).expand(2, 70)))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.int16])
def test_orders_and_documents_of_any_dtype(dtype: torch.dtype, seed: int) -> None:
    q, k, v, _ = drawn(70, 70)
    order, document = (torch.stack([torch.randperm(70) for _ in range(2)]).to(dtype) for _ in range(2))
    places = torch.arange(70)[:, None]
    document = document // 25
    for tensors in ((order, document), (order.t().contiguous().t(), document[:1].expand(2, -1))):
        positions = posenc.coordinates(places, order=tensors[0], document=tensors[1], extent=70)
        compare(q, k, v, posenc.T5Bias(4), positions=positions, causal=True, window=30)


def test_documents_may_be_real_numbers(seed: int) -> None:
    q, k, v, _ = drawn(70, 70)
    positions = posenc.coordinates(torch.arange(70)[:, None], document=torch.rand(70).mul(3).round(decimals=1))
    found = posenc.attention(q, k, v, positions=positions)
    torch.testing.assert_close(found, posenc.attention(q, k, v, positions=positions, backend="dense"))


def test_orders_far_apart_do_not_overflow(seed: int) -> None:
    q, k, v, _ = drawn(70, 70)
    order = torch.randint(-(2**62), 2**62, (70,))
    order[:3] = torch.tensor([2**62 - 1, -(2**62), 0])
    positions = posenc.coordinates(torch.arange(70)[:, None], order=order)
    for window in (None, 0, 2**61, 2**62):
        compare(q, k, v, positions=positions, causal=True, window=window)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 100, 129, 400])
def test_documents_and_windows_wider_than_tiles(window: int | None, causal: bool, seed: int) -> None:
    """Some tiles are seen wholly, some in part, some by nobody; borders fall anywhere in blocks and tiles."""
    q, k, v, _ = drawn(500, 500, groups=1)
    borders = sorted(random.sample(range(500), 2))
    lengths = [borders[0], borders[1] - borders[0], 500 - borders[1]]
    shards = torch.cat([torch.arange(500)[start::2] for start in (1, 0)])  # every tile has a wide range of orders
    places = shards[:, None]
    for positions in (
        posenc.packed(lengths),
        posenc.packed([260, 240]),
        posenc.coordinates(places, order=shards, document=shards // 300, extent=500),
        posenc.padded(torch.arange(500) < torch.tensor([[500], [borders[1]]])),
        posenc.padded(torch.arange(500) >= torch.tensor([[borders[0]], [499]])),
    ):
        compare(q, k, v, posenc.ALiBi(4), positions=positions, causal=causal, window=window)


# --- nothing, and far away ---


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("sizes", [(0, 0), (0, 5), (5, 0)])
def test_no_tokens(sizes: tuple[int, int], scheme: str) -> None:
    q, k, v, slope = drawn(*sizes, groups=2)
    queries, keys = (posenc.sequence(size) for size in sizes)
    encodings, options = SCHEMES[scheme](9), {"positions": queries, "key_positions": keys, "causal": True}
    for rows in (2, 0):
        tensors = q[:rows], k[:rows], v[:rows]
        ours, wanted = (answers(backend, tensors, slope[:rows], encodings, **options) for backend in ("cpu", "dense"))
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-6)
        key_mask = torch.zeros(rows, sizes[1], dtype=torch.bool)
        assert not answers("cpu", tensors, slope[:rows], encodings, key_mask=key_mask, **options).inferred.any()


def test_no_keys_without_a_mask() -> None:
    q, k, v, slope = drawn(5, 0)
    found = answers("cpu", (q, k, v), slope, [])
    assert not any(x.any() for x in found.all)


def test_no_channels(seed: int) -> None:
    q, k, v, _ = drawn(70, 70)
    compare(q[..., :0], k[..., :0], v, posenc.ALiBi(4), scale=1.0)
    compare(q, k, v[..., :0], posenc.ALiBi(4, learned=True))


def far(size: int, dtype: torch.dtype) -> Tensor:
    """So many numbers of a file without contents, of which those that are touched alone take room."""
    with tempfile.TemporaryFile() as file:
        try:
            file.truncate(size * dtype.itemsize)
            mapped = mmap.mmap(file.fileno(), size * dtype.itemsize)
        except OSError as error:
            pytest.skip(f"there is no room for the addresses of {size} numbers: {error}")
    return torch.frombuffer(mapped, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "strides", [(1, 1, 64, 4), (2**31, 64, 2**10, 1), (64, 2**31, 2**12, 3), (16, 64, 2**30, 1), (1, 4, 64, 2**28)]
)
def test_more_than_two_to_the_31_numbers(strides: tuple[int, ...], dtype: torch.dtype, seed: int) -> None:
    """Offsets and strides of q, k, v and the output's gradient beyond 32 bits, and beyond 2^32 bytes."""
    size = (2, 2, 5, 16)
    span = sum((count - 1) * stride for count, stride in zip(size, strides, strict=True)) + 1
    whole = far(2**31 + 100 + span, dtype)
    tensors = []
    for offset in (2**31 + 99, 2**31 + 98, 2**31 + 97, 2**31 + 96):
        tensors.append(whole.as_strided(size, strides, offset))
        tensors[-1].copy_(torch.randn(size))
    *inputs, slope = tensors
    encodings = [posenc.Rotary(16), posenc.T5Bias(2)]
    ours = answers("cpu", inputs, slope, encodings, causal=True)
    assert identical(ours, answers("cpu", [close(x) for x in inputs], close(slope), encodings, causal=True))


def test_masks_and_biases_of_more_than_two_to_the_31_numbers(seed: int) -> None:
    q, k, v, _slope = drawn(3, 6)
    mask = far(2**32 + 2**13, torch.uint8).view(torch.bool).as_strided((2, 4, 3, 6), (2**31, 2**10, 2**30, 5), 9)
    values = far(2**32 + 2**13, torch.float32).as_strided((1, 4, 3, 6), (1, 2**30, 2**29, 7))
    mask.copy_(torch.rand(mask.shape) < 0.6)
    values.copy_(torch.randn(values.shape))
    relative = posenc.Relative(posenc.sequence(6).last(3), posenc.sequence(6))
    found = [
        posenc.attention(q, k, v, posenc.Bias(relative, given[0]), mask=given[1], backend="cpu")
        for given in ((values, mask), (close(values), close(mask)))
    ]
    assert torch.equal(*found)


# --- positions that were changed after they were checked ---


@pytest.mark.parametrize("place", [-1, 9, 10**6, -(10**6), 2**31 + 4, 2**32 + 4, 2**40, -(2**40), 2**62])
@pytest.mark.parametrize("scheme", ["a table", "rows for queries", "rows for keys", "rows for values"])
def test_positions_outside_their_extent(scheme: str, place: int, seed: int) -> None:
    """Written into the tensor that is kept: found where codes are read."""
    q, k, v, _ = drawn(9, 9)
    places = torch.arange(9)[:, None]
    positions = posenc.coordinates(places, order=torch.arange(9), extent=9)
    (encoding,) = SCHEMES[scheme](9)
    term = encoding.term(positions)  # made before, so that nobody looks again
    posenc.attention(q, k, v, term, causal=True, backend="cpu")
    places[4] = place
    with pytest.raises(ValueError, match="positions must lie inside") as error:
        posenc.attention(q, k, v, term, causal=True, backend="cpu")
    assert str(error.value) == (
        "positions must lie inside their extent, got one outside: make the layout with a larger one"
    )


def test_positions_outside_their_extent_on_either_side_alone(seed: int) -> None:
    q, k, v, _ = drawn(9, 9)
    for changed in range(2):
        places = [torch.randint(0, 5, (2, 9, 2)) for _ in range(2)]
        queries, keys = (posenc.coordinates(where, extent=(5, 5)) for where in places)
        term = posenc.RelativePositionBias(4, (5, 5)).term(queries, keys)
        places[changed][1, 3] = 10**5
        with pytest.raises(ValueError, match="positions must lie inside their extent"):
            posenc.attention(q, k, v, term, backend="cpu")
