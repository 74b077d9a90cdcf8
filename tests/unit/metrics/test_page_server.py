"""The metrics page over HTTP, with peers that are silent, slow, numerous, or use another host's name."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import STALL_S, wait_for

from mainstem._internal.http_listener import ConnectionLimits
from mainstem.errors import DriverTimeout
from mainstem.metrics import MetricsServer
from mainstem.metrics import page_server as server_module
from mainstem.metrics.page_server import MAX_HEAD_BYTES, PageServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.metrics import Family

GET = "GET /metrics HTTP/1.1"
MAX_CONNECTIONS = 64
LIMITS = ConnectionLimits(connections=MAX_CONNECTIONS)


def address(server: PageServer) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("http://").removesuffix("/metrics").rpartition(":")
    return host.strip("[]"), int(port)


def connect(server: PageServer) -> socket.socket:
    return socket.create_connection(address(server), STALL_S)


def rest_of(sock: socket.socket) -> bytes:
    received = bytearray()
    try:
        while data := sock.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return bytes(received)


def ask(server: PageServer, *lines: str) -> tuple[int, bytes]:
    """Return the status and the body."""
    with connect(server) as sock:
        sock.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        head, _, body = rest_of(sock).partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def names_of_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("mainstem-metrics")]


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer("127.0.0.1:0", lambda: "tide 1\n", name="listen", insecure=False, limits=LIMITS) as running:
        yield running


def test_idle_connections_hold_no_threads_and_block_no_one(server: PageServer) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(150)]
        silent += [stack.enter_context(connect(server)) for _ in range(150)]
        for sock in silent[250:]:
            sock.sendall(b"GET /metr")
        assert ask(server, GET) == (200, b"tide 1\n")
        # The oldest connections were closed to make room.
        assert [rest_of(sock) for sock in silent[: 300 - MAX_CONNECTIONS]] == [b""] * (300 - MAX_CONNECTIONS)
        assert len(names_of_threads()) <= 2
        assert server._counts.connections <= MAX_CONNECTIONS
    wait_for(lambda: not server._counts.connections)


def test_a_head_that_is_not_complete_in_time_ends_its_connection() -> None:
    limits = ConnectionLimits(head_seconds=0.05)
    with (
        PageServer("127.0.0.1:0", str, name="listen", insecure=False, limits=limits) as server,
        connect(server) as sock,
    ):
        sock.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert rest_of(sock) == b""


def test_a_peer_that_does_not_take_the_page_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SEND_SECONDS", 0.05)
    written = threading.Event()

    def page() -> str:
        written.set()
        return "x" * (32 << 20)

    with PageServer("127.0.0.1:0", page, name="listen", insecure=False) as server, connect(server) as sock:
        sock.sendall(f"{GET}\r\n\r\n".encode())
        assert written.wait(STALL_S)
        wait_for(lambda: not server._counts.connections)
        assert len(rest_of(sock)) < 32 << 20


def test_requests_above_the_limit_in_flight_are_rejected() -> None:
    go, begun = threading.Event(), threading.Event()

    def page() -> str:
        begun.set()
        go.wait(STALL_S)
        return "tide 1\n"

    with (
        PageServer("127.0.0.1:0", page, name="listen", insecure=False, limits=LIMITS) as server,
        ExitStack() as stack,
    ):
        stack.callback(go.set)
        asking = [stack.enter_context(connect(server)) for _ in range(MAX_CONNECTIONS)]
        for sock in asking:
            sock.sendall(f"{GET}\r\n\r\n".encode())
        wait_for(
            lambda: sum(not each.is_silent for each in list(server._listener.connections.values())) == MAX_CONNECTIONS
        )
        with connect(server) as sock:
            assert rest_of(sock).startswith(b"HTTP/1.1 503 ")
        assert begun.is_set()
        assert len(names_of_threads()) == 2
        go.set()
        assert all(rest_of(sock).endswith(b"\r\n\r\ntide 1\n") for sock in asking)


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:9464", "127.0.0.1.attacker.example", "[x]"])
def test_a_page_of_another_origin_cannot_read_it_by_its_own_name(server: PageServer, host: str) -> None:
    status, body = ask(server, GET, f"Host: {host}")
    assert status == 421
    assert b"tide" not in body


@pytest.mark.parametrize("field", ["Host: 127.0.0.1:1", "host: localhost", "Host: [::1]:9464", "Accept: text/plain"])
def test_addresses_and_localhost_are_served(server: PageServer, field: str) -> None:
    assert ask(server, GET, field) == (200, b"tide 1\n")


def test_the_name_that_the_operator_listens_on_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "listening_addresses", lambda *_: [(socket.AF_INET, ("127.0.0.1", 0))])
    with PageServer("Recorder-1:0", str, name="listen", insecure=True) as server:
        assert ask(server, GET, "Host: recorder-1:9464")[0] == 200
        assert ask(server, GET, "Host: recorder-2:9464")[0] == 421


def test_another_host_can_use_any_name(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "is_loopback", lambda _: False)
    assert ask(server, GET, "Host: recorder-1:9464")[0] == 200


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["HEAD /metrics HTTP/1.1"], 200),
        (["GET /metrics?name=tide HTTP/1.0"], 200),
        (["GET / HTTP/1.1"], 404),
        (["HEAD / HTTP/1.1"], 404),
        (["GET http://attacker.example/metrics HTTP/1.1", "Host: 127.0.0.1"], 421),
        (["GET http://127.0.0.1/metrics?x=1 HTTP/1.1", "Host: attacker.example"], 200),
        (["GET ftp://127.0.0.1/metrics HTTP/1.1"], 400),
        (["GET * HTTP/1.1"], 400),
        (["POST /metrics HTTP/1.1"], 405),
        (["GET /metrics"], 400),
        (["\x16\x03\x01"], 400),
        ([GET, "Host: 127.0.0.1", "Host: attacker.example"], 400),
        ([GET, "X: " + "x" * (MAX_HEAD_BYTES - len(GET) - 8)], 431),
        ([GET, "X: " + "x" * (MAX_HEAD_BYTES - len(GET) - 9)], 200),
    ],
)
def test_responses_by_method_and_path(server: PageServer, lines: list[str], status: int) -> None:
    answer, body = ask(server, *lines)
    assert answer == status
    assert (body == b"") == lines[0].startswith("HEAD")


def test_ipv6_and_every_address_of_a_name() -> None:
    with PageServer("[::1]:0", lambda: "tide 1\n", name="listen", insecure=False) as server:
        assert server.url.startswith("http://[::1]:")
        assert ask(server, GET) == (200, b"tide 1\n")
    with PageServer("localhost:0", lambda: "tide 1\n", name="listen", insecure=False) as server:
        for host in {entry[4][0] for entry in socket.getaddrinfo("localhost", None)}:
            socket.create_connection((host, address(server)[1]), STALL_S).close()


def test_a_source_that_fails_is_one_answer(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Exception] = [DriverTimeout("no driver\r\nin\x1b[2J sight"), ZeroDivisionError("secret")]

    def source() -> list[Family]:
        if failures:
            raise failures.pop(0)
        return []

    with MetricsServer("127.0.0.1:0", source) as server:
        inner = server._server
        status, body = ask(inner, GET)
        assert status == 503
        assert body.startswith(b"no driver")
        assert b"\x1b" not in body
        status, body = ask(inner, GET)
        assert status == 500
        assert b"secret" not in body
        assert "secret" in caplog.text
        assert ask(inner, GET)[0] == 200


def test_a_page_that_never_ends_is_an_answer_and_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PAGE_SECONDS", 0.05)
    go = threading.Event()

    def page() -> str:
        go.wait(STALL_S)
        return "late\n"

    with PageServer("127.0.0.1:0", page, name="listen", insecure=False) as server:
        assert [ask(server, GET)[0] for _ in range(3)] == [503] * 3
        assert len(names_of_threads()) == 2
        go.set()


def test_close_leaves_no_thread_no_connection_and_no_port(recwarn: pytest.WarningsRecorder) -> None:
    server = PageServer("localhost:0", lambda: "tide 1\n", name="listen", insecure=False)
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(10)]
        assert ask(server, GET)[0] == 200
        server.close()
        server.close()
        assert [rest_of(sock) for sock in silent] == [b""] * 10
        assert names_of_threads() == []
        with pytest.raises(ConnectionRefusedError):
            connect(server)
    assert server._loop.is_closed()
    assert all(listening.fileno() == -1 for listening in server._listening)
    assert [str(each.message) for each in recwarn] == []
