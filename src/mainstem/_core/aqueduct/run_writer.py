"""Aqueduct's writer and reader of runs of messages: the compiled part of a channel (docs/protocols/aqueduct.md).

A run is a sequence of plain messages on one stream: bytes without attachments, reliable, one directly after another. Most
messages are plain, and most of their cost is what Python does for each of them. ``RunReader`` takes runs from a stream's
bytes, ``MessageWriter`` packs messages into frames, and ``Ledger`` numbers a sender's messages, tracks those that are not
acknowledged, and sends plain ones. Anything else, or anything unexpected, is left to ``mainstem.aqueduct``: this module never
decides differently.

One thread uses a connection's objects, with the GIL; nothing here is shared between threads or processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from mainstem._core.memory.plain import public, readonly

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcmp, memcpy

MESSAGE = cython.declare(cython.longlong, 3)  # the type of a Message frame
# The types of frames that hold one integer, and of those that hold run lengths, as bits.
INTEGERS = cython.declare(cython.longlong, 1 << 2 | 1 << 4 | 1 << 7 | 1 << 9)
RANGES = cython.declare(cython.longlong, 1 << 5 | 1 << 6 | 1 << 8)
BUFFER = cython.declare(cython.longlong, 1 << 14)  # bytes joined into one piece
LARGE = cython.declare(cython.longlong, 1 << 12)  # payloads from this size on become separate pieces, without a copy
ROOM_FOR_HEAD = cython.declare(cython.longlong, 48)  # a type, three integers and a zero
ALLOWANCE = cython.declare(
    cython.longlong, 512
)  # messages (each 512 bytes count as another one) that the writer accepts until its output has been sent
# A receiver may leave the bytes that it has acknowledged so far, plus this many, of a channel unread. It is as much as a
# receiver acknowledges at once, so a channel that is being read never waits for it.
UNPROVEN = cython.declare(cython.longlong, 1 << 18)
# If a connection has `CROWD` or more unacknowledged bytes, each of its channels may have at most `CROWDED` of them.
CROWD = cython.declare(cython.longlong, 1 << 24)
CROWDED = cython.declare(cython.longlong, 1 << 20)


@cython.cfunc
def put_integer(out: bytearray, value: cython.ulonglong) -> cython.void:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


@cython.exceptval(-1)
def put_head(out: bytearray, at: cython.longlong, number: cython.longlong, size: cython.longlong) -> cython.longlong:
    """Write a plain message's number, its empty attachments and its size into ``out``; return where they end."""
    while number >= 0x80:
        out[at] = number & 0x7F | 0x80
        at += 1
        number >>= 7
    out[at] = number
    out[at + 1] = 0
    at += 2
    while size >= 0x80:
        out[at] = size & 0x7F | 0x80
        at += 1
        size >>= 7
    out[at] = size
    return at + 1


def integer_frame(tag: cython.int, value: cython.ulonglong) -> bytes:
    """Return a frame that holds one integer, or the prefix of each Message frame of a channel."""
    out: bytearray = bytearray()
    out.append(tag)
    put_integer(out, value)
    return bytes(out)


def ranges_frame(tag: cython.int, base: int, ranges: list[tuple[int, int]], end: int) -> bytes:
    """Return a frame of run lengths from ``base`` on: of ``ranges``, of the gaps between them, and of the rest up to ``end``."""
    body: bytearray = bytearray()
    for start, stop in [*ranges, (end, end)]:
        if start > base:
            if not body:
                # The first run, which is a positive one, is empty.
                body.append(0)
            put_integer(body, start - base)
        if stop > start:
            put_integer(body, stop - start)
        base = stop
    out: bytearray = bytearray()
    out.append(tag)
    put_integer(out, len(body))
    out += body
    return bytes(out)


def message_head(prefix: bytes, number: cython.ulonglong, ids: tuple[int, ...], size: cython.ulonglong) -> bytes:
    """Return a Message frame up to its payload of ``size`` bytes; ``prefix`` is its type and channel, ``ids`` are attached."""
    out: bytearray = bytearray(prefix)
    body: bytearray
    put_integer(out, number)
    if ids:
        body = bytearray()
        for each in ids:
            put_integer(body, each)
        put_integer(out, len(body))
        out += body
    else:
        out.append(0)
    put_integer(out, size)
    return bytes(out)


