"""The driver's own counters: ids 0 to 45, allocated first and in order (docs/protocols/aeron.md, 8.6)."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from mainstem._core.memory.counters import CounterCell
from mainstem._internal.units import format_duration_ns
from mainstem.aeron.counters import CounterSpec, CounterType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem._core.memory.counters import CountersManager

CONTROL_PROTOCOL_VERSION = 0x010000  # 1.0.0: get-next-available-session-id is understood


class SystemCounter(IntEnum):
    """Ids of the system counters; each is its counter's id, its key, and its place in the table."""

    BYTES_SENT = 0
    BYTES_RECEIVED = 1
    RECEIVER_PROXY_FAILS = 2
    SENDER_PROXY_FAILS = 3
    CONDUCTOR_PROXY_FAILS = 4
    NAKS_SENT = 5
    NAKS_RECEIVED = 6
    STATUS_MESSAGES_SENT = 7
    STATUS_MESSAGES_RECEIVED = 8
    HEARTBEATS_SENT = 9
    HEARTBEATS_RECEIVED = 10
    RETRANSMITS_SENT = 11
    FLOW_CONTROL_UNDER_RUNS = 12
    FLOW_CONTROL_OVER_RUNS = 13
    INVALID_PACKETS = 14
    ERRORS = 15
    SHORT_SENDS = 16
    FREE_FAILS = 17
    SENDER_FLOW_CONTROL_LIMITS = 18
    UNBLOCKED_PUBLICATIONS = 19
    UNBLOCKED_COMMANDS = 20
    POSSIBLE_TTL_ASYMMETRY = 21
    CONTROLLABLE_IDLE_STRATEGY = 22
    LOSS_GAP_FILLS = 23
    CLIENT_TIMEOUTS = 24
    RESOLUTION_CHANGES = 25
    CONDUCTOR_MAX_CYCLE_TIME = 26
    CONDUCTOR_CYCLE_TIME_EXCEEDED = 27
    SENDER_MAX_CYCLE_TIME = 28
    SENDER_CYCLE_TIME_EXCEEDED = 29
    RECEIVER_MAX_CYCLE_TIME = 30
    RECEIVER_CYCLE_TIME_EXCEEDED = 31
    NAME_RESOLVER_MAX_TIME = 32
    NAME_RESOLVER_TIME_EXCEEDED = 33
    SOFTWARE_VERSION = 34
    BYTES_CURRENTLY_MAPPED = 35
    RETRANSMITTED_BYTES = 36
    RETRANSMIT_OVERFLOW = 37
    ERROR_FRAMES_RECEIVED = 38
    ERROR_FRAMES_SENT = 39
    PUBLICATIONS_REVOKED = 40
    IMAGES_REVOKED = 41
    IMAGES_REJECTED = 42
    CONTROL_PROTOCOL_VERSION = 43
    STATUS_MESSAGES_REJECTED = 44
    NATIVE_RESOURCE_AGENT_PROXY_FAILS = 45


