"""Exceptions that signal handlers raise in blocking calls reach the caller and lose no data."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.call_waits import replace_waits
from tests.support.mux_pair import awaited, bymux_pair, jmux_pair
from tests.support.waiting import STALL_S, wait_for

from mainstem import bymux
from mainstem import jmux as jmux_blocking
from mainstem._internal.loop_thread import Call, LoopThread
from mainstem.jmux import aio as jmux
from mainstem.mux.blocking import BaseStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Alarm(Exception):
    """Raised by a signal handler."""


ERRORS = [TimeoutError, KeyboardInterrupt, RuntimeError, asyncio.CancelledError, Alarm]
# When the exception is raised: before the work starts, while it runs, or when its result is ready.
MOMENTS = ["before", "during", "after"]


@pytest.fixture(params=MOMENTS)
def interrupt(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Interrupt one call at a given moment, as a signal handler does."""
    start = Call.start

    def interrupt(work: Callable[[], object], error: type[BaseException] = Alarm) -> None:
        def interrupted_start(_: Call[Any]) -> None:
            monkeypatch.setattr(Call, "start", start)
            raise error

        def interrupted_wait(acquire: Callable[..., bool], **options: Any) -> bool:
            if threading.current_thread() is not threading.main_thread():
                return acquire(**options)
            restore()
            if request.param == "after":
                assert acquire(timeout=STALL_S)
            raise error

        if request.param == "before":
            monkeypatch.setattr(Call, "start", property(interrupted_start))
        else:
            restore = replace_waits(monkeypatch, interrupted_wait)
        with pytest.raises(error):
            work()

    return interrupt


async def echo(stream: Any) -> None:
    async for data in stream:
        stream.write(data)
        await stream.drain()


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    with LoopThread() as thread:
        yield thread


def opened(thread: LoopThread, protocol: str) -> BaseStream[Any]:
    """A stream whose peer echoes what it receives."""

    async def open_stream() -> Any:
        if protocol == "bymux":
            return await bymux_pair(echo, settings=bymux.Settings(stream_window=1000))[0].open_stream()
        return await jmux_pair(echo, settings=jmux.Settings(initial_ration=1024))[0].open_session()

    return BaseStream(thread, thread.run(open_stream()))


PROTOCOLS = pytest.mark.parametrize("protocol", ["bymux", "jmux"])


@PROTOCOLS
@pytest.mark.parametrize("error", ERRORS)
def test_an_interrupted_read_leaves_its_bytes_for_the_next_read(
    thread: LoopThread, protocol: str, error: type[BaseException], interrupt: Callable[..., None]
) -> None:
    stream = opened(thread, protocol)
    stream.write(b"ab")
    interrupt(lambda: stream.read(timeout=STALL_S), error)
    stream.write(b"cdefg")
    assert stream.readexactly(3, timeout=STALL_S) == b"abc"
    interrupt(lambda: stream.readexactly(2, timeout=STALL_S), error)
    assert stream.readexactly(4, timeout=STALL_S) == b"defg"


