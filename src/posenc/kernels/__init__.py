"""The CPU kernel: C++ beside this file, compiled once per instruction set, and loaded through ctypes when first used.

Whether it was built is settled when this module is imported, so that a plan may ask inside a compiled function.
"""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

__all__ = ["BUILT", "LEVELS", "MISSING", "function", "level", "library"]

LEVELS = ("baseline", "avx2", "avx512")
"""Instruction sets; a CPU that has one has those before it. Only x86-64 has more than the first."""

_GIVEN = os.environ.get("POSENC_CPU_LIBRARY")
_PATH = Path(_GIVEN).absolute() if _GIVEN else Path(__file__).parent / "lib" / "libposenc.so"

BUILT = _PATH.is_file()
"""Whether there is a library to load."""

MISSING = "the CPU kernel is not built: " + (
    f"POSENC_CPU_LIBRARY names {_GIVEN}, where no file is" if _GIVEN else "install posenc where there is a C++ compiler"
)
"""Why there is none, where `BUILT` is False."""

_IMPORTED_IN = os.getpid()


@cache
def library() -> ctypes.CDLL:
    """The library, loaded once; where two threads ask at the same time, the system gives both the same one.

    Raises RuntimeError where it was not built, and where this machine cannot load it.
    """
    if not BUILT:
        raise RuntimeError(MISSING)
    try:
        loaded = ctypes.CDLL(str(_PATH))
    except OSError as error:
        raise RuntimeError(
            f"the CPU kernel must be a library that this machine can load, got {_PATH} ({error}): "
            "install posenc again on this machine"
        ) from error
    if os.getpid() != _IMPORTED_IN:  # a fork: torch's threads stayed behind
        loaded.posenc_leave_team()
    return loaded


@cache
def level() -> str:
    """The instruction set in use: this CPU's best, or the lower one that POSENC_CPU_LEVEL names.

    Raises ValueError for a name that is none, or a level that this CPU lacks.
    """
    best_level = library().posenc_best_level
    best_level.argtypes, best_level.restype = [], ctypes.c_char_p
    best = best_level().decode()
    wanted = os.environ.get("POSENC_CPU_LEVEL") or best
    possible = LEVELS[: LEVELS.index(best) + 1]
    if wanted not in LEVELS:
        raise ValueError(
            f"POSENC_CPU_LEVEL must be one of {', '.join(LEVELS)}, got {wanted!r}: unset it for the best of this CPU"
        )
    if wanted not in possible:
        raise ValueError(
            f"POSENC_CPU_LEVEL must be a level that this CPU has ({', '.join(possible)}), got {wanted!r}: "
            "unset it for the best of this CPU"
        )
    return wanted


@cache
def function(name: str) -> Callable[..., int]:
    """`posenc_<name>_<level>` of the library: takes the address of a problem, returns zero where all went well.

    Raises RuntimeError where the library has no such function.
    """
    symbol = f"posenc_{name}_{level()}"
    try:
        found = getattr(library(), symbol)
    except AttributeError as error:
        raise RuntimeError(
            f"the CPU kernel must be as old as the Python files beside it, got {_PATH} without {symbol}: "
            "install posenc again"
        ) from error
    found.argtypes, found.restype = [ctypes.c_void_p], ctypes.c_int
    return found  # type: ignore[no-any-return]
