"""Connections under everything that a network and an application may do, seed by seed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from aqueduct_world import World
from tests.support.tiers import long_after

from mainstem.aqueduct import lifecycle
from mainstem.aqueduct.channel_halves import ReceiverHalf
from mainstem.aqueduct.connection_state import ConnectionState

if TYPE_CHECKING:
    from mainstem.aqueduct.streams import Stream

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("MAINSTEM_AQUEDUCT_SEEDS", "200"))
ONCE_FAILED = (1, 11, 13, 17, 20, 22, 39, 189, 209, 285, 327, 673, 850)


def run(seed: int, connections: int, *, short: bool = False) -> None:
    try:
        World(seed, connections=connections, short=short).run()
    except Exception as error:
        command = f"python tests/simulation/aqueduct/aqueduct_world.py --seed {seed} --connections {connections}"
        command += " --short" if short else ""
        raise AssertionError(f"{error}\nreplay: {command}") from error


@pytest.mark.parametrize("first", long_after(1, range(0, SEEDS, 50)))
def test_one_connection_keeps_every_promise(first: int) -> None:
    for seed in range(first, first + 50):
        run(seed, 1)


@pytest.mark.parametrize("connections", long_after(1, [2, 3]))
def test_several_connections_keep_every_promise(connections: int) -> None:
    for seed in range(SEEDS // 4):
        run(10_000 + seed, connections)


@pytest.mark.parametrize("connections", long_after(1, [1, 2, 3]))
def test_plain_messages_keep_every_promise_on_their_short_ways_too(connections: int) -> None:
    for seed in range(SEEDS // 4):
        run(20_000 + seed, connections, short=True)


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_seeds_that_once_failed_do_not_fail_again(seed: int) -> None:
    run(seed, 1)


@pytest.mark.parametrize("how", ["cancel", "close", "break"])
def test_an_interruption_at_any_step_leaves_nothing_behind(how: str) -> None:
    for step in range(0, 100, 2):
        World(7 + step).run(actions=100, interrupt=(step, how))


def planted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, fault: object) -> int:
    """How many of a few seeds notice a fault that was planted."""
    monkeypatch.setattr(owner, name, fault)
    failed = 0
    for seed in range(60):
        try:
            World(seed).run()
        except Exception:
            failed += 1
    return failed


def test_the_world_notices_a_reset_that_overtakes_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def reset_at_once(self: ConnectionState, stream: Stream, code: int) -> None:
        if not stream.out_done:
            self.out.reset(stream.stream_id, code)
            stream.out_done = True
            self.forget_if_done(stream)

    assert planted(monkeypatch, ConnectionState, "reset_stream", reset_at_once) > 0


def test_the_world_notices_a_nack_that_does_not_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: ReceiverHalf, number: int, limits: object) -> bool:
        return True

    assert planted(monkeypatch, ReceiverHalf, "note_unreliable", forgetful) > 0


def test_the_world_notices_links_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planted(monkeypatch, lifecycle, "lose_messages", lambda core, sender, entries: None) > 0


def test_a_run_is_its_seed() -> None:
    def trace(seed: int) -> tuple[int, list[str]]:
        world = World(seed)
        world.run()
        return world.now, [str(fate) for fate in world.messages.values()]

    assert trace(5) == trace(5)
    assert trace(5) != trace(6)
