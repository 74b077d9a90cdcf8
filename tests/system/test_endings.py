"""How things end: the table in docs/explanation/endings.md, for all five families and both variants.

Hypothesis draws what to send, how the near end ends, and what to call afterward. Every outcome must match the table.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.endings import SIZE, Conversation, Family, Far
from tests.support.waiting import STALL_S, until

from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.aqueduct.certificates import make_certificates
from mainstem.duologue.settings import reserved_sessions
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.system
pytest.importorskip("qh3")
pytest.importorskip("cryptography")

FAMILIES = ("Aeron", "bymux", "Jmux", "Aqueduct", "duologue")
VARIANTS = pytest.mark.parametrize("blocks", [True, False], ids=["blocking", "asyncio"])
# One direction of a duologue or an Aeron stream cannot end without the other.
CAN_FINISH = {"bymux", "Jmux", "Aqueduct"}


@pytest.fixture(scope="module")
def driver() -> Iterator[MediaDriver]:
    with MediaDriver.launch(**reserved_sessions(), term_buffer_length=1 << 16) as made:
        yield made


@pytest.fixture(scope="module")
def families(driver: MediaDriver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Family]:
    files = make_certificates(tmp_path_factory.mktemp("certificates"))
    return {name: Family(name, driver=driver, files=files) for name in FAMILIES}


EXAMPLES = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def sent(numbers: list[int]) -> bytes:
    return b"".join(bytes([number]) * SIZE for number in numbers)


@pytest.mark.parametrize("family", FAMILIES)
@VARIANTS
@given(
    numbers=st.lists(st.integers(0, 255), min_size=1, max_size=40),
    ending=st.sampled_from(["finish", "close", "abort"]),
    after=st.lists(st.sampled_from(["close", "abort"]), max_size=2),
)
@EXAMPLES
def test_an_end_does_what_the_table_says(
    families: dict[str, Family], family: str, blocks: bool, numbers: list[int], ending: str, after: list[str]
) -> None:
    if ending == "finish" and family not in CAN_FINISH:
        ending = "close"
    asyncio.run(ends(families[family], blocks, numbers, ending, after))


async def ends(family: Family, blocks: bool, numbers: list[int], ending: str, after: list[str]) -> None:
    far = Far(raises=False)
    async with asyncio.timeout(STALL_S), family.conversation(far, blocks=blocks) as talk:
        for number in numbers:
            await talk.send(bytes([number]) * SIZE)
        if family.name == "Jmux" and ending == "close":
            await respond(talk)
        await end(talk, family.name, ending)
        if ending != "abort":
            # After an orderly end, everything arrives, followed by the end of the stream, without an error on either side.
            await far.ended()
            assert far.error is None
            assert bytes(far.received) == sent(numbers)
            assert talk.near.error is None
        if ending == "finish":
            await end(talk, family.name, "close")
        await until(lambda: talk.near.closed)
        for name in after:
            await end(talk, family.name, name)
        assert talk.near.closed
        with pytest.raises(MainstemError):
            await talk.send(b"late" * (SIZE // 4))
        if ending == "abort" and far.handles:
            # After an abort, a prefix of what was sent arrives, and the far end learns of the abort.
            await far.ended()
            assert sent(numbers).startswith(bytes(far.received))


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES[1:])
@VARIANTS
@given(numbers=st.lists(st.integers(0, 255), min_size=1, max_size=40), ending=st.sampled_from(["finish", "close"]))
@EXAMPLES
def test_a_server_that_shuts_down_lets_its_handlers_finish(
    families: dict[str, Family], family: str, blocks: bool, numbers: list[int], ending: str
) -> None:
    if ending == "finish" and family not in CAN_FINISH:
        ending = "close"
    asyncio.run(shuts_down(families[family], blocks, numbers, ending))


async def shuts_down(family: Family, blocks: bool, numbers: list[int], ending: str) -> None:
    far = Far(raises=False)
    async with asyncio.timeout(STALL_S), family.conversation(far, blocks=blocks) as talk:
        await talk.send(bytes([numbers[0]]) * SIZE)
        await until(lambda: bool(far.handles))
        shutdown = asyncio.ensure_future(talk.call_server("shutdown"))
        for number in numbers[1:]:
            await talk.send(bytes([number]) * SIZE)
        assert not shutdown.done()
        if family.name == "Jmux" and ending == "close":
            await respond(talk)
        await end(talk, family.name, ending)
        await far.ended()
        assert far.error is None
        assert bytes(far.received) == sent(numbers)
        await shutdown
        assert talk.server_closed


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES[1:])
@VARIANTS
@given(
    numbers=st.lists(st.integers(0, 255), min_size=1, max_size=40),
    ending=st.sampled_from(["close", "abort"]),
    after=st.lists(st.sampled_from(["close", "abort", "shutdown"]), max_size=2),
)
@EXAMPLES
def test_a_server_that_closes_ends_its_handlers(
    families: dict[str, Family], family: str, blocks: bool, numbers: list[int], ending: str, after: list[str]
) -> None:
    asyncio.run(closes(families[family], blocks, numbers, ending, after))


async def closes(family: Family, blocks: bool, numbers: list[int], ending: str, after: list[str]) -> None:
    far = Far(raises=False)
    async with asyncio.timeout(STALL_S), family.conversation(far, blocks=blocks) as talk:
        for number in numbers:
            await talk.send(bytes([number]) * SIZE)
        await until(lambda: bool(far.handles))
        await talk.call_server(ending)
        assert talk.server_closed
        # The handler learns of it through an error or the end of its input, and has received a prefix of what was sent.
        await far.ended()
        assert sent(numbers).startswith(bytes(far.received))
        if family.name == "duologue":
            await failure(talk)  # a blocking client makes progress only during calls
        await until(lambda: talk.near.closed)
        with pytest.raises(MainstemError):
            await talk.send(b"late" * (SIZE // 4))
        for name in after:
            await talk.call_server(name)
        assert talk.server_closed


async def respond(talk: Conversation) -> None:
    """Complete a request by responding; closing a session before that aborts it."""
    await talk.call("finish")
    assert await talk.call("read", -1) == b""


async def end(talk: Conversation, family: str, name: str) -> None:
    if name == "abort" and family == "Aeron":
        name = "revoke"  # Aeron's word
    await talk.call(name)


@pytest.mark.parametrize("family", FAMILIES[1:])
@VARIANTS
async def test_a_handler_that_raises_ends_its_own_conversation_only(
    families: dict[str, Family], family: str, blocks: bool, caplog: pytest.LogCaptureFixture
) -> None:
    far = Far(raises=True)
    with caplog.at_level(logging.ERROR):
        async with asyncio.timeout(STALL_S), families[family].conversation(far, blocks=blocks) as talk:
            await talk.send(b"1" * SIZE)
            await far.ended()
            assert isinstance(await failure(talk), MainstemError)
            await until(lambda: logged(caplog))
    assert len(logged(caplog)) == 1


async def failure(talk: Conversation) -> Exception | None:
    """Return the error that the near end gets, or None if the stream ends normally."""
    try:
        while await talk.receive():
            pass
    except MainstemError as error:
        return error
    return None


def logged(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.exc_info and record.exc_info[0] is ZeroDivisionError]
