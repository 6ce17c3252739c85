"""The pictures of the report, as SVG text to put into a page.

Lines and letters take the colour of the page's text, so that one picture serves a light and a dark page. Encodings keep
their colour, marker and dashes on all pictures; colours are those of Okabe and Ito, told apart by colour-blind readers.
"""

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posenc.compare.encodings import CONTESTANTS, contestant
from posenc.compare.looks import INK
from posenc.compare.statistics import Estimate
from posenc.compare.summary import Row, TaskSummary

__all__ = ["by_position", "cost_bars", "cost_chart", "curves", "memory", "ranking", "style", "training"]

SETTINGS: Any = {
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.15,
    "grid.color": INK,
    "legend.frameon": False,
    "image.interpolation": "none",
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


DASHES = ((5, 1.5), (3, 1.2, 1, 1.2), (7, 1.2, 1, 1.2, 1, 1.2))  # of the second, third and fourth row of a colour
VARIANTS = ((2, 1), (1, 1), (4, 1, 1, 1))


def style(name: str) -> dict[str, Any]:
    """Colour, marker and dashes of a row: dotted for no encoding, dashed in ways of its own where earlier rows have its
    colour; a variant has the look of its row with an open marker."""
    row = contestant(name)
    colour, marker = row.look
    found: dict[str, Any] = {"color": colour, "marker": marker}
    if name != row.name:
        return found | {"linestyle": (0, VARIANTS[row.names.index(name) - 1]), "markerfacecolor": "none"}
    if row.scheme is None:
        return found | {"linestyle": (0, (1, 1.5))}
    earlier = [other.look[0] for other in CONTESTANTS[: CONTESTANTS.index(row)]].count(colour)
    return found | {"linestyle": (0, DASHES[earlier - 1]) if earlier else "-"}


def svg(figure: Figure, name: str, label: str) -> str:
    """A figure as an `<svg>` element with alternative text, identifiers of its own, and no size but its proportions."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font: ([^;\"]*?)px [^;\"]*", r"font: \1px system-ui, sans-serif", text)
    text = re.sub(r"(\d+\.\d\d)\d+", r"\1", text)
    text = re.sub(r' d="[^"]*"', _compact, text)
    text = re.sub(r'<path d="[^"]*" style="fill: none"/>', "", text)  # frames that are not drawn
    text = text.replace(INK, "currentColor").replace('xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    text = text.replace("xlink:href", "href")
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    body = text[text.index(">") + 1 :]
    opening = f'<svg {box.group()} role="img" aria-label={quoteattr(label)}><title>{escape(label)}</title>'
    return re.sub(r"\n\s*", "\n", opening + body)


def _compact(path: re.Match[str]) -> str:
    """A path to a tenth of a point, without line breaks."""
    rounded = re.sub(r"(\d+\.\d)\d+", r"\1", path.group())
    return re.sub(r"\s*([MLQCz])\s*", r"\1", rounded)


def ranking(summary: TaskSummary) -> str:
    """Scores at the trained length with their intervals, best first."""
    rows = [(row, found) for row in summary.rows if (found := row.estimate("1x")) is not None and _own(row)]
    rows.sort(key=lambda pair: pair[1].mean, reverse=not summary.task.higher_is_better)
    with matplotlib.rc_context(SETTINGS):
        figure, axes = _figure(4.6, max(3.55 if summary.task.causal else 2.6, 0.6 + 0.27 * len(rows)))
        for height, (row, found) in enumerate(rows):
            look = style(row.name)
            _interval(axes, found, height, look["color"], summary)
            axes.plot(_shown(found.mean, summary), height, look["marker"], color=look["color"], markersize=6)
        axes.set_yticks(range(len(rows)), [row.title for row, _ in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlabel(_measure(summary))
        axes.grid(axis="y", visible=False)
        order = ", ".join(f"{row.title} {summary.format(found.mean)}" for row, found in reversed(rows))
        label = f"{summary.task.title}: {summary.task.measure} at the trained length, best first: {order}."
        return svg(figure, f"{summary.task.name}-ranking", label)


def curves(summary: TaskSummary) -> str:
    """Scores against length: positions continued, and squeezed where the task has that."""
    kinds = [False] if summary.task.causal else [False, True]
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(4.6, 3.0 * len(kinds) + 0.55), layout="constrained")
        panels = figure.subplots(len(kinds), 1, squeeze=False)[:, 0]
        for axes, squeezed in zip(panels, kinds, strict=True):
            conditions = [c for c in summary.conditions if not c.shift and (c.squeezed == squeezed or c.name == "1x")]
            conditions.sort(key=lambda condition: condition.factor)
            ticks = [summary.task.describe(condition.factor).split(" c")[0] for condition in conditions]
            for row in summary.rows:
                known = [(at, row.estimate(c.name)) for at, c in enumerate(conditions)]
                points = [(at, found) for at, found in known if found is not None]
                if len(points) > 1 or (points and not squeezed and _own(row)):
                    look = style(row.name)
                    heights = [_shown(found.mean, summary) for _, found in points]
                    axes.plot([at for at, _ in points], heights, label=row.title, markersize=5, linewidth=1.6, **look)
                    for at, found in points:
                        _interval(axes, found, at, look["color"], summary, upright=True)
            axes.set_xticks(range(len(ticks)), ticks)
            if not summary.task.causal:
                name = "coordinates squeezed into the trained grid" if squeezed else "positions continued"
                axes.set_title(name, fontsize=10, loc="left")
            axes.set_ylabel(_measure(summary))
        panels[-1].set_xlabel(summary.task.describe(1).split(" ")[-1] if summary.task.axes == 1 else "tokens")
        _legend(figure, *panels)
        label = f"{summary.task.title}: {summary.task.measure} against length. " + " ".join(_spoken(summary))
        return svg(figure, f"{summary.task.name}-curves", label)


def by_position(summary: TaskSummary) -> str | None:
    """For text: bits per character by the position in the longest window."""
    condition = f"{max(summary.task.factors):g}x"
    window = summary.task.shape[0]
    with matplotlib.rc_context(SETTINGS):
        figure, axes = _figure(4.6, 3.55)
        drawn = 0
        for row in summary.rows:
            found = row.runs.get(condition)
            if found:
                mean = np.mean(list(found.values()), axis=0)
                step = summary.task.scaled(max(summary.task.factors))[0] / len(mean)
                look = style(row.name) | {"marker": ""}
                axes.plot((np.arange(len(mean)) + 0.5) * step, mean, label=row.title, linewidth=1.6, **look)
                drawn += 1
        if not drawn:
            return None
        axes.axvline(window, color=INK, linewidth=0.8, alpha=0.5)
        axes.annotate(" trained", (window, 1), xycoords=("data", "axes fraction"), va="top", fontsize=9, alpha=0.7)
        axes.set_xlabel("position in the window")
        axes.set_ylabel("bits per character")
        _legend(figure, axes)
        label = f"{summary.task.title}: bits per character by position in a window of {max(summary.task.factors):g} "
        return svg(figure, f"{summary.task.name}-position", label + "times the trained length, one line an encoding.")


def training(summary: TaskSummary) -> str:
    """Training loss, averaged over seeds."""
    with matplotlib.rc_context(SETTINGS):
        figure, axes = _figure(4.6, 3.55)
        for row in summary.rows:
            if row.curves:
                steps = [step for step, _ in next(iter(row.curves.values()))]
                mean = np.mean([[loss for _, loss in curve] for curve in row.curves.values()], axis=0)
                axes.plot(steps, mean, label=row.title, linewidth=1.6, **(style(row.name) | {"marker": ""}))
        axes.set_xlabel("training step")
        axes.set_ylabel("training loss, bits" if summary.task.causal else "training loss, nats")
        _legend(figure, axes)
        label = f"{summary.task.title}: training loss against steps, one line an encoding, averaged over seeds."
        return svg(figure, f"{summary.task.name}-training", label)


def cost_chart(summary: TaskSummary) -> str:
    """Score at the trained length against the time of a training step relative to no encoding."""
    rows = [row for row in summary.rows if row.cost is not None and row.estimate("1x") is not None]
    with matplotlib.rc_context(SETTINGS):
        figure, axes = _figure(4.6, 3.55)
        for row in rows:
            found, look = row.estimate("1x"), style(row.name)
            assert found is not None
            assert row.cost is not None
            _interval(axes, found, row.cost["training"], look["color"], summary, upright=True)
            height = _shown(found.mean, summary)
            axes.plot(row.cost["training"], height, look["marker"], color=look["color"], label=row.title, markersize=7)
        axes.set_xlabel("time of a training step, × no encoding")
        axes.set_ylabel(_measure(summary))
        _legend(figure, axes)
        spoken = ", ".join(f"{row.title} {row.cost['training']:.2f}" for row in rows if row.cost)
        label = f"{summary.task.title}: {summary.task.measure} against the time of a training step: {spoken} times."
        return svg(figure, f"{summary.task.name}-cost", label)


def cost_bars(summary: TaskSummary) -> str:
    """Time and memory relative to no encoding, for training and for inference."""
    rows = [(row.title, row.cost) for row in summary.rows if row.cost is not None]
    kinds: dict[str, tuple[str, str, Callable[[Mapping[str, float]], float]]] = {
        "training step": ("#0072B2", "", lambda cost: cost["training"]),
        "inference": ("#56B4E9", "", lambda cost: cost["inference"]),
        "memory, training": ("#D55E00", "////", lambda cost: memory(cost, "training")),
        "memory, inference": ("#E69F00", "////", lambda cost: memory(cost, "inference")),
    }
    with matplotlib.rc_context(SETTINGS | {"hatch.linewidth": 0.5}):
        figure, axes = _figure(4.6, 0.75 + 0.4 * len(rows))
        for place, (name, (colour, hatch, ratio)) in enumerate(kinds.items()):
            heights = np.arange(len(rows)) + 0.2 * (place - 1.5)
            lengths = [ratio(cost) for _, cost in rows]
            axes.barh(heights, lengths, 0.19, color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=name)
        axes.axvline(1, color=INK, linewidth=0.8, alpha=0.6)
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("× no encoding")
        _legend(figure, axes, columns=2)
        spoken = "; ".join(
            f"{title} " + ", ".join(f"{name} {ratio(cost):.2f}" for name, (_, _, ratio) in kinds.items())
            for title, cost in rows
        )
        label = f"{summary.task.title}: time and peak memory relative to no encoding: {spoken}."
        return svg(figure, f"{summary.task.name}-bars", label)


def memory(cost: Mapping[str, float], kind: str) -> float:
    """Peak memory of a training step or an inference, relative to no encoding."""
    peak = cost[f"{kind}_memory"]
    return peak / (peak - cost[f"{kind}_memory_extra"])


def _own(row: Row) -> bool:
    """Whether a row is trained itself, and not another changed for another length."""
    return row.name == row.trained_as


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _shown(value: float, summary: TaskSummary) -> float:
    return 100 * value if summary.task.higher_is_better else value


def _measure(summary: TaskSummary) -> str:
    return "accuracy, %" if summary.task.higher_is_better else "bits per character (lower is better)"


def _interval(
    axes: Axes, found: Estimate, at: float, colour: str, summary: TaskSummary, *, upright: bool = False
) -> None:
    if math.isfinite(found.low):
        ends = [_shown(found.low, summary), _shown(found.high, summary)]
        place: Sequence[Sequence[float]] = ([at, at], ends) if upright else (ends, [at, at])
        axes.plot(*place, color=colour, linewidth=1.2 if upright else 2.0, alpha=0.45, solid_capstyle="round")


def _legend(figure: Figure, *panels: Axes, columns: int | None = None) -> None:
    """One legend for all panels, each name once; beyond four lines of it the figure grows, and the panels stay."""
    found: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    columns = columns or (2 if max(map(len, found), default=0) > 18 else 3)
    place: Any = "outside lower left"
    handles = list(found.values())
    figure.set_figheight(figure.get_figheight() + 0.2 * max(0, math.ceil(len(found) / columns) - 4))
    figure.legend(handles, list(found), loc=place, ncols=columns, fontsize=9, handlelength=2.4)


def _spoken(summary: TaskSummary) -> list[str]:
    longest = max(summary.conditions, key=lambda condition: (condition.factor, not condition.squeezed))
    sentences = []
    for row in summary.rows:
        first, last = row.estimate("1x"), row.estimate(longest.name)
        if first is not None:
            end = summary.format(last.mean) if last is not None else "cannot run"
            sentences.append(f"{row.title}: {summary.format(first.mean)}, then {end} at {longest.label}.")
    return sentences
