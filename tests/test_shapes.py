"""The shapes in signatures are true: part of the suite runs again with each of them checked at every call.

In a process of its own, as a checked function is not one that torch can compile into one graph.
"""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=TESTS,
        env={**os.environ, "POSENC_CHECK_SHAPES": "1", "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_shapes_in_signatures_hold() -> None:
    finished = run(
        "test_laws.py", "test_attention.py", "-k", "reference or padded or packed or prefix or masks or nothing"
    )
    assert finished.returncode == 0, finished.stdout[-4000:]


def test_a_wrong_shape_is_found(tmp_path: Path) -> None:
    wrong = tmp_path / "test_wrong.py"
    wrong.write_text(
        "import posenc, torch\n"
        "from posenc.term import Bias\n"
        "def test_wrong():\n"
        "    Bias(posenc.Relative(posenc.sequence(3)), torch.zeros(2, 5))\n"
    )
    finished = run(str(wrong), "--rootdir", str(TESTS.parent), "--confcutdir", str(TESTS), "-p", "conftest")
    assert finished.returncode == 1
    assert "TypeCheckError" in finished.stdout
