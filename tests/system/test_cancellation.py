"""Cancel every awaitable of all five families at every await: nothing is lost, duplicated, or leaked.

All protocols share one property, tested over real sockets and logs. A "world" of a few streams, sessions, or channels carries
numbered bytes or messages in both directions. Most calls that wait are cancelled at an await that the seed chooses, and then
called again. What arrives must equal what was sent. A call that cannot be repeated counts as possibly executed, and nothing is
executed twice. At the end, no task, timer, stream, session, half, or socket is left.

``MAINSTEM_CANCELLATIONS`` sets the number of worlds per protocol. A failure reports its protocol and seed;
``MAINSTEM_CANCELLATION_SEED`` sets the first seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import os
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import aeron_cancellation, cancelled_duologues
from tests.support.cancellation import Canceller, Leftovers, Watched, awaitables, descriptors
from tests.support.ports import free_port
from tests.support.waiting import STALL_S, until

from mainstem import MediaDriver, aqueduct, bymux
from mainstem._internal import host_names, listening
from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.aqueduct import Message, Mode
from mainstem.aqueduct.aio import channel, oneshot
from mainstem.errors import ChannelError, ClosedError
from mainstem.jmux import aio as jmux
from mainstem.jmux.state import HalfState as JmuxHalf

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from mainstem.aqueduct.certificates import CertificateFiles
    from mainstem.jmux.session import Session
    from mainstem.mux.aio_stream import BaseStream

pytestmark = pytest.mark.system
pytest.importorskip("qh3")
pytest.importorskip("cryptography")

WORLDS = int(os.environ.get("MAINSTEM_CANCELLATIONS", "40"))
FIRST = int(os.environ.get("MAINSTEM_CANCELLATION_SEED", "0"))
# Time limit for a world. Nothing in it takes as long as a second.
WORLD_S = STALL_S

# How each awaitable is covered. The worlds cancel the CANCELLED ones. A NEVER_WAITS one has no await to cancel it at, which the
# worlds check. Any other text names the call that programs make instead; the worlds cancel that one.
CANCELLED = "cancelled"
NEVER_WAITS = "never waits"

BYMUX = {
    "attach": NEVER_WAITS,
    "connect": CANCELLED,
    "over_publications": NEVER_WAITS,
    "serve": CANCELLED,
    "Stream.__aenter__": NEVER_WAITS,
    "Stream.__aexit__": CANCELLED,
    "Stream.__anext__": CANCELLED,
    "Stream.close": CANCELLED,
    "Stream.drain": CANCELLED,
    "Stream.flush": CANCELLED,
    "Stream.ping": CANCELLED,
    "Stream.read": CANCELLED,
    "Stream.readexactly": CANCELLED,
    "Connection.__aenter__": NEVER_WAITS,
    "Connection.__aexit__": CANCELLED,
    "Connection.accept_stream": CANCELLED,
    "Connection.close": CANCELLED,
    "Connection.open_stream": CANCELLED,
    "Connection.ping": CANCELLED,
    "Connection.streams": CANCELLED,
    "Connection.wait_closed": CANCELLED,
    "Server.__aenter__": NEVER_WAITS,
    "Server.__aexit__": CANCELLED,
    "Server.close": CANCELLED,
    "Server.shutdown": CANCELLED,
    "Server.wait": CANCELLED,
}
JMUX = {
    "connect": CANCELLED,
    "serve": CANCELLED,
    "Client.__aenter__": NEVER_WAITS,
    "Client.__aexit__": CANCELLED,
    "Client.close": CANCELLED,
    "Client.open_session": CANCELLED,
    "Client.request": CANCELLED,
    "ClientSession.__aenter__": NEVER_WAITS,
    "ClientSession.__aexit__": NEVER_WAITS,
    "ClientSession.__anext__": CANCELLED,
    "ClientSession.close": NEVER_WAITS,
    "ClientSession.drain": CANCELLED,
    "ClientSession.flush": CANCELLED,
    "ClientSession.read": CANCELLED,
    "ClientSession.readexactly": CANCELLED,
    "Server.__aenter__": NEVER_WAITS,
    "Server.__aexit__": CANCELLED,
    "Server.close": CANCELLED,
    "Server.shutdown": CANCELLED,
    "Server.wait": CANCELLED,
    "ServerSession.__aenter__": NEVER_WAITS,
    "ServerSession.__aexit__": CANCELLED,
    "ServerSession.__anext__": CANCELLED,
    "ServerSession.acknowledged": CANCELLED,
    "ServerSession.close": CANCELLED,
    "ServerSession.drain": CANCELLED,
    "ServerSession.flush": CANCELLED,
    "ServerSession.read": CANCELLED,
    "ServerSession.readexactly": CANCELLED,
}
AQUEDUCT = {
    "connect": CANCELLED,
    "serve": CANCELLED,
    "Connection.__aenter__": NEVER_WAITS,
    "Connection.__aexit__": CANCELLED,
    "Connection.close": CANCELLED,
    "Connection.headers": CANCELLED,
    "Connection.wait_channels_closed": CANCELLED,
    "Connection.wait_closed": CANCELLED,
    "Receiver.__aenter__": NEVER_WAITS,
    "Receiver.__aexit__": NEVER_WAITS,
    "Receiver.__aiter__": CANCELLED,
    "Receiver.__await__": CANCELLED,
    "Receiver.close": NEVER_WAITS,
    "Receiver.receive": CANCELLED,
    "Sender.__aenter__": NEVER_WAITS,
    "Sender.__aexit__": CANCELLED,
    "Sender.close": CANCELLED,
    "Sender.send": CANCELLED,
    "Sender.send_acknowledged": CANCELLED,
    "Sender.wait_closed": CANCELLED,
    "Server.__aenter__": NEVER_WAITS,
    "Server.__aexit__": CANCELLED,
    "Server.close": CANCELLED,
    "Server.shutdown": CANCELLED,
    "Server.wait": CANCELLED,
}
TABLES = {"bymux": BYMUX, "jmux": JMUX, "aqueduct": AQUEDUCT}
PACKAGES = {"bymux": "mainstem.bymux.aio", "jmux": "mainstem.jmux.aio", "aqueduct": "mainstem.aqueduct.aio"}
TABLES["duologue"], PACKAGES["duologue"] = cancelled_duologues.table(CANCELLED, NEVER_WAITS), "mainstem.duologue.aio"
TABLES["aeron"], PACKAGES["aeron"] = aeron_cancellation.table(CANCELLED, NEVER_WAITS), "mainstem.aio"


@pytest.mark.parametrize("protocol", TABLES)
def test_every_public_name_is_listed(protocol: str) -> None:
    table = TABLES[protocol]
    homes = aeron_cancellation.HOMES if protocol == "aeron" else ()
    assert awaitables(importlib.import_module(PACKAGES[protocol]), *homes) == table.keys()
    through = set(table.values()) - {CANCELLED, NEVER_WAITS}
    assert all(table[name] == CANCELLED for name in through)


def numbered(size: int) -> bytes:
    """Return `size` bytes in which every four bytes are their own number."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))[:size]


