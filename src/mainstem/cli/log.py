"""Show a log buffer file: its metadata, its tails, its frames."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from mainstem.aeron.directory import default_directory, image_path, publication_path
from mainstem.aeron.tools.log_walk import LogFile
from mainstem.cli._options import DirectoryOption, FrameLimitOption, JsonOption, PayloadBytesOption, argument, flag
from mainstem.cli._output import console, moment, pick, print_json
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from mainstem.aeron.tools.log_walk import LogFrame

HEX_LINE = 16
HEADINGS = f"{'position':>20} {'term':>11} {'offset':>13} {'length':>12} {'type':>5} {'flag':4} reserved"


def run(
    log: Annotated[str, argument("A log buffer file, or the registration id of a publication or image.")],
    directory: DirectoryOption = "",
    limit: FrameLimitOption = 50,
    tail: Annotated[bool, flag("--tail", "Show the newest frames instead of the oldest.")] = False,
    payload_bytes: PayloadBytesOption = 0,
    padding: Annotated[bool, flag("--padding/--no-padding", "Show padding frames.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Show a log buffer file: its metadata, its tails, its frames.

    The file may be in use. It is read without being mapped, so that a sparse file stays sparse.

    Example: mainstem log 7 --tail --payload-bytes 64
    """
    with LogFile(_path(log, directory or default_directory())) as file:
        walked = (
            frame
            for partition in file.partitions_in_order()
            for frame in file.frames(partition, payload_limit=payload_bytes)
            if padding or frame.type_name != "PAD"
        )
        shown = list(deque(walked, maxlen=limit) if tail else islice(walked, limit))
        if as_json:
            print_json({"metadata": _metadata(file), "frames": [frame_row(each) for each in shown]})
            return
        out = console()
        for name, value in _metadata(file).items():
            if name != "tails":
                out.print(Text(f"{name.replace('_', ' '):24} {value}"))
        for i, (term_id, offset) in enumerate(file.tails()):
            active = "  ← active" if i == file.state.active_term_count % 3 else ""
            out.print(Text(f"{f'tail {i}':24} term {term_id} offset {offset:,}{active}"))
        out.print()
        show_frames(out, shown)


def _path(log: str, directory: str) -> str:
    if log.isdigit():
        own = int(log)
        candidates = (publication_path(directory, own), image_path(directory, own))
        found = next((each for each in candidates if Path(each).exists()), None)
        if found is None:
            raise ConfigurationError(
                f"{directory} has no publication or image {log}; `mainstem streams` lists their registration ids"
            )
        return found
    return log


def _metadata(file: LogFile) -> dict[str, object]:
    state = file.state
    return {
        "file": state.path,
        "made": "unknown" if state.created_ms is None else moment(state.created_ms),
        "type": state.log_type.name.lower().replace("_", " "),
        **pick(state, "registration_id session_id stream_id length allocated term_length mtu initial_term_id"),
        **pick(state, "active_term_count producer_position is_connected active_transports"),
        "end_of_stream": state.end_of_stream if state.is_ended else None,
        "is_revoked": state.is_revoked,
        "publication_window": state.publication_window_length,
        "receiver_window": state.receiver_window_length,
        "spies_simulate_connection": state.spies_simulate_connection,
        "tails": [{"term_id": term_id, "offset": offset} for term_id, offset in file.tails()],
    }


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
