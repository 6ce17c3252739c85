"""The cards of the bias place."""

from math import prod
from typing import Any

from posenc.catalog.card import Card


def _table_numbers(a: dict[str, Any]) -> int:
    entries: int = prod(a["shape"]) if a.get("symmetric") else prod(2 * size - 1 for size in a["shape"])
    heads: int = a["num_heads"]
    prefix: int = 3 * a.get("prefix_bias", False)
    return heads * (entries + prefix)


def _network_numbers(a: dict[str, Any]) -> int:
    hidden: int = a.get("hidden", 512)
    heads: int = a["num_heads"]
    return hidden * (len(a["shape"]) + 1 + heads)


def _fire_numbers(a: dict[str, Any]) -> int:
    hidden: int = a.get("hidden", 32)
    heads: int = a["num_heads"]
    return hidden * (2 + heads) + heads + 2


CARDS = (
    Card(
        name="ALiBi",
        place="bias",
        title="Attention with linear biases",
        year=2021,
        paper="Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation, "
        "arXiv:2108.12409",
        equation="b_h(i − j) = −m_h |i − j|, m_h = 2^(−8h/H) for h = 1 … H; signed: −m_h (i − j)",
        axes="1",
        trained=False,
        parameters="heads if the slopes are learnable, else 0",
        numbers=lambda a: a["num_heads"] if a.get("learned") else 0,
        relative=True,
        reference="alibi",
        sizes=("num_heads",),
        examples=(
            {"num_heads": 4},
            {"num_heads": 6, "signed": True},
            {"num_heads": 4, "learned": True},
            {"num_heads": 3, "signed": True, "learned": True},
            {"num_heads": 1},
        ),
        peers=(
            "transformers.models.bloom.modeling_bloom.build_alibi_tensor",
            "transformers.models.bloom.modeling_bloom.BloomAttention",
            "x_transformers.x_transformers.AlibiPositionalBias",
        ),
    ),
    Card(
        name="T5Bias",
        place="bias",
        title="T5's bucketed relative bias",
        year=2019,
        paper="Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer (T5), "
        "arXiv:1910.10683",
        equation="b_h(i − j) = table[h, bucket(i − j)], buckets exact nearby and logarithmic beyond",
        axes="1",
        trained=True,
        parameters="heads · num_buckets",
        numbers=lambda a: a["num_heads"] * a.get("num_buckets", 32),
        relative=True,
        reference="t5_bias",
        sizes=("num_heads",),
        examples=(
            {"num_heads": 4},
            {"num_heads": 4, "bidirectional": False},
            {"num_heads": 4, "num_buckets": 8, "max_distance": 12},
            {"num_heads": 3, "num_buckets": 9, "max_distance": 20, "bidirectional": False},
        ),
        peers=(
            "transformers.models.t5.modeling_t5.T5Attention._relative_position_bucket",
            "transformers.models.t5.modeling_t5.T5Attention",
            "x_transformers.x_transformers.RelativePositionBias",
        ),
    ),
    Card(
        name="RelativePositionBias",
        place="bias",
        title="Relative position bias table (Swin; with a CLS token, BEiT)",
        year=2021,
        paper="Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, arXiv:2103.14030",
        equation="b_h(i − j) = table[h, Δ_1, …, Δ_n], one number for each relative position on the grid",
        axes="any",
        trained=True,
        parameters="heads · Π(2 · size − 1), and 3 · heads with prefix_bias",
        numbers=_table_numbers,
        relative=True,
        reference="relative_position_bias",
        sizes=("num_heads", "shape"),
        examples=(
            {"num_heads": 4, "shape": (11,)},
            {"num_heads": 4, "shape": (3, 4)},
            {"num_heads": 4, "shape": (4, 3), "prefix_bias": True},
            {"num_heads": 3, "shape": (3, 5), "symmetric": True},
            {"num_heads": 4, "shape": (7,), "prefix_bias": True, "symmetric": True},
            {"num_heads": 2, "shape": (2, 3, 4)},
            {"num_heads": 4, "shape": (3, 4), "windowed": True},
            {"num_heads": 2, "shape": (5,), "prefix_bias": True, "symmetric": True, "windowed": True},
        ),
        peers=(
            "timm.layers.RelPosBias",
            "timm.layers.pos_embed_rel.gen_relative_position_index",
            "timm.layers.RelPosBiasTf",
            "timm.models.swin_transformer.WindowAttention",
            "timm.models.swin_transformer.SwinTransformer",
            "timm.models.beit.Attention",
            "timm.models.beit.RelativePositionBias",
            "timm.models.levit.Attention",
            "timm.models.levit.AttentionDownsample",
            "transformers.models.swin.modeling_swin.SwinAttention",
            "transformers.models.beit.modeling_beit.BeitRelativePositionBias",
            "transformers.models.levit.modeling_levit.LevitAttention",
            "transformers.models.levit.modeling_levit.LevitAttentionSubsample",
        ),
    ),
    Card(
        name="ContinuousPositionBias",
        place="bias",
        title="Log-spaced continuous position bias (Swin-v2)",
        year=2021,
        paper="Swin Transformer V2: Scaling Up Capacity and Resolution, arXiv:2111.09883",
        equation="b_h(i − j) = 16 σ(W2_h relu(W1 c(i − j) + b1)), c(x) = sign(x) log(1 + 8 |x| / (n − 1)) / log 8",
        axes="any",
        trained=True,
        parameters="hidden · (axes + 1 + heads)",
        numbers=_network_numbers,
        relative=True,
        reference="continuous_position_bias",
        sizes=("num_heads", "shape"),
        examples=(
            {"num_heads": 4, "shape": (3, 4), "hidden": 24},
            {"num_heads": 4, "shape": (4, 3), "pretrained_shape": (2, 5), "hidden": 24},
            {"num_heads": 4, "shape": (11,), "hidden": 24},
            {"num_heads": 3, "shape": (1, 5), "hidden": 24},
            {"num_heads": 2, "shape": (2, 3, 4), "hidden": 24},
        ),
        peers=(
            "timm.layers.RelPosMlp",
            "timm.models.swin_transformer_v2.WindowAttention",
            "transformers.models.swinv2.modeling_swinv2.Swinv2SelfAttention",
        ),
    ),
    Card(
        name="Kerple",
        place="bias",
        title="Kernelized relative position bias (KERPLE)",
        year=2022,
        paper="KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation, arXiv:2205.09921",
        equation="b_h(i − j) = −r1_h log(1 + r2_h |i − j|); power: −r1_h |i − j|^r2_h, 0 < r2_h < 2",
        axes="1",
        trained=True,
        parameters="2 · heads",
        numbers=lambda a: 2 * a["num_heads"],
        relative=True,
        reference="kerple",
        sizes=("num_heads",),
        examples=({"num_heads": 4}, {"num_heads": 4, "kind": "power"}, {"num_heads": 3, "kind": "logarithmic"}),
        second="second_loops.kerple",
    ),
    Card(
        name="Fire",
        place="bias",
        title="Functional interpolation of relative positions (FIRE)",
        year=2023,
        paper="Functional Interpolation for Relative Positions Improves Long Context Transformers, arXiv:2310.04418",
        equation="b_h(i, j) = W2_h relu(W1 ψ(|i − j|) / ψ(max(|L|, i)) + b1) + b2_h, ψ(x) = log(1 + |c| x)",
        axes="1",
        trained=True,
        parameters="hidden · (heads + 2) + heads + 2",
        numbers=_fire_numbers,
        relative=False,
        reference="fire",
        sizes=("num_heads",),
        examples=(
            {"num_heads": 4},
            {"num_heads": 4, "hidden": 7},
            {"num_heads": 1, "hidden": 12},
        ),
        second="second_loops.fire",
    ),
    Card(
        name="Sandwich",
        place="bias",
        title="Inner products of sinusoidal embeddings (Sandwich)",
        year=2022,
        paper="Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis, arXiv:2212.10356",
        equation="b_h(i − j) = H / (8h) Σ_k cos((i − j) 10000^(−2k/dim)), k = 0 … dim/2 − 1, h = 1 … H",
        axes="1",
        trained=False,
        parameters="0",
        numbers=lambda a: 0,
        relative=True,
        reference="sandwich",
        sizes=("num_heads",),
        examples=({"num_heads": 4}, {"num_heads": 4, "dim": 16}, {"num_heads": 3, "dim": 6}),
        second="second_loops.sandwich",
    ),
)
