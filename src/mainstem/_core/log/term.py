"""The driver's operations on the terms of a log: scanning for datagrams and gaps, inserting, filling, unblocking.

Theory of operation. A log is three terms of equal, power-of-two length, followed by metadata. A stream is a sequence of
terms; its position is ``terms * term_length + offset``, and its term n lies in partition n % 3. Frames are aligned to 32
bytes and do not cross a term's end; padding frames fill the rest of a term. The first word of a frame is its length, and its
state: 0 if there is no frame, negative if a producer claimed it and has not completed it, positive if it is complete.

Below, memory is a base pointer, ``term`` the offset of a term in it, ``offset`` an offset inside that term, ``at`` their
sum.

Who writes what:

- A publication's log: producers write frames and tails, in any process (log/append). The driver only reads frames, cleans,
  and unblocks if a producer died. The sender cleans a network publication's log, the conductor an IPC publication's.
- An image's log: only the receiver writes: ``insert_frames``, ``fill_with_padding``, cleaning. Subscribers read.

Invariants: all bytes between the furthest byte that may be written and the cleaned position, three terms behind it, are
zero. A frame's bytes are written only once before they are cleaned: an insert that finds a nonzero word drops the
datagram.

Memory ordering. The release store of a frame's first word makes the frame visible, and it is read after an acquire load
of that word; all its other bytes are plain. ``insert_frames`` copies the payload, then the header from its end, and
stores the first eight bytes last. A datagram may hold several frames: the later ones may be visible before the first,
but a reader walks from frame to frame and cannot reach them before it. ``clean_bytes`` stores the first word last: a
region whose first word is zero is clean, so a reader that stops at a zero length never reads a stale frame. One thread
inserts, fills and cleans in a log.

Unblocking (docs/protocols/aeron.md, 11.7): a producer that died in a claim left 0 or a negative length at the position
where the stream must continue. The negative length says how long the claim is. Behind a 0, the claim ends at the next
frame, or at the term's end if the tail ran over it; the driver then scans the zeroes before that point again, backwards, in
case the producer is alive after all. The driver unblocks only when the consumers' position has not moved for longer than a
living producer takes.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem._core.memory.plain import *

    # The maximum number of runs per system call; sendmmsg takes 1024, but the gain flattens at 64.
    MAX_RUNS = 64
    # No timestamp in the message. -8 stands for the header's reserved value, as if it lay before the payload.
    NO_TIMESTAMP = -1

# A publisher fills a term or two before it reuses the bytes that are cleaned now. From this term length on, they have left the
# caches by then, and filling the caches with zeroes takes twice the time.
FAR_TERM_LENGTH = cython.declare(cython.longlong, 16 * 1024 * 1024)
# A UDP payload has at most 65,507 bytes, and to the kernel a run with segmentation offload is one payload.
MAX_RUN_LENGTH = cython.declare(cython.int, 65_000)


def wrap32(value: cython.longlong) -> cython.int:
    """Return ``value`` as a 32-bit integer in two's complement: term ids wrap."""
    if cython.compiled:
        return cython.cast(cython.int, value)
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def aligned(length: cython.longlong) -> cython.longlong:
    """Round ``length`` up to the frame alignment."""
    return (length + 31) & ~31


def bits_of(term_length: cython.longlong) -> cython.int:
    """Return the number of position bits to shift: log2 of the term length."""
    bits: cython.int = 0
    while (cython.cast(cython.longlong, 1) << bits) < term_length:
        bits += 1
    return bits


@cython.exceptval(-1)
def check_stream(term_length: cython.longlong, mtu: cython.longlong, window_length: cython.longlong) -> cython.int:
    """Assert what every path assumes about its stream; settings and the protocol's checks ensure it.

    Offsets are computed with masks, so a term's length is a power of two. A datagram is a whole number of frames. One term behind
    the consumers stays readable, so the window is no longer than a term.
    """
    assert TERM_MIN_LENGTH <= term_length <= TERM_MAX_LENGTH, f"a term cannot have {term_length} bytes"
    assert term_length & (term_length - 1) == 0, f"term length {term_length} is not a power of two"
    assert mtu % FRAME_ALIGNMENT == 0, f"MTU {mtu} is not a multiple of {FRAME_ALIGNMENT}"
    assert DATA_HEADER_LENGTH <= mtu <= MTU_MAX_LENGTH, f"no frame fits an MTU of {mtu}"
    assert 0 < window_length <= term_length, f"a window of {window_length} bytes does not fit a term of {term_length}"
    return 0


