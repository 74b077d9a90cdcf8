"""A server of recordings in its own thread, for blocking readers."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from tests.support.waiting import STALL_S

from mainstem.serve.recording_server import RecordingServer

if TYPE_CHECKING:
    from pathlib import Path


class RunningServer:
    """Serves a directory for the duration of its ``with`` block."""

    def __init__(self, directory: Path, *, port: int = 0, **options: Any) -> None:
        self._arguments = (directory, "127.0.0.1", port), options
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> RunningServer:
        self._thread.start()
        assert self._ready.wait(STALL_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STALL_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        positional, options = self._arguments
        async with RecordingServer(*positional, **options) as self.server:
            self.url = self.server.url
            self._ready.set()
            await self._stop.wait()
