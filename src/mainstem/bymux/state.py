"""bymux's rules about the order of packets, as tables.

Each endpoint has one half of every stream, and one half of the connection as a whole. The packets that an endpoint may send
depend only on its own half, so one table serves both directions: before sending, it gives the rule that forbids the packet here,
and on receipt, the rule that the peer broke. A stream has ended when both of its halves are ``DONE``.
"""

from __future__ import annotations

from enum import IntEnum

from mainstem.bymux.codec import Packet
from mainstem.mux.engine import Rule


class HalfState(IntEnum):
    """The state of one endpoint's half: whether it has sent Close (bit 0) and StopRead (bit 1)."""

    OPEN = 0
    CLOSED = 1
    STOPPED = 2
    DONE = 3


WRITE_AFTER_CLOSE = Rule("write-after-close")
CLOSE_AFTER_CLOSE = Rule("close-after-close")
CREDIT_AFTER_STOP_READ = Rule("credit-after-stop-read")
STOP_READ_AFTER_STOP_READ = Rule("stop-read-after-stop-read")
PING_AFTER_BOTH = Rule("ping-after-close-and-stop-read")
PONG_AFTER_BOTH = Rule("pong-after-close-and-stop-read")

OPEN, CLOSED, STOPPED, DONE = HalfState

# For each packet that an endpoint sends, its half afterward, or the rule that forbids the packet, by its half before: OPEN,
# CLOSED, STOPPED, DONE. For the connection's half, Write means creating a stream and Credit means credit for creating streams.
ROWS: dict[Packet, tuple[HalfState | Rule, ...]] = {
    Packet.CREDIT: (OPEN, CLOSED, CREDIT_AFTER_STOP_READ, CREDIT_AFTER_STOP_READ),
    Packet.WRITE: (OPEN, WRITE_AFTER_CLOSE, STOPPED, WRITE_AFTER_CLOSE),
    Packet.PING: (OPEN, CLOSED, STOPPED, PING_AFTER_BOTH),
    Packet.PONG: (OPEN, CLOSED, STOPPED, PONG_AFTER_BOTH),
    Packet.CLOSE: (CLOSED, CLOSE_AFTER_CLOSE, DONE, CLOSE_AFTER_CLOSE),
    Packet.STOP_READ: (STOPPED, DONE, STOP_READ_AFTER_STOP_READ, STOP_READ_AFTER_STOP_READ),
}

# The packet that must follow a received one, by the local half; None if none is due, or none is allowed any more.
RESPONSE_ROWS: dict[Packet, tuple[Packet | None, ...]] = {
    Packet.PING: (Packet.PONG, Packet.PONG, Packet.PONG, None),
    Packet.CLOSE: (Packet.STOP_READ, Packet.STOP_READ, None, None),
    Packet.STOP_READ: (Packet.CLOSE, None, Packet.CLOSE, None),
}

# The same tables indexed by position, NEXT[half][packet] and RESPONSE[half][packet], for the code that runs for every packet.
NEXT: tuple[tuple[HalfState | Rule, ...], ...] = tuple(
    tuple(ROWS[packet][half] for packet in Packet) for half in HalfState
)
RESPONSE: tuple[tuple[Packet | None, ...], ...] = tuple(
    tuple(RESPONSE_ROWS.get(packet, (None,) * 4)[half] for packet in Packet) for half in HalfState
)


class Role(IntEnum):
    """One of the two ends of a connection. The value is the lowest bit of the ids that this end can create."""

    PROACTIVE = 0
    REACTIVE = 1

    @property
    def peer(self) -> Role:
        """The other end's role."""
        return Role(1 - self)
