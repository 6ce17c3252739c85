"""Every bias scheme against code that nobody here wrote; each test imports its peer itself."""

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
    beside,
    draw,
    layer_like,
    randomize,
    split_projection,
)

pytestmark = PEERS


@against("ALiBi", "transformers.models.bloom.modeling_bloom.build_alibi_tensor")
@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 20])
def test_alibi_slopes_equal_bloom(heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32).flatten(1)[:, 1].double()
    slopes = posenc.alibi_slopes(heads)
    assert slopes.dtype == torch.float64
    # A float32 power of a rounded root: the k-th carries k roundings.
    torch.testing.assert_close(slopes, theirs, rtol=2 * heads * EPS, atol=0.0)


@against(
    "ALiBi",
    "transformers.models.bloom.modeling_bloom.build_alibi_tensor",
    "transformers.models.bloom.modeling_bloom.BloomAttention",
)
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


@against("ALiBi", "x_transformers.x_transformers.AlibiPositionalBias")
@pytest.mark.parametrize("heads", [1, 3, 8, 12])
@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (1, 9), (4, 11)])
def test_alibi_equals_x_transformers(heads: int, queries: int, keys: int) -> None:
    from x_transformers.x_transformers import AlibiPositionalBias

    theirs = AlibiPositionalBias(heads)(queries, keys).double()
    last = posenc.sequence(queries, start=keys - queries)
    ours = posenc.ALiBi(heads).double()(last, posenc.sequence(keys)).double()
    torch.testing.assert_close(ours, theirs, rtol=2 * EPS, atol=0.0)


@against(
    "T5Bias",
    "transformers.models.t5.modeling_t5.T5Attention._relative_position_bucket",
    "x_transformers.x_transformers.RelativePositionBias",
)
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


@against("T5Bias", "transformers.models.t5.modeling_t5.T5Attention")
@pytest.mark.parametrize("decoder", [False, True])
def test_t5_bias_and_attention_equal_transformers(decoder: bool) -> None:
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(d_model=24, d_kv=7, num_heads=3, dropout_rate=0.0, is_decoder=decoder)
    config._attn_implementation = "eager"
    peer = randomize(T5Attention(config, has_relative_attention_bias=True, layer_idx=0))
    ours = posenc.T5Bias(3, bidirectional=not decoder).double().load_foreign(peer.state_dict(), "t5")

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


@against("T5Bias", "x_transformers.x_transformers.RelativePositionBias")
def test_t5_bias_equals_x_transformers() -> None:
    from x_transformers.x_transformers import RelativePositionBias

    peer = randomize(RelativePositionBias(scale=1.0, causal=True, heads=5))
    ours = posenc.T5Bias(5, bidirectional=False).double().load_foreign(peer.state_dict(), "t5")
    theirs = peer(3, 90)
    assert_equal(ours(posenc.sequence(3, start=87), posenc.sequence(90)), theirs)


@against("RelativePositionBias", "timm.layers.RelPosBias", "timm.layers.pos_embed_rel.gen_relative_position_index")
@pytest.mark.parametrize("shape", GRIDS)
def test_relative_position_bias_equals_swin(shape: tuple[int, int]) -> None:
    from timm.layers import RelPosBias
    from timm.layers.pos_embed_rel import gen_relative_position_index

    assert torch.equal(posenc.relative_index(shape), gen_relative_position_index(shape))
    peer = randomize(RelPosBias(shape, num_heads=3))
    ours = posenc.RelativePositionBias(3, shape).double().load_foreign(peer.state_dict(), "timm")
    assert_equal(ours(posenc.grid(*shape)), peer.get_bias()[0])


@against("RelativePositionBias", "timm.layers.RelPosBiasTf")
@pytest.mark.parametrize("shape", GRIDS)
def test_relative_position_bias_equals_maxvit(shape: tuple[int, int]) -> None:
    # One-hot products in place of an index, and a table that ascends by key - query: turned round on both axes.
    from timm.layers import RelPosBiasTf

    peer = randomize(RelPosBiasTf(shape, num_heads=2))
    ours = posenc.RelativePositionBias(2, shape).double().load_foreign(peer.state_dict(), "maxvit")
    assert_equal(ours(posenc.grid(*shape)), peer.get_bias())


