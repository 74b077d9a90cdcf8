"""States of every fold in the middle of a stream, as checkpoints store them, and the rows that later frames produce.

``fold_states_N.json`` holds the states of version N.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.frames import Connection, Wire, bymux_connection, jmux_connection, lossy_stream
from tests.unit.analysis.folds.folding import events_of_connection, events_of_wire, from_rows

from mainstem.analysis.folds.aqueduct import AqueductFold
from mainstem.analysis.folds.channels import ChannelFold
from mainstem.analysis.folds.combined import RoundTripFold
from mainstem.analysis.folds.fold import VERSION, dump
from mainstem.analysis.folds.multiplexed import MuxFold
from mainstem.analysis.folds.path import PathFold
from mainstem.analysis.folds.recordings import RecordingFold
from mainstem.capture.schema import BYMUX_TYPES, JMUX_TYPES

if TYPE_CHECKING:
    from mainstem.analysis.folds.fold import Fold

VECTORS = Path(__file__).resolve().parents[3] / "vectors"


def cases() -> dict[str, tuple[Fold, list[dict[str, Any]], int]]:
    """Return, by name, a fold, its frames, and how many of them the state has seen."""
    path = events_of_wire(lossy_stream(Wire()))
    bymux = events_of_connection(bymux_connection(Connection("bymux", BYMUX_TYPES)))
    jmux = events_of_connection(jmux_connection(Connection("jmux", JMUX_TYPES)))
    numbers = range(1, 9)
    recorded = [
        {"time_ns": n * 1000, "packet": n * 64, "frame_index": 0, "ends": n % 2, "length": n * 10} for n in numbers
    ]
    channel = [
        {"time_ns": n, "packet": n, "frame_index": 0, "wire_length": 100, "length": 50, "is_nak": n % 2,
         "is_status": 1 - n % 2, "is_error": 0, "member": n % 3}
        for n in numbers
    ]  # fmt: skip
    kinds = ("MESSAGE", "SENT_UNRELIABLE", "ACK_RELIABLE", "FINISH_SENDER")
    aqueduct = [
        {"time_ns": n, "packet": n, "frame_index": 0, "frame_type": kinds[n % 4], "length": n, "number": n, "bits": 3}
        for n in numbers
    ]
    return {
        "path": (PathFold(), path, 55),
        "bymux": (MuxFold(), bymux, len(bymux) // 2),
        "jmux": (MuxFold(), jmux, len(jmux) // 2),
        "round trips": (RoundTripFold(), path, 55),
        "recording": (RecordingFold(), recorded, 4),
        "channel": (ChannelFold(), channel, 4),
        "aqueduct": (AqueductFold(), aqueduct, 4),
    }


def rows_after(fold: Fold, state: Any, events: list[dict[str, Any]]) -> list[Any]:
    """Return the fold's rows for the later frames, as JSON."""
    rows = fold.feed(state, from_rows(events, fold.inputs)) + fold.pending_rows(state)
    result: list[Any] = json.loads(json.dumps(rows))
    return result


def write() -> None:
    """Write the file of this version. Run it once, when the version is new."""
    vectors = {}
    for name, (fold, events, seen) in cases().items():
        state = fold.fresh()
        fold.feed(state, from_rows(events[:seen], fold.inputs))
        vectors[name] = {"state": dump(state).decode(), "rows": rows_after(fold, state, events[seen:])}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(vector)}" for name, vector in vectors.items())
    (VECTORS / f"fold_states_{VERSION}.json").write_text(f"{{\n{lines}\n}}\n")
