"""Runs of frames, in any memory, as the buffers under Arrow columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from mainstem._core.memory.buffer import AtomicBuffer

if cython.compiled:
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytearray import (
        PyByteArray_AS_STRING,
        PyByteArray_FromStringAndSize,
        PyByteArray_Resize,
    )
else:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import *
    from mainstem._core.memory.plain import Memory

# The number of a column's bit (layout.COLUMN_...) is the column's index; the payload takes two buffers.
NAMES = (
    "position",
    "session_id",
    "stream_id",
    "term_id",
    "term_offset",
    "flags",
    "type",
    "reserved_value",
    "offset",
    "length",
    "payload_offsets",
    "payload",
)
WIDTHS = (8, 4, 4, 4, 4, 2, 2, 8, 8, 4, 4, 1)
COLUMNS_OF_MESSAGES = cython.declare(
    cython.int, COLUMN_POSITION | COLUMN_SESSION_ID | COLUMN_RESERVED_VALUE | COLUMN_PAYLOAD
)
I_OFFSETS = cython.declare(cython.int, 10)
I_PAYLOAD = cython.declare(cython.int, 11)


@cython.cclass
class Region:
    """Readable memory, an AtomicBuffer or any object with the buffer protocol, held for the duration of a call."""

    raw: Py_buffer
    held: cython.bint
    owner: object
    base: cython.p_uchar
    capacity: cython.longlong

    def __init__(self, source: Buffer | AtomicBuffer) -> None:
        self.held = False
        if cython.compiled:
            if isinstance(source, AtomicBuffer):
                buffer: AtomicBuffer = source
                self.owner = buffer
                self.base = buffer.base
                self.capacity = buffer.capacity
            else:
                PyObject_GetBuffer(source, cython.address(self.raw), PyBUF_SIMPLE)
                self.held = True
                self.base = cython.cast(cython.pointer(cython.uchar), self.raw.buf)
                self.capacity = self.raw.len
            # Empty objects may lie anywhere: the buffer of an empty bytearray is one static byte of CPython's.
            if self.capacity and cython.cast(cython.size_t, self.base) & 3:
                raise ValueError("frames must lie at an address that is a multiple of 4")
        else:
            view = source.view() if hasattr(source, "view") else memoryview(source)
            self.base = Memory(view)
            self.capacity = self.base.u8.nbytes

    if cython.compiled:

        def __dealloc__(self):
            if self.held:
                PyBuffer_Release(cython.address(self.raw))

    @cython.exceptval(-1)
    def check(self, offset: cython.longlong, limit: cython.longlong) -> cython.int:
        if offset < 0 or limit > self.capacity or offset > limit:
            raise IndexError(f"frames [{offset}, {limit}) lie outside a region of {self.capacity} bytes")
        if offset & 3:
            raise ValueError(f"frames start at a multiple of 4, not at {offset}")
        return 0


@cython.cclass
class FrameWalk:
    """A walk over frames that copies nothing: it counts them, and finds where the last whole message ends.

    After ``run``: ``offset`` is where the walk ended, ``boundary`` the end of the last whole message (including padding
    after it), ``frames`` and ``messages`` the number of DATA frames and of message ends passed, ``others`` the number of
    other frames (padding), ``last`` where the last frame of any type starts, ``stopped`` why the walk ended
    (``layout.WALK_...``).

    With ``term_mask`` (a term's length minus one; 0 turns the check off), a frame counts as corrupt if the term offset in
    its header differs from its actual offset. The memory must then begin at the start of a term.
    """

    offset: readonly[cython.longlong]
    boundary: readonly[cython.longlong]
    frames: readonly[cython.longlong]
    messages: readonly[cython.longlong]
    others: readonly[cython.longlong]
    last: readonly[cython.longlong]
    stopped: readonly[cython.int]
    term_mask: public[cython.longlong]

    def __init__(self) -> None:
        self.offset = 0
        self.boundary = 0
        self.frames = 0
        self.messages = 0
        self.others = 0
        self.last = 0
        self.stopped = WALK_AT_LIMIT
        self.term_mask = 0

    def run(
        self,
        source: Buffer | AtomicBuffer,
        offset: cython.longlong,
        limit: cython.longlong,
        max_messages: cython.longlong = -1,
    ) -> int:
        """Walk ``[offset, limit)`` of ``source``, until at most ``max_messages`` have ended; return ``stopped``.

        Raises IndexError if the range is outside the memory.
        """
        region: Region = Region(source)
        region.check(offset, limit)
        assert self.term_mask & (self.term_mask + 1) == 0, (
            f"term mask {self.term_mask:#x} is not a power of two less one"
        )
        self.offset = self.boundary = self.last = offset
        self.frames = self.messages = self.others = 0
        left: cython.longlong = max_messages if max_messages >= 0 else limit - offset + 1
        step: cython.longlong = 0
        base = region.base
        while True:
            step = min(left - self.messages, 65536)
            with cython.nogil:
                self.walk(base, self.offset, limit, step)
            if self.stopped != WALK_FULL or self.messages >= left:
                return self.stopped

    def walk(
        self, base: cython.p_uchar, offset: cython.longlong, limit: cython.longlong, rows: cython.longlong
    ) -> cython.void:
        o: cython.longlong = offset
        length: cython.longlong = 0
        step: cython.longlong = 0
        flags: cython.int = 0
        frames: cython.longlong = 0
        messages: cython.longlong = 0
        stopped: cython.int = 0
        mask: cython.longlong = self.term_mask
        while True:
            if limit - o < DATA_HEADER_LENGTH:
                stopped = WALK_AT_LIMIT if o == limit else WALK_TORN
                break
            length = ld32(base, o)
            if length < DATA_HEADER_LENGTH:
                stopped = WALK_AT_END if length <= 0 else WALK_CORRUPT
                break
            if mask and get32(base, o + FRAME_TERM_OFFSET_OFFSET) != (o & mask):
                stopped = WALK_CORRUPT
                break
            step = (length + FRAME_ALIGNMENT - 1) & ~(FRAME_ALIGNMENT - 1)
            if step > limit - o:
                stopped = WALK_TORN
                break
            if get16(base, o + FRAME_TYPE_OFFSET) == TYPE_DATA:
                if messages == rows:
                    stopped = WALK_FULL
                    break
                frames += 1
                flags = get8(base, o + FRAME_FLAGS_OFFSET)
                self.last = o
                o += step
                if flags & FLAG_END:
                    messages += 1
                    self.boundary = o
            else:
                if self.boundary == o:
                    self.boundary = o + step
                self.others += 1
                self.last = o
                o += step
        self.offset = o
        self.frames += frames
        self.messages += messages
        self.stopped = stopped

    def copy(
        self, source: Buffer | AtomicBuffer, offset: cython.longlong, limit: cython.longlong, target: bytearray
    ) -> int:
        """Like ``run``, but copy the walked frames to the start of ``target``, as many as fit.

        Others may write the source meanwhile; the copy has exactly the frames that were walked. The walk ends with the first
        frame that is not data, of which only the header is copied (``others`` is then 1), or before a frame that does not fit
        (``WALK_FULL``).
        """
        region: Region = Region(source)
        region.check(offset, limit)
        room: Region = Region(target)
        self.offset = self.boundary = self.last = offset
        self.frames = self.messages = self.others = 0
        base, to = region.base, room.base
        with cython.nogil:
            self.copy_frames(base, offset, limit, to, room.capacity)
        return self.stopped

    def readdress(
        self,
        frames: bytearray,
        offset: cython.longlong,
        limit: cython.longlong,
        session_id: cython.int,
        stream_id: cython.int,
    ) -> int:
        """Like ``run``, but write other ids into the header of each data frame.

        The walk ends before the first frame that is not data; ``others`` is then 1, and ``last`` where that frame starts.
        """
        region: Region = Region(frames)
        region.check(offset, limit)
        base = region.base
        o: cython.longlong = offset
        length: cython.longlong = 0
        step: cython.longlong = 0
        self.boundary = self.last = offset
        self.frames = self.messages = self.others = 0
        while True:
            if limit - o < DATA_HEADER_LENGTH:
                self.stopped = WALK_AT_LIMIT if o == limit else WALK_TORN
                break
            length = ld32(base, o)
            if length < DATA_HEADER_LENGTH:
                self.stopped = WALK_AT_END if length <= 0 else WALK_CORRUPT
                break
            step = (length + FRAME_ALIGNMENT - 1) & ~(FRAME_ALIGNMENT - 1)
            self.last = o
            if get16(base, o + FRAME_TYPE_OFFSET) != TYPE_DATA:
                self.others = 1
                self.stopped = WALK_FULL
                break
            if step > limit - o:
                self.stopped = WALK_TORN
                break
            put32(base, o + FRAME_SESSION_ID_OFFSET, session_id)
            put32(base, o + FRAME_STREAM_ID_OFFSET, stream_id)
            self.frames += 1
            o += step
        self.offset = o
        return self.stopped

    def copy_frames(
        self,
        base: cython.p_uchar,
        offset: cython.longlong,
        limit: cython.longlong,
        to: cython.p_uchar,
        room: cython.longlong,
    ) -> cython.void:
        o: cython.longlong = offset
        length: cython.longlong = 0
        step: cython.longlong = 0
        size: cython.longlong = 0
        kind: cython.int = 0
        while True:
            if limit - o < DATA_HEADER_LENGTH:
                self.stopped = WALK_AT_LIMIT if o == limit else WALK_TORN
                break
            length = ld32(base, o)
            if length < DATA_HEADER_LENGTH:
                self.stopped = WALK_AT_END if length <= 0 else WALK_CORRUPT
                break
            step = (length + FRAME_ALIGNMENT - 1) & ~(FRAME_ALIGNMENT - 1)
            if step > limit - o:
                self.stopped = WALK_TORN
                break
            kind = get16(base, o + FRAME_TYPE_OFFSET)
            size = step if kind == TYPE_DATA else DATA_HEADER_LENGTH
            if o - offset + size > room:
                self.stopped = WALK_FULL
                break
            # A guess at the location of the fourth header from here, as in ``Columns.scan_chunk``.
            prefetch(base, o + 4 * step)
            copy_bytes(to, o - offset, base, o, size)
            put32(to, o - offset, length)
            put16(to, o - offset + FRAME_TYPE_OFFSET, kind)
            self.last = o
            o += step
            if kind != TYPE_DATA:
                if self.boundary == self.last:
                    self.boundary = o
                self.others = 1
                self.stopped = WALK_AT_LIMIT if o == limit else WALK_FULL
                break
            self.frames += 1
            if get8(to, self.last - offset + FRAME_FLAGS_OFFSET) & FLAG_END:
                self.messages += 1
                self.boundary = o
        self.offset = o


@cython.cclass
class Fragments:
    """The incomplete message of one stream, whose last fragment has not arrived.

    It has ``length`` bytes so far, and the next fragment must start at position ``expected`` (-1: no message is open).
    ``dropped`` counts the messages whose end never arrived.
    """

    data: bytearray
    data_base: cython.p_uchar
    data_capacity: cython.longlong
    head: bytearray
    head_base: cython.p_uchar
    length: readonly[cython.longlong]
    expected: readonly[cython.longlong]
    dropped: readonly[cython.longlong]

    def __init__(self) -> None:
        self.data = bytearray(0)
        self.data_capacity = 0
        self.head = bytearray(DATA_HEADER_LENGTH)
        self.length = 0
        self.expected = -1
        self.dropped = 0
        if cython.compiled:
            self.data_base = cython.NULL
            self.head_base = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.head))
        else:
            self.data_base = Memory(self.data)
            self.head_base = Memory(self.head)

    def reset(self) -> None:
        if self.expected >= 0:
            self.dropped += 1
        self.expected = -1
        self.length = 0

    @cython.exceptval(-1)
    def reserve(self, need: cython.longlong) -> cython.int:
        if need > self.data_capacity:
            size: cython.longlong = max(need, 2 * self.data_capacity, 4096)
            if cython.compiled:
                PyByteArray_Resize(self.data, size)
                self.data_base = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.data))
            else:
                self.data = bytearray(self.data[: self.length]) + bytearray(size - self.length)
                self.data_base = Memory(self.data)
            self.data_capacity = size
        return 0


@cython.cclass
class Columns:
    """Rows gathered from runs of frames, as the buffers under Arrow columns.

    ``column_bits`` is an OR of column bits (``layout.COLUMN_...``). Widths: position, reserved_value and offset
    int64; session_id, stream_id, term_id, term_offset and length int32; flags and type int16; payload as int32 offsets
    and bytes. ``position`` is the stream's position at the *end* of the frame or message, as ``offer`` returned it;
    ``length`` counts payload only; ``offset`` is where the payload starts in the memory that was read (frames only, whose
    payloads are then not copied).

    Runs may be added until ``take``. ``stopped`` says why the last run ended (``layout.WALK_...``). ``term_mask`` is as in
    ``FrameWalk``.
    """

    column_bits: readonly[cython.int]
    rows: readonly[cython.longlong]
    payload_length: readonly[cython.longlong]
    stopped: readonly[cython.int]
    term_mask: public[cython.longlong]
    row_capacity: cython.longlong
    payload_capacity: cython.longlong
    owners: list
    column: cython.p_uchar[12]
    at: cython.longlong[513]
    lengths: cython.int[513]
    payloads: cython.int[513]
    flags: cython.int[513]
    found_count: cython.int
    found_payload: cython.longlong
    found_flags: cython.int

    def __init__(
        self, column_bits: cython.int = COLUMN_ALL, rows: cython.longlong = 4096, payload_bytes: cython.longlong = 65536
    ) -> None:
        if column_bits & ~(COLUMN_ALL | COLUMN_OFFSET):
            raise ValueError(
                f"columns {column_bits:#x} name a bit that is not a column (all are {COLUMN_ALL | COLUMN_OFFSET:#x})"
            )
        self.column_bits = column_bits
        self.row_capacity = max(rows, 1)
        self.payload_capacity = max(payload_bytes, 64)
        self.rows = 0
        self.payload_length = 0
        self.stopped = WALK_AT_LIMIT
        self.term_mask = 0
        self.owners = []
        self.found_count = 0
        self.found_payload = 0
        self.found_flags = 0
        if not cython.compiled:
            set_arrays(self)

    @cython.exceptval(-1)
    def start(self) -> cython.int:
        """Allocate new buffers for a batch: the last batch's buffers belong to the caller of ``take``."""
        i: cython.int = 0
        self.owners = [None] * 12
        for i in range(12):
            if i < I_OFFSETS:
                if self.column_bits & (1 << i):
                    self.resize(i, self.row_capacity * cython.cast(cython.int, WIDTHS[i]))
            elif self.column_bits & COLUMN_PAYLOAD:
                self.resize(i, (self.row_capacity + 1) * 4 if i == I_OFFSETS else self.payload_capacity)
        if self.column_bits & COLUMN_PAYLOAD:
            put32(self.column[I_OFFSETS], 0, 0)
        return 0

    @cython.exceptval(-1)
    def resize(self, index: cython.int, size: cython.longlong) -> cython.int:
        if cython.compiled:
            if self.owners[index] is None:
                self.owners[index] = PyByteArray_FromStringAndSize(cython.NULL, size)
            else:
                PyByteArray_Resize(self.owners[index], size)
            self.column[index] = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.owners[index]))
        else:
            old = self.owners[index]
            grown = bytearray(size)
            if old is not None:
                common = min(len(old), size)
                grown[:common] = old[:common]
            self.owners[index] = grown
            self.column[index] = Memory(grown)
        return 0

    @cython.exceptval(-1)
    def reserve_rows(self, need: cython.longlong) -> cython.int:
        if need > self.row_capacity:
            i: cython.int = 0
            self.row_capacity = max(need, 2 * self.row_capacity)
            for i in range(I_OFFSETS):
                if self.column_bits & (1 << i):
                    self.resize(i, self.row_capacity * cython.cast(cython.int, WIDTHS[i]))
            if self.column_bits & COLUMN_PAYLOAD:
                self.resize(I_OFFSETS, (self.row_capacity + 1) * 4)
        return 0

    @cython.exceptval(-1)
    def reserve_payload(self, need: cython.longlong) -> cython.int:
        if self.column_bits & COLUMN_PAYLOAD and need > self.payload_capacity:
            self.payload_capacity = max(need, 2 * self.payload_capacity)
            self.resize(I_PAYLOAD, self.payload_capacity)
        return 0

    def add_frames(
        self,
        source: Buffer | AtomicBuffer,
        offset: cython.longlong,
        limit: cython.longlong,
        position: cython.longlong,
        max_rows: cython.longlong = -1,
        padding: cython.bint = False,
    ) -> int:
        """Append a row for each DATA frame in ``[offset, limit)``, whose first byte is at stream position ``position``.

        With ``padding``, padding frames become rows too, with an empty payload. Stops at an uncommitted, truncated or malformed
        frame; returns the bytes that were passed. Raises IndexError if the range is outside the memory.
        """
        region: Region = Region(source)
        region.check(offset, limit)
        assert self.term_mask & (self.term_mask + 1) == 0, (
            f"term mask {self.term_mask:#x} is not a power of two less one"
        )
        return self.add(region.base, offset, limit, position, max_rows, padding, None)

    def add_messages(
        self,
        source: Buffer | AtomicBuffer,
        offset: cython.longlong,
        limit: cython.longlong,
        position: cython.longlong,
        fragments: Fragments,
        max_rows: cython.longlong = -1,
    ) -> int:
        """Append a row for each whole message. ``fragments`` carries an incomplete message from call to call.

        A joined row has the first fragment's header, the flags of both ends, and the position of the last.
        """
        if self.column_bits & COLUMN_OFFSET:
            raise ValueError("a joined message lies at no one offset: leave the OFFSET column out")
        if fragments is None:
            raise TypeError("add_messages needs the Fragments of its stream")
        region: Region = Region(source)
        region.check(offset, limit)
        assert self.term_mask & (self.term_mask + 1) == 0, (
            f"term mask {self.term_mask:#x} is not a power of two less one"
        )
        return self.add(region.base, offset, limit, position, max_rows, False, fragments)

    @cython.exceptval(-1)
    def add(
        self,
        base: cython.p_uchar,
        offset: cython.longlong,
        limit: cython.longlong,
        position: cython.longlong,
        max_rows: cython.longlong,
        padding: cython.bint,
        fragments: Fragments,
    ) -> cython.longlong:
        if not self.owners:
            self.start()
        o: cython.longlong = offset
        zero_position: cython.longlong = position - offset
        left: cython.longlong = max_rows if max_rows >= 0 else limit - offset + 1
        before: cython.longlong = 0
        rows: cython.int = 0
        while True:
            rows = cython.cast(cython.int, min(left, COLUMN_CHUNK_ROWS))
            with cython.nogil:
                o = self.scan_chunk(base, o, limit, rows, padding)
            before = self.rows
            if self.found_count:
                self.reserve_rows(self.rows + self.found_count)
                if fragments is None or (self.found_flags and fragments.expected < 0):
                    self.reserve_payload(self.payload_length + self.found_payload)
                    with cython.nogil:
                        self.fill(base, 0, self.found_count, zero_position)
                else:
                    self.join_chunk(base, zero_position, fragments)
            left -= self.rows - before
            if self.stopped != WALK_FULL or left <= 0 or self.found_count < rows:
                return o - offset

    def scan_chunk(
        self,
        base: cython.p_uchar,
        offset: cython.longlong,
        limit: cython.longlong,
        rows: cython.int,
        padding: cython.bint,
    ) -> cython.longlong:
        """Find up to ``rows`` frames: their offsets, lengths and flags, their total payload, and whether all are unfragmented.

        Another process may write this memory, so the fields that decide how much is copied, and where to, are read here once.
        """
        o: cython.longlong = offset
        room: cython.longlong = COLUMN_MAX_PAYLOAD - self.payload_length
        total: cython.longlong = 0
        length: cython.longlong = 0
        step: cython.longlong = 0
        n: cython.int = 0
        kind: cython.int = 0
        payload: cython.int = 0
        frame_flags: cython.int = 0
        flags: cython.int = FLAG_UNFRAGMENTED
        stopped: cython.int = 0
        mask: cython.longlong = self.term_mask
        while True:
            if limit - o < DATA_HEADER_LENGTH:
                stopped = WALK_AT_LIMIT if o == limit else WALK_TORN
                break
            length = ld32(base, o)
            if length < DATA_HEADER_LENGTH:
                stopped = WALK_AT_END if length <= 0 else WALK_CORRUPT
                break
            if mask and get32(base, o + FRAME_TERM_OFFSET_OFFSET) != (o & mask):
                stopped = WALK_CORRUPT
                break
            step = (length + FRAME_ALIGNMENT - 1) & ~(FRAME_ALIGNMENT - 1)
            if step > limit - o:
                stopped = WALK_TORN
                break
            # Streams often have messages of one length. Prefetch the guessed location of the fourth header from here, so that the
            # walk does not wait for memory at each step.
            prefetch(base, o + 4 * step)
            kind = get16(base, o + FRAME_TYPE_OFFSET)
            if kind == TYPE_DATA or padding:
                if n == rows or ((n or self.payload_length) and total + length > room):
                    stopped = WALK_FULL
                    break
                # Only the header of padding is ever written; the bytes behind it are not payload.
                payload = 0 if kind == TYPE_PAD else cython.cast(cython.int, length - DATA_HEADER_LENGTH)
                frame_flags = get8(base, o + FRAME_FLAGS_OFFSET)
                self.at[n] = o
                self.lengths[n] = cython.cast(cython.int, length)
                self.payloads[n] = payload
                self.flags[n] = frame_flags
                n += 1
                total += payload
                flags &= frame_flags
            o += step
        self.found_count = n
        self.found_payload = total
        self.found_flags = flags == FLAG_UNFRAGMENTED
        self.stopped = stopped
        return o

    def fill(
        self, base: cython.p_uchar, first: cython.int, n: cython.int, zero_position: cython.longlong
    ) -> cython.void:
        """Append ``n`` of the found frames from ``first`` on as rows, in one loop per column."""
        column_bits: cython.int = self.column_bits
        row: cython.longlong = self.rows
        i: cython.int = 0
        used: cython.longlong = self.payload_length
        if cython.compiled:
            at = cython.address(self.at[first])
            lengths = cython.address(self.lengths[first])
            payloads = cython.address(self.payloads[first])
            flags = cython.address(self.flags[first])
        else:
            at = self.at[first:]
            lengths = self.lengths[first:]
            payloads = self.payloads[first:]
            flags = self.flags[first:]
        if column_bits == COLUMNS_OF_MESSAGES:
            self.fill_messages(base, at, lengths, payloads, n, zero_position)
            return
        # A local variable per column: the compiler then knows that stores through it do not change `self`, and does not reload it.
        column = self.column[0]
        if column_bits & COLUMN_POSITION:
            for i in range(n):
                put64(column, (row + i) * 8, zero_position + at[i] + align_frame(lengths[i]))
        if column_bits & COLUMN_SESSION_ID:
            gather32(self.column[1], row, base, at, n, FRAME_SESSION_ID_OFFSET)
        if column_bits & COLUMN_STREAM_ID:
            gather32(self.column[2], row, base, at, n, FRAME_STREAM_ID_OFFSET)
        if column_bits & COLUMN_TERM_ID:
            gather32(self.column[3], row, base, at, n, FRAME_TERM_ID_OFFSET)
        if column_bits & COLUMN_TERM_OFFSET:
            gather32(self.column[4], row, base, at, n, FRAME_TERM_OFFSET_OFFSET)
        if column_bits & COLUMN_FLAGS:
            column = self.column[5]
            for i in range(n):
                put16(column, (row + i) * 2, cython.cast(cython.ushort, flags[i]))
        if column_bits & COLUMN_TYPE:
            gather16(self.column[6], row, base, at, n, FRAME_TYPE_OFFSET)
        if column_bits & COLUMN_RESERVED_VALUE:
            gather64(self.column[7], row, base, at, n, FRAME_RESERVED_VALUE_OFFSET)
        if column_bits & COLUMN_OFFSET:
            column = self.column[8]
            for i in range(n):
                put64(column, (row + i) * 8, at[i] + DATA_HEADER_LENGTH)
        if column_bits & COLUMN_LENGTH:
            column = self.column[9]
            for i in range(n):
                put32(column, (row + i) * 4, lengths[i] - DATA_HEADER_LENGTH)
        if column_bits & COLUMN_PAYLOAD:
            column = self.column[I_PAYLOAD]
            offsets = self.column[I_OFFSETS]
            for i in range(n):
                copy_bytes(column, used, base, at[i] + DATA_HEADER_LENGTH, payloads[i])
                used += payloads[i]
                put32(offsets, (row + i + 1) * 4, cython.cast(cython.int, used))
            self.payload_length = used
        self.rows = row + n

    def fill_messages(
        self,
        base: cython.p_uchar,
        at: cython.p_longlong,
        lengths: cython.p_int,
        payloads: cython.p_int,
        n: cython.int,
        zero_position: cython.longlong,
    ) -> cython.void:
        """Append the columns that a poll selects, like ``fill``, but in one loop that reads each header once."""
        row: cython.longlong = self.rows
        i: cython.int = 0
        o: cython.longlong = 0
        used: cython.longlong = self.payload_length
        positions = self.column[0]
        sessions = self.column[1]
        reserved = self.column[7]
        offsets = self.column[I_OFFSETS]
        payload = self.column[I_PAYLOAD]
        for i in range(n):
            o = at[i]
            put64(positions, row * 8, zero_position + o + align_frame(lengths[i]))
            put32(sessions, row * 4, get32(base, o + FRAME_SESSION_ID_OFFSET))
            put64(reserved, row * 8, get64(base, o + FRAME_RESERVED_VALUE_OFFSET))
            copy_bytes(payload, used, base, o + DATA_HEADER_LENGTH, payloads[i])
            used += payloads[i]
            row += 1
            put32(offsets, row * 4, cython.cast(cython.int, used))
        self.payload_length = used
        self.rows = row

    @cython.exceptval(-1)
    def join_chunk(self, base: cython.p_uchar, zero_position: cython.longlong, fragments: Fragments) -> cython.int:
        """Append the found frames as whole messages: runs of unfragmented frames at once, fragments one by one."""
        i: cython.int = 0
        first: cython.int = 0
        while i < self.found_count:
            first = i
            total: cython.longlong = 0
            while i < self.found_count and self.flags[i] & FLAG_UNFRAGMENTED == FLAG_UNFRAGMENTED:
                total += self.payloads[i]
                i += 1
            if i > first:
                fragments.reset()
                self.reserve_payload(self.payload_length + total)
                self.fill(base, first, i - first, zero_position)
            else:
                self.join_one(base, i, zero_position, fragments)
                i += 1
        return 0

    @cython.exceptval(-1)
    def join_one(
        self, base: cython.p_uchar, i: cython.int, zero_position: cython.longlong, fragments: Fragments
    ) -> cython.int:
        flags: cython.int = self.flags[i]
        at: cython.longlong = self.at[i]
        length: cython.longlong = self.payloads[i]
        begin: cython.longlong = zero_position + at
        end: cython.longlong = begin + align_frame(self.lengths[i])
        if flags & FLAG_BEGIN:
            fragments.reset()
            copy_bytes(fragments.head_base, 0, base, at, DATA_HEADER_LENGTH)
        elif fragments.expected != begin or fragments.length + length > MAX_MESSAGE_LENGTH:
            # The stream was joined midway or has a gap: without its beginning a message is not usable.
            fragments.reset()
            return 0
        if self.column_bits & COLUMN_PAYLOAD:
            fragments.reserve(fragments.length + length)
            copy_bytes(fragments.data_base, fragments.length, base, at + DATA_HEADER_LENGTH, length)
        fragments.length += length
        fragments.expected = end
        if flags & FLAG_END:
            self.put_joined(flags, end, fragments)
            fragments.expected = -1
            fragments.length = 0
        return 0

    @cython.exceptval(-1)
    def put_joined(self, flags: cython.int, end_position: cython.longlong, fragments: Fragments) -> cython.int:
        """Append one row from fragments: the first one's header, both ends' flags, the last one's position."""
        length: cython.longlong = fragments.length
        used: cython.longlong = self.payload_length
        column_bits: cython.int = self.column_bits
        row: cython.longlong = self.rows
        self.reserve_payload(used + length)
        # Treat the first fragment's header as a frame without payload, at the last index; some of its fields are overwritten below.
        self.at[COLUMN_CHUNK_ROWS] = 0
        self.lengths[COLUMN_CHUNK_ROWS] = DATA_HEADER_LENGTH
        self.payloads[COLUMN_CHUNK_ROWS] = 0
        self.flags[COLUMN_CHUNK_ROWS] = get8(fragments.head_base, FRAME_FLAGS_OFFSET)
        self.fill(fragments.head_base, COLUMN_CHUNK_ROWS, 1, 0)
        if column_bits & COLUMN_POSITION:
            put64(self.column[0], row * 8, end_position)
        if column_bits & COLUMN_FLAGS:
            flags |= get8(fragments.head_base, FRAME_FLAGS_OFFSET)
            put16(self.column[5], row * 2, cython.cast(cython.ushort, flags))
        if column_bits & COLUMN_LENGTH:
            put32(self.column[9], row * 4, cython.cast(cython.int, length))
        if column_bits & COLUMN_PAYLOAD:
            copy_bytes(self.column[I_PAYLOAD], used, fragments.data_base, 0, length)
            self.payload_length = used + length
            put32(self.column[I_OFFSETS], (row + 1) * 4, cython.cast(cython.int, self.payload_length))
        return 0

    def take(self) -> dict[str, bytearray]:
        """Return the buffers by column name (the payload is ``payload_offsets`` and ``payload``); the caller owns them now."""
        if not self.owners:
            self.start()
        i: cython.int = 0
        buffers = {}
        for i in range(12):
            if self.owners[i] is not None:
                if i == I_PAYLOAD:
                    self.resize(i, self.payload_length)
                elif i == I_OFFSETS:
                    self.resize(i, (self.rows + 1) * 4)
                else:
                    self.resize(i, self.rows * cython.cast(cython.int, WIDTHS[i]))
                buffers[NAMES[i]] = self.owners[i]
        # The next batch starts as large as this one became, or half as large if less than a quarter was used.
        if self.payload_length < self.payload_capacity // 4:
            self.payload_capacity = max(self.payload_capacity // 2, 64)
        self.owners = []
        self.rows = 0
        self.payload_length = 0
        return buffers


def gather16(
    column: cython.p_uchar,
    row: cython.longlong,
    base: cython.p_uchar,
    at: cython.p_longlong,
    n: cython.int,
    field: cython.int,
) -> cython.void:
    """Copy the 16-bit ``field`` of the frames at ``at`` into the column, from ``row`` on."""
    i: cython.int = 0
    for i in range(n):
        put16(column, (row + i) * 2, get16(base, at[i] + field))


def gather32(
    column: cython.p_uchar,
    row: cython.longlong,
    base: cython.p_uchar,
    at: cython.p_longlong,
    n: cython.int,
    field: cython.int,
) -> cython.void:
    """Copy the 32-bit ``field`` of the frames at ``at`` into the column, from ``row`` on."""
    i: cython.int = 0
    for i in range(n):
        put32(column, (row + i) * 4, get32(base, at[i] + field))


def gather64(
    column: cython.p_uchar,
    row: cython.longlong,
    base: cython.p_uchar,
    at: cython.p_longlong,
    n: cython.int,
    field: cython.int,
) -> cython.void:
    """Copy the 64-bit ``field`` of the frames at ``at`` into the column, from ``row`` on."""
    i: cython.int = 0
    for i in range(n):
        put64(column, (row + i) * 8, get64(base, at[i] + field))
