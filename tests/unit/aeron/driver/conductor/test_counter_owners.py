"""The owner of each counter, as in the reference: a client, 0 for no owner, -1 for the driver or flow control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.invoked_driver import CLIENT, only

from mainstem._core.system_counter import OWN_TYPE_ID, REFERENCE_TYPE_ID
from mainstem.aeron.command import responses
from mainstem.aeron.counters import CounterType

if TYPE_CHECKING:
    from tests.support.invoked_driver import InvokedDriver

STREAM = (
    CounterType.PUBLISHER_POSITION,
    CounterType.PUBLISHER_LIMIT,
    CounterType.SENDER_POSITION,
    CounterType.SENDER_LIMIT,
    CounterType.SENDER_BACK_PRESSURE_EVENTS,
    CounterType.SENDER_NAKS_RECEIVED,
    CounterType.RECEIVER_HIGH_WATER_MARK,
    CounterType.RECEIVER_POSITION,
    CounterType.RECEIVER_NAKS_SENT,
    CounterType.SUBSCRIBER_POSITION,
    CounterType.CLIENT_HEARTBEAT,
)
CHANNEL = (
    CounterType.SEND_CHANNEL_STATUS,
    CounterType.RECEIVE_CHANNEL_STATUS,
    CounterType.LOCAL_ADDRESS,
    CounterType.DESTINATIONS,
)
DRIVER = (REFERENCE_TYPE_ID, OWN_TYPE_ID, CounterType.FLOW_CONTROL_RECEIVERS, CounterType.PER_IMAGE)


def test_streams_counters_belong_to_the_client_and_channels_to_none(driver: InvokedDriver) -> None:
    control = "control=127.0.0.1:24091|control-mode=dynamic"
    only(driver.add_publication(f"aeron:udp?{control}|fc=min"), responses.OnPublicationReady)
    driver.add_subscription(f"aeron:udp?endpoint=127.0.0.1:24092|{control}|cc=cubic")
    driver.run(2)
    counters = driver.counters
    owners: dict[int, set[int]] = {}
    for counter_id in counters:
        owners.setdefault(counters.type_id(counter_id), set()).add(counters.owner_id(counter_id))
    expected = {key: {CLIENT} for key in STREAM} | {key: {0} for key in CHANNEL} | {key: {-1} for key in DRIVER}
    assert owners == expected


def test_clients_ids_begin_at_1(driver: InvokedDriver) -> None:
    assert driver.core.cnc.to_driver.next_correlation_id() == 1
