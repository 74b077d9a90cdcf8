"""Most tests leave in-memory endpoints open, because these hold no resources; `test_dropped.py` covers those that do."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

IGNORED = pytest.mark.filterwarnings("ignore:.*was dropped without being closed:ResourceWarning")


def leaves_endpoints(item: pytest.Item) -> bool:
    return item.path.parent.name in ("mux", "jmux") and item.path.name != "test_dropped.py"


def pytest_itemcollected(item: pytest.Item) -> None:
    if leaves_endpoints(item):
        item.add_marker(IGNORED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Collect the endpoints that are held by cycles while their warnings are ignored, not in another file's test."""
    result = yield
    if leaves_endpoints(item) and (nextitem is None or nextitem.path != item.path):
        gc.collect()
    return result
