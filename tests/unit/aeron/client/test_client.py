from __future__ import annotations

import array
import gc
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import STALL_S
from tests.unit.aeron.client.hand_driver import DIRECTORY, LIVENESS_NS, HandDriver

from mainstem._core import layout
from mainstem.aeron.client import Action, Aeron, ClientContext, ClientSettings, FragmentAssembler, OfferStatus
from mainstem.aeron.command import commands, responses
from mainstem.aeron.counters import ChannelStatus, CounterType, stream_counter
from mainstem.errors import (
    BackPressured,
    ChannelUriError,
    ClientTimeout,
    ClosedError,
    CorruptLogError,
    DriverTimeout,
    LocalProtocolError,
    NotConnected,
    RegistrationError,
    Timeout,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANNEL = "aeron:ipc"
SECOND = 1_000_000_000


class World:
    def __init__(self, **more: Any) -> None:
        self.driver = HandDriver()
        self.errors: list[BaseException] = []
        self.events: list[Any] = []
        self.context = ClientContext(
            settings=ClientSettings(dir=DIRECTORY, client_name="tester"),
            files=self.driver.files,
            clock=self.driver.clock,
            use_invoker=True,
            driver_invoker=self.driver.do_work,
            on_error=self.errors.append,
            on_close=lambda: self.events.append("closed"),
            **more,
        )
        self.aeron = Aeron.connect(context=self.context)

    def run(self, cycles: int = 3) -> None:
        for _ in range(cycles):
            self.driver.do_work()
            self.aeron.invoke()

    def sleep(self, ns: int, step_ns: int = SECOND) -> None:
        while ns > 0:
            self.driver.clock.advance_ns(min(ns, step_ns))
            self.run(1)
            ns -= step_ns


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.aeron.close()


def test_a_message_goes_from_a_publication_to_a_subscription(world: World):
    publication = world.aeron.add_publication(CHANNEL, 1001)
    subscription = world.aeron.add_subscription(CHANNEL, 1001)
    world.run()
    assert publication.offer(b"tide") == 64
    seen: list[Any] = []
    assert subscription.poll(lambda f: seen.append((bytes(f), f.position, f.header.session_id))) == 1
    assert seen == [(b"tide", 64, publication.session_id)]
    assert (publication.channel, publication.stream_id, subscription.channel) == (CHANNEL, 1001, CHANNEL)
    assert subscription.is_connected
    assert publication.is_connected
    (image,) = subscription.images
    assert image.source_identity == CHANNEL
    assert subscription.image_by_session_id(publication.session_id) is image
    assert subscription.image_by_session_id(0) is None
    assert publication.channel_status is ChannelStatus.ACTIVE
    assert repr(publication) == "<Publication aeron:ipc stream 1001>"
    assert publication.local_addresses == []


def test_whole_messages_come_through_an_assembler_an_iterator_and_arrow(world: World):
    pytest.importorskip("pyarrow")
    publication = world.aeron.add_exclusive_publication(CHANNEL, 5)
    subscription = world.aeron.add_subscription(CHANNEL, 5)
    world.run()
    world.driver.counters.cell(world.driver.publications[publication.registration_id].position_limit_id).set(1 << 40)
    messages = [bytes([i]) * (i * 300) for i in range(10)]
    seen: list[bytes] = []
    assembler = FragmentAssembler(lambda message: seen.append(bytes(message)))
    assert publication.offer_many(messages)[0] == 10
    while subscription.poll(assembler, 3):
        pass
    assert seen == messages
    assert publication.offer_many(messages)[0] == 10
    iterator = subscription.messages(timeout=1.0)
    assert [next(iterator) for _ in range(10)] == messages
    assert publication.offer_many(messages)[0] == 10
    batch = subscription.poll_arrow(limit=7)
    assert batch.schema.names == ["position", "session_id", "reserved_value", "payload"]
    rest = subscription.poll_arrow()
    assert batch.column("payload").to_pylist() + rest.column("payload").to_pylist() == messages
    assert rest.column("position")[-1].as_py() == publication.position == subscription.images[0].position
    assert set(batch.column("session_id").to_pylist()) == {publication.session_id}
    assert subscription.poll_arrow().num_rows == 0


def test_pyarrow_columns_are_offered_without_copying(world: World):
    pa = pytest.importorskip("pyarrow")
    publication = world.aeron.add_publication(CHANNEL, 5)
    subscription = world.aeron.add_subscription(CHANNEL, 5)
    world.run()
    rows = [b"one", b"", b"three", b"four"]
    for kind in (pa.binary(), pa.large_binary()):
        column = pa.array(rows, kind)
        assert publication.offer_arrow(column)[0] == 4
        assert publication.offer_arrow(column.slice(1), first=1, count=2)[0] == 2
        assert publication.offer_arrow(pa.chunked_array([column[:3], column[3:], column]), first=2, count=3)[0] == 3
        expected = [*rows, b"three", b"four", b"three", b"four", b"one"]
        assert subscription.poll_bytes() == expected
    assert publication.offer_arrow(pa.array(["text"]))[0] == 1
    assert publication.offer_arrow(pa.array([], pa.binary()))[0] == 0
    with pytest.raises(ValueError, match="1 nulls"):
        publication.offer_arrow(pa.array([b"x", None]))
    with pytest.raises(TypeError, match="int64"):
        publication.offer_arrow(pa.array([1]))
    with pytest.raises(ValueError, match="outside"):
        publication.offer_arrow(column, first=3, count=2)
    position, limit = publication.position, publication.position_limit
    many = pa.array([b"x"] * 2000)
    taken, after = publication.offer_arrow(many)
    assert (taken, after) == ((limit - position) // 64, limit)
    assert publication.offer_arrow(many) == (0, OfferStatus.BACK_PRESSURED)


def test_scan_and_release_take_any_writable_buffers(world: World):
    publication = world.aeron.add_publication(CHANNEL, 5)
    subscription = world.aeron.add_subscription(CHANNEL, 5)
    world.run()
    publication.offer_many([b"one", b"three"])
    (image,) = subscription.images
    offsets, lengths = array.array("q", bytes(80)), array.array("i", bytes(40))
    count, position = image.scan_into(offsets, lengths)
    assert [image.log.get_bytes(offsets[i], lengths[i]) for i in range(count)] == [b"one", b"three"]
    image.release(position)
    assert image.position == 128


def test_a_corrupt_log_is_an_error_with_path_and_position(world: World):
    publication = world.aeron.add_publication(CHANNEL, 5)
    subscription = world.aeron.add_subscription(CHANNEL, 5)
    world.run()
    publication.offer_many([b"one", b"two"])
    path = f"{DIRECTORY}/{publication.registration_id}.logbuffer"
    world.driver.files.map(path).put_i32(64, 1 << 30)
    assert subscription.poll_bytes(1) == [b"one"]
    for read in (
        subscription.poll_bytes,
        lambda: subscription.poll(print),
        subscription.poll_arrow,
        lambda: next(subscription.messages(timeout=1)),
        subscription.images[0].readable,
    ):
        with pytest.raises(CorruptLogError, match="position 64: a frame of 1073741824 bytes") as error:
            read()
        assert (error.value.log_file, error.value.position) == (path, 64)
        assert path in str(error.value)


def test_a_corrupt_tail_is_an_error_with_the_log(world: World):
    operation = world.aeron.async_add_publication(CHANNEL, 5)
    world.driver.do_work()
    path = f"{DIRECTORY}/{operation.correlation_id}.logbuffer"
    log = world.driver.files.map(path)
    meta = log.capacity - layout.LOG_METADATA_LENGTH
    log.put_i64(meta, log.get_i64(meta) + 3)
    world.run()
    with pytest.raises(CorruptLogError, match="no frame begins there") as error:
        operation.poll()
    assert (error.value.log_file, error.value.position) == (path, -1)


def test_a_corrupt_subscriber_position_is_an_error_with_log_and_position(world: World):
    publication = world.aeron.add_publication(CHANNEL, 5)
    subscription = world.aeron.add_subscription(CHANNEL, 5)
    world.run()
    path = f"{DIRECTORY}/{publication.registration_id}.logbuffer"
    counters = world.driver.cnc.counters_values
    counters.put_i64(subscription.images[0].position_counter_id * layout.COUNTER_VALUE_LENGTH, -96)
    with pytest.raises(CorruptLogError, match="no frame begins at position -96") as error:
        subscription.poll(print)
    assert (error.value.log_file, error.value.position) == (path, -96)


def test_an_image_of_an_invalid_log_is_refused_and_the_client_continues(world: World):
    publication = world.aeron.add_publication(CHANNEL, 5)
    log = world.driver.files.map(f"{DIRECTORY}/{publication.registration_id}.logbuffer")
    log.put_i32(log.capacity - layout.LOG_METADATA_LENGTH + layout.LOG_TERM_LENGTH_OFFSET, 77)
    subscription = world.aeron.add_subscription(CHANNEL, 5)
    world.run()
    assert not subscription.images
    (error,) = world.errors
    assert isinstance(error, CorruptLogError)
    assert "cannot have terms of 77" in str(error)


def test_a_controlled_poll_takes_actions(world: World):
    publication = world.aeron.add_publication(CHANNEL, 5)
    subscription = world.aeron.add_subscription(CHANNEL, 5)
    world.run()
    publication.offer_many([b"one", b"two"])
    assert subscription.controlled_poll(lambda f: Action.ABORT) == 0
    assert subscription.controlled_poll(lambda f: Action.BREAK) == 1
    assert subscription.controlled_poll(lambda f: Action.COMMIT) == 1


@pytest.mark.parametrize(
    ("flow_control", "receivers", "reason"),
    [
        ("|fc=min,g:/3", 1, "its group has 1 of 3 receivers, where all subscriptions on one driver are one receiver"),
        ("|fc=min,g:/3", 0, "its group has 0 of 3 receivers"),
        ("|fc=tagged,g:7/2", 1, "its group has 1 of 2 receivers"),
        ("|fc=min", 1, r"its group has too few \(1\) receivers"),
        ("|fc=min", 0, "no subscriber is connected"),
        ("", None, "no subscriber is connected"),
    ],
)
def test_an_incomplete_group_is_not_called_a_missing_subscriber(
    world: World, flow_control: str, receivers: int | None, reason: str
):
    channel = f"aeron:udp?endpoint=localhost:20121{flow_control}"
    publication = world.aeron.add_publication(channel, 1001)
    world.driver.counters.cell(world.driver.publications[publication.registration_id].position_limit_id).set(0)
    log = world.driver.files.map(f"{DIRECTORY}/{publication.registration_id}.logbuffer")
    log.put_i32(3 * 65536 + 136, 0)
    if receivers is not None:
        spec = stream_counter(
            CounterType.FLOW_CONTROL_RECEIVERS,
            publication.registration_id,
            session_id=1,
            stream_id=1001,
            channel=channel,
        )
        world.driver.counters.allocate(*spec, now_ms=0, registration_id=publication.registration_id, value=receivers)
    with pytest.raises(NotConnected, match=reason) as error:
        publication.send(b"x", timeout=0.1)
    assert error.value.receivers == receivers


def test_send_waits_for_room_and_reports_the_cause(world: World):
    publication = world.aeron.add_publication(CHANNEL, 1001)
    counter = world.driver.counters.cell(world.driver.publications[publication.registration_id].position_limit_id)
    counter.set(0)
    with pytest.raises(BackPressured, match=r"for 0\.5 s"):
        publication.send(b"x", timeout=0.5)
    log = world.driver.files.map(f"{DIRECTORY}/{publication.registration_id}.logbuffer")
    log.put_i32(3 * 65536 + 136, 0)
    with pytest.raises(NotConnected):
        publication.send(b"x", timeout=0)
    world.driver.clock.advance_ns(1)
    real, calls = world.driver.do_work, []

    def later() -> int:
        calls.append(1)
        if len(calls) == 5:
            counter.set(1 << 20)
        return real()

    world.aeron._conductor.invokers += (later,)
    assert publication.send(b"x") == 64
    assert len(calls) == 5
    publication.close()
    with pytest.raises(ClosedError, match="aeron:ipc stream 1001"):
        publication.send(b"x")


def test_an_iterator_of_messages_ends_with_the_stream(world: World):
    publication = world.aeron.add_publication(CHANNEL, 1001)
    subscription = world.aeron.add_subscription(CHANNEL, 1001)
    world.run()
    publication.offer_many([b"one", b"two"])
    log = world.driver.files.map(f"{DIRECTORY}/{publication.registration_id}.logbuffer")
    log.put_i64(3 * 65536 + 128, 128)
    assert list(subscription.messages(timeout=1.0)) == [b"one", b"two"]
    assert subscription.is_end_of_stream
    quiet = world.aeron.add_subscription(CHANNEL, 2)
    with pytest.raises(Timeout, match="no message arrived"):
        next(quiet.messages(timeout=0.1))
    iterator = quiet.messages()
    quiet.close()
    assert list(iterator) == []


def test_messages_are_received_one_by_one(world: World):
    publication = world.aeron.add_publication(CHANNEL, 1001)
    subscription = world.aeron.add_subscription(CHANNEL, 1001)
    world.run()
    publication.offer_many([b"one", b"two", b"three", bytes(3000)])
    log = world.driver.files.map(f"{DIRECTORY}/{publication.registration_id}.logbuffer")
    log.put_i64(3 * 65536 + 128, publication.position)
    assert subscription.receive(timeout=1.0) == b"one"
    assert next(subscription.messages()) == b"two", "an iterator goes on from there"
    assert [subscription.receive() for _ in range(2)] == [b"three", bytes(3000)]
    with pytest.raises(ClosedError, match=r"every stream of .* has ended"):
        subscription.receive(timeout=1.0)
    quiet = world.aeron.add_subscription(CHANNEL, 2)
    with pytest.raises(Timeout, match="no message arrived"):
        quiet.receive(timeout=0.1)
    quiet.close()
    with pytest.raises(ClosedError, match="is closed"):
        quiet.receive()


def test_a_refused_command_raises_with_aerons_error_code(world: World):
    world.driver.refusal = (1, "no such thing")
    with pytest.raises(RegistrationError, match="the publication aeron:none stream 3: no such thing") as caught:
        world.aeron.add_publication("aeron:none", 3)
    assert caught.value.code == 1
    assert caught.value.correlation_id == world.driver.commands[-1].correlation_id
    operation = world.aeron.async_add_subscription("aeron:none", 3)
    assert operation.poll() is None
    world.run()
    with pytest.raises(RegistrationError):
        operation.poll()
    assert isinstance(operation.error, RegistrationError)


def test_arguments_of_the_wrong_type_never_reach_the_driver(world: World):
    with pytest.raises(TypeError, match="channel"):
        world.aeron.add_publication(b"aeron:ipc", 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stream_id must be an int"):
        world.aeron.add_subscription("aeron:ipc", "3")  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="stream_id"):
        world.aeron.add_subscription("aeron:ipc", 1 << 31)
    assert world.driver.commands == []
    assert world.aeron._conductor.pending == {}


def test_only_misspelled_channel_keys_are_kept_from_the_driver(world: World):
    aeron = world.aeron
    publication = aeron.add_exclusive_publication("aeron:udp?control-mode=manual", 3)
    sent = len(world.driver.commands)
    for add in (aeron.add_publication, aeron.add_exclusive_publication, aeron.add_subscription):
        with pytest.raises(ChannelUriError, match="'mtuu' is not a parameter: 'mtu' is"):
            add("aeron:ipc?mtuu=8k", 3)
    with pytest.raises(ChannelUriError, match="'endpont'"):
        publication.add_destination("aeron:udp?endpont=localhost:40456")
    assert len(world.driver.commands) == sent
    aeron.add_publication("aeron:ipc?newer=5|alias=\u00e9|mtu=nine", 3)
    assert len(world.driver.commands) == sent + 1
    publication.close()


def test_a_command_without_an_answer_times_out(world: World):
    world.driver.silent, world.driver.tick_ns = True, 100_000_000
    with pytest.raises(DriverTimeout, match="did not answer the publication"):
        world.aeron.add_publication(CHANNEL, 1)
    with pytest.raises(DriverTimeout, match=r"within 0\.5 s"):
        world.aeron.add_publication(CHANNEL, 1, timeout=0.5)
    assert world.aeron._conductor.pending == {}


def test_an_asynchronous_add_is_polled_until_it_is_there(world: World):
    operation = world.aeron.async_add_exclusive_publication(CHANNEL, 3)
    assert operation.poll() is None
    world.run()
    publication = operation.poll()
    assert publication is not None
    assert publication.offer(b"x") == OfferStatus.BACK_PRESSURED or publication.position == 64
    assert world.aeron.async_add_publication(CHANNEL, 3).wait().stream_id == 3
    assert world.aeron.async_add_counter(1000, "c").wait().get() == 0


def test_image_handlers_are_called_before_the_first_and_after_the_last_poll(world: World):
    events: list[Any] = []

    def available(image: Any) -> None:
        events.append(("available", image.session_id, len(image.subscription.images), image.closed))

    def unavailable(image: Any) -> None:
        events.append(("unavailable", image.session_id, len(image.subscription.images), image.closed))

    subscription = world.aeron.add_subscription(
        CHANNEL, 1, on_available_image=available, on_unavailable_image=unavailable
    )
    publication = world.aeron.add_publication(CHANNEL, 1)
    world.run()
    assert events == [("available", 1000, 0, False)]
    assert len(subscription.images) == 1
    publication.offer(b"x")
    (image,) = subscription.images
    log = image.log
    world.driver.take_image(publication.registration_id)
    world.run()
    assert events[1:] == [("unavailable", 1000, 0, True)]
    assert (subscription.images, subscription.is_connected, image.position) == ((), False, 0)
    assert log.capacity > 0, "a poll in another thread may still be reading it"
    world.sleep(4 * SECOND)
    assert log.capacity == 0
    world.driver.take_image(publication.registration_id)
    world.run()
    assert len(events) == 2


def test_the_contexts_handlers_serve_subscriptions_without_their_own():
    events: list[str] = []
    world = World(
        on_available_image=lambda image: events.append("available"),
        on_unavailable_image=lambda image: events.append("unavailable"),
    )
    world.aeron.add_subscription(CHANNEL, 1)
    publication = world.aeron.add_publication(CHANNEL, 1)
    world.run()
    world.driver.take_image(publication.registration_id)
    world.run()
    assert events == ["available", "unavailable"]
    world.aeron.close()


def test_handler_exceptions_go_to_the_error_handler(world: World):
    def bad(image: Any) -> None:
        raise KeyError("mine")

    subscription = world.aeron.add_subscription(CHANNEL, 1, on_available_image=bad)
    world.aeron.add_publication(CHANNEL, 1)
    world.run()
    assert [repr(error) for error in world.errors] == ["KeyError('mine')"]
    assert len(subscription.images) == 1


def test_a_handler_must_not_wait_but_may_add_without_waiting(world: World):
    operations: list[Any] = []

    def handler(image: Any) -> None:
        operations.append(world.aeron.async_add_publication(CHANNEL, 9))
        world.aeron.add_publication(CHANNEL, 9)

    world.aeron.add_subscription(CHANNEL, 1, on_available_image=handler)
    world.aeron.add_publication(CHANNEL, 1)
    world.run()
    assert isinstance(world.errors[0], LocalProtocolError)
    assert "async form" in str(world.errors[0])
    assert operations[0].poll().stream_id == 9


def test_a_subscription_closed_by_its_own_image_handler_lets_the_image_go(world: World):
    subscription = world.aeron.add_subscription(CHANNEL, 1, on_available_image=lambda image: image.subscription.close())
    world.aeron.add_publication(CHANNEL, 1)
    world.run()
    assert subscription.closed
    assert subscription.images == ()
    assert world.errors == []


def test_closing_tells_the_driver_once_and_ends_everything(world: World):
    publication = world.aeron.add_publication(CHANNEL, 1)
    subscription = world.aeron.add_subscription(CHANNEL, 1)
    counter = world.aeron.add_counter(1001, "mine", key=b"k")
    world.run()
    world.driver.commands.clear()
    (image,) = subscription.images
    for resource in (publication, subscription, counter):
        with resource:
            pass
        resource.close()
        assert resource.closed
    world.run()
    assert [type(command).__name__ for command in world.driver.commands] == [
        "RemovePublication",
        "RemoveSubscription",
        "RemoveCounter",
    ]
    assert publication.offer(b"x") == OfferStatus.CLOSED
    assert subscription.poll(print) == 0
    assert image.closed
    assert publication.channel_status is ChannelStatus.CLOSING
    assert repr(subscription) == "<Subscription aeron:ipc stream 1, closed>"


def test_revoking_tells_the_driver(world: World):
    publication = world.aeron.add_publication(CHANNEL, 1)
    publication.revoke()
    world.run()
    command = world.driver.commands[-1]
    assert isinstance(command, commands.RemovePublication)
    assert command.revoke


def test_destinations_are_added_and_removed_by_channel_or_by_id(world: World):
    publication = world.aeron.add_publication(CHANNEL, 1)
    subscription = world.aeron.add_subscription(CHANNEL, 1)
    first = publication.add_destination("aeron:udp?endpoint=a:1")
    publication.remove_destination("aeron:udp?endpoint=a:1")
    publication.remove_destination(first)
    second = subscription.async_add_destination("aeron:udp?endpoint=b:1").wait()
    subscription.remove_destination(second)
    subscription.remove_destination("aeron:udp?endpoint=b:1")
    assert [type(command).__name__ for command in world.driver.commands[-6:]] == [
        "AddDestination",
        "RemoveDestination",
        "RemoveDestinationById",
        "AddReceiveDestination",
        "RemoveReceiveDestination",
        "RemoveReceiveDestination",
    ]
    assert world.driver.commands[-2].channel == world.driver.commands[-1].channel
    with pytest.raises(ValueError, match="no destination with id 4711"):
        subscription.remove_destination(4711)
    assert world.driver.commands[-4].destination_registration_id == first
    publication.close()
    with pytest.raises(ClosedError, match="is closed"):
        publication.add_destination("aeron:udp?endpoint=a:1")


def test_destinations_of_a_shared_publication_name_the_registration_that_created_it(world: World):
    publication = world.aeron.add_publication(CHANNEL, 1)
    publication.original_registration_id = 4711
    publication.remove_destination(publication.add_destination("aeron:udp?endpoint=a:1"))
    add, remove = world.driver.commands[-2:]
    assert add.registration_id == remove.resource_registration_id == 4711


def test_an_image_is_rejected_with_a_reason(world: World):
    world.aeron.add_publication(CHANNEL, 1)
    subscription = world.aeron.add_subscription(CHANNEL, 1)
    world.run()
    (image,) = subscription.images
    image.reject("too loud", timeout=1.0)
    command = world.driver.commands[-1]
    assert (command.image_correlation_id, command.reason) == (image.correlation_id, "too loud")


def test_counters_of_a_client_are_seen_by_all(world: World):
    seen: list[Any] = []
    object.__setattr__(world.context, "on_available_counter", lambda *event: seen.append(event[1:]))
    object.__setattr__(world.context, "on_unavailable_counter", lambda *event: seen.append(event[1:]))
    with world.aeron.add_counter(1001, "depth", key=b"key") as counter:
        counter.set(42)
        assert world.driver.counters.value(counter.counter_id) == 42
        assert counter.label == "depth"
        assert world.aeron.counters.find(1001, counter.registration_id) == counter.counter_id
        assert (counter.registration_id, counter.counter_id) in seen
    world.driver.answer(responses.OnUnavailableCounter(registration_id=5, counter_id=6))
    world.run()
    assert seen[-1] == (5, 6)
    static = world.aeron.add_static_counter(1001, "still", registration_id=77)
    static.close()
    world.run()
    assert type(world.driver.commands[-1]).__name__ == "AddStaticCounter", "nobody frees a static counter"
    assert static.closed


def test_a_session_id_is_asked_of_the_driver(world: World):
    assert world.aeron.next_session_id(10) == 4711
    assert world.aeron.next_correlation_id() + 1 == world.aeron.next_correlation_id()


def test_the_heartbeat_counter_is_written_twice_a_second(world: World):
    world.aeron.add_publication(CHANNEL, 1)
    heartbeat = world.driver.counters.cell(world.driver.clients[world.aeron.client_id])
    world.sleep(SECOND)
    assert heartbeat.get() == pytest.approx(world.driver.clock.epoch_ms(), abs=5)
    assert " name=tester version=" in world.driver.counters.label(heartbeat.counter_id)
    world.sleep(400_000_000)
    assert world.driver.clock.epoch_ms() - heartbeat.get() > 300
    world.sleep(200_000_000)
    assert world.driver.clock.epoch_ms() - heartbeat.get() < 300


def test_a_client_that_the_driver_timed_out_is_closed():
    world = World()
    publication = world.aeron.add_publication(CHANNEL, 1)
    world.driver.answer(responses.OnClientTimeout(client_id=world.aeron.client_id + 1))
    world.run()
    assert not world.aeron.closed
    world.driver.answer(responses.OnClientTimeout(client_id=world.aeron.client_id))
    world.run()
    assert publication.offer(b"x") == OfferStatus.CLOSED
    assert isinstance(world.aeron.error, ClientTimeout)
    assert world.errors == [world.aeron.error]
    with pytest.raises(ClientTimeout):
        world.aeron.add_publication(CHANNEL, 1)
    assert world.events == ["closed"]


def test_a_client_whose_heartbeat_counter_is_gone_is_closed():
    world = World()
    world.aeron.add_publication(CHANNEL, 1)
    world.sleep(SECOND)
    world.driver.counters.free(world.driver.clients[world.aeron.client_id], world.driver.clock.epoch_ms())
    world.sleep(SECOND)
    assert isinstance(world.aeron.error, ClientTimeout)


def test_a_conductor_that_was_not_run_for_too_long_closes_its_client():
    world = World()
    publication = world.aeron.add_publication(CHANNEL, 1)
    world.driver.clock.advance_ns(LIVENESS_NS + SECOND)
    world.run(1)
    assert isinstance(world.aeron.error, ClientTimeout)
    assert "did not run for" in str(world.aeron.error)
    assert publication.closed


def test_a_driver_that_shuts_down_is_seen_at_once_and_a_dead_one_after_its_timeout():
    world = World()
    subscription = world.aeron.add_subscription(CHANNEL, 1)
    world.driver.alive = False
    world.driver.cnc.to_driver.consumer_heartbeat_ms = -1
    world.sleep(SECOND)
    assert isinstance(world.aeron.error, DriverTimeout)
    assert "has been shut down" in str(world.aeron.error)
    with pytest.raises(DriverTimeout):
        next(subscription.messages())
    world = World()
    world.aeron.add_subscription(CHANNEL, 1)
    world.driver.alive = False
    world.sleep(9 * SECOND)
    assert not world.aeron.closed
    world.sleep(2 * SECOND)
    assert isinstance(world.aeron.error, DriverTimeout)
    assert "heartbeat is" in str(world.aeron.error)


def test_publication_errors_reach_the_handler_of_the_client_they_concern():
    errors: list[Any] = []
    world = World(on_publication_error=errors.append)
    publication = world.aeron.add_publication(CHANNEL, 1)
    for registration_id in (publication.registration_id, 999):
        world.driver.answer(
            responses.OnPublicationError(
                registration_id=registration_id,
                destination_registration_id=-1,
                session_id=publication.session_id,
                stream_id=1,
                receiver_id=5,
                group_tag=-1,
                address_type=1,
                source_port=40123,
                source_address=bytes([127, 0, 0, 1]) + bytes(12),
                error_code=13,
                message="go away",
            )
        )
    world.run()
    assert [(error.message, error.source) for error in errors] == [("go away", "127.0.0.1:40123")]
    world.aeron.close()


def test_a_failing_endpoint_reaches_the_error_handler(world: World):
    publication = world.aeron.add_publication(CHANNEL, 1)
    publication.channel_status_id = 77
    for status_id in (77, 78):
        world.driver.answer(responses.OnError(offending_correlation_id=status_id, error_code=4, message="gone"))
    world.run()
    (error,) = world.errors
    assert isinstance(error, RegistrationError)
    assert error.code == 4


def test_an_image_whose_log_is_gone_already_is_reported_and_skipped(world: World):
    subscription = world.aeron.add_subscription(CHANNEL, 1)
    world.driver.files.create("/gone", 65536)
    ready = responses.OnPublicationReady(
        correlation_id=5,
        original_registration_id=5,
        session_id=1,
        stream_id=1,
        position_limit_id=0,
        channel_status_id=-1,
        log_file="/nowhere",
    )
    world.driver.give_image(ready, next(iter(world.driver.subscriptions.values())))
    world.run()
    assert subscription.images == ()
    (error,) = world.errors
    assert isinstance(error, FileNotFoundError)
    assert error.filename == "/nowhere"
    assert "<Subscription aeron:ipc stream 1> does not receive session 1, and may stall its publisher" in str(error)


def test_connecting_waits_for_a_driver_until_its_timeout():
    driver = HandDriver(ready=False)
    rounds: list[int] = []

    def work() -> int:
        rounds.append(1)
        if len(rounds) == 3:
            driver.beat()
            driver.cnc.signal_ready()
        return driver.do_work()

    context = ClientContext(files=driver.files, clock=driver.clock, use_invoker=True, driver_invoker=work)
    with Aeron.connect(DIRECTORY, context=context) as aeron:
        assert len(rounds) >= 3
        assert repr(aeron) == f"<Aeron client {aeron.client_id} of /driver>"
    aeron.close()
    assert aeron.closed
    late = HandDriver(ready=False)
    late.tick_ns = 100_000_000
    with pytest.raises(DriverTimeout, match=r"no media driver in /driver within 1 s"):
        Aeron.connect(
            DIRECTORY,
            files=late.files,
            clock=late.clock,
            driver_invoker=late.do_work,
            driver_timeout_ns=SECOND,
        )


def test_a_dropped_resource_that_was_let_go_warns_and_is_closed():
    world = World()
    publication, kept = world.aeron.add_publication(CHANNEL, 1), world.aeron.add_subscription(CHANNEL, 1)
    subscription = world.aeron.add_subscription(CHANNEL, 1)
    conductor = world.aeron._conductor
    conductor.let_go(publication)
    conductor.let_go(subscription)
    world.run()
    assert len(subscription.images) == 1
    with pytest.warns(ResourceWarning, match="<Publication aeron:ipc stream 1> was not closed"):  # noqa: PT031
        del publication
        gc.collect()
    with pytest.warns(ResourceWarning, match="<Subscription aeron:ipc stream 1> was not closed"):  # noqa: PT031
        del subscription
        gc.collect()
    world.run()
    stats = world.aeron.stats()
    assert (stats.publications, len(stats.subscriptions)) == ((), 1)
    kept.close()
    left = world.aeron.add_subscription(CHANNEL, 1)
    conductor.let_go(left)
    with pytest.warns(ResourceWarning, match="Aeron client"):
        world.aeron.__del__()
    assert world.aeron.closed
    assert left.closed


def test_a_client_with_its_own_thread_works_the_same():
    driver = HandDriver()
    running = True

    def drive() -> None:
        while running:
            driver.do_work()
            time.sleep(0.001)

    thread = threading.Thread(target=drive)
    thread.start()
    try:
        with Aeron.connect(DIRECTORY, files=driver.files, clock=driver.clock) as aeron:
            publication = aeron.add_publication(CHANNEL, 1)
            subscription = aeron.add_subscription(CHANNEL, 1)
            publication.send(b"one", timeout=STALL_S)
            publication.send(b"two", timeout=STALL_S)
            iterator = subscription.messages(timeout=STALL_S)
            assert [next(iterator), next(iterator)] == [b"one", b"two"]
        assert aeron.closed
        assert publication.closed
    finally:
        running = False
        thread.join()
