"""Run the roles of a peer as processes, start them in order, and collect each one's result as a line of JSON.

A role prints ``ready`` once the next role can start, and one line of JSON when it is done.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PEERS = Path(__file__).resolve().parent.parent / "peers"
ROLE_TIMEOUT_S = 60.0  # a role that prints nothing for this long has failed
END_TIMEOUT_S = 20.0  # a role that does not end within this time is killed


def free_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    """Return a port of this host that was free a moment ago, for UDP unless ``kind`` says otherwise."""
    (port,) = free_ports(1, kind)
    return port


def free_ports(count: int, kind: socket.SocketKind = socket.SOCK_DGRAM) -> list[int]:
    """Return several different free ports."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket(socket.AF_INET, kind)) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def cores_of_ends() -> tuple[int | None, int | None]:
    """Return a core for each end of a stream, so that neither waits for the other to yield; None if there is only one core.

    Drivers run on any core.
    """
    first, *others = sorted(os.sched_getaffinity(0))
    return (first, others[0]) if others else (None, None)


class RoleFailed(Exception):
    """A role ended or stayed silent without printing its result."""


class Role:
    """One running process of a peer."""

    def __init__(
        self,
        script: str,
        role: str,
        options: dict[str, Any],
        *,
        python: str = sys.executable,
        core: int | None = None,
    ) -> None:
        words = [f"{key}={value}" for key, value in options.items()]
        self.name = f"{script} {role}"
        self._process = subprocess.Popen(
            [python, str(PEERS / f"{script}.py"), role, *words],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if core is not None:
            # The process starts its threads later, and they inherit the affinity.
            os.sched_setaffinity(self._process.pid, {core})
        self._timer = threading.Timer(ROLE_TIMEOUT_S, self.kill)
        self._timer.daemon = True
        self._timer.start()

    def wait_ready(self) -> None:
        if self._line() != "ready":
            raise RoleFailed(f"{self.name} did not become ready")

    def result(self) -> dict[str, Any]:
        line = self._line()
        self._process.wait()
        self._timer.cancel()
        return dict(json.loads(line))

    def stop(self) -> None:
        """Stop a role that runs until it is told to end, such as a driver."""
        self._timer.cancel()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        if self._process.stdout:
            self._process.stdout.close()

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RoleFailed(f"{self.name} ended without a word (exit {self._process.wait()})")
        return line


@contextmanager
def running(
    script: str, role: str, options: dict[str, Any], *, python: str = sys.executable, core: int | None = None
) -> Iterator[Role]:
    """Run a role that is ready inside the block and has ended after it."""
    started = Role(script, role, options, python=python, core=core)
    try:
        started.wait_ready()
        yield started
    finally:
        started.stop()
