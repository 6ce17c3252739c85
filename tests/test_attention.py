"""The signature of `attention`: positions, masks, windows, groups, dropout, composition, shared terms, errors."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import posenc
from posenc import reference


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def inputs(queries: int = 7, keys: int = 7, heads: int = 4, groups: int = 4, width: int = 16) -> tuple[Tensor, ...]:
    return draw(2, heads, queries, width), draw(2, groups, keys, width), draw(2, groups, keys, width)


def refer(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | np.ndarray | None = None, **terms: Any) -> Tensor:
    rows = []
    for row in range(len(q)):
        seen = (
            None if allowed is None else np.broadcast_to(np.asarray(allowed), (len(q), *q.shape[1:3], k.shape[2]))[row]
        )
        rows.append(reference.attention(q[row].numpy(), k[row].numpy(), v[row].numpy(), allowed=seen, **terms))
    return torch.tensor(np.stack(rows))


ALONE: dict[str, Any] = {
    "none": list,
    "rotary": lambda: [posenc.Rotary(16)],
    "bias": lambda: [posenc.ALiBi(4)],
    "content": lambda: [posenc.Shaw(16, 3).double()],
    "all": lambda: [posenc.Rotary(16), posenc.ALiBi(4), posenc.Shaw(16, 3).double(), posenc.T5Bias(4).double()],
}


# --- who sees whom ---


@pytest.mark.parametrize("encodings", ALONE)
@pytest.mark.parametrize("keys", [7, 12])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 0, 2])
def test_masks_combine(encodings: str, keys: int, causal: bool, window: int | None, seed: int) -> None:
    q, k, v = inputs(7, keys)
    mask, key_mask = torch.rand(2, 1, 7, keys) < 0.8, torch.rand(2, keys) < 0.8
    lag = torch.arange(keys - 7, keys)[:, None] - torch.arange(keys)
    allowed = mask & key_mask[:, None, None]
    allowed = allowed & (lag >= 0) if causal else allowed
    allowed = allowed & (lag.abs() <= window) if window is not None else allowed
    own = ALONE[encodings]()
    ours = posenc.attention(q, k, v, *own, causal=causal, window=window, mask=mask, key_mask=key_mask)
    torch.testing.assert_close(ours, posenc.attention(q, k, v, *own, mask=allowed), rtol=1e-12, atol=1e-12)
    if encodings == "none":
        torch.testing.assert_close(ours, refer(q, k, v, allowed), rtol=1e-12, atol=1e-12)
    elif encodings == "bias":
        places = np.arange(keys - 7, keys), np.arange(keys)
        wanted = refer(q, k, v, allowed, bias=reference.alibi(*places, 4))
        torch.testing.assert_close(ours, wanted, rtol=1e-12, atol=1e-12)
    elif encodings == "rotary":
        turned = [
            torch.tensor(reference.rotary(x.numpy(), np.arange(keys - count, keys), 16))
            for x, count in ((q, 7), (k, keys))
        ]
        torch.testing.assert_close(ours, refer(*turned, v, allowed), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("encodings", ["none", "rotary"])
def test_every_backend_gives_the_dense_result(encodings: str, seed: int) -> None:
    q, k, v = inputs(5, 9, heads=6, groups=3)
    for options in ({}, {"causal": True}, {"window": 2}, {"key_mask": torch.rand(2, 9) < 0.5}):
        both = [posenc.attention(q, k, v, *ALONE[encodings](), backend=name, **options) for name in ("sdpa", "dense")]
        torch.testing.assert_close(*both, rtol=1e-12, atol=1e-12)


def test_causality_goes_by_order_not_by_storage(seed: int) -> None:
    q, k, v = inputs(8, 8)
    shuffle = torch.randperm(8)
    encodings = [posenc.Rotary(16), posenc.ALiBi(4)]
    straight = posenc.attention(q, k, v, *encodings, causal=True, window=3)
    zigzag = posenc.coordinates(shuffle[:, None], order=shuffle, extent=8)
    ours = posenc.attention(
        *(x[:, :, shuffle] for x in (q, k, v)), *encodings, positions=zigzag, causal=True, window=3
    )  # fmt: skip
    torch.testing.assert_close(ours, straight[:, :, shuffle], rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match=r"pass order= to posenc\.coordinates"):
        posenc.attention(q, k, v, positions=posenc.coordinates(shuffle[:, None]), causal=True)


def test_prefix_tokens_come_first_in_the_order(seed: int) -> None:
    q, k, v = inputs(7, 7)
    ours = posenc.attention(q, k, v, positions=posenc.grid(2, 3, prefix=1), causal=True)
    torch.testing.assert_close(ours, posenc.attention(q, k, v, causal=True), rtol=1e-12, atol=1e-12)


def test_documents_of_their_own(seed: int) -> None:
    q, k, v = inputs(6, 6)
    document = torch.tensor([0, 1, 0, 1, 1, 0])
    positions = posenc.coordinates(torch.arange(6)[:, None], document=document)
    together = posenc.attention(q, k, v, posenc.Rotary(16), positions=positions)
    for number in (0, 1):
        own = document == number
        places = posenc.coordinates(torch.arange(6)[own][:, None])
        alone = posenc.attention(*(x[:, :, own] for x in (q, k, v)), posenc.Rotary(16), positions=places)
        torch.testing.assert_close(together[:, :, own], alone, rtol=1e-12, atol=1e-12)


def test_packed_accepts_lengths_and_boundaries() -> None:
    for layout in (
        posenc.packed([2, 0, 3]),
        posenc.packed(torch.tensor([2, 0, 3])),
        posenc.packed(cu_seqlens=[0, 2, 2, 5]),
        posenc.packed(cu_seqlens=torch.tensor([0, 2, 2, 5], dtype=torch.int32), total=5),
    ):
        assert layout.coordinates().flatten().tolist() == [0, 1, 0, 1, 2]
        documents = layout.document()
        assert documents is not None
        assert documents.tolist() == [0, 0, 2, 2, 2]


@pytest.mark.parametrize("encodings", ["none", "rotary", "bias", "content", "all"])
@pytest.mark.parametrize("sizes", [(0, 0), (0, 5)])
def test_empty_sequences_give_an_empty_result(encodings: str, sizes: tuple[int, int]) -> None:
    q, k, v = (x.requires_grad_() for x in inputs(*sizes))
    out = posenc.attention(q, k, v, *ALONE[encodings]())
    assert out.shape == (2, 4, 0, 16)
    out.sum().backward()
    assert posenc.attention(q[:0], k[:0], v[:0], *ALONE[encodings]()).shape == (0, 4, 0, 16)


def test_cross_attention_without_positions(seed: int) -> None:
    q, k, v = draw(2, 4, 7, 16), draw(2, 4, 3, 16), draw(2, 4, 3, 16)
    torch.testing.assert_close(posenc.attention(q, k, v), refer(q, k, v), rtol=1e-12, atol=1e-12)
    key_mask = torch.tensor([[True, True, False], [True, False, True]])
    wanted = refer(q, k, v, key_mask[:, None, None].expand(2, 4, 7, 3))
    torch.testing.assert_close(posenc.attention(q, k, v, key_mask=key_mask), wanted, rtol=1e-12, atol=1e-12)


def test_a_row_that_sees_nothing_in_every_backend(seed: int) -> None:
    for name in ("sdpa", "dense"):
        q, k, v = (x.requires_grad_() for x in inputs(4, 4))
        mask = torch.ones(2, 1, 4, 4, dtype=torch.bool)
        mask[0, 0, 2] = False
        out = posenc.attention(q, k, v, mask=mask, backend=name)
        assert not out[0, :, 2].any()
        out.square().sum().backward()
        assert all(x.grad is not None and x.grad.isfinite().all() for x in (q, k, v))


# --- numbers ---


def test_scale_and_the_place_of_the_bias(seed: int) -> None:
    q, k, v = inputs(5, 5)
    places = np.arange(5)
    for scale in (None, 0.3):
        ours = posenc.attention(q, k, v, posenc.ALiBi(4), scale=scale)
        wanted = refer(q, k, v, scale=scale, bias=reference.alibi(places, places, 4))
        torch.testing.assert_close(ours, wanted, rtol=1e-12, atol=1e-12)


def test_encodings_compose_in_any_order(seed: int) -> None:
    q, k, v = inputs(9, 9)
    encodings = ALONE["all"]()
    forward = posenc.attention(q, k, v, *encodings)
    torch.testing.assert_close(posenc.attention(q, k, v, *encodings[::-1]), forward, rtol=1e-12, atol=1e-12)
    for left_out in range(4):
        fewer = posenc.attention(q, k, v, *encodings[:left_out], *encodings[left_out + 1 :])
        assert not torch.allclose(fewer, forward)


def test_content_meets_the_query_before_it_is_rotated(seed: int) -> None:
    q, k, v = inputs(5, 5)
    shaw, rotary, places = posenc.Shaw(16, 2, values=False).double(), posenc.Rotary(16), np.arange(5)
    turned = [torch.tensor(reference.rotary(x.numpy(), places, 16)) for x in (q, k)]
    logits = shaw(q)
    rows = [
        reference.attention(*(x[row].numpy() for x in (*turned, v)), content=logits[row].detach().numpy())
        for row in (0, 1)
    ]
    ours = posenc.attention(q, k, v, rotary, shaw)
    torch.testing.assert_close(ours, torch.tensor(np.stack(rows)), rtol=1e-12, atol=1e-12)


def test_a_term_is_shared_by_layers(seed: int) -> None:
    q, k, v = inputs(6, 6)
    positions = posenc.grid(2, 3)
    encodings = [posenc.Rotary(16, axes=2), posenc.RelativePositionBias(4, (2, 3)).double()]
    terms = [encoding.term(positions, dtype=torch.float64) for encoding in encodings]
    ours = posenc.attention(q, k, v, *terms, positions=positions)
    torch.testing.assert_close(ours, posenc.attention(q, k, v, *encodings, positions=positions), rtol=0, atol=0)
    with pytest.raises(ValueError, match="the term is for 6 queries and 6 keys, got 5 and 6"):
        posenc.attention(q[:, :, :5], k, v, *terms, positions=positions)


def test_dropout_drops_weights(seed: int) -> None:
    q, k, v = inputs(64, 64)
    for encodings in ("none", "bias"):
        out = posenc.attention(q, k, torch.ones_like(v), *ALONE[encodings](), dropout=0.5)
        assert 0.9 < out.mean() < 1.1  # what is kept is scaled up
        assert out.std() > 0.05
        whole = posenc.attention(q, k, torch.ones_like(v), *ALONE[encodings]())
        torch.testing.assert_close(whole, torch.ones_like(whole), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_dtypes_are_computed_in_float32(dtype: torch.dtype, seed: int) -> None:
    q, k, v = (x.to(dtype) for x in inputs(33, 33))
    ours = posenc.attention(q, k, v, posenc.ALiBi(4))
    exact = posenc.attention(q.double(), k.double(), v.double(), posenc.ALiBi(4))
    assert ours.dtype == dtype
    assert (ours.double() - exact).abs().max() <= torch.finfo(dtype).eps * exact.abs().max()


def test_values_may_be_wider_than_keys(seed: int) -> None:
    q, k, _ = inputs(5, 5)
    assert posenc.attention(q, k, draw(2, 4, 5, 9), posenc.ALiBi(4)).shape == (2, 4, 5, 9)
    assert posenc.attention(q, k, draw(2, 4, 5, 9)).shape == (2, 4, 5, 9)


def test_one_offset_a_row_of_the_batch(seed: int) -> None:
    """A decode step of requests that have come to different lengths."""
    q, k, v = inputs(1, 9)
    starts = torch.tensor([8, 3])
    positions = posenc.sequence(1, start=starts)
    for encodings in ("rotary", "bias"):
        ours = posenc.attention(
            q, k, v, *ALONE[encodings](), positions=positions, key_positions=posenc.sequence(9), causal=True
        )
        for row, start in enumerate(starts.tolist()):
            seen = slice(start + 1)
            alone = [x[row : row + 1] for x in (q, k[:, :, seen], v[:, :, seen])]
            wanted = posenc.attention(*alone, *ALONE[encodings](), causal=True)
            torch.testing.assert_close(ours[row : row + 1], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # eager, as float64 needs
def test_score_mod_equals_the_dense_bias(seed: int) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    bias = posenc.RelativePositionBias(4, (2, 3), prefix_bias=True).double().requires_grad_(False)
    layouts = {
        "grid": posenc.grid(2, 3, prefix=2),
        "pairs": posenc.coordinates(posenc.grid(2, 3).coordinates(), prefix=2),
    }
    for positions in layouts.values():
        q, k, v = inputs(8, 8)
        wanted = posenc.attention(q, k, v, bias, positions=positions)
        score_mod = bias.term(positions, dtype=torch.float64).score_mod
        torch.testing.assert_close(flex_attention(q, k, v, score_mod=score_mod), wanted, rtol=1e-11, atol=1e-11)


# --- cost ---


class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """The number of entries of the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and not (tensor.numel() and 0 in tensor.stride()):
                self.entries = max(self.entries, tensor.numel())
        return result


