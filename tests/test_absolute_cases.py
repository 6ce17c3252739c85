"""What goes wrong in practice, by value: the kinds 1 to 9 for padding offsets, Fourier features and convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import posenc

pytestmark = pytest.mark.usefixtures("seed")

DIM = 24
MAKERS: dict[str, Callable[[], posenc.Encoding]] = {
    "octaves": lambda: posenc.FourierBands(1, 4, scale=0.07, dim=DIM),
    "even bands": lambda: posenc.FourierBands(1, 12, resolution=30, scale=0.07),
    "learnable Fourier": lambda: posenc.LearnableFourier(DIM, features=10, hidden=8, scale=0.3),
    "Fourier": lambda: posenc.Fourier(DIM, scale=0.1),
    "learned": lambda: posenc.Learned(100, DIM, std=1.0),
    "convolution": lambda: posenc.ConditionalEncoding(DIM, axes=1),
    "causal convolution": lambda: posenc.ConditionalEncoding(DIM, axes=1, causal=True),
}
EVERY = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
FOURIER: dict[str, Callable[[], posenc.Absolute]] = {
    "octaves": lambda: posenc.FourierBands(2, 3, scale=0.3, dim=DIM),
    "even bands": lambda: posenc.FourierBands(2, 6, resolution=(8, 32), scale=0.07, layout="concatenated"),
    "learnable Fourier": lambda: posenc.LearnableFourier(DIM, axes=2, features=10, hidden=8, scale=0.3),
    "Fourier": lambda: posenc.Fourier(DIM, axes=2, scale=0.1),
}
PLANES = pytest.mark.parametrize("make", FOURIER.values(), ids=FOURIER)


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype)


def close(got: Tensor, wanted: object, tolerance: float = 1e-12) -> None:
    wanted = torch.as_tensor(wanted, dtype=got.dtype)
    torch.testing.assert_close(got, wanted, rtol=0, atol=tolerance)


def at(encoding: posenc.Absolute, *place: float) -> Tensor:
    return encoding.vectors(torch.tensor([place], dtype=torch.float64))[0]


def graphs_of(run: Callable, *arguments: tuple) -> int:
    """How many graphs serve all the arguments; each compiled result equals the eager one in dtype and value."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list) -> Callable:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend=backend)
    for given in arguments:
        for got, plain in zip(compiled(*given), run(*given), strict=True):
            assert got.dtype == plain.dtype
            assert torch.equal(got, plain)
    torch._dynamo.reset()
    return len(graphs)


# By value


def test_octaves_by_value() -> None:
    s = math.sin(math.pi / 4)
    close(at(posenc.FourierBands(1, 3), 0.25), [s, s, 1, 0, 0, -1])
    close(at(posenc.FourierBands(1, 3, layout="concatenated"), 0.25), [s, 1, 0, s, 0, -1])
    # axis after axis, each with all its bands
    close(at(posenc.FourierBands(2, 2), 0.25, 0.5), [s, s, 1, 0, 1, 0, 0, -1])
    close(at(posenc.FourierBands(2, 2, layout="concatenated"), 0.25, 0.5), [s, 1, 1, 0, s, 0, 0, -1])
    # the released NeRF drops the pi
    close(
        at(posenc.FourierBands(1, 2, scale=1 / math.pi), 0.3),
        [f(k * 0.3) for k in (1, 2) for f in (math.sin, math.cos)],
    )


def test_evenly_spaced_bands_by_value() -> None:
    assert posenc.FourierBands(2, 4, resolution=(8, 14)).frequencies().tolist() == [[1, 2, 3, 4], [1, 3, 5, 7]]
    assert posenc.FourierBands(2, 3, resolution=8).frequencies().tolist() == [[1, 2.5, 4]] * 2
    assert posenc.FourierBands(1, 1, resolution=8).frequencies().tolist() == [[1]]
    assert posenc.FourierBands(1, 52).frequencies()[0].tolist() == [2**k for k in range(52)]
    waves = [wave(math.pi * f * 0.3) for wave in (math.sin, math.cos) for f in (1, 2.5, 4)]
    close(at(posenc.FourierBands(1, 3, resolution=8, layout="concatenated"), 0.3), waves)


