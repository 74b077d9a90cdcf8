"""Windows and tethers: congestion control, subscribers that fall behind, gaps that are not repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.aeron.counters import CounterType, snapshot
from mainstem.aeron.system_counter import SystemCounter
from mainstem.sim.checkers import MonotoneChecker, Violation
from mainstem.sim.faults import Faults
from mainstem.sim.scenarios.fan_out import MAX_LOSS, MESSAGES, PATIENCE_NS, connect, deliver, end, readers, spoil
from mainstem.sim.scenarios.unicast import MAX_LENGTH, drawn_length

if TYPE_CHECKING:
    from mainstem._core.log.fragment import Fragment
    from mainstem.aeron.client.subscription import Image
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

STREAM = 1001
NUMBERED = 400  # messages of an unreliable stream
NUMBER = 4  # bytes that count them


def shown(host: Host, name: str) -> list[int]:
    """Return the values of a driver's counters whose label starts with ``name``."""
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
    world.wire.window_length = None  # congestion control moves it
    channel = f"aeron:udp?endpoint={receiver.address}:20121"
    subscription = receiver.aeron.add_subscription(f"{channel}|cc=cubic", STREAM)
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k", STREAM)
    connect(world, publication, [subscription])
    delay_ns = rng.randrange(NS_PER_MS, 20 * NS_PER_MS)
    # The acknowledgements may be lost too; the way there loses less, for each loss costs a fifth of the window.
    world.network.faults = Faults(loss=rng.uniform(0, MAX_LOSS / 3), delay_ns=delay_ns)
    windows: set[int] = set()

    def look() -> None:
        if rng.random() < 0.05:
            windows.update(shown(receiver, "rcv-cc-cubic-wnd"))

    deliver(world, publication, readers(world, [subscription]), bystander=look)
    windows.update(shown(receiver, "rcv-cc-cubic-wnd"))
    world.run_for(NS_PER_SECOND)
    (round_trip_ns,) = shown(receiver, "rcv-cc-cubic-rtt")
    if not 2 * delay_ns <= round_trip_ns <= 2 * delay_ns + 10 * NS_PER_MS:
        raise Violation(f"a round trip of {2 * delay_ns} ns was measured as {round_trip_ns} ns")
    if not all(1408 <= window <= 1 << 15 for window in windows):
        raise Violation(f"the window left its bounds: {sorted(windows)}")
    facts = f"round trip {round_trip_ns / NS_PER_MS:.1f} ms, windows {min(windows)} to {max(windows)}, "
    return facts + end(world, publication, [subscription])


def latency(world: World) -> str:
    """A sender measures the latency to its receivers with bursts that need no response. Latency and drift are correct."""
    rng = world.rng
    interval_ns = rng.randrange(20, 200) * NS_PER_MS
    sender, receiver = (
        world.add_host(name, one_way_latency_interval_ns=interval_ns) for name in ("sender", "receiver")
    )
    channel = f"aeron:udp?endpoint={receiver.address}:20121"
    subscription = receiver.aeron.add_subscription(channel, STREAM)
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k", STREAM)
    connect(world, publication, [subscription])
    there = Faults(loss=rng.uniform(0, MAX_LOSS), delay_ns=rng.randrange(NS_PER_MS, 20 * NS_PER_MS))
    back = Faults(loss=rng.uniform(0, MAX_LOSS), delay_ns=rng.randrange(NS_PER_MS, 20 * NS_PER_MS))
    world.network.link(sender.address, receiver.address, there)
    world.network.link(receiver.address, sender.address, back)
    # Only the newest measurements count, so that those of the good network are forgotten.
    deliver(world, publication, readers(world, [subscription]))
    world.run_for(100 * interval_ns)
    (measured_ns,) = shown(receiver, "rcv-one-way-latency")
    (drift,) = shown(receiver, "rcv-clock-drift")
    # A tick of the simulator lies between a datagram and the receiver's poll of it.
    if not there.delay_ns <= measured_ns <= there.delay_ns + 2 * NS_PER_MS:
        raise Violation(f"a latency of {there.delay_ns} ns was measured as {measured_ns} ns")
    if abs(drift) > 2_000_000:
        raise Violation(f"clocks that agree were said to drift by {drift} parts in a thousand million")
    return f"latency {measured_ns / NS_PER_MS:.2f} ms, drift {drift}, " + end(world, publication, [subscription])


def untethered(world: World) -> str:
    """An untethered subscriber goes to RESTING while it sleeps and comes back. The tethered one misses nothing."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    endpoint = f"aeron:udp?endpoint={receiver.address}:20121"
    rejoin = world.rng.random() < 0.7
    channel = f"{endpoint}|rejoin={'true' if rejoin else 'false'}"  # one stream has one opinion of this
    timeouts = "untethered-window-limit-timeout=1s|untethered-linger-timeout=500ms|untethered-resting-timeout=1s"
    tied = receiver.aeron.add_subscription(channel, STREAM)
    loose = receiver.aeron.add_subscription(f"{channel}|tether=false|{timeouts}", STREAM)
    publication = sender.aeron.add_publication(f"{endpoint}|term-length=64k", STREAM)
    connect(world, publication, [tied, loose])
    spoil(world)
    seen: list[Image] = []
    position = MonotoneChecker("the untethered subscription's position")

    def on_message(fragment: Fragment) -> None:
        position.observe(fragment.header.position)

    is_cut_off = False

    def doze() -> None:
        nonlocal position, is_cut_off
        is_cut_off = is_cut_off or not loose.images
        if loose.images and loose.images[0] not in seen:
            seen.append(loose.images[0])
            position = MonotoneChecker(f"the position of the untethered subscription's image {len(seen)}")

    def look() -> None:
        doze()
        loose.poll_messages(on_message, 10)

    keen = readers(world, [tied])
    deliver(world, publication, keen, bystander=look)
    # A subscriber that stops is removed once it is far enough behind and its time is up, and does not delay the stream afterwards.
    is_cut_off = False
    deliver(world, publication, keen, messages=MESSAGES, bystander=doze)
    world.run_until(
        lambda: is_cut_off or not loose.images, what="the end of the sleeper's image", within_ns=20 * NS_PER_SECOND
    )
    deliver(world, publication, keen, bystander=doze)
    if rejoin:
        world.run_until(lambda: bool(loose.images), what="the sleeper's return", within_ns=20 * NS_PER_SECOND)
        deliver(world, publication, keen, bystander=look)
    elif loose.images:
        raise Violation("a subscription that does not rejoin was let in again")
    return f"{len(seen)} times in, " + end(world, publication, [tied, loose])


def unreliable(world: World) -> str:
    """Gaps are not repaired: what arrives is in order and complete, and loss costs messages, not time."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    channel = f"aeron:udp?endpoint={receiver.address}:20121"
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
            raise Violation(f"message {number} arrived with other bytes")
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

    world.run_until(step, what="the end of what was offered", within_ns=PATIENCE_NS)
    naks = receiver.aeron.counters.value(SystemCounter.NAKS_SENT)
    if naks or (not loss and len(got) != NUMBERED) or len(got) < NUMBERED // 8:
        raise Violation(f"{len(got)} of {NUMBERED} arrived, {naks} NAKs were sent, at {loss:.0%} loss")
    return f"{len(got)} of {NUMBERED} at {loss:.1%} loss, " + end(world, publication, [subscription])