@cython.cclass
class RunBatch:
    """The data for one send call: runs of datagrams that are contiguous in memory and, except for the last one, of equal size.

    ``segment`` is the size of the run's datagrams, ``length`` the run's total length, ``advance`` how far the position moves from
    the start of the scan once this run and those before it have been sent.
    """

    offset: cython.longlong[MAX_RUNS]
    length: cython.int[MAX_RUNS]
    segment: cython.int[MAX_RUNS]
    advance: cython.longlong[MAX_RUNS]
    count: cython.int
    padding: cython.longlong
    malformed: cython.int
    blocked: cython.bint

    def __init__(self) -> None:
        if not cython.compiled:
            set_arrays(self)
        self.count = 0
        self.padding = 0
        self.malformed = 0
        self.blocked = False

    def scan(
        self,
        log: AtomicBuffer,
        term: cython.longlong,
        offset: cython.longlong,
        term_length: cython.longlong,
        window: cython.longlong,
        mtu: cython.int,
        max_runs: cython.int = 64,
        max_segments: cython.int = 64,
    ) -> list[tuple[int, int, int, int]]:
        """Scan a term for data to send: ``[(offset in the log, length, segment size, advance from the start), …]``."""
        log.check(term, term_length)
        if not 0 < max_runs <= MAX_RUNS:
            raise ValueError(f"max_runs: {max_runs} is not one of 1 to {MAX_RUNS}")
        scan_runs(self, log.base, term, offset, term_length, window, mtu, max_runs, max_segments)
        return [(self.offset[i], self.length[i], self.segment[i], self.advance[i]) for i in range(self.count)]

    @property
    def is_blocked(self) -> bool:
        """Whether the last scan stopped at a committed frame that did not fit in the window."""
        return bool(self.blocked)

    @property
    def malformed_length(self) -> int:
        """The impossible length of the frame at which the last scan stopped; 0 if there was none."""
        return self.malformed


def scan_datagram(
    batch: RunBatch, base: cython.p_uchar, at: cython.longlong, end: cython.longlong, most: cython.int
) -> cython.int:
    """Return the bytes of one datagram from ``at``: whole committed frames, at most ``most`` bytes. A PAD's header ends it.

    Sets ``batch.padding`` to the bytes that the PAD covers behind its header. Returns -1 if the first frame alone is longer than
    ``most``. Producers are other processes: a frame shorter than its header, or one that runs over ``end``, ends the datagram,
    and its length goes into ``batch.malformed``.
    """
    size: cython.int = 0
    length: cython.int
    whole: cython.longlong
    batch.padding = 0
    while size < most and at + size < end:
        length = ld32(base, at + size + FRAME_LENGTH_OFFSET)
        if length <= 0:
            break
        whole = aligned(length)
        if length < DATA_HEADER_LENGTH or whole > end - at - size:
            batch.malformed = length
            break
        if get16(base, at + size + FRAME_TYPE_OFFSET) == TYPE_PAD:
            if size + DATA_HEADER_LENGTH > most:
                return size if size > 0 else -1
            batch.padding = whole - DATA_HEADER_LENGTH
            return size + DATA_HEADER_LENGTH
        if size + whole > most:
            return size if size > 0 else -1
        size += cython.cast(cython.int, whole)
    return size


def scan_runs(
    batch: RunBatch,
    base: cython.p_uchar,
    term: cython.longlong,
    offset: cython.longlong,
    term_length: cython.longlong,
    window: cython.longlong,
    mtu: cython.int,
    max_runs: cython.int,
    max_segments: cython.int,
) -> cython.int:
    """Fill ``batch`` with the data to send from ``offset``, within ``window`` bytes and this term. Return the number of runs.

    ``batch.blocked`` says that the next committed frame does not fit in the rest of the window, ``batch.malformed`` is the
    impossible length of the frame behind the runs.
    """
    at: cython.longlong = offset
    n: cython.int = 0
    segments: cython.int = 0
    size: cython.int
    most: cython.int
    extends: cython.bint = False
    batch.blocked = False
    batch.malformed = 0
    # One pass: consecutive datagrams of equal size become one run, which the kernel segments by itself.
    while at < term_length:
        most = mtu
        if window - (at - offset) < mtu:
            most = cython.cast(cython.int, window - (at - offset))
        if most <= 0:
            batch.blocked = ld32(base, term + at) > 0
            break
        size = scan_datagram(batch, base, term + at, term + term_length, most)
        if size <= 0:
            batch.blocked = size < 0
            break
        if (
            extends
            and segments < max_segments
            and size <= batch.segment[n - 1]
            and batch.length[n - 1] + size <= MAX_RUN_LENGTH
        ):
            batch.length[n - 1] += size
            segments += 1
        elif n == max_runs:
            break
        else:
            batch.offset[n] = term + at
            batch.length[n] = size
            batch.segment[n] = size
            segments = 1
            n += 1
        # A shorter datagram, or one with padding behind it, can only be the last of its run.
        extends = size == batch.segment[n - 1] and batch.padding == 0
        at += size + batch.padding
        batch.advance[n - 1] = at - offset
    batch.count = n
    return n


