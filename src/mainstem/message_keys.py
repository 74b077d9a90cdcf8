"""Messages that may come twice, and how a reader recognises them: a key of epoch, partition and row.

A sender that is only *at least once*, such as Spark's sink, gives each message a key that is the same however often it is
sent: its micro-batch (the epoch), the partition of it, and the row of that. Aeron carries the key in the reserved value of the
frame header, the other protocols in front of the payload; over byte streams each message also has its length before it.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import NamedTuple

from mainstem.errors import RemoteProtocolError

__all__ = [
    "EPOCH_BITS",
    "KEY_LENGTH",
    "MAX_MESSAGE_LENGTH",
    "MAX_PARTITIONS",
    "MAX_ROWS",
    "PARTITION_BITS",
    "ROW_BITS",
    "Deduplicator",
    "FrameSplitter",
    "MessageKey",
    "framed",
]

# The reserved value has 63 bits without its sign, divided between these parts.
EPOCH_BITS, PARTITION_BITS, ROW_BITS = 27, 12, 24
MAX_PARTITIONS, MAX_ROWS = 1 << PARTITION_BITS, 1 << ROW_BITS
KEY_LENGTH = 16
# A longer length is not a message's: the peer speaks another protocol.
MAX_MESSAGE_LENGTH = 64 << 20
# Partitions of epochs that a filter remembers: a retry comes within the epochs of the last minutes.
REMEMBERED = 65_536

_KEY = struct.Struct(">QII")
_LENGTH = struct.Struct(">I")


class MessageKey(NamedTuple):
    """The identity of a message: row ``row`` of partition ``partition`` of micro-batch ``epoch``.

    Attributes:
        epoch: The micro-batch.
        partition: The partition of the micro-batch, below 4096.
        row: The row of the partition, below 2**24.

    Example:
        >>> MessageKey(epoch=7, partition=0, row=12).encode()
    """

    epoch: int
    partition: int
    row: int

    def reserved_value(self) -> int:
        """Return the key as a positive int64, with the epoch modulo 2**27.

        Returns:
            The value for the frame header's reserved field.

        Raises:
            ValueError: The partition or the row does not fit.

        Example:
            >>> MessageKey(0, 0, 5).reserved_value()
            5
        """
        if not (0 <= self.partition < MAX_PARTITIONS and 0 <= self.row < MAX_ROWS):
            raise ValueError(
                f"partition {self.partition}, row {self.row}: a key has room for {MAX_PARTITIONS:,} partitions of {MAX_ROWS:,} rows"
            )
        epoch = self.epoch & ((1 << EPOCH_BITS) - 1)
        return (epoch << PARTITION_BITS | self.partition) << ROW_BITS | self.row

    @classmethod
    def of_reserved_value(cls, value: int) -> MessageKey:
        """Return the key in a reserved value.

        Args:
            value: What ``reserved_value`` returned.

        Returns:
            The key; its epoch is modulo 2**27.

        Example:
            >>> MessageKey.of_reserved_value(5)
            MessageKey(epoch=0, partition=0, row=5)
        """
        return cls(
            value >> (PARTITION_BITS + ROW_BITS), value >> ROW_BITS & (MAX_PARTITIONS - 1), value & (MAX_ROWS - 1)
        )

    def encode(self) -> bytes:
        """Return the 16 bytes that go in front of a payload.

        Returns:
            The epoch as a big-endian uint64, partition and row as uint32.

        Example:
            >>> message = MessageKey(7, 0, 12).encode() + payload
        """
        return _KEY.pack(*self)

    @classmethod
    def decode(cls, message: bytes | memoryview) -> MessageKey:
        """Return the key in front of a payload.

        Args:
            message: A message that begins with an encoded key.

        Returns:
            The key; the payload begins at ``KEY_LENGTH``.

        Raises:
            RemoteProtocolError: The message is shorter than a key.

        Example:
            >>> key, payload = MessageKey.decode(message), message[KEY_LENGTH:]
        """
        if len(message) < KEY_LENGTH:
            raise RemoteProtocolError(
                f"no key: a message of {len(message)} bytes is shorter than one ({KEY_LENGTH} bytes)"
            )
        return cls(*_KEY.unpack_from(message))


class Deduplicator:
    """Distinguishes a message from its repetition. One for each stream.

    A sender that tries a partition again sends it from its first row, in order. So a row is new exactly when it is past every
    row of its partition that came before. Memory is bounded by the number of partitions of epochs that are remembered.

    Args:
        remembered: For how many partitions of epochs the last row is remembered; 65,536 by default.

    Attributes:
        dropped: How many repetitions there were.

    Example:
        >>> repeats = Deduplicator()
        >>> for message in subscription.messages():
        ...     if repeats.is_new(MessageKey.decode(message)):
        ...         process(message[KEY_LENGTH:])
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._rows: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._limit = remembered
        self.dropped = 0

    def is_new(self, key: MessageKey) -> bool:
        """Return whether a message is the first with its key, and remembers the key.

        Args:
            key: The message's key.

        Returns:
            False for a repetition, which is counted in ``dropped``.

        Example:
            >>> repeats = Deduplicator()
            >>> repeats.is_new(MessageKey(0, 0, 0)), repeats.is_new(MessageKey(0, 0, 0))
            (True, False)
        """
        place = key[:2]
        if key.row <= self._rows.get(place, -1):
            self.dropped += 1
            return False
        self._rows[place] = key.row
        self._rows.move_to_end(place)
        if len(self._rows) > self._limit:
            self._rows.popitem(last=False)
        return True


def framed(message: bytes) -> bytes:
    r"""Return a message as it goes over a stream of bytes: its length before it.

    Args:
        message: The message.

    Returns:
        A big-endian uint32 length, and the message.

    Example:
        >>> framed(b"tick")
        b'\x00\x00\x00\x04tick'
    """
    return _LENGTH.pack(len(message)) + message


class FrameSplitter:
    r"""Splits a stream of bytes, whatever pieces it comes in, into the messages that ``framed`` wrote.

    Args:
        max_length: The longest message that is accepted, in bytes; 64 MiB by default.

    Example:
        >>> splitter = FrameSplitter()
        >>> splitter.feed(framed(b"tick") + b"\x00\x00")
        [b'tick']
    """

    def __init__(self, max_length: int = MAX_MESSAGE_LENGTH) -> None:
        self._buffered = bytearray()
        self._max_length = max_length

    @property
    def is_between_messages(self) -> bool:
        """Whether the stream may end here."""
        return not self._buffered

    def feed(self, data: bytes) -> list[bytes]:
        """Add the next piece and return the messages that are complete now.

        Args:
            data: The next bytes of the stream.

        Returns:
            The complete messages, in order; empty when none is.

        Raises:
            RemoteProtocolError: A message is announced that is longer than ``max_length``.

        Example:
            >>> for message in splitter.feed(socket.recv(65536)):
            ...     process(message)
        """
        buffered, at, messages = self._buffered, 0, []
        buffered += data
        while len(buffered) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffered, at)
            if length > self._max_length:
                raise RemoteProtocolError(f"message of {length} bytes is too long (limit {self._max_length})")
            begin = at + _LENGTH.size
            if len(buffered) - begin < length:
                break
            messages.append(bytes(buffered[begin : begin + length]))
            at = begin + length
        del buffered[:at]
        return messages
