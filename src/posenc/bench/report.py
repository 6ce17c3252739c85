"""Results of the scripts in `benchmarks/`: a line as soon as it is measured, a file of JSON, and a page."""

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from posenc.bench.goals import Result
from posenc.bench.machine import about
from posenc.bench.text import cells, headings, line

__all__ = ["Report", "parser"]

LIMITS = {"inference": "inference", "training": "training", "MiB": "inference_extra", "MiB, train": "training_extra"}


class Report:
    """Results as they come. The file and the page beside it are written anew after each, so that none is lost."""

    def __init__(self, title: str, path: Path | None, train: bool) -> None:
        self.title, self.path, self.train = title, path, train
        if path is not None:  # before anything takes its time
            path.parent.mkdir(parents=True, exist_ok=True)
        self.results: list[Result] = []
        self.goal = self.dtype = ""
        self.about = about()
        for name, value in self.about.items():
            print(f"{name}: {value}")
        print(f"command: {command()}\n\n{line(headings(train), train)}", flush=True)

    def add(self, result: Result) -> None:
        """Print a result, and write all so far."""
        self.results.append(result)
        heading = result.goal, result.row.setting.dtype
        if result.goal and heading != (self.goal, self.dtype):
            print(f"\n{result.goal}, {heading[1]}{_limits(result)}")
        self.goal, self.dtype = heading
        missed = f"  MISSED: {', '.join(result.missed)}" if result.missed else ""
        row = result.row
        text = row.refused if row.inference is None else line(cells(row, self.train), self.train)
        print(text + missed + (f"  {row.refused}" if row.refused != text and row.refused else ""), flush=True)
        if self.path is not None:
            self.path.write_text(json.dumps(self.as_dict(), indent=1) + "\n")
            self.path.with_suffix(".md").write_text(self.page())

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        results = [result.as_dict() for result in self.results]
        return {"title": self.title, "command": command(), "about": self.about, "results": results}

    def page(self) -> str:
        """Everything, in Markdown: a table for each goal and dtype."""
        facts = "; ".join(f"{name} {value}" for name, value in self.about.items())
        lines = [f"# {self.title}", "", f"    {command()}", "", facts.replace("_", " ") + ".", "", EXPLAINED]
        tables: dict[tuple[str, str], list[Result]] = {}
        for result in self.results:
            tables.setdefault((result.goal, result.row.setting.dtype), []).append(result)
        for (goal, dtype), results in tables.items():
            lines += ["", f"## {goal + ', ' if goal else ''}{dtype}", ""]
            if limits := _limits(results[0]).removeprefix(": "):
                lines += [f"Required: {limits}.", ""]
            lines += _table(results, self.train)
            lines += [f"\n{result.row.refused}" for result in results if result.row.refused]
        return "\n".join(lines) + "\n"

    def say(self, text: str) -> None:
        """Tell on stderr what is being measured."""
        print(f"… {text}", file=sys.stderr, flush=True)


EXPLAINED = (
    "A number is a ratio of medians to plain attention of the same dtype and causality (the smallest and the largest "
    "ratio within a turn). MiB: peak memory beyond plain's. Errors: the largest difference from float64 over the "
    "largest number (that of the dense path in the same dtype). Indented: other packages, in the same turns."
)


def parser(description: str | None, repeats: int) -> argparse.ArgumentParser:
    """The options that all scripts have."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--json", type=Path, metavar="FILE", help="write results here, and a page beside it (.md)")
    found.add_argument("--repeats", type=int, default=repeats, help=f"turns of all (default: {repeats})")
    found.add_argument("--device", default="cpu", help="cpu, cuda, … (default: cpu)")
    return found


def command() -> str:
    """The command that is running, with what it was told by the environment."""
    told = [f"{name}={os.environ[name]}" for name in ("POSENC_CPU_LEVEL", "OMP_NUM_THREADS") if name in os.environ]
    return shlex.join([*told, "python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def _limits(result: Result) -> str:
    """What is required, in words."""
    wanted = [(name, getattr(result.required, field)) for name, field in LIMITS.items()]
    texts = [f"{name} at most {most:g}" for name, most in wanted if most is not None]
    return f": {', '.join(texts)}" if texts else ""


def _table(results: list[Result], train: bool) -> list[str]:
    """Columns that have something in them; what was missed in bold, and why in the last."""
    names = [*headings(train), "missed"]
    rows = []
    for result in results:
        texts = dict(zip(names, [*cells(result.row, train), ", ".join(result.missed)], strict=True))
        texts["name"] = texts["name"].replace("  ", "&emsp;", 1) if texts["name"].startswith("  ") else texts["name"]
        for name, field in LIMITS.items():
            if field in result.missed:
                texts[name] = f"**{texts[name]}**"
        rows.append(texts)
    used = [name for name in names if any(texts.get(name) for texts in rows)]
    left = [name for name in used if name in ("name", "tokens", "backend")]
    rule = ["---" if name in left else "---:" for name in used]
    table = [used, rule, *([texts.get(name, "") for name in used] for texts in rows)]
    return ["| " + " | ".join(texts) + " |" for texts in table]
