"""The recorder of ``mainstem.live``, which runs in a thread of the query's process on the driver."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem._internal.file_modes import make_directory, private_directory
from mainstem.aeron.client import Aeron
from mainstem.aeron.client.resource import raise_error_of
from mainstem.errors import RecordingError
from mainstem.recording import Recorder, read_catalog
from mainstem.recording.directory import LOCK_FILE
from mainstem.recording.mark_file import DirectoryInUse
from mainstem.recording.segments import segment_bases, segment_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

log = logging.getLogger("mainstem.spark")

IDLE_S, RETRY_S = 0.0005, 0.1
# Long enough for a busy media driver to respond to a new client.
START_S = 30.0
# A process that a query leaves behind ends earlier than this.
HANDOVER_S = 30.0


def run_directory(scratch: Path, run: str) -> Path:
    """Make a run's directory, below one that only this user can access. Raises ConfigurationError and OSError."""
    make_directory(scratch)
    own = scratch / f"mainstem-live-{os.geteuid()}"
    private_directory(own)
    _sweep(own)
    return own / run


def _sweep(own: Path) -> None:
    """Remove the directories of earlier runs, whose processes Spark killed."""
    for path in own.iterdir():
        if not (path / LOCK_FILE).exists():
            continue
        try:
            Recorder(path).close()
        except (RecordingError, OSError):
            # Another recorder is using the directory.
            continue
        shutil.rmtree(path, ignore_errors=True)


class BackgroundRecorder:
    """A recorder of a channel into a directory, until it is closed. If the directory is ``temporary``, it is then deleted."""

    def __init__(
        self, directory: Path, channel: str, stream_ids: tuple[int, ...], aeron_directory: str, *, temporary: bool
    ) -> None:
        self.directory, self._temporary = directory, temporary
        self._end, self._ready = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._work = (channel, stream_ids, aeron_directory)
        self._thread = threading.Thread(target=self._guard, name="mainstem-live", daemon=True)
        self._thread.start()
        self._ready.wait(START_S)
        self.check()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def _guard(self) -> None:
        try:
            self._run(*self._work)
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    def _run(self, channel: str, stream_ids: tuple[int, ...], aeron_directory: str) -> None:
        recorder = self._own_recorder()
        if recorder is None:
            return
        with ExitStack() as stack:
            stack.enter_context(recorder)
            aeron = stack.enter_context(Aeron.connect(aeron_directory or None, client_name="mainstem.live"))
            subscriptions = [stack.enter_context(aeron.add_subscription(channel, each)) for each in stream_ids]
            for subscription in subscriptions:
                recorder.add_subscription(subscription)
            self._ready.set()
            while not self._end.is_set():
                # Any failure ends the query, which would miss rows. `mainstem record` logs it and records the other streams.
                if not recorder.do_work():
                    for subscription in subscriptions:
                        raise_error_of(subscription)
                    time.sleep(IDLE_S)

    def _own_recorder(self) -> Recorder | None:
        """Return a recorder of the directory, or None if another process records there.

        The query then reads what that process records. But it may be a process that an earlier run of the query has left behind.
        Once that ends, nobody would record the stream, so this tries again for a while.
        """
        until_ns = SYSTEM_CLOCK.monotonic_ns() + round(HANDOVER_S * NS_PER_SECOND)
        while True:
            try:
                return Recorder(self.directory)
            except DirectoryInUse as error:
                if self._temporary:
                    raise
                is_over = SYSTEM_CLOCK.monotonic_ns() >= until_ns
                if is_over:
                    log.info("%s: reading its recordings", error)
            self._ready.set()
            if is_over or self._end.wait(RETRY_S):
                return None

    def purge(self, positions: Mapping[int, int]) -> None:
        """Delete the segments that end before these positions."""
        for descriptor in read_catalog(self.directory):
            before = positions.get(descriptor.recording_id, 0)
            for base in segment_bases(self.directory, descriptor.recording_id)[:-1]:
                if base + descriptor.segment_file_length <= before:
                    (self.directory / segment_name(descriptor.recording_id, base)).unlink(missing_ok=True)

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
