"""The event loops in which asyncio tests run: asyncio's own, uvloop's, and asyncio's with eager tasks.

Users choose the loop, and each exposes different mistakes: uvloop's transports are not asyncio's classes, and an eager task runs
inside the call that creates it. `make test` runs every test in asyncio's loop and one file of each family in the others; `make
check` runs the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

try:
    import uvloop
except ImportError:
    uvloop = None

TESTS = Path(__file__).resolve().parents[1]
# Directories and files whose tests run in every loop.
IN_EVERY_LOOP = ("system", "unit/aeron/test_aio.py", "unit/duologue/test_aio_tasks.py")
# The part of these that `make test` runs: one file of each family.
IN_EVERY_LOOP_AT_ONCE = (
    "system/aqueduct/test_serializers.py",
    "system/test_bymux.py",
    "system/test_jmux.py",
    "system/test_mux_connecting.py",
    "system/test_tunnel.py",
    "unit/aeron/test_aio.py",
    "unit/duologue/test_aio_tasks.py",
)

Factory = Callable[[], asyncio.AbstractEventLoop]


def eager_loop() -> asyncio.AbstractEventLoop:
    """Return an asyncio event loop whose tasks start eagerly."""
    loop = asyncio.new_event_loop()
    loop.set_task_factory(asyncio.eager_task_factory)
    return loop


OTHERS: dict[str, Factory] = {}
if uvloop is not None:
    OTHERS["uvloop"] = uvloop.new_event_loop
if hasattr(asyncio, "eager_task_factory"):
    OTHERS["eager"] = eager_loop


def factories(path: Path) -> dict[str, Factory]:
    """Return the event loops for the tests in a file, by name."""
    return {"asyncio": asyncio.new_event_loop, **(OTHERS if _is_below(path, IN_EVERY_LOOP) else {})}


def is_only_for_check(item: pytest.Item) -> bool:
    """Return whether `make test` leaves a test in its event loop to `make check`."""
    callspec = getattr(item, "callspec", None)
    in_another_loop = callspec is not None and callspec.params.get("_asyncio_loop_factory") in OTHERS.values()
    return in_another_loop and not _is_below(item.path, IN_EVERY_LOOP_AT_ONCE)


def _is_below(path: Path, directories: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(TESTS / each) for each in directories)
