"""Channel commands of every kind on both drivers: accepted by both, or refused by both with the same error code."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support import channel_cases as table

from mainstem.aeron.cnc import CncFile
from mainstem.aeron.files import MappedFiles

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = pytest.mark.interop


def outcomes(directory: Path, cases: list[str]) -> list[table.Recorded]:
    cnc = CncFile.map(MappedFiles(), str(directory))
    assert cnc is not None
    client = table.RawClient(cnc)
    try:
        return [table.Recorded(client.outcome(case), case) for case in cases]
    finally:
        cnc.close()


def test_both_drivers_accept_and_refuse_the_same_channels(start_driver: DriverFactory) -> None:
    cases = [line.case for line in table.recorded()]
    assert len(cases) >= 500
    theirs = outcomes(start_driver("reference", **table.SETTINGS).directory, cases)
    if os.environ.get("MAINSTEM_RECORD_OUTCOMES"):
        table.record(theirs)
    ours = outcomes(start_driver("mainstem", **table.SETTINGS).directory, cases)
    differences = [
        (here.case, f"reference {there.outcome}, here {here.outcome}, expected {table.expected(there)}")
        for there, here in zip(theirs, ours, strict=True)
        if here.outcome != table.expected(there)
    ]
    assert not differences
    assert table.recorded() == theirs


def test_every_exception_is_one(start_driver: DriverFactory) -> None:
    lines = [line for line in table.recorded() if table.expected(line) != line.outcome]
    for exception in table.EXCEPTIONS:
        assert any(table.expected(line) == exception.outcome for line in lines), exception.reason
    theirs = outcomes(start_driver("reference", **table.SETTINGS).directory, [line.case for line in lines])
    assert theirs == lines


@pytest.mark.parametrize("case", table.FATAL)
def test_what_ends_the_reference_driver_is_told_apart(start_driver: DriverFactory, case: str) -> None:
    """Once the reference survives these, they belong into the table."""
    driver = start_driver("reference", **table.SETTINGS)
    cnc = CncFile.map(MappedFiles(), str(driver.directory))
    assert cnc is not None

    class Died(Exception):
        pass

    def work() -> None:
        if driver.process.poll() is not None:
            raise Died

    with pytest.raises(Died):
        table.RawClient(cnc, work=work).outcome(case)
    cnc.close()