LABELS: dict[SystemCounter, str] = {
    SystemCounter.BYTES_SENT: "Bytes sent",
    SystemCounter.BYTES_RECEIVED: "Bytes received",
    SystemCounter.RECEIVER_PROXY_FAILS: "Failed offers to ReceiverProxy",
    SystemCounter.SENDER_PROXY_FAILS: "Failed offers to SenderProxy",
    SystemCounter.CONDUCTOR_PROXY_FAILS: "Failed offers to DriverConductorProxy",
    SystemCounter.NAKS_SENT: "NAKs sent",
    SystemCounter.NAKS_RECEIVED: "NAKs received",
    SystemCounter.STATUS_MESSAGES_SENT: "Status Messages sent",
    SystemCounter.STATUS_MESSAGES_RECEIVED: "Status Messages received",
    SystemCounter.HEARTBEATS_SENT: "Heartbeats sent",
    SystemCounter.HEARTBEATS_RECEIVED: "Heartbeats received",
    SystemCounter.RETRANSMITS_SENT: "Retransmits sent",
    SystemCounter.FLOW_CONTROL_UNDER_RUNS: "Flow control under runs",
    SystemCounter.FLOW_CONTROL_OVER_RUNS: "Flow control over runs",
    SystemCounter.INVALID_PACKETS: "Invalid packets",
    SystemCounter.ERRORS: "Errors",
    SystemCounter.SHORT_SENDS: "Short sends",
    SystemCounter.FREE_FAILS: "Failed attempts to free log buffers",
    SystemCounter.SENDER_FLOW_CONTROL_LIMITS: "Sender flow control limits, i.e. back-pressure events",
    SystemCounter.UNBLOCKED_PUBLICATIONS: "Unblocked Publications",
    SystemCounter.UNBLOCKED_COMMANDS: "Unblocked Control Commands",
    SystemCounter.POSSIBLE_TTL_ASYMMETRY: "Possible TTL Asymmetry",
    SystemCounter.CONTROLLABLE_IDLE_STRATEGY: "ControllableIdleStrategy status",
    SystemCounter.LOSS_GAP_FILLS: "Loss gap fills",
    SystemCounter.CLIENT_TIMEOUTS: "Client liveness timeouts",
    SystemCounter.RESOLUTION_CHANGES: "Resolution changes",
    SystemCounter.CONDUCTOR_MAX_CYCLE_TIME: "Conductor max cycle time doing its work in ns",
    SystemCounter.CONDUCTOR_CYCLE_TIME_EXCEEDED: "Conductor work cycle exceeded threshold count",
    SystemCounter.SENDER_MAX_CYCLE_TIME: "Sender max cycle time doing its work in ns",
    SystemCounter.SENDER_CYCLE_TIME_EXCEEDED: "Sender work cycle exceeded threshold count",
    SystemCounter.RECEIVER_MAX_CYCLE_TIME: "Receiver max cycle time doing its work in ns",
    SystemCounter.RECEIVER_CYCLE_TIME_EXCEEDED: "Receiver work cycle exceeded threshold count",
    SystemCounter.NAME_RESOLVER_MAX_TIME: "NameResolver max time in ns",
    SystemCounter.NAME_RESOLVER_TIME_EXCEEDED: "NameResolver exceeded threshold count",
    SystemCounter.SOFTWARE_VERSION: "Aeron software",
    SystemCounter.BYTES_CURRENTLY_MAPPED: "Bytes currently mapped",
    SystemCounter.RETRANSMITTED_BYTES: "Retransmitted bytes",
    SystemCounter.RETRANSMIT_OVERFLOW: "Retransmit Pool Overflow count",
    SystemCounter.ERROR_FRAMES_RECEIVED: "Error Frames received",
    SystemCounter.ERROR_FRAMES_SENT: "Error Frames sent",
    SystemCounter.PUBLICATIONS_REVOKED: "Publications Revoked",
    SystemCounter.IMAGES_REVOKED: "Publication Images Revoked",
    SystemCounter.IMAGES_REJECTED: "Images rejected",
    SystemCounter.CONTROL_PROTOCOL_VERSION: "Control protocol version",
    SystemCounter.STATUS_MESSAGES_REJECTED: "Status Messages rejected",
    SystemCounter.NATIVE_RESOURCE_AGENT_PROXY_FAILS: "Failed offers to NativeResourceAgentProxy",
}

_KEY_LENGTH = 4


def system_counter(counter: SystemCounter, *, suffix: str = "") -> CounterSpec:
    """The counter's type, key and label; the suffix is what this driver adds to the label."""
    return CounterSpec(CounterType.SYSTEM, int(counter).to_bytes(_KEY_LENGTH, "little"), LABELS[counter] + suffix)


def cycle_time_suffixes(threading_mode: str, thresholds_ns: Mapping[SystemCounter, int]) -> dict[SystemCounter, str]:
    """What the labels of the cycle time counters (26 to 31) end with: the threading mode, and the threshold of each.

    ``thresholds_ns`` is by the counter that counts the excess (27, 29 and 31).
    """
    suffixes = {}
    for exceeded, threshold_ns in thresholds_ns.items():
        suffixes[SystemCounter(exceeded - 1)] = f": {threading_mode}"
        suffixes[exceeded] = f": threshold={format_duration_ns(threshold_ns)} {threading_mode}"
    return suffixes


class SystemCounters:
    """The system counters of one driver, allocated; ``counters[SystemCounter.ERRORS]`` is a cell."""

    def __init__(
        self, manager: CountersManager, *, now_ms: int, suffixes: Mapping[SystemCounter, str] | None = None
    ) -> None:
        suffixes = suffixes or {}
        cells = []
        for counter in SystemCounter:
            spec = system_counter(counter, suffix=suffixes.get(counter, ""))
            # Programs find these counters by their ids: nothing may be allocated before them.
            counter_id = spec.allocate(manager, now_ms=now_ms, registration_id=int(counter))
            cells.append(CounterCell(manager.values, counter_id))
        self._cells = cells
        self[SystemCounter.CONTROL_PROTOCOL_VERSION].set_release(CONTROL_PROTOCOL_VERSION)

    def __getitem__(self, counter: SystemCounter) -> CounterCell:
        return self._cells[counter]

    def increment(self, counter: SystemCounter, delta: int = 1) -> None:
        """Adds atomically: several agents count in one table."""
        self._cells[counter].add(delta)
