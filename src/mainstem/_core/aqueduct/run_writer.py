"""Aqueduct's writer and reader of runs of messages: the compiled part of a channel (docs/protocols/aqueduct.md).

A run is plain messages, bytes without attachments, reliable, one behind the other on one stream. Most messages are such, and
what Python does for each of them is most of what they cost. ``RunReader`` takes runs out of a stream's bytes, ``MessageWriter``
packs messages into frames, ``Ledger`` keeps what a sender has not had acknowledged, and ``QuickSender`` joins the two for one
channel. Anything else, or anything unexpected, is left to ``mainstem.aqueduct``: nothing is decided here otherwise than there.

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
# The types of frames that hold one integer, and run lengths, as bits.
INTEGERS = cython.declare(cython.longlong, 1 << 2 | 1 << 4 | 1 << 7 | 1 << 9)
RANGES = cython.declare(cython.longlong, 1 << 5 | 1 << 6 | 1 << 8)
BUFFER = cython.declare(cython.longlong, 1 << 14)  # bytes joined before they are a piece
LARGE = cython.declare(cython.longlong, 1 << 12)  # payloads from here on are pieces of their own, and not copied
ROOM_FOR_HEAD = cython.declare(cython.longlong, 48)  # a type, three integers and a zero
ALLOWANCE = cython.declare(
    cython.longlong, 512
)  # messages, or times 512 bytes, between two turns of who carries them off
# Bytes of a channel that its receiver may leave unread: what it has acknowledged so far, and this many more. It is as much as
# a receiver acknowledges at once, so a channel that is read never waits for it.
UNPROVEN = cython.declare(cython.longlong, 1 << 18)
# Unacknowledged bytes of a connection from which on each of its channels has at most `CROWDED` of them.
CROWD = cython.declare(cython.longlong, 1 << 24)
CROWDED = cython.declare(cython.longlong, 1 << 20)


@cython.cfunc
def put_integer(out: bytearray, value: cython.ulonglong) -> cython.void:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def integer_frame(tag: cython.int, value: cython.ulonglong) -> bytes:
    """A frame that holds one integer; or what each Message frame of a channel begins with."""
    out: bytearray = bytearray()
    out.append(tag)
    put_integer(out, value)
    return bytes(out)


def ranges_frame(tag: cython.int, counts: tuple[int, ...]) -> bytes:
    """A frame that holds run lengths."""
    body: bytearray = bytearray()
    for each in counts:
        put_integer(body, each)
    out: bytearray = bytearray()
    out.append(tag)
    put_integer(out, len(body))
    out += body
    return bytes(out)


def message_head(prefix: bytes, number: cython.ulonglong, ids: tuple[int, ...], size: cython.ulonglong) -> bytes:
    """A Message frame up to its payload of ``size`` bytes; ``prefix`` is its type and channel, ``ids`` are attached."""
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
    """Takes runs of plain messages out of a stream's bytes.

    ``position``, ``count`` and ``size`` are those of the last run: where it ended, how many messages it had, and the bytes of
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
        """The frame at ``position`` and where it ends: ``((type, value), position)``.

        None if it is not whole, not a usual one, or beyond a limit: whoever asks then finds out which.
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

    @cython.ccall
    def whole(self, data: bytes, limit: cython.longlong) -> bytes | None:
        """The payload, if ``data`` is one plain message of at most ``limit`` bytes and nothing else.

        ``channel`` and ``number`` are the message's.
        """
        end: cython.longlong = len(data)
        size: cython.longlong
        if end < 5 or data[0] != MESSAGE:
            return None
        self.at = 1
        self.channel = self.integer(data, end)
        self.number = self.integer(data, end)
        if self.channel < 0 or self.number < 0 or self.at >= end or data[self.at] != 0:
            return None
        self.at += 1
        size = self.integer(data, end)
        if size < 0 or size > limit or size != end - self.at:
            return None
        if cython.compiled:
            payload = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + self.at, size)
        else:
            payload = data[self.at :]
        return payload

    @cython.ccall
    def gather(
        self, items: list[bytes], start: cython.longlong, count: cython.longlong, limit: cython.longlong
    ) -> list[bytes]:
        """The payloads of at most ``count`` plain messages from ``items[start]`` on.

        Those that are alone in their items and follow one another in the same channel. ``channel``, ``number`` (of the first),
        ``count`` and ``size`` are theirs.
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
            payload = self.whole(items[index], limit)
            if payload is None or (message_count and (self.channel != channel or self.number != first + message_count)):
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
        """The payloads of at most ``count`` plain messages at ``position``.

        Those that begin with ``prefix`` (type and channel), are numbered from ``number`` on, carry no attachments, have at most
        ``limit`` bytes and are all there.
        """
        out: list = []
        end: cython.longlong = len(data)
        skip: cython.longlong = len(prefix)
        message_count: cython.longlong = 0
        total: cython.longlong = 0
        size: cython.longlong
        while message_count < count and end - position > skip:
            if cython.compiled:
                if memcmp(PyBytes_AS_STRING(data) + position, PyBytes_AS_STRING(prefix), skip) != 0:
                    break
            elif not data.startswith(prefix, position):
                break
            self.at = position + skip
            if self.integer(data, end) != number or self.at >= end or data[self.at] != 0:
                break
            self.at += 1
            size = self.integer(data, end)
            if size < 0 or size > limit or size > end - self.at:
                break
            if cython.compiled:
                out.append(PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + self.at, size))
            else:
                out.append(data[self.at : self.at + size])
            position = self.at + size
            total += size
            number += 1
            message_count += 1
        self.position = position
        self.count = message_count
        self.size = total
        return out


