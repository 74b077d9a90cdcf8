"""One stream between two processes, by any peer: throughput and round trips, and the ratios between peers."""

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
SETTLE_S = 0.2  # what a driver that clients may connect to still has to do at its start is over by then


@dataclass(frozen=True, kw_only=True)
class Peer:
    """An implementation that can carry the stream; ``unavailable`` says why it cannot be run here, or is empty.

    ``answers`` are the transports and modes that it has, all if there are none.
    """

    name: str
    script: str
    python: str = sys.executable
    has_driver: bool = False
    unavailable: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    answers: frozenset[tuple[str, str]] = frozenset()

    def has(self, transport: str, mode: str) -> bool:
        """Whether it can be asked."""
        return not self.answers or (transport, mode) in self.answers


def every_peer() -> list[Peer]:
    """Everybody who is compared with Mainstem, available or not."""
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
    """Ourselves."""
    return Peer(
        name="mainstem", script="mainstem_streams", has_driver=not invoker, options={"invoker": 1} if invoker else {}
    )


class Ports:
    """Hands out ports, so that no run meets the last one's datagrams."""

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
    """Messages a second that arrived."""
    received, _ = _run(peer, "sub", "pub", {"transport": transport, "size": size, "mode": mode, "seconds": seconds})
    return float(received["rate"])


def driver_us(kind: str, *, size: int, mode: str, seconds: float) -> float:
    """Microseconds of a processor that a driver, ours or the reference's, takes for a thousand messages of our client over IPC.

    From before the stream is added until after it is gone, so what its log costs at first counts as well.
    """
    with launched(kind) as driver:
        time.sleep(SETTLE_S)
        before = driver.processor_ns()
        options = {"size": size, "mode": mode, "seconds": seconds, "directory": driver.directory}
        received, _ = _between(mainstem(), "sub", "pub", options)
        return (driver.processor_ns() - before) / float(received["count"])


def spread(peer: Peer, there: str, here: list[list[str]], *, size: int, seconds: float = 1.0) -> float:
    """Messages a second that arrived on every channel: a driver for the publication, and one for each list of channels."""
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
    """The median round trip and the 99th percentile, one message in flight."""
    _, times = _run(peer, "pong", "ping", {"transport": transport, "size": size, "rounds": rounds})
    return float(times["p50_us"]), float(times["p99_us"])
