"""Channel commands on this driver alone have the outcomes that the table lists."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

import pytest
from tests.support import channel_cases as table

from mainstem.aeron.cnc import CncFile
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.aeron.driver.settings import DriverSettings
from mainstem.aeron.files import MappedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.system


def has_ipv6() -> bool:
    """Return whether this machine has an IPv6 loopback interface."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.fixture
def client() -> Iterator[table.RawClient]:
    settings = DriverSettings.load(threading_mode="INVOKER", **table.SETTINGS)
    with MediaDriver.launch(settings=settings) as driver:
        cnc = CncFile.map(MappedFiles(), driver.directory)
        assert cnc is not None
        yield table.RawClient(cnc, work=driver.do_work)
        cnc.close()


def test_the_driver_accepts_and_rejects_channels_as_the_reference_does(client: table.RawClient) -> None:
    lines = [line for line in table.recorded() if has_ipv6() or "::" not in line.case]
    assert [line._replace(here=client.outcome(line.case)) for line in lines] == lines


def exception_of(line: table.Recorded) -> table.Exceptional | None:
    return next((each for each in table.ACCEPTANCE if re.fullmatch(each.pattern, line.case)), None)


def test_acceptance_matches_the_c_driver_except_for_decided_cases() -> None:
    differing = [line for line in table.recorded() if (line.c == table.ACCEPTED) != (line.here == table.ACCEPTED)]
    assert [line for line in differing if exception_of(line) is None] == []
    assert {exception_of(line) for line in differing} == set(table.ACCEPTANCE), "an exception that is none"


def test_a_channel_at_fault_is_always_invalid_channel() -> None:
    for line in table.recorded():
        if table.ACCEPTED in (line.c, line.here):
            continue
        assert line.here == line.c or (line.c, line.here) == ("11", "1"), line
        if line.java == "1":
            assert line.here in ("1", "9"), line


def test_commands_that_crash_the_reference_have_an_outcome(client: table.RawClient) -> None:
    assert {case: client.outcome(case) for case in table.FATAL} == table.FATAL
