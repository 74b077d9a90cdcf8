"""What every tier shares: property tests draw the same examples every time, so that a red run is red for everybody.

``HYPOTHESIS_PROFILE=check`` draws many more, the same every time too; ``explore`` draws new ones.

The asyncio tests of everything that runs in an event loop run in every kind of loop (tests/support/event_loops.py).

In a run with several workers (pytest-xdist) a file is one worker's, and all tests of Spark are one worker's, so that there is one
JVM for its session. What takes longest comes first, and the many short files fill the gaps at the end.
"""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tests.support import event_loops, ports

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("check", derandomize=True, deadline=None, max_examples=1000)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

ports.guard_slots()

FIRST = ("spark", "interop", "system", "simulation")


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loops that an asyncio test runs in."""
    return event_loops.factories(item.path)


# First, so that `-m "not long"` sees the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests: what takes longest comes first. Marks those that only `make check` runs in other event loops."""
    items.sort(key=_place)
    for item in items:
        if event_loops.is_only_for_check(item):
            item.add_marker(pytest.mark.long)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections, and leaves tests and modules out of later ones: half a second each."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def _place(item: pytest.Item) -> int:
    return next((place for place, name in enumerate(FIRST) if item.get_closest_marker(name)), len(FIRST))


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.has_plugin("xdist"):
        from tests.support.scheduling import Scheduler

        config.pluginmanager.register(Scheduler())
