"""Loss and latency: congestion control, measurements, and gaps that are repaired or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.system_counter import SystemCounter
from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.aeron.counters import CounterType, snapshot
from mainstem.sim.checkers import StreamChecker, Violation
from mainstem.sim.faults import Faults
from mainstem.sim.scenarios.streams import (
    MAX_LENGTH,
    MAX_LOSS,
    STREAM,
    connect,
    deliver,
    drawn_length,
    end,
    endpoint,
    readers,
    until,
)

if TYPE_CHECKING:
    from mainstem._core.log.fragment import Fragment
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

NUMBERED = 400  # messages in an unreliable stream
NUMBER = 4  # bytes of the number in a message
ROUND_TRIP_NS = 250 * NS_PER_MS
GAP_LOSS = 0.05
GAP_MESSAGES = 1_000  # one datagram each: about fifty gaps, which would take twelve seconds to repair one after another
GAP_MESSAGE_LENGTH = 1_300
GAP_WINDOW = 512 * 1024
# The longest silence: a retransmission is lost repeatedly, each time with a probability of one in ten, and requested again.
LONGEST_STALL_NS = 10 * ROUND_TRIP_NS
# For the whole stream: three windows, and the repair of the last one.
LONGEST_NS = 6 * NS_PER_SECOND


def shown(host: Host, name: str) -> list[int]:
    """Return the values of a driver's counters whose labels start with ``name``."""
    reader = host.aeron.counters
    return [
        each.value for each in snapshot(reader) if each.type_id == CounterType.PER_IMAGE and each.label.startswith(name)
    ]


def cubic(world: World) -> str:
    """Congestion control with measured round trips: everything arrives, and the window stays within its limits."""
    rng = world.rng
    sender = world.add_host("sender", cubiccongestioncontrol_measurertt=True)
    receiver = world.add_host(
        "receiver", cubiccongestioncontrol_measurertt=True, cubiccongestioncontrol_tcpmode=rng.random() < 0.5
    )
    world.wire.window_length = None  # congestion control changes it
    channel = endpoint(receiver)
    subscription = receiver.aeron.add_subscription(f"{channel}|cc=cubic", STREAM)
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k", STREAM)
    connect(world, publication, [subscription])
    delay_ns = rng.randrange(NS_PER_MS, 20 * NS_PER_MS)
    # Acknowledgments can be lost too. Loss is lower toward the receiver, because each loss reduces the window by a fifth.
    world.network.faults = Faults(loss=rng.uniform(0, MAX_LOSS / 3), delay_ns=delay_ns)
    windows: set[int] = set()

    def sample() -> None:
        if rng.random() < 0.05:
            windows.update(shown(receiver, "rcv-cc-cubic-wnd"))

    deliver(world, publication, readers(world, [subscription]), on_step=sample)
    windows.update(shown(receiver, "rcv-cc-cubic-wnd"))
    world.run_for(NS_PER_SECOND)
    (round_trip_ns,) = shown(receiver, "rcv-cc-cubic-rtt")
    if not 2 * delay_ns <= round_trip_ns <= 2 * delay_ns + 10 * NS_PER_MS:
        raise Violation(f"measured a round trip of {round_trip_ns} ns, expected {2 * delay_ns} ns")
    if not all(1408 <= window <= 1 << 15 for window in windows):
        raise Violation(f"windows {sorted(windows)} are not all from 1408 to {1 << 15} bytes")
    facts = f"round trip {round_trip_ns / NS_PER_MS:.1f} ms, windows {min(windows)} to {max(windows)}, "
    return facts + end(world, publication, [subscription])


def latency(world: World) -> str:
    """A sender measures the latency to its receivers with bursts that need no response. Latency and drift are correct."""
    rng = world.rng
    interval_ns = rng.randrange(20, 200) * NS_PER_MS
    sender, receiver = (
        world.add_host(name, one_way_latency_interval_ns=interval_ns) for name in ("sender", "receiver")
    )
    channel = endpoint(receiver)
    subscription = receiver.aeron.add_subscription(channel, STREAM)
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k", STREAM)
    connect(world, publication, [subscription])
    there = Faults(loss=rng.uniform(0, MAX_LOSS), delay_ns=rng.randrange(NS_PER_MS, 20 * NS_PER_MS))
    back = Faults(loss=rng.uniform(0, MAX_LOSS), delay_ns=rng.randrange(NS_PER_MS, 20 * NS_PER_MS))
    world.network.link(sender.address, receiver.address, there)
    world.network.link(receiver.address, sender.address, back)
    # Only the newest measurements count, so measurements from the good network are forgotten.
    deliver(world, publication, readers(world, [subscription]))
    world.run_for(100 * interval_ns)
    (measured_ns,) = shown(receiver, "rcv-one-way-latency")
    (drift,) = shown(receiver, "rcv-clock-drift")
    # One tick passes between the arrival of a datagram and the receiver's poll.
    if not there.delay_ns <= measured_ns <= there.delay_ns + 2 * NS_PER_MS:
        raise Violation(f"measured a latency of {measured_ns} ns, expected {there.delay_ns} ns")
    if abs(drift) > 2_000_000:
        raise Violation(f"measured a clock drift of {drift} ppb between clocks that agree")
    return f"latency {measured_ns / NS_PER_MS:.2f} ms, drift {drift}, " + end(world, publication, [subscription])


