"""What a table is, and how one is taken from what a fold tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.capture.schema import Column
from mainstem.spark.folds.fold import REVISION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    from mainstem.spark.folds.fold import Fold

TIME = Column("time", "timestamp", "when the row was, in microseconds; the columns in nanoseconds are exact")


@dataclass(frozen=True)
class Table:
    """A table: what a row of it is, its columns in order, and those that together name a row.

    ``is_stateful`` tables need what came before: in streaming, a row of theirs comes again when it has changed, with a
    higher ``revision``, and ``latest`` keeps the last form of each. Rows of the others come once.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    identity: tuple[str, ...]
    is_stateful: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(column.name for column in self.columns)


def of_fold(fold: Fold, name: str, meaning: str) -> Table:
    """The table of that name among those that a fold makes."""
    kind = fold.kind(name)
    keys = tuple(column for column, _ in fold.keys)
    identity = (*(key.name for key in keys), *kind.identity)
    return Table(name, meaning, (*keys, TIME, *kind.columns, REVISION), identity, True)


def pick(told: DataFrame, fold: Fold, name: str) -> DataFrame:
    """One table out of everything that ``folds.run.apply`` made of a fold."""
    keys = [column.name for column, _ in fold.keys]
    time = f"timestamp_micros({name}.{fold.kind(name).instant} div 1000) as time"
    return told.where(f"kind = '{name}'").selectExpr(*keys, time, f"{name}.*", REVISION.name)


def tell(fold: Fold, frames: DataFrame, name: str) -> DataFrame:
    """One table of a fold, straight from the frames."""
    from mainstem.spark.folds.run import apply

    return pick(apply(fold, frames, name), fold, name)


def latest(rows: DataFrame, identity: Iterable[str]) -> DataFrame:
    """The last form of each row of what a streaming query wrote of a stateful table."""
    from pyspark.sql import functions as f

    names = rows.columns
    newest = rows.groupBy(*identity).agg(f.max_by(f.struct(*names), f.col(REVISION.name)).alias("newest"))
    return newest.select("newest.*").select(*names)
