"""Every scheme against code that nobody here wrote.

Each test imports its peer itself, so that a missing or broken peer fails its own tests and hides no others. Inputs are
random, grids are not square, and widths are odd where the peer is right at them. Where a peer runs in float64, the two
agree to 1e-10; where it insists on float32, the tolerance is a stated number of float32 roundings (`EPS`).
Conventions differ from peer to peer and each test says how: `relative` is the query's position minus the key's here.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import posenc

# What the peers deprecate or warn of is shown, and is not our failure.
pytestmark = [pytest.mark.usefixtures("seed"), pytest.mark.filterwarnings("default")]

EPS = torch.finfo(torch.float32).eps
GRIDS = [(3, 5), (5, 2), (1, 4), (4, 4)]


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype)


def assert_equal(ours: Tensor, theirs: Tensor) -> None:
    """Equal to 1e-10, both in float64."""
    assert ours.dtype == theirs.dtype == torch.float64
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def assert_within(ours: Tensor, theirs: Tensor, roundings: float) -> None:
    """Equal up to so many float32 roundings of a number of size one, nothing relative."""
    torch.testing.assert_close(ours.double(), theirs.double(), rtol=0.0, atol=roundings * EPS)


def set_table(parameter: Tensor, values: Tensor) -> None:
    """Write a peer's table into one of ours, whose shape must be just that."""
    assert parameter.shape == values.shape
    with torch.no_grad():
        parameter.copy_(values)


