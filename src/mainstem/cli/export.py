"""Write recordings as Parquet, CSV, JSON lines or Arrow, without Spark."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from mainstem.cli._codecs import CodecOption, CodecOptions, codec_of
from mainstem.cli._logs import say
from mainstem.cli._recordings import (
    FROM_HELP,
    TO_HELP,
    PlaceArgument,
    RecordingOption,
    SessionOption,
    StoreOption,
    filters,
    pairs,
)
from mainstem.errors import ConfigurationError
from mainstem.recording import open_recordings
from mainstem.recording.export import KINDS, PAYLOADS, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator


def run(
    place: PlaceArgument,
    kind: Annotated[str, typer.Option("--to", help=f"The format: {', '.join(KINDS)}.")],
    out: Annotated[str, typer.Option("--out", "-o", help="The file to write; - is standard output.")] = "-",
    columns: Annotated[str, typer.Option("--columns", "-c", help="Only these columns, with commas between.")] = "",
    recording: RecordingOption = None,
    stream: Annotated[list[int] | None, typer.Option("--stream", "-s", help="Only this stream id; repeatable.")] = None,
    session: SessionOption = None,
    begin: Annotated[str, typer.Option("--since", help=FROM_HELP)] = "",
    end: Annotated[str, typer.Option("--until", help=TO_HELP)] = "",
    frames: Annotated[bool, typer.Option("--frames", help="A row for each frame, not for each message.")] = False,
    payload: Annotated[
        str, typer.Option("--payload", help=f"How CSV and JSON lines have payloads: {', '.join(PAYLOADS)}.")
    ] = "base64",
    lossy: Annotated[bool, typer.Option("--lossy", help="Pass over what is damaged or missing; else fail.")] = False,
    codec: CodecOption = "",
    option: CodecOptions = None,
    store_option: StoreOption = None,
) -> None:
    """Write recordings as Parquet, CSV, JSON lines or Arrow, without Spark.

    A row is a message, with the columns of the Spark source; with --codec it has the columns of ingest. A file appears under
    its name when it is whole. Arrow is the stream
    format of its IPC.

    Example: mainstem export tides --to parquet -o tides.parquet --stream 1001 --since 2026-01-31T12:00:00
    """
    where = filters(begin=begin, end=end, recording_id=recording, stream_id=stream, session_id=session)
    names = [name.strip() for name in columns.split(",")] if columns else None
    with open_recordings(place, pairs(store_option, "--store-option")) as recordings:
        rows = recordings.scan(names, where, frames=frames, strict=not lossy, codec=codec_of(codec, option)).to_reader()
        with _output(out) as file:
            count = write_rows(rows, file, kind, payload=payload)
    say(f"wrote {count:,} rows to {'standard output' if out == '-' else out}")


@contextmanager
def _output(name: str) -> Iterator[IO[bytes]]:
    """Standard output, or a file that takes its name when it is whole and is gone when it is not."""
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    if path.is_dir():
        raise ConfigurationError(f"--out: {path} is a directory")
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
