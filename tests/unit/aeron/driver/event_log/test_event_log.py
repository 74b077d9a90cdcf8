"""The lines of a driver's event log."""

from __future__ import annotations

import io
import logging
import re
import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.invoked_driver import CLIENT, InvokedDriver, only, small_settings
from tests.support.memory_network import MemoryNetwork

from mainstem._core import layout
from mainstem._core.driver.tap import TappedTransport
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.channel import ChannelUri
from mainstem.aeron.command import commands, responses
from mainstem.aeron.driver.event_log.events import Event
from mainstem.aeron.driver.event_log.log import EventLog, event_log
from mainstem.aeron.driver.event_log.watching import watched
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.aeron.driver.media.endpoints import ReceiveDestination
from mainstem.aeron.driver.media.udp_channel import UdpChannel
from mainstem.aeron.protocol.frames import Resolution, ResolutionEntry
from mainstem.sim.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.memory_network import Peer

LINE = re.compile(r"\[(\d+)\.(\d{9})\] DRIVER: ([A-Z_]+) \[(\d+)/(\d+)\]: (.*)")
SESSION, STREAM, TERM = 77, 1001, 9
ENDPOINT = InetAddress("127.0.0.1", 20131)
CHANNEL = f"aeron:udp?endpoint={ENDPOINT}"


class Logged:
    """A driver that logs to a file, and its new lines since the last call."""

    def __init__(self, path: Path, events: str = "all", **settings: Any) -> None:
        self.path = path
        self._seen = 0
        self.driver = InvokedDriver(event_log=events, event_log_filename=str(path), **settings)

    def take(self) -> list[tuple[str, str]]:
        """Return (event, detail) of each new line."""
        lines = self.path.read_text().splitlines()
        fresh, self._seen = lines[self._seen :], len(lines)
        found = [LINE.fullmatch(line) for line in fresh]
        assert all(found), fresh
        return [(match[3], match[6]) for match in found if match]

    def of(self, event: str) -> list[str]:
        """Return the details of one event, and discard other lines."""
        return [detail for name, detail in self.take() if name == event]

    def send(self, peer: Peer, to: InetAddress, frame: bytes) -> None:
        self.driver.network.send(peer, to, frame)
        self.driver.cycle()

    def command(self, kind: type[commands.Command], **fields: Any) -> list[responses.Response]:
        return self.driver.ask(kind(client_id=CLIENT, correlation_id=self.driver.next_id(), **fields))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Logged]]:
    """Yield a function ``start("all" or events, **settings)``, and close every driver at the end."""
    made: list[Logged] = []

    def begin(events: str = "all", **settings: Any) -> Logged:
        made.append(Logged(tmp_path / str(len(made)), events, **settings))
        return made[-1]

    yield begin
    for each in made:
        each.driver.close()


@pytest.fixture
def logged(start: Callable[..., Logged]) -> Logged:
    return start()


def setup(*, term: int = TERM) -> bytes:
    return struct.pack("<iBBHiiiiiiii", 40, 0, 0, layout.TYPE_SETUP, 0, SESSION, STREAM, TERM, term, 1 << 16, 1408, 0)


def data(offset: int, *, flags: int = 0xC0) -> bytes:
    return struct.pack("<iBBHiiiiq", 64, 0, flags, layout.TYPE_DATA, offset, SESSION, STREAM, TERM, 0) + bytes(32)


def status(session: int, term: int, *, receiver_id: int = 5, flags: int = 0, window: int = 4096) -> bytes:
    return struct.pack("<iBBHiiiiiq", 36, 0, flags, layout.TYPE_SM, session, STREAM, term, 0, window, receiver_id)


def nak(session: int, term: int, offset: int, length: int) -> bytes:
    return struct.pack("<iBBHiiiii", 28, 0, 0, layout.TYPE_NAK, session, STREAM, term, offset, length)