def set_linear(linear: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    set_table(linear.weight, weight)
    if linear.bias is not None:
        set_table(linear.bias, torch.zeros_like(linear.bias) if bias is None else bias)


def layer_like(
    dim: int, heads: int, *encodings: nn.Module, projections: list[nn.Linear], **options: object
) -> posenc.SelfAttention:
    """Our ready layer in float64 with the query, key, value and output projections of a peer's layer."""
    layer = posenc.SelfAttention(dim, heads, *encodings, **options).double()
    for ours, theirs in zip((layer.query, layer.key, layer.value, layer.output), projections, strict=True):
        set_linear(ours, theirs.weight, theirs.bias)
    return layer


def split_projection(packed: nn.Linear, bias: Tensor | None = None) -> list[nn.Linear]:
    """A packed q, k, v projection as three linear layers."""
    bias = packed.bias if bias is None else bias
    parts = []
    for rows in range(3):
        width = packed.out_features // 3
        part = nn.Linear(packed.in_features, width, bias=bias is not None).double()
        chosen = slice(rows * width, (rows + 1) * width)
        set_linear(part, packed.weight[chosen], None if bias is None else bias[chosen])
        parts.append(part)
    return parts


def randomize(module: nn.Module) -> nn.Module:
    """Float64, evaluation mode, and every parameter drawn anew: peers start tables at zero, which hides mistakes."""
    module.double().eval()  # not chained: one peer's `train` returns nothing
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module


def encoded(encoding: nn.Module, dim: int, positions: posenc.Positions, dtype: torch.dtype = torch.float64) -> Tensor:
    """The vectors that an absolute encoding adds, `[tokens, dim]`."""
    return encoding(torch.zeros(1, positions.length, dim, dtype=dtype), positions)[0]


# ---------------------------------------------------------------------------------------------------------- absolute


@pytest.mark.parametrize(("axes", "dim"), [(1, 8), (1, 30), (2, 8), (2, 20), (3, 6), (3, 30)])
def test_sinusoidal_interleaved_equals_positional_encodings(axes: int, dim: int) -> None:
    # Widths that split into even blocks: elsewhere the peer rounds the block up, takes frequencies of that, and cuts.
    from positional_encodings import torch_encodings

    shape = (7, 4, 5)[:axes] if axes > 1 else (61,)
    peer = getattr(torch_encodings, f"PositionalEncoding{axes}D")(dim)
    theirs = peer(torch.zeros(1, *shape, dim)).reshape(-1, dim)
    ours = encoded(posenc.Sinusoidal(dim, axes=axes), dim, posenc.grid(*shape))
    assert_within(ours, theirs, 8 * max(shape))  # their angles are float32


@pytest.mark.parametrize("dim", [1, 2, 5, 9, 16])
def test_sinusoidal_of_any_width_equals_xlm(dim: int) -> None:
    # numpy float64, rounded once to float32; frequencies over the true width, odd ones too
    from transformers.models.xlm.modeling_xlm import create_sinusoidal_embeddings

    theirs = create_sinusoidal_embeddings(300, dim, torch.empty(300, dim))
    assert_within(encoded(posenc.Sinusoidal(dim), dim, posenc.sequence(300)), theirs, 1)


@pytest.mark.parametrize("dim", [1, 2, 5, 9, 16])
def test_sinusoidal_concatenated_of_any_width_equals_marian(dim: int) -> None:
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    theirs = MarianSinusoidalPositionalEmbedding(300, dim).create_weight()
    assert_within(encoded(posenc.Sinusoidal(dim, layout="concatenated"), dim, posenc.sequence(300)), theirs, 1)


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
def test_sinusoidal_frequencies_equal_gptj(layout: str) -> None:
    # At position 1 the angle is the frequency. Relative tolerance alone: the smallest is 1.5e-4.
    from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions

    theirs = create_sinusoidal_positions(2, 22)[1].double()
    ours = encoded(posenc.Sinusoidal(22, layout=layout), 22, posenc.sequence(1, start=1))[0]
    sine, cosine = ours.chunk(2) if layout == "concatenated" else ours.unflatten(0, (11, 2)).unbind(1)
    their_sine, their_cosine = theirs.chunk(2)
    angles, their_angles = torch.atan2(sine, cosine), torch.atan2(their_sine, their_cosine)
    torch.testing.assert_close(angles, their_angles, rtol=8 * EPS, atol=0.0)


@pytest.mark.parametrize("base", [10000.0, 37.0])
@pytest.mark.parametrize("shape", GRIDS)
def test_sinusoidal_2d_equals_mae(shape: tuple[int, int], base: float) -> None:
    from transformers.models.vit_mae.modeling_vit_mae import build_2d_sinusoidal_position_embedding

    height_first = build_2d_sinusoidal_position_embedding(*shape, 20, base, cls_token=True, dtype=torch.float64)
    ours = posenc.Sinusoidal(20, axes=2, base=base, layout="concatenated")
    assert_equal(encoded(ours, 20, posenc.grid(*shape, prefix=1)), height_first)

    # The published MAE encodes the width in the first half of the channels.
    width_first = height_first.roll(10, dims=1)
    ours = posenc.Sinusoidal(20, axes=2, base=base, layout="concatenated", axis_order=(1, 0))
    assert_equal(encoded(ours, 20, posenc.grid(*shape, prefix=1)), width_first)


@pytest.mark.parametrize("shape", GRIDS)
def test_sinusoidal_2d_equals_timm(shape: tuple[int, int]) -> None:
    from timm.layers import build_sincos2d_pos_embed

    theirs = build_sincos2d_pos_embed(list(shape), 28, interleave_sin_cos=True)  # their name for blocks per axis
    ours = encoded(posenc.Sinusoidal(28, axes=2, layout="concatenated"), 28, posenc.grid(*shape))
    assert_within(ours, theirs, 8 * max(shape))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("shape", GRIDS)
def test_sinusoidal_2d_equals_detr(shape: tuple[int, int], normalize: bool) -> None:
    from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding

    height, width = shape
    peer = DetrSinePositionEmbedding(num_position_features=10, normalize=normalize)
    theirs = peer(torch.Size((1, 3, height, width)), "cpu", torch.float64)[0].flatten(1).T

    # They count from one, and either take the counts or squeeze them into a full turn.
    counts = torch.cartesian_prod(torch.arange(1, height + 1), torch.arange(1, width + 1)).double()
    turns = 2 * math.pi / (torch.tensor(shape, dtype=torch.float64) + 1e-6)
    positions = posenc.coordinates(counts * turns if normalize else counts)
    assert_equal(encoded(posenc.Sinusoidal(20, axes=2), 20, positions), theirs)


def test_sinusoidal_2d_equals_detr_in_a_padded_batch() -> None:
    # Images of three sizes in one batch: every image counts its own pixels, so each row has its own coordinates.
    from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding

    mask = torch.zeros(3, 5, 7, dtype=torch.bool)
    for image, (height, width) in enumerate([(5, 4), (2, 7), (3, 3)]):
        mask[image, :height, :width] = True
    peer = DetrSinePositionEmbedding(num_position_features=6)
    theirs = peer(torch.Size((3, 3, 5, 7)), "cpu", torch.float64, mask).flatten(2).transpose(1, 2)
    counts = torch.stack([mask.cumsum(1), mask.cumsum(2)], dim=-1).flatten(1, 2)
    ours = posenc.Sinusoidal(12, axes=2)(torch.zeros(3, 35, 12, dtype=torch.float64), posenc.coordinates(counts))
    assert_equal(ours, theirs)


@pytest.mark.parametrize("prefix", [0, 1])
def test_learned_equals_timm_vision_transformer(prefix: int) -> None:
    from timm.models.vision_transformer import VisionTransformer

    options = {"class_token": True} if prefix else {"class_token": False, "global_pool": "avg"}
    peer = VisionTransformer(img_size=(12, 20), patch_size=4, embed_dim=6, depth=0, num_heads=1, **options)
    peer = randomize(peer)
    patches = draw(2, 3, 5, 6).flatten(1, 2)
    theirs = peer._pos_embed(patches)
    ours = posenc.Learned((3, 5), 6, prefix=prefix).double()
    set_table(ours.table, peer.pos_embed[0])
    tokens = torch.cat([peer.cls_token.expand(2, -1, -1), patches], dim=1) if prefix else patches
    assert_equal(ours(tokens, posenc.grid(3, 5, prefix=prefix)), theirs)


@pytest.mark.parametrize(
    ("mode", "antialias"), [("bicubic", True), ("bicubic", False), ("linear", True), ("nearest", False)]
)
@pytest.mark.parametrize(("source", "target"), [((3, 5), (6, 4)), ((7, 4), (3, 9)), ((2, 3), (4, 6)), ((1, 4), (3, 2))])
def test_resized_table_equals_timm(source: tuple, target: tuple, mode: str, antialias: bool) -> None:
    from timm.layers import resample_abs_pos_embed

    table = draw(2 + math.prod(source), 6, dtype=torch.float32)
    theirs = resample_abs_pos_embed(
        table[None],
        list(target),
        list(source),
        num_prefix_tokens=2,
        interpolation={"linear": "bilinear", "nearest": "nearest-exact"}.get(mode, mode),
        antialias=antialias,
    )[0]
    ours = posenc.resize_table(table, source, target, prefix=2, mode=mode, antialias=antialias)
    assert torch.equal(ours[:2], table[:2])
    # Two axes of a few weights each, on normal numbers: weights are rounded, and multiply numbers up to about 4.
    assert_within(ours, theirs, 32)


@pytest.mark.parametrize("mode", ["bicubic", "linear"])
@pytest.mark.parametrize(
    ("source", "target"), [((3, 5), (6, 4)), ((9, 4), (3, 9)), ((6, 7), (2, 3)), ((9, 1), (4, 1)), ((5, 1), (8, 1))]
)
def test_resized_table_equals_pillow(source: tuple, target: tuple, mode: str) -> None:
    # An image library's own antialiased resampling, which shares no code with torch's. torch 2.13 itself is wrong for
    # an image of one column with antialiasing (by more than 1 for normal numbers), and right for one of one row.
    from PIL import Image

    kind = {"bicubic": Image.Resampling.BICUBIC, "linear": Image.Resampling.BILINEAR}[mode]
    table = draw(math.prod(source), 3, dtype=torch.float32)
    planes = table.T.reshape(3, *source).numpy()
    resized = [np.asarray(Image.fromarray(plane).resize(target[::-1], kind)) for plane in planes]
    theirs = torch.from_numpy(np.stack(resized)).flatten(1).T
    assert_within(posenc.resize_table(table, source, target, mode=mode), theirs, 32)


@pytest.mark.parametrize("shape", GRIDS)
def test_fourier_equals_sam(shape: tuple[int, int]) -> None:
    from transformers.models.sam.modeling_sam import SamPositionalEmbedding

    peer = SamPositionalEmbedding(SimpleNamespace(scale=1.7, num_pos_feats=9)).double()
    height, width = shape
    rows, columns = (torch.arange(size, dtype=torch.float64) + 0.5 for size in shape)
    centres = torch.cartesian_prod(rows / height, columns / width)
    theirs = peer(centres.flip(-1)[None])[0]  # they want (x, y)
    ours = posenc.Fourier(18, axes=2).double()
    set_table(ours.frequencies, peer.positional_embedding.flip(0))
    assert_equal(encoded(ours, 18, posenc.grid(*shape).rescaled(-1, 1)), theirs)


def test_fourier_equals_sam_for_points() -> None:
    from transformers.models.sam.modeling_sam import SamPositionalEmbedding

    peer = SamPositionalEmbedding(SimpleNamespace(scale=1.0, num_pos_feats=7)).double()
    points = torch.rand(3, 11, 2, dtype=torch.float64)
    ours = posenc.Fourier(14, axes=2, learnable=True).double()
    set_table(ours.frequencies, peer.positional_embedding)
    vectors = ours(torch.zeros(3, 11, 14, dtype=torch.float64), posenc.coordinates(2 * points - 1))
    assert_equal(vectors, peer(points))


@pytest.mark.parametrize("shape", [(9,), (4, 7), (2, 3, 5)])
def test_fourier_equals_perceiver(shape: tuple[int, ...]) -> None:
    # Perceiver's fixed bands are a Fourier encoding whose matrix has one block an axis.
    from transformers.models.perceiver.modeling_perceiver import build_linear_positions, generate_fourier_features

    bands, axes = 5, len(shape)
    places = build_linear_positions(shape).reshape(-1, axes).double()
    theirs = generate_fourier_features(places[None], bands, shape, concat_pos=False)  # the result has no batch axis
    frequencies = torch.zeros(axes, axes * bands, dtype=torch.float64)
    for axis, size in enumerate(shape):
        frequencies[axis, axis * bands : (axis + 1) * bands] = torch.linspace(1.0, size / 2, bands) / 2
    ours = posenc.Fourier(2 * axes * bands, axes=axes).double()
    set_table(ours.frequencies, frequencies)
    assert_equal(encoded(ours, 2 * axes * bands, posenc.coordinates(places)), theirs)


# ------------------------------------------------------------------------------------------------------- conditional


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("shape", GRIDS)
def test_conditional_encoding_equals_peg(shape: tuple[int, int], prefix: int) -> None:
    from timm.models.twins import PosConv

    peer = randomize(PosConv(6, 6))
    ours = posenc.ConditionalEncoding(6).double()
    set_table(ours.convolution.weight, peer.proj[0].weight)
    set_table(ours.convolution.bias, peer.proj[0].bias)
    x = draw(2, prefix + math.prod(shape), 6)
    theirs = torch.cat([x[:, :prefix], peer(x[:, prefix:], shape)], dim=1)
    assert_equal(ours(x, posenc.grid(*shape, prefix=prefix)), theirs)


# ------------------------------------------------------------------------------------------------------------ rotary


def llama_config(**options: object) -> object:
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=40,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=10,
        attention_bias=True,
        max_position_embeddings=4096,
        attn_implementation="sdpa",
        **options,
    )


