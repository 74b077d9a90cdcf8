"""Show a driver's counters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from mainstem.aeron.tools.select import Selection, counter_rates, counter_row, snapshot_header
from mainstem.cli._drivers import Inspection, print_header, take_snapshot
from mainstem.cli._options import flag, option
from mainstem.cli._output import Column, print_json, print_table, rate, table_of
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

    from mainstem.aeron.tools.reading import DirectoryReader
    from mainstem.aeron.tools.snapshot import Snapshot

COLUMNS = (
    Column("id", "id", "The counter id."),
    Column("value", "right", "Its value."),
    Column("label", "cut", "What it counts, and of which stream or client."),
)


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
        rows = [counter_row(c) for c in chosen]
        if inspection.as_json:
            print_json(snapshot_header(now) | {"counters": rows})
        else:
            print_header(out, now)
            columns = list(COLUMNS)
            if inspection.watch:
                shown = {own: rate(per_second) for own, per_second in counter_rates(before, now, chosen).items()}
                columns.insert(2, Column("rate", "right", show=lambda row: shown.get(row["id"], "")))
            print_table(out, table_of(columns, rows))
        before = now

    inspection.run(show)
