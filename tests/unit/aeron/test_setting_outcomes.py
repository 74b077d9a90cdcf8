"""The table of settings: this driver's outcomes, and a decision for each one that differs from the C driver's."""

from __future__ import annotations

import re

import pytest
from tests.support import setting_cases as table


def test_every_value_has_the_answer_of_the_table() -> None:
    cases = table.recorded()
    assert len(cases) >= 900
    assert [case._replace(here=table.answer_here(case)) for case in cases] == cases


def test_every_difference_from_the_c_driver_is_listed() -> None:
    undecided = [
        case
        for case in table.recorded()
        if not case.is_as_in_c
        and not any(re.fullmatch(each.pattern, f"{case.setting} {case.value}") for each in table.DIFFERENCES)
    ]
    assert not undecided


@pytest.mark.parametrize("difference", table.DIFFERENCES, ids=lambda each: each.reason)
def test_every_decision_is_about_a_case(difference: table.Difference) -> None:
    assert any(
        not case.is_as_in_c and re.fullmatch(difference.pattern, f"{case.setting} {case.value}")
        for case in table.recorded()
    )


def test_the_references_agree_with_the_table_on_what_is_clamped() -> None:
    """Values in an operator's environment are clamped to the limits, both in C and here."""
    clamped = {
        ("AERON_MTU_LENGTH", "64k"): "65504",
        ("AERON_MAX_RESEND", "300"): "256",
        ("AERON_COUNTERS_BUFFER_LENGTH", "64k"): "1048576",
    }
    found = {(case.setting, case.value): case for case in table.recorded()}
    for key, answer in clamped.items():
        assert (found[key].c, found[key].here) == (answer, answer)
