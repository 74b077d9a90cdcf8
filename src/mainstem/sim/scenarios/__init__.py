"""Private: the scenarios. Each takes a World, raises Violation if an invariant is broken, and returns a line of results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.sim.scenarios.addressing import joining, moving, names, redundant
from mainstem.sim.scenarios.aqueduct import aqueduct
from mainstem.sim.scenarios.archive import archive
from mainstem.sim.scenarios.bymux import bymux
from mainstem.sim.scenarios.duologue import duologue
from mainstem.sim.scenarios.groups import flow_control, mdc, mds, multicast, unicast
from mainstem.sim.scenarios.jmux import jmux
from mainstem.sim.scenarios.loss_and_latency import cubic, gaps, latency, unreliable
from mainstem.sim.scenarios.power_loss import power_loss
from mainstem.sim.scenarios.recorders import recorders
from mainstem.sim.scenarios.responses import response, response_ipc
from mainstem.sim.scenarios.storm import storm
from mainstem.sim.scenarios.stream_lifecycle import claims, ipc, rejection, spies, untethered

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.sim.world import World

SCENARIOS: dict[str, Callable[[World], str]] = {
    scenario.__name__: scenario
    for scenario in (
        aqueduct, archive, bymux, duologue, jmux, power_loss, recorders, storm, unicast, multicast, mdc, mds, flow_control, spies,
        response, rejection, gaps, claims, cubic, latency, untethered, unreliable, joining, redundant, names, moving, ipc,
        response_ipc,
    )
}  # fmt: skip
