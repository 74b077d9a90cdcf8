"""Wireshark's Aeron dissector reads what drivers send: every frame decodes and none is malformed.

ERR and RSP_SETUP are left out: the dissector has an older layout of the one and does not know the other.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.live_driver import PATIENCE_S, exchange, wait_for

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed"),
    pytest.mark.timeout(180),
]


class Capture:
    """The datagrams of one port on the loopback interface, while the ``with`` lasts."""

    def __init__(self, path: Path, port: int) -> None:
        self._path = path
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Capture:
        command = ["dumpcap", "-q", "-i", "lo", "-f", f"udp port {self._port}", "-w", str(self._path)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        seen, deadline = b"", time.monotonic() + PATIENCE_S
        while b"File:" not in seen:
            seen += self._process.stderr.read() or b""
            if self._process.poll() is not None:
                self._process.stderr.close()
                pytest.skip(f"capturing is not permitted: {seen.decode(errors='replace').strip()}")
            assert time.monotonic() < deadline, seen
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        # What the kernel holds back for the capture arrives within a second.
        time.sleep(1.0)
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        if self._process.stderr is not None:
            self._process.stderr.close()

    def frames(self) -> list[tuple[str, str]]:
        """(the dissector's name, what is wrong with it) of every Aeron frame."""
        command = ["tshark", "-r", str(self._path), "-d", f"udp.port=={self._port},aeron", "-T", "json"]
        output = subprocess.run([*command, "--no-duplicate-keys"], capture_output=True, check=True).stdout
        found = []
        for packet in json.loads(output):
            layers = packet["_source"]["layers"]
            if "_ws.malformed" in layers or "aeron" not in layers:
                found.append(("?", f"not decoded: {sorted(layers)}"))
                continue
            for name, value in layers["aeron"].items():
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