@cython.cclass
class RunReader:
    """A reader of runs of plain messages in a stream's bytes.

    ``position``, ``count`` and ``size`` describe the last run: where it ended, the number of its messages, and the bytes of
    their payloads.
    """

    position: readonly[cython.longlong]
    count: readonly[cython.longlong]
    size: readonly[cython.longlong]
    channel: readonly[cython.longlong]
    number: readonly[cython.longlong]
    at: cython.longlong

    def __init__(self) -> None:
        self.position = 0
        self.count = 0
        self.size = 0
        self.channel = -1
        self.number = -1
        self.at = 0

    @cython.final
    @cython.cfunc
    def integer(self, data: bytes, end: cython.longlong) -> cython.longlong:
        value: cython.longlong
        byte: cython.longlong
        shift: cython.int = 7
        at: cython.longlong = self.at
        if at >= end:
            return -1
        value = data[at]
        at += 1
        if value >= 0x80:
            value &= 0x7F
            while True:
                if at >= end or shift > 56:
                    return -1
                byte = data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    if byte == 0:
                        return -1
                    break
        self.at = at
        return value

    @cython.ccall
    def frame(
        self,
        data: bytes,
        position: cython.longlong,
        largest: cython.longlong,
        attachments: cython.longlong,
        ranges: cython.longlong,
    ) -> object:
        """Return the frame at ``position`` and where it ends: ``((type, value), position)``.

        Returns None if it is incomplete, not a common one, or beyond a limit; the caller then finds out which.
        """
        end: cython.longlong = len(data)
        tag: cython.longlong
        value: cython.longlong
        number: cython.longlong
        stop: cython.longlong
        count: cython.longlong = 0
        if position >= end:
            return None
        tag = data[position]
        self.at = position + 1
        if tag > 9 or tag < 2:
            return None
        value = self.integer(data, end)
        if value < 0:
            return None
        if INTEGERS >> tag & 1:
            return (tag, value), self.at
        values: list = []
        if RANGES >> tag & 1:
            stop = self.at + value
            if value > ranges or value > 64 or stop > end:
                return None
            while self.at < stop:
                number = self.integer(data, stop)
                if number < 0 or number > 1 << 48 or (number == 0 and (count or stop == self.at)):
                    return None
                values.append(number)
                count += 1
            return (tag, tuple(values)), self.at
        number = self.integer(data, end)
        count = self.integer(data, end)
        if number < 0 or count < 0:
            return None
        stop = self.at + count
        if stop > end:
            return None
        while self.at < stop:
            count = self.integer(data, stop)
            if count < 0 or len(values) >= attachments:
                return None
            values.append(count)
        count = self.integer(data, end)
        if count < 0 or count > largest or count > end - self.at:
            return None
        stop = self.at + count
        if cython.compiled:
            payload = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + self.at, count)
        else:
            payload = data[self.at : stop]
        return (tag, (value, number, tuple(values), payload)), stop

    @cython.final
    @cython.cfunc
    def rest(self, data: bytes, end: cython.longlong, limit: cython.longlong) -> bytes | None:
        """Return the payload of the message whose number is next, or None unless it is plain, whole and within ``limit`` bytes.

        Sets ``number`` to the message's, and ``at`` to where it ends.
        """
        start: cython.longlong
        size: cython.longlong
        self.number = self.integer(data, end)
        if self.number < 0 or self.at >= end or data[self.at] != 0:
            return None
        self.at += 1
        size = self.integer(data, end)
        if size < 0 or size > limit or size > end - self.at:
            return None
        start = self.at
        self.at = start + size
        if cython.compiled:
            return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + start, size)
        return data[start : self.at]

    @cython.ccall
    def gather(
        self, items: list[bytes], start: cython.longlong, count: cython.longlong, limit: cython.longlong
    ) -> list[bytes]:
        """Return the payloads of at most ``count`` plain messages from ``items[start]`` on.

        It takes messages that are alone in their items and follow one another in the same channel. Sets ``channel``, ``number``
        (of the first message), ``count`` and ``size``.
        """
        out: list = []
        first: cython.longlong = -1
        channel: cython.longlong = -1
        total: cython.longlong = 0
        message_count: cython.longlong = 0
        index: cython.longlong = start
        end: cython.longlong = len(items)
        if end - index > count:
            end = index + count
        while index < end:
            item: bytes = items[index]
            if not item or item[0] != MESSAGE:
                break
            self.at = 1
            self.channel = self.integer(item, len(item))
            payload = self.rest(item, len(item), limit)
            if payload is None or self.channel < 0 or self.at != len(item):
                break
            if message_count and (self.channel != channel or self.number != first + message_count):
                break
            if not message_count:
                channel = self.channel
                first = self.number
            out.append(payload)
            total += len(payload)
            message_count += 1
            index += 1
        self.channel = channel
        self.number = first
        self.count = message_count
        self.size = total
        return out

    @cython.ccall
    def read(
        self,
        data: bytes,
        position: cython.longlong,
        prefix: bytes,
        number: cython.longlong,
        count: cython.longlong,
        limit: cython.longlong,
    ) -> list[bytes]:
        """Return the payloads of at most ``count`` plain messages at ``position``.

        It takes messages that begin with ``prefix`` (type and channel), are numbered from ``number`` on, have at most ``limit``
        bytes and are complete.
        """
        out: list = []
        end: cython.longlong = len(data)
        skip: cython.longlong = len(prefix)
        message_count: cython.longlong = 0
        total: cython.longlong = 0
        while message_count < count and end - position > skip:
            if cython.compiled:
                if memcmp(PyBytes_AS_STRING(data) + position, PyBytes_AS_STRING(prefix), skip) != 0:
                    break
            elif not data.startswith(prefix, position):
                break
            self.at = position + skip
            payload = self.rest(data, end, limit)
            if payload is None or self.number != number:
                break
            out.append(payload)
            total += len(payload)
            position = self.at
            number += 1
            message_count += 1
        self.position = position
        self.count = message_count
        self.size = total
        return out


