"""A handler ends with the stream or session it serves, and a complete request survives the loss of its sender."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest
from tests.support.mux_pair import bymux_pair, jmux_pair, join
from tests.support.waiting import settle, soon, until

from mainstem import bymux
from mainstem.errors import Aborted, ClosedError, ConnectionLost, Delivery, MainstemError, Timeout
from mainstem.jmux import aio as jmux


class Handler:
    """Reads everything if asked to, then computes forever; records how it ended."""

    def __init__(self, *, read_first: bool = False) -> None:
        self.read_first = read_first
        self.started = asyncio.Event()
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.stream: Any = None

    async def __call__(self, stream: Any) -> None:
        self.stream = stream
        try:
            if self.read_first:
                await stream.read(-1)
            self.started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.outcome.set_result("cancelled")
            raise

    async def ended(self) -> str:
        return await soon(self.outcome)


@pytest.mark.parametrize("complete", [False, True])
async def test_a_bymux_handler_is_cancelled_when_its_peer_aborts_the_stream(complete: bool) -> None:
    handler = Handler(read_first=complete)
    client, _ = bymux_pair(handler)
    stream = await client.open_stream()
    await settle()
    stream.write(b"request")
    if complete:
        stream.finish()
    await settle()
    await soon(handler.started.wait())
    stream.abort()
    assert await handler.ended() == "cancelled"


async def test_a_jmux_handler_is_cancelled_when_its_client_aborts() -> None:
    handler = Handler(read_first=True)
    client, _ = jmux_pair(handler)
    calling = asyncio.ensure_future(client.request(b"request"))
    await soon(handler.started.wait())
    assert handler.stream.caller_waiting
    calling.cancel()
    assert await handler.ended() == "cancelled"
    assert not handler.stream.caller_waiting


async def test_a_jmux_handler_in_a_thread_can_check_caller_waiting() -> None:
    seen: list[bool] = []
    go_on = asyncio.Event()

    async def compute(session: jmux.ServerSession) -> None:
        await session.read(-1)

        def work() -> None:
            seen.append(session.caller_waiting)
            loop.call_soon_threadsafe(go_on.set)
            while session.caller_waiting:
                pass
            seen.append(False)

        await asyncio.to_thread(work)

    loop = asyncio.get_running_loop()
    client, _ = jmux_pair(compute)
    calling = asyncio.ensure_future(client.request(b"x"))
    await soon(go_on.wait())
    calling.cancel()
    await until(lambda: len(seen) == 2)
    assert seen == [True, False]


@pytest.mark.parametrize("how", ["lost", "ended here", "ended there"])
async def test_handlers_are_cancelled_when_the_connection_ends(how: str) -> None:
    bymux_handler, jmux_handler = Handler(), Handler()
    client, server = bymux_pair(bymux_handler)
    await client.open_stream()
    jmux_client, endpoint = jmux_pair(jmux_handler)
    session = await jmux_client.open_session()
    session.write(b"x")
    await soon(bymux_handler.started.wait())
    await soon(jmux_handler.started.wait())
    if how == "lost":
        server._protocol.transport.lose(OSError("reset"))  # type: ignore[union-attr]
        endpoint.servers[0].transport.lose(OSError("reset"))  # type: ignore[union-attr]
    elif how == "ended here":
        server._protocol.end(abort=True)
        endpoint.servers[0].end(abort=True)
    else:
        client.abort()
        await jmux_client.close()
    assert await bymux_handler.ended() == "cancelled"
    assert await jmux_handler.ended() == "cancelled"


async def test_a_handler_is_not_cancelled_again_during_cleanup() -> None:
    cleaning, go_on, cleaned = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def careful(stream: bymux.aio.Stream) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await go_on.wait()
            cleaned.set()

    client, server = bymux_pair(careful)
    stream = await client.open_stream()
    await settle()
    stream.abort()
    await soon(cleaning.wait())
    client.abort()
    await settle()
    closing = asyncio.ensure_future(server.close())
    await settle()
    go_on.set()
    await soon(closing)
    assert cleaned.is_set()


async def test_data_written_before_leaving_the_block_is_read_completely() -> None:
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    left = asyncio.Event()

    async def store(stream: bymux.aio.Stream) -> None:
        data = b""
        async for part in stream:
            data += part
            await asyncio.sleep(0.001)
        await left.wait()
        await settle()  # the peer is long gone
        received.set_result(data)

    client, _ = bymux_pair(store, settings=bymux.Settings(stream_window=1000))
    async with client:
        async with await client.open_stream() as stream:
            stream.write(bytes(20_000))
        left.set()
    assert len(await soon(received)) == 20_000


async def test_a_handler_that_closed_its_stream_is_not_cancelled() -> None:
    left, done = asyncio.Event(), asyncio.Event()

    async def respond(stream: bymux.aio.Stream) -> None:
        stream.write(await stream.read(-1))
        await stream.close()
        await left.wait()
        done.set()

    client, _ = bymux_pair(respond)
    async with await client.open_stream() as stream:
        stream.write(b"request")
        stream.finish()
        assert await stream.read(-1) == b"request"
    await settle()
    left.set()
    await soon(done.wait())


async def test_a_writer_is_stopped_when_the_reader_leaves() -> None:
    stopped = asyncio.Event()

    async def pour(stream: bymux.aio.Stream) -> None:
        await stream.readexactly(1)
        try:
            while True:
                stream.write(bytes(100))
                await stream.drain()
                await asyncio.sleep(0)
        except (ClosedError, asyncio.CancelledError):
            stopped.set()
            raise

    client, _ = bymux_pair(pour, settings=bymux.Settings(stream_window=1000))
    async with await client.open_stream() as stream:
        await settle()
        stream.write(b"x")
        await stream.readexactly(150)
    await soon(stopped.wait())


async def test_an_upload_survives_a_peer_that_sends_close_and_stop_read_together() -> None:
    """Close and StopRead arrive together, as from peers that expect no response."""
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def store(stream: bymux.aio.Stream) -> None:
        data = await stream.read(-1)
        await settle()
        received.set_result(data)

    _, server = bymux_pair(store)
    server._protocol.data_received(memoryview(bytes.fromhex("3006 2006026869 8006 a006".replace(" ", ""))))
    assert await soon(received) == b"hi"


async def test_an_empty_response_completes_a_request() -> None:
    async def silent(session: jmux.ServerSession) -> None:
        await session.read(-1)

    client, _ = jmux_pair(silent)
    async with client.open_session() as session:
        session.write(b"x")
        session.finish()
        assert await session.read(-1) == b""
        assert session.delivery is Delivery.COMPLETE
    assert await client.request(b"y") == b""


async def test_a_handler_that_is_cancelled_aborts_its_session() -> None:
    async def cancel_self(session: jmux.ServerSession) -> None:
        await session.read(-1)
        raise asyncio.CancelledError

    client, _ = jmux_pair(cancel_self)
    with pytest.raises(Aborted):
        await client.request(b"x")


async def test_a_stalled_jmux_client_is_cut_off_after_stall_timeout(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()

    async def respond(session: jmux.ServerSession) -> None:
        session.write(bytes(5000))
        done.set()

    client, endpoint = jmux_pair(respond, settings=jmux.Settings(initial_ration=1024, stall_timeout=0.05))
    session = await client.open_session()
    session.write(b"x")
    await soon(done.wait())
    await until(lambda: not endpoint.servers[0].tasks)
    assert "took nothing for 0.05 s" in caplog.text
    with pytest.raises(Aborted):
        await session.read(-1)


UPSTREAM_FAILURES = [
    ConnectionLost("the upstream is down"),
    ClosedError("the upstream was closed"),
    Aborted("the upstream cancelled"),
    asyncio.IncompleteReadError(b"", 4),
    TimeoutError(),
    KeyError("x"),
    asyncio.CancelledError(),
    ExceptionGroup("some", [ConnectionLost("the upstream is down")]),
]


@pytest.mark.parametrize("error", UPSTREAM_FAILURES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", ["bymux", "jmux"])
async def test_a_failed_handler_is_logged_and_counted_and_its_peer_sees_an_abort(
    protocol: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(stream: Any) -> None:
        await stream.read(-1)  # after the end of the data, the stream's state does not show whose error it is
        stream.write(b"half an ans")
        raise error

    if protocol == "bymux":
        client, server = bymux_pair(fail)
        stream: Any = await client.open_stream()
        stream.write(b"request")
        stream.finish()
        traffic = server._protocol.traffic
    else:
        jmux_client, endpoint = jmux_pair(fail)
        stream = await jmux_client.open_session()
        stream.write(b"request")
        stream.finish()
        await settle()
        traffic = endpoint.servers[0].traffic
    with pytest.raises(Aborted):
        await soon(stream.read(-1))
    assert traffic.handlers_failed == 1
    assert "a handler for memory failed" in caplog.text


async def pass_on(stream: Any) -> None:
    await stream.readexactly(100)


async def pass_on_in_a_group(stream: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(stream.readexactly(100))


@pytest.mark.parametrize("handler", [pass_on, pass_on_in_a_group])
@pytest.mark.parametrize("how", ["ended early", "aborted", "lost"])
async def test_a_handler_does_not_fail_because_its_own_stream_ended(
    handler: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    client, server = bymux_pair(handler)
    stream = await client.open_stream()
    stream.write(b"request")
    await settle()
    jmux_client, endpoint = jmux_pair(handler)
    session = await jmux_client.open_session()
    session.write(b"request")
    await settle()
    if how == "ended early":
        stream.finish()
        session.finish()
    elif how == "aborted":
        stream.abort()
        session.abort()
    else:
        client.abort()
        await jmux_client.close()
    await until(lambda: not server._protocol.tasks and not endpoint.servers[0].tasks)
    assert server._protocol.traffic.handlers_failed == endpoint.servers[0].traffic.handlers_failed == 0
    assert not caplog.records


@pytest.mark.parametrize(
    "error", [MainstemError("no"), ValueError("no"), asyncio.CancelledError(), ConnectionLost("no")], ids=repr
)
async def test_an_exception_in_on_connection_ends_the_connection(error: BaseException) -> None:
    served: list[bymux.aio.Stream] = []

    async def handler(stream: bymux.aio.Stream) -> None:
        served.append(stream)

    async def refuse(connection: bymux.aio.Connection) -> None:
        await asyncio.sleep(0)
        raise error

    client = bymux.aio.Connection(bymux.Role.PROACTIVE)
    server = bymux.aio.Connection(bymux.Role.REACTIVE, handler=handler, on_connection=refuse)
    join(client._protocol, server._protocol)
    await until(lambda: server._protocol.over)
    await soon(client.wait_closed())
    with pytest.raises(ConnectionLost):
        await client.open_stream()
    assert not served
    assert server._protocol.traffic.handlers_failed == 1


async def test_a_bymux_abort_without_the_abort_bit_is_an_end_of_data() -> None:
    client, server = bymux_pair(settings=bymux.Settings(mark_aborts=False))
    stream = await client.open_stream()
    stream.write(b"half")
    await settle()
    stream.abort()
    accepted = await server.accept_stream()
    assert accepted is not None
    assert await accepted.read(-1) == b"half"


async def test_a_stalled_bymux_stream_is_aborted_with_the_abort_bit(caplog: pytest.LogCaptureFixture) -> None:
    settings = bymux.Settings(stream_window=1000, stall_timeout=0.1)
    client, server = bymux_pair(settings=settings)
    stream = await client.open_stream()
    stream.write(bytes(5000))
    closing = asyncio.ensure_future(stream.close())
    accepted = await server.accept_stream()
    assert accepted is not None
    for _ in range(6):  # longer than the limit, but with progress
        await asyncio.sleep(0.05)
        await accepted.readexactly(500)
    assert not closing.done()
    with pytest.raises(Timeout) as caught:
        await closing
    assert caught.value.unsent > 0
    assert "took nothing for 0.1 s" in caplog.text
    with pytest.raises(Aborted):
        await accepted.read(-1)


async def answers_early(heard: list[bool | BaseException], session: jmux.ServerSession) -> None:
    """Complete the response before the request is complete, and wait for the acknowledgment."""
    session.write(b"early")
    session.finish(ack_required=True)
    try:
        heard.append(await session.acknowledged())
    except BaseException as error:
        heard.append(error)
        raise


async def test_an_acknowledgment_counts_even_if_an_abort_arrives_with_it() -> None:
    heard: list[bool | BaseException] = []
    client, endpoint = jmux_pair(functools.partial(answers_early, heard))
    session = await client.open_session()
    session.write(b"a part of the request")
    assert await session.read(-1) == b"early"
    session.acknowledge()
    session.abort()
    await until(lambda: heard)
    assert heard == [True]
    await until(lambda: not endpoint.servers[0].tasks)
    assert not endpoint.servers[0].traffic.handlers_failed
    await client.close()


async def test_an_abort_or_lost_connection_is_a_negative_acknowledgment() -> None:
    for lost in (False, True):
        heard: list[bool | BaseException] = []
        client, endpoint = jmux_pair(functools.partial(answers_early, heard))
        session = await client.open_session()
        session.write(b"a part of the request")
        assert await session.read(-1) == b"early"
        if lost:
            client.abort()
        else:
            session.abort()
        await until(lambda heard=heard: heard)  # type: ignore[misc]
        assert heard == [False]
        await until(lambda endpoint=endpoint: not endpoint.servers[0].tasks)  # type: ignore[misc]
        await client.close()
