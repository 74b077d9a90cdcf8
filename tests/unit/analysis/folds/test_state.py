from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.analysis.folds.checkpoints import VECTORS, cases, rows_after

from mainstem.analysis.folds.fold import VERSION, checkpointed, dump, load
from mainstem.errors import ConfigurationError

STATES: dict[int, dict[str, Any]] = {
    version: json.loads((VECTORS / f"fold_states_{version}.json").read_text()) for version in range(1, VERSION + 1)
}


@pytest.mark.parametrize("version", STATES)
@pytest.mark.parametrize("name", STATES[VERSION])
def test_every_version_of_a_state_continues_at_its_position(name: str, version: int) -> None:
    fold, events, seen = cases()[name]
    state = load(STATES[version][name]["state"].encode())
    assert_covers(json.loads(dump(state)), json.loads(STATES[VERSION][name]["state"]))
    assert_covers(rows_after(fold, state, events[seen:]), STATES[version][name]["rows"])


def assert_covers(now: Any, before: Any) -> None:
    """Check that ``now`` has everything that ``before`` had; a later release may add fields and columns."""
    if isinstance(before, dict):
        for key, value in before.items():
            assert_covers(now[key], value)
    elif isinstance(before, list):
        assert len(now) == len(before)
        for each, value in zip(now, before, strict=True):
            assert_covers(each, value)
    else:
        assert now == before


@checkpointed("Later")
@dataclass
class Later:
    """A state with one field more than in the previous release."""

    seen: int = 0
    further: int = 5


def test_a_missing_field_of_a_state_has_its_default_and_an_unknown_one_is_refused() -> None:
    assert load(b'{"version":1,"state":{"#":"Later","seen":3}}') == Later(3, 5)
    with pytest.raises(ConfigurationError, match="the checkpoint's Later has 'lost', which this release does not have"):
        load(b'{"version":1,"state":{"#":"Later","lost":3}}')
    with pytest.raises(ConfigurationError, match="the checkpoint has a state 'Lost', which this release does not have"):
        load(b'{"version":1,"state":{"#":"Lost"}}')
    with pytest.raises(ConfigurationError, match="states of version 2; this release reads up to version 1"):
        load(b'{"version":2,"state":{}}')


def test_a_class_without_a_registered_name_is_refused() -> None:
    @dataclass
    class Unregistered:
        seen: int = 0

    with pytest.raises(TypeError, match="Unregistered cannot be kept"):
        dump(Unregistered())
