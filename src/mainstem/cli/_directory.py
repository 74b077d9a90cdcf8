"""What the commands that read a driver's directory share: options, snapshots, times, JSON."""

from __future__ import annotations

import csv
import os
import stat
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from mainstem._internal.printable import printable, printable_json
from mainstem.aeron.directory import CNC_FILE, default_directory
from mainstem.aeron.files import other_owner
from mainstem.aeron.tools.reading import DirectoryReader
from mainstem.aeron.tools.stream_state import DRIVER_TIMEOUT_MS
from mainstem.cli._numbers import finite
from mainstem.clock import SYSTEM_CLOCK
from mainstem.errors import ConfigurationError, DriverTimeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from mainstem.aeron.tools.snapshot import Snapshot

INT32 = {"min": -(1 << 31), "max": (1 << 31) - 1}  # of session and stream ids
DirectoryOption = Annotated[
    str, typer.Option("--dir", "-d", help="The driver's directory (default: AERON_DIR, or this user's own).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SessionOption = Annotated[int | None, typer.Option("--session", help="Only this session id.", **INT32)]
StreamOption = Annotated[int | None, typer.Option("--stream", "-s", help="Only this stream id.", **INT32)]
ChannelOption = Annotated[str, typer.Option("--channel", "-c", help="Only channels that contain this text.")]
IntervalOption = Annotated[
    float, typer.Option("--interval", "-i", min=0.05, callback=finite, help="Seconds between two samples.")
]


SHARED_MEMORY = Path("/dev/shm")
MAX_SHOWN = 4  # of them, in a hint
MAX_DIRECTORIES = 64  # that are searched for other drivers, for a hint


def open_directory(directory: str) -> DirectoryReader:
    """Opens a directory, or the default one. Raises DriverTimeout with a hint where there is no driver."""
    place = directory or default_directory()
    try:
        return DirectoryReader(place)
    except DriverTimeout as error:
        if not str(error).startswith("no media driver"):
            raise
        raise DriverTimeout(f"{error}; {hint_of_drivers(place)}", timeout=error.timeout) from None


def hint_of_drivers(place: str) -> str:
    """Returns what to do where a directory has no driver: choose one that runs on this machine, or start one."""
    start = f"`mainstem driver --dir {place}` starts one"
    running = running_drivers()
    if not running:
        return start
    more = f" and {len(running) - MAX_SHOWN} more" if len(running) > MAX_SHOWN else ""
    return f"{start}, --dir or AERON_DIR chooses one that runs: {', '.join(running[:MAX_SHOWN])}{more}"


def running_drivers() -> list[str]:
    """Returns this user's directories in shared memory with a driver that is alive.

    Directories of other users are not opened: nobody named them, and what is in them is anybody's.
    """
    running = []
    own = [path.parent for path in sorted(SHARED_MEMORY.glob(f"*/{CNC_FILE}")) if _is_own(path.parent)]
    for path in own[:MAX_DIRECTORIES]:
        try:
            with DirectoryReader(str(path)) as reader:
                if take_snapshot(reader).is_driver_alive(DRIVER_TIMEOUT_MS):
                    running.append(str(path))
        except (DriverTimeout, ConfigurationError):
            continue
    return running


def _is_own(path: Path) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and not other_owner(status)


def take_snapshot(reader: DirectoryReader, *, logs: bool = False) -> Snapshot:
    """Takes a snapshot of this moment."""
    return reader.snapshot(epoch_ms=SYSTEM_CLOCK.epoch_ms(), now_ns=SYSTEM_CLOCK.monotonic_ns(), logs=logs)


def take_snapshots(reader: DirectoryReader, count: int, seconds: float) -> list[Snapshot]:
    """Takes ``count`` snapshots with logs, spread over that time."""
    snapshots = [take_snapshot(reader, logs=True)]
    for _ in range(count - 1):
        time.sleep(seconds / (count - 1))
        snapshots.append(take_snapshot(reader, logs=True))
    return snapshots


def print_json(value: object) -> None:
    """Prints one JSON document: one line in a pipe, indented in a terminal."""
    print(printable_json(value, indent=2 if sys.stdout.isatty() else None), flush=True)


def print_csv(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """Prints rows as CSV with a header."""
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: printable(v, keep="\n") if isinstance(v, str) else v for name, v in row.items()} for row in rows
    )


def header(snapshot: Snapshot) -> str:
    """Returns the driver's identity and state in one line."""
    age = snapshot.heartbeat_age_ms
    if age is not None:
        beat = f"heartbeat age {age:,} ms"
    else:
        beat = "shut down" if snapshot.heartbeat_ms < 0 else "no heartbeat yet"
    return (
        f"{snapshot.directory}  CnC v{snapshot.version_text}  pid {snapshot.pid}  {beat}  {moment(snapshot.epoch_ms)}"
    )


def print_header(out: Console, snapshot: Snapshot) -> None:
    """Prints the driver's identity and state, bold; in several lines where the terminal is narrow."""
    out.print(Text(header(snapshot), style="bold"))


def moment(epoch_ms: int) -> str:
    """Returns a time in the local zone, as in 2026-01-31 12:00:00.000, or the number if there is no such time."""
    try:
        return _local(epoch_ms)
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms} ms"


def _local(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def clock_time(epoch_ms: int) -> str:
    """Returns the time of day of a moment."""
    return moment(epoch_ms)[11:]


def number(value: int | None) -> str:
    """Returns a number with its thousands apart; a dash for none."""
    return "-" if value is None else f"{value:,}"


def rate(value: float) -> str:
    """Returns a rate a second, abbreviated."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.1f}{unit}/s"
    return f"{value:.0f}/s"


def should_watch(watch: bool | None) -> bool:
    """Returns whether to go on: as the option says, else in a terminal."""
    return sys.stdout.isatty() if watch is None else watch
