"""Messages that are not accepted at once are retried in order for 500 ms, and then raise an error."""

from __future__ import annotations

import pytest

from mainstem._internal.clock import NS_PER_MS
from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.duologue.crypto import Opener, Sealer
from mainstem.duologue.streams import MAX_QUEUED, Outbox
from mainstem.errors import BackPressured, ConnectionLost, NotConnected


class Window:
    """A stream that accepts ``room`` messages and then returns ``status``."""

    def __init__(self, room: int = 0, status: int = OfferStatus.BACK_PRESSURED) -> None:
        self.room, self.status = room, status
        self.taken: list[bytes] = []

    def offer(self, data: bytes, /, *, reserved_value: int = 0) -> int:
        if self.room <= 0:
            return self.status
        self.room -= 1
        self.taken.append(data)
        return len(self.taken)


def test_sends_at_once_if_there_is_room() -> None:
    window = Window(2)
    outbox = Outbox(window, name="x")
    outbox.queue(b"a", 0)
    assert window.taken == [b"a"]
    assert not outbox


def test_keeps_the_order_while_waiting() -> None:
    window = Window(1)
    outbox = Outbox(window, name="x")
    for message in (b"a", b"b", b"c"):
        outbox.queue(message, 0)
    assert window.taken == [b"a"]
    window.room = 5
    assert outbox.do_work(400 * NS_PER_MS) == 2
    assert window.taken == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("status", "error"),
    [(OfferStatus.BACK_PRESSURED, BackPressured), (OfferStatus.NOT_CONNECTED, NotConnected)],
)
def test_fails_after_500_ms_with_the_reason(status: int, error: type[Exception]) -> None:
    outbox = Outbox(Window(0, status), name="duologue 7")
    outbox.queue(b"a", 0)
    assert outbox.do_work(499 * NS_PER_MS) == 0
    with pytest.raises(error, match=r"duologue 7.*500 ms"):
        outbox.do_work(500 * NS_PER_MS)


def test_each_message_has_its_own_500_ms() -> None:
    window = Window(0)
    outbox = Outbox(window, name="x")
    outbox.queue(b"a", 0)
    outbox.queue(b"b", 0)
    window.room = 1
    outbox.do_work(499 * NS_PER_MS)
    assert outbox.do_work(900 * NS_PER_MS) == 0
    with pytest.raises(BackPressured):
        outbox.do_work(999 * NS_PER_MS)


def test_a_failure_is_not_reported_to_the_next_messages_sender() -> None:
    outbox = Outbox(Window(0, OfferStatus.NOT_CONNECTED), name="x")
    outbox.queue(b"a", 0)
    outbox.queue(b"b", 900 * NS_PER_MS)
    with pytest.raises(NotConnected):
        outbox.do_work(900 * NS_PER_MS)
    outbox.drop_first()
    assert len(outbox) == 1
    assert outbox.do_work(900 * NS_PER_MS) == 0


def test_a_closed_stream_is_an_error_at_once() -> None:
    with pytest.raises(ConnectionLost):
        Outbox(Window(0, OfferStatus.CLOSED), name="x").queue(b"a", 0)


def test_an_offered_message_is_sent_immediately_or_not_at_all() -> None:
    window = Window(1)
    outbox = Outbox(window, name="x")
    assert outbox.offer(b"a")
    assert not outbox.offer(b"b")
    assert not outbox
    window.room = 1
    assert outbox.offer(b"c")
    assert window.taken == [b"a", b"c"]
    assert (outbox.messages_sent, outbox.bytes_sent) == (2, 2)
    window.status = OfferStatus.CLOSED
    with pytest.raises(ConnectionLost):
        outbox.offer(b"d")


def test_an_offer_does_not_overtake_queued_messages() -> None:
    window = Window(0)
    outbox = Outbox(window, name="x")
    outbox.queue(b"a", 0)
    window.room = 5
    assert not outbox.offer(b"b")
    outbox.do_work(1)
    assert outbox.offer(b"b")
    assert window.taken == [b"a", b"b"]


def test_an_abandoned_sealed_message_leaves_no_gap() -> None:
    window = Window(0)
    outbox = Outbox(window, name="x", sealer=Sealer(bytes(32), 5))
    assert not outbox.offer(b"given up")
    window.room = 2
    same = b"same"
    assert outbox.offer(same)
    assert outbox.offer(same)
    opener = Opener(bytes(32), 5)
    for taken in window.taken:
        assert opener.open(taken) == same
        opener.number += 1


def test_queues_no_more_than_its_limit() -> None:
    outbox = Outbox(Window(0), name="x")
    for _ in range(MAX_QUEUED):
        outbox.queue(b"a", 0)
    with pytest.raises(BackPressured, match="the queue is full"):
        outbox.queue(b"a", 0)


def test_seals_each_message_once() -> None:
    window = Window(0)
    outbox = Outbox(window, name="x", sealer=Sealer(bytes(32), 5))
    outbox.queue(b"a", 0)
    outbox.queue(b"b", 0)
    outbox.do_work(1)
    window.room = 2
    outbox.do_work(2)
    opener = Opener(bytes(32), 5)
    first, second = window.taken
    assert opener.open(first) == b"a"
    opener.number += 1
    assert opener.open(second) == b"b"
