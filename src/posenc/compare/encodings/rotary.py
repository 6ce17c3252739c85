"""The contestants that turn queries and keys."""

from collections.abc import Callable
from typing import Any, cast

from torch import nn

import posenc
from posenc.compare.contestants import Contestant, Variant
from posenc.compare.looks import GREEN, ORANGE, PURPLE, VERMILION
from posenc.compare.tasks import Place, Task

__all__ = ["ROWS", "SCALED"]


def _scaled(scaling: Callable[[float, int], Any]) -> Callable[[nn.Module, Place, Task], tuple[nn.Module, Place]]:
    """Trained plain, read with a scaling by as much as the text is longer than the trained one."""

    def adapt(encoding: nn.Module, place: Place, task: Task) -> tuple[nn.Module, Place]:
        factor = place.shape[0] / task.shape[0]
        if factor <= 1:
            return encoding, place
        trained = cast(Any, encoding)
        stretched = posenc.Rotary(trained.head_dim, base=trained.base, scaling=scaling(factor, task.shape[0]))
        return stretched, place

    return adapt


def _of_text(task: Task) -> str:
    return "" if task.causal else "a longer text shows what a scaling does; squeezed positions are the linear one"


SCALED = (
    Variant(
        "rotary-linear",
        "Rotary, interpolated",
        _scaled(lambda factor, trained: posenc.scaling.linear(factor)),
        _of_text,
    ),
    Variant("rotary-ntk", "Rotary, NTK-aware", _scaled(lambda factor, trained: posenc.scaling.ntk(factor)), _of_text),
    Variant(
        "rotary-yarn",
        "Rotary, YaRN",
        _scaled(lambda factor, trained: posenc.scaling.yarn(factor, original=trained)),
        _of_text,
    ),
)


def _base(task: Task) -> float:
    """A grid has few positions an axis: its slowest wave is shorter."""
    return 10000.0 if task.axes == 1 else 100.0


def _sections(pairs: int) -> tuple[int, int, int]:
    """Pairs of time, height and width, in the proportion 2 : 3 : 3 of Qwen2-VL."""
    side = pairs * 3 // 8
    return pairs - 2 * side, side, side


ROWS = (
    Contestant(
        "rotary",
        "Rotary",
        "Su et al. 2021",
        "Rotary",
        lambda task, sizes: {"head_dim": sizes.head_dim, "axes": task.axes, "base": _base(task)},
        "attention",
        variants=SCALED,
        look=(VERMILION, "^"),
    ),
    Contestant(
        "mixed-rotary",
        "Mixed rotary",
        "Heo et al. 2024 (RoPE-Mixed)",
        "MixedRotary",
        lambda task, sizes: {
            "num_heads": sizes.heads,
            "head_dim": sizes.head_dim,
            "axes": task.axes,
            "base": 10000.0 if task.axes == 1 else 10.0,
        },
        "attention",
        look=(ORANGE, "<"),
    ),
    Contestant(
        "multimodal-rotary",
        "Multimodal rotary",
        "Wang et al. 2024 (Qwen2-VL)",
        "MultimodalRotary",
        lambda task, sizes: {
            "head_dim": sizes.head_dim,
            "sections": _sections(sizes.head_dim // 2),
            "base": _base(task),
        },
        "attention",
        look=(PURPLE, "d"),
        unlike=lambda task: (
            "" if task.axes == 2 else "along one axis its three positions are the same number, and it is rotary"
        ),
    ),
    Contestant(
        "xpos",
        "xPos",
        "Sun et al. 2022",
        "XPos",
        lambda task, sizes: {"head_dim": sizes.head_dim, "base": _base(task)},
        "attention",
        look=(GREEN, "v"),
    ),
)
