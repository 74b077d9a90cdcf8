"""The addressing modes, and which clients and drivers are at each end: the table that parametrizes the stream tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass(frozen=True)
class Mode:
    """How the two ends name a stream. ``{port}`` and the next three ports are free."""

    publish: str
    subscribe: str
    destinations: list[str] = field(default_factory=list)
    one_driver: bool = False
    flow_control: str = ""  # the flow control that makes a slow receiver hold back the sender, if there is a choice


_CONTROL = "control=127.0.0.1:{port1}|control-mode=dynamic"
MODES = {
    "ipc": Mode("aeron:ipc", "aeron:ipc", one_driver=True),
    "spy": Mode(
        "aeron:udp?endpoint=127.0.0.1:{port}|ssc=true", "aeron-spy:aeron:udp?endpoint=127.0.0.1:{port}", one_driver=True
    ),
    "unicast": Mode("aeron:udp?endpoint=127.0.0.1:{port}", "aeron:udp?endpoint=127.0.0.1:{port}"),
    # The last byte of the control address wraps around.
    "multicast": Mode(
        "aeron:udp?endpoint=224.20.30.255:{port}|interface=localhost",
        "aeron:udp?endpoint=224.20.30.255:{port}|interface=localhost",
        flow_control="|fc=min",
    ),
    "dynamic": Mode(
        f"aeron:udp?{_CONTROL}", f"aeron:udp?endpoint=127.0.0.1:{{port}}|{_CONTROL}", flow_control="|fc=min"
    ),
    "manual": Mode(
        "aeron:udp?control=127.0.0.1:{port1}|control-mode=manual",
        "aeron:udp?endpoint=127.0.0.1:{port}",
        ["aeron:udp?endpoint=127.0.0.1:{port}", "aeron:udp?endpoint=127.0.0.1:{port2}"],
        flow_control="|fc=min",
    ),
}
NETWORK = ("unicast", "multicast", "dynamic", "manual")

# (publisher's client, its driver, subscriber's driver, subscriber's client).
ONE_DRIVER = [
    ("mainstem", "reference", "reference", "pyaeron"),
    ("pyaeron", "reference", "reference", "mainstem"),
    ("mainstem", "reference", "reference", "mainstem"),
    ("pyaeron", "mainstem", "mainstem", "pyaeron"),
    ("mainstem", "mainstem", "mainstem", "pyaeron"),
    ("pyaeron", "mainstem", "mainstem", "mainstem"),
]
TWO_DRIVERS = [
    ("mainstem", "mainstem", "reference", "mainstem"),
    ("mainstem", "reference", "mainstem", "mainstem"),
    ("pyaeron", "mainstem", "reference", "pyaeron"),
    ("pyaeron", "reference", "mainstem", "pyaeron"),
    ("mainstem", "mainstem", "reference", "pyaeron"),
    ("mainstem", "reference", "mainstem", "pyaeron"),
]


def table(*modes: str, both_ways_only: bool = False) -> Any:
    """Return a parametrization of ``mode, ends``: every mode with every supported combination of ends.

    ``both_ways_only`` keeps only one pair of ends for each direction.
    """
    rows = []
    for name in modes or MODES:
        all_ends = ONE_DRIVER if MODES[name].one_driver else TWO_DRIVERS
        # pyaeron cannot add a destination.
        able = [ends for ends in all_ends if ends[0] == "mainstem" or not MODES[name].destinations]
        if both_ways_only:
            wanted = {("mainstem", "reference"), ("pyaeron", "mainstem")} if MODES[name].one_driver else set()
            able = [ends for ends in able if ends[:2] in wanted] if wanted else able[:2]
            able = able[:1] + able[-1:]
        rows += [pytest.param(MODES[name], ends, id=f"{name}-{'-'.join(ends)}") for ends in able]
    return pytest.mark.parametrize(("mode", "ends"), rows)


def named(text: str, port: int) -> str:
    """Return a channel with its ports filled in."""
    return text.format(port=port, port1=port + 1, port2=port + 2)
