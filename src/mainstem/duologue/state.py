"""The life of a server's duologue: which state follows which, and when time alone moves it on.

See docs/protocols/duologue.md, 4.3 and 4.4.
"""

from __future__ import annotations

from enum import Enum

from mainstem.errors import InternalError


class DuologueState(Enum):
    """Where a duologue is."""

    OPENING = "its publication and subscription are being made"
    WAITING = "the client has its address and has not joined"
    JOINED = "the client is there"
    LEFT = "the client has gone"
    CLOSING = "the last message is on its way"
    CLOSED = "everything is released"


SUCCESSORS: dict[DuologueState, frozenset[DuologueState]] = {
    DuologueState.OPENING: frozenset({DuologueState.WAITING, DuologueState.CLOSED}),
    DuologueState.WAITING: frozenset({DuologueState.JOINED, DuologueState.CLOSED}),
    DuologueState.JOINED: frozenset({DuologueState.LEFT, DuologueState.CLOSING, DuologueState.CLOSED}),
    DuologueState.LEFT: frozenset({DuologueState.CLOSED}),
    DuologueState.CLOSING: frozenset({DuologueState.CLOSED}),
    DuologueState.CLOSED: frozenset(),
}


class Lifetime:
    """A duologue's state and its deadlines, all in nanoseconds; ``idle_ns`` None never times out.

    ``on_time_event`` returns why the duologue must end now, or nothing.
    """

    def __init__(self, *, join_ns: int, left_ns: int, idle_ns: int | None, closing_ns: int, now_ns: int) -> None:
        self.state = DuologueState.OPENING
        self._join_ns = join_ns
        self._left_ns = left_ns
        self._idle_ns = idle_ns
        self._closing_ns = closing_ns
        self.since_ns = now_ns
        self._heard_ns = now_ns

    def move(self, state: DuologueState, now_ns: int) -> None:
        """Move to a state that may follow. Raises InternalError for any other."""
        if state not in SUCCESSORS[self.state]:
            raise InternalError(f"a duologue does not go from {self.state.name} to {state.name}")
        self.state = state
        self.since_ns = self._heard_ns = now_ns

    def heard(self, now_ns: int) -> None:
        """Note that the client sent something."""
        self._heard_ns = now_ns

    def on_time_event(self, now_ns: int) -> str:
        """Return why it must end, in a few words; empty while it may go on."""
        elapsed_ns = now_ns - self.since_ns
        match self.state:
            case DuologueState.OPENING if elapsed_ns >= self._join_ns:
                return "the driver did not make it in time"
            case DuologueState.WAITING if elapsed_ns >= self._join_ns:
                return "nobody joined"
            case DuologueState.LEFT if elapsed_ns >= self._left_ns:
                return "everybody left"
            case DuologueState.CLOSING if elapsed_ns >= self._closing_ns:
                return "closed by the server"
            case DuologueState.JOINED if self._idle_ns is not None and now_ns - self._heard_ns >= self._idle_ns:
                return "idle for too long"
        return ""
