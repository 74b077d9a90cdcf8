"""Assign tests to the workers of pytest-xdist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest

SPARK = "tests/spark/"


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc] # pytest-xdist says nothing of its types
    """Runs the tests of a file on one worker, and those of all files that need a JVM on one worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return SPARK if file.startswith(SPARK) else file


class Scheduler:
    """A pytest plugin that selects this scheduler if there are workers."""

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: object) -> FileScheduling:
        return FileScheduling(config, log)
