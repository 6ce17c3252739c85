"""The answers at the top of a report: who is best at the trained length, beyond it, and cheapest within error."""

from typing import NamedTuple

from posenc.compare.summary import TaskSummary
from posenc.compare.tasks import Condition

__all__ = ["Answer", "answers", "beyond", "headline", "named", "titled"]

SHOWN_TIES = 4
SAME_COST = 0.05  # of a training step: closer than this, times do not tell


class Answer(NamedTuple):
    """One question with its short answer, a sentence about it, and whether it is clear."""

    question: str
    short: str
    detail: str
    clear: bool


def headline(summaries: list[TaskSummary]) -> str:
    """The shortest true answer: who is best at the trained length, and at the longest where that is another."""
    found = [(summary.task.title, *named(summary)) for summary in summaries]
    return " ".join(f"{task}: {first}{'; ' + then if then else ''}." for task, first, then in found)


def named(summary: TaskSummary) -> tuple[str, str]:
    """Who is best at the trained length, and, where that is another, at the longest."""
    if summary.unlearned:
        return "too few steps to tell", ""
    trained = _contenders(summary, "1x")
    if trained is None or summary.seeds == 1:
        return "no clear winner", ""
    factor = max(summary.task.factors)
    longest = _contenders(summary, beyond(summary, factor).name) if factor > 1 else trained
    first = _either(trained) or "no clear winner"
    if longest is None or set(longest) == set(trained) or not _either(longest):
        return first, ""
    return first, f"at {factor:g} times the {'length' if summary.task.axes == 1 else 'side'}, {_either(longest)}"


def _contenders(summary: TaskSummary, condition: str) -> list[str] | None:
    found = summary.standing(condition)
    return None if found is None else [row.title for name in found.tied if (row := summary.row(name)) is not None]


def _either(titles: list[str]) -> str:
    """Up to three names; more are no answer, and neither are names that cannot be told from no encoding."""
    if len(titles) > 3 or "No encoding" in titles[1:]:
        return ""
    return " or ".join(filter(None, [", ".join(titles[:-1]), titles[-1]]))


def answers(summary: TaskSummary) -> list[Answer]:
    """Best at the trained length, beyond it, cheapest within error, or that nothing was learned yet."""
    if summary.unlearned:
        return [Answer("Too early to tell", "Nothing learned yet", summary.unlearned, False)]
    found = [_best(summary, "1x", f"Best at the trained length ({summary.task.describe(1)})")]
    for factor in sorted({factor for factor in (4.0, max(summary.task.factors)) if factor in summary.task.factors}):
        if factor > 1:
            condition = beyond(summary, factor)
            found.append(_best(summary, condition.name, f"Best at {factor:g} times ({condition.label})"))
    cheapest = _cheapest(summary)
    return found + ([cheapest] if cheapest else [])


def beyond(summary: TaskSummary, factor: float) -> Condition:
    """The condition at a length: where both are measured, squeezed or continued, whichever the best does better."""
    conditions = [c for c in summary.conditions if c.factor == factor and not c.shift]

    def best(condition: Condition) -> float:
        standing = summary.standing(condition.name)
        row = summary.row(standing.best) if standing else None
        score = row.estimate(condition.name) if row else None
        return -float("inf") if score is None else score.mean if summary.task.higher_is_better else -score.mean

    return max(conditions, key=best)


def _best(summary: TaskSummary, condition: str, question: str) -> Answer:
    found = summary.standing(condition)
    if found is None:
        return Answer(question, "None can run", "Every encoding stops before this length.", False)
    row = summary.row(found.best)
    assert row is not None
    score = row.estimate(condition)
    assert score is not None
    text = f"{summary.format(score.mean)} {summary.unit}"
    if summary.seeds == 1:
        return Answer(question, "No clear winner", f"One seed gives no interval; {row.title} has {text}.", False)
    if found.clear:
        rest = "no other comes within its 95 % interval"
        return Answer(question, row.title, f"{text} ± {summary.format(score.margin)}; {rest}.", True)
    names = [titled(summary, name, condition) for name in found.tied[:SHOWN_TIES]]
    more = len(found.tied) - len(names)
    tail = f" and {more} more" if more else ""
    return Answer(question, "No clear winner", f"Within error of each other: {', '.join(names)}{tail}.", False)


def titled(summary: TaskSummary, name: str, condition: str) -> str:
    """A row with its score."""
    row = summary.row(name)
    assert row is not None
    score = row.estimate(condition)
    assert score is not None
    return f"{row.title} ({summary.format(score.mean)} {summary.unit})"


def _cheapest(summary: TaskSummary) -> Answer | None:
    found = summary.standing("1x")
    if found is None or summary.seeds == 1:  # one seed gives no error to be within
        return None
    rows = [row for name in found.tied if (row := summary.row(name)) is not None and row.cost is not None]
    if not rows:
        return None
    least = min(row.cost["training"] for row in rows if row.cost)
    row = next(row for row in rows if row.cost and row.cost["training"] <= least + SAME_COST)  # the best of the cheap
    assert row.cost is not None
    step, inference = row.cost["training"], row.cost["inference"]
    detail = f"{step:.2f} × the training step and {inference:.2f} × the inference of no encoding."
    return Answer("Cheapest within error of the best", row.title, detail, True)
