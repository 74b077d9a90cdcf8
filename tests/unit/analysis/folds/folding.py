"""Run a fold over handmade frames, in chunks."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from mainstem.analysis.folds.fold import Events, dump, load
from mainstem.analysis.folds.multiplexed import MuxFold
from mainstem.analysis.folds.mux import GONE
from mainstem.analysis.folds.path import PathFold

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.support.frames import Connection, Wire

    from mainstem.analysis.folds.fold import Fold, Row


def from_rows(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> Events:
    """Make events from dicts. Missing numbers are 0."""
    dicts = list(rows)
    columns = {}
    for name in names:
        values = [row.get(name, 0) for row in dicts]
        texts = any(isinstance(value, str) for value in values)
        columns[name] = np.array(values, object if texts else np.int64)
    return Events(columns, len(dicts))


def run(fold: Fold, events: list[dict[str, Any]], cuts: list[int]) -> list[Row]:
    """Return the final form of every row. At each cut, the state is serialized and restored."""
    state, rows = fold.fresh(), []
    for start, stop in pairwise([0, *cuts, len(events)]):
        rows += fold.feed(state, from_rows(events[start:stop], fold.inputs))
        rows += fold.pending_rows(state)
        state = load(dump(state))
    return latest(fold, rows)


def latest(fold: Fold, rows: list[Row]) -> list[Row]:
    found: dict[Any, Row] = {}
    for row in rows:
        key = (row.kind, *(row.values[name] for name in fold.kind(row.kind).identity))
        if key not in found or found[key].revision <= row.revision:
            found[key] = row
    return sorted(found.values(), key=lambda row: (row.kind, row.revision, str(row.values)))


def events_of_wire(wire: Wire) -> list[dict[str, Any]]:
    """Return rows like the fold's inputs, without Spark and without nulls."""
    out = []
    for row in wire.rows:
        sender = f"{row['src']}:{row['src_port']}" if row["type"] in (0, 1, 5) else ""
        out.append({name: row.get(name) or 0 for name in PathFold.inputs} | {"sender": sender})
    return out


CODES = {"bymux": 1, "jmux": 2, "tcp": 0}


def events_of_connection(connection: Connection) -> list[dict[str, Any]]:
    out = []
    for row in connection.rows:
        event = {name: row.get(name) or 0 for name in MuxFold.inputs}
        event |= {"protocol": CODES[row["protocol"]], "from_client": int(row["from_client"])}
        event["stream"] = -1 if row["mux_stream_id"] is None else row["mux_stream_id"]
        event["cookie"] = -1 if row["cookie"] is None else row["cookie"]
        event["type"] = GONE if row["protocol"] == "tcp" else row["type"]
        out.append(event)
    return out
