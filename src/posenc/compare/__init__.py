"""`posenc compare`: train the same small transformer once per encoding, on real data, and report which serves it best.

>>> from posenc.compare import Settings, compare
>>> summaries = compare(Settings(tasks=("digits",)))  # doctest: +SKIP
"""

import time
from typing import Any

from rich.console import Console

from posenc.compare.cost import machine, measure_cost
from posenc.compare.encodings import CONTESTANTS, Sizes, contestant, title
from posenc.compare.errors import BadInput, WorkerLost
from posenc.compare.progress import Reporter
from posenc.compare.settings import BUDGETS, Comparison, Settings, prepare
from posenc.compare.summary import Row, TaskSummary, by_reason, summarise
from posenc.compare.sweep import Store, connect, run_all
from posenc.compare.tasks import digest
from posenc.compare.trial import Trial, versions

__all__ = ["BUDGETS", "CONTESTANTS", "BadInput", "Row", "Settings", "TaskSummary", "WorkerLost", "compare"]


def compare(settings: Settings, console: Console | None = None, sizes: Sizes | None = None) -> list[TaskSummary]:
    """Run the trials that `settings.runs` does not hold yet, measure costs, and write the report to `settings.out`.

    Raises BadInput, before anything is written, for settings or data that cannot be compared, and KeyboardInterrupt
    where it is stopped, and WorkerLost where a process was; what was finished is kept, and the same call continues.
    """
    from posenc.compare.report import write_report

    reporter = Reporter(console or Console(stderr=True))
    started = time.monotonic()
    comparison = prepare(settings, sizes)
    if settings.dask is not None:
        connect(settings.dask).close()
    for warning in comparison.warnings:
        reporter.warn(warning)
    for task in comparison.tasks:
        for who, why in by_reason(comparison.left_out[task.name]):
            reporter.say(f"{task.name}: left out: {who}: {why}")
    store = Store(settings.runs, reporter.warn)
    results = _run_trials(comparison, store, reporter)
    costs = _measure_costs(comparison, store, reporter)
    summaries = summarise(comparison, results, costs)
    write_report(comparison, summaries, settings.out, seconds=time.monotonic() - started)
    for summary in summaries:
        if summary.unlearned:
            reporter.warn(f"{summary.task.name}: {summary.unlearned}")
    reporter.say(
        f"Wrote {settings.out} in {(time.monotonic() - started) / 60:.1f} min; trials are kept in {settings.runs}"
    )
    return summaries


def _run_trials(comparison: Comparison, store: Store, reporter: Reporter) -> dict[str, dict[str, Any]]:
    settings, by_key = comparison.settings, {trial.key: trial for trial in comparison.trials}
    tasks = ", ".join(task.name for task in comparison.tasks)
    seeds = len({trial.seed for trial in comparison.trials})
    kept = sum(store.path(key).exists() for key in by_key)
    reporter.say(
        f"{_count(len(by_key), 'trial')}: {comparison.models}, {_count(seeds, 'seed')}, on {tasks}. "
        "Ctrl-C stops, the same command continues."
    )
    if kept:
        reporter.say(f"{kept} of them are done already, and kept in {settings.runs}.")
    with reporter.stage("trials", len(by_key)) as stage:

        def done(result: dict[str, Any], fresh: bool) -> None:
            trial = by_key[result["key"]]
            score = result["rows"][trial.encoding]["1x"]
            stage.step(_line(trial, score.get("loss"), score.get("score")), fresh)

        return run_all(comparison.trials, store, jobs=settings.jobs, dask=settings.dask, done=done)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _line(trial: Trial, loss: float | None, score: float | None) -> str:
    found = "cannot" if loss is None or score is None else f"loss {loss:.3f}"
    if score is not None and trial.task.higher_is_better:
        found += f", {100 * score:.1f} % right"
    return f"{trial.task.name}, {title(trial.encoding)}, seed {trial.seed}: {found}"


def _measure_costs(comparison: Comparison, store: Store, reporter: Reporter) -> dict[tuple[str, str], dict[str, float]]:
    """One at a time, after the trials, so that nothing else of ours runs beside a measurement."""
    wanted = {(trial.task.name, trial.encoding): trial for trial in comparison.trials}
    costs = {}
    with reporter.stage("costs", len(wanted)) as stage:
        for place, trial in wanted.items():
            known = {name: trial.settings[name] for name in ("data", "shape", "encoding", "arguments", "sizes")}
            key = "cost-" + digest(known, versions(), machine(), contestant(trial.encoding).scheme)
            stored = store.read(key)
            if stored is None:
                stored = {"key": key, "cost": measure_cost(trial.task, trial.encoding, comparison.sizes)}
                store.write(stored)
                fresh = True
            else:
                fresh = False
            costs[place] = stored["cost"]
            stage.step(
                f"{trial.task.name}, {title(trial.encoding)}: {costs[place]['training']:.2f} × the step of no encoding",
                fresh,
            )
    return costs
