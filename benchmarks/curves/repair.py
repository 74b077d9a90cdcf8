"""Loss and delay, in the simulator: what they cost in time and in bytes, the same on every machine."""

from __future__ import annotations

import statistics

from harness.curve import Curve

from mainstem._core.system_counter import SystemCounter
from mainstem._internal.clock import NS_PER_MS
from mainstem.sim import Faults, World

MESSAGES = 2_000
LENGTH = 1_024
SEEDS = range(1, 6)
DELAY_NS = NS_PER_MS


def transfer(seed: int, faults: Faults) -> tuple[float, float]:
    """Simulated seconds for a stream of 2 MB, and bytes sent again for each byte that was sent."""
    with World(seed, faults=faults) as world:
        sender, receiver = world.add_host("sender"), world.add_host("receiver")
        channel = f"aeron:udp?endpoint={receiver.address}:20121"
        subscription = receiver.aeron.add_subscription(channel, 1001)
        publication = sender.aeron.add_exclusive_publication(f"{channel}|term-length=1m", 1001)
        world.run_until(lambda: publication.is_connected and subscription.is_connected, what="a connection")
        sent = received = 0
        message = bytes(LENGTH)

        def on_message(_: object) -> None:
            nonlocal received
            received += 1

        def step() -> bool:
            nonlocal sent
            while sent < MESSAGES and publication.offer(message) > 0:
                sent += 1
            while subscription.poll_messages(on_message, 100):
                pass
            return received == MESSAGES

        begin = world.now_ns
        world.run_until(step, what="every message", within_ns=10**12)
        again = sender.aeron.counters.value(SystemCounter.RETRANSMITTED_BYTES)
        return (world.now_ns - begin) / 1e9, again / (MESSAGES * LENGTH)


def medians(faults: Faults) -> dict[str, float]:
    runs = [transfer(seed, faults) for seed in SEEDS]
    seconds, again = (statistics.median(run[part] for run in runs) for part in (0, 1))
    return {"simulated seconds": seconds, "bytes sent again for each byte": max(again, 1e-4)}


def lossy(permille: int) -> dict[str, float]:
    return medians(Faults(loss=permille / 1000, delay_ns=DELAY_NS))


def slow(milliseconds: int) -> dict[str, float]:
    return medians(Faults(loss=0.01, delay_ns=milliseconds * NS_PER_MS))


CURVES = (
    Curve(
        name="loss",
        over="datagrams lost of a thousand",
        cost="2 MB over 1 ms",
        points=(1, 3, 10, 30, 100, 200, 300),
        quick=(1, 100),
        measure=lossy,
        why="Lost bytes are sent again, and so are lost repairs, so the bytes grow with the loss, a little faster from "
        "10 % on. Time then bends upward: nearly every window has a repair that is lost too, which can only be "
        "requested again after the sender's `retransmit_unicast_linger` (10 ms; with 5 ms, the transfer takes half "
        "to two thirds of the time).",
    ),
    Curve(
        name="delay",
        over="ms each way",
        cost="2 MB with 1 % loss",
        points=(1, 3, 10, 30, 100, 250),
        quick=(1, 100),
        measure=slow,
        why="Up to 128 KiB (a window) can be in flight, so the time is proportional to the delay: sixteen windows, some "
        "with a repair. A wider window (`rcv-wnd`) shortens it.",
    ),
)
