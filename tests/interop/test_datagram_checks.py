"""Handcrafted datagrams sent to a receiver of either driver: the table's verdicts, and equal effects of random datagrams."""

from __future__ import annotations

import random
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.datagram_cases import CASES, HEARTBEAT, IGNORED, INSERTED, INVALID, OVER_RUN, data, pad
from tests.support.waiting import wait_for
from tests.unit._core.network import INITIAL_TERM_ID, MTU, SESSION_ID, STREAM_ID, TERM_LENGTH, frame

import mainstem
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.cnc import CncFile
from mainstem.aeron.files import MappedFiles
from mainstem.aeron.protocol.frames import Setup
from mainstem.errors import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = pytest.mark.interop

COUNTED = {
    INVALID: SystemCounter.INVALID_PACKETS,
    OVER_RUN: SystemCounter.FLOW_CONTROL_OVER_RUNS,
    HEARTBEAT: SystemCounter.HEARTBEATS_RECEIVED,
}
MARKS_STREAM_ID, MARKS_SESSION_ID = 77, 9
ENVIRONMENT = {"AERON_IMAGE_LIVENESS_TIMEOUT": "2s", "AERON_DRIVER_STREAM_SESSION_LIMIT": "100000"}


class Receiver:
    """A subscription on a driver, and a socket in place of its sender; each observation uses a new session."""

    def __init__(self, directory: Path, port: int) -> None:
        cnc = CncFile.map(MappedFiles(), str(directory))
        assert cnc is not None
        self._cnc = cnc
        self._counters = cnc.counters()
        self._client = mainstem.Aeron.connect(directory)
        channel = f"aeron:udp?endpoint=127.0.0.1:{port}|rcv-wnd=32k"
        self._subscription = self._client.add_subscription(channel, STREAM_ID)
        self._marks = self._client.add_subscription(channel, MARKS_STREAM_ID)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(("127.0.0.1", port))
        self._marked = 0
        self._sessions = iter(range(1_000, 1 << 30))
        self._mark_image = self._begin(self._marks, MARKS_SESSION_ID, MARKS_STREAM_ID)

    def close(self) -> None:
        self._socket.close()
        self._client.close()
        self._cnc.close()

    def observe(self, *datagrams: bytes) -> tuple[list[str], bytes, list[bytes]]:
        """Return what is counted, what the log then contains, and which messages a subscriber gets."""
        session = next(self._sessions)
        image = self._begin(self._subscription, session, STREAM_ID)
        self._mark()
        before = self._values()
        for datagram in datagrams:
            self._socket.send(_in_session(datagram, session))
        self._mark()
        counted = [name for name, count in self._values().items() for _ in range(count - before[name])]
        log = bytes(image.log.get_bytes(0, 3 * TERM_LENGTH)).replace(struct.pack("<i", session), b"ours").rstrip(b"\0")
        messages: list[bytes] = []
        try:
            while image.poll(lambda fragment: messages.append(bytes(fragment))):
                pass
        except CorruptLogError:  # the reference accepts a frame that is shorter than its header
            messages.append(b"corrupt")
        return counted, log, messages

    def _values(self) -> dict[str, int]:
        return {name: self._counters.value(counter) for name, counter in COUNTED.items()}

    def _begin(self, subscription: Any, session_id: int, stream_id: int) -> Any:
        setup = Setup(
            session_id=session_id, stream_id=stream_id, initial_term_id=INITIAL_TERM_ID, active_term_id=INITIAL_TERM_ID,
            term_offset=0, term_length=TERM_LENGTH, mtu=MTU,
        )  # fmt: skip
        self._socket.send(setup.encode())
        image = wait_for(lambda: subscription.image_by_session_id(session_id), "no image was made")
        # The reference announces an image before its receiver has it.
        heartbeat = frame(b"", term_offset=0, length=0, session_id=session_id, stream_id=stream_id)
        before = self._values()[HEARTBEAT]
        wait_for(lambda: self._socket.send(heartbeat) and self._values()[HEARTBEAT] > before)
        return image

    def _mark(self) -> None:
        """Wait until everything sent has been handled, using a message of another stream that follows on the same socket."""
        offset, term_id = self._marked % TERM_LENGTH, INITIAL_TERM_ID + self._marked // TERM_LENGTH
        mark = frame(b"", term_offset=offset, term_id=term_id, session_id=MARKS_SESSION_ID, stream_id=MARKS_STREAM_ID)
        self._marked += len(mark)
        self._socket.send(mark)
        wait_for(lambda: self._mark_image.poll(lambda _: None), "a datagram was lost")