def test_octaves_repeat_exactly_however_far_away() -> None:
    ours = posenc.FourierBands(1, 5)
    for periods in (1, 1000, 2**40):
        assert torch.equal(at(ours, 0.25 + 2.0 * periods), at(ours, 0.25))


@pytest.mark.parametrize(
    "make", [lambda: posenc.FourierBands(2, 9, scale=0.3), lambda: posenc.FourierBands(2, 7, (9, 30), 0.3)]
)
def test_bands_made_on_a_device_are_the_same(make: Callable[[], posenc.FourierBands]) -> None:
    ours = make()
    spans = ours.resolution or (None, None)
    index = torch.arange(ours.bands, dtype=torch.float64)
    there = torch.stack([ours._band(index, size) for size in spans])
    torch.testing.assert_close(there, ours.frequencies(), rtol=1e-15, atol=0)
    assert ours.frequencies("meta").shape == there.shape


def test_learnable_fourier_by_value() -> None:
    ours = posenc.LearnableFourier(2, axes=2, features=4, hidden=3).double()
    frequencies, hidden, output = draw(2, 2), draw(3, 4), draw(2, 3)
    first, second = draw(3), draw(2)
    state = {"hidden.weight": hidden, "hidden.bias": first, "output.weight": output, "output.bias": second}
    ours.load_state_dict({"frequencies": frequencies, **state})
    place = (0.4, -1.3)
    angles = [sum(c * float(row[t]) for c, row in zip(place, frequencies, strict=True)) for t in range(2)]
    waves = [math.cos(a) / 2 for a in angles] + [math.sin(a) / 2 for a in angles]
    inner = [
        sum(float(w) * r for w, r in zip(row, waves, strict=True)) + float(b)
        for row, b in zip(hidden, first, strict=True)
    ]
    inner = [h * (1 + math.erf(h / math.sqrt(2))) / 2 for h in inner]
    wanted = [
        sum(float(w) * h for w, h in zip(row, inner, strict=True)) + float(b)
        for row, b in zip(output, second, strict=True)
    ]
    close(at(ours, *place), wanted)


def test_the_kernels_of_learnable_fourier_features_at_the_start() -> None:
    # The features' products approximate exp(-scale² |x - y|² / 2) / 2 at random frequencies (Li et al., section 3).
    ours = posenc.LearnableFourier(1, axes=2, features=200_000, hidden=1, scale=0.7)
    places = torch.tensor([[0.0, 0.0], [1.0, -0.5]])
    angles = places @ ours.frequencies.detach()
    waves = torch.cat([angles.cos(), angles.sin()], -1) / math.sqrt(ours.features)
    assert float(waves[0] @ waves[1]) == pytest.approx(math.exp(-0.49 * 1.25 / 2) / 2, abs=0.01)


def test_causal_convolution_by_value() -> None:
    ours = posenc.ConditionalEncoding(1, axes=1, causal=True).double()
    ours.load_state_dict({"convolution.weight": torch.tensor([[[100.0, 10, 1]]]), "convolution.bias": torch.zeros(1)})
    x = torch.tensor([[[1.0], [2], [3], [4]]], dtype=torch.float64)
    assert ours(x).flatten().tolist() == [1 + 1, 2 + 12, 3 + 123, 4 + 234]
    assert ours(x, posenc.grid(3, prefix=1)).flatten().tolist() == [1, 2 + 2, 3 + 23, 4 + 234]


