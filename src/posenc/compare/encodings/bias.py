"""The contestants that add a number to the logits."""

import math

from posenc.compare.contestants import Arguments, Contestant
from posenc.compare.looks import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION

__all__ = ["ROWS"]

HEADS: Arguments = lambda task, sizes: {"num_heads": sizes.heads}  # noqa: E731
WINDOW: Arguments = lambda task, sizes: {"num_heads": sizes.heads, "shape": task.shape}  # noqa: E731

ROWS = (
    Contestant("alibi", "ALiBi", "Press et al. 2021", "ALiBi", HEADS, "attention", look=(GREEN, "D")),
    Contestant(
        "t5",
        "T5 bias",
        "Raffel et al. 2019",
        "T5Bias",
        lambda task, sizes: {"num_heads": sizes.heads, "bidirectional": not task.causal},
        "attention",
        look=(SKY, "v"),
    ),
    Contestant(
        "relative-position-bias",
        "Relative position bias",
        "Liu et al. 2021 (Swin)",
        "RelativePositionBias",
        WINDOW,
        "attention",
        look=(SKY, "P"),
    ),
    Contestant(
        "continuous-position-bias",
        "Continuous position bias",
        "Liu et al. 2021 (Swin v2)",
        "ContinuousPositionBias",
        WINDOW,
        "attention",
        look=(BLUE, "P"),
    ),
    Contestant("kerple", "KERPLE", "Chi et al. 2022", "Kerple", HEADS, "attention", look=(ORANGE, "D")),
    Contestant(
        "fire",
        "FIRE",
        "Li et al. 2023",
        "Fire",
        # a quarter of the trained length, as in the paper
        lambda task, sizes: {"num_heads": sizes.heads, "threshold": max(1.0, math.prod(task.shape) / 4)},
        "attention",
        look=(VERMILION, "*"),
    ),
    Contestant("sandwich", "Sandwich", "Chi et al. 2022", "Sandwich", HEADS, "attention", look=(PURPLE, "s")),
)
