"""Messages that name their predecessor by its SHA-256, and a check of the received messages that needs only hashlib.

A message consists of the digest of the previous message (zeroes in the first), the eight-byte nonce of its chain, its number and a
filler. A log is a file of records: a length, a tag, a message. All records with one tag came over one connection, or from one
image. Within a tag, each message must be the successor of the previous one. Another connection's messages can start at the
beginning or later.
"""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORD = struct.Struct("<Iq")
HEAD = struct.Struct("<32s8sQ")
FRAME = struct.Struct("<iBBHiiii")  # of a segment file, as in docs/protocols/aeron.md
BEGIN, END, DATA, PAD = 0x80, 0x40, 1, 0


class Broken(AssertionError):
    """Received messages are not those that were sent."""


class Chain:
    """Creates the messages one after the other."""

    def __init__(self, nonce: bytes) -> None:
        self._nonce, self._link, self._number = nonce, bytes(32), 0

    def next(self) -> bytes:
        """Return the next message. Call again only after the message has been accepted."""
        filler = hashlib.sha256(self._link).digest() * 48
        message = HEAD.pack(self._link, self._nonce, self._number) + filler[: self._number * 37 % 1400]
        self._link, self._number = hashlib.sha256(message).digest(), self._number + 1
        return message


@dataclass
class Follower:
    """Checks the messages of one connection as they arrive."""

    where: str
    from_start: bool = False
    link: bytes | None = None
    number: int = -1
    nonce: bytes = b""
    count: int = field(default=0)

    def take(self, message: bytes) -> None:
        if len(message) < HEAD.size:
            raise Broken(f"{self.where}: a message of {len(message)} bytes behind number {self.number}")
        link, nonce, number = HEAD.unpack_from(message)
        filler = hashlib.sha256(link).digest() * 48
        if message[HEAD.size :] != filler[: number * 37 % 1400]:
            raise Broken(f"{self.where}: number {number} is not as it was sent")
        if self.link is None:
            if self.from_start and number != 0:
                raise Broken(f"{self.where}: begins with number {number}")
        elif link != self.link or number != self.number + 1 or nonce != self.nonce:
            raise Broken(f"{self.where}: number {number} behind number {self.number}: not its successor")
        self.link, self.number, self.nonce, self.count = hashlib.sha256(message).digest(), number, nonce, self.count + 1


class Logs:
    """The logs in a directory; each check continues where the previous one ended."""

    def __init__(self, directory: Path, *, from_start: bool) -> None:
        self._directory, self._from_start = directory, from_start
        self._offsets: dict[Path, int] = {}
        self._freed: dict[Path, int] = {}
        self._followers: dict[tuple[Path, int], Follower] = {}

    def check(self) -> int:
        """Return how many messages have arrived in total. Raises Broken."""
        for path in sorted(self._directory.glob("*.log")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read()
            at = 0
            # The last record of a killed program may be incomplete.
            while at + RECORD.size <= len(data):
                length, tag = RECORD.unpack_from(data, at)
                if at + RECORD.size + length > len(data):
                    break
                key = (path, tag)
                follower = self._followers.setdefault(key, Follower(f"{path.name}, {tag}", self._from_start))
                follower.take(data[at + RECORD.size : at + RECORD.size + length])
                at += RECORD.size + length
            self._offsets[path] = self._offsets.get(path, 0) + at
        return sum(follower.count for follower in self._followers.values())

    @property
    def followers(self) -> list[Follower]:
        """Return a follower for each tag of each log."""
        return list(self._followers.values())

    def free(self) -> None:
        """Return the disk space of the checked parts; the logs keep their lengths."""
        for path, checked in self._offsets.items():
            if checked > self._freed.get(path, 0):
                subprocess.run(["fallocate", "--punch-hole", "--length", str(checked), path], check=True)
                self._freed[path] = checked


def write_record(file: int, tag: int, message: bytes) -> None:
    """Write a record in one call, so that a killed program leaves at most its last record unfinished."""
    os.write(file, RECORD.pack(len(message), tag) + message)


def recorded_messages(paths: list[Path], end: int) -> Iterator[bytes]:
    """Yield the messages of a recording's segments, up to position ``end``, by the frames' own lengths and flags."""
    position, parts = 0, b""
    for path in paths:
        data, at = path.read_bytes(), 0
        while at + 32 <= len(data) and position < end:
            length, _, flags, kind, *_ = FRAME.unpack_from(data, at)
            if length < 32:
                raise Broken(f"{path.name}: a frame of {length} bytes at {at}, position {position}")
            if kind == DATA:
                parts = (b"" if flags & BEGIN else parts) + data[at + 32 : at + length]
                if flags & END:
                    yield parts
            step = (length + 31) & ~31
            at, position = at + step, position + step
