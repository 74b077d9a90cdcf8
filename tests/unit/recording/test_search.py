from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, record

from mainstem.recording import Recorder, open_recording
from mainstem.recording.index import index_file
from mainstem.recording.rows.scan_range import first_reaching, last_before

if TYPE_CHECKING:
    from pathlib import Path

TERM = 65536
JOINED = TERM * 3 // 4


@pytest.fixture(params=[True, False], ids=["index", "no index"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[int]]:
    """A recording that starts in the middle of a term, with or without an index, and the end positions of its messages."""
    rng, stream, ends = random.Random(3), Stream(position=JOINED), []
    with Recorder(tmp_path, segment_length=2 * TERM) as recorder:
        writer = recorder.start(session_id=77, stream_id=1001, initial_term_id=-5, term_buffer_length=TERM,
                                mtu_length=1408, join_position=JOINED)  # fmt: skip
        for number in range(300):
            record(writer, stream, [bytes(rng.randrange(4000))], time_ns=number * 10_000_000)
            ends.append(stream.position)
    if not request.param:
        index_file(tmp_path, 0).unlink()
    return tmp_path, ends


def positions_around(ends: list[int]) -> list[int]:
    rng = random.Random(5)
    chosen = [0, 1, JOINED, JOINED + 1, ends[0], ends[-1], ends[-1] + 1, ends[-1] + TERM]
    chosen += [end + rng.choice([-32, -1, 0, 1, 32]) for end in rng.sample(ends, 60)]
    return chosen + [rng.randrange(ends[-1]) for _ in range(60)]


def test_a_range_of_positions_is_found_to_the_message(recorded: tuple[Path, list[int]]) -> None:
    path, ends = recorded
    with open_recording(path, 0) as reader:
        last = reader.end_position()
        for position in positions_around(ends):
            begin = first_reaching(reader, position, JOINED, last)
            left_out = sum(end < position for end in ends)
            assert reader.messages_before(begin) == left_out
            stop = last_before(reader, position, JOINED, last, frames=False)
            assert reader.messages_before(stop) == left_out
            around = last_before(reader, position, JOINED, last, frames=True)
            assert reader.messages_before(around) in (left_out, left_out + 1)
            assert around >= min(position - 1, last)
            # A range that begins there has no more frames.
            assert last_before(reader, position, around, last, frames=True) == around


def test_a_problem_is_left_for_the_reader_to_find(recorded: tuple[Path, list[int]]) -> None:
    path, ends = recorded
    problem = ends[100]
    with (path / f"0-{problem // (2 * TERM) * 2 * TERM}.rec").open("r+b") as file:
        file.seek(problem % (2 * TERM))
        file.write(b"\x05\0\0\0")
    with open_recording(path, 0) as reader:
        last = reader.end_position()
        assert last_before(reader, problem + 100, JOINED, last, frames=False) == last
        assert problem - 2 * TERM < first_reaching(reader, problem + 100, JOINED, last) <= problem
    (path / f"0-{4 * TERM}.rec").unlink()
    with open_recording(path, 0) as reader:
        assert last_before(reader, 5 * TERM + 100, JOINED, last, frames=False) == last
        # Even before the first index entry of the missing segment.
        for wanted in (4 * TERM + 3000, 5 * TERM + 100):
            assert 4 * TERM <= first_reaching(reader, wanted, JOINED, last) <= wanted


@pytest.mark.parametrize("frames", [False, True])
def test_a_range_that_starts_at_or_after_its_end_is_empty(recorded: tuple[Path, list[int]], frames: bool) -> None:
    path, ends = recorded
    with open_recording(path, 0) as reader:
        for position in (0, ends[5], ends[9], ends[10]):
            assert last_before(reader, position, ends[10], ends[-1], frames=frames) == ends[10]
