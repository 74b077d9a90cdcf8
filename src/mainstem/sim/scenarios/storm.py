"""Everything at once: streams of every kind between several hosts, under link and host faults drawn from the seed."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from mainstem._core import layout
from mainstem._core.log.append import BufferClaim
from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.duologue.settings import reserved_sessions
from mainstem.sim.checkers import CHECKED
from mainstem.sim.fault_injector import FaultInjector
from mainstem.sim.scenarios.workloads import ConnectionsWorkload, DuologueWorkload, RecorderWorkload, StreamWorkload
from mainstem.sim.world import QUIET_TICK_NS

if TYPE_CHECKING:
    from random import Random

    from mainstem.aeron.client.publication import ExclusivePublication, Publication
    from mainstem.sim.host import Host
    from mainstem.sim.scenarios.workloads import Workload
    from mainstem.sim.world import World

HOSTS = 3
LENGTH_NS = 10 * NS_PER_SECOND  # duration of the faults in a long run
LIVENESS_NS = 3 * NS_PER_SECOND
TIMEOUTS: dict[str, Any] = {
    "driver_timeout_ns": LIVENESS_NS,
    "client_liveness_timeout_ns": LIVENESS_NS,
    "publication_unblock_timeout_ns": 2 * LIVENESS_NS,
    "image_liveness_timeout_ns": LIVENESS_NS,
    "publication_connection_timeout_ns": LIVENESS_NS,
    "publication_linger_timeout_ns": NS_PER_SECOND,
    **reserved_sessions(),
    "driver_stream_session_limit": 1_000,
}
# Time after the faults until every silent peer has timed out and every unfinished message has been unblocked.
SETTLE_NS = 6 * LIVENESS_NS
TIMEOUT_NS = 120 * NS_PER_SECOND
LAST_MESSAGES = 20  # per stream; all of them must arrive
BUSY_TICK_NS = 10 * NS_PER_MS  # the longest step during faults
OFFER_SHARE = 0.2  # the share of steps that offer messages


def storm(world: World) -> str:
    """Unicast, multicast, MDC, IPC and spies: each stream is read once and in order, whatever ends and restarts."""
    rng = world.rng
    world.tick_ns, world.grain_ns = rng.choice((500_000, NS_PER_MS, 2 * NS_PER_MS)), 200_000
    hosts = [world.add_host(f"host{number}", client_timeout_ns=LIVENESS_NS, **TIMEOUTS) for number in range(HOSTS)]
    streams = _streams(world, hosts)
    workloads = [*streams, *_programs(world, hosts, streams)]
    injector = FaultInjector(
        world,
        length_ns=max(NS_PER_SECOND, int(LENGTH_NS * world.size)),
        before_client_dies=lambda host: _leave_halves(world, streams, host),
    )
    with ExitStack() as stack:
        for each in workloads:
            stack.callback(each.close)
        _run_through_faults(world, injector, workloads)
    faults = "; ".join(map(str, injector.schedule.faults))
    return f"{CHECKED.messages} messages of {len(streams)} streams, {world.ticks} ticks; {faults}"


def _run_through_faults(world: World, injector: FaultInjector, workloads: list[Workload]) -> None:
    """Run until the faults end, then check that everything recovers."""
    rng = world.rng

    def step(*, offers: bool) -> None:
        pause_probability = {injector.hosts[host].name: share for host, share in injector.pause_probability.items()}
        for each in workloads:
            each.step(offers=offers and rng.random() < OFFER_SHARE, pause_probability=pause_probability)

    def under_faults() -> bool:
        injector.step()
        step(offers=True)
        return world.now_ns >= over_ns

    # Applications continue even if the network is quiet.
    world.idle_ns = BUSY_TICK_NS
    over_ns = world.now_ns + max(NS_PER_SECOND, int(LENGTH_NS * world.size))
    world.run_until(under_faults, what="the faults to end")
    injector.heal()
    for each in workloads:
        each.heal()
    world.idle_ns = QUIET_TICK_NS

    def settled() -> bool:
        injector.step()
        step(offers=False)
        return world.now_ns >= settled_ns and injector.is_whole

    settled_ns = world.now_ns + SETTLE_NS
    world.run_until(settled, what="every host to run again", within_ns=TIMEOUT_NS)
    if world.network.has_damaged:
        # A damaged frame stays in the log that it was written to. Those streams have no guarantees, but all new ones do.
        for each in workloads:
            each.restart()
        gone_ns = world.now_ns + SETTLE_NS
        while world.now_ns < gone_ns:
            world.step()
        world.network.has_damaged = False

    def connected() -> bool:
        injector.step()
        for each in workloads:
            each.step(offers=not each.is_connected, pause_probability={})
        return all(each.is_connected for each in workloads)

    world.run_until(connected, what="every stream to connect after the faults", within_ns=TIMEOUT_NS)
    for each in workloads:
        each.aim(LAST_MESSAGES)

    def all_read() -> bool:
        for each in workloads:
            each.step(offers=not each.has_offered, pause_probability={})
        return all(each.has_offered and each.is_read for each in workloads)

    world.run_until(all_read, what="the messages offered after the faults to arrive", within_ns=TIMEOUT_NS)
    for each in workloads:
        each.finish()


def _streams(world: World, hosts: list[Host]) -> list[StreamWorkload]:
    rng = world.rng
    streams = []
    for number in range(rng.randrange(2, 6)):
        source, other, third = rng.sample(hosts, 3)
        is_exclusive = rng.random() < 0.5
        port = 20_121 + number
        kind = rng.choice(("ipc", "unicast", "multicast", "mdc", "spy"))
        unicast = f"aeron:udp?endpoint={other.address}:{port}"
        if kind == "ipc":
            channel, readers = "aeron:ipc?", [(source, "aeron:ipc"), (source, "aeron:ipc")]
        elif kind == "multicast":
            group = f"aeron:udp?endpoint=224.20.30.{2 * number + 1}:{port}"
            channel, readers = f"{group}|fc=min|", [(other, group), (third, group)]
        elif kind == "mdc":
            control = f"control={source.address}:{port}|control-mode=dynamic"
            channel = f"aeron:udp?{control}|fc=min|"
            readers = [(host, f"aeron:udp?endpoint={host.address}:{port}|{control}") for host in (other, third)]
        else:
            channel, readers = f"{unicast}|", [(other, unicast)]
            if kind == "spy":
                readers.append((source, f"aeron-spy:{unicast}"))
        stream = StreamWorkload(number, world, source, f"{channel}term-length=64k", is_exclusive=is_exclusive)
        for host, reader_channel in readers:
            stream.read_by(host, reader_channel)
        streams.append(stream)
    return streams


def _programs(world: World, hosts: list[Host], streams: list[StreamWorkload]) -> list[Workload]:
    """Create a random selection of a recorder, a duologue server with clients, and multiplexer connections."""
    rng = world.rng
    programs: list[Workload] = []
    if rng.random() < 0.5:
        stream = rng.choice(streams)
        reader = rng.choice(stream.readers)
        programs.append(RecorderWorkload(world, stream, reader.host, reader.channel))
    if rng.random() < 0.5:
        server, *others = rng.sample(hosts, HOSTS)
        programs.append(DuologueWorkload(world, server, others))
    if rng.random() < 0.5:
        one, other, _ = rng.sample(hosts, HOSTS)
        programs.append(ConnectionsWorkload(world, (one, other)))
    return programs


def _leave_halves(world: World, streams: list[StreamWorkload], host: Host) -> None:
    """With some probability, let a client die in the middle of a write."""
    for stream in streams:
        if stream.host is host and stream.publication is not None and world.rng.random() < 0.5:
            step = leave_half(stream.publication, world.rng)
            if step:
                world.network.counts[f"half write ({step})"] += 1


# -- a publisher that dies between two stores to shared memory ---------------------------------------------------------


MAX_LENGTH = 1_000  # bytes in the message that is never finished
LENGTH_BYTES = 4  # bytes of a frame's length field, which comes first
# The last step of the appender: moving the tail, storing the negative length, storing the header, or copying part of the payload.
STEPS = ("tail", "length", "header", "payload")


def leave_half(publication: Publication | ExclusivePublication, rng: Random) -> str:
    """Claim space for ``publication``'s next message, and stop before the commit at a step drawn from ``rng``.

    Returns the last of the ``STEPS`` taken; empty if there was no space.
    """
    claim = BufferClaim()
    length = rng.randrange(1, MAX_LENGTH)
    if publication.closed or publication.try_claim(length, claim) < 0:
        return ""
    step = rng.choice(STEPS)
    log, term_length = publication._log, publication.term_length
    assert log is not None, "an open publication has its log"
    framed = (length + layout.DATA_HEADER_LENGTH + layout.FRAME_ALIGNMENT - 1) & -layout.FRAME_ALIGNMENT
    # The claim has taken every step except the payload's. Undo the steps after the drawn one.
    frame = (claim.position - framed) % (layout.PARTITION_COUNT * term_length)
    if step == "payload":
        log.put_bytes(frame + layout.DATA_HEADER_LENGTH, rng.randbytes(length // 2))
    elif step == "length":
        log.put_bytes(frame + LENGTH_BYTES, bytes(layout.DATA_HEADER_LENGTH - LENGTH_BYTES))
    elif step == "tail":
        log.put_bytes(frame, bytes(layout.DATA_HEADER_LENGTH))
    return step
