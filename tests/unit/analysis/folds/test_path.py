from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from tests.support.case_selection import long_after
from tests.support.frames import BEGUN_NS, MS, Wire, lossy_stream
from tests.unit.analysis.folds.folding import events_of_wire, run

from mainstem.analysis.folds.path import PathFold

FOLD = PathFold()


def told(wire: Wire, kind: str) -> list[dict[str, Any]]:
    return [row.values for row in run(FOLD, events_of_wire(wire), []) if row.kind == kind]


@pytest.mark.parametrize("seed", long_after(6, range(20)))
def test_rows_do_not_depend_on_where_the_frames_were_cut(seed: int) -> None:
    rng = random.Random(seed)
    wire = Wire()
    lossy_stream(wire, frames=rng.randrange(5, 200))
    events = events_of_wire(wire)
    if seed % 3 == 0:
        events = [event for event in events if event["type"] != 5]  # as in a capture that started too late for SETUP
    if seed % 5 == 4:
        rng.shuffle(events)
        for number, event in enumerate(events):
            event["time_ns"] = BEGUN_NS + number * 50_000
    whole = run(FOLD, events, [])
    cuts = sorted(rng.sample(range(1, len(events)), min(rng.randrange(1, 40), len(events) - 1)))
    assert run(FOLD, events, cuts) == whole
    assert run(FOLD, events, list(range(1, len(events)))) == whole


def test_a_requested_and_filled_gap_was_lost_before_the_capture() -> None:
    wire = Wire()
    wire.setup()
    position = wire.data(0)
    wire.wait(1)
    end = wire.data(position + 256)
    wire.wait(1)
    wire.nak(position, position + 256)
    wire.wait(2)
    assert wire.data(wire.data(position)) == end - 128
    (gap,) = told(wire, "gaps")
    assert (gap["position"], gap["end_position"], gap["length"]) == (128, 384, 256)
    assert (gap["term_id"], gap["term_offset"]) == (-3, 128)
    assert (gap["place"], gap["status"], gap["naks"]) == ("before the capture", "repaired", 1)
    assert gap["noticed_ns"] == BEGUN_NS + 1 * MS
    assert gap["repair_ns"] == 3 * MS
    assert [(r["reason"], r["since_nak_ns"]) for r in told(wire, "retransmits")] == [("lost before", 2 * MS)] * 2
    assert [(r["method"], r["rtt_ns"]) for r in told(wire, "rtt")] == [("NAK", 2 * MS)]


def test_a_nak_for_captured_data_shows_loss_after_the_capture() -> None:
    wire = Wire()
    wire.setup()
    wire.data(wire.data(0))
    wire.nak(128, 256)
    wire.nak(128, 256)
    wire.wait(3)
    wire.data(128)
    wire.wait(1)
    wire.nak(128, 256)
    wire.wait(100)
    wire.heartbeat(256)
    (gap,) = told(wire, "gaps")
    assert (gap["place"], gap["status"], gap["naks"], gap["repair_ns"]) == ("after the capture", "repaired", 3, 3 * MS)
    assert [r["reason"] for r in told(wire, "retransmits")] == ["lost after"]
    (session,) = told(wire, "sessions")
    assert (session["gaps"], session["lost_bytes"], session["retransmits"], session["naks"]) == (1, 128, 1, 3)


def test_data_that_receivers_passed_without_naks_was_missed_by_the_capture() -> None:
    wire = Wire()
    wire.setup()
    wire.data(wire.data(0) + 128)
    wire.status(384, 4096)
    (gap,) = told(wire, "gaps")
    assert (gap["place"], gap["status"], gap["repaired_ns"]) == ("in the capture", "passed", None)


def test_unrequested_late_data_was_reordered() -> None:
    wire = Wire()
    wire.setup()
    wire.data(wire.data(0) + 128)
    wire.data(128)
    (gap,) = told(wire, "gaps")
    assert gap["status"] == "reordered"
    (session,) = told(wire, "sessions")
    assert (session["retransmits"], session["duplicates"]) == (0, 0)


