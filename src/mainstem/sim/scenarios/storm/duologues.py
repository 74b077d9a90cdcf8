"""A duologue server and its clients on hosts that come and go. Each message comes back once and in order, or fails."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from mainstem.duologue.channels import ClientChannels, ServerChannels
from mainstem.duologue.crypto import ServerKey
from mainstem.duologue.settings import Settings
from mainstem.errors import RemoteProtocolError
from mainstem.sim.scenarios.duologue import EchoClient, EchoServer
from mainstem.sim.scenarios.storm.workload import GONE, Workload, runs

if TYPE_CHECKING:
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

MAX_CLIENTS = 100
TIMEOUT_S = 5.0


class DuologueWorkload(Workload):
    """A server on one host and clients on others, all restarted with their host's Aeron client."""

    def __init__(self, world: World, host: Host, others: list[Host]) -> None:
        rng = world.rng
        self.world = world
        self.host = host
        self._key = ServerKey.generate(Random(rng.getrandbits(64))) if rng.random() < 0.5 else None
        # A client that begins again is a new one, while the server still waits for the last.
        settings = Settings(
            max_clients=MAX_CLIENTS, max_clients_per_address=MAX_CLIENTS, join_timeout=3.0, hello_rate=100.0
        )
        self._channels = ServerChannels(host.address, settings=settings)
        public = b"" if self._key is None else self._key.public
        self.clients = [
            EchoClient(world, other, number, ClientChannels(host.address), timeout=TIMEOUT_S, server_key=public)
            for number, other in enumerate(others)
        ]
        for client in self.clients:
            client.goal = 0
        self._starts = {other.name: -1 for other in (host, *others)}
        self._server: EchoServer | None = None

    def step(self, *, offers: bool, pause_probability: dict[str, float]) -> None:
        if runs(self.host):
            try:
                self._serve()
            except GONE:
                self._server = None
        for client in self.clients:
            if offers and client.is_done:
                client.goal += 1
            if runs(client.host) and self.world.rng.random() >= pause_probability.get(client.host.name, 0.0):
                if self._has_begun_again(client.host):
                    client.forget()
                try:
                    client.step()
                except GONE:
                    client.leave()
                except RemoteProtocolError:
                    if not self.world.network.has_damaged:
                        raise
                    client.leave()

    def _has_begun_again(self, host: Host) -> bool:
        before, self._starts[host.name] = self._starts[host.name], host.starts
        return before != host.starts

    def _serve(self) -> None:
        if self._has_begun_again(self.host):
            self._server = None
        if self._server is None:
            rng = Random(self.world.rng.getrandbits(64))
            self._server = EchoServer(self.host.aeron, self._channels, rng=rng, key=self._key)
        self._server.do_work(self.world.now_ns)

    def restart(self) -> None:
        for client in self.clients:
            client.leave()

    @property
    def is_connected(self) -> bool:
        return all(client.core is not None and client.core.is_open for client in self.clients)

    def aim(self, count: int) -> None:
        for client in self.clients:
            client.goal = client.answered + count

    @property
    def is_read(self) -> bool:
        return all(client.is_done for client in self.clients)
