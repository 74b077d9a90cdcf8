"""Keeps a stream at the recorded position, so that it waits for its recorder indefinitely.

A driver drops a dead recorder's position after the client liveness timeout (10 s by default). With a slot in any other process,
preferably the publisher's or one on the host of the receiving driver, the image stays at the recorded position. The publisher then
gets back pressure, and a recorder that restarts minutes later continues without a gap.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_MS
from mainstem.recording.archive import local_archive
from mainstem.recording.catalog import CATALOG_FILE, read_catalog
from mainstem.recording.life import ENDED, StreamLife
from mainstem.recording.reader import RecordingReader

if TYPE_CHECKING:
    from mainstem.recording.protocols import RecordableImage, RecordableSubscription

# How often the catalog is read until it has the stream's recording.
CATALOG_INTERVAL_NS = 100 * NS_PER_MS


class RecorderSlot:
    """Follows the recorded positions of a directory with its own subscriptions. Run ``do_work`` often.

    Args:
        directory: The recorder's directory. It need not exist yet.

    Example:
        ``with RecorderSlot("tides") as hold: hold.add_subscription(subscription)``
    """

    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)
        self._subscriptions: list[RecordableSubscription] = []
        self._readers: dict[int, RecordingReader] = {}
        self._catalog_read_ns: int | None = None

    def __enter__(self) -> RecorderSlot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_subscription(self, subscription: RecordableSubscription) -> None:
        """Keep every image of a subscription at its recorded position. The caller closes the subscription.

        Args:
            subscription: A subscription to the recorder's channel and stream.
        """
        self._subscriptions.append(subscription)

    def do_work(self, now_ns: int) -> int:
        """Advance each image to its recorded position.

        Args:
            now_ns: Monotonic time in nanoseconds.

        Returns:
            The number of bytes.
        """
        moved = 0
        live: set[int] = set()
        for image in (image for each in self._subscriptions for image in each.images if not image.closed):
            live.add(id(image))
            reader = self._readers.get(id(image)) or self._opened(image, now_ns)
            if reader is None or reader.index is None:
                continue
            position = image.position
            target = min(reader.index.recorded_position, position + image.term_length)
            if target > position:
                image.release(target)
                moved += target - position
        for key in self._readers.keys() - live:
            self._readers.pop(key).close()
        return moved

    def _opened(self, image: RecordableImage, now_ns: int) -> RecordingReader | None:
        if self._catalog_read_ns is not None and now_ns - self._catalog_read_ns < CATALOG_INTERVAL_NS:
            return None
        self._catalog_read_ns = now_ns
        if not (self._directory / CATALOG_FILE).exists():
            return None
        key = (image.session_id, image.stream_id, image.initial_term_id, image.term_length)
        for d in reversed(read_catalog(self._directory)):
            if (d.session_id, d.stream_id, d.initial_term_id, d.term_buffer_length) == key:
                reader = RecordingReader(local_archive(self._directory), d)
                if reader.index is not None and _may_be_of(image, reader.index.life):
                    self._readers[id(image)] = reader
                    return reader
                reader.close()
        return None

    def close(self) -> None:
        """Close the files of the recordings. The images stay where they are until their subscriptions are closed."""
        while self._readers:
            self._readers.popitem()[1].close()


def _may_be_of(image: RecordableImage, life: StreamLife) -> bool:
    """Return whether a recording can belong to an image.

    The recorder can use another driver, where the image has another number.
    """
    own = StreamLife(image.driver_start_ms, image.correlation_id)
    return life != ENDED and (life.driver_start_ms != own.driver_start_ms or life == own)
