"""An archive server that runs in its own thread or is run by the caller."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mainstem._internal.clock import SYSTEM_CLOCK, Deadline
from mainstem.aeron.agent import AgentInvoker, AgentRunner
from mainstem.aeron.channel import with_values
from mainstem.aeron.client import Aeron
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.directory import default_directory
from mainstem.aeron.idle import BackoffIdle
from mainstem.archive.messages import NULL
from mainstem.archive.server.access import AcceptAll, Authenticator, Authorizer, allow_all
from mainstem.archive.server.conductor import ArchiveConductor
from mainstem.archive.server.counters import check_unused
from mainstem.archive.server.files import ArchiveFiles
from mainstem.archive.server.settings import ArchiveSettings, ThreadingMode
from mainstem.recording.mark_file import WRITER, MarkOwner

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mainstem.archive.server.conductor import ArchiveStats


class ArchiveServer:
    """A running archive: Aeron's own clients can record into its directory, list recordings and replay them.

    Start one with ``launch``. It is a context manager. ``close`` can be called twice.

    Example:
        >>> with ArchiveServer.launch("tides", control_channel="aeron:udp?endpoint=localhost:8010") as server:
        ...     server.wait()
    """

    def __init__(self, conductor: Any, aeron: Aeron, settings: ArchiveSettings) -> None:
        self._conductor: ArchiveConductor = conductor
        self._aeron = aeron
        self.settings = settings
        self._closed = False
        self._invoker: AgentInvoker | None = None
        self._runner: AgentRunner | None = None
        if settings.threading_mode is ThreadingMode.INVOKER:
            self._invoker = AgentInvoker(conductor)
        else:
            # The thread never yields: on a busy host, each yield lets other threads run for milliseconds, while a sleep ends on
            # time. It sleeps after one spin, because a cycle takes longer than a publisher's next frames take to arrive.
            self._runner = AgentRunner(conductor, BackoffIdle(max_spins=1, max_yields=0)).start()

    @classmethod
    def launch(
        cls,
        directory: os.PathLike[str] | str,
        aeron_directory: os.PathLike[str] | str | None = None,
        *,
        settings: ArchiveSettings | None = None,
        authenticator: Authenticator | None = None,
        authorizer: Authorizer | None = None,
        driver_invoker: Callable[[], int] | None = None,
        timeout: float | None = None,
        on_recovery: Callable[[Any], object] = lambda _: None,
        **overrides: Any,
    ) -> Self:
        """Start an archive on a running driver, and return when clients can connect.

        First, before it connects to the driver, the archive recovers its directory: a recording that was not stopped ends at its
        last frame. After a power failure this can take as long as reading the recordings.

        Args:
            directory: The directory for the recordings. It is created if it is missing.
            aeron_directory: The driver's directory; by default ``AERON_DIR``, or this user's own.
            settings: The settings; by default those from the environment (``AERON_ARCHIVE_...``).
            authenticator: Decides which clients may connect; by default all of them.
            authorizer: Decides about each request; by default all are allowed, including deletions.
            driver_invoker: Called while the archive starts, for a driver that runs in the caller's thread.
            timeout: Seconds to wait for the driver; by default, and at most, the driver timeout.
            on_recovery: Called about once a second while recovery takes long, as by a `Recorder`.
            **overrides: Single fields of the settings, by name.

        Returns:
            The running archive.

        Raises:
            ConfigurationError: A setting is invalid, or an archive with the same id uses the driver.
            RecordingError: Another archive or recorder uses the directory.
            DriverTimeout: No driver runs in the directory.
            RegistrationError: The driver refused a control channel, for example because its port is in use.

        Example:
            >>> server = ArchiveServer.launch("tides", max_concurrent_replays=100)
        """
        settings = (settings or ArchiveSettings.load()).replace(**overrides)
        with ExitStack() as stack:
            files = ArchiveFiles(
                Path(directory),
                _owner(settings, os.fspath(aeron_directory or default_directory())),
                segment_length=settings.segment_file_length,
                durable=settings.file_sync_level > 0,
                on_recovery=on_recovery,
            )
            stack.callback(files.close)
            context = ClientContext(use_invoker=True, driver_invoker=driver_invoker)
            aeron = stack.enter_context(
                Aeron.connect(aeron_directory, context=context, client_name="mainstem-archive", timeout=timeout)
            )
            if settings.id == NULL:
                settings = settings.replace(id=aeron.next_correlation_id())
            check_unused(aeron.counters, settings.id)
            files.show_owner(_owner(settings, aeron.directory))
            conductor = ArchiveConductor(
                aeron, files, settings, authenticator or AcceptAll(), authorizer or allow_all, SYSTEM_CLOCK
            )
            stack.pop_all()
        return cls(conductor, aeron, settings)

    @property
    def control_addresses(self) -> list[str]:
        """The addresses on which the archive receives requests over UDP, as ``ip:port``."""
        return self._conductor.control_addresses

    @property
    def closed(self) -> bool:
        """Whether the archive has ended, through ``close`` or because its driver ended."""
        ended = self._runner.is_closed if self._runner is not None else self._invoker is None or self._invoker.is_closed
        return self._closed or ended

    @property
    def error(self) -> Exception | None:
        """The error that ended the archive without ``close``; None if there is none."""
        return self._aeron.error

    def stats(self) -> ArchiveStats:
        """Return the archive's current activity."""
        return self._conductor.stats()

    def invoke(self) -> int:
        """Run one duty cycle of an archive with ``threading_mode="INVOKER"``.

        Returns:
            The work count; 0 for an archive with its own thread.
        """
        return 0 if self._invoker is None else self._invoker.invoke()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the archive has ended, for ``timeout`` seconds (None waits forever). Return whether it has."""
        if self._runner is not None:
            return self._runner.join(timeout)
        deadline = Deadline(SYSTEM_CLOCK, timeout)
        while not self.closed:
            if deadline.expired:
                return False
            self.invoke()
        return True

    def close(self) -> None:
        """Close the archive: write stop positions, end replays and sessions, and release the directory. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._runner is not None:
            self._runner.close(None)
        if self._invoker is not None:
            self._invoker.close()
        self._aeron.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ArchiveServer {self.settings.id}{', closed' if self.closed else ''}>"


def _owner(settings: ArchiveSettings, aeron_directory: str) -> MarkOwner:
    local = settings.local_control_channel
    return MarkOwner(
        control_stream_id=settings.control_stream_id,
        local_control_stream_id=settings.local_control_stream_id,
        events_stream_id=settings.recording_events_stream_id,
        archive_id=settings.id,
        control_channel=settings.control_channel,
        local_control_channel=local if WRITER in local else with_values(local, {"alias": WRITER}),
        events_channel=settings.recording_events_channel,
        aeron_directory=aeron_directory,
    )