@pytest.mark.parametrize("base", [10000.0, 500.0])
def test_rotary_half_equals_llama(base: float) -> None:
    from transformers.models.llama import modeling_llama as llama

    peer = llama.LlamaRotaryEmbedding(llama_config(rope_parameters={"rope_type": "default", "rope_theta": base}))
    q, k = draw(2, 4, 50, 10, dtype=torch.float32), draw(2, 2, 50, 10, dtype=torch.float32)
    cos, sin = peer(q, torch.arange(3, 53)[None])
    theirs = llama.apply_rotary_pos_emb(q, k, cos, sin)
    positions = posenc.sequence(50, start=3)
    for ours, their in zip(posenc.Rotary(10, base=base)(q, k, positions, positions), theirs, strict=True):
        assert_within(ours, their, 8 * 53 * 5)  # their float32 angle, times numbers up to about 5

    cos, sin = posenc.Rotary(10, base=base).cos_sin(posenc.sequence(1, start=1))
    angles = torch.atan2(sin.double(), cos.double()).flatten()
    torch.testing.assert_close(angles, peer.inv_freq.double(), rtol=8 * EPS, atol=0.0)


def test_rotary_half_pairs_as_llama_to_the_last_digit() -> None:
    # Their pairing with float64 angles of our own making: no float32 is left.
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    frequencies = 10000.0 ** -(torch.arange(7, dtype=torch.float64) / 7)
    angles = (torch.arange(1000, 1031).double()[:, None] * frequencies).repeat(1, 2)[None]
    q, k = draw(2, 3, 31, 14), draw(2, 1, 31, 14)
    theirs = apply_rotary_pos_emb(q, k, angles.cos(), angles.sin())
    positions = posenc.sequence(31, start=1000)
    for ours, their in zip(posenc.Rotary(14)(q, k, positions, positions), theirs, strict=True):
        assert_equal(ours, their)


def test_self_attention_with_rotary_equals_llama_layer() -> None:
    # Grouped-query heads, causal, biases on all four projections.
    from transformers.models.llama.modeling_llama import LlamaAttention

    peer = randomize(LlamaAttention(llama_config(), layer_idx=0))
    frequencies = 10000.0 ** -(torch.arange(5, dtype=torch.float64) / 5)
    angles = (torch.arange(13).double()[:, None] * frequencies).repeat(1, 2)[None]
    x = draw(2, 13, 40)
    theirs, _ = peer(x, (angles.cos(), angles.sin()))
    projections = [peer.q_proj, peer.k_proj, peer.v_proj, peer.o_proj]
    ours = layer_like(40, 4, posenc.Rotary(10), projections=projections, num_key_value_heads=2)
    torch.testing.assert_close(ours(x, causal=True), theirs, rtol=1e-10, atol=1e-8)  # sums of thousands


