"""The report: one HTML file that needs nothing else, the answer first."""

import datetime
import math
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import matplotlib
import numpy
from markupsafe import Markup

from posenc.compare import figures, gallery
from posenc.compare.answers import answers, headline, named
from posenc.compare.encodings import title
from posenc.compare.findings import consistency, findings
from posenc.compare.looks import INK
from posenc.compare.settings import Comparison
from posenc.compare.statistics import Estimate, Standing
from posenc.compare.summary import Row, TaskSummary, by_reason
from posenc.compare.tasks import Condition
from posenc.compare.trial import RATE, versions

__all__ = ["render", "write_report"]

Cell = dict[str, Any]


def write_report(comparison: Comparison, summaries: list[TaskSummary], out: Path, *, seconds: float) -> None:
    """Write the report beside its place, then move it there in one step."""
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    draft.write_text(render(comparison, summaries, seconds=seconds), encoding="utf-8")
    os.replace(draft, out)


def render(comparison: Comparison, summaries: list[TaskSummary], *, seconds: float) -> str:
    """The page as text."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.get_template("report.html.jinja")
    trial = comparison.trials[0]
    numbers = trial.sizes
    return template.render(
        date=datetime.date.today().strftime("%-d %B %Y") if os.name == "posix" else str(datetime.date.today()),
        headline=headline(summaries),
        tasks=[_task(summary) for summary in summaries],
        trials=len(comparison.trials),
        models=comparison.models,
        changed=comparison.changed,
        seeds=summaries[0].seeds,
        minutes=seconds / 60,
        command=comparison.settings.command(),
        sizes=numbers,
        rate=RATE,
        versions=versions()
        | {"python": platform.python_version(), "numpy": numpy.__version__, "matplotlib": matplotlib.__version__},
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        warnings=comparison.warnings,
    )


def _task(summary: TaskSummary) -> dict[str, Any]:
    task = summary.task
    pictures = [gallery.picture(summary, row) for row in summary.rows if row.name == row.trained_as]
    position = figures.by_position(summary) if task.causal else None
    left = [
        (figures.ranking(summary), "At the trained length.", "Mean over seeds; the bar is the 95 % interval."),
        (figures.training(summary), "Learning.", "Training loss, averaged over seeds."),
    ]
    right = [(figures.curves(summary), "Beyond it.", _curves_caption(summary))]
    if position is not None:
        text = "Bits by position in the longest window; the line is the end of what was trained."
        right.append((position, "Where it is lost.", text))
    costs = [
        (figures.cost_chart(summary), "Worth it?", "Score at the trained length against the time of a training step."),
        (figures.cost_bars(summary), "Cost.", "Time and peak memory, relative to the model without encoding."),
    ]
    return {
        "name": task.name,
        "title": task.title,
        "unlearned": summary.unlearned,
        "named": named(summary),
        "about": task.about,
        "measure": task.measure,
        "steps": summary.steps,
        "seeds": summary.seeds,
        "batch": task.batch_size,
        "unit": summary.unit,
        "direction": "higher is better" if task.higher_is_better else "lower is better",
        "answers": answers(summary),
        "quality": _quality(summary),
        "traits": _traits(summary),
        "cannot": _cannot(summary),
        "left_out": by_reason(summary.left_out),
        "charts": [[(Markup(chart), *words) for chart, *words in column] for column in (left, right)],
        "costs": [(Markup(chart), *words) for chart, *words in costs],
        "pictures": [shown._replace(svg=Markup(shown.svg)) for shown in pictures if shown],
        "findings": findings(summary),
        "consistency": consistency(summary),
        "raster": [row.title for row in summary.rows if row.raster],
    }


def _curves_caption(summary: TaskSummary) -> str:
    if summary.task.causal:
        return "The same held-out characters, cut into windows of each length. A flat line keeps its quality."
    return "The same held-out examples, enlarged. A flat line keeps its quality."


def _ordered(summary: TaskSummary) -> list[Row]:
    """Best first at the trained length; what has no score last."""
    sign = -1 if summary.task.higher_is_better else 1

    def key(row: Row) -> float:
        found = row.estimate("1x")
        return math.inf if found is None else sign * found.mean

    return sorted(summary.rows, key=key)


def _quality(summary: TaskSummary) -> dict[str, Any]:
    """Score, paired differences, and the score under every other length."""
    lengths = [condition for condition in summary.conditions if not condition.shift]
    standings = {condition.name: summary.standing(condition.name) for condition in lengths}
    best = standings["1x"].best if standings["1x"] else ""
    rows = []
    for row in _ordered(summary):
        cells = [_score(summary, row, lengths[0], standings["1x"])]
        cells.append(_difference(summary, summary.against(row, "none"), "reference" if row.name == "none" else ""))
        cells.append(_difference(summary, summary.against(row, best), "best" if row.name == best else ""))
        cells += [_score(summary, row, condition, standings[condition.name]) for condition in lengths[1:]]
        rows.append({"title": row.title, "look": _swatch(row), "cells": cells})
    heads = [f"{lengths[0].label}", "against no encoding", "against the best", *(c.label for c in lengths[1:])]
    return {"heads": heads, "rows": rows}


def _traits(summary: TaskSummary) -> dict[str, Any]:
    """Stability, flexibility, complexity and cost in one table."""
    shifts = [condition for condition in summary.conditions if condition.shift]
    lengths = [condition for condition in summary.conditions if not condition.shift]
    groups = [
        ("Stability", ["spread over seeds", *(f"change, shifted by {condition.shift}" for condition in shifts)]),
        ("Flexibility", [f"runs at, of {len(lengths)}", "change at the longest"]),
        ("Complexity, extra", ["para\u00admeters", "FLOPs a token", "elements a token"]),
        ("Cost, × no encoding", ["training step", "inference", "memory, training", "memory, inference"]),
    ]
    rows = []
    for row in _ordered(summary):
        found = row.estimate("1x")
        spread = "–" if found is None or found.seeds == 1 else summary.format(found.spread)
        cells: list[Cell] = [{"text": spread}]
        cells += [_moved(summary, row, condition) for condition in shifts]
        cells.append({"text": str(sum(condition.name in row.scores for condition in lengths))})
        cells.append(_longest_change(summary, row, lengths))
        cells += _cost_cells(row.cost, title(row.trained_as))
        rows.append({"title": row.title, "look": _swatch(row), "cells": cells})
    return {"groups": groups, "rows": rows}


def _score(summary: TaskSummary, row: Row, condition: Condition, standing: Standing | None) -> Cell:
    found = row.estimate(condition.name)
    if found is None:
        return {"text": "cannot", "kind": "cannot", "note": row.cannot.get(condition.name, "no result")}
    kind = ""
    if standing is not None and row.name in standing.tied and summary.seeds > 1 and not summary.unlearned:
        kind = "best" if standing.clear else "tied"
    return {"text": summary.format(found.mean), "margin": _margin(summary, found), "kind": kind}


def _difference(summary: TaskSummary, found: Estimate | None, instead: str) -> Cell:
    if found is None:
        return {"text": instead or "–", "kind": "muted"}
    kind = "" if not found.excludes_zero else "gain" if summary.better(found.mean) else "loss"
    return {"text": summary.format(found.mean, True), "margin": _margin(summary, found), "kind": kind}


def _moved(summary: TaskSummary, row: Row, condition: Condition) -> Cell:
    if condition.name in row.cannot:
        return {"text": "cannot", "kind": "cannot", "note": row.cannot[condition.name]}
    found = row.change(condition.name)
    if found is None or summary.unlearned:  # no shift changes what is constant
        return {"text": "–"}
    text = summary.format(found.mean, True)
    return {"text": "none" if _zero(text) else text, "kind": _lost(summary, found, text)}


def _lost(summary: TaskSummary, found: Estimate, text: str) -> str:
    """A change is coloured where its interval leaves out zero; one seed has no interval to go by."""
    return "" if _zero(text) or summary.better(found.mean) or not found.excludes_zero else "loss"


def _zero(text: str) -> bool:
    return text.strip("+−0.") == ""


def _longest_change(summary: TaskSummary, row: Row, lengths: list[Condition]) -> Cell:
    """The change at the greatest length at which the row runs, continued or squeezed, whichever is better."""
    top = max(condition.factor for condition in lengths)
    names = [condition.name for condition in lengths if condition.factor == top and condition.name in row.scores]
    changes = [found for name in names if (found := row.change(name)) is not None]
    if not changes or top == 1:
        return {"text": "cannot", "kind": "cannot", "note": "it runs at no such length"}
    sign = 1 if summary.task.higher_is_better else -1
    found = max(changes, key=lambda change: sign * change.mean)
    text = summary.format(found.mean, True)
    return {"text": text, "kind": _lost(summary, found, text), "margin": _margin(summary, found)}


def _cost_cells(cost: Mapping[str, float] | None, trained_as: str) -> list[Cell]:
    if cost is None:
        return [{"text": f"as {trained_as}", "kind": "muted left", "span": 7}]
    memory = [figures.memory(cost, kind) for kind in ("training", "inference")]
    return [
        {"text": f"{cost['parameters']:,.0f}"},
        {"text": f"{cost['flops']:,.0f}".replace("-", "−")},
        {"text": f"{cost['elements']:,.0f}".replace("-", "−")},
        *({"text": f"{cost[kind]:.2f}"} for kind in ("training", "inference")),
        *({"text": f"{ratio:.2f}"} for ratio in memory),
    ]


def _cannot(summary: TaskSummary) -> list[tuple[str, str, str]]:
    """Each reason once: who, where, why."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in summary.rows:
        for condition in summary.conditions:
            if condition.name in row.cannot:
                reason = row.cannot[condition.name]
                found.setdefault((row.title, reason), []).append(condition.label)
    return [(who, "; ".join(where), why) for (who, why), where in found.items()]


def _margin(summary: TaskSummary, found: Estimate) -> str:
    return f"± {summary.format(found.margin)}" if math.isfinite(found.margin) else ""


def _swatch(row: Row) -> str:
    return str(figures.style(row.name)["color"]).replace(INK, "currentColor")
