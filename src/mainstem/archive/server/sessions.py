"""The control sessions of an archive: which connect requests get one, and which sessions make way.

A connect request makes the driver create a publication and a counter, before its client has proved anything. So each of these is
limited, as at the servers of other protocols (``_internal.admission``):

* the sessions in total, from one address, and over one publication of requests. If there is no room, the oldest session that has
  not authenticated makes way.
* the connect requests per second, in total and from one address. Clients that authenticate get theirs back.

Clients over IPC can write the driver's directory already. They count only toward the total of sessions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from mainstem._internal.admission import Admission
from mainstem._internal.log_throttle import LogThrottle
from mainstem.aeron.admission import ALL_SOURCES, RateLimit
from mainstem.aeron.channel import ChannelUri
from mainstem.archive.channels import response_channel
from mainstem.archive.server.control_session import ControlSession
from mainstem.archive.server.counters import session_counter
from mainstem.archive.server.duty_cycle import step_each
from mainstem.archive.server.host_lookups import Lookups
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.client import Aeron
    from mainstem.archive.messages import Message
    from mainstem.archive.server.access import Authenticator
    from mainstem.archive.server.duty_cycle import DutyCycle
    from mainstem.archive.server.refused_requests import RefusedRequests
    from mainstem.archive.server.settings import ArchiveSettings

MAX_SESSIONS_OF_IMAGE = 8  # control sessions over one request publication; official clients open one


class ControlSessions:
    """The open control sessions, by id."""

    def __init__(
        self,
        aeron: Aeron,
        settings: ArchiveSettings,
        authenticator: Authenticator,
        cycle: DutyCycle,
        refused: RefusedRequests,
        random_bits: Callable[[int], int],
    ) -> None:
        self._aeron, self._settings, self._authenticator = aeron, settings, authenticator
        self._cycle, self._refused = cycle, refused
        self._lookups = Lookups(aeron.counters)
        self._next_id = random_bits(31)
        self._sessions: dict[int, ControlSession] = {}
        most, of_address = settings.max_control_sessions, settings.max_control_sessions_per_address
        self._places: Admission[ControlSession] = Admission(
            max_connections=most, max_connections_per_address=of_address
        )
        self._of_all, self._of_address = RateLimit(most, most), RateLimit(of_address, of_address)
        self._throttle = LogThrottle(logging.getLogger("mainstem.archive"))

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> ControlSession | None:
        return self._sessions.get(session_id)

    @property
    def dropped(self) -> int:
        """How many sessions have made way for others before they had authenticated."""
        return self._places.dropped_silent

    def take_id(self) -> int:
        """Return the id of the next session or replication."""
        taken = self._next_id
        self._next_id = (taken + 1) % (1 << 63)
        return taken

    def connect(self, request: Message, length: int, image: Any) -> None:
        """Open a session, or refuse the request. ``length`` is the number of bytes that the client has sent for it."""
        session_id = self.take_id()
        try:
            limit = self._connect(session_id, request, length, image)
        except MainstemError as error:
            self._refused.note("connect", image, f"connect request: {error}")
            return
        if limit:
            self._refused.note(limit, image, _refusal_of(limit, self._settings))

    def _connect(self, session_id: int, request: Message, length: int, image: Any) -> str:
        """Open a session. Return the limit that refuses the request, if any. Raises MainstemError if the request is invalid."""
        if sum(session.image is image for session in self._sessions.values()) >= MAX_SESSIONS_OF_IMAGE:
            # A single client must not be able to use up max_control_sessions.
            return "sessions of a client"
        settings = self._settings
        channel = response_channel(
            ChannelUri.parse(request.response_channel),
            image.correlation_id,
            term_length=settings.control_term_buffer_length,
            is_sparse=settings.control_term_buffer_sparse,
            mtu=settings.control_mtu_length,
        )
        session = ControlSession(
            self._aeron,
            settings,
            self._authenticator,
            session_id=session_id,
            image=image,
            request=request,
            request_length=length,
            channel=channel,
            counter=session_counter(settings.id, session_id, request.client_info, image),
            lookups=self._lookups,
            log=self._log,
            on_close=self._leave,
            now_ns=self._cycle.now_ns,
        )
        if session.address and not self._takes_token(session.address, self._cycle.now_ns):
            return "connect rate"
        if not self._places.admit(session):
            return "sessions"
        self._sessions[session_id] = session
        return ""

    def _takes_token(self, address: str, now_ns: int) -> bool:
        return (
            self._of_address.has(address, now_ns)
            and self._of_all.take(ALL_SOURCES, now_ns)
            and self._of_address.take(address, now_ns)
        )

    def do_work(self) -> int:
        now_ns = self._cycle.now_ns
        busy = [session for session in self._sessions.values() if not session.is_quiet(now_ns)]
        return step_each(busy, self._step, lambda session, _text: session.close())

    def _step(self, session: ControlSession) -> int:
        if session.image.closed:
            session.close()
        was_proven = session.is_proven
        work = session.do_work(self._cycle.now_ns)
        if session.is_proven and not was_proven and session.address:
            self._of_address.give_back(session.address)
            self._of_all.give_back(ALL_SOURCES)
        if session.is_done:
            if session.rejects_image and not session.image.closed:
                session.image.async_reject(session.rejects_image)
            work += 1
        return work

    def close(self) -> None:
        self._cycle.run([session.close for session in self._sessions.values()])

    def _leave(self, session: ControlSession) -> None:
        self._sessions.pop(session.session_id, None)
        self._places.leave(session)

    def _log(self, kind: object, text: str) -> None:
        self._throttle.log(logging.WARNING, kind, text, self._cycle.now_ns)


def _refusal_of(limit: str, settings: ArchiveSettings) -> str:
    """Return the text for the log about a connect request that a limit has refused."""
    return {
        "sessions of a client": f"{MAX_SESSIONS_OF_IMAGE} sessions came by its publication",
        "connect rate": (
            "a connect request, after too many in a second by clients that have not authenticated (limits "
            f"max_control_sessions={settings.max_control_sessions} and "
            f"max_control_sessions_per_address={settings.max_control_sessions_per_address})"
        ),
        "sessions": (
            "all sessions that it could have are in use by authenticated clients (limits "
            f"max_control_sessions={settings.max_control_sessions} and "
            f"max_control_sessions_per_address={settings.max_control_sessions_per_address})"
        ),
    }[limit]
