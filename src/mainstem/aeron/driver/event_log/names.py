"""The names and numbers of events, as in the reference driver, and their selection by the settings."""

from __future__ import annotations

import re

from mainstem.aeron.command import commands, responses
from mainstem.errors import ConfigurationError

# The reference's number for each event. The settings accept numbers in place of names.
NUMBERS = {
    1: "FRAME_IN",
    2: "FRAME_OUT",
    3: "CMD_IN_ADD_PUBLICATION",
    4: "CMD_IN_REMOVE_PUBLICATION",
    5: "CMD_IN_ADD_SUBSCRIPTION",
    6: "CMD_IN_REMOVE_SUBSCRIPTION",
    7: "CMD_OUT_PUBLICATION_READY",
    8: "CMD_OUT_AVAILABLE_IMAGE",
    12: "CMD_OUT_ON_OPERATION_SUCCESS",
    13: "CMD_IN_KEEPALIVE_CLIENT",
    14: "REMOVE_PUBLICATION_CLEANUP",
    15: "REMOVE_SUBSCRIPTION_CLEANUP",
    16: "REMOVE_IMAGE_CLEANUP",
    17: "CMD_OUT_ON_UNAVAILABLE_IMAGE",
    23: "SEND_CHANNEL_CREATION",
    24: "RECEIVE_CHANNEL_CREATION",
    25: "SEND_CHANNEL_CLOSE",
    26: "RECEIVE_CHANNEL_CLOSE",
    30: "CMD_IN_ADD_DESTINATION",
    31: "CMD_IN_REMOVE_DESTINATION",
    32: "CMD_IN_ADD_EXCLUSIVE_PUBLICATION",
    33: "CMD_OUT_EXCLUSIVE_PUBLICATION_READY",
    34: "CMD_OUT_ERROR",
    35: "CMD_IN_ADD_COUNTER",
    36: "CMD_IN_REMOVE_COUNTER",
    37: "CMD_OUT_SUBSCRIPTION_READY",
    38: "CMD_OUT_COUNTER_READY",
    39: "CMD_OUT_ON_UNAVAILABLE_COUNTER",
    40: "CMD_IN_CLIENT_CLOSE",
    41: "CMD_IN_ADD_RCV_DESTINATION",
    42: "CMD_IN_REMOVE_RCV_DESTINATION",
    43: "CMD_OUT_ON_CLIENT_TIMEOUT",
    44: "CMD_IN_TERMINATE_DRIVER",
    45: "UNTETHERED_SUBSCRIPTION_STATE_CHANGE",
    46: "NAME_RESOLUTION_NEIGHBOR_ADDED",
    47: "NAME_RESOLUTION_NEIGHBOR_REMOVED",
    48: "FLOW_CONTROL_RECEIVER_ADDED",
    49: "FLOW_CONTROL_RECEIVER_REMOVED",
    50: "NAME_RESOLUTION_RESOLVE",
    51: "GENERIC_MESSAGE",
    52: "NAME_RESOLUTION_LOOKUP",
    53: "NAME_RESOLUTION_HOST_NAME",
    54: "NAK_SENT",
    55: "RESEND",
    56: "CMD_IN_REMOVE_DESTINATION_BY_ID",
    57: "CMD_IN_REJECT_IMAGE",
    58: "NAK_RECEIVED",
    59: "PUBLICATION_REVOKE",
    60: "PUBLICATION_IMAGE_REVOKE",
}
FRAMES = frozenset({"FRAME_IN", "FRAME_OUT"})
# Events that only the sockets can log, at a cost per datagram.
AT_THE_SOCKETS = FRAMES | {"NAK_SENT", "NAK_RECEIVED"}
# Commands and responses whose event name doesn't follow from the class name.
IRREGULAR = {
    "ClientKeepalive": "CMD_IN_KEEPALIVE_CLIENT",
    "AddReceiveDestination": "CMD_IN_ADD_RCV_DESTINATION",
    "RemoveReceiveDestination": "CMD_IN_REMOVE_RCV_DESTINATION",
    "OnOperationSuccess": "CMD_OUT_ON_OPERATION_SUCCESS",
    "OnUnavailableImage": "CMD_OUT_ON_UNAVAILABLE_IMAGE",
    "OnUnavailableCounter": "CMD_OUT_ON_UNAVAILABLE_COUNTER",
    "OnClientTimeout": "CMD_OUT_ON_CLIENT_TIMEOUT",
}
EVERY_EVENT_FROM = 0xFFFF  # an old-style mask of at least this value means all events


def record_event(name: str) -> str:
    """Return the event name for a command or response class name such as ``AddPublication``."""
    if name in IRREGULAR:
        return IRREGULAR[name]
    side, rest = ("OUT", name[2:]) if name.startswith("On") else ("IN", name)
    return f"CMD_{side}_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", rest).upper()


def known_events() -> set[str]:
    """Return every event that can be logged: the reference's, and those for commands and responses without one there."""
    records = [*commands.COMMANDS.values(), *responses.RESPONSES.values()]
    return set(NUMBERS.values()) | {record_event(kind.__name__) for kind in records}


def chosen_events(text: str, *, setting: str) -> set[str]:
    """Return the events that a setting selects. Raises ConfigurationError.

    The setting is a comma-separated list of names, numbers, ``all``, and ``admin`` (all but frames).
    """
    known = known_events()
    chosen: set[str] = set()
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name.lower() == "all" or _is_full_mask(name):
            chosen |= known
        elif name.lower() == "admin":
            chosen |= known - FRAMES
        elif name.upper() in known:
            chosen.add(name.upper())
        elif name.isdecimal() and int(name) in NUMBERS:
            chosen.add(NUMBERS[int(name)])
        else:
            raise ConfigurationError(
                f"{setting}: {name!r} is not a known event ({', '.join(sorted(known))}, an event number, all or admin)"
            )
    return chosen


def _is_full_mask(text: str) -> bool:
    try:
        return text.lower().startswith("0x") and int(text, 16) >= EVERY_EVENT_FROM
    except ValueError:
        return False
