from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.frames import BEGUN_NS, MS, Connection, bymux_connection, jmux_connection
from tests.unit.analysis.folds.folding import events_of_connection, run

from mainstem.analysis.folds.multiplexed import MuxFold
from mainstem.capture.schema import BYMUX_TYPES, JMUX_TYPES

if TYPE_CHECKING:
    from mainstem.analysis.folds.fold import Row

FOLD = MuxFold()


def bymux() -> Connection:
    return bymux_connection(Connection("bymux", BYMUX_TYPES))


def jmux() -> Connection:
    return jmux_connection(Connection("jmux", JMUX_TYPES))


def told(connection: Connection, kind: str) -> list[dict[str, Any]]:
    rows: list[Row] = run(FOLD, events_of_connection(connection), [])
    return [row.values for row in rows if row.kind == kind]


@pytest.mark.parametrize("make", [bymux, jmux])
def test_rows_do_not_depend_on_where_the_frames_were_cut(make: Any) -> None:
    events, rng = events_of_connection(make()), random.Random(1)
    whole = run(FOLD, events, [])
    assert run(FOLD, events, list(range(1, len(events)))) == whole
    for _ in range(20):
        cuts = sorted(rng.sample(range(1, len(events)), 5))
        assert run(FOLD, events, cuts) == whole


def test_credit_rows_show_what_was_left_and_how_long_it_was_empty() -> None:
    found = told(bymux(), "credits")
    of_stream = [r for r in found if r["mux_stream_id"] == 0]
    assert [(r["amount"], r["available_before"], r["available_after"]) for r in of_stream] == [(100, 0, 100)] * 4
    assert [r["exhausted_ns"] for r in of_stream] == [None, 2 * MS, 2 * MS, 2 * MS]
    (unlimited,) = [r for r in found if r["mux_stream_id"] == 2]
    assert (unlimited["amount"], unlimited["available_after"]) == (None, None)
    (creation,) = [r for r in found if r["mux_stream_id"] is None]
    assert (creation["amount"], creation["from_client"]) == (2, False)


def test_streams_report_how_they_ended() -> None:
    ended, lost = sorted(told(bymux(), "mux_streams"), key=lambda r: r["mux_stream_id"])
    assert (ended["status"], ended["bytes_from_client"], ended["writes_from_client"]) == ("ended", 300, 3)
    assert (ended["opened_by_client"], ended["client_exhausted_ns"], ended["grants"]) == (True, 6 * MS, 4)
    assert (lost["status"], lost["bytes_from_client"]) == ("lost", 5000)
    assert lost["ended_ns"] == ended["ended_ns"] + 3 * MS


def test_pings_make_round_trips() -> None:
    assert [(r["method"], r["rtt_ns"]) for r in told(bymux(), "rtt")] == [("PING", MS // 2)] * 2
    assert [(r["method"], r["rtt_ns"]) for r in told(jmux(), "rtt")] == [("PING", MS // 4)]


def test_requests_record_their_latency_and_outcome() -> None:
    found = sorted(told(jmux(), "requests"), key=lambda r: (r["opened_ns"], r["mux_stream_id"]))
    assert [r["outcome"] for r in found] == ["answered"] * 3 + ["aborted by server", "shutdown"]
    assert [r["may_have_run"] for r in found] == [None] * 3 + [True, False]
    assert [(r["latency_ns"], r["wait_ns"]) for r in found[:3]] == [(4 * MS, 2 * MS)] * 3
    assert [(r["request_bytes"], r["response_bytes"]) for r in found[:3]] == [(612, 60)] * 3
    assert found[0]["opened_ns"] == BEGUN_NS + MS
    assert [r["in_flight"] for r in found] == [1, 1, 1, 1, 2]
    assert all(r["acknowledged_ns"] == r["response_end_ns"] for r in found[:3])


def test_rations_run_out_and_come_again() -> None:
    found = told(jmux(), "rations")
    assert [(r["from_client"], r["amount"]) for r in found[:2]] == [(True, 512), (False, 512)]
    assert [(r["available_before"], r["available_after"], r["exhausted_ns"]) for r in found[2:]] == [(0, 512, MS)] * 3
