"""Many messages in one argument: a list of bytes, or the data and offsets buffers of an Arrow column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

if cython.compiled:
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
else:
    from mainstem._core.memory.plain import *
    from mainstem._core.memory.plain import Memory


CHUNK = cython.declare(cython.longlong, 256)  # messages loaded at once: the length of the arrays in batch.pxd


@cython.cclass
class Messages:
    """A batch as an appender reads it: each message's address and length."""

    count: readonly[cython.longlong]
    largest: readonly[cython.longlong]
    # Result of the last load(): the address and length of each message.
    loaded: cython.longlong
    source: cython.p_const_uchar[256]
    length: cython.longlong[256]

    def prepare(self) -> None:
        if not cython.compiled:
            set_arrays(self)
            self.loaded = 0

    @cython.exceptval(check=False)
    def load(self, first: cython.longlong) -> cython.void:  # noqa: ARG002 - subclasses do the work
        """Load up to CHUNK messages from ``first`` on."""
        return


@cython.final
@cython.cclass
class MessageList(Messages):
    """A list of bytes-like objects; ``bytes`` are read in place, anything else is copied first."""

    items: list

    def __init__(self, items: Iterable[Any]) -> None:
        plain: cython.bint = type(items) is list
        if plain:
            for item in items:
                if type(item) is not bytes:
                    plain = False
                    break
        self.items = items if plain else [m if type(m) is bytes else bytes(memoryview(m)) for m in items]
        self.count = len(self.items)
        self.largest = max(map(len, self.items), default=0)
        self.prepare()

    @cython.exceptval(check=False)
    def load(self, first: cython.longlong) -> cython.void:
        n: cython.longlong = min(CHUNK, self.count - first)
        k: cython.longlong
        for k in range(n):
            if cython.compiled:
                self.source[k] = cython.cast(cython.p_uchar, PyBytes_AS_STRING(self.items[first + k]))
                self.length[k] = PyBytes_GET_SIZE(self.items[first + k])
            else:
                self.source[k] = Memory(self.items[first + k])
                self.length[k] = len(self.items[first + k])
        self.loaded = n


@cython.final
@cython.cclass
class MessageColumns(Messages):
    """Rows of an Arrow binary column.

    ``data`` and ``offsets`` are buffers; an offset is an int32, or an int64 if ``wide``. ``count`` rows from ``first`` on are
    read, or all of them if it is negative. Raises ValueError if the offsets decrease or leave the data.
    """

    data_view: Py_buffer
    offsets_view: Py_buffer
    data_held: cython.bint
    offsets_held: cython.bint
    wide: cython.bint
    first: cython.longlong
    data: cython.p_uchar
    offsets: cython.p_uchar

    def __init__(
        self,
        data: Any,
        offsets: Any,
        first: cython.longlong = 0,
        count: cython.longlong = -1,
        wide: cython.bint = False,
    ) -> None:
        width: cython.longlong = 8 if wide else 4
        data_length: cython.longlong
        offsets_length: cython.longlong
        if cython.compiled:
            PyObject_GetBuffer(data, cython.address(self.data_view), PyBUF_SIMPLE)
            self.data_held = True
            PyObject_GetBuffer(offsets, cython.address(self.offsets_view), PyBUF_SIMPLE)
            self.offsets_held = True
            self.data = cython.cast(cython.p_uchar, self.data_view.buf)
            self.offsets = cython.cast(cython.p_uchar, self.offsets_view.buf)
            data_length = self.data_view.len
            offsets_length = self.offsets_view.len
        else:
            self.data = Memory(data)
            self.offsets = Memory(offsets)
            data_length = len(self.data.u8)
            offsets_length = len(self.offsets.u8)
        rows: cython.longlong = offsets_length // width - 1
        if count < 0:
            count = rows - first if rows > first else 0
        if first < 0 or (count > 0 and count > rows - first):
            raise ConfigurationError(f"{count} rows from {first} on lie outside a column of {max(rows, 0)}")
        self.wide = wide
        self.first = first
        self.count = count
        self.largest = 0
        self.prepare()
        self.check_offsets(data_length)

    def check_offsets(self, data_length: cython.longlong) -> None:
        """Check that offsets do not decrease and stay inside the data, and find the largest message."""
        i: cython.longlong
        before: cython.longlong
        after: cython.longlong
        if self.count == 0:
            return  # read no offset: the buffer may be empty
        before = self.offset(0)
        if self.measure() and before >= 0 and self.offset(self.count) <= data_length:
            return
        if before < 0:
            raise ConfigurationError(f"the column's first offset is {before}")
        for i in range(self.count):
            after = self.offset(i + 1)
            if after < before or after > data_length:
                raise ConfigurationError(f"row {self.first + i} is [{before}, {after}) in {data_length} bytes of data")
            before = after

    @cython.exceptval(check=False)
    def measure(self) -> cython.bint:
        """Whether no offset is negative or below the previous one; also find the largest step."""
        i: cython.longlong
        width: cython.longlong = 8 if self.wide else 4
        start: cython.longlong = self.first * width
        before: cython.longlong = self.offset(0)
        after: cython.longlong
        step: cython.longlong
        largest: cython.longlong = 0
        falls: cython.longlong = 0
        offsets = self.offsets
        for i in range(1, self.count + 1):
            after = get64(offsets, start + i * width) if width == 8 else get32(offsets, start + i * width)
            step = difference(after, before)
            falls |= after | step
            largest = max(largest, step)
            before = after
        self.largest = largest
        return falls >= 0

    if cython.compiled:

        def __dealloc__(self):
            if self.data_held:
                PyBuffer_Release(cython.address(self.data_view))
            if self.offsets_held:
                PyBuffer_Release(cython.address(self.offsets_view))

    @cython.exceptval(check=False)
    def offset(self, i: cython.longlong) -> cython.longlong:
        if self.wide:
            return get64(self.offsets, (self.first + i) * 8)
        return get32(self.offsets, (self.first + i) * 4)

    @cython.exceptval(check=False)
    def load(self, first: cython.longlong) -> cython.void:
        n: cython.longlong = min(CHUNK, self.count - first)
        k: cython.longlong
        width: cython.longlong = 8 if self.wide else 4
        p: cython.longlong = (self.first + first) * width
        begin: cython.longlong = self.offset(first)
        end: cython.longlong
        offsets = self.offsets
        for k in range(n):
            p += width
            end = get64(offsets, p) if width == 8 else get32(offsets, p)
            if cython.compiled:
                self.source[k] = self.data + begin
            else:
                self.source[k] = Memory(self.data.u8[begin:end])
            self.length[k] = end - begin
            begin = end
        self.loaded = n
