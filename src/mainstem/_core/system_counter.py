"""The driver's own counters: one record each, from which everything else about them is derived.

The driver allocates them first and in this order, so an id is also an index into the table of values (docs/protocols/aeron.md,
8.6). ``tools/backend/core_stubs.py`` generates ``system_counter.pxd`` from this file. Compiled code counts with
``add_to_counter(self.cells, SYSTEM_BYTES_SENT, n)``, sender and receiver with ``self._count(SystemCounter.BYTES_SENT)``, the
conductor with ``Resources.count``. Count a frame in compiled code if that sees it (``dispatch`` in ``driver/receive_path.py`` and
``driver/send_path.py``), even if Python handles it afterward: the event that brings it to Python is lost if the buffer of events
is full. tests/unit/_core/test_paths.py tests the counts of compiled code, tests/unit/aeron/driver those of Python.

``mainstem stat``, the metrics and docs/reference/counters.md follow the table. A counter of Mainstem's own goes at the end; no
other test or page lists these. If its rise is a fault, ``aeron/tools/driver_warnings.py`` lists it too.

The build runs this file without the package, so it imports only the standard library.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class DescribedId(IntEnum):
    """An id with the start of its labels (empty if they vary) and its meaning."""

    label: str
    meaning: str

    def __new__(cls, value: int, label: str = "", meaning: str = "") -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.label = label
        member.meaning = meaning
        return member


class SystemCounter(DescribedId):
    """An id, the start of the counter's label and what it counts."""

    @property
    def type_id(self) -> int:
        return REFERENCE_TYPE_ID if self < REFERENCE_COUNTERS else OWN_TYPE_ID

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
    UNBLOCKED_PUBLICATIONS = (
        19,
        "Unblocked Publications",
        "times a log was unblocked because a claim stayed open too long",
    )
    UNBLOCKED_COMMANDS = 20, "Unblocked Control Commands", "half-written commands of dead clients that were passed over"
    POSSIBLE_TTL_ASYMMETRY = (
        21,
        "Possible TTL Asymmetry",
        "SETUPs whose time to live is greater than the receiver's own",
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

    # Counters that the reference does not have. Their ids follow the reference's, so a newer reference moves them.
    ENDPOINT_FILTER_REFUSALS = (
        46,
        "Endpoint filter refusals",
        "refused SETUPs, including repeats, and refused senders of data; not the number of streams or of dropped datagrams",
    )


# How many of the counters are the reference's.
REFERENCE_COUNTERS = 46
REFERENCE_TYPE_ID = 0
OWN_TYPE_ID = 1900  # the reference leaves types from 1000 on to applications


def find_system_counter(counter_id: int, type_id: int, label: str) -> SystemCounter | None:
    """Return which of these counters a driver's counter is, or None.

    A newer reference driver has other counters from 46 on, and an application may use any type from 1000 on.
    """
    if not 0 <= counter_id < len(SystemCounter):
        return None
    known = SystemCounter(counter_id)
    is_same = type_id == known.type_id and (type_id == REFERENCE_TYPE_ID or label.startswith(known.label))
    return known if is_same else None


# SYSTEM_BYTES_SENT and so on, as compiled code has them.
globals().update({f"SYSTEM_{each.name}": int(each) for each in SystemCounter})
