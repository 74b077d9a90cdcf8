"""Show what a driver's receivers lost and requested again."""

from __future__ import annotations

from dataclasses import asdict

from mainstem.cli._drivers import StreamFilter, open_directory
from mainstem.cli._options import (
    ChannelOption,
    CsvOption,
    DirectoryOption,
    JsonOption,
    SessionOption,
    StreamOption,
)
from mainstem.cli._output import Column, Table, console, moment, number, print_csv, print_json, print_table, print_title

TABLE_COLUMNS = (Column("  gaps", "right"), Column("bytes", "right"), Column("first"), Column("last"))
COLUMNS = (
    "observation_count",
    "total_bytes_lost",
    "first_observation_ms",
    "last_observation_ms",
    "session_id",
    "stream_id",
    "channel",
    "source",
)


def run(
    directory: DirectoryOption = "",
    session: SessionOption = None,
    stream: StreamOption = None,
    channel: ChannelOption = "",
    as_csv: CsvOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a driver's receivers lost and requested again, one line an image, from its loss report.

    A gap counts once, however often it was requested: "bytes" are the bytes of all gaps.

    Example: mainstem loss --stream 1001 --csv
    """
    which = StreamFilter(session, stream, channel)
    with open_directory(directory) as reader:
        entries = [entry for entry in reader.losses() if which.matches(entry)]
    rows = [asdict(e) for e in entries]
    if as_json:
        print_json(rows)
        return
    if as_csv:
        print_csv(rows, COLUMNS)
        return
    out = console()
    for entry in entries:
        print_title(
            out, f"stream {entry.stream_id}  session {entry.session_id}", f"{entry.channel}  from {entry.source}"
        )
        first, last = moment(entry.first_observation_ms), moment(entry.last_observation_ms)
        cells = (number(entry.observation_count), number(entry.total_bytes_lost), first, last)
        print_table(out, Table(TABLE_COLUMNS, [cells]))
    out.print(f"{len(entries)} image{'' if len(entries) == 1 else 's'} with losses")
