"""Requests and responses through a lossy driver: timeouts, late responses, many handlers, and a responder that restarts."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.ports import free_port
from tests.support.waiting import STALL_S, StallTimeout, soon, until, wait_for

import mainstem
from mainstem._core.system_counter import SystemCounter
from mainstem.errors import ClosedError, ConfigurationError, MainstemError, NotConnected, Timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.system

# One datagram in ten is lost: requests, responses, status messages, and NAKs alike.
LOSSY: dict[str, Any] = {
    "udp_channel_incoming_interceptors": "loss",
    "udp_channel_transport_bindings_loss_args": "rate=0.1|seed=7",
    "term_buffer_length": 1 << 16,
}


@pytest.fixture
def errors() -> list[BaseException]:
    return []


@pytest.fixture
def aeron(errors: list[BaseException]) -> Iterator[mainstem.Aeron]:
    with (
        mainstem.MediaDriver.launch(**LOSSY) as driver,
        mainstem.Aeron.connect(driver.directory, on_error=errors.append) as client,
    ):
        yield client


@pytest.fixture
async def client(aeron: mainstem.Aeron, errors: list[BaseException]) -> AsyncIterator[mainstem.aio.Aeron]:
    async with mainstem.aio.connect(aeron.directory, on_error=errors.append) as client:
        yield client


@pytest.fixture
def ways() -> tuple[str, dict[str, Any]]:
    port = free_port(2)
    control = f"aeron:udp?control=127.0.0.1:{port + 1}"
    return f"aeron:udp?endpoint=127.0.0.1:{port}", {"response_channel": control, "response_stream_id": 1002}


def resent(aeron: mainstem.Aeron) -> int:
    return aeron.counters.value(SystemCounter.RETRANSMITS_SENT)


async def test_each_of_many_handlers_replies_to_its_own_request(
    aeron: mainstem.Aeron,
    client: mainstem.aio.Aeron,
    ways: tuple[str, dict[str, Any]],
    errors: list[BaseException],
) -> None:
    channel, back = ways

    async def handler(request: bytes) -> bytes:
        # Handlers finish in a different order than their requests arrive.
        await asyncio.sleep(0.02 / (1 + len(request) % 7))
        return request[::-1]

    async with mainstem.aio.Responder(client, channel, 1001, **back) as responder:
        served = asyncio.create_task(responder.serve(handler))
        async with mainstem.aio.Requester(client, channel, 1001, **back) as requester:
            asked = [b"%d:" % number + bytes(number * 3 % 2000) for number in range(300)]
            replies = await asyncio.gather(*(requester.request(each, timeout=STALL_S) for each in asked))
            assert replies == [each[::-1] for each in asked]
            assert (requester.stats().in_flight, requester.stats().late_responses) == (0, 0)
        await responder.close()
        await soon(served)
    assert resent(aeron) > 0
    assert errors == []


async def test_no_more_handlers_run_at_once_than_allowed(
    client: mainstem.aio.Aeron, ways: tuple[str, dict[str, Any]]
) -> None:
    channel, back = ways
    go = asyncio.Event()
    peak = 0

    async def handler(request: bytes) -> bytes:
        nonlocal peak
        peak = max(peak, responder.stats().handling)
        await go.wait()
        return request

    async with mainstem.aio.Responder(client, channel, 1001, **back) as responder:
        with pytest.raises(ConfigurationError, match="max_concurrent"):
            await responder.serve(handler, max_concurrent=0)
        served = asyncio.create_task(responder.serve(handler, max_concurrent=4))
        async with mainstem.aio.Requester(client, channel, 1001, **back) as requester:
            tasks = [asyncio.create_task(requester.request(b"%d" % each, timeout=STALL_S)) for each in range(20)]
            await until(lambda: responder.stats().handling >= 4)
            # A new requester still gets its response channel while all handler slots are taken.
            async with mainstem.aio.Requester(client, channel, 1001, **back):
                await until(lambda: responder.stats().clients == 2)
            await until(lambda: responder.stats().clients == 1)
            assert (peak, responder.stats().handling) == (4, 4)
            assert not any(task.done() for task in tasks)
            go.set()
            assert await asyncio.gather(*tasks) == [b"%d" % each for each in range(20)]
        assert peak == 4
        await responder.close()
        await soon(served)


async def test_a_handler_exception_is_reported_and_others_continue(
    client: mainstem.aio.Aeron, ways: tuple[str, dict[str, Any]], errors: list[BaseException]
) -> None:
    channel, back = ways

    async def handler(request: bytes) -> Any:
        return bytes([10 // request[0]]) if request[0] < 9 else "no bytes"

    async with mainstem.aio.Responder(client, channel, 1001, **back) as responder:
        served = asyncio.create_task(responder.serve(handler, max_concurrent=2))
        async with mainstem.aio.Requester(client, channel, 1001, **back) as requester:
            assert await requester.request(b"\2", timeout=STALL_S) == b"\5"
            for wrong in (b"\0", b"\0", b"\0", b"\x0a"):
                with pytest.raises(Timeout):
                    await requester.request(wrong, timeout=0.2)
            assert await requester.request(b"\5", timeout=STALL_S) == b"\2"
        await until(lambda: len(errors) >= 4)
        assert [type(error) for error in errors] == [ZeroDivisionError] * 3 + [TypeError]
        assert responder.stats().undelivered_responses == 1
        served.cancel()
        await asyncio.wait([served])


@pytest.mark.parametrize("end", ["cancel", "close"])
async def test_handlers_end_with_serving(
    client: mainstem.aio.Aeron, ways: tuple[str, dict[str, Any]], end: str
) -> None:
    channel, back = ways
    ended: list[str] = []

    async def handler(_: bytes) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        return b""

    async with mainstem.aio.Responder(client, channel, 1001, **back) as responder:
        served = asyncio.create_task(responder.serve(handler))
        async with mainstem.aio.Requester(client, channel, 1001, **back) as requester:
            tasks = [asyncio.create_task(requester.request(b"x")) for _ in range(3)]
            await until(lambda: responder.stats().handling == 3)
            if end == "cancel":
                served.cancel()
            else:
                await responder.close()
            await asyncio.wait([served])
            assert ended == ["ended"] * 3
            assert served.cancelled() == (end == "cancel")
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert requester.stats().in_flight == 0


async def test_replies_that_come_late_are_dropped_and_counted(
    client: mainstem.aio.Aeron, ways: tuple[str, dict[str, Any]]
) -> None:
    channel, back = ways
    go = asyncio.Event()

    async def handler(request: bytes) -> bytes:
        if request == b"slow":
            await go.wait()
        return request

    async with mainstem.aio.Responder(client, channel, 1001, **back) as responder:
        served = asyncio.create_task(responder.serve(handler))
        async with mainstem.aio.Requester(client, channel, 1001, **back) as requester:
            assert await requester.request(b"first", timeout=STALL_S) == b"first"
            tasks = [asyncio.create_task(requester.request(b"slow", timeout=0.3)) for _ in range(10)]
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {Timeout}
            assert requester.stats().in_flight == 0
            await until(lambda: responder.stats().handling == 10)
            go.set()
            await until(lambda: responder.stats().handling == 0)

            async def all_late() -> bool:
                # Whichever call is waiting for a response reads all of them.
                assert await requester.request(b"next", timeout=STALL_S) == b"next"
                return requester.stats().late_responses == 10

            stall = StallTimeout("all replies came late")
            while not await all_late():
                stall.check(requester.stats().late_responses)
                await asyncio.sleep(0.01)
            assert requester.stats().late_responses == 10
        await responder.close()
        await soon(served)


async def test_a_requester_continues_after_its_responder_restarts(
    client: mainstem.aio.Aeron, ways: tuple[str, dict[str, Any]]
) -> None:
    channel, back = ways

    async def handler(request: bytes) -> bytes:
        return request.upper()

    timeouts = 0
    async with mainstem.aio.Requester(client, channel, 1001, **back) as requester:
        for _ in range(3):
            async with mainstem.aio.Responder(client, channel, 1001, **back) as responder:
                served = asyncio.create_task(responder.serve(handler))
                replies: list[bytes] = []
                while not replies:
                    # The request went to the previous responder, which is gone. The application decides whether to resend it.
                    try:
                        replies.append(await requester.request(b"tide", timeout=2.0))
                    except NotConnected:
                        pass
                    except Timeout:
                        timeouts += 1
                assert replies == [b"TIDE"]
                await responder.close()
                await soon(served)
            with pytest.raises(MainstemError):
                await requester.request(b"nobody", timeout=0.2)
            assert requester.stats().in_flight == 0
        assert requester.stats().late_responses <= timeouts


@pytest.mark.long
def test_threads_ask_a_responder_that_restarts_over_loss(
    aeron: mainstem.Aeron, ways: tuple[str, dict[str, Any]]
) -> None:
    channel, back = ways
    replies: list[bytes] = []
    with mainstem.Requester(aeron, channel, 1001, **back) as requester:

        def ask() -> None:
            while len(replies) < 200:
                try:
                    replies.append(requester.request(b"tide", timeout=1.0))
                except (Timeout, NotConnected):
                    pass
                except ClosedError:
                    return

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for goal in (20, 200):
            with mainstem.Responder(aeron, channel, 1001, **back) as responder:
                server = threading.Thread(target=responder.serve, args=(bytes.upper,))
                server.start()
                wait_for(lambda goal=goal: len(replies) >= goal, progress=lambda: len(replies))  # type: ignore[misc]
                responder.close()
                server.join()
        for thread in threads:
            thread.join()
        assert set(replies) == {b"TIDE"}
        assert requester.stats().in_flight == 0
    assert resent(aeron) > 0
