"""The state of one stream at one end (docs/protocols/bymux.md, 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core.mux.queues import OutQueue
from mainstem.bymux.state import HalfState

if TYPE_CHECKING:
    from collections import deque

    from mainstem.mux.heartbeat import Heartbeat


class StreamState:
    """The handle of one stream. It stays valid after the stream has ended and its id is reused.

    All attributes except ``owner`` are read-only for users.

    Attributes:
        id: The stream's id on the wire.
        local: This end's half.
        peer: The peer's half.
        send_credit: Bytes that this end can send.
        receive_credit: Bytes that the peer can send, as far as this end knows.
        sent: Bytes that were passed to the transport.
        unconsumed: Bytes that were handed out but not consumed.
        abandoned: Whether the peer sent StopRead before Close and no data since.
        ended: Whether both halves are done.
        owner: For the engine's driver to use. :class:`~mainstem.bymux.aio.Connection` stores a weak reference to its stream here.
    """

    local = HalfState.OPEN
    peer = HalfState.OPEN
    abandoned = False
    close_wanted = False
    discarding = False
    ended = False
    released = False
    scheduled = False
    grant_due = False
    held = False
    sent = 0
    restorable = 0
    unconsumed = 0
    notify_below = -1
    pings: deque[int] | None = None
    timer_ns = -1  # when the connection's timer for the heartbeat is due; -1: there is none
    heartbeat: Heartbeat | None = None
    owner: Any = None

    def __init__(self, stream_id: int, *, send_credit: int, receive_credit: int, created_here: bool) -> None:
        self.id = stream_id
        self.send_credit = send_credit
        self.receive_credit = receive_credit
        self.created_here = created_here
        self.queue = OutQueue()

    @property
    def queued(self) -> int:
        """The number of bytes that are waiting for credit or for their turn."""
        return self.queue.size

    def __repr__(self) -> str:
        return (
            f"<bymux stream {self.id}: local {self.local.name}, peer {self.peer.name}, credit {self.send_credit} to send and "
            f"{self.receive_credit} to receive, {self.queue.size} bytes queued>"
        )
