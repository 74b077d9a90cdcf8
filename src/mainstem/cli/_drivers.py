"""Access to media drivers: find one, read its directory once or repeatedly, connect a client, wait for peers."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.text import Text

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem._internal.units import format_size
from mainstem.aeron.client import Aeron
from mainstem.aeron.client.base import attaching
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.client.waiting import run
from mainstem.aeron.cnc import ATTACH_POLL_INTERVAL_NS
from mainstem.aeron.directory import CNC_FILE, default_directory
from mainstem.aeron.files import other_owner
from mainstem.aeron.tools.reading import DirectoryReader
from mainstem.aeron.tools.select import snapshot_header
from mainstem.aeron.tools.stream_state import DRIVER_TIMEOUT_MS
from mainstem.aeron.tools.streams import group_streams
from mainstem.cli._options import (
    ChannelOption,
    DirectoryOption,
    IntervalOption,
    JsonOption,
    SessionOption,
    StreamOption,
    WatchOption,
    directory_option,
)
from mainstem.cli._output import moment, print_json, show_again
from mainstem.cli._process import say
from mainstem.errors import ConfigurationError, DriverTimeout, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from mainstem.aeron.client import ExclusivePublication, Publication
    from mainstem.aeron.client.waiting import Wait
    from mainstem.aeron.tools.snapshot import Snapshot
    from mainstem.aeron.tools.streams import Stream
    from mainstem.cli._process import Stop

SHARED_MEMORY = Path("/dev/shm")
MAX_SHOWN = 4  # drivers in a hint
MAX_DIRECTORIES = 64  # directories to search for other drivers, for a hint
SILENT_NS = NS_PER_SECOND  # steps that take no longer print nothing
POLL_S = 0.001  # seconds between two checks of a condition


def open_directory(directory: str) -> DirectoryReader:
    """Open a directory, or the default one. Raises DriverTimeout with a hint if no driver runs there."""
    directory = directory or default_directory()
    try:
        return DirectoryReader(directory)
    except DriverTimeout as error:
        if not str(error).startswith("no media driver"):
            raise
        raise DriverTimeout(f"{error}; {hint_of_drivers(directory)}", timeout=error.timeout) from None


def hint_of_drivers(directory: str) -> str:
    """Return a hint for a directory without a driver: start one, or choose one that is running on this host.

    It names the option that the running command has for the driver's directory, if it has one.
    """
    start = f"`mainstem driver --dir {directory}` starts one"
    running = running_drivers()
    if not running:
        return start
    more = f" and {len(running) - MAX_SHOWN} more" if len(running) > MAX_SHOWN else ""
    option = directory_option()
    choice = f"{option} or AERON_DIR" if option else "AERON_DIR"
    return f"{start}, {choice} chooses one that runs: {', '.join(running[:MAX_SHOWN])}{more}"


def running_drivers() -> list[str]:
    """Return this user's directories in shared memory that have a live driver.

    Other users' directories are not opened: nobody asked for them, and their content cannot be trusted.
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


def chosen_directories(directories: list[str] | None, *, all_drivers: bool) -> list[str]:
    """Return the directories from ``--dir`` and ``--all-drivers``, without duplicates; by default, the default directory."""
    chosen = (running_drivers() if all_drivers else []) + [each or default_directory() for each in directories or ()]
    return list(dict.fromkeys(chosen)) or [default_directory()]


def _is_own(path: Path) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and not other_owner(status)


def take_snapshot(reader: DirectoryReader, *, logs: bool = False) -> Snapshot:
    """Take a snapshot."""
    return reader.snapshot(epoch_ms=SYSTEM_CLOCK.epoch_ms(), now_ns=SYSTEM_CLOCK.monotonic_ns(), logs=logs)


def take_snapshots(reader: DirectoryReader, count: int, seconds: float) -> list[Snapshot]:
    """Take ``count`` snapshots with logs, evenly spread over ``seconds``."""
    snapshots = [take_snapshot(reader, logs=True)]
    for _ in range(count - 1):
        time.sleep(seconds / (count - 1))
        snapshots.append(take_snapshot(reader, logs=True))
    return snapshots


def print_header(out: Console, snapshot: Snapshot) -> None:
    """Print the driver's identity and state in bold. Narrow terminals wrap it."""
    age = snapshot.heartbeat_age_ms
    if age is not None:
        beat = f"heartbeat age {age:,} ms"
    else:
        beat = "shut down" if snapshot.heartbeat_ms < 0 else "no heartbeat yet"
    identity = f"{snapshot.directory}  CnC v{snapshot.version_text}  pid {snapshot.pid}"
    out.print(Text(f"{identity}  {beat}  {moment(snapshot.epoch_ms)}", style="bold"))


