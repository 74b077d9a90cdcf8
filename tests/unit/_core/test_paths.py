"""A send path and a receive path with a memory network between them, compiled and uncompiled."""

from __future__ import annotations

import random

import pytest
from tests.unit._core import uncompiled
from tests.unit._core.network import RECEIVER_POSITION, SENDER_POSITION, Modules, Pair

import mainstem._core.buffer
import mainstem._core.datagram
import mainstem._core.receive_path
import mainstem._core.send_cycle
import mainstem._core.send_path
from mainstem._core import layout


def modules(compiled: bool) -> Modules:
    if compiled:
        core = mainstem._core
        return Modules(core.buffer, core.datagram, core.send_path, core.receive_path, core.send_cycle)
    return Modules(
        *(uncompiled.load(name) for name in ("buffer", "datagram", "send_path", "receive_path", "send_cycle"))
    )


@pytest.fixture(params=[True, False], ids=["compiled", "uncompiled"])
def core(request: pytest.FixtureRequest) -> Modules:
    return modules(request.param)


def answer_losses(pair: Pair) -> None:
    """What the agents do with gaps and NAKs, in its shortest form."""
    pair.receiver.events.take()
    for position, length in pair.receive_path.gaps():
        pair.receive_path.send_nak(position, length, pair.now_ns)
    for event in pair.sender.events.take():
        if event[0] == layout.EVENT_NAK:
            nak = pair.core.AtomicBuffer(bytearray(event[7]))
            terms = nak.get_i32(layout.NAK_TERM_ID_OFFSET) - pair.send_path.initial_term_id
            position = terms * pair.term_length + nak.get_i32(layout.NAK_TERM_OFFSET_OFFSET)
            pair.send_path.resend(position, nak.get_i32(layout.NAK_LENGTH_OFFSET))


@pytest.mark.parametrize("seed", range(4))
def test_both_logs_become_the_same_whatever_the_network_does(core: Modules, seed: int) -> None:
    faults = random.Random(seed)
    pair = Pair(core)
    pair.connect()
    wanted: list[bytes] = []
    seen: list[bytes] = []
    read = 0
    while pair.writer.position < 5 * pair.term_length:
        pair.writer.limit = pair.send_path.publisher_limit
        payload = faults.randbytes(faults.randrange(0, 1377))
        while pair.writer.append(payload):
            wanted.append(payload)
            payload = faults.randbytes(faults.randrange(0, 1377))
        for _ in range(3):
            pair.now_ns += 1_000_000
            pair.cycle()
            answer_losses(pair)
            pair.deliver(faults, loss=0.2, duplicates=0.1, reorder=True)
        while read < pair.value(RECEIVER_POSITION):
            at = (read // pair.term_length % 3) * pair.term_length + read % pair.term_length
            length = pair.in_log.get_i32(at)
            if pair.in_log.get_u16(at + layout.FRAME_TYPE_OFFSET) == layout.TYPE_DATA:
                seen.append(pair.in_log.get_bytes(at + 32, length - 32))
            read += (length + 31) & ~31
        pair.consume()
    for _ in range(400):
        pair.now_ns += 100_000_000
        pair.cycle()
        answer_losses(pair)
        pair.deliver(faults, loss=0.2)
        if pair.value(RECEIVER_POSITION) == pair.writer.position:
            break
        pair.consume()
    assert pair.value(SENDER_POSITION) == pair.writer.position
    assert pair.value(RECEIVER_POSITION) == pair.writer.position
    assert seen == wanted[: len(seen)]
    assert len(seen) > 200
