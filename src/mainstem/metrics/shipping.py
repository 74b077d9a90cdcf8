"""Metrics of a shipper: what it has shipped, and how far it is behind its recorder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.prometheus import Family, Sample
from mainstem.metrics.families import PREFIX

if TYPE_CHECKING:
    from mainstem.recording.shipping.status import ShippingStatus

_COUNTERS = {
    "commits": "Manifests committed",
    "objects": "Objects put",
    "bytes_shipped": "Bytes put",
    "bytes_verified": "Bytes read back to compare checksums",
    "errors": "Calls of the store, and reads of recordings, that failed",
    "retries": "Calls of the store that were repeated",
    "lost_bytes": "Bytes that were deleted before they were shipped",
    "segments_deleted": "Local segments deleted by --local-retention",
    "bytes_deleted": "Bytes on the local disk freed by --local-retention",
}


def shipping_families(status: ShippingStatus) -> list[Family]:
    """Return every metric of a shipper.

    Args:
        status: The shipper's status.

    Returns:
        The metrics, each with its samples: ``mainstem_shipping_...``.

    Example:
        >>> page = render_families(shipping_families(shipper.status()))
    """
    labels = {"archive": status.archive_id, "host": status.host, "url": status.url}
    families = [
        Family(f"{PREFIX}shipping_{name}", "counter", text, [Sample(labels, getattr(status.counts, name))])
        for name, text in _COUNTERS.items()
    ]
    gauges = {
        "manifest": ("Number of the last manifest", status.manifest),
        "lag_bytes": ("Bytes that are recorded and not shipped", status.lag_bytes),
        "lag_seconds": ("Age of the oldest byte that is not shipped", status.lag_seconds),
        "store_failing_seconds": (
            "For how long no call of the store has succeeded; 0 when they do",
            status.store_failing_seconds,
        ),
    }
    families += [
        Family(f"{PREFIX}shipping_{name}", "gauge", text, [Sample(labels, value)])
        for name, (text, value) in gauges.items()
    ]
    recorded = Family(f"{PREFIX}shipping_recorded_position", "gauge", "Position that a growing recording has reached")
    shipped = Family(f"{PREFIX}shipping_shipped_position", "gauge", "Position up to which it has been shipped")
    lag = Family(f"{PREFIX}shipping_recording_lag_seconds", "gauge", "Age of its oldest byte that is not shipped")
    for each in status.recordings:
        own = labels | {
            "recording_id": str(each.recording_id),
            "stream_id": str(each.stream_id),
            "session_id": str(each.session_id),
        }
        recorded.samples.append(Sample(own, each.recorded_position))
        shipped.samples.append(Sample(own, each.shipped_position))
        lag.samples.append(Sample(own, each.lag_seconds))
    return [*families, recorded, shipped, lag]
