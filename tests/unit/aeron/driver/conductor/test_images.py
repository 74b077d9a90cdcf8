"""Images from a raw sender: set-up, status messages, gaps, end of stream, liveness, rejection."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from tests.support.invoked_driver import CLIENT, InvokedDriver, count, only

from mainstem._core import layout
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.command import commands, responses
from mainstem.aeron.driver.conductor.publication_image import DrainReason
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.aeron.error_log import read_errors
from mainstem.aeron.loss_report import read_losses

if TYPE_CHECKING:
    from tests.support.memory_network import Peer

ADDRESS = InetAddress("127.0.0.1", 20131)
CHANNEL = f"aeron:udp?endpoint={ADDRESS}"
SESSION, STREAM, TERM, TERM_LENGTH = 77, 1001, 9, 1 << 16


class Sender:
    """Plays a sender on one port."""

    def __init__(self, driver: InvokedDriver, port: int = 30001) -> None:
        self.driver = driver
        self.peer: Peer = driver.network.peer(port)

    def send(self, frame: bytes) -> list[responses.Response]:
        self.driver.network.send(self.peer, ADDRESS, frame)
        return self.driver.cycle()

    def setup(
        self, *, offset: int = 0, flags: int = 0, session: int = SESSION, ttl: int = 0
    ) -> list[responses.Response]:
        frame = struct.pack(
            "<iBBHiiiiiiii",
            40,
            0,
            flags,
            layout.TYPE_SETUP,
            offset,
            session,
            STREAM,
            TERM,
            TERM,
            TERM_LENGTH,
            1408,
            ttl,
        )
        return self.send(frame)

    def data(self, offset: int, payload: bytes = b"tide", *, flags: int = 0xC0, length: int | None = None) -> None:
        size = len(payload) + 32 if length is None else length
        frame = struct.pack("<iBBHiiiiq", size, 0, flags, layout.TYPE_DATA, offset, SESSION, STREAM, TERM, 0) + payload
        self.send(frame + bytes(-len(frame) % 32))

    def heartbeat(self, offset: int, *, flags: int = 0xC0) -> None:
        self.data(offset, b"", flags=flags, length=0)

    def frames(self, kind: int) -> list[bytes]:
        """Return the datagrams of one frame type that arrived since the last call, and discard the others."""
        return [datagram for datagram in self.peer.take() if struct.unpack_from("<H", datagram, 6)[0] == kind]


@pytest.fixture
def sender(driver: InvokedDriver) -> Sender:
    return Sender(driver)


def subscribe(driver: InvokedDriver, channel: str = CHANNEL) -> responses.OnSubscriptionReady:
    return only(driver.add_subscription(channel), responses.OnSubscriptionReady)


@pytest.mark.parametrize("key", ["cc=bbr", "nak-delay=soon", "rcv-wnd=0"])
def test_a_subscription_without_possible_images_logs_each_stream(sender: Sender, key: str) -> None:
    driver = sender.driver
    subscribe(driver, f"{CHANNEL}|{key}")
    errors = driver.core.system_counters[SystemCounter.ERRORS].get()
    labels = driver.labels()
    assert not count(sender.setup(), responses.OnAvailableImage)
    assert driver.core.system_counters[SystemCounter.ERRORS].get() > errors
    assert driver.labels() == labels


def test_an_images_window_is_what_the_system_gave_its_socket(sender: Sender) -> None:
    driver = sender.driver
    driver.network.longest_buffer = 16_384
    subscribe(driver, f"{CHANNEL}|rcv-wnd=64k|so-rcvbuf=64k")
    only(sender.setup(), responses.OnAvailableImage)
    (status,) = sender.frames(layout.TYPE_SM)
    assert struct.unpack_from("<i", status, 24)[0] == 16_384


def test_a_setup_whose_mtu_exceeds_the_window_is_in_the_error_log_in_the_references_words(sender: Sender) -> None:
    driver = sender.driver
    subscribe(driver, f"{CHANNEL}|rcv-wnd=1376")
    assert not count(sender.setup(), responses.OnAvailableImage)
    assert any("mtuLength=1408 > initialWindowLength=1376" in each.text for each in read_errors(driver.cnc.error_log))


def test_an_images_log_says_which_window_the_channel_asked_for(sender: Sender) -> None:
    driver = sender.driver
    subscribe(driver)
    image = only(sender.setup(), responses.OnAvailableImage)
    buffer = driver.files.map(image.log_file)
    assert buffer.get_i32(buffer.capacity - 4096 + 288) == 131_072  # although it offers at most half a term
    (status,) = sender.frames(layout.TYPE_SM)
    assert struct.unpack_from("<i", status, 24)[0] == TERM_LENGTH // 2


def test_cubics_first_status_message_offers_its_first_window(sender: Sender) -> None:
    subscribe(sender.driver, f"{CHANNEL}|cc=cubic")
    sender.setup()
    status = sender.frames(layout.TYPE_SM)[0]
    assert struct.unpack_from("<i", status, 24)[0] == 10 * 1408


def test_a_setup_above_the_session_limit_is_in_the_error_log(sender: Sender) -> None:
    driver = InvokedDriver(driver_stream_session_limit=1)
    sender = Sender(driver)
    subscribe(driver)
    assert count(sender.setup(), responses.OnAvailableImage) == 1
    assert count(sender.setup(session=SESSION + 1), responses.OnAvailableImage) == 0
    driver.run(2)
    (error,) = read_errors(driver.cnc.error_log)
    assert f"a SETUP of session {SESSION + 1} of stream {STREAM} was refused" in error.text
    assert "exceeded session limit" in error.text  # the reference's words
    assert "AERON_DRIVER_STREAM_SESSION_LIMIT" in error.text
    driver.close()


def test_a_destinations_socket_has_its_subscriptions_registration_id(driver: InvokedDriver) -> None:
    ready = subscribe(driver, "aeron:udp?control-mode=manual")
    add = commands.AddReceiveDestination(
        client_id=CLIENT,
        correlation_id=driver.next_id(),
        registration_id=ready.correlation_id,
        channel=CHANNEL,
    )
    only(driver.ask(add), responses.OnOperationSuccess)
    (counter_id,) = [each for each, label in driver.labels().items() if label.startswith("rcv-local-sockaddr")]
    assert driver.counters.registration_id(counter_id) == ready.correlation_id


def test_data_of_an_unknown_session_requests_a_setup(sender: Sender) -> None:
    subscribe(sender.driver, CHANNEL + "|gtag=99")
    sender.heartbeat(0)
    (status,) = sender.frames(layout.TYPE_SM)
    assert (len(status), status[5]) == (44, 0x80)
    assert struct.unpack_from("<iiiii", status, 8) == (SESSION, STREAM, 0, 0, 0)
    assert struct.unpack_from("<q", status, 36)[0] == 99


def test_a_setup_makes_an_image_and_the_first_status_message_leaves_at_once(sender: Sender) -> None:
    driver = sender.driver
    subscription = subscribe(driver)
    image = only(sender.setup(offset=64), responses.OnAvailableImage)
    assert image.subscription_registration_id == subscription.correlation_id
    assert (image.session_id, image.stream_id) == (SESSION, STREAM)
    assert image.source_identity == "127.0.0.1:30001"
    assert driver.counters.value(image.subscriber_position_id) == 64
    assert driver.counters.label(image.subscriber_position_id).endswith(f"{CHANNEL} @64")
    (status,) = sender.frames(layout.TYPE_SM)
    assert struct.unpack_from("<iiiii", status, 8) == (SESSION, STREAM, TERM, 64, TERM_LENGTH // 2)
    driver.run(1.0, step=0.01)
    assert 4 <= len(sender.frames(layout.TYPE_SM)) <= 6


@pytest.mark.parametrize(("theirs", "ours", "counted"), [(5, "|ttl=2", 1), (2, "|ttl=2", 0), (1, "", 1), (0, "", 0)])
def test_a_sender_that_reaches_further_than_its_receiver_is_counted_once(
    sender: Sender, theirs: int, ours: str, counted: int
) -> None:
    driver = sender.driver
    subscribe(driver, f"aeron:udp?endpoint=224.20.30.39:{ADDRESS.port}|interface=127.0.0.1{ours}")
    sender.heartbeat(0)
    for _ in range(3):
        sender.setup(ttl=theirs)
    assert driver.counters.value(SystemCounter.POSSIBLE_TTL_ASYMMETRY) == counted
    assert sum(label.startswith("rcv-hwm") for label in driver.labels().values()) == 1


def test_the_ttl_of_a_unicast_sender_is_not_checked(sender: Sender) -> None:
    subscribe(sender.driver)
    sender.setup(ttl=9)
    assert sender.driver.counters.value(SystemCounter.POSSIBLE_TTL_ASYMMETRY) == 0


def test_names_an_images_counters_as_the_reference_does(sender: Sender) -> None:
    subscribe(sender.driver)
    image = only(sender.setup(), responses.OnAvailableImage)
    labels = set(sender.driver.labels().values())
    stream = f"{image.image_correlation_id} {SESSION} {STREAM} {CHANNEL}"
    assert {f"rcv-hwm: {stream}", f"rcv-pos: {stream}", f"rcv-naks-sent: {stream}"} <= labels


def test_naks_a_gap_and_writes_it_into_the_loss_report(sender: Sender) -> None:
    driver = sender.driver
    subscribe(driver)
    sender.setup()
    sender.data(0)
    sender.data(128)
    driver.run(0.05, step=0.001)
    naks = sender.frames(layout.TYPE_NAK)
    assert naks
    assert struct.unpack_from("<iiiii", naks[0], 8) == (SESSION, STREAM, TERM, 64, 64)
    (entry,) = read_losses(driver.files.map("/memory/driver/loss-report.dat"))
    assert (entry.total_bytes_lost, entry.session_id, entry.channel) == (64, SESSION, CHANNEL)
    sender.data(64)
    sender.peer.take()
    driver.run(0.05, step=0.001)
    assert sender.frames(layout.TYPE_NAK) == []


def test_fills_the_gaps_of_an_unreliable_stream(sender: Sender) -> None:
    driver = sender.driver
    subscribe(driver, CHANNEL + "|reliable=false")
    sender.setup()
    sender.data(64)
    driver.run(0.05, step=0.001)
    assert sender.frames(layout.TYPE_NAK) == []
    assert driver.counters.value(23) == 1


def test_leaves_after_five_status_messages_once_the_stream_has_ended(sender: Sender) -> None:
    driver = sender.driver
    subscribe(driver)
    image = only(sender.setup(), responses.OnAvailableImage)
    sender.heartbeat(0, flags=0xE0)
    sender.peer.take()
    found: list[responses.Response] = []
    tenths = 0
    while not count(found, responses.OnUnavailableImage):
        found += driver.run(0.1)
        tenths += 1
        assert tenths <= 25
    assert tenths >= 10
    assert only(found, responses.OnUnavailableImage).image_correlation_id == image.image_correlation_id
    leaving = [status for status in sender.frames(layout.TYPE_SM) if status[5] & layout.SM_FLAG_EOS]
    assert len(leaving) >= 5


def eos_flags(sender: Sender) -> list[bool]:
    """Return whether each status message that arrived since the last call announces that the receiver leaves."""
    return [bool(status[5] & layout.SM_FLAG_EOS) for status in sender.frames(layout.TYPE_SM)]


def test_the_sender_learns_at_once_that_its_whole_stream_has_arrived(sender: Sender) -> None:
    driver = sender.driver
    subscribe(driver)
    sender.setup()
    sender.data(64)
    sender.heartbeat(128, flags=0xE0)
    driver.cycle()
    assert True not in eos_flags(sender)  # the first frame is missing
    (image,) = driver.core.conductor.images.streams
    assert image.drain_reason is None
    sender.data(0)
    driver.cycle()
    assert eos_flags(sender) == [True]
    assert image.drain_reason is DrainReason.END_OF_STREAM


def test_the_sender_learns_at_once_that_the_last_subscriber_has_left_and_that_another_has_come(sender: Sender) -> None:
    driver = sender.driver
    first, second = subscribe(driver), subscribe(driver)
    image = sender.setup()[0]
    assert isinstance(image, responses.OnAvailableImage)
    eos_flags(sender)

    def leave(ready: responses.OnSubscriptionReady) -> None:
        driver.ask(
            commands.RemoveSubscription(
                client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
            )
        )
        driver.cycle()

    leave(first)
    assert eos_flags(sender) == []
    leave(second)
    assert eos_flags(sender) == [True]
    sender.data(0)
    found = driver.add_subscription(CHANNEL) + driver.cycle()
    again = only(found, responses.OnAvailableImage)
    assert again.image_correlation_id == image.image_correlation_id
    assert eos_flags(sender) == [False]
    assert driver.counters.value(again.subscriber_position_id) == 64
    (stream,) = driver.core.conductor.images.streams
    driver.run(3.0)
    assert (stream.drain_reason, True in eos_flags(sender)) == (None, False)
    sender.heartbeat(64, flags=0xE0)
    driver.cycle()
    assert eos_flags(sender) == [True]


@pytest.mark.parametrize("reason", DrainReason)
def test_a_draining_image_keeps_the_reason(sender: Sender, reason: DrainReason) -> None:
    driver = sender.driver
    ready = subscribe(driver)
    sender.setup()
    (image,) = driver.core.conductor.images.streams
    assert image.drain_reason is None
    if reason is DrainReason.END_OF_STREAM:
        sender.heartbeat(0, flags=0xE0)
    elif reason is DrainReason.NO_SUBSCRIBER:
        driver.ask(
            commands.RemoveSubscription(
                client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
            )
        )
    driver.run(11.5 if reason is DrainReason.TIMEOUT else 1.5)
    assert image.drain_reason is reason


def test_a_revoked_stream_is_gone_at_once(sender: Sender) -> None:
    driver = sender.driver
    subscribe(driver)
    image = only(sender.setup(), responses.OnAvailableImage)
    log = driver.log(image.log_file)
    driver.network.send(sender.peer, ADDRESS, struct.pack("<iBBHiiiiq", 0, 0, 0xF0, 1, 0, SESSION, STREAM, TERM, 0))
    assert count(driver.cycle(), responses.OnUnavailableImage) == 1
    assert log.is_publication_revoked
    assert driver.counters.value(41) == 1


def test_a_silent_sender_loses_its_image_after_the_liveness_timeout(sender: Sender) -> None:
    driver = sender.driver
    subscribe(driver)
    image = only(sender.setup(), responses.OnAvailableImage)
    assert count(driver.run(9.5), responses.OnUnavailableImage) == 0
    assert count(driver.run(4.0), responses.OnUnavailableImage) == 1
    driver.run(12.0)
    assert not driver.files.exists(image.log_file)
    # The session can return.
    assert count(sender.setup(), responses.OnAvailableImage) == 1


def test_a_sender_that_keeps_its_heartbeats_keeps_its_image(sender: Sender) -> None:
    subscribe(sender.driver)
    sender.setup()
    for _ in range(30):
        assert count(sender.driver.run(1.0), responses.OnUnavailableImage) == 0
        sender.heartbeat(0)


def test_a_second_subscription_joins_where_the_first_one_is(sender: Sender) -> None:
    driver = sender.driver
    subscribe(driver)
    first = only(sender.setup(), responses.OnAvailableImage)
    sender.data(0)
    driver.counters.cell(first.subscriber_position_id).set_release(64)
    later = only(driver.add_subscription(CHANNEL), responses.OnAvailableImage)
    assert later.image_correlation_id == first.image_correlation_id
    assert driver.counters.value(later.subscriber_position_id) == 64


def test_a_session_specific_subscription_takes_its_session_only(sender: Sender) -> None:
    subscribe(sender.driver, f"{CHANNEL}|session-id={SESSION}")
    assert count(sender.setup(session=SESSION + 1), responses.OnAvailableImage) == 0
    assert count(sender.setup(), responses.OnAvailableImage) == 1


def test_a_rejected_image_sends_error_frames(sender: Sender) -> None:
    driver = sender.driver
    subscribe(driver)
    image = only(sender.setup(), responses.OnAvailableImage)
    found = driver.ask(
        commands.RejectImage(
            client_id=CLIENT,
            correlation_id=driver.next_id(),
            image_correlation_id=image.image_correlation_id,
            position=0,
            reason="no thanks",
        )
    )
    assert count(found, responses.OnOperationSuccess) == 1
    sender.peer.take()
    driver.run(1.0, step=0.01)
    errors = sender.frames(layout.TYPE_ERR)
    assert 4 <= len(errors) <= 6
    assert errors[0].endswith(b"no thanks")
    assert driver.counters.value(42) == 1
    sender.data(0)
    assert driver.counters.value(image.subscriber_position_id) == 0


def test_the_image_and_the_socket_go_with_the_last_subscription(sender: Sender) -> None:
    driver = sender.driver
    ready = subscribe(driver)
    image = only(sender.setup(), responses.OnAvailableImage)
    driver.ask(
        commands.RemoveSubscription(
            client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
        )
    )
    driver.run(6.0)
    assert not driver.files.exists(image.log_file)
    assert not [label for label in driver.labels().values() if "rcv-" in label]


def test_conflicting_options_on_one_stream_are_refused(driver: InvokedDriver) -> None:
    subscribe(driver)
    error = only(driver.add_subscription(CHANNEL + "|reliable=false"), responses.OnError)
    assert "reliable" in error.message
    subscribe(driver, CHANNEL + f"|session-id={SESSION}|reliable=false")


def test_a_draining_image_is_joined_while_another_subscriber_still_reads_it(sender: Sender) -> None:
    driver = sender.driver
    subscribe(driver)
    image = only(sender.setup(), responses.OnAvailableImage)
    sender.data(0)
    sender.heartbeat(64, flags=0xC0 | layout.FLAG_EOS)
    assert count(driver.run(3), responses.OnUnavailableImage) == 0
    joined = only(driver.add_subscription(CHANNEL), responses.OnAvailableImage)
    assert driver.counters.value(joined.subscriber_position_id) == 0
    for each in (image, joined):
        driver.counters.cell(each.subscriber_position_id).set_release(64)
    assert count(driver.add_subscription(CHANNEL), responses.OnAvailableImage) == 0
    assert count(driver.run(1.1), responses.OnUnavailableImage) == 2
