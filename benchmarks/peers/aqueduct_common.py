"""What the peers of the Aqueduct benchmark share: their options, and how rates and times are taken.

Roles: ``serve`` (until told to stop) and ``ask``, which measures one thing against the server and answers in JSON. What
is measured: ``ordered`` (messages of ``size`` bytes in one stream), ``unordered``, ``datagrams``, ``open`` (a channel
or stream opened, its first message answered) and ``again`` (the same on one that is open).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BATCH = 64  # messages between two turns of the event loop, for those that must be told to take one
PACKET = 1200  # UDP payload, the same for all who use UDP


@dataclass(kw_only=True)
class Options:
    """What the harness passes as key=value."""

    port: int = 0
    directory: str = ""
    backend: str = "qh3"
    what: str = "ordered"
    size: int = 64
    seconds: float = 2.0
    rounds: int = 300
    live: int = 0
    to: int = 0
    delay: float = 0.0


def options() -> Options:
    values: dict[str, object] = {}
    for word in sys.argv[2:]:
        key, _, value = word.partition("=")
        values[key] = type(getattr(Options(), key))(value)
    return Options(**values)  # type: ignore[arg-type]


def ready() -> None:
    print("ready", flush=True)


def answer(**facts: float) -> None:
    print(json.dumps(facts), flush=True)


def run(serve: Callable[[Options], Awaitable[None]], ask: Callable[[Options], Awaitable[None]]) -> None:
    asyncio.run({"serve": serve, "ask": ask}[sys.argv[1]](options()))  # type: ignore[arg-type]


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def time_rounds(rounds: int, once: Callable[[], Awaitable[None]]) -> None:
    """Run ``once`` so often, and answer with its median in microseconds."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        await once()
        times.append(time.perf_counter() - started)
    times = sorted(times[rounds // 10 :])
    answer(p50_us=times[len(times) // 2] * 1e6)


def rate(count: int, size: int, started: float) -> None:
    """Answer with what ``count`` messages since ``started`` come to."""
    elapsed = time.perf_counter() - started
    answer(messages=count / elapsed, megabytes=count * size / elapsed / 1e6)
