"""Failures that users of rotary encodings met elsewhere, by value: precision, scalings, axes, decoding and copies."""

from __future__ import annotations

import copy
import io
import math
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

import posenc
from posenc import scaling

pytestmark = pytest.mark.usefixtures("seed")

LONGROPE = scaling.longrope([1.0, 1.0, 1.1, 1.5], [1.0, 2.0, 6.0, 9.0], original=6, factor=4.0)
BY_LENGTH = [scaling.dynamic_ntk(factor=4.0, original=6), LONGROPE]
SCALED = [scaling.linear(4.0), scaling.ntk(4.0), scaling.yarn(4.0, 64), scaling.llama3(8.0, 64), *BY_LENGTH]


def exact(position: int, base: float, pairs: int) -> np.ndarray:
    """Angles in float64, written anew."""
    return position / np.power(np.float64(base), np.arange(pairs) / pairs)


def pad_batch(rows: list[Tensor], length: int, left: bool) -> tuple[Tensor, Tensor]:
    """Rows `[tokens, dim]` as one padded batch, and where its tokens are."""
    x, mask = torch.randn(len(rows), length, rows[0].shape[-1]), torch.zeros(len(rows), length, dtype=torch.bool)
    for number, row in enumerate(rows):
        where = slice(length - len(row), None) if left else slice(0, len(row))
        x[number, where], mask[number, where] = row, True
    return x, mask


