"""Admission to a server: who is admitted, who makes room, and when addresses have to be proven."""

from __future__ import annotations

import pytest

from mainstem.aqueduct.admission import MAX_UNPROVEN, Admission


class House:
    """An admission that records which connections it has dropped."""

    def __init__(self, max_connections: int = 4, max_connections_per_address: int = 4) -> None:
        self.dropped: list[str] = []
        self.admission: Admission[str] = Admission(
            max_connections=max_connections,
            max_connections_per_address=max_connections_per_address,
            drop=self.dropped.append,
        )

    def enter_heard(self, name: str, address: str) -> None:
        assert self.admission.enter(name, address)
        self.admission.heard(name)


def test_only_validated_addresses_occupy_connection_slots() -> None:
    house = House(max_connections=1)
    for number in range(10):
        house.admission.enter_unproven(f"forged {number}")
    assert house.admission.taken == 0
    assert house.admission.has_room("a")
    assert house.admission.enter("proven", "a")
    assert house.admission.enter("proven", "a")
    assert house.admission.taken == 1


def test_an_active_connection_is_not_ended_to_admit_another() -> None:
    house = House(max_connections=1)
    house.enter_heard("heard", "a")
    assert not house.admission.has_room("b")
    assert not house.admission.enter("late", "b")
    assert not house.dropped
    house.admission.leave("heard")
    assert house.admission.enter("late", "b")


def test_the_oldest_silent_connection_is_ended_to_make_room() -> None:
    house = House(max_connections=3)
    house.enter_heard("heard", "a")
    for name in ("first", "second"):
        house.admission.enter(name, name)
    assert house.admission.has_room("b")
    assert house.admission.enter("third", "b")
    assert house.dropped == ["first"]
    assert house.admission.taken == 3


def test_at_an_address_limit_only_that_addresss_connections_make_room() -> None:
    house = House(max_connections=4, max_connections_per_address=2)
    house.admission.enter("elsewhere", "b")
    house.enter_heard("heard", "a")
    house.admission.enter("silent", "a")
    assert house.admission.enter("next", "a")
    assert house.dropped == ["silent"]
    house.admission.heard("next")
    assert not house.admission.has_room("a")
    assert not house.admission.enter("one more", "a")
    assert house.admission.has_room("b")
    house.admission.leave("heard")
    assert house.admission.enter("one more", "a")


def test_addresses_are_validated_while_many_handshakes_are_in_progress() -> None:
    house = House()
    for number in range(MAX_UNPROVEN):
        assert not house.admission.must_prove(0.0)
        house.admission.enter_unproven(str(number))
    assert house.admission.must_prove(100.0)
    house.admission.leave("0")
    assert not house.admission.must_prove(100.0)
    house.admission.enter("1", "a")
    house.admission.enter_unproven("another")
    assert not house.admission.must_prove(100.0)


def test_addresses_are_validated_above_a_rate_of_handshakes() -> None:
    house = House()
    for _ in range(MAX_UNPROVEN):
        assert not house.admission.must_prove(5.0)
        house.admission.try_unproven()
    assert house.admission.must_prove(5.9)
    assert not house.admission.must_prove(6.1)


@pytest.mark.parametrize("times", [1, 2])
def test_ended_connections_leave_no_state(times: int) -> None:
    house = House()
    house.admission.enter_unproven("a")
    house.admission.enter("b", "address")
    for name in "ab" * times:
        house.admission.leave(name)
    assert house.admission.taken == 0
    assert not house.admission._of_address
    assert not house.admission._silent
    assert not house.admission._unproven
