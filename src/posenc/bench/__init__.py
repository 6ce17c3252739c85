"""Speed, memory and error of each scheme beside plain attention, in the same run, and of other packages beside it.

Plain is `torch.nn.functional.scaled_dot_product_attention` on queries, keys and values of the same sizes. A scheme is
`posenc.attention` with it, evaluated in every call; for absolute and conditional schemes, which act on embeddings, it
is plain attention, plus the call that adds them to `[batch, tokens, heads · head_dim]`. A peer is the code of another
package that computes the same from the same numbers (`posenc.bench.peers`).

*Time.* All run in turn, A B C, C B A, A B C, … after each was warmed up. The ratio is that of the medians; its spread
is the smallest and the largest ratio within a turn, between which it always lies. Noise that lasts longer than a turn
falls on all; but where other programs keep the cores busy, calls of many small parallel steps wait most, and a single
thread is fairer (`OMP_NUM_THREADS=1`); `warning` tells of it. What has taken half a minute in all takes no more turns
than three. Inference is under `torch.inference_mode`, training is forward and backward, with gradients for q, k, v and
every parameter.

*Memory.* On a CPU the peak resident memory of the process (`ru_maxrss`), which counts whatever allocates: each call is
made once in a process of its own, forked from one that has imported torch and computed nothing, after a call at a tiny
size. What is counted is the growth from there, the inputs and parameters included; `extra` is what is beyond plain's.
It is rough below a MiB or so, and by one tensor or so in training, where it matters which thread frees first. On CUDA,
torch's own peak. None where a platform has neither, and for what is compiled, as the compiler takes more.

*Error.* The largest difference from our dense path in float64 on the same numbers, over the largest number of the
tensor: of the output, and of the gradients of all that ours trains (of a peer: of q, k and v). Beside it stands our
dense path's own in the same dtype. Where the logits are too many to write in float64, rows are compared, spread evenly
over the queries, and the gradients are those that these rows of the output cause.

What would not fit in memory is refused, judged by the memory of the same call with fewer tokens.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from posenc.bench import peers
from posenc.bench.cases import chosen
from posenc.bench.error import Error, Errors
from posenc.bench.machine import about
from posenc.bench.memory import Memory
from posenc.bench.rows import Row, Say, compare
from posenc.bench.setting import PLAIN, Setting, Subject, require_count
from posenc.bench.text import cells, headings, line, warning
from posenc.bench.timing import Ratio

__all__ = [
    "PLAIN",
    "Error",
    "Errors",
    "Memory",
    "Ratio",
    "Row",
    "Setting",
    "Subject",
    "about",
    "cells",
    "compare",
    "headings",
    "line",
    "measure",
    "missing_peers",
    "warning",
]


def measure(
    schemes: Sequence[str] = (),
    *,
    lengths: Sequence[int] = (),
    grids: Sequence[Sequence[int]] = (),
    batch: int = 1,
    heads: int = 8,
    head_dim: int = 64,
    dtype: str = "float32",
    device: str = "cpu",
    backend: str = "auto",
    repeats: int = 5,
    train: bool = False,
    with_peers: bool = False,
    memory: bool = True,
    error: bool = True,
    say: Say = lambda text: None,
) -> Iterator[Row]:
    """Measure schemes one after another: each along sequences of the lengths, and on the grids, as its axes have it.

    `schemes` are names of the catalog; if empty, all of them. With no sizes, 400 tokens and a grid of 20 × 20; with
    grids alone, lengths are their numbers of cells. What is said twice is measured once. A scheme of three axes reads a
    grid of two as one frame. Attention is causal where a scheme needs it, and plain attention beside it then is too.
    With `with_peers`, the peers of a scheme that are installed follow it, measured in the same turns. `say` is told
    what is being measured.

    What cannot be measured has a row that says why. Raises ValueError before anything is measured: for an unknown
    scheme, dtype, device or backend, and where a scheme that was named cannot have these sizes.

    >>> row = next(measure(["ALiBi"], lengths=[8], heads=2, head_dim=8, repeats=1, memory=False))
    >>> row.name, row.setting.tokens, row.inference.ratio > 0, row.errors.output.own < 1e-5
    ('ALiBi', 8, True, True)
    """
    common = Setting((1,), batch, heads, head_dim, dtype, device)
    cases = chosen(schemes, lengths, grids, common, backend)
    require_count("repeats", repeats)
    options: dict[str, Any] = {"repeats": repeats, "train": train, "error": error, "say": say}
    return _measure(cases, with_peers, memory, options)


def missing_peers() -> list[str]:
    """The packages of peers that are not installed, and the commands that install them."""
    return [text for text in map(peers.missing, peers.INSTALLED_BY) if text]


def _measure(cases: list[Row], with_peers: bool, memory: bool, options: dict[str, Any]) -> Iterator[Row]:
    with Memory() as measured:
        for case in cases:
            if case.refused:
                yield case
                continue
            subject, setting = case.subject, case.setting
            beside = peers.of(subject.scheme, setting) if with_peers else []
            installed = [peer for peer in beside if not peers.missing(peer.package)]
            others = [Subject(subject.scheme, peer.options, peer.name) for peer in installed]
            yield from compare([subject, *others], setting, memory=measured if memory else None, **options)
