"""Every rotary scheme against code that nobody here wrote; each test imports its peer itself."""

from __future__ import annotations

import math

import pytest
import torch

import posenc
from peers import (
    EPS,
    GRIDS,
    PEERS,
    against,
    assert_equal,
    assert_within,
    draw,
    layer_like,
    randomize,
    split_projection,
)
from posenc import scaling

pytestmark = PEERS

LLAMA = "transformers.models.llama.modeling_llama.apply_rotary_pos_emb"
GPTJ = "transformers.models.gptj.modeling_gptj.apply_rotary_pos_emb"
INIT = "transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS"
LUCIDRAINS = "rotary_embedding_torch.RotaryEmbedding"
X_TRANSFORMERS = "x_transformers.x_transformers.RotaryEmbedding"
CAT, MIXED, DINO = (f"timm.layers.RotaryEmbedding{name}" for name in ("Cat", "Mixed", "DinoV3"))
QWEN2 = "transformers.models.qwen2_vl.modeling_qwen2_vl.Qwen2VLRotaryEmbedding"
QWEN3 = "transformers.models.qwen3_vl.modeling_qwen3_vl.Qwen3VLTextRotaryEmbedding"
QWEN2_POSITIONS = "transformers.models.qwen2_vl.modeling_qwen2_vl.Qwen2VLModel"
QWEN25_POSITIONS = "transformers.models.qwen2_5_vl.modeling_qwen2_5_vl.Qwen2_5_VLModel"


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


@against("Rotary", LLAMA)
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


@against("Rotary", LLAMA)
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


@against("Rotary", LLAMA)
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


@against("Rotary", GPTJ)
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


@against("Rotary", LUCIDRAINS)
@pytest.mark.parametrize(("base", "offset"), [(10000, 0), (100, 17)])
def test_rotary_interleaved_equals_rotary_embedding_torch(base: int, offset: int) -> None:
    from rotary_embedding_torch import RotaryEmbedding

    q = draw(2, 3, 29, 10, dtype=torch.float32)
    theirs = RotaryEmbedding(10, theta=base).rotate_queries_or_keys(q, offset=offset)
    positions = posenc.sequence(29, start=offset)
    ours, _ = posenc.Rotary(10, base=base, layout="interleaved")(q, q, positions, positions)
    assert_within(ours, theirs, 8 * (29 + offset) * 5)


@against("Rotary", LUCIDRAINS)
@pytest.mark.parametrize("shape", [(3, 5), (5, 2), (2, 3, 4)])
def test_rotary_axial_equals_rotary_embedding_torch(shape: tuple[int, ...]) -> None:
    from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

    axes, width = len(shape), 6
    q = draw(2, 3, *shape, axes * width, dtype=torch.float32)
    theirs = apply_rotary_emb(RotaryEmbedding(width).get_axial_freqs(*shape), q).flatten(2, -2)
    flat, positions = q.flatten(2, -2), posenc.grid(*shape)
    ours, _ = posenc.Rotary(axes * width, axes=axes, layout="interleaved")(flat, flat, positions, positions)
    assert_within(ours, theirs, 8 * max(shape) * 5)


@against("Rotary", CAT)
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


@against("Rotary", CAT)
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


@against("Rotary", DINO)
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