@pytest.mark.parametrize("size", [1, 3, 5])
def test_a_causal_convolution_never_sees_what_comes_after(size: int) -> None:
    ours = posenc.ConditionalEncoding(DIM, size, axes=1, causal=True).double()
    x = draw(2, 9, DIM)
    whole = ours(x)
    for token in range(9):
        changed = x.clone()
        changed[:, token:] = draw(2, 9 - token, DIM)
        assert torch.equal(ours(changed)[:, :token], whole[:, :token])
    shifted = ours(torch.cat([torch.zeros(2, 6, DIM, dtype=x.dtype), x], 1))[:, 6:]
    close(shifted, whole)


@pytest.mark.parametrize(("axes", "shape"), [(1, (9,)), (2, (4, 7)), (3, (3, 5, 4))])
def test_a_convolution_follows_shifts_inside_the_grid(axes: int, shape: tuple[int, ...]) -> None:
    ours = posenc.ConditionalEncoding(2, axes=axes).double()
    x = torch.zeros(1, *shape, 2, dtype=torch.float64)
    x[(0, *[1] * axes)] = draw(2)  # a token, and zeros all around
    moved = x.roll([1] * axes, list(range(1, axes + 1)))
    here, there = (ours(each.flatten(1, -2), posenc.grid(*shape)).reshape(each.shape) for each in (x, moved))
    first, last = (tuple(slice(skip, size - 1 + skip) for size in shape) for skip in (0, 1))
    assert (here[0] - ours.convolution.bias).abs().gt(1e-12).sum() == 2 * 3**axes
    close(there[0][last], here[0][first])


# 1. Odd or mismatched widths


@pytest.mark.parametrize("dim", [1, 2, 5, 7, 24])
def test_1_learnable_fourier_has_any_width(dim: int) -> None:
    x = torch.zeros(2, 9, dim)
    assert posenc.LearnableFourier(dim, features=6, hidden=5)(x).shape == x.shape


@pytest.mark.parametrize(("axes", "bands", "dim"), [(1, 2, 5), (2, 3, 13), (3, 1, 24), (3, 4, 24)])
def test_1_channels_beyond_the_bands_stay_as_they_are(axes: int, bands: int, dim: int) -> None:
    x = draw(2, 2**axes, dim)
    positions = posenc.grid(*[2] * axes).rescaled(-0.83, 0.91)
    moved = posenc.FourierBands(axes, bands, dim=dim)(x, positions) - x
    assert not moved[..., 2 * axes * bands :].any()
    assert moved[..., : 2 * axes * bands].any(1).all()


