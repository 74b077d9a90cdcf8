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
from mainstem.sim.scenarios.loss_and_latency import cubic, gaps, latency, unreliable, untethered
from mainstem.sim.scenarios.power_loss import power_loss
from mainstem.sim.scenarios.recorders import recorders
from mainstem.sim.scenarios.storm import storm
from mainstem.sim.scenarios.stream_lifecycle import claims, ipc, rejection, response, response_ipc, spies

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.sim.world import World

SCENARIOS: dict[str, Callable[[World], str]] = {
    "aqueduct": aqueduct,
    "archive": archive,
    "bymux": bymux,
    "duologue": duologue,
    "jmux": jmux,
    "power_loss": power_loss,
    "recorders": recorders,
    "storm": storm,
    "unicast": unicast,
    "multicast": multicast,
    "mdc": mdc,
    "mds": mds,
    "flow_control": flow_control,
    "spies": spies,
    "response": response,
    "rejection": rejection,
    "gaps": gaps,
    "claims": claims,
    "cubic": cubic,
    "latency": latency,
    "untethered": untethered,
    "unreliable": unreliable,
    "joining": joining,
    "redundant": redundant,
    "names": names,
    "moving": moving,
    "ipc": ipc,
    "response_ipc": response_ipc,
}
