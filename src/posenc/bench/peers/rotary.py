"""Peers that turn queries and keys, for torch's plain attention."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from posenc.bench.peers.peer import Made, Peer, placed
from posenc.bench.setting import Setting

__all__ = ["PEERS"]


def _attending(setting: Setting, turn: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[..., Any]:
    def call(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return functional.scaled_dot_product_attention(*turn(q, k), v, is_causal=setting.causal)

    return call


def _llama(code: Any, encoding: Any, setting: Setting) -> Made:
    config = code.LlamaConfig(
        hidden_size=setting.heads * setting.head_dim,
        num_attention_heads=setting.heads,
        head_dim=setting.head_dim,
        max_position_embeddings=setting.tokens,
        rope_parameters={"rope_type": "default", "rope_theta": encoding.base},
    )
    peer = code.LlamaRotaryEmbedding(config).to(setting.device)
    where = torch.arange(setting.tokens, device=setting.device)[None]
    return Made(_attending(setting, lambda q, k: code.apply_rotary_pos_emb(q, k, *peer(q, where))), [])


def _x_transformers(code: Any, encoding: Any, setting: Setting, decays: bool) -> Made:
    peer = code.RotaryEmbedding(setting.head_dim, use_xpos=decays).to(setting.device)

    def turn(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        angles, factor = peer.forward_from_seq_len(setting.tokens)
        return code.apply_rotary_pos_emb(q, angles, factor), code.apply_rotary_pos_emb(k, angles, factor**-1)

    return Made(_attending(setting, turn), [])


def _lucidrains(code: Any, encoding: Any, setting: Setting) -> Made:
    axes = len(setting.shape)
    peer = code.RotaryEmbedding(setting.head_dim // axes).to(setting.device)

    def axial(x: Tensor) -> Any:
        angles = peer.get_axial_freqs(*setting.shape)
        return code.apply_rotary_emb(angles, x.unflatten(2, setting.shape)).flatten(2, 1 + axes)

    one = peer.rotate_queries_or_keys if axes == 1 else axial
    return Made(_attending(setting, lambda q, k: (one(q), one(k))), [])


def _lucidrains_decaying(code: Any, encoding: Any, setting: Setting) -> Made:
    peer = code.RotaryEmbedding(setting.head_dim, use_xpos=True).to(setting.device)
    return Made(_attending(setting, peer.rotate_queries_and_keys), [])


def _timm_axial(code: Any, encoding: Any, setting: Setting) -> Made:
    peer = code.RotaryEmbeddingCat(
        setting.head_dim, temperature=encoding.base, in_pixels=False, feat_shape=list(setting.shape), rotate_half=True
    ).to(setting.device)

    def turn(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        angles = peer.get_embed()
        return code.apply_rot_embed_cat(q, angles, half=True), code.apply_rot_embed_cat(k, angles, half=True)

    return Made(_attending(setting, turn), [])


def _timm_mixed(code: Any, encoding: Any, setting: Setting) -> Made:
    dim = setting.heads * setting.head_dim
    peer = placed(code.RotaryEmbeddingMixed(dim, 1, setting.heads, feat_shape=list(setting.shape)), setting)
    encoding.load_foreign({"freqs": peer.freqs}, "timm")

    def turn(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        angles = peer.get_embed()[0]
        return code.apply_rot_embed_cat(q, angles), code.apply_rot_embed_cat(k, angles)

    return Made(_attending(setting, turn), [peer.freqs])


def _qwen(code: Any, encoding: Any, setting: Setting) -> Made:
    config = code.Qwen2VLTextConfig(
        hidden_size=setting.heads * setting.head_dim,
        num_attention_heads=setting.heads,
        head_dim=setting.head_dim,
        max_position_embeddings=setting.tokens,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": encoding.base,
            "mrope_section": list(encoding.sections),
        },
    )
    peer = code.Qwen2VLRotaryEmbedding(config).to(setting.device)
    where = setting.positions().coordinates(setting.device).mT[:, None]
    return Made(_attending(setting, lambda q, k: code.apply_rotary_pos_emb(q, k, *peer(q, where))), [])


LLAMA, QWEN = "transformers.models.llama.modeling_llama", "transformers.models.qwen2_vl.modeling_qwen2_vl"
LUCID, X, TIMM = "rotary_embedding_torch", "x_transformers.x_transformers", "timm.layers.pos_embed_sincos"
NAME = "rotary-embedding-torch"
INTERLEAVED = (("layout", "interleaved"),)
PLAIN, DECAYS = partial(_x_transformers, decays=False), partial(_x_transformers, decays=True)

PEERS = (
    Peer("Rotary", "transformers", "llama.apply_rotary_pos_emb", LLAMA, _llama, multiple=2),
    Peer("Rotary", "x-transformers", "apply_rotary_pos_emb", X, PLAIN, options=INTERLEAVED, multiple=2),
    Peer("Rotary", NAME, "rotate_queries_or_keys", LUCID, _lucidrains, (1,), INTERLEAVED, multiple=2),
    Peer("Rotary", NAME, "get_axial_freqs, 2 axes", LUCID, _lucidrains, (2,), INTERLEAVED, multiple=4),
    Peer("Rotary", NAME, "get_axial_freqs, 3 axes", LUCID, _lucidrains, (3,), INTERLEAVED, multiple=6),
    Peer("Rotary", "timm", "RotaryEmbeddingCat", TIMM, _timm_axial, axes=(2,), multiple=4),
    Peer("MixedRotary", "timm", "RotaryEmbeddingMixed", TIMM, _timm_mixed, axes=(2,), multiple=4),
    Peer("MultimodalRotary", "transformers", "qwen2_vl.apply_rotary_pos_emb", QWEN, _qwen, axes=(3,), multiple=2),
    Peer("XPos", "x-transformers", "apply_rotary_pos_emb(use_xpos)", X, DECAYS, causal=True, multiple=2),
    Peer("XPos", NAME, "rotate_queries_and_keys", LUCID, _lucidrains_decaying, causal=True, multiple=2),
)
