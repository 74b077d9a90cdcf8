"""A duologue server and up to twenty clients over a network that loses, duplicates and reorders. Some leave; a host crashes."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.duologue.channels import ClientChannels, ServerChannels
from mainstem.duologue.client_core import ClientCore
from mainstem.duologue.crypto import ServerKey
from mainstem.duologue.messages import BAD_MESSAGE
from mainstem.duologue.server_core import ServerCore
from mainstem.duologue.settings import Settings
from mainstem.errors import (
    Aborted,
    ClosedError,
    ConnectionLost,
    ConnectRefused,
    ConnectTimeout,
    OfferError,
    RemoteProtocolError,
    Timeout,
)
from mainstem.sim.checkers import Violation
from mainstem.sim.faults import Faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.client.client import Aeron
    from mainstem.duologue.session import Session
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

HOSTS = 4
CLIENTS_PER_HOST = 5  # the maximum
MESSAGES = 8  # per client, before some leave and again for each that stays
MAX_LOSS = 0.15
TIMEOUT_S = 10.0  # for each step of connecting
TIMEOUT_NS = 120 * NS_PER_SECOND
# Errors that a call can raise once a duologue has ended.
ENDS = (Aborted, ClosedError, ConnectionLost, OfferError, Timeout)
TIMEOUTS: dict[str, Any] = {
    "image_liveness_timeout_ns": NS_PER_SECOND,
    "publication_connection_timeout_ns": NS_PER_SECOND,
    "publication_linger_timeout_ns": NS_PER_SECOND,
}


class EchoServer(ServerCore):
    """The guide's server: sends ``ECHO <text>`` back and rejects everything else as a bad message."""

    def __init__(
        self,
        aeron: Aeron,
        channels: ServerChannels,
        *,
        rng: Random,
        key: ServerKey | None = None,
        may_be_damaged: Callable[[], bool] = lambda: False,
    ) -> None:
        self._served: list[Session] = []
        self._may_be_damaged = may_be_damaged
        super().__init__(aeron, channels, self._served.append, rng=rng, key=key)

    def do_work(self, now_ns: int) -> int:
        work = super().do_work(now_ns)
        for session in list(self._served):
            try:
                self._serve(session)
            except ENDS:
                self._served.remove(session)
            except RemoteProtocolError:  # an encrypted message was changed on its way
                if not self._may_be_damaged():
                    raise
                self._served.remove(session)
        return work

    def _serve(self, session: Session) -> None:
        # Do not read from a client that does not receive its responses.
        while not session.queued and (message := session.receive()) is not None:
            if message.startswith(b"ECHO "):
                session.queue(message)
            else:
                session.bad_messages += 1
                session.close(BAD_MESSAGE)


class EchoClient:
    """A client that opens a duologue, sends numbered messages, and checks that each comes back once and in order.

    If a duologue fails with an error, the client opens another and resumes with the first message that has no response.
    """

    def __init__(
        self,
        world: World,
        host: Host,
        number: int,
        channels: ClientChannels,
        *,
        timeout: float = TIMEOUT_S,
        server_key: bytes = b"",
    ) -> None:
        self.world = world
        self.host = host
        self.number = number
        self.channels = channels
        self.timeout = timeout
        self.server_key = server_key
        self.answered = 0
        self.goal = MESSAGES
        self.attempts = 0
        self.core: ClientCore | None = None
        self.closing: list[ClientCore] = []
        self._asked = 0

    @property
    def is_done(self) -> bool:
        return self.answered >= self.goal

    def step(self) -> None:
        self.closing = [core for core in self.closing if not core.close()]
        if self.core is None:
            self.attempts += 1
            self.core = ClientCore(
                self.host.aeron,
                self.channels,
                timeout=self.timeout,
                server_key=self.server_key,
                rng=Random(self.world.rng.getrandbits(64)),
                now_ns=self.world.now_ns,
            )
            self._asked = self.answered
        try:
            self.core.do_work(self.world.now_ns)
            if self.core.is_open:
                self._exchange(self.core)
        except (*ENDS, ConnectRefused, ConnectTimeout):
            self.leave()

    def _exchange(self, core: ClientCore) -> None:
        while (message := core.receive()) is not None:
            expected = self._message(self.answered)
            if message != expected and not self.world.network.has_damaged:
                raise Violation(f"client {self.number} received {message!r}, expected {expected!r}")
            self.answered += 1
        if self._asked < self.goal and core.offer(self._message(self._asked)):
            self._asked += 1

    def _message(self, index: int) -> bytes:
        return b"ECHO %d %d " % (self.number, index) + b"x" * (self.number * 97 * index % 3000)

    def forget(self) -> None:
        """Forget everything, because the host's Aeron client is gone."""
        self.core = None
        self.closing = []

    def leave(self) -> None:
        if self.core is not None:
            self.closing.append(self.core)
            self.core = None


