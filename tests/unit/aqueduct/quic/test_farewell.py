"""The closing period: what is sent again, when, and for how long."""

from __future__ import annotations

import pytest

from mainstem.aqueduct.quic.farewell import SENDINGS, SHORTEST_GAP, Farewell, stateless_reset

CLOSE = [(b"close", ("192.0.2.1", 4433))]


def test_closing_packets_are_sent_three_times() -> None:
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


def test_closing_packets_are_sent_at_least_a_round_trip_apart() -> None:
    farewell = Farewell(CLOSE, 10.0, 2.0)
    assert farewell.due > 12.0


def test_closing_packets_are_repeated_ever_less_often() -> None:
    farewell = Farewell(CLOSE, 10.0, 0.0)
    answered = []
    for number in range(1, 70):
        farewell.received([b"packet"])
        if farewell.take():
            answered.append(number)
    assert answered == [1, 2, 4, 8, 16, 32, 64]
    farewell.received([b"packet"] * 1000)
    assert farewell.take() == CLOSE
    assert farewell.take() == []


def test_a_stateless_reset_ends_the_closing_period() -> None:
    token = bytes(range(16))
    farewell = Farewell(CLOSE, 10.0, 0.0, token)
    farewell.received([b"packet", stateless_reset(bytes(16))])
    assert not farewell.is_over
    farewell.received([b"packet", stateless_reset(token)])
    assert farewell.is_over
    assert farewell.take() == []


def test_an_unknown_reset_token_never_matches() -> None:
    farewell = Farewell(CLOSE, 10.0, 0.0, b"")
    farewell.received([b"", bytes(16), stateless_reset(bytes(16))])
    assert not farewell.is_over


def test_a_stateless_reset_has_a_short_header_and_is_short() -> None:
    reset = stateless_reset(bytes(16))
    assert reset[0] >> 6 == 1
    assert 21 <= len(reset) < 30
    assert reset != stateless_reset(bytes(16))
