"""Blocking bymux: handlers in threads, their limits, how they end, and that they leave nothing behind."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import STALL_S, wait_for

from mainstem import bymux
from mainstem.errors import Aborted, ClosedError, ConfigurationError, ConnectionLost, MainstemError, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.system


def echo(stream: bymux.Stream) -> None:
    for data in stream:
        stream.write(data)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_for(lambda: set(threading.enumerate()) <= before)


class Waiting:
    """Handlers that wait in ``read`` for data that never arrives."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.ends: list[BaseException | None] = []
        self._lock = threading.Lock()

    def __call__(self, stream: bymux.Stream) -> None:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            stream.readexactly(100)
        except (MainstemError, EOFError) as error:
            self.ends.append(error)
            raise
        finally:
            with self._lock:
                self.running -= 1


def test_streams_are_served_in_threads() -> None:
    names = set()

    def handler(stream: bymux.Stream) -> None:
        names.add(threading.current_thread().name)
        assert stream.peer_address[0] == "127.0.0.1"
        assert stream.connection.ping() < STALL_S
        echo(stream)

    with bymux.serve(handler, "127.0.0.1", 0) as server:
        assert server.address == ("127.0.0.1", server.port)
        with bymux.connect("127.0.0.1", server.port) as connection:
            streams = [connection.open_stream() for _ in range(20)]
            for number, stream in enumerate(streams):
                stream.write(b"%d" % number * 50_000)
                stream.finish()
            for number, stream in enumerate(streams):
                assert stream.read(-1, timeout=STALL_S) == b"%d" % number * 50_000
                stream.close()
                assert stream.closed
                assert stream.error is None
            with pytest.raises(Timeout), connection.open_stream() as silent:
                silent.read(timeout=0.05)
            assert server.stats().streams_opened == 21
            assert "127.0.0.1" in repr(server)
            assert "127.0.0.1" in repr(connection)
        assert connection.closed
        with pytest.raises(ClosedError):
            connection.open_stream()
    assert server.closed
    assert len(names) >= 20
    with pytest.raises(ConnectionLost):
        bymux.connect("127.0.0.1", server.port)


def test_handlers_beyond_max_handlers_wait() -> None:
    waiting = Waiting()
    with (
        bymux.serve(waiting, "127.0.0.1", 0, max_handlers=3) as server,
        bymux.connect("127.0.0.1", server.port, stream_window=1000) as connection,
    ):
        streams = [connection.open_stream() for _ in range(8)]
        for stream in streams:
            stream.write(b"x")
        wait_for(lambda: waiting.running == 3)
        time.sleep(0.05)
        assert waiting.running == 3
        for stream in streams[3:5]:
            stream.abort()  # abort the streams while they wait, so their handlers never run
        for stream in streams[:3]:
            stream.write(bytes(99))
        wait_for(lambda: waiting.running == 3 and not waiting.ends)
        for stream in streams[5:]:
            stream.write(bytes(99))
        wait_for(lambda: waiting.running == 0)
    assert waiting.most == 3
    assert waiting.ends == []


@pytest.mark.parametrize("way", ["abort", "connection", "close", "abort of the server", "shutdown"])
def test_a_handler_stops_waiting_when_its_stream_ends(way: str, caplog: pytest.LogCaptureFixture) -> None:
    waiting = Waiting()
    server = bymux.serve(waiting, "127.0.0.1", 0)
    connection = bymux.connect("127.0.0.1", server.port)
    streams = [connection.open_stream() for _ in range(5)]
    wait_for(lambda: waiting.running == 5)
    begun = time.monotonic()
    if way == "abort":
        for stream in streams:
            stream.abort()
    elif way == "connection":
        connection.abort()
    elif way == "close":
        server.close()
    elif way == "abort of the server":
        server.abort()
    else:
        server.shutdown(timeout=0.1)
    wait_for(lambda: waiting.running == 0)
    assert time.monotonic() - begun < 8, "nothing was waited for until its limit"
    assert len(waiting.ends) == 5
    assert all(isinstance(end, Aborted | ClosedError | ConnectionLost) for end in waiting.ends)
    assert server.stats().handlers_failed == 0
    connection.abort()
    server.close()
    server.close()
    assert not [record for record in caplog.records if "handler" in record.getMessage()]


