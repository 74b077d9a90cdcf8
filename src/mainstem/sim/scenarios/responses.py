"""Requests over one stream, and responses over each client's response channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.sim.checkers import StreamChecker
from mainstem.sim.scenarios.streams import STREAM, connect, degrade_links, drawn_length, end, endpoint, until

if TYPE_CHECKING:
    from mainstem._core.log.fragment import Fragment
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

NETWORK_REQUESTS = 60
REQUESTS = 100


class ResponseChannel:
    """One client's requests, and the response channel that the requests name."""

    def __init__(
        self, world: World, client: Host, server: Host, requests: Subscription, *, request: str, response: str
    ) -> None:
        self.responses = client.aeron.add_subscription(response, STREAM + 1)
        self.requester = client.aeron.add_exclusive_publication(
            f"{request}|response-correlation-id={self.responses.registration_id}", STREAM
        )
        connect(world, self.requester, [requests])
        self.requests = next(each for each in requests.images if each.session_id == self.requester.session_id)
        self.responder = server.aeron.add_exclusive_publication(
            f"{response}|term-length=64k|response-correlation-id={self.requests.correlation_id}", STREAM + 1
        )
        connect(world, self.responder, [self.responses])
        self.checker = StreamChecker("responses")
        self.requested = 0

    def on_response(self, fragment: Fragment) -> None:
        self.checker.delivered(bytes(fragment), fragment.header.position)


def response(world: World) -> str:
    """Requests over one stream, responses over each client's response channel. Every request gets its response."""
    client, server = world.add_host("client"), world.add_host("server")
    requests = server.aeron.add_subscription(endpoint(server, 20_125), STREAM)
    request_channel = f"{endpoint(server, 20_125)}|term-length=64k"
    control = f"aeron:udp?control={server.address}:20126|control-mode=response"
    channel = ResponseChannel(world, client, server, requests, request=request_channel, response=control)
    degrade_links(world)
    waiting: list[bytes] = []

    def step() -> bool:
        request = channel.requested.to_bytes(4, "big") * world.rng.randrange(1, 300)
        if channel.requested < NETWORK_REQUESTS and channel.requester.offer(request) > 0:
            channel.requested += 1
            channel.checker.offered(request[::-1])
        requests.poll_messages(lambda fragment: waiting.append(bytes(fragment)[::-1]), 10)
        while waiting and channel.responder.offer(waiting[0]) > 0:
            waiting.pop(0)
        channel.responses.poll_messages(channel.on_response, 10)
        return channel.requested == NETWORK_REQUESTS and not channel.checker.outstanding

    until(world, step, "a response to every request")
    return end(world, channel.responder, [channel.responses])


class SerialClient(ResponseChannel):
    """A client that sends one request at a time, and a server that responds at once."""

    def __init__(self, world: World, host: Host, requests: Subscription) -> None:
        request, response = "aeron:ipc?term-length=64k", "aeron:ipc?control-mode=response"
        super().__init__(world, host, host, requests, request=request, response=response)

    def step(self, request: bytes) -> None:
        """Send a request if the previous one has its response, respond, and read responses."""
        if self.requested < REQUESTS and not self.checker.outstanding and self.requester.offer(request) > 0:
            self.requested += 1
            self.checker.offered(request[::-1])
        self.requests.poll_messages(lambda fragment: self.responder.send(bytes(fragment)[::-1], timeout=1.0), 1)
        self.responses.poll_messages(self.on_response, 10)

    @property
    def done(self) -> bool:
        return self.requested == REQUESTS and not self.checker.outstanding


def response_ipc(world: World) -> str:
    """Requests and responses over IPC: each client gets its own responses, whatever the others request."""
    host = world.add_host("host")
    requests = host.aeron.add_subscription("aeron:ipc", STREAM)
    clients = [SerialClient(world, host, requests) for _ in range(world.rng.randrange(1, 4))]

    def step() -> bool:
        for client in clients:
            client.step(world.rng.randbytes(drawn_length(world.rng)))
        return all(client.done for client in clients)

    until(world, step, "a response to every request")
    clients[0].requester.close()
    return f"{len(clients)} clients, " + end(world, clients[0].responder, [clients[0].responses])
