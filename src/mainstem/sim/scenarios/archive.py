"""An archive that records and replays over a bad network, on a disk that fills up, while parts of the system are killed.

The archive, its host or its client is killed, or the host loses power. The archive, its files and the client's calls are real;
the disk is ``mainstem.sim.disk``. A client publishes a stream that the archive records, asks for the recorded position, and reads
a replay, either from the beginning or after the stream has ended. After a failure, the client starts over with another stream.
Each recording has the published messages from the first one on, once and in order. No message that the archive acknowledged is
missing, whatever is killed when. After a loss of power, that holds for a durable archive; any other has a prefix of the messages.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import NS_PER_SECOND, Deadline
from mainstem.aeron.agent import AgentTerminated
from mainstem.archive.calls import Calls, Events, ReplayOptions
from mainstem.archive.messages import RecordingSignal, SourceLocation
from mainstem.archive.server.access import AcceptAll, allow_all
from mainstem.archive.server.conductor import ArchiveConductor
from mainstem.archive.server.files import ArchiveFiles
from mainstem.archive.server.request_errors import unexpected
from mainstem.archive.server.settings import ArchiveSettings
from mainstem.archive.session import Signal
from mainstem.errors import MainstemError
from mainstem.recording.mark_file import MarkOwner
from mainstem.sim.checkers import CHECKED, Violation
from mainstem.sim.disk import Crash, Device, FaultyDisk, temporary_directory
from mainstem.sim.faults import Faults
from mainstem.sim.scenarios.recordings import check_messages, open_readers
from mainstem.sim.world import IDLE_TICK_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.client.subscription import Subscription
    from mainstem.aeron.client.waiting import Steps
    from mainstem.recording.reader import RecordingReader
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

CONTROL_PORT, STREAM_PORT, RESPONSE_PORT, REPLAY_PORT = 8010, 20_121, 20_122, 20_123
STREAM, REPLAY_STREAM = 1001, 1002
TERM_LENGTH = SEGMENT_LENGTH = 64 * 1024
MAX_LENGTH = 8_192  # the maximum message length with a term of 64 KiB
MESSAGES = 60  # per stream
STREAMS = 2  # streams that must be recorded to their ends and replayed
MAX_FAULTS = 4
MAX_LOSS = 0.1
IN_FLIGHT_NS = NS_PER_SECOND  # no datagram is on its way for longer
TIMEOUT_S = 10.0  # for each call
TIMEOUTS: dict[str, Any] = {
    "client_liveness_timeout_ns": 2 * NS_PER_SECOND,
    "image_liveness_timeout_ns": NS_PER_SECOND,
    "publication_connection_timeout_ns": NS_PER_SECOND,
    "publication_linger_timeout_ns": NS_PER_SECOND,
    "driver_timeout_ns": 2 * NS_PER_SECOND,
}
TIMEOUT_NS = 600 * NS_PER_SECOND


class ArchiveProgram:
    """An archive process with its own client. It can be killed and restarted."""

    def __init__(self, world: World, host: Host, directory: Path, disk: FaultyDisk, *, durable: bool) -> None:
        self.conductor: ArchiveConductor | None = None
        self.aeron = host.new_client("archive")
        try:
            settings = ArchiveSettings(
                id=1,
                control_channel=f"aeron:udp?endpoint={host.address}:{CONTROL_PORT}|term-length=64k",
                segment_file_length=SEGMENT_LENGTH,
                file_io_max_length=SEGMENT_LENGTH,
                low_storage_space_threshold=0,
            )
            files = ArchiveFiles(
                directory,
                MarkOwner(archive_id=1),
                segment_length=SEGMENT_LENGTH,
                durable=durable,
                clock=host.clock,
                disk=disk,
            )
            self.conductor = ArchiveConductor(
                self.aeron, files, settings, AcceptAll(), allow_all, host.clock, world.rng.getrandbits
            )
        except BaseException:
            self.kill()
            raise

    def work(self, now_ns: int) -> None:
        assert self.conductor is not None
        before = unexpected.total()
        self.conductor.do_work(now_ns)
        if unexpected.total() > before:
            raise Violation(f"a step of the archive raised an unexpected error: {list(unexpected)[-1]}")

    def kill(self) -> None:
        """Kill the archive like ``kill -9``: no one is notified, and its file descriptors close."""
        if self.conductor is not None:
            for replay in self.conductor._replays:
                replay.close_file()
        self.aeron._leave_to_parent()

    def close(self) -> None:
        assert self.conductor is not None
        self.conductor.on_close()
        self.aeron.close()


class PublishedStream:
    """Messages that a client published in one stream, with the position after each.

    ``acknowledged`` is the recorded position that the archive reported. ``replayed`` has the messages received from a replay.
    """

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.messages: list[tuple[int, bytes]] = []
        self.acknowledged = 0
        self.recording_id = -1
        self.replay: Subscription | None = None
        self.replayed: list[bytes] = []
        self._image: Any = None

    def read_replay(self) -> None:
        """Read the replay, if there is one. Raises Violation, and MainstemError if the archive has ended the replay."""
        if self.replay is None:
            return
        before = len(self.replayed)
        self.replayed += self.replay.poll_bytes(100)
        published = [payload for _, payload in self.messages[before : len(self.replayed)]]
        if self.replayed[before:] != published:
            raise Violation(
                f"a replay of recording {self.recording_id} differs from the published messages after message {before}"
            )
        self._image = next(iter(self.replay.images), self._image)
        if len(self.replayed) < len(self.messages) and self._image is not None and self._image.closed:
            raise MainstemError("the replay was ended")


class ArchiveRun:
    """Runs the archive and its client under faults, and checks the recordings."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world, self.rng, self.directory = world, world.rng, directory
        self.base, self.peer = world.add_host("archive", **TIMEOUTS), world.add_host("client", **TIMEOUTS)
        world.idle_ns = IDLE_TICK_NS  # a client that runs less often would be presumed dead
        world.expected_errors = (MainstemError,)  # from clients whose driver was killed
        for one, other in ((self.base, self.peer), (self.peer, self.base)):
            world.network.link(one.address, other.address, Faults.drawn(self.rng, max_loss=MAX_LOSS))
        self.device = Device(directory, self.rng)
        self.disk: FaultyDisk | None = None
        self.program: ArchiveProgram | None = None
        self.starts_at_ns = world.now_ns
        self.streams: list[PublishedStream] = []
        self._begun_with: ArchiveProgram | None = None  # the archive that was running when the client began
        self.life = self._life()
        self.calls: Calls[Subscription] | None = None
        self.done = 0
        self.faults = {"archive": 0, "host": 0, "power": 0, "client": 0, "disk": 0}
        self.durable = self.rng.random() < 0.5
        self.needs_recovery = False  # after a loss of power, until the archive has started
        self.forgets_until_ns = 0  # after a loss of power, of what was not durable
        self.faults_left = self.rng.randrange(MAX_FAULTS + 1)
        self.errors = 0
        self._draw_fault()

    def play(self) -> None:
        """Run everything. Raises Violation if an invariant is broken."""
        self.world.run_until(self._progress, what="every stream to be recorded and replayed", within_ns=TIMEOUT_NS)
        assert self.program is not None
        assert self.disk is not None
        self._drop_client()
        self.disk.heal()
        self.program.close()
        self.check(is_closed=True)

    def _progress(self) -> bool:
        if self.faults_left and self.world.now_ns >= self.fault_at_ns:
            self._strike()
        if not self.base.is_up:
            if self.world.now_ns >= self.starts_at_ns:
                self.base.start()
        elif self.program is None:
            if self.world.now_ns >= self.starts_at_ns:
                self._guarded(self._start)
        else:
            program = self.program
            self._guarded(lambda: program.work(self.world.now_ns))
        self._step_client()
        return self.done >= STREAMS and not self.faults_left and self.program is not None

    # -- the archive ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        crashes = self.faults_left and self.rng.random() < 0.5
        self.disk = FaultyDisk(
            self.device, crash_at=self.rng.randrange(1, self.rng.choice((60, 500))) if crashes else 0
        )
        if not self.faults_left:
            self.disk.heal()
        self.program = ArchiveProgram(self.world, self.base, self.directory, self.disk, durable=self.durable)
        self.needs_recovery = False
        self.check(is_closed=False)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Crash:
            self.faults["disk"] += 1
            self.faults_left = max(0, self.faults_left - 1)
            self._killed()
        except (OSError, MainstemError, AgentTerminated):
            # The archive could not start, or its driver is gone.
            self._killed()

    def _killed(self, *, loses_power: bool = False) -> None:
        if self.program is not None:
            self.program.kill()
        self.program = None
        if self.disk is not None:
            self.disk.kill()
        if loses_power:
            self.needs_recovery = True
            self.device.lose_power()
            if not self.durable:
                self.forgets_until_ns = self.world.now_ns + IN_FLIGHT_NS
                for stream in self.streams:
                    stream.acknowledged = 0
        self.starts_at_ns = self.world.now_ns + self.rng.randrange(3 * NS_PER_SECOND)
        if not self.needs_recovery:
            self.check(is_closed=False)

    @property
    def may_be_full(self) -> bool:
        """Whether the disk can refuse a write, which ends a recording."""
        return self.disk is not None and self.disk.may_be_full

    # -- faults --------------------------------------------------------------------------------------------------------

    def _draw_fault(self) -> None:
        self.fault_at_ns = self.world.now_ns + self.rng.randrange(3 * NS_PER_SECOND)

    def _strike(self) -> None:
        self.faults_left -= 1
        self._draw_fault()
        kind = self.rng.choice(("archive", "host", "power", "client"))
        self.faults[kind] += 1
        if kind == "client":
            self._drop_client()
            self.peer.kill_client()
            self.peer.connect()
            self.life = self._life()
            return
        if kind != "archive" and self.base.is_up:
            self.base.crash()
        self._killed(loses_power=kind == "power")

    # -- the client ----------------------------------------------------------------------------------------------------

    def _drop_client(self) -> None:
        if self.calls is not None:
            self.calls.leave_to_parent()
        self.life.close()

    def _step_client(self) -> None:
        try:
            next(self.life)
        except StopIteration:
            self.done += 1
            self.life = self._life()
        except MainstemError as error:
            if self.program is not None and self.program is self._begun_with and not self.may_be_full:
                raise Violation(f"a call failed although nothing was killed since the client began: {error}") from error
            self.errors += 1
            self.life = self._life()

    def _life(self) -> Steps[None]:
        """Publish a stream, have it recorded to its end, and read its replay."""
        self._begun_with = self.program
        aeron, there = self.peer.aeron, self.base.address
        calls: Calls[Subscription] = Calls(
            aeron,
            f"aeron:udp?endpoint={there}:{CONTROL_PORT}",
            response_channel=f"aeron:udp?endpoint={self.peer.address}:{RESPONSE_PORT}",
            stream_id=10,
            response_stream_id=20,
            credentials=b"",
            on_challenge=None,
            client_name="sim",
        )
        self.calls = calls
        channel = f"aeron:udp?endpoint={there}:{STREAM_PORT}"
        publication = replay = None
        try:
            yield from calls.connecting(TIMEOUT_S)
            generation = calls.session.generation
            publication = aeron.add_exclusive_publication(f"{channel}|term-length=64k", STREAM)
            stream = PublishedStream(publication.session_id)
            self.streams.append(stream)
            recorded = f"{channel}|session-id={publication.session_id}"
            yield from calls.start_recording(recorded, STREAM, SourceLocation.REMOTE, auto_stop=True)
            stream.recording_id = yield from self._signal(calls, RecordingSignal.START)
            if self.rng.random() < 0.5:
                replay = yield from self._replay(calls, stream)
            yield from self._publish(calls, publication, stream)
            publication.close()
            yield from self._signal(calls, RecordingSignal.STOP)
            if replay is None:
                replay = yield from self._replay(calls, stream)
            while len(stream.replayed) < len(stream.messages):
                stream.read_replay()
                calls.do_work(self.world.now_ns)  # as the client's worker thread does
                if not calls.session.is_connected or calls.session.generation != generation or calls.session.events:
                    raise MainstemError("the session or the replay was ended")
                yield None
            CHECKED.messages += len(stream.messages)
        finally:
            with suppress(MainstemError):
                calls.end()
                for each in (publication, replay):
                    if each is not None and not each.closed:
                        each.close()

    def _replay(self, calls: Calls[Subscription], stream: PublishedStream) -> Steps[Subscription]:
        channel = f"aeron:udp?endpoint={self.peer.address}:{REPLAY_PORT}"
        options = ReplayOptions(stream.recording_id, channel, REPLAY_STREAM)
        stream.replay, _ = yield from calls.unchecked_replay(options, Deadline(calls.clock, TIMEOUT_S))
        return stream.replay

    def _signal(self, calls: Calls[Subscription], signal: RecordingSignal) -> Steps[int]:
        while True:
            yield from Events(calls).wait(3 * TIMEOUT_S)
            event = calls.session.events.popleft()
            if not isinstance(event, Signal):
                raise event
            if event.signal == signal:
                return event.recording_id

    def _publish(self, calls: Calls[Subscription], publication: Any, stream: PublishedStream) -> Steps[None]:
        rng = self.rng
        count = self.world.scaled(MESSAGES)
        deadline_ns = self.world.now_ns + TIMEOUT_NS // 4
        while len(stream.messages) < count or stream.acknowledged < publication.position:
            for _ in range(rng.randrange(4)):
                if len(stream.messages) < count:
                    payload = rng.randbytes(rng.choice((0, rng.randrange(100), rng.randrange(MAX_LENGTH))))
                    position = publication.offer(payload)
                    if position < 0:
                        break
                    stream.messages.append((position, payload))
            if rng.random() < 0.2:
                position = yield from calls.recording_position(stream.recording_id)
                if position is None:
                    raise MainstemError("the recording has ended")
                # A response from before a loss of power may arrive after it.
                if self.world.now_ns >= self.forgets_until_ns:
                    stream.acknowledged = max(stream.acknowledged, position)
            stream.read_replay()
            if self.world.now_ns >= deadline_ns:
                raise Violation(f"only {stream.acknowledged} of {publication.position} bytes were recorded in time")
            yield None

    # -- the invariants ------------------------------------------------------------------------------------------------

    def check(self, *, is_closed: bool) -> None:
        ends: dict[int, int] = {}
        for reader in open_readers(self.directory):
            with reader:
                ends[reader.descriptor.recording_id] = self._check_recording(reader, is_closed=is_closed)
        for stream in self.streams:
            if stream.acknowledged > ends.get(stream.recording_id, 0):
                raise Violation(
                    f"{stream.acknowledged} bytes of recording {stream.recording_id} were acknowledged, but it ends at "
                    f"{ends.get(stream.recording_id)}"
                )

    def _check_recording(self, reader: RecordingReader, *, is_closed: bool) -> int:
        descriptor, end = reader.descriptor, reader.end_position()
        stream = next((each for each in self.streams if each.session_id == descriptor.session_id), None)
        if stream is None or reader.start_position:
            raise Violation(
                f"recording {descriptor.recording_id} has session {descriptor.session_id} and starts at "
                f"{reader.start_position}, expected a published session and 0"
            )
        published = [each for each in stream.messages if each[0] <= end]
        check_messages(reader, published, is_final=is_closed)
        return end


def archive(world: World) -> str:
    """Everything that an archive acknowledged is recorded and replayed once and in order, whatever is killed."""
    with temporary_directory() as directory:
        run = ArchiveRun(world, Path(directory))
        run.play()
        recordings = len([name for name in os.listdir(directory) if name.endswith(".rec")])
    faults = ", ".join(f"{count} of {kind}" for kind, count in run.faults.items())
    return (
        f"{len(run.streams)} streams, {recordings} segments, killed: {faults}, {run.errors} calls failed, "
        f"{world.network.lost} datagrams lost, {world.ticks} ticks"
    )
