"""A fresh, connected publication immediately accepts as much as its window allows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.live_driver import wait_for
from tests.support.ports import free_port

import mainstem

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.system

STREAMS = 12
MIB = 1 << 20
# Channels of the publication and its subscription.
CHANNELS = {
    "ipc": ("aeron:ipc", "aeron:ipc"),
    "ipc with small terms": ("aeron:ipc?term-length=64k", "aeron:ipc"),
    "udp with small terms": (
        "aeron:udp?endpoint=localhost:{port}|term-length=64k",
        "aeron:udp?endpoint=localhost:{port}",
    ),
    "udp": ("aeron:udp?endpoint=localhost:{port}", "aeron:udp?endpoint=localhost:{port}"),
    "spy": ("aeron:udp?endpoint=localhost:{port}|ssc=true", "aeron-spy:aeron:udp?endpoint=localhost:{port}"),
    "mdc": (
        "aeron:udp?control=localhost:{port}|control-mode=dynamic",
        "aeron:udp?control=localhost:{port}|control-mode=dynamic|endpoint=localhost:0",
    ),
}


@pytest.fixture(scope="module")
def client() -> Iterator[mainstem.Aeron]:
    """Connect to a driver whose files fit into shared memory."""
    with mainstem.MediaDriver.launch() as driver, mainstem.Aeron.connect(driver.directory) as client:
        yield client


@pytest.mark.parametrize("kind", CHANNELS)
def test_the_first_offer_of_a_connected_publication_is_accepted(client: mainstem.Aeron, kind: str) -> None:
    port = free_port()
    publish, subscribe = (channel.format(port=port) for channel in CHANNELS[kind])
    for stream_id in range(STREAMS):
        with (
            client.add_subscription(subscribe, stream_id) as subscription,
            client.add_publication(publish, stream_id) as publication,
        ):
            wait_for(lambda: publication.is_connected)
            assert publication.offer(b"first") > 0
            wait_for(lambda: subscription.poll_bytes() == [b"first"])


@pytest.mark.parametrize("media", ["ipc", "udp"])
def test_the_first_request_and_the_first_response_are_accepted_once_connected(
    client: mainstem.Aeron, media: str
) -> None:
    port = free_port()
    channel = "aeron:ipc" if media == "ipc" else f"aeron:udp?endpoint=localhost:{port}"
    back = "aeron:ipc?" if media == "ipc" else f"aeron:udp?control=localhost:{port + 1}|"
    for stream_id in range(STREAMS):
        with (
            client.add_subscription(channel, stream_id) as requests,
            client.add_subscription(f"{back}control-mode=response", 100 + stream_id) as responses,
        ):
            ids = f"response-correlation-id={responses.registration_id}"
            mark = "|" if "?" in channel else "?"
            with client.add_exclusive_publication(f"{channel}{mark}{ids}", stream_id) as request:
                wait_for(lambda request=request: request.is_connected)
                assert request.offer(b"first") > 0
                (image,) = wait_for(lambda requests=requests: requests.images)
                ids = f"response-correlation-id={image.correlation_id}"
                with client.add_exclusive_publication(
                    f"{back}control-mode=response|{ids}", 100 + stream_id
                ) as response:
                    wait_for(lambda response=response: response.is_connected)
                    assert response.offer(b"back") > 0


def test_an_ipc_publication_is_connected_before_its_subscribers_learn_of_it(client: mainstem.Aeron) -> None:
    for stream_id in range(STREAMS):
        with client.add_publication("aeron:ipc", stream_id) as publication:
            connected: list[bool] = []

            def note(_: mainstem.Image, publication: mainstem.Publication, connected: list[bool]) -> None:
                connected.append(publication.is_connected)

            on_image = partial(note, publication=publication, connected=connected)
            with client.add_subscription("aeron:ipc", stream_id, on_available_image=on_image):
                wait_for(partial(bool, connected))
            assert connected == [True]


@pytest.mark.parametrize("kind", ["ipc", "udp"])
def test_a_fresh_publication_takes_eight_long_messages(client: mainstem.Aeron, kind: str) -> None:
    port = free_port()
    publish, subscribe = (channel.format(port=port) for channel in CHANNELS[kind])
    with client.add_subscription(subscribe, 1), client.add_publication(publish, 1) as publication:
        wait_for(lambda: publication.is_connected)
        assert all(publication.offer(bytes(MIB)) > 0 for _ in range(8))
