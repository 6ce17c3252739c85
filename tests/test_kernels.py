"""The library of the CPU kernel: which instruction set is taken, what is said where there is no library, and its build."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from posenc import kernels

ROOT = Path(__file__).parent.parent
NO_COMPILER = {"CXX": "/no/such/compiler"}

built = pytest.mark.skipif(not kernels.BUILT, reason=kernels.MISSING)


def say(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a fresh interpreter prints, with `kernels` imported."""
    command = [sys.executable, "-c", f"from posenc import kernels\n{program}"]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)


def load(path: Path) -> ModuleType:
    """The module at `path`, as a package of its own."""
    specification = importlib.util.spec_from_file_location("kernels_elsewhere", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


class LibraryOfAnOldCPU:
    """Says what a library says on a CPU that has AVX2 and no AVX-512."""

    @staticmethod
    def posenc_best_level() -> bytes:
        return b"avx2"


# levels


@built
def test_each_level_of_this_cpu_can_be_had() -> None:
    best = say("print(kernels.level())", POSENC_CPU_LEVEL="").stdout.strip()
    for level in kernels.LEVELS[: kernels.LEVELS.index(best) + 1]:
        program = """
import ctypes
address = lambda function: ctypes.cast(function, ctypes.c_void_p).value
level = kernels.level()
print(level, address(kernels.function("forward")) == address(kernels.library()["posenc_forward_" + level]))
"""
        assert say(program, POSENC_CPU_LEVEL=level).stdout.split() == [level, "True"]


@built
def test_an_unknown_level_is_an_error_when_the_kernel_is_asked_for() -> None:
    done = say("print(kernels.BUILT)\nkernels.function('forward')", POSENC_CPU_LEVEL="sse9")
    assert done.stdout.strip() == "True"
    assert done.stderr.strip().endswith(
        "ValueError: POSENC_CPU_LEVEL must be one of baseline, avx2, avx512, got 'sse9': "
        "unset it for the best of this CPU"
    )


@pytest.mark.parametrize("wanted", ["baseline", "avx2", "avx512", "", None])
def test_a_level_that_this_cpu_lacks_is_an_error(wanted: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "library", LibraryOfAnOldCPU)
    monkeypatch.delenv("POSENC_CPU_LEVEL", raising=False)
    if wanted is not None:
        monkeypatch.setenv("POSENC_CPU_LEVEL", wanted)
    level = kernels.level.__wrapped__
    if wanted != "avx512":
        assert level() == (wanted or "avx2")
        return
    with pytest.raises(ValueError, match="POSENC_CPU_LEVEL") as error:
        level()
    assert str(error.value) == (
        "POSENC_CPU_LEVEL must be a level that this CPU has (baseline, avx2), got 'avx512': "
        "unset it for the best of this CPU"
    )


@built
def test_a_library_of_another_version_says_so() -> None:
    done = say("kernels.function('nothing')", POSENC_CPU_LEVEL="baseline")
    assert "without posenc_nothing_baseline: install posenc again" in done.stderr


@built
def test_threads_may_ask_first_at_the_same_time() -> None:
    program = """
import ctypes, sys
from threading import Barrier, Thread
sys.setswitchinterval(1e-6)
barrier, addresses = Barrier(8), set()
def ask():
    barrier.wait()
    addresses.add(ctypes.cast(kernels.function("forward"), ctypes.c_void_p).value)
threads = [Thread(target=ask) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(addresses))
"""
    assert say(program).stdout.strip() == "1"


def test_a_compiled_function_may_ask_whether_it_is_built() -> None:
    def double_if_built(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if kernels.BUILT else x + len(kernels.MISSING)

    compiled: Any = torch.compile(double_if_built, backend="eager", fullgraph=True)
    x = torch.ones(3)
    assert torch.equal(compiled(x), double_if_built(x))


# no library, or none that can be read


def test_a_package_without_the_library_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POSENC_CPU_LIBRARY", raising=False)
    alone = load(Path(shutil.copy(ROOT / "src/posenc/kernels/__init__.py", tmp_path)))
    assert not alone.BUILT
    assert alone.MISSING == "the CPU kernel is not built: install posenc where there is a C++ compiler"
    for ask in (alone.library, alone.level, lambda: alone.function("forward")):
        with pytest.raises(RuntimeError) as error:
            ask()
        assert str(error.value) == alone.MISSING


def test_a_library_named_where_none_is_says_so() -> None:
    done = say("print(kernels.BUILT, kernels.MISSING)", POSENC_CPU_LIBRARY="/no/such/library.so")
    assert done.stdout.strip() == (
        "False the CPU kernel is not built: POSENC_CPU_LIBRARY names /no/such/library.so, where no file is"
    )


def test_a_library_that_cannot_be_loaded_says_so(tmp_path: Path) -> None:
    library = tmp_path / "libposenc.so"
    library.write_bytes(b"not a library")
    done = say("print(kernels.BUILT)\nkernels.level()", POSENC_CPU_LIBRARY=str(library))
    assert done.stdout.strip() == "True"
    message = done.stderr.strip().splitlines()[-1]
    assert message.startswith(
        f"RuntimeError: the CPU kernel must be a library that this machine can load, got {library} ("
    )
    assert message.endswith("): install posenc again on this machine")


# the build


@pytest.fixture
def cmake() -> str:
    """The command of that name, from beside this interpreter if it is there."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("cmake", path=os.pathsep.join([beside, os.environ["PATH"]]))
    if found is None:
        pytest.skip("cmake is not installed")
    return found


def configure(cmake: str, build: Path, **environment: str) -> tuple[str, bool]:
    """What CMake says, in one line, and whether it will build the library."""
    command = [cmake, "-S", str(ROOT), "-B", str(build)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    helped = subprocess.run([cmake, "--build", str(build), "--target", "help"], capture_output=True, text=True)
    return " ".join((done.stdout + done.stderr).split()), "libposenc" in helped.stdout


def test_without_a_compiler_nothing_is_built_and_the_next_run_looks_again(cmake: str, tmp_path: Path) -> None:
    said, builds = configure(cmake, tmp_path, **NO_COMPILER)
    assert "posenc is installed without its CPU kernel: no working C++ compiler was found." in said
    assert not builds
    if shutil.which("c++"):
        said, builds = configure(cmake, tmp_path, CXX="c++")
        assert "without its CPU kernel" not in said
        assert builds


def test_with_a_compiler_that_is_too_old_nothing_is_built(cmake: str, tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    old = tmp_path / "old-c++"
    old.write_text(f'#!/bin/sh\ncase "$*" in *-std=c++17*) exit 1 ;; esac\nexec {compiler} "$@"\n')
    old.chmod(0o755)
    said, builds = configure(cmake, tmp_path / "build", CXX=str(old))
    assert f"posenc is installed without its CPU kernel: {old} (" in said
    assert not builds


def test_without_a_compiler_it_is_installed_as_python_alone(tmp_path: Path) -> None:
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.skip("scikit-build-core is not installed")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation", str(ROOT)]
    environment = os.environ | NO_COMPILER
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("posenc-*-py3-none-*.whl")
    shutil.unpack_archive(wheel, tmp_path / "installed", "zip")
    done = say(
        "print(kernels.__file__)\nprint(kernels.MISSING if not kernels.BUILT else 'built')",
        PYTHONPATH=str(tmp_path / "installed"),
        POSENC_CPU_LIBRARY="",
    )
    assert done.stdout.splitlines() == [
        str(tmp_path / "installed/posenc/kernels/__init__.py"),
        "the CPU kernel is not built: install posenc where there is a C++ compiler",
    ]
