"""A live, read-only web page with the state of drivers: `mainstem web`.

One task samples the drivers in a thread at each interval, and every browser gets each sample as a server-sent event. The page is a
single document. Its content security policy allows only its own script and style, by their hashes, and connections to this server.
Requests whose host is neither an address nor ``localhost`` are rejected, so that no other web page can read this one under a domain
name of its own.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from contextlib import suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from aiohttp import web

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.exposure import is_literal_host, is_loopback
from mainstem._internal.listening import url_of
from mainstem.aeron.tools.diagnosis import diagnosis_row
from mainstem.aeron.tools.overview import DriverMonitor, document
from mainstem.errors import ConfigurationError
from mainstem.serve.responses import json_bytes
from mainstem.serve.server import close_all, listening_sockets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.aeron.tools.overview import Overview

MAX_STREAMS = 200  # per driver on the page, those with the most lag: a browser redraws them at each interval
SAMPLES = 60  # per plot
MAX_BROWSERS = 32  # that wait for events at the same time
WRITE_SECONDS = 10.0  # a browser that does not read for this long is disconnected
CLOSE_SECONDS = 1.0
COMMON_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def read_page() -> tuple[bytes, str]:
    """Return the page, and the policy that allows only its own script and style."""
    text = files("mainstem.serve").joinpath("live_page.html").read_text("utf-8")

    def hashes(tag: str) -> str:
        bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digests = (base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    policy = (
        f"default-src 'none'; script-src {hashes('script')}; style-src {hashes('style')}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), policy


class LiveServer:
    """Serves the page and the samples of drivers at one address. An async context manager.

    Raises ConfigurationError if it cannot listen on the address, or if the address is not loopback and ``insecure`` is False.
    """

    def __init__(
        self, directories: Sequence[str], host: str, port: int, *, interval: float = 1.0, insecure: bool = False
    ) -> None:
        self._sockets = listening_sockets(host, port)
        if not insecure and not all(is_loopback(sock.getsockname()[0]) for sock in self._sockets):
            close_all(self._sockets)
            raise ConfigurationError(
                f"--listen {host}: this page has no password; beyond loopback use ssh -L, a proxy with one, or --insecure"
            )
        self.url = f"{url_of(self._sockets[0], 'http')}/"
        self._monitors = {directory: DriverMonitor(directory) for directory in directories}
        self._interval = interval
        self._insecure = insecure
        self._page, self._policy = read_page()
        self._event = b""
        self._number = 0
        self._news = asyncio.Condition()
        self._browsers = 0
        self._monitor_lock = asyncio.Lock()  # only one thread at a time may use a monitor
        self._task: asyncio.Task[None] | None = None
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/", self._get_page)
        app.router.add_get("/v1/state", self._get_state, allow_head=False)
        app.router.add_get("/v1/events", self._get_events, allow_head=False)
        app.router.add_get("/v1/why", self._get_why, allow_head=False)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_SECONDS, handler_cancellation=True)

    async def __aenter__(self) -> LiveServer:
        await self._sample()
        await self._runner.setup()
        for sock in self._sockets:
            await web.SockSite(self._runner, sock).start()
        self._task = asyncio.create_task(self._sample_on())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._runner.cleanup()
        close_all(self._sockets)
        for monitor in self._monitors.values():
            monitor.close()

    # -- samples -----------------------------------------------------------------------------------------------------

    async def _sample_on(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._sample()

    async def _sample(self) -> None:
        async with self._monitor_lock:
            event = await asyncio.to_thread(self._sample_all)
        async with self._news:
            self._event = event
            self._number += 1
            self._news.notify_all()

    def _sample_all(self) -> bytes:
        clock = SYSTEM_CLOCK
        drivers = [
            _driver(monitor, monitor.sample(epoch_ms=clock.epoch_ms(), now_ns=clock.monotonic_ns()))
            for monitor in self._monitors.values()
        ]
        return json_bytes({"drivers": drivers})

    # -- requests ----------------------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if not self._insecure and not is_literal_host(request.headers.get("Host")):
            raise web.HTTPMisdirectedRequest(text="open this page by its address\n", headers=COMMON_HEADERS)
        response: web.StreamResponse = await handler(request)
        return response

    async def _get_page(self, _request: web.Request) -> web.Response:
        headers = COMMON_HEADERS | {"Content-Security-Policy": self._policy, "X-Frame-Options": "DENY"}
        return web.Response(body=self._page, content_type="text/html", charset="utf-8", headers=headers)

    async def _get_state(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._event, content_type="application/json", headers=COMMON_HEADERS)

    async def _get_events(self, request: web.Request) -> web.StreamResponse:
        if self._browsers >= MAX_BROWSERS:
            raise web.HTTPServiceUnavailable(text=f"{MAX_BROWSERS} browsers are connected already\n")
        self._browsers += 1
        try:
            response = web.StreamResponse(headers=COMMON_HEADERS | {"Content-Type": "text/event-stream"})
            await response.prepare(request)
            number = 0
            while True:
                async with self._news:
                    while self._number == number:
                        await self._news.wait()
                    number, event = self._number, self._event
                async with asyncio.timeout(WRITE_SECONDS):
                    await response.write(b"data: " + event.strip() + b"\n\n")
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
            return response
        finally:
            self._browsers -= 1

    async def _get_why(self, request: web.Request) -> web.Response:
        try:
            monitor = self._monitors[request.query["driver"]]
            session_id, stream_id = int(request.query["session"]), int(request.query["stream"])
        except (KeyError, ValueError):
            raise web.HTTPBadRequest(text="driver, session and stream are needed\n", headers=COMMON_HEADERS) from None
        async with self._monitor_lock:
            diagnoses = await asyncio.to_thread(monitor.why, session_id, stream_id)
        rows = [diagnosis_row(each) for each in diagnoses]
        return web.Response(
            body=json_bytes({"diagnoses": rows}), content_type="application/json", headers=COMMON_HEADERS
        )


def _driver(monitor: DriverMonitor, state: Overview) -> dict[str, Any]:
    row: dict[str, Any] = document(state)
    past = list(monitor.history)[-SAMPLES:]
    shown = []
    for stream, plain in zip(state.streams, row["streams"], strict=True):
        samples = list(monitor.stream_history.get(stream.name, ()))[-SAMPLES:]
        history = {"rate": [s[0] for s in samples], "naks": [s[1] for s in samples], "lag": [s[2] for s in samples]}
        shown.append((stream.fullness, stream.rate, plain | {"history": history}))
    shown.sort(key=lambda each: each[:2], reverse=True)
    return row | {
        "stream_count": len(shown),
        "streams": [plain for _fullness, _rate, plain in shown[:MAX_STREAMS]],
        "history": {
            "bytes_sent": [rates.bytes_sent for rates in past],
            "bytes_received": [rates.bytes_received for rates in past],
            "naks": [rates.naks_sent + rates.naks_received for rates in past],
            "lost": [rates.lost for rates in past],
        },
    }