@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(8, 8), (14, 6), (9, 4)])
def test_rotary_interleaved_and_partial_equals_gptj(head_dim: int, rotary_dim: int) -> None:
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb, create_sinusoidal_positions

    q = draw(2, 3, 40, head_dim, dtype=torch.float32)
    sin, cos = create_sinusoidal_positions(45, rotary_dim)[None, 5:].chunk(2, dim=-1)
    turned = apply_rotary_pos_emb(q[..., :rotary_dim].transpose(1, 2), sin, cos).transpose(1, 2)
    theirs = torch.cat([turned, q[..., rotary_dim:]], dim=-1)
    rotary = posenc.Rotary(head_dim, layout="interleaved", rotary_dim=rotary_dim)
    positions = posenc.sequence(40, start=5)
    ours, _ = rotary(q, q, positions, positions)
    assert torch.equal(ours[..., rotary_dim:], q[..., rotary_dim:])
    assert_within(ours, theirs, 8 * 45 * 5)


@pytest.mark.parametrize(("base", "offset"), [(10000, 0), (100, 17)])
def test_rotary_interleaved_equals_rotary_embedding_torch(base: int, offset: int) -> None:
    from rotary_embedding_torch import RotaryEmbedding

    q = draw(2, 3, 29, 10, dtype=torch.float32)
    theirs = RotaryEmbedding(10, theta=base).rotate_queries_or_keys(q, offset=offset)
    positions = posenc.sequence(29, start=offset)
    ours, _ = posenc.Rotary(10, base=base, layout="interleaved")(q, q, positions, positions)
    assert_within(ours, theirs, 8 * (29 + offset) * 5)


@pytest.mark.parametrize("shape", [(3, 5), (5, 2), (2, 3, 4)])
def test_rotary_axial_equals_rotary_embedding_torch(shape: tuple[int, ...]) -> None:
    from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

    axes, width = len(shape), 6
    q = draw(2, 3, *shape, axes * width, dtype=torch.float32)
    theirs = apply_rotary_emb(RotaryEmbedding(width).get_axial_freqs(*shape), q).flatten(2, -2)
    flat, positions = q.flatten(2, -2), posenc.grid(*shape)
    ours, _ = posenc.Rotary(axes * width, axes=axes, layout="interleaved")(flat, flat, positions, positions)
    assert_within(ours, theirs, 8 * max(shape) * 5)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("shape", GRIDS)
def test_rotary_axial_equals_timm(shape: tuple[int, int], layout: str) -> None:
    from timm.layers import RotaryEmbeddingCat
    from timm.layers.pos_embed_sincos import apply_rot_embed_cat

    half = layout == "half"
    peer = RotaryEmbeddingCat(12, temperature=100.0, in_pixels=False, feat_shape=list(shape), rotate_half=half)
    q, k = draw(2, 3, 1 + math.prod(shape), 12), draw(2, 3, 1 + math.prod(shape), 12)
    embedding = peer.get_embed()
    rotary, positions = posenc.Rotary(12, axes=2, base=100.0, layout=layout), posenc.grid(*shape, prefix=1)
    for ours, x in zip(rotary(q, k, positions, positions), (q, k), strict=True):
        assert torch.equal(ours[..., :1, :], x[..., :1, :])  # the class token stands nowhere
        assert_within(ours[..., 1:, :], apply_rot_embed_cat(x[..., 1:, :], embedding, half=half), 8 * max(shape) * 5)

    cos, sin = rotary.cos_sin(posenc.coordinates(torch.ones(1, 2, dtype=torch.int64)))
    angles = torch.atan2(sin.double(), cos.double()).flatten()
    torch.testing.assert_close(angles, peer.bands.double().repeat(2), rtol=8 * EPS, atol=0.0)


@pytest.mark.parametrize(("source", "target"), [((4, 4), (6, 9)), ((8, 5), (3, 7))])
def test_rotary_in_rescaled_coordinates_equals_timm(source: tuple[int, int], target: tuple[int, int]) -> None:
    # EVA: coordinate i at another resolution stands at i * (trained size) / (size), corner to corner.
    from timm.layers import RotaryEmbeddingCat
    from timm.layers.pos_embed_sincos import apply_rot_embed_cat

    peer = RotaryEmbeddingCat(8, in_pixels=False, feat_shape=list(target), ref_feat_shape=list(source))
    steps = [trained / size for trained, size in zip(source, target, strict=True)]
    low = [-step / 2 for step in steps]
    high = [trained - step / 2 for trained, step in zip(source, steps, strict=True)]
    q, positions = draw(1, 2, math.prod(target), 8), posenc.grid(*target).rescaled(low, high)
    ours, _ = posenc.Rotary(8, axes=2, layout="interleaved")(q, q, positions, positions)
    assert_within(ours, apply_rot_embed_cat(q, peer.get_embed()), 8 * max(source) * 5)


@pytest.mark.parametrize("shape", GRIDS)
def test_rotary_in_coordinates_of_unit_size_equals_dinov3(shape: tuple[int, int]) -> None:
    # Their angle is a full turn times a coordinate in [-1, 1] over a period.
    from timm.layers import RotaryEmbeddingDinoV3
    from timm.layers.pos_embed_sincos import apply_rot_embed_cat

    peer = RotaryEmbeddingDinoV3(16, feat_shape=list(shape)).eval()
    q = draw(1, 2, math.prod(shape), 16)
    positions = posenc.grid(*shape).rescaled(-2 * math.pi, 2 * math.pi)
    ours, _ = posenc.Rotary(16, axes=2, base=100.0)(q, q, positions, positions)
    assert_within(ours, apply_rot_embed_cat(q, peer.get_embed(), half=True), 8 * 2 * math.pi * 5)


