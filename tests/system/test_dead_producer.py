"""A producer dies between claim and commit: the driver pads the claim, and the stream continues for everyone else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.case_selection import long_after
from tests.support.live_driver import wait_for
from tests.support.ports import free_port
from tests.support.waiting import STALL_S

import mainstem
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver

pytestmark = pytest.mark.system
PROGRAM = Path(__file__).parent / "programs" / "claims_and_dies.py"


@pytest.mark.parametrize("channel", long_after(1, ["aeron:ipc", "aeron:udp?endpoint=127.0.0.1:{port}"]))
def test_a_stream_continues_after_a_producer_dies_with_an_open_claim(channel: str) -> None:
    channel = channel.format(port=free_port())
    with (
        MediaDriver.launch(
            threads=True,
            ipc_term_buffer_length=1 << 16,
            term_buffer_length=1 << 16,
            client_liveness_timeout_ns=2_000_000_000,
            publication_unblock_timeout_ns=2_500_000_000,
        ) as driver,
        Aeron.connect(driver.directory) as aeron,
        aeron.add_subscription(channel, 1001) as subscription,
        aeron.add_publication(channel, 1001) as publication,
    ):
        wait_for(lambda: publication.is_connected)
        source = str(Path(mainstem.__file__).parent.parent)
        died = subprocess.run(
            [sys.executable, str(PROGRAM), driver.directory, channel],
            env={**os.environ, "PYTHONPATH": source},
            stdout=subprocess.PIPE,
            timeout=STALL_S,
            check=False,
        )
        assert died.returncode == -signal.SIGKILL
        assert died.stdout == b"claimed\n"
        wait_for(lambda: publication.offer(b"after") > 0)
        received: list[bytes] = []
        wait_for(
            lambda: (subscription.poll(lambda fragment: received.append(bytes(fragment)), 10), len(received) == 2)[1]
        )
        assert received == [b"before", b"after"]
        assert aeron.counters.value(SystemCounter.UNBLOCKED_PUBLICATIONS) == 1
