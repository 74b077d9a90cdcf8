"""Admission to a server: connections that have begun and not yet left stay within the limits, whatever peers do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainstem._internal.admission import Admission


class Visitor:
    """A connection that stays until ``leave`` is called. It also stays after being dropped, unless it had not begun."""

    def __init__(self, admission: Admission[Visitor], address: str = "") -> None:
        self.admission = admission
        self.address = address
        self.is_silent = True
        self.begun = self.dropped = False

    def begin(self) -> None:
        assert not self.begun
        self.begun = True

    def drop(self, reason: str) -> None:
        assert not self.dropped
        self.dropped = True
        if not self.begun:
            self.leave()

    def leave(self) -> None:
        self.admission.leave(self)


def full(slots: int = 2) -> tuple[Admission[Visitor], list[Visitor]]:
    admission: Admission[Visitor] = Admission(max_connections=slots, max_connections_per_address=slots)
    there = [Visitor(admission) for _ in range(slots)]
    assert all(map(admission.admit, there))
    return admission, there


def test_a_new_connection_starts_once_the_silent_one_it_replaces_has_ended() -> None:
    admission, (oldest, other) = full()
    newcomer = Visitor(admission)
    assert admission.admit(newcomer)
    assert (oldest.dropped, other.dropped, newcomer.begun) == (True, False, False)
    other.leave()
    assert not newcomer.begun
    oldest.leave()
    assert newcomer.begun
    assert len(admission) == 1


def test_a_connection_that_sent_data_is_not_replaced() -> None:
    admission, (oldest, other) = full()
    oldest.is_silent = other.is_silent = False
    assert not admission.admit(Visitor(admission))
    assert admission.refused == 1
    assert not oldest.dropped


def test_a_waiting_connection_can_be_replaced_and_its_successor_keeps_the_slot() -> None:
    admission, (oldest, other) = full()
    other.is_silent = False
    newcomers = [Visitor(admission) for _ in range(3)]
    assert all(map(admission.admit, newcomers))
    assert [each.dropped for each in newcomers] == [True, True, False]
    assert len(admission) == 3
    oldest.leave()
    assert [each.begun for each in newcomers] == [False, False, True]


def test_a_waiting_connection_that_closes_frees_its_place() -> None:
    admission, (oldest, other) = full()
    newcomer, next_one = Visitor(admission), Visitor(admission)
    other.is_silent = False
    assert admission.admit(newcomer)
    newcomer.leave()
    oldest.leave()
    assert not newcomer.begun
    assert admission.admit(next_one)
    assert next_one.begun


def test_no_connection_is_admitted_after_stop() -> None:
    admission, there = full()
    there[0].leave()
    assert admission.stop() == there[1:]
    assert not admission.admit(Visitor(admission))
    assert admission.refused == 0


STEPS = st.lists(st.tuples(st.sampled_from(["comes", "speaks", "leaves"]), st.integers(0, 20)), max_size=80)


@given(steps=STEPS, slots=st.integers(1, 4), share=st.integers(1, 3))
def test_limits_hold_for_any_order_of_events(steps: list[tuple[str, int]], slots: int, share: int) -> None:
    admission: Admission[Visitor] = Admission(max_connections=slots, max_connections_per_address=share)
    known: list[Visitor] = []
    for what, number in steps:
        if what == "comes":
            visitor = Visitor(admission, "ab"[number % 3] if number % 3 < 2 else "")
            if admission.admit(visitor):
                known.append(visitor)
        elif known:
            visitor = known[number % len(known)]
            if what == "speaks" and visitor.begun:
                visitor.is_silent = False
            elif what == "leaves":
                visitor.leave()
        known = [visitor for visitor in known if visitor in admission]
        begun = [visitor for visitor in known if visitor.begun]
        assert len(begun) <= slots
        assert all(sum(each.address == address for each in begun) <= share for address in "ab")
        waiting = [visitor for visitor in known if not visitor.begun]
        assert len(waiting) <= sum(visitor.dropped for visitor in begun)
        assert len(admission) == len(known)
    for visitor in list(known):
        visitor.leave()
    assert not len(admission)
    assert not admission._of_address
    assert not admission._silent
    assert not admission._heirs
