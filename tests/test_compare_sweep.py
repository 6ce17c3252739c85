"""Trials are kept: through damage, Ctrl-C, kill, other settings, and a cluster that loses a worker."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from rich.console import Console

from posenc.compare import Settings, compare
from posenc.compare.encodings import Sizes
from posenc.compare.errors import BadInput, WorkerLost
from posenc.compare.settings import prepare
from posenc.compare.sweep import Store, connect, run_all
from posenc.compare.trial import run_trial

TINY = Sizes(width=16, heads=2, layers=2, hidden=16)
PROGRAM = """
import signal
import sys
from pathlib import Path
from rich.console import Console
from posenc.compare import Settings, compare
from posenc.compare.encodings import Sizes
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job begins without
steps, jobs = map(int, sys.argv[1:])
given = {"text": Path("words.txt"), "encodings": ("rotary", "alibi"), "seeds": 3, "lengths": (1.0,)}
settings = Settings(**given, steps=steps, jobs=jobs)
try:
    compare(settings, Console(stderr=True), Sizes(width=16, heads=2, layers=2, hidden=16))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a text, to run in."""
    monkeypatch.chdir(tmp_path)
    words = np.random.default_rng(0).choice(["one", "two", "three", "four", "five"], 1200)
    (tmp_path / "words.txt").write_text(" ".join(words))
    return tmp_path


def settings(**changes):
    return Settings(**{"text": Path("words.txt"), "encodings": ("rotary",), "seeds": 2, "steps": 2} | changes)


def trials(**changes):
    return prepare(settings(lengths=(1.0,), **changes), TINY).trials


def run(found, folder="runs", **options):
    """Results, the keys of what was run now, and the warnings."""
    fresh, warnings = [], []
    results = run_all(
        found,
        Store(Path(folder), warnings.append),
        jobs=1,
        done=lambda result, new: fresh.append(result["key"]) if new else None,
        **options,
    )
    return results, fresh, warnings


def start(folder, steps, jobs):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(steps), str(jobs)],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)


# --- the store -------------------------------------------------------------------------------------------------------


def test_what_is_stored_is_not_run_again(folder):
    found = trials()
    results, fresh, _ = run(found)
    assert sorted(fresh) == sorted(results) == sorted(trial.key for trial in found)
    again, fresh, warnings = run(found)
    assert (fresh, warnings) == ([], [])
    assert again == json.loads(json.dumps(results))
    assert not list(Path("runs").glob(".*"))


@pytest.mark.parametrize("damage", ["", "{", "[1, 2]", '{"key": "another"}', "\xff not JSON"])
def test_a_damaged_file_is_named_and_run_again(folder, damage):
    found = trials()
    before, _, _ = run(found)
    path = Path("runs") / f"{found[1].key}.json"
    path.write_bytes(damage.encode("latin-1"))
    after, fresh, warnings = run(found)
    assert fresh == [found[1].key]
    assert len(warnings) == 1
    assert path.name in warnings[0]
    assert "damaged" in warnings[0]
    assert after[found[1].key]["rows"] == before[found[1].key]["rows"]
    assert run(found)[1:] == ([], [])


def test_other_settings_are_kept_beside(folder):
    first = trials()
    run(first)
    kept = {path: path.read_bytes() for path in Path("runs").iterdir()}
    _, fresh, _ = run(trials(steps=3))
    assert len(fresh) == len(first)
    assert {path: path.read_bytes() for path in kept} == kept
    assert len(list(Path("runs").iterdir())) == 2 * len(first)


def test_a_draft_that_was_never_finished_is_no_result(folder, monkeypatch):
    (trial, *_) = trials()
    store = Store(Path("runs"), pytest.fail)

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        store.write(run_trial(trial))
    monkeypatch.undo()
    assert store.read(trial.key) is None


# --- stopped and continued -------------------------------------------------------------------------------------------


def stored(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("[!.]*.json")}


def test_a_killed_comparison_continues(folder):
    process = start(folder, steps=25, jobs=1)
    with contextlib.closing(process.stderr):
        wait_for(lambda: len(stored(folder)) >= 2 or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    kept = stored(folder)
    assert 2 <= len(kept) < 9, "killed in the middle"
    assert not (folder / "report.html").exists()
    found = trials(encodings=("rotary", "alibi"), seeds=3, steps=25)
    results, fresh, warnings = run(found)
    assert warnings == []
    assert len(results) == 9
    assert len(fresh) == 9 - len(kept)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_ctrl_c_ends_with_130_and_keeps_what_is_finished(folder):
    process = start(folder, steps=100, jobs=2)
    with contextlib.closing(process.stderr):
        wait_for(lambda: len(stored(folder)) >= 1 or process.poll() is not None)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers as well
        errors = process.stderr.read()
        assert process.wait(30) == 130
    assert "Traceback" not in errors
    assert 1 <= len(stored(folder)) < 9
    assert not (folder / "report.html").exists()
    wait_for(lambda: not alive(process.pid))  # no worker is left


def test_a_worker_that_dies_is_said_and_what_is_finished_is_kept(folder):
    found = trials(encodings=("rotary", "alibi"), seeds=3, steps=40)
    parent = psutil.Process()

    def done(result, fresh):
        workers = [child for child in parent.children() if "LokyProcess" in " ".join(child.cmdline())]
        workers[0].kill()

    store = Store(Path("runs"), pytest.fail)
    with pytest.raises(WorkerLost, match="finished trials are kept"):
        run_all(found, store, jobs=2, done=done)
    assert 1 <= len(stored(folder)) < len(found)


def test_the_command_ends_with_130(folder, monkeypatch, capsys):
    from posenc import cli

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("posenc.compare._run_trials", stopped)
    monkeypatch.setattr(sys, "argv", ["posenc", "compare", "--text", "words.txt", "--encodings", "alibi"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert "the same command continues" in capsys.readouterr().err


def test_all_of_it_again_runs_nothing(folder):
    lines = [io.StringIO(), io.StringIO()]
    for stream in lines:
        compare(settings(jobs=1, seeds=2), Console(file=stream, width=200), TINY)
    first, again = (stream.getvalue() for stream in lines)
    assert "trials 4/4" in first
    assert "loss" in first
    assert "left" in first
    assert "seed 0" not in again.replace("trials 4/4", "")  # only the last, stored, step is said
    assert "Wrote report.html" in again


# --- a cluster -------------------------------------------------------------------------------------------------------


def test_no_scheduler_is_bad_input():
    with pytest.raises(BadInput, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        connect("tcp://127.0.0.1:9", timeout=0.5)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_cluster_that_loses_a_worker_finishes(folder):
    from distributed import LocalCluster

    found = trials(encodings=("rotary", "alibi"), seeds=2, steps=30)
    killed = []
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1", silence_logs=50
    ) as cluster:

        def done(result, fresh):
            if not killed:
                worker = next(iter(cluster.workers.values()))
                killed.append(worker.process.process.pid)
                os.kill(killed[0], signal.SIGKILL)

        store = Store(Path("runs"), pytest.fail)
        results = run_all(found, store, dask=cluster.scheduler_address, done=done)
        settings = Settings(
            tasks=("digits",),
            encodings=("rotary",),
            seeds=1,
            steps=2,
            lengths=(1.0,),
            dask=cluster.scheduler_address,
            out=Path("dask.html"),
            runs=Path("dask-runs"),
        )
        compare(settings, sizes=TINY)
    assert "Rotary" in Path("dask.html").read_text()  # the whole command, on what is left of the cluster
    assert len(list(Path("dask-runs").glob("*.json"))) >= 2
    assert len(killed) == 1
    assert sorted(results) == sorted(trial.key for trial in found)
    here = run_trial(found[-1])
    assert results[here["key"]]["rows"] == here["rows"]


@pytest.mark.parametrize("content", ['{{"key": "{key}"}}', '{{"key": "{key}", "rows": {{}}}}', "[" * 200_000])
def test_a_file_with_the_right_key_and_no_result_counts_as_missing(folder, content):
    Path("runs").mkdir(exist_ok=True)
    warnings = []
    store = Store(Path("runs"), warnings.append)
    store.path("k").write_text(content.format(key="k"))
    assert store.read("k") is None
    assert len(warnings) == 1
    assert "is damaged" in warnings[0]
