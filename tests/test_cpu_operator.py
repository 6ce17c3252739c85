"""The custom operators of the fused kernel: what torch asks of them, compiled, exported and differentiated models."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.debugging import aot_eager
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import posenc
from posenc import attend, kernels
from posenc.backends.cpu.operands import Operands, written
from posenc.plan import Problem

pytestmark = pytest.mark.skipif(not kernels.BUILT, reason=kernels.MISSING)


class Model(nn.Module):
    """An attention with a rotation, a table and rows on queries and values."""

    def __init__(self, backend: str = "auto") -> None:
        super().__init__()
        self.encodings = nn.ModuleList([posenc.Rotary(16), posenc.T5Bias(4), posenc.Shaw(16, 3)])
        self.backend = backend

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return posenc.attention(q, k, v, *self.encodings, causal=True, backend=self.backend, **options)


def drawn(tokens: int = 70, dtype: torch.dtype = torch.float32, trained: bool = True) -> list[Tensor]:
    sizes = [(2, heads, tokens, 16) for heads in (4, 2, 2)]
    return [torch.randn(size).to(dtype).requires_grad_(trained) for size in sizes]


def gradients(output: Tensor, *leaves: Tensor) -> list[Tensor]:
    """Of a sum in which each number has a weight of its own."""
    weights = torch.linspace(-1, 2, output.numel()).reshape(output.shape).to(output.dtype)
    return list(torch.autograd.grad(output, leaves, weights))


# --- what torch asks of an operator ---


def prepared(dtype: torch.dtype, trained: bool) -> tuple[Problem, Operands]:
    """A table, numbers for prefix tokens and pairs, rows on all sides, orders, documents, masks; in float32 a rotation."""
    encodings = [
        posenc.RelativePositionBias(4, (40,), prefix_bias=True),
        posenc.Deberta(4, 16, buckets=8, max_distance=9),
        posenc.Shaw(16, 3),
        posenc.Fire(4),
    ]
    positions = posenc.coordinates(
        torch.randint(0, 40, (2, 32, 1)),
        prefix=1,
        order=torch.arange(33),
        document=torch.randint(0, 2, (33,)),
        extent=40,
    )
    options = {"positions": positions, "causal": True, "window": 20, "key_mask": torch.rand(2, 33) < 0.8}
    options["mask"] = torch.rand(2, 1, 33, 33) < 0.8
    if dtype == torch.float32:
        encodings = [posenc.Rotary(16), *encodings[::2]]
    encodings = [
        encoding.to(torch.promote_types(dtype, torch.float32)).requires_grad_(trained) for encoding in encodings
    ]
    with torch.set_grad_enabled(trained):
        problem = attend._problem(*drawn(33, dtype, trained), *encodings, **options)
        return problem, written(problem)


@pytest.mark.parametrize(("dtype", "trained"), [(torch.float32, True), (torch.bfloat16, True), (torch.bfloat16, False)])
def test_operators_are_what_torch_asks_of_them(dtype: torch.dtype, trained: bool, seed: int) -> None:
    problem, operands = prepared(dtype, trained)
    tensors = [x.detach().requires_grad_(trained) for x in (problem.q, problem.k, problem.v)]
    numbers = [x.detach().requires_grad_(trained) for x in operands.numbers]
    given = (*tensors, numbers, operands.places, operands.program, problem.scale, trained)
    found = torch.library.opcheck(torch.ops.posenc.attention.default, given)
    assert set(found.values()) == {"SUCCESS"}
    if trained:
        with torch.no_grad():
            output, lse, exact = torch.ops.posenc.attention(*given)
        fixed = [x.detach() for x in (*tensors, output, lse, exact)]
        rest = ([x.detach() for x in numbers], operands.places, operands.program, problem.scale)
        given = (torch.randn_like(output), *fixed, *rest, [number % 3 > 0 for number in range(len(numbers))])
        found = torch.library.opcheck(torch.ops.posenc.attention_backward.default, given)
        assert set(found.values()) == {"SUCCESS"}


def test_the_whole_numbers_depend_on_no_size(seed: int) -> None:
    """So that a compiled model makes one graph for all lengths."""
    model = Model()
    programs = {
        tuple(written(attend._problem(*drawn(tokens), *model.encodings, causal=True)).program) for tokens in (2, 9, 300)
    }
    assert len(programs) == 1


# --- compiled and exported ---


@pytest.mark.filterwarnings("ignore")  # of torch's own while it captures
def test_one_graph_trains_at_all_lengths(seed: int) -> None:
    graphs: list[Any] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append([node.target for node in graph.graph.nodes])
        return aot_eager(graph, inputs)

    torch._dynamo.reset()
    model = Model()
    fast = torch.compile(model, fullgraph=True, dynamic=True, backend=count)
    for number, tokens in enumerate((7, 150, 13, 128, 129, 301)):
        tensors = drawn(tokens)
        with torch.compiler.set_stance("default" if number == 0 else "fail_on_recompile"):
            ours, wanted = fast(*tensors), model(*tensors)
        leaves = [*tensors, *model.parameters()]
        torch.testing.assert_close(ours, wanted, rtol=0, atol=2e-6)
        torch.testing.assert_close(gradients(ours, *leaves), gradients(wanted, *leaves), rtol=1e-5, atol=1e-5)
    assert torch.ops.posenc.attention.default in graphs[-1]


@pytest.mark.filterwarnings("ignore")
def test_a_model_compiled_for_real_is_the_eager_one(seed: int) -> None:
    """By Inductor, which lays out tensors as it likes."""
    torch._dynamo.reset()
    bias = posenc.ALiBi(4, learned=True)

    def layer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return posenc.attention(q.sin(), k, v, bias, causal=True, backend="cpu").cos()

    fast = torch.compile(layer, fullgraph=True, dynamic=True)
    for tokens in (33, 70):
        tensors = drawn(tokens)
        leaves = [*tensors, *bias.parameters()]
        ours, wanted = fast(*tensors), layer(*tensors)
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradients(ours, *leaves), gradients(wanted, *leaves), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_an_exported_program_has_no_operator_of_ours(seed: int) -> None:
    model, dynamic = Model().requires_grad_(False), torch.export.Dim.DYNAMIC
    program = torch.export.export(model, tuple(drawn(9, trained=False)), dynamic_shapes=[{2: dynamic}] * 3)
    assert not [node for node in program.graph.nodes if "posenc" in str(node.target)]
    tensors = drawn(33, trained=False)
    torch.testing.assert_close(program.module()(*tensors), model(*tensors), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="exported graphs have torch's own operators alone"):
        torch.export.export(Model("cpu"), tuple(tensors))


# --- derivatives ---


def test_a_second_derivative_says_what_to_do(seed: int) -> None:
    model, (q, k, v) = Model("cpu"), drawn()
    for leaf in (q, model.encodings[1].table):
        (first,) = torch.autograd.grad(model(q, k, v).square().sum(), leaf, create_graph=True)
        with pytest.raises(NotImplementedError) as error:
            first.square().sum().backward()
        assert str(error.value) == (
            "the CPU kernel has first derivatives alone, got a second one: pass backend='dense' to attention"
        )


def test_gradients_are_those_of_finite_differences(seed: int) -> None:
    encodings = [posenc.Rotary(4), posenc.T5Bias(2).double(), posenc.Shaw(4, 2).double()]
    tensors = [torch.randn(1, heads, 5, 4, dtype=torch.float64, requires_grad=True) for heads in (2, 1, 1)]
    mask = torch.rand(1, 1, 5, 5) < 0.8
    assert torch.autograd.gradcheck(
        lambda q, k, v: posenc.attention(q, k, v, *encodings, mask=mask, backend="cpu"), tensors
    )


def test_a_checkpointed_model_is_the_plain_one(seed: int) -> None:
    model, tensors = Model("cpu"), drawn()
    leaves = [*tensors, *model.parameters()]
    plain, kept = model(*tensors), checkpoint(model, *tensors, use_reentrant=False)
    assert torch.equal(plain, kept)
    for ours, wanted in zip(gradients(kept, *leaves), gradients(plain, *leaves), strict=True):
        assert torch.equal(ours, wanted)


def test_a_graph_may_be_kept_and_gone_through_twice(seed: int) -> None:
    model, tensors = Model("cpu"), drawn()
    output, leaves = model(*tensors), [*tensors, *model.parameters()]
    first = torch.autograd.grad(output.sum(), leaves, retain_graph=True)
    for ours, wanted in zip(torch.autograd.grad(output.sum(), leaves), first, strict=True):
        assert torch.equal(ours, wanted)


def test_what_was_saved_must_not_be_changed(seed: int) -> None:
    model, (q, k, v) = Model("cpu"), drawn()
    changed = k * 1
    output = model(q, changed, v)
    changed.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_the_output_may_be_changed_in_place_where_nothing_is_saved(seed: int) -> None:
    """In training it is as for torch's own kernel, which needs the output again."""
    model, (q, k, v) = Model("cpu"), drawn()
    with torch.no_grad():
        wanted = model(q, k, v) * 2
        assert torch.equal(model(q, k, v).mul_(2), wanted)
    output = model(q, k, v)
    output.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_no_gradients_leave_nothing_behind(seed: int) -> None:
    model, tensors = Model("cpu"), drawn()
    wanted = model(*tensors).detach()
    with torch.no_grad():
        assert torch.equal(model(*tensors), wanted)
        assert not model(*tensors).requires_grad
    with torch.inference_mode():
        assert torch.equal(model(*tensors), wanted)
        assert torch.equal(model(*(x.clone() for x in tensors)), wanted)
    assert model(*(x.detach() for x in tensors)).requires_grad  # of the tables


