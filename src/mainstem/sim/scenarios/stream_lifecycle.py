"""Stream lifecycles: spies, untethered subscribers, responses, rejection, revocation, and claims that stay open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.log.append import BufferClaim
from mainstem._core.system_counter import SystemCounter
from mainstem._internal.clock import NS_PER_SECOND
from mainstem.sim.checkers import Violation
from mainstem.sim.scenarios.streams import (
    MESSAGES,
    REMOVAL_NS,
    STREAM,
    UNTETHERED,
    Reader,
    ResponseChannel,
    Sleeper,
    connect,
    degrade_links,
    deliver,
    drawn_length,
    end,
    endpoint,
    readers,
    until,
)

if TYPE_CHECKING:
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

NETWORK_QUESTIONS = 60
REJECTION_NS = 30 * NS_PER_SECOND
QUESTIONS = 100
CLAIMS = 5
UNBLOCK_NS = 15 * NS_PER_SECOND  # the default of publication_unblock_timeout_ns
TIMER_NS = NS_PER_SECOND  # how much later the conductor may notice the end of a claim or a stuck position


def spies(world: World) -> str:
    """A spy and a receiver receive everything. An untethered spy that sleeps becomes RESTING and may return."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    channel = endpoint(receiver)
    subscription = receiver.aeron.add_subscription(channel, STREAM)
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k|ssc=true", STREAM)
    spy = sender.aeron.add_subscription(f"aeron-spy:{channel}", STREAM)
    loose = sender.aeron.add_subscription(f"aeron-spy:{channel}|{UNTETHERED}", STREAM)
    connect(world, publication, [subscription, spy, loose])
    degrade_links(world)
    sleeper, awake = Sleeper(loose), False

    def look() -> None:
        nonlocal awake
        if world.rng.random() < 0.001:
            awake = not awake
        if awake and loose.images:
            sleeper.poll()

    deliver(world, publication, readers(world, [subscription, spy]), bystander=look)
    return end(world, publication, [subscription, spy])


def response(world: World) -> str:
    """Requests over one stream, responses over each client's response channel. Every request gets its response."""
    client, server = world.add_host("client"), world.add_host("server")
    questions = server.aeron.add_subscription(endpoint(server, 20_125), STREAM)
    request = f"{endpoint(server, 20_125)}|term-length=64k"
    control = f"aeron:udp?control={server.address}:20126|control-mode=response"
    line = ResponseChannel(world, client, server, questions, request=request, response=control)
    degrade_links(world)
    waiting: list[bytes] = []

    def step() -> bool:
        question = line.asked.to_bytes(4, "big") * world.rng.randrange(1, 300)
        if line.asked < NETWORK_QUESTIONS and line.ask.offer(question) > 0:
            line.asked += 1
            line.checker.offered(question[::-1])
        questions.poll_messages(lambda fragment: waiting.append(bytes(fragment)[::-1]), 10)
        while waiting and line.answer.offer(waiting[0]) > 0:
            waiting.pop(0)
        line.answers.poll_messages(line.on_answer, 10)
        return line.asked == NETWORK_QUESTIONS and not line.checker.outstanding

    until(world, step, "a response to every request")
    return end(world, line.answer, [line.answers])


