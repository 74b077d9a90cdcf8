"""MediaDriver: a driver in a child process, in threads of this process, or invoked by the caller."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Self

from mainstem._internal.exit_cleanup import close_at_exit
from mainstem._internal.made import Made
from mainstem._internal.platforms import require_linux
from mainstem.aeron.driver.settings import DriverSettings, ThreadingMode
from mainstem.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mainstem.aeron.driver.context import DriverContext
    from mainstem.aeron.driver.process import DriverProcess
    from mainstem.aeron.driver.threads import DriverThreads


def temporary_directory() -> str:
    """Return a unique path for a driver's directory, in shared memory if possible."""
    base = "/dev/shm"
    if not os.path.isdir(base):
        import tempfile

        base = tempfile.gettempdir()
    return os.path.join(base, f"mainstem-{os.getpid()}-{os.urandom(6).hex()}")


class MediaDriver(metaclass=Made, made_by="MediaDriver.launch()"):
    """A running media driver; clients connect to its ``directory``.

    Start one with ``launch`` and use it as a context manager.

    Example:
        >>> with MediaDriver.launch() as driver, Aeron.connect(driver.directory) as aeron:
        ...     subscription = aeron.add_subscription("aeron:ipc", 1001)
    """

    def __init__(self, directory: str, running: DriverProcess | DriverThreads, *, temporary: bool) -> None:
        self._directory = directory
        self._running: DriverProcess | DriverThreads | None = running
        self._invoke: Callable[[], int] | None = getattr(running, "invoke", None)
        self._remove: Callable[..., object] | None = None
        if temporary:
            # Imported here because an import may no longer work in a finalizer.
            from shutil import rmtree

            self._remove = rmtree
        close_at_exit(self)

    @classmethod
    def launch(
        cls,
        directory: str | os.PathLike[str] | None = None,
        *,
        settings: DriverSettings | None = None,
        threads: bool = False,
        context: DriverContext | None = None,
        **overrides: Any,
    ) -> Self:
        """Start a driver and return when clients can connect.

        By default, the driver runs in a child process, which ends with this process even if this one is killed. With ``threads``,
        the driver runs in this process and shares its GIL. Programs that use asyncio use the same class. Both this method and
        `close` block for about 0.2 s, so call them before the event loop starts or with `asyncio.to_thread`. The driver logs each
        refused command as a warning of the logger ``mainstem.aeron.driver``.

        Args:
            directory: The driver's directory. The default is a temporary directory, which is deleted when the driver ends.
            settings: The settings. By default, they come from the environment.
            threads: Whether to run the driver's threads in this process. With the threading mode INVOKER there are no threads, and
                the application calls ``do_work``.
            context: Settings, directory, clock, transports and files of a driver in this process. The other arguments are ignored.
            **overrides: Individual settings, by name.

        Returns:
            The running driver.

        Raises:
            ActiveDriverError: A live driver uses the directory.
            ConfigurationError: A setting is invalid, settings contradict each other, or the operating system isn't Linux.
            DriverTimeout: The process did not start in time.

        Example:
            >>> driver = MediaDriver.launch("/dev/shm/aeron-prices", threading_mode="DEDICATED")
        """
        # An invoked driver can use files and transports that work on any system, as in the simulator.
        if context is None or context.settings.threading_mode is not ThreadingMode.INVOKER:
            require_linux("a media driver", instead="start the reference's driver, and connect to its directory")
        if context is not None:
            return cls._launch_here(context, temporary=False)
        settings = (settings or DriverSettings.load()).replace(**overrides)
        temporary = directory is None
        if temporary:
            settings = settings.replace(dir_delete_on_shutdown=True)
        path = temporary_directory() if directory is None else os.path.abspath(os.fspath(directory))
        if threads or settings.threading_mode is ThreadingMode.INVOKER:
            from mainstem.aeron.driver.context import DriverContext

            return cls._launch_here(DriverContext(directory=path, settings=settings), temporary=temporary)
        # Imported here, as in _launch_here, because a driver in threads starts no process.
        from mainstem.aeron.driver.process import DriverProcess

        return cls.made(path, DriverProcess(path, settings), temporary=temporary)

    @classmethod
    def _launch_here(cls, context: DriverContext, *, temporary: bool) -> Self:
        # Imported here because a program that starts a driver process doesn't need to load the driver itself.
        from mainstem.aeron.driver.threads import DriverThreads

        return cls.made(context.directory, DriverThreads(context), temporary=temporary)

    @property
    def directory(self) -> str:
        """The directory that clients connect to."""
        return self._directory

    @property
    def is_running(self) -> bool:
        """Whether the driver is running. It isn't after ``close``, or if a client or a signal ended it."""
        return self._running is not None and self._running.is_running

    @property
    def pid(self) -> int:
        """The id of the process in which the driver runs."""
        return os.getpid() if self._running is None else self._running.pid

    def do_work(self) -> int:
        """Run one duty cycle of a driver in INVOKER mode.

        Returns:
            The amount of work done.

        Raises:
            LocalProtocolError: The driver isn't in INVOKER mode, or is closed.
        """
        if self._invoke is None:
            raise LocalProtocolError("do_work requires an open driver with threading mode INVOKER in this process")
        return self._invoke()

    @property
    def next_due_ns(self) -> int:
        """When ``do_work`` must run next in INVOKER mode if nothing arrives, by the driver's clock. It is 0 in other modes."""
        invoker = getattr(self._running, "invoker", None)
        return 0 if invoker is None else invoker.next_due_ns

    def close(self) -> None:
        """Stop the driver. Its clients notice the shutdown at once. Idempotent."""
        running, self._running, self._invoke = self._running, None, None
        if running is not None:
            running.close()
            if self._remove is not None:
                # The driver deletes its directory itself, unless it is killed.
                self._remove(self._directory, ignore_errors=True)

    def _leave_to_parent(self) -> None:
        """Forget the driver in a forked child, because it continues in the parent."""
        running, self._running, self._invoke = self._running, None, None
        self._left_to_parent = (
            running  # kept until the child ends, because its finalizer would warn that the process still runs
        )

    def __repr__(self) -> str:
        return f"<MediaDriver {self._directory!r}{'' if self.is_running else ' closed'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_running", None) is not None:
            try:
                warnings.warn(f"media driver in {self._directory} was not closed", ResourceWarning, stacklevel=2)
            finally:
                self.close()
