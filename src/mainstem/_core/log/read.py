"""Reading a log: the work of an image's and a subscription's polls (docs/protocols/aeron.md, 12).

Theory of operation. A reader walks complete frames from its position, delivers them, and stores the new position once,
with release, when the poll ends, even if it ends with an exception. That store gives the publisher room, and lets the
driver clean.

Who writes what: this reader alone writes the subscriber position, a counter, after the driver set it to the position at
which the image was joined. It writes nothing to the log. Producers (IPC) or the receiver (network) write frames; the driver
cleans behind all subscribers' positions.

Invariants:

- The position rises by whole frames. It never passes a length that is 0 or negative, so it never skips an incomplete frame.
- Nobody, in this process or another, cleans or overwrites the bytes between the position and the tail: the driver keeps the
  window behind the lowest subscriber. So payloads are delivered in place, without a copy, and stay valid until the store.
- A frame is delivered only if it is at least as long as a header and fits in the rest of its term, so a length that another
  process corrupted never leads beyond the log.
- A poll ends at the end of a term. Padding is passed and never counted.
- One thread polls an image. ``busy`` rejects a second one, and a handler that polls its own image: both would move the
  position twice. The flag is set and read with the GIL; on free-threaded builds it finds mistakes and is not a lock.
- ``_detach`` may be called while a handler runs (an image goes when its publisher does): the reader checks ``closed`` after
  each handler, and keeps the last position for later queries. ``_detach`` waits for a thread inside ``_wait_for_data``, which
  uses the memory without the GIL.

Memory ordering: a frame's length is loaded with acquire, so header and payload are read after it. The position is loaded
plainly, since this thread is its only writer, and stored with release: no load of a payload may move behind the store, or
the publisher could overwrite bytes that are still being read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from mainstem.errors import ConfigurationError, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

if cython.compiled:
    from cython.cimports.mainstem._core.memory.waiting import nap, watch
else:
    from mainstem._core.layout import *
    from mainstem._core.log.assemble import FragmentAssembler, MessageBuilder, assemble, assemble_controlled
    from mainstem._core.log.fragment import Fragment, payload_bytes
    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem._core.memory.plain import *


@cython.cclass
class ImageReader:
    """One publication's stream as seen by one subscriber (docs/protocols/aeron.md, 12).

    ``log`` is the memory of the whole log file, ``positions`` the counters' values and ``position_counter_id`` the subscriber
    position's counter. Raises ValueError if one of them is invalid. A closed image polls nothing. One thread polls; a second
    thread, or a handler, that polls the same image at the same time gets LocalProtocolError.
    """

    log: readonly[AtomicBuffer]
    source_identity: public[str]
    positions: AtomicBuffer
    base: cython.p_uchar
    position_base: cython.p_uchar
    position_offset: cython.longlong
    meta: cython.longlong
    term_length: readonly[cython.longlong]
    position_bits: readonly[cython.int]
    initial_term_id: readonly[cython.int]
    session_id: readonly[cython.int]
    stream_id: readonly[cython.int]
    mtu: readonly[cython.int]
    correlation_id: readonly[cython.longlong]
    join_position: readonly[cython.longlong]
    closed: readonly[cython.bint]
    final_position: cython.longlong
    ended: cython.bint
    withdrawn: cython.bint
    busy: cython.bint
    waiters: cython.int
    fragment: Fragment
    builder: MessageBuilder

    def __init__(self, log: AtomicBuffer, positions: AtomicBuffer, position_counter_id: cython.int) -> None:
        meta: cython.longlong = log.capacity - LOG_METADATA_LENGTH
        self.position_offset = cython.cast(cython.longlong, position_counter_id) * COUNTER_VALUE_LENGTH
        if position_counter_id < 0 or self.position_offset + COUNTER_VALUE_LENGTH > positions.capacity:
            raise ValueError(f"counter {position_counter_id} lies outside {positions.capacity} bytes of counters")
        # The log is a file that another process wrote, so a wrong length must raise here, before a walk trusts it.
        self.term_length = log.get_i32(meta + LOG_TERM_LENGTH_OFFSET)
        if (
            self.term_length < TERM_MIN_LENGTH
            or self.term_length & (self.term_length - 1)
            or PARTITION_COUNT * self.term_length > meta
        ):
            raise ValueError(f"a log of {log.capacity} bytes cannot have terms of {self.term_length}")
        self.source_identity = ""
        self.log = log
        self.positions = positions
        self.base = log.base
        self.position_base = positions.base
        self.meta = meta
        self.position_bits = int(self.term_length).bit_length() - 1
        self.initial_term_id = log.get_i32(meta + LOG_INITIAL_TERM_ID_OFFSET)
        self.mtu = log.get_i32(meta + LOG_MTU_LENGTH_OFFSET)
        self.correlation_id = log.get_i64(meta + LOG_CORRELATION_ID_OFFSET)
        self.session_id = log.get_i32(meta + LOG_DEFAULT_HEADER_OFFSET + FRAME_SESSION_ID_OFFSET)
        self.stream_id = log.get_i32(meta + LOG_DEFAULT_HEADER_OFFSET + FRAME_STREAM_ID_OFFSET)
        # The driver set the counter to the position where this subscriber joined, before it announced the image.
        self.join_position = get64(self.position_base, self.position_offset)
        if self.join_position < 0 or self.join_position % FRAME_ALIGNMENT:
            raise ValueError(f"no stream can be read from position {self.join_position}")
        self.closed = False
        self.busy = False
        self.waiters = 0
        # One flyweight for the lifetime of the image, so that a poll allocates nothing.
        self.fragment = Fragment()
        self.fragment.log = log
        self.fragment.initial_term_id = self.initial_term_id
        self.fragment.position_bits = self.position_bits
        self.builder = MessageBuilder()

    def _detach(self) -> None:
        """Release the memory; afterward properties return their values at this moment."""
        if self.closed:
            return
        # Read these while the memory is mapped: afterward the properties return them.
        self.ended = self.is_end_of_stream
        self.withdrawn = self.is_publication_revoked
        self.final_position = get64(self.position_base, self.position_offset)
        self.closed = True
        if cython.compiled:
            # A thread in ``_wait_for_data`` reads the memory without the GIL. It returns within 10 ms; unmap only after that.
            while self.waiters > 0:
                with cython.nogil:
                    nap(50_000)
        self.base = self.position_base = cython.NULL if cython.compiled else None
        if not self.busy:
            # Otherwise a handler may still be using its fragment; the memory's owner keeps the memory mapped for a while.
            self.fragment.base = cython.NULL if cython.compiled else None
        self.log = None
        self.positions = None

    # -- state of the stream ---------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The position up to which this subscriber has read."""
        if self.closed:
            return self.final_position
        return get64(self.position_base, self.position_offset)

    @property
    def end_of_stream_position(self) -> int:
        """The position at which the stream ends; 2**63 - 1 while that is unknown."""
        if self.closed:
            return self.final_position
        return ld64(self.base, self.meta + LOG_END_OF_STREAM_POSITION_OFFSET)

    @property
    def is_end_of_stream(self) -> bool:
        """Whether the publisher ended the stream and the subscriber has read all of it."""
        if self.closed:
            return self.ended
        return self.position >= self.end_of_stream_position

    @property
    def is_publication_revoked(self) -> bool:
        """Whether the publisher revoked the stream without draining it."""
        if self.closed:
            return bool(self.withdrawn)
        return get8(self.base, self.meta + LOG_IS_PUBLICATION_REVOKED_OFFSET) == 1

    @property
    def active_transport_count(self) -> int:
        """The number of connections that feed this image: several for a multi-destination subscription."""
        return 0 if self.closed else ld32(self.base, self.meta + LOG_ACTIVE_TRANSPORT_COUNT_OFFSET)

    @cython.final
    @cython.exceptval(check=False)
    def place(self, position: cython.longlong) -> cython.longlong:
        """Return the file offset of a position in the stream.

        It is inside the log for any position, because other processes can write the memory that holds the position.
        """
        return (((position >> self.position_bits) & TERM_COUNT_MASK) % PARTITION_COUNT) * self.term_length + (
            position & (self.term_length - 1)
        )

    @cython.final
    @cython.exceptval(check=False)
    def has_data(self) -> cython.bint:
        if self.closed:
            return False
        # A frame is complete once its length is positive. Padding counts: a poll passes it, which gives the publisher room.
        return ld32(self.base, self.place(get64(self.position_base, self.position_offset))) > 0

    # -- the walks -------------------------------------------------------------------------------------------------

    @cython.final
    @cython.exceptval(-1)
    def enter(self) -> cython.bint:
        """Begin a walk; return False if the image is closed."""
        if self.closed:
            return False
        if self.busy:
            raise LocalProtocolError("the image is being polled already: by this handler, or by another thread")
        # Every process of this driver can write the counter's memory, so check that the position is the start of a frame.
        self.check_position()
        # Neither a lock nor atomic: the GIL makes it exact, and without the GIL it still finds most mistakes.
        self.busy = True
        return True

    @cython.final
    @cython.exceptval(-1)
    def check_position(self) -> cython.int:
        position: cython.longlong = get64(self.position_base, self.position_offset)
        if position < 0 or position & (FRAME_ALIGNMENT - 1):
            raise self._corrupt_position(position)
        return 0

    @cython.final
    @cython.exceptval(check=False)
    def leave(self, passed: cython.longlong) -> cython.void:
        """End a walk that passed this many bytes."""
        self.busy = False
        # A fragment that the handler kept raises from now on, instead of reading a later message.
        self.fragment.base = cython.NULL if cython.compiled else None
        # Store once per poll, not once per frame: each store takes the counter's cache line from the driver.
        if passed > 0 and not self.closed:
            st64(self.position_base, self.position_offset, get64(self.position_base, self.position_offset) + passed)

    @cython.exceptval(-1)
    def deliver(
        self, handler: object, limit: cython.longlong, limit_position: cython.longlong, whole: cython.bint
    ) -> cython.longlong:
        if not self.enter():
            return 0
        base = self.base
        position: cython.longlong = get64(self.position_base, self.position_offset)
        start: cython.longlong = self.place(position)
        p: cython.longlong = start
        at: cython.longlong
        term_end: cython.longlong = start + self.term_length - (position & (self.term_length - 1))
        end: cython.longlong = term_end
        length: cython.longlong
        malformed: cython.longlong = 0  # the impossible length of a frame
        count: cython.longlong = 0
        fragment: Fragment = self.fragment
        assembler: FragmentAssembler = None
        if isinstance(handler, FragmentAssembler):
            assembler = handler
        # The bound is a position but the walk uses addresses: shorten both ends by the same distance.
        if limit_position - position < end - start:
            end = start + limit_position - position
        fragment.base = base
        try:
            while count < limit and p < end:
                length = ld32(base, p)
                if length < DATA_HEADER_LENGTH:
                    malformed = length  # 0 or below: no frame, or a producer is still writing it
                    break
                # Advance before calling the handler: if it raises, the stored position is behind its message, which counts as read.
                at = p
                p += align_frame(length)
                if p > term_end:
                    malformed = length
                    p = at
                    break
                prefetch(base, p)  # the next header arrives while the handler works on this message
                if get16(base, at + FRAME_TYPE_OFFSET) == TYPE_PAD:
                    continue
                fragment.p = at
                fragment.start = at + DATA_HEADER_LENGTH
                fragment.length = length - DATA_HEADER_LENGTH
                if whole:
                    count += self.hand_over_whole(handler, fragment)
                else:
                    count += 1
                    if assembler is not None:
                        assemble(assembler, fragment)
                    else:
                        handler(fragment)
                # The handler may have closed the subscription: then the memory is gone, and so is the next header.
                if self.closed:
                    break
            if malformed > 0:
                raise self._corrupt_frame(position + p - start, malformed)
        finally:
            self.leave(p - start)
        return count

    @cython.exceptval(-1)
    def hand_over_whole(self, handler: object, fragment: Fragment) -> cython.longlong:
        """Process one fragment of a poll for messages; return how many messages it completed."""
        # Most messages are one frame and are delivered in place; only split ones are copied.
        if (get8(fragment.base, fragment.p + FRAME_FLAGS_OFFSET) & FLAG_UNFRAGMENTED) == FLAG_UNFRAGMENTED:
            handler(fragment)
            return 1
        builder: MessageBuilder = self.builder
        if not builder.add(fragment):
            return 0
        try:
            handler(builder.message)
        finally:
            # The builder's memory is reused for the next message, so this one is valid only inside the handler.
            builder.message.base = cython.NULL if cython.compiled else None
            builder.length = 0
        return 1

    @cython.exceptval(-1)
    def control(self, handler: object, limit: cython.longlong) -> cython.longlong:
        if not self.enter():
            return 0
        base = self.base
        position: cython.longlong = get64(self.position_base, self.position_offset)
        start: cython.longlong = self.place(position)
        p: cython.longlong = start
        term_end: cython.longlong = start + self.term_length - (position & (self.term_length - 1))
        aligned: cython.longlong
        length: cython.longlong
        count: cython.longlong = 0
        fragment: Fragment = self.fragment
        assembler: FragmentAssembler = None
        if isinstance(handler, FragmentAssembler):
            assembler = handler
        fragment.base = base
        try:
            while count < limit and p < term_end:
                length = ld32(base, p)
                if length <= 0:
                    break
                if length < DATA_HEADER_LENGTH or length > term_end - p:
                    raise self._corrupt_frame(position + p - start, length)
                aligned = align_frame(length)
                p += aligned
                if get16(base, p - aligned + FRAME_TYPE_OFFSET) == TYPE_PAD:
                    continue
                # As in ``deliver``, advance first, so that the fragment counts as read if the handler raises.
                fragment.p = p - aligned
                fragment.start = p - aligned + DATA_HEADER_LENGTH
                fragment.length = length - DATA_HEADER_LENGTH
                count += 1
                action = assemble_controlled(assembler, fragment) if assembler is not None else handler(fragment)
                if self.closed:
                    break
                if action is None or action == ACTION_CONTINUE:
                    continue
                # The action decides where the next poll starts: before this frame for ABORT, behind it for BREAK and COMMIT.
                # After ABORT the next poll delivers the frame again.
                if action == ACTION_ABORT:
                    count -= 1
                    p -= aligned
                    break
                if action == ACTION_BREAK:
                    break
                if action != ACTION_COMMIT:
                    raise ConfigurationError(f"a controlled poll's handler returned {action!r}, which is not an action")
                # COMMIT: the position moves before the handler sees the next one.
                position += p - start
                st64(self.position_base, self.position_offset, position)
                start = p
        finally:
            self.leave(p - start)
        return count

    @cython.exceptval(-1)
    def block(self, handler: object, limit: cython.longlong) -> cython.longlong:
        """Deliver whole frames, at most ``limit`` bytes, as one block; return its bytes."""
        if not self.enter():
            return 0
        base = self.base
        position: cython.longlong = get64(self.position_base, self.position_offset)
        start: cython.longlong = self.place(position)
        p: cython.longlong = start
        # A block is contiguous in memory and in the stream, so it stops at the end of the term as every poll does.
        term_end: cython.longlong = start + self.term_length - (position & (self.term_length - 1))
        end: cython.longlong = start + min(limit, term_end - start)
        length: cython.longlong
        fragment: Fragment = self.fragment
        try:
            while p < end:
                length = ld32(base, p)
                if length <= 0:
                    break
                if length < DATA_HEADER_LENGTH or length > term_end - p:
                    raise self._corrupt_frame(position + p - start, length)
                length = align_frame(length)
                if get16(base, p + FRAME_TYPE_OFFSET) == TYPE_PAD:
                    # A block of data contains no padding. Padding at the start is a block of its own; a recorder writes it as is.
                    if p == start:
                        p += length
                    break
                if p + length > end:
                    break
                p += length
            if p > start:
                fragment.base = base
                fragment.p = start
                fragment.start = start
                fragment.length = p - start
                fragment.end_position = position + p - start
                handler(fragment)
        finally:
            # The end of a block of many frames was set explicitly; for the next poll the header determines it again.
            fragment.end_position = -1
            self.leave(p - start)
        return p - start

    @cython.exceptval(-1)
    def gather(
        self, out: list, limit: cython.longlong, metadata: cython.bint, max_length: cython.longlong
    ) -> cython.int:
        """Append whole messages to a list, as bytes or as ``Message``; cut split ones to ``max_length`` bytes, if not -1."""
        if not self.enter():
            return 0
        if max_length >= 0:
            self.builder.limit = DATA_HEADER_LENGTH + max_length
        base = self.base
        position: cython.longlong = get64(self.position_base, self.position_offset)
        start: cython.longlong = self.place(position)
        p: cython.longlong = start
        term_end: cython.longlong = start + self.term_length - (position & (self.term_length - 1))
        length: cython.longlong
        count: cython.longlong = 0
        fragment: Fragment = self.fragment
        whole: Fragment
        fragment.base = base
        try:
            while count < limit and p < term_end:
                length = ld32(base, p)
                if length <= 0:
                    break
                if length < DATA_HEADER_LENGTH or length > term_end - p:
                    raise self._corrupt_frame(position + p - start, length)
                if get16(base, p + FRAME_TYPE_OFFSET) != TYPE_PAD:
                    fragment.p = p
                    fragment.start = p + DATA_HEADER_LENGTH
                    fragment.length = length - DATA_HEADER_LENGTH
                    if (get8(base, p + FRAME_FLAGS_OFFSET) & FLAG_UNFRAGMENTED) == FLAG_UNFRAGMENTED:
                        if metadata:
                            out.append(self.with_metadata(fragment, position + p - start + align_frame(length)))
                        else:
                            out.append(payload_bytes(fragment))
                        count += 1
                    # An incomplete message stays in the builder for the next call; its frames still count as read.
                    elif self.builder.add(fragment):
                        whole = self.builder.message
                        if metadata:
                            out.append(self.with_metadata(whole, position + p - start + align_frame(length)))
                        else:
                            out.append(payload_bytes(whole))
                        self.builder.length = 0
                        count += 1
                p += align_frame(length)
        finally:
            self.leave(p - start)
        return 0

    @cython.cfunc
    def with_metadata(self, message: Fragment, end_position: cython.longlong) -> Message:
        """Copy a message with the fields of its first frame's header."""
        # Skip the initializer, whose boxed arguments would cost as much as the rest.
        copy: Message = Message.__new__(Message)
        copy.payload = payload_bytes(message)
        copy.position = end_position
        copy.session_id = get32(message.base, message.p + FRAME_SESSION_ID_OFFSET)
        copy.stream_id = get32(message.base, message.p + FRAME_STREAM_ID_OFFSET)
        copy.reserved_value = get64(message.base, message.p + FRAME_RESERVED_VALUE_OFFSET)
        copy.image = self
        return copy

    # -- the public methods ------------------------------------------------------------------------------------------

    def poll(self, handler: Callable[[Fragment], object], limit: cython.longlong = 10) -> int:
        """Call ``handler`` with each available fragment. A poll stops at the end of a term.

        The position moves once, at the end, even if the handler raises; the fragment that it raised on counts as read.

        Args:
            handler: Called with each ``Fragment``, which is valid only inside the call.
            limit: The maximum number of fragments.

        Returns:
            The number of fragments.
        """
        return self.deliver(handler, limit, NEVER_NS, False)

    def bounded_poll(
        self,
        handler: Callable[[Fragment], object],
        limit_position: cython.longlong,
        *,
        limit: cython.longlong = 10,
    ) -> int:
        """Poll only fragments that start before a position.

        Args:
            handler: As for ``poll``.
            limit_position: The position.
            limit: The maximum number of fragments.

        Returns:
            The number of fragments.
        """
        return self.deliver(handler, limit, max(0, limit_position), False)

    def poll_messages(self, handler: Callable[[Fragment], object], limit: cython.longlong = 10) -> int:
        """Poll whole messages; messages in several fragments are assembled first.

        Args:
            handler: Called with each message as a ``Fragment``, which is valid only inside the call.
            limit: The maximum number of messages.

        Returns:
            The number of messages.
        """
        return self.deliver(handler, limit, NEVER_NS, True)

    def controlled_poll(self, handler: Callable[[Fragment], int | None], limit: cython.longlong = 10) -> int:
        """Poll fragments with a handler that decides how to continue.

        Args:
            handler: Called with each ``Fragment``; returns an ``Action``, or None for CONTINUE.
            limit: The maximum number of fragments.

        Returns:
            The number of fragments.
        """
        return self.control(handler, limit)

    def block_poll(self, handler: Callable[[Fragment], object], block_length_limit: cython.longlong) -> int:
        """Deliver whole frames, headers included, as one block.

        Padding ends a block; a padding frame at the start is delivered alone.

        Args:
            handler: Called with the block as a ``Fragment``.
            block_length_limit: The maximum number of bytes.

        Returns:
            The number of bytes.
        """
        return self.block(handler, block_length_limit)

    def poll_bytes(self, limit: cython.longlong = 1000) -> list[bytes]:
        """Return whole messages as bytes.

        Args:
            limit: The maximum number of messages.

        Returns:
            The messages; an empty list if there are none.
        """
        out: list = []
        self.gather(out, limit, False, -1)
        return out

    def poll_with_metadata(self, limit: cython.longlong = 1000) -> list[Message]:
        """Return whole messages, each with its position, session, stream, reserved value and image.

        Args:
            limit: The maximum number of messages.

        Returns:
            The messages; an empty list if there are none.
        """
        out: list = []
        self.gather(out, limit, True, -1)
        return out

    def scan(self, offsets: AtomicBuffer, lengths: AtomicBuffer, limit: cython.longlong = -1) -> tuple[int, int]:
        """Write int64 payload offsets (into ``log``) and int32 lengths of fragments; return (count, position).

        Nothing is copied and the position does not move: the payloads stay valid until ``release(position)``.
        """
        if not self.enter():
            return 0, self.final_position
        base = self.base
        position: cython.longlong = get64(self.position_base, self.position_offset)
        start: cython.longlong = self.place(position)
        p: cython.longlong = start
        term_end: cython.longlong = start + self.term_length - (position & (self.term_length - 1))
        length: cython.longlong
        room: cython.longlong = min(offsets.capacity // 8, lengths.capacity // 4)
        count: cython.longlong = 0
        if limit >= 0 and limit < room:
            room = limit
        while p < term_end:
            length = ld32(base, p)
            if length <= 0:
                break
            if length < DATA_HEADER_LENGTH or length > term_end - p:
                self.leave(0)
                raise self._corrupt_frame(position + p - start, length)
            # If it is full, do not pass the frame at ``p``, where the next scan begins. Padding behind the last row is passed.
            if get16(base, p + FRAME_TYPE_OFFSET) != TYPE_PAD:
                if count >= room:
                    break
                put64(offsets.base, count * 8, p + DATA_HEADER_LENGTH)
                put32(lengths.base, count * 4, cython.cast(cython.int, length - DATA_HEADER_LENGTH))
                count += 1
            p += align_frame(length)
        # The position stays: until ``release`` the publisher must not overwrite the payloads that the caller's columns point to.
        self.leave(0)
        return count, position + p - start

    def release(self, position: cython.longlong) -> None:
        """Move the position forward.

        Args:
            position: A position that ``scan`` or ``scan_into`` returned.

        Raises:
            ValueError: The image cannot have that position.
        """
        if self.closed:
            return
        # The publisher may overwrite all bytes before the position. A position that falls, or skips more than a term, would let it
        # overwrite unread bytes; at one between two frames, the next poll would take payload for a length.
        now: cython.longlong = get64(self.position_base, self.position_offset)
        if position < now or position - now > self.term_length or position % FRAME_ALIGNMENT:
            raise ValueError(f"position {position} cannot be released: the image is at {now}")
        st64(self.position_base, self.position_offset, position)

    def readable(self) -> tuple[int, int]:
        """Return the offset in the log of the next frame, and the end of its term, for code that walks the log itself.

        Raises like the polls if the next frame's length is impossible.
        """
        if self.closed:
            return 0, 0
        self.check_position()
        position: cython.longlong = get64(self.position_base, self.position_offset)
        start: cython.longlong = self.place(position)
        term_end: cython.longlong = start + self.term_length - (position & (self.term_length - 1))
        length: cython.longlong = ld32(self.base, start)
        if length > 0 and (length < DATA_HEADER_LENGTH or length > term_end - start):
            raise self._corrupt_frame(position, length)
        return start, term_end

    def _corrupt_position(self, position: cython.longlong) -> Exception:
        """Return the error for a subscriber position that is not the start of a frame; a subclass may name the log's file."""
        return ValueError(f"log {self.correlation_id}: no frame begins at position {position}")

    def _corrupt_frame(self, position: cython.longlong, length: cython.longlong) -> Exception:
        """Return the error for a frame of impossible length; a subclass may name the log's file."""
        left: cython.longlong = self.term_length - (position & (self.term_length - 1))
        return ValueError(
            f"log {self.correlation_id}, position {position}: a frame of {length} bytes is not possible where {left} are"
            " left of the term"
        )


@cython.cclass
class Message:
    """A copy of a whole message with its metadata; it stays valid. ``messages(metadata=True)`` yields these.

    ``bytes(message)`` is the payload, and ``len(message)`` its length in bytes. All fields are read-only.

    Attributes:
        payload: The message.
        position: The position of the stream, in bytes, at the end of the message's last frame: where a reader continues.
        session_id: The publisher's session id.
        stream_id: The stream id.
        reserved_value: The int64 that the publisher wrote into the header of the message's first frame.
        image: The image that the message came from; closed if its publisher is gone. None for a message you created yourself.

    Example:
        >>> for message in subscription.messages(metadata=True):
        ...     print(message.position, message.source_identity, message.payload)
    """

    payload: readonly[bytes]
    position: readonly[cython.longlong]
    session_id: readonly[cython.int]
    stream_id: readonly[cython.int]
    reserved_value: readonly[cython.longlong]
    image: readonly[ImageReader]

    def __init__(
        self,
        payload: bytes,
        position: cython.longlong = 0,
        session_id: cython.int = 0,
        stream_id: cython.int = 0,
        reserved_value: cython.longlong = 0,
        image: ImageReader | None = None,
    ) -> None:
        self.payload = payload
        self.position = position
        self.session_id = session_id
        self.stream_id = stream_id
        self.reserved_value = reserved_value
        self.image = image

    @property
    def source_identity(self) -> str:
        """The source of the message: ``ip:port``, or ``aeron:ipc``; empty without an image."""
        return "" if self.image is None else self.image.source_identity

    def __bytes__(self) -> bytes:
        return self.payload

    def __len__(self) -> int:
        return len(self.payload)

    def __repr__(self) -> str:
        return f"<Message of {len(self.payload)} bytes, session {self.session_id}, position {self.position}>"


@cython.cclass
class SubscriptionReader:
    """All images of one subscription, polled in turn by one call; each call starts with the next image."""

    images: readonly[tuple[ImageReader, ...]]
    next_image: cython.longlong
    # A waiting caller also runs the duty cycles of the client or the driver.
    _is_invoked: public[cython.bint]

    def __init__(self) -> None:
        self.images = ()
        self._is_invoked = False
        self.next_image = 0

    def _set_images(self, images: Iterable[ImageReader]) -> None:
        """Replace the images; a running poll continues with the old ones."""
        replacement: tuple = tuple(images)
        for image in replacement:
            if not isinstance(image, ImageReader):
                raise TypeError(f"{image!r} is not an image")
        self.images = replacement

    @cython.final
    @cython.exceptval(check=False)
    def start(self) -> cython.longlong:
        """Return the index of the image to poll first this time."""
        first: cython.longlong = self.next_image
        if first >= len(self.images):
            first = 0
        self.next_image = first + 1
        return first

    def poll(self, handler: Callable[[Fragment], object], limit: cython.longlong = 10) -> int:
        """Call ``handler`` with each available fragment of all images, without waiting.

        If the handler raises, the fragment that it raised on counts as read.

        Args:
            handler: Called with each ``Fragment``, which is valid only inside the call.
            limit: The maximum number of fragments.

        Returns:
            The number of fragments.
        """
        return self.poll_all(handler, limit, False)

    def poll_messages(self, handler: Callable[[Fragment], object], limit: cython.longlong = 10) -> int:
        """Poll whole messages of all images; messages in several fragments are assembled first.

        Args:
            handler: Called with each message as a ``Fragment``, which is valid only inside the call.
            limit: The maximum number of messages.

        Returns:
            The number of messages.
        """
        return self.poll_all(handler, limit, True)

    @cython.exceptval(-1)
    def poll_all(self, handler: object, limit: cython.longlong, whole: cython.bint) -> cython.longlong:
        # The tuple is replaced and never changed, so images that come or go while a handler runs do not disturb the loop. Each
        # poll starts with another image, so a busy one cannot starve the others.
        images: tuple = self.images
        n: cython.longlong = len(images)
        first: cython.longlong = self.start()
        count: cython.longlong = 0
        i: cython.longlong
        image: ImageReader
        for i in range(n):
            image = images[(first + i) % n]
            count += image.deliver(handler, limit - count, NEVER_NS, whole)
            if count >= limit:
                break
        return count

    def controlled_poll(self, handler: Callable[[Fragment], int | None], limit: cython.longlong = 10) -> int:
        """Poll fragments with a handler that decides how to continue.

        Args:
            handler: Called with each ``Fragment``; returns an ``Action``, or None for CONTINUE.
            limit: The maximum number of fragments.

        Returns:
            The number of fragments.
        """
        images: tuple = self.images
        n: cython.longlong = len(images)
        first: cython.longlong = self.start()
        count: cython.longlong = 0
        i: cython.longlong
        image: ImageReader
        for i in range(n):
            image = images[(first + i) % n]
            count += image.control(handler, limit - count)
            if count >= limit:
                break
        return count

    def block_poll(self, handler: Callable[[Fragment], object], block_length_limit: cython.longlong) -> int:
        """Deliver one block of whole frames from every image.

        Args:
            handler: Called with each block as a ``Fragment``.
            block_length_limit: The maximum number of bytes in one block.

        Returns:
            The number of bytes.
        """
        images: tuple = self.images
        count: cython.longlong = 0
        image: ImageReader
        for image in images:
            count += image.block(handler, block_length_limit)
        return count

    def poll_bytes(self, limit: cython.longlong = 1000) -> list[bytes]:
        """Return whole messages of all images as bytes.

        Args:
            limit: The maximum number of messages.

        Returns:
            The messages; an empty list if there are none.
        """
        return self.gather_all(limit, False, -1)

    def poll_with_metadata(self, limit: cython.longlong = 1000) -> list[Message]:
        """Return whole messages of all images, each with its position, session, stream, reserved value and image.

        Args:
            limit: The maximum number of messages.

        Returns:
            The messages; an empty list if there are none.
        """
        return self.gather_all(limit, True, -1)

    def poll_limited(self, limit: cython.longlong, max_length: cython.longlong) -> list[Message]:
        """Like ``poll_with_metadata``, with messages of several fragments cut to ``max_length`` bytes, and never held longer.

        Always poll a subscription with the same ``max_length``.
        """
        return self.gather_all(limit, True, max_length)

    @cython.cfunc
    def gather_all(self, limit: cython.longlong, metadata: cython.bint, max_length: cython.longlong) -> list:
        out: list = []
        images: tuple = self.images
        n: cython.longlong = len(images)
        first: cython.longlong = self.start()
        i: cython.longlong
        image: ImageReader
        for i in range(n):
            if len(out) >= limit:
                break
            image = images[(first + i) % n]
            image.gather(out, limit - len(out), metadata, max_length)
        return out

    def has_data(self) -> bool:
        """Whether a poll would find something now."""
        image: ImageReader
        for image in self.images:
            if image.has_data():
                return True
        return False

    def wait_for_data(self, *, timeout: float | None = None) -> bool:
        """Wait until there is something to poll, or the subscription is closed.

        Args:
            timeout: Seconds to wait; None waits forever.

        Returns:
            Whether a poll would find something.

        Example:
            >>> while subscription.wait_for_data(timeout=1.0):
            ...     subscription.poll(handler)
        """
        # In a ping-pong exchange, such a wait ends almost at once.
        if timeout is not None and timeout <= 0.01 and not self._is_invoked:
            return self._wait_for_data(timeout)
        return self._wait_long(timeout)

    def _wait_long(self, timeout: float | None) -> bool:
        raise NotImplementedError

    def _wait_for_data(self, timeout: cython.double) -> bool:
        """Wait without the GIL until a poll would find something; return whether it would.

        Returns after ``timeout`` seconds or 10 ms, whichever is shorter, so that new images and signals are noticed.
        """
        images: tuple = self.images
        image: ImageReader
        if cython.compiled:
            # Watch the length words of the next frames. If there are more than 64 images, watch the first 64; the timeout covers
            # the rest, since the loop above checks all of them.
            watched = cython.declare(cython.p_uchar[64])
            count: cython.int = 0
            has_arrived: cython.bint
            has_closed: cython.bint = False
            for image in images:
                if image.has_data():
                    return True
                if image.closed:
                    has_closed = True
                elif count < 64:
                    watched[count] = image.base + image.place(get64(image.position_base, image.position_offset))
                    count += 1
            if has_closed:
                # Closing an image waits for its waiters; threads that return at once and wait again would block it forever.
                images = tuple([image for image in images if not image.closed])
            # No other Python code runs until the GIL is released, so none of these can close in between.
            for image in images:
                image.waiters += 1
            with cython.nogil:
                has_arrived = watch(watched, count, cython.cast(cython.longlong, min(timeout, 0.01) * 1e9))
            for image in images:
                image.waiters -= 1
            return has_arrived
        else:
            return self.has_data()


def find_ready(images: list[ImageReader]) -> list[int]:
    """Return the indexes of the images that have a frame to read, have ended, were closed, or cannot be read.

    A pass over a large number of images, few of which have anything, costs three loads for each.
    """
    found: list[int] = []
    image: ImageReader
    position: cython.longlong
    i: cython.Py_ssize_t
    for i in range(len(images)):
        image = images[i]
        if not image.closed:
            position = get64(image.position_base, image.position_offset)
            if (
                position >= 0
                and not position & (FRAME_ALIGNMENT - 1)
                and ld32(image.base, image.place(position)) <= 0
                and position < ld64(image.base, image.meta + LOG_END_OF_STREAM_POSITION_OFFSET)
            ):
                continue
        found.append(i)
    return found
