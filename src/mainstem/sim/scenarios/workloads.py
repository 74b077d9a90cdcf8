"""The workloads of a storm. Streams outlive their applications: whole images can be lost, but never a message inside one.

Each message contains its stream's number, the incarnation of its publication and its number there, and the remaining bytes follow
from these. So a reader detects a message that is invented, lost, duplicated, out of order or altered, without a list of those in
flight.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from mainstem.duologue.channels import ClientChannels, ServerChannels
from mainstem.duologue.crypto import ServerKey
from mainstem.duologue.settings import Settings
from mainstem.errors import ClosedError, CorruptLogError, RegistrationError, RemoteProtocolError, Timeout
from mainstem.recording.recorder import Recorder
from mainstem.recording.rows.batches import messages
from mainstem.sim.checkers import CHECKED, Violation
from mainstem.sim.disk import Device, FaultyDisk, temporary_directory
from mainstem.sim.scenarios.aqueduct import AqueductRun
from mainstem.sim.scenarios.bymux import BymuxRun
from mainstem.sim.scenarios.duologue import EchoClient, EchoServer
from mainstem.sim.scenarios.jmux import JmuxRun
from mainstem.sim.scenarios.recordings import open_readers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem._core.log.fragment import Fragment
    from mainstem.aeron.client.publication import ExclusivePublication, Publication
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

# -- workloads ---------------------------------------------------------------------------------------------------------


# Errors that an application sees if its client or driver is gone, or if its driver has no room for a log.
GONE = (ClosedError, Timeout, RegistrationError, CorruptLogError)


def runs(host: Host) -> bool:
    return host.is_up and not host.is_paused and not host.is_client_paused and not host.aeron.closed


class Workload:
    """A stream or an application that runs through a storm and constantly checks itself."""

    def step(self, *, offers: bool, pause_probability: dict[str, float]) -> None:
        """Run one duty cycle of every part of the workload whose host is running.

        ``offers`` says whether it may send new messages. ``pause_probability`` is the probability, by host, that a reader pauses.
        """
        raise NotImplementedError

    def heal(self) -> None: ...

    def restart(self) -> None: ...

    @property
    def is_connected(self) -> bool:
        raise NotImplementedError

    def aim(self, count: int) -> None: ...

    @property
    def has_offered(self) -> bool:
        return True

    @property
    def is_read(self) -> bool:
        raise NotImplementedError

    def finish(self) -> None: ...

    def close(self) -> None: ...


# -- streams -----------------------------------------------------------------------------------------------------------

_HEADER = Struct("<HIII")  # stream, incarnation, number in the incarnation, length of the filling
_FILLING = Random(1).randbytes(1 << 16)
MAX_FILLING = 4_000


def message(stream: int, incarnation: int, number: int) -> bytes:
    start = (stream * 7_919 + incarnation * 104_729 + number * 1_299_709) % (len(_FILLING) - MAX_FILLING)
    length = (number * 2_654_435_761 % MAX_FILLING) * (number % 3) // 2  # empty for a third of the messages
    return _HEADER.pack(stream, incarnation, number, length) + _FILLING[start : start + length]


class Reader:
    """One subscription to a stream, added again whenever its client is replaced."""

    def __init__(self, stream: StreamWorkload, host: Host, channel: str) -> None:
        self.stream = stream
        self.host = host
        self.channel = channel
        self.newest = (-1, -1)  # incarnation and number of the last message
        self.subscription: Subscription | None = None
        self._images: dict[int, tuple[int, int, int]] = {}
        self._starts = -1

    def poll(self) -> None:
        if self.subscription is None or self._starts != self.host.starts or self.subscription.closed:
            self.subscription = None
            self._starts = self.host.starts
            self._images = {}
            self.subscription = self.host.aeron.add_subscription(self.channel, self.stream.stream_id)
        for image in self.subscription.images:
            image.poll_messages(partial(self._on_message, image.correlation_id), 10)

    def leave(self) -> None:
        """Close the subscription, so that it does not stall the stream."""
        if self.subscription is not None and not self.subscription.closed:
            with suppress(*GONE):
                self.subscription.close()
        self.subscription = None

    def _on_message(self, key: int, fragment: Fragment) -> None:
        if self.stream.world.network.has_damaged:
            # Only UDP's checksum protects the content, and the network delivered damaged datagrams despite it.
            return
        payload, position = bytes(fragment), fragment.header.position
        name = f"stream {self.stream.number} at {self.host.name}"
        incarnation, number = self.stream.checked(payload, name)
        before = self._images.get(key)
        if before is not None and not self.stream.follows(before[:2], (incarnation, number)):
            raise Violation(
                f"{name}: message {number} of incarnation {incarnation} follows {before[1]} of {before[0]} in one image"
            )
        if before is not None and position <= before[2]:
            raise Violation(f"{name}: position {position} does not follow {before[2]} in one image")
        self._images[key] = (incarnation, number, position)
        self.newest = (incarnation, number)
        CHECKED.count(payload)


class StreamWorkload(Workload):
    """One stream: a publication, added again whenever it has ended, and its readers."""

    def __init__(self, number: int, world: World, host: Host, channel: str, *, is_exclusive: bool) -> None:
        self.number = number
        self.stream_id = 1_001 + number
        self.host = host
        self.world = world
        self.channel = channel
        self.readers: list[Reader] = []
        self.offered: dict[int, int] = {}
        self.incarnation = -1
        self.publication: Publication | ExclusivePublication | None = None
        self._goal = 0
        self._is_exclusive = is_exclusive
        self._starts = -1

    def read_by(self, host: Host, channel: str) -> None:
        self.readers.append(Reader(self, host, channel))

    def step(self, *, offers: bool, pause_probability: dict[str, float]) -> None:
        for reader in self.readers:
            if runs(reader.host) and self.world.rng.random() >= pause_probability.get(reader.host.name, 0.0):
                try:
                    reader.poll()
                except GONE:
                    reader.leave()
        if offers and runs(self.host):
            try:
                self._offer()
            except GONE:
                self.publication = None

    def _offer(self) -> None:
        if self.publication is None or self._starts != self.host.starts or self.publication.closed:
            self.publication = None
            self._starts = self.host.starts
            aeron = self.host.aeron
            add = aeron.add_exclusive_publication if self._is_exclusive else aeron.add_publication
            self.publication = add(self.channel, self.stream_id)
            self.incarnation += 1
            self.offered[self.incarnation] = 0
        number = self.offered[self.incarnation]
        # Count the message before offering it, because a reader in the same memory may receive it at once.
        self.offered[self.incarnation] = number + 1
        if self.publication.offer(message(self.number, self.incarnation, number)) < 0:
            self.offered[self.incarnation] = number

    def checked(self, payload: bytes, name: str) -> tuple[int, int]:
        """Return the incarnation and number of a message. Raises Violation if it is not from this stream."""
        stream, incarnation, number, _ = _HEADER.unpack_from(payload)
        if stream != self.number or number >= self.offered.get(incarnation, 0):
            raise Violation(
                f"{name}: message {number} of incarnation {incarnation} of stream {stream} was never offered"
            )
        if payload != message(stream, incarnation, number):
            raise Violation(f"{name}: message {number} of incarnation {incarnation} has other bytes than were offered")
        return incarnation, number

    def follows(self, before: tuple[int, int], after: tuple[int, int]) -> bool:
        """Whether one message directly follows another in a log.

        A shared publication outlives the client that added it. Its successor continues after the last message.
        """
        if before[0] == after[0]:
            return before[1] + 1 == after[1]
        between = range(before[0] + 1, after[0])
        return (
            before[0] < after[0]
            and after[1] == 0
            and before[1] + 1 == self.offered[before[0]]
            and not any(self.offered[each] for each in between)
        )

    def restart(self) -> None:
        for end in (self.publication, *(reader.subscription for reader in self.readers)):
            if end is not None and not end.closed:
                end.close()

    @property
    def is_connected(self) -> bool:
        publication = self.publication
        return (
            publication is not None
            and not publication.closed
            and publication.is_connected
            and all(
                reader.subscription is not None
                and any(image.session_id == publication.session_id for image in reader.subscription.images)
                for reader in self.readers
            )
        )

    def aim(self, count: int) -> None:
        self._goal = self.offered[self.incarnation] + count

    @property
    def has_offered(self) -> bool:
        return self.offered.get(self.incarnation, 0) >= self._goal

    @property
    def is_read(self) -> bool:
        last = (self.incarnation, self.offered.get(self.incarnation, 0) - 1)
        return all(reader.newest == last for reader in self.readers)


# -- connections of bymux, Jmux and Aqueduct ---------------------------------------------------------------------------


KINDS: tuple[type[Run], ...] = (BymuxRun, JmuxRun, AqueductRun)


class Run(Protocol):
    """A connection and the applications at its two ends, with their invariants."""

    def __init__(self, world: World, *, is_killed_later: bool) -> None: ...

    def procedure(self) -> Iterator[object]: ...

    def kill(self, number: int) -> None: ...


class ConnectionsWorkload(Workload):
    """Connections between two hosts, each of a drawn kind. A new one replaces any that breaks."""

    def __init__(self, world: World, hosts: tuple[Host, Host]) -> None:
        self.world = world
        self.hosts = hosts
        self._run: Run | None = None
        self._procedure: Iterator[object] = iter(())
        self._starts: tuple[int, ...] = ()
        self._is_whole = True  # whether both hosts have been running since it began
        self._left = 0  # connections that must still end regularly after the storm

    def step(self, *, offers: bool, pause_probability: dict[str, float]) -> None:  # noqa: ARG002 - its applications pace themselves
        if self._run is None:
            if not all(map(runs, self.hosts)):
                return
            self._run = self.world.rng.choice(KINDS)(self.world, is_killed_later=True)
            self._procedure = self._run.procedure()
            self._starts = tuple(host.starts for host in self.hosts)
            self._is_whole = True
        for number, host in enumerate(self.hosts):
            if self._is_whole and (not runs(host) or host.starts != self._starts[number]):
                self._run.kill(number)
                self._is_whole = False
        try:
            next(self._procedure)
        except StopIteration:
            self._left -= self._is_whole
            self._run = None

    @property
    def is_connected(self) -> bool:
        return self._run is not None and self._is_whole

    def aim(self, count: int) -> None:  # noqa: ARG002 - each connection has a drawn number of messages
        self._left = 2

    @property
    def is_read(self) -> bool:
        return self._left <= 0


# -- duologues ---------------------------------------------------------------------------------------------------------


MAX_CLIENTS = 100
TIMEOUT_S = 5.0


class DuologueWorkload(Workload):
    """A server on one host and clients on others, all restarted with the Aeron client of their host."""

    def __init__(self, world: World, host: Host, others: list[Host]) -> None:
        rng = world.rng
        self.world = world
        self.host = host
        self._key = ServerKey.generate(Random(rng.getrandbits(64))) if rng.random() < 0.5 else None
        # A client that restarts counts as a new one while the server is still waiting for the old one.
        settings = Settings(
            max_clients=MAX_CLIENTS, max_clients_per_address=MAX_CLIENTS, join_timeout=3.0, hello_rate=100.0
        )
        self._channels = ServerChannels(host.address, settings=settings)
        public = b"" if self._key is None else self._key.public
        self.clients = [
            EchoClient(world, other, number, ClientChannels(host.address), timeout=TIMEOUT_S, server_key=public)
            for number, other in enumerate(others)
        ]
        for client in self.clients:
            client.goal = 0
        self._starts = {other.name: -1 for other in (host, *others)}
        self._server: EchoServer | None = None

    def step(self, *, offers: bool, pause_probability: dict[str, float]) -> None:
        if runs(self.host):
            try:
                self._serve()
            except GONE:
                self._server = None
        for client in self.clients:
            if offers and client.is_done:
                client.goal += 1
            if runs(client.host) and self.world.rng.random() >= pause_probability.get(client.host.name, 0.0):
                if self._has_begun_again(client.host):
                    client.forget()
                try:
                    client.step()
                except GONE:
                    client.leave()
                except RemoteProtocolError:
                    if not self.world.network.has_damaged:
                        raise
                    client.leave()

    def _has_begun_again(self, host: Host) -> bool:
        before, self._starts[host.name] = self._starts[host.name], host.starts
        return before != host.starts

    def _serve(self) -> None:
        if self._has_begun_again(self.host):
            self._server = None
        if self._server is None:
            rng = Random(self.world.rng.getrandbits(64))
            network = self.world.network
            self._server = EchoServer(
                self.host.aeron, self._channels, rng=rng, key=self._key, may_be_damaged=lambda: network.has_damaged
            )
        self._server.do_work(self.world.now_ns)

    def restart(self) -> None:
        for client in self.clients:
            client.leave()

    @property
    def is_connected(self) -> bool:
        return all(client.core is not None and client.core.is_open for client in self.clients)

    def aim(self, count: int) -> None:
        for client in self.clients:
            client.goal = client.answered + count

    @property
    def is_read(self) -> bool:
        return all(client.is_done for client in self.clients)


# -- recorders ---------------------------------------------------------------------------------------------------------


SEGMENT_LENGTH = 64 * 1024


class RecorderWorkload(Workload):
    """A recorder on one host. It dies with its client, like a killed process, and another one replaces it.

    If the host loses power, a durable recorder has everything up to the positions that it reported.
    """

    def __init__(self, world: World, stream: StreamWorkload, host: Host, channel: str) -> None:
        self.world = world
        self.stream = stream
        self.host = host
        self.channel = channel
        self._temporary_directory = temporary_directory()
        self._directory = Path(self._temporary_directory.name)
        self._disk = FaultyDisk(Device(self._directory, world.rng))
        self._durable = world.rng.random() < 0.5
        self._promised: dict[int, int] = {}  # the position of each recording that survives a loss of power
        host.on_power_loss.append(self._lose_power)
        self._recorder: Recorder | None = None
        self._subscription: Subscription | None = None
        self._starts = -1
        self._is_checked = True  # whether its recordings must match what was offered

    def step(self, *, offers: bool, pause_probability: dict[str, float]) -> None:  # noqa: ARG002 - the stream offers
        if self._recorder is not None and (self._starts != self.host.starts or self.host.aeron.closed):
            self._killed()
        if not runs(self.host) or self.world.rng.random() < pause_probability.get(self.host.name, 0.0):
            return
        try:
            if self._recorder is None:
                self._start()
            else:
                self._recorder.do_work()
        except GONE:
            self._killed()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            if self._recorder is None:
                self._disk.kill()

    def _start(self) -> None:
        # A recorder that finds the disk full must not have a subscription, which would stall the stream.
        recorder = Recorder(
            self._directory,
            segment_length=SEGMENT_LENGTH,
            durable=self._durable,
            clock=self.host.clock,
            disk=self._disk,
        )
        self._check_promises()
        self._subscription = self.host.aeron.add_subscription(self.channel, self.stream.stream_id)
        recorder.add_subscription(self._subscription)
        self._recorder = recorder
        self._starts = self.host.starts

    def _killed(self) -> None:
        self._end()
        self.check()

    def _lose_power(self) -> None:
        if self._durable and self._recorder is not None:
            self._promised = self._recorder.active
        self._end()
        self._disk.lose_power()

    def _end(self) -> None:
        self._recorder = None
        self._disk.kill()
        if self._subscription is not None and not self._subscription.closed:
            with suppress(*GONE):
                self._subscription.close()
        self._subscription = None

    def heal(self) -> None:
        self._disk.heal()

    def restart(self) -> None:
        self._is_checked = False
        self._end()

    @property
    def is_connected(self) -> bool:
        return self._subscription is not None and self._subscription.is_connected

    @property
    def is_read(self) -> bool:
        publication = self.stream.publication
        recorder = self._recorder
        return publication is not None and recorder is not None and publication.position in recorder.active.values()

    def finish(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None
            self.check()

    def close(self) -> None:
        self._disk.kill()
        self._temporary_directory.cleanup()

    # -- invariants ----------------------------------------------------------------------------------------------------

    def _check_promises(self) -> None:
        ends = {}
        for reader in open_readers(self._directory):
            with reader:
                ends[reader.descriptor.recording_id] = reader.end_position()
        for recording_id, position in self._promised.items():
            if ends.get(recording_id, -1) < position:
                raise Violation(
                    f"recording {recording_id} of {self.host.name} was durable up to {position}, but ends at "
                    f"{ends.get(recording_id)} after a loss of power"
                )
        self._promised = {}

    def check(self) -> None:
        if not self._is_checked or self.world.network.has_damaged:
            return
        for reader in open_readers(self._directory):
            with reader:
                recording_id, before = reader.descriptor.recording_id, None
                for _, payload in messages(reader, reader.start_position, reader.end_position()):
                    which = self.stream.checked(payload, f"recording {recording_id} of {self.host.name}")
                    if before is not None and not self.stream.follows(before, which):
                        raise Violation(f"recording {recording_id}: message {which} follows {before}")
                    before = which
                    CHECKED.count(payload)
