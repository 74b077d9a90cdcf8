"""Message keys (epoch, partition, row), by which a reader recognizes messages that arrive more than once.

A sender that guarantees only *at least once*, such as Spark's sink, gives each message a key that stays the same however often the
message is sent: the write that it belongs to (the epoch), its partition of the write, and its row of the partition. A write is a
batch, or a micro-batch of a streaming query. Aeron carries the key in the reserved value of the frame header; the other protocols
carry it in front of the payload. Over byte streams, each message is also preceded by its length.

A reserved value has 63 bits besides its sign, too few for an epoch that is unique among all writes, a partition and a row side by
side. So each epoch gets a start somewhere in the 63 bits, and the rows follow it. Writes are told apart by where they start:

- Epochs of one query are successive numbers. They are multiplied by 2**63 divided by the golden ratio, which keeps the starts of
  any two of 50 million successive epochs further apart than the rows of a write reach.
- Epochs of different queries and batches are random, and so are their starts. Two writes of 200 partitions of 100,000 rows share a
  key with a probability of about 10**-11.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from typing import NamedTuple

from mainstem.errors import RemoteProtocolError

__all__ = [
    "KEY_LENGTH",
    "KEY_MASK",
    "MAX_MESSAGE_LENGTH",
    "MAX_PARTITIONS",
    "MAX_ROWS",
    "Deduplicator",
    "FrameSplitter",
    "MessageKey",
    "framed",
]

_PARTITION_BITS, _ROW_BITS = 12, 24
MAX_PARTITIONS, MAX_ROWS = 1 << _PARTITION_BITS, 1 << _ROW_BITS
# Keys and epochs are integers below 2**63.
KEY_MASK = (1 << 63) - 1
# 2**63 divided by the golden ratio, odd, so that the start of an epoch determines the epoch.
_SPREAD = 0x4F1BBCDCBFA53E0B
_EPOCH_OF_START = pow(_SPREAD, -1, 1 << 63)
KEY_LENGTH = 16
# No message is longer than this. A larger length means that the peer speaks another protocol.
MAX_MESSAGE_LENGTH = 64 << 20
# How many partitions of writes a filter remembers. A retry belongs to one of the writes of the last few minutes.
REMEMBERED = 65_536

_KEY = struct.Struct(">QII")
_LENGTH = struct.Struct(">I")


class MessageKey(NamedTuple):
    """The identity of a message: row ``row`` of partition ``partition`` of the write ``epoch``.

    Attributes:
        epoch: The number of the write, below 2**63.
        partition: The partition of the write, below 4096.
        row: The row in the partition, below 2**24.

    Example:
        >>> MessageKey(epoch=7, partition=0, row=12).encode()
    """

    epoch: int
    partition: int
    row: int

    def reserved_value(self) -> int:
        """Return the key as a positive int64. Successive rows have successive values, except that 0 follows 2**63 - 1.

        Returns:
            The value for the frame header's reserved field.

        Raises:
            ValueError: The epoch, the partition or the row does not fit.

        Example:
            >>> MessageKey(0, 0, 5).reserved_value()
            5
        """
        if not (0 <= self.epoch <= KEY_MASK and 0 <= self.partition < MAX_PARTITIONS and 0 <= self.row < MAX_ROWS):
            raise ValueError(
                f"epoch {self.epoch}, partition {self.partition}, row {self.row}: a key has room for an epoch below 2**63 and "
                f"{MAX_PARTITIONS:,} partitions of {MAX_ROWS:,} rows"
            )
        return self._value()

    def _value(self) -> int:
        return (self.epoch * _SPREAD + (self.partition << _ROW_BITS) + self.row) & KEY_MASK

    @classmethod
    def of_reserved_value(cls, value: int) -> MessageKey:
        """Return a key with a reserved value, for a ``Deduplicator``.

        Args:
            value: The value that ``reserved_value`` returned.

        Returns:
            A key with the same reserved value. A reserved value does not tell which epoch, partition and row it was made of; this
            key is row 0 of partition 0 of some epoch.

        Example:
            >>> MessageKey.of_reserved_value(5).reserved_value()
            5
        """
        return cls(value * _EPOCH_OF_START & KEY_MASK, 0, 0)

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

    A sender sends the rows of a partition in order, and a retry begins again with its first row. So the keys that have arrived are
    ranges of successive reserved values, about one for each partition of a write, and a message is new unless its key is in one of
    them. Memory is limited by the number of remembered ranges; the least recently extended one is forgotten first.

    Args:
        remembered: How many ranges to remember; 65,536 by default.

    Attributes:
        dropped: The number of duplicates.

    Example:
        >>> repeats = Deduplicator()
        >>> for message in subscription.messages():
        ...     if repeats.is_new(MessageKey.decode(message)):
        ...         process(message[KEY_LENGTH:])
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        # The last key of each range by its first, and the first keys in order.
        self._lasts: OrderedDict[int, int] = OrderedDict()
        self._firsts: list[int] = []
        self._limit = remembered
        self.dropped = 0

    def is_new(self, key: MessageKey) -> bool:
        """Return whether a message is the first one with its key, and remember the key.

        Args:
            key: The message's key.

        Returns:
            False for a duplicate, which is counted in ``dropped``.
        """
        value, firsts, lasts = key._value(), self._firsts, self._lasts
        at = bisect_right(firsts, value) - 1
        if at >= 0:
            first = firsts[at]
            last = lasts[first]
            if value <= last:
                self.dropped += 1
                return False
            if value == last + 1:
                lasts[first] = value
                lasts.move_to_end(first)
                return True
        firsts.insert(at + 1, value)
        lasts[value] = value
        if len(lasts) > self._limit:
            oldest, _ = lasts.popitem(last=False)
            del firsts[bisect_left(firsts, oldest)]
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
