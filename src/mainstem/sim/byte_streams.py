"""A byte stream between two ends, like TCP: ordered, bidirectional, with bounded buffers and faults drawn from the seed.

Bytes arrive once and in order, or the stream breaks. Everything else is drawn: how many bytes a write accepts and a read
returns, how long they travel, when a direction stalls. A stream has no thread; its ends read the clock they are given.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_MS, NS_PER_US
from mainstem.errors import ConfigurationError, ConnectionLost
from mainstem.sim.faults import check_faults

if TYPE_CHECKING:
    from random import Random

    from mainstem._internal.clock import Clock

CAPACITY = 64 * 1024
SHORT_PIECE = 16  # the maximum number of bytes in a shortened read or write; shorter than the headers of most protocols


@dataclass(frozen=True, kw_only=True)
class StreamFaults:
    """The faults of one direction. Probabilities are per read or write, times in nanoseconds, lengths in bytes.

    ``capacity`` limits the bytes that have been written but not yet read, over all buffers. ``cut`` is the share of reads that
    return at most 16 bytes, ``short`` the share of writes that accept at most 16, ``refuse`` the share of writes that accept
    nothing, and ``stall`` the share of reads after which nothing arrives for ``stall_ns``.
    """

    delay_ns: int = 50 * NS_PER_US
    jitter_ns: int = 0
    capacity: int = CAPACITY
    cut: float = 0.0
    short: float = 0.0
    refuse: float = 0.0
    stall: float = 0.0
    stall_ns: int = 50 * NS_PER_MS

    def __post_init__(self) -> None:
        check_faults(self, ("cut", "short", "refuse", "stall"), ("delay_ns", "jitter_ns", "stall_ns"))
        if self.capacity < 1:
            raise ConfigurationError(f"capacity must be at least 1 byte (got {self.capacity})")

    @classmethod
    def drawn(cls, rng: Random) -> StreamFaults:
        """Return faults of one direction drawn from ``rng``, from perfect to very bad. Each is absent in half of the draws."""

        def share(limit: float) -> float:
            return rng.uniform(0, limit) if rng.random() < 0.5 else 0.0

        return cls(
            delay_ns=rng.randrange(10 * NS_PER_US, 5 * NS_PER_MS),
            jitter_ns=rng.choice((0, rng.randrange(1, 3 * NS_PER_MS))),
            capacity=rng.choice((200, 4_096)) if rng.random() < 0.5 else CAPACITY,
            cut=share(0.5),
            short=share(0.3),
            refuse=share(0.3),
            stall=share(0.05),
            stall_ns=rng.randrange(1, 200 * NS_PER_MS),
        )


class _Direction:
    """The bytes in flight in one direction."""

    def __init__(self, rng: Random, faults: StreamFaults) -> None:
        self.rng = rng
        self.faults = faults
        self.pieces: deque[tuple[int, bytes]] = deque()
        self.size = 0
        self.is_ended = False
        self.stalled_until_ns = 0
        self.is_clogged = False
        self._due_ns = 0

    def write(self, data: bytes | bytearray | memoryview, now_ns: int) -> int:
        faults, rng = self.faults, self.rng
        count = min(len(data), faults.capacity - self.size)
        if count > 0 and faults.refuse and rng.random() < faults.refuse:
            return 0
        if count > 1 and faults.short and rng.random() < faults.short:
            count = rng.randrange(1, min(count, SHORT_PIECE + 1))
        if count <= 0:
            return 0
        jitter = rng.randrange(faults.jitter_ns) if faults.jitter_ns else 0
        # Later writes never arrive earlier.
        self._due_ns = max(self._due_ns, now_ns + faults.delay_ns + jitter)
        self.pieces.append((self._due_ns, bytes(data[:count])))
        self.size += count
        return count

    def read(self, now_ns: int, limit: int) -> bytes:
        if self.is_clogged or now_ns < self.stalled_until_ns or not self.pieces or self.pieces[0][0] > now_ns:
            return b""
        faults, rng = self.faults, self.rng
        if faults.cut and rng.random() < faults.cut:
            limit = min(limit, rng.randrange(1, SHORT_PIECE + 1))
        parts: list[bytes] = []
        while limit and self.pieces and self.pieces[0][0] <= now_ns:
            due_ns, piece = self.pieces.popleft()
            if len(piece) > limit:
                self.pieces.appendleft((due_ns, piece[limit:]))
                piece = piece[:limit]
            limit -= len(piece)
            parts.append(piece)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.size -= len(data)
        if faults.stall and rng.random() < faults.stall:
            self.stalled_until_ns = now_ns + faults.stall_ns
        return data

    def next_due_ns(self) -> int | None:
        if self.is_clogged or not self.pieces:
            return None
        return max(self.pieces[0][0], self.stalled_until_ns)

    def drop(self) -> None:
        self.pieces.clear()
        self.size = 0


class StreamEnd:
    """One end of a byte stream, like a non-blocking socket.

    Args:
        clock: Decides when bytes have arrived.
        outgoing: The direction it writes.
        incoming: The direction it reads.
    """

    def __init__(self, clock: Clock, outgoing: _Direction, incoming: _Direction) -> None:
        self._clock = clock
        self._outgoing = outgoing
        self._incoming = incoming
        self.is_reset = False

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Write as much of ``data`` as there is room for. Return the number of bytes accepted, which can be 0.

        Raises:
            ConnectionLost: The stream was reset.
        """
        self._check()
        assert not self._outgoing.is_ended, "bytes are written after the end of the stream"
        return self._outgoing.write(data, self._clock.monotonic_ns())

    def read(self, limit: int = CAPACITY) -> bytes:
        """Return up to ``limit`` bytes that have arrived. Empty if there are none yet, or at the end: see ``is_at_end``.

        Raises:
            ConnectionLost: The stream was reset.
        """
        self._check()
        return self._incoming.read(self._clock.monotonic_ns(), limit)

    @property
    def is_at_end(self) -> bool:
        """Whether the other end has finished and everything it wrote has been read."""
        incoming = self._incoming
        return incoming.is_ended and not incoming.size and not self.is_reset

    def finish(self) -> None:
        """Finish this direction. Everything written before still arrives. Can be called twice."""
        self._outgoing.is_ended = True

    def _check(self) -> None:
        if self.is_reset:
            raise ConnectionLost("the byte stream was reset")