def test_requested_data_seen_first_after_the_nak_was_lost_before_the_capture() -> None:
    wire = Wire()
    wire.setup()
    position = wire.data(0)
    wire.wait(1)
    wire.nak(position, position + 128)
    wire.wait(2)
    end = wire.data(wire.data(position))
    wire.status(end, 4096)
    (gap,) = told(wire, "gaps")
    assert (gap["position"], gap["length"], gap["place"], gap["status"]) == (128, 128, "before the capture", "repaired")
    assert gap["repair_ns"] == 2 * MS
    assert [(r["reason"], r["position"]) for r in told(wire, "retransmits")] == [("lost before", 128)]


def test_a_range_partly_captured_was_lost_on_both_sides() -> None:
    wire = Wire()
    wire.setup()
    position = wire.data(wire.data(0))
    wire.nak(128, position + 128)
    wire.wait(1)
    wire.data(wire.data(128))
    gaps = sorted((gap["position"], gap["place"], gap["status"]) for gap in told(wire, "gaps"))
    assert gaps == [(128, "after the capture", "repaired"), (256, "before the capture", "repaired")]


def test_naks_that_crossed_the_repair_belong_to_the_same_loss() -> None:
    wire = Wire()
    wire.setup()
    first = wire.data(0)
    wire.data(first + 128)
    wire.wait(100)  # one round trip beyond the capture point
    wire.nak(first, first + 128)
    wire.wait(60)
    wire.data(first)
    wire.wait(90)
    wire.nak(first, first + 128)
    (gap,) = told(wire, "gaps")
    assert (gap["place"], gap["status"], gap["naks"]) == ("before the capture", "repaired", 2)
    wire.wait(30)
    wire.nak(first, first + 128)
    assert sorted((gap["place"], gap["naks"]) for gap in told(wire, "gaps")) == [
        ("after the capture", 1),
        ("before the capture", 2),
    ]


def test_one_nak_for_what_the_capture_missed_and_what_it_saw_was_lost_on_both_sides() -> None:
    wire = Wire()
    wire.setup()
    first = wire.data(0)
    second = wire.data(first + 128)  # the gap is [128, 256)
    third = wire.data(second)
    wire.data(third)
    wire.nak(first, third)
    wire.wait(2)
    for position in (first, first + 128, second):
        wire.data(position)
    gaps = {(gap["position"], gap["end_position"]): gap for gap in told(wire, "gaps")}
    assert {place: (gap["place"], gap["status"], gap["naks"]) for place, gap in gaps.items()} == {
        (128, 256): ("before the capture", "repaired", 1),
        (256, 512): ("after the capture", "repaired", 1),
    }
    assert [row["reason"] for row in told(wire, "retransmits")] == ["lost before", "lost after", "lost after"]
    (session,) = told(wire, "sessions")
    assert (session["duplicates"], session["retransmits"], session["lost_bytes"]) == (0, 3, 384)


def test_a_range_that_a_receiver_requested_before_is_one_gap() -> None:
    wire = Wire()
    wire.setup()
    position = wire.data(0)
    wire.nak(position, position + 96)
    wire.heartbeat(position + 96)
    (gap,) = told(wire, "gaps")
    assert (gap["position"], gap["length"], gap["place"], gap["status"]) == (128, 96, "before the capture", "open")


def test_a_missing_tail_is_revealed_by_a_heartbeat() -> None:
    wire = Wire()
    wire.setup()
    wire.data(0)
    wire.heartbeat(512)
    (gap,) = told(wire, "gaps")
    assert (gap["position"], gap["end_position"], gap["status"]) == (128, 512, "open")


def test_positions_continue_across_terms_with_and_without_a_setup() -> None:
    for with_setup in (True, False):
        wire = Wire()
        if with_setup:
            wire.setup(65536 - 256)
        wire.data(65536 - 256)
        wire.pad(65536 - 128, 128)
        wire.data(65536 + 128)
        (gap,) = told(wire, "gaps")
        assert gap["end_position"] - gap["position"] == 128
        assert (gap["term_id"], gap["term_offset"]) == (-2, 0)
        (session,) = told(wire, "sessions")
        assert session["term_length"] == 65536
        assert session["initial_term_id"] == (-3 if with_setup else None)


