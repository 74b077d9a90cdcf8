"""Encoding and decoding of the most common bymux packets and Jmux messages.

See docs/protocols/bymux.md, 2 and docs/protocols/jmux.md. These functions decide nothing. A reader takes complete packets of
the common kind, and returns ``None`` for anything else. The engine then parses that step by step, and decides whether it is
allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from typing_extensions import Buffer

if cython.compiled:
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcpy

# The bits of a bymux packet that hold its type and the global bit, and their value in a stream's Write.
WRITE_MASK = cython.declare(cython.int, 0xF0)
WRITE = cython.declare(cython.int, 0x20)
# The bits of a Jmux message that hold its type, their value in a Data message, and the number of sessions.
DATA_MASK = cython.declare(cython.int, 0xE1)
DATA = cython.declare(cython.int, 0x80)
SESSIONS = cython.declare(cython.int, 128)


def take_writes(data: Buffer, start: cython.longlong, most: cython.longlong) -> tuple[int, bytes, int] | None:
    """Take the next Writes of one stream from a buffer, if the first is complete.

    Returns the stream's id, the Writes' joined bodies (as long as these have at most ``most`` bytes), and where they end.
    """
    if cython.compiled:
        view = cython.declare(Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            return join_writes(cython.cast(cython.p_const_uchar, view.buf), start, view.len, most)
        finally:
            PyBuffer_Release(cython.address(view))
    else:
        bytes_of = memoryview(data).cast("B")
        return join_writes(bytes_of, start, len(bytes_of), most)


def number(base: cython.p_const_uchar, at: cython.longlong, width: cython.longlong) -> cython.ulonglong:
    value: cython.ulonglong = base[at]
    index: cython.longlong = 1
    while index < width:
        value = value << 8 | base[at + index]
        index += 1
    return value


@cython.cfunc
def join_writes(
    base: cython.p_const_uchar, start: cython.longlong, end: cython.longlong, most: cython.longlong
) -> object:
    first: cython.int
    at: cython.longlong = start
    id_width: cython.longlong
    width: cython.longlong
    head: cython.longlong
    stream_id: cython.ulonglong = 0
    amount: cython.ulonglong
    total: cython.longlong = 0
    count: cython.longlong = 0
    only: cython.longlong = start
    while at < end:
        first = base[at]
        id_width = 1 << (first >> 2 & 3)
        width = 1 << (first & 3)
        head = 1 + id_width + width
        if first & WRITE_MASK != WRITE or end - at < head:
            break
        amount = number(base, at + 1 + id_width, width)
        if amount > cython.cast(cython.ulonglong, end - at - head):
            break
        if count == 0:
            stream_id = number(base, at + 1, id_width)
            only = at + head
        elif total + cython.cast(cython.longlong, amount) > most or number(base, at + 1, id_width) != stream_id:
            break
        total += cython.cast(cython.longlong, amount)
        at += head + cython.cast(cython.longlong, amount)
        count += 1
    if count == 0:
        return None
    if count == 1:
        if cython.compiled:
            body: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, base) + only, total)
        else:
            body = bytes(base[only : only + total])
        return stream_id, body, at
    return stream_id, bodies(base, start, at, total), at


@cython.cfunc
def bodies(base: cython.p_const_uchar, start: cython.longlong, end: cython.longlong, total: cython.longlong) -> bytes:
    """Return the joined bodies of the complete Writes in ``[start, end)``."""
    at: cython.longlong = start
    filled: cython.longlong = 0
    id_width: cython.longlong
    width: cython.longlong
    amount: cython.longlong
    if cython.compiled:
        joined: bytes = PyBytes_FromStringAndSize(cython.NULL, total)
        into: cython.p_char = PyBytes_AS_STRING(joined)
    else:
        joined = b""
    while at < end:
        id_width = 1 << (base[at] >> 2 & 3)
        width = 1 << (base[at] & 3)
        amount = number(base, at + 1 + id_width, width)
        at += 1 + id_width + width
        if cython.compiled:
            memcpy(into + filled, base + at, amount)
        else:
            joined += bytes(base[at : at + amount])
        filled += amount
        at += amount
    return joined


def write_packet(stream_id: cython.ulonglong, body: bytes) -> bytes:
    """Return a Write packet with its body."""
    length: cython.ulonglong = len(body)
    id_code: cython.int = width_code(stream_id)
    code: cython.int = width_code(length)
    id_width: cython.longlong = 1 << id_code
    width: cython.longlong = 1 << code
    if cython.compiled:
        packet: bytes = PyBytes_FromStringAndSize(cython.NULL, 1 + id_width + width + len(body))
        into: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(packet))
        into[0] = WRITE | id_code << 2 | code
        put(into + 1, stream_id, id_width)
        put(into + 1 + id_width, length, width)
        memcpy(into + 1 + id_width + width, PyBytes_AS_STRING(body), len(body))
    else:
        packet = bytes((WRITE | id_code << 2 | code,))
        packet += stream_id.to_bytes(id_width, "big") + length.to_bytes(width, "big") + body
    return packet


def width_code(value: cython.ulonglong) -> cython.int:
    """Return the code of the smallest width that holds a number."""
    if value < 1 << 8:
        return 0
    if value < 1 << 16:
        return 1
    return 2 if value >> 32 == 0 else 3


def put(into: cython.p_uchar, value: cython.ulonglong, width: cython.longlong) -> cython.void:
    """Write a big-endian number. Compiled only."""
    while width > 0:
        width -= 1
        into[width] = value & 0xFF
        value >>= 8


def take_data(data: Buffer, start: cython.longlong) -> tuple[int, int, bytes, int] | None:
    """Take the next Data message from a buffer, if it is complete: its session's id, its flags, its body, and where it ends."""
    if cython.compiled:
        view = cython.declare(Py_buffer)
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            return data_message(cython.cast(cython.p_const_uchar, view.buf), start, view.len)
        finally:
            PyBuffer_Release(cython.address(view))
    else:
        bytes_of = memoryview(data).cast("B")
        return data_message(bytes_of, start, len(bytes_of))


@cython.cfunc
def data_message(base: cython.p_const_uchar, start: cython.longlong, end: cython.longlong) -> object:
    first: cython.int
    session_id: cython.int
    length: cython.longlong
    at: cython.longlong = start + 4
    if end < at:
        return None
    first = base[start]
    session_id = base[start + 1]
    length = base[start + 2] << 8 | base[start + 3]
    if first & DATA_MASK != DATA or session_id >= SESSIONS or end - at < length:
        return None
    if cython.compiled:
        body: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, base) + at, length)
    else:
        body = bytes(base[at : at + length])
    return session_id, first & 0x1E, body, at + length
