"""Show what a driver's receivers lost and requested again."""

from __future__ import annotations

from mainstem.cli._drivers import StreamFilter, open_directory
from mainstem.cli._options import CsvOption, JsonOption
from mainstem.cli._output import Column, console, moment, print_rows, print_table, print_title, table_of

TABLE = (
    Column("observation_count", "right", "How many gaps; one counts once, however often it was requested.", "  gaps"),
    Column("total_bytes_lost", "right", "The bytes of all gaps.", "bytes"),
    Column(
        "first_observation_ms",
        meaning="When the first gap was found.",
        heading="first",
        show=lambda entry: moment(entry.first_observation_ms),
    ),
    Column(
        "last_observation_ms",
        meaning="When the last gap was found.",
        heading="last",
        show=lambda entry: moment(entry.last_observation_ms),
    ),
)
COLUMNS = (*TABLE, Column("session_id"), Column("stream_id"), Column("channel"), Column("source"))


def run(which: StreamFilter, as_csv: CsvOption = False, as_json: JsonOption = False) -> None:
    """Show what a driver's receivers lost and requested again, one line per image, from its loss report.

    Example: mainstem loss --stream 1001 --csv
    """
    with open_directory(which.directory) as reader:
        entries = [entry for entry in reader.losses() if which.matches(entry)]
    if print_rows(entries, COLUMNS, as_json=as_json, as_csv=as_csv):
        return
    out = console()
    for entry in entries:
        print_title(
            out, f"stream {entry.stream_id}  session {entry.session_id}", f"{entry.channel}  from {entry.source}"
        )
        print_table(out, table_of(TABLE, [entry]))
    out.print(f"{len(entries)} image{'' if len(entries) == 1 else 's'} with losses")