@against("RelativePositionBias", "timm.models.levit.Attention")
@pytest.mark.parametrize("shape", GRIDS)
def test_symmetric_relative_position_bias_equals_levit(shape: tuple[int, int]) -> None:
    # One number for every sign of a relative position, on each axis.
    from timm.models.levit import Attention

    peer = randomize(Attention(8, 4, num_heads=2, resolution=shape))
    theirs = peer.get_attention_biases(torch.device("cpu"))
    ours = posenc.RelativePositionBias(2, shape, symmetric=True).double().load_foreign(peer.state_dict(), "levit")
    assert_equal(ours(posenc.grid(*shape)), theirs)


@against("RelativePositionBias", "timm.layers.RelPosBias", "timm.layers.pos_embed_rel.gen_relative_position_index")
@pytest.mark.parametrize("shape", GRIDS)
def test_relative_position_bias_with_class_token_equals_beit(shape: tuple[int, int]) -> None:
    from timm.layers import RelPosBias
    from timm.layers.pos_embed_rel import gen_relative_position_index

    peer = randomize(RelPosBias(shape, num_heads=3, prefix_tokens=1))
    ours = posenc.RelativePositionBias(3, shape, prefix_bias=True).double().load_foreign(peer.state_dict(), "timm")
    assert_equal(ours(posenc.grid(*shape, prefix=1)), peer.get_bias()[0])
    numbered = gen_relative_position_index(shape, class_token=True)
    assert_equal(ours(posenc.grid(*shape, prefix=1)), peer.relative_position_bias_table.T[:, numbered])
    listed = posenc.coordinates(posenc.grid(*shape).coordinates(), prefix=1)  # the same tokens, not known to be a grid
    assert_equal(ours(listed), peer.get_bias()[0])


@against("RelativePositionBias", "timm.models.swin_transformer.WindowAttention")
@pytest.mark.parametrize("shape", [(3, 5), (5, 2)])
def test_self_attention_equals_swin_layer(shape: tuple[int, int]) -> None:
    from timm.models.swin_transformer import WindowAttention

    peer = randomize(WindowAttention(15, 3, window_size=shape))
    bias = posenc.RelativePositionBias(3, shape).double().load_foreign(peer.state_dict(), "swin")
    ours = layer_like(15, 3, bias, projections=[*split_projection(peer.qkv), peer.proj])
    x = draw(4, math.prod(shape), 15)
    torch.testing.assert_close(ours(x, positions=posenc.grid(*shape)), peer(x), rtol=1e-10, atol=1e-9)


@against("RelativePositionBias", "timm.models.swin_transformer.WindowAttention")
def test_self_attention_equals_shifted_swin_layer() -> None:
    # A shifted window holds pieces of other windows, which a mask keeps apart: a mask per batch row.
    from timm.models.swin_transformer import WindowAttention

    shape = (3, 5)
    peer = randomize(WindowAttention(15, 3, window_size=shape))
    bias = posenc.RelativePositionBias(3, shape).double().load_foreign(peer.state_dict(), "swin")
    ours = layer_like(15, 3, bias, projections=[*split_projection(peer.qkv), peer.proj])
    x, piece = draw(4, 15, 15), torch.randint(0, 2, (4, 15))
    together = piece[:, :, None] == piece[:, None, :]
    theirs = peer(x, torch.zeros(4, 15, 15, dtype=torch.float64).masked_fill(~together, -torch.inf))
    mixed = ours(x, positions=posenc.grid(*shape), mask=together[:, None])
    torch.testing.assert_close(mixed, theirs, rtol=1e-10, atol=1e-9)


@against("RelativePositionBias", "timm.models.beit.Attention")
def test_self_attention_equals_beit_layer() -> None:
    from timm.models.beit import Attention

    shape = (2, 4)
    peer = randomize(Attention(18, 3, qkv_bias=True, window_size=shape))
    bias = posenc.RelativePositionBias(3, shape, prefix_bias=True).double().load_foreign(peer.state_dict(), "beit")
    packed_bias = torch.cat([peer.q_bias, torch.zeros_like(peer.q_bias), peer.v_bias])  # keys have none
    ours = layer_like(18, 3, bias, projections=[*split_projection(peer.qkv, packed_bias), peer.proj])
    x = draw(2, 9, 18)
    torch.testing.assert_close(ours(x, positions=posenc.grid(*shape, prefix=1)), peer(x), rtol=1e-10, atol=1e-9)


