"""The sender and the receiver over a network in memory: many destinations, groups of receivers, several paths to one image."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.memory_network import MemoryNetwork
from tests.unit._core.network import (
    INITIAL_TERM_ID,
    SESSION_ID,
    STREAM_ID,
    TERM_LENGTH,
    Writer,
    frame,
    modules,
    new_log,
)

from mainstem._core import layout
from mainstem._core.driver.receive_path import ReceivePath
from mainstem._core.driver.send_path import SendPath
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.channel import ChannelUri
from mainstem.aeron.driver.agent_proxies import ReceiverProxy, SenderProxy
from mainstem.aeron.driver.conductor_proxy import (
    CreateImage,
    EndpointClosed,
    ImageEndOfStream,
    ImageReleased,
    LossObserved,
    PublicationReleased,
    ResolveAgain,
    ResponseConnected,
    ResponseSetupReceived,
)
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.aeron.driver.media.endpoints import ReceiveChannelEndpoint, ReceiveDestination, SendChannelEndpoint
from mainstem.aeron.driver.media.udp_channel import UdpChannel
from mainstem.aeron.driver.receiver.congestion_control import CubicCongestionControl
from mainstem.aeron.driver.receiver.receiver import Receiver
from mainstem.aeron.driver.receiver.receiver_image import ReceiverImage
from mainstem.aeron.driver.sender.sender import Sender
from mainstem.aeron.driver.sender.sender_publication import SenderPublication
from mainstem.aeron.protocol import frames
from mainstem.aeron.protocol.frames import ErrorFrame, Rttm, Setup, StatusMessage
from mainstem.aeron.protocol.layouts import Header

if TYPE_CHECKING:
    from tests.support.memory_network import Peer

MS = 1_000_000
CORE = modules(compiled=True)


class World:
    """A sender and a receiver on one clock; the test plays the conductor."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.counters = AtomicBuffer(bytearray(128 * 128))
        self.mail: deque[Any] = deque()
        self.now_ns = 1
        self.sender = Sender(counters=self.counters, to_conductor=self.mail, now_ns=self.now_ns)
        self.receiver = Receiver(counters=self.counters, to_conductor=self.mail, now_ns=self.now_ns)
        self.to_sender, self.to_receiver = SenderProxy(self.sender), ReceiverProxy(self.receiver)
        self.ids = itertools.count(100)
        self.ports = iter(range(21_000, 22_000))

    def value(self, counter_id: int) -> int:
        return self.counters.get_i64(128 * counter_id)

    def turn(self, agent: Sender | Receiver) -> None:
        """Do one agent's work of one turn of a driver's loop."""
        agent.decide(self.now_ns)
        agent.cycle.run_cycle(self.now_ns)
        agent.decide(self.now_ns)

    def run(self, milliseconds: int = 1) -> None:
        for _ in range(milliseconds):
            for _ in range(3):
                self.turn(self.sender)
                self.turn(self.receiver)
                self.network.step()
            self.now_ns += MS

    def channel(self, text: str) -> UdpChannel:
        return UdpChannel.parse(ChannelUri.parse(text), resolver=self.network)

    def publish(self, text: str, **options: Any) -> SenderPublication:
        endpoint = SendChannelEndpoint(self.channel(text), self.network, self.counters)
        log = new_log(CORE)
        path = SendPath(
            log,
            self.counters,
            SESSION_ID,
            STREAM_ID,
            INITIAL_TERM_ID,
            TERM_LENGTH,
            1408,
            32_768,
            50,
            51,
            52,
            53,
            54,
            now_ns=self.now_ns,
        )
        publication = SenderPublication(path, endpoint, registration_id=next(self.ids), **options)
        self.to_sender.register_endpoint(endpoint)
        self.to_sender.add_publication(publication)
        self.run()
        return publication

    def subscribe(self, text: str, receiver_id: int = 7, **options: Any) -> ReceiveChannelEndpoint:
        endpoint = ReceiveChannelEndpoint(
            self.channel(text), self.network, self.counters, receiver_id=receiver_id, **options
        )
        self.to_receiver.register_endpoint(endpoint)
        self.to_receiver.add_subscription(endpoint, STREAM_ID)
        self.run()
        return endpoint

    def make_image(self, message: CreateImage, **options: Any) -> ReceiverImage:
        log = new_log(CORE)
        path = ReceivePath(
            log,
            self.counters,
            message.session_id,
            message.stream_id,
            message.initial_term_id,
            message.term_length,
            message.mtu,
            0,
            32_768,
            message.endpoint.receiver_id,
            60,
            61,
            now_ns=self.now_ns,
        )
        path.subscribers.add(62)
        image = ReceiverImage(
            path,
            message,
            registration_id=next(self.ids),
            **options,
        )
        self.to_receiver.add_image(message.endpoint, image)
        self.run()
        return image

    def taken(self, kind: type) -> list[Any]:
        """Take the messages of one kind to the conductor; all others stay."""
        found = [message for message in self.mail if isinstance(message, kind)]
        for message in found:
            self.mail.remove(message)
        return found

    def status_from(
        self,
        peer: Peer,
        publication: SenderPublication,
        position: int = 0,
        *,
        receiver_id: int = 1,
        flags: int = 0,
        tag: int | None = None,
    ) -> None:
        """Send a handmade status message to the publication's socket."""
        message = StatusMessage(
            session_id=SESSION_ID,
            stream_id=STREAM_ID,
            consumption_term_id=INITIAL_TERM_ID,
            consumption_term_offset=position,
            receiver_window=4096,
            receiver_id=receiver_id,
            group_tag=tag,
            flags=flags,
        )
        self.network.send(peer, self.address_of(publication), message.encode())

    def address_of(self, publication: SenderPublication) -> InetAddress:
        return publication.endpoint.local_address._replace(ip="127.0.0.1")