async def write(cancel: Canceller, kind: str, stream: BaseStream, data: bytes) -> None:
    at = 0
    while at < len(data):
        size = cancel.rng.randint(1, 4000 if len(data) <= 5000 else 200_000)
        stream.write(data[at : at + size])
        at += size
        if len(data) > 5000 or cancel.rng.random() < 0.5:
            await cancel(f"{kind}.drain", stream.drain)
        else:
            await cancel(f"{kind}.flush", stream.flush)


async def read(cancel: Canceller, kind: str, stream: BaseStream) -> bytes:
    """Read everything until the end, alternating between the kinds of read."""
    received = b""
    while True:
        way = cancel.rng.randrange(4)
        limit = cancel.rng.randint(1, 3000 if len(received) <= 5000 else 100_000)
        if way == 0:
            try:
                received += await cancel(f"{kind}.readexactly", lambda limit=limit: stream.readexactly(limit))  # type: ignore[misc]
            except asyncio.IncompleteReadError as error:
                return received + error.partial
        elif way == 1:
            return received + await cancel(f"{kind}.read", lambda: stream.read(-1))
        else:
            name, call = (
                (f"{kind}.read", lambda limit=limit: stream.read(limit))
                if way == 2
                else (f"{kind}.__anext__", stream.__anext__)
            )  # type: ignore[misc]
            try:
                data = await cancel(name, call)
            except StopAsyncIteration:
                data = b""
            if not data:
                return received
            received += data