@pytest.mark.parametrize(
    ("held", "lossy", "cause"),
    [(True, False, "receiver"), (True, True, "network"), (False, False, "publisher")],
)
def test_a_stall_has_a_cause(held: bool, lossy: bool, cause: str) -> None:
    wire = Wire()
    wire.setup()
    wire.status(0, 256 if held else 65536)
    position = wire.data(wire.data(0))
    if lossy:
        wire.wait(1)
        wire.nak(128, 256)
    wire.wait(150)
    wire.status(256, 65536)
    wire.wait(1)
    wire.data(position)
    (stall,) = told(wire, "flow_control")
    assert stall["cause"] == cause
    assert stall["position"] == 256
    assert stall["duration_ns"] == stall["end_ns"] - stall["start_ns"] == (152 if lossy else 151) * MS
    assert stall["held_ns"] == ((151 if lossy else 150) * MS if held else 0)
    assert stall["window_left"] == (0 if held else 65536)


def test_a_stall_that_lasts_has_no_end_and_one_at_the_end_of_the_stream_has() -> None:
    wire = Wire()
    wire.setup()
    wire.status(0, 128)
    wire.data(0)
    wire.wait(200)
    wire.heartbeat(128)
    (stall,) = told(wire, "flow_control")
    assert (stall["end_ns"], stall["duration_ns"], stall["cause"]) == (None, 200 * MS, "receiver")
    wire.heartbeat(128, flags=0xE0)
    wire.wait(500)
    wire.heartbeat(128, flags=0xE0)
    (stall,) = told(wire, "flow_control")
    assert (stall["end_ns"], stall["duration_ns"]) == (BEGUN_NS + 200 * MS, 200 * MS)


def test_a_publisher_that_waits_for_all_is_held_by_the_slowest() -> None:
    wire = Wire()
    wire.setup()
    wire.status(0, 256, receiver_id=1)
    wire.status(0, 65536, receiver_id=2)
    position = wire.data(wire.data(0))
    wire.wait(20)
    wire.status(256, 65536, receiver_id=1)
    wire.data(position)
    (stall,) = told(wire, "flow_control")
    assert (stall["cause"], stall["window_left"]) == ("receiver", 0)


def test_a_question_and_its_answer_make_a_round_trip() -> None:
    wire = Wire()
    wire.setup()
    wire.data(0)
    wire.rttm(5, question=True)
    wire.wait(0.25)
    wire.rttm(5, question=False)
    wire.rttm(6, question=False)
    assert [(r["method"], r["rtt_ns"]) for r in told(wire, "rtt")] == [("RTTM", 250_000)]


def test_the_totals_of_a_session_are_those_of_its_frames() -> None:
    wire = lossy_stream(Wire())
    (session,) = told(wire, "sessions")
    kinds = Counter(row["frame_type"] for row in wire.rows)
    heartbeats = sum(row["frame_type"] == "DATA" and row["frame_length"] == 0 for row in wire.rows)
    assert session["frames"] == len(wire.rows)
    assert session["data_frames"] == kinds["DATA"] - heartbeats
    assert (session["heartbeats"], session["naks"], session["setups"]) == (heartbeats, kinds["NAK"], kinds["SETUP"])
    assert session["status_messages"] == kinds["SM"]
    assert session["wire_bytes"] == sum(row["wire_length"] for row in wire.rows)
    assert session["data_bytes"] == sum(row["length"] for row in wire.rows)
    assert session["publisher"] == "10.0.0.1:40000"
    assert session["is_ended"] is True
    assert session["gaps"] == len(told(wire, "gaps"))


def test_a_reused_session_id_starts_over() -> None:
    wire = Wire()
    wire.setup()
    wire.data(0)
    wire.initial_term_id = 500
    wire.setup()
    wire.data(wire.data(0))
    assert told(wire, "gaps") == []
    (session,) = told(wire, "sessions")
    assert (session["initial_term_id"], session["end_position"], session["data_frames"]) == (500, 256, 3)


