"""The engine's behavior, rule by rule, between two well-behaved sides."""

from __future__ import annotations

import pytest
from aqueduct_pair import Pair

from mainstem.aqueduct.events import (
    Acknowledged,
    Attach,
    Lost,
    Mode,
    PeerHeaders,
    ReceiverEnded,
    ResetStream,
    SendDatagram,
    SenderEnded,
    SendStream,
    Writable,
)
from mainstem.aqueduct.frames import VERSION_BYTES
from mainstem.aqueduct.limits import Limits
from mainstem.aqueduct.state import ReceiverState, SenderState
from mainstem.errors import BackPressured, ConnectionLost, LocalProtocolError

RECEIVER, SENDER = (Attach.RECEIVER, False), (Attach.SENDER, False)
ONESHOT_SENDER = (Attach.SENDER, True)


def streams(pair: Pair, stream_id: int) -> bytes:
    return b"".join(c.data for c in pair.client.sent if isinstance(c, SendStream) and c.stream_id == stream_id)


def test_each_side_starts_with_version_and_headers() -> None:
    pair = Pair(headers=(("asked", b"1"),))
    assert streams(pair, 0) == VERSION_BYTES + bytes.fromhex("0108") + b"\x05asked\x011"
    answer = next(c for c in pair.server.sent if isinstance(c, SendStream) and c.stream_id == 0)
    assert answer.data.startswith(VERSION_BYTES + b"\x01")
    assert [event.headers for event in pair.server.of(PeerHeaders)] == [(("asked", b"1"),)]
    assert [event.headers for event in pair.client.of(PeerHeaders)] == [(("answer", b"yes"),)]


def test_the_server_opens_the_entrypoints_control_stream() -> None:
    pair = Pair()
    assert SendStream(1, b"\x02\x00", False) in pair.server.sent


def test_a_client_sends_its_version_first_without_waiting_for_a_response() -> None:
    pair = Pair(start=False)
    pair.client.conn.start(pair.now)
    pair.client.conn.output.transport_state(datagrams=5, max_datagram=1000)
    pair.client.conn.send(0, b"early", mode=Mode.UNORDERED)
    pair.client.conn.send(0, b"datagram", mode=Mode.UNRELIABLE)
    commands = pair.client.conn.data_to_send(pair.now)
    assert len(commands) == 3
    assert all(command.data.startswith(VERSION_BYTES) for command in commands)  # type: ignore[union-attr]
    # They arrive out of order and are kept until the greeting arrives.
    for command in sorted(commands, key=lambda c: isinstance(c, SendStream) and c.stream_id == 0):
        pair.deliver(pair.client, command)
    pair.run()
    assert sorted(pair.payloads(pair.server, 0)) == [b"datagram", b"early"]
    pair.client.conn.send(0, b"later", mode=Mode.UNORDERED)
    assert not pair.client.conn.data_to_send(pair.now)[-1].data.startswith(VERSION_BYTES)  # type: ignore[union-attr]


def test_a_client_keeps_messages_that_overtake_the_servers_headers() -> None:
    pair = Pair(start=False)
    pair.client.conn.start(pair.now)
    pair.hold = lambda end, command: end is pair.server and isinstance(command, SendStream) and command.stream_id == 0
    pair.run()
    assert not pair.client.conn.is_ready
    assert pair.client.conn.channels.senders[0].control is None
    pair.release()
    assert pair.client.conn.channels.senders[0].control is not None


def test_a_channel_finishes_once_everything_was_received() -> None:
    pair = Pair()
    (inner,) = pair.client.conn.send(0, b"take", attach=[RECEIVER])
    for number in range(3):
        pair.client.conn.send(inner, b"%d" % number)
    pair.client.conn.finish(inner)
    pair.run()
    taken = pair.receive(pair.server, 0)
    assert taken is not None
    assert [(a.channel_id, a.is_sender, a.state) for a in taken.attachments] == [(inner, False, ReceiverState.FINISHED)]
    assert pair.payloads(pair.server, inner) == [b"0", b"1", b"2"]
    assert pair.client.of(SenderEnded) == [SenderEnded(inner, SenderState.FINISHED)]
    with pytest.raises(LocalProtocolError):
        pair.client.conn.send(inner, b"more")


