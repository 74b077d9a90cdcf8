"""Which worker of pytest-xdist runs which tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest

SPARK = "tests/spark/"


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc] # pytest-xdist says nothing of its types
    """A file's tests are one worker's, and those of all files that need a JVM."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return SPARK if file.startswith(SPARK) else file


class Scheduler:
    """Of pytest-xdist: chooses the scheduler, where there are workers."""

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: object) -> FileScheduling:
        return FileScheduling(config, log)
