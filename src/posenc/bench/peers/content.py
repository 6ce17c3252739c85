"""Peers whose vectors by relative position meet the queries."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from posenc.bench.peers.peer import Made, Peer, masked, numbered, placed
from posenc.bench.setting import Setting

__all__ = ["PEERS"]


def _wav2vec2_bert(code: Any, encoding: Any, setting: Setting) -> Made:
    reach = encoding.max_distance
    vectors = placed(nn.Embedding(2 * reach + 1, setting.head_dim), setting)
    vectors.weight.data.mul_(setting.head_dim**-0.5)
    layer = SimpleNamespace(
        left_max_position_embeddings=reach,
        right_max_position_embeddings=reach,
        distance_embedding=vectors,
        scaling=setting.head_dim**-0.5,
    )
    encoding.load_foreign({"distance_embedding.weight": vectors.weight}, "wav2vec2_bert")
    attend = masked(setting)
    return Made(
        lambda q, k, v: attend(q, k, v, code._apply_relative_key_position_encoding(layer, q, k)[1]), [vectors.weight]
    )


def _self_attention_cv(code: Any, encoding: Any, setting: Setting) -> Made:
    peer, attend = placed(code.RelPosEmb1D(setting.tokens, setting.head_dim), setting), masked(setting)
    encoding.load_foreign(peer.state_dict(), "self_attention_cv")
    return Made(lambda q, k, v: attend(q, k, v, peer(q) * setting.head_dim**-0.5), list(peer.parameters()))


def _botnet(code: Any, encoding: Any, setting: Setting) -> Made:
    scale = setting.head_dim**-0.5
    peer = placed(code.PosEmbedRel(setting.shape, setting.head_dim, scale), setting)
    encoding.load_foreign(peer.state_dict(), "botnet")

    def call(q: Tensor, k: Tensor, v: Tensor) -> Any:  # as its BottleneckAttn has it
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        weights = ((q @ k.mT + peer(q)) * scale).softmax(-1)
        return (weights @ v).unflatten(0, (setting.batch, setting.heads))

    return Made(call, list(peer.parameters()))


def _sam(code: Any, encoding: Any, setting: Setting) -> Made:
    tables, attend = _tables(encoding, setting), masked(setting)
    size = setting.shape

    def call(q: Tensor, k: Tensor, v: Tensor) -> Any:
        bias = code.get_decomposed_rel_pos_bias(q.flatten(0, 1), *tables, size, size)
        return attend(q, k, v, bias.unflatten(0, (setting.batch, setting.heads)))

    return Made(call, tables)


def _vitdet(code: Any, encoding: Any, setting: Setting) -> Made:
    tables, scale, size = _tables(encoding, setting), setting.head_dim**-0.5, setting.shape

    def call(q: Tensor, k: Tensor, v: Tensor) -> Any:  # as its VitDetAttention has it
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        logits = code.add_decomposed_relative_positions((q * scale) @ k.mT, q, *tables, size, size)
        return (logits.softmax(-1) @ v).unflatten(0, (setting.batch, setting.heads))

    return Made(call, tables)


def _tables(encoding: Any, setting: Setting) -> list[Tensor]:
    """A table an axis, in SAM's order."""
    tables = [numbered(setting, 2 * size - 1, setting.head_dim, std=setting.head_dim**-0.5) for size in setting.shape]
    encoding.load_foreign({"rel_pos_h": tables[0], "rel_pos_w": tables[1]}, "sam")
    return [*tables]


def _parakeet(code: Any, encoding: Any, setting: Setting) -> Made:
    config = SimpleNamespace(hidden_size=setting.head_dim, max_position_embeddings=setting.tokens)
    peer = code.ParakeetEncoderRelPositionalEncoding(config).to(setting.device)
    attend, scale = masked(setting), setting.head_dim**-0.5

    def call(q: Tensor, k: Tensor, v: Tensor) -> Any:
        shifted = code.ParakeetEncoderAttention._rel_shift(None, q @ peer(q[:1, 0])[0].mT)
        return attend(q, k, v, shifted[..., : setting.tokens] * scale)

    return Made(call, [])


