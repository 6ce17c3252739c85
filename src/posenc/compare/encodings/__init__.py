"""The encodings that are compared: one row each, with all that is particular to it.

A row says how the encoding is built for a task, where it enters the model, which positions it reads and which tasks it
fits. Nothing outside a row knows a scheme. Every scheme of the catalog has a row, in the module of its place.
"""

from posenc import catalog
from posenc.compare.contestants import Contestant, Sizes, Variant
from posenc.compare.encodings import absolute, bias, conditional, content, rotary
from posenc.compare.errors import BadInput, near
from posenc.compare.tasks import Task

__all__ = ["ALL", "CONTESTANTS", "Contestant", "Sizes", "Variant", "chosen", "contestant", "spelled", "title"]

ALL = "all"
CONTESTANTS: tuple[Contestant, ...] = (
    *absolute.ROWS,
    *rotary.ROWS,
    *bias.ROWS,
    *content.ROWS,
    *conditional.ROWS,
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
    "text": ("none", "sinusoidal", "learned", "learned-resized", "rotary", "rotary-yarn", "alibi", "t5", "shaw"),
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
    raise near("encoding", name, [*_names(), ALL])


def chosen(
    task: Task, names: tuple[str, ...] | None, *, everything: bool = False
) -> tuple[list[str], list[tuple[str, str]]]:
    """Names to show for a task, and what was asked for and does not fit it: its title, and why.

    "none" is always shown: everything is measured against it. Raises BadInput for names that are unknown or too few.
    """
    if names is None:
        kind = "text" if task.causal else "grid" if task.axes > 1 else "series"
        wanted: tuple[str, ...] = tuple(_names()) if everything else DEFAULTS[kind]
    else:
        wanted = tuple(each for name in names for each in (_names() if name == ALL else [spelled(name)]))
    if not wanted:
        raise BadInput("--encodings is empty: leave it out for the default set")
    reasons = {name: _refusal(name, task) for name in _names() if name in wanted or name == "none"}
    shown = [name for name, why in reasons.items() if not why]
    return shown, [(title(name), why) for name, why in reasons.items() if why]


def title(name: str) -> str:
    """The title of a row or of a variant."""
    row = contestant(name)
    return next((variant.title for variant in row.variants if variant.name == name), row.title)


def _refusal(name: str, task: Task) -> str:
    row = contestant(name)
    own = next((variant.refuses(task) for variant in row.variants if variant.name == name), "")
    return row.refuses(task) or own


def _names() -> list[str]:
    return [name for row in CONTESTANTS for name in row.names]
