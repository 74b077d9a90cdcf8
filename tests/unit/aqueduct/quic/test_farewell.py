"""The closing period: what is sent again, when, and for how long."""

from __future__ import annotations

import pytest

from mainstem.aqueduct.quic.farewell import SENDINGS, SHORTEST_GAP, Farewell

CLOSE = [(b"close", ("192.0.2.1", 4433))]


def test_the_last_packets_go_out_three_times_and_then_the_period_is_over() -> None:
    farewell = Farewell(CLOSE, 10.0, 0.0)
    sent = 1
    while not farewell.is_over:
        farewell.handle_timer(farewell.due - 0.001)
        assert farewell.take() == []
        ended_at = farewell.due
        farewell.handle_timer(ended_at)
        sent += farewell.take() == CLOSE
    assert sent == SENDINGS
    assert ended_at == pytest.approx(10.0 + SENDINGS * SHORTEST_GAP)


def test_the_sendings_of_a_long_path_are_more_than_a_round_trip_apart() -> None:
    farewell = Farewell(CLOSE, 10.0, 2.0)
    assert farewell.due > 12.0


def test_packets_that_still_come_are_answered_ever_more_rarely() -> None:
    farewell = Farewell(CLOSE, 10.0, 0.0)
    answered = []
    for number in range(1, 70):
        farewell.received(1)
        if farewell.take():
            answered.append(number)
    assert answered == [1, 2, 4, 8, 16, 32, 64]
    farewell.received(1000)
    assert farewell.take() == CLOSE
    assert farewell.take() == []
