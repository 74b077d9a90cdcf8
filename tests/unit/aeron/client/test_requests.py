"""Requests and responses over response channels, against the real driver running in this thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.support.ports import free_port
from tests.support.waiting import STALL_S, until, wait_for
from tests.unit.aeron.client.hand_driver import HandDriver

import mainstem
from mainstem.aeron.client.requester import Request
from mainstem.aeron.client.requests import RequesterState
from mainstem.aeron.command.responses import OnSubscriptionReady
from mainstem.errors import (
    BackPressured,
    ClosedError,
    ConfigurationError,
    Delivery,
    DriverTimeout,
    MainstemError,
    MaxPositionExceeded,
    NotConnected,
    Timeout,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

WAYS = ["ipc", "udp"]


@pytest.fixture
def errors() -> list[BaseException]:
    return []


@pytest.fixture
def aeron(errors: list[BaseException]) -> Iterator[mainstem.Aeron]:
    with (
        mainstem.MediaDriver.launch(threads=True, term_buffer_length=1 << 16, ipc_term_buffer_length=1 << 16) as driver,
        mainstem.Aeron.connect(driver.directory, on_error=errors.append) as client,
    ):
        yield client


@pytest.fixture
async def client(aeron: mainstem.Aeron) -> AsyncIterator[mainstem.aio.Aeron]:
    async with mainstem.aio.connect(aeron.directory) as client:
        yield client


def ways(way: str) -> tuple[str, dict[str, Any]]:
    if way == "ipc":
        return "aeron:ipc", {"response_channel": "aeron:ipc", "response_stream_id": 1002}
    port = free_port(2)
    control = f"aeron:udp?control=127.0.0.1:{port + 1}"
    return f"aeron:udp?endpoint=127.0.0.1:{port}", {"response_channel": control, "response_stream_id": 1002}


@pytest.mark.parametrize("way", WAYS)
def test_each_request_of_many_threads_gets_its_own_reply(aeron: mainstem.Aeron, way: str) -> None:
    channel, back = ways(way)
    responder = mainstem.Responder(aeron, channel, 1001, **back)
    server = threading.Thread(target=responder.serve, args=(lambda request: request[::-1],))
    server.start()
    got: dict[bytes, bytes] = {}
    with (
        mainstem.Requester(aeron, channel, 1001, **back) as one,
        mainstem.Requester(aeron, channel, 1001, **back) as two,
    ):

        def ask(name: bytes, requester: mainstem.Requester) -> None:
            for number in range(40):
                payload = (name + b"%d" % number) * (1 + 40 * (number % 9))
                got[payload] = requester.request(payload, timeout=STALL_S)

        threads = [threading.Thread(target=ask, args=(b"%d:" % n, (one, two)[n % 2])) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert responder.stats().clients == 2
        assert one.stats().in_flight == one.stats().late_responses == 0
    assert len(got) == 160
    assert all(reply == request[::-1] for request, reply in got.items())
    wait_for(lambda: responder.stats().clients == 0, "the publications of requesters that went stay open")
    responder.close()
    server.join()


def test_late_responses_are_counted_and_free_their_slot(aeron: mainstem.Aeron) -> None:
    channel, back = ways("ipc")
    with mainstem.Requester(aeron, channel, 1001, max_in_flight=1, **back) as requester:
        with pytest.raises(NotConnected):
            requester.request(b"no responder", timeout=0.01)
        with mainstem.Responder(aeron, channel, 1001, **back) as responder:
            with pytest.raises(Timeout, match="no request"):
                next(responder.requests(timeout=0.01))
            outcomes: list[Any] = []

            def ask(payload: bytes, seconds: float) -> threading.Thread:
                def work() -> None:
                    try:
                        outcomes.append(requester.request(payload, timeout=seconds))
                    except Timeout as error:
                        outcomes.append(error)

                thread = threading.Thread(target=work)
                thread.start()
                return thread

            thread = ask(b"first", STALL_S)
            requests = responder.requests(timeout=STALL_S)
            first = next(requests)
            with pytest.raises(BackPressured, match="max_in_flight"):
                requester.request(b"second", timeout=0.01)
            first.respond(b"the slot is free")
            thread.join()
            assert outcomes.pop() == b"the slot is free"

            thread = ask(b"slow", 0.5)
            slow = next(requests)
            thread.join()
            assert isinstance(outcomes[0], Timeout)
            slow.respond(b"late")

            thread = ask(b"again", STALL_S)
            again = next(requests)
            assert (again.payload, again.correlation_id, again.source_identity) == (
                b"again",
                slow.correlation_id + 1,
                "aeron:ipc",
            )
            again.respond(b"in time")
            thread.join()
            assert outcomes[1] == b"in time"
            assert (requester.stats().late_responses, requester.stats().in_flight) == (1, 0)
    with pytest.raises(ClosedError):
        requester.request(b"closed")


def test_a_handler_that_raises_leaves_its_request_without_a_reply(
    aeron: mainstem.Aeron, errors: list[BaseException]
) -> None:
    channel, back = ways("ipc")
    responder = mainstem.Responder(aeron, channel, 1001, **back)
    server = threading.Thread(target=responder.serve, args=(lambda request: bytes([10 // request[0]]),))
    server.start()
    with mainstem.Requester(aeron, channel, 1001, **back) as requester:
        assert requester.request(b"\2", timeout=STALL_S) == b"\5"
        with pytest.raises(Timeout):
            requester.request(b"\0", timeout=0.2)
        assert requester.request(b"\5", timeout=STALL_S) == b"\2"
    assert [type(error) for error in errors] == [ZeroDivisionError]
    responder.close()
    server.join()


@pytest.mark.parametrize("number", [0, -1, 2.5])
def test_an_empty_bound_is_refused_before_anything_is_opened(aeron: mainstem.Aeron, number: Any) -> None:
    channel, back = ways("ipc")
    with pytest.raises(ConfigurationError, match="max_in_flight="):
        mainstem.Requester(aeron, channel, 1001, max_in_flight=number, **back)
    with pytest.raises(ConfigurationError, match="max_clients="):
        mainstem.Responder(aeron, channel, 1001, max_clients=number, **back)
    with pytest.raises(ConfigurationError, match="max_in_flight="):
        mainstem.aio.Requester(cast("Any", aeron), channel, 1001, max_in_flight=number, **back)
    with pytest.raises(ConfigurationError, match="max_clients="):
        mainstem.aio.Responder(cast("Any", aeron), channel, 1001, max_clients=number, **back)


def test_a_client_beyond_the_limit_is_rejected(aeron: mainstem.Aeron) -> None:
    channel, back = ways("udp")
    responder = mainstem.Responder(aeron, channel, 1001, max_clients=1, **back)
    server = threading.Thread(target=responder.serve, args=(bytes,))
    server.start()
    with mainstem.Requester(aeron, channel, 1001, **back) as one:
        assert one.request(b"1", timeout=STALL_S) == b"1"
        with mainstem.Requester(aeron, channel, 1001, **back) as two:
            with pytest.raises((Timeout, NotConnected)):
                two.request(b"2", timeout=1.0)
            wait_for(lambda: responder.stats().refused_clients >= 1)
        assert one.request(b"3", timeout=STALL_S) == b"3"
    responder.close()
    server.join()


@pytest.mark.parametrize("way", WAYS)
async def test_tasks_wait_for_replies_and_a_cancelled_one_frees_its_slot(client: mainstem.aio.Aeron, way: str) -> None:
    channel, back = ways(way)
    responder = await mainstem.aio.Responder(client, channel, 1001, **back)
    requester = await mainstem.aio.Requester(client, channel, 1001, **back)

    async def serve() -> None:
        async for request in responder.requests():
            if request.payload != b"never":
                await request.respond(request.payload[::-1])

    served = asyncio.create_task(serve())
    asked = [b"%d" % number * (1 + number % 300) for number in range(100)]
    replies = await asyncio.gather(*(requester.request(each, timeout=STALL_S) for each in asked))
    assert replies == [each[::-1] for each in asked]
    with pytest.raises(Timeout):
        await requester.request(b"never", timeout=0.05)
    for turns in range(40):
        task = asyncio.create_task(requester.request(b"cancelled"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert requester.stats().in_flight == 0
    assert await requester.request(b"abc", timeout=STALL_S) == b"cba"
    assert (responder.stats().clients, responder.stats().refused_clients) == (1, 0)
    # A waiting request learns that its requester was closed.
    waiting = asyncio.create_task(requester.request(b"never"))
    await until(lambda: requester.stats().in_flight == 1)
    await requester.close()
    with pytest.raises(ClosedError):
        await waiting
    await responder.close()
    await served


class Interrupted(dict[int, Any]):
    """Slots that raise, as a signal handler would, when the second response looks up its slot."""

    lookups = 0

    def get(self, *arguments: Any) -> Any:
        self.lookups += 1
        if self.lookups == 2:
            raise KeyboardInterrupt
        return super().get(*arguments)

    pop = get  # type: ignore[assignment]


class Reply:
    def __init__(self, correlation_id: int) -> None:
        self.reserved_value = correlation_id
        self.payload = b"%d" % correlation_id


class Replies:
    """A subscription that yields three responses, once."""

    closed = False

    def __init__(self) -> None:
        self.replies = [Reply(number) for number in (1, 2, 3)]

    def poll_with_metadata(self, limit: int = 1000) -> list[Reply]:
        replies, self.replies = self.replies[:limit], self.replies[limit:]
        return replies


def test_a_signal_handler_that_raises_in_one_thread_takes_no_reply_from_another() -> None:
    state = RequesterState(None, None, Replies(), 10)  # type: ignore[arg-type]
    slots = [state.open_slot() for _ in range(3)]
    state.slots = Interrupted(state.slots)
    with pytest.raises(KeyboardInterrupt):
        state.poll()
    state.poll()
    assert [slot.response for slot in slots] == [b"1", b"2", b"3"]
    assert state.late_responses == 0


def test_a_signal_handler_that_raises_in_a_responder_takes_no_request(
    aeron: mainstem.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Request.__init__

    def interrupt(*arguments: Any) -> None:
        monkeypatch.setattr(Request, "__init__", make)
        raise KeyboardInterrupt

    channel, back = ways("ipc")
    with (
        mainstem.Responder(aeron, channel, 1001, **back) as responder,
        mainstem.Requester(aeron, channel, 1001, **back) as requester,
    ):
        replies: list[bytes] = []
        asking = threading.Thread(target=lambda: replies.append(requester.request(b"x", timeout=STALL_S)))
        asking.start()
        monkeypatch.setattr(Request, "__init__", interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(responder.requests(timeout=STALL_S))
        next(responder.requests(timeout=STALL_S)).respond(b"y", timeout=STALL_S)
        asking.join()
        assert replies == [b"y"]


@pytest.mark.parametrize("kind", [mainstem.aio.Requester, mainstem.aio.Responder])
async def test_await_or_async_with_opens_and_one_that_was_dropped_before_warns(
    client: mainstem.aio.Aeron, kind: Any
) -> None:
    channel, back = ways("ipc")
    awaited = await kind(client, channel, 1001, **back)
    assert not awaited.closed
    async with awaited as entered:
        assert entered is awaited
    assert awaited.closed
    async with kind(client, channel, 1001, **back) as entered:
        assert not entered.closed
    assert entered.closed
    unopened = kind(client, channel, 1001, **back)
    assert "not open" in repr(unopened)
    with pytest.raises(ClosedError, match="async with"):
        unopened.stats()
    with pytest.warns(RuntimeWarning, match="never awaited"):
        del unopened
    given_up = kind(client, channel, 1001, **back)
    await given_up.close()
    with pytest.raises(ClosedError):
        await given_up


@pytest.mark.parametrize("name", ["Requester", "Responder"])
def test_both_variants_are_created_with_the_same_arguments(name: str) -> None:
    blocking, asynchronous = (inspect.signature(getattr(package, name)) for package in (mainstem, mainstem.aio))
    assert list(blocking.parameters) == list(asynchronous.parameters)
    for parameter, asyncio_parameter in zip(
        blocking.parameters.values(), asynchronous.parameters.values(), strict=True
    ):
        assert (parameter.kind, parameter.default) == (asyncio_parameter.kind, asyncio_parameter.default)


@pytest.mark.parametrize("variant", [mainstem, mainstem.aio], ids=["blocking", "asyncio"])
async def test_an_error_says_whether_the_request_can_be_retried(
    aeron: mainstem.Aeron, client: mainstem.aio.Aeron, variant: Any
) -> None:
    channel, back = ways("ipc")

    async def failure(requester: Any, seconds: float) -> MainstemError:
        def ask() -> Any:
            return requester.request(b"ping", timeout=seconds)

        with pytest.raises(MainstemError) as raised:
            await (asyncio.to_thread(ask) if variant is mainstem else ask())
        return raised.value

    requester = variant.Requester(aeron if variant is mainstem else client, channel, 1001, max_in_flight=1, **back)
    if variant is mainstem.aio:
        await requester
    error = await failure(requester, 0.05)
    assert isinstance(error, NotConnected)
    assert (error.delivery, error.may_retry) == (Delivery.NONE, True)
    with mainstem.Responder(aeron, channel, 1001, **back) as responder:
        served = asyncio.create_task(asyncio.to_thread(lambda: next(responder.requests(timeout=STALL_S))))
        error = await failure(requester, 1.0)
        assert (await served).payload == b"ping"
        assert isinstance(error, Timeout)
        assert (error.delivery, error.may_retry) == (Delivery.UNKNOWN, False)
        assert "its responder is connected" in str(error)
        slot = requester._state.open_slot()
        error = await failure(requester, 0.05)
        assert isinstance(error, BackPressured)
        assert error.may_retry
        requester._state.free(slot)
    closing = requester.close()
    if variant is mainstem.aio:
        await closing


@pytest.mark.parametrize("variant", [mainstem, mainstem.aio], ids=["blocking", "asyncio"])
async def test_a_requester_that_is_closed_says_whether_the_request_was_sent(
    aeron: mainstem.Aeron, client: mainstem.aio.Aeron, variant: Any
) -> None:
    channel, back = ways("ipc")
    requester: Any = variant.Requester(aeron if variant is mainstem else client, channel, 1001, **back)
    if variant is mainstem.aio:
        await requester

    def ask() -> Any:
        return asyncio.to_thread(requester.request, b"x") if variant is mainstem else requester.request(b"x")

    with mainstem.Responder(aeron, channel, 1001, **back) as responder:
        waiting = asyncio.ensure_future(ask())
        received = await asyncio.to_thread(lambda: next(responder.requests(timeout=STALL_S)))
        assert received.payload == b"x"
        closing = requester.close()
        if variant is mainstem.aio:
            await closing
        with pytest.raises(ClosedError) as raised:
            await waiting
        assert (raised.value.delivery, raised.value.may_retry) == (Delivery.UNKNOWN, False)
        with pytest.raises(ClosedError) as raised:
            await ask()
        assert (raised.value.delivery, raised.value.may_retry) == (Delivery.NONE, True)


def test_closing_a_responder_from_another_thread_ends_every_way_back(
    aeron: mainstem.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, back = ways("ipc")
    with mainstem.Requester(aeron, channel, 1001, **back), mainstem.Requester(aeron, channel, 1001, **back):
        responder = mainstem.Responder(aeron, channel, 1001, **back)
        state = responder._state
        wait_for(lambda: not state.work() and state.clients == 2)
        opened = list(state._publications.values())
        close = state.conductor.close_resource

        def close_while_the_other_thread_works(resource: Any) -> None:
            if resource is opened[-1]:
                state.work()
            close(resource)

        monkeypatch.setattr(state.conductor, "close_resource", close_while_the_other_thread_works)
        responder.close()
        assert all(publication.closed for publication in opened)


def test_a_response_publication_opened_during_close_is_closed_too(
    aeron: mainstem.Aeron, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, back = ways("ipc")
    responder = mainstem.Responder(aeron, channel, 1001, **back)
    late = aeron.add_exclusive_publication("aeron:ipc", 1003)

    def work() -> bool:
        responder.close()
        responder._state._publications[1] = late
        return False

    monkeypatch.setattr(responder._state, "work", work)
    assert list(responder.requests()) == []
    assert late.closed


SILENT = {"response_channel": "aeron:ipc", "response_stream_id": 1002, "timeout": 0.2}


@pytest.mark.parametrize("kind", ["Requester", "Responder"])
def test_opening_gives_up_after_its_timeout(kind: str) -> None:
    driver = HandDriver()
    driver.silent = True
    with (
        mainstem.connect(
            "/driver", files=driver.files, clock=driver.clock, use_invoker=True, driver_invoker=driver.do_work
        ) as client,
        pytest.raises(DriverTimeout, match=r"within 0\.2 s"),
    ):
        getattr(mainstem, kind)(client, "aeron:ipc", 1001, **SILENT)


def test_the_timeout_of_opening_a_requester_is_for_both_of_its_commands() -> None:
    driver = HandDriver()
    with mainstem.connect(
        "/driver", files=driver.files, clock=driver.clock, use_invoker=True, driver_invoker=driver.do_work
    ) as client:
        driver.tick_ns = 20_000_000
        begin_ns = driver.clock.monotonic_ns()
        answered = driver.answer

        def answer_the_first(response: Any) -> None:
            answered(response)
            driver.silent = isinstance(response, OnSubscriptionReady)

        driver.answer = answer_the_first  # type: ignore[method-assign]
        with pytest.raises(DriverTimeout, match="did not answer the exclusive publication"):
            mainstem.Requester(client, "aeron:ipc", 1001, **SILENT)
        assert driver.clock.monotonic_ns() - begin_ns < 300_000_000
        assert not client.stats().subscriptions


# A stream that begins one frame before its last position.
AT_THE_END = "|term-length=64k|init-term-id=0|term-id=2147483647|term-offset=65504"


def test_a_request_on_a_stream_without_positions_fails_at_once(aeron: mainstem.Aeron) -> None:
    channel, back = ways("udp")
    with (
        mainstem.Responder(aeron, channel, 1001, **back),
        mainstem.Requester(aeron, channel + AT_THE_END, 1001, **back) as requester,
        pytest.raises(MaxPositionExceeded, match="request: the stream has used up its positions"),
    ):
        requester.request(bytes(100))


async def test_an_asyncio_request_on_a_stream_without_positions_fails_at_once(
    aeron: mainstem.Aeron, client: mainstem.aio.Aeron
) -> None:
    channel, back = ways("udp")
    with mainstem.Responder(aeron, channel, 1001, **back):
        async with mainstem.aio.Requester(client, channel + AT_THE_END, 1001, **back) as requester:
            with pytest.raises(MaxPositionExceeded):
                await asyncio.wait_for(requester.request(bytes(100)), STALL_S)