# --- casts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cast", ["bfloat16", "half", "float", "double"])
@pytest.mark.parametrize(("head_dim", "base", "position"), [(64, 1e4, 4095), (128, 5e5, 131071), (32, 1e6, 257)])
def test_a_cast_moves_no_angle(cast: str, head_dim: int, base: float, position: int) -> None:
    for layout in ("half", "interleaved"):
        rotary = getattr(posenc.Rotary(head_dim, base=base, layout=layout), cast)()
        cos, sin = rotary.cos_sin(posenc.sequence(1, start=position))
        assert cos.dtype == torch.float32
        wanted = exact(position, base, head_dim // 2)
        assert np.abs(cos[0, 0, 0].double().numpy() - np.cos(wanted)).max() < 1e-7
        assert np.abs(sin[0, 0, 0].double().numpy() - np.sin(wanted)).max() < 1e-7

        q = torch.ones(1, 1, 1, head_dim, dtype=torch.bfloat16)
        here = posenc.sequence(1, start=position)
        turned, _ = rotary(q, q, here, here)  # ones: cos - sin and cos + sin
        assert turned.dtype == torch.bfloat16  # only the product is cast, half a unit in its last place away
        a, b = turned.float().flatten().chunk(2) if layout == "half" else turned.float().view(-1, 2).unbind(-1)
        for ours, right in ((a, np.cos(wanted) - np.sin(wanted)), (b, np.cos(wanted) + np.sin(wanted))):
            assert (np.abs(ours.numpy() - right) <= 2**-8 * np.abs(right) + 1e-7).all()


@pytest.mark.parametrize("value", [scaling.yarn(4.0, 64), scaling.llama3(8.0, 64), LONGROPE], ids=lambda x: x.name)
def test_a_cast_moves_no_scaled_frequency(value: scaling.Scaling) -> None:
    wanted = value.frequencies(1e4, 4)
    assert posenc.Rotary(8, scaling=value).bfloat16().frequencies()[0].tolist() == pytest.approx(wanted, rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("start", [250, 2045, 65530, 1_000_000, 2**24])
def test_neighbours_always_differ(dtype: torch.dtype, start: int) -> None:
    positions = posenc.sequence(10, start=start)  # 257 is 256 in bfloat16, and 2049 is 2048 in half precision
    q = torch.ones(1, 1, 10, 8, dtype=dtype)
    encodings = [posenc.Rotary(8), posenc.Rotary(8, scaling=scaling.yarn(2.0, 4096)), posenc.MixedRotary(1, 8, axes=1)]
    for encoding in encodings:
        turned, _ = encoding.to(dtype)(q, q, positions, positions)
        assert (turned[0, 0, 1:] != turned[0, 0, :-1]).any(-1).all()
    with pytest.raises(TypeError, match="half precision cannot tell neighbours apart"):
        posenc.coordinates(torch.arange(10)[:, None].to(torch.float16))


# --- far positions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 1, 1000, 100_000, 1_000_000, 10_000_000, 2**31])
@pytest.mark.parametrize(("head_dim", "base"), [(64, 1e4), (128, 5e5), (64, 1e6)])
def test_far_positions_are_exact(head_dim: int, base: float, position: int) -> None:
    cos, sin = posenc.Rotary(head_dim, base=base).cos_sin(posenc.sequence(1, start=position))
    wanted = exact(position, base, head_dim // 2)
    tolerance = 1e-6 if position <= 1_000_000 else 4e-16 * position + 1e-7  # a rounding of the float64 angle
    assert np.abs(cos[0, 0, 0].double().numpy() - np.cos(wanted)).max() < tolerance
    assert np.abs(sin[0, 0, 0].double().numpy() - np.sin(wanted)).max() < tolerance


def test_far_positions_of_float32_angles_are_not() -> None:
    here = posenc.sequence(1, start=1_000_000)
    exact_cos, _ = posenc.Rotary(64).cos_sin(here)
    float32_cos, _ = posenc.Rotary(64, precision="float32").cos_sin(here)
    assert (exact_cos - float32_cos).abs().max() > 1e-3


def test_xpos_is_finite_and_right_where_its_factors_overflow() -> None:
    far = 1_000_000  # (0.4 / 1.4) ** (1e6 / 512) has no place in a float
    q, k, v = torch.randn(3, 1, 2, 30, 16, dtype=torch.float64)
    xpos, near, there = posenc.XPos(16), posenc.sequence(30), posenc.sequence(30, start=far)
    ours = posenc.attention(q, k, v, xpos, positions=there, causal=True)
    assert ours.isfinite().all()
    torch.testing.assert_close(ours, posenc.attention(q, k, v, xpos, positions=near, causal=True), rtol=0, atol=1e-8)
    with pytest.raises(ValueError, match="causal"):
        posenc.attention(q, k, v, xpos)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: posenc.XPos(15), "head_dim must be even for rotary, got 15: pass 14"),
        (lambda: posenc.XPos(16, scale_base=0), "scale_base must be from 1e-30 to 1e30, got 0: the paper's code has 512"),
        (lambda: posenc.XPos(16, layout="paper"), "layout must be 'half' (Llama) or 'interleaved' (GPT-J), got 'paper': pass one of them"),
        (lambda: posenc.MixedRotary(4, 15), "head_dim must be even for rotary, got 15: pass 14"),
        (lambda: posenc.MixedRotary(4, 4, axes=3), "head_dim must have a pair of channels for each of 3 axes, got 4: pass 6"),
        (lambda: posenc.MixedRotary(4, 16, layout="x"), "layout must be 'half' (Llama) or 'interleaved' (GPT-J), got 'x': pass one of them"),
        (lambda: posenc.MixedRotary(4, 16).load_foreign({"freqs": torch.zeros(2, 12, 4, 8)}, "timm"), "freqs must be of one block, got 12 of them, (2, 12, 4, 8): pass {\"freqs\": state[\"freqs\"][:, [block]]}"),
        (lambda: posenc.MixedRotary(4, 16).load_foreign({"freqs": torch.zeros(2, 1, 8, 4)}, "timm"), "table of this MixedRotary has shape (4, 2, 8), got (8, 2, 4) from 'timm': make the encoding with the sizes that it was trained with"),
        (lambda: posenc.MixedRotary(4, 16, layout="half").load_foreign({"freqs": torch.zeros(2, 4, 8)}, "timm"), "rope-vit and timm pair neighbouring channels, got layout='half': make it 'interleaved'"),
        (lambda: posenc.MultimodalRotary(16, (2, 3, 4)), "sections must sum to the 8 pairs of 16 channels, got (2, 3, 4) with sum 9: give the rest to time"),
        (lambda: posenc.MultimodalRotary(16, (2, 3, 3), interleaved=True), "interleaved sections must take turns pair by pair, got (2, 3, 3), of which there is room for (3, 3, 2): pass those"),
        (lambda: posenc.MultimodalRotary(15), "head_dim must be even for rotary, got 15: pass rotary_dim=14 to rotate part of it"),
        (lambda: posenc.MultimodalRotary(16, rotary_dim=18), "rotary_dim must be even and from 2 to head_dim = 16, got 18: pass rotary_dim=16"),
        (lambda: posenc.MultimodalRotary(16, 8), "sections must be a list of numbers, got 8: pass pairs of time, height and width"),
        (lambda: posenc.MultimodalRotary.from_config({"head_dim": 16}), "the config must have mrope_section, got none: make posenc.MultimodalRotary with sections, (16, 24, 24) for Qwen2-VL and (24, 20, 20), interleaved, for Qwen3-VL"),
        (lambda: posenc.multimodal([2, (2, 3)]), "segments must be tokens of text or (frames, height, width), got (2, 3): give 3 sizes"),
        (lambda: posenc.multimodal(5), "segments must be a list, got 5: pass [tokens, (frames, height, width), ...]"),
        (lambda: posenc.multimodal([(1, 0, 3)]), "each size of an image or video must be 1 or more, got 0: pass a larger number"),
        (lambda: posenc.multimodal([2], temporal_step=-1), "temporal_step must be from 0 to 2**31, got -1: Qwen2-VL has 1"),
        (lambda: posenc.MultimodalRotary(16, interleaved="no"), "interleaved must be True or False, got 'no': pass one of them"),
        (lambda: posenc.XPos(16, scale_base="512"), "scale_base must be a number, got '512': the paper's code has 512"),
        (lambda: posenc.multimodal(None), "segments must be a list, got None: pass [tokens, (frames, height, width), ...]"),
        (lambda: posenc.multimodal({2: 3}), "segments must be a list, got {2: 3}: pass [tokens, (frames, height, width), ...]"),
        (lambda: posenc.multimodal([2], start=2**63), "start must fit in 62 bits, got 9223372036854775808: pass a smaller number"),
        (lambda: posenc.multimodal([2], temporal_step="1"), "temporal_step must be a number, got '1': Qwen2-VL has 1"),
        (lambda: posenc.multimodal([2], follow="time"), "follow must be 'largest' (the papers) or 'space' (transformers 5), got 'time': pass one"),
    ],
)  # fmt: skip
def test_messages(make: object, message: str) -> None:
    with pytest.raises((ValueError, TypeError)) as raised:
        make()
    assert str(raised.value) == message


