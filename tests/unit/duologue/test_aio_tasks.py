"""The tasks that serve duologues in asyncio: they end with what they serve, and are told of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.support.patience import STALL_S, soon, until

from mainstem.duologue import ClientSettings, ServerSettings, aio
from mainstem.errors import BackPressured, BadMessage, ClosedError


class Served:
    """As much of a duologue as a task uses."""

    session_id = 17

    def __init__(self) -> None:
        self.user: Any = None
        self.paused = False
        self.is_open = True
        self.queued = 0
        self.closed: str | None = None

    def send(self, message: bytes) -> None:
        raise BackPressured("the client does not read")

    def close(self, error: str = "") -> None:
        self.closed = error


async def test_a_task_that_outlives_its_client_is_cancelled_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "CLOSE_LIMIT", 0.02)
    cancelled = asyncio.Event()

    async def talk(duologue: aio.Duologue) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    tasks = aio._Tasks(talk)
    served: Any = Served()
    tasks.on_open(served)
    await asyncio.sleep(0)
    tasks.on_close(served, "everybody left")
    await soon(cancelled.wait())
    await asyncio.sleep(0)
    assert not tasks.tasks


async def test_what_came_before_the_client_left_is_still_served() -> None:
    received: list[bytes] = []

    async def talk(duologue: aio.Duologue) -> None:
        async for message in duologue:
            await asyncio.sleep(0)
            received.append(message)
        received.append(b"after the loop")

    tasks = aio._Tasks(talk)
    served: Any = Served()
    tasks.on_open(served)
    tasks.on_message(served, b"one")
    tasks.on_message(served, b"two")
    tasks.on_close(served, "everybody left")
    await soon(asyncio.gather(*tasks.tasks))
    assert received == [b"one", b"two", b"after the loop"]


async def test_a_client_that_does_not_read_makes_no_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def talk(duologue: aio.Duologue) -> None:
        await duologue.send(b"tide")

    tasks = aio._Tasks(talk)
    served: Any = Served()
    tasks.on_open(served)
    await soon(asyncio.gather(*tasks.tasks))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert served.closed == ""


@pytest.mark.parametrize(("fault", "told"), [(BadMessage(), "bad message"), (ZeroDivisionError(), "internal error")])
async def test_a_task_that_fails_ends_its_duologue_and_the_client_receives_why(
    fault: Exception, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(duologue: aio.Duologue) -> None:
        raise fault

    tasks = aio._Tasks(talk)
    served: Any = Served()
    tasks.on_open(served)
    await soon(asyncio.gather(*tasks.tasks))
    assert served.closed == told
    assert ("ZeroDivisionError" in caplog.text) == isinstance(fault, ZeroDivisionError)


async def test_sending_waits_for_what_was_sent_before() -> None:
    sent: list[bytes] = []
    served: Any = Served()
    served.send = sent.append
    served.queued = 1
    sending = asyncio.ensure_future(aio.Duologue(served).send(b"tide"))
    await asyncio.sleep(2 * aio.QUEUE_POLL)
    assert not sent
    served.queued = 0
    await soon(sending)
    assert sent == [b"tide"]


async def test_a_server_that_was_not_started_has_no_core_and_nothing_to_wait_for() -> None:
    server = aio.Server(aio._Tasks(lambda _: asyncio.sleep(0)), ServerSettings(address="127.0.0.1"))
    with pytest.raises(ClosedError, match="not running"):
        server.broadcast("to all")
    await server.wait()
    await server.close()
    client = aio.Client(ClientSettings(server="127.0.0.1"))
    with pytest.raises(ClosedError, match="is closed"):
        _ = client.core
    with pytest.raises(ClosedError, match="is closed"):
        await client.send(b"tide")
    await client.close()


async def test_a_close_names_the_tasks_that_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(aio, "CLOSE_LIMIT", 0.02)
    go_on = asyncio.Event()

    async def talk(duologue: aio.Duologue) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await go_on.wait()

    server = aio.Server(talk, ServerSettings(address="127.0.0.1"))
    tasks = server._handler
    assert isinstance(tasks, aio._Tasks)
    tasks.on_open(Served())  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await soon(server.close())
    assert "1 tasks go on 0.02 s after they were cancelled" in caplog.text
    go_on.set()
    await soon(asyncio.gather(*tasks.tasks))


async def test_closing_may_be_awaited_and_a_cancelled_receive_takes_nothing() -> None:
    served: Any = Served()
    duologue = aio.Duologue(served)
    waiting = asyncio.ensure_future(duologue.receive())
    await asyncio.sleep(0)
    waiting.cancel()
    duologue.put(b"tide")
    assert await duologue.receive() == b"tide"
    closing = duologue.close()
    asyncio.get_running_loop().call_later(0.01, duologue.end, "closed by the server")
    await soon(closing)
    assert served.closed == ""


async def test_a_start_that_is_cancelled_leaves_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    connects, go = threading.Event(), threading.Event()
    events: list[str] = []

    def connect(*_: object) -> None:
        connects.set()
        go.wait(STALL_S)
        events.append("connected")

    server = aio.Server(aio._Tasks(lambda _: asyncio.sleep(0)), ServerSettings(address="127.0.0.1"))
    monkeypatch.setattr(server._life, "connect", connect)
    monkeypatch.setattr(server._life, "disconnect", lambda: events.append("disconnected"))
    starting = asyncio.ensure_future(server._open())
    await until(connects.is_set)
    starting.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert events == ["connected", "disconnected"]
