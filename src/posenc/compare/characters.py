"""Text as a task: predict the next character."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.compare.data import Text, Warn
from posenc.compare.errors import BadInput
from posenc.compare.tasks import Batch, Condition, Place, Task, digest, number, parts

__all__ = ["TextTask"]


@dataclass(kw_only=True)
class TextTask(Task):
    """Predict the next character.

    Held-out stretches are cut into windows of each length, so that at every length the same characters are scored;
    a longer window only lets them see more of what came before.
    """

    train: Tensor  # symbols, uint16 kept as int16
    spans: Tensor  # [stretches, longest + 1]

    @classmethod
    def of(cls, text: Text, *, name: str, title: str, about: str, factors: tuple[float, ...], warn: Warn) -> "Task":
        """The task of some text. Raises BadInput where it is shorter than a window."""
        window = 128
        common = [char for char, _ in sorted(Counter(text.train).items(), key=lambda item: (-item[1], item[0]))[:1023]]
        numbers = {char: index + 1 for index, char in enumerate(common)}  # 0 is any other character
        train, held = (
            torch.tensor([numbers.get(char, 0) for char in part], dtype=torch.int16)
            for part in (text.train, text.held_out)
        )
        fitting = tuple(factor for factor in factors if round(factor * window) < len(held))
        if len(train) <= window or not fitting:
            raise BadInput(
                f"{name}: text shorter than a window, got {len(text.train):,} characters to train on and "
                f"{len(text.held_out):,} held out for windows of {window}: give at least {12 * window:,}"
            )
        if fitting != factors:
            warn(f"{name}: the held-out text has {len(held):,} characters, too few for {max(factors):g} windows")
        span = math.lcm(*(round(factor * window) for factor in fitting))
        if span >= len(held):
            raise BadInput(f"{name}: --lengths {fitting} need {span:,} held-out characters, got {len(held):,}")
        count = min(max(1, 16384 // span), (len(held) - 1) // span)
        starts = [round(i * (len(held) - span - 1) / max(count - 1, 1)) for i in range(count)]
        task = cls(
            name=name,
            title=title,
            about=about,
            shape=(window,),
            outputs=len(common) + 1,
            factors=fitting,
            batch_size=16,
            steps=220,
            symbols=len(common) + 1,
            causal=True,
            shifts=(32, 512),
            train=train,
            spans=torch.stack([held[start : start + span + 1] for start in starts]),
        )
        task.fingerprint = digest(train.numpy(), task.spans.numpy())
        return task

    @property
    def chance(self) -> float:
        """The entropy of single held-out characters, −Σ p log₂ p: no one distribution for all of them does better."""
        _, counts = self.spans[:, 1:].unique(return_counts=True)
        share = counts.double() / counts.sum()
        return float(-(share * share.log2()).sum())

    def training(self, steps: int, seed: int) -> Iterator[Batch]:
        window = self.shape[0]
        generator = torch.Generator().manual_seed(number("order", seed))
        for _ in range(steps):
            starts = torch.randint(len(self.train) - window, (self.batch_size, 1), generator=generator)
            text = self.train[starts + torch.arange(window + 1)].long()
            yield Batch(text[:, :-1], text[:, 1:], Place((window,)))

    def held_out(self, condition: Condition) -> Iterator[Batch]:
        (window,) = self.scaled(condition.factor)
        inputs, targets = (part.reshape(-1, window).long() for part in (self.spans[:, :-1], self.spans[:, 1:]))
        count = parts(len(inputs), window)
        for some, wanted in zip(inputs.tensor_split(count), targets.tensor_split(count), strict=True):
            yield Batch(some, wanted, self.place(condition, (window,)))
