"""A recorder of many recordings, a shipper and a store on a host that repeatedly loses power.

Durable data survives. For a durable recorder, that means messages whose write returned and recordings whose start or stop
returned. It always includes everything that a store has put and a shipper has committed. Each of the other recordings that exist
has a prefix of its messages, and none prevents reading another. A killed program loses nothing that it has written.

Then an archive on the same kind of host changes recordings by requests (``maintenance``).
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_MS
from mainstem.aeron.protocol.layouts import DATA_HEADER
from mainstem.errors import RecordingError
from mainstem.recording.archive import DirectoryArchive
from mainstem.recording.catalog import NULL, Catalog, RecordingDescriptor, find_catalog_problems
from mainstem.recording.reader import RecordingReader
from mainstem.recording.recorder import Recorder
from mainstem.recording.rows.batches import messages
from mainstem.recording.shipping.layout import archive_ids
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.shipping.shipper import ArchiveShipper, ShippingOptions
from mainstem.recording.shipping.verify_shipped import find_archive_problems
from mainstem.recording.verify_recordings import find_problems
from mainstem.sim.checkers import CHECKED, Violation
from mainstem.sim.clock import ManualClock
from mainstem.sim.disk import Crash, Device, FaultyDisk, may_be_full, temporary_directory
from mainstem.sim.scenarios.maintenance import MaintenanceRun
from mainstem.store.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from mainstem.recording.writer import RecordingWriter
    from mainstem.sim.world import World

TERM_LENGTH = 64 * 1024
SEGMENT_LENGTH = 2 * TERM_LENGTH
MTU_LENGTH = 16 * 1024
MAX_LENGTH = 10_000  # bytes of a message, which is one frame; some span three pages
MAX_RUNS = 6
MAX_ACTIONS = 60
MAX_SESSIONS = 12
MAX_OLD_RECORDINGS = 80  # recordings whose entries are already in the catalog, on some pages
MAX_ALIAS, MAX_LONG_ALIAS = 200, 3_900  # an entry can be longer than a page

_WHOLE, _DATA, _PADDING = 0xC0, 1, 0


class _Log:
    """A recorded session that lays out its messages as frames."""

    def __init__(self, session_id: int, writer: RecordingWriter) -> None:
        self.session_id, self.writer = session_id, writer
        self.recording_id = writer.descriptor.recording_id
        self._frames: list[bytes] = []  # those of a message whose write has failed

    def write(self, payload: bytes, time_ns: int) -> None:
        """Append a message. If this raises OSError, call it again with the same message."""
        if not self._frames:
            self._frames = list(self._frames_of(payload))
        while self._frames:
            self.writer.write(memoryview(self._frames[0]), time_ns)
            del self._frames[0]

    def _frames_of(self, payload: bytes) -> Iterator[bytes]:
        size = (len(payload) + DATA_HEADER.size + 31) & ~31
        term_id, offset = divmod(self.writer.position, TERM_LENGTH)
        left = TERM_LENGTH - offset
        if size > left:
            yield self._header(left, _PADDING, term_id, offset).ljust(left, b"\0")
            term_id, offset = term_id + 1, 0
        header = self._header(DATA_HEADER.size + len(payload), _DATA, term_id, offset)
        yield (header + payload).ljust(size, b"\0")

    def _header(self, length: int, kind: int, term_id: int, offset: int) -> bytes:
        return DATA_HEADER.pack(length, 0, _WHOLE, kind, offset, self.session_id, 1, term_id, 0)


class _Expected:
    """What a recording must have: ``durable`` messages always, ``messages`` unless power is lost; ``maybe`` was in flight."""

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.messages: list[bytes] = []
        self.durable = 0
        self.maybe: list[bytes] = []
        self.is_durable = False


class PowerLossRun:
    """Runs the programs on one host, and checks the data after each run."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world, self.rng = world, world.rng
        self.host_directory = directory / "host"
        self.host_directory.mkdir()
        self.device = Device(self.host_directory, self.rng)
        self.directory = self.host_directory / "var" / "recordings"
        self.lake = self.host_directory / "lake"
        self.clock = ManualClock()
        self.expected: dict[int, _Expected] = {}
        self.channels: dict[int, str] = {}
        self.has_catalog = self.has_durable_directory = False
        self.shipped: dict[int, int] = {}
        self.put: dict[str, bytes] = {}
        self.losses = self.kills = self.recorded = 0
        self._prefill()

    def _prefill(self) -> None:
        rng, count = self.rng, self.rng.choice((0, self.rng.randrange(MAX_OLD_RECORDINGS)))
        if not count:
            return
        disk = FaultyDisk(self.device, is_good=True)
        disk.make_directory(self.directory)
        disk.sync_path(self.directory)
        catalog = Catalog(self.directory, durable=True, disk=disk)
        for _ in range(count):
            added = catalog.add(_descriptor(rng))
            self.expected[added.recording_id] = expected = _Expected(added.original_channel)
            expected.is_durable = True
        catalog.close()
        self.has_catalog = self.has_durable_directory = True

    def play(self) -> None:
        """Run everything. Raises Violation if an invariant is broken."""
        for _ in range(self.rng.randrange(1, MAX_RUNS)):
            self._run_programs()
        self._recover(loses_power=False)

    # -- a run of the programs ---------------------------------------------------------------------------------------

    def _run_programs(self) -> None:
        rng = self.rng
        crash_at = rng.randrange(1, rng.choice((60, 1000))) if rng.random() < 0.7 else 0
        disk = FaultyDisk(self.device, crash_at=crash_at)
        other = FaultyDisk(self.device, is_good=True)
        self.durable = rng.random() < 0.6
        self.logs: dict[int, _Log] = {}
        shippers: list[ArchiveShipper] = []
        with contextlib.suppress(Crash), may_be_full():
            self._act(disk, other, shippers)
        for shipper in shippers:
            shipper.close()
        loses_power = rng.random() < 0.7
        for each in (disk, other):
            each.kill()
        if loses_power:
            self.losses += 1
            self.device.lose_power()
            self._read_before_recovery()
        else:
            self.kills += 1
        self._recover(loses_power=loses_power)

    def _act(self, disk: FaultyDisk, other: FaultyDisk, shippers: list[ArchiveShipper]) -> None:
        rng = self.rng
        recorder = Recorder(
            self.directory, segment_length=SEGMENT_LENGTH, durable=self.durable, clock=self.clock, disk=disk
        )
        self.has_catalog = True
        self.has_durable_directory |= self.durable
        store = LocalStore(self.lake / "tides", disk=other)
        for _ in range(rng.randrange(MAX_ACTIONS)):
            self.clock.advance_ns(rng.choice((0, NS_PER_MS, 150 * NS_PER_MS)))
            action = rng.random()
            with may_be_full():
                if action < 0.15:
                    self._start(recorder)
                elif action < 0.9:
                    self._write()
                elif action < 0.95:
                    self._stop(recorder)
                elif action < 0.98:
                    self._put(store)
                elif self.has_durable_directory:
                    self._ship(other, shippers)
        if rng.random() < 0.3:
            recorder.close()

    def _start(self, recorder: Recorder) -> None:
        session_id = self.rng.randrange(MAX_SESSIONS)
        if session_id in self.logs:
            return
        channel = self.channels.setdefault(session_id, _channel(self.rng))
        writer = recorder.start(
            session_id=session_id,
            stream_id=1,
            initial_term_id=0,
            term_buffer_length=TERM_LENGTH,
            mtu_length=MTU_LENGTH,
            join_position=0,
            channel=channel,
        )
        log = self.logs[session_id] = _Log(session_id, writer)
        expected = self.expected.setdefault(log.recording_id, _Expected(channel))
        expected.is_durable |= self.durable
        if self.durable:
            expected.durable = len(expected.messages)

    def _write(self) -> None:
        if not self.logs:
            return
        log = self.logs[self.rng.choice(list(self.logs))]
        expected = self.expected[log.recording_id]
        for _ in range(self.rng.randrange(1, 8)):
            payload = self.rng.randbytes(self.rng.choice((0, 100, 1_400, self.rng.randrange(MAX_LENGTH))))
            # A write that failed may have reached the file, so it is repeated.
            expected.maybe = expected.maybe or [payload]
            payload = expected.maybe[0]
            log.write(payload, self.clock.epoch_ns())
            expected.messages.append(payload)
            expected.maybe = []
            if self.durable:
                expected.durable = len(expected.messages)

    def _stop(self, recorder: Recorder) -> None:
        if self.logs:
            log = self.logs.pop(self.rng.choice(list(self.logs)))
            recorder.stop(log.writer)

    def _put(self, store: LocalStore) -> None:
        name = f"{self.rng.randrange(4)}/{self.rng.randrange(4)}"
        data = self.rng.randbytes(self.rng.randrange(10_000))
        if self.rng.random() < 0.5:
            store.put(name, data)
            self.put[name] = data
        elif store.put_if_absent(name, data):
            if name in self.put:
                raise Violation(f"put_if_absent replaced {name}, which existed")
            self.put[name] = data
        elif name not in self.put:
            raise Violation(f"put_if_absent found {name}, which was never put")

    def _ship(self, disk: FaultyDisk, shippers: list[ArchiveShipper]) -> None:
        if not shippers:
            options = ShippingOptions(roll_after_ns=0, chunk_size=64 << 10, uploads=1)
            shippers.append(
                ArchiveShipper(
                    self.directory,
                    LocalStore(self.lake / "shipped", disk=disk),
                    options,
                    clock=self.clock,
                    pause=lambda _: None,
                    disk=disk,
                )
            )
        shipper = shippers[0]
        shipper.do_work()
        for recording_id, entry in shipper.shipped.items():
            self.shipped[recording_id] = entry.end

    # -- invariants --------------------------------------------------------------------------------------------------

    def _read_before_recovery(self) -> None:
        """Open a reader before the recorder restarts. It must be able to read every intact recording."""
        if not self.has_catalog or not self.directory.exists():
            return
        archive = DirectoryArchive(LocalStore(self.directory))
        for descriptor in archive.recordings():
            try:
                with RecordingReader(archive, descriptor) as reader:
                    list(messages(reader, reader.start_position, reader.end_position()))
            except RecordingError:
                continue

    def _recover(self, *, loses_power: bool) -> None:
        while self.rng.random() < 0.3:
            disk = FaultyDisk(self.device, crash_at=self.rng.randrange(1, 200), is_good=True)
            with contextlib.suppress(Crash):
                Recorder(self.directory, clock=self.clock, durable=self.rng.random() < 0.5, disk=disk).close()
            disk.kill()
            if self.rng.random() < 0.5:
                self.losses += 1
                loses_power = True
                self.device.lose_power()
        disk = FaultyDisk(self.device, is_good=True)
        Recorder(self.directory, clock=self.clock, durable=True, disk=disk).close()
        self.has_catalog = True
        self._check(loses_power=loses_power)

    def _check(self, *, loses_power: bool) -> None:
        archive = DirectoryArchive(LocalStore(self.directory))
        descriptors = {each.recording_id: each for each in archive.recordings()}
        if find_catalog_problems(self.directory):
            raise Violation(f"the recovered catalog has {find_catalog_problems(self.directory)}")
        for recording_id, expected in list(self.expected.items()):
            if recording_id in descriptors:
                self._check_recording(archive, descriptors[recording_id], expected, loses_power=loses_power)
            elif expected.is_durable or not loses_power:
                raise Violation(f"recording {recording_id} was durable but is missing")
            else:
                del self.expected[recording_id]
        for recording_id in descriptors.keys() - self.expected.keys():
            # Its creation was in flight, and no result was reported.
            self.expected[recording_id] = expected = _Expected(descriptors[recording_id].original_channel)
            self._check_recording(archive, descriptors[recording_id], expected, loses_power=loses_power)
        self._check_stores()

    def _check_recording(
        self, archive: DirectoryArchive, descriptor: RecordingDescriptor, expected: _Expected, *, loses_power: bool
    ) -> None:
        name = f"recording {descriptor.recording_id}"
        if descriptor.stop_position == NULL:
            raise Violation(f"{name} has no stop position after recovery")
        with RecordingReader(archive, descriptor) as reader:
            start, end = reader.start_position, reader.end_position()
            found = [payload for _, payload in messages(reader, start, end)]
            for fault in find_problems(reader, start, end):
                raise Violation(f"{name}: {fault}")
            if reader.count_before(end).messages != len(found):
                raise Violation(
                    f"{name}: the index counts {reader.count_before(end).messages} messages, expected {len(found)}"
                )
        if descriptor.original_channel != expected.channel:
            raise Violation(f"{name} has the channel {descriptor.original_channel}, expected {expected.channel}")
        whole = expected.messages + expected.maybe
        if found != whole[: len(found)]:
            raise Violation(f"{name} has other messages than were recorded")
        least = expected.durable if loses_power else len(expected.messages)
        if len(found) < least:
            raise Violation(f"{name} has {len(found)} messages, expected at least {least}")
        CHECKED.count(*found)
        self.recorded += len(found)
        expected.messages, expected.maybe = found, []
        if loses_power:
            # Whatever exists after a loss of power is on the device.
            expected.durable, expected.is_durable = len(found), True

    def _check_stores(self) -> None:
        store = LocalStore(self.lake / "tides")
        for name, data in self.put.items():
            if store.read(name, 0, 1 << 20) != data:
                raise Violation(f"object {name} differs from what was put")
        shipped = LocalStore(self.lake / "shipped")
        archives = [ShippedArchive(shipped, each) for each in archive_ids(shipped)]
        if self.shipped and len(archives) != 1:
            raise Violation(f"the store has {len(archives)} shipped archives, expected 1")
        for archive in archives:
            for fault in find_archive_problems(archive):
                raise Violation(f"the shipped archive: {fault}")
            for recording_id, end in self.shipped.items():
                if archive.entry(recording_id).end < end:
                    raise Violation(
                        f"recording {recording_id} was shipped up to {end}, but ends at {archive.entry(recording_id).end}"
                    )


