"""A network publication and a raw receiver: what the publication sends and when, and how it ends."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from tests.support.invoked_driver import CLIENT, InvokedDriver, count, only

from mainstem._core import layout
from mainstem.aeron.command import commands, responses
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.driver.media.addresses import InetAddress

if TYPE_CHECKING:
    from tests.support.memory_network import Peer

    from mainstem.aeron.logbuffer import LogBuffers

PORT = 20121
CHANNEL = f"aeron:udp?endpoint=127.0.0.1:{PORT}"


class Receiver:
    """A receiver that reads the publication's frames and responds by hand."""

    def __init__(self, driver: InvokedDriver) -> None:
        self.driver = driver
        self.peer: Peer = driver.network.peer(PORT)
        self.ready: responses.OnPublicationReady | None = None

    def publish(self, channel: str = CHANNEL) -> responses.OnPublicationReady:
        self.ready = only(self.driver.add_publication(channel), responses.OnPublicationReady)
        return self.ready

    @property
    def publication(self) -> responses.OnPublicationReady:
        assert self.ready is not None
        return self.ready

    @property
    def log(self) -> LogBuffers:
        return self.driver.log(self.publication.log_file)

    def status(self, position: int = 0, *, flags: int = 0, receiver_id: int = 5, window: int = 4096) -> None:
        """Send a status message for the initial term."""
        log = self.log
        term_id, offset = log.initial_term_id, position
        if flags & layout.SM_FLAG_SEND_SETUP:
            term_id = offset = window = 0
        frame = struct.pack(
            "<iBBHiiiiiq",
            36,
            0,
            flags,
            layout.TYPE_SM,
            self.publication.session_id,
            1001,
            term_id,
            offset,
            window,
            receiver_id,
        )
        self.send(frame)

    def send(self, frame: bytes) -> None:
        label = next(text for text in self.driver.labels().values() if text.startswith("snd-local-sockaddr"))
        port = int(label.rsplit(":", 1)[1])
        self.driver.network.send(self.peer, InetAddress("127.0.0.1", port), frame)
        self.driver.cycle()

    def append(self, payload: bytes) -> None:
        """Write a frame as a client does."""
        log = self.log
        buffer, offset = log.buffer, log.buffer.add_i64(log.metadata_offset, -(-(len(payload) + 32) // 32) * 32)
        offset &= 0xFFFF_FFFF
        buffer.put_bytes(
            offset, bytes(log.buffer.get_bytes(log.metadata_offset + layout.LOG_DEFAULT_HEADER_OFFSET, 32))
        )
        buffer.put_i32(offset + 8, offset)
        buffer.put_bytes(offset + 32, payload)
        buffer.put_i32_release(offset, len(payload) + 32)

    def frames(self, kind: int) -> list[bytes]:
        """Return the datagrams of one frame type that arrived since the last call, and discard the others."""
        return [datagram for datagram in self.peer.take() if struct.unpack_from("<H", datagram, 6)[0] == kind]


@pytest.fixture
def receiver(driver: InvokedDriver) -> Receiver:
    return Receiver(driver)


def test_sends_setups_every_100_ms_until_a_receiver_responds(receiver: Receiver) -> None:
    ready = receiver.publish()
    receiver.driver.cycle()
    log = receiver.log
    (setup,) = receiver.frames(layout.TYPE_SETUP)
    assert setup == struct.pack(
        "<iBBHiiiiiiii",
        40,
        0,
        0,
        layout.TYPE_SETUP,
        0,
        ready.session_id,
        1001,
        log.initial_term_id,
        log.initial_term_id,
        log.term_length,
        1408,
        0,
    )
    receiver.driver.run(1.0, step=0.01)
    assert 9 <= len(receiver.frames(layout.TYPE_SETUP)) <= 10


def test_a_status_message_connects_it_and_opens_its_limit(receiver: Receiver) -> None:
    ready = receiver.publish()
    driver = receiver.driver
    driver.cycle()
    assert driver.counters.value(ready.position_limit_id) == 0
    receiver.status()
    assert receiver.log.is_connected
    assert driver.counters.value(ready.position_limit_id) == receiver.log.term_length // 2
    receiver.append(b"x" * 5)
    driver.cycle()
    (data,) = [frame for frame in receiver.frames(layout.TYPE_DATA) if struct.unpack_from("<i", frame)[0]]
    assert len(data) == 64
    assert data[32:37] == b"x" * 5


def test_heartbeats_every_100_ms_when_idle(receiver: Receiver) -> None:
    receiver.publish()
    receiver.driver.cycle()
    receiver.status()
    receiver.peer.take()
    receiver.driver.run(1.0, step=0.01)
    heartbeats = receiver.frames(layout.TYPE_DATA)
    assert 9 <= len(heartbeats) <= 10
    assert all(struct.unpack_from("<i", heartbeat)[0] == 0 and len(heartbeat) == 32 for heartbeat in heartbeats)


def test_retransmits_what_a_nak_requests(receiver: Receiver) -> None:
    ready = receiver.publish()
    driver = receiver.driver
    driver.cycle()
    receiver.status()
    receiver.append(b"tide")
    driver.cycle()
    first = [frame for frame in receiver.frames(layout.TYPE_DATA) if struct.unpack_from("<i", frame)[0]]
    term_id = receiver.log.initial_term_id
    receiver.send(struct.pack("<iBBHiiiii", 28, 0, 0, layout.TYPE_NAK, ready.session_id, 1001, term_id, 0, 64))
    driver.cycle()
    again = [frame for frame in receiver.frames(layout.TYPE_DATA) if struct.unpack_from("<i", frame)[0]]
    assert again == first
    assert (driver.counters.value(6), driver.counters.value(11)) == (1, 1)
    naks = next(counter for counter, label in driver.labels().items() if label.startswith("snd-naks-received"))
    assert driver.counters.value(naks) == 1


def test_disconnects_when_its_receiver_is_silent_for_five_seconds(receiver: Receiver) -> None:
    receiver.publish()
    receiver.driver.cycle()
    receiver.status()
    receiver.driver.run(4.5)
    assert receiver.log.is_connected
    receiver.driver.run(1.5)
    assert not receiver.log.is_connected


def test_drains_then_announces_end_of_stream_then_lingers(receiver: Receiver) -> None:
    ready = receiver.publish("aeron:udp?endpoint=127.0.0.1:20121|linger=3s")
    driver = receiver.driver
    driver.cycle()
    receiver.status()
    receiver.append(b"the last")
    driver.ask(
        commands.RemovePublication(
            client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
        )
    )
    assert receiver.log.end_of_stream_position == 64
    assert driver.counters.value(ready.position_limit_id) == 64
    receiver.peer.take()
    driver.run(2.0)
    heartbeats = receiver.frames(layout.TYPE_DATA)
    assert heartbeats[-1][5] & layout.FLAG_EOS
    assert driver.files.exists(ready.log_file)
    driver.run(4.5)
    assert not driver.files.exists(ready.log_file)
    assert not [label for label in driver.labels().values() if "snd-" in label or "pub-" in label]


def test_a_spy_joins_a_draining_publication_while_another_one_waits_for_what_was_not_sent(receiver: Receiver) -> None:
    ready = receiver.publish()
    driver = receiver.driver
    driver.add_subscription(f"aeron-spy:{CHANNEL}")
    receiver.append(b"not sent")
    driver.ask(
        commands.RemovePublication(
            client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
        )
    )
    assert count(driver.add_subscription(f"aeron-spy:{CHANNEL}"), responses.OnAvailableImage) == 1
    receiver.status()
    assert receiver.frames(layout.TYPE_DATA)
    assert count(driver.add_subscription(f"aeron-spy:{CHANNEL}"), responses.OnAvailableImage) == 0


def test_the_end_is_announced_unless_eos_is_false(receiver: Receiver) -> None:
    ready = receiver.publish(f"{CHANNEL}|linger=2s|eos=false")
    driver = receiver.driver
    driver.cycle()
    receiver.status()
    receiver.append(b"the last")
    driver.ask(
        commands.RemovePublication(
            client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
        )
    )
    driver.run(1.5)
    heartbeats = receiver.frames(layout.TYPE_DATA)
    assert len(heartbeats) > 10
    assert not any(heartbeat[5] & layout.FLAG_EOS for heartbeat in heartbeats)


def test_a_unicast_receiver_that_leaves_ends_the_linger(receiver: Receiver) -> None:
    ready = receiver.publish("aeron:udp?endpoint=127.0.0.1:20121|linger=60s")
    driver = receiver.driver
    driver.cycle()
    receiver.status()
    driver.ask(
        commands.RemovePublication(
            client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
        )
    )
    driver.run(1.5)
    receiver.status(flags=layout.SM_FLAG_EOS)
    driver.run(1.5)
    assert not driver.files.exists(ready.log_file)


def test_a_revoked_publication_marks_its_heartbeats(receiver: Receiver) -> None:
    ready = receiver.publish()
    driver = receiver.driver
    driver.cycle()
    receiver.status()
    receiver.peer.take()
    driver.ask(
        commands.RemovePublication(
            client_id=CLIENT,
            correlation_id=driver.next_id(),
            registration_id=ready.correlation_id,
            flags=commands.REVOKE,
        )
    )
    driver.run(0.3)
    heartbeat = receiver.frames(layout.TYPE_DATA)[-1]
    assert heartbeat[5] & (layout.FLAG_EOS | layout.FLAG_REVOKED) == layout.FLAG_EOS | layout.FLAG_REVOKED
    assert driver.counters.value(40) == 1


def test_clients_are_told_when_a_receiver_refuses_a_stream(receiver: Receiver) -> None:
    ready = receiver.publish()
    driver = receiver.driver
    driver.cycle()
    receiver.status(receiver_id=5)
    text = b"go away"
    frame = struct.pack(
        "<iBBHiiqqii", 40 + len(text), 0, 0, layout.TYPE_ERR, ready.session_id, 1001, 5, -1, 13, len(text)
    )
    receiver.peer.take()
    label = next(text for text in driver.labels().values() if text.startswith("snd-local-sockaddr"))
    address = InetAddress("127.0.0.1", int(label.rsplit(":", 1)[1]))
    driver.network.send(receiver.peer, address, frame + text)
    error = only(driver.cycle(), responses.OnPublicationError)
    assert (error.registration_id, error.receiver_id, error.group_tag) == (ready.correlation_id, 5, -1)
    assert (error.code, error.message) == (ErrorCode.IMAGE_REJECTED, "go away")
    assert error.source == f"127.0.0.1:{PORT}"
    assert not receiver.log.is_connected


@pytest.mark.parametrize("is_manual", [True, False])
def test_a_refusal_names_the_destination_that_a_command_added(receiver: Receiver, is_manual: bool) -> None:
    mode = "control-mode=manual" if is_manual else "control=127.0.0.1:24091|control-mode=dynamic"
    ready = receiver.publish(f"aeron:udp?{mode}")
    driver = receiver.driver
    destination_id = -1
    if is_manual:
        destination_id = driver.next_id()
        driver.ask(
            commands.AddDestination(
                client_id=CLIENT,
                correlation_id=destination_id,
                registration_id=ready.correlation_id,
                channel=CHANNEL,
            )
        )
    driver.cycle()
    receiver.status(receiver_id=5)
    frame = struct.pack("<iBBHiiqqii", 42, 0, 0, layout.TYPE_ERR, ready.session_id, 1001, 5, -1, 13, 2) + b"no"
    label = next(text for text in driver.labels().values() if text.startswith("snd-local-sockaddr"))
    driver.network.send(receiver.peer, InetAddress("127.0.0.1", int(label.rsplit(":", 1)[1])), frame)
    error = only(driver.cycle(), responses.OnPublicationError)
    assert error.destination_registration_id == destination_id


@pytest.mark.parametrize("channel", ["aeron:ipc", f"{CHANNEL}|ssc=true"])
def test_a_revocation_is_answered_before_its_images_go(driver: InvokedDriver, channel: str) -> None:
    ready = only(driver.add_publication(channel), responses.OnPublicationReady)
    driver.add_subscription("aeron:ipc?alias=a" if channel == "aeron:ipc" else f"aeron-spy:{CHANNEL}")
    found = driver.ask(
        commands.RemovePublication(
            client_id=CLIENT,
            correlation_id=driver.next_id(),
            registration_id=ready.correlation_id,
            flags=commands.REVOKE,
        )
    )
    assert [type(each) for each in found] == [responses.OnOperationSuccess, responses.OnUnavailableImage]
    assert found[1].channel == ("aeron:ipc" if channel == "aeron:ipc" else f"aeron-spy:{CHANNEL}")


def test_answers_a_round_trip_measurement(receiver: Receiver) -> None:
    ready = receiver.publish()
    receiver.driver.cycle()
    receiver.status()
    receiver.peer.take()
    request = struct.pack("<iBBHiiqqq", 40, 0, 0x80, layout.TYPE_RTTM, ready.session_id, 1001, 123456, 0, 5)
    receiver.send(request)
    receiver.driver.cycle()
    (answer,) = receiver.frames(layout.TYPE_RTTM)
    assert answer == request[:5] + b"\0" + request[6:]


def test_a_spy_alone_connects_a_publication_with_ssc(driver: InvokedDriver) -> None:
    found = driver.add_publication(f"{CHANNEL}|ssc=true")
    ready = only(found, responses.OnPublicationReady)
    found = driver.add_subscription(f"aeron-spy:{CHANNEL}")
    image = only(found, responses.OnAvailableImage)
    assert image.source_identity == "aeron:ipc"
    driver.cycle()
    assert driver.log(ready.log_file).is_connected


@pytest.mark.parametrize("exclusive", [False, True])
def test_shares_one_socket_among_publications_of_a_channel(driver: InvokedDriver, exclusive: bool) -> None:
    driver.add_publication(CHANNEL, 1001, exclusive=exclusive)
    driver.add_publication(CHANNEL, 1002, exclusive=exclusive)
    assert sum(label.startswith("snd-channel") for label in driver.labels().values()) == 1


def test_the_same_channel_can_be_used_again_right_after_it_was_closed(driver: InvokedDriver) -> None:
    for _ in range(2):
        ready = only(driver.add_subscription(CHANNEL), responses.OnSubscriptionReady)
        remove = commands.RemoveSubscription(
            client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
        )
        driver.write(remove)
    assert count(driver.cycle(), responses.OnOperationSuccess) == 1


@pytest.mark.parametrize(
    ("channel", "code"),
    [
        ("aeron:udp?endpoint=no-such-host:1", ErrorCode.UNKNOWN_HOST),
        ("aeron:udp?endpoint=127.0.0.1:0", ErrorCode.INVALID_CHANNEL),
        ("aeron:udp?control=127.0.0.1:9|control-mode=response", ErrorCode.INVALID_CHANNEL),
        ("aeron:udp?tags=44", ErrorCode.INVALID_CHANNEL),
    ],
)
def test_refuses_channels_that_lead_nowhere(driver: InvokedDriver, channel: str, code: ErrorCode) -> None:
    assert only(driver.add_publication(channel), responses.OnError).code is code


def test_a_publication_that_never_had_a_receiver_ends_silently_and_at_once(receiver: Receiver) -> None:
    ready = receiver.publish(f"{CHANNEL}|linger=60s")
    driver = receiver.driver
    driver.run(0.5)
    assert receiver.frames(layout.TYPE_SETUP)
    driver.ask(
        commands.RemovePublication(
            client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
        )
    )
    receiver.peer.take()
    driver.run(3.0)
    assert not receiver.frames(layout.TYPE_SETUP)
    assert not driver.files.exists(ready.log_file)
