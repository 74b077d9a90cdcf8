"""What a Jmux client reports about a server that does not exist, stops, is killed, or comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import STALL_S, until, wait_for

from mainstem import jmux
from mainstem.errors import ConnectionLost, Delivery, MainstemError, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROGRAM = """
import asyncio, sys
from mainstem import jmux

async def respond(session):
    request = await session.read(-1)
    if request == b"slow":
        print("reading", flush=True)
        await asyncio.Event().wait()
    session.write(request)

async def main():
    async with jmux.aio.serve(respond, "127.0.0.1", int(sys.argv[1])) as server:
        print(server.port, flush=True)
        await server.wait()

asyncio.run(main())
"""
STOPPED = "the server is stopped or overloaded"
NO_HEADER = f"no Jmux header came over the connection within 0.05 s; {STOPPED}, or does not speak Jmux"
WHILE_OPEN = "the jmux connection while a request was open"
TWICE = "it may have been executed; send it again only if twice does no harm"


class BlockingClient:
    """The calls under test, made through the blocking API."""

    def __init__(self, port: int, **options: Any) -> None:
        self.client = jmux.connect("127.0.0.1", port, **options)

    def request(self, payload: bytes, **options: Any) -> bytes:
        return self.client.request(payload, **options)

    def open_session(self) -> None:
        self.client.open_session().abort()

    def wait_disconnected(self) -> None:
        wait_for(lambda: not self.client.stats().connections)

    def close(self) -> None:
        self.client.close()


class AsyncioClient:
    """The same calls, made through the asyncio API."""

    def __init__(self, port: int, **options: Any) -> None:
        self.runner = asyncio.Runner()
        try:
            self.client = self.run(lambda: jmux.aio.connect("127.0.0.1", port, **options))
        except BaseException:
            self.runner.close()
            raise

    def run(self, call: Callable[[], Any]) -> Any:
        async def work() -> Any:
            return await call()

        return self.runner.run(work())

    def request(self, payload: bytes, **options: Any) -> bytes:
        response: bytes = self.run(lambda: self.client.request(payload, **options))
        return response

    def open_session(self) -> None:
        self.run(self.client.open_session)

    def wait_disconnected(self) -> None:
        self.run(lambda: until(lambda: not self.client.stats().connections))

    def close(self) -> None:
        self.run(self.client.close)
        self.runner.close()


BOTH = pytest.mark.parametrize("api", [BlockingClient, AsyncioClient])


class Program:
    """A server in its own process."""

    def __init__(self, port: int = 0) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(port)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill_once_it_reads(self) -> None:
        def kill() -> None:
            assert self.process.stdout is not None
            self.process.stdout.readline()
            self.process.kill()

        threading.Thread(target=kill).start()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def program() -> Iterator[Program]:
    running = Program()
    yield running
    running.end()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def failure_of(call: Callable[[], object], kind: type[MainstemError]) -> tuple[str, Delivery]:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value), caught.value.delivery


@BOTH
def test_a_client_says_that_nothing_listens(api: Any, unused_port: int) -> None:
    assert failure_of(lambda: api(unused_port), ConnectionLost) == (
        f"cannot connect to 127.0.0.1:{unused_port}: Connection refused; start the server, or check its address",
        Delivery.NONE,
    )


def test_no_socket_is_at_the_path(tmp_path: Path) -> None:
    path = str(tmp_path / "jmux.sock")
    assert failure_of(lambda: jmux.connect(path=path), ConnectionLost) == (
        f"cannot connect to {path}: No such file or directory; start the server, or check its path",
        Delivery.NONE,
    )


@BOTH
def test_a_listener_that_does_not_answer(api: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert failure_of(lambda: api(port, timeout=0.05), Timeout) == (
            f"cannot connect to 127.0.0.1:{port}: {NO_HEADER}",
            Delivery.NONE,
        )


def test_a_listener_that_closes_before_its_header() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def hang_up() -> None:
            accepted, _ = listening.accept()
            accepted.recv(8)
            accepted.close()

        threading.Thread(target=hang_up).start()
        text, delivery = failure_of(lambda: BlockingClient(port), ConnectionLost)
    assert text == f"127.0.0.1:{port} ended the connection before its jmux header came"
    assert delivery is Delivery.NONE


@BOTH
def test_a_server_that_ended_between_two_requests(api: Any) -> None:
    server = jmux.serve(lambda session: session.write(session.read(-1)), "127.0.0.1", 0)
    port = server.port
    client = api(port)
    assert client.request(b"x") == b"x"
    server.close()
    client.wait_disconnected()
    cannot = f"cannot connect to 127.0.0.1:{port}: Connection refused; start the server, or check its address"
    for attempts, times in ((1, ""), (2, " in 2 attempts")):
        assert failure_of(lambda: client.request(b"x", attempts=attempts), ConnectionLost) == (  # noqa: B023 - called at once
            f"the request was not sent{times}: {cannot}",
            Delivery.NONE,
        )
    assert failure_of(lambda: client.request(b"x", timeout=0.5, attempts=1000), Timeout) == (
        f"no response within 0.5 s from 127.0.0.1:{port}: it was not sent, and the attempt before failed: {cannot}",
        Delivery.NONE,
    )
    assert failure_of(client.open_session, ConnectionLost) == (cannot, Delivery.NONE)
    with jmux.serve(lambda session: session.write(session.read(-1)), "127.0.0.1", port):
        assert client.request(b"back") == b"back"
    client.close()


@pytest.mark.long
@BOTH
def test_a_server_that_is_killed_while_it_handles_a_request(api: Any, program: Program) -> None:
    client = api(program.port)
    program.kill_once_it_reads()
    assert failure_of(lambda: client.request(b"slow", timeout=STALL_S), ConnectionLost) == (
        f"the request failed: 127.0.0.1:{program.port} ended {WHILE_OPEN}; it was not sent again, because {TWICE}",
        Delivery.UNKNOWN,
    )
    program.end()
    again = Program(program.port)
    assert client.request(b"back", timeout=STALL_S) == b"back"
    client.close()
    again.end()


@pytest.mark.long
@BOTH
def test_a_server_that_is_stopped_and_resumed(api: Any, program: Program) -> None:
    address = f"127.0.0.1:{program.port}"
    client = api(program.port)
    os.kill(program.process.pid, signal.SIGSTOP)
    assert failure_of(lambda: client.request(b"x", timeout=0.05), Timeout) == (
        f"no response within 0.05 s from {address}: {TWICE}",
        Delivery.UNKNOWN,
    )
    other, _ = failure_of(lambda: api(program.port, timeout=0.05), Timeout)
    assert other.startswith(f"cannot connect to {address}: no Jmux header came")
    os.kill(program.process.pid, signal.SIGCONT)
    assert client.request(b"x", timeout=STALL_S) == b"x"
    client.close()


@pytest.mark.long
@BOTH
def test_a_server_that_is_stopped_under_a_heartbeat(api: Any, program: Program) -> None:
    address = f"127.0.0.1:{program.port}"
    client = api(program.port, ping_interval=0.5, ping_timeout=0.5)
    os.kill(program.process.pid, signal.SIGSTOP)
    assert failure_of(lambda: client.request(b"x"), Timeout) == (
        f"the request failed: {address} did not answer a ping for 0.5 s; it was not sent again, because {TWICE}",
        Delivery.UNKNOWN,
    )
    assert failure_of(lambda: client.request(b"x", timeout=0.05), Timeout) == (
        f"no response within 0.05 s from {address}: it was not sent, as there was no connection yet; {STOPPED}",
        Delivery.NONE,
    )
    client.close()


def test_a_request_names_the_limit_when_all_sessions_are_busy() -> None:
    released = threading.Event()
    with (
        jmux.serve(lambda _: released.wait(STALL_S), "127.0.0.1", 0) as server,
        jmux.connect("127.0.0.1", server.port, max_connections=1) as client,
    ):
        sessions = [client.open_session() for _ in range(128)]
        text, _ = failure_of(lambda: client.request(b"x", timeout=0.01), Timeout)
        for session in sessions:
            session.abort()
        released.set()
    assert text.endswith(
        "it was not sent, as all sessions were busy; allow more time, or more connections (max_connections)"
    )


def test_a_read_timeout_names_the_session() -> None:
    with (
        jmux.serve(lambda session: session.read(-1), "127.0.0.1", 0) as server,
        jmux.connect("127.0.0.1", server.port) as client,
        client.open_session() as session,
    ):
        session.write(b"x")
        text, _ = failure_of(lambda: session.read(timeout=0.01), Timeout)
        session.abort()
    assert text == "read of session 0: timed out after 0.01 s"
