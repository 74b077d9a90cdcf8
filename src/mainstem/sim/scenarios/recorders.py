"""A recorder on disks that fill up and make short writes. It is killed at arbitrary steps of writing, and restarted.

The recorder and its files are real; its disk is ``mainstem.sim.disk``. The last kill may be a loss of power instead. After a loss
of power, a durable recording has everything that was released to the publisher, and any other recording has a prefix of it.
"""

from __future__ import annotations

from bisect import bisect_right
from errno import ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.recording.recorder import Recorder
from mainstem.recording.segments import segment_base, segment_name
from mainstem.sim.checkers import Violation
from mainstem.sim.disk import Crash, Device, FaultyDisk, temporary_directory
from mainstem.sim.scenarios.recordings import check_messages, open_readers
from mainstem.sim.world import IDLE_TICK_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.client.client import Aeron
    from mainstem.recording.reader import RecordingReader
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

CHANNEL = "aeron:ipc?term-length=64k"
STREAM = 1001
TERM_LENGTH = SEGMENT_LENGTH = 64 * 1024
MESSAGES = 80
MAX_LENGTH = 8_192  # the maximum message length with a term of 64 KiB
MAX_CRASHES = 4
LIVENESS_NS = 2 * NS_PER_SECOND  # client liveness timeout: how long a driver keeps a dead recorder's position
SHORT_NS = NS_PER_SECOND  # a recorder that is away for less time finds its position kept
LONG_NS = 5 * NS_PER_SECOND
TIMEOUT_NS = 300 * NS_PER_SECOND


class Program:
    """A recorder process with its own client. It can be killed and restarted."""

    def __init__(self, world: World, host: Host, directory: Path, disk: FaultyDisk, *, durable: bool) -> None:
        self.disk = disk
        self.recorder = Recorder(
            directory, segment_length=SEGMENT_LENGTH, durable=durable, clock=world.clock, disk=disk
        )
        self.aeron = host.new_client("recorder")
        self.subscription = self.aeron.add_subscription(CHANNEL, STREAM)
        self.recorder.add_subscription(self.subscription)

    def work(self) -> None:
        self.aeron.invoke()
        self.recorder.do_work()

    def close(self) -> None:
        self.recorder.close()
        self.aeron.close()