def test_shutdown_lets_handlers_finish_and_sends_what_they_wrote() -> None:
    go = threading.Event()

    def slow(stream: bymux.Stream) -> None:
        stream.write(stream.readexactly(1))
        go.wait(STALL_S)
        stream.write(bytes(300_000))

    server = bymux.serve(slow, "127.0.0.1", 0)
    with bymux.connect("127.0.0.1", server.port) as connection:
        stream = connection.open_stream()
        stream.write(b"x")
        assert stream.readexactly(1, timeout=STALL_S) == b"x"
        down = threading.Thread(target=server.shutdown)
        down.start()
        with pytest.raises(Timeout):
            server.wait(timeout=0.05)
        go.set()
        assert len(stream.read(-1, timeout=STALL_S)) == 300_000
        down.join(STALL_S)
        server.wait(timeout=STALL_S)
    assert server.closed


@pytest.mark.parametrize("verb", ["close", "shutdown", "abort"])
def test_a_handler_can_close_its_server(verb: str) -> None:
    ended = threading.Event()

    def handler(stream: bymux.Stream) -> None:
        stream.readexactly(1)
        getattr(server, verb)()
        ended.set()

    server = bymux.serve(handler, "127.0.0.1", 0)
    with bymux.connect("127.0.0.1", server.port) as connection:
        begun = time.monotonic()
        stream = connection.open_stream()
        stream.write(b"x")
        assert ended.wait(STALL_S)
        server.wait(timeout=STALL_S)
        assert time.monotonic() - begun < 8, "it waited for itself"
        connection.abort()
    server.close()


def test_a_handler_exception_is_logged_and_counted_and_aborts_its_stream(caplog: pytest.LogCaptureFixture) -> None:
    def fail(stream: bymux.Stream) -> None:
        stream.write(b"half an ans")
        raise SystemExit("no")

    with (
        bymux.serve(fail, "127.0.0.1", 0) as server,
        bymux.connect("127.0.0.1", server.port) as connection,
    ):
        with pytest.raises(Aborted):
            connection.open_stream().read(-1, timeout=STALL_S)
        wait_for(lambda: server.stats().handlers_failed == 1)
        assert connection.ping() < STALL_S  # the server still works
    assert "SystemExit('no')" in caplog.text


def test_on_connection_and_the_streams_of_a_client() -> None:
    greeted: list[bytes] = []

    def greet(connection: bymux.Connection) -> None:
        with connection.open_stream() as stream:
            stream.write(b"who are you?")
            stream.finish()
            greeted.append(stream.read(-1, timeout=STALL_S))

    def answer(stream: bymux.Stream) -> None:
        assert stream.read(-1, timeout=STALL_S) == b"who are you?"
        stream.write(b"a client")

    with (
        bymux.serve(echo, "127.0.0.1", 0, on_connection=greet) as server,
        bymux.connect("127.0.0.1", server.port, handler=answer),
    ):
        wait_for(lambda: greeted == [b"a client"])
    with (
        bymux.serve(echo, "127.0.0.1", 0, on_connection=lambda connection: connection.abort()) as server,
        bymux.connect("127.0.0.1", server.port) as refused,
    ):
        refused.wait_closed(timeout=STALL_S)
        assert isinstance(refused.error, ConnectionLost)


def test_streams_wait_until_a_blocking_on_connection_returns() -> None:
    greeted, decide = threading.Event(), threading.Event()
    served: list[int] = []

    def greet(_: bymux.Connection) -> None:
        greeted.set()
        decide.wait(STALL_S)

    def handler(stream: bymux.Stream) -> None:
        served.append(stream.id)
        echo(stream)

    with (
        bymux.serve(handler, "127.0.0.1", 0, on_connection=greet) as server,
        bymux.connect("127.0.0.1", server.port) as connection,
        connection.open_stream() as stream,
    ):
        stream.write(b"tide")
        stream.finish()
        assert greeted.wait(STALL_S)
        wait_for(lambda: server.stats().unread_bytes == 4)
        assert not served
        decide.set()
        assert stream.read(-1, timeout=STALL_S) == b"tide"


