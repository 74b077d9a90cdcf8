"""Many gaps at once over a high-latency link: they are repaired in parallel, so the stream does not stall for each in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.sim.checkers import StreamChecker, Violation
from mainstem.sim.faults import Faults
from mainstem.sim.scenarios.fan_out import connect

if TYPE_CHECKING:
    from mainstem._core.log.fragment import Fragment
    from mainstem.sim.world import World

STREAM = 1001
ROUND_TRIP_NS = 250 * NS_PER_MS
LOSS = 0.05
MESSAGES = 1_000  # of a datagram each: some fifty gaps, which one after the other would take twelve seconds
LENGTH = 1_300
WINDOW = 512 * 1024
# The longest silence: a retransmission lost again and again, each time with a fresh request, at one rng in ten.
LONGEST_STALL_NS = 10 * ROUND_TRIP_NS
# All of it: three windows, and the repair of the last one.
LONGEST_NS = 6 * NS_PER_SECOND


def gaps(world: World) -> str:
    """Send a megabyte with 5% loss in both directions and a round trip of 250 ms."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    endpoint = f"aeron:udp?endpoint={receiver.address}:20121"
    # By default a gap is asked for again every 100 µs, thousands of times in a round trip; a channel may ask for patience.
    patience = world.rng.choice(("", "|nak-delay=100us", "|nak-delay=200us", "|nak-delay=400us"))
    window = f"rcv-wnd={WINDOW}|so-rcvbuf={2 * WINDOW}"
    subscription = receiver.aeron.add_subscription(f"{endpoint}|{window}{patience}", STREAM)
    publication = sender.aeron.add_exclusive_publication(f"{endpoint}|term-length=2m", STREAM)
    world.wire.window_length = WINDOW
    connect(world, publication, [subscription])
    world.network.faults = Faults(loss=LOSS, delay_ns=ROUND_TRIP_NS // 2)
    checker = StreamChecker("the stream")
    begun_ns = last_ns = world.now_ns
    longest_ns = sent = 0

    def on_message(fragment: Fragment) -> None:
        nonlocal last_ns, longest_ns
        checker.delivered(bytes(fragment), fragment.header.position)
        longest_ns = max(longest_ns, world.now_ns - last_ns)
        last_ns = world.now_ns

    def step() -> bool:
        nonlocal sent
        while sent < MESSAGES:
            message = sent.to_bytes(4, "big") * (LENGTH // 4)
            if publication.offer(message) < 0:
                break
            sent += 1
            checker.offered(message)
        subscription.poll_messages(on_message, 100)
        return sent == MESSAGES and not checker.outstanding

    world.run_until(step, what="delivery", within_ns=60 * NS_PER_SECOND)
    took_ns = world.now_ns - begun_ns
    if longest_ns > LONGEST_STALL_NS or took_ns > LONGEST_NS:
        raise Violation(f"took {took_ns // NS_PER_MS} ms, with a stall of {longest_ns // NS_PER_MS} ms")
    return f"{took_ns // NS_PER_MS} ms, longest stall {longest_ns // NS_PER_MS} ms, {world.network.lost} datagrams lost"
