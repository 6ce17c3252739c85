"""The cards of the content place."""

from typing import Any

from posenc.catalog.card import Card


def _clipped_numbers(a: dict[str, Any]) -> int:
    rows = 2 * int(a["max_distance"]) + 1
    return int(a.get("num_heads") or 1) * rows * int(a["head_dim"]) * (2 if a.get("values", True) else 1)


def _axis_numbers(a: dict[str, Any]) -> int:
    rows = sum(int(size) if a.get("causal") else 2 * int(size) - 1 for size in a["shape"])
    return int(a.get("num_heads") or 1) * rows * int(a["head_dim"])


def _projected_numbers(a: dict[str, Any]) -> int:
    channels = int(a["num_heads"]) * int(a["head_dim"])
    return channels * int(a.get("dim") or channels) + 2 * channels


def _bucket_numbers(a: dict[str, Any]) -> int:
    rows = 2 * int(a.get("buckets", 256) or a.get("max_distance", 512))
    return len(a.get("terms", ("c2p", "p2c"))) * int(a["num_heads"]) * rows * int(a["head_dim"])


def _piecewise_numbers(a: dict[str, Any]) -> int:
    side = 2 * int(a.get("beta", 3.8)) + 1
    rows = side**2 if a.get("method", "product") == "product" else 2 * side
    return int(a.get("num_heads") or 1) * rows * int(a["head_dim"])


def _counted_numbers(a: dict[str, Any]) -> int:
    return int(a.get("num_heads") or 1) * int(a.get("max_position", 64)) * int(a["head_dim"])


