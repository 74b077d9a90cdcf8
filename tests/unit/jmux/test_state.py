"""The Jmux state tables, checked pair by pair against the specification."""

from __future__ import annotations

from itertools import product

import pytest
from tests.support.mux_engines import drain

from mainstem.errors import LocalProtocolError, RemoteProtocolError
from mainstem.jmux.state import CLIENT_ROWS, MAY_OPEN, NEXT, SERVER_ROWS, HalfState, Input, Role, Rule

from .helpers import client, server

PAIRS = list(product(HalfState, Input))
WIRE = {
    Input.OPEN: "90000000",
    Input.OPEN_EOF: "94000000",
    Input.DATA: "80000000",
    Input.EOF: "84000000",
    Input.CLOSE_EOF: "8c000000",
    Input.CLOSE: "30000000",
    Input.ABORT: "20000000",
    Input.INCREMENT: "10000001",
    Input.ACKNOWLEDGMENT: "40000000",
}


def client_may(half: HalfState, sent: Input) -> bool:
    """Return whether the specification lets a client send that message, with its sentences expressed as conditions."""
    established = half in (HalfState.OPEN, HalfState.FINISHED)
    return {
        Input.OPEN: half is HalfState.NONE,
        Input.OPEN_EOF: half is HalfState.NONE,
        Input.DATA: half is HalfState.OPEN,
        Input.EOF: half is HalfState.OPEN,
        Input.CLOSE_EOF: False,
        Input.CLOSE: False,
        Input.ABORT: established,
        Input.INCREMENT: established,
        Input.ACKNOWLEDGMENT: established,
    }[sent]


def server_may(half: HalfState, sent: Input) -> bool:
    established = half in (HalfState.OPEN, HalfState.FINISHED)
    return {
        Input.OPEN: False,
        Input.OPEN_EOF: False,
        Input.DATA: half is HalfState.OPEN,
        Input.EOF: half is HalfState.OPEN,
        Input.CLOSE_EOF: half is HalfState.OPEN,
        Input.CLOSE: half is HalfState.FINISHED,
        Input.ABORT: established,
        Input.INCREMENT: established,
        Input.ACKNOWLEDGMENT: False,
    }[sent]


def after(half: HalfState, sent: Input) -> HalfState:
    if sent is Input.OPEN:
        return HalfState.OPEN
    if sent in (Input.OPEN_EOF, Input.EOF):
        return HalfState.FINISHED
    if sent in (Input.CLOSE_EOF, Input.CLOSE, Input.ABORT):
        return HalfState.TERMINATED
    return half


def test_the_tables_cover_every_pair() -> None:
    assert set(CLIENT_ROWS) == set(SERVER_ROWS) == set(Input)
    for role, rows in zip(Role, (CLIENT_ROWS, SERVER_ROWS), strict=True):
        assert all(NEXT[role][half][sent] == rows[sent][half] for half, sent in PAIRS)
    assert len(MAY_OPEN) == 3


@pytest.mark.parametrize(("half", "sent"), PAIRS)
@pytest.mark.parametrize("role", Role)
def test_transitions_follow_the_specification(role: Role, half: HalfState, sent: Input) -> None:
    following = NEXT[role][half][sent]
    may = (client_may if role is Role.CLIENT else server_may)(half, sent)
    assert isinstance(following, Rule) == (not may)
    if may:
        assert following == after(half, sent)


@pytest.mark.parametrize(("half", "sent"), PAIRS)
def test_a_server_accepts_what_the_table_allows(half: HalfState, sent: Input) -> None:
    connection = server()
    if half is not HalfState.NONE:
        connection.receive_data(bytes.fromhex(WIRE[Input.OPEN_EOF if half is HalfState.FINISHED else Input.OPEN]))
        session = drain(connection)[0].session  # type: ignore[attr-defined]
        if sent is Input.ACKNOWLEDGMENT:
            connection.finish(session, ack_required=True)
            connection.data_to_send()
        if half is HalfState.TERMINATED:
            connection.receive_data(bytes.fromhex(WIRE[Input.ABORT]))
            half = HalfState.NONE  # we answered at once, so the session is already gone
    following = CLIENT_ROWS[sent][half]
    if half is HalfState.FINISHED and sent in (Input.OPEN, Input.OPEN_EOF):
        assert following == "open-before-previous-session-terminated"
    if isinstance(following, HalfState):
        connection.receive_data(bytes.fromhex(WIRE[sent]))
        assert connection.failure is None
    else:
        with pytest.raises(RemoteProtocolError) as caught:
            connection.receive_data(bytes.fromhex(WIRE[sent]))
        assert caught.value.rule == following