SCHEMES: dict[str, Any] = {
    "Rotary": lambda: posenc.Rotary(32),
    "ALiBi": lambda: posenc.ALiBi(1),
    "T5Bias": lambda: posenc.T5Bias(1),
    "RelativePositionBias": lambda: posenc.RelativePositionBias(1, 96),
    "Shaw": lambda: posenc.Shaw(32, 8),
    "RelativeLogits": lambda: posenc.RelativeLogits(32, 96),
    "RelativeLogits causal": lambda: posenc.RelativeLogits(32, 96, causal=True),
    "SinusoidalLogits": lambda: posenc.SinusoidalLogits(32),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_builds_a_vector_a_pair(scheme: str) -> None:
    length, width = 96, 32
    q, k, v = (draw(1, 1, length, width, dtype=torch.float32).requires_grad_() for _ in range(3))
    with Largest() as largest:
        posenc.attention(q, k, v, SCHEMES[scheme](), causal="causal" in scheme).sum().backward()
    assert 0 < largest.entries <= 2 * length * (2 * length - 1)  # L x (2L - 1) logits, never L x L x d
    with Largest() as naive:
        (q[:, :, :, None] * k[:, :, None]).sum()
    assert naive.entries == length * length * width  # the mode sees it where there is one


def test_rotary_alone_uses_the_fused_kernel() -> None:
    q, k, v = inputs(9, 9)
    assert posenc.explain(q, k, v, posenc.Rotary(16), causal=True).backend.NAME == "cpu"
    plan = posenc.explain(q, k, v, posenc.Rotary(16), causal=True, backend="sdpa")
    assert plan.facts.visibility == "causal"
    with Largest() as largest:
        posenc.attention(*inputs(128, 128), posenc.Rotary(16), causal=True, backend="sdpa")
    assert largest.entries < 2 * 4 * 128 * 128  # no logits in two heads of four, let alone all


def test_explain_gives_reasons() -> None:
    q, k, v = inputs(9, 9)
    assert posenc.explain(q, k, v, posenc.ALiBi(4), posenc.Rotary(16)).backend.NAME == "cpu"
    plan = posenc.explain(q, k, v, posenc.ALiBi(4), posenc.XPos(16), causal=True)
    assert plan.backend.NAME == "dense"
    assert plan.refusals["sdpa"] == ["a term is left in the logits, and it would need an L x L mask"]
    assert plan.refusals["cpu"] == ["a term is no function of position that a code can say"]
    assert "not sdpa: a term is left in the logits" in str(plan)
    with pytest.raises(ValueError, match="backend 'sdpa' cannot compute this: a term is left"):
        posenc.attention(q, k, v, posenc.ALiBi(4), backend="sdpa")
    with pytest.raises(ValueError, match="backend must be one of auto, cpu, flex, sdpa, dense, got 'flash'"):
        posenc.attention(q, k, v, backend="flash")


def test_explain_takes_what_attention_takes() -> None:
    ours, theirs = inspect.signature(posenc.explain), inspect.signature(posenc.attention)
    assert str(ours).partition(" -> ")[0] == str(theirs).partition(" -> ")[0]
    with pytest.raises(TypeError, match=r"^explain\(\) got an unexpected keyword argument 'casual'"):
        posenc.explain(*inputs(), casual=True)


HIDDEN: dict[str, tuple[dict[str, Any], str]] = {
    "all": ({}, ""),
    "causal": ({"causal": True}, ""),
    "the newest token": ({"queries": 1, "causal": True}, ""),
    "fewer queries": ({"queries": 3, "causal": True}, "the order (causal)"),
    "window": ({"window": 2}, "a window of 2"),
    "both": ({"causal": True, "window": 0}, "the order (causal), a window of 0"),
    "documents": ({"positions": posenc.packed([2, 4])}, "documents"),
    "padding": ({"positions": posenc.padded(torch.rand(2, 6) < 0.7)}, "padding"),
    "masks": (
        {"key_mask": torch.ones(2, 6).bool(), "mask": torch.ones(1, 1, 6, 6).bool()},
        "key_mask, mask",
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_explain_says_what_hides(name: str) -> None:
    options, wanted = HIDDEN[name]
    options = dict(options)
    q, k, v = inputs(options.pop("queries", 6), 6)
    plan = posenc.explain(q, k, v, **options)
    said = [line.strip() for line in str(plan).splitlines() if "hidden by" in line]
    assert said == ([f"hidden by: {wanted}"] if wanted else [])
    assert (plan.facts.visibility == "mask") == bool(wanted)  # which is what backends read


def test_explain_says_that_several_encodings_turn() -> None:
    q, k, v = inputs(6, 6)
    one, other = posenc.Rotary(16), posenc.Rotary(16, base=100.0)
    assert "are turned" not in str(posenc.explain(q, k, v, one, posenc.ALiBi(4)))
    said = str(posenc.explain(q, k, v, one, posenc.ALiBi(4), other)).splitlines()
    assert said[-1] == f"  q and k are turned twice, by {one} and by {other}"
    term = other.term(posenc.sequence(6), dtype=torch.float64)
    said = str(posenc.explain(q, k, v, one, term, posenc.XPos(16), causal=True)).splitlines()
    assert said[-1] == f"  q and k are turned 3 times, by {one} and by {term} and by {posenc.XPos(16)}"


def test_an_encoding_turns_once(seed: int) -> None:
    q, k, v = inputs(6, 6)
    rotary, bias = posenc.Rotary(16), posenc.ALiBi(4)
    message = "each encoding must turn q and k once, got the same {} twice, which is double its angle: leave one out"
    with pytest.raises(ValueError, match=message.format("Rotary")):
        posenc.attention(q, k, v, rotary, bias, rotary)
    term = rotary.term(posenc.sequence(6), dtype=torch.float64)
    with pytest.raises(ValueError, match=message.format("Rotation")):
        posenc.explain(q, k, v, term, term)
    for more in ([posenc.Rotary(16)], [bias, bias]):  # others that are alike, or that are added
        both = posenc.attention(q, k, v, rotary, *more)
        assert not torch.allclose(both, posenc.attention(q, k, v, rotary, *more[1:]))


# --- what was once wrong ---


def test_every_layout_can_be_made_in_a_compiled_function(seed: int) -> None:
    q, k, v = inputs(6, 6)
    rotary, bias = posenc.Rotary(16), posenc.ALiBi(4)
    mask = torch.rand(2, 6) < 0.7
    makers: dict[str, Any] = {
        "padded": lambda: posenc.padded(mask),
        "packed": lambda: posenc.packed([2, 4]),
        "packed boundaries": lambda: posenc.packed(cu_seqlens=[0, 2, 6]),
        "packed tensor": lambda: posenc.packed(torch.tensor([2, 4]), total=6),
        "coordinates": lambda: posenc.coordinates(torch.arange(6)[:, None], order=torch.arange(6), extent=6),
        "rescaled": lambda: posenc.sequence(6).rescaled(0, 1),
    }
    for name, make in makers.items():
        compiled = torch.compile(
            lambda q, make=make: posenc.attention(q, k, v, rotary, bias, positions=make(), causal=True),
            fullgraph=True,
            backend="eager",
        )
        wanted = posenc.attention(q, k, v, rotary, bias, positions=make(), causal=True)
        torch.testing.assert_close(compiled(q), wanted, rtol=1e-12, atol=1e-12, msg=name)


def test_a_ready_term_brings_its_positions(seed: int) -> None:
    """Its documents and padding too, without saying them again."""
    q, k, v = inputs(6, 6)
    for positions in (posenc.packed([2, 4]), posenc.padded(torch.rand(2, 6) < 0.7), posenc.grid(5, prefix=1)):
        term = posenc.ALiBi(4).term(positions, dtype=torch.float64)
        wanted = posenc.attention(q, k, v, posenc.ALiBi(4), positions=positions)
        torch.testing.assert_close(posenc.attention(q, k, v, term), wanted, rtol=0, atol=0)
    step = posenc.ALiBi(4).term(posenc.sequence(1, start=5), posenc.sequence(6), dtype=torch.float64)
    ours = posenc.attention(q[:, :, -1:], k, v, step, causal=True)
    wanted = posenc.attention(q[:, :, -1:], k, v, posenc.ALiBi(4), causal=True)
    torch.testing.assert_close(ours, wanted, rtol=1e-12, atol=1e-12)


def test_fewer_queries_than_coordinates_without_an_order(seed: int) -> None:
    q, k, v = inputs(2, 6)
    places = posenc.coordinates(torch.arange(6)[:, None])
    ours = posenc.attention(q, k, v, posenc.ALiBi(4), positions=places)
    torch.testing.assert_close(ours, posenc.attention(q, k, v, posenc.ALiBi(4)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("encodings", ["none", "rotary", "bias"])
def test_autocast_changes_no_dtype(encodings: str, seed: int) -> None:
    q, k, v = (x.float() for x in inputs(33, 33))
    plain = posenc.attention(q, k, v, *ALONE[encodings]())
    with torch.autocast("cpu", torch.bfloat16):
        out = posenc.attention(q, k, v, *ALONE[encodings]())
    assert out.dtype == torch.float32
    if encodings == "bias":  # our own arithmetic stays in float32
        torch.testing.assert_close(out, plain, rtol=0, atol=0)


def test_many_buckets_take_no_time() -> None:
    bias = posenc.T5Bias(1, num_buckets=4096, max_distance=10**6)
    buckets = posenc.t5_bucket(torch.arange(0, 10**6, 997), 4096, 10**6)
    assert bias.table.shape == (1, 4096)
    assert (buckets.diff() >= 0).all()
    assert buckets[-1] == 2047


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": 9}])
def test_the_fused_path_keeps_within_the_error_budget(dtype: torch.dtype, options: dict[str, Any], seed: int) -> None:
    """At most twice the dense path's error in the same dtype, with a floor of four units of the largest logit.

    Errors are the largest of a draw, averaged over the draws: the largest of all is a matter of luck for both.
    """
    draws = 12
    mean = dict.fromkeys(("sdpa", "dense"), torch.zeros(4, dtype=torch.float64))
    floor = torch.zeros(4, dtype=torch.float64)
    for _ in range(draws):
        inexact = [x.to(dtype) for x in inputs(67, 67, width=32)]
        weight = draw(2, 4, 67, 32).to(dtype)

        def results(arrays: list[Tensor], weight: Tensor, backend: str) -> list[Tensor]:
            arrays = [x.detach().requires_grad_() for x in arrays]
            out = posenc.attention(*arrays, posenc.Rotary(32), backend=backend, **options)
            return [out.detach(), *torch.autograd.grad((out * weight).sum(), arrays)]

        exact = results([x.double() for x in inexact], weight.double(), "dense")
        for backend, sofar in mean.items():
            errors = [
                (ours.double() - truth).abs().max()
                for ours, truth in zip(results(inexact, weight, backend), exact, strict=True)
            ]
            mean[backend] = sofar + torch.stack(errors) / draws
        q, k = inexact[0].double(), inexact[1].double()
        logit = float((q @ k.mT * 32**-0.5).abs().max())
        sizes = torch.stack([truth.abs().max() for truth in exact])
        floor = floor + 4 * torch.finfo(dtype).eps * torch.maximum(sizes, torch.tensor(logit)) / draws
    assert (mean["sdpa"] <= torch.maximum(2 * mean["dense"], floor)).all(), (mean, floor)