@cython.cclass
class MessageWriter:
    """What the ordered messages of a connection are encoded into until the transport takes them.

    It holds the bytes of one stream at a time. ``wake`` is called when the first message is put into it; ``allowance`` is
    how many more it takes before the caller must have sent what is there (`renew`). ``unacknowledged`` counts the bytes of all
    ledgers.
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
    buffer: bytearray
    pieces: list
    singles: list
    datagrams: list

    def __init__(self) -> None:
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
    def integer(self, value: cython.ulonglong) -> cython.void:
        while value >= 0x80:
            self.buffer[self.used] = value & 0x7F | 0x80
            self.used += 1
            value >>= 7
        self.buffer[self.used] = value
        self.used += 1

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
            # Only a connection that sends such messages pays for it.
            self.buffer = bytearray(BUFFER)
        if self.used + skip + ROOM_FOR_HEAD + (size if size < LARGE else 0) > BUFFER:
            self.seal()
        if cython.compiled:
            memcpy(PyByteArray_AS_STRING(self.buffer) + self.used, PyBytes_AS_STRING(prefix), skip)
        else:
            self.buffer[self.used : self.used + skip] = prefix
        self.used += skip
        self.integer(number)
        self.buffer[self.used] = 0
        self.used += 1
        self.integer(size)
        if size >= LARGE:
            self.seal()
            self.pieces.append(payload)
        else:
            if cython.compiled:
                memcpy(PyByteArray_AS_STRING(self.buffer) + self.used, PyBytes_AS_STRING(payload), size)
            else:
                self.buffer[self.used : self.used + size] = payload
            self.used += size

    def take(self) -> tuple[int, list[bytes]]:
        """The stream and its bytes, in pieces; it is empty afterwards."""
        self.seal()
        pieces = self.pieces
        self.pieces = []
        stream_id = self.stream_id
        self.stream_id = -1
        return stream_id, pieces

    def take_alone(self) -> tuple[list[bytes], list[bytes]]:
        """The messages that go out alone: on a stream each, and in a datagram each."""
        singles = self.singles
        datagrams = self.datagrams
        self.singles = []
        self.datagrams = []
        return singles, datagrams

    @property
    def has_alone(self) -> bool:
        """`take_alone` has something."""
        return bool(self.singles or self.datagrams)

    @property
    def has_output(self) -> bool:
        """There is something to take."""
        return bool(self.stream_id >= 0 or self.singles or self.datagrams)

    @property
    def waiting_singles(self) -> int:
        """Messages that wait for a stream each."""
        return len(self.singles)

    def renew(self) -> None:
        """What was here is on its way: as many messages again."""
        self.allowance = ALLOWANCE


@cython.cclass
class Ledger:
    """One sender's reliable messages that are not acknowledged, and the short way for those that are plain.

    ``first`` is the lowest number not acknowledged, ``next`` the next to be given, ``count`` and ``size`` how many are
    outstanding and their bytes. ``prefix`` is what each Message frame begins with, ``largest`` the largest payload.

    Aqueduct has no credit on the wire, and a receiver that is not read must buffer what was sent. So ``max_bytes``, the
    application's limit, is reached only by channels that are read: see `byte_limit`.
    """

    first: readonly[cython.longlong]
    next: readonly[cython.longlong]
    count: readonly[cython.longlong]
    size: readonly[cython.longlong]
    max_messages: public[cython.longlong]
    max_bytes: public[cython.longlong]
    stream_id: readonly[cython.longlong]
    is_open: readonly[cython.bint]
    largest: cython.longlong
    proven: cython.longlong
    prefix: bytes
    writer: MessageWriter
    sizes: list
    entries: dict

    def __init__(
        self,
        writer: MessageWriter,
        prefix: bytes,
        max_messages: cython.longlong,
        max_bytes: cython.longlong,
        largest: cython.longlong,
    ) -> None:
        self.writer = writer
        self.prefix = prefix
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.largest = largest
        self.proven = UNPROVEN
        self.first = 0
        self.next = 0
        self.count = 0
        self.size = 0
        self.stream_id = -1
        self.is_open = False
        self.sizes = []
        self.entries = {}

    def open(self, stream_id: cython.longlong) -> None:
        """Nothing stands in the way of plain messages on that stream: `put` takes them."""
        self.stream_id = stream_id
        self.is_open = True

    def close(self) -> None:
        """Something does: `put` takes none until the next `open`."""
        self.is_open = False

    @property
    def is_spent(self) -> bool:
        """The connection's allowance of messages is used up until its output is carried off."""
        return self.writer.allowance <= 0

    @cython.ccall
    def byte_limit(self) -> cython.longlong:
        """How many bytes may be outstanding now.

        Those that the receiver has acknowledged before and `UNPROVEN` more, at most ``max_bytes``; and at most `CROWDED` while
        the connection has `CROWD` of them.
        """
        limit: cython.longlong = self.proven if self.proven < self.max_bytes else self.max_bytes
        if limit > CROWDED and self.writer.unacknowledged >= CROWD:
            return CROWDED
        return limit

    @cython.ccall
    def has_room(self) -> cython.bint:
        """Whether another message is within the limits."""
        return self.count < self.max_messages and self.size < self.byte_limit()

    @cython.cfunc
    def note(self, size: cython.longlong) -> cython.void:
        self.sizes.append(size)
        self.next += 1
        self.count += 1
        self.size += size
        self.writer.unacknowledged += size

    @cython.ccall
    def put(self, message: object) -> cython.bint:
        """Send one plain message; False where ``mainstem.aqueduct`` has to decide, which may still take it."""
        writer: MessageWriter = self.writer
        size: cython.longlong
        if not self.is_open or type(message) is not bytes:
            return False
        size = len(message)
        if size > self.largest or not self.has_room():
            return False
        if writer.stream_id != self.stream_id:
            if writer.stream_id != -1 or writer.allowance <= 0:
                return False
            if writer.wake is not None:
                writer.wake()
        elif writer.allowance <= 0:
            return False
        writer.allowance -= 1 + (size >> 9)
        writer.write(self.stream_id, self.prefix, self.next, message)
        self.note(size)
        return True

    def add(self, size: cython.longlong, entry: Any) -> int:
        """Note a message that was sent the careful way, and what hangs on it (or None); returns its number."""
        number = self.next
        if entry is not None:
            self.entries[number] = entry
        self.note(size)
        return number

    def acknowledge(self, start: cython.longlong, stop: cython.longlong) -> list[Any]:
        """Numbers ``start`` to ``stop`` were acknowledged; returns what hung on them.

        Raises ValueError with the number where one was acknowledged before, IndexError where they were never sent.
        """
        index: cython.longlong = start - self.first
        end: cython.longlong = stop - self.first
        size: cython.longlong
        sizes: list = self.sizes
        out: list = []
        if index < 0 or end > len(sizes):
            raise IndexError
        while index < end:
            size = sizes[index]
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
        return out

    def settle(self) -> None:
        """Move ``first`` on, after acknowledgments."""
        sizes: list = self.sizes
        index: cython.longlong = 0
        end: cython.longlong = len(sizes)
        while index < end and sizes[index] == -1:
            index += 1
        if index:
            del sizes[:index]
            self.first += index

    def clear(self) -> list[Any]:
        """Forget what is outstanding; returns what hung on it, in the order of the numbers."""
        entries = [self.entries[number] for number in sorted(self.entries)]
        self.entries = {}
        self.sizes = []
        self.first = self.next
        self.writer.unacknowledged -= self.size
        self.count = 0
        self.size = 0
        self.is_open = False
        return entries