def append(driver: InvokedDriver, ready: responses.OnPublicationReady, payload: bytes) -> int:
    """Write a frame as a client does, and return the term id."""
    log = driver.log(ready.log_file)
    offset = log.buffer.add_i64(log.metadata_offset, -(-(len(payload) + 32) // 32) * 32) & 0xFFFF_FFFF
    header = log.buffer.get_bytes(log.metadata_offset + layout.LOG_DEFAULT_HEADER_OFFSET, 32)
    log.buffer.put_bytes(offset, header)
    log.buffer.put_i32(offset + 8, offset)
    log.buffer.put_bytes(offset + 32, payload)
    log.buffer.put_i32_release(offset, len(payload) + 32)
    return log.initial_term_id


def sender_address(driver: InvokedDriver) -> InetAddress:
    label = next(text for text in driver.labels().values() if text.startswith("snd-local-sockaddr"))
    return InetAddress("127.0.0.1", int(label.rsplit(":", 1)[1]))


def test_holds_the_events_that_were_chosen(start: Callable[..., Logged]) -> None:
    logged = start("admin", event_log_disable="CMD_IN_KEEPALIVE_CLIENT")
    logged.driver.add_publication("aeron:ipc", 1001)
    heartbeat = len(SystemCounter)
    ready = (
        f"sessionId=-1548650083 streamId=1001 publicationLimitCounterId={heartbeat + 2} channelStatusCounterId=-1 correlationId=1 "
        "registrationId=1 logFileName=/memory/driver/publications/1.logbuffer"
    )
    assert logged.take() == [
        ("CMD_IN_ADD_PUBLICATION", f"streamId=1001 clientId={CLIENT} correlationId=1 channel=aeron:ipc"),
        ("CMD_OUT_COUNTER_READY", f"correlationId={CLIENT} counterId={heartbeat}"),
        ("CMD_OUT_PUBLICATION_READY", ready),
    ]
    first = logged.path.read_text().splitlines()[0]
    # The log adds 16 bytes; the record has 24, the channel 9.
    assert first.startswith("[1000.000000000] DRIVER: CMD_IN_ADD_PUBLICATION [49/49]: ")


def test_is_truncated_when_it_is_full(start: Callable[..., Logged]) -> None:
    logged = start(event_log_file_max_length=2000)
    for number in range(20):
        logged.driver.add_publication("aeron:ipc", number + 1)
        assert 0 < logged.path.stat().st_size <= 2000


def test_goes_to_standard_output_without_a_file(capfd: pytest.CaptureFixture[str]) -> None:
    driver = InvokedDriver(event_log="CMD_IN_ADD_PUBLICATION")
    driver.add_publication("aeron:ipc")
    driver.close()
    written = capfd.readouterr()
    assert LINE.fullmatch(written.out.strip())
    assert written.err == ""


def test_a_file_that_cannot_be_written_to_ends_the_log_and_not_the_driver(caplog: pytest.LogCaptureFixture) -> None:
    full = open("/dev/full", "ab", buffering=0)  # noqa: SIM115 - the log closes it
    log = EventLog({Event.GENERIC_MESSAGE}, full)
    with caplog.at_level(logging.WARNING):
        log.note(Event.GENERIC_MESSAGE, 1, text="x")
        log.note(Event.GENERIC_MESSAGE, 2, text="x")
    assert [record.message for record in caplog.records] == [
        "stopped writing the event log: [Errno 28] No space left on device"
    ]
    assert not log.includes(Event.GENERIC_MESSAGE)
    log.close()


@pytest.mark.parametrize("event", ["FRAME_IN", "FRAME_OUT", "NAK_SENT", "NAK_RECEIVED"])
def test_sockets_are_logged_only_for_events_that_need_them(event: str) -> None:
    def transport(events: str) -> object:
        channel = UdpChannel.parse(ChannelUri.parse("aeron:udp?endpoint=127.0.0.1:20199"))
        log = event_log(small_settings(event_log=events))
        transports = watched(MemoryNetwork(), log, ManualClock())
        return ReceiveDestination(channel, transports).transport

    assert isinstance(transport(event), TappedTransport)
    assert not isinstance(transport("RESEND,CMD_IN_ADD_PUBLICATION"), TappedTransport)


def test_frames_are_logged_with_their_addresses(logged: Logged) -> None:
    driver, peer = logged.driver, logged.driver.network.peer(30001)
    driver.add_subscription(CHANNEL)
    logged.take()
    logged.send(peer, ENDPOINT, setup())
    seen = logged.take()
    event, detail = seen[0]
    assert event == "FRAME_IN"
    assert detail == (
        "address=127.0.0.1:30001 type=SETUP flags=00000000 frameLength=40 sessionId=77 streamId=1001 activeTermId=9 "
        "initialTermId=9 termOffset=0 termLength=65536 mtu=1408 ttl=0"
    )
    out = [detail for event, detail in seen if event == "FRAME_OUT"]
    assert len(out) == 1
    assert out[0].startswith(
        "address=127.0.0.1:30001 type=SM flags=00000000 frameLength=36 sessionId=77 streamId=1001 termId=9 termOffset=0 "
        "receiverWindowLength=32768 receiverId="
    )


def test_a_frame_reports_its_original_length(start: Callable[..., Logged]) -> None:
    logged = start("FRAME_IN")
    logged.driver.add_subscription(CHANNEL)
    logged.send(logged.driver.network.peer(30001), ENDPOINT, setup())
    # The log adds 16 bytes, the address another 16.
    assert "FRAME_IN [72/40]: " in logged.path.read_text()


def test_malformed_frames_are_logged_as_far_as_possible(logged: Logged) -> None:
    logged.driver.add_subscription(CHANNEL)
    logged.take()
    logged.send(logged.driver.network.peer(30001), ENDPOINT, setup()[:20])
    assert logged.of("FRAME_IN") == [
        "address=127.0.0.1:30001 type=SETUP flags=00000000 frameLength=40 (cut short at 20 bytes)"
    ]


def test_a_nak_is_logged(logged: Logged) -> None:
    driver, peer = logged.driver, logged.driver.network.peer(30001)
    driver.add_subscription(CHANNEL)
    logged.send(peer, ENDPOINT, setup())
    logged.send(peer, ENDPOINT, data(128))
    driver.run(0.01, step=0.001)
    sent = logged.of("NAK_SENT")
    assert sent
    assert set(sent) == {
        f"address=127.0.0.1:30001 sessionId=77 streamId=1001 termId=9 termOffset=0 length=128 channel={CHANNEL}"
    }


def test_a_retransmission_is_logged(logged: Logged) -> None:
    driver, peer = logged.driver, logged.driver.network.peer(20121)
    channel = "aeron:udp?endpoint=127.0.0.1:20121"
    ready = only(driver.add_publication(channel), responses.OnPublicationReady)
    session, term = ready.session_id, append(driver, ready, b"tide")
    driver.cycle()
    logged.send(peer, sender_address(driver), status(session, term))
    driver.run(0.2)
    logged.take()
    logged.send(peer, sender_address(driver), nak(session, term, 0, 64))
    frame_range = f"sessionId={session} streamId=1001 termId={term} termOffset=0 length=64 channel={channel}"
    seen = dict(logged.take())
    assert seen["NAK_RECEIVED"] == f"address=127.0.0.1:20121 {frame_range}"
    assert seen["RESEND"] == frame_range
    assert seen["FRAME_OUT"].startswith("address=127.0.0.1:20121 type=DATA flags=11000000 frameLength=36 ")


def test_receivers_join_and_leave_the_group(logged: Logged) -> None:
    driver, peer = logged.driver, logged.driver.network.peer(30001)
    channel = "aeron:udp?control=127.0.0.1:20140|control-mode=dynamic|fc=min"
    ready = only(driver.add_publication(channel), responses.OnPublicationReady)
    term = driver.log(ready.log_file).initial_term_id
    control = InetAddress("127.0.0.1", 20140)
    for receiver_id in (5, 6):
        logged.send(peer, control, status(ready.session_id, term, receiver_id=receiver_id))
    stream = f"sessionId={ready.session_id} streamId=1001 channel={channel}"
    assert logged.of("FLOW_CONTROL_RECEIVER_ADDED") == [
        f"receiverCount=1 receiverId=5 {stream}",
        f"receiverCount=2 receiverId=6 {stream}",
    ]
    logged.send(peer, control, status(ready.session_id, term, receiver_id=6, flags=layout.SM_FLAG_EOS))
    assert logged.of("FLOW_CONTROL_RECEIVER_REMOVED") == [f"receiverCount=1 receiverId=6 {stream}"]
    driver.run(7.0)
    assert logged.of("FLOW_CONTROL_RECEIVER_REMOVED") == [f"receiverCount=0 receiverId=5 {stream}"]


def test_names_are_looked_up(start: Callable[..., Logged]) -> None:
    logged = start(
        "NAME_RESOLUTION_LOOKUP,NAME_RESOLUTION_RESOLVE",
        name_resolver_supplier="csv_table",
        name_resolver_init_args="server,endpoint,127.0.0.1,127.0.0.2",
    )
    logged.driver.add_publication("aeron:udp?endpoint=server:20121")
    assert logged.take() == [
        (
            "NAME_RESOLUTION_LOOKUP",
            "resolver=csv_table durationNs=0 name=server:20121 isReLookup=false resolvedName=127.0.0.1:20121",
        ),
        (
            "NAME_RESOLUTION_RESOLVE",
            "resolver=csv_table durationNs=0 name=127.0.0.1 isReResolution=false address=127.0.0.1",
        ),
    ]
    logged.driver.run(7.0)
    assert (
        "NAME_RESOLUTION_RESOLVE",
        "resolver=csv_table durationNs=0 name=127.0.0.2 isReResolution=true address=127.0.0.2",
    ) in (logged.take())


def test_an_unknown_name_is_logged_too(logged: Logged) -> None:
    logged.driver.add_publication("aeron:udp?endpoint=nobody:20121")
    seen = logged.take()
    unknown = "resolver=default durationNs=0 name=nobody isReResolution=false address=unknown-address"
    assert ("NAME_RESOLUTION_RESOLVE", unknown) in seen
    assert any(event == "GENERIC_MESSAGE" and "nobody" in detail for event, detail in seen)


def test_drivers_that_know_one_another_appear_and_disappear(start: Callable[..., Logged]) -> None:
    logged = start(
        "NAME_RESOLUTION_NEIGHBOR_ADDED,NAME_RESOLUTION_NEIGHBOR_REMOVED,NAME_RESOLUTION_HOST_NAME",
        name_resolver_supplier="driver",
        driver_resolver_name="alpha",
        driver_resolver_interface="127.0.0.1:40991",
    )
    peer = logged.driver.network.peer(40992)
    entry = ResolutionEntry(name="beta", address=ip_address(peer.address.ip), port=40992, is_self=True)
    logged.driver.network.send(peer, InetAddress("127.0.0.1", 40991), Resolution(entries=(entry,)).encode())
    logged.driver.run(12.0)
    assert logged.take() == [
        ("NAME_RESOLUTION_HOST_NAME", "durationNs=0 hostName=alpha"),
        ("NAME_RESOLUTION_NEIGHBOR_ADDED", "127.0.0.1:40992"),
        ("NAME_RESOLUTION_NEIGHBOR_REMOVED", "127.0.0.1:40992"),
    ]


def test_channels_and_streams_come_and_go(logged: Logged) -> None:
    driver = logged.driver
    channel = "aeron:udp?endpoint=127.0.0.1:20121|linger=1s"
    addresses = "localData: 0.0.0.0:0, remoteData: 127.0.0.1:20121, ttl: 0"
    subscription = only(driver.add_subscription(channel), responses.OnSubscriptionReady)
    ready = only(driver.add_publication(channel), responses.OnPublicationReady)
    driver.run(0.5)
    logged.command(commands.RemovePublication, registration_id=ready.correlation_id, flags=commands.REVOKE)
    driver.run(2.0)
    logged.command(commands.RemoveSubscription, registration_id=subscription.correlation_id)
    driver.run(15.0)
    seen = [line for line in logged.take() if not line[0].startswith(("CMD_", "FRAME_", "NAME_"))]
    stream = f"sessionId={ready.session_id} streamId=1001"
    assert [event for event, _ in seen[:4]] == [
        "RECEIVE_CHANNEL_CREATION",
        "SEND_CHANNEL_CREATION",
        "PUBLICATION_REVOKE",
        "PUBLICATION_IMAGE_REVOKE",
    ]
    assert dict(seen) == {
        "RECEIVE_CHANNEL_CREATION": addresses,
        "SEND_CHANNEL_CREATION": addresses,
        "PUBLICATION_REVOKE": f"revokedPos=0 {stream} channel={channel}",
        "PUBLICATION_IMAGE_REVOKE": f"revokedPos=0 {stream} channel={channel}",
        "REMOVE_PUBLICATION_CLEANUP": f"{stream} channel={channel}",
        "SEND_CHANNEL_CLOSE": addresses,
        "REMOVE_SUBSCRIPTION_CLEANUP": f"streamId=1001 id={subscription.correlation_id} channel={channel}",
        "REMOVE_IMAGE_CLEANUP": f"{stream} id=3 channel={channel}",
        "RECEIVE_CHANNEL_CLOSE": addresses,
    }


def test_an_untethered_subscriber_lingers_rests_and_rejoins(logged: Logged) -> None:
    driver = logged.driver
    slow = only(driver.add_subscription("aeron:ipc?tether=false"), responses.OnSubscriptionReady)
    driver.add_subscription("aeron:ipc")
    found = driver.add_publication("aeron:ipc")
    ready = only(found, responses.OnPublicationReady)
    images = [response for response in found if isinstance(response, responses.OnAvailableImage)]
    fast = next(image for image in images if image.subscription_registration_id != slow.correlation_id)
    # The window is full. The tethered subscriber has read all of it, the other one nothing.
    log = driver.log(ready.log_file)
    log.buffer.add_i64(log.metadata_offset, log.term_length // 2)
    driver.counters.cell(fast.subscriber_position_id).set_release(log.term_length // 2)
    driver.run(40.0, step=0.5)
    seen = logged.of("UNTETHERED_SUBSCRIPTION_STATE_CHANGE")
    about = f"subscriptionId={slow.correlation_id} streamId=1001 sessionId={ready.session_id}"
    assert seen[:3] == [f"{about} ACTIVE -> LINGER", f"{about} LINGER -> RESTING", f"{about} RESTING -> ACTIVE"]


def test_refusals_and_rejections_are_logged(logged: Logged) -> None:
    driver, peer = logged.driver, logged.driver.network.peer(30001)
    driver.add_subscription(CHANNEL)
    image = only([*driver.poll(), *_send(logged, peer, setup())], responses.OnAvailableImage)
    logged.command(
        commands.RejectImage, image_correlation_id=image.image_correlation_id, position=0, reason="not this one"
    )
    driver.run(0.3)
    logged.command(commands.RemovePublication, registration_id=999)
    logged.command(commands.AddCounter, type_id=1001, key=b"\1\2", label="a label")
    seen = logged.take()
    texts = dict(seen)
    assert texts["CMD_IN_REJECT_IMAGE"].endswith(
        f"imageCorrelationId={image.image_correlation_id} position=0 reason=not this one"
    )
    assert any(event == "FRAME_OUT" and 'errorCode=13 errorMessage="not this one"' in text for event, text in seen)
    assert "errorCode=UNKNOWN_PUBLICATION" in texts["CMD_OUT_ERROR"]
    assert "typeId=1001 key=0102 label=a label" in texts["CMD_IN_ADD_COUNTER"]


def _send(logged: Logged, peer: Peer, frame: bytes) -> list[responses.Response]:
    logged.driver.network.send(peer, ENDPOINT, frame)
    return logged.driver.cycle()


def test_a_text_cannot_add_lines_to_the_log() -> None:
    file = io.BytesIO()
    log = EventLog({Event.GENERIC_MESSAGE}, file)
    log.note(Event.GENERIC_MESSAGE, 1, text="refused aeron:udp?alias=a\n[0.000000002] DRIVER: NAK_SENT [1/1]: forged")
    (line,) = file.getvalue().decode().splitlines()
    match = LINE.fullmatch(line)
    assert match is not None
    assert match[3] == "GENERIC_MESSAGE"
    assert r"alias=a\n[0.000000002]" in match[6]
