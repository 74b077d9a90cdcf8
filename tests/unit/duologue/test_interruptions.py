"""Exceptions of signal handlers in a duologue: whenever they come, messages arrive once and in order."""
# ruff: noqa: B023 - every function is called in the turn of the loop that defines it

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.interruptions import interruptions

from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.duologue.client_core import ClientCore
from mainstem.duologue.crypto import Opener, Sealer, ServerKey
from mainstem.duologue.handler import Handler
from mainstem.duologue.lifecycle import ClientLife
from mainstem.duologue.outbox import Outbox
from mainstem.duologue.server_core import ServerCore
from mainstem.duologue.settings import ClientSettings, ServerSettings
from mainstem.errors import ConnectRefused
from mainstem.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.duologue.session import Duologue

PACKAGE = "mainstem.duologue"
ENDS = pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])


class Recorder(Handler):
    """Keeps its duologue, and the messages that came."""

    def __init__(self) -> None:
        self.duologues: list[Duologue] = []
        self.messages: list[bytes] = []
        self.reasons: list[str] = []

    def on_open(self, duologue: Duologue) -> None:
        self.duologues.append(duologue)

    def on_message(self, duologue: Duologue, message: bytes) -> None:
        self.messages.append(message)

    def on_close(self, duologue: Duologue, reason: str) -> None:
        self.reasons.append(reason)


class Talk:
    """A duologue that is open at both ends, in a simulated world."""

    def __init__(self, world: World, is_encrypted: bool) -> None:
        self.world = world
        near, far = world.add_host("server"), world.add_host("client")
        key = ServerKey.generate(Random(5)) if is_encrypted else None
        self.handler = Recorder()
        self.server = ServerCore(
            near.aeron,
            ServerSettings(address=near.address, max_clients=4),
            self.handler,
            chance=Random(1),
            key=key,
            assert_thread=lambda: None,
        )
        settings = ClientSettings(server=near.address, server_key=b"" if key is None else key.public)
        self.client = ClientCore(far.aeron, settings, chance=Random(2), now_ns=world.now_ns)
        self.life = ClientLife(settings)
        self.life._core = self.client
        self.life._connection = type("Connection", (), {"aeron": far.aeron})()

        def step() -> bool:
            self.server.do_work(world.now_ns)
            self.client.do_work(world.now_ns)
            return self.client.is_open and bool(self.handler.duologues)

        world.run_until(step, what="an open duologue")
        (self.duologue,) = self.handler.duologues


@pytest.fixture
def talk(is_encrypted: bool) -> Iterator[Talk]:
    with World(1) as world:
        yield Talk(world, is_encrypted)


@ENDS
def test_a_client_that_is_interrupted_receives_every_message_once(talk: Talk) -> None:
    for number, interruption in enumerate(interruptions(PACKAGE)):
        sent = [b"%d: %d" % (number, each) for each in range(3)]
        received: list[bytes] = []
        for message in sent:
            talk.duologue.send(message)

        begun: list[Any] = []

        def take(received: list[bytes] = received, begun: list[Any] = begun) -> None:
            # Kept, so that none is closed, which is no moment of a signal handler, while interruptions are counted.
            begun.append(talk.life.receiving(None))
            try:
                next(begun[-1])
            except StopIteration as end:
                received.append(end.value)

        def step() -> bool:
            talk.server.do_work(talk.world.now_ns)
            interruption.during(take)
            return len(received) >= len(sent)

        talk.world.run_until(step, what="all messages")
        assert received == sent


@ENDS
def test_what_an_interrupted_client_sends_arrives_once_or_not_at_all(talk: Talk) -> None:
    for number, interruption in enumerate(interruptions(PACKAGE)):
        talk.handler.messages.clear()
        returned: list[bytes] = []
        messages = [b"%d: %d" % (number, each) for each in range(3)]
        for message in messages:

            def send(message: bytes = message, returned: list[bytes] = returned) -> None:
                talk.client.send(message, talk.world.now_ns)
                returned.append(message)

            interruption.during(send)
        talk.client.send(b"last", talk.world.now_ns)

        def step() -> bool:
            talk.client.do_work(talk.world.now_ns)
            talk.server.do_work(talk.world.now_ns)
            return b"last" in talk.handler.messages

        talk.world.run_until(step, what="the last message")
        arrived = talk.handler.messages[:-1]
        assert arrived == [each for each in messages if each in arrived]
        assert set(returned) <= set(arrived)


@ENDS
def test_an_interrupted_client_still_learns_why_the_server_ended_the_duologue(is_encrypted: bool) -> None:
    for interruption in interruptions(PACKAGE):
        with World(1) as world:
            talk = Talk(world, is_encrypted)
            talk.duologue.send(b"x")
            talk.duologue.close("noon")
            reasons: list[str] = []

            def work(talk: Talk = talk, reasons: list[str] = reasons) -> None:
                try:
                    talk.client.do_work(talk.world.now_ns)
                except ConnectRefused as error:
                    reasons.append(error.reason)

            def step(talk: Talk = talk, reasons: list[str] = reasons, work: Any = work) -> bool:
                talk.server.do_work(talk.world.now_ns)
                interruption.during(work)
                return bool(reasons)

            world.run_until(step, what="the reason")
            assert reasons == ["noon"]
            assert talk.client.receive() == b"x"


class Window:
    """A stream with room for one message at a time."""

    def __init__(self) -> None:
        self.has_room = False
        self.taken: list[bytes] = []

    def offer(self, data: bytes, /) -> int:
        if not self.has_room:
            return OfferStatus.BACK_PRESSURED
        self.has_room = False
        self.taken.append(data)
        return len(self.taken)


@ENDS
def test_an_outbox_that_is_interrupted_offers_again_what_was_refused_only(is_encrypted: bool) -> None:
    for interruption in interruptions(PACKAGE):
        window = Window()
        outbox = Outbox(window, name="x", sealer=Sealer(bytes(32), 5) if is_encrypted else None)
        messages = [b"%d" % number for number in range(3)]
        for message in messages:
            outbox.send(message, 0)
        while outbox:
            window.has_room = True
            interruption.during(lambda outbox=outbox: outbox.do_work(0))  # type: ignore[misc]
        opener = Opener(bytes(32), 5)
        opened = []
        for taken in window.taken:
            opened.append(opener.open(taken) if is_encrypted else taken)
            opener.number += 1
        assert opened == messages
        assert outbox._octets == 0
