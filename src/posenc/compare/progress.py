"""What is seen while a comparison runs: a bar on a terminal, a line a trial elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["Reporter"]


class Reporter:
    """Tells a console of warnings, finished trials, the loss and the time left."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar: Progress | None = None

    def warn(self, message: str) -> None:
        """A warning, once it matters."""
        self.console.print(f"[yellow]warning:[/yellow] {escape(message)}", highlight=False, soft_wrap=True)

    def say(self, message: str) -> None:
        """A line."""
        self.console.print(escape(message), highlight=False, soft_wrap=True)

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator["Stage"]:
        """A bar for so many steps."""
        stage = Stage(self, title, total)
        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description:12}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                TextColumn("{task.fields[last]}"),
            )
            with Progress(*columns, console=self.console, transient=False) as bar:
                stage.bar, stage.identity = bar, bar.add_task(title, total=total, left="", last="")
                yield stage
        else:
            yield stage


class Stage:
    """One bar. Steps that were already stored count as done, and not towards the speed."""

    def __init__(self, reporter: Reporter, title: str, total: int) -> None:
        self.reporter, self.title, self.total = reporter, title, total
        self.bar: Progress | None = None
        self.identity: Any = None
        self.done = self.fresh = 0
        self.started = time.monotonic()

    def step(self, text: str, fresh: bool = True) -> None:
        """One step is done."""
        self.done += 1
        self.fresh += fresh
        left = self._left()
        if self.bar is not None:
            self.bar.update(self.identity, completed=self.done, left=left, last=escape(text))
        elif fresh or self.done == self.total:
            self.reporter.say(f"{self.title} {self.done}/{self.total}  {text}{'  ' + left if left else ''}")

    def _left(self) -> str:
        if not self.fresh or self.done >= self.total:
            return ""
        seconds = (time.monotonic() - self.started) / self.fresh * (self.total - self.done)
        return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"
