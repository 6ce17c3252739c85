"""Every example runs as a newcomer would run it, says something, and fits on one screen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert 5 <= len(EXAMPLES) <= 8


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    # Warnings from posenc or from torch would be the first thing a reader sees, so nothing may reach stderr.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    finished = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip()
    assert not finished.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_fits_on_a_screen(example: Path) -> None:
    lines = example.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60
    assert lines[0].startswith('"""')
    assert any(line.lstrip().startswith("assert ") for line in lines)
    assert any(line.lstrip().startswith("print(") for line in lines)
