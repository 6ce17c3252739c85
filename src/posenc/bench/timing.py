"""Time of two calls in turn."""

import math
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

__all__ = ["Ratio", "beside"]

LEAST_SECONDS = 0.01  # a timed run repeats its call until it takes about this long


class Ratio(NamedTuple):
    """Time of a scheme over time of plain attention."""

    ratio: float  # of the medians
    low: float  # the smallest and the largest ratio of a single pair
    high: float
    plain_ms: float  # median of plain


def beside(plain: Callable[[], object], scheme: Callable[[], object], repeats: int, device: str) -> Ratio:
    """Run both in turn."""
    calls = (plain, scheme)
    counts = []
    for call in calls:
        _seconds(call, 1, device)  # warm-up
        counts.append(max(1, math.ceil(LEAST_SECONDS / _seconds(call, 1, device))))
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(repeats):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            times[which].append(_seconds(calls[which], counts[which], device))
    ratios = [slow / fast for fast, slow in zip(*times, strict=True)]
    medians = [statistics.median(each) for each in times]
    return Ratio(medians[1] / medians[0], min(ratios), max(ratios), 1000 * medians[0])


def _seconds(call: Callable[[], object], count: int, device: str) -> float:
    """Seconds a call."""
    wait: Callable[[], None] = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    wait()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return (time.perf_counter() - begin) / count
