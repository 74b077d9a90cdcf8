"""Wireshark's Aeron dissector reads what drivers send: every frame decodes and none is malformed.

ERR, RSP_SETUP and RES are left out: the dissector has an older layout of the first and does not know the others.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.dumpcap import Dumpcap
from tests.support.live_driver import exchange, wait_for

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed"),
    pytest.mark.timeout(180),
]


PORTS = 4  # the first of them and the next three
MESSAGES = 200


class Capture(Dumpcap):
    """The datagrams of a few ports on the loopback interface, while the ``with`` lasts."""

    def __init__(self, path: Path, port: int) -> None:
        super().__init__(path, f"udp portrange {port}-{port + PORTS - 1}")
        self._port = port

    def frames(self) -> list[tuple[str, str]]:
        """(the dissector's name, what is wrong with it) of every Aeron frame."""
        ports = range(self._port, self._port + PORTS)
        decode = [word for port in ports for word in ("-d", f"udp.port=={port},aeron")]
        command = ["tshark", "-r", str(self._path), *decode, "-T", "json"]
        output = subprocess.run([*command, "--no-duplicate-keys"], capture_output=True, check=True).stdout
        found = []
        for packet in json.loads(output):
            layers = packet["_source"]["layers"]
            if "_ws.malformed" in layers or "aeron" not in layers:
                found.append(("?", f"not decoded: {sorted(layers)}"))
                continue
            # A datagram of several frames has several layers.
            for layer in layers["aeron"] if isinstance(layers["aeron"], list) else [layers["aeron"]]:
                for name, value in layer.items():
                    found += [(name, _expert(each)) for each in (value if isinstance(value, list) else [value])]
        return found


def _expert(value: Any) -> str:
    """The first expert message that is an error."""
    if isinstance(value, dict):
        if value.get("_ws.expert.severity") in ("0x00800000", "8388608"):
            return str(value.get("_ws.expert.message", "error"))
        return next(filter(None, map(_expert, value.values())), "")
    if isinstance(value, list):
        return next(filter(None, map(_expert, value)), "")
    return ""


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_every_frame_on_the_wire_decodes(tmp_path: Path, loss: float) -> None:
    port = random.Random().randrange(20_000, 32_000)
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
        # Cubic answers loss with ever smaller windows, so few messages must do.
        subscription_channel = channel + ("|cc=cubic" if loss else "")
        exchange(aeron, channel, messages=100 if loss else 800, subscription_channel=subscription_channel)
        wait_for(lambda: aeron.counters.value(9) > 0)
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


@pytest.mark.parametrize("mode", MODES)
def test_every_frame_of_each_mode_decodes(tmp_path: Path, mode: str) -> None:
    port = random.Random().randrange(20_000, 32_000)
    ports = range(port, port + PORTS)
    send, send_to, receive, receive_at = MODES[mode]
    loss = {
        "udp_channel_incoming_interceptors": "loss",
        "udp_channel_transport_bindings_loss_args": "rate=0.05|seed=3|recv-msg-mask=0x3",
    }
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
    if not receive_at:  # what is lost on one of two ways comes on the other, and nobody need ask for it
        kinds.add("aeron.nak")
    assert kinds <= {kind for kind, _ in frames}