def test_autocast_narrows_nothing_of_the_kernel(seed: int) -> None:
    model, tensors = Model("cpu"), drawn()
    leaves = [*tensors, *model.parameters()]
    wanted = model(*tensors)
    with torch.autocast("cpu", torch.bfloat16):
        ours = model(*tensors)
    assert torch.equal(ours, wanted)
    for mine, theirs in zip(gradients(ours, *leaves), gradients(wanted, *leaves), strict=True):
        assert torch.equal(mine, theirs)
    narrow = [x.bfloat16().detach().requires_grad_() for x in tensors]
    with torch.autocast("cpu", torch.bfloat16):
        ours = model(*narrow)
    assert ours.dtype == torch.bfloat16
    assert [x.dtype for x in gradients(ours, *narrow, *model.parameters())] == [torch.bfloat16] * 3 + [
        torch.float32
    ] * 3


# --- other ways to differentiate: as by the dense path, or not at all ---

TRANSFORMS: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Any]] = {
    "vmap": lambda function, q: torch.func.vmap(function)(torch.stack([q, -q])),
    "grad": lambda function, q: torch.func.grad(lambda q: function(q).square().sum())(q),
    "vjp": lambda function, q: torch.func.vjp(function, q)[1](torch.ones_like(q))[0],
    "jvp": lambda function, q: torch.func.jvp(function, (q,), (torch.ones_like(q),))[1],
    "gradients a sample": lambda function, q: torch.func.vmap(torch.func.grad(lambda q: function(q).square().sum()))(
        torch.stack([q, -q])
    ),
    "a dual number": lambda function, q: dual(function, q),
}


