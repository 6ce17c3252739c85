"""Every content scheme against code that nobody here wrote; each test imports its peer itself."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import posenc
from peers import (
    GRIDS,
    PEERS,
    against,
    assert_equal,
    assert_within,
    beside,
    draw,
    layer_like,
    randomize,
    set_table,
    split_projection,
)

pytestmark = PEERS

TRANSFORMERS = "transformers.models."
WAV2VEC2_BERT = TRANSFORMERS + "wav2vec2_bert.modeling_wav2vec2_bert."
XLNET = TRANSFORMERS + "xlnet.modeling_xlnet.XLNetRelativeAttention"
PARAKEET = TRANSFORMERS + "parakeet.modeling_parakeet."
DEBERTA = TRANSFORMERS + "deberta_v2.modeling_deberta_v2."
ONE_AXIS = "self_attention_cv.pos_embeddings.relative_embeddings_1D."
SAM = "timm.models.vision_transformer_sam."


# --- Shaw ---


@against("Shaw", WAV2VEC2_BERT + "_apply_relative_key_position_encoding")
@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (4, 11), (6, 3)])
@pytest.mark.parametrize(("left", "right"), [(1, 1), (3, 3), (20, 20), (4, 1), (5, 0)])
def test_shaw_keys_equal_wav2vec2_bert(left: int, right: int, queries: int, keys: int) -> None:
    # Their rows ascend by key - query, and may be clipped unequally left and right (64 and 8 in the released model).
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import _apply_relative_key_position_encoding

    module = SimpleNamespace(
        left_max_position_embeddings=left,
        right_max_position_embeddings=right,
        distance_embedding=nn.Embedding(left + right + 1, 6).double(),
        scaling=1.0,
    )
    q, k = draw(2, 3, queries, 6), draw(2, 3, keys, 6)
    _, theirs = _apply_relative_key_position_encoding(module, q, k)
    state = {"distance_embedding.weight": module.distance_embedding.weight}
    ours = posenc.Shaw(6, left, values=False).double().load_foreign(state, "wav2vec2_bert")
    assert_equal(ours(q, posenc.sequence(queries), posenc.sequence(keys)), theirs)


@against("Shaw", WAV2VEC2_BERT + "Wav2Vec2BertSelfAttention")
@pytest.mark.parametrize("source", ["shaw", "wav2vec2_bert"])
def test_self_attention_with_shaw_keys_equals_wav2vec2_bert_layer(source: str) -> None:
    peer = wav2vec2_bert_layer("relative_key")
    shaw = posenc.Shaw(6, 4, values=False).double()
    state = {f"encoder.3.{name}": tensor for name, tensor in peer.state_dict().items()}
    assert shaw.load_foreign(state, source, prefix="encoder.3.") is shaw
    ours = layer_like(18, 3, shaw, projections=[peer.linear_q, peer.linear_k, peer.linear_v, peer.linear_out])
    x = draw(2, 13, 18)
    torch.testing.assert_close(ours(x), peer(x)[0], rtol=1e-10, atol=1e-9)


def wav2vec2_bert_layer(kind: str) -> nn.Module:
    from transformers import Wav2Vec2BertConfig
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

    config = Wav2Vec2BertConfig(
        hidden_size=18,
        num_attention_heads=3,
        position_embeddings_type=kind,
        left_max_position_embeddings=4,
        right_max_position_embeddings=2,
        attention_dropout=0.0,
        attn_implementation="eager",
    )
    return randomize(Wav2Vec2BertSelfAttention(config))


@against("Shaw", TRANSFORMERS + "vits.modeling_vits.VitsAttention")
@pytest.mark.parametrize("length", [1, 4, 7])
def test_self_attention_with_shaw_keys_and_values_equals_vits_layer(length: int) -> None:
    # VITS adds nothing beyond its window where Shaw clips, so the window covers the sequence.
    from transformers import VitsConfig
    from transformers.models.vits.modeling_vits import VitsAttention

    config = VitsConfig(hidden_size=18, num_attention_heads=3, window_size=6, attention_dropout=0.0)
    peer = randomize(VitsAttention(config))
    shaw = posenc.Shaw(6, 6).double()
    shaw.load_foreign(peer.state_dict(), "vits")
    ours = layer_like(18, 3, shaw, projections=[peer.q_proj, peer.k_proj, peer.v_proj, peer.out_proj])
    x = draw(2, length, 18)
    theirs, weights = peer(x, output_attentions=True)
    torch.testing.assert_close(ours(x), theirs, rtol=1e-10, atol=1e-9)

    relative_weights = peer._absolute_position_to_relative_position(weights.flatten(0, 1))
    rows = peer._get_relative_embeddings(peer.emb_rel_v, length)
    assert_equal(shaw.values(weights), (relative_weights @ rows).unflatten(0, (2, 3)))


# --- relative logits ---


@against("RelativeLogits", ONE_AXIS + "relative_to_absolute")
@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_relative_to_absolute_equals_self_attention_cv(length: int) -> None:
    from self_attention_cv.pos_embeddings.relative_embeddings_1D import relative_to_absolute

    x = draw(2, 3, length, 2 * length - 1)
    assert torch.equal(posenc.relative_to_absolute(x), relative_to_absolute(x))


@against("RelativeLogits", PARAKEET + "ParakeetEncoderAttention")
@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_relative_to_absolute_equals_parakeet(length: int) -> None:
    from transformers.models.parakeet.modeling_parakeet import ParakeetEncoderAttention

    x = draw(2, 3, length, 2 * length - 1)
    theirs = ParakeetEncoderAttention._rel_shift(None, x)[..., :length]
    assert torch.equal(posenc.relative_to_absolute(x), theirs)


@against("RelativeLogits", XLNET)
@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_skew_equals_transformer_xl_shift(length: int) -> None:
    # Transformer-XL's shift of [L, L + 1] drops the first L numbers; with a column before it, that is the skew.
    from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

    x = draw(2, 3, length, length)
    theirs = XLNetRelativeAttention.rel_shift_bnij(nn.functional.pad(x, (1, 0)), klen=length)
    assert torch.equal(posenc.skew(x), theirs)


@against("RelativeLogits", ONE_AXIS + "RelPosEmb1D")
@pytest.mark.parametrize("length", [1, 6, 9])
def test_relative_logits_1d_equal_self_attention_cv(length: int) -> None:
    # Their rows ascend by key - query. One table for all heads: the peer shares it whatever it is told.
    from self_attention_cv.pos_embeddings.relative_embeddings_1D import RelPosEmb1D

    peer = randomize(RelPosEmb1D(length, 6))
    ours = posenc.RelativeLogits(6, (length,)).double().load_foreign(peer.state_dict(), "self_attention_cv")
    q = draw(2, 3, length, 6)
    assert_equal(ours(q), peer(q))


@against("RelativeLogits", ONE_AXIS + "rel_pos_emb_1d")
@pytest.mark.parametrize("length", [1, 6, 9])
def test_relative_logits_1d_per_head_equal_self_attention_cv(length: int) -> None:
    from self_attention_cv.pos_embeddings.relative_embeddings_1D import rel_pos_emb_1d

    table, q = draw(3, 2 * length - 1, 6), draw(2, 3, length, 6)
    ours = posenc.RelativeLogits(6, (length,), num_heads=3).double()
    ours.load_foreign({"rel_pos_emb": table}, "self_attention_cv")
    assert_equal(ours(q), rel_pos_emb_1d(q, table, shared_heads=False))


def xlnet_attention(heads: int, head_dim: int) -> nn.Module:
    from transformers import XLNetConfig
    from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

    config = XLNetConfig(d_model=heads * head_dim, n_head=heads, dropout=0.0)
    peer = randomize(XLNetRelativeAttention(config))
    for bias in (peer.r_r_bias, peer.r_w_bias, peer.r_s_bias):  # Transformer-XL's u and v: none here
        nn.init.zeros_(bias)
    return peer


@against("RelativeLogits", XLNET)
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


@against("RelativeLogits", XLNET)
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


@against("RelativeLogits", "timm.layers.bottleneck_attn.PosEmbedRel")
@pytest.mark.parametrize("shape", GRIDS)
def test_relative_logits_2d_equal_botnet(shape: tuple[int, int]) -> None:
    # Their rows ascend by key - query; one pair of tables for all heads.
    from timm.layers.bottleneck_attn import PosEmbedRel

    peer = randomize(PosEmbedRel(shape, dim_head=6, scale=1.0))
    ours = posenc.RelativeLogits(6, shape).double().load_foreign(peer.state_dict(), "botnet")
    q = draw(2, 3, math.prod(shape), 6)
    assert_equal(ours(q, posenc.grid(*shape)), peer(q.flatten(0, 1)).unflatten(0, (2, 3)))


@against("RelativeLogits", "timm.layers.bottleneck_attn.BottleneckAttn")
@pytest.mark.parametrize("scaled", [True, False])
def test_relative_logits_2d_attention_equals_botnet_layer(scaled: bool) -> None:
    from timm.layers.bottleneck_attn import BottleneckAttn

    shape = (3, 5)
    peer = BottleneckAttn(18, feat_size=shape, num_heads=3, dim_head=8, scale_pos_embed=scaled)
    peer = randomize(peer)
    ours = posenc.RelativeLogits(8, shape, scaled=scaled).double()
    ours.load_foreign(peer.state_dict(), "botnet", prefix="pos_embed.")
    x = draw(2, 18, *shape)
    sizes = [peer.dim_out_qk, peer.dim_out_qk, peer.dim_out_v]
    q, k, v = (
        part.flatten(2).unflatten(1, (3, -1)).transpose(2, 3).contiguous() for part in peer.qkv(x).split(sizes, dim=1)
    )
    mixed = posenc.attention(q, k, v, ours, positions=posenc.grid(*shape))  # their values are narrower than queries
    assert_equal(mixed.transpose(2, 3).reshape(2, 18, *shape), peer(x))


@against(
    "RelativeLogits",
    SAM + "get_decomposed_rel_pos_bias",
    TRANSFORMERS + "vitdet.modeling_vitdet.add_decomposed_relative_positions",
)
@pytest.mark.parametrize("shape", GRIDS)
def test_relative_logits_2d_equal_sam_and_vitdet(shape: tuple[int, int]) -> None:
    # These rows ascend by query - key, as ours do.
    from timm.models.vision_transformer_sam import get_decomposed_rel_pos_bias
    from transformers.models.vitdet.modeling_vitdet import add_decomposed_relative_positions

    tokens = math.prod(shape)
    tables = [draw(2 * size - 1, 6) for size in shape]
    ours = posenc.RelativeLogits(6, shape, scaled=False).double()
    ours.load_foreign({"rel_pos_h": tables[0], "rel_pos_w": tables[1]}, "vitdet")
    q = draw(2, 3, tokens, 6)
    flat, mine = q.flatten(0, 1), ours(q, posenc.grid(*shape)).flatten(0, 1)
    assert_equal(mine, get_decomposed_rel_pos_bias(flat, *tables, shape, shape))
    zeros = torch.zeros(6, tokens, tokens, dtype=torch.float64)
    assert_equal(mine, add_decomposed_relative_positions(zeros, flat, *tables, shape, shape))


@against("RelativeLogits", SAM + "Attention")
@pytest.mark.parametrize("shape", [(3, 5), (5, 2)])
def test_self_attention_equals_sam_layer(shape: tuple[int, int]) -> None:
    from timm.models.vision_transformer_sam import Attention

    peer = randomize(Attention(18, 3, use_rel_pos=True, input_size=shape))
    logits = posenc.RelativeLogits(6, shape, scaled=False).double().load_foreign(peer.state_dict(), "sam")
    ours = layer_like(18, 3, logits, projections=[*split_projection(peer.qkv), peer.proj])
    x = draw(2, *shape, 18)
    mixed = ours(x.flatten(1, 2), positions=posenc.grid(*shape)).unflatten(1, shape)
    torch.testing.assert_close(mixed, peer(x), rtol=1e-10, atol=1e-9)


# --- sinusoids: without a projection, and Transformer-XL ---


@against("SinusoidalLogits", PARAKEET + "ParakeetEncoderRelPositionalEncoding")
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


@against("SinusoidalLogits", XLNET)
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


def sinusoids(length: int, dim: int, alternating: bool, first: int | None = None) -> Tensor:
    """Sinusoids of the relative positions length - 1 (or `first`) down to -(length - 1), in float64."""
    positions = torch.arange(length - 1 if first is None else first, -length, -1, dtype=torch.float64)
    angles = positions[:, None] * 10000.0 ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if alternating:
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
    return torch.cat([angles.sin(), angles.cos()], -1)


@against("TransformerXL", XLNET)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("memory", [0, 3])
@pytest.mark.parametrize("length", [1, 5, 8])
def test_transformer_xl_equals_xlnet_layer(length: int, memory: int, causal: bool) -> None:
    # One whole layer, with and without a memory of earlier tokens; it is length-first, and projects without biases.
    from transformers import XLNetConfig
    from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

    config = XLNetConfig(d_model=18, n_head=3, dropout=0.0)
    peer, keys = randomize(XLNetRelativeAttention(config)), memory + length
    x, seen_before = draw(length, 2, 18), draw(memory, 2, 18)
    rows = sinusoids(length + 1, 18, alternating=False, first=keys)[:, None].expand(-1, 2, -1)  # keys ... -length
    mask = None
    if causal:
        mask = torch.ones(length, keys, dtype=torch.float64).triu(memory + 1)[:, :, None, None].expand(-1, -1, 2, 3)
    theirs = peer(x, None, mask, None, rows, None, mems=seen_before if memory else None)[0]

    encoding = posenc.TransformerXL(3, 6).double().load_foreign(peer.state_dict(), "xlnet")
    everything = torch.cat([seen_before, x])
    q, k, v = (
        torch.einsum("ibm,mhd->bhid", given, weight)
        for given, weight in ((x, peer.q), (everything, peer.k), (everything, peer.v))
    )
    mixed = torch.einsum("bhid,mhd->ibm", posenc.attention(q, k, v, encoding, causal=causal), peer.o)
    torch.testing.assert_close(peer.layer_norm(mixed + x), theirs, rtol=1e-10, atol=1e-9)


@against("TransformerXL", XLNET)
@pytest.mark.parametrize("length", [1, 6])
def test_transformer_xl_logits_equal_xlnet(length: int) -> None:
    peer = xlnet_attention(heads=3, head_dim=6)
    for bias in (peer.r_r_bias, peer.r_w_bias):
        nn.init.normal_(bias)
    encoding = posenc.TransformerXL(3, 6).double().load_foreign(peer.state_dict(), "xlnet")
    q, k = draw(2, 3, length, 6), draw(2, 3, length, 6)
    rows = torch.einsum("jm,mhd->jhd", sinusoids(length, 18, alternating=False, first=length), peer.r)
    shifted = peer.rel_shift_bnij(
        torch.einsum("bhid,jhd->bhij", q + peer.r_r_bias[:, None], rows[:, :, :]), klen=length
    )
    theirs = shifted + torch.einsum("hd,bhjd->bhj", peer.r_w_bias, k)[:, :, None]
    assert_equal(encoding(q, k=k), theirs)


@against("TransformerXL", PARAKEET + "ParakeetEncoderAttention")
@pytest.mark.parametrize("length", [1, 5, 8])
def test_transformer_xl_equals_parakeet_layer(length: int) -> None:
    # Their own softmax is float32; torch's is not.
    from transformers import ParakeetEncoderConfig
    from transformers.models.parakeet.modeling_parakeet import ParakeetEncoderAttention

    config = ParakeetEncoderConfig(
        hidden_size=24, num_attention_heads=3, num_key_value_heads=3, attention_dropout=0.0, attn_implementation="sdpa"
    )
    peer, x = randomize(ParakeetEncoderAttention(config, layer_idx=0)), draw(2, length, 24)
    theirs = peer(x, sinusoids(length, 24, alternating=True).expand(2, -1, -1))[0]
    encoding = posenc.TransformerXL(3, 8).double().load_foreign(peer.state_dict(), "parakeet")
    ours = layer_like(24, 3, encoding, projections=[peer.q_proj, peer.k_proj, peer.v_proj, peer.o_proj])
    torch.testing.assert_close(ours(x), theirs, rtol=1e-10, atol=1e-9)


@against("TransformerXL", WAV2VEC2_BERT + "Wav2Vec2BertSelfAttention")
@pytest.mark.parametrize("length", [1, 5, 8])
def test_transformer_xl_equals_conformer_layer(length: int) -> None:
    peer, x = wav2vec2_bert_layer("relative"), draw(2, length, 18)
    theirs = peer(x, relative_position_embeddings=sinusoids(length, 18, alternating=True)[None])[0]
    encoding = posenc.TransformerXL(3, 6).double().load_foreign(peer.state_dict(), "conformer")
    ours = layer_like(18, 3, encoding, projections=[peer.linear_q, peer.linear_k, peer.linear_v, peer.linear_out])
    torch.testing.assert_close(ours(x), theirs, rtol=1e-10, atol=1e-9)


# --- queries and keys on grids of different sizes ---

UNEQUAL = [((8, 6), (4, 3)), ((4, 3), (8, 6)), ((6, 4), (6, 2)), ((2, 9), (6, 3)), ((8, 8), (2, 2)), ((3, 5), (3, 5))]


def uneven(queries: tuple[int, int], keys: tuple[int, int]) -> tuple[list[int], posenc.Positions, posenc.Positions]:
    """The finer size of each axis, and both layouts in its units, as MViTv2 and SAM count: from the last key.

    A key pooled by r stands at r index + r - 1, and a pooled query at r index.
    """
    sizes = [max(pair) for pair in zip(queries, keys, strict=True)]
    apart = torch.tensor([size // count for size, count in zip(sizes, keys, strict=True)])
    query_positions = posenc.grid(*queries, step=[size // count for size, count in zip(sizes, queries, strict=True)])
    places = posenc.grid(*keys).coordinates() * apart + apart - 1
    return sizes, query_positions, posenc.coordinates(places, extent=tuple(sizes))


@against(
    "RelativeLogits",
    "timm.models.mvitv2.cal_rel_pos_type",
    SAM + "get_decomposed_rel_pos_bias",
    TRANSFORMERS + "vitdet.modeling_vitdet.add_decomposed_relative_positions",
)
@pytest.mark.parametrize(("queries", "keys"), UNEQUAL)
def test_decomposed_logits_of_unequal_grids_equal_mvit_sam_and_vitdet(
    queries: tuple[int, int], keys: tuple[int, int]
) -> None:
    from timm.models.mvitv2 import cal_rel_pos_type
    from timm.models.vision_transformer_sam import get_decomposed_rel_pos_bias
    from transformers.models.vitdet.modeling_vitdet import add_decomposed_relative_positions

    sizes, positions, key_positions = uneven(queries, keys)
    tables = [draw(2 * size - 1, 6) for size in sizes]
    encoding = posenc.RelativeLogits(6, sizes, scaled=False).double()
    encoding.load_foreign({"rel_pos_h": tables[0], "rel_pos_w": tables[1]}, "mvitv2")
    q = draw(2, 3, math.prod(queries), 6)
    ours, flat = encoding(q, positions, key_positions), q.flatten(0, 1)
    zeros = torch.zeros(2, 3, math.prod(queries), math.prod(keys), dtype=torch.float64)
    assert_equal(ours, cal_rel_pos_type(zeros.clone(), q, False, queries, keys, *tables))
    assert_equal(ours.flatten(0, 1), get_decomposed_rel_pos_bias(flat, *tables, queries, keys))
    assert_equal(
        ours.flatten(0, 1), add_decomposed_relative_positions(zeros.flatten(0, 1), flat, *tables, queries, keys)
    )


@against("RelativeLogits", "timm.models.mvitv2.cal_rel_pos_type")
@pytest.mark.parametrize(("queries", "keys"), UNEQUAL)
def test_pooled_keys_on_a_grid_with_steps_read_the_same_rows(queries: tuple[int, int], keys: tuple[int, int]) -> None:
    # With keys at multiples of the step, the tables begin r - 1 rows later: what is read is the same.
    from timm.models.mvitv2 import cal_rel_pos_type

    sizes, positions, _ = uneven(queries, keys)
    steps = [size // count for size, count in zip(sizes, keys, strict=True)]
    tables = [draw(2 * size - 1, 6) for size in sizes]
    encoding = posenc.RelativeLogits(6, sizes, scaled=False).double()
    for ours, table, step in zip(encoding.tables, tables, steps, strict=True):
        set_table(ours, table.roll(step - 1, 0)[None])
    q = draw(2, 3, math.prod(queries), 6)
    zeros = torch.zeros(2, 3, math.prod(queries), math.prod(keys), dtype=torch.float64)
    theirs = cal_rel_pos_type(zeros, q, False, queries, keys, *tables)
    assert_equal(encoding(q, positions, posenc.grid(*keys, step=steps)), theirs)


@against("RelativeLogits", "timm.models.mvitv2.MultiScaleAttention")
@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize(("query_stride", "key_stride"), [(1, 2), (2, 1), (1, 4), (2, 2)])
def test_attention_equals_mvit_layer(query_stride: int, key_stride: int, prefix: int) -> None:
    from timm.models.mvitv2 import MultiScaleAttention

    peer = MultiScaleAttention(
        18,
        18,
        (8, 8),
        num_heads=3,
        kernel_q=(3, 3),
        kernel_kv=(3, 3),
        stride_q=(query_stride, query_stride),
        stride_kv=(key_stride, key_stride),
        has_cls_token=bool(prefix),
        residual_pooling=False,
    )
    seen = {}
    peer = randomize(peer)
    for name in ("norm_q", "norm_k", "norm_v"):  # their queries, keys and values, pooled and normalized
        peer.get_submodule(name).register_forward_hook(lambda _, __, out, name=name: seen.__setitem__(name, out))
    theirs, _ = peer(draw(2, prefix + 64, 18), [8, 8])

    q, k, v = seen["norm_q"], seen["norm_k"], seen["norm_v"]
    sizes, positions, key_positions = uneven((8 // query_stride,) * 2, (8 // key_stride,) * 2)
    if prefix:
        positions = posenc.coordinates(positions.coordinates(), prefix=1, extent=tuple(sizes))
        key_positions = posenc.coordinates(key_positions.coordinates(), prefix=1, extent=tuple(sizes))
    encoding = posenc.RelativeLogits(6, sizes, scaled=False).double().load_foreign(peer.state_dict(), "mvitv2")
    mixed = posenc.attention(q, k, v, encoding, positions=positions, key_positions=key_positions)
    torch.testing.assert_close(peer.proj(mixed.transpose(1, 2).flatten(2)), theirs, rtol=1e-10, atol=1e-9)


# --- DeBERTa: head_dim 12 with both terms, and 8 with one, whose scales float32 holds exactly, as the peers take them ---

BUCKETS = [(256, 512), (32, 128), (16, 20), (8, 12), (9, 40), (5, 7)]


@against("Deberta", DEBERTA + "make_log_bucket_position")
@pytest.mark.parametrize(("buckets", "max_distance"), BUCKETS)
def test_deberta_buckets_equal_transformers(buckets: int, max_distance: int) -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    relative = torch.cat([torch.arange(-5000, 5001), torch.tensor([-(10**6), 10**6])])
    theirs = make_log_bucket_position(relative, buckets, max_distance).long()
    rows = (theirs + buckets).clamp(0, 2 * buckets - 1)  # as they are looked up
    assert torch.equal(posenc.deberta_bucket(relative, buckets, max_distance), rows - buckets)


@against("Deberta", DEBERTA + "build_relative_position")
@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (4, 11), (30, 7)])
@pytest.mark.parametrize("buckets", [8, None])
def test_deberta_relative_positions_equal_transformers(buckets: int | None, queries: int, keys: int) -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

    theirs = build_relative_position(draw(1, queries, 1), draw(1, keys, 1), buckets or -1, 12)[0]
    encoding = posenc.Deberta(1, 1, buckets=buckets, max_distance=12, terms=("c2p",)).double()
    half = encoding.key_table.shape[1] // 2
    set_table(encoding.key_table, torch.arange(-half, half, dtype=torch.float64)[None, :, None])
    ours = encoding(torch.ones(1, 1, queries, 1).double(), posenc.sequence(queries), posenc.sequence(keys))
    assert_equal(ours[0, 0], theirs.clamp(-half, half - 1).double())


def deberta_config(terms: tuple[str, ...], head_dim: int, **options: object) -> object:
    from transformers import DebertaV2Config

    return DebertaV2Config(
        hidden_size=3 * head_dim,
        num_attention_heads=3,
        num_hidden_layers=1,
        intermediate_size=8,
        relative_attention=True,
        pos_att_type=list(terms),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **options,
    )


def split_heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


TERMS = [(("c2p", "p2c"), 12), (("c2p",), 8), (("p2c",), 8)]


@against("Deberta", DEBERTA + "DisentangledSelfAttention")
@pytest.mark.parametrize("length", [1, 7, 20])
@pytest.mark.parametrize("buckets", [8, 256, -1])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("terms", "head_dim"), TERMS)
def test_deberta_attention_equals_v2_layer(
    terms: tuple[str, ...], head_dim: int, shared: bool, buckets: int, length: int
) -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

    reach = 512 if buckets == 256 else 12
    options = {"share_att_key": shared, "position_buckets": buckets, "max_relative_positions": reach}
    peer = randomize(DisentangledSelfAttention(deberta_config(terms, head_dim, **options)))
    sizes = {"buckets": None if buckets < 0 else buckets, "max_distance": reach}
    encoding = posenc.Deberta(3, head_dim, terms=terms, **sizes).double()
    vectors = draw(2 * (buckets if buckets > 0 else reach), 3 * head_dim)
    encoding.load_foreign({**peer.state_dict(), "rel_embeddings.weight": vectors}, "deberta")
    assert_deberta_layer(peer, encoding, vectors, length)


@against("Deberta", DEBERTA + "DebertaV2Encoder")
@pytest.mark.parametrize("norm", ["layer_norm", "none"])
def test_deberta_loads_an_encoder_with_its_norm(norm: str) -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Encoder

    options = {"share_att_key": True, "position_buckets": 8, "max_relative_positions": 12, "norm_rel_ebd": norm}
    encoder = randomize(DebertaV2Encoder(deberta_config(("c2p", "p2c"), 12, **options)))
    layer = encoder.layer[0].attention.self
    encoding = posenc.Deberta(3, 12, buckets=8, max_distance=12).double()
    encoding.load_foreign({**encoder.state_dict(), **layer.state_dict()}, "deberta")
    assert_deberta_layer(layer, encoding, encoder.get_rel_embedding(), 30)


def assert_deberta_layer(peer: nn.Module, encoding: posenc.Deberta, vectors: Tensor, length: int) -> None:
    """Both attentions alike, with padding on the right, where padding sees nothing there and is left out here."""
    x, keep = draw(2, length, 3 * encoding.head_dim), torch.ones(2, length, dtype=torch.bool)
    keep[1, length // 2 + 1 :] = False
    theirs, _ = peer(x, (keep[:, None, :, None] & keep[:, None, None]), rel_embeddings=vectors)
    q, k, v = (split_heads(project(x), 3) for project in (peer.query_proj, peer.key_proj, peer.value_proj))
    ours = posenc.attention(q, k, v, encoding, key_mask=keep).transpose(1, 2).flatten(2)
    assert_equal(ours[keep], theirs[keep])


@against("Deberta", TRANSFORMERS + "deberta.modeling_deberta.DisentangledSelfAttention")
@pytest.mark.parametrize("length", [1, 7, 20])
@pytest.mark.parametrize(("terms", "head_dim"), TERMS)
def test_deberta_attention_equals_v1_layer(terms: tuple[str, ...], head_dim: int, length: int) -> None:
    # One row a distance, clipped; no biases of queries and keys but the query's own.
    from transformers import DebertaConfig
    from transformers.models.deberta.modeling_deberta import DisentangledSelfAttention, build_relative_position

    config = DebertaConfig(
        hidden_size=3 * head_dim,
        num_attention_heads=3,
        relative_attention=True,
        max_relative_positions=9,
        pos_att_type=list(terms),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    peer, vectors, x = (
        randomize(DisentangledSelfAttention(config)),
        draw(18, 3 * head_dim),
        draw(2, length, 3 * head_dim),
    )
    relative = build_relative_position(x, x)
    theirs, _ = peer(x, torch.ones(2, 1, length, length), relative_pos=relative, rel_embeddings=vectors)
    q, k, v = split_heads(peer.in_proj(x), 3).chunk(3, -1)
    q, v = q + split_heads(peer.q_bias[None, None], 3), v + split_heads(peer.v_bias[None, None], 3)
    encoding = posenc.Deberta(3, head_dim, buckets=None, max_distance=9, terms=terms).double()
    encoding.load_foreign({**peer.state_dict(), "rel_embeddings.weight": vectors}, "deberta_v1")
    assert_equal(posenc.attention(q, k, v, encoding).transpose(1, 2).flatten(2), theirs)


# --- iRPE: no package has it; a second loop, written from the paper ---


@beside("IRPE", "irpe")
@pytest.mark.parametrize("shape", [*GRIDS, (2, 9)])
@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize("method", ["product", "cross"])
@pytest.mark.parametrize("coefficients", [(1.9, 3.8, 15.2), (1.0, 2.0, 8.0), (2.5, 5.0, 20.0)])
def test_irpe_equals_a_second_loop(
    coefficients: tuple[float, float, float], method: str, heads: int | None, shape: tuple[int, int]
) -> None:
    from second_loops import irpe

    alpha, beta, gamma = coefficients
    encoding = randomize(posenc.IRPE(6, method, heads, *coefficients))
    q, positions = draw(2, 3, math.prod(shape), 6), posenc.grid(*shape)
    places = positions.coordinates().numpy()
    tables = [table.detach().numpy() for table in encoding.parameters()]
    trained = {"table": tables[0]} if method == "product" else {"tables": tables}
    options = {"method": method, "num_heads": heads, "alpha": alpha, "beta": beta, "gamma": gamma}
    for row in range(2):
        theirs = irpe(q[row].numpy(), places, places, head_dim=6, **options, **trained)
        assert_equal(encoding(q, positions)[row], torch.from_numpy(theirs))


def test_piecewise_index_is_that_of_the_formula_in_float32() -> None:
    # As released: float32 logarithms, rounded halves to even, cut at beta, then towards zero.
    for alpha, beta, gamma in ((1.9, 3.8, 15.2), (1.0, 2.0, 8.0), (2.5, 5.0, 20.0), (0.5, 1.0, 4.0), (7.6, 15.2, 60.8)):
        relative = torch.arange(-200, 201)
        distance = relative.abs().float()
        far = (alpha + (distance / alpha).log() / math.log(gamma / alpha) * (beta - alpha)).round().clamp(max=beta)
        theirs = torch.where(distance <= alpha, relative, (relative.sign() * far).long())
        assert torch.equal(posenc.piecewise_index(relative, alpha, beta, gamma), theirs)


# --- CoPE ---


@against("CoPE", "x_transformers.x_transformers.CoPE")
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (9, 9), (3, 9)])
@pytest.mark.parametrize("rows", [1, 2, 5, 40])
def test_cope_logits_equal_x_transformers(rows: int, queries: int, keys: int) -> None:
    from x_transformers.x_transformers import CoPE as TheirCoPE

    peer = randomize(TheirCoPE(dim=6, heads=3, max_pos=rows, soft_onehot=False))
    encoding = posenc.CoPE(6, rows).double().load_foreign(peer.state_dict(), "x_transformers")
    q, k = draw(2, 3, queries, 6), draw(2, 3, keys, 6)
    future = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
    logits = (q @ k.mT * 6**-0.5).masked_fill(future, -torch.finfo(torch.float64).max)
    assert_equal(encoding(q, k=k), peer(q, logits))


@against("CoPE", "x_transformers.attend.Attend")
@pytest.mark.parametrize("length", [1, 4, 11])
def test_cope_attention_equals_x_transformers(length: int) -> None:
    from x_transformers.attend import Attend
    from x_transformers.x_transformers import CoPE as TheirCoPE

    peer = randomize(TheirCoPE(dim=6, heads=3, max_pos=5, soft_onehot=False))
    attend = Attend(causal=True, heads=3, cope=peer)
    encoding = posenc.CoPE(6, 5).double().load_foreign(peer.state_dict(), "x_transformers")
    q, k, v = (draw(2, 3, length, 6) for _ in range(3))
    keep = torch.ones(2, length, dtype=torch.bool)
    keep[1, 1:3] = False  # hidden keys count for nothing
    theirs, _ = attend(q, k, v, mask=keep[:, None, None])
    ours = posenc.attention(q, k, v, encoding, causal=True, key_mask=keep)
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-6 * float(v.abs().max()))  # their softmax is float32
