"""Closing a driver that runs in threads of this process."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from tests.support.waiting import STALL_S, wait_for

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver import threads
from mainstem.aeron.driver.context import DriverContext
from mainstem.aeron.driver.media.transport import SystemTransports
from mainstem.aeron.driver.settings import DriverSettings, ThreadingMode
from mainstem.aeron.driver.threads import DriverThreads

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class SlowNames(SystemTransports):
    """Transports whose name server gives its answer, that there is no such host, only when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.answered = threading.Event()

    def resolve(self, host: str) -> str:
        self.asked.set()
        assert self.answered.wait(STALL_S)
        raise LookupError(f"unknown host {host!r}")


def test_files_stay_mapped_while_a_thread_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "JOIN_TIMEOUT_S", 0.05)
    names = SlowNames()
    settings = DriverSettings(threading_mode=ThreadingMode.DEDICATED, counters_buffer_length=1 << 20)
    driver = DriverThreads(DriverContext(directory=str(tmp_path / "driver"), settings=settings, transports=names))
    core = driver._core
    assert core is not None
    (conductor,) = [thread for thread in threading.enumerate() if thread.name == "driver-conductor"]
    with Aeron.connect(str(tmp_path / "driver")) as aeron:
        aeron.async_add_publication("aeron:udp?endpoint=slow.example:20121", 1001)
        wait_for(names.asked.is_set, "a lookup")
        with caplog.at_level(logging.ERROR):
            driver.close()
        assert "driver-conductor did not stop within 0.05 s; the driver's files stay mapped" in caplog.text
        names.answered.set()
        conductor.join(STALL_S)
    # The thread ended in order: it could still write to the files.
    assert not conductor.is_alive()
    assert core.cnc.counters_values.get_i64(0) >= 0
    core.close()