def test_frames_from_receivers_alone_form_a_session() -> None:
    wire = Wire()
    wire.status(1024, 4096)
    wire.nak(2048, 2080)
    (session,) = told(wire, "sessions")
    assert (session["publisher"], session["end_position"], session["naks"]) == (None, None, 1)


def two_lives(*, ends: bool, silence_ms: float, begins_at: int = 0) -> Wire:
    """50 messages, then 100 from a publisher that restarted with the same ids. One of those is lost and repaired."""
    wire = Wire()
    wire.setup(begins_at)
    position = begins_at
    for _ in range(50):
        position = wire.data(position)
        wire.wait(1)
    wire.status(position, 1 << 16)
    if ends:
        for _ in range(3):
            wire.heartbeat(position, flags=0xE0)
            wire.wait(100)
    wire.wait(silence_ms)
    wire.setup(begins_at)
    position = begins_at
    for number in range(100):
        lost, position = position, position + 128
        if number == 30:
            position = wire.data(position)
            wire.wait(1)
            wire.nak(lost, lost + 128)
            wire.wait(1)
            wire.data(lost)
        else:
            wire.data(lost)
        wire.wait(1)
    wire.heartbeat(position)
    return wire


@pytest.mark.parametrize("begins_at", [0, 1280])
@pytest.mark.parametrize(
    ("ends", "silence_ms", "has_setup"),
    [(True, 0, True), (False, 30, True), (True, 1_500, False), (False, 10_000, False)],
)
def test_another_life_of_a_publisher_is_not_a_retransmission(
    ends: bool, silence_ms: float, has_setup: bool, begins_at: int
) -> None:
    wire = two_lives(ends=ends, silence_ms=silence_ms, begins_at=begins_at)
    setups = [number for number, row in enumerate(wire.rows) if row["type"] == 5]
    if not has_setup:
        wire.rows.pop(setups[1])
    (gap,) = told(wire, "gaps")
    assert (gap["position"], gap["length"], gap["status"]) == (begins_at + 30 * 128, 128, "repaired")
    assert [row["reason"] for row in told(wire, "retransmits")] == ["lost before"]
    (session,) = told(wire, "sessions")
    assert (session["lives"], session["messages"], session["new_bytes"]) == (2, 150, 150 * 128)
    assert (session["start_position"], session["end_position"]) == (begins_at, begins_at + 101 * 128)
    assert (session["duplicates"], session["gaps"], session["is_ended"]) == (0, 1, False)


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_two_lives_do_not_depend_on_where_the_frames_were_cut(seed: int) -> None:
    rng = random.Random(seed)
    wire = two_lives(ends=seed % 2 == 0, silence_ms=rng.choice([25, 1_500, 10_000]))
    events = events_of_wire(wire)
    if seed > 3:
        events = [event for number, event in enumerate(events) if event["type"] != 5 or not number]
    whole = run(FOLD, events, [])
    cuts = sorted(rng.sample(range(1, len(events)), 20))
    assert run(FOLD, events, cuts) == whole
    assert run(FOLD, events, list(range(1, len(events)))) == whole


def test_overtaken_and_requested_frames_belong_to_the_same_life() -> None:
    wire = Wire()
    wire.setup()
    position = wire.data(0)
    wire.wait(5)
    wire.setup()  # overtaken by the data
    position = wire.data(position)
    wire.wait(100)
    wire.heartbeat(position - 128)
    wire.heartbeat(position, flags=0xE0)
    wire.wait(900)
    wire.nak(0, 128)
    wire.data(0)
    wire.setup(position)  # for a receiver that joins late
    (session,) = told(wire, "sessions")
    assert (session["lives"], session["retransmits"], session["end_position"]) == (1, 1, position)


def test_a_heartbeat_that_goes_back_begins_another_life() -> None:
    wire = Wire()
    wire.setup()
    position = wire.data(wire.data(0))
    wire.wait(300)
    wire.heartbeat(position - 128)
    wire.data(position - 128)
    (session,) = told(wire, "sessions")
    assert (session["lives"], session["duplicates"], session["retransmits"]) == (2, 0, 0)
