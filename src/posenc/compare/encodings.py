"""The encodings that are compared: one row each, with all that is particular to it.

A row says how the encoding is built for a task, where it enters the model, which positions it reads and which tasks it
fits. Nothing outside a row knows a scheme.
"""

from typing import Any, cast

import torch
from torch import nn

import posenc
from posenc import catalog
from posenc.compare.contestants import Arguments, Contestant, Sizes, Variant
from posenc.compare.errors import BadInput, near
from posenc.compare.tasks import Place, Task

__all__ = ["CONTESTANTS", "INK", "Contestant", "Sizes", "Variant", "chosen", "contestant", "title"]

# Okabe and Ito's colours, told apart by colour-blind readers; INK is the colour of the page's text
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
OLIVE, INK = "#9A8F00", "#010203"


def _resized(encoding: nn.Module, place: Place) -> tuple[nn.Module, Place]:
    """A learned table stretched over another number of positions."""
    source = tuple(cast(Any, encoding).shape)
    if place.shift:
        raise ValueError("a resized table starts where the trained one does")
    if place.squeezed is not None:
        target = tuple(round(size * ratio) for size, ratio in zip(source, place.squeezed, strict=True))
    elif place.mask is None and len(source) == 1:
        target = place.shape
    elif all(now <= size for now, size in zip(place.shape, source, strict=True)):
        target = source
    else:
        raise ValueError("a resized table is stretched over the whole: see it squeezed")
    table = posenc.resize_table(cast(Any, encoding).table.detach(), source, target)
    stretched = posenc.Learned(target, table.shape[-1])
    with torch.no_grad():
        stretched.table.copy_(table)
    return stretched, place._replace(squeezed=None)


RESIZED = Variant("learned-resized", "Learned, resized", _resized)

NOTHING: Arguments = lambda task, sizes: {}  # noqa: E731
HEADS: Arguments = lambda task, sizes: {"num_heads": sizes.heads}  # noqa: E731

CONTESTANTS: tuple[Contestant, ...] = (
    Contestant("none", "No encoding", "", None, NOTHING, "nowhere"),
    Contestant(
        "sinusoidal",
        "Sinusoidal",
        "Vaswani et al. 2017",
        "Sinusoidal",
        lambda task, sizes: {"dim": sizes.width, "axes": task.axes},
        "embeddings",
        look=(BLUE, "o"),
    ),
    Contestant(
        "learned",
        "Learned",
        "Dosovitskiy et al. 2020",
        "Learned",
        lambda task, sizes: {"shape": task.shape, "dim": sizes.width},
        "embeddings",
        variants=(RESIZED,),
        look=(ORANGE, "s"),
    ),
    Contestant(
        "fourier",
        "Fourier",
        "Tancik et al. 2020",
        "Fourier",
        lambda task, sizes: {"dim": sizes.width, "axes": task.axes, "scale": 2.0 / max(task.shape)},
        "embeddings",
        look=(INK, "*"),
    ),
    Contestant(
        "rotary",
        "Rotary",
        "Su et al. 2021",
        "Rotary",
        lambda task, sizes: {
            "head_dim": sizes.head_dim,
            "axes": task.axes,
            "base": 10000.0 if task.axes == 1 else 100.0,
        },
        "attention",
        look=(VERMILION, "^"),
    ),
    Contestant("alibi", "ALiBi", "Press et al. 2021", "ALiBi", HEADS, "attention", axes="one", look=(GREEN, "D")),
    Contestant(
        "t5",
        "T5 bias",
        "Raffel et al. 2019",
        "T5Bias",
        lambda task, sizes: {"num_heads": sizes.heads, "bidirectional": not task.causal},
        "attention",
        axes="one",
        look=(SKY, "v"),
    ),
    Contestant(
        "relative-position-bias",
        "Relative position bias",
        "Liu et al. 2021 (Swin)",
        "RelativePositionBias",
        lambda task, sizes: {"num_heads": sizes.heads, "shape": task.shape},
        "attention",
        look=(SKY, "P"),
    ),
    Contestant(
        "shaw",
        "Shaw",
        "Shaw et al. 2018",
        "Shaw",
        lambda task, sizes: {"head_dim": sizes.head_dim, "max_distance": 16, "num_heads": sizes.heads},
        "attention",
        axes="one",
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
        axes="one",
        look=(OLIVE, "h"),
    ),
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

DEFAULTS = {
    "grid": (
        "none",
        "sinusoidal",
        "learned",
        "learned-resized",
        "rotary",
        "relative-position-bias",
        "relative-logits",
        "conditional",
    ),
    "series": ("none", "sinusoidal", "learned", "learned-resized", "rotary", "alibi", "t5", "conditional"),
    "text": ("none", "sinusoidal", "learned", "learned-resized", "rotary", "alibi", "t5", "shaw"),
}


def contestant(name: str) -> Contestant:
    """The row of a name, or the row that a variant is trained as. Raises BadInput, with near names."""
    for row in CONTESTANTS:
        if name in row.names:
            return row
    raise near("encoding", name, _names())


def spelled(name: str) -> str:
    """The name of a row, from any spelling of it or of its scheme: RelativePositionBias is relative-position-bias."""
    for row in CONTESTANTS:
        for known in (*row.names, row.scheme):
            if known is not None and catalog.plain(name) == catalog.plain(known):
                return row.name if known == row.scheme else known
    raise near("encoding", name, _names())


def chosen(task: Task, names: tuple[str, ...] | None, *, everything: bool = False) -> list[str]:
    """Names to show for a task, "none" always among them: everything is measured against it."""
    if names is None:
        kind = "text" if task.causal else "grid" if task.axes > 1 else "series"
        wanted: tuple[str, ...] = tuple(_names()) if everything else DEFAULTS[kind]
    else:
        wanted = tuple(spelled(name) for name in names)
    if not wanted:
        raise BadInput("--encodings is empty: leave it out for the default set")
    return [name for name in _names() if name in wanted or name == "none"]


def title(name: str) -> str:
    """The title of a row or of a variant."""
    row = contestant(name)
    return next((variant.title for variant in row.variants if variant.name == name), row.title)


def _names() -> list[str]:
    return [name for row in CONTESTANTS for name in (row.name, *(variant.name for variant in row.variants))]
