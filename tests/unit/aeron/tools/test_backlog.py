"""Bytes between stages."""

from __future__ import annotations

from tests.unit.aeron.tools.directory import WINDOW, MadeUpDirectory

from mainstem.aeron.tools.backlog import Stage, stages
from mainstem.aeron.tools.streams import group_streams


def of(made: MadeUpDirectory) -> dict[str, Stage]:
    (stream,) = group_streams(made.sample())
    return {s.kind: s for s in stages(stream)}


def test_each_stage_counts_the_bytes_it_is_behind_the_previous_one() -> None:
    made = MadeUpDirectory().publication(9600, limit=10_000, sent=6400, sender_limit=7000)
    found = of(made.image(3200, high_water_mark=6400).subscriber(1600).spy(960))
    assert {k: s.backlog for k, s in found.items()} == {
        "publisher": None,
        "sender": 3200,
        "receiver": 3200,
        "subscriber": 1600,
        "spy": 8640,
    }


def test_each_stage_shows_its_room_before_back_pressure() -> None:
    made = MadeUpDirectory().publication(9600, limit=10_000, sent=6400, sender_limit=7000)
    found = of(made.image(3200, high_water_mark=6400).subscriber(1600).spy(960))
    assert {k: s.room for k, s in found.items()} == {
        "publisher": 400,
        "sender": 600,
        "receiver": 1600 + WINDOW - 6400,
        "subscriber": WINDOW - 1600,
        "spy": WINDOW - 8640,
    }


def test_ipc_has_no_sender() -> None:
    made = MadeUpDirectory().publication(960, limit=WINDOW, channel="aeron:ipc")
    assert list(of(made.subscriber(320, of=10, channel="aeron:ipc"))) == ["publisher", "subscriber"]


def test_positions_read_a_moment_apart_give_no_negative_backlog() -> None:
    made = MadeUpDirectory().publication(960, limit=640, sent=1024, sender_limit=960)
    found = of(made)
    assert (found["publisher"].room, found["sender"].backlog, found["sender"].room) == (0, 0, 0)


def test_the_congestion_window_bounds_the_receivers_room() -> None:
    assert of(MadeUpDirectory().image(960, cubic_window=4096).subscriber(960))["receiver"].room == 4096
