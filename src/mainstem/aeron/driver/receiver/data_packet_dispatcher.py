"""The sessions of an endpoint's subscribed streams (docs/protocols/aeron.md, 15.1).

Theory of operation
-------------------
The compiled receive path finds a datagram's image by session and stream. It drops malformed SETUPs, and data and SETUPs of
streams without a subscription. It reports the other SETUPs, and once per batch the data of sessions without an image, except data
that ends its stream. The receiver itself handles sessions that have an image. For each other (stream, session), the dispatcher
decides whether to request a SETUP, create an image, or ignore the session for a while.

The dispatcher owns two tables of the compiled endpoint. ``interests`` holds the streams with a subscription to any of their
sessions, because a subscription may name one session. Which sessions are subscribed to, only the dispatcher knows
(``has_subscription``). ``silences`` holds the sessions that the dispatcher has decided about, with the time until which the
compiled path doesn't report their data again. Each entry of ``_sessions`` has an entry in ``silences`` with the same time.

A session without an image is in one of these states, or in none:

  none ──data──► PENDING_SETUP ──SETUP──► INIT_IN_PROGRESS ──image created──► none: the compiled path now finds the image
    │                                        └──conductor refused──► none
    ├──data or SETUP of a session without a subscription──► NO_INTEREST, until a subscription to the stream is added
    ├──the endpoint filter refused the source──► REFUSED: data is ignored for a second, SETUPs are not
    └──image removed──► COOL_DOWN: late data must not create the image again

Every state except NO_INTEREST times out in ``on_time``. Data, SETUPs and the conductor's messages can arrive in any order.
INIT_IN_PROGRESS prevents a second image. Senders repeat SETUPs that were ignored.

Only the receiver's thread uses the dispatcher. It remembers at most MAX_SESSIONS sessions that never had an image, and
MAX_COOL_DOWNS that had one, so a flood of forged sessions cannot evict those that cool down. A full table forgets its oldest
session, except those whose images are being created, which ``ImageLimiter`` limits to fewer than MAX_SESSIONS.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from mainstem._core.driver.receive_path import Silence
from mainstem._internal.clock import NEVER_NS

if TYPE_CHECKING:
    from mainstem._core.driver.receive_path import ReceiveEndpointCore

PENDING_SETUP_TIMEOUT_NS = 1_000_000_000
# The conductor responds within milliseconds. If it never does, the next SETUP after this time starts over.
CREATION_TIMEOUT_NS = 10_000_000_000
# Limit on remembered sessions without an image, so that a flood of forged sessions cannot grow memory.
MAX_SESSIONS = 1_024
# Limit on sessions in COOL_DOWN, which lasts forever if the subscription has rejoin=false.
MAX_COOL_DOWNS = 1_024

Session = tuple[int, int]


class SessionState(Enum):
    PENDING_SETUP = "a SETUP was requested"
    INIT_IN_PROGRESS = "the conductor makes the image"
    COOL_DOWN = "the image was removed a moment ago"
    NO_INTEREST = "no subscription has this session"
    REFUSED = "the endpoint filter refused its address"


# States in which a SETUP leads to an image.
ACCEPTS_SETUP = (SessionState.PENDING_SETUP, SessionState.REFUSED)


class _Interest:
    __slots__ = ("every", "sessions")

    def __init__(self) -> None:
        self.every = False
        self.sessions: set[int] = set()

    def includes(self, session_id: int) -> bool:
        return self.every or session_id in self.sessions


class DataPacketDispatcher:
    """The subscribed sessions of one endpoint, and the decisions about sessions without an image."""

    def __init__(self, core: ReceiveEndpointCore) -> None:
        self._core = core
        self._streams: dict[int, _Interest] = {}
        self._sessions: dict[Session, tuple[SessionState, int]] = {}
        self._cool_downs: dict[Session, tuple[SessionState, int]] = {}

    @property
    def has_interest(self) -> bool:
        return bool(self._streams)

    def state(self, stream_id: int, session_id: int) -> SessionState | None:
        entry = self._entry(stream_id, session_id)
        return None if entry is None else entry[0]

    def _entry(self, stream_id: int, session_id: int) -> tuple[SessionState, int] | None:
        key = (stream_id, session_id)
        return self._sessions.get(key) or self._cool_downs.get(key)

    def has_subscription(self, stream_id: int, session_id: int) -> bool:
        interest = self._streams.get(stream_id)
        return interest is not None and interest.includes(session_id)

    def add_subscription(self, stream_id: int, session_id: int | None) -> None:
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
            for session in [each for each in (*self._sessions, *self._cool_downs) if each[0] == stream_id]:
                self.forget(*session)

    def on_unknown(self, stream_id: int, session_id: int, now_ns: int) -> bool:
        """Handle data of a session without an image; return whether to request a SETUP."""
        if not self.has_subscription(stream_id, session_id):
            self._enter(stream_id, session_id, SessionState.NO_INTEREST, NEVER_NS)
            return False
        entry = self._entry(stream_id, session_id)
        if entry is not None and now_ns < entry[1]:
            return False
        self._enter(stream_id, session_id, SessionState.PENDING_SETUP, now_ns + PENDING_SETUP_TIMEOUT_NS)
        return True

    def on_setup(self, stream_id: int, session_id: int, now_ns: int) -> bool:
        """Handle a SETUP of a session without an image; return whether to create the image."""
        if not self.has_subscription(stream_id, session_id):
            self._enter(stream_id, session_id, SessionState.NO_INTEREST, NEVER_NS)
            return False
        entry = self._entry(stream_id, session_id)
        if entry is not None and now_ns < entry[1] and entry[0] not in ACCEPTS_SETUP:
            return False
        self._enter(stream_id, session_id, SessionState.INIT_IN_PROGRESS, now_ns + CREATION_TIMEOUT_NS)
        return True

    def on_refused(self, stream_id: int, session_id: int, now_ns: int) -> None:
        """Ignore data of a session that the endpoint filter refused, for a while. Don't ignore SETUPs from any source."""
        self._enter(stream_id, session_id, SessionState.REFUSED, now_ns + PENDING_SETUP_TIMEOUT_NS)

    def cool_down(self, stream_id: int, session_id: int, until_ns: int) -> None:
        self._enter(stream_id, session_id, SessionState.COOL_DOWN, until_ns)

    def forget(self, stream_id: int, session_id: int) -> None:
        for table in (self._sessions, self._cool_downs):
            if table.pop((stream_id, session_id), None) is not None:
                self._core.silences.remove(session_id, stream_id)

    def on_time(self, now_ns: int) -> None:
        for table in (self._sessions, self._cool_downs):
            for session in [each for each, (_, until_ns) in table.items() if now_ns >= until_ns]:
                self.forget(*session)

    def _enter(self, stream_id: int, session_id: int, state: SessionState, until_ns: int) -> None:
        ended = state is SessionState.COOL_DOWN
        table, limit = (self._cool_downs, MAX_COOL_DOWNS) if ended else (self._sessions, MAX_SESSIONS)
        self.forget(stream_id, session_id)
        if len(table) >= limit:
            # Without its entry, the next SETUP of a session in INIT_IN_PROGRESS would create a second image.
            in_progress = SessionState.INIT_IN_PROGRESS
            self.forget(*next(each for each, (old, _) in table.items() if old is not in_progress))
        table[stream_id, session_id] = (state, until_ns)
        self._core.silences.put(session_id, stream_id, Silence(until_ns))

    def _forget_where(self, stream_id: int, state: SessionState) -> None:
        for session in [each for each, entry in self._sessions.items() if each[0] == stream_id and entry[0] is state]:
            self.forget(*session)
