"""Metrics of bymux, Jmux, and Aqueduct servers and clients, scraped from a real server process."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import STALL_S, until, wait_for

from mainstem import bymux
from mainstem import jmux as jmux_blocking
from mainstem.errors import ConfigurationError, ConnectionLost
from mainstem.jmux import aio as jmux
from mainstem.metrics import Endpoints, MetricsServer

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.jmux.aio import ServerSession

pytestmark = pytest.mark.system

Page = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(url: str) -> Page:
    with urllib.request.urlopen(url, timeout=STALL_S) as response:
        text = response.read().decode()
    page: Page = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line)
            assert match is not None, line
            labels = tuple(sorted(re.findall(r'(\w+)="([^"]*)"', match[2])))
            assert (match[1], labels) not in page, line
            page[match[1], labels] = float(match[3])
    return page


def value(page: Page, metric: str, **labels: str) -> float:
    (match,) = (v for (name, own), v in page.items() if name == f"mainstem_{metric}" and labels.items() <= set(own))
    return match


async def echo(stream: bymux.aio.Stream | ServerSession) -> None:
    stream.write(await stream.read(-1))


async def fail(stream: bymux.aio.Stream | ServerSession) -> None:
    await stream.read(-1)
    raise RuntimeError("a handler that fails")


async def test_a_bymux_server_exports_its_connections_streams_and_bytes() -> None:
    endpoints = Endpoints()
    async with bymux.aio.serve(echo, "127.0.0.1", 0) as listener:
        endpoints.add("front", listener)
        with MetricsServer("127.0.0.1:0", endpoints.families) as server:
            connection = await bymux.aio.connect("127.0.0.1", listener.port)
            endpoints.add("way", connection)
            for _ in range(3):
                stream = await connection.open_stream()
                stream.write(b"tide" * 1000)
                stream.finish()
                assert await stream.read(-1) == b"tide" * 1000
            # Once the pong has arrived, everything sent before the ping has arrived too.
            await connection.ping()
            page = await asyncio.to_thread(scrape, server.url)
            front = {"name": "front", "protocol": "bymux", "role": "server"}
            assert value(page, "endpoint_connections", **front) == 1
            assert value(page, "endpoint_connections_opened_total", **front) == 1
            assert value(page, "endpoint_streams_opened_total", **front) == 3
            assert 12_000 < value(page, "endpoint_bytes_received_total", **front) < 13_000
            sent = value(page, "endpoint_bytes_sent_total", name="way", role="client")
            assert sent == value(page, "endpoint_bytes_received_total", **front)

            await connection.close()
            await until(lambda: listener.stats().connections == 0)
            page = await asyncio.to_thread(scrape, server.url)
            # Counters outlive the objects they count; otherwise, a rate across a gap would be wrong.
            assert value(page, "endpoint_connections", **front) == 0
            assert value(page, "endpoint_connections_ended_total", cause="closed", **front) == 1
            assert value(page, "endpoint_bytes_sent_total", name="way", role="client") >= sent
            assert value(page, "endpoint_connections", name="way") == 0


async def test_the_cause_by_which_a_connection_ends_is_a_label() -> None:
    endpoints = Endpoints()
    settings = bymux.Settings()
    async with bymux.aio.serve(echo, "127.0.0.1", 0, settings=settings, max_connections=2) as listener:
        endpoints.add("front", listener)
        # One client breaks a rule: type 7 is undefined.
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"\xff" * 8)
        await reader.read(-1)
        writer.close()
        # One client disconnects in the middle.
        connection = await bymux.aio.connect("127.0.0.1", listener.port)
        stream = await connection.open_stream()
        stream.write(b"tide")
        await stream.drain()
        connection.abort()
        await connection.wait_closed()
        await until(lambda: listener.stats().connections == 0)
        # One client exceeds the limit.
        held = [await bymux.aio.connect("127.0.0.1", listener.port) for _ in range(2)]
        for each in held:
            await each.ping()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        assert await reader.read() == b""
        writer.close()
        with MetricsServer("127.0.0.1:0", endpoints.families) as server:
            page = await asyncio.to_thread(scrape, server.url)
        assert value(page, "endpoint_connections_ended_total", cause="rule") == 1
        assert value(page, "endpoint_connections_ended_total", cause="lost") == 1
        assert value(page, "endpoint_connections_refused_total") == 1
        assert value(page, "endpoint_connections_opened_total") == 4
        for each in held:
            each.abort()


async def test_a_jmux_server_and_client_export_sessions_failed_handlers_and_unreached_servers() -> None:
    endpoints = Endpoints()
    async with jmux.serve(fail, "127.0.0.1", 0) as failing, await jmux.serve(echo, "127.0.0.1", 0) as listener:
        endpoints.add("failing", failing)
        endpoints.add("front", listener)
        client = await jmux.connect("127.0.0.1", listener.port)
        endpoints.add("upstream", client)
        assert await client.request(b"tide") == b"tide"
        assert await client.request(b"tide") == b"tide"
        async with jmux.connect("127.0.0.1", failing.port) as other:
            with pytest.raises(Exception, match="aborted"):
                await other.request(b"tide", attempts=1)
        port = listener.port
        await listener.close()
        await until(lambda: client.stats().connections == 0)
        with pytest.raises(ConnectionLost):
            await client.request(b"tide", attempts=1)
        with MetricsServer("127.0.0.1:0", endpoints.families) as server:
            page = await asyncio.to_thread(scrape, server.url)
        assert port
        assert value(page, "endpoint_streams_opened_total", name="front", protocol="jmux") == 2
        assert value(page, "endpoint_streams_opened_total", name="upstream", role="client") == 2
        assert value(page, "endpoint_connections_unreached_total", name="upstream") == 1
        assert value(page, "endpoint_handlers_failed_total", name="failing") == 1
        assert value(page, "endpoint_connections", name="upstream") == 0
        await client.close()


async def test_an_aqueduct_server_and_connection_export_messages_too(tmp_path: Path) -> None:
    pytest.importorskip("qh3")
    pytest.importorskip("cryptography")
    from mainstem import aqueduct

    files = aqueduct.make_certificates(tmp_path)
    messages: list[Any] = []

    async def handler(connection: aqueduct.aio.Connection) -> None:
        async for message in connection.receiver:
            messages.append(message)  # noqa: PERF401 - each as it comes

    endpoints = Endpoints()
    async with aqueduct.aio.serve(handler, certificate=files.certificate, key=files.key) as serving:
        endpoints.add("gauges", serving)
        with MetricsServer("127.0.0.1:0", endpoints.families) as server:
            async with aqueduct.aio.connect("localhost", serving.port, ca=files.ca) as connection:
                endpoints.add("gauge", connection)
                for _ in range(10):
                    await connection.sender.send(b"tide" * 100)
                await until(lambda: len(messages) == 10)
                page = await asyncio.to_thread(scrape, server.url)
                assert value(page, "endpoint_connections", name="gauges") == 1
                assert value(page, "endpoint_streams", name="gauge") == 1
            await until(lambda: serving.stats().connections == 0)
            page = await asyncio.to_thread(scrape, server.url)
        assert value(page, "aqueduct_messages_received_total", name="gauges", role="server") == 10
        assert value(page, "endpoint_streams_opened_total", name="gauges") == 1
        assert value(page, "endpoint_connections_ended_total", name="gauges", cause="closed") == 1
        assert value(page, "endpoint_bytes_sent_total", name="gauge") > 4000
        assert value(page, "endpoint_bytes_received_total", name="gauges") > 4000


async def test_unread_messages_are_a_gauge() -> None:
    go = asyncio.Event()

    async def slow(stream: bymux.aio.Stream) -> None:
        await go.wait()
        await stream.read(-1)

    settings = bymux.Settings(stream_window=1000)
    async with bymux.aio.serve(slow, "127.0.0.1", 0, settings=settings) as listener:
        connection = await bymux.aio.connect("127.0.0.1", listener.port)
        stream = await connection.open_stream()
        stream.write(bytes(5000))
        await until(lambda: listener.stats().unread_bytes == 1000)
        await until(lambda: connection.stats().unsent_bytes == 4000)
        go.set()
        await stream.close()
        await until(lambda: listener.stats().unread_bytes + connection.stats().unsent_bytes == 0)
        await connection.close()


async def test_blocking_clients_have_the_same_figures() -> None:
    async with bymux.aio.serve(echo, "127.0.0.1", 0) as mux, jmux.serve(echo, "127.0.0.1", 0) as requests:

        def use() -> tuple[int, int]:
            with bymux.connect("127.0.0.1", mux.port) as connection:
                with connection.open_stream() as stream:
                    stream.write(b"tide")
                opened = connection.stats().streams_opened
            assert connection.stats().closed
            with jmux_blocking.connect("127.0.0.1", requests.port) as client:
                client.request(b"tide")
                return opened, client.stats().streams_opened

        assert await asyncio.to_thread(use) == (1, 1)


def test_a_tunnel_serves_its_metrics(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mainstem", "tunnel", "serve", "--listen", f"unix:{tmp_path / 'tunnel'}"]
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen(
            [*command, "--target", "127.0.0.1:9", "--metrics-listen", "127.0.0.1:0"],
            stderr=log,
            stdout=subprocess.DEVNULL,
        )
        try:
            match = wait_for(lambda: re.search(r"serving (http://\S+)", (tmp_path / "log").read_text()))
            assert match is not None
            page = scrape(match[1])
            assert value(page, "endpoint_connections", name="tunnel", protocol="bymux", role="server") == 0
            with pytest.raises(urllib.error.HTTPError, match="404") as refused:
                scrape(match[1].replace("/metrics", "/"))
            refused.value.close()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STALL_S)


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:99999", "192.0.2.1:0"])
def test_an_unservable_address_is_reported_in_one_sentence(listen: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(listen)):
        MetricsServer(listen)
