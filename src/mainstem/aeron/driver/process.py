"""A driver in a child process that ends with its parent. The driver starts processes only in this file.

The child reads its settings from the environment and writes one line of JSON: its directory, or why it didn't start. It ends on
SIGTERM, when the parent closes its end of a pipe, or when the child gets another parent. It then closes the driver and deletes
the directory if configured. Even after ``kill -9`` of the parent, no child is left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem import errors

if TYPE_CHECKING:
    from mainstem.aeron.driver.settings import DriverSettings
    from mainstem.aeron.driver.threads import DriverThreads

# How often the child checks whether it still has the same parent. The pipe shows the end of the parent at once, unless a fork of
# the parent also holds the other end of the pipe.
PARENT_CHECK_S = 0.25
# A driver that doesn't stop within this time is killed.
STOP_TIMEOUT_S = 10.0
# Starting includes an interpreter and 48 MB of shared memory, possibly on a busy host.
START_TIMEOUT_S = 30.0

_FAILURES = {cls.__name__: cls for cls in (errors.ActiveDriverError, errors.ConfigurationError)}


class DriverProcess:
    def __init__(self, directory: str, settings: DriverSettings) -> None:
        # ``environment`` leaves out defaults. The child must use them too, whatever this process's environment says.
        named = {explained.env for explained in settings.explain_all()}
        environment = {name: value for name, value in os.environ.items() if name not in named}
        environment |= settings.environment() | {"AERON_DIR": directory}
        root = str(Path(errors.__file__).resolve().parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [environment.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mainstem.aeron.driver.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], START_TIMEOUT_S)
        if not ready:
            raise errors.DriverTimeout("the driver process was not ready in time", timeout=START_TIMEOUT_S)
        line = stdout.readline()
        if not line:
            code = self._process.wait(STOP_TIMEOUT_S)
            raise errors.DriverTimeout(f"the driver process exited with code {code} before it was ready")
        reply = json.loads(line)
        if "error" in reply:
            raise _FAILURES.get(reply["error"], errors.ConfigurationError)(reply["message"])

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def watch_parent(stop: threading.Event, driver: DriverThreads) -> None:
    """Wait until ``stop`` is set, a client terminates the driver, or the parent has exited."""
    parent = os.getppid()
    while driver.is_running and not stop.is_set() and os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], PARENT_CHECK_S)
        if ready and not os.read(sys.stdin.fileno(), 4096):
            return


def main() -> int:
    """Run the child process: read the settings and run the driver until it ends."""
    from mainstem.aeron.driver.context import DriverContext
    from mainstem.aeron.driver.settings import DriverSettings
    from mainstem.aeron.driver.threads import DriverThreads

    stop = threading.Event()
    # Ctrl-C signals the whole process group. The parent decides what to do and closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        settings = DriverSettings.load()
        driver = DriverThreads(DriverContext(directory=settings.dir, settings=settings))
    except errors.MainstemError as error:
        _reply({"error": type(error).__name__, "message": str(error)})
        return 1
    with contextlib.closing(driver):
        _reply({"directory": settings.dir})
        watch_parent(stop, driver)
    return 0


def _reply(reply: dict[str, str]) -> None:
    # If the parent has exited, its other pipe is closed as well, which ends the driver.
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