@EVERY
def test_1_a_mismatched_width_is_an_error(make: Callable[[], nn.Module]) -> None:
    for width in (DIM - 1, DIM + 1, 2 * DIM):
        with pytest.raises(ValueError, match=rf"x must be \[batch, tokens, {DIM}\] .* got shape \(2, 9, {width}\)"):
            make()(torch.zeros(2, 9, width))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: posenc.FourierBands(2, 4, dim=15),
            ValueError,
            "dim must hold a sine and a cosine of 8 waves, got 15: pass 16 or more",
        ),
        (
            lambda: posenc.FourierBands(1, 53),
            ValueError,
            "bands must be 52 or fewer in octaves, got 53: pass resolution=",
        ),
        (lambda: posenc.FourierBands(0, 4), ValueError, "axes must be 1 or more, got 0"),
        (lambda: posenc.FourierBands(1, 0), ValueError, "bands must be 1 or more, got 0"),
        (lambda: posenc.FourierBands(1, 4, resolution=1), ValueError, "resolution must be 2 or more, got 1"),
        (
            lambda: posenc.FourierBands(3, 4, resolution=(5, 6)),
            ValueError,
            "resolution must be one number, or one an axis, got 2 for 3",
        ),
        (
            lambda: posenc.FourierBands(1, 4, layout="half"),
            ValueError,
            "layout must be 'interleaved' or 'concatenated', got 'half'",
        ),
        (lambda: posenc.FourierBands(1, 4, scale=0), ValueError, "scale must be more than 0, got 0"),
        (
            lambda: posenc.FourierBands(1, 4, scale=math.inf),
            ValueError,
            "scale must be finite, got inf",
        ),
        (
            lambda: posenc.LearnableFourier(8, features=7),
            ValueError,
            "features must be even for LearnableFourier, .* got 7: pass 8",
        ),
        (lambda: posenc.LearnableFourier(8, scale=-1.0), ValueError, "scale must be more than 0, got -1"),
        (lambda: posenc.LearnableFourier(8, scale="1"), TypeError, "scale must be a number, got '1'"),
        (lambda: posenc.LearnableFourier(8, hidden=0), ValueError, "hidden must be 1 or more, got 0"),
        (
            lambda: posenc.Fourier(5),
            ValueError,
            "dim must be even for Fourier, a sine and a cosine each, got 5: pass 6",
        ),
        (lambda: posenc.Fourier(6, scale=True), TypeError, "scale must be a number, got True"),
        (lambda: posenc.Fourier(6, learnable="no"), TypeError, "learnable must be True or False, got 'no': pass one"),
        (lambda: posenc.Learned(4, 6, truncated="no"), TypeError, "truncated must be True or False, got 'no': pass"),
        (lambda: posenc.ConditionalEncoding(6, axes=1, causal="no"), TypeError, "causal must be True or False, got"),
        (lambda: posenc.Learned(4, 6, std="x"), TypeError, "std must be a number, got 'x': ViT uses 0.02"),
        (lambda: posenc.Learned(4, 6, std=-1), ValueError, "std must be 0 or more, got -1: ViT uses 0.02"),
        (lambda: posenc.Learned(np.array([2, 3]), 6), TypeError, "each size of shape must be an integer, got array"),
        (
            lambda: posenc.resize_table(torch.zeros(4, 6), 4, 5, antialias="no"),
            TypeError,
            "antialias must be True or False, got 'no'",
        ),
        (lambda: posenc.Sinusoidal(6, axis_order=5), ValueError, r"axis_order must name each .* once, got \(5,\)"),
        (lambda: posenc.Sinusoidal(6, axis_order="0"), TypeError, "axis_order must be an integer, got '0'"),
    ],
)
def test_1_arguments_that_make_no_features(make: Callable, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_1_numbers_of_numpy_are_numbers() -> None:
    assert posenc.Fourier(6, scale=np.float32(0.5), learnable=np.True_).frequencies.requires_grad
    assert not posenc.Learned(np.int64(4), 6, std=np.float64(0), truncated=np.False_).table.any()


# 2. Batch-first mistakes hidden by broadcasting


@pytest.mark.parametrize("make", [maker for name, maker in MAKERS.items() if "convolution" not in name])
def test_2_rows_of_a_batch_are_alike_and_tokens_are_not(make: Callable[[], nn.Module]) -> None:
    out = make()(torch.zeros(4, 4, DIM))
    assert torch.equal(out[0], out[1])
    assert not torch.equal(out[:, 0], out[:, 1])


@pytest.mark.parametrize("name", ["convolution", "causal convolution"])
def test_2_convolutions_run_along_the_tokens(name: str) -> None:
    ours, x = MAKERS[name](), torch.zeros(4, 4, DIM)
    x[2, 1] = 1.0
    changed = (ours(x) - ours(torch.zeros_like(x))).any(-1)
    assert changed.any(1).tolist() == [False, False, True, False]
    assert changed[2].tolist() == ([False, True, True, True] if "causal" in name else [True, True, True, False])


# 3. Derived tables saved in checkpoints


def test_3_saved_at_one_length_and_loaded_at_another() -> None:
    for make in MAKERS.values():
        ours, x = make(), torch.randn(1, 100, DIM)
        ours(x)
        saved = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
        loaded = make()
        loaded(x[:, :7])
        assert loaded.load_state_dict(saved, strict=True)
        assert torch.equal(loaded(x), ours(x))


def test_3_only_trained_numbers_are_saved() -> None:
    assert not posenc.FourierBands(2, 4, resolution=9).state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in posenc.LearnableFourier(5, 2, 8, 3).state_dict().items()} == {
        "frequencies": (2, 4),
        "hidden.weight": (3, 8),
        "hidden.bias": (3,),
        "output.weight": (5, 3),
        "output.bias": (5,),
    }


