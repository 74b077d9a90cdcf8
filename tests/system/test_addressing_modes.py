"""Every addressing mode through real drivers and sockets: multiple receivers, multiple senders, and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.invoked_pair import Hosts
from tests.support.ports import free_port

from mainstem._core.system_counter import SystemCounter
from mainstem.errors import RegistrationError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.system
HOST = "127.0.0.1"


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts() as made:
        yield made


@pytest.fixture
def port() -> int:
    return free_port()


def test_multicast_reaches_every_receiver_of_the_group(hosts: Hosts, port: int) -> None:
    channel = f"aeron:udp?endpoint=224.20.30.39:{port}|interface=127.0.0.1"
    try:
        first = hosts.near.add_subscription(channel, 1001)
    except RegistrationError as error:
        pytest.skip(f"no multicast on this machine: {error}")
    second = hosts.far.add_subscription(channel, 1001)
    publication = hosts.near.add_publication(channel, 1001)
    hosts.until(lambda: publication.is_connected and first.is_connected and second.is_connected)
    hosts.deliver(publication, [first, second])


def test_a_group_that_reaches_further_than_its_receivers_is_counted(hosts: Hosts, port: int) -> None:
    channel = f"aeron:udp?endpoint=224.20.30.39:{port}|interface=127.0.0.1"
    try:
        near = hosts.far.add_subscription(f"{channel}|ttl=1", 1001)
    except RegistrationError as error:
        pytest.skip(f"no multicast on this machine: {error}")
    far = hosts.near.add_publication(f"{channel}|ttl=4", 1001)
    hosts.until(lambda: far.is_connected and near.is_connected)
    assert hosts.far.counters.value(SystemCounter.POSSIBLE_TTL_ASYMMETRY) == 1
    assert hosts.near.counters.value(SystemCounter.POSSIBLE_TTL_ASYMMETRY) == 0
    hosts.deliver(far, [near])


def test_dynamic_destinations_join_and_leave(hosts: Hosts, port: int) -> None:
    publication = hosts.near.add_publication(f"aeron:udp?control={HOST}:{port}|control-mode=dynamic|fc=min", 1001)
    first, second = (
        hosts.far.add_subscription(
            f"aeron:udp?endpoint={HOST}:{port + n}|control={HOST}:{port}|control-mode=dynamic", 1001
        )
        for n in (1, 2)
    )
    hosts.until(lambda: publication.is_connected and first.is_connected and second.is_connected)
    hosts.deliver(publication, [first, second])
    second.close()
    hosts.deliver(publication, [first])


def test_manual_destinations_are_added_and_removed(hosts: Hosts, port: int) -> None:
    publication = hosts.near.add_publication(f"aeron:udp?control={HOST}:{port}|control-mode=manual", 1001)
    first, second = (hosts.far.add_subscription(f"aeron:udp?endpoint={HOST}:{port + n}", 1001) for n in (1, 2))
    publication.add_destination(f"aeron:udp?endpoint={HOST}:{port + 1}")
    number = publication.add_destination(f"aeron:udp?endpoint={HOST}:{port + 2}")
    hosts.until(lambda: publication.is_connected and first.is_connected and second.is_connected)
    hosts.deliver(publication, [first, second])
    publication.remove_destination(number)
    hosts.deliver(publication, [first])


def test_one_image_comes_from_several_sockets_of_a_subscription(hosts: Hosts, port: int) -> None:
    subscription = hosts.far.add_subscription("aeron:udp?control-mode=manual", 1001)
    for n in (0, 1):
        subscription.add_destination(f"aeron:udp?endpoint={HOST}:{port + n}")
    publication = hosts.near.add_publication(f"aeron:udp?control={HOST}:{port + 2}|control-mode=manual", 1001)
    for n in (0, 1):
        publication.add_destination(f"aeron:udp?endpoint={HOST}:{port + n}")
    hosts.until(lambda: publication.is_connected and subscription.is_connected)
    hosts.until(lambda: subscription.images[0].active_transport_count == 2)
    hosts.deliver(publication, [subscription])
    assert len(subscription.images) == 1
    publication.remove_destination(f"aeron:udp?endpoint={HOST}:{port}")
    hosts.deliver(publication, [subscription])


def test_a_subscription_reads_ipc_udp_and_a_spied_stream(hosts: Hosts, port: int) -> None:
    subscription = hosts.near.add_subscription("aeron:udp?control-mode=manual", 1001)
    subscription.add_destination("aeron:ipc")
    subscription.add_destination(f"aeron:udp?endpoint={HOST}:{port}")
    local = hosts.near.add_publication("aeron:ipc", 1001)
    hosts.until(lambda: local.is_connected)
    hosts.deliver(local, [subscription])
    remote = hosts.far.add_publication(f"aeron:udp?endpoint={HOST}:{port}", 1001)
    hosts.until(lambda: remote.is_connected and len(subscription.images) == 2)
    hosts.deliver(remote, [subscription])
    subscription.remove_destination("aeron:ipc")
    hosts.until(lambda: len(subscription.images) == 1 and not local.is_connected)
    hosts.deliver(remote, [subscription])
    spied = hosts.near.add_publication(f"aeron:udp?endpoint={HOST}:{port + 1}|ssc=true", 1001)
    subscription.add_destination(f"aeron-spy:aeron:udp?endpoint={HOST}:{port + 1}")
    hosts.until(lambda: spied.is_connected)
    hosts.deliver(spied, [subscription])


def test_redundant_senders_are_one_image(hosts: Hosts, port: int) -> None:
    start = "session-id=77|init-term-id=5|term-id=5|term-offset=0|mtu=1408"
    subscription = hosts.far.add_subscription(f"aeron:udp?endpoint={HOST}:{port}", 1001)
    channel = f"aeron:udp?endpoint={HOST}:{port}|{start}"
    first, second = (client.add_exclusive_publication(channel, 1001) for client in (hosts.near, hosts.far))
    hosts.until(lambda: first.is_connected and second.is_connected and subscription.is_connected)
    received: list[bytes] = []
    sent = [0, 0]

    def step() -> bool:
        for which, publication in enumerate((first, second)):
            # The two take turns being ahead.
            ahead = sent[which] - sent[1 - which] > 20 - 15 * which
            if sent[which] < 400 and not ahead and publication.offer(sent[which].to_bytes(4, "big") * 50) > 0:
                sent[which] += 1
        subscription.poll(lambda fragment: received.append(bytes(fragment)[:4]), 10)
        return sent == [400, 400] and len(received) >= 400

    hosts.until(step, why="the two streams did not merge")
    assert len(subscription.images) == 1
    assert received == [number.to_bytes(4, "big") for number in range(400)]
    first.close()
    for _ in range(50):
        hosts.work()
    assert not subscription.images[0].is_end_of_stream
    second.close()
    hosts.until(lambda: not subscription.images)


@pytest.mark.parametrize("with_prototype", [False, True])
def test_responses_arrive_over_udp(hosts: Hosts, port: int, with_prototype: bool) -> None:
    control = f"aeron:udp?control={HOST}:{port + 1}|control-mode=response"
    if with_prototype:
        hosts.far.add_publication(f"{control}|response-correlation-id=prototype", 2002)
    requests = hosts.far.add_subscription(f"aeron:udp?endpoint={HOST}:{port}", 1001)
    clients = []
    for _ in range(2):
        answers = hosts.near.add_subscription(control, 2002)
        channel = f"aeron:udp?endpoint={HOST}:{port}|response-correlation-id={answers.registration_id}"
        clients.append((hosts.near.add_exclusive_publication(channel, 1001), answers))
    hosts.until(lambda: len(requests.images) == 2 and all(request.is_connected for request, _ in clients))
    by_session = {image.session_id: image for image in requests.images}
    for request, answers in clients:
        image = by_session[request.session_id]
        response = hosts.far.add_exclusive_publication(
            f"{control}|response-correlation-id={image.correlation_id}", 2002
        )
        hosts.until(lambda response=response, answers=answers: response.is_connected and answers.is_connected)
        hosts.deliver(request, [requests], messages=50)
        hosts.deliver(response, [answers], messages=50)
        assert [each.session_id for each in answers.images] == [response.session_id]


def test_responses_arrive_over_ipc(hosts: Hosts) -> None:
    requests = hosts.near.add_subscription("aeron:ipc", 1001)
    answers, others = (hosts.near.add_subscription("aeron:ipc?control-mode=response", 2002) for _ in range(2))
    channel = f"aeron:ipc?response-correlation-id={answers.registration_id}"
    request = hosts.near.add_exclusive_publication(channel, 1001)
    hosts.until(lambda: request.is_connected and requests.images)
    number = requests.images[0].correlation_id
    response = hosts.near.add_exclusive_publication(
        f"aeron:ipc?control-mode=response|response-correlation-id={number}", 2002
    )
    hosts.until(lambda: response.is_connected and answers.is_connected)
    hosts.deliver(request, [requests], messages=50)
    hosts.deliver(response, [answers], messages=50)
    assert not others.images


def test_a_response_without_a_request_is_rejected(hosts: Hosts, port: int) -> None:
    control = f"aeron:udp?control={HOST}:{port}|control-mode=response"
    for channel in (control, f"{control}|response-correlation-id=12345"):
        with pytest.raises(RegistrationError, match="response-correlation-id"):
            hosts.near.add_publication(channel, 1001)
    with pytest.raises(RegistrationError, match="unable to find response subscription for response-correlation-id="):
        hosts.near.add_publication(f"aeron:udp?endpoint={HOST}:{port}|response-correlation-id=12345", 1001)


def test_a_wildcard_port_comes_from_the_range(port: int) -> None:
    with Hosts(receiver_wildcard_port_range=f"{port} {port + 2}") as hosts:
        manual = hosts.far.add_subscription("aeron:udp?control-mode=manual", 1002)
        manual.add_destination(f"aeron:udp?endpoint={HOST}:0")
        first, second = (hosts.far.add_subscription(f"aeron:udp?endpoint={HOST}:0", 1001) for _ in range(2))
        found = {each.local_addresses[0] for each in (manual, first, second)}
        assert found == {f"{HOST}:{port + each}" for each in range(3)}
        with pytest.raises(RegistrationError, match="no available ports in range"):
            hosts.far.add_subscription(f"aeron:udp?endpoint={HOST}:0", 1001)
        publication = hosts.near.add_publication(f"aeron:udp?endpoint={second.local_addresses[0]}", 1001)
        hosts.until(lambda: publication.is_connected)
        hosts.deliver(publication, [second], messages=20)


def test_only_a_control_port_of_a_publication_comes_from_the_range(port: int) -> None:
    with Hosts(sender_wildcard_port_range=f"{port} {port}") as hosts:
        plain = [hosts.near.add_publication(f"aeron:udp?endpoint={HOST}:{port + each}", 1001) for each in (1, 2)]
        assert f"{HOST}:{port}" not in [each.local_addresses[0] for each in plain]
        channel = f"aeron:udp?control={HOST}:0|control-mode=dynamic"
        assert hosts.near.add_publication(channel, 1001).local_addresses == [f"{HOST}:{port}"]
        with pytest.raises(RegistrationError, match="no available ports in range"):
            hosts.near.add_publication(channel, 1001)


def test_sessions_of_a_stream_are_limited(port: int) -> None:
    with Hosts(driver_stream_session_limit=2) as hosts:
        subscription = hosts.far.add_subscription(f"aeron:udp?endpoint={HOST}:{port}", 1001)
        publications = [
            hosts.near.add_exclusive_publication(f"aeron:udp?endpoint={HOST}:{port}", 1001) for _ in range(3)
        ]
        hosts.until(lambda: sum(each.is_connected for each in publications) == 2)
        hosts.until(lambda: len(subscription.images) == 2)
        for _ in range(200):
            hosts.work()
        assert len(subscription.images) == 2
