"""Every example runs as a newcomer would run it, says something, and fits on one screen; every page's code runs too."""

from __future__ import annotations

import doctest
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import posenc
from posenc import catalog

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


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


# --- pages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_code_of_a_page_runs_and_prints_what_it_says(page: Path) -> None:
    blocks = [text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == "python"]
    assert all(text.startswith(">>> ") for text in blocks), "code that prints nothing is shown to nobody"
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    examples = parser.get_doctest("\n".join(blocks), {"torch": torch, "posenc": posenc}, page.name, str(page), 0)
    assert runner.run(examples).failed == 0
    assert bool(blocks) == (page.stem != "schemes")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.stem)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    anchors = {heading.lower().replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if link.startswith("#"):
            assert link[1:] in anchors, link
        elif not link.startswith("https://"):
            assert (page.parent / link.partition("#")[0]).exists(), link


def test_the_page_of_schemes_is_that_of_the_cards() -> None:
    written = (ROOT / "docs" / "schemes.md").read_text(encoding="utf-8")
    assert written == runpy.run_path(str(ROOT / "docs" / "schemes.py"))["page"](), "run python docs/schemes.py"


def test_the_page_of_sources_names_each_that_is_read() -> None:
    text = (ROOT / "docs" / "trained-elsewhere.md").read_text(encoding="utf-8")
    said = {
        name: re.findall(r"`([^`]+)`", rest)
        for name, rest in re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)
    }
    known = {card.name: sorted(getattr(posenc, card.name).foreign) for card in catalog.CARDS}
    assert said == {name: sources for name, sources in known.items() if sources}


def test_the_page_of_scalings_names_each() -> None:
    text = (ROOT / "docs" / "longer-sequences.md").read_text(encoding="utf-8")
    said = re.findall(r"^\| `(\w+)\(", text, re.MULTILINE)
    assert sorted(said) == sorted(set(posenc.scaling.__all__) - {"Scaling", "spectrum"})