def test_a_cancelled_channel_drops_unreceived_messages() -> None:
    pair = Pair()
    (inner,) = pair.client.conn.send(0, b"take", attach=[RECEIVER])
    pair.client.conn.send(inner, b"unread", tag="unread")
    pair.run()
    pair.receive(pair.server, 0)
    pair.client.conn.cancel(inner)
    pair.run()
    assert pair.payloads(pair.server, inner) == []
    assert pair.server.of(ReceiverEnded) == [ReceiverEnded(inner, ReceiverState.CANCELLED)]
    assert pair.client.of(SenderEnded) == [SenderEnded(inner, SenderState.CANCELLED)]
    assert pair.client.conn.live_halves == pair.server.conn.live_halves == 1


def test_a_received_sender_cancels_only_once_the_peer_knows_its_stream() -> None:
    pair = Pair()
    (inner,) = pair.client.conn.send(0, b"take", attach=[SENDER])
    pair.run()
    pair.receive(pair.server, 0)
    control = pair.server.conn.channels.senders[inner].control
    assert control is not None
    resets = [c for c in pair.server.sent if isinstance(c, ResetStream)]
    control.heard = False
    pair.hold = lambda end, command: not isinstance(command, ResetStream) and end is pair.server
    pair.server.conn.cancel(inner)
    pair.run()
    assert [c for c in pair.server.sent if isinstance(c, ResetStream)] == resets, "it waits for the delivery"
    pair.release()
    assert ReceiverEnded(inner, ReceiverState.CANCELLED) in pair.client.events


def test_closing_a_receiver_notifies_the_sender_and_drops_the_rest() -> None:
    pair = Pair()
    (inner,) = pair.client.conn.send(0, b"take", attach=[RECEIVER])
    pair.client.conn.send(inner, b"handed_over", tag="handed_over")
    pair.run()
    pair.receive(pair.server, 0)
    pair.hold = lambda end, command: isinstance(command, SendStream) and b"late" in command.data
    pair.client.conn.send(inner, b"late", tag="late")
    pair.run()
    pair.server.conn.close_receiver(inner)
    pair.wait(0.1)
    assert [event.tag for event in pair.client.of(Acknowledged)] == ["handed_over"]
    assert [event.tag for event in pair.client.of(Lost)] == ["late"]
    assert SenderEnded(inner, SenderState.NO_RECEIVERS) in pair.client.events
    pair.release()
    assert pair.server.conn.context.counts.messages_discarded == 1, "the late message makes no ghost receiver"
    assert pair.server.conn.live_halves == 1


def test_a_lost_datagram_is_abandoned_after_the_grace_period() -> None:
    pair = Pair()
    pair.hold = lambda end, command: isinstance(command, SendDatagram) and b"second" in command.data
    for name in (b"first", b"second", b"third"):
        pair.client.conn.send(0, name, mode=Mode.UNRELIABLE, tag=name)
    pair.run()
    pair.wait(0.5)
    assert [event.tag for event in pair.client.of(Acknowledged)] == [b"first"], "the gap may still be filled"
    pair.wait(1.5)
    assert [event.tag for event in pair.client.of(Acknowledged)] == [b"first", b"third"]
    assert [event.tag for event in pair.client.of(Lost)] == [b"second"]
    pair.release()
    assert pair.payloads(pair.server, 0) == [b"first", b"third"]
    assert pair.server.conn.context.counts.unreliable_late == 1


def test_an_unreliable_message_too_large_for_a_datagram_is_sent_reliably() -> None:
    pair = Pair(max_datagram=100)
    pair.client.conn.send(0, bytes(200), mode=Mode.UNRELIABLE)
    pair.client.conn.send(0, bytes(20), mode=Mode.UNRELIABLE)
    pair.run()
    sender = pair.client.conn.channels.senders[0]
    assert (sender.next, sender.next_unreliable) == (1, 1)


def test_a_full_datagram_queue_drops_its_oldest_message() -> None:
    pair = Pair(limits=Limits(send_messages=3))
    pair.client.conn.output.transport_state(datagrams=0)
    for number in range(6):
        pair.client.conn.send(0, b"%d" % number, mode=Mode.UNRELIABLE, tag=number)
    assert pair.client.conn.context.counts.unreliable_dropped == 3
    pair.run()
    assert [event.tag for event in pair.client.of(Lost)] == [0, 1, 2]
    assert pair.payloads(pair.server, 0) == [b"3", b"4", b"5"]


def test_a_slow_datagram_receiver_gets_the_newest() -> None:
    pair = Pair(limits=Limits(receive_messages=3))
    for number in range(6):
        pair.client.conn.send(0, b"%d" % number, mode=Mode.UNRELIABLE)
    pair.run()
    assert pair.payloads(pair.server, 0) == [b"3", b"4", b"5"]


