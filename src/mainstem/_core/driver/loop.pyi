# Written from loop.py by tools/write_core_stubs.py: edit that file, then run the tool.
from collections.abc import Iterable

from mainstem._core.memory.buffer import AtomicBuffer

class Cycle:
    """The ordinary duty cycle of an agent, compiled: no GIL, no Python.

    ``needs_python`` is true when something exceptional waits for the agent; ``due`` also when its deadline has passed.
    """
    def __init__(self) -> None: ...
    def run_cycle(self, now_ns: int) -> int:
        """One duty cycle at ``now_ns``; how much work it found."""
    @property
    def needs_python(self) -> bool: ...
    def due(self, now_ns: int) -> bool:
        """Whether something exceptional waits for Python."""
    def set_deadline(self, deadline_ns: int) -> None:
        """The latest time at which Python must run (NEVER_NS: none)."""

class Loop:
    """Runs cycles in the calling thread, without the GIL, until Python is needed.

    Idling: ``max_spins`` pauses, for a microsecond at most, then ``max_yields`` yields, then sleeps from ``min_park_ns``
    doubling to ``max_park_ns``, each until a datagram arrives at a socket of ``wake_by`` at most; ``max_park_ns=0`` never
    sleeps (with ``max_yields=0`` it spins). ``work`` is what the last round found; ``rounds`` and ``longest_round_ns`` are
    for counters.
    """

    work: int
    rounds: int
    longest_round_ns: int
    def __init__(
        self,
        cycles: Iterable[Cycle] = (),
        max_spins: int = 10,
        max_yields: int = 20,
        min_park_ns: int = 1000,
        max_park_ns: int = 1000000,
    ) -> None: ...
    def add(self, cycle: Cycle) -> None:
        """Drives one more; eight at most (OverflowError)."""
    def watch(self, buffer: AtomicBuffer, offset: int) -> None:
        """``run`` also comes back when this int64 changes: the tail of a command ring. Four at most (OverflowError)."""
    def wake_by(self, fd: int) -> None:
        """Has a datagram that arrives at this socket end a sleep, until the socket is closed."""
    def wake(self) -> None:
        """Makes ``run`` come back soon. From any thread."""
    def stop(self) -> None:
        """Makes ``run`` come back, now and ever after. From any thread."""
    @property
    def is_stopped(self) -> bool: ...
    def run(self, deadline_ns: int) -> int:
        """Until ``deadline_ns`` of the monotonic clock, or a reason to come back before.

        0: the deadline, 1: a cycle needs Python, 2: woken, 3: a watch changed, 4: stopped.
        """
    def due_ns(self) -> int:
        """When a cycle has something to do at the latest, where nothing arrives and no one writes until then; 0 for now."""
    def run_once(self, now_ns: int) -> int:
        """One round at a given time, where there is no reason to come back before it; returns what ``run`` does."""
    def run_round(self, now_ns: int) -> int:
        """One round at a given time, whatever waits; returns 1 where a cycle needs Python, else 0."""
