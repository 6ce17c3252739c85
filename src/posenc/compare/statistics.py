"""From the scores of single trials to what can be said about encodings: means, intervals, paired differences, ties."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy.stats import t as student  # type: ignore[import-untyped]

__all__ = ["Estimate", "Standing", "estimate", "paired", "standing"]

CONFIDENCE = 0.95

Scores = Mapping[int, float]  # seed -> score


class Estimate(NamedTuple):
    """A mean over seeds with its 95 % interval (Student's t), the spread (standard deviation) and the seeds.

    With one seed there is no interval: `low` and `high` are infinite.
    """

    mean: float
    low: float
    high: float
    spread: float
    seeds: int

    def overlaps(self, other: "Estimate") -> bool:
        """Whether the two intervals have a point in common."""
        return self.low <= other.high and other.low <= self.high

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval says that the mean is not zero."""
        return self.low > 0 or self.high < 0

    @property
    def margin(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and 95 % interval: mean ± t(0.975, n − 1) · s / √n, with s² = Σ (x − mean)² / (n − 1).

    Raises ValueError for no values.

    >>> found = estimate([1.0, 2.0, 3.0])
    >>> found.mean, round(found.margin, 3), found.spread
    (2.0, 2.484, 1.0)
    """
    count = len(values)
    if count == 0:
        raise ValueError("an estimate needs at least one value, got none: run at least one seed")
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, -math.inf, math.inf, math.nan, 1)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    margin = float(student.ppf((1 + CONFIDENCE) / 2, count - 1)) * spread / math.sqrt(count)
    return Estimate(mean, mean - margin, mean + margin, spread, count)


def paired(scores: Scores, other: Scores) -> Estimate | None:
    """The difference seed by seed, `scores − other`, over the seeds that both have; None without any."""
    seeds = sorted(scores.keys() & other.keys())
    return estimate([scores[seed] - other[seed] for seed in seeds]) if seeds else None


class Standing(NamedTuple):
    """Who is best, and who cannot be told from the best."""

    best: str
    tied: tuple[str, ...]  # the best first; one name where there is a clear winner

    @property
    def clear(self) -> bool:
        """Whether there is one winner."""
        return len(self.tied) == 1


def standing(scores: Mapping[str, Scores], *, higher_is_better: bool) -> Standing | None:
    """The best by mean. Another is tied with it where their intervals overlap, or where the interval of their paired
    difference contains zero.

    >>> found = standing({"a": {0: 0.9, 1: 0.91}, "b": {0: 0.2, 1: 0.21}}, higher_is_better=True)
    >>> found.best, found.clear
    ('a', True)
    """
    known = {name: estimate(list(values.values())) for name, values in scores.items() if values}
    if not known:
        return None
    sign = -1 if higher_is_better else 1
    ranked = sorted(known, key=lambda name: sign * known[name].mean)
    best = ranked[0]
    tied = [best]
    for name in ranked[1:]:
        difference = paired(scores[name], scores[best])
        apart = difference is not None and difference.excludes_zero and not known[name].overlaps(known[best])
        if not apart:
            tied.append(name)
    return Standing(best, tuple(tied))
