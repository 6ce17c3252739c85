"""One trial: train one model with one encoding from one seed, evaluate it, and say all of it in plain numbers.

A trial is a pure function of its `settings`; the key of its file is their hash. One thread, so that a trial computes
the same numbers wherever it runs.
"""

import hashlib
import json
import math
import time
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.compare.encodings import Sizes, Variant, contestant
from posenc.compare.model import Model
from posenc.compare.portrait import portrait
from posenc.compare.tasks import Condition, Task

__all__ = ["Trial", "evaluate", "evaluate_all", "losses_of", "run_trial", "train", "versions"]

RATE = 3e-3
WARM_UP = 0.1  # of the steps
CURVE = 20  # points of the training curve


@dataclass(frozen=True)
class Trial:
    """What determines a trial."""

    task: Task
    encoding: str
    seed: int
    steps: int
    sizes: Sizes

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Everything the result depends on."""
        row = contestant(self.encoding)
        return {
            "task": self.task.name,
            "data": self.task.fingerprint,
            "shape": list(self.task.shape),
            "conditions": [condition.name for condition in self.task.conditions()],
            "encoding": self.encoding,
            "scheme": row.scheme,
            "arguments": row.arguments(self.task, self.sizes),
            "seed": self.seed,
            "steps": self.steps,
            "batch": self.task.batch_size,
            "sizes": asdict(self.sizes),
            "rate": RATE,
            "versions": versions(),
        }

    @cached_property
    def key(self) -> str:
        """The name of its file: a hash of the settings."""
        canonical = json.dumps(self.settings, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:24]


def versions() -> dict[str, str]:
    """The versions that numbers depend on."""
    try:
        ours = version("posenc")
    except PackageNotFoundError:  # run from a source tree
        ours = "source"
    return {"posenc": ours, "source": source(), "torch": torch.__version__}


@cache
def source() -> str:
    """A fingerprint of the code that numbers depend on: all of the package but what only presents them."""
    root = Path(__file__).parent.parent
    shown = {"cli", "plots", "steps", "bench", "looks", "figures", "gallery", "report"}
    shown |= {"findings", "answers", "progress"}
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        if not shown & set(path.relative_to(root).with_suffix("").parts):
            found.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]


def run_trial(trial: Trial) -> dict[str, Any]:
    """Train, evaluate under every condition, and draw what was learned: plain numbers, ready for JSON."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        started = time.perf_counter()
        task = trial.task
        model = Model(task, contestant(trial.encoding), trial.sizes, trial.seed)
        curve = train(model, task, trial.steps, trial.seed)
        trained = time.perf_counter()
        rows = {trial.encoding: evaluate_all(model, task)}
        for variant in model.contestant.variants:
            rows[variant.name] = evaluate_all(model, task, variant)
        return {
            "key": trial.key,
            "settings": trial.settings,
            "curve": curve,
            "rows": rows,
            "portrait": portrait(model, task),
            "seconds": {"train": trained - started, "all": time.perf_counter() - started},
        }
    finally:
        torch.set_num_threads(before)


def train(model: Model, task: Task, steps: int, seed: int) -> list[tuple[int, float]]:
    """AdamW with a linear warm-up and a cosine decay; the training loss averaged over each part of the steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    warm = max(1, round(WARM_UP * steps))
    losses: list[float] = []
    for step, batch in enumerate(task.training(steps, seed)):
        decay = 0.5 * (1 + math.cos(math.pi * max(0, step - warm) / max(1, steps - warm)))
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / warm) * max(0.05, decay)
        loss = losses_of(model(batch.inputs, batch.place), batch.targets).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item() / (math.log(2) if task.causal else 1))
    ends = sorted({round((part + 1) * steps / CURVE) for part in range(CURVE)} - {0})
    return [(end, sum(losses[start:end]) / (end - start)) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def losses_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of every target: `[b]` for classes, `[b, n]` for text, in nats."""
    return F.cross_entropy(logits.movedim(-1, 1), targets, reduction="none")


def evaluate_all(model: Model, task: Task, variant: Variant | None = None) -> dict[str, dict[str, Any]]:
    """The score under every condition, or why the encoding cannot run there."""
    found = {}
    for condition in task.conditions():
        try:
            found[condition.name] = evaluate(model, task, condition, variant)
        except ValueError as error:
            found[condition.name] = {"cannot": str(error)}
    return found


@torch.no_grad()
def evaluate(model: Model, task: Task, condition: Condition, variant: Variant | None = None) -> dict[str, Any]:
    """Score and loss on the held-out data; for text also the bits by position, in runs of half a trained window."""
    trained = model.encoding
    losses: list[Tensor] = []
    right: list[Tensor] = []
    try:
        for batch in task.held_out(condition):
            place = batch.place
            if variant is not None and trained is not None:
                model.encoding, place = variant.adapt(trained, place, task)
            logits = model(batch.inputs, place)
            losses.append(losses_of(logits, batch.targets))
            right.append(logits.argmax(-1) == batch.targets)
    finally:
        model.encoding = trained
    loss = torch.cat(losses).double()
    if not task.causal:
        return {"loss": loss.mean().item(), "score": torch.cat(right).double().mean().item()}
    bits = loss / math.log(2)
    runs = [part.mean().item() for part in bits.mean(0).split(max(1, task.shape[0] // 2))]
    return {"loss": bits.mean().item(), "score": bits.mean().item(), "runs": runs}