@against("Rotary", DINO)
@pytest.mark.parametrize("shape", GRIDS)
@pytest.mark.parametrize("sides", ["separate", "max", "min"])
@pytest.mark.parametrize("half", [True, False])
def test_rotary_with_periods_equals_dinov3(shape: tuple[int, int], sides: str, half: bool) -> None:
    from timm.layers import RotaryEmbeddingDinoV3
    from timm.layers.pos_embed_sincos import apply_rot_embed_cat

    periods = {"min_period": 0.7, "max_period": 40.0, "temperature": None}
    peer = RotaryEmbeddingDinoV3(24, feat_shape=list(shape), normalize_coords=sides, rotate_half=half, **periods).eval()
    q, sizes = draw(1, 2, math.prod(shape), 24), {"separate": shape, "max": (max(shape),) * 2, "min": (min(shape),) * 2}
    high = [2 * size / unit - 1 for size, unit in zip(shape, sizes[sides], strict=True)]
    positions = posenc.grid(*shape).rescaled(-1, high)
    rotary = posenc.Rotary(24, axes=2, layout="half" if half else "interleaved", scaling=scaling.periods(0.7, 40.0))
    ours, _ = rotary(q, q, positions, positions)
    assert_within(ours, apply_rot_embed_cat(q, peer.get_embed(), half=half), 8 * 2 * math.pi / 0.7 * max(shape) * 5)

    ones = posenc.coordinates(torch.ones(1, 2, dtype=torch.int64))
    angles = rotary.frequencies()[0, :6] / (2 * math.pi)
    torch.testing.assert_close(1 / angles, peer.periods.double(), rtol=16 * EPS, atol=0.0)
    assert rotary.cos_sin(ones)[0].shape == (1, 1, 1, 12)


@against("Rotary", CAT)
@pytest.mark.parametrize("shape", GRIDS)
def test_rotary_with_width_first_equals_timm(shape: tuple[int, int]) -> None:
    # rope-vit's axial order: the width has the first pairs.
    from timm.layers import RotaryEmbeddingCat
    from timm.layers.pos_embed_sincos import apply_rot_embed_cat

    peer = RotaryEmbeddingCat(12, temperature=100.0, in_pixels=False, feat_shape=list(shape), grid_indexing="xy")
    q, positions = draw(2, 3, math.prod(shape), 12), posenc.grid(*shape)
    rotary = posenc.Rotary(12, axes=2, base=100.0, layout="interleaved", axis_order=(1, 0))
    ours, _ = rotary(q, q, positions, positions)
    assert_within(ours, apply_rot_embed_cat(q, peer.get_embed()), 8 * max(shape) * 5)


SCALINGS = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 3.0},
    "yarn": {"factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 8.0},
    "longrope": {
        "short_factor": [1.0, 1.0, 1.2, 1.5, 2.0],
        "long_factor": [1.0, 2.0, 5.0, 9.0, 16.0],
        "original_max_position_embeddings": 48,
        "factor": 16.0,
    },
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    },
    "proportional": {"partial_rotary_factor": 0.4},
}


@against("Rotary", INIT, LLAMA)
@pytest.mark.parametrize("tokens", [20, 48, 49, 70])
@pytest.mark.parametrize("kind", SCALINGS)
def test_self_attention_with_scaled_rotary_equals_llama_layer(kind: str, tokens: int) -> None:
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    rope = {"rope_type": kind, "rope_theta": 1e4, **SCALINGS[kind]}
    config = llama_config(rope_parameters=rope)
    config.max_position_embeddings = 48 if kind == "dynamic" else 4096
    peer = randomize(LlamaAttention(config, layer_idx=0))
    x = draw(2, tokens, 40) / 10  # logits of a few units, so that the error of an angle stays one of the output
    cos, sin = LlamaRotaryEmbedding(config)(x, torch.arange(tokens)[None])
    theirs, _ = peer(x, (cos, sin))
    projections = [peer.q_proj, peer.k_proj, peer.v_proj, peer.o_proj]
    ours = layer_like(
        40, 4, posenc.Rotary.from_config(config, precision="float32"), projections=projections, num_key_value_heads=2
    )
    assert (ours(x, causal=True) - theirs).abs().max() < 1e-4 * theirs.abs().max()
    plain = layer_like(40, 4, posenc.Rotary(10), projections=projections, num_key_value_heads=2)
    changed = kind != "dynamic" or tokens > 48
    assert ((plain(x, causal=True) - theirs).abs().max() > 1e-3 * theirs.abs().max()) == changed


