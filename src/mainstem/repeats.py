"""Messages that may come twice, and how a reader knows them: a key of epoch, partition and row.

A sender that is only *at least once*, such as Spark's sink, gives each message a key that is the same however often it is
sent: its micro-batch (the epoch), the partition of it, and the row of that. Aeron carries the key in the reserved value of the
frame header, the other protocols in front of the payload; over byte streams each message also has its length before it.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import NamedTuple

from mainstem.errors import RemoteProtocolError

# The reserved value has 63 bits without its sign: so many are left for each part.
EPOCH_BITS, PARTITION_BITS, ROW_BITS = 27, 12, 24
MAX_PARTITIONS, MAX_ROWS = 1 << PARTITION_BITS, 1 << ROW_BITS
KEY_LENGTH = 16
# A message longer than this is not one: somebody else speaks there.
MAX_MESSAGE_LENGTH = 64 << 20
# Partitions of epochs that a filter remembers: a retry comes within the epochs of the last minutes.
REMEMBERED = 65_536

_KEY = struct.Struct(">QII")
_LENGTH = struct.Struct(">I")


class MessageKey(NamedTuple):
    """Which message it is: row ``row`` of partition ``partition`` of micro-batch ``epoch``."""

    epoch: int
    partition: int
    row: int

    def reserved_value(self) -> int:
        """The key as a positive int64. Epochs count modulo 2**27 in it. Raises ValueError for what has no room."""
        if not (0 <= self.partition < MAX_PARTITIONS and 0 <= self.row < MAX_ROWS):
            raise ValueError(
                f"partition {self.partition}, row {self.row}: a key has room for {MAX_PARTITIONS:,} partitions of {MAX_ROWS:,} rows"
            )
        epoch = self.epoch & ((1 << EPOCH_BITS) - 1)
        return (epoch << PARTITION_BITS | self.partition) << ROW_BITS | self.row

    @classmethod
    def of_reserved_value(cls, value: int) -> MessageKey:
        """The key in a reserved value."""
        return cls(
            value >> (PARTITION_BITS + ROW_BITS), value >> ROW_BITS & (MAX_PARTITIONS - 1), value & (MAX_ROWS - 1)
        )

    def encode(self) -> bytes:
        """The 16 bytes in front of a payload."""
        return _KEY.pack(*self)

    @classmethod
    def decode(cls, message: bytes | memoryview) -> MessageKey:
        """The key in front of a payload. Raises RemoteProtocolError when there are too few bytes for one."""
        if len(message) < KEY_LENGTH:
            raise RemoteProtocolError(f"a message of {len(message)} bytes has no key of {KEY_LENGTH} in front of it")
        return cls(*_KEY.unpack_from(message))


class RepeatFilter:
    """Tells a message from its repetition. One for each stream; memory is bounded by ``remembered`` partitions of epochs.

    A sender that tries a partition again sends it from its first row, in order. So a row is new exactly when it is past every
    row of its partition that came before.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._rows: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._remembered = remembered
        self.dropped = 0

    def is_new(self, key: MessageKey) -> bool:
        """Whether the message is the first of that key; it is remembered then."""
        place = key[:2]
        if key.row <= self._rows.get(place, -1):
            self.dropped += 1
            return False
        self._rows[place] = key.row
        self._rows.move_to_end(place)
        if len(self._rows) > self._remembered:
            self._rows.popitem(last=False)
        return True


def framed(message: bytes) -> bytes:
    """The message as it goes over a stream of bytes: its length before it."""
    return _LENGTH.pack(len(message)) + message


class FrameSplitter:
    """Finds the messages in a stream of bytes again, whatever pieces it comes in."""

    def __init__(self, max_length: int = MAX_MESSAGE_LENGTH) -> None:
        self._held = bytearray()
        self._max_length = max_length

    @property
    def is_between_messages(self) -> bool:
        """Whether the stream may end here."""
        return not self._held

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are whole now. Raises RemoteProtocolError for a length that cannot be."""
        held, at, found = self._held, 0, []
        held += data
        while len(held) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(held, at)
            if length > self._max_length:
                raise RemoteProtocolError(f"a message of {length} bytes is announced; {self._max_length} is the limit")
            begin = at + _LENGTH.size
            if len(held) - begin < length:
                break
            found.append(bytes(held[begin : begin + length]))
            at = begin + length
        del held[:at]
        return found
