"""Requests to an archive that change the files of recordings, on a host that is killed or loses power at any step.

The recordings are old: everything in them is on the device. So no message may be lost, whether or not the archive is durable. After
each failure, a recording has the span it had before the request that was interrupted, or the one after it, and all of its messages;
a migration has happened in both recordings or in neither.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.aeron.protocol.layouts import DATA_HEADER
from mainstem.archive.messages import decode, encode
from mainstem.archive.server.active_recordings import ActiveRecordings
from mainstem.archive.server.deletions import Deletions
from mainstem.archive.server.duty_cycle import DutyCycle
from mainstem.archive.server.files import ArchiveFiles
from mainstem.errors import ArchiveError
from mainstem.recording.archive import DirectoryArchive
from mainstem.recording.catalog import CATALOG_FILE
from mainstem.recording.crash_recovery import SETTLED_NS
from mainstem.recording.earlier_frames import at_once
from mainstem.recording.life import OF_ARCHIVE
from mainstem.recording.mark_file import WRITER, MarkOwner
from mainstem.recording.reader import RecordingReader
from mainstem.recording.rows.batches import messages
from mainstem.recording.segments import parse_segment_name
from mainstem.recording.verify_recordings import find_problems
from mainstem.sim.checkers import CHECKED, Violation
from mainstem.sim.clock import ManualClock
from mainstem.sim.disk import Crash, Device, FaultyDisk, may_be_full
from mainstem.store.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.recording.writer import RecordingWriter
    from mainstem.sim.world import World

TERM_LENGTH = SEGMENT_LENGTH = 64 * 1024
FRAME_LENGTH = 8 * 1024  # all messages have the same length, so that positions are easy to draw
MAX_SEGMENTS = 4
MAX_RUNS = 5
MAX_REQUESTS = 6

_REQUESTS = ("truncate", "purge", "purge_segments", "detach", "delete_detached", "attach", "migrate")
Spans = dict[int, tuple[int, int]]


class Requester:
    """The client of the requests, which counts what the archive reports."""

    def __init__(self) -> None:
        self.signals = self.failures = 0
        self.found: int | None = None  # what the response to an attach request contained

    def signal(self, *_: Any) -> None:
        self.signals += 1

    def respond(self, _: int, found: int) -> None:
        self.found = found

    def fail(self, *_: Any) -> None:
        self.failures += 1


class OrderingDisk(FaultyDisk):
    """A disk that also checks that names of segments are on the device before the catalog that may refer to them."""

    def sync(self, fd: int) -> None:
        path = self._open[fd].path
        if path is not None and path.name.startswith(CATALOG_FILE):
            for change in self.device.pending(path.parent):
                if change.file is not None and parse_segment_name(change.name.name) is not None:
                    raise Violation(f"the catalog is flushed before the name {change.name.name}")
        super().sync(fd)


class MaintenanceRun:
    """Makes recordings, and changes them by requests that are interrupted."""

    def __init__(self, world: World, directory: Path) -> None:
        self.rng, self.directory = world.rng, directory
        self.clock = ManualClock()
        directory.mkdir()
        self.device = Device(directory, self.rng)
        self.spans: Spans = {}  # the start and stop position of each recording
        self.possible: list[Spans] = [{}]  # the same, for each outcome of a request that was interrupted
        self.stored: dict[
            int, dict[int, bytes]
        ] = {}  # by recording and position, including segments that were detached
        self.losses = self.requests = 0

    def play(self) -> None:
        """Run everything. Raises Violation if an invariant is broken."""
        for _ in range(self.rng.randrange(1, MAX_RUNS)):
            self._make_recordings()
            self._run_requests()
            self.check()

    def _files(self, disk: FaultyDisk, *, durable: bool) -> ArchiveFiles:
        owner = MarkOwner(archive_id=1, local_control_channel=f"aeron:ipc?alias={WRITER}")
        return ArchiveFiles(
            self.directory, owner, segment_length=SEGMENT_LENGTH, durable=durable, clock=self.clock, disk=disk
        )

    # -- recordings --------------------------------------------------------------------------------------------------

    def _make_recordings(self) -> None:
        """Add two adjacent recordings, and extend some of the others."""
        rng, disk = self.rng, OrderingDisk(self.device, is_good=True)
        files = self._files(disk, durable=True)
        for recording_id in list(self.spans):
            if rng.random() < 0.5:
                self._extend(files, recording_id, rng.randrange(1, 20))
        joint = rng.randrange(1, MAX_SEGMENTS) * SEGMENT_LENGTH
        start = rng.choice((0, rng.randrange(joint // FRAME_LENGTH) * FRAME_LENGTH))
        self._add(files, start, (joint - start) // FRAME_LENGTH)
        self._add(files, joint, rng.randrange(1, MAX_SEGMENTS * SEGMENT_LENGTH // FRAME_LENGTH))
        files.close()
        disk.kill()
        self.possible = [self.spans]
        self.clock.advance_ns(2 * SETTLED_NS)

    def _image(self, position: int) -> Any:
        return SimpleNamespace(
            join_position=position,
            position=position,
            initial_term_id=0,
            term_length=TERM_LENGTH,
            mtu=FRAME_LENGTH,
            session_id=7,
            stream_id=1,
            source_identity="sim",
            driver_start_ms=OF_ARCHIVE.driver_start_ms,
            correlation_id=OF_ARCHIVE.image_id,
        )

    def _add(self, files: ArchiveFiles, start: int, count: int) -> None:
        writer = files.begin(self._image(start), stripped="sim", original="sim")
        recording_id = writer.descriptor.recording_id
        self.stored[recording_id] = {}
        self._write(files, writer, count)
        self.spans[recording_id] = start, writer.position

    def _extend(self, files: ArchiveFiles, recording_id: int, count: int) -> None:
        start, stop = self.spans[recording_id]
        descriptor = files.known(recording_id)
        writer = files.extend(descriptor, self._image(stop), at_once(files.earlier_frames(descriptor)))
        self._write(files, writer, count)
        self.spans[recording_id] = start, writer.position

    def _write(self, files: ArchiveFiles, writer: RecordingWriter, count: int) -> None:
        stored = self.stored[writer.descriptor.recording_id]
        for _ in range(count):
            position, payload = writer.position, self.rng.randbytes(FRAME_LENGTH - DATA_HEADER.size)
            term_id, offset = divmod(position, TERM_LENGTH)
            header = DATA_HEADER.pack(FRAME_LENGTH, 0, 0xC0, 1, offset, 7, 1, term_id, 0)
            writer.write(memoryview(header + payload), self.clock.epoch_ns())
            stored[position] = payload
        files.stop(writer)

    # -- requests ----------------------------------------------------------------------------------------------------

    def _run_requests(self) -> None:
        rng = self.rng
        disk = OrderingDisk(self.device, crash_at=rng.randrange(1, 250) if rng.random() < 0.8 else 0)
        with contextlib.suppress(Crash), may_be_full():
            files = self._files(disk, durable=rng.random() < 0.5)
            deletions = Deletions(files, ActiveRecordings(), list, DutyCycle(self.clock))
            for _ in range(rng.randrange(1, MAX_REQUESTS)):
                self.clock.advance_ns(rng.randrange(NS_PER_SECOND))
                if self.spans:
                    self._request(files, deletions, rng.choice(_REQUESTS))
            if rng.random() < 0.3:
                files.close()
        disk.kill()
        if rng.random() < 0.7:
            self.losses += 1
            self.device.lose_power()

    def _request(self, files: ArchiveFiles, deletions: Deletions, kind: str) -> None:
        """Make a request. While it runs, each recording may have its old span or its new one."""
        recording_id = self.rng.choice(list(self.spans))
        name, values, after = self._drawn(kind, recording_id)
        if not name:
            return
        target = values.get("dst_recording_id", recording_id)
        if kind == "migrate" and self.spans[target][1] == self.spans[values["src_recording_id"]][0]:
            # Segments are appended only where the target has no file, not even the empty one after its end.
            cut = {"recording_id": target, "position": self.spans[target][1]}
            self._carry_out(files, deletions, "truncate", target, "TruncateRecordingRequest", cut, [])
        self._carry_out(files, deletions, kind, recording_id, name, values, after)

    def _carry_out(
        self,
        files: ArchiveFiles,
        deletions: Deletions,
        kind: str,
        recording_id: int,
        name: str,
        values: dict[str, int],
        after: list[Spans],
    ) -> None:
        self.possible = [self.spans, *after]
        requester: Any = Requester()
        request = decode(encode(name, control_session_id=1, correlation_id=self.requests, **values))
        try:
            getattr(deletions, kind)(requester, request)
            if kind == "attach":
                while deletions.is_changing(recording_id):
                    deletions.do_work()
                if requester.found is None:
                    # Refused, or the disk is full.
                    self.spans = {key: self._span(files, key) for key in self.spans}
                    self.possible = [self.spans]
                    return
        except ArchiveError:
            self.possible = [self.spans]  # refused: nothing has changed
            return
        except OSError:
            # The disk is full. The catalog may have been replaced before.
            self.spans = {key: self._span(files, key) for key in self.spans}
            raise
        self.requests += 1
        if kind == "attach":
            # Segments whose deletion was interrupted may be there or not.
            _, stop = self.spans[recording_id]
            after = [{**self.spans, recording_id: (files.known(recording_id).start_position, stop)}]
            found = requester.found
            if found != len(range(after[0][recording_id][0], self.spans[recording_id][0], SEGMENT_LENGTH)):
                raise Violation(f"attach says that it attached {found} segments to recording {recording_id}")
        self.spans = after[-1] if after else self.spans
        self.possible = [self.spans]
        waits = deletions.is_changing(recording_id)
        while deletions.is_changing(recording_id):
            deletions.do_work()
        if waits and not requester.signals:
            raise Violation(f"{kind} of recording {recording_id} ended without a signal")

    @staticmethod
    def _span(files: ArchiveFiles, recording_id: int) -> tuple[int, int]:
        descriptor = files.known(recording_id)
        return descriptor.start_position, descriptor.stop_position

    def _drawn(self, kind: str, recording_id: int) -> tuple[str, dict[str, int], list[Spans]]:
        """Return the name and the values of a request, and the spans that recordings can have during and after it."""
        rng, spans = self.rng, self.spans
        start, stop = spans[recording_id]
        first = start // SEGMENT_LENGTH * SEGMENT_LENGTH
        inner = range(first + SEGMENT_LENGTH, stop + 1, SEGMENT_LENGTH)
        if kind == "truncate":
            position = rng.randrange(start, stop + 1, FRAME_LENGTH)
            values = {"recording_id": recording_id, "position": position}
            return "TruncateRecordingRequest", values, [{**spans, recording_id: (start, position)}]
        if kind == "purge":
            after = {key: span for key, span in spans.items() if key != recording_id}
            return "PurgeRecordingRequest", {"recording_id": recording_id}, [after]
        if kind == "delete_detached":
            return "DeleteDetachedSegmentsRequest", {"recording_id": recording_id}, []
        if kind == "attach":
            lower = [{**spans, recording_id: (at, stop)} for at in self.stored[recording_id] if at < start]
            return "AttachSegmentsRequest", {"recording_id": recording_id}, lower
        if kind == "migrate":
            others = [key for key, (at, end) in spans.items() if key != recording_id and stop == at and at < end]
            if not others or start == stop:
                return "", {}, []
            target = rng.choice(others)
            one, other = (recording_id, target) if rng.random() < 0.5 else (target, recording_id)
            self.stored[other].update(
                {at: data for at, data in self.stored[one].items() if spans[one][0] <= at < spans[one][1]}
            )
            whole = start, spans[target][1]
            values = {"src_recording_id": one, "dst_recording_id": other}
            return "MigrateSegmentsRequest", values, [{**spans, one: (spans[one][0],) * 2, other: whole}]
        if not inner:
            return "", {}, []
        at = rng.choice(inner)
        name = "DetachSegmentsRequest" if kind == "detach" else "PurgeSegmentsRequest"
        return name, {"recording_id": recording_id, "new_start_position": at}, [{**spans, recording_id: (at, stop)}]

    # -- the invariants ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Recover, and compare all recordings with what they may have."""
        disk = FaultyDisk(self.device, is_good=True)
        self._files(disk, durable=True).close()
        disk.kill()
        archive = DirectoryArchive(LocalStore(self.directory))
        found: Spans = {}
        for descriptor in archive.recordings():
            recording_id = descriptor.recording_id
            with RecordingReader(archive, descriptor) as reader:
                start, end = reader.start_position, reader.end_position()
                payloads = [payload for _, payload in messages(reader, start, end)]
                for problem in find_problems(reader, start, end):
                    raise Violation(f"recording {recording_id}: {problem}")
            expected = [self.stored[recording_id][at] for at in range(start, end, FRAME_LENGTH)]
            if payloads != expected:
                raise Violation(
                    f"recording {recording_id} from {start} to {end} has {len(payloads)} messages, expected {len(expected)}"
                )
            CHECKED.count(*payloads)
            found[recording_id] = start, end
        if found not in self.possible:
            raise Violation(f"the recordings are {found}, expected one of {self.possible}")
        self.spans = found
        self.possible = [found]