def dual(function: Callable[[Tensor], Tensor], q: Tensor) -> Tensor:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(q, torch.ones_like(q)))).tangent


@pytest.mark.filterwarnings("ignore")  # of torch's own formulas
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("trained", [False, True])
def test_transforms_take_another_backend(trained: bool, transform: str, seed: int) -> None:
    q, k, v = drawn(9, trained=False)
    bias = posenc.T5Bias(4).requires_grad_(trained)
    found = {
        backend: TRANSFORMS[transform](lambda q, b=backend: posenc.attention(q, k, v, bias, backend=b), q)
        for backend in ("auto", "dense")
    }
    torch.testing.assert_close(found["auto"], found["dense"])
    with pytest.raises(ValueError, match=r"torch\.func"):
        TRANSFORMS[transform](lambda q: posenc.attention(q, k, v, bias, backend="cpu"), q)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("transform", ["vmap", "jvp"])
def test_compiled_transforms_take_another_backend(transform: str, seed: int) -> None:
    torch._dynamo.reset()
    (q, k, v), bias = drawn(9, trained=False), posenc.ALiBi(4)
    results = []
    for backend in ("auto", "dense"):

        def transformed(q: Tensor, backend: str = backend) -> Any:
            return TRANSFORMS[transform](lambda q: posenc.attention(q, k, v, bias, backend=backend), q)

        results.append(torch.compile(transformed, fullgraph=True, backend="eager")(q))
    torch.testing.assert_close(*results)


