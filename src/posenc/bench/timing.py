"""Time of calls in turn."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

__all__ = ["Ratio", "in_turn"]

LEAST_SECONDS = 0.01  # a timed run repeats its call until it takes about this long
MOST_SECONDS = 30.0  # a call that has taken so long in all takes no more turns, once it had the least
LEAST_TURNS = 3


class Ratio(NamedTuple):
    """Time of one call over that of another."""

    ratio: float
    """Of the medians."""
    low: float
    """The smallest and the largest ratio of a single turn."""
    high: float
    plain_ms: float
    """Median of the other."""
    turns: int

    @property
    def spread(self) -> float:
        """How far the ratio of a single turn is from that of the medians, at most, as a part of it."""
        return max(self.high - self.ratio, self.ratio - self.low) / self.ratio


def in_turn(calls: Sequence[Callable[[], object]], repeats: int, device: str) -> list[Ratio]:
    """Run all calls in turn, each turn in the opposite order of the one before: how the others compare to the first."""
    counts = [_count(call, device) for call in calls]
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(repeats):
        waiting = [which for which in range(len(calls)) if not which or _goes_on(times[which], counts[which])]
        for which in waiting if turn % 2 == 0 else reversed(waiting):
            times[which].append(_seconds(calls[which], counts[which], device))
    return [_ratio(times[0][: len(own)], own) for own in times[1:]]


def _count(call: Callable[[], object], device: str) -> int:
    """How often a timed run repeats the call, which is warm afterwards."""
    first = _seconds(call, 1, device)
    second = first if first > 100 * LEAST_SECONDS else _seconds(call, 1, device)
    return max(1, math.ceil(LEAST_SECONDS / max(second, 1e-9)))


def _goes_on(times: list[float], count: int) -> bool:
    return len(times) < LEAST_TURNS or sum(times) * count < MOST_SECONDS


def _ratio(plain: list[float], own: list[float]) -> Ratio:
    each = [mine / theirs for theirs, mine in zip(plain, own, strict=True)]
    medians = statistics.median(plain), statistics.median(own)
    return Ratio(medians[1] / medians[0], min(each), max(each), 1000 * medians[0], len(own))


def _seconds(call: Callable[[], object], count: int, device: str) -> float:
    """Seconds a call."""
    wait: Callable[[], None] = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    wait()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return (time.perf_counter() - begin) / count
