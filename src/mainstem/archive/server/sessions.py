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
from mainstem.archive.server.channels import response_channel
from mainstem.archive.server.control_session import ControlSession
from mainstem.archive.server.counters import session_counter
from mainstem.archive.server.lookups import Lookups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.aeron.client import Aeron
    from mainstem.archive.messages import Message
    from mainstem.archive.server.access import Authenticator
    from mainstem.archive.server.settings import ArchiveSettings

MAX_SESSIONS_OF_IMAGE = 8  # control sessions over one request publication; official clients open one


class ControlSessions:
    """The open control sessions, by id."""

    def __init__(
        self, aeron: Aeron, settings: ArchiveSettings, authenticator: Authenticator, lookups: Lookups | None = None
    ) -> None:
        self._aeron, self._settings, self._authenticator = aeron, settings, authenticator
        self._lookups = lookups or Lookups(aeron.counters)
        self._sessions: dict[int, ControlSession] = {}
        most, of_address = settings.max_control_sessions, settings.max_control_sessions_per_address
        self._places: Admission[ControlSession] = Admission(
            max_connections=most, max_connections_per_address=of_address
        )
        self._of_all, self._of_address = RateLimit(most, most), RateLimit(of_address, of_address)
        self._throttle = LogThrottle(logging.getLogger("mainstem.archive"))
        self._now_ns = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ControlSession]:
        return iter(list(self._sessions.values()))

    def get(self, session_id: int) -> ControlSession | None:
        return self._sessions.get(session_id)

    @property
    def dropped(self) -> int:
        """How many sessions have made way for others before they had authenticated."""
        return self._places.dropped_silent

    def connect(self, session_id: int, request: Message, length: int, image: Any, now_ns: int) -> str:
        """Open a session. Return the limit that refuses the request, if any. Raises MainstemError if the request is invalid.

        ``length`` is the number of bytes that the client has sent for the request.
        """
        self._now_ns = now_ns
        if sum(session.image is image for session in self._sessions.values()) >= MAX_SESSIONS_OF_IMAGE:
            # A single client must not be able to use up max_control_sessions.
            return "sessions of a client"
        channel = response_channel(ChannelUri.parse(request.response_channel), self._settings, image.correlation_id)
        session = ControlSession(
            self._aeron,
            self._settings,
            self._authenticator,
            session_id=session_id,
            image=image,
            request=request,
            request_length=length,
            channel=channel,
            counter=session_counter(self._settings.id, session_id, request.client_info, image),
            lookups=self._lookups,
            log=self._log,
            on_close=self._leave,
            now_ns=now_ns,
        )
        if session.address and not self._takes_token(session.address, now_ns):
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

    def busy(self, now_ns: int) -> list[ControlSession]:
        """Return the sessions that may have work for ``step``."""
        self._now_ns = now_ns
        return [session for session in self._sessions.values() if not session.is_quiet(now_ns)]

    def step(self, session: ControlSession) -> int:
        """Advance a session. Return the work count."""
        was_proven = session.is_proven
        work = session.do_work(self._now_ns)
        if session.is_proven and not was_proven and session.address:
            self._of_address.give_back(session.address)
            self._of_all.give_back(ALL_SOURCES)
        return work

    def close(self) -> None:
        for session in list(self._sessions.values()):
            session.close()

    def _leave(self, session: ControlSession) -> None:
        self._sessions.pop(session.session_id, None)
        self._places.leave(session)

    def _log(self, kind: object, text: str) -> None:
        self._throttle.log(logging.WARNING, kind, text, self._now_ns)


def refusal_of_limit(limit: str, settings: ArchiveSettings) -> str:
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
