"""Publish a recording again, at the pace at which it was recorded or as fast as can be."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli._channels import check_publication
from mainstem.cli._directory import INT32, DirectoryOption
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
from mainstem.cli._stream import ChannelArgument, PatienceOption, amount, connect, stopping, wait_until
from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import ConfigurationError
from mainstem.recording import open_recordings
from mainstem.recording.play import play

if TYPE_CHECKING:
    from mainstem.recording import RecordingReader

MAX_SHOWN = 10  # recordings that an error names


def run(
    place: PlaceArgument,
    channel: ChannelArgument,
    stream: Annotated[int, typer.Option("--stream", "-s", help="The stream id to publish on.", **INT32)],
    speed: Annotated[
        str, typer.Option("--speed", help="1 is the pace of the recording, 10 ten times that, or max.")
    ] = "1",
    begin: Annotated[str, typer.Option("--from", "--since", help=FROM_HELP)] = "",
    end: Annotated[str, typer.Option("--to", "--until", help=TO_HELP)] = "",
    recording: RecordingOption = None,
    session: SessionOption = None,
    directory: DirectoryOption = "",
    patience: PatienceOption = 10.0,
    store_option: StoreOption = None,
) -> None:
    """Publish a recording again, at the pace at which it was recorded or as fast as can be.

    Each message comes once, in order, with its reserved value. Where there are several recordings, --recording chooses one. The
    pace is that of the index: exact to 100 ms, and steady in between. A subscriber that is slower holds the player back.

    Example: mainstem play tides aeron:udp?endpoint=localhost:20121 --stream 1001 --speed 10
    """
    check_publication(channel)
    factor = _speed(speed)
    where = filters(begin=begin, end=end, recording_id=recording, session_id=session)
    with ExitStack() as stack:
        recordings = stack.enter_context(open_recordings(place, pairs(store_option, "--store-option")))
        reader, first, last = _only(list(recordings.spans(where)), place)
        stop = stack.enter_context(stopping())
        aeron = stack.enter_context(connect(directory, "play"))
        publication = stack.enter_context(aeron.add_exclusive_publication(channel, stream))
        wait_until(lambda: publication.is_connected, "no subscriber connected", patience=patience, stop=stop)
        start_ns = SYSTEM_CLOCK.monotonic_ns()
        played = play(
            reader,
            publication,
            first,
            last,
            clock=SYSTEM_CLOCK,
            sleep=time.sleep,
            speed=factor,
            timeout=patience or None,
            asked=lambda: stop.asked,
        )
    seconds = max((SYSTEM_CLOCK.monotonic_ns() - start_ns) / NS_PER_SECOND, 1e-9)
    rate = amount(played.messages / seconds, played.octets / seconds).strip()
    say(f"played {played.messages:,} messages, {played.octets:,} bytes: {rate}")


def _speed(text: str) -> float:
    """The multiple of the recording's pace; 0 for as fast as can be."""
    if text == "max":
        return 0.0
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < math.inf:
        raise ConfigurationError(f"--speed: {text!r} is neither a number above 0 nor max")
    return speed


def _only(spans: list[tuple[RecordingReader, int, int]], place: str) -> tuple[RecordingReader, int, int]:
    if len(spans) == 1:
        return spans[0]
    if not spans:
        raise ConfigurationError(f"{place} holds nothing to play within these limits")
    shown = [f"{r.descriptor.recording_id} (stream {r.descriptor.stream_id})" for r, _, _ in spans[:MAX_SHOWN]]
    more = f" and {len(spans) - MAX_SHOWN} more" if len(spans) > MAX_SHOWN else ""
    raise ConfigurationError(f"{place} holds several recordings: choose one with --recording: {', '.join(shown)}{more}")
