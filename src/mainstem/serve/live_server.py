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
from urllib.parse import parse_qs

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.exposure import is_literal_host
from mainstem.aeron.tools.diagnosis import diagnosis_row
from mainstem.aeron.tools.overview import DriverMonitor, document
from mainstem.serve.http_server import HttpServer, Refusal, checked_target
from mainstem.serve.limits import Limits
from mainstem.serve.responses import BytesResponse, Response, json_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web
    from aiohttp.abc import AbstractStreamWriter

    from mainstem.aeron.tools.overview import Overview

MAX_STREAMS = 200  # per driver on the page, those with the most lag: a browser redraws them at each interval
SAMPLES = 60  # per plot
MAX_BROWSERS = 32  # that wait for events at the same time
HEADERS = {"Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin"}
TEXT, JSON = "text/plain; charset=utf-8", "application/json"


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
        self.server = HttpServer(host, port, self._respond, limits=Limits(), insecure=insecure, headers=HEADERS)
        self.url = f"{self.server.url}/"
        self._monitors = {directory: DriverMonitor(directory) for directory in directories}
        self._interval = interval
        self._insecure = insecure
        self._page, self._policy = read_page()
        self._event = b""
        self._number = 0
        self._news = asyncio.Condition()
        self.browsers = 0
        self._monitor_lock = asyncio.Lock()  # only one thread at a time may use a monitor
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    async def __aenter__(self) -> LiveServer:
        await self._sample()
        await self.server.start()
        self._task = asyncio.create_task(self._sample_on())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.server.stop_accepting()
        async with self._news:
            self._closing = True
            self._news.notify_all()
        await self.server.close()
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

    async def _respond(self, request: web.BaseRequest) -> Response:
        try:
            path, query, host = checked_target(request)
            if not self._insecure and not is_literal_host(host):
                raise Refusal(421, "open this page by its address")
            if path == "/":
                policy = {"Content-Security-Policy": self._policy, "X-Frame-Options": "DENY"}
                return self._response(200, self._page, "text/html; charset=utf-8", policy)
            if path == "/v1/state":
                return self._response(200, self._event, JSON)
            if path == "/v1/events":
                return self._events(request)
            if path == "/v1/why":
                return self._response(200, await self._why(query), JSON)
            raise Refusal(404, "the page is /")
        except Refusal as refusal:
            response = self._response(refusal.status, f"{refusal.sentence}\n".encode(), TEXT, refusal.headers)
            if refusal.status in (400, 405, 413, 421):
                response.force_close()
            return response

    def _response(
        self, status: int, body: bytes, content_type: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        server = self.server
        headers = {"Content-Type": content_type, **(headers or {})}
        return BytesResponse(status, headers, server.limits, server.metrics, body)

    def _events(self, request: web.BaseRequest) -> Response:
        if request.method == "GET" and self.browsers >= MAX_BROWSERS:
            raise Refusal(503, f"{MAX_BROWSERS} browsers are connected already")
        return EventResponse(self)

    async def sample_after(self, number: int) -> tuple[int, bytes]:
        """Wait for a sample with another number than the last one; return both. There is none after the server has closed."""
        async with self._news:
            await self._news.wait_for(lambda: self._closing or self._number != number)
            return self._number, b"" if self._closing else self._event

    async def _why(self, query: str) -> bytes:
        try:
            values = {name: value for name, (value,) in parse_qs(query, strict_parsing=True, max_num_fields=3).items()}
            monitor = self._monitors[values["driver"]]
            session_id, stream_id = int(values["session"]), int(values["stream"])
        except (KeyError, ValueError):
            raise Refusal(400, "driver, session and stream are needed") from None
        async with self._monitor_lock:
            diagnoses = await asyncio.to_thread(monitor.why, session_id, stream_id)
        return json_bytes({"diagnoses": [diagnosis_row(each) for each in diagnoses]})


class EventResponse(Response):
    """Sends each sample as a server-sent event until the server closes. It counts as a browser until ``prepare`` ends."""

    def __init__(self, live: LiveServer) -> None:
        server = live.server
        super().__init__(200, {"Content-Type": "text/event-stream"}, server.limits, server.metrics, None)
        self._live = live
        live.browsers += 1

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        try:
            return await super().prepare(request)
        finally:
            self._live.browsers -= 1

    async def send_body(self, request: web.BaseRequest) -> None:  # noqa: ARG002 - of the interface
        number, sample = await self._live.sample_after(0)
        while sample:
            await self.send_piece(b"data: " + sample + b"\n\n")
            number, sample = await self._live.sample_after(number)


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
