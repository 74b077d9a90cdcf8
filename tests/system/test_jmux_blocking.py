"""Jmux for blocking programs: handlers in threads, their limits, and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import STALL_S, soon, wait_for

from mainstem import jmux
from mainstem.errors import Aborted, ClosedError, ConnectionLost, Delivery, LimitExceeded, MainstemError, Timeout
from mainstem.jmux import aio
from mainstem.jmux.client_engine import ClientEngine
from mainstem.jmux.server_engine import ServerEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    wait_for(lambda: threading.active_count() <= before)


def upper(session: jmux.ServerSession) -> None:
    session.write(session.read(-1).upper())


class Held:
    """A handler that reads its request and waits for ``release``; ``errors`` collects its exceptions."""

    def __init__(self, wait: Callable[[jmux.ServerSession], object] | None = None) -> None:
        self.release = threading.Event()
        self.started = self.most = self.running = 0
        self.errors: list[BaseException] = []
        self._wait = wait or (lambda _: self.release.wait())
        self._lock = threading.Lock()

    def __call__(self, session: jmux.ServerSession) -> None:
        with self._lock:
            self.started += 1
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            data = session.readexactly(1)
            self._wait(session)
            session.write(data)
        except BaseException as error:
            self.errors.append(error)
            raise
        finally:
            with self._lock:
                self.running -= 1


def test_whole_requests_and_streams() -> None:
    with jmux.serve(upper, "127.0.0.1", 0) as server, jmux.connect("127.0.0.1", server.port) as client:
        assert client.request(b"tide") == b"TIDE"
        with client.open_session() as session:
            session.write(b"piece by ")
            session.write(b"piece")
            with pytest.raises(Timeout):
                session.read(timeout=0.05)
            session.finish()
            assert session.read(-1) == b"PIECE BY PIECE"
            assert session.delivery is Delivery.COMPLETE
        assert session.closed
        assert session.error is None
        assert client.peer_address == ("127.0.0.1", server.port)
        assert repr(client) == f"<jmux Client of 127.0.0.1:{server.port}, 1 connections>"
        assert client.stats().streams_opened == server.stats().streams_opened == 2
    for ended in (client, server):
        assert ended.closed
        assert ended.error is None
        assert ended.stats().closed
        ended.close()
        ended.abort()
    with pytest.raises(ClosedError):
        client.request(b"late")


def test_many_threads_share_a_client() -> None:
    with jmux.serve(upper, "127.0.0.1", 0) as server, jmux.connect("127.0.0.1", server.port) as client:
        responses: dict[int, bytes] = {}

        def ask(number: int) -> None:
            responses[number] = client.request(b"n%d" % number)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert responses == {number: b"N%d" % number for number in range(40)}


def test_a_request_waits_while_max_handlers_run() -> None:
    handler = Held()
    with (
        jmux.serve(handler, "127.0.0.1", 0, max_handlers=3) as server,
        jmux.connect("127.0.0.1", server.port) as client,
    ):
        sessions = [client.open_session() for _ in range(7)]
        for session in sessions:
            session.write(b"x")
            session.finish()
        wait_for(lambda: server.stats().streams_opened == 7 and handler.running == 3)
        assert handler.started == 3
        handler.release.set()
        assert [session.read(-1, timeout=STALL_S) for session in sessions] == [b"x"] * 7
        assert handler.most == 3
        for session in sessions:
            session.close()


def test_a_request_that_waits_for_a_handler_may_be_retried() -> None:
    handler = Held()
    with (
        jmux.serve(handler, "127.0.0.1", 0, max_handlers=1) as server,
        jmux.connect("127.0.0.1", server.port) as client,
    ):
        first, second = (client.open_session() for _ in range(2))
        first.write(b"x")
        wait_for(lambda: handler.running == 1)
        second.write(b"x")
        wait_for(lambda: server.stats().streams_opened == 2)
        # The first handler holds its place until the second request has been rejected.
        stopping = threading.Thread(target=server.shutdown, kwargs={"timeout": 0})
        stopping.start()
        with pytest.raises(MainstemError):
            second.read(timeout=STALL_S)
        handler.release.set()
        stopping.join(STALL_S)
        assert not stopping.is_alive()
        assert handler.started == 1
        assert second.may_retry


def test_shutdown_lets_handlers_finish() -> None:
    handler = Held()
    server = jmux.serve(handler, "127.0.0.1", 0)
    with jmux.connect("127.0.0.1", server.port) as client:
        session = client.open_session()
        session.write(b"x")
        session.finish()
        wait_for(lambda: handler.running == 1)
        stopping = threading.Thread(target=server.shutdown)
        stopping.start()
        with pytest.raises(Timeout):
            server.wait(timeout=0.05)
        assert stopping.is_alive()
        handler.release.set()
        assert session.read(-1, timeout=STALL_S) == b"x"
        stopping.join()
        assert server.closed
        server.wait(timeout=STALL_S)


@pytest.mark.parametrize("how", ["the server closes", "the client aborts", "the client goes"])
def test_a_handler_stops_waiting_when_its_session_ends(how: str) -> None:
    waits: list[Callable[[jmux.ServerSession], object]] = [
        lambda session: session.read(-1),
        lambda session: session.readexactly(100),
        lambda session: [session.write(bytes(100_000)) for _ in range(1000)],
    ]
    for wait in waits:
        handler = Held(wait)
        with jmux.serve(handler, "127.0.0.1", 0) as server, jmux.connect("127.0.0.1", server.port) as client:
            session = client.open_session()
            session.write(b"x")
            wait_for(lambda: handler.running == 1)  # noqa: B023
            if how == "the server closes":
                server.close()
            elif how == "the client aborts":
                session.abort("enough")
            else:
                client.abort()
            wait_for(lambda: handler.running == 0)  # noqa: B023
            assert isinstance(handler.errors[0], MainstemError)
            assert server.stats().handlers_failed == 0, "the end of its own session is not a failure of a handler"


def test_a_busy_handler_can_check_whether_the_client_waits() -> None:
    asked = threading.Event()

    def compute(session: jmux.ServerSession) -> None:
        session.read(-1)
        while session.caller_waiting:
            time.sleep(0.001)
        asked.set()

    with jmux.serve(compute, "127.0.0.1", 0) as server, jmux.connect("127.0.0.1", server.port) as client:
        with pytest.raises(Timeout, match=r"no response within 0\.5 s") as caught:
            client.request(b"x", timeout=0.5)
        assert caught.value.delivery is Delivery.UNKNOWN
        assert asked.wait(STALL_S)


def test_a_handler_that_raises_aborts_its_session_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    def fail(session: jmux.ServerSession) -> None:
        session.read(-1)
        raise ValueError("a fault of the handler")

    with jmux.serve(fail, "127.0.0.1", 0) as server, jmux.connect("127.0.0.1", server.port) as client:
        with pytest.raises(Aborted) as caught:
            client.request(b"x")
        assert caught.value.delivery is Delivery.PARTIAL
        assert not caught.value.may_retry
        wait_for(lambda: server.stats().handlers_failed == 1)
    assert "a fault of the handler" in caplog.text


def test_rejections_and_acknowledgments() -> None:
    heard: list[bool] = []

    def ask(session: jmux.ServerSession) -> None:
        if session.id:
            session.reject("busy")
            return
        session.write(b"please")
        session.finish(ack_required=True)
        heard.append(session.acknowledged(timeout=STALL_S))

    with jmux.serve(ask, "127.0.0.1", 0) as server, jmux.connect("127.0.0.1", server.port) as client:
        with client.open_session() as session:
            session.finish()
            with client.open_session() as other:
                other.write(b"x")
                with pytest.raises(Aborted, match="busy") as caught:
                    other.read()
                assert caught.value.may_retry
                assert other.error is caught.value
            assert session.read(-1) == b"please"
            assert session.acknowledgment_required
        wait_for(lambda: heard == [True])


def test_a_handler_can_close_its_server() -> None:
    def stop(session: jmux.ServerSession) -> None:
        server.close()

    server = jmux.serve(stop, "127.0.0.1", 0)
    with jmux.connect("127.0.0.1", server.port) as client, client.open_session() as session:
        session.write(b"x")
        with pytest.raises(MainstemError):
            session.read(timeout=STALL_S)
    server.wait(timeout=STALL_S)


@pytest.mark.parametrize("what", ["wait", "shutdown"])
def test_a_signal_handler_that_raises_ends_a_wait_and_closes_the_server(what: str) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    handler = Held()
    previous = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with jmux.serve(handler, "127.0.0.1", 0) as server, jmux.connect("127.0.0.1", server.port) as client:
            session = client.open_session()
            session.write(b"x")
            wait_for(lambda: handler.running == 1)
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
            threading.Timer(0.3, handler.release.set).start()
            with pytest.raises(Interrupted):
                getattr(server, what)()
            handler.release.wait()
        assert server.closed
    finally:
        signal.signal(signal.SIGUSR1, previous)
    wait_for(lambda: not handler.running)


def test_errors_have_may_retry() -> None:
    with pytest.raises(ConnectionLost, match="Connection refused") as refused:
        jmux.connect("127.0.0.1", 1)
    assert refused.value.may_retry

    def big(session: jmux.ServerSession) -> None:
        session.read(-1)
        session.write(bytes(2000))
        while session.caller_waiting:  # otherwise, the end of the response would arrive together with its bytes
            time.sleep(0.001)

    server = jmux.serve(big, "127.0.0.1", 0)
    with jmux.connect("127.0.0.1", server.port, read_limit=1000) as client:
        with server, pytest.raises(LimitExceeded) as long:
            client.request(b"x")
        assert long.value.delivery is Delivery.UNKNOWN
        wait_for(lambda: not client.stats().connections)  # a request on a connection that is ending would fail
        with pytest.raises(ConnectionLost, match="Connection refused") as gone:
            client.request(b"x", attempts=2)
        assert gone.value.may_retry
        with pytest.raises(Timeout, match=r"no response within 0\.3 s.*Connection refused") as late:
            client.request(b"x", timeout=0.3, attempts=1000)
        assert late.value.may_retry
    with pytest.raises(ClosedError) as closed:
        client.request(b"x")
    assert closed.value.may_retry


def test_opening_a_session_times_out_while_all_are_busy() -> None:
    with (
        jmux.serve(upper, "127.0.0.1", 0) as server,
        jmux.connect("127.0.0.1", server.port, max_connections=1, timeout=None) as client,
    ):
        sessions = [client.open_session() for _ in range(128)]
        with pytest.raises(Timeout) as full:
            client.open_session(timeout=0.05)
        assert full.value.may_retry
        with pytest.raises(Timeout, match="no response within") as waited:
            client.request(b"x", timeout=0.05)
        assert waited.value.may_retry
        sessions[0].abort()
        assert client.request(b"x", timeout=STALL_S) == b"X"


async def test_an_opening_may_be_awaited_or_entered() -> None:
    async def handler(session: aio.ServerSession) -> None:
        session.write((await session.read(-1)).upper())

    server = await aio.serve(handler, "127.0.0.1", 0)
    client = await aio.connect("127.0.0.1", server.port)
    assert await client.request(b"tide") == b"TIDE"
    session = await client.open_session()
    session.finish()
    assert await session.read(-1) == b""
    await session.close()
    await session.close()
    assert session.closed
    await client.close()
    await server.close()
    async with (
        aio.serve(handler, "127.0.0.1", 0) as server,
        aio.connect("127.0.0.1", server.port) as client,
        client.open_session() as session,
    ):
        session.write(b"x")
        session.finish()
        assert await session.read(-1) == b"X"
        waiting = asyncio.ensure_future(server.wait())
    assert client.closed
    assert server.closed
    await soon(waiting)
    with pytest.warns(RuntimeWarning, match="never awaited"):
        aio.connect("127.0.0.1", 1)


def test_a_silent_server_is_detected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            peer, _ = listener.accept()
            peers.append(peer)
            engine = ServerEngine()
            engine.receive_data(peer.recv(8))
            peer.sendall(engine.data_to_send())

        peers: list[socket.socket] = []
        greeter = threading.Thread(target=greet)
        greeter.start()
        client = jmux.connect("127.0.0.1", listener.getsockname()[1], ping_interval=0.05, ping_timeout=0.1)
        greeter.join()
        session = client.open_session()
        session.write(b"x")
        with pytest.raises(Timeout, match=r"did not answer a ping for 0\.1 s") as caught:
            session.read(timeout=STALL_S)
        assert not caught.value.may_retry
        assert session.closed
        assert session.error is caught.value
        client.close()
        peers[0].close()


def test_a_silent_client_is_detected() -> None:
    handler = Held(lambda session: session.read(-1))
    settings = jmux.Settings(ping_interval=0.05, ping_timeout=0.1)
    with (
        jmux.serve(handler, "127.0.0.1", 0, settings=settings) as server,
        socket.create_connection(("127.0.0.1", server.port)) as peer,
    ):
        engine = ClientEngine()
        peer.sendall(engine.data_to_send())
        engine.receive_data(peer.recv(8))
        engine.write(engine.open_session(), b"x")
        peer.sendall(engine.data_to_send())
        wait_for(lambda: handler.errors)
        assert isinstance(handler.errors[0], Timeout)
        assert server.stats().connections_timed_out == 1
        assert server.stats().handlers_failed == 0
