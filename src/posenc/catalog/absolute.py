"""The cards of the absolute place."""

from math import prod
from typing import Any

from posenc.catalog.card import Card


def _network_numbers(a: dict[str, Any]) -> int:
    features, hidden, dim = a.get("features", 384), a.get("hidden", 32), a["dim"]
    return int(a.get("axes", 1) * features // 2 + (features + 1) * hidden + (hidden + 1) * dim)


CARDS = (
    Card(
        name="Sinusoidal",
        place="absolute",
        title="Sinusoidal position encoding",
        year=2017,
        paper="Attention Is All You Need, arXiv:1706.03762",
        equation="PE[pos, 2i] = sin(pos / 10000^(2i/d)), PE[pos, 2i+1] = cos(pos / 10000^(2i/d))",
        axes="any",
        trained=False,
        parameters="0",
        numbers=lambda a: 0,
        relative=False,
        reference="sinusoidal",
        sizes=("dim", "axes"),
        examples=(
            {"dim": 24},
            {"dim": 23},
            {"dim": 24, "base": 100.0, "layout": "concatenated"},
            {"dim": 23, "layout": "concatenated"},
            {"dim": 24, "axes": 2},
            {"dim": 25, "axes": 2, "layout": "concatenated", "axis_order": (1, 0)},
            {"dim": 26, "axes": 3, "axis_order": (2, 0, 1)},
        ),
        peers=(
            "positional_encodings.torch_encodings.PositionalEncoding1D",
            "positional_encodings.torch_encodings.PositionalEncoding2D",
            "positional_encodings.torch_encodings.PositionalEncoding3D",
            "transformers.models.xlm.modeling_xlm.create_sinusoidal_embeddings",
            "transformers.models.marian.modeling_marian.MarianSinusoidalPositionalEmbedding",
            "transformers.models.gptj.modeling_gptj.create_sinusoidal_positions",
            "transformers.models.vit_mae.modeling_vit_mae.build_2d_sinusoidal_position_embedding",
            "transformers.models.detr.modeling_detr.DetrSinePositionEmbedding",
            "transformers.models.deformable_detr.modeling_deformable_detr.DeformableDetrSinePositionEmbedding",
            "timm.layers.build_sincos2d_pos_embed",
        ),
    ),
    Card(
        name="Learned",
        place="absolute",
        title="Learned position embedding",
        year=2020,
        paper="An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale (ViT), arXiv:2010.11929",
        equation="x_pos + E[pos]",
        axes="any",
        trained=True,
        parameters="(prefix + Π shape) · dim",
        numbers=lambda a: (a.get("prefix", 0) + prod(a["shape"])) * a["dim"],
        relative=False,
        reference="learned",
        sizes=("shape", "dim"),
        examples=(
            {"shape": (11,), "dim": 24},
            {"shape": (3, 4), "dim": 24, "std": 1.0},
            {"shape": (4, 3), "dim": 23, "prefix": 1},
            {"shape": (2, 3, 2), "dim": 24, "prefix": 2, "truncated": False},
        ),
        peers=(
            "timm.models.vision_transformer.VisionTransformer",
            "timm.layers.resample_abs_pos_embed",
            "PIL.Image.Image.resize",
            "transformers.models.vit.modeling_vit.ViTEmbeddings",
            "transformers.models.bert.modeling_bert.BertEmbeddings",
            "transformers.models.roberta.modeling_roberta.RobertaEmbeddings",
            "transformers.models.bart.modeling_bart.BartEncoder",
            "transformers.models.bart.modeling_bart.BartLearnedPositionalEmbedding",
            "transformers.models.mbart.modeling_mbart.MBartLearnedPositionalEmbedding",
        ),
    ),
    Card(
        name="Fourier",
        place="absolute",
        title="Random or learned Fourier features",
        year=2020,
        paper="Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains, "
        "arXiv:2006.10739",
        equation="γ(c) = [sin(2π c B), cos(2π c B)], B drawn from N(0, σ²)",
        axes="any",
        trained=False,
        parameters="axes · dim / 2 if learnable, else 0",
        numbers=lambda a: a.get("axes", 1) * a["dim"] // 2,
        relative=False,
        reference="fourier",
        sizes=("dim", "axes"),
        examples=(
            {"dim": 24},
            {"dim": 24, "axes": 2, "scale": 0.1},
            {"dim": 24, "axes": 2, "scale": 0.1, "learnable": True},
            {"dim": 22, "axes": 3, "scale": 0.3},
        ),
        peers=(
            "transformers.models.sam.modeling_sam.SamPositionalEmbedding",
            "transformers.models.perceiver.modeling_perceiver.generate_fourier_features",
        ),
    ),
    Card(
        name="FourierBands",
        place="absolute",
        title="Fourier features at fixed frequencies (NeRF, Perceiver)",
        year=2020,
        paper="NeRF: Representing Scenes as Neural Radiance Fields for View Synthesis, arXiv:2003.08934; "
        "Perceiver: General Perception with Iterative Attention, arXiv:2103.03206",
        equation="γ(c) = [sin(π f_k s c), cos(π f_k s c)], f_k = 2^k, or evenly from 1 to resolution / 2",
        axes="any",
        trained=False,
        parameters="0",
        numbers=lambda a: 0,
        relative=False,
        reference="fourier_bands",
        sizes=("axes", "dim"),
        examples=(
            {"axes": 1, "bands": 8, "dim": 16},
            {"axes": 1, "bands": 3, "scale": 0.07, "dim": 11, "layout": "concatenated"},
            {"axes": 2, "bands": 4, "resolution": (12, 10), "scale": 0.1, "dim": 16, "layout": "concatenated"},
            {"axes": 3, "bands": 3, "resolution": 8, "scale": 0.11, "dim": 20},
        ),
        peers=(
            "transformers.models.perceiver.modeling_perceiver.generate_fourier_features",
            "timm.layers.build_fourier_pos_embed",
        ),
    ),
    Card(
        name="LearnableFourier",
        place="absolute",
        title="Learnable Fourier features",
        year=2021,
        paper="Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding, arXiv:2106.02795",
        equation="GELU([cos(c W), sin(c W)] / √F · H + a) O + b, W starts as N(0, σ²)",
        axes="any",
        trained=True,
        parameters="axes · F / 2 + (F + 1) · hidden + (hidden + 1) · dim",
        numbers=_network_numbers,
        relative=False,
        reference="learnable_fourier",
        sizes=("dim", "axes"),
        examples=(
            {"dim": 16, "axes": 1, "features": 12, "hidden": 6},
            {"dim": 11, "axes": 1, "features": 10, "hidden": 5, "scale": 0.1},
            {"dim": 24, "axes": 2, "features": 8, "hidden": 9, "scale": 0.3},
            {"dim": 16, "axes": 3, "features": 12, "hidden": 6, "scale": 0.3},
        ),
        second="second_loops.learnable_fourier",
    ),
)