CARDS = (
    Card(
        name="Shaw",
        place="content",
        title="Clipped relative position vectors",
        year=2018,
        paper="Self-Attention with Relative Position Representations, arXiv:1803.02155",
        equation="e_ij = q_i · (k_j + rK[clip(i − j)]) / √d, z_i = Σ_j α_ij (v_j + rV[clip(i − j)])",
        axes="1",
        trained=True,
        parameters="2 · (2 · max_distance + 1) · head_dim, half without values, times heads if per head",
        numbers=_clipped_numbers,
        relative=True,
        reference="shaw",
        sizes=("head_dim", "max_distance"),
        examples=(
            {"head_dim": 16, "max_distance": 4},
            {"head_dim": 16, "max_distance": 3, "num_heads": 4},
            {"head_dim": 16, "max_distance": 5, "values": False},
            {"head_dim": 15, "max_distance": 1, "num_heads": 4, "values": False},
        ),
        peers=(
            "transformers.models.wav2vec2_bert.modeling_wav2vec2_bert._apply_relative_key_position_encoding",
            "transformers.models.wav2vec2_bert.modeling_wav2vec2_bert.Wav2Vec2BertSelfAttention",
            "transformers.models.vits.modeling_vits.VitsAttention",
        ),
    ),
    Card(
        name="RelativeLogits",
        place="content",
        title="Relative logits, an axis at a time (BoTNet, MViTv2, SAM; causal: Music Transformer)",
        year=2021,
        paper="Bottleneck Transformers for Visual Recognition, arXiv:2101.11605; Music Transformer, arXiv:1809.04281",
        equation="e_ij = (q_i · k_j + q_i · rH[Δ_h] + q_i · rW[Δ_w]) / √d",
        axes="any",
        trained=True,
        parameters="Σ(2 · size − 1) · head_dim, or length · head_dim if causal, times heads if per head",
        numbers=_axis_numbers,
        relative=True,
        reference="relative_logits",
        sizes=("head_dim", "shape"),
        examples=(
            {"head_dim": 16, "shape": (11,)},
            {"head_dim": 16, "shape": (11,), "num_heads": 4},
            {"head_dim": 16, "shape": (11,), "causal": True},
            {"head_dim": 15, "shape": (9,), "num_heads": 4, "causal": True},
            {"head_dim": 16, "shape": (3, 4)},
            {"head_dim": 16, "shape": (4, 3), "num_heads": 4, "scaled": False},
            {"head_dim": 16, "shape": (2, 3, 4), "scaled": False},
        ),
        peers=(
            "timm.layers.bottleneck_attn.PosEmbedRel",
            "timm.layers.bottleneck_attn.BottleneckAttn",
            "timm.models.vision_transformer_sam.get_decomposed_rel_pos_bias",
            "timm.models.vision_transformer_sam.Attention",
            "timm.models.mvitv2.cal_rel_pos_type",
            "timm.models.mvitv2.MultiScaleAttention",
            "transformers.models.vitdet.modeling_vitdet.add_decomposed_relative_positions",
            "transformers.models.parakeet.modeling_parakeet.ParakeetEncoderAttention",
            "transformers.models.xlnet.modeling_xlnet.XLNetRelativeAttention",
            "self_attention_cv.pos_embeddings.relative_embeddings_1D.relative_to_absolute",
            "self_attention_cv.pos_embeddings.relative_embeddings_1D.rel_pos_emb_1d",
            "self_attention_cv.pos_embeddings.relative_embeddings_1D.RelPosEmb1D",
        ),
    ),
    Card(
        name="SinusoidalLogits",
        place="content",
        title="Sinusoidal relative logits",
        year=2019,
        paper="Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context, arXiv:1901.02860 "
        "(its sinusoidal term, without the projection and the two trained vectors)",
        equation="e_ij = (q_i · k_j + q_i · r(i − j)) / √d, r the sinusoid of the relative position",
        axes="1",
        trained=False,
        parameters="0",
        numbers=lambda a: 0,
        relative=True,
        reference="sinusoidal_logits",
        sizes=("head_dim",),
        examples=({"head_dim": 16}, {"head_dim": 15}, {"head_dim": 16, "base": 100.0}),
        peers=(
            "transformers.models.parakeet.modeling_parakeet.ParakeetEncoderRelPositionalEncoding",
            "transformers.models.xlnet.modeling_xlnet.XLNetRelativeAttention",
        ),
    ),
    Card(
        name="TransformerXL",
        place="content",
        title="Transformer-XL's projected sinusoids (XLNet, Conformer)",
        year=2019,
        paper="Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context, arXiv:1901.02860",
        equation="e_ij = ((q_i + u) · k_j + (q_i + v) · W r(i − j)) / √d, r the sinusoid of the relative position",
        axes="1",
        trained=True,
        parameters="heads · head_dim · (dim + 2)",
        numbers=_projected_numbers,
        relative=True,
        reference="transformer_xl",
        sizes=("num_heads", "head_dim"),
        examples=(
            {"num_heads": 4, "head_dim": 16},
            {"num_heads": 3, "head_dim": 15, "dim": 24},
            {"num_heads": 4, "head_dim": 16, "dim": 23, "base": 100.0},
        ),
        peers=(
            "transformers.models.xlnet.modeling_xlnet.XLNetRelativeAttention",
            "transformers.models.parakeet.modeling_parakeet.ParakeetEncoderAttention",
            "transformers.models.wav2vec2_bert.modeling_wav2vec2_bert.Wav2Vec2BertSelfAttention",
        ),
    ),
    Card(
        name="Deberta",
        place="content",
        title="DeBERTa's disentangled attention",
        year=2020,
        paper="DeBERTa: Decoding-enhanced BERT with Disentangled Attention, arXiv:2006.03654",
        equation="e_ij = (q_i · k_j + q_i · rK[δ(i, j)] + k_j · rQ[δ(i, j)]) / √(3d), δ the bucket of i − j",
        axes="1",
        trained=True,
        parameters="terms · heads · 2 · buckets · head_dim, or 2 · max_distance rows without buckets",
        numbers=_bucket_numbers,
        relative=True,
        reference="deberta",
        sizes=("num_heads", "head_dim"),
        examples=(
            {"num_heads": 4, "head_dim": 16},
            {"num_heads": 4, "head_dim": 16, "buckets": 8, "max_distance": 9},
            {"num_heads": 3, "head_dim": 15, "buckets": 5, "max_distance": 7, "published": True},
            {"num_heads": 4, "head_dim": 16, "buckets": None, "max_distance": 4},
            {"num_heads": 4, "head_dim": 16, "buckets": 8, "max_distance": 20, "terms": ("c2p",)},
            {"num_heads": 4, "head_dim": 16, "buckets": None, "max_distance": 3, "terms": ("p2c",), "published": True},
        ),
        peers=(
            "transformers.models.deberta_v2.modeling_deberta_v2.make_log_bucket_position",
            "transformers.models.deberta_v2.modeling_deberta_v2.build_relative_position",
            "transformers.models.deberta_v2.modeling_deberta_v2.DisentangledSelfAttention",
            "transformers.models.deberta_v2.modeling_deberta_v2.DebertaV2Encoder",
            "transformers.models.deberta.modeling_deberta.DisentangledSelfAttention",
        ),
    ),
    Card(
        name="IRPE",
        place="content",
        title="Image relative position encoding, contextual, on the keys",
        year=2021,
        paper="Rethinking and Improving Relative Position Encoding for Vision Transformer (iRPE), arXiv:2107.14222",
        equation="e_ij = (q_i · k_j + q_i · r[g(Δ_h), g(Δ_w)]) / √d, or q_i · (rH[g(Δ_h)] + rW[g(Δ_w)]); g piecewise",
        axes="2",
        trained=True,
        parameters="rows² · head_dim, or 2 · rows · head_dim with cross, rows = 2 · ⌊beta⌋ + 1, times heads if any",
        numbers=_piecewise_numbers,
        relative=True,
        reference="irpe",
        sizes=("head_dim",),
        examples=(
            {"head_dim": 16},
            {"head_dim": 16, "method": "cross"},
            {"head_dim": 15, "num_heads": 4, "alpha": 1.0, "beta": 2.0, "gamma": 8.0},
            {"head_dim": 16, "num_heads": 4, "method": "cross", "alpha": 2.5, "beta": 5.0, "gamma": 20.0},
        ),
        second="second_loops.irpe",
        exempt={"axes are not mixed up": "far relative positions share a vector, so not each has an effect of its own"},
    ),
    Card(
        name="CoPE",
        place="content",
        title="Contextual position encoding",
        year=2024,
        paper="Contextual Position Encoding: Learning to Count What's Important, arXiv:2405.18719",
        equation="e_ij = q_i · k_j / √d + q_i · e[p_ij], p_ij = Σ_(k = j…i) σ(q_i · k_k / √d)",
        axes="1",
        trained=True,
        parameters="max_position · head_dim, times heads if per head",
        numbers=_counted_numbers,
        relative=False,
        reference="cope",
        sizes=("head_dim",),
        examples=(
            {"head_dim": 16, "max_position": 12},
            {"head_dim": 16, "max_position": 3, "num_heads": 4},
            {"head_dim": 15, "max_position": 5, "scaled": True},
        ),
        peers=("x_transformers.x_transformers.CoPE", "x_transformers.attend.Attend"),
        causal=True,
    ),
)
