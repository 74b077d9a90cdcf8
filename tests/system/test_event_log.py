"""The event log of a driver whose agents run in threads: all of them write to it, and every line is intact."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.support.live_driver import exchange
from tests.support.ports import free_port

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system

LINE = re.compile(r"\[\d+\.\d{9}\] DRIVER: ([A-Z_]+) \[\d+/\d+\]: (.*)")
LOSS = {
    "udp_channel_incoming_interceptors": "loss",
    "udp_channel_transport_bindings_loss_args": "rate=0.05|seed=3|recv-msg-mask=0x2",
}


@pytest.mark.parametrize("threads", [False, True], ids=["process", "threads"])
@pytest.mark.parametrize("mode", ["DEDICATED", "SHARED"])
def test_every_frame_and_every_repair_is_one_whole_line(tmp_path: Path, mode: str, threads: bool) -> None:
    path = tmp_path / "events"
    with (
        MediaDriver.launch(
            threads=threads, threading_mode=mode, event_log="all", event_log_filename=str(path), **LOSS
        ) as driver,
        Aeron.connect(driver.directory) as aeron,
    ):
        exchange(aeron, f"aeron:udp?endpoint=127.0.0.1:{free_port()}|term-length=64k", messages=200)
        counted = {
            event: aeron.counters.value(counter)
            for event, counter in (
                ("NAK_SENT", SystemCounter.NAKS_SENT),
                ("NAK_RECEIVED", SystemCounter.NAKS_RECEIVED),
                ("RESEND", SystemCounter.RETRANSMITS_SENT),
            )
        }
    lines = path.read_text().splitlines()
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if match is None][:5]
    events = [match[1] for match in found if match]
    assert {"FRAME_IN", "FRAME_OUT", "SEND_CHANNEL_CREATION", "CMD_IN_ADD_PUBLICATION"} <= set(events)
    assert all(events.count(event) >= number > 0 for event, number in counted.items())
    sent = sum(match[2].count(" type=DATA ") for match in found if match and match[1] == "FRAME_OUT")
    assert sent > 50
