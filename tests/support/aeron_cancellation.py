"""Aeron asyncio workload for `test_cancellation.py`: streams, requests, destinations and a persistent subscription."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.support.ports import free_port
from tests.support.waiting import until

from mainstem import aio
from mainstem.errors import ClosedError, NotConnected, OfferError, RegistrationError, Timeout
from mainstem.recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.support.cancellation import Canceller

HOMES = ("mainstem.aeron.aio", "mainstem.aeron.aio.persistent_subscription", "mainstem._internal.opening")
CHANNEL = "aeron:ipc?term-length=64k"
BACK: dict[str, Any] = {"response_channel": CHANNEL, "response_stream_id": 2}
MESSAGES = 40


def table(cancelled: str, never_waits: str) -> dict[str, str]:
    """Return the expected outcome of each awaitable."""
    names = {
        "Aeron": ("add_counter", "add_exclusive_publication", "add_persistent_subscription", "add_publication",
                  "add_static_counter", "add_subscription", "close", "next_session_id", "__aexit__"),
        "ExclusivePublication": ("add_destination", "remove_destination", "send"),
        "Image": ("reject",),
        "Opening": ("__aenter__", "__aexit__"),
        "PersistentSubscription": ("messages", "next_arrow", "receive", "__aiter__"),
        "Poller": ("messages",),
        "Publication": ("add_destination", "remove_destination", "send"),
        "Request": ("respond",),
        "Requester": ("request", "__aenter__", "__await__"),
        "Responder": ("requests", "serve", "__aenter__", "__await__"),
        "Subscription": (
            "add_destination", "messages", "next_arrow", "receive", "remove_destination", "wait_for_data", "__aiter__",
        ),
    }  # fmt: skip
    resources = ("Counter", "ExclusivePublication", "PersistentSubscription", "Publication", "Subscription")
    instant = dict.fromkeys(resources, ("close", "__aenter__", "__aexit__"))
    instant |= {"Aeron": ("__aenter__",), "Requester": ("close", "__aexit__"), "Responder": ("close", "__aexit__")}
    made = {
        f"{kind}.{name}": what
        for what, listed in ((cancelled, names), (never_waits, instant))
        for kind, members in listed.items()
        for name in members
    }
    return {"connect": cancelled, "Opening.__await__": "connect"} | made


async def leave(cancel: Canceller, thing: Any) -> None:
    """Enter and leave an open resource in the ways that never wait."""
    name = type(thing).__name__
    if name not in ("Requester", "Responder"):
        await cancel(f"{name}.__aenter__", thing.__aenter__)
    ends = [("__aexit__", lambda: thing.__aexit__(None, None, None)), ("close", thing.close)]
    cancel.rng.shuffle(ends)
    for end, call in ends:
        await cancel(f"{name}.{end}", call)
        assert thing.closed


async def at_most_once(cancel: Canceller, name: str, call: Callable[[], Awaitable[object]]) -> None:
    """Run a call until it completes, or until the driver reports that a cancelled attempt already completed."""
    with suppress(RegistrationError):
        await cancel(name, call)


async def stream(cancel: Canceller, aeron: aio.Aeron, stream_id: int, way: str, recordings: Path) -> None:
    """Send messages with calls that are cancelled, and receive them with others."""
    rng = cancel.rng
    subscription: Any
    if way == "persistent":
        subscription = await cancel(
            "Aeron.add_persistent_subscription",
            lambda: aeron.add_persistent_subscription(CHANNEL, stream_id, recordings=recordings, start="latest"),
        )
    else:
        subscription = await cancel("Aeron.add_subscription", lambda: aeron.add_subscription(CHANNEL, stream_id))
    kind, add = rng.choice(
        (
            ("publication", aeron.add_publication),
            ("exclusive_publication", aeron.add_exclusive_publication),
        )
    )
    publication = await cancel(f"Aeron.add_{kind}", lambda: add(CHANNEL, stream_id))  # type: ignore[operator]
    await until(lambda: publication.is_connected)
    if way != "persistent":
        await until(lambda: subscription.image_by_session_id(publication.session_id) is not None)
    sent = [number.to_bytes(4, "big") * rng.choice((1, 100, 2000)) for number in range(MESSAGES)]

    async def send() -> None:
        for message in sent:
            # A cancelled send has sent nothing.
            await cancel(f"{type(publication).__name__}.send", lambda message=message: publication.send(message))  # type: ignore[misc]

    sending = asyncio.ensure_future(send())
    poller = aio.Poller([] if way == "persistent" else [subscription])
    received: list[bytes] = []
    name = type(subscription).__name__
    while len(received) < MESSAGES:
        if way == "wait_for_data":
            await cancel("Subscription.wait_for_data", subscription.wait_for_data)
            received += subscription.poll_bytes(rng.randrange(1, 5))
        elif way == "next_arrow" or (way == "persistent" and rng.random() < 0.3):
            done, batch = await cancel.once(f"{name}.next_arrow", lambda: subscription.next_arrow(3))
            received += batch.column("payload").to_pylist() if done else []
        elif way == "poller":
            done, turn = await cancel.once("Poller.messages", lambda: anext(poller.messages()))
            received += [turn[1]] if turn is not None else []
        elif way == "receive" or (way == "persistent" and rng.random() < 0.3):
            done, message = await cancel.once(f"{name}.receive", subscription.receive)
            received += [message] if done else []
        else:
            iterate, call = rng.choice((("messages", subscription.messages), ("__aiter__", subscription.__aiter__)))
            done, message = await cancel.once(f"{name}.{iterate}", lambda call=call: anext(call()))  # type: ignore[misc]
            received += [message] if done else []
    assert received == sent
    await sending
    if way == "messages":
        image = subscription.image_by_session_id(publication.session_id)
        await at_most_once(cancel, "Image.reject", lambda: image.reject("no"))
    for each in (subscription, publication):
        await leave(cancel, each)


async def destinations(cancel: Canceller, aeron: aio.Aeron, stream_id: int) -> None:
    channel, endpoint = "aeron:udp?control-mode=manual", f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    for thing in (
        await cancel("Aeron.add_subscription", lambda: aeron.add_subscription(channel, stream_id)),
        await cancel("Aeron.add_publication", lambda: aeron.add_publication(channel, stream_id)),
        await cancel("Aeron.add_exclusive_publication", lambda: aeron.add_exclusive_publication(channel, stream_id)),
    ):
        name = type(thing).__name__
        destination = await cancel(f"{name}.add_destination", lambda thing=thing: thing.add_destination(endpoint))  # type: ignore[misc]
        await at_most_once(
            cancel,
            f"{name}.remove_destination",
            lambda thing=thing, destination=destination: thing.remove_destination(destination),  # type: ignore[misc]
        )
        await leave(cancel, thing)
    for counter in (
        await cancel("Aeron.add_counter", lambda: aeron.add_counter(1001, "cancelled")),
        await cancel("Aeron.add_static_counter", lambda: aeron.add_static_counter(1002, "static", registration_id=7)),
    ):
        await leave(cancel, counter)
    await cancel("Aeron.next_session_id", lambda: aeron.next_session_id(stream_id))


async def opened(cancel: Canceller, make: Callable[[], Any], name: str) -> Any:
    """Return an open requester or responder, opened in one of the two ways."""
    if cancel.rng.random() < 0.5:
        return await cancel(f"{name}.__await__", make)
    return await cancel(f"{name}.__aenter__", lambda: make().__aenter__())


async def requests(cancel: Canceller, aeron: aio.Aeron, stream_id: int) -> None:
    rng = cancel.rng
    responder = await opened(cancel, lambda: aio.Responder(aeron, CHANNEL, stream_id, **BACK), "Responder")
    requester = await opened(cancel, lambda: aio.Requester(aeron, CHANNEL, stream_id, **BACK), "Requester")

    async def handler(request: bytes) -> bytes:
        await asyncio.sleep(rng.choice((0, 0.001)))
        return request[::-1]

    async def respond() -> None:
        while not responder.closed:
            if rng.random() < 0.3:
                await cancel.once("Responder.serve", lambda: responder.serve(handler), always=True)
                continue
            with suppress(StopAsyncIteration, ClosedError, NotConnected):
                _, request = await cancel.once("Responder.requests", lambda: anext(responder.requests()))
                if request is not None:
                    respond_to = partial(request.respond, request.payload[::-1])
                    await cancel.once("Request.respond", respond_to)

    responding = asyncio.ensure_future(respond())

    async def ask(number: int) -> None:
        question = b"%d" % number * rng.choice((1, 7000))
        # A request gets no response if its handler or its response was cancelled.
        with suppress(Timeout, OfferError):
            done, response = await cancel.once("Requester.request", lambda: requester.request(question, timeout=0.05))
            assert not done or response == question[::-1], "each request gets its own response"

    for _ in range(3):
        await asyncio.gather(*(ask(number) for number in range(10)))
        assert requester.stats().in_flight == 0
    for each in (requester, responder):
        await leave(cancel, each)
    await responding
    assert responder.stats().handling == 0


async def aeron_world(cancel: Canceller, resources: tuple[str, Path]) -> list[Callable[[], str]]:
    rng = cancel.rng
    directory, recordings = resources
    errors: list[BaseException] = []
    Recorder(recordings).close()
    aeron = await cancel("connect", lambda: aio.connect(directory, on_error=errors.append))
    for name, wait in (
        ("connect", lambda opening: opening),
        ("Opening.__aenter__", lambda opening: opening.__aenter__()),
    ):
        opening = aio.connect(recordings / "nobody")
        await cancel.once(name, partial(wait, opening), always=True)
        opening.discard()
    entered = False
    while not entered:
        opening = aio.connect(directory)
        entered, other = await cancel.once("Opening.__aenter__", opening.__aenter__)
        opening.discard()
    await cancel.once("Opening.__aexit__", lambda: opening.__aexit__(None, None, None))
    ways = rng.sample(("messages", "next_arrow", "persistent", "poller", "receive", "wait_for_data"), 2)
    await asyncio.gather(
        *(stream(cancel, aeron, 1000 + number, way, recordings) for number, way in enumerate(ways)),
        destinations(cancel, aeron, 1100),
        requests(cancel, aeron, 1200),
    )
    await until(lambda: not aeron._conductor.resources)
    await cancel("Aeron.__aenter__", aeron.__aenter__)
    await cancel("Aeron.__aexit__", lambda: aeron.__aexit__(None, None, None))
    await cancel("Aeron.close", aeron.close)
    assert aeron.closed
    # These errors come from responses whose requester or responder had already closed.
    assert all(isinstance(error, (ClosedError, OfferError)) for error in errors), errors
    assert other is None or other.closed
    return [lambda client=client: client_leftovers(client) for client in (aeron, other)]  # type: ignore[misc]


def client_leftovers(client: Any) -> str:
    """Describe what a client has not released."""
    conductor = client._conductor
    left = {
        "resources": conductor.resources,
        "commands": conductor.pending,
        "logs": conductor.logs.lingering,
        "thread": not client._runner.is_closed,
    }
    return " ".join(f"{kind} {value}" for kind, value in left.items() if value)
