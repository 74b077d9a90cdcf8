"""Connections of bymux, Jmux and Aqueduct between two machines: one after the other, each broken by the end of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mainstem.sim.scenarios.aqueduct import AqueductRun
from mainstem.sim.scenarios.bymux import BymuxRun
from mainstem.sim.scenarios.jmux import JmuxRun
from mainstem.sim.scenarios.storm.workload import Workload, runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.sim.host import Host
    from mainstem.sim.world import World

KINDS: tuple[type[Run], ...] = (BymuxRun, JmuxRun, AqueductRun)


class Run(Protocol):
    """A connection and the programs at its two ends, with all that must hold of them."""

    def __init__(self, world: World, *, is_killed_later: bool) -> None:
        """Begins it."""

    def life(self) -> Iterator[object]:
        """Runs it to its end, whatever that is; time goes on wherever it yields."""

    def kill(self, number: int) -> None:
        """From now on the machine of one end does not run."""


class ConnectionsWorkload(Workload):
    """ConnectionsWorkload between two machines, of a kind that is drawn for each. One that stops in the middle is begun anew.

    Args:
        world: Its chance is drawn from.
        hosts: The machines of both ends.
    """

    def __init__(self, world: World, hosts: tuple[Host, Host]) -> None:
        self.world = world
        self.hosts = hosts
        self._run: Run | None = None
        self._life: Iterator[object] = iter(())
        self._starts: tuple[int, ...] = ()
        self._is_whole = True  # whether both machines have run since it began
        self._left = 0  # connections that are to end in order, after the storm

    def step(self, *, offers: bool, pause_probability: dict[str, float]) -> None:  # noqa: ARG002 - its programs have their own pace
        """One duty cycle of both ends."""
        if self._run is None:
            if not all(map(runs, self.hosts)):
                return
            self._run = self.world.chance.choice(KINDS)(self.world, is_killed_later=True)
            self._life = self._run.life()
            self._starts = tuple(host.starts for host in self.hosts)
            self._is_whole = True
        for number, host in enumerate(self.hosts):
            if self._is_whole and (not runs(host) or host.starts != self._starts[number]):
                self._run.kill(number)
                self._is_whole = False
        try:
            next(self._life)
        except StopIteration:
            self._left -= self._is_whole
            self._run = None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that no machine has left."""
        return self._run is not None and self._is_whole

    def aim(self, count: int) -> None:  # noqa: ARG002 - a connection has as many messages as were drawn
        """One more connection is to end in order, behind the one that there is."""
        self._left = 2

    @property
    def is_read(self) -> bool:
        """Whether the connections have ended in order."""
        return self._left <= 0
