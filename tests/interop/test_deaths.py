"""Clients and drivers that die: the other implementation notices, cleans up, and reports it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.interop.modes import MODES, named
from tests.support.waiting import wait_for

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.cnc import CncFile
from mainstem.aeron.files import MappedFiles

if TYPE_CHECKING:
    from tests.interop.conftest import DriverFactory, DriverProcess, PeerFactory

pytestmark = [pytest.mark.interop, pytest.mark.long]

IMPATIENT = {
    "AERON_CLIENT_LIVENESS_TIMEOUT": "2s",
    "AERON_PUBLICATION_UNBLOCK_TIMEOUT": "3s",
    "AERON_PUBLICATION_LINGER_TIMEOUT": "500ms",
    "AERON_IMAGE_LIVENESS_TIMEOUT": "2s",
    "AERON_TIMER_INTERVAL": "200ms",
}
DRIVER_TIMEOUT_S = 3
# (the client, its driver).
STRANGERS = [("mainstem", "reference"), ("pyaeron", "mainstem")]
PAIRS = [*STRANGERS, ("mainstem", "mainstem")]


class Counters:
    """A driver's counters."""

    def __init__(self, driver: DriverProcess) -> None:
        cnc = CncFile.map(MappedFiles(), str(driver.directory))
        assert cnc is not None
        self._cnc = cnc
        self._reader = cnc.counters()

    def value(self, counter: SystemCounter) -> int:
        return self._reader.value(counter)

    def labels(self) -> list[str]:
        return [self._reader.label(each) for each in self._reader]

    def close(self) -> None:
        self._cnc.close()


@pytest.mark.parametrize("mode", ["ipc", "unicast"])
@pytest.mark.parametrize(("client", "driver"), PAIRS)
def test_a_publisher_killed_at_once_is_reaped_and_its_stream_ends(
    start_driver: DriverFactory, start_peer: PeerFactory, port: int, client: str, driver: str, mode: str
) -> None:
    one = start_driver(driver, **IMPATIENT)
    subscribe, publish = (named(text, port) for text in (MODES[mode].subscribe, MODES[mode].publish))
    receiving = start_peer("mainstem", "sub", one, subscribe, count=500, to_end=True)
    receiving.wait_for("ready")
    sending = start_peer(client, "pub", one, publish, count=500, hold=True)
    sending.wait_for("ready")
    receiving.wait_for("round")
    counters = Counters(one)
    heartbeats = sum("client-heartbeat" in label for label in counters.labels())
    sending.kill()
    wait_for(lambda: counters.value(SystemCounter.CLIENT_TIMEOUTS) == 1, "the driver did not miss its client")
    assert receiving.result() == {"count": 500, "fault": "", "ended": True}
    wait_for(lambda: not any("pub-" in label for label in counters.labels()), "the publication stayed")
    assert sum("client-heartbeat" in label for label in counters.labels()) < heartbeats
    counters.close()


@pytest.mark.parametrize("mode", ["ipc", "unicast"])
@pytest.mark.parametrize(("client", "driver"), PAIRS)
def test_a_killed_subscriber_no_longer_stalls_the_stream(
    start_driver: DriverFactory, start_peer: PeerFactory, port: int, client: str, driver: str, mode: str
) -> None:
    one = start_driver(driver, **IMPATIENT)
    subscribe, publish = (named(text, port) for text in (MODES[mode].subscribe, MODES[mode].publish))
    staying = start_peer("mainstem", "sub", one, subscribe, count=2_000, to_end=True)
    staying.wait_for("ready")
    dying = start_peer(client, "sub", one, subscribe, count=1_000, hold=True)
    dying.wait_for("ready")
    sending = start_peer("mainstem", "pub", one, publish, count=1_000, rounds=1, hold=True)
    sending.wait_for("ready")
    dying.wait_for("round")
    counters = Counters(one)
    dying.kill()
    wait_for(lambda: counters.value(SystemCounter.CLIENT_TIMEOUTS) == 1, "the driver did not miss its client")
    wait_for(lambda: sum(label.startswith("sub-pos") for label in counters.labels()) == 1, "its position stayed")
    counters.close()
    # The stream still works for the remaining subscriber: a second publisher's messages arrive in full.
    sending.kill()
    again = start_peer(client, "pub", one, publish, count=1_000)
    again.wait_for("ready")
    assert again.result()["sent"] == 1_000


@pytest.mark.parametrize(("client", "driver"), PAIRS)
def test_a_client_reports_that_its_driver_was_killed(
    start_driver: DriverFactory, start_peer: PeerFactory, client: str, driver: str
) -> None:
    one = start_driver(driver, **IMPATIENT)
    environment = {"AERON_DRIVER_TIMEOUT": str(1000 * DRIVER_TIMEOUT_S)}
    watching = start_peer(client, "watch", one, "aeron:ipc", environment=environment)
    watching.wait_for("ready")
    one.kill()
    # The reference's client writes this and exits; Mainstem's raises it.
    wanted = {
        "mainstem": "DriverTimeout: the media driver is presumed dead",
        "pyaeron": "MediaDriver keepalive: age=",
    }
    assert wanted[client] in watching.last_words()


@pytest.mark.parametrize(("client", "driver"), PAIRS)
def test_a_client_reports_that_its_driver_was_shut_down(
    start_driver: DriverFactory, start_peer: PeerFactory, client: str, driver: str
) -> None:
    one = start_driver(driver, **IMPATIENT)
    watching = start_peer(client, "watch", one, "aeron:ipc")
    watching.wait_for("ready")
    begin = time.monotonic()
    one.stop()
    wanted = {
        "mainstem": "DriverTimeout: the media driver has been shut down",
        "pyaeron": "MediaDriver has been shutdown",
    }
    assert wanted[client] in watching.last_words()
    # Long before the driver's heartbeat would be considered stale.
    assert time.monotonic() - begin < 9
