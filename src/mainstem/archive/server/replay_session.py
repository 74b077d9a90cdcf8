"""Replays: publish the frames of a recording again at their recorded positions.

A replay sends frames as they were recorded, but with the session and stream id of its own publication. States: INIT (adding the
publication), CONNECTING (waiting for the subscriber), REPLAY (sending frames). The archive responds to the client before the
subscriber connects, because the client learns the session id to subscribe to from the response.
"""

from __future__ import annotations

import logging
import os
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from mainstem._core.layout import DATA_HEADER_LENGTH, FRAME_ALIGNMENT, WALK_TORN
from mainstem._core.log.columns import FrameWalk
from mainstem._internal.clock import NS_PER_SECOND
from mainstem._internal.printable import printable
from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.aeron.logbuffer import align_frame
from mainstem.aeron.protocol.layouts import Header
from mainstem.archive.server.publications import AddingPublication
from mainstem.archive.server.request_errors import reason_of
from mainstem.errors import ArchiveErrorCode, RecordingError
from mainstem.recording.segments import is_frame, segment_base, segment_name

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem._core.memory.counters import CountersReader
    from mainstem.aeron.client import Aeron
    from mainstem.archive.server.control_session import ControlSession
    from mainstem.archive.server.counters import DiskTimes
    from mainstem.archive.server.recording_session import RecordingSession
    from mainstem.recording.catalog import RecordingDescriptor

log = logging.getLogger("mainstem.archive")

COUNTER_ALLOCATED = 1


class Limit(Protocol):
    """The position up to which a replay can currently send."""

    def read(self) -> tuple[int, bool]:
        """Return the position, and whether it is final."""
        ...


class RecordingLimit:
    """Limits a replay to the recorded position of an active recording. The position is final once the recording has stopped."""

    def __init__(self, session: RecordingSession) -> None:
        self._session = session

    def read(self) -> tuple[int, bool]:
        return self._session.position, self._session.is_done


class CounterLimit:
    """Limits a replay to a client's counter. The last value is final once the counter is freed.

    Raises IndexError if the counter is not in use.
    """

    def __init__(self, counters: CountersReader, counter_id: int) -> None:
        self._counters, self._id = counters, counter_id
        if counters.state(counter_id) != COUNTER_ALLOCATED:
            raise IndexError(f"counter {counter_id} is not in use")
        self._registration_id = counters.registration_id(counter_id)
        self._value = counters.value(counter_id)

    def read(self) -> tuple[int, bool]:
        counters, counter_id = self._counters, self._id
        value = counters.value(counter_id)
        is_same = counters.registration_id(counter_id) == self._registration_id
        if is_same:
            self._value = value
        return self._value, not is_same or counters.state(counter_id) != COUNTER_ALLOCATED


class State(Enum):
    INIT = 0
    CONNECTING = 1
    REPLAY = 2
    DONE = 3


