"""Selections of counters, and counters as rows with names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._core.system_counter import REFERENCE_TYPE_ID, find_system_counter
from mainstem.aeron.counters import ArchiveCounterType, CounterType
from mainstem.aeron.tools.archives import archive_id
from mainstem.aeron.tools.snapshot import stream_key

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from mainstem.aeron.counters import CounterSnapshot
    from mainstem.aeron.tools.snapshot import Snapshot


_OF_ARCHIVES = {int(each): each.label for each in ArchiveCounterType}


def type_name(counter: CounterSnapshot) -> str:
    """Return the name of a counter's type, such as ``system`` or ``snd-pos``, or its number."""
    if counter.type_id == REFERENCE_TYPE_ID or find_system_counter(counter.counter_id, counter.type_id, counter.label):
        return "system"
    if counter.type_id in _OF_ARCHIVES:
        return _OF_ARCHIVES[counter.type_id]
    name, separator, _ = counter.label.partition(": ")
    return name.partition(" (")[0] if separator and " " not in name.partition(" (")[0] else str(counter.type_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A condition on counters. All parts must match; an empty part matches any.

    ``types`` are names or numbers, ``channel`` is a substring, and ``label`` is a regular expression.
    """

    types: frozenset[str] = frozenset()
    session_id: int | None = None
    stream_id: int | None = None
    channel: str = ""
    label: re.Pattern[str] | None = None
    hide_zero: bool = False

    def matches(self, counter: CounterSnapshot) -> bool:
        if self.types and not {str(counter.type_id), type_name(counter)} & self.types:
            return False
        if self.label is not None and not self.label.search(counter.label):
            return False
        if self.hide_zero and counter.value == 0:
            return False
        if self.session_id is None and self.stream_id is None and not self.channel:
            return True
        key = stream_key(counter)
        if key is None:
            # Counters of channels (status, addresses, destinations) belong to no session or stream.
            return self.session_id is None and self.stream_id is None and self.channel in counter.label
        return (
            self.session_id in (None, key.session_id)
            and self.stream_id in (None, key.stream_id)
            and self.channel in key.channel
        )


def counter_row(counter: CounterSnapshot) -> dict[str, object]:
    row: dict[str, object] = {
        "id": counter.counter_id,
        "type_id": counter.type_id,
        "type": type_name(counter),
        "value": counter.value,
        "label": counter.label,
        "registration_id": counter.registration_id,
        "owner_id": counter.owner_id,
        "reference_id": counter.reference_id,
    }
    key = stream_key(counter)
    if key is not None:
        row |= {"session_id": key.session_id, "stream_id": key.stream_id, "channel": key.channel}
    if (archive := archive_id(counter)) is not None:
        row["archive_id"] = archive
    if key is not None and counter.type_id == ArchiveCounterType.RECORDING_POSITION:
        row["recording_id"] = key.registration_id
    return row


def snapshot_header(snapshot: Snapshot) -> dict[str, object]:
    return {
        "directory": snapshot.directory,
        "cnc_version": snapshot.version_text,
        "pid": snapshot.pid,
        "started_ms": snapshot.start_ms,
        "epoch_ms": snapshot.epoch_ms,
        "heartbeat_ms": snapshot.heartbeat_ms,
        "heartbeat_age_ms": snapshot.heartbeat_age_ms,
    }


def counter_rates(before: Snapshot | None, now: Snapshot, chosen: Iterable[CounterSnapshot]) -> dict[int, float]:
    """Return rates per second by counter id. Counters that are new or did not increase are omitted."""
    if before is None or now.now_ns <= before.now_ns:
        return {}
    seconds = (now.now_ns - before.now_ns) / 1e9
    then = {(c.counter_id, c.registration_id): c.value for c in before.counters}
    rising = {}
    for counter in chosen:
        old = then.get((counter.counter_id, counter.registration_id))
        if old is not None and counter.value > old and counter.type_id != CounterType.CLIENT_HEARTBEAT:
            rising[counter.counter_id] = (counter.value - old) / seconds
    return rising
