"""Rotary alone: the kernel that turns queries and keys, its operators, and turning in place."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.debugging import aot_eager
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import posenc
from posenc import kernels
from posenc.kernels import rotate as kernel
from posenc.kernels.rotate import Turning, serves
from posenc.term.in_place import _overlap

pytestmark = pytest.mark.usefixtures("seed")
built = pytest.mark.skipif(not kernels.BUILT, reason=kernels.MISSING)

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
LAYOUTS = ["half", "interleaved"]
# batch, heads, tokens, pairs, channels that stay, prefix
SIZES = [
    (1, 1, 1, 1, 0, 0),
    (2, 3, 17, 3, 0, 0),
    (2, 3, 17, 17, 1, 2),
    (1, 2, 7, 33, 5, 0),
    (3, 2, 5, 20, 0, 5),  # nothing but prefix
    (1, 2, 130, 32, 0, 1),
    (2, 1, 33, 64, 2, 3),
    (1, 2, 1025, 8, 0, 0),
    (0, 2, 3, 4, 0, 1),
    (2, 2, 0, 4, 0, 0),
]


@pytest.fixture
def threads() -> Iterator[None]:
    """Restores what a test sets."""
    yield
    torch.set_num_threads(1)


def run(program: str, **environment: str) -> str:
    """What a fresh interpreter prints that finds this module."""
    paths = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=os.environ | paths | environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def drawn(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(sizes, dtype=torch.float64).to(dtype)


def angles(*sizes: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Cosines and sines with a factor, in the dtype of the arithmetic."""
    at, wanted = 3 * torch.randn(sizes, dtype=torch.float64), torch.promote_types(dtype, torch.float32)
    return (1.2 * at.cos()).to(wanted), (1.2 * at.sin()).to(wanted)


def turning(
    sizes: tuple[int, ...], dtype: torch.dtype = torch.float32, shared: tuple[bool, bool] = (True, True)
) -> Turning:
    """A tensor, and angles that batch rows and heads share or not."""
    batch, heads, tokens, pairs, kept, prefix = sizes
    shape = (1 if shared[0] else batch, 1 if shared[1] else heads, tokens - prefix, pairs)
    return Turning(drawn(batch, heads, tokens, 2 * pairs + kept, dtype=dtype), *angles(*shape, dtype=dtype), prefix)


