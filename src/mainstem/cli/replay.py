"""Replay a recording onto a channel, at its original pace or at full speed."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.aeron.tools.channel_checks import check_publication
from mainstem.cli._drivers import connect, wait_until
from mainstem.cli._options import (
    STREAM_HELP,
    ChannelArgument,
    DirectoryOption,
    LocationArgument,
    RecordingsOption,
    SessionsOption,
    SinceOption,
    StoreOption,
    TimeoutOption,
    UntilOption,
    id_option,
    option,
    store_options,
)
from mainstem.cli._output import amount
from mainstem.cli._process import say, stopping
from mainstem.errors import ConfigurationError
from mainstem.recording import open_recordings, replay
from mainstem.recording.rows.filters import filters_of

if TYPE_CHECKING:
    from mainstem.recording import RecordingReader

MAX_SHOWN = 10  # recordings listed in an error


def run(
    location: LocationArgument,
    channel: ChannelArgument,
    stream: Annotated[int, id_option("--stream -s", STREAM_HELP)],
    speed: Annotated[
        str, option("--speed", "FACTOR", "1 is the original pace, 10 is ten times that, max is full speed.")
    ] = "1",
    since: SinceOption = "",
    until: UntilOption = "",
    recording: RecordingsOption = None,
    session: SessionsOption = None,
    directory: DirectoryOption = "",
    timeout: TimeoutOption = 10.0,
    store_option: StoreOption = None,
) -> None:
    """Replay a recording onto a channel, at its original pace or at full speed.

    Each message is sent once, in order, with its reserved value. If there are several recordings, choose one with
    --recording. The pace follows the index: exact to 100 ms, and steady in between. A slower subscriber slows the replay down.

    Example: mainstem replay tides 'aeron:udp?endpoint=localhost:20121' --stream 1001 --speed 10
    """
    check_publication(channel)
    factor = _speed(speed)
    now_ns = SYSTEM_CLOCK.epoch_ns()
    where = filters_of(since=since, until=until, now_ns=now_ns, recording_id=recording, session_id=session)
    with ExitStack() as stack:
        recordings = stack.enter_context(open_recordings(location, store_options(store_option, location)))
        reader, first, last = _only(list(recordings.spans(where)), location)
        stop = stack.enter_context(stopping())
        aeron = stack.enter_context(connect(directory, "replay"))
        publication = stack.enter_context(aeron.add_exclusive_publication(channel, stream))
        wait_until(lambda: publication.is_connected, "no subscriber connected", timeout=timeout, stop=stop)
        start_ns = SYSTEM_CLOCK.monotonic_ns()
        replayed = replay(
            reader, publication, first, last, speed=factor, timeout=timeout or None, should_stop=lambda: stop.requested
        )
    seconds = max((SYSTEM_CLOCK.monotonic_ns() - start_ns) / NS_PER_SECOND, 1e-9)
    rate = amount(replayed.messages / seconds, replayed.nbytes / seconds).strip()
    say(f"replayed {replayed.messages:,} messages, {replayed.nbytes:,} bytes: {rate}")


def _speed(text: str) -> float:
    """Return the multiple of the recording's pace; 0 means full speed."""
    if text == "max":
        return 0.0
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < math.inf:
        raise ConfigurationError(f"--speed must be a number above 0, or max (got {text!r})")
    return speed


def _only(spans: list[tuple[RecordingReader, int, int]], location: str) -> tuple[RecordingReader, int, int]:
    if len(spans) == 1:
        return spans[0]
    if not spans:
        raise ConfigurationError(f"{location} has nothing to replay within these limits")
    if len({id(reader) for reader, _, _ in spans}) == 1:
        shown = [f"{first} to {last}" for _, first, last in spans[:MAX_SHOWN]]
        raise ConfigurationError(
            f"recording {spans[0][0].descriptor.recording_id} of {location} has several ranges of these sessions; choose one with"
            f" --since and --until: {', '.join(shown)}"
        )
    shown = [f"{r.descriptor.recording_id} (stream {r.descriptor.stream_id})" for r, _, _ in spans[:MAX_SHOWN]]
    more = f" and {len(spans) - MAX_SHOWN} more" if len(spans) > MAX_SHOWN else ""
    raise ConfigurationError(
        f"{location} has several recordings; choose one with --recording: {', '.join(shown)}{more}"
    )
