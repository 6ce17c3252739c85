"""What the encodings are compared on: images, series and text, as tokens that stand somewhere.

A task knows its tokens' layout, gives training batches in an order that depends on the seed alone, and gives the
held-out data again under each `Condition`: at the trained length, beyond it, squeezed into it, and shifted.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Batch", "Condition", "Place", "Task", "digest", "number", "parts", "shuffled"]

EVALUATED_TOKENS, EVALUATED_PAIRS = 8192, 2**20  # a batch and a head, at most: what stays in a cache


class Place(NamedTuple):
    """Where the tokens of a batch stand: they fill `shape`, moved by `shift`, or squeezed by a factor an axis."""

    shape: tuple[int, ...]
    shift: int = 0
    squeezed: tuple[float, ...] | None = None
    mask: Tensor | None = None  # [batch, tokens], True = a token


class Batch(NamedTuple):
    """Inputs `[b, n]` (symbols) or `[b, n, values]`, targets `[b]` (classes) or `[b, n]`, and where tokens stand."""

    inputs: Tensor
    targets: Tensor
    place: Place


class Condition(NamedTuple):
    """One way to evaluate: so many times the trained length, with positions continued, squeezed or shifted."""

    name: str
    label: str
    factor: float
    squeezed: bool = False
    shift: int = 0


@dataclass(kw_only=True)
class Task(ABC):
    """What all tasks have; `values` is None where a token is one of `symbols`, else how many numbers a token holds."""

    name: str
    title: str
    about: str
    shape: tuple[int, ...]
    outputs: int
    factors: tuple[float, ...]
    batch_size: int
    steps: int
    values: int | None = None
    symbols: int = 0
    causal: bool = False
    shifts: tuple[int, ...] = ()
    fingerprint: str = field(default="", repr=False)

    @property
    def axes(self) -> int:
        """Coordinates a token has."""
        return len(self.shape)

    @property
    def higher_is_better(self) -> bool:
        """Accuracy is better high, bits per character low."""
        return not self.causal

    @property
    def measure(self) -> str:
        """What a score is."""
        return "bits per character" if self.causal else "accuracy"

    @property
    def chance(self) -> float | None:
        """The best score on the held-out data of one answer for all of it; None where that is not known."""
        return None

    def scaled(self, factor: float) -> tuple[int, ...]:
        """The shape at so many times the trained length."""
        return tuple(max(1, round(size * factor)) for size in self.shape)

    def conditions(self) -> list[Condition]:
        """All ways to evaluate, the trained length first."""
        found = [Condition("1x", f"{self.describe(1)}, as trained", 1.0)]
        for factor in self.factors:
            if factor == 1:
                continue
            name, label = f"{factor:g}x", self.describe(factor)
            found.append(Condition(name, f"{label}, positions continued" if not self.causal else label, factor))
            if not self.causal:
                found.append(Condition(f"{name}-squeezed", f"{label}, squeezed into the trained grid", factor, True))
        return found + [
            Condition(f"shift-{shift}", f"all positions + {shift}", 1.0, shift=shift) for shift in self.shifts
        ]

    def describe(self, factor: float) -> str:
        """The shape in words."""
        unit = "" if self.axes > 1 else " characters" if self.causal else " steps"
        return " × ".join(str(size) for size in self.scaled(factor)) + unit

    def place(self, condition: Condition, shape: tuple[int, ...], mask: Tensor | None = None) -> Place:
        """Where the tokens stand under a condition."""
        ratios = tuple(now / trained for now, trained in zip(self.scaled(condition.factor), self.shape, strict=True))
        return Place(shape, condition.shift, ratios if condition.squeezed else None, mask)

    @abstractmethod
    def training(self, steps: int, seed: int) -> Iterator[Batch]:
        """Batches to train on; their order depends on the seed alone, not on the encoding."""

    @abstractmethod
    def held_out(self, condition: Condition) -> Iterator[Batch]:
        """The held-out data under a condition."""


def number(*parts: object) -> int:
    """A seed for a generator, from what it is for.

    >>> number("order", 0) == number("order", 0) != number("order", 1)
    True
    """
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")


def digest(*parts: Any) -> str:
    """A fingerprint of data."""
    found = hashlib.sha256()
    for part in parts:
        found.update(f"{part.dtype} {part.shape}".encode() if isinstance(part, np.ndarray) else repr(part).encode())
        if isinstance(part, np.ndarray):
            found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()[:16]


def shuffled(count: int, batch: int, steps: int, seed: int) -> Iterator[Tensor]:
    """Indices of one batch after another, each example once an epoch."""
    generator = torch.Generator().manual_seed(number("order", seed))
    waiting = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        while len(waiting) < min(batch, count):
            waiting = torch.cat([waiting, torch.randperm(count, generator=generator)])
        yield waiting[:batch]
        waiting = waiting[batch:]


def parts(examples: int, tokens: int) -> int:
    """Into how many batches to cut the examples that are evaluated."""
    batch = max(1, min(EVALUATED_TOKENS // tokens, EVALUATED_PAIRS // tokens**2))
    return -(-examples // batch)
