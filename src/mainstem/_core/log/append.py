"""Appending to a log: the work of a publication's ``offer``, ``try_claim`` and batches on the terms.

The protocol: docs/protocols/aeron.md, 11.

Theory of operation. Each of the three partitions has a tail counter in the log's metadata: the term id in the upper
half, the offset of the next free byte in the lower. ``active term count`` says which partition is written to. To append,
a publication reads tail and limit, claims bytes by moving the tail, writes the frame, and makes it visible.

Who writes what:

- The tail of the active partition: every concurrent publication of the stream, in any process, by fetch-and-add. An
  exclusive publication is the only one of its log: it keeps the tail itself and stores it with release for others to
  read.
- The frame in the claimed bytes: the owner of the claim, until the frame's length is positive. After that nobody writes it
  until it is cleaned.
- ``active term count``, and the tail of the next term: the publication that reaches the end of a term first, by
  compare-and-set.
- The publisher limit, a counter: the driver. Producers only load it, with acquire.
- ``is connected``: the driver, which also cleans terms and pads a dead producer's claim.

Invariants:

- The bytes from the tail to the limit, and as far beyond it as claims may overrun it, are zero. The driver ensures that.
- A message begins only where ``position < limit``. The check and the claim are two steps, so racing publications can
  overrun the limit, each by at most one claim; a claim takes no more bytes than the longest message does. The driver's
  window allows for it.
- The tail's offset may pass the term's end. The one claim that begins before the end and runs over it owns the rest of
  the term: that publication pads it, and rotates. Claims that begin at or behind the end own nothing, and only help to
  rotate. All of them return ADMIN_ACTION, and the caller offers again, in the next term.
- Rotation happens once: a publication sets the next tail only if it still holds the term id of three terms before, and
  raises the active count only from the value that it saw. Either step fails harmlessly if another publication has done it.
  A fetch-and-add may still reach a tail that was rotated between the check and the claim: the term id that it returns shows
  where the claim is.

Memory ordering:

- The negative length is stored first, before a release fence, so that the driver can see how long a dead claim is.
- Header fields and payload are plain stores in any order; the positive length is stored last, with release. A reader
  that loads it with acquire sees all of the frame.
- Fragments of a message become visible one by one, in order; readers cannot pass one that is missing.
- A batch is written in runs. The first frame of a run becomes visible last, when the later ones are complete, so a reader
  finds the whole run at once. Each frame of a run stores a negative length first and its length last, as single frames do:
  if this process dies, the driver pads over the incomplete ones, one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from mainstem.errors import ConfigurationError, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from typing_extensions import Buffer

if cython.compiled:
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
else:
    from mainstem._core.layout import *
    from mainstem._core.log.batch import MessageColumns, MessageList, Messages
    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem._core.memory.plain import *
    from mainstem._core.memory.plain import Memory

# A batch is published in runs of this many bytes: long enough that reader and writer rarely touch the same cache lines, short
# enough that the reader copies one run out of the shared cache while the next is written.
RUN_LENGTH = cython.declare(cython.longlong, 8192)
CACHE_LINE_LENGTH = cython.declare(cython.longlong, 64)
EXPECTED_LENGTH = cython.declare(cython.longlong, 1536)  # prefetch no more lines than a core can have in flight
# At the end of a page, the next page is read before it is written: a read maps all existing pages around it, a write only one.
PAGE_BITS = cython.declare(cython.longlong, ~4095)
LOW_32_BITS = cython.declare(cython.longlong, 0xFFFFFFFF)


def framed_length(length: cython.longlong, longest: cython.longlong) -> cython.longlong:
    """Return the bytes that a message takes in a term if a frame carries at most ``longest`` bytes of it."""
    if length <= longest:
        return align_frame(length + DATA_HEADER_LENGTH)
    full: cython.longlong = length // longest
    rest: cython.longlong = length - full * longest
    return full * (longest + DATA_HEADER_LENGTH) + (align_frame(rest + DATA_HEADER_LENGTH) if rest else 0)


@cython.cclass
class BufferClaim:
    """Space claimed in a term: write through ``view``, then ``commit`` or ``abort``. The object can be reused for further claims.

    As a context manager it commits at the end, and aborts if the block raises. An open claim blocks every later message of the
    stream. ``len(claim)`` is the payload's length in bytes, 0 while no claim is open; ``position`` is the stream's position after
    the message, as ``try_claim`` returned it; ``is_open`` is true from ``try_claim`` to ``commit`` or ``abort``. Using a claim that
    is not open raises LocalProtocolError. The protocol: docs/protocols/aeron.md, 11.

    Example:
        >>> claim = BufferClaim()
        >>> if publication.try_claim(8, claim) > 0:
        ...     with claim:
        ...         claim.view[:] = (42).to_bytes(8, "little")
    """

    log: AtomicBuffer
    payload: object
    p: cython.longlong
    position: readonly[cython.longlong]
    length: cython.longlong
    is_open: readonly[cython.bint]

    def __init__(self) -> None:
        self.is_open = False
        self.payload = None

    def __len__(self) -> int:
        return self.length if self.is_open else 0

    @property
    def view(self) -> memoryview:
        """A writable view of the payload in the term; commit and abort release it.

        Raises:
            LocalProtocolError: The claim is not open.
        """
        if not self.is_open:
            raise LocalProtocolError("the claim is not open: it was committed or aborted, or try_claim did not succeed")
        if self.payload is None:
            self.payload = self.log.view(self.p + DATA_HEADER_LENGTH, self.length)
        return self.payload

    @property
    def reserved_value(self) -> int:
        """The int64 in the frame's header that is reserved for the application; 0 unless it is set before the commit.

        Raises:
            LocalProtocolError: The claim is not open, or the publication was closed meanwhile.
        """
        self._check_open()
        return get64(self.log.base, self.p + FRAME_RESERVED_VALUE_OFFSET)

    @reserved_value.setter
    def reserved_value(self, value: cython.longlong) -> None:
        self._check_open()
        put64(self.log.base, self.p + FRAME_RESERVED_VALUE_OFFSET, value)

    @cython.exceptval(-1)
    def _check_open(self) -> cython.int:
        if not self.is_open:
            raise LocalProtocolError("the claim is not open: it was committed or aborted, or try_claim did not succeed")
        if self.log.capacity == 0:
            self.is_open = False
            raise LocalProtocolError("the publication was closed while the claim was open")

    @cython.exceptval(-1)
    def _finish(self, kind: cython.int) -> cython.int:
        self._check_open()
        self.is_open = False
        if self.payload is not None:
            self.payload.release()
            self.payload = None
        if kind == TYPE_PAD:
            put16(self.log.base, self.p + FRAME_TYPE_OFFSET, TYPE_PAD)
        st32(self.log.base, self.p, cython.cast(cython.int, self.length + DATA_HEADER_LENGTH))
        self.log = None
        return 0

    def commit(self) -> None:
        """Make the message readable.

        Raises:
            LocalProtocolError: The claim is not open, or the publication was closed meanwhile.
        """
        self._finish(TYPE_DATA)

    def abort(self) -> None:
        """Turn the claim into padding, which readers skip.

        Raises:
            LocalProtocolError: The claim is not open, or the publication was closed meanwhile.
        """
        self._finish(TYPE_PAD)

    def __enter__(self) -> BufferClaim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_open:
            self._finish(TYPE_DATA if kind is None else TYPE_PAD)


@cython.cclass
class Appender:
    """The common part of concurrent and exclusive publications (docs/protocols/aeron.md, 11).

    ``log`` is the memory of the whole log file, ``limits`` the counters' values and ``limit_counter_id`` the publisher limit's
    counter. Raises ValueError if one of them is invalid.

    Positions are returned as ints; a negative one is a status (``layout.OFFER_...``).
    """

    log: AtomicBuffer
    limits: AtomicBuffer
    base: cython.p_uchar
    limit_base: cython.p_uchar
    limit_offset: cython.longlong
    meta: cython.longlong
    term_length: readonly[cython.longlong]
    max_possible_position: readonly[cython.longlong]
    max_payload_length: readonly[cython.longlong]
    max_message_length: readonly[cython.longlong]
    initial_term_id: readonly[cython.int]
    session_id: readonly[cython.int]
    stream_id: readonly[cython.int]
    is_closed: cython.bint
    bits: cython.int
    mtu: readonly[cython.longlong]
    # Further results of the last next_offset() and take(), because a C function returns one value.
    room: cython.longlong
    taken_count: cython.longlong
    taken_offset: cython.longlong

    def __init__(self, log: AtomicBuffer, limits: AtomicBuffer, limit_counter_id: cython.int) -> None:
        meta: cython.longlong = log.capacity - LOG_METADATA_LENGTH
        self.log = log
        self.limits = limits
        self.base = log.base
        self.limit_base = limits.base
        self.limit_offset = cython.cast(cython.longlong, limit_counter_id) * COUNTER_VALUE_LENGTH
        self.meta = meta
        self.term_length = log.get_i32(meta + LOG_TERM_LENGTH_OFFSET)
        if limit_counter_id < 0 or self.limit_offset + COUNTER_VALUE_LENGTH > limits.capacity:
            raise ValueError(f"counter {limit_counter_id} lies outside {limits.capacity} bytes of counters")
        if (
            self.term_length < TERM_MIN_LENGTH
            or self.term_length & (self.term_length - 1)
            or PARTITION_COUNT * self.term_length > meta
        ):
            raise ValueError(f"a log of {log.capacity} bytes cannot have terms of {self.term_length}")
        # Neither a publication nor the driver ever stores such a count or such a tail.
        count: cython.longlong = log.get_i32_acquire(meta + LOG_ACTIVE_TERM_COUNT_OFFSET)
        raw: cython.longlong = log.get_i64_acquire(meta + ((count & TERM_COUNT_MASK) % PARTITION_COUNT) * 8)
        if count < 0 or raw & (FRAME_ALIGNMENT - 1):
            raise ValueError(f"term {count} is active, with the tail {raw:#x}: no frame begins there")
        # A term's length is a power of two, so that a shift and a mask split a position into term count and offset.
        self.bits = int(self.term_length).bit_length() - 1
        self.initial_term_id = log.get_i32(meta + LOG_INITIAL_TERM_ID_OFFSET)
        self.mtu = log.get_i32(meta + LOG_MTU_LENGTH_OFFSET)
        if self.mtu < DATA_HEADER_LENGTH or self.mtu > MTU_MAX_LENGTH or self.mtu % FRAME_ALIGNMENT:
            raise ValueError(f"the log's MTU of {self.mtu} is not a multiple of 32 from 32 to 65504")
        # The driver wrote a default header into the metadata: the ids that every frame of this log carries.
        self.session_id = log.get_i32(meta + LOG_DEFAULT_HEADER_OFFSET + FRAME_SESSION_ID_OFFSET)
        self.stream_id = log.get_i32(meta + LOG_DEFAULT_HEADER_OFFSET + FRAME_STREAM_ID_OFFSET)
        self.max_payload_length = self.mtu - DATA_HEADER_LENGTH
        # An eighth of a term, so that a claim that runs over the end wastes no more. An MTU of 32 has no room for payload.
        self.max_message_length = min(self.term_length // 8, MAX_MESSAGE_LENGTH) if self.max_payload_length else 0
        # Term ids have 32 bits and wrap; after 2**31 terms the count from the first one would turn negative.
        self.max_possible_position = self.term_length << 31
        self.is_closed = False

    def _detach(self) -> None:
        """Release the memory: every later offer returns CLOSED."""
        self.is_closed = True
        self.log = None
        self.limits = None
        self.base = self.limit_base = cython.NULL if cython.compiled else None

    # -- offsets and status ----------------------------------------------------------------------------------------

    @cython.final
    @cython.exceptval(check=False)
    def framed(self, length: cython.longlong) -> cython.longlong:
        """Return the bytes that a message takes in the term, header and fragments included."""
        return framed_length(length, self.max_payload_length)

    @cython.final
    @cython.exceptval(check=False)
    def place(self, position: cython.longlong) -> cython.longlong:
        """Return the file offset of a position, always inside the log and aligned to a frame, even if the tail is corrupt.

        ARM64 kills a process whose atomic store is not aligned.
        """
        count: cython.longlong = (position >> self.bits) & TERM_COUNT_MASK
        return (count % PARTITION_COUNT) * self.term_length + (position & (self.term_length - FRAME_ALIGNMENT))

    @cython.final
    @cython.exceptval(check=False)
    def refusal(self, position: cython.longlong, length: cython.longlong) -> cython.longlong:
        """Return why there is no room at ``position``."""
        # In the order of what the caller can do about it: nothing, poll again, wait for a subscriber.
        if position + align_frame(length + DATA_HEADER_LENGTH) >= self.max_possible_position:
            return OFFER_MAX_POSITION_EXCEEDED
        if ld32(self.base, self.meta + LOG_IS_CONNECTED_OFFSET) == 1:
            return OFFER_BACK_PRESSURED
        return OFFER_NOT_CONNECTED

    @cython.exceptval(check=False)
    def next_offset(self, length: cython.longlong) -> cython.longlong:  # noqa: ARG002 - subclasses do the work
        """Return the tail's offset in its term and set ``room`` to the bytes up to the limit, or return a negative status."""
        return OFFER_CLOSED

    @cython.exceptval(check=False)
    def take(self, framed: cython.longlong) -> cython.longlong:  # noqa: ARG002 - subclasses do the work
        """Move the tail by ``framed`` bytes; set ``taken_count`` and ``taken_offset``."""
        return OFFER_CLOSED

    @cython.exceptval(check=False)
    def rotate(self, count: cython.longlong) -> cython.longlong:  # noqa: ARG002 - subclasses do the work
        """Make the partition after term ``count`` the active one."""
        return OFFER_CLOSED

    @cython.final
    @cython.exceptval(check=False)
    def claim(self, framed: cython.longlong, length: cython.longlong) -> cython.longlong:
        """Return the position where a claim of ``framed`` bytes begins, or a negative status."""
        # Compare the limit with the start of the message, not its end: the driver's window has room for the rest.
        status: cython.longlong = self.next_offset(length)
        if status < 0:
            return status
        # From here on the bytes belong to this publication, which must turn them into a frame or padding: readers wait for them.
        self.take(framed)
        if self.taken_offset + framed > self.term_length:
            return self.meet_term_end()
        return shift_left(self.taken_count, self.bits) + self.taken_offset

    @cython.final
    @cython.exceptval(check=False)
    def meet_term_end(self) -> cython.longlong:
        """Pad the rest of the term that the last take ran over, and rotate."""
        # The tail stays beyond the end of the term, which shows the driver and late publications that the term is full.
        # Only the claim that began before the end has something to pad; the later ones found the tail past it.
        left: cython.longlong = self.term_length - self.taken_offset
        if left > 0:
            self.put_pad(shift_left(self.taken_count, self.bits) + self.taken_offset, left)
        if shift_left(self.taken_count + 1, self.bits) >= self.max_possible_position:
            return OFFER_MAX_POSITION_EXCEEDED
        return self.rotate(self.taken_count)

    # -- writing frames --------------------------------------------------------------------------------------------

    @cython.final
    @cython.exceptval(check=False)
    def put_header(
        self,
        p: cython.longlong,
        length: cython.longlong,
        flags: cython.int,
        kind: cython.int,
        begin: cython.longlong,
        reserved: cython.longlong,
    ) -> cython.void:
        """Write a header with a negative length: claimed, but incomplete."""
        base = self.base
        # Store this before the rest of the header, so that the driver knows how much to pad if this process dies here.
        st32(base, p, cython.cast(cython.int, -length))
        # A fence rather than a release store: the stores below may happen in any order, but none before the length.
        fence_release()
        put32(base, p + FRAME_VERSION_OFFSET, (flags << 8) | (kind << 16))
        put32(base, p + FRAME_TERM_OFFSET_OFFSET, cython.cast(cython.int, begin & (self.term_length - 1)))
        put32(base, p + FRAME_SESSION_ID_OFFSET, self.session_id)
        put32(base, p + FRAME_STREAM_ID_OFFSET, self.stream_id)
        # Counted from the first term and wrapped as on the wire, for streams that outlive 2**32 term ids.
        put32(base, p + FRAME_TERM_ID_OFFSET, wrap_i32((begin >> self.bits) + self.initial_term_id))
        put64(base, p + FRAME_RESERVED_VALUE_OFFSET, reserved)

    @cython.final
    @cython.exceptval(check=False)
    def put_pad(self, begin: cython.longlong, length: cython.longlong) -> cython.void:
        p: cython.longlong = self.place(begin)
        self.put_header(p, length, FLAG_UNFRAGMENTED, TYPE_PAD, begin, 0)
        st32(self.base, p, cython.cast(cython.int, length))

    @cython.final
    @cython.exceptval(check=False)
    def put_message(
        self, begin: cython.longlong, source: cython.p_const_uchar, length: cython.longlong, reserved: cython.longlong
    ) -> cython.void:
        p: cython.longlong = self.place(begin)
        base = self.base
        if length <= self.max_payload_length:
            self.put_header(p, length + DATA_HEADER_LENGTH, FLAG_UNFRAGMENTED, TYPE_DATA, begin, reserved)
            copy_bytes(base, p + DATA_HEADER_LENGTH, source, 0, length)
            # The release that makes header and payload visible: no store above may move below it.
            st32(base, p, cython.cast(cython.int, length + DATA_HEADER_LENGTH))
            self.expect_next(p, align_frame(length + DATA_HEADER_LENGTH))
            return
        # Split the message: every frame but the last is exactly an MTU long, so the next one begins an MTU further on. Each becomes
        # visible as soon as it is written, so a fast reader reads the beginning of a message while its end is being copied.
        flags: cython.int = FLAG_BEGIN
        done: cython.longlong = 0
        part: cython.longlong = self.max_payload_length
        while done < length:
            if length - done <= part:
                part = length - done
                flags |= FLAG_END
            self.put_header(p, part + DATA_HEADER_LENGTH, flags, TYPE_DATA, begin, reserved)
            copy_bytes(base, p + DATA_HEADER_LENGTH, source, done, part)
            st32(base, p, cython.cast(cython.int, part + DATA_HEADER_LENGTH))
            p += self.mtu
            begin += self.mtu
            done += part
            flags = 0

    @cython.final
    @cython.exceptval(check=False)
    def expect_next(self, p: cython.longlong, framed: cython.longlong) -> cython.void:
        """Prefetch the cache lines for another message of this length, while the caller prepares it."""
        base = self.base
        line: cython.longlong = p + framed
        end: cython.longlong = line + min(framed, EXPECTED_LENGTH)
        # A load is enough to fault the page in; a store would race with a publication that claimed it first.
        if (p ^ line) & PAGE_BITS:
            touch(base, line)
        while line < end:
            prefetch_write(base, line)
            line += CACHE_LINE_LENGTH

    @cython.exceptval(-1)
    def put_supplied(
        self, begin: cython.longlong, source: cython.p_const_uchar, length: cython.longlong, supplier: object
    ) -> cython.int:
        """Write a message whose ``supplier`` sees each frame and returns its reserved value. If it raises, pad the claim."""
        end: cython.longlong = begin + self.framed(length)
        flags: cython.int = FLAG_BEGIN
        done: cython.longlong = 0
        part: cython.longlong = self.max_payload_length
        p: cython.longlong
        reserved: cython.longlong = 0
        log: AtomicBuffer = self.log
        while begin < end:
            p = self.place(begin)
            if length - done <= part:
                part = length - done
                flags |= FLAG_END
            self.put_header(p, part + DATA_HEADER_LENGTH, flags, TYPE_DATA, begin, 0)
            copy_bytes(self.base, p + DATA_HEADER_LENGTH, source, done, part)
            # The frame's length is still negative: whatever the supplier does, no reader sees the frame before it is complete.
            try:
                with log.view(p, part + DATA_HEADER_LENGTH) as frame:
                    reserved = supplier(frame)
            except BaseException:
                # Claimed space cannot be returned, since others may have claimed behind it, so it becomes padding. Frames of this
                # message that are already committed stay; a reader drops a message without an end.
                if not self.is_closed:
                    self.put_pad(begin, end - begin)
                raise
            if self.is_closed:
                raise LocalProtocolError("the reserved value's supplier closed the publication")
            put64(self.base, p + FRAME_RESERVED_VALUE_OFFSET, reserved)
            st32(self.base, p, cython.cast(cython.int, part + DATA_HEADER_LENGTH))
            begin += align_frame(part + DATA_HEADER_LENGTH)
            done += part
            flags = 0
        return 0

    @cython.final
    @cython.exceptval(check=False)
    def put_run(
        self, begin: cython.longlong, messages: Messages, k: cython.longlong, end: cython.longlong
    ) -> cython.longlong:
        """Write frames of whole messages from ``k`` on, from ``begin`` up to ``end`` or RUN_LENGTH; move ``taken_offset``.

        The first frame's length stays negative until all others are complete: the reader then finds the whole run, and does not
        follow the writer from one cache line to the next.
        """
        base = self.base
        first: cython.longlong = self.place(begin)
        p: cython.longlong = first
        # A run stays inside its claim, and the claim inside the term, so offsets need no wrapping in the loop.
        stop: cython.longlong = first + min(end - begin, RUN_LENGTH)
        length: cython.longlong = messages.length[k]
        first_length: cython.longlong = length + DATA_HEADER_LENGTH
        longest: cython.longlong = self.max_payload_length
        mask: cython.longlong = self.term_length - 1
        session: cython.longlong = shift_left(self.session_id, 32)
        offset: cython.longlong = begin & mask
        kind: cython.longlong = cython.cast(cython.longlong, (FLAG_UNFRAGMENTED << 8) | (TYPE_DATA << 16)) << 32
        term_id: cython.longlong = wrap_i32((begin >> self.bits) + self.initial_term_id)
        stream: cython.longlong = (self.stream_id & LOW_32_BITS) | shift_left(term_id, 32)
        n: cython.longlong = messages.loaded
        while True:
            # One store of eight bytes: negative length, version, flags and type. Later stores must not become visible before it:
            # if this process dies, the driver uses these lengths to pad over one frame after the other. Behind a length of 0 it
            # would mistake the first nonzero word of the payload for the next frame.
            mark64(base, p, kind | (-(length + DATA_HEADER_LENGTH) & LOW_32_BITS))
            fence_release()
            # Store pairs of fields at once: little-endian, the layout of every Aeron implementation.
            put64(base, p + FRAME_TERM_OFFSET_OFFSET, session | offset)
            put64(base, p + FRAME_STREAM_ID_OFFSET, stream)
            put64(base, p + FRAME_RESERVED_VALUE_OFFSET, 0)
            copy_bytes(base, p + DATA_HEADER_LENGTH, messages.source[k], 0, length)
            if p != first:
                st64(base, p, kind | (length + DATA_HEADER_LENGTH))
            length = align_frame(length + DATA_HEADER_LENGTH)
            if (p ^ (p + length)) & PAGE_BITS:
                touch(base, p + length)
            p += length
            offset += length
            k += 1
            if k >= n:
                break
            length = messages.length[k]
            if length > longest or p + align_frame(length + DATA_HEADER_LENGTH) > stop:
                break
        # Makes the whole run readable: all its other frames were stored before this release.
        st32(base, first, cython.cast(cython.int, first_length))
        self.taken_offset = offset
        return k

    # -- the public methods ---------------------------------------------------------------------------------------

    @cython.final
    @cython.exceptval(-1)
    def check_length(self, length: cython.longlong) -> cython.int:
        if length > self.max_message_length:
            raise ConfigurationError(
                f"a message of {length} bytes is longer than the {self.max_message_length} that can be offered"
            )
        return 0

    @cython.exceptval(-99, check=True)
    def append(self, source: cython.p_const_uchar, length: cython.longlong, reserved: object) -> cython.longlong:
        self.check_length(length)
        value: cython.longlong = 0
        supplied: cython.bint = False
        # Check this before the claim: an exception after it would leave space that must be padded.
        if reserved is not None:
            supplied = callable(reserved)
            if not supplied:
                value = reserved
        framed: cython.longlong = self.framed(length)
        begin: cython.longlong = self.claim(framed, length)
        if begin < 0:
            return begin
        if supplied:
            self.put_supplied(begin, source, length, reserved)
        else:
            self.put_message(begin, source, length, value)
        return begin + framed

    def offer(self, data: Buffer, *, reserved_value: int | Callable[[memoryview], int] | None = None) -> int:
        """Append one message, without waiting. A message longer than one frame is split.

        Args:
            data: The message, any buffer of bytes.
            reserved_value: An int64 for the header of every frame, or a function that is called with each frame, header and
                payload, before it is committed, and returns the value. If it raises, the message becomes padding.

        Returns:
            The position after the message, or a negative OfferStatus.

        Raises:
            ConfigurationError: The message is longer than ``max_message_length``.
        """
        if cython.compiled:
            # Most callers offer bytes, whose address is available without a buffer request, which costs as much as a small message.
            if type(data) is bytes:
                return self.append(
                    cython.cast(cython.p_uchar, PyBytes_AS_STRING(data)), PyBytes_GET_SIZE(data), reserved_value
                )
            view = cython.declare(Py_buffer)
            PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
            try:
                return self.append(cython.cast(cython.p_uchar, view.buf), view.len, reserved_value)
            finally:
                PyBuffer_Release(cython.address(view))
        else:
            memory = Memory(data)
            return self.append(memory, len(memory.u8), reserved_value)

    def offer_parts(
        self, parts: Iterable[Buffer], *, reserved_value: int | Callable[[memoryview], int] | None = None
    ) -> int:
        """Append the concatenated parts as one message.

        Args:
            parts: Buffers of bytes.
            reserved_value: As for ``offer``.

        Returns:
            The position after the message, or a negative OfferStatus.

        Raises:
            ConfigurationError: The message is longer than ``max_message_length``.
        """
        return self.offer(b"".join(parts), reserved_value=reserved_value)

    def try_claim(self, length: cython.longlong, claim: BufferClaim) -> int:
        """Claim a frame to write in place.

        Args:
            length: The payload's length, in bytes.
            claim: The claim to open.

        Returns:
            The position after the message, or a negative OfferStatus.

        Raises:
            ConfigurationError: ``length`` is more than ``max_payload_length``.
            LocalProtocolError: The claim is still open.
        """
        if length < 0 or length > self.max_payload_length:
            raise ConfigurationError(f"a claim of {length} bytes: one frame holds 0 to {self.max_payload_length}")
        if claim.is_open:
            raise LocalProtocolError("the claim is still open: commit or abort it first")
        framed: cython.longlong = align_frame(length + DATA_HEADER_LENGTH)
        begin: cython.longlong = self.claim(framed, length)
        if begin < 0:
            return begin
        # Only the length remains, negative: the driver uses it to unblock if the process dies before commit or abort.
        claim.p = self.place(begin)
        self.put_header(claim.p, length + DATA_HEADER_LENGTH, FLAG_UNFRAGMENTED, TYPE_DATA, begin, 0)
        claim.log = self.log
        claim.length = length
        claim.position = begin + framed
        claim.is_open = True
        return begin + framed

    def offer_many(self, messages: Iterable[Buffer]) -> tuple[int, int]:
        """Append as many whole messages as there is room for.

        Space is claimed for many messages at once; a batch that reaches the end of a term continues in the next.

        Args:
            messages: Buffers of bytes.

        Returns:
            The number of messages appended, and the position after them; a negative OfferStatus if none was appended.

        Raises:
            ConfigurationError: A message is longer than ``max_message_length``; none was appended.
        """
        return self.append_batch(MessageList(messages))

    def offer_columns(
        self,
        data: Buffer,
        offsets: Buffer,
        *,
        first: cython.longlong = 0,
        count: cython.longlong = -1,
        wide: cython.bint = False,
    ) -> tuple[int, int]:
        """Append the rows of an Arrow binary column, like ``offer_many``.

        Args:
            data: The column's data buffer.
            offsets: Its offsets.
            first: The first row.
            count: The number of rows; -1 for all from ``first`` on.
            wide: Whether the offsets are int64; otherwise they are int32.

        Returns:
            The number of rows appended, and the position after them; a negative OfferStatus if none was appended.

        Raises:
            ConfigurationError: The offsets are invalid, or a message is too long; none was appended.
        """
        return self.append_batch(MessageColumns(data, offsets, first, count, wide))

    @cython.cfunc
    def append_batch(self, messages: Messages) -> object:
        self.check_length(messages.largest)
        k: cython.longlong = 0
        before: cython.longlong = 0
        done: cython.longlong = 0
        total: cython.longlong
        offset: cython.longlong = 0
        position: cython.longlong = self.position if messages.count == 0 else 0
        # Each round claims space once and fills it. The loop ends: each round appends, rotates, or gets a status that breaks.
        while done < messages.count:
            if k == messages.loaded:
                messages.load(done)
                k = 0
            offset = self.next_offset(messages.length[k])
            if offset < 0:
                break
            total = self.claim_length(messages, k, self.term_length - offset)
            offset = self.take(total)
            # Another publication may have claimed between the limit check and the take. Then fewer messages fit before the term's
            # end than were counted, and the next round continues with the rest.
            before = k
            k = self.fill(messages, k, total)
            if k > before:
                position = shift_left(self.taken_count, self.bits) + self.taken_offset
                done += k - before
            if offset + total > self.term_length:
                offset = self.meet_term_end()
                if offset == OFFER_MAX_POSITION_EXCEEDED:
                    break
        return done, position if done > 0 or messages.count == 0 else offset

    @cython.final
    @cython.exceptval(check=False)
    def claim_length(self, messages: Messages, k: cython.longlong, left: cython.longlong) -> cython.longlong:
        """Return the bytes of one claim for messages from ``k`` on, with ``left`` bytes to the term's end.

        At most the length of the longest message (plus one message, to reach the end of a term), so that publishers that race for
        the last of the window overrun it by no more than single messages do.
        """
        total: cython.longlong = 0
        framed: cython.longlong
        longest: cython.longlong = self.max_payload_length
        while k < messages.loaded and total < self.room:
            framed = framed_length(messages.length[k], longest)
            # Always claim the first message whole: its length was checked against ``max_message_length``.
            if total > 0 and total + framed > self.max_message_length:
                break
            total += framed
            k += 1
            # Deliberately cross the end: the claim that crosses it is the one that pads and rotates.
            if total > left:
                break
        return total

    @cython.final
    @cython.exceptval(check=False)
    def fill(self, messages: Messages, k: cython.longlong, claimed: cython.longlong) -> cython.longlong:
        """Write whole messages into the claim, up to the end of the term; move ``taken_offset`` and return the next message."""
        end: cython.longlong = min(self.taken_offset + claimed, self.term_length)
        begin: cython.longlong = shift_left(self.taken_count, self.bits)
        length: cython.longlong
        framed: cython.longlong
        while k < messages.loaded:
            length = messages.length[k]
            framed = self.framed(length)
            if self.taken_offset + framed > end:
                break
            if length > self.max_payload_length:
                self.put_message(begin + self.taken_offset, messages.source[k], length, 0)
                self.taken_offset += framed
                k += 1
            else:
                k = self.put_run(begin + self.taken_offset, messages, k, begin + end)
        return k

    def append_padding(self, length: cython.longlong) -> int:
        """Append padding, which readers skip.

        Args:
            length: The padding's length after its header, in bytes.

        Returns:
            The position after the padding, or a negative OfferStatus.
        """
        if length < 0:
            raise ValueError(f"a padding of {length} bytes")
        self.check_length(length)
        framed: cython.longlong = align_frame(length + DATA_HEADER_LENGTH)
        begin: cython.longlong = self.claim(framed, length)
        if begin < 0:
            return begin
        self.put_pad(begin, length + DATA_HEADER_LENGTH)
        return begin + framed

    # -- state of the stream ---------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The position at which the next message will be appended, or CLOSED."""
        if self.is_closed:
            return OFFER_CLOSED
        # Take the term from the tail, not from the count, so that a rotation between the two loads cannot lower the position. An
        # offset beyond the end belongs to claims that returned ADMIN_ACTION.
        count: cython.longlong = ld32(self.base, self.meta + LOG_ACTIVE_TERM_COUNT_OFFSET)
        raw: cython.longlong = ld64(self.base, self.meta + ((count & TERM_COUNT_MASK) % PARTITION_COUNT) * 8)
        term_id: cython.longlong = raw >> 32
        offset: cython.longlong = min(raw - shift_left(term_id, 32), self.term_length)
        return shift_left(wrap_i32(term_id - self.initial_term_id), self.bits) + offset

    @property
    def position_limit(self) -> int:
        """The position up to which messages may be appended, or CLOSED."""
        return OFFER_CLOSED if self.is_closed else ld64(self.limit_base, self.limit_offset)

    @property
    def available_window(self) -> int:
        """The number of bytes up to the limit, or CLOSED."""
        return OFFER_CLOSED if self.is_closed else self.position_limit - self.position

    @property
    def is_connected(self) -> bool:
        """Whether the stream has a consumer."""
        return not self.is_closed and ld32(self.base, self.meta + LOG_IS_CONNECTED_OFFSET) == 1


