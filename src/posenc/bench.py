"""Speed and memory of each scheme beside plain attention, in the same run.

Plain is `torch.nn.functional.scaled_dot_product_attention` on queries, keys and values of the same sizes. A scheme is
`posenc.attention` with it; for absolute and conditional schemes, which act on embeddings, it is plain attention, plus
the call that adds them to `[batch, tokens, heads · head_dim]`.

*Time.* The two are run in turn, A B, B A, A B, … The ratio is that of the medians; its spread is the smallest and the
largest ratio of a pair, between which it always lies. Noise that lasts longer than a pair falls on both; but where
other programs keep the cores busy, calls of many small parallel steps wait most, and a single thread is fairer
(`OMP_NUM_THREADS=1`). Inference is under `torch.inference_mode`, training is forward and backward, with gradients for
q, k, v and every parameter.

*Memory.* On a CPU the peak resident memory of the process (`ru_maxrss`), which counts whatever allocates: each call is
made once in a process of its own, forked from one that has imported torch and computed nothing, after a call at a tiny
size. What is counted is the growth from there, the inputs and parameters included. It is rough below a MiB or so, and
by one tensor or so in training, where it matters which thread frees first. On CUDA, torch's own peak. None where a
platform has neither.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

import posenc
from posenc import catalog

PLAIN = "plain"
DTYPES = ("float32", "bfloat16", "float16", "float64")
LEAST_SECONDS = 0.01  # a timed run repeats its call until it takes about this long


class Setting(NamedTuple):
    """The size of what is measured: `shape` is that of the tokens, one size an axis."""

    shape: tuple[int, ...] = (400,)
    batch: int = 1
    heads: int = 8
    head_dim: int = 64
    dtype: str = "float32"
    device: str = "cpu"

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return math.prod(self.shape)


class Ratio(NamedTuple):
    """Time of a scheme over time of plain attention."""

    ratio: float  # of the medians
    low: float  # the smallest and the largest ratio of a single pair
    high: float
    plain_ms: float  # median of plain


class Row(NamedTuple):
    """What was measured of one scheme at one setting. Memory is the peak in MiB, inputs included, or None."""

    scheme: str
    setting: Setting
    parameters: int
    inference: Ratio
    training: Ratio
    inference_memory: float | None
    inference_memory_plain: float | None
    training_memory: float | None
    training_memory_plain: float | None

    def as_dict(self) -> dict[str, Any]:
        """Nested dictionaries, for JSON."""
        return self._asdict() | {
            "setting": self.setting._asdict() | {"tokens": self.setting.tokens},
            "inference": self.inference._asdict(),
            "training": self.training._asdict(),
        }


def measure(
    schemes: Sequence[str] = (),
    *,
    length: int | None = None,
    grid: tuple[int, ...] = (20, 20),
    batch: int = 1,
    heads: int = 8,
    head_dim: int = 64,
    dtype: str = "float32",
    device: str = "cpu",
    repeats: int = 5,
    memory: bool = True,
) -> Iterator[Row]:
    """Measure schemes one after another: each along a sequence of `length`, and, if it can, on `grid` as well.

    `schemes` are names of the catalog, all of them if empty; `length` is by default the number of cells of the grid.

    Raises ValueError for an unknown scheme, dtype or device, and for sizes that a scheme cannot have, before anything
    is measured.

    >>> row = next(measure(["ALiBi"], length=8, grid=(2, 4), heads=2, head_dim=8, repeats=1, memory=False))
    >>> row.scheme, row.setting.tokens, row.inference.ratio > 0
    ('ALiBi', 8, True)
    """
    cards = [catalog.card(name) for name in schemes] or list(catalog.CARDS)
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:  # unknown to torch, or not there
        raise ValueError(f"device must be one that torch can use here, got {device!r}: for example cpu") from error
    common = Setting((length or math.prod(grid),), batch, heads, head_dim, dtype, device)
    cases = [(card.name, common) for card in cards]
    cases += [(card.name, common._replace(shape=grid)) for card in cards if card.axes == "any"]
    cases.sort(key=lambda case: [card.name for card in cards].index(case[0]))
    for case in cases:
        build(*case)
    return _measure(cases, repeats, memory)


def _measure(cases: list[tuple[str, Setting]], repeats: int, memory: bool) -> Iterator[Row]:
    peaks = _peaks(cases) if memory else {}
    for scheme, setting in cases:
        # fresh draws and encodings for each, so that nothing is left over from the case before
        inference, training = (
            _beside(prepare(PLAIN, setting, train), prepare(scheme, setting, train), repeats, setting.device)
            for train in (False, True)
        )
        parameters = sum(parameter.numel() for parameter in build(scheme, setting).parameters())
        memories = (peaks.get((name, setting, train)) for train in (False, True) for name in (scheme, PLAIN))
        yield Row(scheme, setting, parameters, inference, training, *memories)


def about() -> dict[str, Any]:
    """What the numbers depend on besides the setting."""
    return {"torch": torch.__version__, "threads": torch.get_num_threads()}


def build(scheme: str, setting: Setting) -> Any:
    """The encoding of a scheme for a setting, in its dtype and on its device."""
    arguments = catalog.arguments(
        scheme,
        shape=setting.shape,
        dim=setting.heads * setting.head_dim,
        num_heads=setting.heads,
        head_dim=setting.head_dim,
    )
    encoding = getattr(posenc, catalog.card(scheme).name)(**arguments)
    return encoding.to(setting.device, getattr(torch, setting.dtype))


def prepare(scheme: str, setting: Setting, train: bool) -> Callable[[], object]:
    """The call to measure: attention with a scheme, or `plain`; with the backward pass if `train`."""
    options: dict[str, Any] = {"device": setting.device, "dtype": getattr(torch, setting.dtype), "requires_grad": train}
    q, k, v = (torch.randn(setting.batch, setting.heads, setting.tokens, setting.head_dim, **options) for _ in range(3))
    inputs = [q, k, v]
    attend = functional.scaled_dot_product_attention
    if scheme == PLAIN:

        def forward() -> list[torch.Tensor]:
            return [attend(q, k, v)]

    else:
        encoding = build(scheme, setting)
        inputs += [parameter for parameter in encoding.parameters() if parameter.requires_grad]
        positions = posenc.grid(*setting.shape) if len(setting.shape) > 1 else posenc.sequence(*setting.shape)
        if catalog.card(scheme).place in ("absolute", "conditional"):
            x = torch.randn(setting.batch, setting.tokens, setting.heads * setting.head_dim, **options)
            inputs.append(x)

            def forward() -> list[torch.Tensor]:
                return [attend(q, k, v), encoding(x, positions)]

        else:

            def forward() -> list[torch.Tensor]:
                return [posenc.attention(q, k, v, encoding, positions=positions)]

    if not train:
        return lambda: _infer(forward)
    gradients = [torch.randn_like(output) for output in forward()]
    return lambda: torch.autograd.grad(forward(), inputs, gradients)


def _infer(forward: Callable[[], list[torch.Tensor]]) -> list[torch.Tensor]:
    with torch.inference_mode():
        return forward()


# --- time -------------------------------------------------------------------------------------------------------------


def _beside(plain: Callable[[], object], scheme: Callable[[], object], repeats: int, device: str) -> Ratio:
    """Run both in turn."""
    calls = (plain, scheme)
    counts = []
    for call in calls:
        _seconds(call, 1, device)  # warm-up
        counts.append(max(1, math.ceil(LEAST_SECONDS / _seconds(call, 1, device))))
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(repeats):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            times[which].append(_seconds(calls[which], counts[which], device))
    ratios = [slow / fast for fast, slow in zip(*times, strict=True)]
    medians = [statistics.median(each) for each in times]
    return Ratio(medians[1] / medians[0], min(ratios), max(ratios), 1000 * medians[0])


def _seconds(call: Callable[[], object], count: int, device: str) -> float:
    """Seconds a call."""
    wait: Callable[[], None] = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    wait()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return (time.perf_counter() - begin) / count


# --- memory -----------------------------------------------------------------------------------------------------------

Peaks = dict[tuple[str, Setting, bool], float]


def _peaks(cases: list[tuple[str, Setting]]) -> Peaks:
    """Peak memory in MiB of every case and of plain beside it."""
    settings = dict.fromkeys(setting for _, setting in cases)
    wanted = [(name, setting, train) for name, setting in cases for train in (False, True)]
    wanted += [(PLAIN, setting, train) for setting in settings for train in (False, True)]
    device = cases[0][1].device
    if device.startswith("cuda"):
        return {case: _cuda_peak(*case) for case in wanted}
    if device != "cpu" or not hasattr(os, "fork"):
        return {}
    program = "from posenc import bench; bench.serve_peaks()"
    message = json.dumps({"threads": torch.get_num_threads(), "cases": wanted})
    answer = subprocess.run(
        [sys.executable, "-c", program], input=message, stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(zip(wanted, json.loads(answer.stdout), strict=True))


def serve_peaks() -> None:
    """Answer JSON on stdin with the peak of each case, each measured in a fork of this still idle process."""
    request = json.load(sys.stdin)
    peaks = []
    for scheme, setting, train in request["cases"]:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            torch.set_num_threads(request["threads"])
            grown = _growth(scheme, Setting(tuple(setting[0]), *setting[1:]), train)
            os.write(write, json.dumps(grown).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            answer = pipe.read()
        os.waitpid(child, 0)
        if not answer:
            sys.exit(f"the memory of {scheme} could not be measured")
        peaks.append(json.loads(answer))
    json.dump(peaks, sys.stdout)


def _growth(scheme: str, setting: Setting, train: bool) -> float:
    """How many MiB the peak memory of this process grows by, from a call at a tiny size to one at this setting."""
    import resource  # not on every platform

    tiny = setting._replace(shape=tuple(2 for _ in setting.shape))
    prepare(scheme, tiny, train)()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    prepare(scheme, setting, train)()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return grown / (2**20 if sys.platform == "darwin" else 2**10)  # in bytes there, in KiB elsewhere


def _cuda_peak(scheme: str, setting: Setting, train: bool) -> float:
    prepare(scheme, setting, train)()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    prepare(scheme, setting, train)()
    return (torch.cuda.max_memory_allocated() - before) / 2**20
