"""What the numbers depend on besides the setting: the machine."""

import os
import platform
from pathlib import Path
from typing import Any

import torch

import posenc

__all__ = ["about", "memory_limit"]


def about() -> dict[str, Any]:
    """The machine, torch, and the instruction sets that torch and our kernel use.

    >>> about()["threads"] == torch.get_num_threads()
    True
    """
    found = {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_level": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "posenc": posenc.__version__,
        "posenc_level": _level(),
    }
    return found | ({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {})


def memory_limit() -> int | None:
    """How many bytes this machine has, or its container may use; None where nobody says."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return None
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = Path(path).read_text().strip() if os.access(path, os.R_OK) else ""
        limits += [int(text)] if text.isdigit() else []
    return min(limits)


def _cpu() -> str:
    """The name of the processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _level() -> str:
    """The instruction set of our own kernel, or the backend that computes where there is none."""
    backend = posenc.explain(*torch.zeros(3, 1, 1, 1, 1)).backend
    level = getattr(getattr(backend, "kernels", backend), "level", None)
    return str(level()) if callable(level) else f"none, {backend.NAME} computes"
