"""Laws of captured graphs: one compiled, exported or translated graph serves every size that it was not made for."""

import copy
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnxruntime
import torch
from torch import Tensor, nn

import posenc
from laws.subject import INSIDE, OUTSIDE, Subject, attend, draw, equal, heads_of, law

LARGEST = {1: (301,), 2: (20, 17), 3: (9, 8, 7)}
"""The sizes of tables, beyond all tokens that a graph is tried with."""


class Model(nn.Module):
    """One attention over embeddings `[batch, *shape, channels]`, with the encoding at its place."""

    def __init__(self, subject: Subject, encoding: posenc.Encoding) -> None:
        super().__init__()
        self.subject, self.encoding = subject, encoding
        dtype = next((tensor.dtype for tensor in encoding.state_dict().values()), torch.float32)
        self.register_buffer("prefix", draw(1, subject.prefix, subject.width, dtype=dtype))

    def forward(self, x: Tensor, start: Tensor | None = None) -> Tensor:
        shape, count = x.shape[1:-1], self.subject.prefix
        positions = posenc.grid(*shape, prefix=count) if start is None else posenc.sequence(shape[0], start)
        x = x.flatten(1, -2)
        if count:
            x = torch.cat([self.prefix.expand(x.shape[0], -1, -1), x], 1)
        return attend(self.subject, self.encoding, x, positions)


def within_budget(ours: Tensor, eager: Tensor, exact: Tensor) -> None:
    """No farther from float64 than twice the eager model in float32, or a part in 1e5 of the largest entry."""
    own, largest = float((eager - exact).abs().max()), float(exact.abs().max())
    torch.testing.assert_close(ours.double(), exact, rtol=0, atol=max(2 * own, 1e-5 * max(1.0, largest)))


def tensor_start(subject: Subject) -> bool:
    """Whether its tokens may begin anywhere along one axis."""
    return subject.axes == 1 and not subject.bounded and not subject.prefix and subject.place != "conditional"


def shapes(axes: int, count: int) -> list[tuple[int, ...]]:
    """Different shapes, from the smallest to the largest; the first has no two sizes alike, nor like any other."""
    smallest, largest = (2,) * axes, tuple(min(size, 301) for size in LARGEST[axes])
    drawn = {smallest, largest}
    while len(drawn) < count:
        drawn.add(tuple(random.randint(2, size) for size in largest))
    first = {1: (7,), 2: (7, 5), 3: (7, 5, 4)}[axes]
    return [first, *random.sample(sorted(drawn - {first}), len(drawn - {first}))][:count]


@contextmanager
def captured() -> Iterator[None]:
    """What a graph cannot hold is a broken law. Warnings are of the capturing itself: deprecations inside torch."""
    torch._dynamo.reset()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"it makes no graph: {type(error).__name__}: {error}") from error


def compiled(function: Any) -> tuple[Any, list[Any]]:
    """The function compiled for all sizes into one graph, and the graphs that were made for it."""
    graphs: list[Any] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph

    return torch.compile(function, fullgraph=True, dynamic=True, backend=count), graphs


@law("one compiled graph serves all lengths", slow=True)
def one_compiled_graph_serves_all_lengths(subject: Subject) -> None:
    subject = subject.on(*LARGEST[subject.axes])
    model = Model(subject, subject.make(torch.float32))
    fast, graphs = compiled(model)
    with captured():
        for shape in shapes(subject.axes, 10):
            x = draw(3, *shape, subject.width, dtype=torch.float32)
            equal(fast(x), model(x), 1e-6)
            assert len(graphs) == 1, f"{len(graphs)} graphs"
        if random.random() < 1 / 3:  # a second graph takes as long as the first: some subjects each run
            x = draw(3, *[1] * subject.axes, subject.width, dtype=torch.float32)
            equal(fast(x), model(x), 1e-6)
            assert len(graphs) <= 2, f"{len(graphs)} graphs with one token"


