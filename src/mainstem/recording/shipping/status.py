"""A shipper's statistics and its lag behind the recorder, for its log line and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock


@dataclass(slots=True)
class ShippingStats:
    commits: int = 0
    objects: int = 0
    bytes_shipped: int = 0
    bytes_verified: int = 0
    errors: int = 0
    retries: int = 0
    lost_bytes: int = 0
    segments_deleted: int = 0
    bytes_deleted: int = 0
    last_error: str = ""
    failing_since_ns: int | None = None
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def add(self, **amounts: int) -> None:
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def failed(self, text: str, now_ns: int | None = None) -> None:
        """Count an error and keep its text. Pass ``now_ns`` if a call of the store has failed."""
        with self._lock:
            self.errors += 1
            self.last_error = text
            if self.failing_since_ns is None:
                self.failing_since_ns = now_ns

    def responded(self) -> None:
        self.failing_since_ns = None


@dataclass(frozen=True, slots=True)
class RecordingLag:
    """A recording that is growing or not completely shipped: its recorded and shipped ends, and how long its data has waited."""

    recording_id: int
    stream_id: int
    session_id: int
    recorded_position: int
    shipped_position: int
    lag_seconds: float

    @property
    def lag_bytes(self) -> int:
        return max(self.recorded_position - self.shipped_position, 0)


@dataclass(frozen=True, slots=True)
class ShippingStatus:
    """The state of a shipper at one moment.

    ``store_failing_seconds`` is how long all store calls have failed, or 0 if they succeed.
    """

    archive_id: str
    host: str
    url: str
    manifest: int
    counts: ShippingStats
    recordings: list[RecordingLag] = field(default_factory=list)
    store_failing_seconds: float = 0.0

    @property
    def lag_bytes(self) -> int:
        return sum(each.lag_bytes for each in self.recordings)

    @property
    def lag_seconds(self) -> float:
        """The age in seconds of the oldest byte that is not shipped."""
        return max((each.lag_seconds for each in self.recordings), default=0.0)
