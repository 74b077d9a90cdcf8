"""Progress bars on standard error, so that standard output holds results only; nothing where it is no terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from rich.progress import TaskID


class ProgressBars:
    """One bar for each stage, in the order in which the stages begin. A context manager."""

    def __init__(self) -> None:
        # A descriptor of its own: while a child is started, standard error may lead elsewhere.
        self._file = os.fdopen(os.dup(2), "w", encoding="utf-8")
        console = Console(file=self._file)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressBars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()
        self._file.close()

    def stage(self, name: str, total: int | None) -> None:
        """Begins a stage, or sets its size once it is known."""
        if name in self._tasks:
            if total is not None:
                self._bars.update(self._tasks[name], total=total)
        else:
            self._tasks[name] = self._bars.add_task(name, total=total)

    def progress(self, name: str, done: int) -> None:
        """Sets how much of a stage is done."""
        self._bars.update(self._tasks[name], completed=done)

    def done(self, name: str) -> None:
        """Ends a stage: the bar is full and its clock stops."""
        task = self._tasks[name]
        total = next(bar.total for bar in self._bars.tasks if bar.id == task) or 1
        self._bars.update(task, total=total, completed=total)
        self._bars.stop_task(task)
