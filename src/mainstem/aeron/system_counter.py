"""The driver's own counters, which it allocates first and in order (docs/protocols/aeron.md, 8.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.memory.counters import CounterCell
from mainstem._internal.units import format_duration_ns
from mainstem.aeron.counters import CounterSpec, CounterType, DescribedId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem._core.memory.counters import CountersManager

CONTROL_PROTOCOL_VERSION = 0x010000  # 1.0.0: the driver understands get-next-available-session-id


class SystemCounter(DescribedId):
    """The reference's system counters. An id is both the counter's key and its index in the table.

    To add a counter of a newer reference, add a line here; if a compiled cycle updates it, also add a ``SYSTEM_`` constant in
    ``_core/layout.py``. A counter that the reference does not have needs a type in `mainstem.aeron.counters.OwnCounterType`,
    because the reference will use the next id here.
    """

    BYTES_SENT = 0, "Bytes sent", "bytes of datagrams sent, retransmits and control frames too"
    BYTES_RECEIVED = 1, "Bytes received", "bytes of datagrams received"
    RECEIVER_PROXY_FAILS = 2, "Failed offers to ReceiverProxy", "commands that found the receiver's queue full"
    SENDER_PROXY_FAILS = 3, "Failed offers to SenderProxy", "commands that found the sender's queue full"
    CONDUCTOR_PROXY_FAILS = (
        4,
        "Failed offers to DriverConductorProxy",
        "messages of agents that found the conductor's queue full",
    )
    NAKS_SENT = 5, "NAKs sent", "requests for lost data sent by this driver's receivers"
    NAKS_RECEIVED = 6, "NAKs received", "requests for lost data that reached this driver's senders"
    STATUS_MESSAGES_SENT = 7, "Status Messages sent", "reports of position and window sent"
    STATUS_MESSAGES_RECEIVED = 8, "Status Messages received", "reports of position and window received"
    HEARTBEATS_SENT = 9, "Heartbeats sent", "data frames without data, sent by idle or blocked streams"
    HEARTBEATS_RECEIVED = 10, "Heartbeats received", "the same, received"
    RETRANSMITS_SENT = 11, "Retransmits sent", "responses to NAKs"
    FLOW_CONTROL_UNDER_RUNS = (
        12,
        "Flow control under runs",
        "frames below the window: late copies of consumed data",
    )
    FLOW_CONTROL_OVER_RUNS = 13, "Flow control over runs", "frames beyond the window, which were dropped"
    INVALID_PACKETS = 14, "Invalid packets", "datagrams that are not Aeron frames"
    ERRORS = 15, "Errors", "errors in the error log; `mainstem errors` shows them"
    SHORT_SENDS = 16, "Short sends", "datagrams that the socket did not take whole"
    FREE_FAILS = 17, "Failed attempts to free log buffers", "log buffers that could not be deleted yet"
    SENDER_FLOW_CONTROL_LIMITS = (
        18,
        "Sender flow control limits, i.e. back-pressure events",
        "times that a sender had no window",
    )
    UNBLOCKED_PUBLICATIONS = 19, "Unblocked Publications", "claims of dead publishers that were turned into padding"
    UNBLOCKED_COMMANDS = 20, "Unblocked Control Commands", "half-written commands of dead clients that were passed over"
    POSSIBLE_TTL_ASYMMETRY = (
        21,
        "Possible TTL Asymmetry",
        "setups whose time to live is greater than the receiver's own",
    )
    CONTROLLABLE_IDLE_STRATEGY = 22, "ControllableIdleStrategy status", "the state of the controllable idle strategy"
    LOSS_GAP_FILLS = 23, "Loss gap fills", "gaps filled with padding rather than repaired, on unreliable streams"
    CLIENT_TIMEOUTS = 24, "Client liveness timeouts", "clients whose heartbeat stopped"
    RESOLUTION_CHANGES = 25, "Resolution changes", "names that resolved to another address than before"
    CONDUCTOR_MAX_CYCLE_TIME = (
        26,
        "Conductor max cycle time doing its work in ns",
        "the conductor's longest cycle",
    )
    CONDUCTOR_CYCLE_TIME_EXCEEDED = (
        27,
        "Conductor work cycle exceeded threshold count",
        "its cycles above the threshold",
    )
    SENDER_MAX_CYCLE_TIME = (
        28,
        "Sender max cycle time doing its work in ns",
        "the sender's longest cycle",
    )
    SENDER_CYCLE_TIME_EXCEEDED = 29, "Sender work cycle exceeded threshold count", "its cycles above the threshold"
    RECEIVER_MAX_CYCLE_TIME = (
        30,
        "Receiver max cycle time doing its work in ns",
        "the receiver's longest cycle",
    )
    RECEIVER_CYCLE_TIME_EXCEEDED = 31, "Receiver work cycle exceeded threshold count", "its cycles above the threshold"
    NAME_RESOLVER_MAX_TIME = 32, "NameResolver max time in ns", "the longest resolution of a name"
    NAME_RESOLVER_TIME_EXCEEDED = 33, "NameResolver exceeded threshold count", "resolutions above the threshold"
    SOFTWARE_VERSION = 34, "Aeron software", "the version of the software, packed"
    BYTES_CURRENTLY_MAPPED = 35, "Bytes currently mapped", "bytes of log buffers that are mapped now"
    RETRANSMITTED_BYTES = 36, "Retransmitted bytes", "bytes sent in response to NAKs"
    RETRANSMIT_OVERFLOW = 37, "Retransmit Pool Overflow count", "NAKs that found no free place among those being served"
    ERROR_FRAMES_RECEIVED = 38, "Error Frames received", "ERR frames received: an image was rejected elsewhere"
    ERROR_FRAMES_SENT = 39, "Error Frames sent", "ERR frames sent: an image was rejected here"
    PUBLICATIONS_REVOKED = 40, "Publications Revoked", "publications that were revoked"
    IMAGES_REVOKED = 41, "Publication Images Revoked", "images whose publication was revoked"
    IMAGES_REJECTED = 42, "Images rejected", "images that a subscriber rejected"
    CONTROL_PROTOCOL_VERSION = (
        43,
        "Control protocol version",
        "the version of the protocol between clients and driver, packed",
    )
    STATUS_MESSAGES_REJECTED = 44, "Status Messages rejected", "status messages that were refused"
    NATIVE_RESOURCE_AGENT_PROXY_FAILS = 45, "Failed offers to NativeResourceAgentProxy", "the reference's own: 0 here"


_KEY_LENGTH = 4


def system_counter(counter: SystemCounter, *, suffix: str = "") -> CounterSpec:
    """Return the type, key and label of the counter, with this driver's suffix."""
    return CounterSpec(CounterType.SYSTEM, int(counter).to_bytes(_KEY_LENGTH, "little"), counter.label + suffix)


