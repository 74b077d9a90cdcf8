"""A deterministic simulator for Mainstem and for applications that use it: manual time, a seeded faulty network, checkers.

A world has hosts, each with a media driver in INVOKER mode and a client, all in plain memory. The seed determines everything
that happens::

    with World(seed=1) as world:
        host = world.add_host("one")
        subscription = host.aeron.add_subscription("aeron:ipc", 1001)
"""

from mainstem.sim.byte_streams import ByteStream, StreamEnd, StreamFaults
from mainstem.sim.checkers import MonotoneChecker, StreamChecker, Violation
from mainstem.sim.clock import ManualClock
from mainstem.sim.faults import PERFECT, Faults
from mainstem.sim.host import Host, HostTransports
from mainstem.sim.network import SimNetwork
from mainstem.sim.trace import Trace
from mainstem.sim.world import World

__all__ = [
    "PERFECT",
    "ByteStream",
    "Faults",
    "Host",
    "HostTransports",
    "ManualClock",
    "MonotoneChecker",
    "SimNetwork",
    "StreamChecker",
    "StreamEnd",
    "StreamFaults",
    "Trace",
    "Violation",
    "World",
]
