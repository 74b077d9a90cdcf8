"""A schedule of faults drawn from a seed, with a random half of the kinds switched off.

A schedule knows nothing about worlds. It only says when a fault of some kind begins or ends at some host; the caller gives each
kind a meaning. Faults that a replay leaves out (``Plan``) are still drawn, so the rest of the schedule stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from mainstem._internal.clock import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_FAULTS = 10  # in one schedule: with more, faults would hide one another


@dataclass(frozen=True)
class Plan:
    """What a replay leaves out of a run. Nothing by default."""

    without: frozenset[str] = frozenset()  # kinds of faults, on links and in schedules
    dropped: frozenset[int] = frozenset()  # numbers of faults of the schedule
    size: float | None = None  # share of a long run's messages (``--scale``); None to draw it

    @property
    def arguments(self) -> str:
        """The command-line options for this plan; each begins with a space."""
        parts = ""
        if self.without:
            parts += f" --without {','.join(sorted(self.without))}"
        if self.dropped:
            parts += f" --drop {','.join(map(str, sorted(self.dropped)))}"
        return parts if self.size is None else f"{parts} --scale {self.size:g}"


class Fault(NamedTuple):
    """One fault: its kind, the host it strikes (and the destination, for a link), start and end in nanoseconds, and severity."""

    number: int
    kind: str
    host: int
    other: int
    start_ns: int
    end_ns: int
    amount: float

    def __str__(self) -> str:
        return (
            f"{self.number}: {self.kind} at {self.host} (to {self.other}), "
            f"{self.start_ns // NS_PER_MS} to {self.end_ns // NS_PER_MS} ms, {self.amount:.2f}"
        )


@dataclass
class Schedule:
    """Faults in chronological order."""

    faults: Sequence[Fault]
    _begun: dict[int, Fault] = field(default_factory=dict)
    _next: int = 0

    @classmethod
    def drawn(
        cls, seed: int, kinds: Sequence[str], *, hosts: int, length_ns: int, plan: Plan | None = None
    ) -> Schedule:
        """Draw up to ten faults of half of the kinds, each for up to half of ``length_ns``. Hosts are numbered from 0."""
        plan = plan or Plan()
        # A separate generator, so that leaving faults out does not change the other random choices of the run.
        rng = Random(f"schedule {seed}")
        allowed = [kind for kind in kinds if rng.random() < 0.5] or list(kinds[:1])
        faults = []
        for number in range(rng.randrange(1, MAX_FAULTS + 1)):
            start_ns = rng.randrange(length_ns)
            host = rng.randrange(hosts)
            faults.append(
                Fault(
                    number,
                    rng.choice(allowed),
                    host,
                    (host + rng.randrange(1, max(2, hosts))) % hosts,
                    start_ns,
                    start_ns + rng.randrange(1, max(2, length_ns // 2)),
                    rng.random(),
                )
            )
        left = [each for each in faults if each.number not in plan.dropped and each.kind not in plan.without]
        return cls(sorted(left, key=lambda each: each.start_ns))

    def due(self, now_ns: int) -> Iterator[tuple[Fault, bool]]:
        """Yield each fault that has begun (True) or ended (False) by ``now_ns``, in nanoseconds since the start."""
        while self._next < len(self.faults) and self.faults[self._next].start_ns <= now_ns:
            fault = self.faults[self._next]
            self._next += 1
            self._begun[fault.number] = fault
            yield fault, True
        if self._begun:
            for fault in [each for each in self._begun.values() if each.end_ns <= now_ns]:
                del self._begun[fault.number]
                yield fault, False

    def heal(self) -> Iterator[Fault]:
        """End the schedule, and yield each fault that has begun and not ended."""
        self._next = len(self.faults)
        begun, self._begun = self._begun, {}
        yield from begun.values()