def mixed_peer(shape: tuple[int, int], depth: int = 3) -> torch.nn.Module:
    from timm.layers import RotaryEmbeddingMixed

    return randomize(RotaryEmbeddingMixed(32, depth, num_heads=4, feat_shape=list(shape)))


@against("MixedRotary", MIXED)
@pytest.mark.parametrize("source", ["timm", "rope-vit", "rope-vit Swin"])
@pytest.mark.parametrize("shape", GRIDS)
def test_mixed_rotary_equals_timm(shape: tuple[int, int], source: str) -> None:
    from timm.layers.pos_embed_sincos import apply_rot_embed_cat

    peer, block = mixed_peer(shape), 1
    freqs = peer.state_dict()["freqs"][:, [block]]
    given = {"timm": freqs, "rope-vit": freqs.flatten(2), "rope-vit Swin": freqs[:, 0].flatten(1)}[source]
    mixed = posenc.MixedRotary(4, 8).double().load_foreign({"rope.freqs": given}, source.split()[0], prefix="rope.")
    q, k = draw(2, 4, 1 + math.prod(shape), 8), draw(2, 4, 1 + math.prod(shape), 8)
    embedding, positions = peer.get_embed()[block], posenc.grid(*shape, prefix=1)
    for ours, x in zip(mixed(q, k, positions, positions), (q, k), strict=True):
        assert torch.equal(ours[..., :1, :], x[..., :1, :])
        assert_within(ours[..., 1:, :], apply_rot_embed_cat(x[..., 1:, :], embedding), 8 * 4 * sum(shape) * 5)


@against("MixedRotary", MIXED)
@pytest.mark.parametrize("shape", GRIDS)
def test_self_attention_with_mixed_rotary_equals_eva_layer(shape: tuple[int, int]) -> None:
    from timm.models.eva import EvaAttention

    peer, rope = randomize(EvaAttention(32, 4, scale_norm=False)), mixed_peer(shape)
    x, block = draw(2, 1 + math.prod(shape), 32) / 4, 2
    theirs = peer(x, rope=rope.get_embed()[block])
    mixed = posenc.MixedRotary(4, 8).double().load_foreign({"freqs": rope.freqs[:, [block]]}, "timm")
    bias = torch.cat([peer.q_bias, torch.zeros(32).double(), peer.v_bias])
    projections = [*split_projection(peer.qkv, bias), peer.proj]
    ours = layer_like(32, 4, mixed, projections=projections)(x, positions=posenc.grid(*shape, prefix=1))
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()


@against("MixedRotary", MIXED)
def test_mixed_rotary_starts_as_timm_does() -> None:
    from timm.layers import RotaryEmbeddingMixed

    theirs = RotaryEmbeddingMixed(64, 1, num_heads=4, temperature=10.0).freqs.detach()[:, 0].transpose(0, 1).double()
    ours = posenc.MixedRotary(4, 16).frequencies().detach()
    for drawn in (ours, theirs):
        magnitudes = (10.0 ** -(torch.arange(4) / 4)).double().repeat(2)
        torch.testing.assert_close(drawn.norm(dim=1), magnitudes.expand(4, -1), rtol=1e-5, atol=0)
        assert (drawn[:, :, :4] * drawn[:, :, 4:]).sum(1).abs().max() < 1e-6  # two directions, at right angles
        assert drawn.unique(dim=0).shape[0] == 4


def qwen(peer: str, parameters: dict[str, object]) -> tuple[torch.nn.Module, object]:
    from transformers import Qwen2VLTextConfig, Qwen3VLTextConfig
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding

    kinds = {QWEN2: (Qwen2VLTextConfig, Qwen2VLRotaryEmbedding), QWEN3: (Qwen3VLTextConfig, Qwen3VLTextRotaryEmbedding)}
    config_kind, kind = kinds[peer]
    parameters = {"rope_type": "default", "rope_theta": 1e4, **parameters}
    config = config_kind(
        hidden_size=64, num_attention_heads=4, head_dim=16, max_position_embeddings=32, rope_parameters=parameters
    )
    return kind(config), config