@cython.cclass
class ConcurrentAppender(Appender):
    """An appender for a log that any number of threads and processes append to."""

    @cython.exceptval(check=False)
    def next_offset(self, length: cython.longlong) -> cython.longlong:
        if self.is_closed:
            return OFFER_CLOSED
        base = self.base
        # Limit, count and tail are three loads with acquire, and others move all of them meanwhile. An outdated limit refuses too
        # early. The fetch-and-add in ``take`` detects a tail that moved, since it returns the current one.
        limit: cython.longlong = ld64(self.limit_base, self.limit_offset)
        count: cython.longlong = ld32(base, self.meta + LOG_ACTIVE_TERM_COUNT_OFFSET) & TERM_COUNT_MASK
        raw: cython.longlong = ld64(base, self.meta + (count % PARTITION_COUNT) * 8)
        term_id: cython.longlong = raw >> 32
        offset: cython.longlong = raw - shift_left(term_id, 32)
        if count != wrap_i32(term_id - self.initial_term_id):
            return OFFER_ADMIN_ACTION  # count and tail were loaded on different sides of a rotation
        if offset > self.term_length:
            offset = self.term_length
        position: cython.longlong = (count << self.bits) + offset
        if position >= limit:
            return self.refusal(position, length)
        self.room = limit - position
        self.taken_count = count
        return offset

    @cython.exceptval(check=False)
    def take(self, framed: cython.longlong) -> cython.longlong:
        # An offer's only contended instruction. It cannot fail, so no publication waits for another.
        raw: cython.longlong = fadd64(self.base, self.meta + (self.taken_count % PARTITION_COUNT) * 8, framed)
        # The partition may have been rotated since ``next_offset``: the claim belongs to the term that fetch-and-add returned.
        term_id: cython.longlong = raw >> 32
        self.taken_count = wrap_i32(term_id - self.initial_term_id)
        self.taken_offset = raw - shift_left(term_id, 32)
        return self.taken_offset

    @cython.exceptval(check=False)
    def rotate(self, count: cython.longlong) -> cython.longlong:
        base = self.base
        next_count: cython.longlong = count + 1
        next_term_id: cython.longlong = wrap_i32(self.initial_term_id + next_count)
        tail: cython.longlong = self.meta + ((next_count & TERM_COUNT_MASK) % PARTITION_COUNT) * 8
        stale: cython.longlong = wrap_i32(next_term_id - PARTITION_COUNT)
        # This ends: a failed compare-and-set means that the tail was rotated, or that a late claim raised a stale tail once more.
        raw: cython.longlong = ld64(base, tail)
        while (raw >> 32) == stale and not cas64(base, tail, raw, shift_left(next_term_id, 32)):
            raw = ld64(base, tail)
        # Raise the count after the tail: a thread that loads the new count must find a tail of the new term.
        cas32(
            base,
            self.meta + LOG_ACTIVE_TERM_COUNT_OFFSET,
            cython.cast(cython.int, count),
            cython.cast(cython.int, next_count),
        )
        return OFFER_ADMIN_ACTION


