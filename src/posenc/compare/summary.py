"""Results of trials as rows: for each task and encoding the scores by condition and seed, the cost, the pictures."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from posenc.compare.encodings import contestant, title
from posenc.compare.settings import Comparison
from posenc.compare.statistics import Estimate, Standing, estimate, paired, standing
from posenc.compare.tasks import Condition, Task

MATERIAL_BITS, MATERIAL_ACCURACY = 0.02, 0.01  # a change smaller than this is none

__all__ = ["Row", "TaskSummary", "by_reason", "summarise"]


@dataclass
class Row:
    """One encoding on one task."""

    name: str
    title: str
    trained_as: str
    raster: bool
    scores: dict[str, dict[int, float]] = field(default_factory=dict)  # condition -> seed -> score
    cannot: dict[str, str] = field(default_factory=dict)  # condition -> reason
    runs: dict[str, dict[int, list[float]]] = field(default_factory=dict)  # bits by position in the window
    curves: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    portrait: dict[str, Any] | None = None
    cost: dict[str, float] | None = None

    def estimate(self, condition: str) -> Estimate | None:
        """The score under a condition, or None where the encoding cannot run."""
        values = self.scores.get(condition)
        return estimate(list(values.values())) if values else None

    def change(self, condition: str, since: str = "1x") -> Estimate | None:
        """How the score changes from one condition to another, paired by seed."""
        return paired(self.scores.get(condition, {}), self.scores.get(since, {}))


@dataclass
class TaskSummary:
    """All rows of one task."""

    task: Task
    conditions: list[Condition]
    rows: list[Row]
    seeds: int
    steps: int
    left_out: list[tuple[str, str]] = field(default_factory=list)  # what was asked for and does not fit, and why

    def row(self, name: str) -> Row | None:
        """The row of a name, or None where it was not compared."""
        return next((row for row in self.rows if row.name == name), None)

    def standing(self, condition: str) -> Standing | None:
        """Who is best under a condition."""
        scores = {row.name: row.scores.get(condition, {}) for row in self.rows}
        return standing(scores, higher_is_better=self.task.higher_is_better)

    def against(self, row: Row, other: str, condition: str = "1x") -> Estimate | None:
        """The paired difference of a row to another."""
        reference = self.row(other)
        if reference is None or reference is row:
            return None
        return paired(row.scores.get(condition, {}), reference.scores.get(condition, {}))

    def better(self, difference: float) -> bool:
        """Whether a difference is an improvement."""
        return (difference > 0) == self.task.higher_is_better

    @property
    def material(self) -> float:
        """The smallest change that is called one."""
        return MATERIAL_BITS if self.task.causal else MATERIAL_ACCURACY

    def at_chance(self, row: Row) -> bool:
        """Whether a row does no better at the trained length than one answer for everything."""
        chance, found = self.task.chance, row.estimate("1x")
        if chance is None or found is None:
            return False
        gain = found.mean - chance if self.task.higher_is_better else chance - found.mean
        return gain < self.material

    @property
    def unlearned(self) -> str | None:
        """Where the model without encoding and at least half of the others are at chance: that, in a sentence.

        Such models say nothing of their encodings: what is constant has no best, and no shift changes it.
        """
        none = self.row("none")
        others = [row for row in self.rows if row.name == row.trained_as and row is not none and row.estimate("1x")]
        stuck = sum(map(self.at_chance, others))
        if none is None or not self.at_chance(none) or 2 * stuck < len(others):
            return None
        who = f"{stuck + 1} of {len(others) + 1} models, the one without encoding among them, are"
        if not others:
            who = "The model without encoding is"
        chance = f"{self.format(self.task.chance or 0.0)} {self.unit}"
        what = "the entropy of single characters" if self.task.causal else "the share of the largest class"
        steps = "1 step is" if self.steps == 1 else f"{self.steps:,} steps are"
        return (
            f"{who} no better than chance ({chance}, {what}): nothing was learned yet that tells encodings apart. "
            f"{steps} too few here: more are needed (--steps)."
        )

    def format(self, value: float, signed: bool = False) -> str:
        """A score, or a difference, in the unit of the task: per cent, or bits per character."""
        if not math.isfinite(value):
            return "–"
        sign = "+" if signed else ""
        text = f"{100 * value:{sign}.1f}" if self.task.higher_is_better else f"{value:{sign}.3f}"
        return text.replace("-", "−")

    def as_dict(self) -> dict[str, Any]:
        """Scores, reasons and costs in plain values."""
        return {
            "task": self.task.name,
            "measure": self.task.measure,
            "steps": self.steps,
            "seeds": self.seeds,
            "chance": self.task.chance,
            "learned": self.unlearned is None,
            "best": None if (found := self.standing("1x")) is None else found._asdict() | {"clear": found.clear},
            "left_out": dict(self.left_out),
            "rows": {row.name: {"scores": row.scores, "cannot": row.cannot, "cost": row.cost} for row in self.rows},
        }

    @property
    def unit(self) -> str:
        """What `format` prints."""
        return "%" if self.task.higher_is_better else "bits"


def by_reason(left_out: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each reason once, after all whom it concerns.

    >>> by_reason([("CoPE", "it is not causal"), ("xPos", "it is not causal")])
    [('CoPE; xPos', 'it is not causal')]
    """
    found: dict[str, list[str]] = {}
    for who, why in left_out:
        found.setdefault(why, []).append(who)
    return [("; ".join(names), why) for why, names in found.items()]


def summarise(
    comparison: Comparison, results: Mapping[str, dict[str, Any]], costs: Mapping[tuple[str, str], dict[str, float]]
) -> list[TaskSummary]:
    """Rows for every task, from the results of all trials by key."""
    summaries = []
    for task in comparison.tasks:
        trials = [trial for trial in comparison.trials if trial.task.name == task.name]
        rows = []
        for name in comparison.rows[task.name]:
            trained = contestant(name)
            row = Row(name, title(name), trained.name, trained.raster(task))
            row.cost = costs.get((task.name, trained.name)) if name == trained.name else None
            for trial in trials:
                if trial.encoding == trained.name:
                    _take(row, results[trial.key], trial.seed)
            rows.append(row)
        seeds = len({trial.seed for trial in trials})
        left_out = comparison.left_out[task.name]
        summaries.append(TaskSummary(task, task.conditions(), rows, seeds, trials[0].steps, left_out))
    return summaries


def _take(row: Row, result: Mapping[str, Any], seed: int) -> None:
    for condition, found in result["rows"][row.name].items():
        score = found.get("score", math.nan)
        if "cannot" in found:
            row.cannot[condition] = found["cannot"]
        elif not math.isfinite(score):
            row.cannot[condition] = "the loss is not finite"
        else:
            row.scores.setdefault(condition, {})[seed] = score
            if "runs" in found:
                row.runs.setdefault(condition, {})[seed] = found["runs"]
    if row.name == row.trained_as:
        row.curves[seed] = [(int(step), float(loss)) for step, loss in result["curve"]]
        row.seconds.append(result["seconds"]["all"])
        if row.portrait is None:
            row.portrait = result["portrait"]
