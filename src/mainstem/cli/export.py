"""Write recordings as Parquet, CSV, JSON lines or Arrow, without Spark."""

from __future__ import annotations

from typing import Annotated

from mainstem.cli._options import (
    FORMAT_HELP,
    CodecChoice,
    LocationArgument,
    OutOption,
    RecordingsOption,
    SessionsOption,
    SinceOption,
    StoreOption,
    StreamsOption,
    UntilOption,
    choice,
    filters,
    flag,
    option,
    store_options,
)
from mainstem.cli._output import output_file
from mainstem.cli._process import say
from mainstem.recording import open_recordings
from mainstem.recording.export import KINDS, PAYLOADS, write_rows

ROWS = ("messages", "frames")


def run(
    location: LocationArgument,
    kind: Annotated[str, choice("--format", KINDS, FORMAT_HELP)],
    codec: CodecChoice,
    out: OutOption = "-",
    columns: Annotated[str, option("--columns", "NAME,...", "Write only these columns.", "all")] = "",
    recording: RecordingsOption = None,
    stream: StreamsOption = None,
    session: SessionsOption = None,
    since: SinceOption = "",
    until: UntilOption = "",
    rows: Annotated[str, choice("--rows", ROWS, "What a row is.")] = "messages",
    payload_encoding: Annotated[
        str, choice("--payload-encoding", PAYLOADS, "How payloads are written in CSV and JSON lines.")
    ] = "base64",
    strict: Annotated[
        bool, flag("--strict/--no-strict", "Fail at corrupt or missing data, instead of skipping it.")
    ] = True,
    store_option: StoreOption = None,
) -> None:
    """Write recordings as Parquet, CSV, JSON lines or Arrow, without Spark.

    A row is a message, with the columns of the Spark source; with --codec it has the columns of ingest. A file appears under
    its name when it is complete; `-` is standard output, and pipes and devices are written to directly. Arrow is its IPC
    stream format.

    Example: mainstem export tides --format parquet -o tides.parquet --stream 1001 --since 2026-01-31T12:00:00
    """
    where = filters(since=since, until=until, recording_id=recording, stream_id=stream, session_id=session)
    names = [name.strip() for name in columns.split(",")] if columns else None
    chosen = codec.find()
    with open_recordings(location, store_options(store_option, location)) as recordings:
        reader = recordings.scan(names, where, frames=rows == "frames", strict=strict, codec=chosen).to_reader()
        with output_file(out) as file:
            count = write_rows(reader, file, kind, payload=payload_encoding)
    say(f"wrote {count:,} rows to {'standard output' if out == '-' else out}")
