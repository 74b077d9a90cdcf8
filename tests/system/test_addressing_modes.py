"""Every addressing mode through real drivers and sockets: multiple receivers, multiple senders, and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.invoked_pair import Machines
from tests.support.ports import free_port

from mainstem._core.system_counter import SystemCounter
from mainstem.errors import RegistrationError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.system
HOST = "127.0.0.1"


@pytest.fixture
def machines() -> Iterator[Machines]:
    with Machines() as made:
        yield made


@pytest.fixture
def port() -> int:
    return free_port()


def test_multicast_reaches_every_receiver_of_the_group(machines: Machines, port: int) -> None:
    channel = f"aeron:udp?endpoint=224.20.30.39:{port}|interface=127.0.0.1"
    try:
        first = machines.near.add_subscription(channel, 1001)
    except RegistrationError as error:
        pytest.skip(f"no multicast on this machine: {error}")
    second = machines.far.add_subscription(channel, 1001)
    publication = machines.near.add_publication(channel, 1001)
    machines.until(lambda: publication.is_connected and first.is_connected and second.is_connected)
    machines.deliver(publication, [first, second])


def test_a_group_that_reaches_further_than_its_receivers_is_counted(machines: Machines, port: int) -> None:
    channel = f"aeron:udp?endpoint=224.20.30.39:{port}|interface=127.0.0.1"
    try:
        near = machines.far.add_subscription(f"{channel}|ttl=1", 1001)
    except RegistrationError as error:
        pytest.skip(f"no multicast on this machine: {error}")
    far = machines.near.add_publication(f"{channel}|ttl=4", 1001)
    machines.until(lambda: far.is_connected and near.is_connected)
    assert machines.far.counters.value(SystemCounter.POSSIBLE_TTL_ASYMMETRY) == 1
    assert machines.near.counters.value(SystemCounter.POSSIBLE_TTL_ASYMMETRY) == 0
    machines.deliver(far, [near])


def test_dynamic_destinations_join_and_leave(machines: Machines, port: int) -> None:
    publication = machines.near.add_publication(f"aeron:udp?control={HOST}:{port}|control-mode=dynamic|fc=min", 1001)
    first, second = (
        machines.far.add_subscription(
            f"aeron:udp?endpoint={HOST}:{port + n}|control={HOST}:{port}|control-mode=dynamic", 1001
        )
        for n in (1, 2)
    )
    machines.until(lambda: publication.is_connected and first.is_connected and second.is_connected)
    machines.deliver(publication, [first, second])
    second.close()
    machines.deliver(publication, [first])


def test_manual_destinations_are_added_and_removed(machines: Machines, port: int) -> None:
    publication = machines.near.add_publication(f"aeron:udp?control={HOST}:{port}|control-mode=manual", 1001)
    first, second = (machines.far.add_subscription(f"aeron:udp?endpoint={HOST}:{port + n}", 1001) for n in (1, 2))
    publication.add_destination(f"aeron:udp?endpoint={HOST}:{port + 1}")
    number = publication.add_destination(f"aeron:udp?endpoint={HOST}:{port + 2}")
    machines.until(lambda: publication.is_connected and first.is_connected and second.is_connected)
    machines.deliver(publication, [first, second])
    publication.remove_destination(number)
    machines.deliver(publication, [first])


def test_one_image_comes_from_several_sockets_of_a_subscription(machines: Machines, port: int) -> None:
    subscription = machines.far.add_subscription("aeron:udp?control-mode=manual", 1001)
    for n in (0, 1):
        subscription.add_destination(f"aeron:udp?endpoint={HOST}:{port + n}")
    publication = machines.near.add_publication(f"aeron:udp?control={HOST}:{port + 2}|control-mode=manual", 1001)
    for n in (0, 1):
        publication.add_destination(f"aeron:udp?endpoint={HOST}:{port + n}")
    machines.until(lambda: publication.is_connected and subscription.is_connected)
    machines.until(lambda: subscription.images[0].active_transport_count == 2)
    machines.deliver(publication, [subscription])
    assert len(subscription.images) == 1
    publication.remove_destination(f"aeron:udp?endpoint={HOST}:{port}")
    machines.deliver(publication, [subscription])


def test_a_subscription_reads_ipc_udp_and_a_spied_stream(machines: Machines, port: int) -> None:
    subscription = machines.near.add_subscription("aeron:udp?control-mode=manual", 1001)
    subscription.add_destination("aeron:ipc")
    subscription.add_destination(f"aeron:udp?endpoint={HOST}:{port}")
    local = machines.near.add_publication("aeron:ipc", 1001)
    machines.until(lambda: local.is_connected)
    machines.deliver(local, [subscription])
    remote = machines.far.add_publication(f"aeron:udp?endpoint={HOST}:{port}", 1001)
    machines.until(lambda: remote.is_connected and len(subscription.images) == 2)
    machines.deliver(remote, [subscription])
    subscription.remove_destination("aeron:ipc")
    machines.until(lambda: len(subscription.images) == 1 and not local.is_connected)
    machines.deliver(remote, [subscription])
    spied = machines.near.add_publication(f"aeron:udp?endpoint={HOST}:{port + 1}|ssc=true", 1001)
    subscription.add_destination(f"aeron-spy:aeron:udp?endpoint={HOST}:{port + 1}")
    machines.until(lambda: spied.is_connected)
    machines.deliver(spied, [subscription])


def test_redundant_senders_are_one_image(machines: Machines, port: int) -> None:
    start = "session-id=77|init-term-id=5|term-id=5|term-offset=0|mtu=1408"
    subscription = machines.far.add_subscription(f"aeron:udp?endpoint={HOST}:{port}", 1001)
    channel = f"aeron:udp?endpoint={HOST}:{port}|{start}"
    first, second = (client.add_exclusive_publication(channel, 1001) for client in (machines.near, machines.far))
    machines.until(lambda: first.is_connected and second.is_connected and subscription.is_connected)
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

    machines.until(step, why="the two streams did not merge")
    assert len(subscription.images) == 1
    assert received == [number.to_bytes(4, "big") for number in range(400)]
    first.close()
    for _ in range(50):
        machines.work()
    assert not subscription.images[0].is_end_of_stream
    second.close()
    machines.until(lambda: not subscription.images)


@pytest.mark.parametrize("with_prototype", [False, True])
def test_responses_arrive_over_udp(machines: Machines, port: int, with_prototype: bool) -> None:
    control = f"aeron:udp?control={HOST}:{port + 1}|control-mode=response"
    if with_prototype:
        machines.far.add_publication(f"{control}|response-correlation-id=prototype", 2002)
    requests = machines.far.add_subscription(f"aeron:udp?endpoint={HOST}:{port}", 1001)
    clients = []
    for _ in range(2):
        answers = machines.near.add_subscription(control, 2002)
        channel = f"aeron:udp?endpoint={HOST}:{port}|response-correlation-id={answers.registration_id}"
        clients.append((machines.near.add_exclusive_publication(channel, 1001), answers))
    machines.until(lambda: len(requests.images) == 2 and all(request.is_connected for request, _ in clients))
    by_session = {image.session_id: image for image in requests.images}
    for request, answers in clients:
        image = by_session[request.session_id]
        response = machines.far.add_exclusive_publication(
            f"{control}|response-correlation-id={image.correlation_id}", 2002
        )
        machines.until(lambda response=response, answers=answers: response.is_connected and answers.is_connected)
        machines.deliver(request, [requests], messages=50)
        machines.deliver(response, [answers], messages=50)
        assert [each.session_id for each in answers.images] == [response.session_id]


def test_responses_arrive_over_ipc(machines: Machines) -> None:
    requests = machines.near.add_subscription("aeron:ipc", 1001)
    answers, others = (machines.near.add_subscription("aeron:ipc?control-mode=response", 2002) for _ in range(2))
    channel = f"aeron:ipc?response-correlation-id={answers.registration_id}"
    request = machines.near.add_exclusive_publication(channel, 1001)
    machines.until(lambda: request.is_connected and requests.images)
    number = requests.images[0].correlation_id
    response = machines.near.add_exclusive_publication(
        f"aeron:ipc?control-mode=response|response-correlation-id={number}", 2002
    )
    machines.until(lambda: response.is_connected and answers.is_connected)
    machines.deliver(request, [requests], messages=50)
    machines.deliver(response, [answers], messages=50)
    assert not others.images


def test_a_response_to_nothing_is_refused(machines: Machines, port: int) -> None:
    control = f"aeron:udp?control={HOST}:{port}|control-mode=response"
    for channel in (control, f"{control}|response-correlation-id=12345"):
        with pytest.raises(RegistrationError, match="response-correlation-id"):
            machines.near.add_publication(channel, 1001)
    with pytest.raises(RegistrationError, match="does not identify a network subscription"):
        machines.near.add_publication(f"aeron:udp?endpoint={HOST}:{port}|response-correlation-id=12345", 1001)


def test_a_wildcard_port_comes_from_the_range(port: int) -> None:
    with Machines(receiver_wildcard_port_range=f"{port} {port + 1}") as machines:
        first, second = (machines.far.add_subscription(f"aeron:udp?endpoint={HOST}:0", 1001) for _ in range(2))
        assert {first.local_addresses[0], second.local_addresses[0]} == {f"{HOST}:{port}", f"{HOST}:{port + 1}"}
        with pytest.raises(RegistrationError, match="no free port"):
            machines.far.add_subscription(f"aeron:udp?endpoint={HOST}:0", 1001)
        publication = machines.near.add_publication(f"aeron:udp?endpoint={second.local_addresses[0]}", 1001)
        machines.until(lambda: publication.is_connected)
        machines.deliver(publication, [second], messages=20)


def test_sessions_of_a_stream_are_limited(port: int) -> None:
    with Machines(driver_stream_session_limit=2) as machines:
        subscription = machines.far.add_subscription(f"aeron:udp?endpoint={HOST}:{port}", 1001)
        publications = [
            machines.near.add_exclusive_publication(f"aeron:udp?endpoint={HOST}:{port}", 1001) for _ in range(3)
        ]
        machines.until(lambda: sum(each.is_connected for each in publications) == 2)
        machines.until(lambda: len(subscription.images) == 2)
        for _ in range(200):
            machines.work()
        assert len(subscription.images) == 2