# bymux


class Pipe:
    """A publication and a subscription that share one message queue."""

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()

    def offer(self, buffer: bytes) -> int:
        if len(self.messages) >= 8:
            return OfferStatus.BACK_PRESSURED
        self.messages.append(bytes(buffer))
        return len(buffer)

    def poll(self, handler: Callable[[bytes], object], limit: int) -> int:
        count = min(limit, len(self.messages))
        for _ in range(count):
            handler(self.messages.popleft())
        return count


ECHO, SINK = b"E", b"S"


async def bymux_world(cancel: Canceller, _: CertificateFiles) -> list[Callable[[], str]]:
    rng = cancel.rng
    settings = bymux.Settings(stream_window=rng.choice((100, 1000, 100_000)), peer_streams=2, packet_limit=500)
    # More than `drain` allows to be buffered, unless the window is so small that this would take thousands of rounds.
    large = (300_000,) if settings.stream_window > 10_000 else ()
    way = rng.choice(("connect", "connect", "attach", "over_publications"))
    greetings = rng.randrange(3)
    sunk: dict[bytes, bytes] = {}
    echoed: Counter[bytes] = Counter()
    ends: list[bymux.aio.Connection] = []

    async def serve_stream(stream: bymux.aio.Stream) -> None:
        head = await cancel("Stream.readexactly", lambda: stream.readexactly(5))
        data = await read(cancel, "Stream", stream)
        if head[:1] == SINK:
            sunk[head] = data
            return
        echoed[head] += 1
        await write(cancel, "Stream", stream, data)
        await cancel("Stream.close", stream.close)

    async def greet(connection: bymux.aio.Connection) -> None:
        ends.append(connection)
        for number in range(greetings):
            await asyncio.sleep(rng.choice((0, 0.002)))
            stream = await cancel("Connection.open_stream", connection.open_stream)
            await write(cancel, "Stream", stream, numbered(300 * (number + 1)))
            await cancel("Stream.close", stream.close)
            stream.stop_read()

    async def accept(connection: bymux.aio.Connection) -> None:
        sizes = []
        for _ in range(greetings):
            if rng.random() < 0.5:
                stream = await cancel("Connection.accept_stream", connection.accept_stream)
            else:
                stream = await cancel("Connection.streams", lambda: anext(connection.streams()))
            assert stream is not None
            data = await read(cancel, "Stream", stream)
            assert data == numbered(len(data))
            sizes.append(len(data))
            await cancel("Stream.__aexit__", lambda stream=stream: stream.__aexit__(None, None, None))  # type: ignore[misc]
        assert sorted(sizes) == [300 * (number + 1) for number in range(greetings)]

    async def exchange(connection: bymux.aio.Connection, number: int) -> None:
        data = numbered(rng.choice((0, 1, 500, 5000, *large)))
        stream = await cancel("Connection.open_stream", connection.open_stream)
        await cancel("Stream.__aenter__", stream.__aenter__)
        stream.write(ECHO + number.to_bytes(4, "big"))

        async def send() -> None:
            await write(cancel, "Stream", stream, data)
            if rng.random() < 0.5:
                assert await cancel("Stream.ping", stream.ping) >= 0
            stream.finish()
            await cancel("Stream.flush", stream.flush)

        sending = asyncio.ensure_future(send())
        assert await read(cancel, "Stream", stream) == data
        await sending
        await cancel("Stream.__aexit__", lambda: stream.__aexit__(None, None, None))

    async def pour(connection: bymux.aio.Connection, number: int) -> None:
        """Leave the block, which sends the rest; if that is cancelled, the stream is aborted partway."""
        head = SINK + number.to_bytes(4, "big")
        data = numbered(rng.choice((500, 5000)))
        stream = await cancel("Connection.open_stream", connection.open_stream)
        stream.write(head + data)
        whole, _ = await cancel.once("Stream.__aexit__", lambda: stream.__aexit__(None, None, None))
        poured[head] = (data, whole)

    async def give_up(connection: bymux.aio.Connection) -> None:
        """Cancel a whole exchange."""

        async def use() -> None:
            async with connection.open_stream() as stream:
                stream.write(ECHO + b"left" + bytes(1000))
                await stream.drain()
                stream.finish()
                await stream.read(-1)

        await cancel.once("a whole exchange", use)

    poured: dict[bytes, tuple[bytes, bool]] = {}
    listener = None
    pipes = Pipe(), Pipe()
    if way == "over_publications":
        for role, (out, back) in ((bymux.Role.PROACTIVE, pipes), (bymux.Role.REACTIVE, pipes[::-1])):
            handler = serve_stream if role is bymux.Role.REACTIVE else None
            ends.append(
                await cancel(
                    "over_publications",
                    lambda role=role, out=out, back=back, handler=handler: bymux.aio.over_publications(  # type: ignore[misc]
                        out, back, role=role, settings=settings, handler=handler
                    ),
                )
            )
        client = ends[0]
        greeting = asyncio.ensure_future(greet(ends[1]))
    else:
        listener = await cancel(
            "serve",
            lambda: bymux.aio.serve(serve_stream, "127.0.0.1", 0, settings=settings, on_connection=greet),
        )
        await cancel("Server.__aenter__", listener.__aenter__)
        if way == "connect":
            client = await cancel("connect", lambda: bymux.aio.connect("127.0.0.1", listener.port, settings=settings))
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            client = await cancel(
                "attach", lambda: bymux.aio.attach(reader, writer, role=bymux.Role.PROACTIVE, settings=settings)
            )
        greeting = asyncio.ensure_future(asyncio.sleep(0))
    ends.append(client)
    await cancel("Connection.__aenter__", client.__aenter__)
    watching = [asyncio.ensure_future(cancel("Connection.wait_closed", client.wait_closed))]
    if listener is not None:
        watching.append(asyncio.ensure_future(cancel("Server.wait", listener.wait)))
    numbers = range(3)
    await asyncio.gather(
        accept(client),
        *(exchange(client, number) for number in numbers),
        *(pour(client, number) for number in range(rng.randrange(3))),
        give_up(client),
    )
    await greeting
    assert await cancel("Connection.ping", client.ping) >= 0
    for number in numbers:
        assert echoed[ECHO + number.to_bytes(4, "big")] == 1, "executed once"
    # While the connection is still open: neither side has a stream left, and nothing waits.
    await until(lambda: not any(end._protocol.engine.streams for end in ends if not end.closed))
    for end in ends:
        assert not [*end._protocol.openers._waiters, *end._protocol.accepters._waiters, *end._protocol.pings._waiters]
    closing = [
        lambda: cancel("Connection.close", client.close),
        lambda: cancel("Connection.__aexit__", lambda: client.__aexit__(None, None, None)),
    ]
    ending = [lambda: cancel("Connection.close", ends[1].close)]
    if listener is not None:
        ending = [
            lambda: cancel("Server.close", listener.close),
            lambda: cancel("Server.shutdown", listener.shutdown),
            lambda: cancel("Server.__aexit__", lambda: listener.__aexit__(None, None, None)),
        ]
    steps = [rng.choice(closing), rng.choice(ending)]
    rng.shuffle(steps)
    for step in steps:
        await step()
    await asyncio.gather(*watching)
    assert listener is None or not listener._connections
    for head, data in sunk.items():
        sent, whole = poured[head]
        assert data == sent if whole else sent.startswith(data)
    assert all(head in sunk for head, (_, whole) in poured.items() if whole), "what was closed in order arrived"
    return [lambda end=end: mux_leftovers(end._protocol) for end in ends]  # type: ignore[misc]


