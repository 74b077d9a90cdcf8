"""What makes the tables of an analysis: this process, or Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem.analysis.options import Inputs
    from mainstem.analysis.summary import RowDict


class Backend(Protocol):
    """Makes the tables of an analysis, and reads them: ``LocalTables`` or ``SparkTables``."""

    def write_frames(self, inputs: Inputs) -> None:
        """Writes ``frames``, of captures and of tables of frames that were written before."""

    def write_tables(self) -> None:
        """Writes every other table of frames but ``problems``."""

    def write_recorded_sessions(self, paths: Sequence[str]) -> None:
        """Writes ``recorded_sessions``, of directories of recordings."""

    def write_problems(self, *, frames: bool, recordings: Sequence[str]) -> None:
        """Writes ``problems``, of the frames where there are any and of recordings."""

    def query(self, sql: str) -> list[RowDict]:
        """The rows of a query in which ``{name}`` is a table and ``{div}`` divides whole numbers."""
        ...

    def run_all(self, jobs: Sequence[Callable[[], object]]) -> None:
        """Runs jobs that make queries."""

    def close(self) -> None:
        """Ends what was opened. What was written stays."""
