"""Keys and labels of a driver's counters."""

from __future__ import annotations

import struct

import pytest

from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._core.memory.counters import CountersManager
from mainstem._core.system_counter import REFERENCE_COUNTERS, SystemCounter
from mainstem.aeron import counters as names
from mainstem.aeron.counters import ChannelStatus, CounterType
from mainstem.aeron.driver.counters import SystemCounters, cycle_time_suffixes

CHANNEL = "aeron:udp?endpoint=localhost:40456"


@pytest.fixture
def manager():
    return CountersManager(AtomicBuffer(bytearray(512 * 64)), AtomicBuffer(bytearray(128 * 64)))


def test_a_stream_counter_carries_the_stream_in_key_and_label():
    spec = names.stream_counter(CounterType.SENDER_LIMIT, 7, session_id=-5, stream_id=1001, channel=CHANNEL)
    assert spec.type_id == 9
    assert spec.key == struct.pack("<qiii", 7, -5, 1001, 34) + CHANNEL.encode()
    assert spec.label == f"snd-lmt: 7 -5 1001 {CHANNEL}"
    assert names.parse_stream_key(spec.key.ljust(112, b"\0")) == (7, -5, 1001, CHANNEL)


@pytest.mark.parametrize(("type_id", "name"), sorted((each, each.label) for each in names.STREAM_COUNTER_TYPES))
def test_every_stream_counter_has_its_own_name(type_id, name):
    spec = names.stream_counter(type_id, 1, session_id=2, stream_id=3, channel="aeron:ipc")
    assert spec.label == f"{name}: 1 2 3 aeron:ipc"


def test_publisher_positions_tell_exclusive_from_concurrent():
    facts = {"session_id": 2, "stream_id": 3, "channel": "aeron:ipc"}
    assert names.publisher_position(1, **facts, exclusive=True).label == "pub-pos (exclusive): 1 2 3 aeron:ipc"
    assert names.publisher_position(1, **facts, exclusive=False).label == "pub-pos (concurrent): 1 2 3 aeron:ipc"


def test_a_per_image_counter_is_named_by_its_owner():
    spec = names.stream_counter(
        CounterType.PER_IMAGE, 1, session_id=2, stream_id=3, channel="aeron:ipc", name="rcv-cc-cubic-wnd"
    )
    assert (spec.type_id, spec.label) == (10, "rcv-cc-cubic-wnd: 1 2 3 aeron:ipc")


def test_a_subscriber_position_label_ends_with_its_join_position():
    facts = {"session_id": 2, "stream_id": 3}
    spec = names.subscriber_position(1, **facts, channel="aeron:ipc", join_position=4096)
    assert spec.label == "sub-pos: 1 2 3 aeron:ipc @4096"
    long = names.subscriber_position(1, **facts, channel="aeron:ipc?alias=" + "x" * 1000, join_position=4096)
    assert len(long.label) == 380
    assert long.label.endswith("xxx @4096")


def test_long_channels_are_cut_to_what_the_key_has_room_for():
    channel = "aeron:ipc?alias=" + "x" * 200
    spec = names.stream_counter(CounterType.PUBLISHER_LIMIT, 1, session_id=2, stream_id=3, channel=channel)
    assert len(spec.key) == 112
    assert names.parse_stream_key(spec.key).channel == channel[:92]
    status = names.send_channel_status(channel, "0.0.0.0:0")
    assert len(status.key) == 112
    assert status.key[4:].decode() == channel[:108]


def test_channel_counters_carry_the_channel_and_the_address():
    assert names.send_channel_status(CHANNEL, "127.0.0.1:0") == (
        6,
        struct.pack("<i", 34) + CHANNEL.encode(),
        f"snd-channel: {CHANNEL} 127.0.0.1:0",
    )
    assert names.receive_channel_status(CHANNEL, "127.0.0.1:40456").type_id == 7
    assert names.destinations(CHANNEL) == (18, struct.pack("<i", 34) + CHANNEL.encode(), f"mdc-num-dest: {CHANNEL}")


def test_a_local_address_names_its_endpoint():
    spec = names.local_address(49, "127.0.0.1:40456", receive=True)
    assert spec == (14, struct.pack("<ii", 49, 15) + b"127.0.0.1:40456", "rcv-local-sockaddr: 49 127.0.0.1:40456")
    assert names.local_address(49, "x:1", receive=False).label == "snd-local-sockaddr: 49 x:1"
    assert names.parse_local_address_key(spec.key) == (49, "127.0.0.1:40456")


def test_active_local_addresses_are_found_by_endpoint(manager):
    ids = [
        manager.allocate(*names.local_address(endpoint, f"127.0.0.1:{port}", receive=True), now_ms=0, value=value)
        for endpoint, port, value in [(1, 10, 1), (2, 20, 1), (1, 30, 0), (1, 40, 1)]
    ]
    manager.allocate(*names.client_heartbeat(1), now_ms=0, value=ChannelStatus.ACTIVE)
    assert names.find_local_addresses(manager, 1) == ["127.0.0.1:10", "127.0.0.1:40"]
    manager.free(ids[0], 0)
    assert names.find_local_addresses(manager, 1) == ["127.0.0.1:40"]


def test_a_client_heartbeat_is_keyed_by_its_client():
    assert names.client_heartbeat(77) == (11, struct.pack("<q", 77), "client-heartbeat: id=77")


def test_the_system_counters_come_first_and_in_order(manager):
    counters = SystemCounters(
        manager,
        now_ms=5,
        suffixes=cycle_time_suffixes("SHARED", {SystemCounter.SENDER_CYCLE_TIME_EXCEEDED: 100_000_000}),
    )
    assert list(manager) == list(range(len(SystemCounter))) == [int(counter) for counter in SystemCounter]
    assert [manager.label(counter) for counter in (0, 14)] == ["Bytes sent", "Invalid packets"]
    assert manager.label(28) == "Sender max cycle time doing its work in ns: SHARED"
    assert manager.label(29) == "Sender work cycle exceeded threshold count: threshold=100ms SHARED"
    assert manager.key(14)[:4] == struct.pack("<i", 14)
    assert manager.value(43) == 65_536
    counters.increment(SystemCounter.ERRORS)
    counters.increment(SystemCounter.BYTES_SENT, 100)
    assert (manager.value(15), manager.value(0)) == (1, 100)


def test_every_counter_has_a_distinct_label_and_a_meaning():
    assert len({each.label for each in SystemCounter}) == len(SystemCounter)
    assert all(each.meaning for kinds in (SystemCounter, CounterType) for each in kinds)


def test_counters_of_mainstems_own_have_a_type_that_the_reference_leaves_to_applications(manager):
    # Types of the driver and the archive are below 200, those of a cluster 200 to 299; applications start at 1000.
    SystemCounters(manager, now_ms=0)
    types = {counter: manager.type_id(counter) for counter in SystemCounter}
    own = {counter for counter, type_id in types.items() if type_id != CounterType.SYSTEM}
    assert own == {counter for counter in SystemCounter if counter >= REFERENCE_COUNTERS}
    assert all(types[counter] >= 1000 for counter in own)


def test_a_snapshot_holds_every_field(manager):
    manager.allocate(*names.client_heartbeat(77), now_ms=0, registration_id=77, owner_id=77, value=123)
    (one,) = names.snapshot(manager)
    assert (one.counter_id, one.type_id, one.value, one.registration_id, one.owner_id) == (0, 11, 123, 77, 77)
    assert one.label == "client-heartbeat: id=77"
    assert one.key == struct.pack("<q", 77).ljust(112, b"\0")
