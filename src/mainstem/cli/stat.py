"""Show a driver's counters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from mainstem.aeron.tools.select import Selection, counter_row, rates, snapshot_header
from mainstem.cli._drivers import Inspection, print_header, take_snapshot
from mainstem.cli._options import flag, option
from mainstem.cli._output import Column, Table, number, print_json, print_table, rate
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

    from mainstem.aeron.counters import CounterSnapshot
    from mainstem.aeron.tools.reading import DirectoryReader
    from mainstem.aeron.tools.snapshot import Snapshot


def run(
    inspection: Inspection,
    types: Annotated[
        list[str] | None, option("--type", "TYPE", "Show only counters of this type (snd-pos, system, 4).", "all")
    ] = None,
    label: Annotated[str, option("--label", "REGEX", "Show only labels that match this regular expression.")] = "",
    nonzero: Annotated[bool, flag("--nonzero", "Leave out counters that are 0.")] = False,
) -> None:
    """Show a driver's counters.

    Reads any driver's directory, Mainstem's or the reference's; it needs read permission only. With --watch, each counter also
    has its rate.

    Example: mainstem stat --watch

    Example: mainstem stat --type snd-pos --nonzero
    """
    try:
        pattern = re.compile(label) if label else None
    except re.error as error:
        raise ConfigurationError(f"--label must be a regular expression (got {label!r}): {error}") from None
    selection = Selection(
        types=frozenset(types or ()),
        session_id=inspection.session,
        stream_id=inspection.stream,
        channel=inspection.channel,
        label=pattern,
        hide_zero=nonzero,
    )
    before: Snapshot | None = None

    def show(out: Console, reader: DirectoryReader) -> None:
        nonlocal before
        now = take_snapshot(reader)
        chosen = [c for c in now.counters if selection.matches(c)]
        if inspection.as_json:
            print_json(snapshot_header(now) | {"counters": [counter_row(c) for c in chosen]})
        else:
            print_header(out, now)
            print_table(out, _table(chosen, rates(before, now, chosen) if inspection.watch else None))
        before = now

    inspection.run(show)


def _table(counters: list[CounterSnapshot], rising: dict[int, float] | None = None) -> Table:
    """Return the counters as a table, with a column of rates if they are known."""
    columns = [Column("id", "right"), Column("value", "right"), Column("label", "cut")]
    rows = [[str(c.counter_id), number(c.value), c.label] for c in counters]
    if rising is not None:
        columns.insert(2, Column("rate", "right"))
        for counter, row in zip(counters, rows, strict=True):
            row.insert(2, rate(rising[counter.counter_id]) if counter.counter_id in rising else "")
    return Table(columns, rows)
