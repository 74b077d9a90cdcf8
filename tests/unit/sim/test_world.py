"""How a world advances time: in short steps while something happens, otherwise to the next due event."""

from __future__ import annotations

import itertools

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.sim.world import World

HEARTBEAT_NS = 100 * NS_PER_MS
TOLERANCE_NS = 1 * NS_PER_MS


def quiet_stream(world: World):
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    channel = f"aeron:udp?endpoint={receiver.address}:20121"
    subscription = receiver.aeron.add_subscription(channel, 1001)
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k", 1001)
    world.run_until(lambda: publication.is_connected and subscription.is_connected, what="the connection")
    world.run_for(NS_PER_SECOND)
    return publication, subscription


def test_a_quiet_second_takes_few_steps_and_keeps_heartbeats_on_time() -> None:
    with World(1) as world:
        quiet_stream(world)
        sent: list[int] = []
        world.network._instrument.frame_out = lambda to, frame, now_ns: (
            sent.append(now_ns) if len(frame) == 32 else None
        )
        ticks = world.ticks
        world.run_for(10 * NS_PER_SECOND)
        assert world.ticks - ticks < 1_000
        assert len(sent) in (99, 100, 101)
        intervals = [after - before for before, after in itertools.pairwise(sent)]
        assert all(HEARTBEAT_NS <= each <= HEARTBEAT_NS + TOLERANCE_NS for each in intervals)


def test_a_quiet_driver_reports_when_it_is_due() -> None:
    with World(1) as world:
        quiet_stream(world)
        for host in world.hosts:
            assert 0 < host.driver.next_due_ns - world.now_ns <= HEARTBEAT_NS * 2


def test_a_run_is_scaled_by_its_size_and_has_one_message_at_least() -> None:
    world = World(1)
    world.size = 0.1
    assert (world.scaled(250), world.scaled(3)) == (25, 1)


def test_each_seed_has_its_own_pace_and_size() -> None:
    worlds = [World(seed) for seed in range(1, 40)]
    assert len({(world.tick_ns, world.grain_ns) for world in worlds}) == 3
    assert len({world.size for world in worlds}) == 3
