"""Write recordings as Parquet, CSV, JSON lines or Arrow, without Spark."""

from __future__ import annotations

from typing import Annotated, Any

from mainstem.cli._options import (
    CODEC_OPTIONS,
    FORMAT_HELP,
    LocationArgument,
    OutOption,
    RecordingsOption,
    SessionsOption,
    SinceOption,
    StoreOption,
    StreamsOption,
    UntilOption,
    check_store_options,
    choice,
    flag,
    option,
)
from mainstem.cli._output import output_file
from mainstem.cli._process import say
from mainstem.recording.export import KINDS, PAYLOADS, ROWS, ExportOptions, open_rows, write_rows

OPTIONS: dict[str, Any] = {
    "location": LocationArgument,
    "format": choice("--format", KINDS, FORMAT_HELP, "by the name of the file"),
    **CODEC_OPTIONS,
    "out": OutOption,
    "columns": option("--columns", "NAME,...", "Write only these columns.", "all"),
    "recordings": RecordingsOption,
    "streams": StreamsOption,
    "sessions": SessionsOption,
    "since": SinceOption,
    "until": UntilOption,
    "rows": choice("--rows", ROWS, "What a row is."),
    "payload_encoding": choice("--payload-encoding", PAYLOADS, "How payloads are written in CSV and JSON lines."),
    "strict": flag("--strict/--no-strict", "Fail at corrupt or missing data, instead of skipping it."),
    "store_options": StoreOption,
}


def run(options: Annotated[ExportOptions, OPTIONS]) -> None:
    """Write recordings as Parquet, CSV, JSON lines or Arrow, without Spark.

    A row is a message, with the columns of the Spark source; with --codec it has the columns of ingest. A file appears under
    its name when it is complete; `-` is standard output, and pipes and devices are written to directly. Arrow is its IPC
    stream format.

    Example: mainstem export tides -o tides.parquet --stream 1001 --since 2026-01-31T12:00:00
    """
    check_store_options(options.store_options, options.location)
    kind = options.kind
    with open_rows(options) as rows, output_file(options.out) as file:
        count = write_rows(rows, file, kind, payload=options.payload_encoding)
    say(f"wrote {count:,} rows to {'standard output' if options.out == '-' else options.out}")