def _in_session(datagram: bytes, session_id: int) -> bytes:
    frames = bytearray(datagram)
    for at in range(12, len(frames) - 3, 32):
        if frames[at : at + 4] == struct.pack("<i", SESSION_ID):
            frames[at : at + 4] = struct.pack("<i", session_id)
    return bytes(frames)


@pytest.fixture
def receivers(start_driver: DriverFactory, port: int, other_port: int) -> Iterator[tuple[Receiver, Receiver]]:
    """Create a receiver on the reference's driver, and one on Mainstem's."""
    theirs = Receiver(start_driver("reference", **ENVIRONMENT).directory, port)
    ours = Receiver(start_driver("mainstem", **ENVIRONMENT).directory, other_port)
    yield theirs, ours
    theirs.close()
    ours.close()


def test_each_driver_gives_the_verdicts_of_the_table(receivers: tuple[Receiver, Receiver]) -> None:
    for case in CASES:
        for receiver, expected in zip(receivers, (case.reference, case.verdict), strict=True):
            counted, log, _ = receiver.observe(case.datagram)
            assert (counted + [INSERTED] * bool(log) or [IGNORED]) == [expected], case.name


def stream_of_datagrams(rng: random.Random) -> list[bytes]:
    """Return the start of a stream of data and PADs in random order, with duplicates, losses, and some malformed headers."""
    datagrams, offset = [], 0
    for _ in range(rng.randint(1, 5)):
        frames = []
        for _ in range(rng.randint(1, 4)):
            length = rng.choice([0, 1, 31, 32, 33, 200])
            frames.append(rng.choice([data(offset, length), pad(offset), pad(offset, 32 + length, length)]))
            offset += len(frames[-1])
        if rng.random() < 0.3:
            frames.append(pad(offset, 4096, rng.choice([0, 32])))
            offset += 4096
        if rng.random() < 0.2:
            at = rng.randrange(len(frames))
            frames[at] = damaged(frames[at], rng)
        datagrams.append(b"".join(frames))
    return rng.choices(datagrams, k=len(datagrams)) if rng.random() < 0.5 else datagrams


def damaged(one: bytes, rng: random.Random) -> bytes:
    """Return a frame with a changed length, type, or offset."""
    changed = bytearray(one)
    at, bit = rng.choice([(0, 0x20), (1, 0x10), (3, 0x80), (6, 1), (6, 2), (7, 0x80), (8, 1), (8, 0x20), (11, 0x80)])
    changed[at] ^= bit
    return bytes(changed)


def test_datagrams_have_the_same_effects_on_either_driver(receivers: tuple[Receiver, Receiver]) -> None:
    rng = random.Random(5)
    inserted = refused = 0
    for _ in range(100):
        datagrams = stream_of_datagrams(rng)
        theirs, ours = (receiver.observe(*datagrams) for receiver in receivers)
        assert ours == theirs, [datagram.hex() for datagram in datagrams]
        inserted += bool(theirs[2])
        refused += bool(theirs[0])
    assert min(inserted, refused) > 10


@pytest.mark.parametrize(
    ("near", "far"), [("reference", "mainstem"), ("mainstem", "reference"), ("mainstem", "mainstem")]
)
def test_messages_arrive_between_aborted_claims_and_padding(
    start_driver: DriverFactory, port: int, near: str, far: str
) -> None:
    with (
        mainstem.Aeron.connect(start_driver(near).directory) as sender,
        mainstem.Aeron.connect(start_driver(far).directory) as receiver,
    ):
        channel = f"aeron:udp?endpoint=127.0.0.1:{port}|term-length=64k"
        subscription = receiver.add_subscription(channel, STREAM_ID)
        publication = sender.add_exclusive_publication(channel, STREAM_ID)
        wait_for(lambda: publication.is_connected)
        messages: list[bytes] = []
        claim = mainstem.BufferClaim()

        def read() -> None:
            messages.extend(subscription.poll_bytes())

        for number in range(300):
            for _ in range(number % 3):
                wait_for(lambda: publication.try_claim(0, claim) > 0, invoke=read)
                claim.abort()
            wait_for(lambda length=number % 5 * 100: publication.append_padding(length) > 0, invoke=read)
            wait_for(lambda text=b"%d" % number: publication.offer(text) > 0, invoke=read)
        wait_for(lambda: len(messages) == 300, invoke=read, progress=lambda: len(messages))
        assert messages == [b"%d" % number for number in range(300)]
