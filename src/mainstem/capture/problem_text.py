"""Texts for the problems that compiled code detects, indexed by their REASON_ numbers."""

PASSED = (
    "of a link type that is not known",
    "not IP",
    "of another IP protocol than UDP or TCP",
    "UDP without Aeron's frames",
    "UDP captured too short for a frame's header",
    "TCP of other ports",
    "TCP segments that completed no frame",
    "IP fragments that completed no packet",
)
"""Why packets have no row, indexed by the PASSED_ numbers of ``_core.capture.layout``."""

REASONS = (
    "",
    "fewer than 8 bytes remain for a frame",
    "the version is not 0",
    "unknown frame type",
    "the frame's length is impossible",
    "the datagram is shorter than a frame of this type",
    "the frame is longer than its datagram",
    "the datagram was captured only in part: its other frames are unknown",
    "the packet was captured without its whole headers",
    "the packet's headers contradict one another",
    "unknown bymux packet",
    "unknown Jmux message",
    "the packet is longer than 2**63 - 1 bytes",
    "the datagram has more frames than one batch has rows",
    "heartbeat",
)