def exact(given: Turning, layout: str) -> tuple[Tensor, Tensor]:
    """In float64, as a product of complex numbers; and the sum of the absolute values that each number is made of."""
    x, prefix, pairs = given.x.double(), given.prefix, given.cos.shape[-1]
    first, second = (
        (slice(pairs), slice(pairs, 2 * pairs))
        if layout == "half"
        else (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
    )
    wanted, size = x.clone(), x.abs()
    turn = torch.complex(given.cos.double(), given.sin.double())
    turned = torch.complex(x[..., prefix:, first].contiguous(), x[..., prefix:, second].contiguous()) * turn
    wanted[..., prefix:, first], wanted[..., prefix:, second] = turned.real, turned.imag
    a, b = size[..., prefix:, first].clone(), size[..., prefix:, second].clone()
    size[..., prefix:, first] = a * turn.real.abs() + b * turn.imag.abs()
    size[..., prefix:, second] = b * turn.real.abs() + a * turn.imag.abs()
    return wanted, size


def budget(given: Turning, wanted: Tensor, size: Tensor) -> Tensor:
    """Half a unit in the last place of the result, and a rounding of the arithmetic for each of three operations."""
    here, arithmetic = torch.finfo(given.x.dtype), torch.finfo(given.cos.dtype)
    least = here.smallest_normal * here.eps / 2 + 2 * arithmetic.smallest_normal * arithmetic.eps
    return wanted.abs() * here.eps / 2 + 3 * arithmetic.eps * size + least


def require_right(ours: Tensor, given: Turning, layout: str) -> None:
    """Rounded to the dtype once, after arithmetic in float32 or float64; and bit by bit what does not turn."""
    wanted, size = exact(given, layout)
    assert ours.dtype == given.x.dtype
    assert ours.shape == given.x.shape
    assert ((ours.double() - wanted).abs() <= budget(given, wanted, size)).all()
    pairs, prefix = given.cos.shape[-1], given.prefix
    for where in ((..., slice(prefix), slice(None)), (..., slice(None), slice(2 * pairs, None))):
        assert torch.equal(bits(ours)[where], bits(given.x)[where])


def bits(x: Tensor) -> Tensor:
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return x.contiguous().view(kinds[x.element_size()])


def rotated(given: Turning, layout: str) -> Tensor:
    assert serves(given) == kernels.BUILT
    (out,) = kernel.rotate(given, interleaved=layout == "interleaved")
    return out


def ready(sizes: tuple[int, ...], layout: str = "half", dtype: torch.dtype = torch.float32) -> posenc.Rotation:
    """A term of positions with a prefix; sizes as above."""
    _, _, tokens, pairs, kept, prefix = sizes
    rotary = posenc.Rotary(2 * pairs + kept, rotary_dim=2 * pairs, layout=layout)
    term = rotary.term(
        posenc.coordinates(torch.randint(0, 99, (tokens - prefix, 1)), prefix=prefix),
        dtype=torch.promote_types(dtype, torch.float32),
    )
    assert isinstance(term, posenc.Rotation)
    return term


# --- right ---


@built
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_is_right_to_one_rounding(dtype: torch.dtype, layout: str, sizes: tuple[int, ...]) -> None:
    for shared in ((True, True), (True, False), (False, True), (False, False)):
        given = turning(sizes, dtype, shared)
        ours = rotated(given, layout)
        require_right(ours, given, layout)
        there = given._replace(x=given.x.clone())
        kernel.rotate_(there, interleaved=layout == "interleaved")
        assert torch.equal(bits(there.x), bits(ours))


@built
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("heads", [2, 16])  # as much as caches hold, and more: that is written past them
def test_it_is_right_for_much(dtype: torch.dtype, layout: str, heads: int, threads: None) -> None:
    for pairs, kept in ((32, 0), (10, 3)):
        given = turning((2, heads, 1025, pairs, kept, 1), dtype)
        ours = rotated(given, layout)
        require_right(ours, given, layout)
        for count in (2, 3, 8):
            torch.set_num_threads(count)
            assert torch.equal(bits(rotated(given, layout)), bits(ours))
            there = given._replace(x=given.x.clone())
            kernel.rotate_(there, interleaved=layout == "interleaved")
            assert torch.equal(bits(there.x), bits(ours))
        torch.set_num_threads(1)


PLACES: dict[str, Callable[[Tensor], Tensor]] = {
    "tokens before heads": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "channels before tokens": lambda x: x.mT.contiguous().mT,
    "heads last": lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1),
    "part of more channels": lambda x: torch.cat([x[..., :3], x, x[..., :2]], -1)[..., 3:-2],
    "part of more tokens": lambda x: torch.cat([x, x, x], 2)[:, :, x.shape[2] : 2 * x.shape[2]],
    "every other channel": lambda x: torch.stack([x, x], -1).flatten(-2)[..., 1::2],
    "an odd address": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
}


@built
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_is_right_wherever_tensors_lie(dtype: torch.dtype, layout: str, place: str) -> None:
    given = turning((2, 3, 19, 33, 1, 2), dtype, (False, True))
    wanted = rotated(given, layout)
    there = given._replace(x=PLACES[place](given.x))
    assert torch.equal(there.x, given.x)
    assert there.x.stride() != given.x.stride() or there.x.data_ptr() % 16
    out = rotated(there, layout)
    assert out.is_contiguous()
    assert torch.equal(out, wanted)
    kernel.rotate_(there, interleaved=layout == "interleaved")
    assert torch.equal(there.x, wanted)


@built
def test_expanded_tensors_and_angles_of_any_strides() -> None:
    given = turning((2, 3, 9, 4, 1, 0), shared=(False, False))
    alike = given._replace(x=given.x[:1, :1, :1].expand_as(given.x))
    assert torch.equal(rotated(alike, "half"), rotated(alike._replace(x=alike.x.contiguous()), "half"))
    turned = (x.mT.contiguous().mT for x in given[1:3])
    assert torch.equal(rotated(Turning(given.x, *turned, 0), "half"), rotated(given, "half"))
    wide = [x[:1, :1].expand_as(x) for x in given[1:3]]
    narrow = [x[:1, :1] for x in given[1:3]]
    assert torch.equal(rotated(Turning(given.x, *wide, 0), "half"), rotated(Turning(given.x, *narrow, 0), "half"))


