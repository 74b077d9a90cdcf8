"""Tables of numbers for people: every number is shown whole, in a terminal of any width and in a pipe."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from mainstem._internal.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import ConsoleOptions, RenderableType

NO_WIDTH = 1 << 20  # of a pipe, a file and a terminal of unknown width: nothing is cut or wrapped there
LEAST_TEXT = 12  # columns that a shortened text has at least
GAP = "  "  # between two columns of a table


class _PrintableConsole(Console):
    """Prints text that other programs chose: what a terminal would obey is escaped, and nothing in it is markup."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text, keep="\n"), segment.style)


def console() -> Console:
    """Returns a console as wide as the terminal; a pipe has no width, whatever COLUMNS says."""
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
        """Returns the columns' widths for lines of ``width``, or the least that there can be."""
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
        """Returns whether lines of ``width`` have room for all numbers."""
        widths = self.widths(width)
        return sum(widths) + len(GAP) * (len(widths) - 1) <= width

    def lines(self, width: int) -> list[Text]:
        """Returns the lines, the headings first."""
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
    """Returns a text of at most ``width`` characters, with an ellipsis for the rest; a number in it goes whole or not at all."""
    if len(text) <= width:
        return text
    end = max(width - 1, 0)
    while end and text[end].isdigit() and text[end - 1].isdigit():
        end -= 1
    return text[:end] + "…"


def print_table(out: Console, table: Table) -> None:
    """Prints a table."""
    for line in table.lines(out.width):
        out.print(line, soft_wrap=True)


def print_title(out: Console, name: str, text: str) -> None:
    """Prints one bold line: a name with numbers, which is shown whole, and a text, which is shortened to what is left."""
    room = max(out.width - len(name) - len(GAP), LEAST_TEXT)
    out.print(Text(f"{name}{GAP}{shorten(text, room)}", style="bold"), soft_wrap=True)
