"""Signal handlers that raise in a duologue: whenever they do, messages arrive once and in order."""
# ruff: noqa: B023 - every function is called in the loop iteration that defines it

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.interruptions import interruptions

from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.duologue.channels import ClientChannels, ServerChannels
from mainstem.duologue.client_core import ClientCore
from mainstem.duologue.crypto import Opener, Sealer, ServerKey
from mainstem.duologue.ends import ClientEnd
from mainstem.duologue.server_core import ServerCore
from mainstem.duologue.settings import Settings
from mainstem.duologue.streams import Outbox
from mainstem.errors import ConnectRefused
from mainstem.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.duologue.session import Session

PACKAGE = "mainstem.duologue"
ENDS = pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])


class Talk:
    """A duologue that is open at both ends, in a simulated world."""

    def __init__(self, world: World, is_encrypted: bool) -> None:
        self.world = world
        near, far = world.add_host("server"), world.add_host("client")
        key = ServerKey.generate(Random(5)) if is_encrypted else None
        sessions: list[Session] = []
        self.server = ServerCore(
            near.aeron,
            ServerChannels(near.address, settings=Settings(max_clients=4)),
            sessions.append,
            rng=Random(1),
            key=key,
        )
        channels = ClientChannels(near.address)
        server_key = b"" if key is None else key.public
        self.client = ClientCore(far.aeron, channels, server_key=server_key, rng=Random(2), now_ns=world.now_ns)
        self.end = ClientEnd(channels)
        self.end._core = self.client

        def step() -> bool:
            self.server.do_work(world.now_ns)
            self.client.do_work(world.now_ns)
            return self.client.is_open and bool(sessions)

        world.run_until(step, what="an open duologue")
        (self.session,) = sessions

    def arrived(self) -> list[bytes]:
        """Return the messages that the server has received since the last call."""
        messages = []
        while (message := self.session.receive()) is not None:
            messages.append(message)
        return messages


@pytest.fixture
def talk(is_encrypted: bool) -> Iterator[Talk]:
    with World(1) as world:
        yield Talk(world, is_encrypted)


@ENDS
def test_an_interrupted_client_receives_every_message_once(talk: Talk) -> None:
    for number, interruption in enumerate(interruptions(PACKAGE)):
        sent = [b"%d: %d" % (number, each) for each in range(3)]
        received: list[bytes] = []
        for message in sent:
            talk.session.queue(message)

        begun: list[Any] = []

        def take(received: list[bytes] = received, begun: list[Any] = begun) -> None:
            # Keep the generators, because closing one while interruptions are counted would count as a moment of the call.
            begun.append(talk.end._receiving(None))
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
def test_messages_of_an_interrupted_client_arrive_at_most_once(talk: Talk) -> None:
    for number, interruption in enumerate(interruptions(PACKAGE)):
        arrived: list[bytes] = []
        returned: list[bytes] = []
        messages = [b"%d: %d" % (number, each) for each in range(3)]
        begun: list[Any] = []
        for message in (*messages, b"last"):

            def send(message: bytes = message, returned: list[bytes] = returned, begun: list[Any] = begun) -> None:
                begun.append(talk.end._sending(message, None))
                if next(begun[-1], "sent") == "sent":
                    returned.append(message)

            interruption.during(send)

        def step() -> bool:
            if b"last" not in returned:
                talk.client.offer(b"last")
                returned.append(b"last")
            talk.client.do_work(talk.world.now_ns)
            talk.server.do_work(talk.world.now_ns)
            arrived.extend(talk.arrived())
            return b"last" in arrived

        talk.world.run_until(step, what="the last message")
        assert [each for each in arrived if each != b"last"] == [each for each in messages if each in arrived]
        assert set(returned) <= set(arrived)


@ENDS
def test_an_interrupted_client_still_learns_why_the_server_ended_the_duologue(is_encrypted: bool) -> None:
    for interruption in interruptions(PACKAGE):
        with World(1) as world:
            talk = Talk(world, is_encrypted)
            talk.session.queue(b"x")
            talk.session.close("noon")
            reasons: list[str] = []

            def work(talk: Talk = talk, reasons: list[str] = reasons) -> None:
                talk.client.do_work(talk.world.now_ns)
                if isinstance(talk.client.error, ConnectRefused):
                    reasons.append(talk.client.error.reason)

            def step(talk: Talk = talk, reasons: list[str] = reasons, work: Any = work) -> bool:
                talk.server.do_work(talk.world.now_ns)
                interruption.during(work)
                return bool(reasons)

            world.run_until(step, what="the reason")
            assert reasons == ["noon"]
            assert talk.client.receive() == b"x"
            with pytest.raises(ConnectRefused, match="noon"):
                talk.client.receive()


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
def test_an_interrupted_outbox_retries_only_refused_messages(is_encrypted: bool) -> None:
    for interruption in interruptions(PACKAGE):
        window = Window()
        outbox = Outbox(window, name="x", sealer=Sealer(bytes(32), 5) if is_encrypted else None)
        messages = [b"%d" % number for number in range(3)]
        for message in messages:
            outbox.queue(message, 0)
        while outbox:
            window.has_room = True
            interruption.during(lambda outbox=outbox: outbox.do_work(0))  # type: ignore[misc]
        opener = Opener(bytes(32), 5)
        opened = []
        for taken in window.taken:
            opened.append(opener.open(taken) if is_encrypted else taken)
            opener.number += 1
        assert opened == messages
        assert outbox._nbytes == 0
