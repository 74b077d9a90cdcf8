"""Shared by the peers of the Aqueduct benchmark: their options, and measuring rates and times.

Roles: ``serve`` (until it is stopped) and ``ask``, which measures one thing against the server and reports it. Measurements:
``ordered`` (messages of ``size`` bytes in one stream), ``unordered``, ``datagrams``, ``open`` (opening a channel or stream and
receiving the response to its first message) and ``again`` (the same on an open one).
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from role import options, ready, report  # noqa: F401 - the peers import these from here

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BATCH = 64  # messages between two turns of the event loop, for peers that must yield explicitly
PACKET = 1200  # UDP payload, the same for every peer that uses UDP


@dataclass(kw_only=True)
class Options:
    """Options that the harness passes as key=value."""

    port: int = 0
    directory: str = ""
    backend: str = "qh3"
    what: str = "ordered"
    size: int = 64
    seconds: float = 2.0
    rounds: int = 300
    live: int = 0
    unread: int = 0
    to: int = 0
    delay: float = 0.0


def run(serve: Callable[[Options], Awaitable[None]], ask: Callable[[Options], Awaitable[None]]) -> None:
    asyncio.run({"serve": serve, "ask": ask}[sys.argv[1]](options(Options)))  # type: ignore[arg-type]


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def time_rounds(rounds: int, once: Callable[[], Awaitable[None]]) -> None:
    """Run ``once`` for ``rounds`` rounds, and report the median in microseconds."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        await once()
        times.append(time.perf_counter() - started)
    times = sorted(times[rounds // 10 :])
    report(p50_us=times[len(times) // 2] * 1e6)


def rate(count: int, size: int, started: float) -> None:
    """Report the rate of ``count`` messages since ``started``."""
    elapsed = time.perf_counter() - started
    report(messages=count / elapsed, megabytes=count * size / elapsed / 1e6)
