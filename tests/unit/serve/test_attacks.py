"""Requests from attackers are refused and use bounded resources: each limit has a name in ``Limits``."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import ssl
import tracemalloc
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.http_peer import connect, get
from tests.support.waiting import soon, until

from mainstem._internal.exposure import check_exposure, is_literal_host
from mainstem.errors import ConfigurationError
from mainstem.serve.access import Access, read_tokens
from mainstem.serve.app import Application
from mainstem.serve.http_server import log
from mainstem.serve.limits import Limits
from mainstem.serve.ranges import RangeError, parse_range
from mainstem.serve.recording_server import RecordingServer, tls_context
from mainstem.serve.served_directory import ServedDirectory, TooManyFilesError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.unit.serve.conftest import Live

TOKEN = "0123456789abcdef-token"
SECRET = b"the secret of the host"


@pytest.fixture
async def server(live: Live) -> AsyncIterator[RecordingServer]:
    live.add(10)
    (live.path.parent / "secret").write_bytes(SECRET)
    (live.path / "secret").write_bytes(SECRET)
    async with RecordingServer(live.path, "127.0.0.1", 0) as server:
        yield server


# -- paths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/..%5csecret",
        "//secret",
        "/./secret",
        "/secret",
        "/0-0.rec/../../secret",
        "/0-0.rec%00",
        "/0-0.rec%0a",
        "/00-0.rec",
        "/0-00.rec",
        "/-0-0.rec",
        "/0-0.REC",
        "/٠-0.rec",
        "/0-99999999999999999999999999.rec",
        "/mainstem-recorder.lock",
        "/archive.catalog/",
        "/archive%2ecatalog",
        "/0-32.rec",
        "/7-0.rec",
        "/7.mainstem-positions",
        "/v1/files/../../secret",
        "/v1/recordings/0/../../../secret",
        "/v1/recordings/-1",
        "http://127.0.0.1/../secret",
        "/proc/self/environ",
        "*",
    ],
)
async def test_no_path_leads_out_of_the_files_of_recordings(server: RecordingServer, live: Live, target: str) -> None:
    (live.path / "7-0.rec").write_bytes(SECRET)
    (live.path / "7.mainstem-positions").write_bytes(SECRET)
    peer = await connect(server.url)
    await peer.send(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    response = await peer.response()
    assert response.status in (400, 404)
    assert SECRET not in response.body


@pytest.mark.parametrize("name", ["0-65536.rec", "0.mainstem-positions", "archive.catalog"])
async def test_symbolic_links_are_not_followed(server: RecordingServer, live: Live, name: str) -> None:
    (live.path / name).unlink(missing_ok=True)
    os.symlink("../secret", live.path / name)
    response = await get(server.url, f"/{name}")
    assert response.status == 404
    assert SECRET not in response.body


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("other.mainstem-positions", path)])
async def test_positions_are_read_from_ordinary_files_only(live: Live, make: Callable[[Path], None]) -> None:
    """A named pipe does not stop the server, and a link does not lend the positions of another file."""
    live.add(10)
    name = live.path / "0.mainstem-positions"
    name.rename(live.path / "other.mainstem-positions")
    make(name)
    async with RecordingServer(live.path, "127.0.0.1", 0) as server:
        for target in ("/v1/recordings", "/v1/recordings/0"):
            response = await get(server.url, target)
            row = response.json["recordings"][0] if target == "/v1/recordings" else response.json
            assert (response.status, row["recorded_position"]) == (200, None)
        assert (await get(server.url, "/0.mainstem-positions")).status == 404


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
async def test_only_ordinary_files_are_opened(server: RecordingServer, live: Live, make: object) -> None:
    make(live.path / "0-65536.rec")  # type: ignore[operator]
    assert (await get(server.url, "/0-65536.rec")).status == 404


@pytest.mark.parametrize(
    "query",
    [
        "from=-1",
        "from=x",
        "from=1&from=2",
        "limit=1e9",
        "wait=nan",
        "wait=-1",
        "after=%00",
        "x=1",
        "&",
        "limit=" + "9" * 400,
    ],
)
async def test_queries_have_only_parameters_that_are_known(server: RecordingServer, query: str) -> None:
    assert (await get(server.url, f"/v1/recordings?{query}")).status == 400


# -- ranges ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    [
        "bytes=0-1,3-4",
        "bytes=" + ",".join(f"{i}-{i}" for i in range(1000)),
        "bytes=5-1",
        "bytes=-",
        "bytes=--1",
        "bytes=-0",
        "bytes=a-b",
        "lines=0-1",
        "bytes=65536-",
        "bytes=99999999999999999999-",
        "bytes=" + "9" * 5000 + "-",
        "bytes=0-" + "9" * 5000,
        "bytes=\xb2-\xb3",
    ],
)
async def test_other_than_one_range_within_the_file_is_416(server: RecordingServer, field: str) -> None:
    response = await get(server.url, "/0-0.rec", Range=field)
    assert response.status == 416
    assert len(response.body) < 1000


def test_a_range_of_more_than_the_limit_is_refused() -> None:
    with pytest.raises(RangeError, match="at most 100"):
        parse_range("bytes=0-100", 1000, 100)
    with pytest.raises(RangeError, match="at most 100"):
        parse_range(None, 1000, 100)
    assert parse_range("bytes=0-99", 1000, 100) == (0, 100)
    assert parse_range("bytes=900-5000", 1000, 100) == (900, 1000)


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
async def test_nothing_but_reading_is_a_method(server: RecordingServer, live: Live, method: str) -> None:
    before = sorted(live.path.iterdir())
    assert (await get(server.url, "/0-0.rec" if method != "CONNECT" else "x:1", method=method)).status in (400, 405)
    assert sorted(live.path.iterdir()) == before


async def test_a_body_is_refused_and_not_read(server: RecordingServer) -> None:
    peer = await connect(server.url)
    await peer.send(b"GET /0-0.rec HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000000\r\n\r\n")
    assert (await peer.response()).status == 413
    await peer.wait_closed()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 20000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: 1\r\n" % i for i in range(1000)) + b"\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"\x00" * 100,
    ],
)
async def test_heads_that_are_too_long_or_no_heads_end_the_connection(server: RecordingServer, head: bytes) -> None:
    peer = await connect(server.url)
    await peer.send(head)
    assert (await peer.response()).status in (400, 413, 431)
    await peer.wait_closed()


async def test_a_head_that_comes_slowly_is_cut_off(live: Live) -> None:
    async with RecordingServer(live.path, "127.0.0.1", 0, limits=Limits(head_seconds=1.0)) as server:
        silent, slow = await connect(server.url), await connect(server.url)
        after_one = await connect(server.url)
        assert (await after_one.get("/v1/recordings")).status == 200
        await after_one.send(b"G")

        async def dribble() -> None:
            with suppress(ConnectionError):
                while True:
                    await slow.send(b"a")
                    await asyncio.sleep(0.01)

        await slow.send(b"GET / HTTP/1.1\r\nX: ")
        await soon(asyncio.gather(dribble(), silent.wait_closed(), after_one.wait_closed()))
        await until(lambda: not server.metrics.connections)


async def test_a_connection_without_requests_ends(live: Live) -> None:
    async with RecordingServer(live.path, "127.0.0.1", 0, limits=Limits(idle_seconds=0.2)) as server:
        peer = await connect(server.url)
        assert (await peer.get("/v1/recordings")).status == 200
        await peer.wait_closed()


async def test_a_peer_that_does_not_read_is_cut_off(live: Live) -> None:
    big = live.path / "0-65536.rec"
    with big.open("wb") as file:
        file.truncate(1 << 30)
    async with RecordingServer(live.path, "127.0.0.1", 0, limits=Limits(chunk_seconds=0.3)) as server:
        peer = await connect(server.url, limit=1024)
        await peer.send(b"GET /0-65536.rec HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await until(lambda: server.metrics.transfers)
        await until(lambda: not (server.metrics.transfers or server.metrics.connections))
        assert server.metrics.bytes_sent < 1 << 30


async def test_peers_that_do_not_read_the_catalog_hold_no_copies_of_it(live: Live) -> None:
    """The catalog is sent from memory, which is shared by all responses, and not limited like transfers of files."""
    live.add(1)
    length = 16 << 20
    os.truncate(live.path / "archive.catalog", length)
    async with RecordingServer(live.path, "127.0.0.1", 0) as server:
        assert (await get(server.url, "/v1/recordings")).status == 200
        peers = [await connect(server.url, limit=1024) for _ in range(16)]
        tracemalloc.start()
        try:
            for peer in peers:
                await peer.send(b"GET /archive.catalog HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=1-\r\n\r\n")
            for peer in peers:
                await soon(peer.reader.readuntil(b"\r\n\r\n"))
            held, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < length
        assert peak < 4 * length  # each response reads the catalog, if it is not cached yet
        for peer in peers:
            peer.writer.transport.abort()
        await until(lambda: not server.metrics.connections)


async def test_transfers_at_one_time_are_bounded(live: Live) -> None:
    with (live.path / "0-65536.rec").open("wb") as file:
        file.truncate(1 << 30)
    live.add(1)
    limits = Limits(bytes_in_flight=2 << 20, chunk_bytes=1 << 20)
    async with RecordingServer(live.path, "127.0.0.1", 0, limits=limits) as server:
        peers = [await connect(server.url, limit=1024) for _ in range(2)]
        for peer in peers:
            await peer.send(b"GET /0-65536.rec HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await until(lambda: server.metrics.transfers >= 2)
        response = await get(server.url, "/0-0.rec")
        assert (response.status, response.headers["retry-after"]) == (503, "1")
        assert (await get(server.url, "/v1/recordings")).status == 200
        for peer in peers:
            peer.writer.transport.abort()
        await until(lambda: not server.metrics.transfers)
        assert (await get(server.url, "/0-0.rec")).status == 200


async def test_a_file_that_is_cut_while_it_is_sent_ends_the_connection(live: Live) -> None:
    path = live.path / "0-65536.rec"
    with path.open("wb") as file:
        file.truncate(256 << 20)
    async with RecordingServer(live.path, "127.0.0.1", 0) as server:
        peer = await connect(server.url, limit=1024)
        await peer.send(b"GET /0-65536.rec HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await until(lambda: server.metrics.transfers)
        os.truncate(path, 0)
        await peer.wait_closed()


async def test_connections_are_bounded_and_of_one_address_too(live: Live) -> None:
    limits = Limits(connections=3, connections_per_address=2)
    async with RecordingServer(live.path, "127.0.0.1", 0, limits=limits) as server:
        peers = [await connect(server.url) for _ in range(2)]
        for peer in peers:
            assert (await peer.get("/v1/recordings")).status == 200
        refused = await connect(server.url)
        assert (await refused.response()).status == 503
        await refused.wait_closed()
        other = await connect(server.url, local_addr=("127.0.0.2", 0))
        assert (await other.get("/v1/recordings")).status == 200
        third = await connect(server.url, local_addr=("127.0.0.3", 0))
        assert (await third.response()).status == 503
        assert dict(server.metrics.refused) == {"connections of one address": 1, "connections": 1}
        await peers[0].close()
        await until(lambda: server.metrics.connections <= 2)
        assert (await get(server.url, "/v1/recordings")).status == 200


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
async def test_silent_connections_give_way_to_later_ones(live: Live, address: str) -> None:
    limits = Limits(connections=4, connections_per_address=4 if address == "127.0.0.2" else 3)
    async with RecordingServer(live.path, "127.0.0.1", 0, limits=limits) as server:
        served = await connect(server.url)
        assert (await served.get("/v1/recordings")).status == 200
        silent = [await connect(server.url) for _ in range(20)]
        for peer in silent[10:]:
            with suppress(ConnectionError):
                await peer.send(b"GET / HTTP/1.1\r\nX: ")
        peer = await connect(server.url, local_addr=(address, 0))
        assert (await peer.get("/v1/recordings")).status == 200
        for each in silent[:10]:
            await each.wait_closed()
        assert server.metrics.connections <= 4
        assert (await served.get("/v1/recordings")).status == 200
        assert not server.metrics.refused


async def test_silent_connections_give_way_when_there_are_no_descriptors(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    async with RecordingServer(live.path, "127.0.0.1", 0) as server:
        silent = [await connect(server.url) for _ in range(3)]
        await until(lambda: server.metrics.connections >= 3)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The last descriptor is for the peer's socket, so that there is none for the server's.
        with socket.socket() as last, suppress(OSError), ExitStack() as stack:
            last.setblocking(False)
            resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, limit[1]))
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limit)
            with suppress(OSError):
                while True:
                    stack.enter_context(open(os.devnull))
            host, port = server.url.removeprefix("http://").split(":")
            await asyncio.get_running_loop().sock_connect(last, (host, int(port)))
            await silent[0].wait_closed()
            await until(lambda: server.metrics.connections >= 3)
    assert caplog.text.count("cannot accept connections") <= 1


async def test_many_pipelined_requests_are_each_responded_to(server: RecordingServer) -> None:
    peer = await connect(server.url)
    await peer.send(b"GET /0-0.rec HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=0-31\r\n\r\n" * 500)
    for _ in range(500):
        assert (await peer.response()).status == 206


# -- lists -------------------------------------------------------------------------------------------------------------


async def test_a_page_is_never_longer_than_its_limit(live: Live) -> None:
    live.add(4000)
    assert len(list(live.path.glob("0-*.rec"))) > 4
    async with RecordingServer(live.path, "127.0.0.1", 0, limits=Limits(page_entries=2)) as server:
        page = (await get(server.url, "/v1/files?limit=1000000")).json
        assert len(page["files"]) == 2
        assert page["next"]


async def test_a_directory_of_too_many_files_is_not_listed(live: Live) -> None:
    live.add(4000)
    async with RecordingServer(live.path, "127.0.0.1", 0, limits=Limits(listed_files=3)) as server:
        assert (await get(server.url, "/v1/files")).status == 507
        assert (await get(server.url, "/0-0.rec")).status == 200
    directory = ServedDirectory(live.path, server._application._clock, listed_files=3)
    with pytest.raises(TooManyFilesError):
        directory.names()


# -- tokens ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN} x",
        "Bearer \xff",
    ],
)
async def test_without_the_token_every_request_is_401(live: Live, field: str, caplog: pytest.LogCaptureFixture) -> None:
    async with RecordingServer(live.path, "127.0.0.1", 0, access=Access((TOKEN,))) as server:
        for target in ("/0-0.rec", "/v1/recordings", "/v1/files", "/archive.catalog", "/metrics", "/nothing"):
            headers = {"Authorization": field} if field else {}
            response = await get(server.url, target, **headers)
            assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")
            assert TOKEN.encode() not in response.body
        assert (await get(server.url, "/v1/recordings", Authorization=f"Bearer {TOKEN}")).status == 200
        assert (await get(server.url, f"/v1/recordings?token={TOKEN}")).status == 401
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    "field",
    [
        f"Authorization: Bearer {TOKEN}\0",
        f"Authorization : Bearer {TOKEN}",
        f"Authorization: Bearer {TOKEN}\n",
        f"Authorization: Bearer \r\n {TOKEN}",
        f"Authorization: Bearer {TOKEN}\r\n\x1b]0;title\x07: x",
        f"Authorization: Bearer {TOKEN}\r\nContent-Length: -1",
    ],
)
async def test_a_request_that_is_not_valid_http_leaves_one_line_without_its_text(
    live: Live, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    log._repeated.clear()
    async with RecordingServer(live.path, "127.0.0.1", 0, access=Access((TOKEN,))) as server:
        for _ in range(20):
            peer = await connect(server.url)
            await peer.send(f"GET /v1/recordings HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n".encode())
            assert (await peer.response()).status in (200, 400, 401)
            await peer.close()
    assert TOKEN not in caplog.text
    assert "\x1b" not in caplog.text
    assert "Traceback" not in caplog.text
    lines = [record.getMessage() for record in caplog.records if record.name.startswith(("mainstem", "aiohttp"))]
    assert len(lines) <= 1
    assert all("127.0.0.1" in line for line in lines)


async def test_a_handler_that_raises_is_one_line_without_the_text_of_the_error(
    live: Live, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_self: Application, _request: object) -> None:
        raise ValueError(f"invalid literal: '{TOKEN}\n'")

    monkeypatch.setattr(Application, "handle", fail)
    log._repeated.clear()
    async with RecordingServer(live.path, "127.0.0.1", 0) as server:
        for _ in range(3):
            assert (await get(server.url, "/v1/recordings")).status == 500
    (record,) = caplog.records
    assert record.getMessage().startswith("a request failed: ValueError in ")
    assert TOKEN not in caplog.text


# -- targets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://127.0.0.1:80/v1/recordings", 200),
        ("HTTP://localhost/v1/recordings?limit=1", 200),
        ("https://[::1]/0-0.rec", 200),
        ("http://attacker.example/v1/recordings", 421),
        ("http://127.0.0.1.attacker.example/v1/recordings", 421),
        ("http://127.0.0.1@attacker.example/v1/recordings", 400),
        ("http:///v1/recordings", 400),
        ("http://127.0.0.1", 404),
        ("http://127.0.0.1?/v1/recordings", 400),
        ("ftp://127.0.0.1/v1/recordings", 400),
        ("file:///etc/passwd", 400),
        ("127.0.0.1/v1/recordings", 400),
    ],
)
async def test_the_absolute_form_of_a_target_names_path_and_host(
    server: RecordingServer, target: str, status: int
) -> None:
    # The host of the target counts, not the field (RFC 9112, 3.2.2).
    assert (await get(server.url, target, Host="127.0.0.1")).status == status
    assert (await get(server.url, target, method="HEAD", Host="attacker.example")).status == status


def test_two_tokens_are_valid_while_one_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# readers\n{TOKEN}\n\n{TOKEN}-new\n")
    access = Access(read_tokens(path))
    assert [access.permits(f"Bearer {token}") for token in (TOKEN, f"{TOKEN}-new", "x" * 20)] == [True, True, False]


@pytest.mark.parametrize("text", ["", "short", "x" * 5000, "ein schöner langer Token"])
def test_an_empty_or_guessable_token_is_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        Access(read_tokens(path))
    assert not text or text not in str(raised.value)


def test_the_token_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTEM_SERVE_TOKEN", TOKEN)
    assert read_tokens(None) == (TOKEN,)
    monkeypatch.delenv("MAINSTEM_SERVE_TOKEN")
    assert read_tokens(None) == ()


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_token_in_the_environment_does_not_open_the_server(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("MAINSTEM_SERVE_TOKEN", text)
    with pytest.raises(ConfigurationError, match="MAINSTEM_SERVE_TOKEN is empty"):
        read_tokens(None)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1"])
def test_beyond_loopback_both_tls_and_a_token_are_needed(address: str) -> None:
    for has_tls, has_token in ((False, False), (True, False), (False, True)):
        with pytest.raises(ConfigurationError, match="`insecure`"):
            check_exposure(address, protection={"`tls_cert`": has_tls, "`token_file`": has_token}, insecure=False)
        check_exposure(address, protection={"`tls_cert`": has_tls, "`token_file`": has_token}, insecure=True)
    check_exposure(address, protection={"`tls_cert`": True, "`token_file`": True}, insecure=False)
    check_exposure("127.0.0.1", protection={"`tls_cert`": False, "`token_file`": False}, insecure=False)
    with pytest.raises(ConfigurationError, match=r"no password.*`insecure`"):
        check_exposure(address, insecure=False)


def test_a_server_with_rejected_options_does_not_listen(live: Live) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken_port:
        port = taken_port.getsockname()[1]
    with pytest.raises(ConfigurationError, match="`tls_cert` and `tls_key` and `token_file`"):
        RecordingServer(live.path, "0.0.0.0", port)
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        pass


async def test_a_page_in_a_browser_cannot_name_the_server_by_its_own_domain(server: RecordingServer) -> None:
    assert (await get(server.url, "/v1/recordings", Host="attacker.example:8480")).status == 421
    for host in ("127.0.0.1:8480", "localhost:8480", "[::1]:8480"):
        assert (await get(server.url, "/v1/recordings", Host=host)).status == 200


def test_hosts_are_addresses_or_localhost() -> None:
    assert [is_literal_host(x) for x in ("[::1]", "127.0.0.1", "localhost", None)] == [True] * 4
    assert [is_literal_host(x) for x in ("a.example", "127.0.0.1.a.example", "[x]", "localhost.a:1")] == [False] * 4


# -- TLS ---------------------------------------------------------------------------------------------------------------


async def test_a_handshake_that_is_not_completed_counts_and_is_cut_off(live: Live, tmp_path: Path) -> None:
    from mainstem.aqueduct import make_certificates

    live.add(1)
    files = make_certificates(tmp_path / "certs")
    context = tls_context(files.certificate, files.key)
    limits = replace(Limits(), head_seconds=1.0, connections_per_address=2)
    async with RecordingServer(live.path, "127.0.0.1", 0, tls=context, limits=limits) as server:
        peers = [await connect(server.url) for _ in range(2)]
        await until(lambda: server.metrics.connections >= 2)
        third = await connect(server.url)
        await third.wait_closed()
        for peer in peers:
            await peer.wait_closed()
        await until(lambda: not server.metrics.connections)
        trusted = ssl.create_default_context(cafile=str(files.ca))
        peer = await connect(server.url, ssl=trusted)
        response = await peer.get("/0-0.rec")
        assert response.body == (live.path / "0-0.rec").read_bytes()
