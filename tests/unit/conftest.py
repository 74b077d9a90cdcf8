"""Most tests leave in-memory endpoints open, because these hold no resources; `test_dropped.py` covers those that do."""

from __future__ import annotations

import pytest

IGNORED = pytest.mark.filterwarnings("ignore:.*was dropped without being closed:ResourceWarning")


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.parent.name in ("mux", "jmux") and item.path.name != "test_dropped.py":
        item.add_marker(IGNORED)
