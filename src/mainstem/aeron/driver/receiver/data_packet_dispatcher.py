"""Which sessions of which streams an endpoint wants, and what is under way for each (behaviour, 15.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from mainstem._core.driver.receive_path import Silence
from mainstem.clock import NEVER_NS

if TYPE_CHECKING:
    from mainstem._core.driver.receive_path import ReceiveEndpoint

PENDING_SETUP_TIMEOUT_NS = 1_000_000_000
# The conductor answers in milliseconds; if it never does, the next SETUP asks again.
CREATION_TIMEOUT_NS = 10_000_000_000
# Sessions remembered without an image; a flood of made-up ones must not grow memory.
MAX_SESSIONS = 1_024

Session = tuple[int, int]


class SessionState(Enum):
    """What is under way for a session that has no image."""

    PENDING_SETUP = "a SETUP was asked for"
    INIT_IN_PROGRESS = "the conductor makes the image"
    COOL_DOWN = "the image was removed a moment ago"
    NO_INTEREST = "no subscription wants this session"
    REFUSED = "the endpoint filter refused its address"


# What does not keep a SETUP from having an image made.
WELCOME = (SessionState.PENDING_SETUP, SessionState.REFUSED)


@dataclass(slots=True)
class _Interest:
    """The subscriptions of one stream: to every session, or to some."""

    every: bool = False
    sessions: set[int] = field(default_factory=set)

    def wants(self, session_id: int) -> bool:
        return self.every or session_id in self.sessions


class Dispatcher:
    """The interest of one endpoint, kept in its compiled tables so that they report only what needs a decision."""

    def __init__(self, core: ReceiveEndpoint, *, session_limit: int = 0x7FFFFFFF) -> None:
        self._core = core
        self._session_limit = session_limit
        self._streams: dict[int, _Interest] = {}
        self._sessions: dict[Session, tuple[SessionState, int]] = {}

    @property
    def has_interest(self) -> bool:
        """Whether any stream is subscribed to."""
        return bool(self._streams)

    def state(self, stream_id: int, session_id: int) -> SessionState | None:
        """What is under way for a session, None for nothing."""
        entry = self._sessions.get((stream_id, session_id))
        return None if entry is None else entry[0]

    def wants(self, stream_id: int, session_id: int) -> bool:
        """Whether a subscription is there for the session."""
        interest = self._streams.get(stream_id)
        return interest is not None and interest.wants(session_id)

    def add_subscription(self, stream_id: int, session_id: int | None) -> None:
        """Interest in one session, or with None in all of a stream."""
        interest = self._streams.get(stream_id)
        if interest is None:
            interest = self._streams[stream_id] = _Interest()
            self._core.interests.put(stream_id, 0, stream_id)
        if session_id is None:
            interest.every = True
        else:
            interest.sessions.add(session_id)
        self._forget_where(stream_id, SessionState.NO_INTEREST)

    def remove_subscription(self, stream_id: int, session_id: int | None) -> None:
        """The interest of that kind is gone."""
        interest = self._streams.get(stream_id)
        if interest is None:
            return
        if session_id is None:
            interest.every = False
        else:
            interest.sessions.discard(session_id)
        if not interest.every and not interest.sessions:
            del self._streams[stream_id]
            self._core.interests.remove(stream_id, 0)
            for session in [each for each in self._sessions if each[0] == stream_id]:
                self.forget(*session)

    def on_unknown(self, stream_id: int, session_id: int, now_ns: int) -> bool:
        """Data of a session without an image: whether to ask for a SETUP."""
        if not self.wants(stream_id, session_id):
            self._enter(stream_id, session_id, SessionState.NO_INTEREST, NEVER_NS)
            return False
        entry = self._sessions.get((stream_id, session_id))
        if entry is not None and now_ns < entry[1]:
            return False
        self._enter(stream_id, session_id, SessionState.PENDING_SETUP, now_ns + PENDING_SETUP_TIMEOUT_NS)
        return True

    def on_setup(self, stream_id: int, session_id: int, now_ns: int, *, images: int) -> bool:
        """A SETUP of a session without an image: whether to have one made. ``images``: of this stream, so far."""
        if not self.wants(stream_id, session_id):
            self._enter(stream_id, session_id, SessionState.NO_INTEREST, NEVER_NS)
            return False
        entry = self._sessions.get((stream_id, session_id))
        if entry is not None and now_ns < entry[1] and entry[0] not in WELCOME:
            return False
        if images >= self._session_limit:
            return False
        self._enter(stream_id, session_id, SessionState.INIT_IN_PROGRESS, now_ns + CREATION_TIMEOUT_NS)
        return True

    def on_refused(self, stream_id: int, session_id: int, now_ns: int) -> None:
        """The filter refused it: its data is not mentioned for a while. A SETUP is, whoever sends it."""
        self._enter(stream_id, session_id, SessionState.REFUSED, now_ns + PENDING_SETUP_TIMEOUT_NS)

    def cool_down(self, stream_id: int, session_id: int, until_ns: int) -> None:
        """The image was removed: its session is not welcome until then."""
        self._enter(stream_id, session_id, SessionState.COOL_DOWN, until_ns)

    def forget(self, stream_id: int, session_id: int) -> None:
        """Nothing is under way for that session."""
        if self._sessions.pop((stream_id, session_id), None) is not None:
            self._core.silences.remove(session_id, stream_id)

    def on_time(self, now_ns: int) -> None:
        """Forgets what has expired."""
        for session in [each for each, (_, until_ns) in self._sessions.items() if now_ns >= until_ns]:
            self.forget(*session)

    def _enter(self, stream_id: int, session_id: int, state: SessionState, until_ns: int) -> None:
        key = (stream_id, session_id)
        if key not in self._sessions and len(self._sessions) >= MAX_SESSIONS:
            # The oldest that nobody waits for makes room.
            for session, (old, _) in self._sessions.items():
                if old in (SessionState.NO_INTEREST, *WELCOME):
                    self.forget(*session)
                    break
            else:
                return
        self._sessions[key] = (state, until_ns)
        self._core.silences.put(session_id, stream_id, Silence(until_ns))

    def _forget_where(self, stream_id: int, state: SessionState) -> None:
        for session in [each for each, entry in self._sessions.items() if each[0] == stream_id and entry[0] is state]:
            self.forget(*session)