def unreliable(world: World) -> str:
    """Gaps are not repaired: messages that arrive are in order and complete, and loss costs messages, not time."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    channel = endpoint(receiver)
    subscription = receiver.aeron.add_subscription(f"{channel}|reliable=false", STREAM)
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k", STREAM)
    connect(world, publication, [subscription])
    loss = world.rng.choice((0.0, world.rng.uniform(0, MAX_LOSS)))
    world.network.faults = Faults(loss=loss, duplication=0.05, delay_ns=NS_PER_MS)
    offered: list[bytes] = []
    got: list[int] = []

    def on_message(fragment: Fragment) -> None:
        message = bytes(fragment)
        number = int.from_bytes(message[:NUMBER], "big")
        if message != offered[number]:
            raise Violation(f"message {number} arrived with other bytes than were offered")
        if got and number <= got[-1]:
            raise Violation(f"message {number} arrived after {got[-1]}")
        got.append(number)

    def step() -> bool:
        if len(offered) < NUMBERED:
            length = min(drawn_length(world.rng), MAX_LENGTH - NUMBER)
            message = len(offered).to_bytes(NUMBER, "big") + world.rng.randbytes(length)
            if publication.offer(message) > 0:
                offered.append(message)
        subscription.poll_messages(on_message, 10)
        (image,) = subscription.images or (None,)
        return image is not None and len(offered) == NUMBERED and image.position >= publication.position

    until(world, step, "the image to reach the end of the stream")
    naks = receiver.aeron.counters.value(SystemCounter.NAKS_SENT)
    if naks or (not loss and len(got) != NUMBERED) or len(got) < NUMBERED // 8:
        raise Violation(
            f"{len(got)} of {NUMBERED} messages arrived at {loss:.0%} loss, and {naks} NAKs were sent, expected 0"
        )
    return f"{len(got)} of {NUMBERED} at {loss:.1%} loss, " + end(world, publication, [subscription])


def gaps(world: World) -> str:
    """Many gaps at a round trip of 250 ms are repaired in parallel, so the stream does not stall for each in turn."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    channel = endpoint(receiver)
    # By default a receiver requests a gap again every 100 µs, thousands of times per round trip. A channel can set a longer
    # delay.
    nak_delay = world.rng.choice(("", "|nak-delay=100us", "|nak-delay=200us", "|nak-delay=400us"))
    window = f"rcv-wnd={GAP_WINDOW}|so-rcvbuf={2 * GAP_WINDOW}"
    subscription = receiver.aeron.add_subscription(f"{channel}|{window}{nak_delay}", STREAM)
    publication = sender.aeron.add_exclusive_publication(f"{channel}|term-length=2m", STREAM)
    world.wire.window_length = GAP_WINDOW
    connect(world, publication, [subscription])
    world.network.faults = Faults(loss=GAP_LOSS, delay_ns=ROUND_TRIP_NS // 2)
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
        while sent < GAP_MESSAGES:
            message = sent.to_bytes(4, "big") * (GAP_MESSAGE_LENGTH // 4)
            if publication.offer(message) < 0:
                break
            sent += 1
            checker.offered(message)
        subscription.poll_messages(on_message, 100)
        return sent == GAP_MESSAGES and not checker.outstanding

    world.run_until(step, what="every message to arrive", within_ns=60 * NS_PER_SECOND)
    took_ns = world.now_ns - begun_ns
    if longest_ns > LONGEST_STALL_NS or took_ns > LONGEST_NS:
        raise Violation(
            f"delivery took {took_ns // NS_PER_MS} ms (limit {LONGEST_NS // NS_PER_MS}) and stalled for "
            f"{longest_ns // NS_PER_MS} ms (limit {LONGEST_STALL_NS // NS_PER_MS})"
        )
    return f"{took_ns // NS_PER_MS} ms, longest stall {longest_ns // NS_PER_MS} ms, {world.network.lost} datagrams lost"