def mux_leftovers(connection: Any) -> str:
    """Describe what one end of a multiplexed connection has left: handlers, halves, waiters."""
    streams = list(getattr(connection, "streams", ()))
    left = {
        "not over": not connection.over,
        "handlers": connection.tasks,
        "streams": streams,
        "halves": getattr(connection.engine, "sessions", None),
        **{
            kind: list(getattr(connection, kind)._waiters)
            for kind in ("openers", "accepters", "pings")
            if hasattr(connection, kind)
        },
        "drainers": [stream._drainers for stream in streams if stream._drainers],
    }
    return " ".join(f"{kind} {value}" for kind, value in left.items() if value)


# Jmux


def is_over(session: Session) -> bool:
    """Return whether a server has finished all its work for a session."""
    return session.ended or session.local is JmuxHalf.TERMINATED


async def jmux_world(cancel: Canceller, _: CertificateFiles) -> list[Callable[[], str]]:
    rng = cancel.rng
    settings = jmux.Settings(initial_ration=rng.choice((256, 1024, 102_400)), fragment_limit=300)
    executed: Counter[bytes] = Counter()
    connections: set[Any] = set()

    async def handler(session: jmux.ServerSession) -> None:
        connections.add(session._connection)
        await cancel("ServerSession.__aenter__", session.__aenter__)
        name = await cancel("ServerSession.readexactly", lambda: session.readexactly(8))
        data = await read(cancel, "ServerSession", session)
        executed[name] += 1
        await write(cancel, "ServerSession", session, data)
        if rng.random() < 0.3:
            session.finish(ack_required=True)
            await cancel("ServerSession.acknowledged", session.acknowledged)
        ending = rng.randrange(3)
        if ending == 0:
            await cancel("ServerSession.close", session.close)
        elif ending == 1:
            await cancel("ServerSession.__aexit__", lambda: session.__aexit__(None, None, None))

    listener = await cancel("serve", lambda: jmux.serve(handler, "127.0.0.1", 0, settings=settings))
    await cancel("Server.__aenter__", listener.__aenter__)
    waiting = asyncio.ensure_future(cancel("Server.wait", listener.wait))
    client = await cancel(
        "connect",
        lambda: jmux.connect("127.0.0.1", listener.port, settings=settings, max_connections=rng.choice((1, 2))),
    )
    await cancel("Client.__aenter__", client.__aenter__)
    names = iter(range(1 << 30))
    expected: list[bytes] = []

    def next_name(data: bytes) -> bytes:
        return next(names).to_bytes(4, "big") + len(data).to_bytes(4, "big")

    # More than `drain` allows to be buffered, unless the ration is so small that this would take thousands of rounds.
    large = (300_000,) if settings.initial_ration > 10_000 else ()

    async def stream() -> None:
        data = numbered(rng.choice((0, 1, 500, 5000, *large)))
        name = next_name(data)
        if rng.random() < 0.5:
            session = await cancel("Client.open_session", client.open_session)
        else:
            session = await cancel("Client.open_session", lambda: client.open_session().__aenter__())
        connections.add(session._connection)
        await cancel("ClientSession.__aenter__", session.__aenter__)
        await write(cancel, "ClientSession", session, name + data)
        session.finish()
        assert await read(cancel, "ClientSession", session) == data
        if rng.random() < 0.5:
            await cancel("ClientSession.close", session.close)
        else:
            await cancel("ClientSession.__aexit__", lambda: session.__aexit__(None, None, None))
        expected.append(name)

    async def call() -> None:
        data = numbered(rng.choice((0, 1, 500, 5000)))
        while True:  # a cancelled call may have been executed, so the next one uses a new name
            name = next_name(data)
            done, response = await cancel.once("Client.request", lambda name=name: client.request(name + data))  # type: ignore[misc]
            if done:
                assert response == data
                expected.append(name)
                return

    async def give_up() -> None:
        async def use() -> None:
            async with client.open_session() as session:
                session.write(next_name(b"") + bytes(1000))
                await session.drain()
                session.finish()
                await session.read(-1)

        await cancel.once("a whole exchange", use)

    # All 128 sessions of a connection may be busy, so that the next one waits or opens another connection.
    busy = [await client.open_session() for _ in range(rng.choice((0, 0, 127, 128)))]
    work = [stream() for _ in range(3)] + [call() for _ in range(3)] + [give_up()]
    working = asyncio.gather(*work)
    for _ in range(20):
        await asyncio.sleep(0)
    for session in busy:
        session.abort()
    await working
    assert all(executed[name] == 1 for name in expected), "what has a response was executed once"
    assert max(executed.values()) == 1, "nothing was executed twice"
    # While the connections are still open: neither side has a session left, and every id is free. A server remembers the last
    # session of an id until the id is used again.
    await until(
        lambda: not any(connection.engine.busy or connection.engine.sessions for connection in client._pool.connections)
    )
    await until(
        lambda: all(is_over(session) for end in listener._connections for session in end.engine.sessions.values())
    )
    assert not client._pool.waiters
    connections |= set(client._pool.connections) | set(listener._connections)
    closing = [
        lambda: cancel("Client.close", client.close),
        lambda: cancel("Client.__aexit__", lambda: client.__aexit__(None, None, None)),
    ]
    ending = [
        lambda: cancel("Server.close", listener.close),
        lambda: cancel("Server.__aexit__", lambda: listener.__aexit__(None, None, None)),
        lambda: cancel("Server.shutdown", lambda: listener.shutdown(5.0)),
    ]
    steps = [rng.choice(closing), rng.choice(ending)]
    rng.shuffle(steps)
    for step in steps:
        await step()
    await waiting
    assert not client._pool.waiters
    assert not listener._connections
    return [lambda connection=connection: mux_leftovers(connection) for connection in connections]  # type: ignore[misc]


