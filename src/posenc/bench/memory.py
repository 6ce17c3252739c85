"""Peak memory of a call, measured in a process of its own."""

import json
import os
import subprocess
import sys

import torch

from posenc.bench.cases import PLAIN, Setting, prepare

__all__ = ["peaks", "serve"]

Peaks = dict[tuple[str, Setting, bool], float]


def peaks(cases: list[tuple[str, Setting]]) -> Peaks:
    """Peak memory in MiB of every case and of plain beside it."""
    settings = dict.fromkeys(setting for _, setting in cases)
    wanted = [(name, setting, train) for name, setting in cases for train in (False, True)]
    wanted += [(PLAIN, setting, train) for setting in settings for train in (False, True)]
    device = cases[0][1].device
    if device.startswith("cuda"):
        return {case: _cuda_peak(*case) for case in wanted}
    if device != "cpu" or not hasattr(os, "fork"):
        return {}
    program = "from posenc.bench import memory; memory.serve()"
    message = json.dumps({"threads": torch.get_num_threads(), "cases": wanted})
    answer = subprocess.run(
        [sys.executable, "-c", program], input=message, stdout=subprocess.PIPE, text=True, check=True
    )
    found = dict(zip(wanted, json.loads(answer.stdout), strict=True))
    for (scheme, setting, _), peak in found.items():
        if isinstance(peak, str):
            raise ValueError(f"{scheme} cannot be measured at {setting.shape} tokens: {peak}")
    return found


def serve() -> None:
    """Answer JSON on stdin with the peak of each case, each measured in a fork of this still idle process."""
    request = json.load(sys.stdin)
    found: list[float | str] = []
    for scheme, setting, train in request["cases"]:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            torch.set_num_threads(request["threads"])
            try:
                grown: float | str = _growth(scheme, Setting(tuple(setting[0]), *setting[1:]), train)
            except (MemoryError, RuntimeError) as error:  # torch says so where a tensor does not fit
                grown = str(error).partition("\n")[0]
            os.write(write, json.dumps(grown).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            answer = pipe.read()
        os.waitpid(child, 0)
        found.append(json.loads(answer) if answer else "its process ended, as it does where memory ends")
    json.dump(found, sys.stdout)


def _growth(scheme: str, setting: Setting, train: bool) -> float:
    """How many MiB the peak memory of this process grows by, from a call at a tiny size to one at this setting."""
    import resource  # not on every platform

    tiny = setting._replace(shape=tuple(min(2, size) for size in setting.shape))
    prepare(scheme, tiny, train)()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    prepare(scheme, setting, train)()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return grown / (2**20 if sys.platform == "darwin" else 2**10)  # in bytes there, in KiB elsewhere


def _cuda_peak(scheme: str, setting: Setting, train: bool) -> float:
    prepare(scheme, setting, train)()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    prepare(scheme, setting, train)()
    return (torch.cuda.max_memory_allocated() - before) / 2**20
