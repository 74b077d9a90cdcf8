"""One direction between two hosts: the fate of each datagram, and the state that the link keeps between datagrams."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND

if TYPE_CHECKING:
    from collections import Counter
    from random import Random

    from mainstem.sim.faults import Faults

MAX_BURST_NS = 200 * NS_PER_MS  # a quiet stream's heartbeats would make a burst last longer than every time-out
MAX_FLIPPED_BITS = 8  # of one datagram that is corrupted


class Arrival(NamedTuple):
    """A datagram that arrives. ``is_damaged``: its bytes differ from those sent."""

    due_ns: int
    datagram: bytes
    is_damaged: bool


class Link:
    """A link that carries datagrams, with faults; ``counts`` is the number of faults by kind."""

    __slots__ = (
        "_burst_end_ns",
        "_bursting",
        "_counts",
        "_free_ns",
        "_is_plain",
        "_random",
        "_range",
        "faults",
        "is_cut",
    )

    def __init__(self, faults: Faults, counts: Counter[str], rng: Random) -> None:
        self.faults = faults
        self.is_cut = False
        self._counts = counts
        self._random = rng.random
        self._range = rng.randrange
        self._bursting = False
        self._burst_end_ns = 0
        self._free_ns = 0  # when the queue of a link with a rate is empty
        self._is_plain = not (faults.mtu or faults.burst or faults.corruption or faults.truncation or faults.rate)

    def carry(self, datagram: bytes, now_ns: int) -> list[Arrival]:
        """Draw the fate of a datagram. Returns each copy that arrives: none if lost, two if duplicated."""
        faults = self.faults
        if self.is_cut:
            self._counts["cut"] += 1
            return []
        if faults.loss and self._random() < faults.loss:
            self._counts["loss"] += 1
            return []
        is_damaged = False
        wait_ns = 0
        if not self._is_plain:
            if self._vanishes(len(datagram), now_ns):
                return []
            damaged = self._damaged(datagram)
            if damaged is None:
                return []
            is_damaged, datagram = damaged is not datagram, damaged
            if faults.rate:
                wait_ns = self._queued_ns(len(datagram), now_ns)
                if wait_ns < 0:
                    self._counts["clog"] += 1
                    return []
        arrivals = [Arrival(now_ns + wait_ns + self._delay_ns(), datagram, is_damaged)]
        if faults.duplication and self._random() < faults.duplication:
            self._counts["duplication"] += 1
            arrivals.append(Arrival(now_ns + wait_ns + self._delay_ns(), datagram, is_damaged))
        return arrivals

    def _delay_ns(self) -> int:
        faults = self.faults
        delay_ns = faults.delay_ns
        if faults.jitter_ns:
            delay_ns += int(self._random() * faults.jitter_ns)
        if faults.reorder and self._random() < faults.reorder:
            self._counts["reorder"] += 1
            delay_ns += int(self._random() * faults.reorder_ns)
        return delay_ns

    def _vanishes(self, length: int, now_ns: int) -> bool:
        faults = self.faults
        if faults.mtu and length > faults.mtu:
            self._counts["mtu"] += 1
            return True
        if faults.burst:
            # A chain of two states: it leaves the bad one after ``burst_length`` datagrams on average.
            if self._bursting:
                self._bursting = now_ns < self._burst_end_ns and self._random() >= 1 / max(1, faults.burst_length)
            elif self._random() < faults.burst:
                self._bursting = True
                self._burst_end_ns = now_ns + MAX_BURST_NS
            if self._bursting:
                self._counts["burst"] += 1
        return self._bursting

    def _damaged(self, datagram: bytes) -> bytes | None:
        """The datagram as it arrives; None if its checksum fails."""
        faults = self.faults
        if faults.corruption and datagram and self._random() < faults.corruption:
            self._counts["corruption"] += 1
            damaged = bytearray(datagram)
            for _ in range(self._range(1, MAX_FLIPPED_BITS + 1)):
                damaged[self._range(len(damaged))] ^= 1 << self._range(8)
            return None if faults.checksum else bytes(damaged)
        if faults.truncation and datagram and self._random() < faults.truncation:
            self._counts["truncation"] += 1
            return None if faults.checksum else datagram[: self._range(len(datagram))]
        return datagram

    def _queued_ns(self, length: int, now_ns: int) -> int:
        """How long a datagram waits in the queue; negative if the queue is full."""
        faults = self.faults
        wait_ns = max(0, self._free_ns - now_ns)
        if wait_ns * faults.rate // NS_PER_SECOND + length > faults.queue_length:
            return -1
        self._free_ns = now_ns + wait_ns + length * NS_PER_SECOND // faults.rate
        return self._free_ns - now_ns
