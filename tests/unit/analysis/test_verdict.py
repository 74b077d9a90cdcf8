from __future__ import annotations

from typing import Any

import pytest

from mainstem.analysis.page import formatting
from mainstem.analysis.page.overview import render
from mainstem.analysis.summary import Summary
from mainstem.analysis.verdict import is_bad, verdict

KEY = {"session_id": 7, "stream_id": 1001, "channel": "10.0.0.2:20121"}


def summary(**values: Any) -> Summary:
    made = Summary(
        inputs=["a.pcap"], first_ns=1, last_ns=10**9, files=1, frames={"aeron": {"DATA": 10}}, packets=10,
        sessions_count=1, totals={"new_bytes": 100_000},
    )  # fmt: skip
    for name, value in values.items():
        setattr(made, name, value)
    return made


def gap(place: str, status: str, ranges: int = 1, size: int = 1000, **values: Any) -> dict[str, Any]:
    own = {"place": place, "status": status, "ranges": ranges, "bytes": size, "naks": 1, "slowest_ns": 2_000_000}
    return KEY | own | {"largest": size // ranges} | values


def test_reports_that_nothing_was_lost() -> None:
    assert verdict(summary())[0] == "Nothing was lost on 1 Aeron stream."
    assert not is_bad(summary())


def test_reports_how_much_was_lost_where_and_repaired() -> None:
    told = verdict(summary(gaps=[gap("after the capture", "repaired", 3, 3000)]))
    assert told[0] == "3 ranges of 1 Aeron stream were lost: 3.0 kB, 3.0 % of what was sent. All were repaired."
    assert "between the capture and the receiver" in told[1]
    assert "as chance loses them; the slowest repair took 2.0 ms" in told[1]


def test_distinguishes_a_buffer_overflow_from_chance() -> None:
    told = verdict(summary(gaps=[gap("before the capture", "repaired", 1, 90_000)]))
    assert "between the publisher and the capture, up to 90.0 kB at a stroke, as when a buffer runs over" in told[1]


def test_unrepaired_loss_is_bad() -> None:
    lossy = summary(gaps=[gap("after the capture", "open"), gap("after the capture", "repaired", 4)])
    assert "1 was not repaired as far as the capture shows; the other 4 were repaired." in verdict(lossy)[0]
    assert is_bad(lossy)


def test_capture_gaps_and_reordering_are_not_loss() -> None:
    told = verdict(summary(gaps=[gap("in the capture", "passed", 2), gap("before the capture", "reordered", 5)]))
    assert told[0].startswith("Nothing was lost")
    assert told[1].startswith("5 ranges came late without having been asked for")
    assert told[2].startswith("2 ranges are missing from the capture only")


@pytest.mark.parametrize(
    ("cause", "words_of_it"),
    [
        ("receiver", "Receivers held publishers back for 300 ms"),
        ("network", "Losses under repair held publishers back for 300 ms"),
    ],
)
def test_reports_who_stalled_publishers(cause: str, words_of_it: str) -> None:
    stall = KEY | {"cause": cause, "times": 2, "duration_ns": 400_000_000, "held_ns": 300_000_000, "longest_ns": 1}
    assert any(sentence.startswith(words_of_it) for sentence in verdict(summary(stalls=[stall])))
    short = stall | {"held_ns": 1_000}
    assert "Nobody held a publisher back for long." in verdict(summary(stalls=[short]))


def test_reports_the_fate_of_requests() -> None:
    told = verdict(
        summary(
            requests=[
                {"outcome": "answered", "n": 9, "may_have_run": None},
                {"outcome": "shutdown", "n": 2, "may_have_run": 0},
            ],
            request_latency={"n": 9, "p50_ns": 1_500_000, "p90_ns": 2, "p99_ns": 4_000_000, "max_ns": 5},
        )
    )
    assert "9 Jmux requests were answered: median 1.5 ms, 99 % within 4.0 ms." in told
    assert "Requests failed: 2 shutdown; 0 of them may have run." in told


def test_an_empty_capture_says_what_to_try() -> None:
    nothing = Summary(inputs=["a.pcap"], files=1)
    assert "Name the ports with --aeron-ports" in verdict(nothing)[0]
    assert "<svg" not in render(nothing, verdict(nothing))


def test_packets_without_a_row_are_counted_and_are_not_problems() -> None:
    other = summary(passed_over={"TCP of other ports": 1200, "not IP": 1})
    assert verdict(other)[-1] == (
        "Passed over, without a row of their own: 1,201 packets (1,200 TCP of other ports; 1 not IP)."
    )
    assert not is_bad(other)
    assert other.as_json()["passed_over"] == {"TCP of other ports": 1200, "not IP": 1}


def test_recordings_alone_make_a_verdict_and_a_page() -> None:
    row = {"recording_id": 0, "session_id": 1, "stream_id": 2, "messages": 3, "data_bytes": 40, "first_ns": 5, "last_ns": 5,
           "largest": 20, "start_position": 64, "end_position": 192}  # fmt: skip
    made = Summary(inputs=["r"], first_ns=5, last_ns=5, recordings=[row])
    assert verdict(made) == ["1 recording with 3 messages (40 B); what is recorded has no gaps."]
    assert "Recordings" in render(made, verdict(made))


def test_text_from_a_capture_is_escaped() -> None:
    problem = {"kind": "ERR", "file": "<b>", "packet": 1, "position": None, "text": "<script>alert(1)</script>"}
    page = render(Summary(inputs=["<i>.pcap"], problem_counts={"ERR": 1}, problems=[problem]), ["<u>"])
    assert "<script>" not in page
    assert "<i>" not in page.replace('<i class="key', "")
    assert "&lt;script&gt;" in page


def test_numbers_are_short() -> None:
    assert [formatting.size(n) for n in (5, 1500, 2_500_000, 120e6)] == ["5 B", "1.5 kB", "2.5 MB", "120 MB"]
    assert [formatting.duration(n) for n in (0, 5, 1500, 2.5e6, 3e9, 150e9)] == [
        "–",
        "5 ns",
        "1.5 µs",
        "2.5 ms",
        "3.0 s",
        "2.5 min",
    ]
    assert formatting.share(1, 10_000) == "0.01 %"