@cython.cclass
class ExclusiveAppender(Appender):
    """An appender that is the only writer of its log: it keeps the tail itself and only publishes it."""

    term_count: cython.longlong
    term_offset: cython.longlong

    def __init__(self, log: AtomicBuffer, limits: AtomicBuffer, limit_counter_id: cython.int) -> None:
        Appender.__init__(self, log, limits, limit_counter_id)
        count: cython.longlong = ld32(self.base, self.meta + LOG_ACTIVE_TERM_COUNT_OFFSET)
        raw: cython.longlong = ld64(self.base, self.meta + ((count & TERM_COUNT_MASK) % PARTITION_COUNT) * 8)
        term_id: cython.longlong = raw >> 32
        if count != wrap_i32(term_id - self.initial_term_id):
            raise ValueError(f"term {count} is active, and its tail has the id {term_id}")
        self.term_count = count
        self.term_offset = min(raw - shift_left(raw >> 32, 32), self.term_length)

    @cython.exceptval(check=False)
    def next_offset(self, length: cython.longlong) -> cython.longlong:
        if self.is_closed:
            return OFFER_CLOSED
        limit: cython.longlong = ld64(self.limit_base, self.limit_offset)
        position: cython.longlong = (self.term_count << self.bits) + self.term_offset
        if position >= limit:
            return self.refusal(position, length)
        self.room = limit - position
        return self.term_offset

    @cython.exceptval(check=False)
    def take(self, framed: cython.longlong) -> cython.longlong:
        self.taken_count = self.term_count
        self.taken_offset = self.term_offset
        # Stored with release and no lock prefix: this is the log's only writer, so it needs no fetch-and-add. Publish it before
        # the frame is written, so that the driver knows how far claims reach if this process dies in between.
        self.publish_tail(self.term_offset + framed)
        self.term_offset = min(self.term_offset + framed, self.term_length)
        return self.taken_offset

    @cython.exceptval(check=False)
    def publish_tail(self, offset: cython.longlong) -> cython.void:
        term_id: cython.longlong = wrap_i32(self.initial_term_id + self.term_count)
        st64(self.base, self.meta + (self.term_count % PARTITION_COUNT) * 8, shift_left(term_id, 32) + offset)

    @cython.exceptval(check=False)
    def rotate(self, count: cython.longlong) -> cython.longlong:
        self.term_count = count + 1
        self.term_offset = 0
        term_id: cython.longlong = wrap_i32(self.initial_term_id + self.term_count)
        # Set the tail before the count, so that a thread that loads the new count finds that term's tail.
        put64(self.base, self.meta + (self.term_count % PARTITION_COUNT) * 8, shift_left(term_id, 32))
        st32(self.base, self.meta + LOG_ACTIVE_TERM_COUNT_OFFSET, cython.cast(cython.int, self.term_count))
        return OFFER_ADMIN_ACTION

    def offer_block(self, block: Buffer) -> int:
        """Append whole frames that are already laid out.

        Args:
            block: The frames. The first must name this session, stream, term and offset, and the block must fit into the term.

        Returns:
            The position after the block, or a negative OfferStatus.

        Raises:
            ValueError: The block does not fit there.
        """
        if self.is_closed:
            return OFFER_CLOSED
        if cython.compiled:
            view = cython.declare(Py_buffer)
            PyObject_GetBuffer(block, cython.address(view), PyBUF_SIMPLE)
            try:
                return self.append_block(cython.cast(cython.p_uchar, view.buf), view.len)
            finally:
                PyBuffer_Release(cython.address(view))
        else:
            memory = Memory(block)
            return self.append_block(memory, len(memory.u8))

    @cython.exceptval(-99, check=True)
    def append_block(self, source: cython.p_const_uchar, length: cython.longlong) -> cython.longlong:
        self.check_block(source, length)
        # A block is laid out for one position in the stream, so it is never split or moved to the next term: if it does not fit,
        # the caller must make another one.
        offset: cython.longlong = self.next_offset(length)
        if offset < 0:
            return offset
        if offset >= self.term_length:
            self.take(FRAME_ALIGNMENT)
            return self.meet_term_end()
        if offset + length > self.term_length:
            raise ValueError(f"a block of {length} bytes at offset {offset} runs over the term's {self.term_length}")
        self.check_block_header(source, offset)
        self.take(length)
        p: cython.longlong = self.place(shift_left(self.taken_count, self.bits) + offset)
        # The first length is stored last, with release; until then a reader sees nothing of the block.
        copy_bytes(self.base, p + FRAME_VERSION_OFFSET, source, FRAME_VERSION_OFFSET, length - FRAME_VERSION_OFFSET)
        st32(self.base, p, get32(source, 0))
        return shift_left(self.taken_count, self.bits) + offset + length

    @cython.exceptval(-1)
    def check_block(self, source: cython.p_const_uchar, length: cython.longlong) -> cython.int:
        """Check that a block is a whole number of frames, each with a positive length."""
        at: cython.longlong = 0
        frame: cython.longlong
        while at + DATA_HEADER_LENGTH <= length:
            frame = get32(source, at)
            if frame < DATA_HEADER_LENGTH:
                raise ValueError(f"the frame at {at} of the block has the length {frame}")
            at += align_frame(frame)
        if at != length or length == 0:
            raise ValueError(f"a block of {length} bytes is not a whole number of frames")
        return 0

    @cython.exceptval(-1)
    def check_block_header(self, source: cython.p_const_uchar, offset: cython.longlong) -> cython.int:
        term_id: cython.longlong = wrap_i32(self.initial_term_id + self.term_count)
        actual = (
            get32(source, FRAME_TERM_OFFSET_OFFSET),
            get32(source, FRAME_SESSION_ID_OFFSET),
            get32(source, FRAME_STREAM_ID_OFFSET),
            get32(source, FRAME_TERM_ID_OFFSET),
        )
        expected = (offset, self.session_id, self.stream_id, term_id)
        if actual != expected:
            names = "(term offset, session id, stream id, term id)"
            raise ValueError(
                f"the block's first frame has {names} {actual}, and this place in the stream is {expected}"
            )
        return 0