# -------------------------------------------------------------------------------------------------------------- bias


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 20])
def test_alibi_slopes_equal_bloom(heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32).flatten(1)[:, 1].double()
    slopes = posenc.alibi_slopes(heads)
    assert slopes.dtype == torch.float64
    # A float32 power of a rounded root: the k-th carries k roundings.
    torch.testing.assert_close(slopes, theirs, rtol=2 * heads * EPS, atol=0.0)


@pytest.mark.parametrize("heads", [4, 5])
def test_alibi_equals_bloom_layer(heads: int) -> None:
    # Bloom adds m j to a causal row instead of -m (i - j): the same softmax. Left padding; grouped by head in storage.
    from transformers import BloomConfig
    from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor

    dim, length = 6 * heads, 11
    peer = BloomAttention(BloomConfig(hidden_size=dim, n_head=heads, hidden_dropout=0.0, attention_dropout=0.0), 0)
    peer = randomize(peer).float()
    keep = torch.ones(2, length, dtype=torch.bool)
    keep[1, :4] = False
    x = draw(2, length, dim, dtype=torch.float32)
    seen = torch.ones(length, length).tril().bool() & keep[:, None, None, :]
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    theirs = peer(x, torch.zeros_like(x), build_alibi_tensor(keep, heads, torch.float32), mask)[0]

    q, k, v = peer._reshape(peer.query_key_value(x))
    positions = posenc.padded(keep)
    mixed = posenc.attention(q, k, v, posenc.ALiBi(heads), positions=positions, causal=True)
    ours = peer.dense(mixed.transpose(1, 2).flatten(2))
    scale = theirs[keep].abs().max().item()
    # float32 softmax of logits of tens, summed over `dim` channels
    assert_within(ours[keep] / scale, theirs[keep] / scale, 64)


@pytest.mark.parametrize("heads", [1, 3, 8, 12])
@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (1, 9), (4, 11)])
def test_alibi_equals_x_transformers(heads: int, queries: int, keys: int) -> None:
    from x_transformers.x_transformers import AlibiPositionalBias

    theirs = AlibiPositionalBias(heads)(queries, keys).double()
    last = posenc.sequence(queries, start=keys - queries)
    ours = posenc.ALiBi(heads).double()(last, posenc.sequence(keys)).double()
    torch.testing.assert_close(ours, theirs, rtol=2 * EPS, atol=0.0)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (64, 1000), (16, 50), (8, 20)])
def test_t5_buckets_equal_transformers_and_x_transformers(buckets: int, distance: int, bidirectional: bool) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention
    from x_transformers.x_transformers import RelativePositionBias

    relative = torch.arange(-4999, 5000)  # query - key; theirs is key - query
    ours = posenc.t5_bucket(relative, buckets, distance, bidirectional)
    assert ours.dtype == torch.int64
    theirs = T5Attention._relative_position_bucket(-relative, bidirectional, buckets, distance)
    assert torch.equal(ours, theirs)
    theirs = RelativePositionBias._relative_position_bucket(-relative, not bidirectional, buckets, distance)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("decoder", [False, True])
def test_t5_bias_and_attention_equal_transformers(decoder: bool) -> None:
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(d_model=24, d_kv=7, num_heads=3, dropout_rate=0.0, is_decoder=decoder)
    config._attn_implementation = "eager"
    peer = randomize(T5Attention(config, has_relative_attention_bias=True, layer_idx=0))
    ours = posenc.T5Bias(3, bidirectional=not decoder).double()
    set_table(ours.table, peer.relative_attention_bias.weight.T)

    theirs = peer.compute_bias(6, 150, past_seen_tokens=144)[0]
    assert_equal(ours(posenc.sequence(6, start=144), posenc.sequence(150)), theirs)

    x = draw(2, 40, 24)
    mask = torch.zeros(40, 40, dtype=torch.float64)
    if decoder:
        mask = mask.masked_fill(torch.ones(40, 40).triu(1).bool(), -torch.inf)
    theirs = peer(x, mask=mask[None, None])[0]
    q, k, v = (part(x).unflatten(-1, (3, 7)).transpose(1, 2) for part in (peer.q, peer.k, peer.v))
    mixed = posenc.attention(q, k, v, ours, causal=decoder, scale=1.0)  # T5 does not scale its logits
    torch.testing.assert_close(peer.o(mixed.transpose(1, 2).flatten(2)), theirs, rtol=1e-10, atol=1e-8)


def test_t5_bias_equals_x_transformers() -> None:
    from x_transformers.x_transformers import RelativePositionBias

    peer = randomize(RelativePositionBias(scale=1.0, causal=True, heads=5))
    ours = posenc.T5Bias(5, bidirectional=False).double()
    set_table(ours.table, peer.relative_attention_bias.weight.T)
    theirs = peer(3, 90)
    assert_equal(ours(posenc.sequence(3, start=87), posenc.sequence(90)), theirs)


@pytest.mark.parametrize("shape", GRIDS)
def test_relative_position_bias_equals_swin(shape: tuple[int, int]) -> None:
    from timm.layers import RelPosBias
    from timm.layers.pos_embed_rel import gen_relative_position_index

    assert torch.equal(posenc.relative_index(shape), gen_relative_position_index(shape))
    peer = randomize(RelPosBias(shape, num_heads=3))
    ours = posenc.RelativePositionBias(3, shape).double()
    set_table(ours.table, peer.relative_position_bias_table.T)
    assert_equal(ours(posenc.grid(*shape)), peer.get_bias()[0])


@pytest.mark.parametrize("shape", GRIDS)
def test_relative_position_bias_equals_maxvit(shape: tuple[int, int]) -> None:
    # One-hot products in place of an index, and a table that ascends by key - query: turned round on both axes.
    from timm.layers import RelPosBiasTf

    peer = randomize(RelPosBiasTf(shape, num_heads=2))
    ours = posenc.RelativePositionBias(2, shape).double()
    set_table(ours.table, peer.relative_position_bias_table.flip(1, 2).flatten(1))
    assert_equal(ours(posenc.grid(*shape)), peer.get_bias())


