"""A client's process that is killed or suspended is a lost connection at both ends, whether or not its driver survives."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.duologues import HERE, serving
from tests.support.ports import free_port
from tests.support.waiting import until, wait_for

from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.duologue import ServerKey, aio, serve
from mainstem.duologue.settings import reserved_sessions
from mainstem.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.duologue import Duologue

pytestmark = [pytest.mark.system, pytest.mark.long]

PROGRAM = Path(__file__).parent / "programs" / "duologue_suspended.py"
LIVENESS_S = 2.0


class Process:
    """The client's process."""

    def __init__(self, variant: str, port: int, *, directory: str, key: str) -> None:
        self._running = subprocess.Popen(
            [sys.executable, PROGRAM, variant, HERE, str(port), directory, key],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"AERON_CLIENT_LIVENESS_TIMEOUT": f"{LIVENESS_S:g}s"},
        )
        assert self._running.stdout is not None
        assert self._running.stdout.readline() == "up\n"

    def kill(self) -> None:
        self._running.kill()

    def suspend(self) -> None:
        self._running.send_signal(signal.SIGSTOP)

    def resume(self) -> tuple[str, str]:
        """Continue the process to its end. Return what it wrote to standard output and standard error."""
        self._running.send_signal(signal.SIGCONT)
        return self._running.communicate("\n")

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.kill()
        self._running.communicate()


@pytest.fixture(params=["its own driver", "a driver that survives"])
def directory(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "its own driver":
        yield ""
        return
    timeout_ns = int(LIVENESS_S * 1e9)
    settings: dict[str, Any] = {**reserved_sessions(), "client_liveness_timeout_ns": timeout_ns}
    with MediaDriver.launch(term_buffer_length=1 << 16, **settings) as driver:
        yield str(driver.directory)


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def key(request: pytest.FixtureRequest) -> ServerKey | None:
    return ServerKey.generate() if request.param else None


@pytest.mark.parametrize("way", ["killed", "suspended"])
def test_a_handler_does_not_take_a_dead_client_for_one_that_left(
    directory: str, key: ServerKey | None, way: str
) -> None:
    ends: list[object] = []
    port = free_port(128)

    def handler(duologue: Duologue) -> None:
        try:
            for message in duologue:
                duologue.send(message)
            ends.append("an orderly end")
        except ConnectionLost as error:
            ends.extend((error, duologue.error))

    with ExitStack() as opened:
        opened.enter_context(serve(handler, **serving(port, key=key)))
        public = "" if key is None else key.public.hex()
        client = opened.enter_context(Process("blocking", port, directory=directory, key=public))
        if way == "killed":
            client.kill()
        else:
            client.suspend()
        wait_for(lambda: ends)
        assert isinstance(ends[0], ConnectionLost)
        assert ends[1] is ends[0]
        if way == "suspended":
            # The limit is that of the client's own check, which begins with its suspension.
            time.sleep(LIVENESS_S + 0.5)
            assert client.resume() == ("ConnectionLost ConnectionLost\n", "")


async def test_a_task_does_not_take_a_suspended_client_for_one_that_left(directory: str, key: ServerKey | None) -> None:
    ends: list[object] = []
    port = free_port(128)

    async def handler(duologue: aio.Duologue) -> None:
        try:
            async for message in duologue:
                await duologue.send(message)
            ends.append("an orderly end")
        except ConnectionLost as error:
            ends.append(error)

    async with aio.serve(handler, **serving(port, key=key)):
        public = "" if key is None else key.public.hex()
        client = await asyncio.to_thread(Process, "asyncio", port, directory=directory, key=public)
        with client:
            client.suspend()
            await until(lambda: ends)
            assert isinstance(ends[0], ConnectionLost)
            await asyncio.sleep(LIVENESS_S + 0.5)
            assert await asyncio.to_thread(client.resume) == ("ConnectionLost ConnectionLost\n", "")
