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

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from posenc.bench.cases import PLAIN, Case, Setting, build, chosen, prepare, require_count
from posenc.bench.memory import peaks
from posenc.bench.timing import Ratio, beside

__all__ = ["PLAIN", "Case", "Ratio", "Row", "Setting", "about", "measure", "refusals"]


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

    `schemes` are names of the catalog; if empty, all of them that can have these sizes (`refusals` says which cannot).
    `length` is by default the number of cells of the grid; a scheme of three axes reads a grid of two as one frame.
    Attention is causal where a scheme needs it, and plain attention beside it then is too.

    Raises ValueError for an unknown scheme, dtype or device, and for sizes that a scheme cannot have, before anything
    is measured; and, from the iterator, for sizes that do not fit in memory.

    >>> row = next(measure(["ALiBi"], length=8, grid=(2, 4), heads=2, head_dim=8, repeats=1, memory=False))
    >>> row.scheme, row.setting.tokens, row.inference.ratio > 0
    ('ALiBi', 8, True)
    """
    found = chosen(schemes, length, grid, Setting((1,), batch, heads, head_dim, dtype, device))
    require_count("repeats", repeats)
    if schemes:
        for case in found:
            if case.refused:
                raise ValueError(case.refused)
    return _measure([case for case in found if not case.refused], repeats, memory)


def refusals(
    *,
    length: int | None = None,
    grid: tuple[int, ...] = (20, 20),
    batch: int = 1,
    heads: int = 8,
    head_dim: int = 64,
    dtype: str = "float32",
    device: str = "cpu",
) -> list[Case]:
    """The schemes of the catalog that cannot have these sizes, and why; `measure` leaves them out.

    >>> [(case.scheme, case.refused.partition(":")[0]) for case in refusals(heads=1, head_dim=15)][0]
    ('Fourier', 'dim must be even for Fourier, a sine and a cosine each, got 15')
    """
    found = chosen((), length, grid, Setting((1,), batch, heads, head_dim, dtype, device))
    return [case for case in found if case.refused]


def _measure(measured: list[Case], repeats: int, memory: bool) -> Iterator[Row]:
    found = peaks([(case.scheme, case.setting) for case in measured]) if memory and measured else {}
    for scheme, setting, _ in measured:
        # fresh draws and encodings for each, so that nothing is left over from the case before
        inference, training = (
            beside(prepare(PLAIN, setting, train), prepare(scheme, setting, train), repeats, setting.device)
            for train in (False, True)
        )
        parameters = sum(parameter.numel() for parameter in build(scheme, setting).parameters())
        memories = (found.get((name, setting, train)) for train in (False, True) for name in (scheme, PLAIN))
        yield Row(scheme, setting, parameters, inference, training, *memories)


def about() -> dict[str, Any]:
    """What the numbers depend on besides the setting."""
    return {"torch": torch.__version__, "threads": torch.get_num_threads()}
