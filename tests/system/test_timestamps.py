"""Timestamps that drivers write into messages in transit, from end to end."""

from __future__ import annotations

import struct
import time

import pytest
from tests.support.invoked_pair import Hosts
from tests.support.ports import free_port
from tests.support.waiting import STALL_S

pytestmark = pytest.mark.system
MINUTE_NS = 60_000_000_000


def test_a_message_carries_its_send_and_receive_times() -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    messages: list[bytes] = []
    with Hosts() as hosts:
        subscription = hosts.far.add_subscription(
            f"{channel}|media-rcv-ts-offset=8|channel-rcv-ts-offset=16", stream_id=1001
        )
        publication = hosts.near.add_publication(f"{channel}|channel-snd-ts-offset=0", stream_id=1001)
        hosts.until(lambda: publication.is_connected and subscription.is_connected)
        before = time.time_ns()
        publication.send(b"\xff" * 24 + b"tide", timeout=STALL_S)
        publication.send(b"short", timeout=STALL_S)
        hosts.until(lambda: subscription.poll(lambda f: messages.append(bytes(f)), 10) and len(messages) == 2)
        after = time.time_ns()
    sent, media, channel_time = struct.unpack_from("<qqq", messages[0])
    assert before <= sent <= channel_time <= after
    assert before - MINUTE_NS <= media <= after  # the kernel's own timestamp
    assert media <= channel_time
    assert messages[0][24:] == b"tide"
    # Nothing is written if the message has no room for it.
    assert messages[1] == b"short"


def test_the_reserved_value_may_hold_the_time() -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    values: list[int] = []
    with Hosts() as hosts:
        subscription = hosts.far.add_subscription(f"{channel}|channel-rcv-ts-offset=reserved", stream_id=1001)
        publication = hosts.near.add_publication(channel, stream_id=1001)
        hosts.until(lambda: publication.is_connected and subscription.is_connected)
        before = time.time_ns()
        publication.send(b"tide", timeout=STALL_S)
        hosts.until(lambda: subscription.poll(lambda f: values.append(f.header.reserved_value), 10))
    assert before <= values[0] <= time.time_ns()