@cython.cclass
class MessageWriter:
    """An encoder of a connection's ordered messages, which it holds until the transport takes them.

    It holds the bytes of one stream at a time. It calls ``wake`` before the first message; ``allowance`` is how many more
    messages it accepts until the caller has sent its output (`renew`). ``unacknowledged`` counts the bytes of all ledgers, and
    ``undeclared`` has the channels whose unreliable messages must be declared.
    """

    wake: public[Callable[[], None] | None]
    allowance: public[cython.longlong]
    stream_id: readonly[cython.longlong]
    used: readonly[cython.longlong]
    opening: public[bytes]
    stream_room: public[cython.longlong]
    datagram_room: public[cython.longlong]
    max_datagram: public[cython.longlong]
    unacknowledged: readonly[cython.longlong]
    undeclared: readonly[dict[Any, None]]
    head: bytearray
    buffer: bytearray
    pieces: list
    singles: list
    datagrams: list

    def __init__(self) -> None:
        self.undeclared = {}
        self.head = bytearray(ROOM_FOR_HEAD)
        self.wake = None
        self.allowance = ALLOWANCE
        self.stream_id = -1
        self.used = 0
        self.buffer = bytearray()
        self.pieces = []
        self.opening = b""
        self.stream_room = 0
        self.datagram_room = 0
        self.max_datagram = 0
        self.unacknowledged = 0
        self.singles = []
        self.datagrams = []

    @cython.cfunc
    def seal(self) -> cython.void:
        if self.used:
            if cython.compiled:
                self.pieces.append(PyBytes_FromStringAndSize(PyByteArray_AS_STRING(self.buffer), self.used))
            else:
                self.pieces.append(bytes(self.buffer[: self.used]))
            self.used = 0

    @cython.cfunc
    def write(self, stream_id: cython.longlong, prefix: bytes, number: cython.longlong, payload: bytes) -> cython.void:
        size: cython.longlong = len(payload)
        skip: cython.longlong = len(prefix)
        self.stream_id = stream_id
        if not self.buffer:
            # Allocate it here, so that only connections that send such messages pay for it.
            self.buffer = bytearray(BUFFER)
        if self.used + skip + ROOM_FOR_HEAD + (size if size < LARGE else 0) > BUFFER:
            self.seal()
        if cython.compiled:
            memcpy(PyByteArray_AS_STRING(self.buffer) + self.used, PyBytes_AS_STRING(prefix), skip)
        else:
            self.buffer[self.used : self.used + skip] = prefix
        self.used = put_head(self.buffer, self.used + skip, number, size)
        if size >= LARGE:
            self.seal()
            self.pieces.append(payload)
        else:
            if cython.compiled:
                memcpy(PyByteArray_AS_STRING(self.buffer) + self.used, PyBytes_AS_STRING(payload), size)
            else:
                self.buffer[self.used : self.used + size] = payload
            self.used += size

    @cython.cfunc
    def frame(self, prefix: bytes, number: cython.longlong, payload: bytes) -> bytes:
        """Return the frame of a message that travels alone, with the connection's opening before it."""
        size: cython.longlong = len(payload)
        used: cython.longlong = put_head(self.head, 0, number, size)
        if not cython.compiled:
            return b"".join((self.opening, prefix, self.head[:used], payload))
        opening: cython.longlong = len(self.opening)
        skip: cython.longlong = len(prefix)
        out: bytes = PyBytes_FromStringAndSize(cython.NULL, opening + skip + used + size)
        to: cython.p_char = PyBytes_AS_STRING(out)
        memcpy(to, PyBytes_AS_STRING(self.opening), opening)
        memcpy(to + opening, PyBytes_AS_STRING(prefix), skip)
        memcpy(to + opening + skip, PyByteArray_AS_STRING(self.head), used)
        memcpy(to + opening + skip + used, PyBytes_AS_STRING(payload), size)
        return out

    def take(self) -> tuple[int, list[bytes]]:
        """Remove and return the stream's id and its bytes, in pieces."""
        self.seal()
        pieces = self.pieces
        self.pieces = []
        stream_id = self.stream_id
        self.stream_id = -1
        return stream_id, pieces

    def take_alone(self) -> tuple[list[bytes], list[bytes]]:
        """Remove and return the messages that go out alone: those on a stream each, and those in a datagram each."""
        singles = self.singles
        datagrams = self.datagrams
        self.singles = []
        self.datagrams = []
        return singles, datagrams

    @property
    def has_alone(self) -> bool:
        """Whether `take_alone` would return anything."""
        return bool(self.singles or self.datagrams)

    @property
    def has_output(self) -> bool:
        return bool(self.stream_id >= 0 or self.singles or self.datagrams)

    @property
    def waiting_singles(self) -> int:
        """The number of messages that each wait for a stream."""
        return len(self.singles)

    def renew(self) -> None:
        """Restore the allowance after the output was sent."""
        self.allowance = ALLOWANCE


