"""One publisher's stream: its recordings up to the position at which a live image joined, then the image.

Theory of operation. A recording and an image of the same session have the same positions, so joining them is arithmetic.
``position`` is the end of the last message handed out. An image joins at position J and is contiguous from there. While
``position`` < J, messages come from the recordings. Then they come from the image, and those that end at or before ``position`` are
skipped. So no message is lost or repeated.

Messages of an image are copied into memory as they arrive, up to ``PENDING_BYTES``, even while recordings are being read. Otherwise
the image would stall its publisher until the recordings reach J, which takes seconds if they are shipped to a store. Beyond the
limit the image is not read, which causes ordinary back pressure.

An image can end because the stream ends, or because this subscriber was too slow (``tether=false``). Its messages in memory are
handed out, reading continues in the recordings, and another image of the session joins at another J. An image that joins earlier
waits. If neither has the next position, the subscription waits for the recorder.

A publisher that starts again with the same ids reuses positions for different messages. Each life is a ``SessionStream`` of its
own; ``may_continue_in`` tells whether an image belongs to it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem._core.log.columns import Columns
from mainstem.aeron.client.persistent_subscription import COLUMNS
from mainstem.recording.life import ENDED, StreamLife
from mainstem.recording.persistent.history import History, MessageBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.aeron.client.subscription import Image

# The memory for the images of one session while its recordings are read: half a second of a fast stream.
PENDING_BYTES = 64 << 20
MESSAGES_AT_ONCE = 1024


@dataclass
class LivePart:
    """The messages of one image, from ``join_position`` on, that are not handed out yet."""

    image: Image
    join_position: int
    batches: deque[MessageBatch] = field(default_factory=deque)

    @property
    def is_over(self) -> bool:
        return not self.batches and self.image.closed


class SessionStream:
    """The messages of one life of a session, from ``position`` on."""

    def __init__(self, session_id: int, *, strict: bool) -> None:
        self.session_id = session_id
        # When the first live messages arrived.
        self.live_since_ns: int | None = None
        self.history = History(strict=strict)
        self.position: int | None = None
        self._live: deque[LivePart] = deque()
        self._columns = Columns(COLUMNS)
        self._current: MessageBatch | None = None
        self._ended = False
        self._last_image: Image | None = None
        self.has_begun = False

    @property
    def join_position(self) -> int | None:
        """Where the first unread live image joined; None if there is none."""
        return self._live[0].join_position if self._live else None

    @property
    def is_live(self) -> bool:
        return bool(self._live) and self.position is not None and self.position >= self._live[0].join_position

    @property
    def is_new(self) -> bool:
        """Whether the publisher is live and has not sent anything yet."""
        return self.join_position == 0 and self.position is None and self.live_since_ns is None

    @property
    def is_ended(self) -> bool:
        """Whether the stream has ended, or only has recordings, and all of its messages are handed out."""
        if self.position is None and self.live_since_ns is None and self._live:
            return all(part.is_over or part.image.is_end_of_stream for part in self._live)
        if self._live or self.next_batch() is not None:
            return False
        assert self.position is not None, "asked for the next batch, it has a position"
        return self._ended or self.history.is_read(self.position)

    def add_image(self, image: Image) -> None:
        """Add an image. It is read after the earlier ones."""
        self._ended = False
        self._last_image = image
        self._live.append(LivePart(image, image.join_position))

    def has_image(self, image: Image) -> bool:
        return any(part.image is image for part in self._live)

    def may_continue_in(self, image: Image) -> bool:
        """Return whether a new image belongs to this life of the stream."""
        own, recorded, last = _life_of(image), self.history.life, self._last_image
        if own == recorded or (last is not None and own == _life_of(last)):
            return True
        if recorded == ENDED or (last is not None and last.is_end_of_stream):
            return False
        # A publisher's position never decreases, and an image joins at it.
        if last is not None and image.join_position < last.position:
            return False
        if image.join_position >= self.history.end:
            return True
        # The image joined before the recorded end. It is another image of the recorder's driver, or an image of another driver,
        # where the recorded image has a different number.
        return own.driver_start_ms != recorded.driver_start_ms and self.history.is_growing

    def gather(self, now_ns: int) -> None:
        """Copy messages of the images into memory, up to the limit."""
        pending = sum(batch.nbytes for part in self._live for batch in part.batches)
        for part in self._live:
            while pending < PENDING_BYTES and not part.image.closed:
                part.image._gather_columns(self._columns, MESSAGES_AT_ONCE)
                rows = self._columns.rows
                if not rows:
                    break
                batch = MessageBatch(self._columns.take(), rows)
                part.batches.append(batch)
                pending += batch.nbytes
        if pending and self.live_since_ns is None:
            self.live_since_ns = now_ns

    def next_batch(self) -> MessageBatch | None:
        """Return the next messages, or None if there are none yet.

        The same batch is returned until all of its messages are taken.
        """
        if self._current is not None and not self._current.is_empty:
            return self._current
        assert self.position is not None, "a session is read once it is known where it begins"
        self._current = self._from_images()
        if self.is_live:
            self.history.release()
        elif self._current is None:
            self._current = self.history.next_batch(self.position)
        return self._current

    def _from_images(self) -> MessageBatch | None:
        while self._live:
            part = self._live[0]
            if self.position is None or self.position < part.join_position:
                return None
            while part.batches:
                batch = part.batches.popleft()
                batch.skip_to(self.position)
                if not batch.is_empty:
                    return batch
            ended = part.image.is_end_of_stream
            if not ended and not part.is_over:
                return None
            self._ended = ended
            self._live.popleft()
        return None

    def payloads(self, limit: int) -> Iterator[bytes]:
        """Hand out up to ``limit`` messages of the batch that `next_batch` returned."""
        batch = self._ready_batch()
        first, last = self._take(batch, limit)
        return batch.payloads(first, last)

    def rows(self, limit: int) -> Any:
        """Hand out up to ``limit`` messages of the batch that `next_batch` returned, as a record batch."""
        batch = self._ready_batch()
        return batch.arrow(*self._take(batch, limit))

    def each(self) -> Iterator[bytes]:
        """Yield the messages of the batch that `next_batch` returned, and hand out each when it is yielded."""
        batch = self._ready_batch()
        while not batch.is_empty:
            first, last = self._take(batch, 1)
            yield from batch.payloads(first, last)

    def _ready_batch(self) -> MessageBatch:
        batch = self.next_batch()
        assert batch is not None, "a session that is ready has a batch"
        return batch

    def _take(self, batch: MessageBatch, limit: int) -> tuple[int, int]:
        first, last, position = batch.take(limit)
        assert self.position is None or position > self.position, "a message ends after the one before"
        self.position = position
        self.has_begun = True
        return first, last

    def close(self) -> None:
        self._live.clear()
        self._current = None
        self.history.close()


def _life_of(image: Image) -> StreamLife:
    return StreamLife(image.driver_start_ms, image.correlation_id)
