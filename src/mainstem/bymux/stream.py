"""One stream's state at one end (docs/protocols/bymux.md, 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core.mux.queues import OutQueue
from mainstem.bymux.state import HalfState

if TYPE_CHECKING:
    from collections import deque

    from mainstem.mux.heartbeat import Heartbeat


class StreamState:
    """The handle of one stream (docs/protocols/bymux.md, 8). It stays valid after the stream ended and its id went to another one.

    All attributes but ``owner`` are read-only for users.

    Attributes:
        id: The id on the wire.
        local: This end's half.
        peer: The peer's half.
        send_credit: Bytes that this end may send.
        receive_credit: Bytes that the peer may send, in this end's view.
        sent: Bytes that were given to the transport.
        unconsumed: Bytes handed out and not yet consumed.
        abandoned: Whether the peer sent StopRead before Close, and nothing in between.
        ended: Whether both halves are done.
        owner: Free for the driver of the engine; :class:`~mainstem.bymux.aio.Connection` has a weak reference to its stream here.
    """

    __slots__ = (
        "abandoned",
        "close_wanted",
        "created_here",
        "discarding",
        "ended",
        "grant_due",
        "heartbeat",
        "held",
        "id",
        "local",
        "notify_below",
        "owner",
        "peer",
        "pings",
        "queue",
        "receive_credit",
        "released",
        "restorable",
        "scheduled",
        "send_credit",
        "sent",
        "unconsumed",
    )

    def __init__(self, stream_id: int, *, send_credit: int, receive_credit: int, created_here: bool) -> None:
        self.id = stream_id
        self.local = HalfState.OPEN
        self.peer = HalfState.OPEN
        self.send_credit = send_credit
        self.receive_credit = receive_credit
        self.created_here = created_here
        self.queue = OutQueue()
        self.sent = 0
        self.abandoned = False
        self.close_wanted = False
        self.discarding = False
        self.ended = False
        self.released = False
        self.scheduled = False
        self.grant_due = False
        self.held = False
        self.restorable = 0
        self.unconsumed = 0
        self.notify_below = -1
        self.pings: deque[int] | None = None
        self.heartbeat: Heartbeat | None = None
        self.owner: Any = None

    @property
    def queued(self) -> int:
        """Bytes that wait for credit or for their turn."""
        return self.queue.size

    def __repr__(self) -> str:
        return (
            f"<bymux stream {self.id}: local {self.local.name}, peer {self.peer.name}, credit {self.send_credit} to send and "
            f"{self.receive_credit} to receive, {self.queue.size} bytes queued>"
        )