@against("ALiBi", "transformers.models.bloom.modeling_bloom.build_alibi_tensor")
@pytest.mark.parametrize("heads", [2, 5, 8])
def test_signed_alibi_is_bloom_less_a_constant_a_query(heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, 9), heads, torch.float32).double()  # m j, [heads, 1, keys]
    for learned in (False, True):
        ours = posenc.ALiBi(heads, signed=True, learned=learned)(posenc.sequence(9)).double()
        constant = (theirs - ours)[:, :, :1]  # m i
        torch.testing.assert_close(constant[:, :, 0], theirs[:, 0], rtol=2 * heads * EPS, atol=8 * EPS)
        torch.testing.assert_close(ours + constant, theirs.expand_as(ours), rtol=2 * heads * EPS, atol=8 * EPS)


@against("T5Bias", "transformers.models.t5.modeling_t5.T5Attention")
def test_t5_bias_is_found_in_a_whole_model() -> None:
    from transformers import T5Config, T5Model

    config = T5Config(d_model=12, d_kv=4, d_ff=8, num_heads=3, num_layers=1, vocab_size=5, feed_forward_proj="relu")
    peer = randomize(T5Model(config))
    for part, bidirectional in (("encoder", True), ("decoder", False)):
        ours = posenc.T5Bias(3, bidirectional=bidirectional).double()
        ours.load_foreign(peer.state_dict(), "t5", prefix=f"{part}.block.0.layer.0.SelfAttention.")
        attention = getattr(peer, part).block[0].layer[0].SelfAttention
        assert_equal(ours(posenc.sequence(140)), attention.compute_bias(140, 140)[0])


@against("RelativePositionBias", "timm.models.swin_transformer.SwinTransformer")
def test_relative_position_bias_is_found_in_a_whole_swin() -> None:
    from timm.models.swin_transformer import SwinTransformer

    peer = randomize(SwinTransformer(32, 4, 3, 2, embed_dim=12, depths=(2, 1), num_heads=(2, 3), window_size=4))
    for place in ("layers.0.blocks.1.attn.", "layers.1.blocks.0.attn."):
        attention = peer.get_submodule(place[:-1])
        ours = posenc.RelativePositionBias(attention.num_heads, (4, 4)).double()
        ours.load_foreign(peer.state_dict(), "swin", prefix=place)
        assert_equal(ours(posenc.grid(4, 4)), attention._get_rel_pos_bias()[0])


@against("RelativePositionBias", "transformers.models.swin.modeling_swin.SwinAttention")
def test_self_attention_equals_swin_layer_of_transformers() -> None:
    from transformers import SwinConfig
    from transformers.models.swin.modeling_swin import SwinAttention

    config = SwinConfig(attention_probs_dropout_prob=0.0)
    config._attn_implementation = "eager"
    peer = randomize(SwinAttention(config, 15, 3, 4))
    bias = posenc.RelativePositionBias(3, (4, 4)).double()
    bias.load_foreign(peer.state_dict(), "swin", prefix="relative_position_bias.")
    ours = layer_like(15, 3, bias, projections=[peer.q_proj, peer.k_proj, peer.v_proj, peer.o_proj])
    x = draw(2, 16, 15) / 4  # transformers takes the softmax in float32, which is exact to 1e-7 of the logits
    torch.testing.assert_close(ours(x, positions=posenc.grid(4, 4)), peer(x)[0], rtol=1e-5, atol=1e-5)


@against("RelativePositionBias", "transformers.models.beit.modeling_beit.BeitRelativePositionBias")
@pytest.mark.parametrize("size", [3, 5])
def test_relative_position_bias_equals_beit_of_transformers(size: int) -> None:
    # Square grids alone: on others transformers 5.24 takes the height of its table for the width.
    from transformers import BeitConfig
    from transformers.models.beit.modeling_beit import BeitAttention, BeitRelativePositionBias

    config = BeitConfig(
        image_size=2 * size, patch_size=2, hidden_size=12, num_attention_heads=3, attention_probs_dropout_prob=0.0
    )
    config._attn_implementation = "eager"
    peer, layer = randomize(BeitRelativePositionBias(config)), randomize(BeitAttention(config))
    bias = posenc.RelativePositionBias(3, (size, size), prefix_bias=True).double()
    bias.load_foreign(peer.state_dict(), "beit")
    theirs, positions = peer((size, size)), posenc.grid(size, size, prefix=1)
    assert_equal(bias(positions), theirs[0])
    ours = layer_like(12, 3, bias, projections=[layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj])
    x = draw(2, 1 + size * size, 12) / 4
    torch.testing.assert_close(ours(x, positions=positions), layer(x, theirs)[0], rtol=1e-5, atol=1e-5)


