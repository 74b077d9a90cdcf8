"""Show a driver's counters, live."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from mainstem.aeron.tools.select import Selection, counter_row, rates, snapshot_header
from mainstem.cli._directory import (
    ChannelOption,
    DirectoryOption,
    IntervalOption,
    JsonOption,
    SessionOption,
    StreamOption,
    header,
    number,
    open_directory,
    print_header,
    print_json,
    rate,
    should_watch,
    take_snapshot,
)
from mainstem.cli._table import Column, Table, console, print_table
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from mainstem.aeron.counters import CounterSnapshot
    from mainstem.aeron.tools.snapshot import Snapshot

LINES_AROUND = 3  # headings, and the line with the number of counters left out


def run(
    directory: DirectoryOption = "",
    types: Annotated[
        list[str] | None,
        typer.Option("--type", "-t", help="Only counters of this type (snd-pos, system, 4); repeatable."),
    ] = None,
    session: SessionOption = None,
    stream: StreamOption = None,
    channel: ChannelOption = "",
    label: Annotated[str, typer.Option("--label", "-l", help="Only labels that match this regular expression.")] = "",
    active: Annotated[bool, typer.Option("--active", "-a", help="Leave out counters that are 0.")] = False,
    interval: IntervalOption = 1.0,
    watch: Annotated[
        bool | None, typer.Option("--watch/--once", help="Go on, or print once (default: go on in a terminal).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a driver's counters, live.

    Reads any driver's directory, Mainstem's or the reference's; it needs read permission only. With --json each sample is one
    document.

    Example: mainstem stat --type snd-pos --active
    """
    try:
        pattern = re.compile(label) if label else None
    except re.error as error:
        raise ConfigurationError(f"--label: {label!r} is not a regular expression: {error}") from None
    selection = Selection(
        types=frozenset(types or ()),
        session_id=session,
        stream_id=stream,
        channel=channel,
        label=pattern,
        hide_zero=active,
    )
    going_on = should_watch(watch) if not as_json else bool(watch)
    with open_directory(directory) as reader:
        now = take_snapshot(reader)
        if as_json:
            print_json(_document(now, selection))
            while going_on:
                time.sleep(interval)
                print_json(_document(take_snapshot(reader), selection))
            return
        out = console()
        if not going_on:
            print_header(out, now)
            print_table(out, _table([c for c in now.counters if selection.matches(c)]))
            return
        with Live(_page(now, None, selection, out), console=out, auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(interval)
                before, now = now, take_snapshot(reader)
                live.update(_page(now, before, selection, out), refresh=True)


def _document(snapshot: Snapshot, selection: Selection) -> dict[str, object]:
    chosen = [counter_row(c) for c in snapshot.counters if selection.matches(c)]
    return snapshot_header(snapshot) | {"counters": chosen}


def _table(counters: list[CounterSnapshot], rising: dict[int, float] | None = None) -> Table:
    """Returns the counters as a table, with a column of rates when they are known."""
    columns = [Column("id", "right"), Column("value", "right"), Column("label", "cut")]
    rows = [[str(c.counter_id), number(c.value), c.label] for c in counters]
    if rising is not None:
        columns.insert(2, Column("rate", "right"))
        for counter, row in zip(counters, rows, strict=True):
            row.insert(2, rate(rising[counter.counter_id]) if counter.counter_id in rising else "")
    return Table(columns, rows)


def _page(now: Snapshot, before: Snapshot | None, selection: Selection, screen: Console) -> RenderableType:
    chosen = [c for c in now.counters if selection.matches(c)]
    title = Text(header(now), style="bold")
    around = LINES_AROUND + len(title.wrap(screen, screen.width))
    shown = chosen[: max(1, screen.height - around)]
    parts: list[RenderableType] = [title, *_table(shown, rates(before, now, chosen)).lines(screen.width)]
    if len(shown) < len(chosen):
        parts.append(
            Text(f"… {len(chosen) - len(shown)} more: choose with --type, --stream, --active, or print all with --once")
        )
    return Group(*parts)
