"""A recorder of a stream whose hosts come and go. Each recording holds a run of the stream's messages, complete and in order."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.recording.archive import DirectoryArchive
from mainstem.recording.reader import RecordingReader
from mainstem.recording.reading import messages
from mainstem.recording.recorder import Recorder
from mainstem.sim.checkers import CHECKED, Violation
from mainstem.sim.disk import Device, FaultyDisk, temporary_directory
from mainstem.sim.scenarios.storm.workload import GONE, Workload, runs
from mainstem.store.local import LocalStore

if TYPE_CHECKING:
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.sim.host import Host
    from mainstem.sim.scenarios.storm.streams import StreamWorkload
    from mainstem.sim.world import World

SEGMENT_LENGTH = 64 * 1024


class RecorderWorkload(Workload):
    """A recorder on one host. It dies with its client, like a killed process, and another takes over."""

    def __init__(self, world: World, stream: StreamWorkload, host: Host, channel: str) -> None:
        self.world = world
        self.stream = stream
        self.host = host
        self.channel = channel
        self._folder = temporary_directory()
        self._directory = Path(self._folder.name)
        self._disk = FaultyDisk(Device(self._directory, world.rng))
        self._recorder: Recorder | None = None
        self._subscription: Subscription | None = None
        self._starts = -1
        self._is_checked = True  # whether what it holds is what was offered

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
        # A recorder that finds the disk full has no subscription, which would hold the stream.
        recorder = Recorder(self._directory, segment_length=SEGMENT_LENGTH, clock=self.host.clock, disk=self._disk)
        self._subscription = self.host.aeron.add_subscription(self.channel, self.stream.stream_id)
        recorder.add_subscription(self._subscription)
        self._recorder = recorder
        self._starts = self.host.starts

    def _killed(self) -> None:
        self._end()
        self.check()

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
        self._folder.cleanup()

    # -- invariants ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        if not self._is_checked or self.world.network.has_damaged or not (self._directory / "archive.catalog").exists():
            return
        archive = DirectoryArchive(LocalStore(self._directory))
        for descriptor in archive.recordings():
            with RecordingReader(archive, descriptor) as reader:
                before = None
                for _, payload in messages(reader, reader.start_position, reader.end_position()):
                    which = self.stream.checked(payload, f"recording {descriptor.recording_id} of {self.host.name}")
                    if before is not None and not self.stream.follows(before, which):
                        raise Violation(f"{which} follows {before} in recording {descriptor.recording_id}")
                    before = which
                    CHECKED.messages += 1
                    CHECKED.bytes += len(payload)