# Aqueduct

# The client may cancel its use of this channel, which carries more messages than the others.
GIVEN_UP = b">200"


class Channel:
    """Numbers sent through one channel."""

    def __init__(self, count: int) -> None:
        self.expected = [b"%d" % number for number in range(count)]
        # Messages that may or may not have been sent.
        self.perhaps: set[bytes] = set()
        self.received: list[bytes] = []

    async def produce(self, cancel: Canceller, sender: Any) -> None:
        await cancel("Sender.__aenter__", sender.__aenter__)
        for message in self.expected:
            if cancel.rng.random() < 0.2:
                done, _ = await cancel.once(
                    "Sender.send_acknowledged", lambda message=message: sender.send_acknowledged(message)
                )
                if not done:
                    self.perhaps.add(message)
            else:
                await cancel("Sender.send", lambda message=message: sender.send(message))
        if cancel.rng.random() < 0.5:
            sender.finish()
            await cancel("Sender.wait_closed", sender.wait_closed)
        elif cancel.rng.random() < 0.5:
            await cancel("Sender.close", sender.close)
        else:
            await cancel("Sender.__aexit__", lambda: sender.__aexit__(None, None, None))

    async def consume(self, cancel: Canceller, receiver: Any) -> None:
        while True:
            try:
                if cancel.rng.random() < 0.5:
                    self.received.append(await cancel("Receiver.receive", receiver.receive))
                else:
                    count = cancel.rng.randrange(1, 6)
                    await cancel.once("Receiver.__aiter__", lambda count=count: self.iterate(receiver, count))
            except ClosedError:
                break
        await cancel("Receiver.close", receiver.close)

    async def iterate(self, receiver: Any, count: int) -> None:
        async for message in receiver:
            self.received.append(message)
            count -= 1
            if not count:
                return
        raise ClosedError("the channel has finished")

    def check(self) -> None:
        for messages in (self.received, self.expected):
            messages[:] = [message for message in messages if message not in self.perhaps or messages is self.received]
        assert len(set(self.received)) == len(self.received), "a message came twice"
        assert [message for message in self.received if message not in self.perhaps] == self.expected


