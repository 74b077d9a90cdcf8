"""A headless Chromium, driven over its DevTools protocol, for tests of pages."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
import subprocess
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.waiting import STALL_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIMEOUT_S = STALL_S
# Without the flags that disable background services, Chromium looks up Google's hosts at every start.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--hide-scrollbars",
]


class Page:
    """One page. ``requests`` are the URLs that it requested; ``problems`` are its console errors and policy violations."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.requests: list[str] = []
        self.problems: list[str] = []
        self._socket = socket
        self._number = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            record = message.json()
            if "id" in record:
                self._waiting.pop(record["id"]).set_result(record)
            elif record["method"] == "Network.requestWillBeSent":
                self.requests.append(record["params"]["request"]["url"])
            elif record["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.problems.append(str(record["params"]))

    async def call(self, method: str, **parameters: Any) -> Any:
        """Run a command of the DevTools protocol."""
        self._number += 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = future
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        record = await asyncio.wait_for(future, TIMEOUT_S)
        assert "error" not in record, record
        return record["result"]

    async def value(self, expression: str) -> Any:
        """Evaluate an expression in the page and return its value."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Evaluate an expression until it is true; return its value."""
        end = time.monotonic() + TIMEOUT_S
        while not (value := await self.value(expression)):
            assert time.monotonic() < end, f"{expression} stayed {value!r}; {self.problems}"
            await asyncio.sleep(0.05)
        return value

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the window."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    async def picture(self, path: Path) -> None:
        """Write a screenshot of the window."""
        path.write_bytes(base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"]))


@asynccontextmanager
async def opened(url: str, profile: Path) -> AsyncIterator[Page]:
    """Start a browser with a new profile, and open a page in it."""
    import aiohttp

    assert CHROMIUM
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            end = time.monotonic() + TIMEOUT_S
            while not (lines := _lines(profile / "DevToolsActivePort")):
                assert time.monotonic() < end, "the browser does not start"
                await asyncio.sleep(0.05)
            async with aiohttp.ClientSession() as session:
                async with session.put(f"http://127.0.0.1:{lines[0]}/json/new?about:blank") as response:
                    target = await response.json()
                async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    page = Page(socket)
                    for domain in ("Page", "Runtime", "Network", "Log"):
                        await page.call(f"{domain}.enable")
                    await page.call("Page.navigate", url=url)
                    yield page
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the browser's processes form a group of their own


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []
