"""AtomicBuffer: bounds-checked typed access, with named memory orderings, to a mapped file, a bytearray or a view."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

if cython.compiled:
    from cython.cimports.cpython.buffer import (
        Py_buffer,
        PyBUF_SIMPLE,
        PyBUF_WRITABLE,
        PyBuffer_Release,
        PyObject_GetBuffer,
    )
else:
    from mainstem._core.memory.plain import *
    from mainstem._core.memory.plain import Memory

from mmap import mmap


# It is in no reference cycle; if the collector cleared one, it would drop the view before the buffer exported from it.
@cython.no_gc
@cython.cclass
class AtomicBuffer:
    """Bounds-checked typed access, with named memory orderings, to a mapped file, a bytearray or a view.

    Little-endian, like everything that Aeron shares. ``_acquire`` and ``_release`` name the ordering; the others are plain. Every
    access outside the region raises IndexError.
    """

    raw: Py_buffer
    held: cython.bint
    owner: readonly[object]
    base: cython.p_uchar
    capacity: readonly[cython.longlong]

    def __init__(
        self, source: Buffer | AtomicBuffer, offset: cython.longlong = 0, length: cython.longlong = -1
    ) -> None:
        if isinstance(source, AtomicBuffer):
            source = source.view()
        view = memoryview(source).cast("B")
        if view.readonly:
            raise BufferError("AtomicBuffer needs writable memory")
        if length < 0:
            length = view.nbytes - offset
        if offset < 0 or length < 0 or offset > view.nbytes - length:
            raise IndexError(f"{length} bytes from {offset} on lie outside a buffer of {view.nbytes} bytes")
        part = view[offset : offset + length]
        self.owner = part
        self.capacity = length
        if cython.compiled:
            PyObject_GetBuffer(part, cython.address(self.raw), PyBUF_SIMPLE | PyBUF_WRITABLE)
            self.held = True
            self.base = cython.cast(cython.pointer(cython.uchar), self.raw.buf)
        else:
            if isinstance(view.obj, mmap):
                raise RuntimeError("shared memory needs the compiled modules: run 'make build' or install a wheel")
            self.base = Memory(part)

    if cython.compiled:

        def __dealloc__(self):
            if self.held:
                PyBuffer_Release(cython.address(self.raw))

    def close(self) -> None:
        """Release the memory, so that a mapping under it can be closed. Any later access raises IndexError."""
        self.capacity = 0
        if cython.compiled:
            if self.held:
                self.held = False
                PyBuffer_Release(cython.address(self.raw))
            self.base = cython.NULL
        else:
            self.base = None
        if self.owner is not None:
            self.owner.release()
            self.owner = None

    def __len__(self) -> int:
        return self.capacity

    @cython.exceptval(-1)
    def check(self, offset: cython.longlong, length: cython.longlong) -> cython.int:
        if offset < 0 or length < 0 or offset > self.capacity - length:
            raise IndexError(f"{length} bytes from {offset} on lie outside a buffer of {self.capacity} bytes")
        return 0

    @cython.exceptval(-1)
    def check_alignment(self) -> cython.int:
        """Assert that words shared between threads are aligned: only then are their loads and stores atomic."""
        if cython.compiled:
            assert cython.cast(cython.size_t, self.base) % 8 == 0, "shared memory that is not aligned to 8 bytes"
        return 0

    def get_u8(self, offset: cython.longlong) -> int:
        self.check(offset, 1)
        return get8(self.base, offset)

    def put_u8(self, offset: cython.longlong, value: cython.uchar) -> None:
        self.check(offset, 1)
        put8(self.base, offset, value)

    def get_u16(self, offset: cython.longlong) -> int:
        self.check(offset, 2)
        return get16(self.base, offset)

    def get_i32(self, offset: cython.longlong) -> int:
        self.check(offset, 4)
        return get32(self.base, offset)

    def put_i32(self, offset: cython.longlong, value: cython.int) -> None:
        self.check(offset, 4)
        put32(self.base, offset, value)

    def get_i64(self, offset: cython.longlong) -> int:
        self.check(offset, 8)
        return get64(self.base, offset)

    def put_i64(self, offset: cython.longlong, value: cython.longlong) -> None:
        self.check(offset, 8)
        put64(self.base, offset, value)

    def get_i32_acquire(self, offset: cython.longlong) -> int:
        self.check(offset, 4)
        return ld32(self.base, offset)

    def put_i32_release(self, offset: cython.longlong, value: cython.int) -> None:
        self.check(offset, 4)
        st32(self.base, offset, value)

    def get_i64_acquire(self, offset: cython.longlong) -> int:
        self.check(offset, 8)
        return ld64(self.base, offset)

    def put_i64_release(self, offset: cython.longlong, value: cython.longlong) -> None:
        self.check(offset, 8)
        st64(self.base, offset, value)

    def add_i64(self, offset: cython.longlong, delta: cython.longlong) -> int:
        """Add atomically and return the previous value."""
        self.check(offset, 8)
        return fadd64(self.base, offset, delta)

    def get_bytes(self, offset: cython.longlong, length: cython.longlong) -> bytes:
        self.check(offset, length)
        return bytes(self.owner[offset : offset + length])

    def put_bytes(self, offset: cython.longlong, data: Buffer) -> None:
        n = len(data)
        self.check(offset, n)
        self.owner[offset : offset + n] = data

    def zero(self, offset: cython.longlong, length: cython.longlong) -> None:
        self.check(offset, length)
        zero_out(self.base, offset, length)

    def view(self, offset: cython.longlong = 0, length: cython.longlong = -1) -> memoryview:
        """Return a writable memoryview of the region; it must be released before ``close``."""
        if length < 0:
            length = self.capacity - offset
        self.check(offset, length)
        return self.owner[offset : offset + length]