def _xlnet(code: Any, encoding: Any, setting: Setting) -> Made:
    dim, tokens = setting.heads * setting.head_dim, setting.tokens
    peer = code.XLNetRelativeAttention(code.XLNetConfig(d_model=dim, n_head=setting.heads, dropout=0.0))
    trained = [peer.r, peer.r_w_bias, peer.r_r_bias]
    for each, std in zip(trained, (dim**-0.5, 0.02, 0.02), strict=True):
        each.data.normal_(std=std)
    peer = placed(peer, setting)
    trained = [peer.r, peer.r_w_bias, peer.r_r_bias]
    encoding.load_foreign(peer.state_dict(), "xlnet")
    frequencies = 1 / torch.pow(10000, torch.arange(0, dim, 2.0, device=setting.device) / dim)
    where = torch.arange(tokens, -tokens, -1.0, device=setting.device)
    ahead = None
    if setting.causal:
        ahead = torch.ones(tokens, tokens, device=setting.device).triu(1).to(peer.r.dtype)[:, :, None, None]

    def call(q: Tensor, k: Tensor, v: Tensor) -> Any:  # as its forward has it: tokens come first
        waves = code.XLNetModel.positional_embedding(where, frequencies, setting.batch).to(q.dtype)
        rows = torch.einsum("ibh,hnd->ibnd", waves, peer.r)
        first = (x.permute(2, 0, 1, 3) for x in (q, k, v))
        return peer.rel_attn_core(*first, rows, attn_mask=ahead).permute(1, 2, 0, 3)

    return Made(call, trained)


def _deberta(code: Any, encoding: Any, setting: Setting) -> Made:
    dim, both = setting.heads * setting.head_dim, 3
    config = code.DebertaV2Config(
        hidden_size=dim,
        num_attention_heads=setting.heads,
        relative_attention=True,
        pos_att_type=list(encoding.terms),
        position_buckets=encoding.buckets,
        max_relative_positions=encoding.max_distance,
        share_att_key=False,
    )
    peer = placed(code.DisentangledSelfAttention(config), setting)
    vectors = numbered(setting, 2 * encoding.buckets, dim, std=1.0)
    encoding.load_foreign({**peer.state_dict(), "rel_embeddings.weight": vectors}, "deberta")

    def call(q: Tensor, k: Tensor, v: Tensor) -> Any:  # as its forward has it
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        logits = q @ (k.mT / code.scaled_size_sqrt(q, both).to(q.dtype))
        logits = logits + peer.disentangled_attention_bias(q, k, None, vectors, both)
        return (logits.softmax(-1) @ v).unflatten(0, (setting.batch, setting.heads))

    trained = [*peer.pos_key_proj.parameters(), *peer.pos_query_proj.parameters()]
    return Made(call, [vectors, *trained])


def _cope(code: Any, encoding: Any, setting: Setting) -> Made:
    peer = code.CoPE(dim=setting.head_dim, heads=setting.heads, max_pos=encoding.max_position, soft_onehot=False)
    peer.pos_emb.data.normal_(std=setting.head_dim**-0.5)
    peer = placed(peer, setting)
    encoding.load_foreign(peer.state_dict(), "x_transformers")
    attend = code.Attend(causal=True, heads=setting.heads, cope=peer)
    return Made(lambda q, k, v: attend(q, k, v)[0], list(peer.parameters()))


MODELS, CV = "transformers.models.", "self_attention_cv.pos_embeddings.relative_embeddings_1D"
SHAW, XLNET = MODELS + "wav2vec2_bert.modeling_wav2vec2_bert", MODELS + "xlnet.modeling_xlnet"
PARAKEET, DEBERTA = MODELS + "parakeet.modeling_parakeet", MODELS + "deberta_v2.modeling_deberta_v2"
VITDET, SAM = MODELS + "vitdet.modeling_vitdet", "timm.models.vision_transformer_sam"
KEYS, UNSCALED = (("values", False),), (("scaled", False),)
FULL: dict[str, Any] = {"axes": (2,), "causal": False}

PEERS = (
    Peer("Shaw", "transformers", "wav2vec2_bert's relative keys", SHAW, _wav2vec2_bert, options=KEYS),
    Peer("RelativeLogits", "self-attention-cv", "RelPosEmb1D", CV, _self_attention_cv),
    Peer("RelativeLogits", "timm", "PosEmbedRel (BoTNet)", "timm.layers.bottleneck_attn", _botnet, **FULL),
    Peer("RelativeLogits", "timm", "get_decomposed_rel_pos_bias (SAM)", SAM, _sam, options=UNSCALED, **FULL),
    Peer("RelativeLogits", "transformers", "vitdet's relative positions", VITDET, _vitdet, options=UNSCALED, **FULL),
    Peer("SinusoidalLogits", "transformers", "parakeet's shift", PARAKEET, _parakeet),
    Peer("TransformerXL", "transformers", "XLNet's rel_attn_core", XLNET, _xlnet),
    Peer("Deberta", "transformers", "disentangled_attention_bias", DEBERTA, _deberta, causal=False),
    Peer("CoPE", "x-transformers", "CoPE", "x_transformers.x_transformers", _cope, causal=True),
)
