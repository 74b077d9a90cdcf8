from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.spark.folds.checkpoints import VECTORS, cases, rows_after

from mainstem.spark.folds.state import dump, load, registered_names

STATES: dict[str, Any] = json.loads(VECTORS.read_text())


def test_the_names_in_checkpoints_are_those_of_every_release() -> None:
    assert {name: kind.__name__ for name, kind in registered_names().items()} == {
        "AqueductState": "AqueductState",
        "BymuxState": "BymuxState",
        "ChannelState": "ChannelState",
        "EveryState": "EveryState",
        "Gap": "Gap",
        "JmuxState": "JmuxState",
        "Lane": "MuxStream",
        "MuxState": "MuxState",
        "PathState": "PathState",
        "Receiver": "Receiver",
        "RecordedState": "RecordedState",
        "Request": "Request",
        "Totals": "Totals",
    }


@pytest.mark.parametrize("name", STATES)
def test_a_state_of_an_earlier_release_goes_on_where_it_was(name: str) -> None:
    fold, events, seen = cases()[name]
    state = load(STATES[name]["state"].encode())
    assert json.loads(dump(state)) == json.loads(STATES[name]["state"])
    assert rows_after(fold, state, events[seen:]) == STATES[name]["rows"]


def test_a_class_without_a_registered_name_is_refused() -> None:
    @dataclass
    class Unregistered:
        seen: int = 0

    with pytest.raises(TypeError, match="Unregistered cannot be kept"):
        dump(Unregistered())
