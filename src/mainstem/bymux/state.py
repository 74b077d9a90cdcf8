"""The rules of bymux about what may follow what, as tables.

Each endpoint has one half of every stream, and one half of the connection as a whole. What an endpoint may send depends on
its own half only, so one table serves both directions: before sending it yields the rule that forbids the packet here, and when
receiving it yields the rule that the peer broke. A stream has ended when both of its halves are ``DONE``.
"""

from __future__ import annotations

from enum import IntEnum

from mainstem.bymux.codec import Packet
from mainstem.mux.engine import Rule


class HalfState(IntEnum):
    """One endpoint's half: whether it has sent Close (bit 0) and StopRead (bit 1)."""

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

# (half of the sender, packet it sends) -> the half afterwards, or the rule that forbids it.
# For the connection's half, Write means creating a stream and Credit means credit for creating streams.
SENDS: dict[tuple[HalfState, Packet], HalfState | Rule] = {
    (OPEN, Packet.CREDIT): OPEN,
    (OPEN, Packet.WRITE): OPEN,
    (OPEN, Packet.PING): OPEN,
    (OPEN, Packet.PONG): OPEN,
    (OPEN, Packet.CLOSE): CLOSED,
    (OPEN, Packet.STOP_READ): STOPPED,
    (CLOSED, Packet.CREDIT): CLOSED,
    (CLOSED, Packet.WRITE): WRITE_AFTER_CLOSE,
    (CLOSED, Packet.PING): CLOSED,
    (CLOSED, Packet.PONG): CLOSED,
    (CLOSED, Packet.CLOSE): CLOSE_AFTER_CLOSE,
    (CLOSED, Packet.STOP_READ): DONE,
    (STOPPED, Packet.CREDIT): CREDIT_AFTER_STOP_READ,
    (STOPPED, Packet.WRITE): STOPPED,
    (STOPPED, Packet.PING): STOPPED,
    (STOPPED, Packet.PONG): STOPPED,
    (STOPPED, Packet.CLOSE): DONE,
    (STOPPED, Packet.STOP_READ): STOP_READ_AFTER_STOP_READ,
    (DONE, Packet.CREDIT): CREDIT_AFTER_STOP_READ,
    (DONE, Packet.WRITE): WRITE_AFTER_CLOSE,
    (DONE, Packet.PING): PING_AFTER_BOTH,
    (DONE, Packet.PONG): PONG_AFTER_BOTH,
    (DONE, Packet.CLOSE): CLOSE_AFTER_CLOSE,
    (DONE, Packet.STOP_READ): STOP_READ_AFTER_STOP_READ,
}

# (our own half, packet received) -> the packet that must follow, or None where none is due (or none is allowed any more).
RESPONSES: dict[tuple[HalfState, Packet], Packet | None] = {
    (OPEN, Packet.CLOSE): Packet.STOP_READ,
    (CLOSED, Packet.CLOSE): Packet.STOP_READ,
    (STOPPED, Packet.CLOSE): None,
    (DONE, Packet.CLOSE): None,
    (OPEN, Packet.STOP_READ): Packet.CLOSE,
    (CLOSED, Packet.STOP_READ): None,
    (STOPPED, Packet.STOP_READ): Packet.CLOSE,
    (DONE, Packet.STOP_READ): None,
    (OPEN, Packet.PING): Packet.PONG,
    (CLOSED, Packet.PING): Packet.PONG,
    (STOPPED, Packet.PING): Packet.PONG,
    (DONE, Packet.PING): None,
}

# The same tables by position: NEXT[half][packet] and RESPONSE[half][packet], for the path that runs once a packet.
NEXT: tuple[tuple[HalfState | Rule, ...], ...] = tuple(
    tuple(SENDS[half, packet] for packet in Packet) for half in HalfState
)
RESPONSE: tuple[tuple[Packet | None, ...], ...] = tuple(
    tuple(RESPONSES.get((half, packet)) for packet in Packet) for half in HalfState
)


class Role(IntEnum):
    """Which end of the connection; the value is the lowest bit of the ids that this end may create."""

    PROACTIVE = 0
    REACTIVE = 1

    @property
    def peer(self) -> Role:
        """The other end's role."""
        return Role(1 - self)