# --- the meta device, copies and compiled code ------------------------------------------------------------------------

ENCODINGS = {
    "plain": lambda: posenc.Rotary(8),
    **{value.name: (lambda value=value: posenc.Rotary(8, scaling=value)) for value in SCALED},
    "float32": lambda: posenc.Rotary(8, precision="float32"),
    "partial": lambda: posenc.Rotary(8, rotary_dim=4, scaling=scaling.proportional(0.5)),
    "mixed": lambda: posenc.MixedRotary(4, 8, axes=1),
    "xpos": lambda: posenc.XPos(8),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_built_without_memory_the_frequencies_are_right(name: str) -> None:
    right = ENCODINGS[name]()
    with torch.device("meta"):
        built = posenc.SelfAttention(32, 4, ENCODINGS[name]())
    layer = posenc.SelfAttention(32, 4, right)
    built = built.to_empty(device="cpu")
    state = {key: value.clone() for key, value in layer.state_dict().items()}
    assert [key for key in state if key.startswith("encodings")] == ["encodings.0.table"] * (name == "mixed")
    built.load_state_dict(state)
    assert torch.equal(built.encodings[0].frequencies(), right.frequencies())
    x = torch.randn(2, 9, 32)
    assert torch.equal(built(x, causal=True), layer(x, causal=True))


@pytest.mark.parametrize("name", ENCODINGS)
def test_copies_are_equal(name: str) -> None:
    encoding, x = ENCODINGS[name](), torch.randn(3, 1, 4, 9, 8)
    saved = io.BytesIO()
    torch.save(encoding, saved)
    saved.seek(0)
    copies = [copy.deepcopy(encoding), pickle.loads(pickle.dumps(encoding)), torch.load(saved, weights_only=False)]
    for other in copies:
        assert repr(other) == repr(encoding)
        ours, theirs = (posenc.attention(*x, each, causal=True) for each in (encoding, other))
        assert torch.equal(ours, theirs)


# One of those that differ in numbers alone; the laws compile mixed rotary and XPos.
@pytest.mark.parametrize("name", ["plain", "float32", "partial", "yarn", *(value.name for value in BY_LENGTH)])
def test_one_graph_serves_five_lengths(name: str) -> None:
    encoding, graphs = ENCODINGS[name](), []

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        graphs.append(graph)
        return graph.forward

    def turn(q: Tensor, k: Tensor) -> Tensor:
        turned_q, turned_k = encoding(q, k)
        return turned_q @ turned_k.mT

    torch._dynamo.reset()
    compiled = torch.compile(turn, fullgraph=True, dynamic=True, backend=count)
    for length in (5, 7, 12, 20, 33):
        q, k = torch.randn(2, 2, 4, length, 8)
        torch.testing.assert_close(compiled(q, k), turn(q, k))
    assert len(graphs) <= 2


@pytest.mark.parametrize("name", [name for name in ENCODINGS if name != "xpos"])
def test_what_a_captured_step_needs_is_made_where_it_runs(name: str) -> None:
    """On the meta device there is no copy from the host and no number to look at, as in a captured CUDA graph."""
    encoding = ENCODINGS[name]().to("meta")
    start = torch.zeros((), dtype=torch.int64, device="meta")
    cos, sin = encoding.cos_sin(posenc.sequence(3, start=start), device="meta")
    assert cos.device.type == sin.device.type == "meta"
    assert cos.shape[-2] == 3


# --- scalings ---------------------------------------------------------------------------------------------------------


def test_llama3_from_a_config_by_value() -> None:
    config = {
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    }
    ours = posenc.Rotary.from_config(config).frequencies()[0]
    plain = posenc.Rotary(64, base=5e5).frequencies()[0]
    assert torch.equal(ours[:15], plain[:15])
    assert ours[15].item() == pytest.approx(0.00129055, rel=1e-5)
    assert ((plain[15:18] / 32 < ours[15:18]) & (ours[15:18] < plain[15:18])).all()
    torch.testing.assert_close(ours[18:], plain[18:] / 32, rtol=1e-15, atol=0)
    for wrong, near in (("high_frq_factor", "high_freq_factor"), ("factr", "factor")):
        misspelt = {**config, "rope_scaling": {**config["rope_scaling"], wrong: 4.0}}
        with pytest.raises(ValueError, match=f"no key {wrong!r} .* did you mean {near!r}"):
            posenc.Rotary.from_config(misspelt)


@pytest.mark.parametrize(("length", "wanted"), [(1, "short"), (4095, "short"), (4096, "short"), (4097, "long")])
def test_longrope_switches_with_the_length(length: int, wanted: str) -> None:
    value = scaling.longrope([1.0, 1.05, 1.1, 1.2], [1.0, 4.0, 16.0, 64.0], original=4096, factor=32.0)
    assert round(value.attention_factor, 5) == 1.19024
    cos, sin = posenc.Rotary(8, scaling=value).cos_sin(posenc.sequence(length), dtype=torch.float64)
    angles = exact(length - 1, 1e4, 4) / np.array(getattr(value, wanted))
    torch.testing.assert_close(cos[0, 0, -1], torch.from_numpy(1.1902380714238083 * np.cos(angles)), rtol=0, atol=1e-12)
    torch.testing.assert_close(sin[0, 0, -1], torch.from_numpy(1.1902380714238083 * np.sin(angles)), rtol=0, atol=1e-12)
    if length > 1:  # one set for the whole sequence, whichever its tokens
        last = posenc.Rotary(8, scaling=value)(
            *torch.ones(2, 1, 1, 1, 8), posenc.sequence(length).last(1), posenc.sequence(1)
        )
        assert last[0].shape == (1, 1, 1, 8)


def test_the_attention_factor_is_on_queries_and_keys() -> None:
    value = scaling.yarn(4.0, 4096, attention_factor=1.5)
    q, k = torch.randn(2, 1, 2, 6, 8)
    for scaled, plain in zip(
        posenc.Rotary(8, scaling=value)(q, k),
        posenc.Rotary(8, scaling=scaling.yarn(4.0, 4096, attention_factor=1.0))(q, k),
        strict=True,
    ):
        torch.testing.assert_close(scaled, 1.5 * plain)


@pytest.mark.parametrize("value", SCALED, ids=lambda x: x.name)
def test_decoding_step_n_is_the_last_row_of_the_pass_over_n_tokens(value: scaling.Scaling) -> None:
    """Keys are cached before they are rotated, so each step turns all of them with the set of its own length."""
    layer = posenc.SelfAttention(32, 4, posenc.Rotary(8, scaling=value), num_key_value_heads=2).double()
    x, cache = torch.randn(2, 12, 32, dtype=torch.float64), posenc.KeyValueCache()
    layer(x[:, :3], causal=True, cache=cache)
    whole = layer(x, causal=True)
    for n in range(4, 13):  # across a trained length of 6
        step = layer(x[:, n - 1 : n], causal=True, cache=cache)[:, 0]
        torch.testing.assert_close(step, layer(x[:, :n], causal=True)[:, -1], rtol=0, atol=1e-12)
        if n < 12:  # a row of a longer pass too, where that has the same set
            same = not value.by_length or (value is LONGROPE and n > 6)
            assert ((step - whole[:, n - 1]).abs().max() < 1e-12) == same
    with_positions = layer(x, causal=True, positions=posenc.sequence(12))
    assert torch.equal(with_positions, whole)


@pytest.mark.parametrize("value", BY_LENGTH, ids=lambda x: x.name)
def test_each_document_of_a_pack_has_its_own_length(value: scaling.Scaling) -> None:
    layer = posenc.SelfAttention(32, 4, posenc.Rotary(8, scaling=value)).double()
    lengths = [2, 9, 1, 6, 7]
    x = torch.randn(1, sum(lengths), 32, dtype=torch.float64)
    together = layer(x, positions=posenc.packed(lengths))
    alone = torch.cat([layer(part) for part in x.split(lengths, 1)], 1)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("value", BY_LENGTH, ids=lambda x: x.name)
def test_each_padded_row_has_its_own_length(value: scaling.Scaling, left: bool) -> None:
    layer = posenc.SelfAttention(32, 4, posenc.Rotary(8, scaling=value))
    rows = [torch.randn(length, 32) for length in (3, 6, 7, 11)]
    x, mask = pad_batch(rows, 11, left)
    together = layer(x, positions=posenc.padded(mask))
    for number, row in enumerate(rows):
        torch.testing.assert_close(together[number, mask[number]], layer(row[None])[0], rtol=0, atol=1e-5)


# --- axes -------------------------------------------------------------------------------------------------------------

AXIAL = {
    "axial": lambda: posenc.Rotary(16, axes=2, base=100.0),
    "width first": lambda: posenc.Rotary(16, axes=2, base=100.0, layout="interleaved", axis_order=(1, 0)),
    "uneven": lambda: posenc.Rotary(16, axes=2, base=50.0, rotary_dim=10),
    "periods": lambda: posenc.Rotary(16, axes=2, scaling=scaling.periods(2.5, 30.0)),
    "mixed": lambda: posenc.MixedRotary(3, 16),
    "mixed half": lambda: posenc.MixedRotary(3, 16, base=100.0, layout="half"),
}


@pytest.mark.parametrize("shape", [(3, 5), (5, 2), (1, 6), (4, 4)])
@pytest.mark.parametrize("name", AXIAL)
def test_logits_depend_on_the_two_differences_alone(name: str, shape: tuple[int, int]) -> None:
    encoding, (height, width) = AXIAL[name]().double(), shape
    with torch.no_grad():
        for parameter in encoding.parameters():  # trained
            parameter.normal_()
    q, k = torch.randn(2, 1, 3, 1, 16, dtype=torch.float64).expand(-1, -1, -1, height * width, -1)
    positions = posenc.grid(*shape)
    turned_q, turned_k = encoding(q, k, positions, positions)
    logits = turned_q @ turned_k.mT
    by_difference: dict[tuple[int, int], Tensor] = {}
    for i in range(height * width):
        for j in range(height * width):
            difference = i // width - j // width, i % width - j % width  # row-major, the width fastest
            known = by_difference.setdefault(difference, logits[0, :, i, j])
            torch.testing.assert_close(logits[0, :, i, j], known, rtol=0, atol=1e-12)
    for (dy, dx), known in by_difference.items():
        if (dx, dy) in by_difference and dx != dy:  # height and width are two things
            assert (known - by_difference[dx, dy]).abs().max() > 1e-9


def test_height_and_width_have_the_channels_that_are_said() -> None:
    q = torch.randn(1, 1, 256, 16, dtype=torch.float64)
    positions = posenc.grid(8, 32)  # token 40: row 1, column 8
    first, _ = posenc.Rotary(16, axes=2, layout="interleaved")(q, q, positions, positions)
    swapped, _ = posenc.Rotary(16, axes=2, layout="interleaved", axis_order=(1, 0))(q, q, positions, positions)
    one = posenc.Rotary(8, layout="interleaved")
    for turned, (low, high) in ((first, (1, 8)), (swapped, (8, 1))):
        for half, position in ((slice(0, 8), low), (slice(8, 16), high)):
            here = posenc.sequence(1, start=position)
            wanted, _ = one(q[:, :, 40:41, half], q[:, :, 40:41, half], here, here)
            torch.testing.assert_close(turned[:, :, 40:41, half], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("heads", [1, 3, 8])
def test_mixed_heads_begin_in_different_directions(heads: int) -> None:
    frequencies = posenc.MixedRotary(heads, 12, axes=3).frequencies()
    assert frequencies.shape == (heads, 3, 6)
    blocks = frequencies.unflatten(-1, (3, 2))  # a direction a block of pairs
    torch.testing.assert_close(blocks.norm(dim=1), torch.tensor([1.0, 10**-0.5]).double().expand(heads, 3, 2))
    directions = blocks[..., 0] / blocks[..., 0].norm(dim=1, keepdim=True)
    torch.testing.assert_close(directions.mT @ directions, torch.eye(3).double().expand(heads, 3, 3), atol=1e-6, rtol=0)
    assert len(directions.flatten(1).unique(dim=0)) == heads


def test_mixed_rotary_is_trained() -> None:
    mixed, (q, k, v) = posenc.MixedRotary(4, 8).double(), torch.randn(3, 1, 4, 6, 8, dtype=torch.float64)
    optimizer, positions = torch.optim.SGD(mixed.parameters(), lr=0.1), posenc.grid(2, 3)
    before = mixed.frequencies().detach().clone()
    assert [name for name, _ in mixed.named_parameters()] == ["table"]
    loss = posenc.attention(q, k, v, mixed, positions=positions).square().sum()
    loss.backward()
    optimizer.step()
    assert (mixed.frequencies() != before).all()
    mixed.reset_parameters()
    assert (mixed.frequencies() != before).all()


@pytest.mark.parametrize("groups", [1, 2])
def test_mixed_rotary_with_grouped_queries(groups: int) -> None:
    mixed, positions = posenc.MixedRotary(4, 8), posenc.grid(2, 3)
    q, (k, v) = torch.randn(1, 4, 6, 8), torch.randn(2, 1, groups, 6, 8)
    ours = posenc.attention(q, k, v, mixed, positions=positions)
    k, v = (x.repeat_interleave(4 // groups, 1) for x in (k, v))
    torch.testing.assert_close(ours, posenc.attention(q, k, v, mixed, positions=positions))


# --- text, images and video -------------------------------------------------------------------------------------------


def test_multimodal_positions_by_value() -> None:
    text = posenc.multimodal([3], start=5)
    assert text.coordinates().tolist() == [[5, 5, 5], [6, 6, 6], [7, 7, 7]]
    video = posenc.multimodal([(3, 2, 2), 2]).coordinates()
    assert video[:, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4]
    assert video[:, 1].tolist() == [0, 0, 1, 1] * 3 + [3, 4]
    assert video[:, 2].tolist() == [0, 1, 0, 1] * 3 + [3, 4]
    # as the authors write it: 25 tokens a second, 2 frames a patch, 1 frame a second
    slow = posenc.multimodal([(3, 2, 2), 2], temporal_step=50).coordinates()
    assert slow[:, 0].tolist() == [0] * 4 + [50] * 4 + [100] * 4 + [101, 102]
    assert posenc.multimodal([(4, 1, 1)], temporal_step=0.5).coordinates()[:, 0].tolist() == [0, 0, 1, 1]
    assert posenc.multimodal([(4, 1, 1), 1], follow="space").coordinates()[-1].tolist() == [1, 1, 1]
    halves = posenc.multimodal([(4, 1, 1)], temporal_step=np.float32(0.5)).coordinates()
    assert halves[:, 0].tolist() == [0, 0, 1, 1]
    assert posenc.multimodal([]).length == 0


def test_multimodal_tokens_are_seen_in_their_order() -> None:
    # All cells of an image are at one time, and text after it comes later, whatever the coordinates.
    segments, rotary = [2, (1, 3, 4), 3], posenc.MultimodalRotary(16, (2, 3, 3))
    positions = posenc.multimodal(segments)
    q, k, v = torch.randn(3, 1, 2, positions.length, 16)
    whole = posenc.attention(q, k, v, rotary, positions=positions, causal=True)
    for n in (3, 10, 15, 17):  # a cached decode step
        step = posenc.attention(
            q[:, :, n - 1 : n], k[:, :, :n], v[:, :, :n], rotary, positions=head(positions, n), causal=True
        )
        torch.testing.assert_close(step[:, :, 0], whole[:, :, n - 1])


def head(positions: posenc.Positions, count: int) -> posenc.Positions:
    return posenc.coordinates(positions.coordinates()[:count], order=torch.arange(count))


def test_qwen_configs_are_read_and_written() -> None:
    qwen2 = {
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "rope_theta": 1e6,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    }
    rotary = posenc.MultimodalRotary.from_config(qwen2)
    assert (rotary.head_dim, rotary.sections, rotary.interleaved, rotary.base) == (128, (16, 24, 24), False, 1e6)
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    rotary = posenc.MultimodalRotary.from_config({"head_dim": 128, "rope_parameters": rope})
    assert (rotary.sections, rotary.interleaved, rotary.base) == ((24, 20, 20), True, 5e6)
    for each in (
        rotary,
        posenc.MultimodalRotary(16, (2, 3, 3), scaling=scaling.yarn(4.0, 64)),
        posenc.MultimodalRotary(16, (2, 1, 1), rotary_dim=8),
    ):
        for form in ("new", "old"):
            assert repr(posenc.MultimodalRotary.from_config(each.to_config(form))) == repr(each)


@pytest.mark.parametrize("value", BY_LENGTH, ids=lambda x: x.name)
def test_the_length_of_a_multimodal_sequence_is_one_more_than_its_largest_coordinate(value: scaling.Scaling) -> None:
    rotary = posenc.MultimodalRotary(8, (2, 1, 1), scaling=value)
    for segments, length in (([2, (1, 2, 4)], 6), ([2, (1, 2, 5)], 7), ([(9, 2, 2), 3], 12)):
        positions = posenc.multimodal(segments)
        cos, _ = rotary.cos_sin(positions, dtype=torch.float64)
        frequencies = rotary.frequencies(torch.tensor([[length]]))[0, 0]
        angles = positions.coordinates()[-1].double() @ frequencies
        torch.testing.assert_close(cos[0, 0, -1], rotary.attention_factor * angles.cos(), rtol=0, atol=1e-12)
    assert math.isfinite(rotary.attention_factor)


def test_frames_are_placed_in_float32_as_in_the_code_of_the_models() -> None:
    frames = posenc.multimodal([(400, 1, 1)], temporal_step=0.7).coordinates()[:, 0]
    single = np.floor(np.arange(400, dtype=np.float32) * np.float32(0.7)).astype(int)
    assert frames.tolist() == single.tolist()
    assert (single != np.floor(np.arange(400) * 0.7)).sum() == 7  # which float64 would place elsewhere
