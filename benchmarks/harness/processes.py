"""Starts a peer's roles as processes, in order, and collects what each says in one line of JSON.

A role prints ``ready`` once it may be met by the next one, and one line of JSON when it is done.
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
ROLE_TIMEOUT_S = 60.0  # a role that says nothing for so long has failed
END_TIMEOUT_S = 20.0  # what was asked to end and does not is killed


def free_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    """A port of this machine that the kernel had free a moment ago, for UDP unless another kind of socket is meant."""
    (port,) = free_ports(1, kind)
    return port


def free_ports(count: int, kind: socket.SocketKind = socket.SOCK_DGRAM) -> list[int]:
    """Several of them, each another."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket(socket.AF_INET, kind)) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def cores_of_ends() -> tuple[int | None, int | None]:
    """A core for each end of a stream, so that none of them waits for the other to give way; none where there is only one core.

    Drivers go where there is room.
    """
    first, *others = sorted(os.sched_getaffinity(0))
    return (first, others[0]) if others else (None, None)


class RoleFailed(Exception):
    """A role ended, or stayed silent, without its result."""


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
            # Its threads are made later, and inherit it.
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
        """Ends a role that runs until it is told (a driver)."""
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
    """A role that is ready inside the block and gone after it."""
    started = Role(script, role, options, python=python, core=core)
    try:
        started.wait_ready()
        yield started
    finally:
        started.stop()
