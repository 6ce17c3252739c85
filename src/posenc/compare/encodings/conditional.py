"""The contestants that read the neighbourhood."""

from posenc.compare.contestants import Contestant
from posenc.compare.looks import PURPLE

__all__ = ["ROWS"]

ROWS = (
    Contestant(
        "conditional",
        "Conditional (PEG)",
        "Chu et al. 2021",
        "ConditionalEncoding",
        lambda task, sizes: {"dim": sizes.width, "axes": task.axes, "causal": task.causal},
        "between",
        reads_layout=True,
        look=(PURPLE, ">"),
    ),
)
