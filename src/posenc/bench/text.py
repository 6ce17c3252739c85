"""Rows as lines of text."""

from collections.abc import Sequence
from typing import Any

from posenc.bench import peers
from posenc.bench.error import Error
from posenc.bench.rows import Row
from posenc.bench.timing import Ratio

__all__ = ["cells", "headings", "line", "warning"]

STEADY = 0.15  # a turn that is further from the median says that others had the cores

WIDTHS = {
    "name": 50,
    "tokens": 9,
    "backend": 8,
    "inference": 17,
    "MiB": 7,
    "error (dense)": 17,
    "training": 17,
    "MiB, train": 10,
    "gradients (dense)": 17,
}
LEFT = ("name", "tokens", "backend")


def headings(train: bool) -> list[str]:
    """The columns of a row."""
    trained = list(WIDTHS)[6:]
    return [name for name in WIDTHS if train or name not in trained]


def cells(row: Row, train: bool) -> list[str]:
    """A row's columns: ratios with their spread, memory beyond plain's, errors beside the dense path's."""
    errors = row.errors
    all_of_them = {
        "name": f"  {row.name}" if row.subject.way in peers.NAMES else row.name,
        "tokens": row.setting.size,
        "backend": "" if row.subject.way in peers.NAMES else row.backend,
        "inference": _ratio(row.inference),
        "MiB": _number(row.inference_extra),
        "error (dense)": _error(errors and errors.output),
        "training": "forward only" if _forward_only(row) else _ratio(row.training),
        "MiB, train": _number(row.training_extra),
        "gradients (dense)": _error(errors and errors.gradients),
    }
    return [all_of_them[name] for name in headings(train)]


def line(texts: Sequence[str], train: bool) -> str:
    """Columns at their places, what is longer than its place pushing the rest."""
    placed = []
    for text, name in zip(texts, headings(train), strict=True):
        placed.append(text.ljust(WIDTHS[name]) if name in LEFT else text.rjust(WIDTHS[name]))
    return "  ".join(placed).rstrip()


def warning(rows: Sequence[Row]) -> str:
    """That the machine was busy, where times of single turns are far from the median; else nothing."""
    measured = [row for row in rows if row.inference is not None]
    wide = [row for row in measured if any(time and time.spread > STEADY for time in (row.inference, row.training))]
    if not wide:
        return ""
    return (
        f"warning: in {len(wide)} of {len(measured)} rows a turn is more than {STEADY:.0%} off the median: other "
        "programs keep the machine busy, so measure again when it is idle, or with more --repeats"
    )


def _forward_only(row: Row) -> bool:
    return row.subject.way in peers.NAMES and not peers.NAMES[row.subject.way].trains(row.setting)


def _ratio(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{_short(ratio.ratio)} ({_short(ratio.low)}–{_short(ratio.high)})"


def _short(number: float) -> str:
    """About three digits."""
    return f"{number:.{2 if number < 9.995 else 1 if number < 99.95 else 0}f}"


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.1f}"


def _error(error: Error | Any) -> str:
    if not error:
        return ""
    return f"{error.own:.1e}" + ("" if error.dense is None else f" ({error.dense:.1e})")