@against("MultimodalRotary", QWEN2, QWEN3)
@pytest.mark.parametrize("sections", [[4, 2, 2], [3, 3, 2], [5, 1, 2], [8, 0, 0]])
@pytest.mark.parametrize("scaled", [{}, {"rope_type": "yarn", "factor": 4.0}, {"rope_type": "dynamic", "factor": 2.0}])
@pytest.mark.parametrize("peer", [QWEN2, QWEN3], ids=["qwen2", "qwen3"])
def test_multimodal_rotary_equals_qwen(peer: str, scaled: dict[str, object], sections: list[int]) -> None:
    from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb

    module, config = qwen(peer, {"mrope_section": sections, **scaled})
    positions = posenc.multimodal([3, (1, 3, 5), 2, (2, 4, 2), 20])
    where = positions.coordinates()
    q, k = draw(1, 4, len(where), 16), draw(1, 2, len(where), 16)
    cos, sin = module(torch.zeros(1), where.T[:, None])
    theirs = apply_rotary_pos_emb(q, k, cos.double(), sin.double())
    rotary = posenc.MultimodalRotary.from_config(config, interleaved=peer == QWEN3)
    assert rotary.sections == tuple(sections)
    for ours, their in zip(rotary(q, k, positions, positions), theirs, strict=True):
        assert_within(ours, their, 8 * 40 * 5)
    if 8 in sections:  # one axis alone
        return
    wrong = posenc.MultimodalRotary.from_config(config, interleaved=peer == QWEN2)
    assert (wrong(q, k, positions, positions)[0] - theirs[0]).abs().max() > 1e-2


def test_text_is_turned_alike_by_multimodal_and_plain_rotary() -> None:
    q, k = draw(1, 2, 9, 16), draw(1, 2, 9, 16)
    three, one = posenc.multimodal([9]), posenc.sequence(9)
    for interleaved in (False, True):
        ours = posenc.MultimodalRotary(16, (3, 3, 2), interleaved)(q, k, three, three)
        for turned, plain in zip(ours, posenc.Rotary(16)(q, k, one, one), strict=True):
            assert_equal(turned, plain)


def qwen_positions(path: str, segments: list[object], seconds: float = 1.0) -> torch.Tensor:
    """Their positions of text, images and videos, `[3, tokens]`, from a model without its layers."""
    from types import SimpleNamespace

    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel

    kind = {QWEN2_POSITIONS: Qwen2VLModel, QWEN25_POSITIONS: Qwen2_5_VLModel}[path]
    model = SimpleNamespace(
        config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2, tokens_per_second=2)),
        get_vision_position_ids=lambda *args, **options: kind.get_vision_position_ids(None, *args, **options),
    )
    types: list[int] = []
    grids: dict[int, list[list[int]]] = {1: [], 2: []}
    for segment in segments:
        if isinstance(segment, int):
            types += [0] * segment
        else:
            frames, height, width = segment
            types += [1 if frames == 1 else 2] * (frames * height * width)
            grids[1 if frames == 1 else 2].append([frames, 2 * height, 2 * width])  # before patches are merged
    ids = torch.tensor([types])
    images, videos = (torch.tensor(grids[key]) if grids[key] else None for key in (1, 2))
    options = {"second_per_grid_ts": [seconds] * len(grids[2])} if path == QWEN25_POSITIONS else {}
    return kind.get_rope_index(model, ids, ids, images, videos, **options)[0][:, 0]


SEQUENCES = [
    [7],
    [3, (1, 4, 6), 5],
    [(1, 5, 3), 2],
    [4, (3, 4, 6), 2, (1, 2, 2), 9],
    [1, (1, 16, 16), 3, (1, 10, 14), 1, (8, 9, 12), 20],
    [2, (5, 3, 2), 4, (9, 2, 2), 3],  # videos that last longer than they are wide
]