async def aqueduct_world(cancel: Canceller, files: CertificateFiles) -> list[Callable[[], str]]:
    rng = cancel.rng
    limits: Any = {"receive_messages": rng.choice((1, 4, 4096)), "send_messages": 8}
    connections: list[Any] = []
    served: list[asyncio.Future[None]] = []

    async def handler(connection: aqueduct.aio.Connection) -> None:
        connections.append(connection)
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    message = await cancel("Receiver.receive", connection.receiver.receive)
                except ClosedError:
                    break
                served.append(group.create_task(serve_channel(message)))
                del message

    async def serve_channel(message: Any) -> None:
        if message.payload != GIVEN_UP:
            await serve_whole(message)
            return
        with contextlib.suppress(ChannelError):
            await serve_whole(message)

    async def serve_whole(message: Any) -> None:
        half, respond = message.attachments
        numbers = Channel(int(message.payload[1:]))
        if message.payload.startswith(b"<"):
            await numbers.consume(cancel, half)
            response = b" ".join(numbers.received)
        else:
            await numbers.produce(cancel, half)
            response = b" ".join(sorted(numbers.perhaps))
        await cancel("Sender.send", lambda: respond.send(response))

    async def use_channel(connection: aqueduct.aio.Connection) -> None:
        to_server = rng.random() < 0.5
        numbers = Channel(rng.choice((1, 12)))
        sender, receiver = channel(max_messages=rng.choice((1, 3, 1024)), mode=Mode.ORDERED)
        respond, response = oneshot()
        head = b"%s%d" % (b"<" if to_server else b">", len(numbers.expected))
        parts = [receiver if to_server else sender, respond]
        del respond
        before = to_server and rng.random() < 0.5
        if before:  # queued while both halves are local
            await cancel("Sender.send", lambda: sender.send(b"before"))
        await cancel("Sender.send", lambda: connection.sender.send(Message(head, parts)))
        if to_server:
            await numbers.produce(cancel, sender)
        else:
            await numbers.consume(cancel, receiver)
        result = await cancel("Receiver.__await__", lambda: response)
        await cancel("Receiver.__aenter__", response.__aenter__)
        await cancel("Receiver.__aexit__", lambda: response.__aexit__(None, None, None))
        if to_server:
            numbers.received = result.split()
            if before:
                numbers.expected.insert(0, b"before")
        else:
            numbers.perhaps = set(result.split())
        numbers.check()

    async def give_up(connection: aqueduct.aio.Connection) -> None:
        async def use() -> None:
            sender, receiver = channel()
            respond, response = oneshot()
            await connection.sender.send(Message(GIVEN_UP, [sender, respond]))
            del respond
            async for _ in receiver:
                await asyncio.sleep(0)
            await response

        await cancel.once("a whole exchange", use)

    server = await cancel(
        "serve", lambda: aqueduct.aio.serve(handler, certificate=files.certificate, key=files.key, **limits)
    )
    await cancel("Server.__aenter__", server.__aenter__)
    accept = server._accept

    def accept_later(session: Any, headers: Any) -> None:
        """Delay the server's headers, which a client waits for after it has connected."""
        session.loop.call_later(0.004, lambda: session.engine.is_ended or accept(session, headers))

    server._accept = accept_later  # type: ignore[method-assign]
    await cancel.once("Server.wait", server.wait, always=True)
    early: list[asyncio.Future[Any]] = []

    async def connect() -> aqueduct.aio.Connection:
        connection = await aqueduct.aio.connect(
            "127.0.0.1", server.port, ca=files.ca, server_name="localhost", **limits
        )
        # Before the server's headers have arrived.
        early.append(asyncio.ensure_future(cancel("Connection.headers", connection.headers)))
        return connection

    client = await cancel("connect", connect)
    connections.append(client)
    await cancel("Connection.__aenter__", client.__aenter__)
    await asyncio.gather(*early)
    watching = asyncio.ensure_future(cancel("Connection.wait_closed", client.wait_closed))
    await asyncio.gather(*(use_channel(client) for _ in range(3)), give_up(client))

    async def close_slowly() -> None:
        client.sender.finish()
        await cancel("Connection.wait_channels_closed", lambda: client.wait_channels_closed(5.0))
        await cancel("Connection.close", client.close)

    closing = [
        close_slowly,
        lambda: cancel("Connection.__aexit__", lambda: client.__aexit__(None, None, None)),
    ]
    ending = [
        lambda: cancel("Server.close", server.close),
        lambda: cancel("Server.__aexit__", lambda: server.__aexit__(None, None, None)),
        lambda: cancel("Server.shutdown", lambda: server.shutdown(0.02)),
    ]
    steps = [rng.choice(closing), rng.choice(ending)]
    rng.shuffle(steps)
    for step in steps:
        await step()
    await watching
    assert not server.connections
    return [lambda end=end: connection_leftovers(end) for end in connections]  # type: ignore[misc]


