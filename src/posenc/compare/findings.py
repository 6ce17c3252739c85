"""Published claims beside what was measured.

Every sentence is computed. A claim names what it expects; what was measured decides whether it holds here.
"""

from collections.abc import Callable
from typing import NamedTuple

from posenc.compare.answers import beyond, titled
from posenc.compare.statistics import Estimate, paired
from posenc.compare.summary import Row, TaskSummary
from posenc.compare.tasks import Condition

__all__ = ["Finding", "consistency", "findings"]


class Finding(NamedTuple):
    """A published claim, who made it, what was measured here, and how the two compare."""

    claim: str
    source: str
    measured: str
    verdict: str  # "agrees", "differs" or "cannot tell"
    why: str = ""  # where it differs: what may be the cause


def findings(summary: TaskSummary) -> list[Finding]:
    """Published claims that this task can speak to: none where nothing was learned yet."""
    if summary.unlearned:
        return []
    if summary.task.causal:
        return [finding for claim in TEXT_CLAIMS if (finding := claim(summary)) is not None]
    return [finding for claim in SIGNAL_CLAIMS if (finding := claim(summary)) is not None]


def consistency(summary: TaskSummary) -> str | None:
    """How much the score changed where all positions were shifted, for what runs there: a check of the code.

    Nothing where nothing was learned yet: the score of a constant model does not change, whatever the encoding.
    """
    if summary.unlearned:
        return None
    changes: dict[str, float] = {}
    for row in summary.rows:
        moved = [row.change(condition.name) for condition in summary.conditions if condition.shift]
        if row.name != "none" and all(moved) and moved:
            changes[row.title] = max(abs(found.mean) for found in moved if found is not None)
    unit = "bits" if summary.task.causal else "points"
    still = [name for name, change in changes.items() if change < 1e-4]
    differ = [f"{name} by {summary.format(change)} {unit}" for name, change in changes.items() if change >= 1e-4]
    if not changes:
        return None
    first = f"With all positions shifted, {', '.join(still)} gave the same score. " if still else ""
    second = f"Absolute positions changed it: {', '.join(differ)}." if differ else ""
    return (first + second).strip()


Claim = Callable[[TaskSummary], Finding | None]


def _longest(summary: TaskSummary) -> Condition:
    return max((c for c in summary.conditions if not c.shift and not c.squeezed), key=lambda c: c.factor)


def _loss(summary: TaskSummary, change: Estimate | None) -> str | None:
    """Whether a change of score is a loss: "loses", "keeps", or None where the interval allows both."""
    if change is None:
        return None
    worse = change if summary.task.causal else Estimate(-change.mean, -change.high, -change.low, change.spread, 0)
    if worse.low > 0 and worse.mean > summary.material:
        return "loses"
    return "keeps" if worse.high < summary.material else None


def _changed(summary: TaskSummary, row: Row, condition: Condition) -> str:
    first, last, change = row.estimate("1x"), row.estimate(condition.name), row.change(condition.name)
    if first is None or last is None or change is None:
        return f"{row.title} cannot run at {condition.label}: {row.cannot.get(condition.name, 'no result')}."
    interval = f" (95 % interval {summary.format(change.low, True)} to {summary.format(change.high, True)})"
    return (
        f"{row.title}: {summary.format(first.mean)} {summary.unit} at {summary.task.describe(1)}, "
        f"{summary.format(last.mean)} at {condition.label}, a change of {summary.format(change.mean, True)}"
        f"{interval if change.seeds > 1 else ''}."
    )


def _scale(summary: TaskSummary, special: str) -> str:
    """What may be the cause of a difference from published work."""
    cost = next((row.cost for row in summary.rows if row.cost is not None), None)
    model = f"a model of {cost['model_parameters']:,.0f} parameters" if cost else "a small model"
    scale = f"{summary.steps:,} steps of {model} on {summary.task.describe(1)}"
    checked = "The library's tests hold it against a float64 reference, and shifts change nothing they should not"
    return f"{special + ' ' if special else ''}{checked}: what is left is the scale, {scale}."


def _extrapolates(name: str, expected: str, claim: str, source: str, special: str = "") -> Claim:
    def check(summary: TaskSummary) -> Finding | None:
        row, condition = summary.row(name), _longest(summary)
        if row is None or condition.factor <= 1:
            return None
        if condition.name in row.cannot:
            verdict = "agrees" if expected == "loses" else "differs"
        else:
            found = _loss(summary, row.change(condition.name))
            verdict = "cannot tell" if found is None else "agrees" if found == expected else "differs"
        why = _scale(summary, special) if verdict == "differs" else ""
        return Finding(claim, source, _changed(summary, row, condition), verdict, why)

    return check


