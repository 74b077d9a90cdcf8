"""What commands print: tables whose numbers are never cut, JSON, CSV, screens that are refreshed, progress bars."""

from __future__ import annotations

import csv
import errno
import os
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.text import Text

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem._internal.printable import printable, printable_json
from mainstem.cli._process import stopping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import ConsoleOptions, RenderableType
    from rich.progress import TaskID

    from mainstem.aeron.tools.latency import RateMeter

NO_WIDTH = 1 << 20  # of a pipe, a file and a terminal of unknown width: nothing is cut or wrapped there
LEAST_TEXT = 12  # columns that a shortened text has at least
GAP = "  "  # between two columns of a table
STEP_S = 0.05  # between two checks for a signal, while a screen waits for its next sample
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class _PrintableConsole(Console):
    """Prints text that other programs chose: what a terminal would obey is escaped, and nothing in it is markup."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text, keep="\n"), segment.style)

    def on_broken_pipe(self) -> None:
        """Leave it to `main`; rich would end the process with status 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def console() -> Console:
    """Return a console as wide as the terminal; a pipe has no width, whatever COLUMNS says."""
    width = None if sys.stdout.isatty() else NO_WIDTH
    return _PrintableConsole(width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its heading, and how its cells are laid out.

    The cells of ``right`` and ``left`` columns are numbers and names, which are shown whole whatever the width is; ``cut`` and
    ``wrap`` columns hold text, which is shortened or goes on in the next line.
    """

    heading: str
    layout: Literal["right", "left", "cut", "wrap"] = "left"

    @property
    def is_text(self) -> bool:
        """Whether the column may be narrower than its cells."""
        return self.layout in ("cut", "wrap")


@dataclass(frozen=True)
class Table:
    """A table without rules. Numbers are never cut: text columns shrink, and then lines are longer than the terminal is wide."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    styles: Sequence[str] = ()  # of the rows; plain ones when left out

    def widths(self, width: int) -> list[int]:
        """Return the columns' widths for lines of ``width``, or the least that there can be."""
        widths = [
            max([len(column.heading), *(len(row[i]) for row in self.rows)]) for i, column in enumerate(self.columns)
        ]
        while (excess := sum(widths) + len(GAP) * (len(widths) - 1) - width) > 0:
            widest = max(
                (i for i, column in enumerate(self.columns) if column.is_text and widths[i] > self._least(i)),
                key=lambda i: widths[i],
                default=None,
            )
            if widest is None:
                break
            widths[widest] = max(self._least(widest), widths[widest] - excess)
        return widths

    def fits(self, width: int) -> bool:
        """Return whether lines of ``width`` have room for all numbers."""
        widths = self.widths(width)
        return sum(widths) + len(GAP) * (len(widths) - 1) <= width

    def lines(self, width: int) -> list[Text]:
        """Return the lines, the headings first."""
        widths = self.widths(width)
        lines = self._row([column.heading for column in self.columns], widths, "bold")
        for i, row in enumerate(self.rows):
            lines += self._row(row, widths, self.styles[i] if self.styles else "")
        return lines

    def _least(self, i: int) -> int:
        return max(LEAST_TEXT, len(self.columns[i].heading))

    def _row(self, cells: Sequence[str], widths: Sequence[int], style: str) -> list[Text]:
        parts = [
            wrap(cell, width, break_long_words=False, break_on_hyphens=False) or [""]
            if column.layout == "wrap"
            else [shorten(cell, width) if column.is_text else cell]
            for column, cell, width in zip(self.columns, cells, widths, strict=True)
        ]
        lines = []
        for line in zip_longest(*parts, fillvalue=""):
            text = GAP.join(
                cell.rjust(width) if column.layout == "right" else cell.ljust(width)
                for column, cell, width in zip(self.columns, line, widths, strict=True)
            )
            lines.append(Text(text.rstrip(), style, no_wrap=True, overflow="ignore"))
        return lines


def shorten(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters, with an ellipsis for the rest; a number in it goes whole or not at all."""
    if len(text) <= width:
        return text
    end = max(width - 1, 0)
    while end and text[end].isdigit() and text[end - 1].isdigit():
        end -= 1
    return text[:end] + "…"


def print_table(out: Console, table: Table) -> None:
    """Print a table."""
    for line in table.lines(out.width):
        out.print(line, soft_wrap=True)


def print_title(out: Console, name: str, text: str) -> None:
    """Print one bold line: a name with numbers, which is shown whole, and a text, which is shortened to what is left."""
    room = max(out.width - len(name) - len(GAP), LEAST_TEXT)
    out.print(Text(f"{name}{GAP}{shorten(text, room)}", style="bold"), soft_wrap=True)


def show_again(show: Callable[[Console], None], *, watch: bool, interval: float, as_json: bool) -> None:
    """Call ``show`` once, or with ``watch`` every ``interval`` seconds until a signal."""
    out = console()
    if not watch:
        show(out)
        return
    in_place = sys.stdout.isatty() and not as_json
    with stopping() as stop:
        if in_place:
            sys.stdout.write(HOME + REST_OF_SCREEN)
        while not stop.requested:
            due_ns = SYSTEM_CLOCK.monotonic_ns() + round(interval * NS_PER_SECOND)
            if in_place:
                _show_in_place(show, out)
            else:
                show(out)
            sys.stdout.flush()
            while not stop.requested and (left_ns := due_ns - SYSTEM_CLOCK.monotonic_ns()) > 0:
                time.sleep(min(STEP_S, left_ns / NS_PER_SECOND))


def _show_in_place(show: Callable[[Console], None], out: Console) -> None:
    with out.capture() as capture:
        show(out)
    lines = capture.get().splitlines()
    room = max(out.height - 1, 1)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more lines"]
    # One write: the screen never shows half of a sample.
    sys.stdout.write(HOME + "".join(f"{line}{REST_OF_LINE}\n" for line in lines) + REST_OF_SCREEN)


def print_json(value: object) -> None:
    """Print one JSON document: one line in a pipe, indented in a terminal."""
    print(printable_json(value, indent=2 if sys.stdout.isatty() else None), flush=True)


def print_rows(rows: Sequence[dict[str, Any]], columns: Sequence[str], *, as_json: bool, as_csv: bool) -> bool:
    """Print rows as JSON, or as CSV with a header; returns whether it did either."""
    if as_json:
        print_json(rows)
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: printable(v, keep="\n") if isinstance(v, str) else v for name, v in row.items()} for row in rows
        )
    return as_json or as_csv


def pick(source: object, names: str) -> dict[str, Any]:
    """Return some attributes by their names, which are separated by blanks."""
    return {name: getattr(source, name) for name in names.split()}


def moment(epoch_ms: int) -> str:
    """Return a time in the local zone, as in 2026-01-31 12:00:00.000, or the number if there is no such time."""
    try:
        return datetime.fromtimestamp(epoch_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms} ms"


def clock_time(epoch_ms: int) -> str:
    """Return the time of day of a moment."""
    return moment(epoch_ms)[11:]


def number(value: int | None) -> str:
    """Return a number with its thousands apart; a dash for none."""
    return "-" if value is None else f"{value:,}"


def rate(value: float) -> str:
    """Return a rate a second, abbreviated."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.1f}{unit}/s"
    return f"{value:.0f}/s"


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
        """Begin a stage, or set its size once it is known."""
        if name in self._tasks:
            if total is not None:
                self._bars.update(self._tasks[name], total=total)
        else:
            self._tasks[name] = self._bars.add_task(name, total=total)

    def progress(self, name: str, done: int) -> None:
        """Set how much of a stage is done."""
        self._bars.update(self._tasks[name], completed=done)

    def done(self, name: str) -> None:
        """End a stage: the bar is full and its clock stops."""
        task = self._tasks[name]
        total = next(bar.total for bar in self._bars.tasks if bar.id == task) or 1
        self._bars.update(task, total=total, completed=total)
        self._bars.stop_task(task)


def amount(messages: float, nbytes: float) -> str:
    """Return messages and bytes a second."""
    return f"{messages:>12,.0f} messages/s  {nbytes / 1e6:>10,.3f} MB/s"


def totals(meter: RateMeter) -> str:
    """Return messages, bytes and rates since the beginning."""
    overall = amount(*meter.overall(SYSTEM_CLOCK.monotonic_ns())).strip()
    return f"{meter.messages:,} messages, {meter.nbytes:,} bytes: {overall}"