def connection_leftovers(connection: Any) -> str:
    """Describe what one end of an Aqueduct connection has left."""
    session = connection._protocol
    left = {
        "halves": session.engine.live_halves,
        "acknowledgments": session.outcomes,
        "open": not session.engine.is_ended,
    }
    return " ".join(f"{kind} {value}" for kind, value in left.items() if value)


SCENARIOS: dict[str, Callable[[Canceller, Any], Awaitable[list[Callable[[], str]]]]] = {
    "aeron": aeron_cancellation.aeron_world,
    "duologue": cancelled_duologues.duologue_world,
    "bymux": bymux_world,
    "jmux": jmux_world,
    "aqueduct": aqueduct_world,
}


class Failures(logging.Handler):
    """A handler that collects logged errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage() + (f" {record.exc_info[1]!r}" if record.exc_info else ""))


async def run_world(protocol: str, seed: int, resources: Any) -> Canceller:
    """Run one world from its first socket to its last, and raise if anything was lost, duplicated, or leaked."""
    cancel = Canceller(seed)
    leftovers = Leftovers()
    async with asyncio.timeout(WORLD_S):
        ends = await SCENARIOS[protocol](cancel, resources)
    await leftovers.check(more=lambda: " ".join(filter(None, (end() for end in ends))))
    return cancel


@pytest.mark.parametrize("protocol", [bymux.aio, jmux])
async def test_a_server_that_is_cancelled_while_it_starts_leaves_no_socket(
    protocol: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(stream: Any) -> None: ...

    def look_up(*arguments: Any) -> Any:
        time.sleep(0.005)  # the result of a thread that is faster than the loop needs no await
        return host_names.look_up(*arguments)

    monkeypatch.setattr(listening, "look_up", look_up)
    # uvloop keeps a spare descriptor once a loop has had its first server.
    await (await protocol.serve(handler, "localhost", 0)).close()
    before = descriptors()
    for at in range(1, 10):

        def cancel(count: int, _: Any, at: int = at) -> None:
            if count == at:
                asyncio.current_task().cancel()  # type: ignore[union-attr]

        async def start(cancel: Any = cancel) -> Any:
            return await Watched(protocol.serve(handler, "localhost", 0), cancel)

        starting = asyncio.ensure_future(start())
        await asyncio.wait({starting})
        if not starting.cancelled():
            await starting.result().close()
            break
    assert at > 1
    assert descriptors() == before


@pytest.fixture
def resources(protocol: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Set up what all worlds of a protocol share."""
    if protocol == "aeron":
        free_port()  # reserve this process's range of ports, which takes a socket
        with MediaDriver.launch(term_buffer_length=1 << 16, ipc_term_buffer_length=1 << 16) as driver:
            yield driver.directory, tmp_path
    elif protocol == "duologue":
        with cancelled_duologues.driver() as shared:
            yield shared
    else:
        yield request.getfixturevalue("certificates")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return aqueduct.make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.long
