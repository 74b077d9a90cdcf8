"""Values of settings on the reference drivers: each driver treats them as the table says."""

from __future__ import annotations

import os

import pytest
from tests.support import java
from tests.support import setting_cases as table

pytestmark = [pytest.mark.interop, pytest.mark.long]


def check(column: str, answers: list[str]) -> None:
    if os.environ.get("MAINSTEM_RECORD_OUTCOMES"):
        table.record(column, answers)
    cases = table.recorded()
    assert len(cases) >= 900
    changed = [(case, answer) for case, answer in zip(cases, answers, strict=True) if getattr(case, column) != answer]
    assert not changed


def test_the_c_driver_answers_as_recorded() -> None:
    binary = os.environ.get("MAINSTEM_AERONMD")
    if not binary:
        pytest.skip("MAINSTEM_AERONMD names no reference driver")
    check("c", table.answers_of_c(binary, table.recorded()))


def test_the_java_driver_answers_as_recorded() -> None:
    java.require_java()
    check("java", table.answers_of_java(table.recorded()))