class _HasStream(Protocol):
    @property
    def session_id(self) -> int: ...
    @property
    def stream_id(self) -> int: ...
    @property
    def channel(self) -> str: ...


@dataclass
class StreamFilter:
    """The options that select a driver and the streams that a command shows."""

    directory: DirectoryOption = ""
    session: SessionOption = None
    stream: StreamOption = None
    channel: ChannelOption = ""

    def matches(self, each: _HasStream) -> bool:
        """Return whether a stream, or an entry about one, is shown."""
        return (
            self.session in (None, each.session_id)
            and self.stream in (None, each.stream_id)
            and self.channel in each.channel
        )


@dataclass
class Inspection(StreamFilter):
    """The options of a command that shows a driver's state, once or with ``watch`` every ``interval`` seconds."""

    watch: WatchOption = False
    interval: IntervalOption = 1.0
    as_json: JsonOption = False

    def run(self, show: Callable[[Console, DirectoryReader], None]) -> None:
        with open_directory(self.directory) as reader:
            show_again(lambda out: show(out, reader), watch=self.watch, interval=self.interval, as_json=self.as_json)

    def run_for_streams(
        self, row: Callable[[Stream], dict[str, Any]], show: Callable[[Console, list[Stream]], None]
    ) -> None:
        """Show the selected streams: ``row`` converts each one for the JSON document, ``show`` prints them."""

        def sample(out: Console, reader: DirectoryReader) -> None:
            snapshot = take_snapshot(reader, logs=True)
            chosen = [stream for stream in group_streams(snapshot) if self.matches(stream)]
            if self.as_json:
                print_json(snapshot_header(snapshot) | {"streams": [row(stream) for stream in chosen]})
                return
            print_header(out, snapshot)
            if chosen:
                show(out, chosen)
            else:
                out.print("no streams")

        self.run(sample)


def connect(directory: str, command: str) -> Aeron:
    """Connect a client that other tools show as ``mainstem-COMMAND-PID``, with a notice if it takes longer than a second."""
    name = {} if "AERON_CLIENT_NAME" in os.environ else {"client_name": f"mainstem-{command}-{os.getpid()}"}
    context = ClientContext.build(directory or None, None, None, name)
    directory = context.settings.dir
    notice = SlowStepNotice(
        f"waiting for a media driver in {directory}, {context.settings.driver_timeout_ns / NS_PER_SECOND:g} s at most"
    )

    def pause(_: Wait | None) -> None:
        notice.step()
        time.sleep(ATTACH_POLL_INTERVAL_NS / NS_PER_SECOND)

    try:
        conductor = run(attaching(context), pause)
    except DriverTimeout as error:
        raise DriverTimeout(f"{error}; {hint_of_drivers(directory)}", timeout=error.timeout) from None
    return Aeron.made(conductor)


def check_length(length: int, publication: Publication | ExclusivePublication) -> None:
    """Raise ConfigurationError if generated messages are too long for the publication."""
    longest = publication.max_message_length
    if length > longest:
        raise ConfigurationError(
            f"--size must be at most {format_size(longest)} on this channel (got {format_size(length)}): an eighth of a term, at "
            "most 16m; use a longer term for longer messages (term-length=64m in the channel)"
        )


class SlowStepNotice:
    """A line that is printed to standard error once something has taken longer than a second."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._due_ns = SYSTEM_CLOCK.monotonic_ns() + SILENT_NS

    def step(self) -> None:
        """Print the line if it is due, but only once."""
        if self._text and SYSTEM_CLOCK.monotonic_ns() >= self._due_ns:
            say(f"mainstem: {self._text}")
            self._text = ""


def wait_until(condition: Callable[[], bool], what: str, *, timeout: float, stop: Stop | None = None) -> None:
    """Wait until a condition is true. Raises Timeout after ``timeout`` seconds; 0 waits forever."""
    begin_ns = SYSTEM_CLOCK.monotonic_ns()
    limit = f"for {timeout:g} s" if timeout > 0 else "without limit"
    notice = SlowStepNotice(f"{what} yet; waiting {limit} (--timeout)")
    while not condition():
        notice.step()
        if stop is not None and stop.requested:
            return
        if timeout > 0 and SYSTEM_CLOCK.monotonic_ns() - begin_ns > timeout * 1e9:
            raise Timeout(f"{what} within {timeout:g} s", timeout=timeout)
        time.sleep(POLL_S)
