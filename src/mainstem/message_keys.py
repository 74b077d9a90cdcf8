"""Message keys (epoch, partition, row), by which a reader recognizes messages that arrive more than once.

A sender that guarantees only *at least once*, such as Spark's sink, gives each message a key that stays the same however often the
message is sent: its micro-batch (the epoch), its partition of the micro-batch, and its row of the partition. Aeron carries the key
in the reserved value of the frame header; the other protocols carry it in front of the payload. Over byte streams, each message is
also preceded by its length.
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

# The reserved value has 63 bits besides its sign, divided between these parts.
EPOCH_BITS, PARTITION_BITS, ROW_BITS = 27, 12, 24
MAX_PARTITIONS, MAX_ROWS = 1 << PARTITION_BITS, 1 << ROW_BITS
KEY_LENGTH = 16
# No message is longer than this. A larger length means that the peer speaks another protocol.
MAX_MESSAGE_LENGTH = 64 << 20
# How many partitions of epochs a filter remembers. A retry belongs to one of the epochs of the last few minutes.
REMEMBERED = 65_536

_KEY = struct.Struct(">QII")
_LENGTH = struct.Struct(">I")


class MessageKey(NamedTuple):
    """The identity of a message: row ``row`` of partition ``partition`` of micro-batch ``epoch``.

    Attributes:
        epoch: The micro-batch.
        partition: The partition of the micro-batch, below 4096.
        row: The row in the partition, below 2**24.

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
            value: The value that ``reserved_value`` returned.

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
        """Return the key as 16 bytes to put in front of a payload.

        Returns:
            The epoch as a big-endian uint64, partition and row as uint32.
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
        """
        if len(message) < KEY_LENGTH:
            raise RemoteProtocolError(
                f"no key: a message of {len(message)} bytes is shorter than one ({KEY_LENGTH} bytes)"
            )
        return cls(*_KEY.unpack_from(message))


class Deduplicator:
    """A filter for duplicate messages. Use one for each stream.

    A sender that retries a partition sends it again from its first row, in order. So a row is new if and only if it comes after all
    rows of its partition that have already arrived. Memory is limited by the number of remembered partitions.

    Args:
        remembered: How many partitions of epochs to remember the last row of; 65,536 by default.

    Attributes:
        dropped: The number of duplicates.

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
        """Return whether a message is the first one with its key, and remember the key.

        Args:
            key: The message's key.

        Returns:
            False for a duplicate, which is counted in ``dropped``.
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
    r"""Return a message as it goes over a byte stream, preceded by its length.

    Args:
        message: The message.

    Returns:
        A big-endian uint32 length and the message.

    Example:
        >>> framed(b"tick")
        b'\x00\x00\x00\x04tick'
    """
    return _LENGTH.pack(len(message)) + message


class FrameSplitter:
    r"""A splitter that cuts a byte stream, however it is divided, into the messages that ``framed`` wrote.

    Args:
        max_length: The maximum accepted length of a message, in bytes; 64 MiB by default.

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
        """Add the next piece and return the messages that it completes.

        Args:
            data: The next bytes of the stream.

        Returns:
            The complete messages, in order; empty if there are none.

        Raises:
            RemoteProtocolError: The stream announces a message that is longer than ``max_length``.
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
