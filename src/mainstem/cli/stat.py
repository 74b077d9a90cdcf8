"""Show a driver's counters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.aeron.tools.select import Selection, counter_row, rates, snapshot_header
from mainstem.cli._drivers import inspect, print_header, take_snapshot
from mainstem.cli._options import (
    ChannelOption,
    DirectoryOption,
    IntervalOption,
    JsonOption,
    SessionOption,
    StreamOption,
    WatchOption,
)
from mainstem.cli._output import Column, Table, number, print_json, print_table, rate
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

    from mainstem.aeron.counters import CounterSnapshot
    from mainstem.aeron.tools.reading import DirectoryReader
    from mainstem.aeron.tools.snapshot import Snapshot


def run(
    directory: DirectoryOption = "",
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="TYPE", help="Show only counters of this type (snd-pos, system, 4).", show_default="all"
        ),
    ] = None,
    session: SessionOption = None,
    stream: StreamOption = None,
    channel: ChannelOption = "",
    label: Annotated[
        str, typer.Option("--label", metavar="REGEX", help="Show only labels that match this regular expression.")
    ] = "",
    nonzero: Annotated[bool, typer.Option("--nonzero", help="Leave out counters that are 0.")] = False,
    watch: WatchOption = False,
    interval: IntervalOption = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Show a driver's counters.

    Reads any driver's directory, Mainstem's or the reference's; it needs read permission only. With --watch each counter has
    its rate, too.

    Example: mainstem stat --watch

    Example: mainstem stat --type snd-pos --nonzero
    """
    try:
        pattern = re.compile(label) if label else None
    except re.error as error:
        raise ConfigurationError(f"--label must be a regular expression (got {label!r}): {error}") from None
    selection = Selection(
        types=frozenset(types or ()),
        session_id=session,
        stream_id=stream,
        channel=channel,
        label=pattern,
        hide_zero=nonzero,
    )
    before: Snapshot | None = None

    def show(out: Console, reader: DirectoryReader) -> None:
        nonlocal before
        now = take_snapshot(reader)
        chosen = [c for c in now.counters if selection.matches(c)]
        if as_json:
            print_json(snapshot_header(now) | {"counters": [counter_row(c) for c in chosen]})
        else:
            print_header(out, now)
            print_table(out, _table(chosen, rates(before, now, chosen) if watch else None))
        before = now

    inspect(directory, show, watch=watch, interval=interval, as_json=as_json)


def _table(counters: list[CounterSnapshot], rising: dict[int, float] | None = None) -> Table:
    """Return the counters as a table, with a column of rates when they are known."""
    columns = [Column("id", "right"), Column("value", "right"), Column("label", "cut")]
    rows = [[str(c.counter_id), number(c.value), c.label] for c in counters]
    if rising is not None:
        columns.insert(2, Column("rate", "right"))
        for counter, row in zip(counters, rows, strict=True):
            row.insert(2, rate(rising[counter.counter_id]) if counter.counter_id in rising else "")
    return Table(columns, rows)
