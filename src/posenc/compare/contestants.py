"""What a contestant is: an encoding, how it is built for a task, where it enters, and which positions it reads."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

from torch import nn

import posenc
from posenc import catalog
from posenc.compare.tasks import Place, Task

__all__ = ["Arguments", "Contestant", "Sizes", "Variant"]


@dataclass(frozen=True)
class Sizes:
    """The sizes of the model that an encoding has to fit."""

    width: int = 64
    heads: int = 4
    layers: int = 2
    hidden: int = 128

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        return self.width // self.heads


Arguments = Callable[[Task, Sizes], dict[str, Any]]
Reason = Callable[[Task], str]  # why not, or nothing
ANYWHERE: Reason = lambda task: ""  # noqa: E731


@dataclass(frozen=True)
class Variant:
    """A trained encoding changed for another layout, without training: `adapt(encoding, place, task)` gives the changed
    encoding and the place as it reads it, or raises ValueError."""

    name: str
    title: str
    adapt: Callable[[nn.Module, Place, Task], tuple[nn.Module, Place]]
    refuses: Reason = ANYWHERE


@dataclass(frozen=True)
class Contestant:
    """One row of the table.

    `enters`: added to the embeddings, added after the first block, or given to attention. `reads_layout`: it reads the
    layout of the grid alone, and no coordinates. `unlike`: why it is not run on a task that its card would let it run
    on.
    """

    name: str
    title: str
    paper: str
    scheme: str | None
    arguments: Arguments
    enters: Literal["nowhere", "embeddings", "between", "attention"]
    reads_layout: bool = False
    look: tuple[str, str] = ("#8a8a8a", "o")  # colour and marker in every picture
    variants: tuple[Variant, ...] = ()
    unlike: Reason = ANYWHERE

    @property
    def names(self) -> tuple[str, ...]:
        """Its own name and those of its variants."""
        return self.name, *(variant.name for variant in self.variants)

    @property
    def axes(self) -> int | None:
        """The number of coordinates that it reads, or None where any will do."""
        axes = "any" if self.scheme is None else catalog.card(self.scheme).axes
        return int(axes) if axes.isdigit() else None

    def build(self, task: Task, sizes: Sizes) -> nn.Module | None:
        """The encoding, or None for the model without one."""
        return (
            None
            if self.scheme is None
            else cast(nn.Module, getattr(posenc, self.scheme)(**self.arguments(task, sizes)))
        )

    def refuses(self, task: Task) -> str:
        """Why it does not fit a task, or nothing."""
        if self.scheme is None:
            return ""
        if catalog.card(self.scheme).causal and not task.causal:
            return "attention must be causal for it, and here every token sees all others"
        if self.unlike(task):
            return self.unlike(task)
        if (self.axes or 1) > task.axes and not self.frame(task):
            return f"it is made for {self.axes} axes, and these tokens stand along {task.axes}"
        return ""

    def raster(self, task: Task) -> bool:
        """Whether it reads the tokens of a grid as one sequence, row after row."""
        return self.axes == 1 and task.axes > 1

    def frame(self, task: Task) -> bool:
        """Whether it reads an image as the one frame of a film."""
        return self.axes == 3 and task.axes == 2

    def positions(self, task: Task, place: Place) -> Any:
        """Where the tokens stand, as far as this encoding reads it. Raises ValueError where it cannot."""
        if self.reads_layout:
            return posenc.grid(*place.shape)
        if self.raster(task):
            if place.squeezed is not None:
                raise ValueError("raster order counts tokens: there is nothing to squeeze")
            return posenc.sequence(math.prod(place.shape), start=place.shift)
        if self.frame(task):
            squeezed = None if place.squeezed is None else (1.0, *place.squeezed)
            place = place._replace(shape=(1, *place.shape), squeezed=squeezed)
        if place.squeezed is not None:
            high = [size / ratio - 0.5 for size, ratio in zip(place.shape, place.squeezed, strict=True)]
            return posenc.grid(*place.shape).rescaled([-0.5] * len(high), high)
        if place.shift and task.axes > 1:
            return posenc.coordinates(posenc.grid(*place.shape).coordinates() + place.shift)
        if task.axes > 1:
            return posenc.grid(*place.shape)
        if place.mask is not None and not place.shift:
            return posenc.padded(place.mask)
        return posenc.sequence(place.shape[0], start=place.shift)