def duologue(world: World) -> str:
    """Every client is served. One that leaves or crashes frees its resources in time and does not affect the others."""
    world.tick_ns, world.grain_ns = 5 * NS_PER_MS, NS_PER_MS
    rng = world.rng
    base = world.add_host("server", **_driver(Settings()))
    settings = Settings(
        max_clients=HOSTS * CLIENTS_PER_HOST + 4,
        max_clients_per_address=CLIENTS_PER_HOST + 2,
        join_timeout=3.0,
        hello_rate=100.0,
    )
    key = ServerKey.generate(Random(rng.getrandbits(64))) if rng.random() < 0.5 else None
    channels = ServerChannels(base.address, settings=settings)
    server = EchoServer(base.aeron, channels, rng=Random(rng.getrandbits(64)), key=key)
    clients = _clients(world, base, b"" if key is None else key.public)

    def progress() -> bool:
        server.do_work(world.now_ns)
        for client in clients:
            client.step()
        return all(client.is_done for client in clients)

    world.run_until(progress, what="a response to every message", within_ns=TIMEOUT_NS)
    crashed, leavers = rng.choice(world.hosts[1:]), [t for t in clients if rng.random() < 0.3]
    for host in (base, crashed):
        other = base if host is crashed else crashed
        world.network.partition(host.address, other.address)
    staying = [client for client in clients if client.host is not crashed and client not in leavers]
    gone = [client for client in clients if client not in staying]
    attempts = sum(client.attempts for client in staying)
    for client in gone:
        client.leave()
    for client in staying:
        client.goal += MESSAGES

    def settle() -> bool:
        server.do_work(world.now_ns)
        for client in staying:
            client.step()
        for client in gone:
            client.closing = [core for core in client.closing if not core.close()]
        held = len(server.sessions_in_use)
        if len(server.ports_in_use) != 2 * held:
            raise Violation(f"{held} duologues use {len(server.ports_in_use)} ports, expected {2 * held}")
        return all(client.is_done for client in staying) and held == len(staying)

    world.run_until(settle, what="the server to release what clients that left had in use", within_ns=TIMEOUT_NS)
    again = sum(client.attempts for client in staying) - attempts
    for client in staying:
        client.leave()
    world.run_until(lambda: _drained(world, server, staying), what="every duologue to end", within_ns=TIMEOUT_NS)
    server.close()
    tries = sum(client.attempts for client in clients)
    return (
        f"{len(clients)} clients in {tries} attempts, {len(gone)} went, {len(staying)} stayed with {again} new attempts, "
        f"encrypted {key is not None}, {world.network.sent} datagrams, {world.network.lost} lost, {world.ticks} ticks"
    )


def _driver(settings: Settings) -> dict[str, Any]:
    return {**settings.server_driver_settings(), **TIMEOUTS, "driver_stream_session_limit": 1_000}


def _clients(world: World, base: Host, server_key: bytes) -> list[EchoClient]:
    """Add hosts with their clients, each behind links drawn from the seed."""
    clients = []
    channels = ClientChannels(base.address)
    for number in range(HOSTS):
        host = world.add_host(f"host-{number}", **{**channels.settings.driver_settings(), **TIMEOUTS})
        world.network.link(base.address, host.address, Faults.drawn(world.rng, max_loss=MAX_LOSS))
        world.network.link(host.address, base.address, Faults.drawn(world.rng, max_loss=MAX_LOSS))
        count = world.scaled(CLIENTS_PER_HOST - 1) + 1
        first = number * CLIENTS_PER_HOST
        clients += [EchoClient(world, host, first + index, channels, server_key=server_key) for index in range(count)]
    return clients


def _drained(world: World, server: ServerCore, clients: list[EchoClient]) -> bool:
    server.do_work(world.now_ns)
    for client in clients:
        client.closing = [core for core in client.closing if not core.close()]
    return not server.sessions_in_use and not server.ports_in_use
