"""Print recordings and their frames."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from mainstem.cli._output import Column, Table, console, moment, number, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from mainstem.aeron.tools.log_walk import LogFrame

HEX_LINE = 16
# By the key of a row: the column in a list of recordings, and the function that formats a value.
COLUMNS: dict[str, tuple[Column, Callable[[Any], str]]] = {
    "archive": (Column("archive"), lambda text: text[-40:]),
    "host": (Column("host"), lambda text: text or "-"),
    "recording_id": (Column("id", "right"), str),
    "stream_id": (Column("stream", "right"), str),
    "session_id": (Column("session", "right"), str),
    "start_position": (Column("start", "right"), number),
    "end_position": (Column("end", "right"), number),
    "messages": (Column("messages", "right"), number),
    "state": (Column("state"), str),
    "start_timestamp": (Column("started"), lambda epoch_ms: moment(epoch_ms)[:19]),
    "channel": (Column("channel", "cut"), str),
}
HEADINGS = f"{'position':>20} {'term':>11} {'offset':>13} {'length':>12} {'type':>5} {'flag':4} reserved"


def recording_row(descriptor: Any) -> dict[str, Any]:
    """Convert a recording's descriptor for JSON."""
    return {
        "recording_id": descriptor.recording_id,
        "stream_id": descriptor.stream_id,
        "session_id": descriptor.session_id,
        "channel": descriptor.original_channel,
        "start_position": descriptor.start_position,
        "end_position": descriptor.stop_position,
        "state": "growing" if descriptor.stop_position < 0 else "ended",
        "start_timestamp": descriptor.start_timestamp,
        "stop_timestamp": descriptor.stop_timestamp,
    }


def print_recordings(rows: Sequence[dict[str, Any]], *, without: Sequence[str] = ()) -> None:
    """Print a list of recordings, ``without`` some columns."""
    shown = {name: column for name, column in COLUMNS.items() if name not in without}
    cells = [[text(row[name]) for name, (_, text) in shown.items()] for row in rows]
    print_table(console(), Table([column for column, _ in shown.values()], cells))


def frame_row(frame: LogFrame) -> dict[str, Any]:
    """Convert a frame for JSON."""
    return asdict(frame) | {"type": frame.type_name, "payload": frame.payload.hex()}


def show_frames(out: Console, shown: list[LogFrame]) -> None:
    """Print a line for each frame header, and the payload in hexadecimal."""
    if not shown:
        out.print("no frames")
        return
    out.print(Text(HEADINGS, style="bold"))
    for frame in shown:
        length = f"{frame.length:,}{' open' if frame.length < 0 else ''}"
        out.print(
            Text(
                f"{frame.position:>20,} {frame.term_id:>11} {frame.term_offset:>13,} {length:>12} {frame.type_name:>5} "
                f"{frame.flag_letters} {frame.reserved_value}"
            )
        )
        for line in hex_lines(frame.payload):
            out.print(Text("    " + line))


def hex_lines(data: bytes) -> Iterator[str]:
    """Yield lines of sixteen bytes: the offset, the bytes in hexadecimal, and the printable ones as text."""
    for at in range(0, len(data), HEX_LINE):
        part = data[at : at + HEX_LINE]
        letters = "".join(chr(b) if 32 <= b < 127 else "." for b in part)
        yield f"{at:04x}  {part.hex(' '):<{HEX_LINE * 3 - 1}}  {letters}"
