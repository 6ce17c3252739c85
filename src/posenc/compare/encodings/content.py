"""The contestants whose vectors meet the queries and keys."""

from posenc.compare.contestants import Contestant
from posenc.compare.looks import BLUE, GREEN, OLIVE, ORANGE, PURPLE, SKY, VERMILION

__all__ = ["ROWS"]

ROWS = (
    Contestant(
        "shaw",
        "Shaw",
        "Shaw et al. 2018",
        "Shaw",
        lambda task, sizes: {"head_dim": sizes.head_dim, "max_distance": 16, "num_heads": sizes.heads},
        "attention",
        look=(PURPLE, "X"),
    ),
    Contestant(
        "relative-logits",
        "Relative logits",
        "Srinivas et al. 2021 (BoTNet), Huang et al. 2018",
        "RelativeLogits",
        lambda task, sizes: {"head_dim": sizes.head_dim, "shape": task.shape, "causal": task.causal},
        "attention",
        look=(GREEN, "p"),
    ),
    Contestant(
        "sinusoidal-logits",
        "Sinusoidal logits",
        "Dai et al. 2019, without its projection",
        "SinusoidalLogits",
        lambda task, sizes: {"head_dim": sizes.head_dim},
        "attention",
        look=(OLIVE, "h"),
    ),
    Contestant(
        "transformer-xl",
        "Transformer-XL",
        "Dai et al. 2019",
        "TransformerXL",
        lambda task, sizes: {"num_heads": sizes.heads, "head_dim": sizes.head_dim},
        "attention",
        look=(BLUE, "X"),
    ),
    Contestant(
        "deberta",
        "DeBERTa",
        "He et al. 2020",
        "Deberta",
        # rows for the lengths at hand; those of the released models are for 512 tokens
        lambda task, sizes: {
            "num_heads": sizes.heads,
            "head_dim": sizes.head_dim,
            "buckets": 32,
            "max_distance": 128,
        },
        "attention",
        look=(ORANGE, "p"),
    ),
    Contestant(
        "irpe",
        "iRPE",
        "Wu et al. 2021",
        "IRPE",
        lambda task, sizes: {"head_dim": sizes.head_dim, "num_heads": sizes.heads},
        "attention",
        look=(VERMILION, "X"),
    ),
    Contestant(
        "cope",
        "CoPE",
        "Golovneva et al. 2024",
        "CoPE",
        lambda task, sizes: {"head_dim": sizes.head_dim, "max_position": max(1, task.shape[0] // 2)},
        "attention",
        look=(SKY, ">"),
    ),
)
