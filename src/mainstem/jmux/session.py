"""The state of one session at one end."""

from __future__ import annotations

from typing import Any

from mainstem._core.mux.queues import OutQueue
from mainstem.errors import Delivery
from mainstem.jmux.state import Acknowledgment, HalfState

# An infinite ration. No sum of 31-bit increments reaches it.
INFINITE = 1 << 62


class Session:
    """The handle of one session: one request and its response.

    All attributes except ``processing`` and ``owner`` are read-only for users.

    Attributes:
        id: The session's id on the wire.
        local: This end's half.
        peer: The peer's half.
        outbound: Bytes that this end can send.
        inbound: Bytes that the peer can send, as far as this end knows.
        sent: Bytes that were passed to the transport.
        unsent: Queued bytes that were dropped when the session ended abruptly.
        unconsumed: Bytes that were handed out but not consumed.
        response_complete: On a client, whether the whole response was received.
        response_sent: On a server, whether the whole response was sent.
        processing: The driver must set this once an application has seen any of the request. From then on the server can no
            longer guarantee that nothing was processed.
        owner: For the engine's driver to use. An asyncio connection stores a weak reference to its stream here.
    """

    local = HalfState.NONE
    peer = HalfState.NONE
    ack = Acknowledgment.NOT_REQUESTED
    ack_required = False
    eof_wanted = False
    close_wanted = False
    flush_wanted = False
    discarding = False
    ended = False
    failed = False
    processing = False
    response_complete = False
    response_sent = False
    untouched = False
    scheduled = False
    increment_due = False
    sent = 0
    unsent = 0
    unconsumed = 0
    notify_below = -1
    owner: Any = None

    def __init__(self, session_id: int, *, inbound: int, outbound: int) -> None:
        self.id = session_id
        self.inbound = inbound
        self.outbound = outbound
        self.queue = OutQueue()

    @property
    def queued(self) -> int:
        """The number of bytes that are waiting for a ration or for their turn."""
        return self.queue.size

    @property
    def delivery(self) -> Delivery:
        """Whether the server may have processed the request, as far as the client knows now."""
        if self.response_complete:
            return Delivery.COMPLETE
        if self.untouched or self.local is HalfState.NONE:
            return Delivery.NONE
        return Delivery.PARTIAL

    @property
    def may_retry(self) -> bool:
        """Whether the client can be certain that sending the request again does not make the server execute it twice."""
        return self.delivery is Delivery.NONE

    def __repr__(self) -> str:
        return (
            f"<jmux session {self.id}: local {self.local.name}, peer {self.peer.name}, rations {self.outbound} out and "
            f"{self.inbound} in, {self.queue.size} bytes queued>"
        )
