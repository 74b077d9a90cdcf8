"""Which packets move a connection of qh3 to another address, and which end it."""

from __future__ import annotations

from mainstem.aqueduct.quic.qh3_paths import LATE_PACKETS, REFUSED_PACKETS, REFUSED_SECONDS, Paths

HOME, AWAY, FIFTH, ELSEWHERE = [(f"192.0.2.{number}", 4433) for number in range(1, 5)]


def moved() -> Paths:
    """A client that was at HOME and is at AWAY, as the library knows."""
    paths = Paths()
    paths.came(1, HOME, active=HOME, is_refused=False, now=0.0)
    paths.came(1, AWAY, active=HOME, is_refused=False, now=1.0)
    assert not paths.is_settled(AWAY)
    paths.came(1, AWAY, active=AWAY, is_refused=False, now=1.1)
    assert paths.is_settled(AWAY)
    return paths


def test_an_address_that_the_library_is_validating_changes_nothing_yet() -> None:
    paths = Paths()
    for number in range(10):
        paths.came(5, AWAY, active=HOME, is_refused=False, now=float(number))
    assert paths.detour is None
    assert not paths.is_lost


def test_one_late_packet_changes_nothing() -> None:
    paths = moved()
    for number in range(10):
        paths.came(1, HOME, active=AWAY, is_refused=False, now=2.0 + number)
        assert paths.detour is None
        assert not paths.is_settled(AWAY)
        paths.came(1, AWAY, active=AWAY, is_refused=False, now=2.5 + number)
        assert paths.is_settled(AWAY)


def test_packets_go_back_to_an_address_that_was_left_and_forth_again() -> None:
    paths = moved()
    paths.came(LATE_PACKETS, HOME, active=AWAY, is_refused=False, now=2.0)
    assert paths.detour == HOME
    assert paths.is_settled(HOME)
    paths.came(1, AWAY, active=AWAY, is_refused=False, now=3.0)
    assert paths.detour is None
    assert paths.is_settled(AWAY)


def test_a_new_address_of_the_library_ends_the_detour() -> None:
    paths = moved()
    paths.came(LATE_PACKETS, HOME, active=AWAY, is_refused=False, now=2.0)
    paths.came(1, ELSEWHERE, active=AWAY, is_refused=False, now=3.0)
    assert paths.detour == HOME
    paths.came(1, ELSEWHERE, active=ELSEWHERE, is_refused=False, now=3.1)
    assert paths.detour is None


def test_an_address_that_is_refused_ends_the_connection_once_nothing_comes_from_elsewhere() -> None:
    paths = moved()
    for number in range(10):
        # Copies of what the client sends, from somewhere else: it goes on.
        paths.came(REFUSED_PACKETS, FIFTH, active=AWAY, is_refused=True, now=2.0 + number)
        assert not paths.is_lost
        paths.came(1, AWAY, active=AWAY, is_refused=False, now=2.9 + number)
    paths.came(REFUSED_PACKETS, FIFTH, active=AWAY, is_refused=True, now=20.0)
    assert not paths.is_lost
    assert paths.detour is None
    paths.came(1, FIFTH, active=AWAY, is_refused=True, now=20.0 + REFUSED_SECONDS)
    assert paths.is_lost
