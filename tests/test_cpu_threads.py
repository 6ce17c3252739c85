"""The fused kernel on several threads, on every instruction set of this CPU, in dirty memory and after a fork."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import posenc
from fused import DTYPES, answers, compare, like
from posenc import kernels

pytestmark = pytest.mark.skipif(not kernels.BUILT, reason=kernels.MISSING)

TESTS = Path(__file__).parent


@pytest.fixture
def threads() -> Iterator[None]:
    """Restores what a test sets."""
    yield
    torch.set_num_threads(1)


def run(program: str, limit: float = 60, **environment: str) -> str:
    """What a fresh interpreter prints that finds the modules of the tests."""
    paths = {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=os.environ | paths | environment, capture_output=True, text=True, timeout=limit)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SCHEMES = {
    "none": list,
    "rotations that differ by head": lambda: [posenc.MixedRotary(4, 16, axes=1).requires_grad_(False)],
    "a table for each head": lambda: [posenc.T5Bias(4)],
    "a table for all heads": lambda: [Shared()],
    "numbers for prefix tokens": lambda: [posenc.RelativePositionBias(4, (110,), prefix_bias=True)],
    "pairs": lambda: [posenc.Fire(4)],
    "rows for all heads": lambda: [posenc.Shaw(16, 3)],
    "rows for each head": lambda: [posenc.Shaw(16, 3, num_heads=4)],
    "more rows than a tile": lambda: [posenc.RelativeLogits(16, (110,))],
    "rows for keys": lambda: [posenc.Deberta(4, 16)],
    "vectors added": lambda: [posenc.TransformerXL(4, 16)],
    "several": lambda: [posenc.Rotary(16), Shared(), posenc.Kerple(4), posenc.Shaw(16, 3), posenc.SinusoidalLogits(16)],
}


class Shared(posenc.BiasEncoding):
    """A trained table of all heads."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(1, 1000))

    def bias(self, relative: Tensor) -> Tensor:
        return self.table[:, relative[..., 0] + 500]


