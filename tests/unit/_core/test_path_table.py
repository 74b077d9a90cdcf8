"""The table that finds a datagram's path, against a dictionary."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
from tests.unit._core.network import SENDER_ADDRESS, STREAM_ID, Pair, frame, modules
from tests.unit._core.uncompiled import load


def check(table: Any, expected: dict[tuple[int, int], object], keys: list[tuple[int, int]]) -> None:
    assert len(table) == table.count == len(expected)
    assert sorted(map(id, table.entries[: table.count])) == sorted(map(id, expected.values()))
    for key in keys:
        index = table.find(*key)
        assert (table.entries[index] if index >= 0 else None) is expected.get(key) is table.get(*key)


@pytest.mark.parametrize("seed", range(20))
def test_the_table_agrees_with_a_dictionary(seed: int) -> None:
    choices = random.Random(seed)
    table = load("driver.table").PathTable()
    keys = [(choices.randrange(-3, 3), choices.randrange(-5, 5)) for _ in range(40)]
    expected: dict[tuple[int, int], object] = {}
    for _ in range(300):
        key = choices.choice(keys)
        if choices.random() < 0.5:
            path = expected[key] = object()
            table.put(*key, path)
        else:
            assert table.remove(*key) is expected.pop(key, None)
        check(table, expected, keys)


@pytest.mark.parametrize("seed", range(4))
def test_the_compiled_table_forgets_removed_sessions_only(seed: int) -> None:
    core = modules(compiled=True)
    choices = random.Random(seed)
    pair = Pair(core)
    silences = pair.receive_endpoint.silences
    silenced: set[int] = set()
    for session_id in choices.choices(range(100), k=500):
        if session_id in silenced:
            silenced.remove(session_id)
            silences.remove(session_id, STREAM_ID)
        else:
            silenced.add(session_id)
            silences.put(session_id, STREAM_ID, core.receive_path.Silence(pair.now_ns + 1))
    reported = set()
    for session_id in range(100):
        pair.receiver_transport.deliver(frame(bytes(32), term_offset=0, session_id=session_id), SENDER_ADDRESS)
        pair.receiver.run_cycle(pair.now_ns)
        if pair.receiver.events.take():
            reported.add(session_id)
    assert len(silences) == len(silenced)
    assert reported == set(range(100)) - silenced


@pytest.mark.parametrize("step", [1, 16, 0xFFFF, 0x10000, 0x100000])
@pytest.mark.parametrize("field", [0, 1])
def test_removing_all_paths_takes_time_linear_in_their_number(field: int, step: int) -> None:
    table = load("driver.table").PathTable()
    keys = [(number * step, 7) if field == 0 else (7, number * step) for number in range(512)]
    for key in keys:
        table.put(*key, key)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        for key in keys:
            table.remove(*key)
    finally:
        sys.setprofile(None)
    assert len(table) == 0
    assert calls < 100 * len(keys)