@pytest.fixture
def world() -> World:
    return World()


def rttm(echo_timestamp: int, *, receiver_id: int) -> Rttm:
    """Return an RTTM frame that requests a measurement of the round trip."""
    stream = {"session_id": SESSION_ID, "stream_id": STREAM_ID}
    return Rttm(**stream, echo_timestamp=echo_timestamp, receiver_id=receiver_id, flags=layout.RTTM_FLAG_REPLY)


def setup_request(session_id: int, stream_id: int) -> bytes:
    """Return the status message with which a receiver with id 7 and tag 99 requests a SETUP."""
    ids = {"session_id": session_id, "stream_id": stream_id, "receiver_id": 7, "group_tag": 99}
    return StatusMessage(**ids, flags=layout.SM_FLAG_SEND_SETUP).encode()


def kinds(datagrams: list[bytes]) -> list[int]:
    return [Header.read(datagram).type for datagram in datagrams]


def test_a_stream_flows_from_a_publication_to_an_image(world: World) -> None:
    world.subscribe("aeron:udp?endpoint=127.0.0.1:24001")
    publication = world.publish("aeron:udp?endpoint=127.0.0.1:24001")
    (create,) = world.taken(CreateImage)
    assert (create.session_id, create.term_length, create.mtu) == (SESSION_ID, TERM_LENGTH, 1408)
    image = world.make_image(create)
    assert publication.path.connected
    writer = Writer(publication.path.log)
    for _ in range(10):
        writer.append(bytes(1000))
    world.run(2)
    assert image.path.rebuild_position == writer.position
    publication.path.end_of_stream = True
    world.run(101)
    (end,) = world.taken(ImageEndOfStream)
    assert (end.registration_id, end.position, end.revoked) == (image.registration_id, writer.position, False)
    world.to_receiver.drain_image(image)
    world.run(201)
    assert publication.path.received_unicast_eos
    assert publication.path.receiver_count == 0
    world.to_receiver.remove_image(image)
    world.to_sender.remove_publication(publication)
    world.to_receiver.close_endpoint(create.endpoint)
    world.to_sender.close_endpoint(publication.endpoint)
    world.run()
    assert [message.registration_id for message in world.taken(PublicationReleased)] == [publication.registration_id]
    assert [message.registration_id for message in world.taken(ImageReleased)] == [image.registration_id]
    assert {message.endpoint for message in world.taken(EndpointClosed)} == {create.endpoint, publication.endpoint}


def test_receivers_of_a_dynamic_channel_are_learned_served_and_dropped(world: World) -> None:
    publication = world.publish("aeron:udp?control=127.0.0.1:24010|control-mode=dynamic")
    assert publication.setup_flags == layout.SETUP_FLAG_GROUP
    peers = [world.network.peer(next(world.ports)) for _ in range(3)]
    for number, peer in enumerate(peers):
        world.status_from(peer, publication, receiver_id=number)
    world.run()
    assert len(publication.endpoint.destinations) == 3
    Writer(publication.path.log).append(bytes(100))
    for peer in peers:
        peer.take()
    world.run()
    assert [[len(datagram) for datagram in peer.take() if len(datagram) == 160] for peer in peers] == [[160]] * 3
    for _ in range(7):
        world.run(1000)
        world.status_from(peers[0], publication, receiver_id=0)
    assert [entry.packed for entry in publication.endpoint.destinations.entries] == [peers[0].address.packed]
    assert publication.path.receiver_count == 1


