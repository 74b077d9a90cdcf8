"""A byte stream between two ends, as TCP is one: ordered, both ways, over bounded buffers, with faults drawn from the seed.

What a stream promises is kept: bytes arrive once and in order, or the stream breaks. All else is drawn: how many bytes a write
takes and a read returns, how long they travel, when a direction stalls. A stream has no thread and no time of its own; its
ends read the clock that they are given.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_MS, NS_PER_US
from mainstem.errors import ConfigurationError, ConnectionLost

if TYPE_CHECKING:
    from random import Random

    from mainstem._internal.clock import Clock

CAPACITY = 64 * 1024
SHORT_PIECE = 16  # bytes at most of a read or write that is cut short: shorter than the headers of most protocols


@dataclass(frozen=True, kw_only=True)
class StreamFaults:
    """One direction of a byte stream. Probabilities are for each read or write, times in nanoseconds, lengths in bytes.

    ``capacity`` is how many bytes may be written and not read: the buffers of both ends and of the line between them. ``cut`` is
    the share of reads that return at most 16 bytes, ``short`` that of writes that take at most 16, ``refuse`` that of writes
    that take nothing, ``stall`` that of reads after which nothing arrives for ``stall_ns``.
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
        for name in ("cut", "short", "refuse", "stall"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ConfigurationError(f"{name} is a probability between 0 and 1, not {value}")
        for name in ("delay_ns", "jitter_ns", "stall_ns"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} cannot be negative: {getattr(self, name)}")
        if self.capacity < 1:
            raise ConfigurationError(f"capacity is at least one byte, not {self.capacity}")

    @classmethod
    def drawn(cls, chance: Random) -> StreamFaults:
        """Draws a direction: from perfect to very bad, with each fault absent in half of the draws.

        Args:
            chance: The random source that is drawn from.

        Returns:
            The faults of one direction.

        Example:
            ``ByteStream(world.chance, world.clock, there=StreamFaults.drawn(world.chance))``
        """

        def share(limit: float) -> float:
            return chance.uniform(0, limit) if chance.random() < 0.5 else 0.0

        return cls(
            delay_ns=chance.randrange(10 * NS_PER_US, 5 * NS_PER_MS),
            jitter_ns=chance.choice((0, chance.randrange(1, 3 * NS_PER_MS))),
            capacity=chance.choice((200, 4_096)) if chance.random() < 0.5 else CAPACITY,
            cut=share(0.5),
            short=share(0.3),
            refuse=share(0.3),
            stall=share(0.05),
            stall_ns=chance.randrange(1, 200 * NS_PER_MS),
        )


class _Direction:
    """The bytes on their way in one direction."""

    def __init__(self, chance: Random, faults: StreamFaults) -> None:
        self.chance = chance
        self.faults = faults
        self.pieces: deque[tuple[int, bytes]] = deque()
        self.size = 0
        self.is_ended = False
        self.stalled_until_ns = 0
        self.is_clogged = False
        self._due_ns = 0

    def write(self, data: bytes | bytearray | memoryview, now_ns: int) -> int:
        faults, chance = self.faults, self.chance
        count = min(len(data), faults.capacity - self.size)
        if count > 0 and faults.refuse and chance.random() < faults.refuse:
            return 0
        if count > 1 and faults.short and chance.random() < faults.short:
            count = chance.randrange(1, min(count, SHORT_PIECE + 1))
        if count <= 0:
            return 0
        jitter = chance.randrange(faults.jitter_ns) if faults.jitter_ns else 0
        # What is written later never arrives earlier.
        self._due_ns = max(self._due_ns, now_ns + faults.delay_ns + jitter)
        self.pieces.append((self._due_ns, bytes(data[:count])))
        self.size += count
        return count

    def read(self, now_ns: int, limit: int) -> bytes:
        if self.is_clogged or now_ns < self.stalled_until_ns or not self.pieces or self.pieces[0][0] > now_ns:
            return b""
        faults, chance = self.faults, self.chance
        if faults.cut and chance.random() < faults.cut:
            limit = min(limit, chance.randrange(1, SHORT_PIECE + 1))
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
        if faults.stall and chance.random() < faults.stall:
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
    """One end of a byte stream: what a program has of a socket that does not block.

    Args:
        clock: The time of arrivals.
        outgoing: The direction that it writes.
        incoming: The direction that it reads.
    """

    def __init__(self, clock: Clock, outgoing: _Direction, incoming: _Direction) -> None:
        self._clock = clock
        self._outgoing = outgoing
        self._incoming = incoming
        self.is_reset = False

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Writes as many bytes as there is room for.

        Args:
            data: The bytes; what is taken is copied.

        Returns:
            How many bytes were taken from the front, which may be none.

        Raises:
            ConnectionLost: The stream was reset.

        Example:
            ``del queue[: end.write(queue)]``
        """
        self._check()
        assert not self._outgoing.is_ended, "bytes are written after the end of the stream"
        return self._outgoing.write(data, self._clock.monotonic_ns())

    def read(self, limit: int = CAPACITY) -> bytes:
        """Reads what has arrived.

        Args:
            limit: The most bytes to return.

        Returns:
            The bytes; empty where none have arrived by now, and at the end, which ``is_at_end`` distinguishes.

        Raises:
            ConnectionLost: The stream was reset.

        Example:
            ``while data := end.read(): connection.receive_data(data, clock.monotonic_ns())``
        """
        self._check()
        return self._incoming.read(self._clock.monotonic_ns(), limit)

    @property
    def is_at_end(self) -> bool:
        """Whether the other end has ended its direction and everything before that was read."""
        incoming = self._incoming
        return incoming.is_ended and not incoming.size and not self.is_reset

    def close_writing(self) -> None:
        """Ends this end's direction; what was written before still arrives. May be called twice.

        Example:
            ``end.close_writing()``
        """
        self._outgoing.is_ended = True

    def _check(self) -> None:
        if self.is_reset:
            raise ConnectionLost("the byte stream was reset")


class ByteStream:
    """An ordered stream of bytes in both directions, in memory: ``ends`` are its two ends.

    Args:
        chance: Every draw comes from it.
        clock: The time of arrivals.
        there: What happens to bytes from the first end to the second; None for a perfect direction.
        back: What happens to bytes from the second end to the first.

    Example:
        >>> stream = ByteStream(Random(1), ManualClock())
        >>> stream.ends[0].write(b"tide")
        4
    """

    def __init__(
        self, chance: Random, clock: Clock, *, there: StreamFaults | None = None, back: StreamFaults | None = None
    ) -> None:
        self._directions = (_Direction(chance, there or StreamFaults()), _Direction(chance, back or StreamFaults()))
        one, two = self._directions
        self.ends = (StreamEnd(clock, one, two), StreamEnd(clock, two, one))

    def next_due_ns(self) -> int | None:
        """When the next bytes can be read.

        Returns:
            Monotonic time in nanoseconds, which may have passed; None when no bytes are on their way.

        Example:
            ``stream.next_due_ns()``
        """
        one, two = (direction.next_due_ns() for direction in self._directions)
        return two if one is None else one if two is None else min(one, two)

    def reset(self) -> None:
        """Breaks the stream: bytes on their way are gone, and every later read and write raises ConnectionLost.

        Example:
            ``stream.reset()``
        """
        for direction in self._directions:
            direction.drop()
        for end in self.ends:
            end.is_reset = True

    def clog(self, number: int) -> None:
        """Stops a direction, until ``heal``: what is written to it fills its buffers and does not arrive.

        Args:
            number: 0 for the direction from the first end to the second, 1 for the other.

        Example:
            ``stream.clog(0)``
        """
        self._directions[number].is_clogged = True

    def heal(self) -> None:
        """Makes both directions perfect from now on; bytes on their way arrive when they are due.

        Example:
            ``stream.heal()``
        """
        for direction in self._directions:
            direction.is_clogged = False
            direction.stalled_until_ns = 0
            direction.faults = StreamFaults(delay_ns=direction.faults.delay_ns)
