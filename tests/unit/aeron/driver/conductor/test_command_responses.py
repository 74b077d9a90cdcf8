"""Every command gets exactly one response with its correlation id, whatever its fields contain."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.invoked_driver import CLIENT, InvokedDriver, count, only

from mainstem.aeron.command import commands, responses
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.command.wire import Counted, _layout
from mainstem.aeron.files import MemoryFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem._core.memory.counters import CountersManager

WITHOUT_RESPONSE = (commands.ClientKeepalive, commands.ClientClose, commands.TerminateDriver)
OTHER_CLIENT = CLIENT + 1
HEADER_LENGTH = 16
PUBLICATION, SUBSCRIPTION, COUNTER = 9001, 9002, 9003
COOL_DOWN_MS = 10_000  # longer than the cool-down of a freed counter
SPACE = 64 << 20  # of the file system: too small for a log with terms of 1 GiB
FIRST_ID = 1 << 40  # of the generated commands: the driver draws no such id
CHANNELS = (
    "aeron:ipc",
    "aeron:udp?endpoint=127.0.0.1:20121",
    "aeron:udp?control=127.0.0.1:20122|control-mode=manual",
    "aeron-spy:aeron:udp?endpoint=127.0.0.1:20121",
    "aeron:udp?endpoint=127.0.0.1:0",
    "aeron:udp?endpoint=[::1]:20123",
    "aeron:udp?control-mode=manual",
    "aeron:udp?endpoint=127.0.0.1:20121|session-id=tag:4",
    "aeron:ipc?term-length=1g|sparse=true",
    "aeron:ipc?alias=",
    "",
    "aeron:",
    "aeron:udp?",
    "aeron:udp?endpoint=",
    "aeron:ipc?mtu=" + "9" * 2000,
)

channels = st.sampled_from(CHANNELS).map(str.encode) | st.builds(
    lambda head, tail: head.encode() + tail, st.sampled_from(CHANNELS), st.binary(max_size=20)
)
texts = channels | st.binary(max_size=64) | st.sampled_from([380, 381, 1023, 1024, 4000]).map(lambda n: b"x" * n)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)
ids = st.sampled_from([PUBLICATION, SUBSCRIPTION, COUNTER, 0, -1, 1 << 62]) | numbers
lengths = st.sampled_from([-(1 << 31), -1, 0, 1, 3, 112, 113, 381, 1 << 16, (1 << 31) - 1]) | st.none()


@st.composite
def records(draw: st.DrawFn, kind: type[commands.Command], correlation_id: int) -> bytes:
    """Draw a record of a command: each field can have any value, each length can be wrong, the record can be cut or extended."""
    payload = bytearray()
    for name, field, _ in _layout(kind):
        if name == "client_id":
            payload += struct.pack("<q", draw(st.sampled_from([CLIENT, OTHER_CLIENT])))
        elif name == "correlation_id":
            payload += struct.pack("<q", correlation_id)
        elif isinstance(field, Counted):
            data = draw(texts)
            wrong = draw(lengths)
            payload += struct.pack("<i", len(data) if wrong is None else wrong) + data
            payload += bytes(-len(payload) % field.align)
        else:
            size = field.layout.size
            payload += draw(ids).to_bytes(8, "little", signed=True)[:size].ljust(size, b"\0")
    end = draw(st.none() | st.integers(0, len(payload)))
    return bytes(payload[:end]) + draw(st.binary(max_size=8))


def correlation_id_of(record: bytes) -> int | None:
    return struct.unpack_from("<q", record, 8)[0] if len(record) >= HEADER_LENGTH else None


@pytest.fixture
def owner() -> Iterator[InvokedDriver]:
    """Yield a driver with one resource of each kind, owned by client CLIENT."""
    driver = prepared()
    yield driver
    driver.close()


def prepared() -> InvokedDriver:
    driver = InvokedDriver(files=MemoryFiles(space=SPACE), socket_so_sndbuf=1 << 21, socket_so_rcvbuf=1 << 21)
    channel = "aeron:udp?control=127.0.0.1:20200|control-mode=manual"
    own: dict[str, Any] = {"client_id": CLIENT, "stream_id": 1001}
    driver.ask(commands.AddPublication(correlation_id=PUBLICATION, channel=channel, **own))
    driver.ask(commands.AddSubscription(correlation_id=SUBSCRIPTION, channel="aeron:udp?control-mode=manual", **own))
    driver.ask(commands.AddCounter(client_id=CLIENT, correlation_id=COUNTER, type_id=1001, key=b"", label="c"))
    return driver


def answers(found: list[responses.Response], correlation_id: int) -> list[responses.Response]:
    """Return the responses to a command; ON_UNAVAILABLE_… and announcements of images do not count."""
    return [
        each
        for each in found
        if correlation_id in (getattr(each, "correlation_id", None), getattr(each, "offending_correlation_id", None))
    ]


@pytest.mark.parametrize("kind", commands.COMMANDS.values(), ids=lambda kind: kind.__name__)
@settings(max_examples=settings().max_examples // 4)
@given(data=st.data())
def test_a_command_of_any_content_gets_one_response(kind: type[commands.Command], data: st.DataObject) -> None:
    driver = prepared()
    for _ in range(3):
        record = data.draw(records(kind, FIRST_ID + driver.next_id()))
        assert driver.cnc.to_driver.write(kind.TYPE, record)
        found = driver.cycle() + driver.run(3, step=1, alive=(CLIENT, OTHER_CLIENT))
        correlation_id = correlation_id_of(record)
        if correlation_id is None:
            assert not any(isinstance(each, responses.OnError) for each in found)
            continue
        found = answers(found, correlation_id)
        if issubclass(kind, WITHOUT_RESPONSE):
            assert all(isinstance(each, responses.OnError) for each in found)
            assert len(found) <= 1
        else:
            assert len(found) == 1, found
    # The driver still works.
    assert only(driver.add_subscription("aeron:ipc", client_id=99), responses.OnSubscriptionReady)
    driver.close()


@pytest.mark.parametrize("free", range(8))
@pytest.mark.parametrize(
    "channel", ["aeron:ipc", "aeron:udp?endpoint=127.0.0.1:20121", "aeron:udp?endpoint=127.0.0.1:20122"]
)
@pytest.mark.parametrize("kind", [commands.AddExclusivePublication, commands.AddSubscription])
def test_a_command_without_enough_counters_gets_one_response(kind: Any, channel: str, free: int) -> None:
    driver = prepared()
    for existing in ("aeron:ipc", "aeron:udp?endpoint=127.0.0.1:20121"):
        driver.add_publication(existing)
        driver.add_subscription(existing)
    driver.run(1)
    manager = driver.core.conductor.client_counters._resources.counters.manager
    taken = fill(manager)
    for counter_id in taken[:free]:
        manager.free(counter_id, -COOL_DOWN_MS)
    correlation_id = driver.next_id()
    command = kind(client_id=CLIENT, correlation_id=correlation_id, stream_id=1001, channel=channel)
    (response,) = answers(driver.ask(command) + driver.run(1), correlation_id)
    if isinstance(response, responses.OnError):
        driver.clock.advance_ns(COOL_DOWN_MS * 1_000_000)
        assert len(fill(manager)) == free, "a refused command keeps counters"
    driver.close()


def fill(manager: CountersManager) -> list[int]:
    """Allocate every free counter."""
    taken = []
    with suppress(BufferError):
        while True:
            taken.append(manager.allocate(1001, b"", "", now_ms=1 << 60))
    return taken


def test_an_unknown_command_type_gets_an_error(owner: InvokedDriver) -> None:
    for type_id in (0x13, 0x77, 0x7FFFFFFF):
        assert owner.cnc.to_driver.write(type_id, struct.pack("<qq", CLIENT, type_id))
        error = only(owner.cycle(), responses.OnError)
        assert (error.offending_correlation_id, error.code) == (type_id, ErrorCode.UNKNOWN_COMMAND_TYPE_ID)


@pytest.mark.parametrize("kind", [commands.AddCounter, commands.AddStaticCounter])
def test_a_long_key_and_label_are_truncated(owner: InvokedDriver, kind: type[commands.Command]) -> None:
    key, label = bytes(range(200)), "ä" * 250
    correlation_id = owner.next_id()
    payload = struct.pack("<qq", CLIENT, correlation_id) + (b"" if kind is commands.AddCounter else bytes(8))
    payload += struct.pack("<ii", 1001, len(key)) + key + struct.pack("<i", 2 * len(label)) + label.encode()
    assert owner.cnc.to_driver.write(kind.TYPE, payload)
    (ready,) = answers(owner.cycle(), correlation_id)
    assert isinstance(ready, responses.OnCounterReady | responses.OnStaticCounter)
    assert owner.counters.key(ready.counter_id) == key[:112]
    assert owner.counters.label(ready.counter_id) == label[:190]


def test_a_reason_that_is_too_long_is_refused(owner: InvokedDriver) -> None:
    command = commands.RejectImage(
        client_id=CLIENT, correlation_id=owner.next_id(), image_correlation_id=1, position=0, reason="x" * 1024
    )
    error = only(owner.ask(command), responses.OnError)
    assert error.code is ErrorCode.GENERIC_ERROR
    assert "Invalidation reason must be 1023 bytes or less (got 1024)" in error.message


def test_a_reason_that_is_not_utf_8_rejects_an_image() -> None:
    driver = InvokedDriver()
    driver.add_subscription("aeron:udp?endpoint=127.0.0.1:20121")
    image = only(
        driver.add_publication("aeron:udp?endpoint=127.0.0.1:20121") + driver.run(1), responses.OnAvailableImage
    )
    command = commands.RejectImage(
        client_id=CLIENT,
        correlation_id=driver.next_id(),
        image_correlation_id=image.image_correlation_id,
        position=0,
        reason=b"no\xff".decode("utf-8", "surrogateescape"),
    )
    found = driver.ask(command) + driver.run(1)
    assert only(found, responses.OnOperationSuccess)
    assert {each.message for each in found if isinstance(each, responses.OnPublicationError)} == {"no"}
    driver.close()


@pytest.mark.parametrize(
    ("kind", "fields", "code"),
    [
        (commands.RemovePublication, {"registration_id": PUBLICATION}, ErrorCode.UNKNOWN_PUBLICATION),
        (commands.RemoveSubscription, {"registration_id": SUBSCRIPTION}, ErrorCode.UNKNOWN_SUBSCRIPTION),
        (commands.RemoveCounter, {"registration_id": COUNTER}, ErrorCode.UNKNOWN_COUNTER),
        (
            commands.RemoveDestination,
            {"registration_id": PUBLICATION, "channel": "aeron:udp?endpoint=127.0.0.1:20300"},
            ErrorCode.UNKNOWN_PUBLICATION,
        ),
        (
            commands.RemoveDestinationById,
            {"resource_registration_id": PUBLICATION, "destination_registration_id": 1},
            ErrorCode.UNKNOWN_PUBLICATION,
        ),
        (
            commands.RemoveReceiveDestination,
            {"registration_id": SUBSCRIPTION, "channel": "aeron:udp?endpoint=127.0.0.1:20300"},
            ErrorCode.UNKNOWN_SUBSCRIPTION,
        ),
    ],
)
def test_a_client_cannot_remove_resources_of_another(
    owner: InvokedDriver, kind: Any, fields: dict[str, Any], code: ErrorCode
) -> None:
    for client_id in (OTHER_CLIENT, -1, 0):
        error = only(owner.ask(kind(client_id=client_id, correlation_id=owner.next_id(), **fields)), responses.OnError)
        assert error.code is code
    command = kind(client_id=CLIENT, correlation_id=owner.next_id(), **fields)
    assert only(owner.ask(command), responses.OnOperationSuccess)


def test_a_shared_publication_takes_destinations_by_the_id_that_created_it(owner: InvokedDriver) -> None:
    channel = "aeron:udp?control=127.0.0.1:20200|control-mode=manual"
    ready = only(owner.add_publication(channel, client_id=OTHER_CLIENT), responses.OnPublicationReady)
    assert ready.original_registration_id == PUBLICATION
    owner.ask(commands.RemovePublication(client_id=CLIENT, correlation_id=owner.next_id(), registration_id=PUBLICATION))
    for registration_id in (PUBLICATION, ready.correlation_id):
        command = commands.AddDestination(
            client_id=OTHER_CLIENT,
            correlation_id=owner.next_id(),
            registration_id=registration_id,
            channel="aeron:udp?endpoint=127.0.0.1:20300",
        )
        assert only(owner.ask(command), responses.OnOperationSuccess)


@pytest.mark.parametrize(
    "command",
    [
        commands.AddPublication(
            client_id=OTHER_CLIENT,
            correlation_id=PUBLICATION,
            stream_id=1001,
            channel="aeron:udp?control=127.0.0.1:20200|control-mode=manual",
        ),
        commands.AddSubscription(
            client_id=OTHER_CLIENT, correlation_id=SUBSCRIPTION, stream_id=1001, channel="aeron:ipc"
        ),
        commands.AddCounter(client_id=OTHER_CLIENT, correlation_id=COUNTER, type_id=1001, key=b"", label="c"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_registration_id_in_use_is_refused(owner: InvokedDriver, command: commands.Command) -> None:
    error = only(owner.ask(command), responses.OnError)
    assert error.code is ErrorCode.GENERIC_ERROR
    assert "already in use" in error.message


def test_a_response_fits_the_smallest_broadcast_buffer() -> None:
    driver = InvokedDriver(clients_buffer_length=1024 + 128)
    found = driver.add_publication("aeron:ipc?alias=" + "x" * 6000)
    assert count(found, responses.OnError) == 1
    driver.close()
