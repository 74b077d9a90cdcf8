"""The life of a server's duologue: its states, and when time alone moves it on (docs/protocols/duologue.md, 4.3 and 4.4)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from mainstem._internal.clock import seconds_ns
from mainstem.errors import InternalError

if TYPE_CHECKING:
    from mainstem.duologue.settings import Settings


class DuologueState(Enum):
    OPENING = "its publication and subscription are being made"
    WAITING = "the client has its address and has not joined"
    JOINED = "the client is there"
    LEFT = "the client has gone"
    CLOSING = "the last message is on its way"
    CLOSED = "everything is released"


S = DuologueState

SUCCESSORS: dict[S, frozenset[S]] = {
    S.OPENING: frozenset({S.WAITING, S.CLOSED}),
    S.WAITING: frozenset({S.JOINED, S.CLOSED}),
    S.JOINED: frozenset({S.LEFT, S.CLOSING, S.CLOSED}),
    S.LEFT: frozenset({S.CLOSED}),
    S.CLOSING: frozenset({S.CLOSED}),
    S.CLOSED: frozenset(),
}

# The setting that limits each state, and why a duologue ends when that has passed.
LIMITS = {
    S.OPENING: ("join_timeout", "the driver did not make it in time"),
    S.WAITING: ("join_timeout", "nobody joined"),
    S.JOINED: ("idle_timeout", "idle for too long"),
    S.LEFT: ("left_timeout", "everybody left"),
    S.CLOSING: ("closing_timeout", "closed by the server"),
    S.CLOSED: ("closing_timeout", "the client was not heard to leave"),
}


class Lifetime:
    """A duologue's state and since when it holds, or when the client's last message arrived."""

    def __init__(self, settings: Settings, now_ns: int) -> None:
        self.state = S.OPENING
        self.since_ns = now_ns
        self._limits: dict[S, tuple[int, str]] = {}
        for state, (name, reason) in LIMITS.items():
            limit = getattr(settings, name)
            if limit is not None:
                self._limits[state] = seconds_ns(limit), reason

    def move(self, state: S, now_ns: int) -> None:
        """Move to a state that may follow. Raises InternalError for any other."""
        if state not in SUCCESSORS[self.state]:
            raise InternalError(f"a duologue does not go from {self.state.name} to {state.name}")
        self.state = state
        self.since_ns = now_ns

    def heard(self, now_ns: int) -> None:
        self.since_ns = now_ns

    def expired(self, now_ns: int) -> str:
        """Return why it must end, in a few words; empty if it may continue."""
        limit = self._limits.get(self.state)
        return limit[1] if limit is not None and now_ns - self.since_ns >= limit[0] else ""