@built
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_infinity_and_nan_go_where_the_formula_sends_them(
    dtype: torch.dtype, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = (1, 2, 40, 35, 2, 3)
    term = ready(sizes, layout, dtype)
    term.query = term.key = given = turning(sizes, dtype)[1:3]
    x = drawn(1, 2, 40, 72, dtype=dtype)
    largest, least = torch.finfo(dtype).max, torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    for value in (torch.inf, -torch.inf, torch.nan, largest / 4, 3 * least, -1e3 * least, 0.0, -0.0):
        x[torch.rand(x.shape) < 0.05] = value
    given[0][0, 0, 5] = torch.nan
    given[1][0, 0, 7, ::2] = torch.inf
    bits(given[0])[0, 0, 9] = -1  # NaN too
    ours, _ = term.rotate(x, x)
    monkeypatch.setattr(kernels, "BUILT", False)
    wanted, _ = term.rotate(x, x)
    assert torch.equal(ours.isnan(), wanted.isnan())
    assert torch.equal(ours.isinf(), wanted.isinf())
    right, size = exact(Turning(x, *given, 3), layout)
    near = (ours.double() - right).abs() <= budget(Turning(x, *given, 3), right, size)
    assert (near | ~wanted.isfinite()).all()
    assert torch.equal(bits(ours)[:, :, :3], bits(x)[:, :, :3])


@built
def test_every_bfloat16_and_float16_is_read_and_rounded_right() -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    zero, one = torch.zeros(1, 1, 1, 2**15), torch.ones(1, 1, 1, 2**15)
    for dtype in (torch.bfloat16, torch.float16):
        x = every.view(dtype).reshape(1, 1, 1, -1)
        usual = x.isfinite()
        for layout in LAYOUTS:
            for factor in (1.0, 1.7, -0.3, 2.0**-9):  # products that need rounding, and subnormal ones
                ours = rotated(Turning(x, one * factor, zero, 0), layout)
                wanted = (x.float() * factor).to(dtype)
                assert torch.equal(ours[usual], wanted[usual])
                # an infinity makes its partner NaN: 0 * inf
                assert ours[x.isnan()].isnan().all()


@built
def test_levels_below_this_cpus_best_agree(seed: int) -> None:
    best = kernels.LEVELS.index(kernels.level())
    program = f"import test_rotate; test_rotate.tell_level({seed})"
    for level in kernels.LEVELS[:best]:
        assert run(program, POSENC_CPU_LEVEL=level) == level


def tell_level(seed: int) -> None:
    """In a process of its own, for another instruction set than this one's."""
    torch.manual_seed(seed)
    for dtype in DTYPES:
        for layout in LAYOUTS:
            for sizes in SIZES:
                given = turning(sizes, dtype, (False, True))
                require_right(rotated(given, layout), given, layout)
            for size in (32, 10):
                given = turning((2, 16, 1025, size, 1, 1), dtype)
                require_right(rotated(given, layout), given, layout)
    test_every_bfloat16_and_float16_is_read_and_rounded_right()
    print(kernels.level())


@built
def test_several_callers_at_once(threads: None) -> None:
    torch.set_num_threads(2)
    all_given = [turning((1, 4, 300 + 7 * n, 32, 0, 0), dtype) for n in range(6) for dtype in DTYPES[:2]]
    wanted = [rotated(given, "half") for given in all_given]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(5):
            for ours, right in zip(pool.map(lambda given: rotated(given, "half"), all_given), wanted, strict=True):
                assert torch.equal(ours, right)


@built
def test_nothing_of_the_size_of_queries_is_allocated() -> None:
    program = """
        import re, torch, posenc
        torch.set_num_threads(2)
        def peak():
            return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024  # MiB
        def reset():
            open("/proc/self/clear_refs", "w").write("5")
        x = torch.randn(1, 1, 128, 64).bfloat16()
        small = posenc.Rotary(64).term(posenc.sequence(128))
        small.rotate_(x, x.clone()); small.rotate(x, x)
        q, k = torch.ones(2, 1, 64, 4096, 64, dtype=torch.bfloat16).unbind()  # 32 MiB each
        term = posenc.Rotary(64).term(posenc.sequence(4096))
        reset()
        before = peak()
        term.rotate_(q, k)
        in_place = peak() - before
        term.rotate(q, k)
        print(in_place < 4, peak() - before < 64 + 4)
    """
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this system does not say how much memory a process had at most")
    if "asan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("the sanitizer keeps memory of its own")
    assert run(program) == "True True"


# --- as operators ---


@built
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_are_right_twice(layout: str) -> None:
    given = turning((2, 2, 5, 3, 1, 2), torch.float64, (False, True))

    def turn(x: Tensor) -> Tensor:
        return rotated(given._replace(x=x), layout)

    x = given.x.requires_grad_()
    assert torch.autograd.gradcheck(turn, x)
    assert torch.autograd.gradgradcheck(lambda x: turn(x.sin()), x)


@built
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_gradient_turns_back_in_its_own_dtype(dtype: torch.dtype) -> None:
    given = turning((2, 3, 70, 20, 3, 2), dtype)
    gradient = drawn(*given.x.shape, dtype=dtype)
    x = given.x.requires_grad_()
    rotated(given, "half").backward(gradient)
    assert x.grad is not None
    back = Turning(gradient, given.cos, -given.sin, given.prefix)
    require_right(x.grad, back, "half")
    x.grad = None
    rotated(given, "half").sum().backward()  # its gradient is one number, expanded
    assert x.grad is not None
    require_right(x.grad, back._replace(x=torch.ones_like(x)), "half")


@built
def test_frequencies_are_trained_as_without_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed, x = posenc.MixedRotary(3, 8), drawn(2, 1, 3, 12, 8)
    positions = posenc.grid(3, 4)

    def gradient() -> Tensor:
        mixed.zero_grad()
        q, k = mixed(*x, positions, positions)
        (q * k.cos()).sum().backward()
        assert mixed.table.grad is not None
        return mixed.table.grad.clone()

    ours = gradient()
    monkeypatch.setattr(kernels, "BUILT", False)
    assert torch.equal(ours, gradient())
    assert ours.abs().sum() > 0


@built
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_operators_are_what_torch_asks_of_them(dtype: torch.dtype) -> None:
    given = turning((2, 3, 17, 5, 1, 2), dtype, (False, True))
    for x in (given.x.requires_grad_(), given.x.detach().transpose(0, 2).contiguous().transpose(0, 2)):
        for interleaved, backwards in ((False, True), (True, False)):
            found = torch.library.opcheck(torch.ops.posenc.rotate.default, (x, *given[1:], interleaved, backwards))
            assert set(found.values()) == {"SUCCESS"}
    found = torch.library.opcheck(torch.ops.posenc.rotate_.default, (given.x.detach(), *given[1:], True))
    assert set(found.values()) == {"SUCCESS"}


@built
def test_operators_refuse_what_does_not_fit() -> None:
    x, cos, sin, _ = turning((2, 3, 6, 2, 0, 1))
    wrong: list[tuple[Any, ...]] = [
        (x, cos, sin, 0),
        (x, cos, sin, -1),
        (x, cos, sin[..., :1], 1),
        (x[..., :3], cos, sin, 1),
        (x, cos.double(), sin.double(), 1),
        (x, cos.expand(3, -1, -1, -1), sin.expand(3, -1, -1, -1), 1),
        (x[0], cos, sin, 1),
        (x.bfloat16(), cos.bfloat16(), sin.bfloat16(), 1),
    ]
    for given in wrong:
        assert not serves(Turning(*given))
        for operator, flags in ((torch.ops.posenc.rotate, (False, False)), (torch.ops.posenc.rotate_, (False,))):
            with pytest.raises(ValueError, match="posenc::rotate must be given"):
                operator(*given, *flags)
    with pytest.raises(ValueError, match="posenc::rotate") as raised:
        torch.ops.posenc.rotate(x, cos, sin, 0, False, False)
    assert str(raised.value) == (
        "posenc::rotate must be given x [b, h, tokens, channels], and cosines and sines [#b, #h, tokens - prefix, pairs] "
        "in float32 (float64 for float64), got torch.float32 (2, 3, 6, 4), torch.float32 (1, 1, 5, 2), "
        "torch.float32 (1, 1, 5, 2) and prefix 0: make them so"
    )
    out = torch.ops.posenc.rotate(x.requires_grad_(), cos.requires_grad_(), sin, 1, False, False)
    with pytest.raises(NotImplementedError) as refused:
        out.sum().backward()
    assert str(refused.value) == (
        "posenc::rotate has no gradients of cosines and sines, got some that require them: detach them"
    )


@built
@pytest.mark.parametrize("trained", [True, False])
def test_a_compiled_model_keeps_it_in_one_graph(trained: bool) -> None:
    rotary, graphs = posenc.Rotary(16), []

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        made = aot_eager(graph, inputs)  # which may start anew
        graphs.append(graph)
        return made

    def turn(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return rotary(2 * q, k.sin())

    torch._dynamo.reset()
    compiled = torch.compile(turn, fullgraph=True, dynamic=True, backend=count)
    for tokens in (5, 8, 17, 40):
        given = [drawn(2, heads, tokens, 16).requires_grad_(trained) for heads in (4, 2)]
        ours, wanted = compiled(*given), turn(*given)
        for mine, right in zip(ours, wanted, strict=True):
            assert torch.equal(mine, right)
        if trained:
            weights = [torch.linspace(-1, 1, x.numel()).view_as(x) for x in wanted]
            for mine, right in zip(
                torch.autograd.grad(ours, given, weights), torch.autograd.grad(wanted, given, weights), strict=True
            ):
                assert torch.equal(mine, right)
    assert len(graphs) == 1
    called = [node.target for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert sum("posenc" in str(target) for target in called) == 2


@built
def test_a_compiled_model_turns_in_place() -> None:
    rotary = posenc.Rotary(16, layout="interleaved")

    def turn(q: Tensor, k: Tensor) -> Tensor:
        q, k = q + 1, k + 1
        rotary.rotate_(q, k)
        return q @ k.mT

    torch._dynamo.reset()
    compiled = torch.compile(turn, fullgraph=True, dynamic=True, backend="aot_eager")
    for tokens in (5, 9, 30):
        q, k = drawn(2, 1, 3, tokens, 16)
        torch.testing.assert_close(compiled(q, k), turn(q, k))
    given = drawn(2, 1, 3, 7, 16).unbind()
    wanted = rotary(*given)
    torch.compile(rotary.rotate_, fullgraph=True, backend="aot_eager")(*given)
    assert torch.equal(given[0], wanted[0])
    assert torch.equal(given[1], wanted[1])


def test_exported_and_traced_models_have_torchs_own_operators() -> None:
    class Turn(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.term = ready((1, 2, 5, 4, 0, 1))

        def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
            return self.term.rotate(q, k)

    model, given = Turn(), drawn(2, 1, 2, 5, 8).unbind()
    for strict in (True, False):
        program = torch.export.export(model, given, strict=strict)
        assert "posenc" not in str(program.graph)
        for ours, wanted in zip(program.module()(*given), model(*given), strict=True):
            torch.testing.assert_close(ours, wanted)
    with pytest.warns((DeprecationWarning, torch.jit.TracerWarning)):
        traced = torch.jit.trace(model, given)
    assert {node.kind().split("::")[0] for node in traced.graph.nodes()} <= {"aten", "prim"}


class Sees(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@built
def test_who_watches_operators_sees_them() -> None:
    sizes = (1, 2, 5, 4, 0, 0)
    term = ready(sizes)
    q, k = drawn(2, 1, 2, 5, 8)
    wanted = term.rotate(q, k)
    with Sees() as mode:
        ours = term.rotate(q, k)
        term.rotate_(q.clone(), k.clone())
    assert [name for name in mode.seen if "posenc" in name] == ["posenc.rotate.default"] * 2 + [
        "posenc.rotate_.default"
    ] * 2
    assert torch.equal(ours[0], wanted[0])


class Own(Tensor):
    """A tensor of another kind."""


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch's own formulas
def test_transforms_and_other_kinds_of_tensors_go_their_own_way() -> None:
    sizes = (3, 2, 5, 4, 1, 1)
    term = ready(sizes, dtype=torch.float64)
    x, step = drawn(3, 2, 6, 9, dtype=torch.float64)[:, :, :5], drawn(3, 2, 5, 9, dtype=torch.float64)
    turn = lambda x: term.rotate(x, x)[0]  # noqa: E731
    wanted, along = turn(x), turn(step)
    many = torch.func.vmap(turn)(torch.stack([x, step]))
    torch.testing.assert_close(many, torch.stack([wanted, along]))
    value, slope = torch.func.jvp(turn, (x,), (step,))
    torch.testing.assert_close((value, slope), (wanted, along))
    with forward_ad.dual_level():
        unpacked = forward_ad.unpack_dual(turn(forward_ad.make_dual(x, step)))
        torch.testing.assert_close(unpacked.tangent, along)
    gradient = torch.func.grad(lambda x: (turn(x) * step).sum())(x)
    leaf = x.clone().requires_grad_()
    (turn(leaf) * step).sum().backward()
    torch.testing.assert_close(gradient, leaf.grad)
    (jacobian,) = torch.func.jacrev(lambda row: turn(row[None].expand_as(x)))(x[0])[:1]
    assert jacobian.isfinite().all()

    own = x.as_subclass(Own)
    assert isinstance(turn(own), Own)
    torch.testing.assert_close(turn(own).as_subclass(Tensor), wanted)
    assert torch.empty(3, 2, 5, 9, device="meta").is_meta
    there = ready(sizes)
    there.query = there.key = tuple(part.to("meta") for part in there.query)
    assert there.rotate(torch.empty(3, 2, 5, 9, device="meta"), torch.empty(3, 2, 5, 9, device="meta"))[0].is_meta


@built
def test_numbers_that_are_not_where_they_lie() -> None:
    term = ready((1, 2, 5, 4, 0, 0))
    both = torch.complex(*drawn(2, 1, 2, 5, 8))
    lazily = both.conj().imag
    assert lazily.is_neg()
    plain = lazily.resolve_neg().clone()
    torch.testing.assert_close(term.rotate(lazily, plain)[0], term.rotate(plain, plain)[1])
    wanted = term.rotate(plain, plain)[0]
    term.rotate_(lazily, plain.clone())
    torch.testing.assert_close(lazily.resolve_neg(), wanted)
    turns = torch.polar(torch.ones(1, 1, 5, 4), drawn(1, 1, 5, 4)).conj()
    term.query = term.key = (turns.real, turns.imag)
    ours = term.rotate(plain, plain)[0]
    term.query = term.key = (turns.real.clone(), turns.imag.resolve_neg().clone())
    torch.testing.assert_close(ours, term.rotate(plain, plain)[0])
    zeros = torch._efficientzerotensor(1, 2, 5, 8)
    assert torch.equal(term.rotate(zeros, plain)[0], torch.zeros(1, 2, 5, 8))


def test_inference_and_checkpoints() -> None:
    term = ready((1, 2, 5, 4, 0, 0))
    q, k = drawn(2, 1, 2, 5, 8)
    wanted = term.rotate(q, k)
    with torch.inference_mode():
        ours = term.rotate(q, k)
        term.rotate_(q, k)
    assert torch.equal(ours[0], wanted[0])
    assert torch.equal(q, wanted[0])
    leaf = q.clone().requires_grad_()
    turned = torch.utils.checkpoint.checkpoint(lambda x: term.rotate(x, x)[0].sin(), leaf, use_reentrant=False)
    turned.sum().backward()
    again = q.clone().requires_grad_()
    term.rotate(again, again)[0].sin().sum().backward()
    assert torch.equal(leaf.grad, again.grad)


# --- what a term is not for ---


@pytest.fixture(params=[pytest.param(True, marks=built), False], ids=["kernel", "torch"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With the kernel, and as where it was not built."""
    if not request.param:
        monkeypatch.setattr(kernels, "BUILT", False)
    return bool(request.param)


MISFITS: dict[str, tuple[Callable[[Tensor], Tensor], type[Exception], str]] = {
    "one token": (lambda x: x[:, :, :1], ValueError, "must have the 9 tokens that the term was evaluated at, got 1"),
    "more tokens": (
        lambda x: x.repeat(1, 1, 2, 1),
        ValueError,
        "must have the 9 tokens .* got 18: evaluate it at these",
    ),
    "fewer channels": (
        lambda x: x[..., :8],
        ValueError,
        "must have the 12 channels .* got 8: make an encoding of that",
    ),
    "more channels": (lambda x: x.repeat(1, 1, 1, 2), ValueError, "must have the 12 channels .* got 24"),
    "one head": (lambda x: x[:, :1], ValueError, "must have the 3 rows and 4 heads .* got 3 and 1: evaluate it for"),
    "fewer rows": (lambda x: x[:2], ValueError, "must have the 3 rows and 4 heads .* got 2 and 4"),
    "a dtype": (
        lambda x: x.double(),
        ValueError,
        r"the term must be in torch\.float64 on cpu for . in torch\.float64, got",
    ),
    "integers": (lambda x: x.long(), TypeError, r"must be a real tensor, got torch\.int64: convert it"),
    "no batch": (lambda x: x[0], ValueError, r"must be \[batch, heads, tokens, channels\], got shape \(4, 9, 12\)"),
    "a device": (lambda x: x.to("meta"), ValueError, "the term must be in torch.float32 on meta for . in"),
}


@pytest.mark.parametrize("which", ["q", "k"])
@pytest.mark.parametrize("name", MISFITS)
def test_what_a_term_was_not_evaluated_for_is_refused(either: bool, name: str, which: str) -> None:
    change, kind, message = MISFITS[name]
    encoding = posenc.MixedRotary(4, 12, axes=1).requires_grad_(False)
    term = encoding.term(posenc.sequence(9, torch.tensor([0, 5, 50])))
    if name == "one head" and which == "k":  # keys of grouped queries, of which each head gets its own
        term = posenc.Rotary(12).term(posenc.sequence(9))
        assert term.rotate(torch.ones(3, 4, 9, 12), torch.ones(3, 1, 9, 12))[1].shape == (3, 1, 9, 12)
        return
    q, k = drawn(2, 3, 4, 9, 12)
    given = {"q": q, "k": k, which: change(q if which == "q" else k)}
    with pytest.raises(kind, match=message) as caught:
        term.rotate(**given)
    assert name in ("a dtype", "a device") or str(caught.value).startswith(which)
    if name not in ("one head", "no batch"):  # which it refuses in its own words
        with pytest.raises(kind, match=message):
            term.rotate_(**given)


def test_heads_that_do_not_divide_are_refused(either: bool) -> None:
    term = posenc.MixedRotary(4, 12, axes=1).requires_grad_(False).term(posenc.sequence(9))
    for heads in (3, 8):
        with pytest.raises(ValueError, match=f"k must have the 1 rows and 4 heads .* got 1 and {heads}"):
            term.rotate(torch.ones(1, 4, 9, 12), torch.ones(1, heads, 9, 12))


def test_part_of_the_channels_needs_that_part(either: bool) -> None:
    """A term of one's own may leave the width open."""
    made = posenc.Rotary(12, rotary_dim=8).term(posenc.sequence(9))
    term = posenc.Rotation(made.relative, made.query, made.key, made.layout)
    x = drawn(1, 2, 9, 16)
    assert torch.equal(term.rotate(x, x)[0][..., 8:], x[..., 8:])
    with pytest.raises(ValueError, match="q must have the 8 or more channels that the term was made for, got 4: make"):
        term.rotate(x[..., :4], x)


def test_a_compiled_rotation_is_checked_and_serves_all_lengths() -> None:
    def turn(q: Tensor, k: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        term = posenc.Rotary(12).term(posenc.sequence(q.shape[2], start), posenc.sequence(k.shape[2]))
        return term.rotate(q, k)

    graphs = []

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(turn, fullgraph=True, dynamic=True, backend=count)
    for queries, keys in ((4, 7), (5, 9), (6, 30)):
        q, k, start = drawn(2, 3, queries, 12), drawn(2, 3, keys, 12), torch.tensor(keys - queries)
        torch.testing.assert_close(compiled(q, k, start), turn(q, k, start))
    assert len(graphs) == 1


# --- in place ---


ENCODINGS: dict[str, Callable[[], posenc.RotaryEncoding]] = {
    "half": lambda: posenc.Rotary(12),
    "interleaved": lambda: posenc.Rotary(12, layout="interleaved"),
    "partial": lambda: posenc.Rotary(12, rotary_dim=6),
    "each head": lambda: posenc.MixedRotary(4, 12, axes=1).requires_grad_(False),
    "decay": lambda: posenc.XPos(12),
}


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_in_place_is_the_plain_call(dtype: torch.dtype, name: str, either: bool) -> None:
    encoding = ENCODINGS[name]()
    groups = 4 if name == "each head" else 2
    for positions, queries, keys in ((None, 3, 9), (posenc.coordinates(torch.arange(7)[:, None], prefix=2), 9, 9)):
        q, k = drawn(2, 4, queries, 12, dtype=dtype), drawn(2, groups, keys, 12, dtype=dtype)
        wanted = encoding(q, k, positions)
        mine, yours = q.clone(), k.transpose(1, 2).contiguous().transpose(1, 2)
        before = mine._version, yours._version
        turned = encoding.rotate_(mine, yours, positions)
        assert turned[0] is mine
        assert turned[1] is yours
        assert torch.equal(bits(mine), bits(wanted[0]))
        assert torch.equal(bits(yours), bits(wanted[1]))
        assert mine._version > before[0]
        assert yours._version > before[1]


def test_queries_and_keys_of_one_projection_turn_where_they_lie(either: bool) -> None:
    packed, rotary = drawn(2, 9, 3, 4, 16), posenc.Rotary(16)
    value = packed[:, :, 2].clone()
    q, k = packed[:, :, 0].transpose(1, 2), packed[:, :, 1].transpose(1, 2)
    wanted = rotary(q, k)
    rotary.rotate_(q, k)
    assert torch.equal(packed[:, :, 0].transpose(1, 2), wanted[0])
    assert torch.equal(packed[:, :, 1].transpose(1, 2), wanted[1])
    assert torch.equal(packed[:, :, 2], value)

    grouped = drawn(2, 9, (4 + 2 + 2) * 16).unflatten(-1, (8, 16)).transpose(1, 2)
    q, k = grouped[:, :4], grouped[:, 4:6]
    wanted = rotary(q, k)
    rotary.rotate_(q, k)
    assert torch.equal(grouped[:, :4], wanted[0])
    assert torch.equal(grouped[:, 4:6], wanted[1])


def test_what_a_gradient_needs_is_not_turned_unseen(either: bool) -> None:
    term = ready((1, 2, 5, 4, 0, 0))
    q, k = drawn(2, 1, 2, 5, 8)
    weight = torch.ones(8, requires_grad=True)
    loss = (q * weight).sum()  # its gradient needs q as it is
    term.rotate_(q, k)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def overlapping() -> list[tuple[Tensor, Tensor]]:
    memory = torch.zeros(4000)
    whole = memory[:480].view(1, 3, 10, 16)
    return [
        (whole, whole),
        (whole, whole.view(1, 3, 10, 16)),
        (whole, memory[464:944].view(1, 3, 10, 16)),
        (whole[:, :2], whole[:, 1:]),
        (memory[:960].view(1, 10, 6, 16).transpose(1, 2)[:, :4], memory[:960].view(1, 10, 6, 16).transpose(1, 2)[:, 2:]),
        (memory[:320].view(1, 1, 10, 32)[..., :16], memory[:320].view(1, 1, 10, 32)[..., 15:31]),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(len(overlapping())))
def test_queries_and_keys_that_share_memory_are_refused(number: int, either: bool) -> None:
    q, k = overlapping()[number]
    with pytest.raises(ValueError, match="apart") as raised:
        posenc.Rotary(16).rotate_(q, k, posenc.sequence(10))
    assert str(raised.value) == (
        "q and k must lie apart to turn in place, got tensors that share memory, which would turn twice: pass k.clone()"
    )
    assert not q.any()


def test_memory_that_is_shared_is_found_exactly() -> None:
    memory = torch.zeros(600)
    for _ in range(300):
        pair = []
        for _ in range(2):
            shape = [int(n) for n in torch.randint(1, 4, (4,))]
            stride = [int(n) for n in torch.randint(1, 40, (4,))]
            pair.append(memory.as_strided(shape, stride, int(torch.randint(0, 200, ()))))
        memory.zero_()
        pair[0].fill_(1)
        assert _overlap(*pair) == bool(pair[1].any())


def test_strides_of_another_dtype_are_others() -> None:
    """In bytes the first halves of 16 numbers of 4 bytes end where numbers of 8 bytes begin."""
    memory = torch.zeros(600)
    q = memory[:64].view(4, 16)[:, :8]
    k = memory.view(torch.float64)[4:36].view(4, 8)[:, :4]
    assert q.data_ptr() + 32 == k.data_ptr()
    assert not _overlap(q[None, None], k[None, None])
    assert _overlap(memory[:64].view(1, 1, 4, 16), k[None, None])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda q, k: posenc.Rotary(16).rotate_(q.requires_grad_(), k),
            "q must need no gradient to turn in place, got one that requires it: call rotate, or rotate_ under torch.no_grad()",
        ),
        (
            lambda q, k: posenc.Rotary(16).rotate_(q, k.requires_grad_()),
            "k must need no gradient to turn in place, got one that requires it: call rotate, or rotate_ under torch.no_grad()",
        ),
        (
            lambda q, k: posenc.MixedRotary(3, 16, axes=1).rotate_(q, k),
            "frequencies must need no gradient to turn in place, got trained ones: call rotate, or rotate_ under torch.no_grad()",
        ),
        (
            lambda q, k: posenc.Rotary(16).rotate_(q[:, :1].expand_as(q), k),
            "q must have memory of its own for each number to turn in place, got shape (1, 3, 10, 16) with strides (480, 0, 16, 1): it is expanded, pass q.contiguous()",
        ),
        (
            lambda q, k: posenc.Rotary(16).rotate_(q, k[:, :, :1].expand_as(k)),
            "k must have memory of its own for each number to turn in place, got shape (1, 3, 10, 16) with strides (480, 160, 0, 1): it is expanded, pass k.contiguous()",
        ),
        (
            lambda q, k: posenc.MixedRotary(3, 16, axes=1).requires_grad_(False).rotate_(q, k[:, :1]),
            "k must have the 3 heads of q, each of which turns in its own way, got 1: there is no room for more in place, call rotate",
        ),
        (
            lambda q, k: posenc.Rotary(12).rotate_(q, k),
            "q must be [batch, heads, tokens, 12] for this Rotary, got shape (1, 3, 10, 16): make the Rotary with head_dim=16, or reshape q",
        ),
        (
            lambda q, k: posenc.XPos(16, scale_base=0.05).rotate_(q, k),
            "positions, from their middle, must be near each other, so that the decay stays in the range of a float: within 3, got 4: use attention, which counts from every block of queries anew",
        ),
    ],
)  # fmt: skip
def test_messages(call: Callable[[Tensor, Tensor], object], message: str, either: bool) -> None:
    q, k = drawn(2, 1, 3, 10, 16).unbind()
    before = q.clone(), k.clone()
    with pytest.raises(ValueError, match="must") as raised:
        call(q, k)
    assert str(raised.value) == message
    assert torch.equal(q, before[0])
    assert torch.equal(k, before[1])


def test_without_gradients_trained_things_turn_in_place(either: bool) -> None:
    mixed = posenc.MixedRotary(3, 16, axes=1)
    q, k = drawn(2, 1, 3, 10, 16)
    q.requires_grad_()
    with torch.no_grad():
        wanted = mixed(q, k)
        mixed.rotate_(q, k)
    assert torch.equal(q, wanted[0])
    assert torch.equal(k, wanted[1])