def first_gap(
    base: cython.p_uchar, term: cython.longlong, offset: cython.longlong, limit: cython.longlong
) -> cython.longlong:
    """Return the offset of the first missing frame, or ``limit``."""
    length: cython.int
    while offset < limit:
        length = ld32(base, term + offset)
        if length <= 0:
            break
        offset += aligned(length)
    # Another process may have corrupted a length, so never return more than the limit.
    return offset if offset < limit else limit


def gap_end(
    base: cython.p_uchar, term: cython.longlong, offset: cython.longlong, limit: cython.longlong
) -> cython.longlong:
    """Return where a gap that begins at ``offset`` ends: at the next frame, or at ``limit``."""
    offset += FRAME_ALIGNMENT
    while offset < limit and ld32(base, term + offset) == 0:
        offset += FRAME_ALIGNMENT
    return offset if offset < limit else limit


def insert_frames(
    base: cython.p_uchar,
    at: cython.longlong,
    source: cython.p_const_uchar,
    start: cython.longlong,
    length: cython.longlong,
) -> cython.bint:
    """Copy a datagram's frames into a term unless they are there already; return whether it did.

    The payload goes first, then the header backwards, then its first word: a reader that sees that word sees all of the frame.
    """
    if ld64(base, at) != 0:
        # A repeat, or overlapping data: the existing frame was checked, and a subscriber may be reading it.
        return False
    copy_bytes(base, at + DATA_HEADER_LENGTH, source, start + DATA_HEADER_LENGTH, length - DATA_HEADER_LENGTH)
    put64(base, at + 24, get64(source, start + 24))
    put64(base, at + 16, get64(source, start + 16))
    put64(base, at + 8, get64(source, start + 8))
    st64(base, at, get64(source, start))
    return True


def stamp_frames(
    base: cython.p_uchar, at: cython.longlong, length: cython.longlong, offset: cython.longlong, moment: cython.longlong
) -> cython.void:
    """Write a time into the frames that begin a message, among whole frames of ``length`` bytes, if it fits."""
    end: cython.longlong = at + length
    frame: cython.longlong
    while at + DATA_HEADER_LENGTH <= end:
        frame = get32(base, at + FRAME_LENGTH_OFFSET)
        if frame < DATA_HEADER_LENGTH or frame > end - at:
            break
        if (
            get16(base, at + FRAME_TYPE_OFFSET) == TYPE_DATA
            and (get8(base, at + FRAME_FLAGS_OFFSET) & FLAG_BEGIN) != 0
            and DATA_HEADER_LENGTH + offset + 8 <= frame
        ):
            put64(base, at + DATA_HEADER_LENGTH + offset, moment)
        at += aligned(frame)


def write_padding(
    base: cython.p_uchar,
    meta: cython.longlong,
    term: cython.longlong,
    offset: cython.longlong,
    length: cython.longlong,
    term_id: cython.int,
) -> cython.void:
    """Turn [offset, offset + length) into one PAD frame with the log's default header."""
    at: cython.longlong = term + offset
    put32(base, at + FRAME_TERM_OFFSET_OFFSET, cython.cast(cython.int, offset))
    put32(base, at + FRAME_SESSION_ID_OFFSET, get32(base, meta + LOG_DEFAULT_HEADER_OFFSET + FRAME_SESSION_ID_OFFSET))
    put32(base, at + FRAME_STREAM_ID_OFFSET, get32(base, meta + LOG_DEFAULT_HEADER_OFFSET + FRAME_STREAM_ID_OFFSET))
    put32(base, at + FRAME_TERM_ID_OFFSET, term_id)
    put64(base, at + FRAME_RESERVED_VALUE_OFFSET, 0)
    put8(base, at + FRAME_VERSION_OFFSET, 0)
    put8(base, at + FRAME_FLAGS_OFFSET, FLAG_UNFRAGMENTED)
    put16(base, at + FRAME_TYPE_OFFSET, TYPE_PAD)
    st32(base, at + FRAME_LENGTH_OFFSET, cython.cast(cython.int, length))


