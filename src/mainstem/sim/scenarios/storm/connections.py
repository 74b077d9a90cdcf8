"""Connections of bymux, Jmux and Aqueduct between two hosts, one after the other. A host that ends breaks its connection."""

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
    """A connection and the applications at its two ends, with their invariants."""

    def __init__(self, world: World, *, is_killed_later: bool) -> None: ...

    def procedure(self) -> Iterator[object]: ...

    def kill(self, number: int) -> None: ...


class ConnectionsWorkload(Workload):
    """Connections between two hosts, each of a drawn kind. One that breaks is started again."""

    def __init__(self, world: World, hosts: tuple[Host, Host]) -> None:
        self.world = world
        self.hosts = hosts
        self._run: Run | None = None
        self._procedure: Iterator[object] = iter(())
        self._starts: tuple[int, ...] = ()
        self._is_whole = True  # whether both machines have run since it began
        self._left = 0  # connections that are to end in order, after the storm

    def step(self, *, offers: bool, pause_probability: dict[str, float]) -> None:  # noqa: ARG002 - its programs have their own pace
        if self._run is None:
            if not all(map(runs, self.hosts)):
                return
            self._run = self.world.rng.choice(KINDS)(self.world, is_killed_later=True)
            self._procedure = self._run.procedure()
            self._starts = tuple(host.starts for host in self.hosts)
            self._is_whole = True
        for number, host in enumerate(self.hosts):
            if self._is_whole and (not runs(host) or host.starts != self._starts[number]):
                self._run.kill(number)
                self._is_whole = False
        try:
            next(self._procedure)
        except StopIteration:
            self._left -= self._is_whole
            self._run = None

    @property
    def is_connected(self) -> bool:
        return self._run is not None and self._is_whole

    def aim(self, count: int) -> None:  # noqa: ARG002 - a connection has as many messages as were drawn
        self._left = 2

    @property
    def is_read(self) -> bool:
        return self._left <= 0
