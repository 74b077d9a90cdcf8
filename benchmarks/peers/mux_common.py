"""Shared by the multiplexers' peers.

Roles: ``server`` (runs until it is stopped) and ``client``, which runs one ``mode`` for some seconds and reports. Modes: ``bulk``
(64 KiB chunks on ``streams`` streams; the other side counts, and the client reports that count), ``small`` (64-byte messages,
each flushed, on one stream), ``flushed`` (the same, each passed to the kernel separately), ``request`` (64-byte requests,
``streams`` in flight), ``mixed`` (64-byte round trips next to a saturating stream), ``idle`` (round trips next to ``streams``
idle streams).
"""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from role import options, ready, report

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CHUNK = bytes(64 * 1024)
SMALL = bytes(64)
CHECK_EVERY = 64


@dataclass(kw_only=True)
class Options:
    """Options that the harness passes as key=value."""

    mode: str = "bulk"
    streams: int = 1
    seconds: float = 1.0
    port: int = 0
    loop: str = "asyncio"


async def until_stopped() -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    ready()
    await told.wait()


async def requests(options: Options, call: Callable[[bytes], Awaitable[bytes]]) -> None:
    """Keep ``streams`` requests in flight, and report their rate."""
    for _ in range(200):
        await call(SMALL)
    count = 0
    times: list[int] = []
    end = time.monotonic() + options.seconds

    async def worker() -> None:
        nonlocal count
        while (begun := time.monotonic_ns()) < end * 1e9:
            response = await call(SMALL)
            assert len(response) == 64
            times.append(time.monotonic_ns() - begun)
            count += 1

    begun = time.monotonic()
    await asyncio.gather(*(worker() for _ in range(options.streams)))
    took = time.monotonic() - begun
    report(rate=count / took, **percentiles(times))


def percentiles(times: list[int]) -> dict[str, float]:
    ordered = sorted(times)
    return {"p50_us": ordered[len(ordered) // 2] / 1e3, "p99_us": ordered[len(ordered) * 99 // 100] / 1e3}


def main(server: Callable[[Options], Awaitable[None]], client: Callable[[Options], Awaitable[None]]) -> None:
    role = {"server": server, "client": client}[sys.argv[1]]
    given = options(Options)
    new_loop = importlib.import_module("uvloop").new_event_loop if given.loop == "uvloop" else None
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(role(given))  # type: ignore[arg-type]
