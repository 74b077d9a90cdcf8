"""Counters as metrics, with the same names, kinds and labels for every monitoring system."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mainstem._core.system_counter import REFERENCE_TYPE_ID, find_system_counter
from mainstem._internal.prometheus import Family, Sample, render_families
from mainstem.aeron.counters import STREAM_COUNTER_TYPES, CounterType
from mainstem.aeron.tools.snapshot import stream_key

if TYPE_CHECKING:
    from mainstem.aeron.counters import CounterSnapshot
    from mainstem.aeron.tools.snapshot import Snapshot

PREFIX = "mainstem_"
# Values that can decrease. The others only increase while their stream exists.
GAUGES = {CounterType.FLOW_CONTROL_RECEIVERS, CounterType.PUBLISHER_LIMIT, CounterType.SENDER_LIMIT}


def families(snapshot: Snapshot) -> list[Family]:
    """Return every metric of a driver's directory.

    These are ``mainstem_driver_heartbeat_age_seconds`` (-1 after shutdown), ``mainstem_system_*`` for the driver's own counters,
    ``mainstem_stream_*`` for the counters of streams, with labels, and ``mainstem_counter`` for counters of other types.

    Args:
        snapshot: A snapshot of the directory, from ``DirectoryReader.snapshot``.

    Returns:
        The metrics, each with its samples.

    Example:
        >>> with DirectoryReader("/dev/shm/aeron-user") as reader:
        ...     metrics = families(reader.snapshot(epoch_ms=epoch_ms, now_ns=now_ns))
    """
    age = snapshot.heartbeat_age_ms
    heartbeat = Family(
        f"{PREFIX}driver_heartbeat_age_seconds", "gauge", "Seconds since the driver's last heartbeat; -1: shut down"
    )
    heartbeat.samples.append(Sample({}, -1.0 if age is None else age / 1000))
    metrics = {heartbeat.name: heartbeat}
    for counter in snapshot.counters:
        family, sample = _family_and_sample(counter)
        metrics.setdefault(family.name, family).samples.append(sample)
    return list(metrics.values())


def render(snapshot: Snapshot) -> str:
    """Return a complete page for a scrape, in Prometheus's text format 0.0.4.

    Args:
        snapshot: A snapshot of the directory, from ``DirectoryReader.snapshot``.

    Returns:
        The page; serve it as ``CONTENT_TYPE``.

    Example:
        >>> with DirectoryReader("/dev/shm/aeron-user") as reader:
        ...     page = render(reader.snapshot(epoch_ms=epoch_ms, now_ns=now_ns))
    """
    return render_families(families(snapshot))


def _family_and_sample(counter: CounterSnapshot) -> tuple[Family, Sample]:
    known = find_system_counter(counter.counter_id, counter.type_id, counter.label)
    if known is not None or counter.type_id == REFERENCE_TYPE_ID:
        name = _name_of_label(counter) if known is None else known.name.lower()
        return Family(f"{PREFIX}system_{name}", "gauge", counter.label), Sample({}, counter.value)
    key = stream_key(counter)
    if key is not None and counter.type_id in STREAM_COUNTER_TYPES:
        kind = CounterType(counter.type_id)
        labels = {
            "session_id": str(key.session_id),
            "stream_id": str(key.stream_id),
            "channel": key.channel,
            "registration_id": str(key.registration_id),
            "counter_id": str(counter.counter_id),
        }
        name = kind.label.replace("-", "_")
        family = Family(f"{PREFIX}stream_{name}", "gauge" if kind in GAUGES else "counter", _help(kind))
        return family, Sample(labels, counter.value)
    labels = {"counter_id": str(counter.counter_id), "type_id": str(counter.type_id), "label": counter.label}
    return Family(f"{PREFIX}counter", "gauge", "Counters of other types, the users' own among them"), Sample(
        labels, counter.value
    )


def _name_of_label(counter: CounterSnapshot) -> str:
    """Return a metric's name for a system counter that only a newer reference driver has."""
    return re.sub(r"[^a-z0-9]+", "_", counter.label.lower()).strip("_") or str(counter.counter_id)


def _help(kind: CounterType) -> str:
    return kind.name.replace("_", " ").capitalize()
