"""A micro-batch that Spark repeats has the tasks of its first attempt, with any number of cores and any options of the restart."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from mainstem.recording.rows.schema import MESSAGE_COLUMNS
from mainstem.spark.sources import planning
from mainstem.spark.sources.features import ReadAllAvailable
from mainstem.spark.sources.options import parse_options
from mainstem.spark.sources.recording import RecordingStreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def stream(recordings: Path) -> Iterator[Callable[..., RecordingStreamReader]]:
    opened = []

    def make(**options: str) -> RecordingStreamReader:
        given = parse_options({"path": str(recordings)} | options)
        opened.append(RecordingStreamReader(given, dict.fromkeys(MESSAGE_COLUMNS, True)))
        return opened[-1]

    yield make
    for each in opened:
        each.stop()


def tasks(stream: RecordingStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[list[tuple[int, ...]]]:
    parts: Any = stream.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    return [[(each.descriptor.recording_id, each.start, each.end) for each in part.ranges()] for part in parts]


def drawn(rng: random.Random) -> dict[str, str]:
    """Draw the options that divide a micro-batch; the cores are those of the session."""
    options = {
        "parallelism": str(rng.randint(1, 9)),
        "minPartitions": str(rng.randint(1, 9)),
        "partitionBytes": rng.choice(["1k", "16k", "512m"]),
        "maxRowsPerPartition": str(rng.randint(20, 600)),
    }
    return {name: value for name, value in options.items() if name == "parallelism" or rng.random() < 0.6}


def test_a_restart_with_other_options_repeats_the_same_tasks(stream: Any) -> None:
    rng, divisions = random.Random(46), set()
    for _ in range(40):
        first = stream(**drawn(rng))
        begin = first.initialOffset()
        end = first.latestOffset(begin, ReadAllAvailable())
        planned = tasks(first, begin, end)
        again = stream(**drawn(rng))
        assert tasks(again, begin, end) == planned
        # There is nothing new for the query with other options, so Spark does not run an empty micro-batch.
        assert again.latestOffset(end, ReadAllAvailable()) == end
        divisions.add(str(planned))
    assert len(divisions) > 10


def test_a_restart_on_other_cores_repeats_the_same_tasks(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "launched_parallelism", lambda: 2)
    begin = stream().initialOffset()
    end = stream(partitionBytes="16k").latestOffset(begin, ReadAllAvailable())
    planned = tasks(stream(partitionBytes="16k"), begin, end)
    monkeypatch.setattr(planning, "launched_parallelism", lambda: 7)
    assert tasks(stream(partitionBytes="16k"), begin, end) == planned
    # New micro-batches use the new cores.
    following = stream(partitionBytes="16k").latestOffset(begin, ReadAllAvailable())
    assert tasks(stream(), begin, following) != planned


def test_an_offset_without_a_plan_is_divided_by_the_options(stream: Any) -> None:
    first = stream(parallelism="2", minPartitions="4")
    begin = first.initialOffset()
    end = first.latestOffset(begin, ReadAllAvailable())
    planned = tasks(first, begin, end)
    del end["plan"]
    assert tasks(first, begin, end) == planned
