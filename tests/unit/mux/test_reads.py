"""A read that is cancelled or times out consumes nothing, in every API."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from tests.support.mux_pair import bymux_pair, jmux_pair
from tests.support.waiting import STALL_S, settle, soon, until

from mainstem import bymux
from mainstem._internal.loop_thread import LoopThread
from mainstem.errors import (
    Aborted,
    ClosedError,
    ConfigurationError,
    LimitExceeded,
    LocalProtocolError,
    MainstemError,
    Timeout,
)
from mainstem.jmux import aio as jmux
from mainstem.mux import blocking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainstem.mux.aio_stream import BaseStream


async def echo(stream: BaseStream) -> None:
    async for data in stream:
        stream.write(data)
        await stream.drain()


async def bymux_stream() -> BaseStream:
    client, _ = bymux_pair(echo, settings=bymux.Settings(stream_window=1000))
    return await client.open_stream()


async def jmux_session() -> BaseStream:
    client, _ = jmux_pair(echo, settings=jmux.Settings(initial_ration=1024))
    return await client.open_session()


OPEN = pytest.mark.parametrize("open_stream", [bymux_stream, jmux_session])


@OPEN
async def test_a_timed_out_readexactly_loses_nothing(open_stream: Callable[[], Awaitable[BaseStream]]) -> None:
    stream = await open_stream()
    stream.write(b"ab")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stream.readexactly(4), 0.01)
    stream.write(b"cd")
    assert await stream.readexactly(4) == b"abcd"


@OPEN
async def test_a_negative_count_is_refused(open_stream: Callable[[], Awaitable[BaseStream]]) -> None:
    stream = await open_stream()
    with pytest.raises(ConfigurationError, match=r"^count=-1: must be an integer >= 0$"):
        await stream.readexactly(-1)
    stream.write(b"tide")
    assert await stream.readexactly(4) == b"tide"


@OPEN
@pytest.mark.parametrize("count", [-1, 5], ids=["everything", "some"])
async def test_a_second_reader_gets_an_error_and_the_first_one_its_data(
    open_stream: Callable[[], Awaitable[BaseStream]], count: int
) -> None:
    stream = await open_stream()
    reading = asyncio.ensure_future(stream.readexactly(4))
    await settle()
    with pytest.raises(LocalProtocolError, match="use one task or thread for reading"):
        await stream.read(count)
    stream.write(b"tide")
    assert await soon(reading) == b"tide"


@OPEN
async def test_a_cancelled_read_of_everything_loses_nothing(
    open_stream: Callable[[], Awaitable[BaseStream]],
) -> None:
    stream = await open_stream()
    stream.write(b"ab")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stream.read(-1), 0.01)
    assert await stream.read() == b"ab"


@OPEN
async def test_a_cancelled_read_larger_than_the_window_grants_credit_and_loses_nothing(
    open_stream: Callable[[], Awaitable[BaseStream]],
) -> None:
    stream = await open_stream()
    data = bytes(range(256)) * 40  # ten windows
    stream.write(data)
    assert await soon(stream.readexactly(9000)) == data[:9000]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stream.readexactly(5000), 0.05)
    assert await stream.readexactly(1240) == data[9000:]
    # Credit granted in advance is not granted again: the window keeps its size.
    stream.write(data)
    await settle()
    assert stream._buffer.size <= 1024
    received = b""
    while len(received) < len(data):
        received += await soon(stream.read())
    assert received == data


@OPEN
async def test_data_that_arrives_as_its_reader_is_cancelled_is_kept(
    open_stream: Callable[[], Awaitable[BaseStream]],
) -> None:
    stream = await open_stream()
    for read in (stream.read, lambda: stream.readexactly(2)):
        reading = asyncio.ensure_future(read())
        await settle()
        stream._buffer.append(b"xy")
        stream._wake_reader()  # the reader is woken, then cancelled before it runs
        stream._handle.unconsumed += 2
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await stream.readexactly(2) == b"xy"


@OPEN
def test_timed_out_blocking_reads_lose_nothing(open_stream: Callable[[], Awaitable[BaseStream]]) -> None:
    with LoopThread() as thread:
        stream = blocking.BaseStream(thread, thread.run(open_stream()))
        stream.write(b"ab")
        with pytest.raises(Timeout):
            stream.readexactly(4, timeout=0.05)
        stream.write(b"cd")
        assert stream.readexactly(4, timeout=STALL_S) == b"abcd"
        stream.write(b"ef")
        with pytest.raises(Timeout):
            stream.read(-1, timeout=0.05)
        assert stream.read(timeout=STALL_S) == b"ef"


@pytest.mark.parametrize("protocol", ["bymux", "jmux"])
async def test_reading_everything_is_limited_by_read_limit(protocol: str) -> None:
    stream: BaseStream
    if protocol == "bymux":
        client, _ = bymux_pair(echo, settings=bymux.Settings(stream_window=1000, read_limit=5000))
        stream = await client.open_stream()
    else:
        jmux_client, _ = jmux_pair(echo, settings=jmux.Settings(initial_ration=1024, read_limit=5000))
        stream = await jmux_client.open_session()
    stream.write(bytes(8000))
    with pytest.raises(LimitExceeded) as caught:
        await soon(stream.read(-1))
    assert caught.value.limit == 5000
    received = 0
    while received < 8000:
        received += len(await soon(stream.read()))


@pytest.mark.parametrize("is_whole", [False, True], ids=["arriving", "arrived with its end"])
@pytest.mark.parametrize("protocol", ["bymux", "jmux"])
async def test_the_read_limit_does_not_depend_on_when_the_end_arrives(protocol: str, is_whole: bool) -> None:
    outcomes: list[bytes | MainstemError] = []

    async def handler(stream: BaseStream) -> None:
        if is_whole:
            await until(lambda: stream._eof)
        for limit in (-1, 1001, -1):
            try:
                outcomes.append(await stream.read(limit))
            except LimitExceeded as error:
                outcomes.append(error)

    if protocol == "bymux":
        client, _ = bymux_pair(handler, settings=bymux.Settings(read_limit=1000))
        stream: BaseStream = await client.open_stream()
    else:
        jmux_client, _ = jmux_pair(handler, settings=jmux.Settings(read_limit=1000))
        stream = await jmux_client.open_session()
    stream.write(bytes(2001))
    stream.finish()
    await until(lambda: len(outcomes) == 3)
    assert isinstance(outcomes[0], LimitExceeded)
    assert outcomes[1:] == [bytes(1001), bytes(1000)]


@pytest.mark.parametrize("ration", [256, 1024, 0])
@pytest.mark.parametrize("cut", [1 << 20, 100])
async def test_a_request_returns_a_response_that_arrives_in_parts(ration: int, cut: int) -> None:
    data = bytes(range(256)) * 20

    async def handler(session: jmux.ServerSession) -> None:
        for start in range(0, len(data), 160):
            session.write(data[start : start + 160])
            await session.flush()
            await asyncio.sleep(0)

    client, _ = jmux_pair(handler, settings=jmux.Settings(initial_ration=ration, read_limit=len(data)), cut=cut)
    for _ in range(2):  # the second takes over the session's id
        assert await soon(client.request(b"x")) == data
    assert client.stats().streams == client.stats().unread_bytes == 0


@pytest.mark.parametrize("ration", [256, 0])
async def test_a_response_in_parts_is_limited_by_read_limit(ration: int) -> None:
    async def handler(session: jmux.ServerSession) -> None:
        while session.caller_waiting:
            session.write(bytes(100))
            await session.flush()
            await asyncio.sleep(0)

    client, endpoint = jmux_pair(handler, settings=jmux.Settings(initial_ration=ration, read_limit=5000))
    with pytest.raises(LimitExceeded) as caught:
        await soon(client.request(b"x"))
    assert caught.value.limit == 5000
    await until(lambda: not endpoint.servers[0].tasks and not client.stats().streams)


async def test_a_response_that_is_aborted_after_a_part_raises() -> None:
    async def handler(session: jmux.ServerSession) -> None:
        session.write(bytes(100))
        await session.flush()
        session.abort("enough")

    client, _ = jmux_pair(handler)
    with pytest.raises(Aborted, match="enough"):
        await soon(client.request(b"x"))


@pytest.mark.parametrize("size", [1001, 100_000])
async def test_the_response_to_a_request_is_limited_by_read_limit(size: int) -> None:
    async def handler(session: jmux.ServerSession) -> None:
        session.write(bytes(int(await session.read(-1))))

    client, _ = jmux_pair(handler, settings=jmux.Settings(read_limit=1000))
    for _ in range(3):
        assert len(await soon(client.request(b"1000"))) == 1000
        with pytest.raises(LimitExceeded) as caught:
            await soon(client.request(b"%d" % size))
        assert caught.value.limit == 1000
        assert not caught.value.may_retry
    assert client.stats().streams == 0


async def test_a_free_session_goes_to_the_next_waiter_if_one_is_cancelled() -> None:
    release = asyncio.Event()

    async def hold(session: jmux.ServerSession) -> None:
        await release.wait()
        session.write(b"x")

    client, _ = jmux_pair(hold)
    sessions = [await client.open_session() for _ in range(128)]
    waiting = [asyncio.ensure_future(client.open_session()) for _ in range(2)]
    await settle()
    sessions[0].abort()  # frees one id, which wakes the first task
    waiting[0].cancel()
    session = await soon(waiting[1])
    assert session.id == sessions[0].id
    release.set()


def test_a_call_after_the_loop_ended_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = LoopThread()
    thread.stop()
    # The loop thread still looked alive when the call started.
    monkeypatch.setattr(thread._thread, "is_alive", lambda: True)
    ran: list[int] = []

    async def work() -> None:
        ran.append(1)

    with pytest.raises(ClosedError, match="is closed"):
        thread.run(work())
    thread.stop()
    assert not ran


def test_a_waiting_call_raises_when_its_thread_is_stopped() -> None:
    thread, waits = LoopThread(), threading.Event()

    async def wait() -> None:
        waits.set()
        await asyncio.Event().wait()

    def stop() -> None:
        waits.wait(STALL_S)
        thread.stop()

    stopping = threading.Thread(target=stop)
    stopping.start()
    with pytest.raises(ClosedError):
        thread.run(wait())
    stopping.join()


@pytest.mark.parametrize("way", ["leave", "abort", "stop_read"])
async def test_closing_an_unread_stream_frees_its_place(way: str) -> None:
    client, server = bymux_pair(settings=bymux.Settings(peer_streams=1))
    first = await client.open_stream()
    first.write(b"never read")
    first.finish()
    accepted = await server.accept_stream()
    assert accepted is not None
    accepted.finish()
    first.stop_read()
    for _ in range(20):
        await asyncio.sleep(0)
    if way == "leave":
        await accepted.__aexit__(None, None, None)
    else:
        getattr(accepted, way)()
    second = await soon(client.open_stream())
    second.abort()
    await asyncio.gather(client.close(), server.close())


@pytest.mark.parametrize("way", ["leave", "abort"])
@OPEN
async def test_a_read_after_dropped_data_raises_instead_of_returning_the_end_of_data(
    open_stream: Callable[[], Awaitable[BaseStream]], way: str
) -> None:
    """All data had arrived, but part of it was not read."""
    for is_read in (False, True):
        stream = await open_stream()
        stream.write(b"tide")
        stream.finish()  # type: ignore[attr-defined]
        await until(lambda stream=stream: stream._eof)  # type: ignore[misc]
        if is_read:
            assert await stream.read(-1) == b"tide"
        if way == "leave":
            await stream.close()  # type: ignore[attr-defined]
        else:
            stream.abort()  # type: ignore[attr-defined]
        if is_read:
            assert await stream.read() == b""
        elif isinstance(stream, jmux.ClientSession) and way == "leave":
            assert await stream.read() == b"tide", "a response that came whole is kept"
        else:
            with pytest.raises(ClosedError):
                await stream.read()
        assert stream.error is None
