"""What an iterator over a replay reports at its end, depending on how its image ended and where the archive says it should."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.archive.test_interruptions import connected, run

from mainstem.archive.calls import Promise, ReplayFeed, ReplayOptions, StartedReplay
from mainstem.errors import ConnectionLost

ACTIVE = -1


class SteppingClock:
    """A clock that advances whenever it is read."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        self.now_ns += 10_000_000
        return self.now_ns


def check(
    *,
    ended: bool = False,
    revoked: bool = False,
    end: int = 0,
    is_final: bool = False,
    stop: int = ACTIVE,
    is_stopped: bool = False,
    **options: Any,
) -> None:
    """Check the end of a replay of the positions 1024 to 4096 while its archive is alive, with ``stop`` as its stop position."""
    calls: Any
    calls, archive = connected()
    calls.run, calls.clock = run, SteppingClock()
    archive.answer = stop
    request = ReplayOptions(7, "aeron:ipc", 1002, **options)
    feed = ReplayFeed(calls, StartedReplay(1 << 32, 5), request, Promise(end, is_final))
    feed.is_stopped = is_stopped
    feed.image = SimpleNamespace(
        position=4096, join_position=1024, is_end_of_stream=ended, is_publication_revoked=revoked
    )
    feed.check(SimpleNamespace(images=()))


@pytest.mark.parametrize(
    ("how", "end", "why"),
    [
        ({}, None, "its stream was lost"),
        ({"end": 8192, "is_final": True, "length": 3073}, 4097, "its stream was lost"),
        ({"revoked": True}, None, "the archive stopped it"),
        ({"revoked": True, "stop": 4096}, None, "the archive stopped it"),
        ({"revoked": True, "limit_counter_id": 3}, None, "the archive stopped it"),
        ({"ended": True, "end": 8192, "is_final": True, "stop": 4096}, 8192, "the archive ended it there"),
        ({"ended": True, "length": 9000, "stop": 5120}, 5120, "the archive ended it there"),
        ({"ended": True, "end": 6144, "stop": 2048}, 6144, "the archive ended it there"),
        ({"ended": True}, None, "its recording is still active"),
    ],
    ids=[
        "the image was lost",
        "the image was lost within the length",
        "it was stopped",
        "it was stopped at the end of a truncated recording",
        "it was stopped before its counter",
        "the recording was longer when it began",
        "the recording became longer",
        "the recording was truncated after it stopped",
        "the recording has not stopped",
    ],
)
def test_a_replay_that_ends_early_is_an_error(how: dict[str, Any], end: int | None, why: str) -> None:
    before = "its end" if end is None else f"position {end}"
    expected = f"ended at position 4096, before {before}: {why}; replay again from position=4096"
    with pytest.raises(ConnectionLost, match=expected) as caught:
        check(**how)
    assert (caught.value.position, caught.value.end) == (4096, end)


@pytest.mark.parametrize(
    "how",
    [
        {"end": 4096, "is_final": True},
        {"length": 3072},
        {"ended": True, "stop": 4096},
        {"ended": True, "stop": 4096, "length": 9000},
        {"ended": True, "limit_counter_id": 3},
        {"revoked": True, "is_stopped": True},
    ],
    ids=[
        "the recording ends there",
        "it has the length",
        "the recording stopped there",
        "the recording stopped before the length",
        "its counter stopped there",
        "this client stopped it",
    ],
)
def test_the_conditions_that_end_a_replay(how: dict[str, Any]) -> None:
    check(**how)
