"""What an iterator over a replay reports at its end, depending on how its image ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.archive.test_interruptions import connected, run

from mainstem.archive.calls import NO_END, ReplayFeed, StartedReplay
from mainstem.errors import ConnectionLost


def check(*, ended: bool = False, revoked: bool = False, length: int | None = None, end: int = NO_END) -> None:
    """Check the end of a replay of the positions 1024 to 4096 while its archive is alive."""
    calls: Any = connected()[0]
    calls.run = run
    feed = ReplayFeed(calls, 7, StartedReplay(1 << 32, 5), length, end)
    feed.image = SimpleNamespace(
        position=4096, join_position=1024, is_end_of_stream=ended, is_publication_revoked=revoked
    )
    feed.check(SimpleNamespace(images=()))


def test_losing_the_image_before_the_end_does_not_complete_a_replay() -> None:
    with pytest.raises(ConnectionLost, match=r"at position 4096, before its end: its stream was lost; replay again"):
        check()
    with pytest.raises(ConnectionLost):
        check(length=3073, end=8192)


@pytest.mark.parametrize(
    "how",
    [{"ended": True}, {"revoked": True}, {"end": 4096}, {"length": 3072}],
    ids=["the archive ended it", "it was stopped", "the recording ends there", "it has the length"],
)
def test_the_conditions_that_end_a_replay(how: dict[str, Any]) -> None:
    check(**how)