@against("MultimodalRotary", QWEN2_POSITIONS)
@pytest.mark.parametrize("segments", SEQUENCES, ids=str)
def test_multimodal_positions_equal_qwen2_vl(segments: list[object]) -> None:
    theirs = qwen_positions(QWEN2_POSITIONS, segments)
    assert torch.equal(posenc.multimodal(segments, follow="space").coordinates(), theirs.T)
    longer = any(not isinstance(segment, int) and segment[0] > max(segment[1:]) for segment in segments)
    assert torch.equal(posenc.multimodal(segments).coordinates(), theirs.T) != longer


@against("MultimodalRotary", QWEN25_POSITIONS)
@pytest.mark.parametrize("seconds", [1, 3])
@pytest.mark.parametrize("segments", SEQUENCES, ids=str)
def test_multimodal_positions_equal_qwen2_5_vl(segments: list[object], seconds: int) -> None:
    theirs = qwen_positions(QWEN25_POSITIONS, segments, seconds)
    ours = posenc.multimodal(segments, temporal_step=2 * seconds, follow="space")
    assert torch.equal(ours.coordinates(), theirs.T)


@against("XPos", LUCIDRAINS)
@pytest.mark.parametrize(("scale_base", "base"), [(512, 10000), (32, 100)])
def test_xpos_equals_rotary_embedding_torch(scale_base: int, base: int) -> None:
    from rotary_embedding_torch import RotaryEmbedding

    peer = RotaryEmbedding(10, theta=base, use_xpos=True, xpos_scale_base=scale_base)
    q, k, v = (draw(2, 3, 40, 10, dtype=torch.float32) for _ in range(3))
    turned_q, turned_k = peer.rotate_queries_and_keys(q, k)
    theirs = torch.nn.functional.scaled_dot_product_attention(turned_q, turned_k, v, is_causal=True)
    xpos = posenc.XPos(10, base=base, scale_base=scale_base)
    assert_within(posenc.attention(q, k, v, xpos, causal=True), theirs, 8 * 40 * 5)
    ours_q, ours_k = xpos(q, k)
    logits, wanted = (ours_q @ ours_k.mT).tril(), (turned_q @ turned_k.mT).tril()
    assert_within(logits, wanted, 8 * 40 * 25)
    assert ((posenc.Rotary(10, base=base, layout="interleaved")(q, k)[0] @ k.mT).tril() - wanted).abs().max() > 0.1


@against("XPos", X_TRANSFORMERS)
@pytest.mark.parametrize("scale_base", [512, 16])
def test_xpos_equals_x_transformers(scale_base: int) -> None:
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    peer = RotaryEmbedding(12, use_xpos=True, scale_base=scale_base)
    q, k, v = (draw(2, 3, 31, 12, dtype=torch.float32) for _ in range(3))
    angles, factor = peer.forward_from_seq_len(31)
    turned = apply_rotary_pos_emb(q, angles, factor), apply_rotary_pos_emb(k, angles, factor**-1)
    theirs = torch.nn.functional.scaled_dot_product_attention(*turned, v, is_causal=True)
    ours = posenc.attention(q, k, v, posenc.XPos(12, scale_base=scale_base), causal=True)
    assert_within(ours, theirs, 8 * 31 * 5)


@against("Rotary", X_TRANSFORMERS)
@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_rotary_interpolated_and_rescaled_equals_x_transformers(factor: float) -> None:
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    q = draw(2, 3, 31, 12, dtype=torch.float32)
    for options, value in [
        ({"interpolation_factor": factor}, scaling.linear(factor)),
        ({"base_rescale_factor": factor}, scaling.ntk(factor)),
    ]:
        angles, _ = RotaryEmbedding(12, **options).forward_from_seq_len(31)
        ours, _ = posenc.Rotary(12, layout="interleaved", scaling=value)(q, q)
        assert_within(ours, apply_rotary_pos_emb(q, angles), 8 * 31 * 5)
