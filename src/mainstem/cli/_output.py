"""Output of commands: listings as tables that never cut numbers, JSON and CSV; refreshed screens; progress bars; files.

Pipes and devices are written in place; other files get their name once they are complete.
"""

from __future__ import annotations

import csv
import errno
import os
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import IO, TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.text import Text

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem._internal.printable import printable, printable_json
from mainstem.cli._process import stopping
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import ConsoleOptions, RenderableType
    from rich.progress import TaskID

    from mainstem.aeron.tools.latency import RateMeter

NO_WIDTH = 1 << 20  # width of pipes, files and unknown terminals: nothing is cut or wrapped
LEAST_TEXT = 12  # minimum width of a shortened text
GAP = "  "  # between columns of a table
STEP_S = 0.05  # seconds between checks for a signal while a screen waits for its next sample
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class _PrintableConsole(Console):
    """Prints untrusted text: escapes control sequences, and interprets nothing as markup."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text, keep="\n"), segment.style)

    def on_broken_pipe(self) -> None:
        """Let `main` handle the error; rich would end the process with status 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def console() -> Console:
    """Return a console as wide as the terminal. A pipe has no width, whatever COLUMNS says."""
    width = None if sys.stdout.isatty() else NO_WIDTH
    return _PrintableConsole(width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a listing. The table, the help, the reference page, and the JSON and CSV of ``print_rows`` are made from it.

    Cells are numbers (``right``), ids (``id``, without thousands separators) and names (``left``), which are always shown in full,
    or text, which is shortened (``cut``) or wrapped (``wrap``).

    ``name`` is the key in JSON and CSV, ``heading`` that of the table. ``cell`` returns a row's value; by default, the row has it
    under ``name``. ``show`` returns a row's text, if it is more than the formatted value.
    """

    name: str
    layout: Literal["right", "id", "left", "cut", "wrap"] = "left"
    meaning: str = ""
    heading: str = ""
    cell: Callable[[Any], Any] | None = None
    show: Callable[[Any], str] | None = None

    @property
    def title(self) -> str:
        return self.heading or self.name

    @property
    def is_text(self) -> bool:
        """Whether the column can be narrower than its cells."""
        return self.layout in ("cut", "wrap")

    @property
    def is_right(self) -> bool:
        return self.layout in ("right", "id")

    def value(self, row: Any) -> Any:
        """Return the value of a row, for JSON and CSV."""
        if self.cell is not None:
            return self.cell(row)
        return row[self.name] if isinstance(row, dict) else getattr(row, self.name)

    def text(self, row: Any) -> str:
        """Return the value of a row, for people. No value is a dash."""
        if self.show is not None:
            return self.show(row)
        value = self.value(row)
        values = value if isinstance(value, list) else [value]
        numbers = self.layout == "right"
        return ", ".join(number(each) if numbers else str(each) for each in values if each is not None) or "-"


@dataclass(frozen=True)
class Table:
    """A table without rules. Numbers are never cut: text columns shrink first, and then lines exceed the terminal's width."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    styles: Sequence[str] = ()  # one per row; if empty, rows are plain

    def widths(self, width: int) -> list[int]:
        """Return the widths of the columns for lines of ``width``, or the minimum widths."""
        widths = [
            max([len(column.title), *(len(row[i]) for row in self.rows)]) for i, column in enumerate(self.columns)
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
        """Return whether all numbers fit into lines of ``width``."""
        widths = self.widths(width)
        return sum(widths) + len(GAP) * (len(widths) - 1) <= width

    def lines(self, width: int) -> list[Text]:
        """Return the lines, headings first."""
        widths = self.widths(width)
        lines = self._row([column.title for column in self.columns], widths, "bold")
        for i, row in enumerate(self.rows):
            lines += self._row(row, widths, self.styles[i] if self.styles else "")
        return lines

    def _least(self, i: int) -> int:
        return max(LEAST_TEXT, len(self.columns[i].title))

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
                cell.rjust(width) if column.is_right else cell.ljust(width)
                for column, cell, width in zip(self.columns, line, widths, strict=True)
            )
            lines.append(Text(text.rstrip(), style, no_wrap=True, overflow="ignore"))
        return lines


def table_of(columns: Sequence[Column], rows: Iterable[Any], styles: Sequence[str] = ()) -> Table:
    """Return a table of rows."""
    return Table(columns, [[column.text(row) for column in columns] for row in rows], styles)


def row_of(columns: Sequence[Column], row: Any) -> dict[str, Any]:
    """Return a row for JSON."""
    return {column.name: column.value(row) for column in columns}


def shorten(text: str, width: int) -> str:
    """Shorten a text to ``width`` characters, with an ellipsis for the rest. Numbers are kept in full or dropped."""
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
    """Print one bold line: a name with numbers, which is shown in full, and a text, which is shortened to fit."""
    room = max(out.width - len(name) - len(GAP), LEAST_TEXT)
    out.print(Text(f"{name}{GAP}{shorten(text, room)}", style="bold"), soft_wrap=True)


def show_again(show: Callable[[Console], None], *, watch: bool, interval: float, as_json: bool) -> None:
    """Call ``show`` once or, with ``watch``, every ``interval`` seconds until a signal."""
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
    # Write once, so that the screen never shows half of a sample.
    sys.stdout.write(HOME + "".join(f"{line}{REST_OF_LINE}\n" for line in lines) + REST_OF_SCREEN)


def print_json(value: object) -> None:
    """Print one JSON document, on one line in a pipe and indented in a terminal."""
    print(printable_json(value, indent=2 if sys.stdout.isatty() else None), flush=True)


def print_rows(rows: Sequence[Any], columns: Sequence[Column], *, as_json: bool, as_csv: bool) -> bool:
    """Print rows as JSON, or as CSV with a header; return whether it did either."""
    shown = [row_of(columns, row) for row in rows]
    if as_json:
        print_json(shown)
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, [column.name for column in columns], lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: printable(v, keep="\n") if isinstance(v, str) else v for name, v in row.items()} for row in shown
        )
    return as_json or as_csv


