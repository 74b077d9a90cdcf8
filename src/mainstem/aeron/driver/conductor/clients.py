"""Client sessions. A client's first ADD command creates one, and its heartbeat counter keeps it alive.

When the counter goes stale, the driver releases the client with everything that it registered (docs/protocols/aeron.md, 7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.command.responses import OnClientTimeout, OnCounterReady, OnUnavailableCounter
from mainstem.aeron.counters import client_heartbeat
from mainstem.aeron.heartbeat import HeartbeatWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.command.commands import ClientClose, ClientKeepalive
    from mainstem.aeron.driver.conductor.resources import Resources


class ClientSession:
    """One client, with its id and the counter in which it stores epoch milliseconds twice a second."""

    __slots__ = ("client_id", "closed", "heartbeat", "watch")

    def __init__(self, client_id: int, heartbeat: CounterCell, watch: HeartbeatWatch) -> None:
        self.client_id = client_id
        self.heartbeat, self.watch = heartbeat, watch
        self.closed = False


class Clients:
    """The clients of this driver. ``release`` frees the resources of a client that has closed or timed out."""

    def __init__(self, resources: Resources, *, liveness_timeout_ns: int, release: Callable[[int], None]) -> None:
        self._resources = resources
        self._liveness_timeout_ns = liveness_timeout_ns
        self._release = release
        self._sessions: dict[int, ClientSession] = {}

    def __contains__(self, client_id: int) -> bool:
        return client_id in self._sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def get_or_add(self, client_id: int) -> ClientSession:
        """Return the session of a client, or create one. A new client first gets the announcement of its heartbeat counter."""
        session = self._sessions.get(client_id)
        if session is None:
            heartbeat = self._resources.counters.allocate(
                client_heartbeat(client_id),
                registration_id=client_id,
                owner_id=client_id,
                value=self._resources.clock.epoch_ms(),
            )
            clock = self._resources.clock
            watch = HeartbeatWatch(heartbeat.get_acquire(), clock.epoch_ms(), clock.monotonic_ns())
            session = ClientSession(client_id, heartbeat, watch)
            self._sessions[client_id] = session
            self._resources.clients.send(OnCounterReady(correlation_id=client_id, counter_id=heartbeat.counter_id))
        return session

    def on_keepalive(self, command: ClientKeepalive, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """Handle CLIENT_KEEPALIVE, the heartbeat of clients that do not write the counter."""
        session = self._sessions.get(command.client_id)
        if session is not None:
            session.heartbeat.set_release(self._resources.clock.epoch_ms())

    def on_close(self, command: ClientClose, now_ns: int) -> None:  # noqa: ARG002
        """Handle CLIENT_CLOSE. The next timer tick releases the client without counting a timeout."""
        session = self._sessions.get(command.client_id)
        if session is not None:
            session.closed = True
            session.heartbeat.set_release(0)

    def on_timer(self, now_ns: int) -> None:
        """Reap clients that have closed or timed out. Runs once per timer interval."""
        epoch_ms = self._resources.clock.epoch_ms()
        for session in list(self._sessions.values()):
            heartbeat_ms = session.heartbeat.get_acquire()
            if session.closed or session.watch.is_older(self._liveness_timeout_ns, heartbeat_ms, epoch_ms, now_ns):
                self._reap(session)

    def _reap(self, session: ClientSession) -> None:
        resources = self._resources
        if not session.closed:
            resources.count(SystemCounter.CLIENT_TIMEOUTS)
            resources.clients.send(OnClientTimeout(client_id=session.client_id))
            resources.errors.note("client timeout", f"client {session.client_id} timed out")
        del self._sessions[session.client_id]
        self._release(session.client_id)
        resources.clients.send(
            OnUnavailableCounter(registration_id=session.client_id, counter_id=session.heartbeat.counter_id)
        )
        resources.counters.free(session.heartbeat)
