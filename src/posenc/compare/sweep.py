"""Run trials and keep them: one JSON file a trial, through joblib, on this machine or on a Dask cluster.

A file is written whole or not at all, by this process, as soon as its trial is done. Whatever stops the sweep loses
the trials in flight and nothing else; the next sweep reads what is there and runs the rest.
"""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import joblib
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from posenc.compare.errors import BadInput, WorkerLost
from posenc.compare.trial import Trial, run_trial

__all__ = ["Store", "connect", "run_all"]

Result = dict[str, Any]


class Store:
    """A folder of JSON files, one a key. Files of other settings have other keys and are left alone."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.folder, self.warn = folder, warn

    def path(self, key: str) -> Path:
        """The file of a key."""
        return self.folder / f"{key}.json"

    def read(self, key: str) -> Result | None:
        """What is stored, or None; a file that cannot be read counts as missing, and is named."""
        path = self.path(key)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(found, dict) or found.get("key") != key or not (found.get("rows") or found.get("cost")):
                raise ValueError("not the result of this key")
        except FileNotFoundError:
            return None
        except (ValueError, OSError, RecursionError) as error:
            self.warn(f"{path} is damaged ({error}): it counts as missing and is run again")
            return None
        return found

    def write(self, result: Result) -> None:
        """Write a file beside its place, then move it there in one step."""
        self.folder.mkdir(exist_ok=True)
        path = self.path(result["key"])
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with draft.open("w", encoding="utf-8") as file:
            json.dump(result, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)


def run_all(
    trials: Sequence[Trial],
    store: Store,
    *,
    jobs: int | None = None,
    dask: str | None = None,
    done: Callable[[Result, bool], None] = lambda result, fresh: None,
) -> dict[str, Result]:
    """The results of all trials by key: those that are stored, and the rest run now.

    `done` is told of each, with whether it was run now. KeyboardInterrupt stops the workers and is raised again.
    """
    results: dict[str, Result] = {}
    missing: list[Trial] = []
    for trial in trials:
        stored = store.read(trial.key)
        if stored is None:
            missing.append(trial)
        else:
            results[trial.key] = stored
            done(stored, False)
    if missing:
        with _cluster(dask) if dask is not None else _local(min(jobs or joblib.cpu_count(), len(missing))):
            for result in joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")(
                joblib.delayed(_work)(trial) for trial in missing
            ):
                store.write(result)
                results[result["key"]] = result
                done(result, True)
    return results


def _work(trial: Trial) -> Result:
    if multiprocessing.parent_process() is not None:  # Ctrl-C reaches a terminal's whole group: the parent decides
        with suppress(ValueError):  # not the main thread of its process
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    return run_trial(trial)


@contextmanager
def _local(jobs: int) -> Iterator[None]:
    with joblib.parallel_config("loky", n_jobs=jobs):
        try:
            yield
        except BaseException as error:
            if jobs > 1:
                get_reusable_executor().shutdown(wait=True, kill_workers=True)
            if isinstance(error, TerminatedWorkerError):
                raise WorkerLost(
                    "a process that ran trials was ended from outside, perhaps for want of memory: "
                    "finished trials are kept, run the same command again, with fewer --jobs"
                ) from None
            raise


@contextmanager
def _cluster(address: str) -> Iterator[None]:
    """joblib's Dask backend: a trial whose worker dies is run again by another."""
    client = connect(address)
    try:
        with joblib.parallel_config("dask", n_jobs=-1, wait_for_workers_timeout=30):
            yield
    finally:
        client.close()


def connect(address: str, timeout: float = 10) -> Any:
    """A client of a running Dask cluster. Raises BadInput where there is none, or no distributed."""
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise BadInput('--dask needs the cluster extra: pip install "posenc[cluster]"') from None
    try:
        return Client(address, timeout=timeout)
    except (OSError, ValueError, TimeoutError) as error:
        raise BadInput(
            f"--dask: no Dask scheduler answers at {address} ({error}): start one, or leave it out"
        ) from None