def socket_pair() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    here, there = socket.socketpair()
    return (here, here), (there, there)


def pipes() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    (read_a, write_a), (read_b, write_b) = os.pipe(), os.pipe()
    return (os.fdopen(read_a, "rb"), os.fdopen(write_b, "wb")), (os.fdopen(read_b, "rb"), os.fdopen(write_a, "wb"))


@pytest.mark.parametrize("make", [socket_pair, pipes])
def test_attaches_to_sockets_and_pipes(make: Callable[[], Any]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    here, there = make()
    with (
        bymux.attach(*there, role=bymux.Role.REACTIVE, handler=echo),
        bymux.attach(*here, role=bymux.Role.PROACTIVE) as connection,
        connection.open_stream() as stream,
    ):
        stream.write(bytes(500_000))
        stream.finish()
        assert len(stream.read(-1, timeout=STALL_S)) == 500_000
    wait_for(lambda: len(os.listdir("/proc/self/fd")) == before)


def test_attach_rejects_two_sockets() -> None:
    (here, _), (there, _) = socket_pair()
    with here, there, pytest.raises(ConfigurationError, match="a socket is both reader and writer"):
        bymux.attach(here, there, role=bymux.Role.PROACTIVE)


@pytest.mark.parametrize(
    ("end", "reason"),
    [(5, "5 has no open file descriptor"), (io.BytesIO(), "no open file descriptor"), ("a", "'a' has no")],
    ids=["number", "bytes", "text"],
)
def test_attach_rejects_what_is_neither_a_socket_nor_a_pipe(end: Any, reason: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as open_files:
        ends = [open_files.enter_context(file) for pair in pipes() for file in pair]
        datagrams = open_files.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        file = open_files.enter_context((tmp_path / "file").open("wb"))
        for pair, why in (
            ((ends[0], end), reason),
            ((end, end), reason),
            ((datagrams, datagrams), "one connected stream socket twice"),
            ((ends[0], file), "is neither a socket nor a pipe"),
        ):
            with pytest.raises(ConfigurationError, match=why):
                bymux.attach(*pair, role=bymux.Role.PROACTIVE)


@pytest.mark.parametrize("is_waiting", [False, True], ids=["after", "during the call"])
def test_a_closed_connection_has_no_more_streams(is_waiting: bool) -> None:
    with bymux.serve(echo, "127.0.0.1", 0) as server:
        connection = bymux.connect("127.0.0.1", server.port)
        accepted: list[Any] = []
        accepting = threading.Thread(target=lambda: accepted.append(connection.accept_stream()))
        if is_waiting:
            accepting.start()
            time.sleep(0.05)
            connection.close()
        else:
            connection.close()
            accepting.start()
        wait_for(lambda: not accepting.is_alive())
        assert accepted == [None]
        assert list(connection.streams()) == []


def test_a_broken_connection_raises_its_error_when_streams_are_accepted_even_once_it_is_closed() -> None:
    with bymux.serve(echo, "127.0.0.1", 0) as server:
        connection = bymux.connect("127.0.0.1", server.port)
        server.close()
    for _ in range(2):
        with pytest.raises(ConnectionLost):
            connection.accept_stream()
        connection.close()


def test_heartbeats_are_on_by_default_and_detect_a_dead_peer() -> None:
    assert bymux.Settings().ping_interval is not None
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = bymux.connect("127.0.0.1", silent.getsockname()[1], ping_interval=0.05, ping_timeout=0.1)
        with silent.accept()[0], pytest.raises(Timeout, match="did not answer a ping"):
            connection.accept_stream(timeout=STALL_S)
        assert isinstance(connection.error, Timeout)
        connection.close()