def test_manual_destinations_stay_and_are_resolved_again_when_silent(world: World) -> None:
    publication = world.publish("aeron:udp?control-mode=manual|control=127.0.0.1:24020")
    peers = [world.network.peer(next(world.ports)) for _ in range(2)]
    for number, peer in enumerate(peers):
        world.to_sender.add_destination(
            publication.endpoint, peer.address, name=f"name{number}:1", registration_id=number
        )
    world.run(100)
    assert [kinds(peer.take()).count(layout.TYPE_SETUP) > 0 for peer in peers] == [True, True]
    stranger = world.network.peer(next(world.ports))
    world.status_from(stranger, publication, receiver_id=50)
    world.status_from(peers[0], publication, receiver_id=10)
    world.run(6_000)
    assert {message.name for message in world.taken(ResolveAgain)} == {"name0:1", "name1:1"}
    assert len(publication.endpoint.destinations) == 2
    elsewhere = world.network.peer(next(world.ports))
    world.to_sender.resolution_change(publication.endpoint, elsewhere.address, destination=1)
    world.to_sender.remove_destination_by_id(publication.endpoint, 0)
    world.run(101)
    assert [entry.packed for entry in publication.endpoint.destinations.entries] == [elsewhere.address.packed]
    world.to_sender.remove_destination(publication.endpoint, name="name1:1")
    world.run()
    assert not publication.endpoint.destinations.entries


def group(world: World, fc: str) -> tuple[SenderPublication, list[Peer]]:
    publication = world.publish(f"aeron:udp?control=127.0.0.1:24030|control-mode=dynamic|fc={fc}")
    return publication, [world.network.peer(next(world.ports)) for _ in range(3)]


def test_with_min_flow_control_the_slowest_receiver_sets_the_limit_until_it_is_gone(world: World) -> None:
    publication, peers = group(world, "min,t:1s")
    world.status_from(peers[0], publication, 0, receiver_id=0)
    world.status_from(peers[1], publication, 64, receiver_id=1)
    world.run()
    assert publication.path.sender_limit == 4096
    for _ in range(3):
        world.run(500)
        world.status_from(peers[1], publication, 128, receiver_id=1)
    world.run()
    assert publication.flow_control.group_size(publication.path) == 1
    assert publication.path.sender_limit == 4096 + 128
    world.status_from(peers[1], publication, 128, receiver_id=1, flags=layout.SM_FLAG_EOS)
    world.run()
    assert publication.flow_control.group_size(publication.path) == 0


def test_a_receiver_far_behind_does_not_stall_a_group(world: World) -> None:
    publication, peers = group(world, "min")
    world.status_from(peers[0], publication, 16_384, receiver_id=0)
    world.run()
    world.status_from(peers[1], publication, 0, receiver_id=1)
    world.run()
    assert publication.path.sender_limit == 16_384 + 4096
    assert publication.flow_control.group_size(publication.path) == 1
    world.status_from(peers[1], publication, 16_384, receiver_id=1)
    world.run()
    assert publication.flow_control.group_size(publication.path) == 2


def test_a_group_that_is_too_small_does_not_connect(world: World) -> None:
    publication, peers = group(world, "tagged,g:9/2")
    world.status_from(peers[0], publication, receiver_id=0, tag=9)
    world.status_from(peers[1], publication, receiver_id=1, tag=8)
    world.run()
    assert publication.path.receiver_count == 2
    connected = 3 * TERM_LENGTH + layout.LOG_IS_CONNECTED_OFFSET
    assert publication.path.log.get_i32(connected) == 0
    assert publication.path.sender_limit == 0
    world.status_from(peers[2], publication, receiver_id=2, tag=9)
    world.run()
    assert publication.path.log.get_i32(connected) == 1
    assert publication.path.sender_limit == 4096


def test_the_limit_waits_for_a_joining_receiver(world: World) -> None:
    publication, peers = group(world, "min,t:1s")
    world.status_from(peers[0], publication, receiver_id=0)
    world.run()
    world.status_from(peers[1], publication, receiver_id=1, flags=layout.SM_FLAG_SEND_SETUP)
    world.run(101)
    world.status_from(peers[0], publication, 1024, receiver_id=0)
    world.run()
    assert publication.path.sender_limit == 4096
    world.status_from(peers[1], publication, 1024, receiver_id=1)
    world.run()
    assert publication.path.sender_limit == 4096 + 1024