@pytest.mark.parametrize("shape", GRIDS)
def test_symmetric_relative_position_bias_equals_levit(shape: tuple[int, int]) -> None:
    # One number for every sign of a relative position, on each axis.
    from timm.models.levit import Attention

    peer = randomize(Attention(8, 4, num_heads=2, resolution=shape))
    theirs = peer.get_attention_biases(torch.device("cpu"))
    ours = posenc.RelativePositionBias(2, shape, symmetric=True).double()
    set_table(ours.table, peer.attention_biases)
    assert_equal(ours(posenc.grid(*shape)), theirs)


@pytest.mark.parametrize("shape", GRIDS)
def test_relative_position_bias_with_class_token_equals_beit(shape: tuple[int, int]) -> None:
    from timm.layers import RelPosBias

    peer = randomize(RelPosBias(shape, num_heads=3, prefix_tokens=1))
    table = peer.relative_position_bias_table
    ours = posenc.RelativePositionBias(3, shape, prefix_bias=True).double()
    set_table(ours.table, table[:-3].T)
    set_table(ours.prefix_table, table[-3:].T)  # class to token, token to class, class to class
    assert_equal(ours(posenc.grid(*shape, prefix=1)), peer.get_bias()[0])
    listed = posenc.coordinates(posenc.grid(*shape).coordinates(), prefix=1)  # the same tokens, not known to be a grid
    assert_equal(ours(listed), peer.get_bias()[0])


@pytest.mark.parametrize("shape", [(3, 5), (5, 2)])
def test_self_attention_equals_swin_layer(shape: tuple[int, int]) -> None:
    from timm.models.swin_transformer import WindowAttention

    peer = randomize(WindowAttention(15, 3, window_size=shape))
    bias = posenc.RelativePositionBias(3, shape).double()
    set_table(bias.table, peer.relative_position_bias_table.T)
    ours = layer_like(15, 3, bias, projections=[*split_projection(peer.qkv), peer.proj])
    x = draw(4, math.prod(shape), 15)
    torch.testing.assert_close(ours(x, positions=posenc.grid(*shape)), peer(x), rtol=1e-10, atol=1e-9)


def test_self_attention_equals_shifted_swin_layer() -> None:
    # A shifted window holds pieces of other windows, which a mask keeps apart: a mask per batch row.
    from timm.models.swin_transformer import WindowAttention

    shape = (3, 5)
    peer = randomize(WindowAttention(15, 3, window_size=shape))
    bias = posenc.RelativePositionBias(3, shape).double()
    set_table(bias.table, peer.relative_position_bias_table.T)
    ours = layer_like(15, 3, bias, projections=[*split_projection(peer.qkv), peer.proj])
    x, piece = draw(4, 15, 15), torch.randint(0, 2, (4, 15))
    together = piece[:, :, None] == piece[:, None, :]
    theirs = peer(x, torch.zeros(4, 15, 15, dtype=torch.float64).masked_fill(~together, -torch.inf))
    mixed = ours(x, positions=posenc.grid(*shape), mask=together[:, None])
    torch.testing.assert_close(mixed, theirs, rtol=1e-10, atol=1e-9)


def test_self_attention_equals_beit_layer() -> None:
    from timm.models.beit import Attention

    shape = (2, 4)
    peer = randomize(Attention(18, 3, qkv_bias=True, window_size=shape))
    bias = posenc.RelativePositionBias(3, shape, prefix_bias=True).double()
    set_table(bias.table, peer.relative_position_bias_table[:-3].T)
    set_table(bias.prefix_table, peer.relative_position_bias_table[-3:].T)
    packed_bias = torch.cat([peer.q_bias, torch.zeros_like(peer.q_bias), peer.v_bias])  # keys have none
    ours = layer_like(18, 3, bias, projections=[*split_projection(peer.qkv, packed_bias), peer.proj])
    x = draw(2, 9, 18)
    torch.testing.assert_close(ours(x, positions=posenc.grid(*shape, prefix=1)), peer(x), rtol=1e-10, atol=1e-9)


# ----------------------------------------------------------------------------------------------------------- content


@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (4, 11), (6, 3)])
@pytest.mark.parametrize("clip", [1, 3, 20])
def test_shaw_keys_equal_wav2vec2_bert(clip: int, queries: int, keys: int) -> None:
    # Their rows ascend by key - query, and may be clipped unequally left and right: here equally.
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import _apply_relative_key_position_encoding

    module = SimpleNamespace(
        left_max_position_embeddings=clip,
        right_max_position_embeddings=clip,
        distance_embedding=nn.Embedding(2 * clip + 1, 6).double(),
        scaling=1.0,
    )
    q, k = draw(2, 3, queries, 6), draw(2, 3, keys, 6)
    _, theirs = _apply_relative_key_position_encoding(module, q, k)
    ours = posenc.Shaw(6, clip, values=False).double()
    set_table(ours.key_table, module.distance_embedding.weight.flip(0)[None])
    assert_equal(ours(q, posenc.sequence(queries), posenc.sequence(keys)), theirs)


