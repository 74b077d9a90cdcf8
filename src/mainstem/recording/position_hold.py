"""The anchor: holds a stream at the position that is recorded, so that it waits for its recorder however long that is away.

A driver gives a dead recorder's place up after the client liveness timeout (10 s by default). With an anchor in any process
that lives on, best the publisher's own or one beside the driver that receives the stream, the image stays where it is recorded
up to: the publisher meets back pressure, and a recorder that comes back after minutes goes on without a gap.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.clock import NS_PER_MS
from mainstem.recording.catalog import CATALOG_FILE, read_catalog
from mainstem.recording.reader import RecordingReader

if TYPE_CHECKING:
    from mainstem.recording.protocols import RecordableImage, RecordableSubscription

# How often the catalog is read while a stream's recording is not in it yet.
LOOK_INTERVAL_NS = 100 * NS_PER_MS


class Anchor:
    """Follows the recorded positions of ``directory`` with subscriptions of its own. Run ``do_work`` often."""

    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)
        self._subscriptions: list[RecordableSubscription] = []
        self._readers: dict[int, RecordingReader] = {}
        self._looked_ns: int | None = None

    def __enter__(self) -> Anchor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_subscription(self, subscription: RecordableSubscription) -> None:
        """Holds every image of a subscription to the recorder's own channel and stream. The caller keeps and closes it."""
        self._subscriptions.append(subscription)

    def do_work(self, now_ns: int) -> int:
        """Lets each image go up to what is recorded of it; returns the bytes."""
        moved = 0
        live: set[int] = set()
        for subscription in self._subscriptions:
            for image in subscription.images:
                if image.is_closed:
                    continue
                live.add(id(image))
                reader = self._readers.get(id(image)) or self._found(image, now_ns)
                if reader is None or reader.positions is None:
                    continue
                position = image.position
                target = min(reader.positions.recorded_position, position + image.term_length)
                if target > position:
                    image.release(target)
                    moved += target - position
        for key in self._readers.keys() - live:
            self._readers.pop(key).close()
        return moved

    def _found(self, image: RecordableImage, now_ns: int) -> RecordingReader | None:
        if self._looked_ns is not None and now_ns - self._looked_ns < LOOK_INTERVAL_NS:
            return None
        self._looked_ns = now_ns
        if not (self._directory / CATALOG_FILE).exists():
            return None
        key = (image.session_id, image.stream_id, image.initial_term_id, image.term_length)
        for d in reversed(read_catalog(self._directory)):
            if (d.session_id, d.stream_id, d.initial_term_id, d.term_buffer_length) == key:
                reader = RecordingReader(self._directory, d)
                if reader.positions is not None:
                    self._readers[id(image)] = reader
                    return reader
                reader.close()
                return None
        return None

    def close(self) -> None:
        """Lets go of the recordings' files; the images are held until their subscriptions close."""
        while self._readers:
            self._readers.popitem()[1].close()