def layouts(scheme: str) -> list[tuple[int, int, int, posenc.Positions]]:
    """Batch, heads, key heads, and positions that are the same for all rows of the batch, or not."""
    prefix = int(scheme == "numbers for prefix tokens")
    plain = posenc.grid(110 - prefix, prefix=prefix)
    order = torch.stack([torch.randperm(110) for _ in range(3)])
    apart = posenc.coordinates(order[:, prefix:, None] % 110, prefix=prefix, order=order, extent=110)
    return [(1, 4, 4, plain), (1, 4, 1, plain), (3, 4, 2, plain), (3, 4, 4, apart), (3, 4, 1, apart)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_runs_are_identical_for_a_number_of_threads(scheme: str, threads: None, seed: int) -> None:
    """And within the budget, however heads, batch rows and blocks of queries are dealt to threads."""
    for batch, heads, groups, positions in layouts(scheme):
        q, k, v, slope = (torch.randn(batch, count, 110, 16) for count in (heads, groups, groups, heads))
        encodings = like(SCHEMES[scheme](), torch.float32)
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            options = {"positions": positions, "causal": count == 2}
            first, second = (answers("cpu", (q, k, v), slope, encodings, **options) for _ in range(2))
            for ours, again in zip(first.all, second.all, strict=True):
                assert torch.equal(ours, again)
        compare(q, k, v, *encodings, slope=slope, threads=3, positions=positions)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_head_on_more_threads_than_blocks(dtype: torch.dtype, seed: int) -> None:
    q, k, v = (torch.randn(1, 1, tokens, 64).to(dtype) for tokens in (100, 2000, 2000))
    for threads, queries in ((2, 1), (3, 7), (2, 100), (16, 100)):
        compare(q[:, :, :queries], k, v, posenc.T5Bias(1), posenc.Shaw(64, 300), threads=threads)


LEVEL = """
    import random
    import torch
    from fused import compare
    from fused_problems import SUBJECTS, Setting, build
    from posenc import kernels

    torch.manual_seed({seed}); random.seed({seed})
    settings = [
        Setting(dtype, tokens=tokens, layout=layout, causal=causal, mask=mask, head_dim=width, strides=strides, groups=groups)
        for dtype, tokens, layout, causal, mask, width, strides, groups in [
            (torch.float64, 91, "grid", False, None, 20, "contiguous", None),
            (torch.float32, 65, "shuffled", True, None, 80, "tokens first", 1),
            (torch.float32, 320, "grid", True, None, 16, "contiguous", 2),
            (torch.bfloat16, 91, "prefix", False, "full", 64, "every other channel", None),
            (torch.float16, 17, "packed", False, None, 8, "inside", None),
            (torch.float32, 65, "padded", False, "blind", 256, "contiguous", None),
        ]
    ]
    names = sorted({{subject.card.name for subject in SUBJECTS}})
    for number, name in enumerate(names):
        subject = random.choice([subject for subject in SUBJECTS if subject.card.name == name])
        problem = build(subject, settings[number % 6])
        compare(problem.q, problem.k, problem.v, *problem.encodings, threads=1 + number % 3, **problem.options)
    rows = next(subject for subject in SUBJECTS if subject.card.name == "Shaw")
    bias = next(subject for subject in SUBJECTS if subject.card.name == "T5Bias")
    turn = next(subject for subject in SUBJECTS if subject.card.name == "Rotary")
    for setting in settings:
        problem = build([turn, bias, rows], setting)
        compare(problem.q, problem.k, problem.v, *problem.encodings, **problem.options)
    print(kernels.level())
"""


@pytest.mark.parametrize(
    "level",
    [
        level
        for level in kernels.LEVELS
        if kernels.BUILT and kernels.LEVELS.index(level) < kernels.LEVELS.index(kernels.level())
    ],
)
def test_every_lower_level_is_exact(level: str, seed: int) -> None:
    """The best of this CPU is what all other tests run."""
    assert run(LEVEL.format(seed=seed), POSENC_CPU_LEVEL=level) == level


def test_memory_is_taken_as_dirty_as_it_comes(seed: int) -> None:
    """Results are the same to the bit whether memory that was given back held zeros or NaN."""
    program = f"""
        import ctypes, random
        import torch
        import posenc
        from fused import DTYPES, answers, like
        from fused_problems import LAYOUTS, SUBJECTS, Setting, build
        from laws import Subject
        from posenc import catalog

        library = ctypes.CDLL(None)
        library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

        def fill(byte):
            block = library.malloc(ctypes.c_size_t(48 << 20))
            ctypes.memset(block, byte, 48 << 20)
            library.free(block)

        torch.manual_seed({seed}); random.seed({seed})
        torch.set_num_threads(1)
        wide = Subject(catalog.card("Shaw"), {{"head_dim": 16, "max_distance": 400}}, posenc.Shaw)
        tables = [subject for subject in SUBJECTS if subject.place == "bias"]
        cards = {{subject.card.name: subject for subject in random.sample(SUBJECTS, len(SUBJECTS))}}
        for subject in [*cards.values(), *[wide] * 10]:
            several = [subject, random.choice(tables)] if subject is wide else subject
            setting = Setting(
                random.choice(DTYPES), random.choice([1, 17, 65, 91, 320]), random.choice(["grid", *LAYOUTS]),
                queries=random.choice([None, 1, 3]),                 causal=random.random() < 0.5, mask=random.choice([None, "full", "blind"]),
            )
            problem = build(several, setting)
            tensors = problem.q, problem.k, problem.v
            slope = torch.randn(*problem.q.shape[:3], problem.v.shape[3]).to(problem.q.dtype)
            encodings = like(problem.encodings, torch.promote_types(problem.q.dtype, torch.float32))
            found = []
            for byte in (0, 255):
                fill(byte)
                found.append(answers("cpu", tensors, slope, encodings, **problem.options))
            for clean, dirty in zip(*(x.all for x in found), strict=True):
                assert torch.equal(clean, dirty), (several, setting)
        print("the same")
    """
    reused = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_ARENA_MAX": "1"}
    assert run(program, **reused) == "the same"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_has_threads_of_its_own() -> None:
    """The parent's are not there; and it can be forked again."""
    program = """
        import os, sys
        import torch
        import posenc

        torch.set_num_threads(2)
        torch.manual_seed(0)
        bias = posenc.ALiBi(4, learned=True)
        leaves = [torch.randn(2, 4, 200, 16, requires_grad=True) for _ in range(3)]

        def differentiate():
            output = posenc.attention(*leaves, bias, backend="cpu")
            return [output, *torch.autograd.grad(output.square().sum(), [*leaves, *bias.parameters()])]

        wanted = differentiate()

        def check(generations):
            for _ in range(3):
                assert all(torch.equal(ours, theirs) for ours, theirs in zip(differentiate(), wanted, strict=True))
            if generations:
                children = []
                for _ in range(2):
                    child = os.fork()
                    if child == 0:
                        try:
                            check(generations - 1)
                            os._exit(0)
                        finally:
                            os._exit(1)
                    children.append(child)
                assert all(os.waitpid(child, 0)[1] == 0 for child in children)
            check_again = differentiate()
            assert torch.equal(check_again[0], wanted[0])

        check(2)
        print("equal")
    """
    assert run(program, limit=60) == "equal"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_may_be_the_first_to_compute() -> None:
    """The threads with which torch computed stayed with the parent, whose own bits are the same."""
    program = """
        import os
        import torch
        import posenc

        torch.set_num_threads(2)
        torch.ones(4_000_000).exp_()  # in parallel
        torch.manual_seed(0)
        q, k, v = torch.randn(3, 2, 4, 200, 16)
        bias = posenc.ALiBi(4)
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                os.write(writing, posenc.attention(q, k, v, bias, backend="cpu").numpy().tobytes()[:60000])
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            found = pipe.read()
        os.wait()
        assert len(found) == 60000
        print("equal" if posenc.attention(q, k, v, bias, backend="cpu").numpy().tobytes()[:60000] == found else "other")
    """
    assert run(program, limit=60) == "equal"