@cython.cclass
class Ledger:
    """The compiled part of a sender: its numbers, its unacknowledged reliable messages, and the fast path for plain messages.

    Of reliable messages, ``first`` is the lowest unacknowledged number, ``next`` the next to assign, ``count`` and ``size`` the
    number of messages in flight and their bytes. ``next_unreliable`` is the next number of an unreliable message, and those
    below ``mark`` have been decided; at most ``bound`` others are sent. ``prefix`` is the beginning of each Message frame,
    ``largest`` the maximum payload size.

    While the fast path is open (``is_fast``), `put` sends messages on ``stream_id``, or if that is -1, each on its own stream or
    (``is_unreliable``) in its own datagram.

    Aqueduct has no credit on the wire, and a receiver whose application does not read must buffer what was sent. So only
    channels that are being read reach ``max_bytes``, the application's limit: see `byte_limit`.
    """

    first: readonly[cython.longlong]
    next: readonly[cython.longlong]
    count: readonly[cython.longlong]
    size: readonly[cython.longlong]
    max_messages: public[cython.longlong]
    max_bytes: public[cython.longlong]
    next_unreliable: public[cython.longlong]
    mark: public[cython.longlong]
    stream_id: readonly[cython.longlong]
    is_fast: readonly[cython.bint]
    is_unreliable: readonly[cython.bint]
    prefix: readonly[bytes]
    channel_id: readonly[object]
    largest: cython.longlong
    bound: cython.longlong
    proven: cython.longlong
    writer: MessageWriter
    sizes: list
    entries: dict

    def __init__(
        self,
        writer: MessageWriter,
        channel_id: object,
        max_messages: cython.longlong,
        max_bytes: cython.longlong,
        largest: cython.longlong,
        bound: cython.longlong,
    ) -> None:
        self.writer = writer
        self.channel_id = channel_id
        self.prefix = integer_frame(MESSAGE, channel_id)
        self.bound = bound
        self.next_unreliable = 0
        self.mark = 0
        self.is_unreliable = False
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.largest = largest
        self.proven = UNPROVEN
        self.first = 0
        self.next = 0
        self.count = 0
        self.size = 0
        self.stream_id = -1
        self.is_fast = False
        self.sizes = []
        self.entries = {}

    def open_fast_path(self, stream_id: cython.longlong, is_unreliable: cython.bint) -> None:
        """Allow `put` to send plain messages in this way."""
        self.stream_id = stream_id
        self.is_unreliable = is_unreliable
        self.is_fast = True

    def close_fast_path(self) -> None:
        """Stop `put` from sending messages until the next `open_fast_path`."""
        self.is_fast = False

    @property
    def is_spent(self) -> bool:
        """Whether the connection's allowance of messages is used up until its output has been sent."""
        return self.writer.allowance <= 0

    def byte_limit(self) -> int:
        """Return how many bytes may be in flight now.

        That is the number of bytes that the receiver has acknowledged so far plus `UNPROVEN`, at most ``max_bytes``; and at most
        `CROWDED` while the connection has `CROWD` or more bytes in flight.
        """
        return self.limit()

    @cython.final
    @cython.cfunc
    def limit(self) -> cython.longlong:
        limit: cython.longlong = self.proven if self.proven < self.max_bytes else self.max_bytes
        if limit > CROWDED and self.writer.unacknowledged >= CROWD:
            return CROWDED
        return limit

    @cython.cfunc
    def note(self, size: cython.longlong) -> cython.void:
        self.sizes.append(size)
        self.next += 1
        self.count += 1
        self.size += size
        self.writer.unacknowledged += size

    @cython.ccall
    def put(self, message: object) -> cython.bint:
        """Send one plain message; return False if ``mainstem.aqueduct`` must decide, which may still accept it."""
        writer: MessageWriter = self.writer
        size: cython.longlong
        if not self.is_fast or type(message) is not bytes or writer.allowance <= 0:
            return False
        if self.is_unreliable:
            return self.put_datagram(message)
        size = len(message)
        if size > self.largest or self.count >= self.max_messages or self.size >= self.limit():
            return False
        if self.stream_id < 0:
            if writer.stream_room <= 0:
                return False
            if not writer.singles and writer.wake is not None:
                writer.wake()
            writer.singles.append(writer.frame(self.prefix, self.next, message))
            writer.stream_room -= 1
            writer.allowance -= 1
        else:
            if writer.stream_id != self.stream_id:
                if writer.stream_id != -1:
                    return False
                if writer.wake is not None:
                    writer.wake()
            writer.allowance -= 1 + (size >> 9)
            writer.write(self.stream_id, self.prefix, self.next, message)
        self.note(size)
        return True

    @cython.exceptval(-1)
    def put_datagram(self, message: bytes) -> cython.bint:
        writer: MessageWriter = self.writer
        if writer.datagram_room <= 0 or self.next_unreliable - self.mark >= self.bound:
            return False
        frame: bytes = writer.frame(self.prefix, self.next_unreliable, message)
        if len(frame) > writer.max_datagram:
            return False
        if not writer.datagrams and writer.wake is not None:
            writer.wake()
        writer.datagrams.append(frame)
        writer.datagram_room -= 1
        writer.allowance -= 1
        self.next_unreliable += 1
        writer.undeclared[self.channel_id] = None
        return True

    def add(self, size: cython.longlong, entry: Any) -> int:
        """Record a message sent on the slow path, with its attached entry (or None); return its number."""
        number = self.next
        if entry is not None:
            self.entries[number] = entry
        self.note(size)
        return number

    def acknowledge(self, start: cython.longlong, stop: cython.longlong) -> list[Any]:
        """Handle the acknowledgment of numbers from ``start`` up to ``stop``; return their attached entries.

        Raises ValueError with the number if one was acknowledged before, IndexError if a number is out of range.
        """
        index: cython.longlong = start - self.first
        end: cython.longlong = stop - self.first
        size: cython.longlong
        sizes: list = self.sizes
        out: list = []
        if end > len(sizes):
            raise IndexError
        while index < end:
            # Numbers before ``first`` are acknowledged, perhaps by an earlier run of the same frame.
            size = sizes[index] if index >= 0 else -1
            if size < 0:
                raise ValueError(self.first + index)
            sizes[index] = -1
            self.size -= size
            self.writer.unacknowledged -= size
            self.proven += size
            self.count -= 1
            if self.entries:
                entry = self.entries.pop(self.first + index, None)
                if entry is not None:
                    out.append(entry)
            index += 1
        # Advance past acknowledged messages.
        index = 0
        end = len(sizes)
        while index < end and sizes[index] == -1:
            index += 1
        if index:
            del sizes[:index]
            self.first += index
        return out

    def clear(self) -> list[Any]:
        """Forget all messages in flight; return their attached entries in the order of the numbers."""
        entries = [self.entries[number] for number in sorted(self.entries)]
        self.entries = {}
        self.sizes = []
        self.first = self.next
        self.writer.unacknowledged -= self.size
        self.count = 0
        self.size = 0
        self.is_fast = False
        return entries