def test_self_attention_with_shaw_keys_equals_wav2vec2_bert_layer() -> None:
    from transformers import Wav2Vec2BertConfig
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

    config = Wav2Vec2BertConfig(
        hidden_size=18,
        num_attention_heads=3,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=4,
        right_max_position_embeddings=4,
        attention_dropout=0.0,
        attn_implementation="eager",
    )
    peer = randomize(Wav2Vec2BertSelfAttention(config))
    shaw = posenc.Shaw(6, 4, values=False).double()
    set_table(shaw.key_table, peer.distance_embedding.weight.flip(0)[None])
    ours = layer_like(18, 3, shaw, projections=[peer.linear_q, peer.linear_k, peer.linear_v, peer.linear_out])
    x = draw(2, 13, 18)
    torch.testing.assert_close(ours(x), peer(x)[0], rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("length", [1, 4, 7])
def test_self_attention_with_shaw_keys_and_values_equals_vits_layer(length: int) -> None:
    # VITS adds nothing beyond its window where Shaw clips, so the window covers the sequence.
    from transformers import VitsConfig
    from transformers.models.vits.modeling_vits import VitsAttention

    config = VitsConfig(hidden_size=18, num_attention_heads=3, window_size=6, attention_dropout=0.0)
    peer = randomize(VitsAttention(config))
    shaw = posenc.Shaw(6, 6).double()
    set_table(shaw.key_table, peer.emb_rel_k.flip(1))
    set_table(shaw.value_table, peer.emb_rel_v.flip(1))
    ours = layer_like(18, 3, shaw, projections=[peer.q_proj, peer.k_proj, peer.v_proj, peer.out_proj])
    x = draw(2, length, 18)
    theirs, weights = peer(x, output_attentions=True)
    torch.testing.assert_close(ours(x), theirs, rtol=1e-10, atol=1e-9)

    relative_weights = peer._absolute_position_to_relative_position(weights.flatten(0, 1))
    rows = peer._get_relative_embeddings(peer.emb_rel_v, length)
    assert_equal(shaw.values(weights), (relative_weights @ rows).unflatten(0, (2, 3)))


@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_relative_to_absolute_equals_self_attention_cv(length: int) -> None:
    from self_attention_cv.pos_embeddings.relative_embeddings_1D import relative_to_absolute

    x = draw(2, 3, length, 2 * length - 1)
    assert torch.equal(posenc.relative_to_absolute(x), relative_to_absolute(x))


@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_relative_to_absolute_equals_parakeet(length: int) -> None:
    from transformers.models.parakeet.modeling_parakeet import ParakeetEncoderAttention

    x = draw(2, 3, length, 2 * length - 1)
    theirs = ParakeetEncoderAttention._rel_shift(None, x)[..., :length]
    assert torch.equal(posenc.relative_to_absolute(x), theirs)


@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_skew_equals_transformer_xl_shift(length: int) -> None:
    # Transformer-XL's shift of [L, L + 1] drops the first L numbers; with a column before it, that is the skew.
    from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

    x = draw(2, 3, length, length)
    theirs = XLNetRelativeAttention.rel_shift_bnij(nn.functional.pad(x, (1, 0)), klen=length)
    assert torch.equal(posenc.skew(x), theirs)


@pytest.mark.parametrize("length", [1, 6, 9])
def test_relative_logits_1d_equal_self_attention_cv(length: int) -> None:
    # Their rows ascend by key - query. One table for all heads: the peer shares it whatever it is told.
    from self_attention_cv.pos_embeddings.relative_embeddings_1D import RelPosEmb1D

    peer = randomize(RelPosEmb1D(length, 6))
    ours = posenc.RelativeLogits(6, (length,)).double()
    set_table(ours.tables[0], peer.rel_pos_emb.flip(0)[None])
    q = draw(2, 3, length, 6)
    assert_equal(ours(q), peer(q))


@pytest.mark.parametrize("length", [1, 6, 9])
def test_relative_logits_1d_per_head_equal_self_attention_cv(length: int) -> None:
    from self_attention_cv.pos_embeddings.relative_embeddings_1D import rel_pos_emb_1d

    table, q = draw(3, 2 * length - 1, 6), draw(2, 3, length, 6)
    ours = posenc.RelativeLogits(6, (length,), num_heads=3).double()
    set_table(ours.tables[0], table.flip(1))
    assert_equal(ours(q), rel_pos_emb_1d(q, table, shared_heads=False))


def xlnet_attention(heads: int, head_dim: int) -> nn.Module:
    from transformers import XLNetConfig
    from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

    config = XLNetConfig(d_model=heads * head_dim, n_head=heads, dropout=0.0)
    peer = randomize(XLNetRelativeAttention(config))
    for bias in (peer.r_r_bias, peer.r_w_bias, peer.r_s_bias):  # Transformer-XL's u and v: none here
        nn.init.zeros_(bias)
    return peer


@pytest.mark.parametrize("length", [1, 5, 8])
def test_relative_logits_1d_attention_equals_xlnet(length: int) -> None:
    # Their rows descend from query - key = L to -L + 1 and they read row 1 onwards.
    peer = xlnet_attention(heads=3, head_dim=6)
    q, k, v = (draw(2, 3, length, 6) for _ in range(3))
    rows = draw(2 * length, 3, 6)
    heads_last = [x.permute(2, 0, 1, 3) for x in (q, k, v)]
    theirs = peer.rel_attn_core(*heads_last, rows[:, None].expand(-1, 2, -1, -1)).permute(1, 2, 0, 3)
    ours = posenc.RelativeLogits(6, (length,), num_heads=3).double()
    set_table(ours.tables[0], rows[1:].flip(0).transpose(0, 1))
    assert_equal(posenc.attention(q, k, v, ours), theirs)


@pytest.mark.parametrize("length", [1, 5, 8])
def test_music_transformer_attention_equals_masked_xlnet(length: int) -> None:
    # Causal: of their rows only query - key = 0 to L - 1 is read, ours in ascending order.
    peer = xlnet_attention(heads=3, head_dim=6)
    q, k, v = (draw(2, 3, length, 6) for _ in range(3))
    rows = draw(2 * length, 3, 6)
    future = torch.ones(length, length, dtype=torch.float64).triu(1)[:, :, None, None].expand(-1, -1, 2, 3)
    heads_last = [x.permute(2, 0, 1, 3) for x in (q, k, v)]
    theirs = peer.rel_attn_core(*heads_last, rows[:, None].expand(-1, 2, -1, -1), attn_mask=future)
    ours = posenc.RelativeLogits(6, (length,), num_heads=3, causal=True).double()
    set_table(ours.tables[0], rows[1 : length + 1].flip(0).transpose(0, 1))
    assert_equal(posenc.attention(q, k, v, ours, causal=True), theirs.permute(1, 2, 0, 3))

    logits = ours(q)
    past = torch.ones(length, length).tril().bool()
    shifted = peer.rel_shift_bnij(torch.einsum("bhid,jhd->bhij", q, rows), klen=length)
    assert_equal(logits[..., past], shifted[..., past])
    assert (logits[..., ~past] == -torch.inf).all()


@pytest.mark.parametrize("shape", GRIDS)
def test_relative_logits_2d_equal_botnet(shape: tuple[int, int]) -> None:
    # Their rows ascend by key - query; one pair of tables for all heads.
    from timm.layers.bottleneck_attn import PosEmbedRel

    peer = randomize(PosEmbedRel(shape, dim_head=6, scale=1.0))
    ours = posenc.RelativeLogits(6, shape).double()
    set_table(ours.tables[0], peer.height_rel.flip(0)[None])
    set_table(ours.tables[1], peer.width_rel.flip(0)[None])
    q = draw(2, 3, math.prod(shape), 6)
    assert_equal(ours(q, posenc.grid(*shape)), peer(q.flatten(0, 1)).unflatten(0, (2, 3)))


@pytest.mark.parametrize("scaled", [True, False])
def test_relative_logits_2d_attention_equals_botnet_layer(scaled: bool) -> None:
    from timm.layers.bottleneck_attn import BottleneckAttn

    shape = (3, 5)
    peer = BottleneckAttn(18, feat_size=shape, num_heads=3, dim_head=8, scale_pos_embed=scaled)
    peer = randomize(peer)
    ours = posenc.RelativeLogits(8, shape, scaled=scaled).double()
    set_table(ours.tables[0], peer.pos_embed.height_rel.flip(0)[None])
    set_table(ours.tables[1], peer.pos_embed.width_rel.flip(0)[None])
    x = draw(2, 18, *shape)
    sizes = [peer.dim_out_qk, peer.dim_out_qk, peer.dim_out_v]
    q, k, v = (
        part.flatten(2).unflatten(1, (3, -1)).transpose(2, 3).contiguous() for part in peer.qkv(x).split(sizes, dim=1)
    )
    mixed = posenc.attention(q, k, v, ours, positions=posenc.grid(*shape))  # their values are narrower than queries
    assert_equal(mixed.transpose(2, 3).reshape(2, 18, *shape), peer(x))


@pytest.mark.parametrize("shape", GRIDS)
def test_relative_logits_2d_equal_sam_and_vitdet(shape: tuple[int, int]) -> None:
    # These rows ascend by query - key, as ours do.
    from timm.models.vision_transformer_sam import get_decomposed_rel_pos_bias
    from transformers.models.vitdet.modeling_vitdet import add_decomposed_relative_positions

    tokens = math.prod(shape)
    tables = [draw(2 * size - 1, 6) for size in shape]
    ours = posenc.RelativeLogits(6, shape, scaled=False).double()
    for mine, table in zip(ours.tables, tables, strict=True):
        set_table(mine, table[None])
    q = draw(2, 3, tokens, 6)
    flat, mine = q.flatten(0, 1), ours(q, posenc.grid(*shape)).flatten(0, 1)
    assert_equal(mine, get_decomposed_rel_pos_bias(flat, *tables, shape, shape))
    zeros = torch.zeros(6, tokens, tokens, dtype=torch.float64)
    assert_equal(mine, add_decomposed_relative_positions(zeros, flat, *tables, shape, shape))


@pytest.mark.parametrize("shape", [(3, 5), (5, 2)])
def test_self_attention_equals_sam_layer(shape: tuple[int, int]) -> None:
    from timm.models.vision_transformer_sam import Attention

    peer = randomize(Attention(18, 3, use_rel_pos=True, input_size=shape))
    logits = posenc.RelativeLogits(6, shape, scaled=False).double()
    set_table(logits.tables[0], peer.rel_pos_h[None])
    set_table(logits.tables[1], peer.rel_pos_w[None])
    ours = layer_like(18, 3, logits, projections=[*split_projection(peer.qkv), peer.proj])
    x = draw(2, *shape, 18)
    mixed = ours(x.flatten(1, 2), positions=posenc.grid(*shape)).unflatten(1, shape)
    torch.testing.assert_close(mixed, peer(x), rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("length", [1, 6, 11])
def test_sinusoidal_logits_equal_parakeet(length: int) -> None:
    # Their rows descend from query - key = L - 1 to -(L - 1); sine and cosine alternate; angles are float32.
    from transformers.models.parakeet.modeling_parakeet import (
        ParakeetEncoderAttention,
        ParakeetEncoderRelPositionalEncoding,
    )

    peer = ParakeetEncoderRelPositionalEncoding(SimpleNamespace(hidden_size=10, max_position_embeddings=64))
    q = draw(2, 3, length, 10)
    rows = peer(torch.zeros(1, length, 10))[0].double()
    theirs = ParakeetEncoderAttention._rel_shift(None, q @ rows.T)[..., :length]
    ours = posenc.SinusoidalLogits(10).double()(q)
    assert_within(ours, theirs, 8 * length * 10 * 5)  # ten channels of numbers up to about 5


@pytest.mark.parametrize("length", [1, 6, 11])
def test_sinusoidal_logits_attention_equals_xlnet(length: int) -> None:
    # All sines, then all cosines there: the same logits once q's channels are put in that order.
    from transformers.models.xlnet.modeling_xlnet import XLNetModel

    peer = xlnet_attention(heads=3, head_dim=10)
    q, k, v = (draw(2, 3, length, 10) for _ in range(3))
    frequencies = 10000.0 ** -(torch.arange(5, dtype=torch.float64) / 5)
    rows = XLNetModel.positional_embedding(torch.arange(length, -length, -1.0, dtype=torch.float64), frequencies)
    order = torch.arange(10).unflatten(0, (5, 2)).T.flatten()
    heads_last = [x.permute(2, 0, 1, 3) for x in (q[..., order], k[..., order], v)]
    theirs = peer.rel_attn_core(*heads_last, rows[:, :, None].expand(-1, 2, 3, -1)).permute(1, 2, 0, 3)
    assert_equal(posenc.attention(q, k, v, posenc.SinusoidalLogits(10)), theirs)