def _beats(better: str, worse: str, where: str, claim: str, source: str) -> Claim:
    """`better` has the better score than `worse` at the trained length, or at the longest."""

    def check(summary: TaskSummary) -> Finding | None:
        first, second = summary.row(better), summary.row(worse)
        if first is None or second is None:
            return None
        condition = summary.conditions[0] if where == "trained" else beyond(summary, max(summary.task.factors))
        difference = paired(first.scores.get(condition.name, {}), second.scores.get(condition.name, {}))
        if difference is None:
            return None
        ahead = (
            difference
            if summary.task.higher_is_better
            else Estimate(-difference.mean, -difference.high, -difference.low, 0, 0)
        )
        verdict = "agrees" if ahead.low > 0 else "differs" if ahead.high < 0 else "cannot tell"
        scores = " and ".join(titled(summary, name, condition.name) for name in (better, worse))
        interval = f", 95 % interval {summary.format(difference.low, True)} to {summary.format(difference.high, True)}"
        measured = f"At {condition.label}: {scores}; difference {summary.format(difference.mean, True)}"
        measured += (interval if difference.seeds > 1 else "") + "."
        return Finding(claim, source, measured, verdict, _scale(summary, "") if verdict == "differs" else "")

    return check


def _without(summary: TaskSummary) -> Finding | None:
    none, found = summary.row("none"), summary.standing("1x")
    if none is None or found is None or found.best == "none":
        return None
    difference = summary.against(none, found.best)
    if difference is None:
        return None
    verdict = {"loses": "differs", "keeps": "agrees"}.get(_loss(summary, difference) or "", "cannot tell")
    scores = " and ".join(titled(summary, name, "1x") for name in ("none", found.best))
    measured = f"{scores}; no encoding is {summary.format(difference.mean, True)} {summary.unit} behind."
    claim = "A causal model without any encoding comes close to one with."
    why = _scale(summary, "") if verdict == "differs" else ""
    return Finding(claim, "Haviv et al. 2022, arXiv:2203.16634", measured, verdict, why)


CHEN = "Chen et al. 2023 (position interpolation), arXiv:2306.15595"
PENG = "Peng et al. 2023 (YaRN), arXiv:2309.00071"
SUN = "Sun et al. 2022 (xPos), arXiv:2212.10554"
CHI = "Chi et al. 2022 (KERPLE), arXiv:2205.09921"
RECEPTIVE = "Chi et al. 2022 (Sandwich), arXiv:2212.10356"
LI = "Li et al. 2023 (FIRE), arXiv:2310.04418"
GOLOVNEVA = "Golovneva et al. 2024 (CoPE), arXiv:2405.18719"
PRESS = "Press et al. 2021 (ALiBi), arXiv:2108.12409"
TEXT_CLAIMS: tuple[Claim, ...] = (
    _extrapolates("alibi", "keeps", "ALiBi keeps its quality beyond the trained length.", PRESS),
    _extrapolates("sinusoidal", "loses", "Sinusoidal encodings lose quality beyond the trained length.", PRESS),
    _extrapolates("rotary", "loses", "Rotary encodings lose quality beyond the trained length.", PRESS),
    _extrapolates("learned", "loses", "A learned table ends at the trained length.", "by its construction"),
    _beats("t5", "rotary", "longest", "The T5 bias holds up beyond the trained length better than rotary.", PRESS),
    _beats("rotary-linear", "rotary", "longest", "Interpolated positions beat extrapolated ones.", CHEN),
    _beats("rotary-yarn", "rotary", "longest", "YaRN extends rotary beyond the trained length.", PENG),
    _beats("rotary-yarn", "rotary-linear", "longest", "YaRN does better than plain interpolation.", PENG),
    _beats("xpos", "rotary", "longest", "xPos holds up beyond the trained length better than rotary.", SUN),
    _extrapolates("kerple", "keeps", "KERPLE keeps its quality beyond the trained length.", CHI),
    _beats("kerple", "alibi", "longest", "KERPLE does better than ALiBi beyond the trained length.", CHI),
    _extrapolates("sandwich", "keeps", "Sandwich keeps its quality beyond the trained length.", RECEPTIVE),
    _beats("fire", "t5", "longest", "FIRE does better than the T5 bias beyond the trained length.", LI),
    _beats("cope", "rotary", "trained", "Counted positions do better than rotary.", GOLOVNEVA),
    _beats(
        "shaw",
        "sinusoidal",
        "trained",
        "Relative positions do better than sinusoids.",
        "Shaw et al. 2018, arXiv:1803.02155",
    ),
    _without,
)
VIT = "Dosovitskiy et al. 2020 (ViT), arXiv:2010.11929"
SIGNAL_CLAIMS: tuple[Claim, ...] = (
    _beats("learned", "none", "trained", "A model that is told where its patches are does better.", VIT),
    _beats(
        "rotary",
        "learned-resized",
        "longest",
        "At a higher resolution, rotary holds up better than a learned table that is resized.",
        "Heo et al. 2024 (RoPE for ViT), arXiv:2403.13298",
    ),
    _beats(
        "mixed-rotary",
        "rotary",
        "longest",
        "At a higher resolution, rotary with learned, mixed frequencies does better than an axis at a time.",
        "Heo et al. 2024 (RoPE for ViT), arXiv:2403.13298",
    ),
    _extrapolates(
        "conditional",
        "keeps",
        "Convolutional positions carry over to larger inputs.",
        "Chu et al. 2021 (CPVT), arXiv:2102.10882",
        "An enlarged example fills more tokens, so that the same kernel sees less of it.",
    ),
)
