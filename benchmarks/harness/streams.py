"""One stream between two processes over any peer: throughput and round trips, and the ratios between peers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.drivers import launched
from harness.processes import Role, cores_of_ends, running

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST_PORT = 24_500
SETTLE_S = 0.2  # a driver that accepts clients has finished the rest of its startup by then


@dataclass(frozen=True, kw_only=True)
class Peer:
    """An implementation that can carry the stream. ``unavailable`` says why it cannot run here; empty if it can.

    ``answers`` are the transports and modes that it supports; empty if it supports all.
    """

    name: str
    script: str
    python: str = sys.executable
    has_driver: bool = False
    unavailable: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    answers: frozenset[tuple[str, str]] = frozenset()

    def has(self, transport: str, mode: str) -> bool:
        """Return whether the peer supports a transport and mode."""
        return not self.answers or (transport, mode) in self.answers


def every_peer() -> list[Peer]:
    """Return every implementation that Mainstem is compared with, available or not."""
    pyaeron = os.environ.get("MAINSTEM_PYAERON_PYTHON", "")
    zmq = importlib.util.find_spec("zmq")
    return [
        Peer(
            name="pyaeron",
            script="pyaeron_streams",
            python=pyaeron,
            has_driver=True,
            unavailable="" if pyaeron else "MAINSTEM_PYAERON_PYTHON names no Python that has it",
        ),
        Peer(name="pyzmq", script="zmq_streams", unavailable="" if zmq else "pyzmq is not installed"),
        Peer(name="sockets", script="socket_streams"),
        Peer(name="memcpy", script="memcpy_streams", answers=frozenset({("ipc", "batch")})),
        Peer(name="an empty method", script="empty_calls", answers=frozenset({("ipc", "call")})),
    ]


def mainstem(*, invoker: bool = False) -> Peer:
    """Return Mainstem as a peer."""
    return Peer(
        name="mainstem", script="mainstem_streams", has_driver=not invoker, options={"invoker": 1} if invoker else {}
    )


class Ports:
    """Hands out ports, so that no run receives datagrams from the previous one."""

    def __init__(self) -> None:
        self._next = FIRST_PORT

    def take(self) -> int:
        self._next += 4
        return self._next


PORTS = Ports()


@contextmanager
def _driver(peer: Peer) -> Iterator[dict[str, Any]]:
    if not peer.has_driver:
        yield {}
        return
    base = tempfile.mkdtemp(prefix="mainstem-bench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    directory = {"directory": f"{base}/aeron"}
    try:
        with running(peer.script, "driver", directory, python=peer.python):
            yield directory
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _run(peer: Peer, receiver: str, sender: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    with _driver(peer) as directory:
        return _between(peer, receiver, sender, {**options, **peer.options, **directory, "port": PORTS.take()})


def _between(peer: Peer, receiver: str, sender: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    near, far = cores_of_ends()
    with running(peer.script, receiver, options, python=peer.python, core=far) as receiving:
        sending = Role(peer.script, sender, options, python=peer.python, core=near)
        try:
            sent = sending.result()
            return receiving.result(), sent
        finally:
            sending.stop()


def throughput(peer: Peer, *, transport: str, size: int, mode: str = "call", seconds: float = 1.0) -> float:
    """Return the number of messages received per second."""
    received, _ = _run(peer, "sub", "pub", {"transport": transport, "size": size, "mode": mode, "seconds": seconds})
    return float(received["rate"])


def driver_us(kind: str, *, size: int, mode: str, seconds: float) -> float:
    """Return the microseconds of CPU time that a driver needs for a thousand messages of our client over IPC.

    The driver is ours or the reference's. The time is measured from before the stream is added until after it is gone, so it
    includes the initial cost of the log.
    """
    with launched(kind) as driver:
        time.sleep(SETTLE_S)
        before = driver.processor_ns()
        options = {"size": size, "mode": mode, "seconds": seconds, "directory": driver.directory}
        received, _ = _between(mainstem(), "sub", "pub", options)
        return (driver.processor_ns() - before) / float(received["count"])


def spread(peer: Peer, there: str, here: list[list[str]], *, size: int, seconds: float = 1.0) -> float:
    """Return the messages per second received on every channel, with a driver for the publication and one per list of channels."""
    options = {"size": size, "seconds": seconds, "there": there}
    with ExitStack() as stack:
        near = stack.enter_context(_driver(peer))
        receiving = []
        for channels in here:
            far = stack.enter_context(_driver(peer))
            role = running(peer.script, "subs", {**options, **far, "here": ";".join(channels)}, python=peer.python)
            receiving.append(stack.enter_context(role))
        sending = Role(peer.script, "pub", {**options, **near}, python=peer.python)
        stack.callback(sending.stop)
        sending.result()
        return min(float(each.result()["rate"]) for each in receiving)


def round_trip_us(peer: Peer, *, transport: str, size: int = 32, rounds: int = 20_000) -> tuple[float, float]:
    """Return the median round trip and the 99th percentile in microseconds, with one message in flight."""
    _, times = _run(peer, "pong", "ping", {"transport": transport, "size": size, "rounds": rounds})
    return float(times["p50_us"]), float(times["p99_us"])
