"""What `posenc bench` measures once, what it says of a busy machine, and of dtypes by other names."""

import pytest
import torch

from posenc import bench
from posenc.bench.cases import chosen
from posenc.bench.rows import Row
from posenc.bench.setting import SHORT, Setting, Subject
from posenc.bench.timing import Ratio


def test_what_is_said_twice_is_measured_once() -> None:
    rows = chosen(["alibi", "Rotary", "ALiBi"], [6, 5, 6], [(2, 3), [3, 2], [2, 3]], Setting(), "auto")
    found = [(row.subject.scheme, row.setting.shape) for row in rows]
    assert found == [("ALiBi", (6,)), ("ALiBi", (5,))] + [("Rotary", shape) for shape in ((6,), (5,), (2, 3), (3, 2))]


@pytest.mark.parametrize("name", [*SHORT, "torch.bfloat16", torch.float16])
def test_a_dtype_by_another_name(name: str) -> None:
    if name in ("float32", "bfloat16", "float16", "float64"):
        assert chosen(["ALiBi"], [6], [], Setting(dtype=name), "auto")
        return
    meant = SHORT[str(name).removeprefix("torch.")]
    with pytest.raises(ValueError, match=f"^dtype must be one of .*, got {name!r}: did you mean {meant}[?]$"):
        chosen(["ALiBi"], [6], [], Setting(dtype=name), "auto")
    assert getattr(torch, meant).is_floating_point


def row(*spreads: tuple[float, float] | None) -> Row:
    times = [None if each is None else Ratio(2.0, *each, plain_ms=1.0, turns=5) for each in spreads]
    return Row(Subject("ALiBi"), Setting(), inference=times[0], training=times[1] if len(times) > 1 else None)


def test_a_busy_machine_is_told_by_turns_far_from_the_median() -> None:
    steady = [row((1.75, 2.25)), row((2.0, 2.0), (1.9, 2.1)), row(None)]
    assert bench.warning(steady) == ""
    assert bench.warning([]) == ""
    for spread in ((1.6, 2.0), (2.0, 2.4)):
        assert Ratio(2.0, *spread, plain_ms=1.0, turns=5).spread == pytest.approx(0.2)
        for wide in (row(spread), row((2.0, 2.0), spread)):
            said = bench.warning([*steady, wide])
            assert said.startswith(
                "warning: in 1 of 3 rows a turn is more than 15% off the median: other programs keep"
            )
