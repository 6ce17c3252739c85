"""Peers that add numbers to the logits: all write a matrix a head, and give it to torch's attention as its mask."""

from typing import Any

import torch
from torch import Tensor

from posenc.bench.peers.peer import Made, Peer, masked, placed
from posenc.bench.setting import Setting

__all__ = ["PEERS"]


def _x_transformers_alibi(code: Any, encoding: Any, setting: Setting) -> Made:
    peer, attend = placed(code.AlibiPositionalBias(setting.heads), setting), masked(setting)
    return Made(lambda q, k, v: attend(q, k, v, peer(setting.asking, setting.tokens)), [])


def _bloom_alibi(code: Any, encoding: Any, setting: Setting) -> Made:
    # m j, a row of keys a head: the same softmax as -m (i - j)
    attend = masked(setting)
    tokens = torch.ones(setting.batch, setting.tokens, device=setting.device)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Any:
        bias = code.build_alibi_tensor(tokens, setting.heads, q.dtype)
        return attend(q, k, v, bias.unflatten(0, (setting.batch, -1)).expand(-1, -1, setting.asking, -1))

    return Made(call, [])


def _transformers_t5(code: Any, encoding: Any, setting: Setting) -> Made:
    config = code.T5Config(
        d_model=setting.heads * setting.head_dim,
        d_kv=setting.head_dim,
        num_heads=setting.heads,
        is_decoder=not encoding.bidirectional,
        relative_attention_num_buckets=encoding.num_buckets,
        relative_attention_max_distance=encoding.max_distance,
    )
    peer, attend = (
        placed(code.T5Attention(config, has_relative_attention_bias=True, layer_idx=0), setting),
        masked(setting),
    )
    encoding.load_foreign(peer.state_dict(), "t5")
    sizes = setting.asking, setting.tokens
    options = {"past_seen_tokens": setting.tokens - setting.asking}
    return Made(
        lambda q, k, v: attend(q, k, v, peer.compute_bias(*sizes, **options)), [peer.relative_attention_bias.weight]
    )


def _x_transformers_t5(code: Any, encoding: Any, setting: Setting) -> Made:
    peer = code.RelativePositionBias(
        scale=1.0,
        causal=not encoding.bidirectional,
        num_buckets=encoding.num_buckets,
        max_distance=encoding.max_distance,
        heads=setting.heads,
    )
    peer, attend = placed(peer, setting), masked(setting)
    encoding.load_foreign(peer.state_dict(), "t5")
    return Made(
        lambda q, k, v: attend(q, k, v, peer(setting.asking, setting.tokens)), [peer.relative_attention_bias.weight]
    )


def _timm_window(code: Any, encoding: Any, setting: Setting) -> Made:
    peer = placed(code.RelPosBias(setting.shape, setting.heads, prefix_tokens=setting.prefix), setting)
    encoding.load_foreign(peer.state_dict(), "timm")
    attend = masked(setting)
    return Made(lambda q, k, v: attend(q, k, v, peer.get_bias()), [peer.relative_position_bias_table])


def _swin_window(code: Any, encoding: Any, setting: Setting) -> Made:
    peer = code.SwinRelativePositionBias(setting.heads, setting.shape)
    peer.relative_position_bias_table.data.normal_(std=0.02)
    peer, attend = placed(peer, setting), masked(setting)
    encoding.load_foreign(peer.state_dict(), "swin")
    return Made(lambda q, k, v: attend(q, k, v, peer()), [peer.relative_position_bias_table])


def _beit_window(code: Any, encoding: Any, setting: Setting) -> Made:
    if setting.shape[0] != setting.shape[1]:
        raise ValueError("on a grid that is not square, transformers 5.24 takes the height of its table for the width")
    dim = setting.heads * setting.head_dim
    peer = code.BeitRelativePositionBias(
        code.BeitConfig(image_size=setting.shape[0], patch_size=1, hidden_size=dim, num_attention_heads=setting.heads)
    )
    peer.relative_position_bias_table.data.normal_(std=0.02)
    peer, attend = placed(peer, setting), masked(setting)
    encoding.load_foreign(peer.state_dict(), "beit")
    return Made(lambda q, k, v: attend(q, k, v, peer(setting.shape)), [peer.relative_position_bias_table])


def _timm_log_coordinates(code: Any, encoding: Any, setting: Setting) -> Made:
    width = encoding.hidden.out_features
    peer = placed(code.RelPosMlp(setting.shape, setting.heads, hidden_dim=width, mode="swin"), setting)
    encoding.load_foreign(peer.state_dict(), "timm")
    attend = masked(setting)
    return Made(lambda q, k, v: attend(q, k, v, peer.get_bias()), list(peer.parameters()))


T5, TIMM = "transformers.models.t5.modeling_t5", "timm.layers"
BLOOM, X = "transformers.models.bloom.modeling_bloom", "x_transformers.x_transformers"
SWIN, BEIT = "transformers.models.swin.modeling_swin", "transformers.models.beit.modeling_beit"
PREFIXED: dict[str, Any] = {"axes": (2,), "prefix": 1, "options": (("prefix_bias", True),), "causal": False}

PEERS = (
    Peer("ALiBi", "x-transformers", "AlibiPositionalBias", X, _x_transformers_alibi, some=True),
    Peer("ALiBi", "transformers", "build_alibi_tensor", BLOOM, _bloom_alibi, options=(("signed", True),), some=True),
    Peer("T5Bias", "transformers", "T5Attention.compute_bias", T5, _transformers_t5, some=True),
    Peer("T5Bias", "x-transformers", "RelativePositionBias", X, _x_transformers_t5, some=True),
    Peer("RelativePositionBias", "timm", "RelPosBias", TIMM, _timm_window, axes=(2,)),
    Peer("RelativePositionBias", "timm", "RelPosBias(prefix_tokens=1)", TIMM, _timm_window, **PREFIXED),
    Peer("RelativePositionBias", "transformers", "SwinRelativePositionBias", SWIN, _swin_window, axes=(2,)),
    Peer("RelativePositionBias", "transformers", "BeitRelativePositionBias", BEIT, _beit_window, **PREFIXED),
    Peer("ContinuousPositionBias", "timm", "RelPosMlp", TIMM, _timm_log_coordinates, axes=(2,)),
)
