"""Wireshark's Aeron dissector reads what drivers send: it decodes every frame, and none is malformed.

ERR, RSP_SETUP, and RES are excluded: the dissector has an older layout of the first and does not know the others.
"""

from __future__ import annotations

import shutil
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.live_driver import exchange, wait_for
from tests.support.ports import free_port
from tests.support.tshark import PORTS, Capture

from mainstem._core import layout
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed"),
]


MESSAGES = 200


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_every_frame_on_the_wire_decodes(tmp_path: Path, loss: float) -> None:
    port = free_port()
    settings: dict[str, Any] = {"term_buffer_length": 1 << 18}
    if loss:
        settings |= {
            "udp_channel_incoming_interceptors": "loss",
            "udp_channel_transport_bindings_loss_args": f"rate={loss}|seed=3",
            "cubiccongestioncontrol_measurertt": True,
        }
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
    with (
        Capture(tmp_path / "capture.pcapng", port) as capture,
        MediaDriver.launch(**settings) as driver,
        Aeron.connect(driver.directory) as aeron,
    ):
        # Cubic responds to loss with ever smaller windows, so the test sends fewer messages.
        subscription_channel = channel + ("|cc=cubic" if loss else "")
        messages = 100 if loss else 800
        exchange(aeron, channel, messages=messages, subscription_channel=subscription_channel)
        # They may take only a dozen datagrams, and possibly none of them is lost.
        while loss and not aeron.counters.value(SystemCounter.NAKS_SENT):
            exchange(aeron, channel, messages=messages, subscription_channel=subscription_channel)
        wait_for(lambda: aeron.counters.value(SystemCounter.HEARTBEATS_SENT) > 0)
    frames = capture.frames()
    assert [fault for fault in frames if fault[1]] == []
    kinds = {kind for kind, _ in frames}
    assert {"aeron.setup", "aeron.data", "aeron.heartbeat", "aeron.sm"} <= kinds
    assert not loss or {"aeron.nak", "aeron.rtt"} <= kinds


# (publisher's channel, its destinations, subscriber's channel, its destinations); {0} to {3} are the ports.
MODES: dict[str, tuple[str, list[str], str, list[str]]] = {
    "unicast": ("aeron:udp?endpoint=127.0.0.1:{0}", [], "aeron:udp?endpoint=127.0.0.1:{0}", []),
    "multicast": (
        "aeron:udp?endpoint=224.20.30.39:{0}|interface=127.0.0.1|ttl=1",
        [],
        "aeron:udp?endpoint=224.20.30.39:{0}|interface=127.0.0.1|ttl=1|gtag=5",
        [],
    ),
    "dynamic destinations": (
        "aeron:udp?control=127.0.0.1:{1}|control-mode=dynamic|fc=tagged,g:5",
        [],
        "aeron:udp?endpoint=127.0.0.1:{0}|control=127.0.0.1:{1}|control-mode=dynamic|gtag=5",
        [],
    ),
    "manual destinations, several sockets": (
        "aeron:udp?control=127.0.0.1:{2}|control-mode=manual",
        ["aeron:udp?endpoint=127.0.0.1:{0}", "aeron:udp?endpoint=127.0.0.1:{1}"],
        "aeron:udp?control-mode=manual",
        ["aeron:udp?endpoint=127.0.0.1:{0}", "aeron:udp?endpoint=127.0.0.1:{1}"],
    ),
}


def losing(rate: float) -> dict[str, str]:
    """Return the settings of a driver that loses this fraction of the data and padding frames that reach it."""
    return {
        "udp_channel_incoming_interceptors": "loss",
        "udp_channel_transport_bindings_loss_args": f"rate={rate}|seed=3|recv-msg-mask=0x3",
    }


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_every_frame_of_each_mode_decodes(tmp_path: Path, mode: str) -> None:
    port = free_port()
    ports = range(port, port + PORTS)
    send, send_to, receive, receive_at = MODES[mode]
    loss = losing(0.05)
    with (
        Capture(tmp_path / "capture.pcapng", port) as capture,
        MediaDriver.launch(term_buffer_length=1 << 16, **loss) as driver,
        Aeron.connect(driver.directory) as aeron,
        aeron.add_subscription(receive.format(*ports), 1001) as subscription,
        aeron.add_publication(send.format(*ports), 1001) as publication,
    ):
        for channel in receive_at:
            subscription.add_destination(channel.format(*ports))
        for channel in send_to:
            publication.add_destination(channel.format(*ports))
        wait_for(lambda: publication.is_connected and subscription.is_connected)
        received: list[bytes] = []
        sent = 0

        def step() -> bool:
            nonlocal sent
            if sent < MESSAGES and publication.offer(bytes([sent]) * (17 * sent)) > 0:
                sent += 1
            subscription.poll_messages(lambda fragment: received.append(bytes(fragment)), 10)
            return len(received) == MESSAGES

        wait_for(step)
        assert received == [bytes([number]) * (17 * number) for number in range(MESSAGES)]
        publication.close()
        wait_for(lambda: not subscription.images)
    frames = capture.frames()
    assert [fault for fault in frames if fault[1]] == []
    kinds = {"aeron.setup", "aeron.data", "aeron.heartbeat", "aeron.sm"}
    if not receive_at:  # with two paths, what one loses arrives on the other, so no NAK is needed
        kinds.add("aeron.nak")
    assert kinds <= {kind for kind, _ in frames}


@pytest.mark.long
def test_every_frame_of_a_response_channel_decodes(tmp_path: Path) -> None:
    port = free_port()
    asked_at, answered_from = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
    answering = f"aeron:udp?control={answered_from}|control-mode=response"
    loss = losing(0.1)
    with (
        Capture(tmp_path / "capture.pcapng", port) as capture,
        MediaDriver.launch(term_buffer_length=1 << 16, **loss) as server,
        MediaDriver.launch(term_buffer_length=1 << 16, **loss) as client,
        Aeron.connect(server.directory) as far,
        Aeron.connect(client.directory) as near,
        far.add_subscription(f"aeron:udp?endpoint={asked_at}", 1003) as questions,
        near.add_subscription(answering, 1004) as answers,
        near.add_publication(
            f"aeron:udp?endpoint={asked_at}|response-correlation-id={answers.registration_id}", 1003
        ) as asks,
    ):
        wait_for(lambda: questions.is_connected)
        image = questions.images[0].correlation_id
        with far.add_publication(f"{answering}|response-correlation-id={image}", 1004) as replies:
            wait_for(lambda: answers.is_connected and replies.is_connected and asks.is_connected)
            said: list[bytes] = []
            heard: deque[bytes] = deque()
            number = 0

            def step() -> bool:
                nonlocal number
                if number < MESSAGES and asks.offer(bytes([number]) * (17 * number)) > 0:
                    number += 1
                questions.poll_messages(lambda fragment: heard.append(bytes(fragment)), 10)
                if heard and replies.offer(heard[0]) > 0:
                    heard.popleft()  # each question is its own answer
                answers.poll_messages(lambda fragment: said.append(bytes(fragment)), 10)
                return len(said) == MESSAGES

            wait_for(step)
            assert said == [bytes([each]) * (17 * each) for each in range(MESSAGES)]
        wait_for(lambda: not answers.images)
    assert capture.count(layout.TYPE_RSP_SETUP) > 0
    frames = capture.frames(without=(layout.TYPE_RSP_SETUP, layout.TYPE_ERR))
    assert [fault for fault in frames if fault[1]] == []
    assert {"aeron.setup", "aeron.data", "aeron.heartbeat", "aeron.sm", "aeron.nak"} <= {kind for kind, _ in frames}
