"""Counter owners compared with the reference: the same streams on either driver give every kind of counter the same owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import wait_for

import mainstem
from mainstem._core.system_counter import OWN_TYPE_ID, REFERENCE_TYPE_ID
from mainstem.aeron.cnc import CncFile
from mainstem.aeron.counters import snapshot
from mainstem.aeron.files import MappedFiles

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = pytest.mark.interop


def owners(directory: Path, port: int) -> dict[str, set[int]]:
    """Return the owners of each kind of counter; the kind is the first word of its label."""
    control = f"control=127.0.0.1:{port}|control-mode=dynamic"
    with mainstem.Aeron.connect(str(directory)) as client:
        group = client.add_publication(f"aeron:udp?{control}|fc=min", 1001)
        receiver = client.add_subscription(f"aeron:udp?endpoint=localhost:{port + 1}|{control}|cc=cubic", 1001)
        local = client.add_publication("aeron:ipc", 1002)
        reader = client.add_subscription("aeron:ipc", 1002)
        manual = client.add_exclusive_publication("aeron:udp?control-mode=manual", 1003)
        client.add_counter(1001, "a counter")
        wait_for(lambda: all(each.is_connected for each in (group, receiver, local, reader)))
        assert not manual.is_connected
        cnc = CncFile.map(MappedFiles(), str(directory))
        assert cnc is not None
        found: dict[str, set[int]] = {}
        for each in snapshot(cnc.counters()):
            kind = "system" if each.type_id in (REFERENCE_TYPE_ID, OWN_TYPE_ID) else each.label.split(":")[0]
            found.setdefault(kind, set()).add(each.owner_id)
        cnc.close()
        return found


def test_every_kind_of_counter_has_the_owner_that_it_has_in_the_reference(
    start_driver: DriverFactory, port: int, other_port: int
) -> None:
    theirs = owners(start_driver("reference").directory, port)
    ours = owners(start_driver("mainstem").directory, other_port)
    assert theirs["client-heartbeat"] == {1}  # a driver's first id
    assert ours == theirs
