"""The object that a poll passes to its handler: a flyweight, moved from frame to frame, that reads a field when it is used."""

from __future__ import annotations

import cython

from mainstem.errors import LocalProtocolError

if cython.compiled:
    from cython.cimports.cpython.buffer import (
        Py_buffer,
        PyBUF_ND,
        PyBUF_SIMPLE,
        PyBUF_STRIDES,
        PyBUF_WRITABLE,
        PyObject_GetBuffer,
    )
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
else:
    from mainstem._core.layout import *
    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem._core.memory.plain import *


@cython.cclass
class Header:
    """The header of a frame in place (docs/protocols/aeron.md, 13.1); each field is read when it is used.

    Any use after the frame's memory is gone raises LocalProtocolError.
    """

    log: AtomicBuffer
    base: cython.p_uchar
    p: cython.longlong
    end_position: cython.longlong
    initial_term_id: readonly[cython.int]
    position_bits: readonly[cython.int]

    def __init__(self) -> None:
        self.log = None
        self.base = cython.NULL if cython.compiled else None
        self.end_position = -1

    def wrap(
        self, log: AtomicBuffer, offset: cython.longlong, initial_term_id: cython.int, position_bits: cython.int
    ) -> Header:
        """Move this flyweight onto another frame.

        Args:
            log: The memory of a log, or of a recording's segment.
            offset: Where the frame begins in ``log``, in bytes.
            initial_term_id: The stream's first term id, from which positions are counted.
            position_bits: Log2 of the term length in bytes.

        Returns:
            This header.

        Raises:
            IndexError: The header would be outside ``log``.
        """
        log.get_bytes(offset, DATA_HEADER_LENGTH)
        self.log = log
        self.base = log.base
        self.p = offset
        self.end_position = -1
        self.initial_term_id = initial_term_id
        self.position_bits = position_bits
        return self

    @cython.exceptval(-1)
    def check(self) -> cython.int:
        if not self.base or self.log.capacity == 0:
            raise LocalProtocolError(
                "the frame is no longer there: a fragment is valid only inside the call that handed it out"
            )
        return 0

    @property
    def frame_length(self) -> int:
        """The length of header and payload in bytes, not aligned."""
        self.check()
        return get32(self.base, self.p)

    @property
    def version(self) -> int:
        self.check()
        return get8(self.base, self.p + FRAME_VERSION_OFFSET)

    @property
    def flags(self) -> int:
        """The frame's flags: 0x80 begins a message, 0x40 ends it."""
        self.check()
        return get8(self.base, self.p + FRAME_FLAGS_OFFSET)

    @property
    def type(self) -> int:
        self.check()
        return get16(self.base, self.p + FRAME_TYPE_OFFSET)

    @property
    def term_offset(self) -> int:
        self.check()
        return get32(self.base, self.p + FRAME_TERM_OFFSET_OFFSET)

    @property
    def session_id(self) -> int:
        self.check()
        return get32(self.base, self.p + FRAME_SESSION_ID_OFFSET)

    @property
    def stream_id(self) -> int:
        self.check()
        return get32(self.base, self.p + FRAME_STREAM_ID_OFFSET)

    @property
    def term_id(self) -> int:
        self.check()
        return get32(self.base, self.p + FRAME_TERM_ID_OFFSET)

    @property
    def reserved_value(self) -> int:
        self.check()
        return get64(self.base, self.p + FRAME_RESERVED_VALUE_OFFSET)

    @property
    def position(self) -> int:
        """The position of the stream at the end of this frame; of an assembled message, at the end of its last frame."""
        self.check()
        if self.end_position >= 0:
            return self.end_position
        base = self.base
        term_id: cython.longlong = get32(base, self.p + FRAME_TERM_ID_OFFSET)
        count: cython.longlong = wrap_i32(term_id - self.initial_term_id)
        end: cython.longlong = get32(base, self.p + FRAME_TERM_OFFSET_OFFSET) + align_frame(get32(base, self.p))
        return shift_left(count, self.position_bits) + end


@cython.cclass
class Fragment(Header):
    """A frame and its payload, or a whole message assembled from several frames.

    One object is moved from frame to frame: it is valid only inside the call that received it, and any use after that raises
    LocalProtocolError. ``bytes(fragment)`` copies the payload, ``len(fragment)`` is its length in bytes, and ``fragment[i]``
    and ``fragment[i:j]`` copy parts of it; it is read-only through the buffer protocol. The header's fields (``session_id``,
    ``position``, ``reserved_value``, ...) are attributes of the fragment too.

    Example:
        >>> image.poll(lambda fragment: print(fragment.position, bytes(fragment)), 10)
    """

    start: cython.longlong
    length: cython.longlong

    @property
    def header(self) -> Header:
        """The frame's header."""
        return self

    @property
    def view(self) -> memoryview:
        """A read-only view of the payload in place. Its content changes when the publisher reuses the term."""
        self.check()
        if cython.compiled:
            return memoryview(self)
        else:
            return self.log.view(self.start, self.length).toreadonly()

    def __len__(self) -> int:
        return self.length if self.base else 0

    def __bytes__(self) -> bytes:
        return payload_bytes(self)

    def __getitem__(self, index: int | slice) -> int | bytes:
        with self.view as view:
            item = view[index]
            return bytes(item) if isinstance(item, memoryview) else item

    def __repr__(self) -> str:
        if not self.base:
            return "<Fragment, no longer valid>"
        return f"<Fragment of {self.length} bytes, session {self.session_id}, position {self.position}>"

    if cython.compiled:

        def __getbuffer__(self, buffer: cython.pointer[Py_buffer], flags: cython.int):
            self.check()
            if flags & PyBUF_WRITABLE == PyBUF_WRITABLE:
                raise BufferError("a fragment is read-only")
            # The view holds a reference to the memory's owner, so that the memory stays mapped if the view outlives the call.
            PyObject_GetBuffer(self.log.owner, buffer, PyBUF_SIMPLE)
            buffer.buf = self.base + self.start
            buffer.len = self.length
            buffer.readonly = 1
            buffer.itemsize = 1
            buffer.ndim = 1
            buffer.format = cython.NULL  # unsigned bytes
            buffer.shape = cython.address(buffer.len) if flags & PyBUF_ND else cython.NULL
            buffer.strides = cython.address(buffer.itemsize) if flags & PyBUF_STRIDES == PyBUF_STRIDES else cython.NULL
            buffer.suboffsets = cython.NULL


@cython.cfunc
def payload_bytes(fragment: Fragment) -> bytes:
    """Copy the payload."""
    fragment.check()
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, fragment.base) + fragment.start, fragment.length)
    else:
        return bytes(fragment.log.view(fragment.start, fragment.length))
