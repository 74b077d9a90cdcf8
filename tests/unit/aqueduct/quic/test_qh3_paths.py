"""Which packets move a qh3 connection to another address, and which end it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aqueduct.quic.qh3_paths import (
    ANSWER_PACKETS,
    LATE_PACKETS,
    REFUSED_PACKETS,
    REFUSED_SECONDS,
    VALIDATION_ROUND_TRIPS,
    VALIDATION_SECONDS,
    Paths,
)

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.adapter import Address

ROUND_TRIP = 0.05
HOME, AWAY, FIFTH, ELSEWHERE = [(f"192.0.2.{number}", 4433) for number in range(1, 5)]


def came(paths: Paths, count: int, address: Address, *, active: Address, now: float, is_refused: bool = False) -> None:
    """Report received packets under the address that the library must be told."""
    name = paths.taken_from(address, now, ROUND_TRIP)
    paths.came(count, address, name, active=active, is_refused=is_refused, now=now)


def moved() -> Paths:
    """Return the paths of a client that has moved from HOME to AWAY, as the library knows."""
    paths = Paths()
    came(paths, 1, HOME, active=HOME, now=0.0)
    came(paths, 1, AWAY, active=HOME, now=1.0)
    assert not paths.is_settled(AWAY)
    came(paths, 1, AWAY, active=AWAY, now=1.1)
    assert paths.is_settled(AWAY)
    return paths


def test_an_address_being_validated_is_not_used_yet() -> None:
    paths = Paths()
    for number in range(10):
        came(paths, 5, AWAY, active=HOME, now=number * VALIDATION_SECONDS / 10)
    assert paths.detour is None
    assert not paths.is_lost
    assert not paths.differ


def test_for_a_while_packets_from_a_third_address_count_as_a_path_response() -> None:
    paths = Paths()
    came(paths, 1, HOME, active=HOME, now=0.0)
    came(paths, 1, AWAY, active=HOME, now=1.0)
    for _ in range(ANSWER_PACKETS):
        assert paths.taken_from(HOME, 1.1, ROUND_TRIP) == AWAY
        came(paths, 1, HOME, active=HOME, now=1.1)
        assert paths.detour is None
    assert paths.taken_from(HOME, 1.1, ROUND_TRIP) == HOME
    # The address is challenged once, however often packets arrive from it.
    came(paths, 1, AWAY, active=HOME, now=1.2)
    assert paths.taken_from(HOME, 1.2, ROUND_TRIP) == HOME


def test_a_returning_unvalidated_address_counts_as_new() -> None:
    paths = Paths()
    came(paths, 1, HOME, active=HOME, now=0.0)
    came(paths, 1, AWAY, active=HOME, now=1.0)
    now = 1.0 + VALIDATION_SECONDS
    # A single packet may just be late.
    came(paths, 1, HOME, active=HOME, now=now)
    assert paths.address(AWAY) == AWAY
    came(paths, 1, HOME, active=HOME, now=now)
    # The challenge goes to the client's current address, and its answer proves nothing about the other address.
    assert paths.address(AWAY) == paths.address(HOME) == HOME
    assert paths.taken_from(HOME, now, ROUND_TRIP) == AWAY
    assert paths.taken_from(AWAY, now, ROUND_TRIP) == ("::ffff:192.0.2.2", 4433, 2, 0)
    came(paths, 1, HOME, active=AWAY, now=now)
    assert paths.is_settled(HOME)
    came(paths, 1, AWAY, active=AWAY, now=now)
    assert paths.detour is None
    assert not paths.is_settled(AWAY)


def test_waiting_for_a_path_response_from_a_third_address_times_out() -> None:
    for round_trip, timeout in ((ROUND_TRIP, VALIDATION_SECONDS), (2.0, 2.0 * VALIDATION_ROUND_TRIPS)):
        paths = Paths()
        came(paths, 1, HOME, active=HOME, now=0.0)
        came(paths, 1, AWAY, active=HOME, now=1.0)
        assert not paths.is_settled(HOME)
        assert paths.taken_from(HOME, 1.0 + 0.9 * timeout, round_trip) == AWAY
        assert paths.taken_from(HOME, 1.0 + timeout, round_trip) == HOME
        for _ in range(2):
            paths.came(1, HOME, HOME, active=HOME, is_refused=False, now=1.0 + timeout)
        assert paths.is_settled(HOME)


def test_packets_follow_a_client_that_responded_from_a_third_address() -> None:
    paths = Paths()
    came(paths, 1, HOME, active=HOME, now=0.0)
    came(paths, 1, AWAY, active=HOME, now=1.0)
    came(paths, 1, HOME, active=AWAY, now=1.1)
    assert paths.detour == HOME
    assert paths.is_settled(HOME)
    came(paths, 1, AWAY, active=AWAY, now=1.2)
    assert paths.detour is None
    assert paths.is_settled(AWAY)


def test_an_unvalidated_address_gets_an_alias() -> None:
    paths = Paths()
    came(paths, 1, HOME, active=HOME, now=0.0)
    came(paths, 1, AWAY, active=HOME, now=1.0)
    now = 1.0 + VALIDATION_SECONDS
    other = paths.taken_from(AWAY, now, ROUND_TRIP)
    assert other == ("::ffff:192.0.2.2", 4433, 1, 0)
    # The name changes only after authentic packets have arrived.
    assert paths.address(other) == other
    came(paths, 1, AWAY, active=HOME, now=now)
    assert paths.address(other) == AWAY
    assert paths.name(AWAY) == other
    came(paths, 1, AWAY, active=other, now=now + 0.1)
    assert paths.name(AWAY) == other
    # The unanswered challenge is not left pending.
    came(paths, 1, AWAY, active=other, now=now + 0.2)
    assert paths.name(AWAY) == AWAY
    assert paths.is_settled(AWAY)
    assert paths.address(other) == AWAY


def test_aliases_of_ipv6_addresses_keep_their_scope() -> None:
    paths = Paths()
    address = ("fe80::1", 4433, 0, 2)
    came(paths, 1, HOME, active=HOME, now=0.0)
    came(paths, 1, address, active=HOME, now=1.0)
    assert paths.taken_from(address, 1.0 + VALIDATION_SECONDS, ROUND_TRIP) == ("fe80::1", 4433, 1, 2)


def test_a_single_late_packet_changes_nothing() -> None:
    paths = moved()
    for number in range(10):
        came(paths, 1, HOME, active=AWAY, now=2.0 + number)
        assert paths.detour is None
        assert not paths.is_settled(AWAY)
        came(paths, 1, AWAY, active=AWAY, now=2.5 + number)
        assert paths.is_settled(AWAY)


def test_packets_follow_a_client_back_to_an_old_address_and_away_again() -> None:
    paths = moved()
    came(paths, LATE_PACKETS, HOME, active=AWAY, now=2.0)
    assert paths.detour == HOME
    assert paths.is_settled(HOME)
    came(paths, 1, AWAY, active=AWAY, now=3.0)
    assert paths.detour is None
    assert paths.is_settled(AWAY)


def test_a_new_active_address_ends_the_detour() -> None:
    paths = moved()
    came(paths, LATE_PACKETS, HOME, active=AWAY, now=2.0)
    came(paths, 1, ELSEWHERE, active=AWAY, now=3.0)
    assert paths.detour == HOME
    came(paths, 1, ELSEWHERE, active=ELSEWHERE, now=3.1)
    assert paths.detour is None


def test_a_rejected_address_ends_the_connection_once_no_other_address_sends() -> None:
    paths = moved()
    for number in range(10):
        # Copies of the client's packets, sent from another address: the connection continues.
        came(paths, REFUSED_PACKETS, FIFTH, active=AWAY, now=2.0 + number, is_refused=True)
        assert not paths.is_lost
        came(paths, 1, AWAY, active=AWAY, now=2.9 + number)
    came(paths, REFUSED_PACKETS, FIFTH, active=AWAY, now=20.0, is_refused=True)
    assert not paths.is_lost
    assert paths.detour is None
    came(paths, 1, FIFTH, active=AWAY, now=20.0 + REFUSED_SECONDS, is_refused=True)
    assert paths.is_lost
