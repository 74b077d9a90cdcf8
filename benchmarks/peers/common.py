"""Shared by the roles of every peer: arguments, run time, and reports.

Imports only the standard library, because a peer can run under a different Python.

Roles: ``driver`` (runs until it is stopped), ``sub`` and ``pub`` (throughput: the publisher sends for ``seconds``, then a final
message of one byte; the subscriber counts), ``subs`` (the same on several channels, ``here``, to which ``pub`` sends through
``there``), ``pong`` and ``ping`` (round trips, one in flight).
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from role import options, ready, report  # noqa: F401 - the peers import these from here

if TYPE_CHECKING:
    from collections.abc import Callable

LAST = b"\x00"  # the one-byte message that ends a throughput run
CHECK_EVERY = 256  # messages between two checks of the clock


@dataclass(kw_only=True)
class Options:
    """Options that the harness passes as key=value."""

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
    """Return messages per second between the first and the last message."""
    return (count - 1) * 1e9 / max(1, last_ns - first_ns)


def receive_from_all(polls: list[Callable[..., int]], idle: Callable[[], None]) -> tuple[int, int, int]:
    """Poll subscriptions until each has received the last message.

    Return the number of messages per subscription, and the times of the first and the last message.
    """
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
    times = sorted(times_ns[len(times_ns) // 10 :])  # drop the first tenth as warm-up
    report(p50_us=times[len(times) // 2] / 1e3, p99_us=times[len(times) * 99 // 100] / 1e3)


def run_until_stopped() -> None:
    import signal

    signal.sigwait({signal.SIGTERM, signal.SIGINT})


def send_for(seconds: float, send: Callable[[], None]) -> int:
    """Call ``send``, which sends CHECK_EVERY messages, until the time is over. Return the number of messages sent."""
    count = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        send()
        count += CHECK_EVERY
    return count
