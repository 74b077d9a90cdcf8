"""One publisher's stream: its recordings up to where a live image joined, then the image.

Theory of operation. A recording and an image of one session have the same positions, so joining them is arithmetic. ``position``
is where the last message that was handed out ends. An image joins at some position J and is contiguous from there. While
``position`` < J messages come from the recordings; from then on they come from the image, without those that end at ``position``
or before (an image may join before what was read of the recordings; a message may reach over J). So no message is missing
and none comes twice, whatever the recorder and the reader do meanwhile.

What an image has is moved into memory as it comes, up to ``PENDING_BYTES``, also while the recordings are still being read: else
the image would hold its publisher back until the recordings reach J, and where these are shipped to a store that takes
seconds. Beyond the limit the image is not read, which is ordinary back pressure.

An image that ends, because the stream did or because this subscriber was too slow (``tether=false``), leaves what is in memory;
then the recordings go on, and another image of the session joins at another J. An image that joins while the one before still
has messages waits behind it. Where neither has the next position, the subscription waits for the recorder.

A publisher that begins again with the ids that it had has the same positions for other messages. Each life is a ``SessionStream``
of its own; ``may_continue_in`` says whether an image is of this one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainstem._core.log.columns import Columns
from mainstem.recording.life import ENDED, StreamLife
from mainstem.recording.persistent.batch import COLUMNS, MessageBatch
from mainstem.recording.persistent.history import History

if TYPE_CHECKING:
    from mainstem.aeron.client.subscription import Image

# What images hold in memory while recordings are read, of each session: half a second of a fast stream.
PENDING_BYTES = 64 << 20
MESSAGES_AT_ONCE = 1024


@dataclass
class LivePart:
    """What one image brought that was not handed out yet; everything from ``join_position`` on."""

    image: Image
    join_position: int
    batches: deque[MessageBatch] = field(default_factory=deque)

    @property
    def is_over(self) -> bool:
        """Whether no more will come of it."""
        return not self.batches and self.image.closed


class SessionStream:
    """The messages of one life of a session, from ``position`` on."""

    def __init__(self, session_id: int, *, strict: bool) -> None:
        self.session_id = session_id
        # When the first live messages were there.
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
        """Where the first live image that was not read yet joined; None if there is none."""
        return self._live[0].join_position if self._live else None

    @property
    def is_live(self) -> bool:
        return bool(self._live) and self.position is not None and self.position >= self._live[0].join_position

    @property
    def is_new(self) -> bool:
        """Whether its publisher is live and has not sent anything yet: a recorder waits for that."""
        return self.join_position == 0 and self.position is None and self.live_since_ns is None

    @property
    def is_ended(self) -> bool:
        """Whether its publisher ended it, or only recordings are left of it, and everything was handed out."""
        if self.position is None and self.live_since_ns is None and self._live:
            return all(part.is_over or part.image.is_end_of_stream for part in self._live)
        if self._live or self.next_batch() is not None:
            return False
        assert self.position is not None, "asked for the next batch, it has a position"
        return self._ended or self.history.is_read(self.position)

    def add_image(self, image: Image) -> None:
        """Take an image that is joined to what was read, when its time comes."""
        self._ended = False
        self._last_image = image
        self._live.append(LivePart(image, image.join_position))

    def has_image(self, image: Image) -> bool:
        """Whether it was added and can still bring something."""
        return any(part.image is image for part in self._live)

    def may_continue_in(self, image: Image) -> bool:
        """Whether an image that is not known yet is of this life of the stream."""
        own, recorded, last = _life_of(image), self.history.life, self._last_image
        if own == recorded or (last is not None and own == _life_of(last)):
            return True
        if recorded == ENDED or (last is not None and last.is_end_of_stream):
            return False
        # A publisher's position never goes back, and an image joins at it.
        if last is not None and image.join_position < last.position:
            return False
        if image.join_position >= self.history.end:
            return True
        # It joined before what is recorded: another one of the recorder's driver, or of another driver, where the image that is
        # recorded has another number.
        return own.driver_start_ms != recorded.driver_start_ms and self.history.is_growing

    def gather(self, now_ns: int) -> None:
        """Move what the images have into memory, up to the limit."""
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
        """Messages that come next; the same ones until they are all taken. None when there are none yet."""
        if self._current is not None and not self._current.is_empty:
            return self._current
        assert self.position is not None, "a session is read once it is known where it begins"
        self._current = self._from_images()
        if self._current is None and not self.is_live:
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

    def advance_to(self, position: int) -> None:
        assert self.position is None or position > self.position, "a message ends after the one before"
        self.position = position
        self.has_begun = True

    def close(self) -> None:
        self._live.clear()
        self._current = None
        self.history.close()


def _life_of(image: Image) -> StreamLife:
    return StreamLife(image.driver_start_ms, image.correlation_id)
