"""`mainstem web` over a real driver: accepted and rejected requests, and the page in headless Chromium."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest
from tests.support.waiting import STALL_S, StallTimeout, soon

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

from tests.support import chromium
from tests.support.stalled_stream import stalled_stream

from mainstem.errors import ConfigurationError
from mainstem.serve import live_server
from mainstem.serve.live_server import LiveServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.system]
CHANNEL = "aeron:ipc?term-length=64k|alias=<img src=x onerror=document.title='broken'>"
OFTEN = 0.1


@pytest.fixture(scope="module")
def directory() -> Iterator[str]:
    """Run a driver that has a stream whose subscriber does not read, and a stream without a subscriber."""
    with stalled_stream(CHANNEL, port=9411) as (directory, _):
        yield directory


def request(
    url: str, method: str = "GET", path: str = "/", **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=STALL_S)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


async def test_the_page_and_its_policy(directory: str) -> None:
    async with LiveServer([directory], "127.0.0.1", 0, interval=OFTEN) as server:
        status, headers, body = await asyncio.to_thread(request, server.url)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    text = body.decode()
    for elsewhere in ("http://", "https://", "<link", "src=", "@import", "url("):
        assert elsewhere not in text.replace("http://www.w3.org/2000/svg", "")


async def test_the_state_has_drivers_streams_and_reasons(directory: str) -> None:
    async with LiveServer([directory], "127.0.0.1", 0, interval=OFTEN) as server:
        _, _, body = await asyncio.to_thread(request, server.url, path="/v1/state")
        (driver,) = json.loads(body)["drivers"]
        held = next(stream for stream in driver["streams"] if stream["stream_id"] == 7)
        assert (held["fullness"], held["channel"], driver["stream_count"]) == (1.0, CHANNEL, 2)
        path = f"/v1/why?driver={quote(directory)}&session={held['session_id']}&stream=7"
        _, headers, body = await asyncio.to_thread(request, server.url, path=path)
        assert headers["Content-Type"].startswith("application/json")
        (diagnosis,) = json.loads(body)["diagnoses"]
        assert (diagnosis["stalled"], diagnosis["cause"]) == (True, "slow subscriber")


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/", {}, 405),
        ("PUT", "/v1/state", {}, 405),
        ("DELETE", "/v1/events", {}, 405),
        ("GET", "/v1/nope", {}, 404),
        ("GET", "/../etc/passwd", {}, 404),
        ("GET", "/v1/why", {}, 400),
        ("GET", "/v1/why?driver=/etc&session=1&stream=1", {}, 400),
        ("GET", "/v1/why?driver=/etc&session=x&stream=1", {}, 400),
        ("GET", "/", {"Host": "tides.example:8490"}, 421),
        ("GET", "/v1/state", {"Host": "tides.example"}, 421),
        ("GET", "/", {"Host": "localhost"}, 200),
        ("HEAD", "/", {}, 200),
        ("HEAD", "/v1/state", {}, 200),
        ("HEAD", "/v1/events", {}, 200),
        ("HEAD", "/v1/nope", {}, 404),
        ("GET", "http://127.0.0.1/v1/state", {"Host": "tides.example"}, 200),
        ("GET", "http://tides.example/v1/state", {}, 421),
        ("GET", "/v1/state", {"Content-Length": "5"}, 413),
    ],
)
async def test_requests_for_private_files_are_rejected(
    directory: str, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    async with LiveServer([directory], "127.0.0.1", 0, interval=OFTEN) as server:
        assert (await asyncio.to_thread(request, server.url, method, path, **headers))[0] == status


async def test_each_sample_is_an_event_and_browsers_are_bounded(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_server, "MAX_BROWSERS", 1)
    async with LiveServer([directory], "127.0.0.1", 0, interval=OFTEN) as server:
        address = urlsplit(server.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        times: list[int] = []
        while len(times) < 3:
            line = await soon(reader.readline())
            if line.startswith(b"data: "):
                times.append(json.loads(line[6:])["drivers"][0]["epoch_ms"])
        assert times == sorted(set(times))
        assert (await asyncio.to_thread(request, server.url, path="/v1/events"))[0] == 503
        writer.close()
        await writer.wait_closed()

        async def is_free() -> bool:
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            line = await soon(reader.readline())
            writer.close()
            return b" 200 " in line

        stall = StallTimeout("the slot of a browser that left is given away")
        while not await is_free():
            stall.check()
            await asyncio.sleep(0.05)


async def test_silent_connections_and_bad_requests_keep_no_one_out_and_fill_no_log(
    directory: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with LiveServer([directory], "127.0.0.1", 0, interval=OFTEN) as server:
        address = urlsplit(server.url)
        silent = []
        for number in range(300):
            _, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(b"GET / HTTP/1.1\r\nX: " if number % 2 else b"secret\x1b[2J: x\r\n\r\n")
            silent.append(writer)
        assert (await asyncio.to_thread(request, server.url, path="/v1/state"))[0] == 200
        for writer in silent:
            writer.close()
    assert "secret" not in caplog.text
    assert "\x1b" not in caplog.text
    assert len(caplog.records) <= 3


def test_listening_beyond_loopback_must_be_requested() -> None:
    with pytest.raises(ConfigurationError, match="this has no password"):
        LiveServer([], "0.0.0.0", 0)


def test_the_command_serves_until_a_signal(directory: str) -> None:
    command = [sys.executable, "-m", "mainstem", "web", "--dir", directory, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        line = process.stderr.readline()
        assert line.startswith(f"{directory} at http://127.0.0.1:")
        assert request(line.split()[-1])[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.stderr.read() == ""
        assert process.wait(timeout=STALL_S) == 0


STREAM_IDS = "[...document.querySelectorAll('#streams tbody td:first-child')].map(cell => cell.textContent).join()"


@pytest.mark.skipif(chromium.CHROMIUM is None, reason="no Chromium is installed (apt-get install chromium)")
@pytest.mark.parametrize("size", [(390, 844), (1280, 800)], ids=str)
async def test_the_page_in_a_browser(directory: str, size: tuple[int, int], tmp_path: Path) -> None:
    async with (
        LiveServer([directory], "127.0.0.1", 0, interval=OFTEN) as server,
        chromium.opened(server.url, tmp_path / "profile") as page,
    ):
        await page.resize(*size)
        await page.until("document.querySelectorAll('#streams tbody tr').length === 2")
        assert await page.value("document.title") == "mainstem"
        state: Any = await page.value("document.querySelector('#drivers').textContent")
        assert directory in state
        for word in ("sent", "NAKs", "lost bytes", "2 clients", "2 streams"):
            assert word in state
        assert await page.value("document.documentElement.scrollWidth") <= size[0]
        await page.until(f"{STREAM_IDS} === '7,1001'")
        assert await page.value("document.querySelectorAll('#drivers svg path').length") == 4
        # The plots advance with each sample.
        first = await page.value("document.querySelector('#state').textContent")
        await page.until(f"document.querySelector('#state').textContent !== {json.dumps(first)}")
        # A name from another program is shown as text and never executed.
        assert "<img src=x" in await page.value("document.querySelector('#streams').textContent")
        assert await page.value("document.querySelectorAll('img').length") == 0
        # Filtering and sorting.
        await page.value("f = document.querySelector('#filter'); f.value = '9411'; f.dispatchEvent(new Event('input'))")
        await page.until(f"{STREAM_IDS} === '1001'")
        await page.value("f.value = ''; f.dispatchEvent(new Event('input'))")
        await page.value("document.querySelector('#streams th button').click()")
        await page.until(f"{STREAM_IDS} === '1001,7'")
        # A single stream and its diagnosis.
        await page.value(
            "[...document.querySelectorAll('#streams td button')].find(b => b.textContent === '7').click()"
        )
        await page.until("document.querySelector('#detail').textContent.includes('SLOW SUBSCRIBER')")
        assert "prices" in await page.value("document.querySelector('#detail table').textContent")
        assert await page.value("document.documentElement.scrollWidth") <= size[0]
        await page.picture(tmp_path / "detail.png")
        await page.value("document.querySelector('#close').click()")
        await page.until("!document.querySelector('#detail').open")
        origin = server.url
        assert [url for url in page.requests if not url.startswith(origin) and url != "about:blank"] == []
        problems = [problem for problem in page.problems if "favicon" not in problem]
        assert problems == []