@pytest.mark.timeout(600 + WORLDS)
@pytest.mark.parametrize("protocol", TABLES)
def test_cancellation_loses_duplicates_and_leaks_nothing(protocol: str, resources: Any) -> None:
    # Opening an Aeron stream takes longer than connecting a socket.
    worlds = WORLDS // 4 or 1 if protocol == "duologue" else WORLDS
    calls: Counter[str] = Counter()
    waited: Counter[str] = Counter()
    cancelled: Counter[tuple[str, int]] = Counter()
    failures = Failures()
    logging.getLogger("mainstem").addHandler(failures)
    gc.collect()
    gc.freeze()
    try:
        for seed in range(FIRST, FIRST + worlds):
            try:
                world = asyncio.run(run_world(protocol, seed, resources))
                assert not failures.lines
            except BaseException as error:
                error.add_note(f"protocol {protocol}, seed {seed}")
                raise
            calls += world.calls
            waited += world.waited
            cancelled += world.cancelled
    finally:
        gc.unfreeze()
        logging.getLogger("mainstem").removeHandler(failures)
    table = TABLES[protocol]
    by_name: Counter[str] = Counter()
    for (name, _), count in cancelled.items():
        by_name[name] += count
    print(f"{protocol}: {worlds} worlds, {sum(calls.values())} calls, {sum(cancelled.values())} cancelled")
    for name in sorted(table):
        awaits = sorted(at for each, at in cancelled if each == name)
        print(f"  {name}: {by_name[name]} of {calls[name]} calls cancelled, at awaits {awaits}")
    assert {name for name in table if waited[name] and table[name] == NEVER_WAITS} == set()
    assert {name for name, kind in table.items() if kind == NEVER_WAITS and not calls[name]} == set()
    enough = by_name if worlds >= 200 else calls  # some calls seldom wait
    assert {name for name, kind in table.items() if kind == CANCELLED and not enough[name]} == set()
