"""What an encoding costs, measured apart from the trials: one at a time, on one thread, in turn with no encoding.

Times are ratios of medians within one process, so that a busy machine slows both sides. Memory is the peak of what
torch's allocator holds beyond the model, read from the profiler: exact, and blind to what a kernel keeps on its stack.
Operations are those of torch's FLOP counter (matrix products and convolutions; two a multiply-add) with attention on
the dense backend, where every product is visible; element-wise work is counted apart, as elements written.
"""

import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from posenc.compare.encodings import Sizes, contestant
from posenc.compare.model import Model
from posenc.compare.tasks import Batch, Task
from posenc.compare.trial import losses_of

__all__ = ["machine", "measure_cost"]

REPEATS = 9
VIEWS = (
    "view _unsafe_view t transpose permute expand slice select unsqueeze squeeze split unbind detach alias as_strided"
)
NOT_WORK = frozenset(VIEWS.split()) | {"empty", "reshape", "diagonal", "unfold"}


def machine() -> str:
    """What times depend on besides the versions."""
    return f"{platform.machine()} {platform.processor() or platform.node()} torch {torch.__version__}"


def measure_cost(task: Task, encoding: str, sizes: Sizes, repeats: int = REPEATS) -> dict[str, float]:
    """Times relative to no encoding, peak memory, parameters and operations of one encoding on one task."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        batch = next(iter(task.training(1, 0)))
        plain = Model(task, contestant("none"), sizes, 0)
        model = Model(task, contestant(encoding), sizes, 0)
        steps = [_training_step(plain, batch), _training_step(model, batch)]
        passes = [_inference(plain, batch), _inference(model, batch)]
        training, inference = alternating(steps, repeats), alternating(passes, repeats)
        step_memory, pass_memory = ([peak_memory(call) for call in calls] for calls in (steps, passes))
        tokens = batch.inputs.shape[0] * batch.inputs.shape[1]
        flops, elements = (ours - theirs for ours, theirs in zip(_work(model, batch), _work(plain, batch), strict=True))
        alike = contestant(encoding).scheme is None  # the yardstick: 1 by definition, what is measured is noise
        return {
            "training": 1.0 if alike else training[1] / training[0],
            "inference": 1.0 if alike else inference[1] / inference[0],
            "training_seconds": training[1],
            "inference_seconds": inference[1],
            "training_memory": step_memory[1],
            "training_memory_extra": step_memory[1] - step_memory[0],
            "inference_memory": pass_memory[1],
            "inference_memory_extra": pass_memory[1] - pass_memory[0],
            "parameters": sum(p.numel() for p in model.encoding.parameters()) if model.encoding is not None else 0,
            "model_parameters": sum(p.numel() for p in plain.parameters()),
            "flops": flops / tokens,
            "elements": elements / tokens,
        }
    finally:
        torch.set_num_threads(before)


def alternating(calls: list[Callable[[], object]], repeats: int) -> list[float]:
    """Median seconds of each call, in turn, after two rounds that are thrown away."""
    times: list[list[float]] = [[] for _ in calls]
    for repeat in range(repeats + 2):
        for call, found in zip(calls, times, strict=True):
            started = time.perf_counter()
            call()
            if repeat >= 2:
                found.append(time.perf_counter() - started)
    return [statistics.median(found) for found in times]


def peak_memory(call: Callable[[], object]) -> float:
    """Bytes that torch's CPU allocator holds at the highest, beyond what it held before."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler announces itself on stderr otherwise
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    assert profile.profiler is not None
    results: Any = profile.profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return float(peak)


def _training_step(model: Model, batch: Batch) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        losses_of(model(batch.inputs, batch.place), batch.targets).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _inference(model: Model, batch: Batch) -> Callable[[], object]:
    def call() -> None:
        with torch.inference_mode():
            model(batch.inputs, batch.place)

    return call


def _work(model: Model, batch: Batch) -> tuple[float, float]:
    """FLOPs of products, and elements written by everything else, of one forward pass."""
    model.backend = "dense"
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as products, _Written() as written:
            model(batch.inputs, batch.place)
    finally:
        model.backend = "auto"
    return float(products.get_total_flops()), float(written.elements)


class _Written(TorchDispatchMode):
    """Counts the elements of what each operation returns, views left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ not in NOT_WORK:
            outputs = found if isinstance(found, tuple | list) else [found]
            self.elements += sum(math.prod(part.shape) for part in outputs if isinstance(part, torch.Tensor))
        return found