# 4. Height and width swapped


@PLANES
def test_4_token_40_of_8_by_32_is_row_1_column_8(make: Callable[[], posenc.Absolute]) -> None:
    ours = make().double()
    zeros = torch.zeros(1, 256, DIM, dtype=torch.float64)
    padded = posenc.padded(torch.ones(1, 8, 32, dtype=torch.bool))
    for positions in (posenc.grid(8, 32), padded):
        out = ours(zeros, positions)[0]
        close(out[40], at(ours, 1, 8))
        assert not torch.allclose(out[40], at(ours, 8, 1))
    close(ours(zeros, posenc.grid(8, 32, step=(3, 2)))[0, 40], at(ours, 3, 16))


def test_4_a_map_moves_along_its_own_axes() -> None:
    octaves, bands = (
        posenc.FourierBands(2, 3, scale=0.23),
        posenc.FourierBands(2, 3, resolution=9, scale=0.23, layout="concatenated"),
    )
    for ours, second in ((octaves, [6, 7, 8, 9, 10, 11]), (bands, [3, 4, 5, 9, 10, 11])):
        changed = (at(ours, 1, 2) - at(ours, 1, 3)).abs() > 1e-9
        assert changed.nonzero().flatten().tolist() == second


# 5. Compiled differs from eager


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_5_one_graph_serves_all_lengths_and_equals_eager(dtype: torch.dtype) -> None:
    encodings = [make() for name, make in MAKERS.items() if name != "learned"]
    planes = [make() for make in FOURIER.values()]
    learned, plane = posenc.Learned(400, DIM), posenc.ConditionalEncoding(DIM)

    def run(x: Tensor, mask: Tensor, start: Tensor) -> list[Tensor]:
        height, width = mask.shape[1:]
        out = [encoding(x) for encoding in encodings]
        out += [learned(x, posenc.sequence(height * width, start=start)), learned(x, posenc.padded(mask.flatten(1), 2))]
        positions = posenc.padded(mask, start=1, span=2 * math.pi)
        return [*out, *(each(x, positions) for each in planes), plane(x, posenc.grid(height, width))]

    lengths = [(2, 3), (5, 4), (4, 9), (11, 12)]
    inputs = [(draw(7, h * w, DIM, dtype=dtype), torch.rand(7, h, w) < 0.7, torch.tensor(h)) for h, w in lengths]
    assert all(each.dtype == dtype for each in run(*inputs[0]))
    assert graphs_of(run, *inputs) == 1


# 6. Longer than the table


@pytest.mark.parametrize(
    ("positions", "numbers"),
    [
        (posenc.sequence(1023, start=2), ["1024", "1025"]),  # BART, one token too many
        (posenc.padded(torch.ones(2, 1023, dtype=torch.bool), start=2), ["1024", "1025"]),  # RoBERTa
        (posenc.padded(torch.ones(2, 1025, dtype=torch.bool)), ["1024", "1025"]),
        (posenc.sequence(5, start=1020), ["1024", "1025"]),
        (posenc.grid(2, step=1024), ["1024", "1025"]),
    ],
)
def test_6_positions_beyond_the_table_are_an_error_on_the_host(positions: posenc.Positions, numbers: list[str]) -> None:
    with pytest.raises(ValueError, match=f"Learned has {numbers[0]} positions, got {numbers[1]} .*make a longer table"):
        posenc.Learned(1024, 4)(torch.zeros(2, positions.length, 4), positions)