def rejection(world: World) -> str:
    """A receiver rejects a stream, which disconnects its publisher. Later the publisher revokes another stream."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    channel = endpoint(receiver)
    subscription = receiver.aeron.add_subscription(channel, STREAM)
    first = sender.aeron.add_publication(f"{channel}|term-length=64k", STREAM)
    second = sender.aeron.add_exclusive_publication(f"{channel}|term-length=64k", STREAM)
    connect(world, first, [subscription])
    world.run_until(lambda: second.is_connected and len(subscription.images) == 2, what="the second stream to connect")
    degrade_links(world)
    refused = next(image for image in subscription.images if image.session_id == first.session_id)
    accepted = next(image for image in subscription.images if image.session_id == second.session_id)
    refused.async_reject("no room")
    until(world, lambda: not first.is_connected, "the rejection to disconnect the publication", REJECTION_NS)
    if not second.is_connected:
        raise Violation("rejecting one stream disconnected the other")
    second.revoke()
    until(
        world,
        lambda: all(image is not accepted for image in subscription.images),
        "the revoked stream's image to end",
        REJECTION_NS,
    )
    if not accepted.is_publication_revoked:
        raise Violation("an image of a revoked publication ended with is_publication_revoked False")
    return f"{world.network.sent} datagrams, {world.network.lost} lost"


def ipc(world: World) -> str:
    """Several readers of one stream, some slow. An untethered one sleeps and becomes RESTING; one rejects its image."""
    host = world.add_host("host", image_liveness_timeout_ns=2 * NS_PER_SECOND)
    subscriptions = [host.aeron.add_subscription("aeron:ipc", STREAM) for _ in range(world.rng.randrange(1, 4))]
    sleeper = Sleeper(host.aeron.add_subscription(f"aeron:ipc?{UNTETHERED}", STREAM))
    add = world.rng.choice((host.aeron.add_publication, host.aeron.add_exclusive_publication))
    publication = add("aeron:ipc?term-length=64k", STREAM)
    connect(world, publication, [*subscriptions, sleeper.subscription])
    everybody = readers(world, subscriptions)
    deliver(world, publication, everybody, bystander=sleeper.poll)
    # Several windows' worth of messages, so that the sleeper limits the stream.
    deliver(world, publication, everybody, messages=MESSAGES, bystander=sleeper.sleep)
    sleeper.wait_until_removed(world)
    deliver(world, publication, everybody)
    sleeper.subscription.close()
    refused = world.rng.choice(subscriptions)
    refused.images[0].async_reject("no room")
    until(world, lambda: not publication.is_connected, "the rejection to disconnect the publication", REMOVAL_NS)
    until(
        world,
        lambda: all(each.is_connected for each in subscriptions),
        "every reader to get its image back",
        REMOVAL_NS,
    )
    deliver(world, publication, everybody)
    return end(world, publication, subscriptions)


class Line(ResponseChannel):
    """A client that sends one request at a time, and a server that responds at once."""

    def __init__(self, world: World, host: Host, questions: Subscription) -> None:
        request, response = "aeron:ipc?term-length=64k", "aeron:ipc?control-mode=response"
        super().__init__(world, host, host, questions, request=request, response=response)

    def step(self, question: bytes) -> None:
        """Send a request if the previous one has its response, respond, and read responses."""
        if self.asked < QUESTIONS and not self.checker.outstanding and self.ask.offer(question) > 0:
            self.asked += 1
            self.checker.offered(question[::-1])
        self.questions.poll_messages(lambda fragment: self.answer.send(bytes(fragment)[::-1], timeout=1.0), 1)
        self.answers.poll_messages(self.on_answer, 10)

    @property
    def done(self) -> bool:
        return self.asked == QUESTIONS and not self.checker.outstanding


def response_ipc(world: World) -> str:
    """Requests and responses over IPC: each client gets its own responses, whatever the others request."""
    host = world.add_host("host")
    questions = host.aeron.add_subscription("aeron:ipc", STREAM)
    lines = [Line(world, host, questions) for _ in range(world.rng.randrange(1, 4))]

    def step() -> bool:
        for line in lines:
            line.step(world.rng.randbytes(drawn_length(world.rng)))
        return all(line.done for line in lines)

    until(world, step, "a response to every request")
    lines[0].ask.close()
    return f"{len(lines)} clients, " + end(world, lines[0].answer, [lines[0].answers])


def claims(world: World) -> str:
    """Messages after an open claim wait for it until the unblock timeout, but no longer."""
    rng = world.rng
    sender = receiver = world.add_host("sender")
    channel = "aeron:ipc"
    if is_network := rng.random() < 0.5:
        receiver = world.add_host("receiver")
        channel = endpoint(receiver)
    subscription = receiver.aeron.add_subscription(channel, STREAM)
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k".replace("ipc|", "ipc?"), STREAM)
    connect(world, publication, [subscription])
    if is_network:
        degrade_links(world)
    reader = Reader("the stream", subscription)
    abandoned = 0

    def offer() -> None:
        message = rng.randbytes(rng.randrange(3000))
        world.run_until(lambda: publication.offer(message) > 0, what="room for a message")
        reader.checker.offered(message)

    def poll_until(due_ns: int) -> None:
        def progress() -> bool:
            reader.poll(world)
            return world.now_ns >= due_ns

        world.run_until(progress, what="time to pass")

    def all_read() -> bool:
        reader.poll(world)
        return not reader.checker.outstanding

    for _ in range(CLAIMS):
        offer()
        claim, message = BufferClaim(), rng.randbytes(rng.randrange(1, 1000))
        world.run_until(lambda: publication.try_claim(len(message), claim) > 0, what="room for a claim")  # noqa: B023
        claimed_ns = world.now_ns
        unblocked = sender.aeron.counters.value(SystemCounter.UNBLOCKED_PUBLICATIONS)
        is_abandoned = rng.random() < 0.3
        if not is_abandoned:
            reader.checker.offered(message)
        offer()
        if is_abandoned:
            abandoned += 1
            poll_until(claimed_ns + UNBLOCK_NS + 3 * TIMER_NS)
            if sender.aeron.counters.value(SystemCounter.UNBLOCKED_PUBLICATIONS) != unblocked + 1:
                raise Violation(
                    f"an abandoned claim was not unblocked within {(UNBLOCK_NS + 3 * TIMER_NS) // NS_PER_SECOND} s"
                )
        else:
            poll_until(claimed_ns + int(UNBLOCK_NS * rng.uniform(0.3, 0.97)))
            claim.view[:] = message
            claim.commit()
            if sender.aeron.counters.value(SystemCounter.UNBLOCKED_PUBLICATIONS) != unblocked:
                raise Violation("a claim was unblocked before its timeout, while its publisher was only slow")
        until(world, all_read, "the messages after the claim to arrive")
    return f"{abandoned} of {CLAIMS} claims abandoned, " + end(world, publication, [subscription])