def test_a_sender_waits_at_its_limit_until_there_is_room() -> None:
    pair = Pair()
    pair.client.conn.channels.senders[0].max_messages = 4
    for _ in range(4):
        pair.client.conn.send(0, b"x")
    with pytest.raises(BackPressured):
        pair.client.conn.send(0, b"x")
    pair.wait(0.1)
    assert pair.client.of(Writable) == [Writable(0)]
    pair.client.conn.send(0, b"x")


def test_an_unread_receiver_pauses_its_sender_until_it_reads() -> None:
    pair = Pair(limits=Limits(receive_messages=8))
    pair.client.conn.channels.senders[0].max_messages = 12
    sent = 0
    for _ in range(100):
        if pair.client.conn.channels.senders[0].accepts(Mode.ORDERED):
            pair.client.conn.send(0, b"%d" % sent)
            sent += 1
        pair.wait(0.02)
    assert sent == 20, "eight are queued, twelve are unacknowledged"
    assert len(pair.payloads(pair.server, 0)) == 20
    pair.wait(0.1)
    assert pair.client.conn.channels.senders[0].accepts(Mode.ORDERED)


def test_a_oneshot_finishes_with_its_message() -> None:
    pair = Pair()
    (reply,) = pair.client.conn.send(0, b"ask", attach=[ONESHOT_SENDER])
    pair.run()
    asked = pair.receive(pair.server, 0)
    assert asked is not None
    pair.server.conn.send(reply, b"answer", mode=Mode.UNORDERED)
    with pytest.raises(LocalProtocolError):
        pair.server.conn.send(reply, b"again")
    pair.run()
    assert pair.payloads(pair.client, reply) == [b"answer"]
    assert pair.client.conn.live_halves == pair.server.conn.live_halves == 1


def test_attachments_of_unreceived_messages_are_dropped_with_the_receiver() -> None:
    pair = Pair()
    sender, receiver = pair.client.conn.send(0, b"both", attach=[RECEIVER, SENDER])
    pair.run()
    pair.server.conn.close_receiver(0)
    pair.run()
    assert SenderEnded(sender, SenderState.NO_RECEIVERS) in pair.client.events
    assert ReceiverEnded(receiver, ReceiverState.CANCELLED) in pair.client.events
    assert pair.client.conn.live_halves == pair.server.conn.live_halves == 0


def test_messages_that_wait_for_stream_credit_are_numbered_without_gaps() -> None:
    pair = Pair()
    pair.client.conn.output.transport_state(uni_streams=2)
    for number in range(5):
        pair.client.conn.send(0, b"%d" % number, mode=Mode.UNORDERED)
    pair.run()
    assert pair.payloads(pair.server, 0) == [b"0", b"1"]
    pair.client.conn.output.transport_state(uni_streams=10)
    pair.run()
    assert pair.payloads(pair.server, 0) == [b"2", b"3", b"4"]


def test_unsent_streams_count_against_the_stream_credit() -> None:
    pair = Pair()
    conn = pair.client.conn
    conn.output.transport_state(uni_streams=3)
    for _ in range(2):
        conn.send(0, b"x", mode=Mode.UNORDERED)
    # The transport still reports three: it has not seen the two yet.
    conn.output.transport_state(uni_streams=3)
    for _ in range(4):
        conn.send(0, b"x", mode=Mode.UNORDERED)
    assert len(conn.data_to_send(pair.now)) == 3


def test_control_streams_wait_for_stream_credit() -> None:
    pair = Pair()
    pair.server.conn.output.transport_state(bidi_streams=0)
    (inner,) = pair.client.conn.send(0, b"take", attach=[RECEIVER])
    pair.client.conn.send(inner, b"x")
    pair.client.conn.finish(inner)
    pair.wait(0.1)
    assert pair.client.conn.channels.senders[inner].state is SenderState.FINISH_PENDING
    pair.server.conn.output.transport_state(bidi_streams=1)
    pair.run()
    assert SenderEnded(inner, SenderState.FINISHED) in pair.client.events