@PROTOCOLS
def test_a_read_interrupted_while_waiting_does_not_block_other_reads(
    thread: LoopThread, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = opened(thread, protocol)

    def interrupted_wait(_acquire: Callable[..., bool], **_options: Any) -> bool:
        monkeypatch.undo()
        wait_for(lambda: stream._inner._reader)
        raise TimeoutError

    for _ in range(3):
        replace_waits(monkeypatch, interrupted_wait)
        with pytest.raises(TimeoutError):
            stream.read()
    stream.write(b"x")
    assert stream.read(timeout=STALL_S) == b"x"


def test_the_last_bytes_of_a_stream_stay_for_the_next_read(thread: LoopThread, interrupt: Callable[..., None]) -> None:
    stream = opened(thread, "bymux")
    stream.write(b"last")
    thread.call(stream._inner.finish)
    interrupt(lambda: stream.readexactly(100))
    assert stream.read(-1, timeout=STALL_S) == b"last"
    interrupt(lambda: stream.read())
    assert stream.read() == b""


@PROTOCOLS
def test_bytes_put_back_do_not_grant_credit_twice(
    thread: LoopThread, protocol: str, interrupt: Callable[..., None]
) -> None:
    stream = opened(thread, protocol)
    data = bytes(range(256)) * 40
    writing = threading.Thread(target=stream.write, args=(data,))
    writing.start()
    received = b""
    while len(received) < len(data):
        interrupt(lambda: stream.read(700, timeout=STALL_S))
        assert stream._inner._buffer.size <= 1024 + 700
        received += stream.read(500, timeout=STALL_S)
    writing.join()
    assert received == data


@PROTOCOLS
def test_the_bytes_of_an_interrupted_write_are_queued_once(
    thread: LoopThread, protocol: str, interrupt: Callable[..., None]
) -> None:
    stream = opened(thread, protocol)
    for number in range(3):
        interrupt(lambda number=number: stream.write(b"%d" % number))  # type: ignore[misc]
    assert stream.readexactly(3, timeout=STALL_S) == b"012"


@pytest.fixture
def pair(thread: LoopThread) -> Iterator[tuple[bymux.aio.Connection, bymux.Connection]]:
    """A peer and a connection that accepts and opens streams."""

    async def connect() -> tuple[bymux.aio.Connection, bymux.aio.Connection]:
        return bymux_pair()

    peer, inner = thread.run(connect())
    connection = bymux.Connection.made(thread, inner)
    yield peer, connection
    connection.abort()


def test_an_interrupted_accept_leaves_the_stream_for_the_next_accept(
    thread: LoopThread,
    pair: tuple[bymux.aio.Connection, bymux.Connection],
    interrupt: Callable[..., None],
) -> None:
    peer, connection = pair

    async def open_stream() -> int:
        return (await peer.open_stream()).id

    ids = [thread.run(open_stream()) for _ in range(3)]
    accepted = []
    for _ in ids:
        interrupt(lambda: connection.accept_stream(timeout=STALL_S))
        stream = connection.accept_stream(timeout=STALL_S)
        assert stream is not None
        accepted.append(stream.id)
    assert accepted == ids


def test_an_interrupted_open_leaves_no_stream(
    pair: tuple[bymux.aio.Connection, bymux.Connection], interrupt: Callable[..., None]
) -> None:
    _, connection = pair
    interrupt(connection.open_stream)

    def is_aborted() -> bool:
        return all(stream._broken for stream in connection._inner._protocol.streams)

    wait_for(lambda: connection._thread.call(is_aborted))
    with connection.open_stream() as stream:
        stream.write(b"x")


def test_an_interrupt_while_leaving_the_block_aborts_the_stream(
    pair: tuple[bymux.aio.Connection, bymux.Connection], interrupt: Callable[..., None]
) -> None:
    _, connection = pair
    stream = connection.open_stream()
    interrupt(lambda: stream.__exit__(None, None, None))
    wait_for(lambda: stream._inner._broken)


def test_an_interrupted_request_frees_its_session(thread: LoopThread, interrupt: Callable[..., None]) -> None:
    async def connect() -> jmux_blocking.Client:
        return jmux_blocking.Client.made(thread, jmux_pair(echo)[0])

    with thread.run(connect()) as client:
        assert client.request(b"x") == b"x"
        connection = client._inner._pool.connections[0]

        def use() -> None:
            with client.open_session():
                pytest.fail("it was interrupted")

        interrupt(use)
        wait_for(lambda: connection.engine.busy == 0)
        interrupt(lambda: client.request(b"y"))
        wait_for(lambda: connection.engine.busy == 0)
        with client.open_session() as session:
            session.write(b"z")
            session.finish()
            assert session.read(-1) == b"z"
            interrupt(session.abort)
        assert thread.call(lambda: connection.engine.busy) == 0


@pytest.mark.parametrize("protocol", [bymux.aio, jmux])
def test_an_interrupted_connect_and_close_leave_no_connection_and_no_thread(
    protocol: Any, thread: LoopThread, interrupt: Callable[..., None]
) -> None:
    blocking: Any = {bymux.aio: bymux, jmux: jmux_blocking}[protocol]
    listener = thread.run(awaited(protocol.serve(echo, "127.0.0.1", 0)))
    threads = threading.active_count()
    interrupt(lambda: blocking.connect("127.0.0.1", listener.port))
    wait_for(lambda: not listener._connections)
    client = blocking.connect("127.0.0.1", listener.port)
    wait_for(lambda: listener._connections)
    interrupt(client.close)
    wait_for(lambda: not listener._connections)
    wait_for(lambda: threading.active_count() == threads)
    client.close()
    thread.run(listener.close())


def test_no_bytes_are_lost_when_a_signal_handler_raises() -> None:
    """The handler is armed only during the calls, and raises at any instruction of them."""
    rng = random.Random(1)
    is_armed = False

    def handler(*_: object) -> None:
        if is_armed:
            raise rng.choice(ERRORS)("a signal")

    async def count(stream: Any) -> None:
        for start in itertools.count(0, 100):
            stream.write(b"".join(number.to_bytes(4, "big") for number in range(start, start + 100)))
            await stream.drain()
            await asyncio.sleep(0)

    def shoot() -> None:
        shots = random.Random(2)
        while not done.wait(shots.uniform(0, 0.002)):
            signal.pthread_kill(main, signal.SIGUSR1)

    main, done = threading.main_thread().ident, threading.Event()
    assert main is not None
    previous = signal.signal(signal.SIGUSR1, handler)
    shooter = threading.Thread(target=shoot)
    interrupted, received = 0, bytearray()
    try:
        with LoopThread() as server:
            listener = server.run(awaited(bymux.aio.serve(count, "127.0.0.1", 0)))
            with bymux.connect("127.0.0.1", listener.port) as connection:
                stream = connection.open_stream()
                shooter.start()
                deadline = time.monotonic() + STALL_S
                while interrupted < 300 and time.monotonic() < deadline:
                    size = rng.choice((1, 7, 100, 5000))
                    read = stream.readexactly if rng.random() < 0.5 else stream.read
                    with contextlib.suppress(*ERRORS):
                        data = b""
                        interrupted += 1
                        is_armed = True
                        data = read(size, timeout=STALL_S)
                        is_armed = False
                        interrupted -= 1
                    is_armed = False
                    received += data
                stream.abort()
            server.run(listener.close())
    finally:
        done.set()
        shooter.join()
        signal.signal(signal.SIGUSR1, previous)
    assert interrupted == 300
    numbers = [int.from_bytes(received[at : at + 4], "big") for at in range(0, len(received) // 4 * 4, 4)]
    assert numbers == list(range(len(numbers)))
