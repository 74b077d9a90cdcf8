"""The asyncio tasks that serve duologues end with their duologues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.waiting import STALL_S, soon, until

from mainstem.duologue import aio
from mainstem.duologue.channels import ClientChannels, ServerChannels
from mainstem.duologue.session import DuologueState
from mainstem.errors import BadMessage, ClosedError, Timeout


class Served:
    """The parts of a session that a task uses."""

    session_id = 17
    max_message_length = 8192
    peer_address = ("192.0.2.7", 5)

    def __init__(self) -> None:
        self.changed = aio._Changed()
        self.on_end: Any = None
        self.error = None
        self.has_told = self.has_handler = self.is_left = False
        self.queued = self.bad_messages = 0
        self.state = DuologueState.JOINED
        self.received: list[bytes] = []
        self.sent: list[bytes] = []
        self.has_room = True
        self.closed: str | None = None

    @property
    def is_open(self) -> bool:
        return self.state is DuologueState.JOINED

    def offer(self, message: bytes) -> bool:
        if self.has_room:
            self.sent.append(message)
        return self.has_room

    def receive(self) -> bytes | None:
        if self.received:
            return self.received.pop(0)
        if not self.is_open:
            raise ClosedError("it has ended")
        return None

    def change(self, *received: bytes) -> None:
        self.received.extend(received)
        self.changed.notify_all()

    def close(self, error: str = "") -> None:
        self.closed = error

    def end(self) -> None:
        self.state = DuologueState.CLOSED
        self.changed.notify_all()
        if self.on_end is not None:
            self.on_end()


@pytest.fixture
def served() -> Any:
    return Served()


async def test_a_task_that_outlives_its_client_is_cancelled_after_a_timeout(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio, "HANDLER_TIMEOUT", 0.02)
    cancelled = asyncio.Event()

    async def talk(duologue: aio.Duologue) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    handlers = aio._Handlers(talk)
    handlers.start(served)
    await asyncio.sleep(0)
    assert served.has_handler
    served.end()
    await soon(cancelled.wait())
    await until(lambda: not handlers.tasks)
    assert not served.has_handler


async def test_messages_sent_before_a_client_left_are_still_handled(served: Any) -> None:
    received: list[bytes] = []

    async def talk(duologue: aio.Duologue) -> None:
        async for message in duologue:
            await asyncio.sleep(0)
            received.append(message)
        received.append(b"after the loop")

    handlers = aio._Handlers(talk)
    handlers.start(served)
    served.change(b"one", b"two")
    served.end()
    await soon(asyncio.gather(*handlers.tasks))
    assert received == [b"one", b"two", b"after the loop"]


@pytest.mark.parametrize(
    ("fault", "told"),
    [(BadMessage(), "bad message"), (ZeroDivisionError(), "internal error"), (Timeout("its own"), "internal error")],
)
async def test_a_failing_task_ends_its_duologue_and_the_client_gets_the_reason(
    served: Any, fault: Exception, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(duologue: aio.Duologue) -> None:
        raise fault

    handlers = aio._Handlers(talk)
    handlers.start(served)
    await soon(asyncio.gather(*handlers.tasks))
    assert served.closed == told
    assert len(caplog.records) == (told == "internal error")


async def test_a_client_that_leaves_logs_no_error(served: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def talk(duologue: aio.Duologue) -> None:
        await duologue.receive()

    handlers = aio._Handlers(talk)
    handlers.start(served)
    served.end()
    await soon(asyncio.gather(*handlers.tasks))
    assert not caplog.records
    assert served.closed == ""


async def test_a_message_waits_for_room_and_is_not_sent_after_a_timeout(served: Any) -> None:
    served.has_room = False
    duologue = aio.Duologue(served)
    with pytest.raises(Timeout, match=r"wait for room in the stream: timed out after 0\.01 s"):
        await duologue.send(b"given up", timeout=0.01)
    cancelled = asyncio.ensure_future(duologue.send(b"cancelled"))
    waiting = asyncio.ensure_future(duologue.send(b"tide"))
    await asyncio.sleep(0)
    cancelled.cancel()
    served.has_room = True
    served.change()
    await soon(waiting)
    assert served.sent == [b"tide"]


async def test_a_cancelled_or_timed_out_receive_takes_nothing(served: Any) -> None:
    duologue = aio.Duologue(served)
    waiting = asyncio.ensure_future(duologue.receive())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(Timeout, match=r"wait for a message: timed out after 0\.01 s"):
        await duologue.receive(timeout=0.01)
    served.change(b"tide")
    assert await duologue.receive(timeout=0) == b"tide"


async def test_closing_waits_for_the_end_and_can_time_out(served: Any) -> None:
    duologue = aio.Duologue(served)
    with pytest.raises(Timeout, match="end of the duologue: timed out"):
        await duologue.close("noon", timeout=0.01)
    asyncio.get_running_loop().call_later(0.01, served.end)
    await soon(duologue.close("noon"))
    assert served.closed == "noon"
    assert duologue.closed


async def test_waiting_for_an_unstarted_server_returns_at_once() -> None:
    server = aio.Server.made(lambda _: asyncio.sleep(0), ServerChannels("127.0.0.1"))
    with pytest.raises(ClosedError, match="has ended"):
        server.broadcast("to all")
    await server.wait()
    await server.close()
    client = aio.Client.made(ClientChannels("127.0.0.1"))
    with pytest.raises(ClosedError, match="is closed"):
        await client.send(b"tide")
    assert client.closed
    await client.close()


async def test_close_names_the_tasks_still_running(
    served: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(aio, "HANDLER_TIMEOUT", 0.02)
    go_on = asyncio.Event()

    async def talk(duologue: aio.Duologue) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await go_on.wait()

    server = aio.Server.made(talk, ServerChannels("127.0.0.1"))
    server._task = asyncio.ensure_future(asyncio.sleep(0))
    server._handlers.start(served)
    await asyncio.sleep(0)
    await soon(server.close())
    assert "1 tasks go on 0.02 s after they were cancelled" in caplog.text
    go_on.set()
    await soon(asyncio.gather(*server._handlers.tasks))


async def test_a_cancelled_start_leaves_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    connects, go = threading.Event(), threading.Event()
    events: list[str] = []

    def connect(*_: object) -> None:
        connects.set()
        go.wait(STALL_S)
        events.append("connected")

    server = aio.Server.made(lambda _: asyncio.sleep(0), ServerChannels("127.0.0.1"))
    monkeypatch.setattr(server._agent, "connect", connect)
    monkeypatch.setattr(server._agent, "disconnect", lambda: events.append("disconnected"))
    starting = asyncio.ensure_future(server._open())
    await until(connects.is_set)
    starting.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert events == ["connected", "disconnected"]
