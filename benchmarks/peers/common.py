"""What the roles of every peer share: how they are called, how long they run, what they report.

Imports nothing but the standard library: a peer may run under another Python.

Roles: ``driver`` (runs until it is stopped), ``sub`` and ``pub`` (throughput: the publisher sends for ``seconds``, then
a message of one byte that ends it; the subscriber counts), ``subs`` (the same of several channels, ``here``, to which ``pub`` sends
by one, ``there``), ``pong`` and ``ping`` (round trips, one in flight).
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from role import options, ready, report  # noqa: F401 - the peers import them from here

if TYPE_CHECKING:
    from collections.abc import Callable

LAST = b"\x00"  # the message of one byte that ends a throughput run
CHECK_EVERY = 256  # messages between two checks of the clock


@dataclass(kw_only=True)
class Options:
    """What the harness passes as key=value."""

    transport: str = "ipc"
    mode: str = "call"
    size: int = 32
    seconds: float = 1.0
    rounds: int = 20_000
    directory: str = ""
    port: int = 0
    there: str = ""
    here: str = ""
    invoker: int = 0


def run(roles: dict[str, Callable[[Options], None]]) -> None:
    roles[sys.argv[1]](options(Options))


def rate(count: int, first_ns: int, last_ns: int) -> float:
    """Messages a second between the first and the last."""
    return (count - 1) * 1e9 / max(1, last_ns - first_ns)


def receive_from_all(polls: list[Callable[..., int]], idle: Callable[[], None]) -> tuple[int, int, int]:
    """Polls subscriptions until each had the last message: how many messages each had, and when the first and the last came."""
    first = count = ended = 0

    def on_fragment(fragment: object, header: object = None) -> None:
        nonlocal ended
        ended += len(fragment) == 1  # type: ignore[arg-type]

    while ended < len(polls):
        received = 0
        for poll in polls:
            received += poll(on_fragment, 64)
        if not received:
            idle()
        elif not count:
            first = time.monotonic_ns()
        count += received
    return count // len(polls), first, time.monotonic_ns()


def report_round_trips(times_ns: list[int]) -> None:
    times = sorted(times_ns[len(times_ns) // 10 :])  # the first tenth warms up
    report(p50_us=times[len(times) // 2] / 1e3, p99_us=times[len(times) * 99 // 100] / 1e3)


def run_until_stopped() -> None:
    import signal

    signal.sigwait({signal.SIGTERM, signal.SIGINT})


def send_for(seconds: float, send: Callable[[], None]) -> int:
    """Calls ``send`` (which sends CHECK_EVERY messages) until the time is over; how many messages that were."""
    count = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        send()
        count += CHECK_EVERY
    return count
