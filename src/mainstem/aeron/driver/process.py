"""A driver in a process of its own, which ends with its parent. Only this file starts processes.

The child reads its settings from the environment and writes one line of JSON: its directory, or why it did not start. It ends
when the parent's end of a pipe closes, its parent changes, or on SIGTERM. Then it closes cleanly and removes its directory if
configured. Not even ``kill -9`` of the parent leaves it behind.
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

# How often the child checks whether its parent is still the same. The pipe shows it at once, unless a fork of the parent's
# holds its other end too.
PARENT_CHECK_S = 0.25
# A driver that was asked to end and did not within this long is killed.
STOP_TIMEOUT_S = 10.0
# A start includes an interpreter's start and creating 48 MB of shared memory on a busy machine.
START_TIMEOUT_S = 30.0

_FAILURES = {cls.__name__: cls for cls in (errors.ActiveDriverError, errors.ConfigurationError)}


class DriverProcess:
    def __init__(self, directory: str, settings: DriverSettings) -> None:
        # Settings left out must have their defaults there too, whatever this process's environment is.
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
    """Wait until ``stop`` is set, a client ended the driver, or the parent is gone."""
    parent = os.getppid()
    while driver.is_running and not stop.is_set() and os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], PARENT_CHECK_S)
        if ready and not os.read(sys.stdin.fileno(), 4096):
            return


def main() -> int:
    """The child: read the settings and run the driver until it ends."""
    from mainstem.aeron.driver.context import DriverContext
    from mainstem.aeron.driver.settings import DriverSettings
    from mainstem.aeron.driver.threads import DriverThreads

    stop = threading.Event()
    # Ctrl-C reaches the whole terminal group; the parent decides what it means and closes the pipe.
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
    # Where the parent is gone, the pipe from it has ended too, and the driver ends by that.
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
