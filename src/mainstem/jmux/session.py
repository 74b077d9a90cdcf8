"""One session's state at one end."""

from __future__ import annotations

from typing import Any

from mainstem._core.mux.queues import OutQueue
from mainstem.errors import Delivery
from mainstem.jmux.state import Acknowledgment, HalfState

# Stands for an infinite ration: no sum of 31-bit increments reaches it.
INFINITE = 1 << 62


class Session:
    """The handle of one session: one request and its response.

    All attributes but ``processing`` and ``owner`` are read-only for users.

    Attributes:
        id: The id on the wire.
        client: The client's half.
        server: The server's half.
        outbound: Bytes that this end may send.
        inbound: Bytes that the peer may send, in this end's view.
        sent: Bytes that were given to the transport.
        unsent: Bytes that were queued when the session ended abruptly, and dropped.
        unconsumed: Bytes handed out and not yet consumed.
        response_complete: Client: whether the whole response was received.
        response_sent: Server: whether the whole response was sent.
        processing: To be set once an application has seen any of the request: from then on the server can no longer
            guarantee that nothing was processed.
        owner: Free for the driver of the engine; a connection under asyncio has a weak reference to its stream here.
    """

    client = HalfState.NONE
    server = HalfState.NONE
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
        """Bytes that wait for a ration or for their turn."""
        return self.queue.size

    @property
    def delivery(self) -> Delivery:
        """Client: whether the server may have processed the request, by what is known now."""
        if self.response_complete:
            return Delivery.COMPLETE
        if self.untouched or self.client is HalfState.NONE:
            return Delivery.NONE
        return Delivery.PARTIAL

    @property
    def may_retry(self) -> bool:
        """Client: whether sending the request again cannot make the server execute it twice."""
        return self.delivery is Delivery.NONE

    def __repr__(self) -> str:
        return (
            f"<jmux session {self.id}: client {self.client.name}, server {self.server.name}, rations {self.outbound} out and "
            f"{self.inbound} in, {self.queue.size} bytes queued>"
        )