# --- threads ---


def test_python_threads_at_once(seed: int) -> None:
    """Each with problems of its own, forward and backward, and more kernel threads than cores."""
    model = Model("cpu")
    problems = [drawn(tokens) for tokens in (33, 150, 70, 129, 301, 200)]

    def differentiate(tensors: list[Tensor]) -> list[Tensor]:
        torch.set_num_threads(3)
        leaves = [x.detach().requires_grad_() for x in tensors]
        output = model(*leaves)
        return [output.detach(), *gradients(output, *leaves, *model.parameters())]

    try:
        with ThreadPoolExecutor(1) as alone:
            wanted = list(alone.map(differentiate, problems))
        with ThreadPoolExecutor(6) as several:
            found = list(several.map(differentiate, problems * 6))
    finally:
        torch.set_num_threads(1)
    for number, mine in enumerate(found):
        for ours, theirs in zip(mine, wanted[number % len(wanted)], strict=True):
            assert torch.equal(ours, theirs)


# --- tensors that are not what they look like ---


@pytest.mark.parametrize("lazy", ["negative", "zero"])
def test_lazy_tensors_are_read_as_what_they_stand_for(lazy: str, seed: int) -> None:
    q, k, v, imaginary = torch.randn(4, 2, 3, 9, 16)
    x = torch.complex(q, imaginary).conj().imag if lazy == "negative" else torch._efficientzerotensor(q.shape)
    values = torch.complex(q, imaginary)[:, :1, :, :9].conj().imag
    term = posenc.term.Bias(posenc.relative.Relative(posenc.sequence(9)), values)
    with torch.no_grad():
        for given in ((x, k, v), (q, x, v), (q, k, x)):
            found = posenc.attention(*given, term, backend="cpu")
            wanted = posenc.attention(*given, term, backend="dense")
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["mask", "key mask", "term", "padded", "packed", "q"])
def test_training_with_what_inference_mode_made(kind: str, seed: int) -> None:
    q, k, v = torch.randn(3, 2, 3, 9, 16)
    with torch.inference_mode():
        given, options = {
            "mask": lambda: ([], {"mask": torch.rand(1, 1, 9, 9) > 0.3}),
            "key mask": lambda: ([], {"key_mask": torch.rand(2, 9) > 0.3}),
            "term": lambda: ([posenc.ALiBi(3).term(posenc.sequence(9))], {}),
            "padded": lambda: ([posenc.ALiBi(3)], {"positions": posenc.padded(torch.rand(2, 9) > 0.3), "causal": True}),
            "packed": lambda: ([], {"positions": posenc.packed([4, 5]), "window": 2}),
            "q": lambda: ([posenc.ALiBi(3, learned=True)], {}),
        }[kind]()
        q = q.clone() if kind == "q" else q
    trained = v.requires_grad_()
    found = [
        torch.autograd.grad(posenc.attention(q, k, v, *given, backend=backend, **options).sin().sum(), trained)[0]
        for backend in ("cpu", "dense")
    ]
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