class ReplaySession:
    """One replay of ``[position, end)``. If it has a limit, it waits at the limit until that moves.

    ``number``, the replay's number in this archive, is the upper half of the replay session id.
    """

    def __init__(
        self,
        aeron: Aeron,
        directory: Path,
        control: ControlSession,
        correlation_id: int,
        *,
        number: int,
        descriptor: RecordingDescriptor,
        channel: str,
        stream_id: int,
        position: int,
        end: int,
        limit: Limit | None,
        max_length: int,
        now_ns: int,
        connect_timeout_ns: int,
        reads: DiskTimes,
    ) -> None:
        self.number = number
        self.position = position
        self.session_id = -1
        self.descriptor = descriptor
        self.state = State.INIT
        self.channel, self.stream_id = channel, stream_id
        self._directory = directory
        self._control, self._correlation_id = control, correlation_id
        # Frames can be sent up to ``_available``. The replay sends those that begin before ``_end``, which is inside a frame if the
        # client asked for such a length.
        self._end, self._limit, self._max_length = align_frame(end), limit, max_length
        self._available = descriptor.stop_position if limit is None else position
        self._stop = min(self._available, self._end)
        self._timeout_ns = connect_timeout_ns
        self._deadline_ns = now_ns + connect_timeout_ns
        self._adding = AddingPublication(aeron, channel, stream_id)
        self._publication: Any = None
        self._reads = reads
        self._walk = FrameWalk()
        self._base, self._fd = -1, -1
        self._padding = 0

    @property
    def is_done(self) -> bool:
        return self.state is State.DONE

    @property
    def segment_base(self) -> int:
        """The start of the segment that the replay reads next."""
        return segment_base(self.descriptor, self.position)

    def do_work(self, now_ns: int, buffer: bytearray) -> int:
        """Advance the replay. Return the number of bytes sent, or 1 for another step."""
        try:
            if self.state is State.REPLAY:
                return self._replay(buffer)
            if self.state is State.INIT:
                return self._init(now_ns)
            return self._connecting(now_ns)
        except Exception as error:
            self._fail(reason_of(error))
            return 1

    # -- before a subscriber connects --------------------------------------------------------------------------------

    def _init(self, now_ns: int) -> int:
        if self._publication is None:
            self._publication = self._adding.poll()
            if self._publication is None:
                return 0
        if not self._has_segment():
            if now_ns >= self._deadline_ns:
                self._fail(f"no segment file {segment_name(self.descriptor.recording_id, self.segment_base)}")
            return 0
        if not self._is_at_frame():
            self._fail(
                f"requested replay start position={self.position} does not point to a valid frame",
                ArchiveErrorCode.INVALID_POSITION,
            )
            return 1
        self.session_id = self.number << 32 | self._publication.session_id & 0xFFFFFFFF
        self._control.respond(self._correlation_id, self.session_id)
        self._deadline_ns = now_ns + self._timeout_ns
        self.state = State.CONNECTING
        return 1

    def _has_segment(self) -> bool:
        """Whether the first segment exists. A segment does not exist until something has been written to it."""
        return self.position >= self._limit_now() or self._open()

    def _is_at_frame(self) -> bool:
        d = self.descriptor
        if self._fd < 0 or self.position == d.start_position:
            return True
        return is_frame(os.pread(self._fd, DATA_HEADER_LENGTH, self.position - self._base), d, self.position)

    def _connecting(self, now_ns: int) -> int:
        if self._publication.is_connected:
            self.state = State.REPLAY
            return 1
        if now_ns >= self._deadline_ns:
            self._fail(f"no subscriber connected within {self._timeout_ns / NS_PER_SECOND:g} s")
        return 0

    # -- the frames --------------------------------------------------------------------------------------------------

    def _limit_now(self) -> int:
        """Return the position up to which the replay can send. If the limit is final, also set the end."""
        if self._limit is not None and self.position >= self._stop:
            self._read_limit()
        return self._stop

    def _read_limit(self) -> None:
        if self._limit is not None:
            self._available, is_final = self._limit.read()
            self._stop = min(self._available, self._end)
            if is_final:
                self._end, self._limit = self._stop, None

    def _replay(self, buffer: bytearray) -> int:
        publication, walk = self._publication, self._walk
        if not publication.is_connected:
            self.close()
            return 1
        if self._padding:
            return self._pad()
        stop = self._limit_now()
        if self.position >= self._end:
            self._finish()
            return 1
        window = publication.available_window
        if self.position >= stop or window <= 0:
            return 0
        if not self._open():
            name = segment_name(self.descriptor.recording_id, self.segment_base)
            raise RecordingError(f"recording segment not found: {name}")
        term_length = self.descriptor.term_buffer_length
        length = max(min(window, self._max_length, len(buffer)), self.descriptor.mtu_length)
        length = min(length, stop - self.position, term_length - self.position % term_length)
        with memoryview(buffer) as view:
            self._reads.begin()
            length = os.preadv(self._fd, [view[:length]], self.position - self._base)
            self._reads.end(length)
            walk.readdress(buffer, 0, length, publication.session_id, publication.stream_id)
            sent = self._offer(view)
        if not walk.offset and not walk.others:
            if walk.stopped != WALK_TORN or self.position + length < stop:
                raise ValueError(f"unexpected end of the frames at position {self.position}")
            # The limit is inside a frame. A length extends to the end of its last frame; a counter must not be overtaken.
            self._read_limit()
            has_length = length >= DATA_HEADER_LENGTH
            frame_end = self.position + align_frame(Header.read(buffer).frame_length) if has_length else self._end
            if self._end < frame_end <= self._available:
                self._stop = self._end = frame_end
            elif self._stop == self._end == stop:
                self._finish()
        if self.position >= self._end:
            self._finish()
        return sent

    def _offer(self, view: memoryview) -> int:
        """Send the frames in ``view``: a run of data frames and the padding after it. Return the number of bytes accepted."""
        walk, sent = self._walk, 0
        if walk.offset:
            if self._refused(self._publication.offer_block(view[: walk.offset])):
                return 0
            sent = walk.offset
            self.position += sent
        if walk.others and not self.is_done:
            self._padding = align_frame(Header.read(view[walk.last :]).frame_length)
            sent += self._pad()
        return sent

    def _pad(self) -> int:
        """Send the rest of a padding frame in parts that the publication accepts. Return the number of bytes sent."""
        sent = 0
        while self._padding and not self.is_done:
            part = min(self._padding, self._publication.max_message_length // FRAME_ALIGNMENT * FRAME_ALIGNMENT)
            if self._refused(self._publication.append_padding(part - DATA_HEADER_LENGTH)):
                break
            self._padding -= part
            self.position += part
            sent += part
        return sent

    def _refused(self, status: int) -> bool:
        if status in (OfferStatus.NOT_CONNECTED, OfferStatus.CLOSED, OfferStatus.MAX_POSITION_EXCEEDED):
            self.close()
        return status < 0

    def _open(self) -> bool:
        base = self.segment_base
        if self._fd < 0 or base != self._base:
            self.close_file()
            try:
                path = self._directory / segment_name(self.descriptor.recording_id, base)
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            self._base = base
        return True

    # -- the end -----------------------------------------------------------------------------------------------------

    def _fail(self, text: str, code: ArchiveErrorCode = ArchiveErrorCode.GENERIC) -> None:
        text = f"{text} - recordingId={self.descriptor.recording_id}, replaySessionId={self.session_id}"
        log.warning("replay failed: %s", printable(text))
        self._control.fail(self._correlation_id, text, code)
        self.close()

    def _finish(self) -> None:
        """Finish the stream: the subscriber still receives everything that was sent."""
        self._end_with(revoke=False)

    def close(self) -> None:
        """Abort the replay: the subscriber loses its image at once. Can be called twice."""
        self._end_with(revoke=True)

    def _end_with(self, *, revoke: bool) -> None:
        if self.is_done:
            return
        self.state = State.DONE
        self.close_file()
        self._adding.cancel()
        if self._publication is not None:
            if revoke:
                self._publication.revoke()
            else:
                self._publication.close()

    def close_file(self) -> None:
        """Close the segment that is open, if one is."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._base = -1, -1
