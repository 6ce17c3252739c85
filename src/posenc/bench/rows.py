"""Rows of results: subjects at one setting beside plain attention, in time, memory and error."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from posenc.bench import peers
from posenc.bench.calls import called, planned, prepare
from posenc.bench.error import Errors, errors
from posenc.bench.memory import Memory
from posenc.bench.setting import PLAIN, Setting, Subject
from posenc.bench.timing import Ratio, in_turn

__all__ = ["Row", "compare"]

Say = Callable[[str], None]


class Row(NamedTuple):
    """What was measured of one subject at one setting; None where it was not, or cannot be."""

    subject: Subject
    setting: Setting
    beside: str = PLAIN.way
    """The way that its time and memory are compared to."""
    backend: str = ""
    """What `explain` says of inference, and of training where that is another; the package of a peer."""
    parameters: int = 0
    inference: Ratio | None = None
    training: Ratio | None = None
    inference_memory: float | None = None
    """Peak in MiB, inputs and parameters included."""
    inference_memory_plain: float | None = None
    training_memory: float | None = None
    training_memory_plain: float | None = None
    errors: Errors | None = None
    refused: str = ""
    """Why nothing was measured, or not all."""

    @property
    def name(self) -> str:
        """What the row is called: the scheme with its options, or the peer."""
        if self.subject.way in peers.NAMES:
            return self.subject.way
        way = "" if self.subject.way == "attention" else f", {self.subject.way}"
        return self.subject.title + way + (" (causal)" if self.setting.causal else "")

    @property
    def inference_extra(self) -> float | None:
        """Peak memory beyond plain's in MiB."""
        return _beyond(self.inference_memory, self.inference_memory_plain)

    @property
    def training_extra(self) -> float | None:
        """The same with the backward pass."""
        return _beyond(self.training_memory, self.training_memory_plain)

    def as_dict(self) -> dict[str, Any]:
        """Nested dictionaries, for JSON."""
        named = {name: _named(each) for name, each in self._asdict().items()}
        named["subject"]["options"] = dict(self.subject.options)
        named["setting"]["tokens"] = self.setting.tokens
        extra = {"inference_extra": self.inference_extra, "training_extra": self.training_extra}
        return {"name": self.name} | named | extra


def compare(
    subjects: Sequence[Subject],
    setting: Setting,
    *,
    beside: Subject = PLAIN,
    repeats: int = 5,
    train: bool = False,
    memory: Memory | None = None,
    error: bool = True,
    say: Say = lambda text: None,
) -> Iterator[Row]:
    """Measure subjects at one setting, all in turn with the one that they stand beside; a row each, in their order."""
    rows = [_row(subject, setting, beside, memory, train) for subject in subjects]
    for training in (False, True) if train else (False,):
        name = "training" if training else "inference"
        able = [place for place, row in enumerate(rows) if not row.refused and (not training or _trains(row))]
        say(f"{name}: {', '.join(rows[place].name for place in able)} at {setting.size}")
        calls = {}
        for place in able:
            call, problem = _prepared(rows[place], training)
            rows[place] = rows[place]._replace(refused=problem)
            if call is not None:
                calls[place] = call
        if not calls:
            continue
        plain = prepare(beside, setting, training)
        ratios = dict(zip(calls, in_turn([plain, *calls.values()], repeats, setting.device), strict=True))
        del calls, call, plain  # and what they hold, before memory is measured
        for place, ratio in ratios.items():
            row = rows[place]
            row = row._replace(training=ratio) if training else row._replace(inference=ratio)
            if memory is not None:
                say(f"memory, {name}: {row.name} at {setting.size}")
                row = _remembered(row, memory, beside, training)
            rows[place] = row
    for row in rows:
        if row.inference is not None and error:
            say(f"error: {row.name} at {setting.size}")
            row = _judged(row, train)
        yield row


def _row(subject: Subject, setting: Setting, beside: Subject, memory: Memory | None, train: bool) -> Row:
    """A row with what is known before anything is timed: the backend, the parameters, or why there is nothing."""
    row = Row(subject, setting, beside.way)
    try:
        if subject.way in peers.NAMES:
            peer = peers.NAMES[subject.way]
            if reason := peers.missing(peer.package) or peer.refuses(setting):
                return row._replace(refused=f"{row.name} is left out: {reason}")
        else:
            called(subject, setting.tiny(), False)  # is there such a way at all?
        if memory is not None:
            memory.require_room(subject, setting, train and _trains(row))
        backends = [planned(subject, setting, training) for training in ((False, True) if train else (False,))]
        parameters = sum(each.numel() for each in called(subject, setting, True).parameters)
    except Exception as problem:
        return row._replace(refused=_reason(row, problem))
    return row._replace(backend=", ".join(dict.fromkeys(backends)), parameters=parameters)


def _prepared(row: Row, training: bool) -> tuple[Callable[[], object] | None, str]:
    """The call of a row; or why there is none, where a peer fails, which shall not end the others."""
    try:
        call = prepare(row.subject, row.setting, training)
        if row.subject.way in peers.NAMES:
            call()
    except Exception as problem:
        return None, _reason(row, problem)
    return call, ""


def _judged(row: Row, train: bool) -> Row:
    """A row with its errors."""
    try:
        return row._replace(errors=errors(row.subject, row.setting, train and _trains(row)))
    except Exception as problem:
        return row._replace(refused=_reason(row, problem))


def _reason(row: Row, problem: Exception) -> str:
    """Why a row has nothing, or not all. Raises what is no peer's doing, and no refusal."""
    if row.subject.way not in peers.NAMES and not isinstance(problem, ValueError):
        raise problem
    kind = "" if isinstance(problem, ValueError) else f"{type(problem).__name__}: "
    return f"{row.name} is left out: {kind}{problem}"


def _trains(row: Row) -> bool:
    """Whether it has gradients: FlexAttention on a CPU and terms that were evaluated beforehand do not."""
    if row.subject.way in peers.NAMES:
        return peers.NAMES[row.subject.way].trains(row.setting)
    return row.subject.way != "clone" and not row.subject.way.startswith("ready")


def _remembered(row: Row, memory: Memory, beside: Subject, training: bool) -> Row:
    """A row with its peak memory and that of what it stands beside."""
    try:
        own, plain = (memory.peak(subject, row.setting, training) for subject in (row.subject, beside))
    except ValueError as problem:
        return row._replace(refused=f"{row.name}: {problem}")
    if training:
        return row._replace(training_memory=own, training_memory_plain=plain)
    return row._replace(inference_memory=own, inference_memory_plain=plain)


def _beyond(own: float | None, plain: float | None) -> float | None:
    return None if own is None or plain is None else own - plain


def _named(value: Any) -> Any:
    """Named tuples as dictionaries, all the way down."""
    if hasattr(value, "_asdict"):
        return {name: _named(each) for name, each in value._asdict().items()}
    return value
