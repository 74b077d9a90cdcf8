"""How many Python functions of Mainstem an operation enters or resumes, at both ends: independent of the machine's load."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.call_counts import calls_of, calls_of_threads
from tests.support.counted_time import CountedTimeLoop
from tests.support.mux_pair import bymux_pair, jmux_pair

from mainstem import jmux
from mainstem._internal.loop_thread import LoopThread
from mainstem.aqueduct import aio, make_certificates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mainstem import bymux

ROUNDS = 200
TOGETHER = 50
MESSAGE = bytes(64)

# Lower them when the code improves; raise one only with a reason.
BYMUX_ECHO = 34
JMUX_REQUEST = 49
JMUX_REQUEST_OF_MANY = 45
# In the thread that calls and in the client's loop, with an asyncio server in that loop; and in all threads of both ends.
JMUX_BLOCKING_REQUEST = 54
JMUX_BLOCKING_REQUEST_AND_HANDLER = 92
AQUEDUCT_MESSAGE = 64
AQUEDUCT_RESPONSE_ON_OPEN_CHANNEL = 97
AQUEDUCT_RESPONSE = 222


async def test_a_message_of_bymux() -> None:
    async def echo(stream: bymux.aio.Stream) -> None:
        while data := await stream.read():
            stream.write(data)

    client, _server = bymux_pair(echo)
    async with client, await client.open_stream() as stream:

        async def exchange() -> None:
            for _ in range(ROUNDS):
                stream.write(MESSAGE)
                assert await stream.readexactly(len(MESSAGE)) == MESSAGE

        await exchange()
        assert await calls_of(exchange) / ROUNDS <= BYMUX_ECHO


async def test_a_request_of_jmux() -> None:
    async def echo(session: jmux.aio.ServerSession) -> None:
        session.write(await session.read())

    client, _endpoint = jmux_pair(echo)
    async with client:

        async def one_by_one() -> None:
            for _ in range(ROUNDS):
                assert await client.request(MESSAGE) == MESSAGE

        async def together() -> None:
            for _ in range(ROUNDS // TOGETHER):
                await asyncio.gather(*(client.request(MESSAGE) for _ in range(TOGETHER)))

        await one_by_one()
        assert await calls_of(one_by_one) / ROUNDS <= JMUX_REQUEST
        await together()
        assert await calls_of(together) / ROUNDS <= JMUX_REQUEST_OF_MANY


def test_a_blocking_request_of_jmux() -> None:
    async def echo(session: jmux.aio.ServerSession) -> None:
        session.write(await session.read())

    async def connect() -> jmux.Client:
        return jmux.Client.made(thread, jmux_pair(echo)[0])

    with calls_of_threads() as counted, LoopThread() as thread, thread.run(connect()) as client:
        assert blocking_requests(counted, client) <= JMUX_BLOCKING_REQUEST


def test_a_blocking_request_of_jmux_and_its_blocking_handler() -> None:
    def echo(session: jmux.ServerSession) -> None:
        session.write(session.read())

    with (
        calls_of_threads() as counted,
        jmux.serve(echo, "127.0.0.1", 0) as server,
        jmux.connect("127.0.0.1", server.port) as client,
    ):
        assert blocking_requests(counted, client) <= JMUX_BLOCKING_REQUEST_AND_HANDLER


def blocking_requests(counted: Callable[[Callable[[], object]], int], client: jmux.Client) -> float:
    """Return the calls of one request."""

    def one_by_one() -> None:
        for _ in range(ROUNDS):
            assert client.request(MESSAGE) == MESSAGE

    one_by_one()
    return counted(one_by_one) / ROUNDS


def test_channels_of_aqueduct(tmp_path: Path) -> None:
    # QUIC acknowledges after a delay, which a busy machine would let pass in the middle of an exchange.
    with asyncio.Runner(loop_factory=CountedTimeLoop) as runner:
        runner.run(check_channels_of_aqueduct(tmp_path))


async def check_channels_of_aqueduct(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)

    arrived = asyncio.Event()

    async def echo(requests: aio.Receiver[bytes], responses: aio.Sender[bytes]) -> None:
        async for message in requests:
            await responses.send(message)

    async def service(connection: aio.Connection) -> None:
        async for request in connection.receiver:
            if isinstance(request, bytes):
                arrived.set()
            elif len(request.attachments) == 1:
                await request.attachments[0].send(request.payload)
            else:
                tasks.append(asyncio.create_task(echo(*request.attachments)))

    tasks: list[asyncio.Task[None]] = []

    async with (
        aio.serve(service, port=0, certificate=files.certificate, key=files.key) as server,
        aio.connect("localhost", server.port, ca=files.ca) as connection,
    ):

        async def open_and_respond() -> None:
            for _ in range(ROUNDS):
                answer, response = aio.oneshot()
                await connection.sender.send(aio.Message(MESSAGE, (answer,)))
                assert await response.receive() == MESSAGE

        async def respond() -> None:
            for _ in range(ROUNDS):
                await requests.send(MESSAGE)
                assert await responses.receive() == MESSAGE

        async def send() -> None:
            for _ in range(ROUNDS):
                arrived.clear()
                await connection.sender.send(MESSAGE)
                await arrived.wait()

        requests, received = aio.channel()
        sent, responses = aio.channel()
        await connection.sender.send(aio.Message(b"", (received, sent)))
        for exchange, most in (
            (open_and_respond, AQUEDUCT_RESPONSE),
            (respond, AQUEDUCT_RESPONSE_ON_OPEN_CHANNEL),
            (send, AQUEDUCT_MESSAGE),
        ):
            await exchange()
            assert await calls_of(exchange) / ROUNDS <= most
        requests.finish()
        await asyncio.gather(*tasks)