def fill_with_padding(
    base: cython.p_uchar,
    meta: cython.longlong,
    term: cython.longlong,
    offset: cython.longlong,
    length: cython.longlong,
    term_id: cython.int,
) -> cython.bint:
    """Fill a gap of an unreliable stream if it is still all zero."""
    at: cython.longlong = offset
    while at < offset + length:
        if ld64(base, term + at) != 0:
            return False
        at += 8
    write_padding(base, meta, term, offset, length, term_id)
    return True


def clean_bytes(base: cython.p_uchar, at: cython.longlong, length: cython.longlong, is_far: cython.bint) -> cython.void:
    """Zero a region, its first word last, so that no reader finds a length without the frame."""
    if is_far:
        zero_past_caches(base, at + 8, length - 8)
    else:
        zero_out(base, at + 8, length - 8)
    st64(base, at, 0)


def clean_to(
    base: cython.p_uchar,
    term_length: cython.longlong,
    clean: cython.longlong,
    target: cython.longlong,
    is_far: cython.bint,
) -> cython.longlong:
    """Clean the log from position ``clean`` to ``target``, at most to the term's end; return the position cleaned to.

    With ``is_far`` the memory is not used again before a term or two have been written.
    """
    offset: cython.longlong = clean & (term_length - 1)
    length: cython.longlong = target - clean
    if length <= 0:
        return clean
    if length > term_length - offset:
        length = term_length - offset
    at: cython.longlong = ((clean // term_length) % PARTITION_COUNT) * term_length + offset
    clean_bytes(base, at, length, is_far and term_length >= FAR_TERM_LENGTH)
    return clean + length


def tail_position(
    base: cython.p_uchar, meta: cython.longlong, term_length: cython.longlong, initial_term_id: cython.int
) -> cython.longlong:
    """Return the producers' position, from the raw tail of the active term."""
    count: cython.int = ld32(base, meta + LOG_ACTIVE_TERM_COUNT_OFFSET)
    # The masks keep the offset inside the metadata even if another process corrupted the count.
    raw: cython.longlong = ld64(
        base, meta + LOG_TAIL_COUNTERS_OFFSET + 8 * ((count & TERM_COUNT_MASK) % PARTITION_COUNT)
    )
    terms: cython.longlong = wrap32((raw >> 32) - initial_term_id)
    offset: cython.longlong = raw - shift_left(raw >> 32, 32)
    # Claims that reached the end of the term have raised the tail past it.
    if offset > term_length:
        offset = term_length
    # There is no position before the first term, even if another process corrupted the tail.
    if terms < 0:
        return 0
    return terms * term_length + offset


def rotate(base: cython.p_uchar, meta: cython.longlong, term_count: cython.int, term_id: cython.int) -> cython.bint:
    """Move the log to the term after ``term_count``; return True to the one caller that did it."""
    following: cython.int = wrap32(cython.cast(cython.longlong, term_id) + 1)
    tail: cython.longlong = (
        meta + LOG_TAIL_COUNTERS_OFFSET + 8 * (((term_count + 1) & TERM_COUNT_MASK) % PARTITION_COUNT)
    )
    expected: cython.int = wrap32(cython.cast(cython.longlong, following) - PARTITION_COUNT)
    # The next tail still holds its term of three terms ago. If not, another thread has already rotated it.
    raw: cython.longlong = ld64(base, tail)
    while (raw >> 32) == expected:
        if cas64(base, tail, raw, shift_left(following, 32)):
            break
        raw = ld64(base, tail)
    return cas32(base, meta + LOG_ACTIVE_TERM_COUNT_OFFSET, term_count, term_count + 1)


def unblock_term(
    base: cython.p_uchar,
    meta: cython.longlong,
    term: cython.longlong,
    offset: cython.longlong,
    tail: cython.longlong,
    term_length: cython.longlong,
    term_id: cython.int,
) -> cython.int:
    """Return 0: nothing to do, 1: unblocked, 2: unblocked to the term's end, -1: the claim's length is impossible there."""
    length: cython.int = ld32(base, term + offset)
    at: cython.longlong = offset + FRAME_ALIGNMENT
    back: cython.longlong
    if length > 0:
        return 0
    if length < 0:
        if length > -DATA_HEADER_LENGTH or aligned(-cython.cast(cython.longlong, length)) > term_length - offset:
            return -1
        write_padding(base, meta, term, offset, -length, term_id)
        return 1
    while at < tail:
        if ld32(base, term + at) != 0:
            back = at - FRAME_ALIGNMENT
            # A producer may have resumed behind the scan: only a gap that is still zero is a dead claim.
            while back >= offset and ld32(base, term + back) == 0:
                back -= FRAME_ALIGNMENT
            if back >= offset:
                return 0
            write_padding(base, meta, term, offset, at - offset, term_id)
            return 1
        at += FRAME_ALIGNMENT
    if at == term_length and ld32(base, term + offset) == 0:
        write_padding(base, meta, term, offset, at - offset, term_id)
        return 2
    return 0


def unblock(
    log: AtomicBuffer, term_length: cython.longlong, initial_term_id: cython.int, position: cython.longlong
) -> bool:
    """Free a log whose consumers are stuck at ``position`` because a producer died (docs/protocols/aeron.md, 11.7).

    A claimed frame becomes padding; an unfinished end of a term is padded and the log rotated. Returns True if something was
    done; the caller counts it. Concurrent publications only. Raises ValueError if the claim or the position is impossible.
    """
    if position < 0 or position & (FRAME_ALIGNMENT - 1):
        raise ValueError(f"no frame begins at position {position}")
    meta: cython.longlong = log.capacity - LOG_METADATA_LENGTH
    count: cython.int = cython.cast(cython.int, position // term_length)
    index: cython.int = count % PARTITION_COUNT
    offset: cython.longlong = position & (term_length - 1)
    log.check(0, 3 * term_length)
    active: cython.int = ld32(log.base, meta + LOG_ACTIVE_TERM_COUNT_OFFSET)
    raw: cython.longlong = ld64(
        log.base, meta + LOG_TAIL_COUNTERS_OFFSET + 8 * ((active & TERM_COUNT_MASK) % PARTITION_COUNT)
    )
    if active == count - 1 and offset == 0:
        return bool(rotate(log.base, meta, active, cython.cast(cython.int, raw >> 32)))
    if active != count:
        raw = ld64(log.base, meta + LOG_TAIL_COUNTERS_OFFSET + 8 * index)
    tail: cython.longlong = raw - shift_left(raw >> 32, 32)
    if tail > term_length:
        tail = term_length
    term_id: cython.int = wrap32(cython.cast(cython.longlong, initial_term_id) + count)
    result: cython.int = unblock_term(log.base, meta, index * term_length, offset, tail, term_length, term_id)
    if result < 0:
        length: cython.longlong = get32(log.base, index * term_length + offset)
        raise ValueError(
            f"position {position}: a claim of {-length} bytes is not possible where {term_length - offset} are left of the term"
        )
    if result == 2:
        rotate(log.base, meta, count, term_id)
    return result != 0


def gaps(
    log: AtomicBuffer, term: cython.longlong, offset: cython.longlong, limit: cython.longlong, most: cython.int = 64
) -> list[tuple[int, int]]:
    """Return the first ``most`` gaps of the term at ``term`` between two offsets, as (offset, length)."""
    log.check(term, limit)
    result = []
    end: cython.longlong
    while len(result) < most:
        offset = first_gap(log.base, term, offset, limit)
        if offset >= limit:
            break
        end = gap_end(log.base, term, offset, limit)
        result.append((offset, end - offset))
        offset = end
    return result


def insert(log: AtomicBuffer, at: cython.longlong, datagram: AtomicBuffer) -> bool:
    """Insert a datagram's frames; return False if there is data already (docs/protocols/aeron.md, 15.3)."""
    log.check(at, datagram.capacity)
    datagram.check(0, DATA_HEADER_LENGTH)
    return bool(insert_frames(log.base, at, datagram.base, 0, datagram.capacity))


def fill_gap(
    log: AtomicBuffer, term: cython.longlong, offset: cython.longlong, length: cython.longlong, term_id: cython.int
) -> bool:
    """Turn a gap that is still all zero into one PAD frame with the log's default header."""
    log.check(term + offset, length)
    return bool(fill_with_padding(log.base, log.capacity - LOG_METADATA_LENGTH, term, offset, length, term_id))


def clean(log: AtomicBuffer, term_length: cython.longlong, position: cython.longlong, target: cython.longlong) -> int:
    """Zero from ``position`` to ``target`` or the term's end, header word last; return the position reached."""
    log.check(0, 3 * term_length)
    return clean_to(log.base, term_length, position, target, True)


def producer_position(log: AtomicBuffer, term_length: cython.longlong, initial_term_id: cython.int) -> int:
    """Return the producers' position, from the raw tail of the active term."""
    return tail_position(log.base, log.capacity - LOG_METADATA_LENGTH, term_length, initial_term_id)