@cython.cclass
class QuickSender:
    """The short way for the plain messages of one sender that do not travel in order: nothing attached, no tag.

    It takes messages while ``sender.state`` is ``open_state`` and ``sender.pending`` is empty, of unreliable ones at most
    ``bound`` that nothing is known of. ``core.declare_list`` has the senders whose unreliable messages are to be declared.
    """

    ledger: Ledger
    writer: MessageWriter
    core: object
    sender: object
    open_state: object
    unreliable: cython.bint
    bound: cython.longlong
    head: bytearray
    used: cython.longlong

    def __init__(
        self,
        ledger: Ledger,
        core: Any,
        sender: Any,
        open_state: object,
        *,
        unreliable: cython.bint,
        bound: cython.longlong,
    ) -> None:
        self.ledger = ledger
        self.writer = ledger.writer
        self.core = core
        self.sender = sender
        self.open_state = open_state
        self.unreliable = unreliable
        self.bound = bound
        self.head = bytearray(ROOM_FOR_HEAD)
        self.used = 0

    @cython.cfunc
    def integer(self, value: cython.ulonglong) -> cython.void:
        while value >= 0x80:
            self.head[self.used] = value & 0x7F | 0x80
            self.used += 1
            value >>= 7
        self.head[self.used] = value
        self.used += 1

    @cython.cfunc
    def frame(self, number: cython.longlong, payload: bytes) -> bytes:
        size: cython.longlong = len(payload)
        skip: cython.longlong
        opening: cython.longlong
        self.used = 0
        self.integer(number)
        self.head[self.used] = 0
        self.used += 1
        self.integer(size)
        if cython.compiled:
            opening = len(self.writer.opening)
            skip = len(self.ledger.prefix)
            out: bytes = PyBytes_FromStringAndSize(cython.NULL, opening + skip + self.used + size)
            to: cython.p_char = PyBytes_AS_STRING(out)
            memcpy(to, PyBytes_AS_STRING(self.writer.opening), opening)
            memcpy(to + opening, PyBytes_AS_STRING(self.ledger.prefix), skip)
            memcpy(to + opening + skip, PyByteArray_AS_STRING(self.head), self.used)
            memcpy(to + opening + skip + self.used, PyBytes_AS_STRING(payload), size)
            return out
        return b"".join((self.writer.opening, self.ledger.prefix, self.head[: self.used], payload))

    @property
    def is_spent(self) -> bool:
        """The connection's allowance of messages is used up until its output is carried off."""
        return self.writer.allowance <= 0

    @cython.ccall
    def put(self, message: object) -> cython.bint:
        """Send one plain message; False where ``mainstem.aqueduct`` has to decide, which may still take it."""
        writer: MessageWriter = self.writer
        if type(message) is not bytes or writer.allowance <= 0:
            return False
        sender = self.sender
        if sender.state is not self.open_state or sender.pending:
            return False
        if self.unreliable:
            if not self.put_datagram(message):
                return False
        elif not self.put_single(message):
            return False
        writer.allowance -= 1
        return True

    @cython.exceptval(-1)
    def put_single(self, message: bytes) -> cython.bint:
        writer: MessageWriter = self.writer
        ledger: Ledger = self.ledger
        size: cython.longlong = len(message)
        if writer.stream_room <= 0 or size > ledger.largest or not ledger.has_room():
            return False
        if not writer.singles and writer.wake is not None:
            writer.wake()
        writer.singles.append(self.frame(ledger.next, message))
        writer.stream_room -= 1
        ledger.note(size)
        return True

    @cython.exceptval(-1)
    def put_datagram(self, message: bytes) -> cython.bint:
        writer: MessageWriter = self.writer
        sender = self.sender
        number: cython.longlong = sender.next_unreliable
        mark: cython.longlong = sender.mark
        if writer.datagram_room <= 0 or number - mark >= self.bound:
            return False
        frame: bytes = self.frame(number, message)
        if len(frame) > writer.max_datagram:
            return False
        if not writer.datagrams and writer.wake is not None:
            writer.wake()
        writer.datagrams.append(frame)
        writer.datagram_room -= 1
        sender.next_unreliable = number + 1
        self.core.declare_list[sender] = None
        return True