@pytest.mark.parametrize("server_half", [HalfState.OPEN, HalfState.FINISHED, HalfState.TERMINATED])
@pytest.mark.parametrize("client_half", [HalfState.OPEN, HalfState.FINISHED])
def test_an_id_may_be_reused_exactly_when_both_halves_allow_it(client_half: HalfState, server_half: HalfState) -> None:
    connection = server()
    connection.receive_data(bytes.fromhex(WIRE[Input.OPEN_EOF if client_half is HalfState.FINISHED else Input.OPEN]))
    session = drain(connection)[0].session  # type: ignore[attr-defined]
    if server_half is HalfState.FINISHED and client_half is HalfState.FINISHED:
        session.local = HalfState.FINISHED  # otherwise it ends at once: Close is sent with eof
    elif server_half is not HalfState.OPEN:
        connection.finish(session)
        connection.data_to_send()
        if server_half is HalfState.TERMINATED:
            connection.close(session)
    assert (session.peer, session.local) == (client_half, server_half)
    reopen = bytes.fromhex(WIRE[Input.OPEN])
    if (client_half, server_half) in MAY_OPEN:
        connection.receive_data(reopen)
        assert connection.sessions[0] is not session
    else:
        with pytest.raises(RemoteProtocolError):
            connection.receive_data(reopen)


@pytest.mark.parametrize(("half", "sent"), PAIRS)
def test_a_client_accepts_what_the_table_allows(half: HalfState, sent: Input) -> None:
    connection = client()
    if half is not HalfState.NONE:
        session = connection.open_session()
        connection.flush(session)
        connection.data_to_send()
        if half is HalfState.FINISHED:
            connection.receive_data(bytes.fromhex(WIRE[Input.EOF]))
        elif half is HalfState.TERMINATED:
            connection.receive_data(bytes.fromhex(WIRE[Input.ABORT]))
            half = HalfState.NONE
    following = SERVER_ROWS[sent][half]
    if isinstance(following, HalfState):
        connection.receive_data(bytes.fromhex(WIRE[sent]))
        assert connection.failure is None
    else:
        with pytest.raises(RemoteProtocolError) as caught:
            connection.receive_data(bytes.fromhex(WIRE[sent]))
        assert caught.value.rule == following


def test_a_client_call_forbidden_by_its_half_raises() -> None:
    connection = client()
    session = connection.open_session()
    with pytest.raises(LocalProtocolError, match="inactive"):
        connection.increment(session, 4)
    with pytest.raises(LocalProtocolError, match="not-requested"):
        connection.acknowledge(session)
    connection.finish(session)
    for act in (lambda: connection.write(session, b"x"), lambda: connection.finish(session)):
        with pytest.raises(LocalProtocolError) as caught:
            act()
        assert caught.value.rule == "data-on-finished-session"
    connection.data_to_send()
    connection.abort(session)
    with pytest.raises(LocalProtocolError):
        connection.abort(session)
    with pytest.raises(LocalProtocolError):
        connection.increment(session, 4)


def test_a_server_call_forbidden_by_its_half_raises() -> None:
    connection = server()
    connection.receive_data(bytes.fromhex("94000001 41"))
    session = drain(connection)[0].session  # type: ignore[attr-defined]
    with pytest.raises(LocalProtocolError) as caught:
        connection.close(session)
    assert caught.value.rule == "close-on-open-session"
    connection.consume(session, 1)
    for act in (lambda: connection.abort(session, partial=False), connection.shut_down):
        with pytest.raises(LocalProtocolError):
            act()
    connection.finish(session)
    connection.data_to_send()
    for act in (
        lambda: connection.write(session, b"x"),
        lambda: connection.finish(session),
        lambda: connection.abort(session),
        lambda: connection.increment(session, 4),
    ):
        with pytest.raises(LocalProtocolError):
            act()
    assert connection.data_to_send() == b""
