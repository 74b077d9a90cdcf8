"""Anyone can send anything to an endpoint: a running driver counts it, drops it, and continues."""

from __future__ import annotations

import random
import socket
import struct
from typing import Any

import pytest
from tests.support.live_driver import shared_memory, wait_for
from tests.support.ports import free_port
from tests.support.waiting import STALL_S

from mainstem._core import layout
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.aeron.error_log import read_errors
from mainstem.aeron.protocol.frames import Data, ErrorFrame, Heartbeat, Nak, Rttm, Setup, StatusMessage

pytestmark = [pytest.mark.system, pytest.mark.long]

DATAGRAMS = 100_000
STREAM = 1001
BURST = 50  # datagrams between two messages of the stream, which must not be affected
SESSION_LIMIT = 8  # forged SETUPs can create at most this many images


class Attacker:
    """A source of datagrams that break a rule or use session ids that do not exist."""

    def __init__(self, rng: random.Random, session_id: int) -> None:
        self._rng = rng
        self._session_id = session_id

    def datagram(self) -> bytes:
        kind = self._rng.randrange(4)
        if kind == 0:
            return self._rng.randbytes(self._rng.randrange(1, 1500) | 1)
        frame = bytearray(self._stranger())
        if kind == 1:
            return bytes(frame)
        if kind == 2:
            for _ in range(self._rng.randrange(1, 4)):
                frame[self._rng.randrange(len(frame))] ^= 1 << self._rng.randrange(8)
            # Avoid the running session: without a checksum, nobody could tell this frame from the publisher's.
            return bytes(frame) if struct.pack("<i", self._session_id) not in frame else b"\x00"
        del frame[self._rng.randrange(1, len(frame)) :]
        return bytes(frame) + b"\x00" * (1 - len(frame) % 2)

    def _stranger(self) -> bytes:
        rng = self._rng
        session = rng.choice([n for n in range(1, 60) if n != self._session_id])
        stream = rng.choice((STREAM, STREAM, rng.randrange(5000)))
        term, offset = rng.randrange(-(1 << 31), 1 << 31), 32 * rng.randrange(2048)
        makers: list[Any] = [
            lambda: Data(session_id=session, stream_id=stream, term_id=term, term_offset=offset, payload=bytes(40)),
            lambda: Heartbeat(session_id=session, stream_id=stream, term_id=term, term_offset=offset),
            lambda: Nak(session_id=session, stream_id=stream, term_id=term, term_offset=offset, length=32),
            lambda: StatusMessage(
                session_id=session,
                stream_id=stream,
                consumption_term_id=term,
                consumption_term_offset=offset,
                receiver_window=4096,
                receiver_id=rng.getrandbits(60),
            ),
            lambda: Setup(
                session_id=session,
                stream_id=stream,
                initial_term_id=term,
                active_term_id=term,
                term_offset=offset,
                term_length=65_536,
                mtu=1408,
                ttl=0,
            ),
            lambda: Rttm(
                session_id=session,
                stream_id=stream,
                echo_timestamp=1,
                reception_delta=0,
                receiver_id=0,
                flags=layout.RTTM_FLAG_REPLY,
            ),
        ]
        return bytes(rng.choice(makers)().encode())


@pytest.mark.fuzz
def test_a_running_stream_does_not_notice_100_000_hostile_datagrams() -> None:
    port = free_port()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
    errors: list[BaseException] = []
    with (
        MediaDriver.launch(
            threads=True,
            threading_mode="SHARED",
            driver_stream_session_limit=SESSION_LIMIT,
            # On a busy machine, the flood alone may keep the socket's buffer full for a second.
            image_liveness_timeout_ns=6 * 10**9,
        ) as driver,
        Aeron.connect(driver.directory, on_error=errors.append) as aeron,
        aeron.add_subscription(channel, STREAM) as subscription,
        aeron.add_publication(f"{channel}|term-length=64k", STREAM) as publication,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attack,
    ):
        wait_for(lambda: subscription.is_connected and publication.is_connected)
        rng = random.Random(20_261)
        attacker = Attacker(rng, publication.session_id)
        received: list[bytes] = []
        sent: list[bytes] = []

        def poll() -> None:
            received.extend(subscription.poll_bytes(100))

        for _ in range(DATAGRAMS // BURST):
            for _ in range(BURST):
                attack.sendto(attacker.datagram(), ("127.0.0.1", port))
            message = rng.randbytes(rng.randrange(3000))
            wait_for(lambda message=message: poll() or publication.offer(message) > 0)
            sent.append(message)
        wait_for(lambda: poll() or len(received) >= len(sent))
        assert received == sent
        invalid = aeron.counters.value(int(SystemCounter.INVALID_PACKETS))
        # The socket's buffer overflows and drops some. The driver reads most of them, and half of those break a rule.
        assert invalid > DATAGRAMS // 10
        assert not errors
        assert driver.is_running
    assert not shared_memory()


def test_refusals_by_a_third_party_cost_no_client_its_image_and_do_not_fill_the_error_log() -> None:
    port = free_port(2)
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
    errors: list[BaseException] = []
    with (
        MediaDriver.launch(threads=True, threading_mode="SHARED") as driver,
        Aeron.connect(driver.directory, on_error=errors.append) as aeron,
        aeron.add_subscription(channel, STREAM) as subscription,
        aeron.add_publication(f"{channel}|term-length=64k", STREAM) as publication,
        aeron.add_publication(f"aeron:udp?control=127.0.0.1:{port + 1}|control-mode=dynamic", STREAM) as attacked,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attack,
    ):
        wait_for(lambda: subscription.is_connected and publication.is_connected)
        conductor = aeron._conductor
        refusals = aeron.counters.cell(int(SystemCounter.ERROR_FRAMES_RECEIVED))
        ids = {"session_id": attacked.session_id, "stream_id": STREAM}
        term = {"consumption_term_id": attacked.initial_term_id, "receiver_window": 4096}
        with conductor.lock:  # the client's conductor does not run meanwhile
            for receiver_id in range(3000):
                for frame in (
                    StatusMessage(**ids, **term, receiver_id=receiver_id),
                    ErrorFrame(**ids, receiver_id=receiver_id, error_code=13, text=f"{receiver_id:04} " * 200),
                ):
                    attack.sendto(frame.encode(), ("127.0.0.1", port + 1))
                if receiver_id % 100 == 99:
                    wait_for(lambda sent=receiver_id: refusals.get() >= sent // 2)
        (refusal,) = [error for error in read_errors(conductor.cnc.error_log) if "refused" in error.text]
        assert "127.0.0.1/32" in refusal.text
        assert publication.send(b"still there", timeout=STALL_S) > 0
        received: list[bytes] = []
        wait_for(lambda: received.extend(subscription.poll_bytes(10)) or received)
        assert received == [b"still there"]
        assert not errors
        assert not aeron.closed
    assert not shared_memory()
