"""When which fault strikes where: a schedule drawn from a seed, with a random half of the kinds switched off.

A schedule knows nothing of worlds: it says that a fault of a kind begins or ends at a place. The caller gives each kind a
meaning. What a replay leaves out (``Plan``) is drawn all the same, so that the rest of the schedule stays as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from mainstem._internal.clock import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_FAULTS = 10  # of one schedule: more of them hide one another


@dataclass(frozen=True)
class Plan:
    """What a replay leaves out of a run: nothing by default.

    Attributes:
        without: Kinds of faults that are switched off, of links and of schedules.
        dropped: Numbers of faults that the schedule leaves out.
        size: The share of a long run's messages (``--scale``); None for the one that is drawn.
    """

    without: frozenset[str] = frozenset()
    dropped: frozenset[int] = frozenset()
    size: float | None = None

    @property
    def arguments(self) -> str:
        """The options of the command line that make this plan; each begins with a space."""
        parts = ""
        if self.without:
            parts += f" --without {','.join(sorted(self.without))}"
        if self.dropped:
            parts += f" --drop {','.join(map(str, sorted(self.dropped)))}"
        return parts if self.size is None else f"{parts} --scale {self.size:g}"


class Fault(NamedTuple):
    """One fault: its kind, the place it strikes (and where to, of a link), when, in nanoseconds from the beginning, how badly."""

    number: int
    kind: str
    place: int
    other: int
    start_ns: int
    end_ns: int
    amount: float

    def __str__(self) -> str:
        return (
            f"{self.number}: {self.kind} at {self.place} (to {self.other}), "
            f"{self.start_ns // NS_PER_MS} to {self.end_ns // NS_PER_MS} ms, {self.amount:.2f}"
        )


@dataclass
class Schedule:
    """Faults in the order of time."""

    faults: Sequence[Fault]
    _begun: dict[int, Fault] = field(default_factory=dict)
    _next: int = 0

    @classmethod
    def drawn(
        cls, seed: int, kinds: Sequence[str], *, places: int, length_ns: int, plan: Plan | None = None
    ) -> Schedule:
        """Draws a schedule: half of the kinds, up to ten faults of them, each for up to half of the time.

        Args:
            seed: Everything follows from it.
            kinds: The kinds that there are.
            places: How many places a fault may strike, numbered from 0.
            length_ns: How long the faults go on, in nanoseconds.
            plan: What a replay leaves out.

        Returns:
            The schedule.
        """
        plan = plan or Plan()
        # A source of its own: the draws of the run do not move with what is left out here.
        chance = Random(f"schedule {seed}")
        allowed = [kind for kind in kinds if chance.random() < 0.5] or list(kinds[:1])
        faults = []
        for number in range(chance.randrange(1, MAX_FAULTS + 1)):
            start_ns = chance.randrange(length_ns)
            place = chance.randrange(places)
            faults.append(
                Fault(
                    number,
                    chance.choice(allowed),
                    place,
                    (place + chance.randrange(1, max(2, places))) % places,
                    start_ns,
                    start_ns + chance.randrange(1, max(2, length_ns // 2)),
                    chance.random(),
                )
            )
        left = [each for each in faults if each.number not in plan.dropped and each.kind not in plan.without]
        return cls(sorted(left, key=lambda each: each.start_ns))

    def due(self, now_ns: int) -> Iterator[tuple[Fault, bool]]:
        """What has become due.

        Args:
            now_ns: Nanoseconds since the beginning.

        Yields:
            Each fault that begins (True) or ends (False) by now.
        """
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
        """Ends the schedule.

        Yields:
            Each fault that has begun and not ended.
        """
        self._next = len(self.faults)
        begun, self._begun = self._begun, {}
        yield from begun.values()