class RecordersRun:
    """Runs a publisher and a recorder that is killed a few times, and checks the recordings."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world, self.rng, self.directory = world, world.rng, directory
        self.durable = self.rng.random() < 0.4
        self.loses_power = self.rng.random() < 0.4
        self.device = Device(directory, self.rng)
        self.host = world.add_host("one", client_liveness_timeout_ns=LIVENESS_NS)
        world.idle_ns = IDLE_TICK_NS  # a client that runs less often would be presumed dead
        self.publication = self.host.aeron.add_exclusive_publication(CHANNEL, STREAM)
        self.ends: list[int] = []  # the position after each offered message
        self.payloads: list[bytes] = []
        self.pause_probability = self.rng.choice((0.0, 0.5, 0.9))
        self.crashes_left = self.rng.randrange(MAX_CRASHES + 1)
        self.crashes = self.refusals = self.absences = 0
        self.has_lost_power = False
        self.program: Program | None = None
        self.gone: list[Aeron] = []  # clients of killed programs
        self.starts_at_ns = world.now_ns

    def play(self) -> None:
        """Run everything. Raises Violation if an invariant is broken."""
        self.world.run_until(self._progress, what="every message to be recorded", within_ns=TIMEOUT_NS)
        assert self.program is not None or self.has_lost_power
        if self.program is not None:
            self.program.disk.heal()
            self.program.close()
        self._check(is_closed=self.program is not None)

    def _progress(self) -> bool:
        self._offer()
        if self.program is None:
            if self.world.now_ns >= self.starts_at_ns:
                self._guarded(self._start)
        elif self.rng.random() >= self.pause_probability:
            self._guarded(self.program.work)
        if self.has_lost_power:
            return True
        is_recorded = self.program is not None and self.publication.position in self.program.recorder.active.values()
        return len(self.ends) == MESSAGES and is_recorded

    def _offer(self) -> None:
        rng = self.rng
        for _ in range(rng.randrange(3)):
            if len(self.ends) == MESSAGES:
                return
            payload = rng.randbytes(rng.choice((0, rng.randrange(100), rng.randrange(MAX_LENGTH))))
            position = self.publication.offer(payload)
            if position < 0:
                return
            self.ends.append(position)
            self.payloads.append(payload)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Crash:
            self._crashed()
        except OSError as error:
            if error.errno != ENOSPC:
                raise
            self.refusals += 1

    def _start(self) -> None:
        is_last = not self.crashes_left
        self.disk = FaultyDisk(
            self.device, crash_at=0 if is_last else self.rng.randrange(1, self.rng.choice((60, 500)))
        )
        if not is_last:
            self.crashes_left -= 1
        try:
            self.program = Program(self.world, self.host, self.directory, self.disk, durable=self.durable)
        except OSError:
            self.disk.kill()
            raise

    def _crashed(self) -> None:
        published = self._published()
        released = max((image.position for image in self.program.subscription.images), default=0) if self.program else 0
        self.crashes += 1
        if self.program is not None:
            self.gone.append(self.program.aeron)
        self.program = None
        self.has_lost_power = self.loses_power and not self.crashes_left
        if self.has_lost_power:
            self.disk.lose_power()
        else:
            self.disk.kill()
        is_long = self.rng.random() < 0.15
        self.absences += is_long
        self.starts_at_ns = self.world.now_ns + (LONG_NS if is_long else self.rng.randrange(SHORT_NS))
        if self.has_lost_power:
            Recorder(self.directory, clock=self.world.clock, disk=FaultyDisk(self.device, is_good=True)).close()
        self._check(is_closed=False)
        if self.has_lost_power and not self.durable:
            return
        now_there = self._published()
        if max(now_there.values(), default=0) < released:
            raise Violation(f"{released} bytes were released to the publisher, but the recordings end at {now_there}")
        for recording_id, position in published.items():
            # After a loss of power, the last published position is not necessarily on the device yet.
            if now_there.get(recording_id, -1) < position and not self.has_lost_power:
                raise Violation(
                    f"recording {recording_id} ended at {position} and now ends at {now_there.get(recording_id)}"
                )

    # -- invariants ----------------------------------------------------------------------------------------------------

    def _published(self) -> dict[int, int]:
        positions = {}
        for reader in open_readers(self.directory):
            with reader:
                positions[reader.descriptor.recording_id] = reader.end_position()
        return positions

    def _check(self, *, is_closed: bool) -> None:
        readers = open_readers(self.directory)
        if len(readers) > 1 + self.absences:
            raise Violation(f"one stream has {len(readers)} recordings, expected at most {1 + self.absences}")
        for reader in readers:
            with reader:
                self._check_recording(reader, is_closed=is_closed and reader is readers[-1])

    def _check_recording(self, reader: RecordingReader, *, is_closed: bool) -> None:
        name = f"recording {reader.descriptor.recording_id}"
        start, end = reader.start_position, reader.end_position()
        first, last = bisect_right(self.ends, start), bisect_right(self.ends, end)
        offered = list(zip(self.ends[first:last], self.payloads[first:last], strict=True))
        check_messages(reader, offered, is_final=is_closed)
        if reader.index is not None:
            for entry in reader.index.around(start, end):
                before = bisect_right(self.ends, entry.position) - first
                # At the end of a term, padding can lie between two messages.
                is_boundary = entry.position in (start, *self.ends[first:last]) or not entry.position % TERM_LENGTH
                if entry.messages != before or not is_boundary:
                    raise Violation(
                        f"{name}: index entry {entry} should count {before} messages at a boundary of messages"
                    )
        if is_closed and end > start:
            base = segment_base(reader.descriptor, end - 1)
            rest = (self.directory / segment_name(reader.descriptor.recording_id, base)).read_bytes()[end - base :]
            if rest.strip(b"\0"):
                raise Violation(f"{name} ends at {end}, but its segment has data after that")


def recorders(world: World) -> str:
    """Every message is recorded once and in order, whatever the disk refuses and whenever the recorder is killed."""
    with temporary_directory() as directory:
        run = RecordersRun(world, Path(directory))
        run.play()
        # These clients do nothing any more. They are freed with the world.
        for client in run.gone:
            client.close()
    return (
        f"{len(run.ends)} messages, {run.crashes} crashes, {run.absences} of them long, {run.refusals} refusals, "
        f"durable {run.durable}, power lost {run.has_lost_power}, {world.ticks} ticks"
    )