def test_replies_to_measurements_are_rate_limited(world: World) -> None:
    peer = world.network.peer(24_040)
    publication = world.publish("aeron:udp?endpoint=127.0.0.1:24040")
    request = rttm(12_345, receiver_id=5)
    peer.take()
    for _ in range(10):
        world.network.send(peer, world.address_of(publication), request.encode())
    world.turn(world.sender)
    world.network.step()
    answers = [datagram for datagram in peer.take() if Header.read(datagram).type == layout.TYPE_RTTM]
    assert answers == [request.reply().encode()]


def test_a_response_publication_sends_to_the_requester(world: World) -> None:
    publication = world.publish("aeron:udp?control=127.0.0.1:24050|control-mode=response", is_response=True)
    peer = world.network.peer(next(world.ports))
    world.run(300)
    assert not peer.take()
    world.status_from(peer, publication, flags=layout.SM_FLAG_SEND_SETUP)
    world.run()
    assert kinds(peer.take()) == [layout.TYPE_SETUP]
    world.status_from(peer, publication)
    world.run()
    assert len(world.taken(ResponseConnected)) == 1


def test_a_request_publication_asks_for_a_response_and_reports_its_session(world: World) -> None:
    peer = world.network.peer(24_060)
    publication = world.publish("aeron:udp?endpoint=127.0.0.1:24060", response_correlation_id=9)
    (setup,) = [datagram for datagram in peer.take() if Header.read(datagram).type == layout.TYPE_SETUP]
    assert setup[layout.FRAME_FLAGS_OFFSET] == layout.SETUP_FLAG_SEND_RESPONSE
    world.network.send(
        peer,
        world.address_of(publication),
        frames.ResponseSetup(session_id=SESSION_ID, stream_id=STREAM_ID, response_session_id=-77).encode(),
    )
    world.run()
    (message,) = world.taken(ResponseSetupReceived)
    assert (message.registration_id, message.response_session_id) == (publication.registration_id, -77)


def test_a_subscriber_with_control_requests_a_setup_at_once_and_every_second(world: World) -> None:
    publisher = world.network.peer(24_070)
    endpoint = world.subscribe("aeron:udp?endpoint=127.0.0.1:24071|control=127.0.0.1:24070", group_tag=99)
    expected = setup_request(0, 0)
    assert publisher.take() == [expected]
    world.run(3_000)
    assert publisher.take() == [expected] * 3
    world.to_receiver.request_setup(endpoint, STREAM_ID, 5)
    world.run()
    assert publisher.take() == [setup_request(5, STREAM_ID)]


def setup_frame() -> bytes:
    return Setup(
        session_id=SESSION_ID,
        stream_id=STREAM_ID,
        initial_term_id=INITIAL_TERM_ID,
        active_term_id=INITIAL_TERM_ID,
        term_offset=0,
        term_length=TERM_LENGTH,
        mtu=1408,
    ).encode()


def test_one_image_receives_from_several_sockets_and_responds_through_each(world: World) -> None:
    endpoint = world.subscribe("aeron:udp?control-mode=manual")
    destinations = [
        ReceiveDestination(world.channel(f"aeron:udp?endpoint=127.0.0.1:{port}"), world.network)
        for port in (24_080, 24_081)
    ]
    for destination in destinations:
        world.to_receiver.add_destination(endpoint, destination)
    world.run()
    peers = [world.network.peer(next(world.ports)) for _ in range(2)]
    addresses = [InetAddress("127.0.0.1", port) for port in (24_080, 24_081)]
    for peer, address in zip(peers, addresses, strict=True):
        world.network.send(peer, address, setup_frame())
    world.run()
    (create,) = world.taken(CreateImage)
    image = world.make_image(create)
    world.network.send(peers[1], addresses[1], setup_frame())
    world.run()
    assert image.path.connection_count(world.now_ns) == 2
    world.network.send(peers[0], addresses[0], frame(bytes(32), term_offset=0))
    world.network.send(peers[1], addresses[1], frame(bytes(32), term_offset=0))
    world.network.send(peers[1], addresses[1], frame(bytes(32), term_offset=64))
    world.run(200)
    assert image.path.rebuild_position == 128
    assert all(layout.TYPE_SM in kinds(peer.take()) for peer in peers)
    channel = world.channel("aeron:udp?endpoint=127.0.0.1:24081")
    assert [each for each in destinations if each.is_of(channel)] == [destinations[1]]
    world.to_receiver.remove_destination(endpoint, destinations[1])
    world.run()
    assert image.path.connection_count(world.now_ns) == 1
    assert len(endpoint.local_addresses) == 1


