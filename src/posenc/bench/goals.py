"""What must be reached, beside what was: for `benchmarks/attention.py`."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from posenc.bench import peers
from posenc.bench.memory import Memory
from posenc.bench.rows import Row, Say, compare
from posenc.bench.setting import PLAIN, Setting, Subject
from posenc.bench.timing import Ratio

__all__ = ["Goal", "Required", "Result", "pursue"]

KINDS = ("scaled", "values", "prefix_bias", "learned")  # options that change what is computed, or trained


class Required(NamedTuple):
    """The largest ratio to what it stands beside, and the most MiB beyond that; None where nothing is required."""

    inference: float | None = None
    training: float | None = None
    inference_extra: float | None = None
    training_extra: float | None = None


class Goal(NamedTuple):
    """Subjects at one setting that must reach the same."""

    name: str
    setting: Setting
    subjects: tuple[Subject, ...]
    required: dict[str, Required]
    """dtype -> what is required."""
    beside: Subject = PLAIN
    train: bool = True


class Result(NamedTuple):
    """A row, what was required of it, and what was not reached."""

    goal: str
    row: Row
    required: Required
    missed: list[str]
    fastest_peer: dict[str, Any]
    """ "inference" and "training": the name and the ratio of the fastest peer in the same turns."""

    def as_dict(self) -> dict[str, Any]:
        """Nested dictionaries, for JSON."""
        return self._asdict() | {"row": self.row.as_dict(), "required": self.required._asdict()}


def pursue(
    goal: Goal, dtype: str, *, repeats: int, with_peers: bool, memory: Memory | None, error: bool, say: Say
) -> Iterator[Result]:
    """Measure a goal's subjects in one dtype, each in turn with its peers, which follow it."""
    setting, required = goal.setting._replace(dtype=dtype), goal.required.get(dtype, Required())
    if not goal.train:
        required = required._replace(training=None, training_extra=None)
    for subject in goal.subjects:
        group = [subject, *(_rivals(subject, setting) if with_peers else ())]
        rows = list(
            compare(
                group,
                setting,
                beside=goal.beside,
                repeats=repeats,
                train=goal.train,
                memory=memory,
                error=error,
                say=say,
            )
        )
        own, others = rows[0], rows[1:]
        fastest = {name: found for name in ("inference", "training") if (found := _fastest(others, name))}
        yield Result(goal.name, own, required, _missed(own, required, fastest), fastest)
        for row in others:
            yield Result(goal.name, row, Required(), [], {})


def _rivals(subject: Subject, setting: Setting) -> Sequence[Subject]:
    """The peers that compute the same; none for what is not trained, where nothing else would be measured."""
    if subject.frozen or subject.way != "attention":
        return ()
    ours = dict(subject.options)
    same = [
        peer
        for peer in peers.of(subject.scheme, setting)
        if all(dict(peer.options).get(kind) == ours.get(kind) for kind in KINDS)
    ]
    return [
        Subject(subject.scheme, tuple((ours | dict(peer.options)).items()), peer.name)
        for peer in same
        if not peers.missing(peer.package)
    ]


def _fastest(rows: Sequence[Row], name: str) -> dict[str, Any] | None:
    ratios = [(getattr(row, name).ratio, row.name) for row in rows if getattr(row, name) is not None]
    return {"name": min(ratios)[1], "ratio": min(ratios)[0]} if ratios else None


def _missed(row: Row, required: Required, fastest: dict[str, Any]) -> list[str]:
    """What is more than required, or behind a peer, or could not be measured."""
    missed = []
    for name, most in required._asdict().items():
        found = getattr(row, name)
        found = found.ratio if isinstance(found, Ratio) else found
        if most is not None and (row.refused if found is None else found > most):
            missed.append(name)
    for name, peer in fastest.items():
        own = getattr(row, name)
        if own is not None and own.ratio > peer["ratio"]:
            missed.append(f"{name}: behind {peer['name']}")
    return missed
