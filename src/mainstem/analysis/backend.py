"""The backend of an analysis: this process, or Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem.analysis.options import Inputs
    from mainstem.analysis.summary import RowDict


class Backend(Protocol):
    """Makes and reads the tables of an analysis: ``LocalTables`` or ``SparkTables``."""

    def write_frames(self, inputs: Inputs) -> None:
        """Write ``frames`` from captures and from existing tables of frames."""

    def write_tables(self) -> None:
        """Write every other table of frames except ``problems``."""

    def write_recorded_sessions(self, paths: Sequence[str]) -> None:
        """Write ``recorded_sessions`` from directories of recordings."""

    def write_problems(self, *, frames: bool, recordings: Sequence[str]) -> None:
        """Write ``problems`` of the frames, if any, and of recordings."""

    def query(self, sql: str) -> list[RowDict]:
        """Return the rows of a query in which ``{name}`` is a table and ``{div}`` divides integers."""
        ...

    def run_all(self, jobs: Sequence[Callable[[], object]]) -> None: ...

    def close(self) -> None: ...