@law("one compiled graph decodes every step", ("absolute", *INSIDE), slow=True)
def one_compiled_graph_decodes_every_step(subject: Subject) -> None:
    """Where a step stands is a tensor; the keys grow by one a step, or are those of a grid that is there already."""
    subject = subject.on(*(35,) if subject.axes == 1 else LARGEST[subject.axes])
    grows = subject.axes == 1 and not subject.prefix
    shape = (28,) if subject.axes == 1 else (4, 7, 2)[: subject.axes]
    everything = posenc.grid(*shape, prefix=subject.prefix)
    encoding = subject.make(torch.float32)
    wide = copy.deepcopy(encoding).double()
    x = draw(2, everything.length, subject.width, dtype=torch.float32)

    def step(x: Tensor, newest: Tensor, where: Tensor, index: Tensor) -> Tensor:
        now = posenc.sequence(1, where[0]) if grows else posenc.coordinates(where[None], order=index[None])
        if subject.place in OUTSIDE:
            return encoding(newest, now)
        keys = posenc.sequence(x.shape[1]) if grows else everything
        q, (_, k, v) = heads_of(subject, newest)[0], heads_of(subject, x)
        return posenc.attention(q, k, v, encoding, positions=now, key_positions=keys, causal=True)

    fast, graphs = compiled(step)
    cells, steps = everything.coordinates(), range(everything.length - 25, everything.length)
    with captured():
        whole = encoding(x, everything) if subject.place in OUTSIDE else None
        for index in steps:
            seen = x[:, : index + 1].contiguous() if grows else x  # strides are part of a graph too
            where = cells[index - subject.prefix]
            ours = fast(seen, x[:, index : index + 1], where, torch.tensor(index))
            if whole is None:
                full = posenc.sequence(index + 1) if grows else everything
                eager, exact = (
                    attend(subject, numbers, tokens, full, causal=True)[:, :, index : index + 1]
                    for numbers, tokens in ((encoding, seen), (wide, seen.double()))
                )
                within_budget(ours, eager, exact)
            else:
                equal(ours, whole[:, index : index + 1], 1e-5)
        assert len(graphs) == 1, f"{len(graphs)} graphs for {len(steps)} steps"


def exportable(subject: Subject) -> tuple[Subject, Model, tuple[Tensor, ...], tuple[Any, ...]]:
    """A model without gradients, inputs to trace it with, and which of their sizes may change."""
    subject = subject.on(*LARGEST[subject.axes])
    model = Model(subject, subject.make(torch.float32)).eval().requires_grad_(False)
    dynamic = torch.export.Dim.DYNAMIC
    inputs = [draw(3, *shapes(subject.axes, 3)[0], subject.width, dtype=torch.float32)]
    sizes: list[Any] = [dict.fromkeys(range(1 + subject.axes), dynamic)]
    if tensor_start(subject):
        inputs.append(torch.tensor(11))
        sizes.append({})
    return subject, model, tuple(inputs), tuple(sizes)


def untraced(subject: Subject, count: int = 4) -> Iterator[tuple[Tensor, ...]]:
    """Inputs of other batches, sizes and offsets, up to a million tokens away."""
    for shape in shapes(subject.axes, count + 1)[1:]:
        batch = random.choice([2, 4, 5])
        x = draw(batch, *shape, subject.width, dtype=torch.float32)
        yield (x, torch.tensor(random.randint(0, 10**6))) if tensor_start(subject) else (x,)


@law("an exported program serves other sizes, in torch and in onnxruntime", slow=True)
def an_exported_program_serves_other_sizes(subject: Subject) -> None:
    with captured():
        subject, model, inputs, sizes = exportable(subject)
        exported = torch.export.export(model, inputs, dynamic_shapes=sizes)
        program, translated = exported.module(), torch.onnx.export(exported, dynamo=True, verbose=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(translated.model_proto.SerializeToString(), options)
        names = [each.name for each in session.get_inputs()]
        for others in untraced(subject):  # the program has torch's own operators alone, and eager may not
            fed = dict(zip(names, (tensor.numpy() for tensor in others), strict=True))
            wide = [x.double() if x.is_floating_point() else x for x in others]
            found = [program(*others), torch.from_numpy(session.run(None, fed)[0])]
            eager, exact = model(*others), model.double()(*wide)
            model.float()
            for ours in found:
                within_budget(ours, eager, exact)
