"""Warnings about the driver as a whole, in addition to the diagnosis of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.counters import ChannelStatus, CounterType
from mainstem.aeron.tools.archives import archive_states
from mainstem.aeron.tools.stream_state import DRIVER_TIMEOUT_MS
from mainstem.aeron.tools.streams import group_streams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.aeron.error_log import ErrorObservation
    from mainstem.aeron.tools.snapshot import Snapshot

# Texts of the errors for a log buffer that found no space: the error's name, or the operating system's text.
STORAGE_ERRORS = ("storage space", "storage_space", "no space left", "insufficient usable storage")

_RISING = (
    (SystemCounter.FLOW_CONTROL_OVER_RUNS, "datagrams arrived beyond a receiver's window and were dropped"),
    (SystemCounter.INVALID_PACKETS, "datagrams were malformed and dropped"),
    (SystemCounter.SHORT_SENDS, "times the operating system accepted less than was sent (a full socket buffer)"),
    (SystemCounter.RETRANSMIT_OVERFLOW, "NAKs found no room in a retransmit pool"),
    (SystemCounter.LOSS_GAP_FILLS, "gaps of unreliable streams were filled instead of repaired"),
    (SystemCounter.CONDUCTOR_CYCLE_TIME_EXCEEDED, "cycles of the conductor took longer than their threshold"),
    (SystemCounter.SENDER_CYCLE_TIME_EXCEEDED, "cycles of the sender took longer than their threshold"),
    (SystemCounter.RECEIVER_CYCLE_TIME_EXCEEDED, "cycles of the receiver took longer than their threshold"),
    (SystemCounter.CLIENT_TIMEOUTS, "clients timed out"),
    (SystemCounter.STATUS_MESSAGES_REJECTED, "status messages were too far from the sender's position"),
)


def driver_warnings(snapshots: Sequence[Snapshot], errors: Sequence[ErrorObservation] = ()) -> tuple[str, ...]:
    """Return warnings about the driver as of the last sample, based on all samples and the error log."""
    first, last = snapshots[0], snapshots[-1]
    warnings = []
    if not last.is_driver_alive(DRIVER_TIMEOUT_MS):
        age = last.heartbeat_age_ms
        how = "has shut down" if age is None else f"gave its last heartbeat {age / 1000:.1f} s ago"
        warnings.append(f"the driver (pid {last.pid}) {how}: what follows is how it left things")
    warnings += _storage(last, errors)
    warnings += _channels(last)
    if first.start_ms == last.start_ms:
        for counter, what in _RISING:
            risen = last.system(counter) - first.system(counter)
            if risen > 0:
                warnings.append(f"{risen:,} {what}")
        then = {each.archive_id: each for each in archive_states(first)}
        for archive in archive_states(last):
            before = then.get(archive.archive_id, archive)
            if archive.errors > before.errors:
                warnings.append(f"{archive.errors - before.errors:,} errors of archive {archive.archive_id}")
            if archive.late_cycles > before.late_cycles:
                late = archive.late_cycles - before.late_cycles
                warnings.append(f"{late:,} cycles of archive {archive.archive_id} took longer than their threshold")
    return tuple(warnings)


def _storage(last: Snapshot, errors: Sequence[ErrorObservation]) -> list[str]:
    warnings = []
    for error in errors:
        if any(text in error.text.lower() for text in STORAGE_ERRORS):
            age = max(0, last.epoch_ms - error.last_observation_ms) / 1000
            times = f"{error.observation_count} times" if error.observation_count > 1 else "once"
            text = " ".join(error.text.split())
            warnings.append(f"disk: a log was refused for lack of space {times}, last {age:,.0f} s ago: {text:.120}")
    needed = sum(log.unallocated for log in last.logs.values())
    if last.free_space is not None and needed > last.free_space:
        warnings.append(
            f"disk: the logs may still need {needed:,} bytes, and their file system has {last.free_space:,}: the "
            "process that writes a page without room is killed"
        )
    return warnings


def _channels(last: Snapshot) -> list[str]:
    warnings = []
    images = [image for stream in group_streams(last) for image in stream.images]
    with_image = {s.registration_id for image in images for s in image.subscribers}
    for counter in last.counters:
        if counter.type_id not in (CounterType.SEND_CHANNEL_STATUS, CounterType.RECEIVE_CHANNEL_STATUS):
            continue
        channel = counter.label.partition(": ")[2]
        if counter.value == ChannelStatus.ERRORED:
            warnings.append(f"the channel {channel} is in error: `mainstem errors` shows why")
        elif (
            counter.type_id == CounterType.RECEIVE_CHANNEL_STATUS
            and counter.value == ChannelStatus.ACTIVE
            and counter.registration_id not in with_image
            and not any(channel.startswith(image.key.channel) for image in images)
        ):
            # No counter shows who has a subscription now: the one that opened the channel may have been closed since.
            warnings.append(f"no publication sends to {channel}, which is open for subscriptions")
    return warnings