def test_redundant_senders_of_one_stream_feed_one_image(world: World) -> None:
    world.subscribe("aeron:udp?endpoint=127.0.0.1:24090")
    peers = [world.network.peer(next(world.ports)) for _ in range(2)]
    address = InetAddress("127.0.0.1", 24_090)
    world.network.send(peers[0], address, setup_frame())
    world.run()
    image = world.make_image(world.taken(CreateImage)[0])
    world.network.send(peers[1], address, setup_frame())
    world.network.send(peers[0], address, frame(bytes(32), term_offset=0))
    world.network.send(peers[1], address, frame(bytes(32), term_offset=0))
    world.network.send(peers[1], address, frame(bytes(32), term_offset=64))
    world.run(250)
    assert image.path.rebuild_position == 128
    assert all(layout.TYPE_SM in kinds(peer.take()) for peer in peers)
    assert not world.taken(CreateImage)
    end = frame(b"", term_offset=128, length=0, flags=0xE0)
    world.network.send(peers[0], address, end)
    world.run()
    assert image.path.end_of_stream_position == -1
    world.network.send(peers[1], address, end)
    world.run()
    assert image.path.end_of_stream_position == 128


def lossy_image(world: World, **options: Any) -> tuple[ReceiverImage, Peer, InetAddress]:
    world.subscribe("aeron:udp?endpoint=127.0.0.1:24100")
    peer = world.network.peer(next(world.ports))
    address = InetAddress("127.0.0.1", 24_100)
    world.network.send(peer, address, setup_frame())
    world.run()
    image = world.make_image(world.taken(CreateImage)[0], **options)
    peer.take()
    return image, peer, address


def test_loss_is_reported_to_the_conductor(world: World) -> None:
    image, peer, address = lossy_image(world)
    image.path.set_nak_counter(70)
    world.network.send(peer, address, frame(bytes(32), term_offset=64))
    world.network.send(peer, address, frame(bytes(32), term_offset=256))
    world.run(12)
    (loss,) = world.taken(LossObserved)
    assert (loss.registration_id, loss.bytes_lost) == (image.registration_id, 192)
    assert world.value(70) == world.value(SystemCounter.NAKS_SENT) > 2


def test_cubic_shrinks_the_window_on_loss_and_reports_it_at_once(world: World) -> None:
    control = CubicCongestionControl(max_window_length=32_768, mtu=1408, now_ns=world.now_ns, measures=True)
    image, peer, address = lossy_image(world, congestion_control=control)
    world.run(2)
    measures = [datagram for datagram in peer.take() if Header.read(datagram).type == layout.TYPE_RTTM]
    assert measures
    before = image.path.window_length
    world.network.send(peer, address, frame(bytes(32), term_offset=64))
    world.run(2)
    assert image.path.window_length < before
    windows = [
        StatusMessage.decode(each).receiver_window for each in peer.take() if Header.read(each).type == layout.TYPE_SM
    ]
    assert windows[-1] == image.path.window_length


def test_a_rejected_image_sends_errors_and_response_sessions_follow_status_messages(world: World) -> None:
    image, peer, _ = lossy_image(world)
    world.to_receiver.set_response_session(image, 55)
    world.run(201)
    assert sorted(kinds(peer.take())) == [layout.TYPE_SM] * 2 + [layout.TYPE_RSP_SETUP] * 2
    world.to_receiver.set_response_session(image, None)
    world.to_receiver.reject_image(image, "go away")
    world.run(401)
    errors = peer.take()
    assert {ErrorFrame.decode(datagram).text for datagram in errors if Header.read(datagram).type == 4} == {"go away"}
    assert layout.TYPE_SM not in kinds(errors)
    assert world.value(39) == 3


def test_a_removed_images_session_cools_down_before_it_may_return(world: World) -> None:
    image, peer, address = lossy_image(world)
    world.to_receiver.remove_image(image, cool_down_ns=500 * MS)
    world.run()
    world.network.send(peer, address, setup_frame())
    world.run()
    assert not world.taken(CreateImage)
    world.run(500)
    world.network.send(peer, address, setup_frame())
    world.run()
    assert len(world.taken(CreateImage)) == 1


def test_the_receiver_replies_to_measurements_and_handles_one_way_bursts(world: World) -> None:
    _, peer, address = lossy_image(world)
    for receiver_id in (7, 8, 0):
        request = rttm(receiver_id, receiver_id=receiver_id)
        world.network.send(peer, address, request.encode())
        world.run()
    answers = [Rttm.decode(each) for each in peer.take() if Header.read(each).type == layout.TYPE_RTTM]
    assert [answer.receiver_id for answer in answers] == [7, 0]
    assert not any(answer.is_request for answer in answers)
