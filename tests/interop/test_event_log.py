"""The event log compared with the reference: one program runs on either driver, and every kind of line has the same words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import wait_for

import mainstem
from mainstem.aeron.driver.event_log.events import Event
from mainstem.errors import RegistrationError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = [pytest.mark.interop, pytest.mark.long]

LINE = re.compile(r"\[\d+\.\d{9}\] DRIVER: ([A-Z_]+) \[\d+/\d+\]: (.*)")
# The seed's first draws include a loss, since a stream may put its messages into only a few dozen packets.
SETTINGS = {
    "AERON_EVENT_LOG": "all",
    "AERON_UDP_CHANNEL_INCOMING_INTERCEPTORS": "loss",
    "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS": "rate=0.2|seed=5|recv-msg-mask=0x2",
    "AERON_NAME_RESOLVER_SUPPLIER": "driver",
    "AERON_CUBICCONGESTIONCONTROL_MEASURERTT": "true",
    "AERON_IMAGE_LIVENESS_TIMEOUT": "1s",
    "AERON_PUBLICATION_CONNECTION_TIMEOUT": "1s",
    "AERON_CLIENT_LIVENESS_TIMEOUT": "2s",
    "AERON_PUBLICATION_UNBLOCK_TIMEOUT": "3s",
    "AERON_TIMER_INTERVAL": "200ms",
    "AERON_DRIVER_RESOLVER_NEIGHBOR_TIMEOUT": "2s",
    "AERON_UNTETHERED_WINDOW_LIMIT_TIMEOUT": "500ms",
    "AERON_UNTETHERED_RESTING_TIMEOUT": "500ms",
}
# Events whose words differ between the two, and why.
ONLY_OURS = {
    # The reference logs where a counter's key and label are, and nothing about a freed counter.
    "CMD_IN_ADD_COUNTER",
    "CMD_OUT_ON_UNAVAILABLE_COUNTER",
    # The reference writes "imageCorrelationId=5position=0".
    "CMD_IN_REJECT_IMAGE",
}

# What the program does not trigger: nothing dies or ends the driver, and the reference never writes the last two.
NOT_PLAYED = {
    "CMD_IN_KEEPALIVE_CLIENT",
    "CMD_IN_TERMINATE_DRIVER",
    "CMD_OUT_ON_CLIENT_TIMEOUT",
    "GENERIC_MESSAGE",
    "NAME_RESOLUTION_HOST_NAME",
}


def shapes(path: Path, *, whole: bool) -> dict[str, set[str]]:
    """Return, for each event (and each type of frame), what its lines look like without their values.

    ``whole``: every line belongs to an event. The reference starts with a line of another kind, and its errors span several lines.
    """
    found: dict[str, set[str]] = {}
    for line in path.read_text(errors="replace").splitlines():
        match = LINE.fullmatch(line)
        if match is None:
            assert not whole, line
            continue
        event, detail = match.groups()
        kind = re.search(r"type=([A-Z_]+)", detail)
        name = f"{event} {kind[1]}" if kind else event
        # A value extends to the next word and its "=", or to the end of the values.
        shape = re.sub(r"=.*?(?= \w+=| \[|\]|$)", "=", detail)
        shape = re.sub(r"\d+\.\d+\.\d+\.\d+:\d+", "ADDRESS", shape)
        found.setdefault(name, set()).add(re.sub(r"ttl: \d+", "ttl: N", shape))
    return found


def carry(client: mainstem.Aeron, publication: Any, subscription: Any, messages: int) -> None:
    """Send messages and read them."""
    seen: list[bytes] = []
    for number in range(messages):
        wait_for(lambda number=number: publication.offer(b"%d" % number) > 0, "an offer")
        subscription.poll(lambda fragment: seen.append(bytes(fragment)), 10)
    wait_for(
        lambda: subscription.poll(lambda fragment: seen.append(bytes(fragment)), 10) == 0 and len(seen) >= messages,
        "every message",
    )
    assert not client.closed


def program(client: mainstem.Aeron, port: int) -> None:
    """Exercise a bit of everything."""
    control = f"control=127.0.0.1:{port}|control-mode=dynamic"
    group = client.add_publication(f"aeron:udp?{control}|fc=min|linger=0s", 1001)
    receiver = client.add_subscription(f"aeron:udp?endpoint=localhost:{port + 1}|{control}|cc=cubic", 1001)
    wait_for(lambda: group.is_connected and receiver.is_connected, "the group")
    carry(client, group, receiver, 2000)
    receiver.close()
    wait_for(lambda: not group.is_connected, "the receiver's end")
    group.close()

    manual = client.add_exclusive_publication("aeron:udp?control-mode=manual|linger=0s", 1002)
    plain = client.add_subscription("aeron:udp?control-mode=manual", 1002)
    where = plain.add_destination(f"aeron:udp?endpoint=localhost:{port + 2}")
    to = manual.add_destination(f"aeron:udp?endpoint=127.0.0.1:{port + 2}")
    manual.add_destination("aeron:udp?endpoint=127.0.0.1:1")
    wait_for(lambda: plain.is_connected and manual.is_connected, "the destinations")
    plain.images[0].reject("not this")
    wait_for(lambda: not manual.is_connected, "the rejection")
    manual.remove_destination(to)
    manual.remove_destination("aeron:udp?endpoint=127.0.0.1:1")
    del where
    plain.remove_destination(f"aeron:udp?endpoint=localhost:{port + 2}")
    plain.close()
    manual.close()

    answers = client.add_subscription(f"aeron:udp?control=127.0.0.1:{port + 3}|control-mode=response", 1004)
    questions = client.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{port + 2}", 1003)
    asks = client.add_publication(
        f"aeron:udp?endpoint=127.0.0.1:{port + 2}|response-correlation-id={answers.registration_id}", 1003
    )
    wait_for(lambda: questions.is_connected, "the question")
    replies = client.add_publication(
        f"aeron:udp?control=127.0.0.1:{port + 3}|control-mode=response"
        f"|response-correlation-id={questions.images[0].correlation_id}",
        1004,
    )
    wait_for(lambda: answers.is_connected, "the answer")
    replies.revoke()
    wait_for(lambda: not answers.is_connected, "the revocation")
    asks.close()

    untethered = client.add_subscription("aeron:ipc?tether=false", 1005)
    tethered = client.add_subscription("aeron:ipc", 1005)
    local = client.add_publication("aeron:ipc?term-length=64k", 1005)
    wait_for(lambda: local.is_connected and untethered.is_connected and tethered.is_connected, "the local stream")
    for _ in range(30):
        wait_for(lambda: local.offer(bytes(1000)) > 0, "an offer")
    wait_for(lambda: tethered.poll(lambda _fragment: None, 10) == 0 and not untethered.is_connected, "the cut")
    wait_for(lambda: untethered.is_connected, "the return")

    counter = client.add_counter(1001, "a counter", key=b"\1\2\3")
    counter.close()
    with pytest.raises(RegistrationError):
        client.add_publication("aeron:udp?endpoint=127.0.0.1:1|mtu=77777", 1)


def played(kind: str, start_driver: DriverFactory, path: Path, port: int, names_port: int) -> dict[str, set[str]]:
    """Return the lines that a driver writes while the program runs on it and a neighbor appears and disappears."""
    resolver = f"127.0.0.1:{names_port}"
    driver = start_driver(
        kind,
        **SETTINGS,
        AERON_EVENT_LOG_FILENAME=str(path),
        AERON_DRIVER_RESOLVER_NAME="alpha",
        AERON_DRIVER_RESOLVER_INTERFACE=resolver,
    )
    neighbor = start_driver(
        "mainstem",
        AERON_NAME_RESOLVER_SUPPLIER="driver",
        AERON_DRIVER_RESOLVER_NAME="beta",
        AERON_DRIVER_RESOLVER_INTERFACE=f"127.0.0.1:{names_port + 1}",
        AERON_DRIVER_RESOLVER_BOOTSTRAP_NEIGHBOR=resolver,
    )
    wait_for(lambda: "NEIGHBOR_ADDED" in path.read_text(errors="replace"), "the neighbor")
    neighbor.kill()
    with mainstem.Aeron.connect(str(driver.directory)) as client:
        program(client, port)
    wait_for(lambda: "NEIGHBOR_REMOVED" in path.read_text(errors="replace"), "the neighbor's end")
    wait_for(lambda: path.read_text(errors="replace").count("SEND_CHANNEL_CLOSE") >= 4, "the ends of the streams")
    driver.stop()
    return shapes(path, whole=kind == "mainstem")


def test_every_line_of_the_references_event_log_has_a_counterpart(
    start_driver: DriverFactory, tmp_path: Path, port: int, other_port: int
) -> None:
    theirs = played("reference", start_driver, tmp_path / "reference", port, other_port)
    ours = played("mainstem", start_driver, tmp_path / "mainstem", port, other_port)
    assert {name.split()[0] for name in theirs} <= set(Event.__members__)
    assert {event.name for event in Event if event.number} - {name.split()[0] for name in theirs} == NOT_PLAYED
    missing = {name: lines for name, lines in theirs.items() if name not in ours}
    assert missing == {}
    different = {
        name: (lines, ours[name]) for name, lines in theirs.items() if not lines & ours[name] and name not in ONLY_OURS
    }
    assert different == {}
