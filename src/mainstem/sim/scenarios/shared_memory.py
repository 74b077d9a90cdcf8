"""Streams over IPC: slow and inactive readers, responses, rejection, publications of several clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.sim.checkers import MonotoneChecker, StreamChecker
from mainstem.sim.scenarios.fan_out import MESSAGES, PATIENCE_NS, connect, deliver, end, readers
from mainstem.sim.scenarios.unicast import drawn_length

if TYPE_CHECKING:
    from mainstem._core.log.fragment import Fragment
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

STREAM = 1001
QUESTIONS = 100
TIMEOUTS = "untethered-window-limit-timeout=1s|untethered-linger-timeout=500ms|untethered-resting-timeout=1s"


def ipc(world: World) -> str:
    """Several readers of one stream, some slow. An untethered one sleeps and goes to RESTING; one rejects its image."""
    host = world.add_host("host", image_liveness_timeout_ns=2 * NS_PER_SECOND)
    subscriptions = [host.aeron.add_subscription("aeron:ipc", STREAM) for _ in range(world.rng.randrange(1, 4))]
    loose = host.aeron.add_subscription(f"aeron:ipc?tether=false|{TIMEOUTS}", STREAM)
    add = world.rng.choice((host.aeron.add_publication, host.aeron.add_exclusive_publication))
    publication = add("aeron:ipc?term-length=64k", STREAM)
    connect(world, publication, [*subscriptions, loose])
    position = MonotoneChecker("the untethered reader's position")

    def on_message(fragment: Fragment) -> None:
        position.observe(fragment.header.position)

    def look() -> None:
        loose.poll_messages(on_message, 10)

    is_cut_off = False

    def doze() -> None:
        nonlocal is_cut_off
        is_cut_off = is_cut_off or not loose.images

    everybody = readers(world, subscriptions)
    deliver(world, publication, everybody, bystander=look)
    # Enough for several windows: the sleeper is in the way.
    deliver(world, publication, everybody, messages=MESSAGES, bystander=doze)
    world.run_until(
        lambda: is_cut_off or not loose.images, what="the end of the sleeper's image", within_ns=20 * NS_PER_SECOND
    )
    deliver(world, publication, everybody)
    loose.close()
    refused = world.rng.choice(subscriptions)
    refused.images[0].async_reject("no room")
    world.run_until(lambda: not publication.is_connected, what="the refusal", within_ns=20 * NS_PER_SECOND)
    world.run_until(
        lambda: all(each.is_connected for each in subscriptions),
        what="the readers' return",
        within_ns=20 * NS_PER_SECOND,
    )
    deliver(world, publication, everybody)
    return end(world, publication, subscriptions)


class Line:
    """One client's requests and its response channel."""

    def __init__(self, world: World, host: Host, questions: Subscription, number: int) -> None:
        self.checker = StreamChecker(f"the answers to client {number}")
        self.asked = 0
        self.answers = host.aeron.add_subscription("aeron:ipc?control-mode=response", STREAM + 1)
        self.ask = host.aeron.add_exclusive_publication(
            f"aeron:ipc?term-length=64k|response-correlation-id={self.answers.registration_id}", STREAM
        )
        connect(world, self.ask, [questions])
        self.image = next(each for each in questions.images if each.session_id == self.ask.session_id)
        self.answer = host.aeron.add_exclusive_publication(
            f"aeron:ipc?control-mode=response|term-length=64k|response-correlation-id={self.image.correlation_id}",
            STREAM + 1,
        )
        connect(world, self.answer, [self.answers])

    def step(self, question: bytes) -> None:
        """Send a request if the last one has its response, respond, and read responses."""
        if self.asked < QUESTIONS and not self.checker.outstanding and self.ask.offer(question) > 0:
            self.asked += 1
            self.checker.offered(question[::-1])
        self.image.poll_messages(self._on_question, 1)
        self.answers.poll_messages(self._on_answer, 10)

    @property
    def done(self) -> bool:
        return self.asked == QUESTIONS and not self.checker.outstanding

    def _on_question(self, fragment: Fragment) -> None:
        self.answer.send(bytes(fragment)[::-1], timeout=1.0)

    def _on_answer(self, fragment: Fragment) -> None:
        self.checker.delivered(bytes(fragment), fragment.header.position)


def response_ipc(world: World) -> str:
    """Requests and responses over IPC: each client gets its own responses, whatever the others request."""
    host = world.add_host("host")
    questions = host.aeron.add_subscription("aeron:ipc", STREAM)
    lines = [Line(world, host, questions, number) for number in range(world.rng.randrange(1, 4))]

    def step() -> bool:
        for line in lines:
            line.step(world.rng.randbytes(drawn_length(world.rng)))
        return all(line.done for line in lines)

    world.run_until(step, what="an answer to every question", within_ns=PATIENCE_NS)
    lines[0].ask.close()
    return f"{len(lines)} clients, " + end(world, lines[0].answer, [lines[0].answers])