class ByteStream:
    """An ordered, bidirectional byte stream in memory. ``ends`` holds its two ends.

    Args:
        rng: Source of all random choices.
        clock: Decides when bytes have arrived.
        there: Faults from the first end to the second; None for a perfect direction.
        back: Faults from the second end to the first; None for a perfect direction.

    Example:
        >>> stream = ByteStream(Random(1), ManualClock())
        >>> stream.ends[0].write(b"tide")
        4
    """

    def __init__(
        self, rng: Random, clock: Clock, *, there: StreamFaults | None = None, back: StreamFaults | None = None
    ) -> None:
        self._directions = (_Direction(rng, there or StreamFaults()), _Direction(rng, back or StreamFaults()))
        one, two = self._directions
        self.ends = (StreamEnd(clock, one, two), StreamEnd(clock, two, one))

    def next_due_ns(self) -> int | None:
        """Return when the next bytes can be read, in monotonic nanoseconds (possibly in the past); None if none are in flight."""
        one, two = (direction.next_due_ns() for direction in self._directions)
        return two if one is None else one if two is None else min(one, two)

    def reset(self) -> None:
        """Break the stream: drop bytes in flight, and make every later read and write raise ConnectionLost."""
        for direction in self._directions:
            direction.drop()
        for end in self.ends:
            end.is_reset = True

    def clog(self, number: int) -> None:
        """Stop delivery in one direction until ``heal``. Writes still fill its buffers.

        Args:
            number: 0 for the direction from the first end to the second, 1 for the other.
        """
        self._directions[number].is_clogged = True

    def heal(self) -> None:
        """Make both directions perfect from now on. Bytes in flight arrive when they are due."""
        for direction in self._directions:
            direction.is_clogged = False
            direction.stalled_until_ns = 0
            direction.faults = StreamFaults(delay_ns=direction.faults.delay_ns)