def _descriptor(rng: Random) -> RecordingDescriptor:
    return RecordingDescriptor(
        recording_id=NULL,
        start_timestamp=1,
        stop_timestamp=2,
        stop_position=0,
        term_buffer_length=TERM_LENGTH,
        segment_file_length=SEGMENT_LENGTH,
        session_id=-1,
        original_channel=_channel(rng),
    )


def _channel(rng: Random) -> str:
    most = rng.choice((MAX_ALIAS, MAX_ALIAS, MAX_ALIAS, MAX_LONG_ALIAS))
    return f"sim:{rng.randrange(1 << 30)}?alias={rng.randrange(most) * 'a'}"


def power_loss(world: World) -> str:
    """Durable data survives a loss of power at any step. Other recordings are left with a prefix of their messages."""
    with temporary_directory() as directory:
        run = PowerLossRun(world, Path(directory))
        run.play()
        maintenance = MaintenanceRun(world, Path(directory) / "archive")
        maintenance.play()
    return (
        f"{run.recorded} messages in {len(run.expected)} recordings, {run.losses} losses of power, {run.kills} kills, "
        f"{len(run.put)} objects, {len(run.shipped)} recordings shipped; {maintenance.requests} requests to an archive, "
        f"{maintenance.losses} losses of power"
    )