def pick(source: object, names: str) -> dict[str, Any]:
    """Return the named attributes; ``names`` is separated by spaces."""
    return {name: getattr(source, name) for name in names.split()}


def moment(epoch_ms: int) -> str:
    """Format a time in the local zone, as in 2026-01-31 12:00:00.000, or return the number if there is no such time."""
    try:
        return datetime.fromtimestamp(epoch_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms} ms"


def clock_time(epoch_ms: int) -> str:
    """Format the time of day."""
    return moment(epoch_ms)[11:]


def number(value: int | None) -> str:
    """Format a number with thousands separators; None becomes a dash."""
    return "-" if value is None else f"{value:,}"


def rate(value: float) -> str:
    """Format a rate per second, abbreviated."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.1f}{unit}/s"
    return f"{value:.0f}/s"


def is_written_in_place(path: Path) -> bool:
    """Return whether replacing the file would not reach its reader: a pipe, a device, or a descriptor as in ``>(…)``."""
    return path.exists() and (not path.is_file() or path.is_relative_to("/dev") or path.is_relative_to("/proc"))


@contextmanager
def output_file(name: str, option: str = "--out") -> Iterator[IO[bytes]]:
    """Open standard output (``-``), a pipe or device, or a file that gets its name once complete and is deleted otherwise.

    Raises ConfigurationError if it cannot be written.
    """
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    if path.is_dir():
        raise ConfigurationError(f"{option}: {path} is a directory")
    in_place = is_written_in_place(path)
    part = path if in_place else path.with_name(f".{path.name}.part")
    try:
        file = part.open("wb")
    except OSError as error:
        raise ConfigurationError(f"{option}: {path} cannot be written: {error.strerror}") from error
    try:
        with file:
            yield file
            if not in_place:
                file.flush()
                os.fsync(file.fileno())
        if not in_place:
            part.replace(path)
    finally:
        if not in_place:
            part.unlink(missing_ok=True)


def write_secret(path: Path, text: str) -> None:
    """Write a secret to a new file that only its owner can read, or to a pipe or device.

    Raises ConfigurationError if the file exists or cannot be written.
    """
    flags = os.O_WRONLY | os.O_CLOEXEC | (0 if is_written_in_place(path) else os.O_CREAT | os.O_EXCL)
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        raise ConfigurationError(f"{path} already exists; name a new file, or delete it first") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
    except OSError as error:
        if flags & os.O_EXCL:
            with suppress(OSError):
                path.unlink()
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error


class ProgressBars:
    """A context manager that shows one bar per stage, in the order in which the stages begin."""

    def __init__(self) -> None:
        # Duplicate the descriptor, because standard error may be redirected while a child process is started.
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
        """End a stage: fill its bar and stop its clock."""
        task = self._tasks[name]
        total = next(bar.total for bar in self._bars.tasks if bar.id == task) or 1
        self._bars.update(task, total=total, completed=total)
        self._bars.stop_task(task)


def amount(messages: float, nbytes: float) -> str:
    """Format messages and bytes per second."""
    return f"{messages:>12,.0f} messages/s  {nbytes / 1e6:>10,.3f} MB/s"


def totals(meter: RateMeter) -> str:
    """Format messages, bytes and rates since the start."""
    overall = amount(*meter.overall(SYSTEM_CLOCK.monotonic_ns())).strip()
    return f"{meter.messages:,} messages, {meter.nbytes:,} bytes: {overall}"
