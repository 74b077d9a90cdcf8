"""Configuration of all tests: property tests draw the same examples in every run, so that a failure is reproducible.

``HYPOTHESIS_PROFILE=check`` draws many more examples, also the same in every run; ``explore`` draws new ones.

Asyncio tests of event-loop code run in every kind of loop (tests/support/event_loops.py).

``MAINSTEM_LONG_SHARE=3`` runs a third of the long tests, chosen by the commit.

In a run with several workers (pytest-xdist), all tests of a file run on one worker, and so do all Spark tests, which share one JVM.
The slowest tests run first, and the many short files fill the gaps at the end.
"""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tests.support import event_loops, ports
from tests.support.case_selection import commit, is_in_share

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("check", derandomize=True, deadline=None, max_examples=1000)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

ports.guard_slots()

LONG_SHARE = int(os.environ.get("MAINSTEM_LONG_SHARE", "1"))
# With more objects than this, a full garbage collection takes a tenth of a second.
FREEZE_OBJECTS = 50_000
FIRST = ("spark", "interop", "system", "simulation")


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the event loops in which an asyncio test runs."""
    return event_loops.factories(item.path)


# Run first, so that `-m "not long"` sees the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort tests, slowest first, mark those that only `make check` runs in other event loops, and take a share of the long ones."""
    items.sort(key=_priority)
    for item in items:
        if event_loops.is_only_for_check(item):
            item.add_marker(pytest.mark.long)
    if LONG_SHARE > 1:
        chosen_by = commit()
        config.hook.pytest_deselected(items=[item for item in items if _is_left_out(item, chosen_by)])
        items[:] = [item for item in items if not _is_left_out(item, chosen_by)]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collection, then freeze them and their modules: saves half a second per later GC run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """After the last test of a file, freeze what libraries and pytest keep, which every later collection would look at again."""
    result = yield
    if (nextitem is None or nextitem.path != item.path) and len(gc.get_objects()) > FREEZE_OBJECTS:
        gc.collect()
        gc.freeze()
    return result


def _is_left_out(item: pytest.Item, chosen_by: str) -> bool:
    return item.get_closest_marker("long") is not None and not is_in_share(item.nodeid, LONG_SHARE, chosen_by)


def _priority(item: pytest.Item) -> int:
    return next((priority for priority, name in enumerate(FIRST) if item.get_closest_marker(name)), len(FIRST))


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.has_plugin("xdist"):
        from tests.support.scheduling import Scheduler

        config.pluginmanager.register(Scheduler())