def test_a_receiver_ahead_of_its_creating_message_leaves_one_control_stream() -> None:
    pair = Pair()
    senders, allow = pair.client.conn.channels.senders, pair.server.conn.output.transport_state
    allow(bidi_streams=1)
    pair.hold = lambda end, command: isinstance(command, SendStream) and b"root" in command.data
    (early,) = pair.client.conn.send(0, b"root", mode=Mode.UNORDERED, attach=[RECEIVER])
    (inner,) = pair.client.conn.send(early, b"ahead", attach=[RECEIVER])
    pair.run()
    (later,) = pair.client.conn.send(0, b"later", mode=Mode.UNORDERED, attach=[RECEIVER])
    pair.run()
    assert [senders[channel].control is not None for channel in (early, inner, later)] == [False, False, True]
    allow(bidi_streams=2)
    pair.run()
    assert [senders[channel].control is not None for channel in (early, inner)] == [True, False]
    # The creating message arrives, so the application can get the receiver, and what is in its messages.
    pair.release()
    assert senders[inner].control is not None
    assert pair.server.conn.output.bidi_room == 0


def test_closing_the_connection_ends_each_half_once() -> None:
    pair = Pair()
    pair.client.conn.send(0, b"x", attach=[RECEIVER, SENDER])
    pair.run()
    pair.client.conn.close()
    pair.run()
    for end in (pair.client, pair.server):
        assert end.conn.is_ended
        assert end.error is None
        ids = [(type(event), event.channel_id) for event in (*end.of(SenderEnded), *end.of(ReceiverEnded))]
        assert len(ids) == len(set(ids))
        assert end.conn.live_halves == len(end.conn.streams.open) == 0
    with pytest.raises(ConnectionLost):
        pair.client.conn.send(0, b"x")


def test_opening_a_channel_and_responding_takes_one_flight_each_way() -> None:
    pair = Pair()
    client, server = pair.client.conn, pair.server.conn
    asked, answered = client.send(0, b"the channels", attach=[(Attach.RECEIVER, False), (Attach.SENDER, False)])
    client.send(asked, b"question")
    for command in client.data_to_send(pair.now):
        pair.deliver(pair.client, command)
    assert server.receive(0) is not None
    question = server.receive(asked)
    assert question is not None
    server.send(answered, question.payload + b", answered")
    for command in server.data_to_send(pair.now):
        pair.deliver(pair.server, command)
    answer = client.receive(answered)
    assert answer is not None
    assert answer.payload == b"question, answered"


def test_plain_messages_take_the_fast_path_only_if_nothing_is_queued() -> None:
    pair = Pair()
    conn = pair.client.conn
    ordered = conn.channels.senders[0]
    assert not ordered.put(b"no stream yet")
    conn.send(0, b"0")
    assert ordered.put(b"1")
    # A message with an attachment is queued behind it, and the next message behind that one.
    (inner,) = conn.send(0, b"2", attach=[(Attach.RECEIVER, False)])
    assert ordered.put(b"3")
    pair.run()
    assert pair.payloads(pair.server, 0) == [b"0", b"1", b"2", b"3"]
    conn.send(inner, b"x")
    pair.run()
    conn.finish(0)
    assert not ordered.put(b"after the end")
    pair.wait(1)
    assert pair.server.error is None


def test_the_fast_path_respects_limits_and_credit() -> None:
    pair = Pair(limits=Limits(send_messages=3))
    conn = pair.client.conn
    put = conn.channels.senders[0].put
    conn.output.transport_state(uni_streams=3, datagrams=3, max_datagram=100)
    conn.send(0, b"-", mode=Mode.UNORDERED)
    assert [put(b"%d" % number) for number in range(3)] == [True, True, False]
    conn.send(0, b"d-", mode=Mode.UNRELIABLE)
    assert [put(b"d%d" % number) for number in range(3)] == [True, True, False]
    assert not put(bytes(200))
    pair.run()
    conn.output.transport_state(uni_streams=1000)
    # They wait at the server, which has acknowledged them; only unacknowledged messages count against the bound.
    assert sorted(pair.payloads(pair.server, 0)) == [b"-", b"0", b"1", b"d-", b"d0", b"d1"]
    pair.wait(0.1)
    conn.send(0, b"-", mode=Mode.UNORDERED)
    assert [put(b"%d" % number) for number in range(3)] == [True, True, False]
    conn.cancel(0)
    assert not put(b"late")


def test_the_fast_path_opens_streams_in_order_of_their_ids() -> None:
    pair = Pair()
    conn = pair.client.conn
    conn.send(0, b"opens the ordered stream")
    conn.send(0, b"opens the next", mode=Mode.UNORDERED)
    assert conn.channels.senders[0].put(b"the one behind")
    conn.send(0, b"the last", mode=Mode.UNORDERED)
    ids = [command.stream_id for command in conn.data_to_send(pair.now) if isinstance(command, SendStream)]
    assert ids == sorted(ids)
    assert len(ids) == 4
