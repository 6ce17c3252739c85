"""Peak memory of a call, measured in a process of its own."""

import itertools
import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import torch

from posenc.bench import peers
from posenc.bench.calls import prepare
from posenc.bench.machine import memory_limit
from posenc.bench.setting import Setting, Subject

__all__ = ["Memory", "serve"]

CAREFUL = 64  # a call may take so many times its logits: where that is not there, it is tried with fewer tokens first
SHARE = 0.8  # of the memory, what a call may take


class Memory:
    """Peak memory in MiB of calls, each in a fork of one process that has imported torch and computed nothing."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._found: dict[tuple[Subject, Setting, bool], float | None] = {}

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def peak(self, subject: Subject, setting: Setting, train: bool) -> float | None:
        """Peak memory of a call in MiB, inputs and parameters included; None where it cannot be told.

        Raises ValueError where the call failed, as it does for want of memory.
        """
        case = subject, setting, train
        if case not in self._found:
            self._found[case] = self._peak(*case)
        return self._found[case]

    def require_room(self, subject: Subject, setting: Setting, train: bool) -> None:
        """Raise ValueError where a call would take more than the machine has, judged by one with fewer tokens.

        What it takes grows with the square of the tokens at most; with fewer queries than keys, with the keys.
        """
        limit = memory_limit()
        if limit is None:
            return
        itemsize = getattr(torch, setting.dtype).itemsize
        sizes = [setting]
        while CAREFUL * sizes[-1].logits * itemsize > SHARE * limit and sizes[-1].tokens > 1:
            sizes.append(sizes[-1].smaller())
        for larger, smaller in reversed(list(itertools.pairwise(sizes))):  # from the smallest up
            taken = (self.peak(subject, smaller, train) or 0.0) * 2**20
            power = 1 if setting.queries else 2
            if taken * (larger.tokens / smaller.tokens) ** power > SHARE * limit:
                expected = taken * (setting.tokens / smaller.tokens) ** power
                judged = f"{setting.size} tokens, judged by {taken / 2**20:.0f} MiB at {smaller.size}"
                raise ValueError(
                    f"it would take up to {expected / 2**30:.0f} GiB at {judged}, got a machine of "
                    f"{limit / 2**30:.0f} GiB: measure fewer"
                )

    def _peak(self, subject: Subject, setting: Setting, train: bool) -> float | None:
        if subject.way in peers.NAMES and peers.NAMES[subject.way].compiled:
            return None  # the compiler takes more
        if setting.device.startswith("cuda"):
            return _cuda_peak(subject, setting, train)
        if setting.device != "cpu" or not hasattr(os, "fork"):
            return None
        found = self._ask(subject, setting, train)
        if isinstance(found, str):
            raise ValueError(f"its memory cannot be measured at {setting.size} tokens: {found}")
        return found

    def _ask(self, *case: Any) -> float | str:
        if self._server is None:
            program = "from posenc.bench import memory; memory.serve()"
            self._server = subprocess.Popen(
                [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        try:
            pickle.dump((torch.get_num_threads(), case), self._server.stdin)
            self._server.stdin.flush()
            answer: float | str = pickle.load(self._server.stdout)
        except (BrokenPipeError, EOFError):
            self._end()
            return "the process that measures memory ended"
        return answer

    def _end(self) -> None:
        """Let the process go, which ends with what it is asked."""
        server, self._server = self._server, None
        if server is not None:
            with suppress(BrokenPipeError), server:
                pass


def serve() -> None:
    """Answer every case on stdin with its peak, or why there is none, each from a fork of this still idle process."""
    while True:
        try:
            threads, (subject, setting, train) = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if subject.way in peers.NAMES:
            with suppress(Exception):  # the child will say what it is
                peers.taken(peers.NAMES[subject.way].module)  # before the fork: imports are not counted
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            torch.set_num_threads(threads)
            try:
                grown: float | str = _growth(subject, setting, train)
            except Exception as error:  # whatever it is, it is why there is no number
                grown = f"{type(error).__name__}: {error}".partition("\n")[0]
            os.write(write, pickle.dumps(grown))
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            answer = pipe.read()
        _, status = os.waitpid(child, 0)
        found = pickle.loads(answer) if answer else _ended(status)
        pickle.dump(found, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _ended(status: int) -> str:
    """Why a process gave no answer."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGKILL:
        return "its process was killed, as it is where memory ends"
    return f"its process ended with {signal.Signals(number).name if number else 'no answer'}"


def _growth(subject: Subject, setting: Setting, train: bool) -> float:
    """How many MiB the peak memory of this process grows by, from a call at a tiny size to one at this setting."""
    import resource  # not on every platform

    prepare(subject, setting.tiny(), train)()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    prepare(subject, setting, train)()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return grown / (2**20 if sys.platform == "darwin" else 2**10)  # in bytes there, in KiB elsewhere


def _cuda_peak(subject: Subject, setting: Setting, train: bool) -> float:
    prepare(subject, setting, train)()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    prepare(subject, setting, train)()
    return (torch.cuda.max_memory_allocated() - before) / 2**20