def test_6_the_last_row_can_be_reached() -> None:
    learned = posenc.Learned(1024, 4)
    for positions in (posenc.sequence(1022, start=2), posenc.padded(torch.ones(1, 1022, dtype=torch.bool), start=2)):
        assert torch.equal(learned(torch.zeros(1, 1022, 4), positions)[0, -1], learned.table[-1])
    mask = torch.arange(1030) < 1022  # padding takes no row of its own
    assert torch.equal(
        learned(torch.zeros(1, 1030, 4), posenc.padded(mask[None], 2))[0, 1021:], learned.table[-1:].expand(9, -1)
    )


def test_6_a_padded_image_larger_than_the_table() -> None:
    learned = posenc.Learned((3, 4), 5)
    assert learned(torch.zeros(1, 12, 5), posenc.padded(torch.ones(1, 3, 4, dtype=torch.bool))).shape == (1, 12, 5)
    with pytest.raises(ValueError, match=r"Learned has 4 positions on axis 1, got 5"):
        learned(torch.zeros(1, 15, 5), posenc.padded(torch.ones(1, 3, 5, dtype=torch.bool)))
    with pytest.raises(ValueError, match="Learned looks up integer positions, got real coordinates"):
        learned(torch.zeros(1, 12, 5), posenc.padded(torch.ones(1, 3, 4, dtype=torch.bool), span=1.0))


# 7. Parameters without a gradient


@pytest.mark.parametrize("name", ["learnable Fourier", "convolution", "causal convolution"])
def test_7_every_parameter_has_a_gradient(name: str) -> None:
    ours = MAKERS[name]()
    (ours(torch.randn(2, 9, DIM)) ** 2).sum().backward()
    for parameter in ours.parameters():
        assert parameter.grad is not None
        assert parameter.grad.any()


def test_7_gradients_reach_the_rows_of_the_tokens_alone() -> None:
    learned, mask = posenc.Learned(9, 4), torch.tensor([[True, True, True, False], [False, False, True, True]])
    out = learned(torch.zeros(2, 4, 4), posenc.padded(mask, start=2))
    (out * mask[..., None]).sum().backward()  # as attention hides the padding
    assert learned.table.grad is not None
    assert learned.table.grad[:, 0].tolist() == [0, 0, 2, 2, 1, 0, 0, 0, 0]


# 8. Prefix tokens


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("make", [*FOURIER.values(), lambda: posenc.ConditionalEncoding(DIM)])
def test_8_a_class_token_and_four_registers_stay_as_they_are(make: Callable, dtype: torch.dtype) -> None:
    ours, x = make(), draw(2, 9, DIM, dtype=dtype)
    out = ours(x, posenc.grid(2, 2, prefix=5))
    assert out.shape == x.shape
    assert out.dtype == dtype
    assert torch.equal(out[:, :5], x[:, :5])
    assert torch.equal(out[:, 5:], ours(x[:, 5:], posenc.grid(2, 2)))
    assert not torch.equal(out[:, 5:], x[:, 5:])


# 9. Tables of another grid or prefix


def test_9_rows_are_never_guessed() -> None:
    # 196 rows are 14 x 14, or a class token and 13 x 15 patches: the encoding says which.
    state = {"pos_embed": torch.randn(1, 196, 8)}
    square = posenc.Learned((14, 14), 8).load_foreign(state, "timm")
    wide = posenc.Learned((13, 15), 8, prefix=1).load_foreign(state, "timm")
    assert torch.equal(square.table, wide.table)
    assert torch.equal(wide(torch.zeros(1, 196, 8), posenc.grid(13, 15, prefix=1))[0], wide.table)
    with pytest.raises(ValueError, match=r"table of this Learned has shape \(197, 8\), got \(196, 8\) from 'timm'"):
        posenc.Learned((14, 14), 8, prefix=1).load_foreign(state, "timm")
    resized = posenc.resize_table(wide.table, (13, 15), (6, 7), prefix=1)
    smaller = posenc.Learned((6, 7), 8, prefix=1).load_foreign({"pos_embed": resized[None]}, "timm")
    assert torch.equal(smaller.table[:1], wide.table[:1])


