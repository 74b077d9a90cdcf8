"""Show what a driver's receivers lost and requested again."""

from __future__ import annotations

from dataclasses import asdict

from mainstem.cli._drivers import StreamFilter, open_directory
from mainstem.cli._options import CsvOption, JsonOption
from mainstem.cli._output import Column, Table, console, moment, number, print_rows, print_table, print_title

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


def run(which: StreamFilter, as_csv: CsvOption = False, as_json: JsonOption = False) -> None:
    """Show what a driver's receivers lost and requested again, one line per image, from its loss report.

    A gap counts once, however often it was requested: "bytes" are the bytes of all gaps.

    Example: mainstem loss --stream 1001 --csv
    """
    with open_directory(which.directory) as reader:
        entries = [entry for entry in reader.losses() if which.matches(entry)]
    if print_rows([asdict(e) for e in entries], COLUMNS, as_json=as_json, as_csv=as_csv):
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
