"""Many gaps at a 250 ms round trip with 5% loss: Mainstem's receiver repairs them together, the reference's one by one."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import STALL_S, StallTimeout, wait_for

import mainstem

if TYPE_CHECKING:
    from tests.interop.conftest import DriverFactory

pytestmark = [pytest.mark.interop, pytest.mark.long]

RELAY = Path(__file__).parent / "relay.py"
ONE_WAY_MS, LOSS = 125, 0.05
MESSAGES, LENGTH = 1_000, 1_300  # one datagram each
LARGEST_BUFFER = int(Path("/proc/sys/net/core/rmem_max").read_text())
WINDOW = "rcv-wnd=512k|so-rcvbuf=1m" if LARGEST_BUFFER >= 1 << 20 else "rcv-wnd=128k|so-rcvbuf=200k"
# The reference requests one gap at a time and Mainstem all of them. Both repeat after 10 ms, else the relay would be flooded.
NAK_DELAY = "nak-delay=100us"


def carry(start_driver: DriverFactory, port: int, sender: str, receiver: str, seed: int) -> tuple[float, float]:
    """Return how many seconds the messages took, and the longest pause between them."""
    near, far = start_driver(sender), start_driver(receiver)
    relay = subprocess.Popen(
        [sys.executable, str(RELAY), str(port), str(port + 1), str(ONE_WAY_MS), str(LOSS), str(seed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert relay.stdout is not None
    assert relay.stdout.readline() == "ready\n"
    try:
        with mainstem.Aeron.connect(near.directory) as here, mainstem.Aeron.connect(far.directory) as there:
            subscription = there.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{port + 1}|{WINDOW}|{NAK_DELAY}", 1001)
            publication = here.add_exclusive_publication(f"aeron:udp?endpoint=127.0.0.1:{port}|term-length=2m", 1001)
            wait_for(lambda: publication.is_connected and subscription.is_connected)
            stall = StallTimeout(f"{MESSAGES} messages")
            got: list[bytes] = []
            begin = last = time.monotonic()
            longest, sent = 0.0, 0
            while len(got) < MESSAGES:
                stall.check((sent, len(got)))
                if sent < MESSAGES and publication.offer(sent.to_bytes(4, "big") * (LENGTH // 4)) > 0:
                    sent += 1
                if subscription.poll(lambda fragment: got.append(bytes(fragment)), 100):
                    now = time.monotonic()
                    longest, last = max(longest, now - last), now
                else:
                    time.sleep(0.0005)
            took = time.monotonic() - begin
            assert got == [number.to_bytes(4, "big") * (LENGTH // 4) for number in range(MESSAGES)]
    finally:
        relay.communicate("\n", timeout=STALL_S)
        near.stop()
        far.stop()
    return took, longest


def test_gaps_are_repaired_several_times_faster_than_by_the_reference(start_driver: DriverFactory, port: int) -> None:
    took = {
        receiver: [carry(start_driver, port, "reference", receiver, seed) for seed in (1, 2)]
        for receiver in ("reference", "mainstem")
    }
    for receiver, runs in took.items():
        print(
            f"{receiver} receives in {', '.join(f'{whole:.1f} s, longest silence {silence:.2f} s' for whole, silence in runs)}"
        )
    ratio = sum(whole for whole, _ in took["reference"]) / sum(whole for whole, _ in took["mainstem"])
    print(f"ratio {ratio:.1f}")
    assert ratio > 1.5


def test_mainstem_at_both_ends_is_as_fast(start_driver: DriverFactory, port: int) -> None:
    whole, silence = carry(start_driver, port, "mainstem", "mainstem", 1)
    print(f"mainstem to mainstem in {whole:.1f} s, longest silence {silence:.2f} s")
    assert whole < 60
