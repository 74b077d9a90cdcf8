"""Whole requests and responses: joining events and sending lone messages directly change nothing on the wire."""

from __future__ import annotations

import pytest
from tests.support.mux_engines import drain

from mainstem.errors import RemoteProtocolError
from mainstem.jmux import Settings, events
from mainstem.jmux.codec import CLOSE, DATA, EOF, HEADER, OPEN
from mainstem.mux.engine import LONE_BYTES

from .helpers import client, pair, server


def test_a_whole_request_and_its_response_are_one_event_each() -> None:
    us, them = pair()
    us.joins_events = them.joins_events = True
    for round_ in range(3):  # the id is reused
        session = us.open_session()
        us.request(session, b"tide")
        them.receive_data(us.data_to_send())
        (request,) = drain(them)
        assert request == events.RequestReceived(them.sessions[0], b"tide")
        theirs = them.sessions[0]
        assert (theirs.peer.name, theirs.local.name, theirs.unconsumed) == ("FINISHED", "OPEN", 4)
        them.write(theirs, b"ebb!!")
        them.finish(theirs)
        us.receive_data(them.data_to_send())
        assert drain(us) == [events.ResponseReceived(session, b"ebb!!")]
        assert session.ended
        assert session.response_complete
        assert session.delivery.value == "complete"
        assert not us.sessions
        assert (us.busy, round_) == (0, round_)


def test_parts_of_a_message_are_separate_events_that_the_last_part_ends() -> None:
    us, them = pair()
    us.joins_events = them.joins_events = True
    session = us.open_session()
    us.request(session, b"tide")
    wire = us.data_to_send()
    for byte in wire:
        them.receive_data(bytes([byte]))
    kinds = [type(event) for event in drain(them)]
    assert kinds == [events.SessionOpened, *[events.DataReceived] * 4, events.DataFinished]
    theirs = them.sessions[0]
    them.write(theirs, b"ebb")
    first = them.data_to_send()
    them.finish(theirs)
    us.receive_data(first + them.data_to_send())
    assert drain(us) == [events.DataReceived(session, b"ebb"), events.ResponseReceived(session, b"")]


def test_rations_and_states_hold_for_whole_messages() -> None:
    small = Settings(initial_ration=256)
    for end, flags in ((server(small), OPEN | EOF), (client(small), EOF | CLOSE)):
        end.joins_events = True
        with pytest.raises(RemoteProtocolError):
            end.receive_data(HEADER.pack(DATA | flags, 0, 257) + bytes(257))
    _us, them = pair()
    them.joins_events = True
    whole = HEADER.pack(DATA | OPEN | EOF, 0, 1) + b"x"
    them.receive_data(whole)
    with pytest.raises(RemoteProtocolError) as caught:
        them.receive_data(whole)  # the first response is still outstanding
    assert caught.value.rule == "open-before-previous-session-terminated"


@pytest.mark.parametrize("length", [0, 1, 1000, 1001, LONE_BYTES, LONE_BYTES + 1])
@pytest.mark.parametrize("ration", [0, 1024])
def test_a_message_that_leaves_alone_is_what_the_queue_would_have_sent(length: int, ration: int) -> None:
    settings = Settings(initial_ration=ration)
    body = bytes(length)
    ends = [pair(settings, settings) for _ in range(2)]
    sessions = [us.open_session() for us, _ in ends]
    message = ends[0][0].message_of(sessions[0], body)
    is_whole = length <= LONE_BYTES and (not ration or length <= ration)
    assert bool(message) == is_whole
    if not message:
        ends[0][0].request(sessions[0], body)
    ends[1][0].write(sessions[1], body)
    ends[1][0].finish(sessions[1])
    wires = [message + ends[0][0].data_to_send(), ends[1][0].data_to_send()]
    assert wires[0] == wires[1]
    for attribute in ("local", "peer", "sent", "outbound", "eof_wanted"):
        assert getattr(sessions[0], attribute) == getattr(sessions[1], attribute)
    if not is_whole:
        return
    theirs = []
    for (_, them), wire in zip(ends, wires, strict=True):
        them.receive_data(wire)
        theirs.append(them.sessions[0])
        them.write(theirs[-1], body)
        them.finish(theirs[-1])
    response = ends[0][1].message_of(theirs[0])
    assert response
    assert (response, b"") == (ends[1][1].data_to_send(), ends[0][1].data_to_send())
    for attribute in ("local", "peer", "sent", "outbound", "response_sent"):
        assert getattr(theirs[0], attribute) == getattr(theirs[1], attribute)


@pytest.mark.parametrize("rest", [b"", b"ebb"])
@pytest.mark.parametrize("is_finished", [False, True])
def test_the_rest_of_a_response_leaves_alone_as_the_queue_would_have_sent_it(rest: bytes, is_finished: bool) -> None:
    ends = [pair() for _ in range(2)]
    theirs = []
    for us, them in ends:
        us.request(us.open_session(), b"tide")
        them.receive_data(us.data_to_send())
        theirs.append(them.sessions[0])
        them.write(theirs[-1], b"a part")
        them.data_to_send()
        them.write(theirs[-1], rest)
    if is_finished:
        ends[0][1].finish(theirs[0])
    ends[1][1].finish(theirs[1])
    assert ends[0][1].message_of(theirs[0]) == ends[1][1].data_to_send()
    assert ends[0][1].data_to_send() == ends[0][1].message_of(theirs[0]) == b""
    for attribute in ("local", "peer", "sent", "outbound", "eof_wanted", "response_sent"):
        assert getattr(theirs[0], attribute) == getattr(theirs[1], attribute)


def test_messages_are_not_sent_separately_while_others_are_queued() -> None:
    us, them = pair()
    first, second = us.open_session(), us.open_session()
    us.request(first, b"first")
    assert us.message_of(second, b"second") == b""
    us.request(second, b"second")
    them.receive_data(us.data_to_send())
    for session in them.sessions.values():
        them.write(session, b"response")
        them.finish(session)
    assert them.message_of(them.sessions[0]) == b""
    us.receive_data(them.data_to_send())
    assert first.response_complete
    assert second.response_complete
