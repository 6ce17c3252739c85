"""Which schemes are measured at which sizes."""

import math
from collections.abc import Sequence
from typing import Any

import torch

import posenc
from posenc import catalog
from posenc.bench.machine import memory_limit
from posenc.bench.rows import Row
from posenc.bench.setting import DTYPES, SHORT, Setting, Subject, build, require_count

__all__ = ["chosen"]


def chosen(
    schemes: Sequence[str], lengths: Sequence[int], grids: Sequence[Sequence[int]], common: Setting, backend: str
) -> list[Row]:
    """Schemes, all if empty, each at the lengths and on the grids that its axes have; a row says what cannot be.

    What is said twice is measured once.

    Raises ValueError for an unknown scheme, dtype, device or backend, for more tokens than memory holds, and where a
    scheme that was named cannot be measured.
    """
    named = dict.fromkeys(catalog.card(name).name for name in schemes)
    cards = [catalog.card(name) for name in named] or list(catalog.CARDS)
    for name in ("batch", "heads", "head_dim"):
        require_count(name, getattr(common, name))
    for name, size in [("each of lengths", size) for size in lengths]:
        require_count(name, size)
    for grid in grids:
        if len(grid) < 2:
            raise ValueError(f"each of grids must have two sizes or more, got {tuple(grid)}: for lines give lengths")
        for size in grid:
            require_count("each size of grids", size)
    _require_torch(common, backend)
    planes = list(dict.fromkeys(tuple(grid) for grid in grids)) or ([] if lengths else [(20, 20)])
    lines: list[tuple[int, ...]] = [
        (length,) for length in dict.fromkeys(lengths or (math.prod(plane) for plane in planes))
    ]
    for shape in (*lines, *planes):
        _require_memory(common._replace(shape=shape))
    frames = [(1, *plane) if len(plane) == 2 else plane for plane in planes]
    shapes: dict[str, list[tuple[int, ...]]] = {"1": lines, "any": [*lines, *planes], "3": frames}
    found = []
    for card in cards:
        subject = Subject(card.name, backend=backend)
        for shape in shapes.get(card.axes, planes) or [()]:
            setting = common._replace(shape=shape, causal=card.causal)
            reason = "" if shape else f"{card.name} has {card.axes} axes, got lengths alone: give grids"
            try:
                if shape:
                    build(subject, setting)
            except ValueError as error:  # a size that the scheme cannot have
                reason = str(error)
            if schemes and reason:
                raise ValueError(reason)
            found.append(Row(subject, setting, refused=f"{card.name} is left out: {reason}" if reason else ""))
    return found


def _require_torch(common: Setting, backend: str) -> None:
    """Raise where torch has no such dtype or device, or attention no such backend."""
    if common.dtype not in DTYPES:
        meant = SHORT.get(str(common.dtype).removeprefix("torch."))
        advice = f"did you mean {meant}?" if meant else "for example float32"
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {common.dtype!r}: {advice}")
    try:
        q = torch.zeros(1, 1, 1, 1, device=common.device)
    except (AssertionError, RuntimeError) as error:  # unknown to torch, or not there
        given = f"got {common.device!r}: for example cpu"
        raise ValueError(f"device must be one that torch can use here, {given}") from error
    if q.device.type == "meta":
        raise ValueError("device must be one that computes, got 'meta', which has no numbers: for example cpu")
    try:
        posenc.explain(q, q, q, backend=backend)
    except ValueError as error:
        if "must be one of" in str(error):  # others refuse some schemes, which their rows say
            raise


def _require_memory(setting: Setting) -> None:
    """Raise where queries, keys, values and the output alone are more than this machine has."""
    limit = memory_limit()
    if not setting.device.startswith("cpu") or limit is None:
        return
    itemsize: Any = getattr(torch, setting.dtype).itemsize
    needed = 4 * setting.batch * setting.heads * setting.head_dim * setting.tokens * itemsize
    if needed > limit:
        raise ValueError(
            f"{setting.tokens} tokens need {needed / 2**30:.0f} GiB for q, k, v and the output, got a machine of "
            f"{limit / 2**30:.0f} GiB: measure fewer"
        )
