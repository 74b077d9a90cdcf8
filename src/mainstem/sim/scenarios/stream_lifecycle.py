"""Stream lifecycles: spies, subscribers that may fall behind, responses, rejection, revocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.sim.checkers import MonotoneChecker, StreamChecker, Violation
from mainstem.sim.scenarios.fan_out import PATIENCE_NS, connect, deliver, end, readers, spoil

if TYPE_CHECKING:
    from mainstem._core.log.fragment import Fragment
    from mainstem.sim.world import World

STREAM = 1001
QUESTIONS = 60


def spies(world: World) -> str:
    """A spy and a receiver get everything. An untethered spy that sleeps goes to RESTING and may come back."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    channel = f"aeron:udp?endpoint={receiver.address}:20121"
    subscription = receiver.aeron.add_subscription(channel, STREAM)
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k|ssc=true", STREAM)
    spy = sender.aeron.add_subscription(f"aeron-spy:{channel}", STREAM)
    loose = sender.aeron.add_subscription(
        f"aeron-spy:{channel}|tether=false|untethered-window-limit-timeout=1s|untethered-resting-timeout=1s", STREAM
    )
    connect(world, publication, [subscription, spy, loose])
    spoil(world)
    awake = False
    positions: dict[int, MonotoneChecker] = {}

    def on_message(fragment: Fragment) -> None:
        positions[max(positions, default=0)].observe(fragment.header.position)

    def look() -> None:
        nonlocal awake
        if world.rng.random() < 0.001:
            awake = not awake
        if awake and loose.images:
            positions.setdefault(loose.images[0].correlation_id, MonotoneChecker("the untethered spy's position"))
            loose.poll_messages(on_message, 10)

    deliver(world, publication, readers(world, [subscription, spy]), bystander=look)
    return end(world, publication, [subscription, spy])


def response(world: World) -> str:
    """Requests over one stream, responses over the response channel of each client. Every request gets its response."""
    client, server = world.add_host("client"), world.add_host("server")
    control = f"aeron:udp?control={server.address}:20126|control-mode=response"
    questions = server.aeron.add_subscription(f"aeron:udp?endpoint={server.address}:20125", STREAM)
    answers = client.aeron.add_subscription(control, STREAM + 1)
    ask = client.aeron.add_exclusive_publication(
        f"aeron:udp?endpoint={server.address}:20125|term-length=64k|response-correlation-id={answers.registration_id}",
        STREAM,
    )
    connect(world, ask, [questions])
    number = questions.images[0].correlation_id
    answer = server.aeron.add_exclusive_publication(
        f"{control}|term-length=64k|response-correlation-id={number}", STREAM + 1
    )
    connect(world, answer, [answers])
    spoil(world)
    checker = StreamChecker("answers")
    waiting: list[bytes] = []
    asked = 0

    def step() -> bool:
        nonlocal asked
        question = asked.to_bytes(4, "big") * world.rng.randrange(1, 300)
        if asked < QUESTIONS and ask.offer(question) > 0:
            asked += 1
            checker.offered(question[::-1])
        questions.poll_messages(lambda fragment: waiting.append(bytes(fragment)[::-1]), 10)
        while waiting and answer.offer(waiting[0]) > 0:
            waiting.pop(0)
        answers.poll_messages(lambda fragment: checker.delivered(bytes(fragment), fragment.header.position), 10)
        return asked == QUESTIONS and not checker.outstanding

    world.run_until(step, what="an answer to every question", within_ns=PATIENCE_NS)
    return end(world, answer, [answers])


def rejection(world: World) -> str:
    """A receiver rejects a stream, which disconnects its publisher. Later the publisher revokes another stream."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    channel = f"aeron:udp?endpoint={receiver.address}:20121"
    subscription = receiver.aeron.add_subscription(channel, STREAM)
    first = sender.aeron.add_publication(f"{channel}|term-length=64k", STREAM)
    second = sender.aeron.add_exclusive_publication(f"{channel}|term-length=64k", STREAM)
    connect(world, first, [subscription])
    world.run_until(lambda: second.is_connected and len(subscription.images) == 2, what="the second stream")
    spoil(world)
    refused = next(image for image in subscription.images if image.session_id == first.session_id)
    accepted = next(image for image in subscription.images if image.session_id == second.session_id)
    refused.async_reject("no room")
    world.run_until(lambda: not first.is_connected, what="the refusal", within_ns=30 * NS_PER_SECOND)
    if not second.is_connected:
        raise Violation("the refusal of one stream ended the other")
    second.revoke()
    world.run_until(
        lambda: all(image is not accepted for image in subscription.images),
        what="the withdrawal of the second stream",
        within_ns=30 * NS_PER_SECOND,
    )
    if not accepted.is_publication_revoked:
        raise Violation("a withdrawn stream does not say so")
    return f"{world.network.sent} datagrams, {world.network.lost} lost"
