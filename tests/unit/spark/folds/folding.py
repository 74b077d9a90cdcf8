"""Runs a fold over frames made by hand, in pieces."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from mainstem.spark.folds.events import from_rows
from mainstem.spark.folds.state import dump, load

if TYPE_CHECKING:
    from mainstem.spark.folds.fold import Fold, Row


def run(fold: Fold, events: list[dict[str, Any]], cuts: list[int]) -> list[Row]:
    """Every row in its last form; the state goes through its bytes at each cut."""
    state, rows = fold.fresh(), []
    for start, stop in pairwise([0, *cuts, len(events)]):
        rows += fold.feed(state, from_rows(events[start:stop], fold.inputs))
        rows += fold.unsettled(state)
        state = load(dump(state))
    return latest(fold, rows)


def latest(fold: Fold, rows: list[Row]) -> list[Row]:
    found: dict[Any, Row] = {}
    for row in rows:
        key = (row.kind, *(row.values[name] for name in fold.kind(row.kind).identity))
        if key not in found or found[key].revision <= row.revision:
            found[key] = row
    return sorted(found.values(), key=lambda row: (row.kind, row.revision, str(row.values)))