@pytest.mark.parametrize(
    ("make", "state", "source", "message"),
    [
        (lambda: posenc.Learned(9, 4), {}, "timm", "'timm' must have a tensor 'pos_embed', got none"),
        (
            lambda: posenc.Learned(9, 4),
            {},
            "swin",
            "source of a Learned must be one of bart, bert, roberta, timm, transformers, got 'swin'",
        ),
        (
            lambda: posenc.Learned(9, 4),
            {"encoder.embed_positions.weight": torch.zeros(9, 4)},
            "bart",
            "got none: pass prefix='encoder.'",
        ),
        (lambda: posenc.Fourier(8), {}, "sam", "'sam' must have a tensor 'positional_encoding_gaussian_matrix'"),
        (
            lambda: posenc.Fourier(8, 2),
            {"positional_embedding": torch.zeros(2, 5)},
            "sam",
            r"frequencies of this Fourier has shape \(2, 4\), got \(2, 5\)",
        ),
        (lambda: posenc.ConditionalEncoding(8), {}, "twins", "'twins' must have a tensor 'proj.0.weight'"),
        (
            lambda: posenc.FourierBands(1, 4),
            {},
            "nerf",
            "FourierBands has no trained numbers and nothing to load, got 'nerf'",
        ),
    ],
)
def test_9_states_that_do_not_fit(make: Callable, state: dict[str, Tensor], source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make().load_foreign(state, source)


@pytest.mark.parametrize("learnable", [False, True])
def test_9_sams_directions_are_of_x_and_y(learnable: bool) -> None:
    matrix = torch.randn(2, 4)
    published, ported = "positional_encoding_gaussian_matrix", "positional_embedding"
    names = [published, f"pe_layer.{published}", f"prompt_encoder.pe_layer.{published}"]
    for name in [*names, ported, f"shared_embedding.{ported}", f"shared_image_embedding.{ported}"]:
        ours = posenc.Fourier(8, axes=2, learnable=learnable).load_foreign({name: matrix}, "sam")
        assert torch.equal(ours.frequencies, matrix.flip(0))


# Casts and devices


@EVERY
def test_numbers_in_half_precision_compute_in_single(make: Callable[[], posenc.Encoding]) -> None:
    ours = make().to(torch.bfloat16)
    exact, x = make().to(torch.float64), torch.randn(2, 9, DIM)
    exact.load_state_dict({name: tensor.double() for name, tensor in ours.state_dict().items()})
    wanted = exact(x.double())
    torch.testing.assert_close(ours(x).double(), wanted, rtol=0, atol=3e-6)
    rounded = ours(x.bfloat16())
    assert rounded.dtype == torch.bfloat16
    # twice the rounding of one result: nothing before it may have been rounded too
    torch.testing.assert_close(rounded.double(), exact(x.bfloat16().double()), rtol=2**-7, atol=2**-6)


@EVERY
def test_autocast_changes_nothing(make: Callable[[], posenc.Encoding]) -> None:
    ours, x = make(), torch.randn(2, 9, DIM)
    plain = ours(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ours(x), plain)


@EVERY
def test_made_on_a_device_without_numbers_and_loaded(make: Callable[[], posenc.Encoding]) -> None:
    ours, x = make(), torch.randn(2, 9, DIM)
    with torch.device("meta"):
        empty = make()
        assert empty(torch.empty(2, 9, DIM)).shape == (2, 9, DIM)
    loaded = empty.to_empty(device="cpu")
    loaded.load_state_dict(ours.state_dict())
    assert torch.equal(loaded(x), ours(x))


def test_drawn_anew() -> None:
    ours = posenc.LearnableFourier(6, axes=3, features=4000, hidden=2, scale=0.25)
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    assert 0.24 < float(ours.frequencies.detach().std()) < 0.26
    ours.reset_parameters()
    assert all(not torch.equal(tensor, before[name]) for name, tensor in ours.state_dict().items())
    assert 0.24 < float(ours.frequencies.detach().std()) < 0.26