@against("RelativePositionBias", "timm.models.beit.RelativePositionBias")
@pytest.mark.parametrize("shape", GRIDS)
def test_relative_position_bias_equals_shared_beit(shape: tuple[int, int]) -> None:
    from timm.models.beit import RelativePositionBias

    peer = randomize(RelativePositionBias(shape, 3))
    ours = posenc.RelativePositionBias(3, shape, prefix_bias=True).double().load_foreign(peer.state_dict(), "beit")
    assert_equal(ours(posenc.grid(*shape, prefix=1)), peer())


@against(
    "RelativePositionBias",
    "timm.models.levit.AttentionDownsample",
    "transformers.models.levit.modeling_levit.LevitAttention",
    "transformers.models.levit.modeling_levit.LevitAttentionSubsample",
)
@pytest.mark.parametrize(("size", "stride"), [(5, 1), (6, 2), (7, 3)])
def test_symmetric_relative_position_bias_equals_levit_with_fewer_queries(size: int, stride: int) -> None:
    # Queries are every `stride`-th cell, keys are all: grids of different sizes on the same coordinates.
    from timm.models.levit import AttentionDownsample
    from transformers.models.levit.modeling_levit import LevitAttention, LevitAttentionSubsample

    few = -(-size // stride)
    peers = [LevitAttentionSubsample(8, 8, 4, 2, 2, stride, size, few)]
    peers += [LevitAttention(8, 4, 2, 2, size)] if stride == 1 else []
    cases = [(peer, (size, size), (few, few)) for peer in peers]
    cases += [(AttentionDownsample(8, 8, 4, 2, stride=stride, resolution=(size, 4)), (size, 4), (few, -(-4 // stride)))]
    for peer, keys, queries in cases:
        peer = randomize(peer)
        ours = posenc.RelativePositionBias(2, keys, symmetric=True).double().load_foreign(peer.state_dict(), "levit")
        theirs = peer.get_attention_biases(torch.device("cpu"))
        assert_equal(ours(posenc.grid(*queries, step=stride), posenc.grid(*keys)), theirs)


def shrink(network: torch.nn.Module) -> None:
    """Weights drawn small enough that the sigmoid after the network does not saturate."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(0.2 if parameter.ndim == 2 else 1.0)


@against("ContinuousPositionBias", "timm.layers.RelPosMlp")
@pytest.mark.parametrize("pretrained", [None, (2, 6)])
@pytest.mark.parametrize("shape", [(3, 5), (5, 2), (4, 4)])
def test_continuous_position_bias_equals_timm(shape: tuple[int, int], pretrained: tuple[int, int] | None) -> None:
    from timm.layers import RelPosMlp

    peer = RelPosMlp(shape, num_heads=3, hidden_dim=40, mode="swin", pretrained_window_size=pretrained or (0, 0))
    shrink(randomize(peer))
    ours = posenc.ContinuousPositionBias(3, shape, pretrained, hidden=40).double()
    ours.load_foreign(peer.state_dict(), "timm")
    theirs = peer.get_bias()[0]
    assert theirs.std() > 0.2
    assert_within(ours(posenc.grid(*shape)), theirs, 64)  # its coordinates are rounded to float32
    framed = RelPosMlp(shape, num_heads=3, hidden_dim=40, mode="swin", prefix_tokens=2).double().eval()
    ours = posenc.ContinuousPositionBias(3, shape, hidden=40).double().load_foreign(framed.state_dict(), "timm")
    assert_within(ours(posenc.grid(*shape, prefix=2)), framed.get_bias()[0], 64)


@against(
    "ContinuousPositionBias",
    "timm.models.swin_transformer_v2.WindowAttention",
    "transformers.models.swinv2.modeling_swinv2.Swinv2SelfAttention",
)
@pytest.mark.parametrize("pretrained", [None, (2, 6)])
@pytest.mark.parametrize("shape", [(3, 5), (1, 4), (4, 1)])
def test_continuous_position_bias_and_attention_equal_swinv2(
    shape: tuple[int, int], pretrained: tuple[int, int] | None
) -> None:
    from timm.models.swin_transformer_v2 import WindowAttention
    from transformers import Swinv2Config
    from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

    x, positions = draw(4, math.prod(shape), 15), posenc.grid(*shape)
    peer = randomize(WindowAttention(15, shape, 3, pretrained_window_size=pretrained or (0, 0)))
    shrink(peer.cpb_mlp)
    bias = posenc.ContinuousPositionBias(3, shape, pretrained).double().load_foreign(peer.state_dict(), "swinv2")
    packed_bias = torch.cat([peer.q_bias, torch.zeros_like(peer.q_bias), peer.v_bias])
    projections = split_projection(peer.qkv, packed_bias)
    mixed = cosine_attention(x, projections, peer.logit_scale, bias, positions)
    torch.testing.assert_close(peer.proj(mixed), peer(x), rtol=1e-5, atol=1e-5)

    if 1 in shape and pretrained is None:
        return  # transformers divides 0 by 0, or not at all
    config = Swinv2Config(qkv_bias=True, attention_probs_dropout_prob=0.0)
    peer = randomize(Swinv2SelfAttention(config, 15, 3, shape, pretrained or [0, 0]))
    shrink(peer.continuous_position_bias_mlp)
    bias.load_foreign(peer.state_dict(), "swinv2")
    mixed = cosine_attention(x, [peer.query, peer.key, peer.value], peer.logit_scale, bias, positions)
    torch.testing.assert_close(mixed, peer(x)[0], rtol=1e-5, atol=1e-5)


def cosine_attention(
    x: torch.Tensor,
    projections: list[torch.nn.Linear],
    logit_scale: torch.Tensor,
    bias: posenc.ContinuousPositionBias,
    positions: posenc.Positions,
) -> torch.Tensor:
    """Swin-v2's: queries and keys of length one, and a trained scale a head."""
    q, k, v = (part(x).unflatten(-1, (bias.num_heads, -1)).transpose(1, 2) for part in projections)
    q, k = (torch.nn.functional.normalize(part, dim=-1) for part in (q, k))
    q = q * logit_scale.clamp(max=math.log(100)).exp()
    return posenc.attention(q, k, v, bias, positions=positions, scale=1.0).transpose(1, 2).flatten(2)


def second(
    name: str, encoding: posenc.Encoding, queries: posenc.Positions, keys: posenc.Positions, **arguments
) -> None:
    """The encoding against the second loop of its scheme, both in float64."""
    import second_loops

    state = {name.replace(".", "_"): tensor.numpy() for name, tensor in encoding.state_dict().items()}
    places = (layout.coordinates()[:, 0].numpy() for layout in (queries, keys))
    theirs = getattr(second_loops, name)(*places, **{**arguments, **state})
    ours = encoding.term(queries, keys, dtype=torch.float64).dense()[0]
    assert_equal(ours.detach(), torch.as_tensor(theirs, dtype=torch.float64))


WHERE = [
    (posenc.sequence(7), posenc.sequence(7)),
    (posenc.sequence(2, start=30), posenc.sequence(32)),
    (posenc.sequence(5), posenc.coordinates([[0.5], [9.25], [40.0]])),
]


@beside("Kerple", "kerple")
@pytest.mark.parametrize(("queries", "keys"), WHERE)
@pytest.mark.parametrize("kind", ["logarithmic", "power"])
def test_kerple_equals_a_second_loop(kind: str, queries: posenc.Positions, keys: posenc.Positions) -> None:
    second("kerple", randomize(posenc.Kerple(3, kind)), queries, keys, num_heads=3, kind=kind)


@beside("Fire", "fire")
@pytest.mark.parametrize(("queries", "keys"), WHERE)
@pytest.mark.parametrize("threshold", [4.0, 512.0])
def test_fire_equals_a_second_loop(threshold: float, queries: posenc.Positions, keys: posenc.Positions) -> None:
    encoding = posenc.Fire(3, hidden=7, threshold=threshold).double()
    with torch.no_grad():
        encoding.c.uniform_(-2, 2)
        encoding.threshold.mul_(torch.empty(1, dtype=torch.float64).uniform_(-2, 2))
    second("fire", encoding, queries, keys, num_heads=3, hidden=7)


@beside("Sandwich", "sandwich")
@pytest.mark.parametrize(("queries", "keys"), WHERE)
@pytest.mark.parametrize("dim", [2, 10, 128])
def test_sandwich_equals_a_second_loop(dim: int, queries: posenc.Positions, keys: posenc.Positions) -> None:
    second("sandwich", posenc.Sandwich(3, dim), queries, keys, num_heads=3, dim=dim)
