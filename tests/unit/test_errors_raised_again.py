"""Every later call raises the error that ended a connection, and no call adds memory to that error."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.mux_pair import bymux_pair, jmux_pair
from tests.support.waiting import settle
from tests.unit.aeron.client.hand_driver import DIRECTORY, HandDriver

from mainstem.aeron.client import Aeron, ClientContext, ClientSettings
from mainstem.aeron.client.resource import raise_error_of
from mainstem.errors import ClientTimeout, ConnectionLost, MainstemError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TIMES = 100
DEEPEST = 12  # calls from a test to the line that raises


def depth(error: BaseException) -> int:
    """Return how many calls an error's traceback has."""
    return len(traceback.extract_tb(error.__traceback__))


async def fails_alike(call: Callable[[], Awaitable[object]]) -> None:
    """Call repeatedly and check the errors raised."""
    for _ in range(TIMES):
        with pytest.raises(MainstemError) as caught:
            await call()
    assert depth(caught.value) <= DEEPEST


def test_the_failure_of_an_aeron_client() -> None:
    driver = HandDriver()
    context = ClientContext(
        settings=ClientSettings(dir=DIRECTORY), files=driver.files, clock=driver.clock, use_invoker=True,
        driver_invoker=driver.do_work, on_error=lambda _: None,
    )  # fmt: skip
    aeron = Aeron.connect(context=context)
    subscription = aeron.add_subscription("aeron:ipc", 1)
    aeron._conductor.terminate(ClientTimeout("it was not run"))
    for call in (
        lambda: raise_error_of(subscription),
        lambda: list(subscription.messages()),
        lambda: aeron.add_counter(1000, label="x"),
    ):
        for _ in range(TIMES):
            with pytest.raises(ClientTimeout) as caught:
                call()
        assert depth(caught.value) <= DEEPEST


async def test_the_failure_of_a_bymux_connection() -> None:
    async def handler(stream: Any) -> None:
        await stream.read()

    client, _ = bymux_pair(handler)
    stream = await client.open_stream()
    client._protocol.transport.lose(ConnectionLost("the cable was cut"))
    await settle()
    await fails_alike(stream.read)
    await fails_alike(lambda: stream.readexactly(1))
    await fails_alike(client.open_stream)
    await fails_alike(client.accept_stream)


async def test_the_failure_of_a_jmux_client() -> None:
    async def handler(session: Any) -> None:
        await session.read()

    client, endpoint = jmux_pair(handler)
    session = await client.open_session()
    endpoint.transports[0].abort()
    await settle()
    await fails_alike(session.read)
    await fails_alike(session.drain)
