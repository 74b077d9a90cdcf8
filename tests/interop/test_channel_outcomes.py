"""Channel commands of every kind on the reference drivers have the outcomes that the table lists."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.support import channel_cases as table
from tests.support import java
from tests.support.waiting import wait_for

from mainstem.aeron.cnc import CncFile
from mainstem.aeron.files import MappedFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = pytest.mark.interop


# Java's driver rejects a tag until the publication that used it is gone, which is some time after its removal.
RACES = {("java", "pub aeron:ipc?tags=4,5")}


def check(driver: str, directory: Path) -> None:
    cnc = CncFile.map(MappedFiles(), str(directory))
    assert cnc is not None
    client = table.RawClient(cnc)
    try:
        outcomes = {line.case: client.outcome(line.case) for line in table.recorded()}
    finally:
        cnc.close()
    if os.environ.get("MAINSTEM_RECORD_OUTCOMES"):
        table.record(driver, outcomes)
    lines = table.recorded()
    assert len(lines) >= 500
    different = [line for line in lines if getattr(line, driver) != outcomes[line.case]]
    assert [(line, outcomes[line.case]) for line in different if (driver, line.case) not in RACES] == []


def test_the_c_driver_answers_as_recorded(start_driver: DriverFactory) -> None:
    check("c", start_driver("reference", **table.SETTINGS).directory)


def test_this_driver_answers_as_recorded(start_driver: DriverFactory) -> None:
    check("here", start_driver("mainstem", **table.SETTINGS).directory)


@pytest.mark.long
def test_the_java_driver_answers_as_recorded(aeron_directory: Callable[[], Path]) -> None:
    java.require_java()
    directory = aeron_directory()
    properties: dict[str, object] = {name.lower().replace("_", "."): value for name, value in table.SETTINGS.items()}
    properties |= {"aeron.dir": str(directory), "aeron.threading.mode": "SHARED"}
    process = subprocess.Popen(
        java.command("io.aeron.driver.MediaDriver", properties=properties),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    cnc = directory / "cnc.dat"
    try:
        wait_for(lambda: cnc.exists() and cnc.stat().st_size > 128 and cnc.read_bytes()[:4] != bytes(4))
        check("java", directory)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("case", table.FATAL)
def test_commands_that_crash_the_reference_are_distinguished(start_driver: DriverFactory, case: str) -> None:
    """Once the reference survives these commands, they belong in the table."""
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
