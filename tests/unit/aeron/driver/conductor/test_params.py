"""The effect of channel parameters on the log of a publication or image, where every process can read them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.invoked_driver import InvokedDriver, only

from mainstem._core import layout
from mainstem.aeron.command import responses
from mainstem.aeron.driver.media.addresses import InetAddress

if TYPE_CHECKING:
    from mainstem.aeron.logbuffer import LogBuffers

UDP = "aeron:udp?endpoint=127.0.0.1:20121"
SECOND = 1_000_000_000
# (parameters of a publication's channel, the values that they set in its log).
PUBLICATION = [
    ("mtu=2048", {"mtu": 2048}),
    ("term-length=128k", {"term_length": 1 << 17}),
    ("init-term-id=5|term-id=6|term-offset=64", {"initial_term_id": 5, "producer_position": 65536 + 64}),
    ("session-id=-7", {"session_id": -7}),
    ("linger=3s", {"linger_ns": 3 * SECOND}),
    ("eos=false", {"signal_eos": False}),
    ("ssc=true", {"spies_simulate_connection": True}),
    ("max-resend=32", {"max_resend": 32}),
    ("pub-wnd=8k", {"publication_window": 8192}),
    ("sparse=false", {"sparse": False}),
    ("so-sndbuf=64k", {"so_sndbuf": (1 << 16)}),
    ("tags=3,9", {"entity_tag": 9}),
    ("untethered-window-limit-timeout=1s", {"untethered_window_limit_ns": SECOND}),
    ("untethered-linger-timeout=2s", {"untethered_linger_ns": 2 * SECOND}),
    ("untethered-resting-timeout=4s", {"untethered_resting_ns": 4 * SECOND}),
]
# (parameters of a subscription's channel, the values that they set in the log of its image).
IMAGE = [
    ("reliable=false", {"reliable": False}),
    ("tether=false", {"tether": False}),
    ("rejoin=false", {"rejoin": False}),
    ("group=true", {"group": True}),
    ("group=false", {"group": False}),
    ("rcv-wnd=16k", {"receiver_window": 1 << 14}),
    ("sparse=false", {"sparse": False}),
    ("so-rcvbuf=256k", {"so_rcvbuf": 1 << 18}),
    ("untethered-window-limit-timeout=1s", {"untethered_window_limit_ns": SECOND}),
    ("untethered-linger-timeout=2s", {"untethered_linger_ns": 2 * SECOND}),
    ("untethered-resting-timeout=4s", {"untethered_resting_ns": 4 * SECOND}),
]
# Where the reference's tools look for each value (docs/protocols/aeron.md, 10.1): offset in the metadata, format.
PLACES = {
    "mtu": (272, "<i"),
    "term_length": (276, "<i"),
    "initial_term_id": (264, "<i"),
    "session_id": (332, "<i"),
    "linger_ns": (464, "<q"),
    "signal_eos": (493, "<?"),
    "spies_simulate_connection": (494, "<?"),
    "max_resend": (316, "<i"),
    "publication_window": (284, "<i"),
    "receiver_window": (288, "<i"),
    "sparse": (492, "<?"),
    "so_sndbuf": (292, "<i"),
    "so_rcvbuf": (304, "<i"),
    "entity_tag": (448, "<q"),
    "untethered_window_limit_ns": (472, "<q"),
    "untethered_resting_ns": (480, "<q"),
    "untethered_linger_ns": (500, "<q"),
    "reliable": (491, "<?"),
    "tether": (495, "<?"),
    "rejoin": (490, "<?"),
    "group": (488, "<?"),
}


def read(log: LogBuffers, name: str) -> Any:
    if name == "producer_position":
        return log.producer_position
    offset, form = PLACES[name]
    return struct.unpack(form, bytes(log.buffer.get_bytes(log.metadata_offset + offset, struct.calcsize(form))))[0]


@pytest.mark.parametrize(("parameters", "expected"), PUBLICATION, ids=[row[0] for row in PUBLICATION])
def test_a_publications_log_has_the_parameters_of_its_channel(
    driver: InvokedDriver, parameters: str, expected: dict[str, Any]
) -> None:
    ready = only(driver.add_publication(f"{UDP}|{parameters}"), responses.OnPublicationReady)
    log = driver.log(ready.log_file)
    assert {name: read(log, name) for name in expected} == expected
    # Without the parameters, every value differs.
    plain = driver.log(
        only(driver.add_publication("aeron:udp?endpoint=127.0.0.1:20122", 1002), responses.OnPublicationReady).log_file
    )
    assert all(read(plain, name) != value for name, value in expected.items())


@pytest.mark.parametrize(("parameters", "expected"), IMAGE, ids=[row[0] for row in IMAGE])
def test_an_images_log_has_the_parameters_of_its_subscription(
    driver: InvokedDriver, parameters: str, expected: dict[str, Any]
) -> None:
    driver.add_subscription(f"{UDP}|{parameters}")
    setup = struct.pack("<iBBHiiiiiiii", 40, 0, 0, layout.TYPE_SETUP, 0, 9, 1001, 5, 5, 1 << 16, 1408, 0)
    peer = driver.network.peer(20130)
    driver.network.send(peer, InetAddress("127.0.0.1", 20121), setup)
    log = driver.log(only(driver.cycle(), responses.OnAvailableImage).log_file)
    assert {name: read(log, name) for name in expected} == expected


def test_a_tag_names_an_endpoint_or_a_session_again(driver: InvokedDriver) -> None:
    first = only(driver.add_publication(f"{UDP}|tags=3,9"), responses.OnPublicationReady)
    same = only(driver.add_publication("aeron:udp?tags=3", 1002), responses.OnPublicationReady)
    assert same.channel_status_id == first.channel_status_id
    borrowed = only(driver.add_publication(f"{UDP}|session-id=tag:9", 1003), responses.OnPublicationReady)
    assert borrowed.session_id == first.session_id


def test_an_alias_is_for_labels_only(driver: InvokedDriver) -> None:
    only(driver.add_publication(f"{UDP}|alias=tides"), responses.OnPublicationReady)
    shared = only(driver.add_publication(UDP), responses.OnPublicationReady)
    assert shared.correlation_id != shared.original_registration_id
    assert any("alias=tides" in label for label in driver.labels().values())


@pytest.mark.parametrize("offset", ["-32", "131072"])
def test_a_term_offset_outside_the_term_is_refused_as_it_was_written(driver: InvokedDriver, offset: str) -> None:
    error = only(
        driver.add_publication(f"{UDP}|term-length=64k|init-term-id=5|term-id=5|term-offset={offset}"),
        responses.OnError,
    )
    why = "out of range" if offset.startswith("-") else "> term-length=65536"
    assert f"term-offset={offset} {why}" in error.message