def cycle_time_suffixes(threading_mode: str, thresholds_ns: Mapping[SystemCounter, int]) -> dict[SystemCounter, str]:
    """Return the label suffixes of the cycle time counters (26 to 31): the threading mode and each counter's threshold.

    The keys of ``thresholds_ns`` are the counters that count exceeded thresholds (27, 29 and 31).
    """
    suffixes = {}
    for exceeded, threshold_ns in thresholds_ns.items():
        suffixes[SystemCounter(exceeded - 1)] = f": {threading_mode}"
        suffixes[exceeded] = f": threshold={format_duration_ns(threshold_ns)} {threading_mode}"
    return suffixes


class SystemCounters:
    """The allocated system counters of one driver. ``counters[SystemCounter.ERRORS]`` is a cell."""

    def __init__(
        self, manager: CountersManager, *, now_ms: int, suffixes: Mapping[SystemCounter, str] | None = None
    ) -> None:
        suffixes = suffixes or {}
        cells = []
        for counter in SystemCounter:
            spec = system_counter(counter, suffix=suffixes.get(counter, ""))
            # Programs find these counters by their ids, so nothing may be allocated before them.
            counter_id = spec.allocate(manager, now_ms=now_ms, registration_id=int(counter))
            cells.append(CounterCell(manager.values, counter_id))
        self._cells = cells
        self[SystemCounter.CONTROL_PROTOCOL_VERSION].set_release(CONTROL_PROTOCOL_VERSION)

    def __getitem__(self, counter: SystemCounter) -> CounterCell:
        return self._cells[counter]

    def increment(self, counter: SystemCounter, delta: int = 1) -> None:
        """Add ``delta`` atomically, because several agents may count at once."""
        self._cells[counter].add(delta)
