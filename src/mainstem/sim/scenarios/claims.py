"""Open claims: a slow publisher's message arrives complete, and a claim that is never committed does not block forever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.log.append import BufferClaim
from mainstem._internal.clock import NS_PER_SECOND
from mainstem.aeron.system_counter import SystemCounter
from mainstem.sim.checkers import Violation
from mainstem.sim.scenarios.fan_out import PATIENCE_NS, Reader, connect, end, spoil

if TYPE_CHECKING:
    from mainstem.sim.world import World

STREAM = 1001
ROUNDS = 5
UNBLOCK_NS = 15 * NS_PER_SECOND  # the setting's own value
TIMER_NS = NS_PER_SECOND  # how much later the conductor sees a claim's end or a stuck position


def claims(world: World) -> str:
    """Messages after an open claim wait for it until the unblock timeout, and no longer."""
    rng = world.rng
    sender = receiver = world.add_host("sender")
    channel = "aeron:ipc"
    if is_network := rng.random() < 0.5:
        receiver = world.add_host("receiver")
        channel = f"aeron:udp?endpoint={receiver.address}:20121"
    subscription = receiver.aeron.add_subscription(channel, STREAM)
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k".replace("ipc|", "ipc?"), STREAM)
    connect(world, publication, [subscription])
    if is_network:
        spoil(world)
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

        world.run_until(progress, what="some time")

    def all_read() -> bool:
        reader.poll(world)
        return not reader.checker.outstanding

    for _ in range(ROUNDS):
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
                    f"{UNBLOCK_NS // NS_PER_SECOND} s after its publisher stopped a claim still holds the stream"
                )
        else:
            poll_until(claimed_ns + int(UNBLOCK_NS * rng.uniform(0.3, 0.97)))
            claim.view[:] = message
            claim.commit()
            if sender.aeron.counters.value(SystemCounter.UNBLOCKED_PUBLICATIONS) != unblocked:
                raise Violation("the claim of a publisher that was only slow became padding")
        world.run_until(all_read, what="delivery of what was behind the claim", within_ns=PATIENCE_NS)
    return f"{abandoned} of {ROUNDS} claims abandoned, " + end(world, publication, [subscription])
